/* The page that all modules share: its elements, and sentences about what was just done. Text of
   others is set as text only. */

export const one = (selector, from = document) => from.querySelector(selector);
export const all = (selector, from = document) => [...from.querySelectorAll(selector)];
export const live = one("#live");
export const home = live ? live.dataset.home : "";

/* A sentence about what was just done, also for screen readers. Where the page shows it already, at
   `shown`, only they get it. */
let toastTimer = 0;
export function say(text, shown = null) {
  const toast = one("#toast");
  if (!toast || !text) return;
  toast.classList.toggle("visually-hidden", isInView(shown));
  toast.textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { toast.textContent = ""; }, 5000);
}

function isInView(element) {
  const box = element && element.offsetParent ? element.getBoundingClientRect() : null;
  return box !== null && box.top >= 0 && box.bottom <= window.innerHeight;
}
