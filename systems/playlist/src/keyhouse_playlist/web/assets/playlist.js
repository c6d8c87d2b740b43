/* Behaviour of the playlist pages, which work without it: panes as tabs, parts of the page that
   are replaced, dragging and arrow keys in the list (`list.js`), events (`channel.js`). */

import { clocks, follow, tick, unfollow } from "./channel.js";
import { listChanged, rememberFocus, restoreFocus, sendPressed } from "./list.js";
import { all, home, one, say } from "./page.js";

/* On a phone the two panes are tabs. */
function showPane(name) {
  const panes = one("[data-panes]");
  if (!panes) return;
  panes.dataset.show = name;
  for (const tab of all("[data-pane]")) {
    if (tab.dataset.pane === name) tab.setAttribute("aria-current", "true");
    else tab.removeAttribute("aria-current");
  }
}
document.addEventListener("click", event => {
  const tab = event.target.closest("[data-pane]");
  if (!tab) return;
  event.preventDefault();
  showPane(tab.dataset.pane);
  window.scrollTo(0, 0);
});

document.addEventListener("htmx:before:swap", event => {
  const response = event.detail.ctx && event.detail.ctx.response;
  if (response && response.raw && response.raw.redirected
      && new URL(response.raw.url).pathname.startsWith(home + "login")) {
    event.preventDefault();
    location.assign(response.raw.url);
    return;
  }
  if (response && response.status >= 400 && /^\s*<!doctype/i.test(event.detail.ctx.text)) {
    event.preventDefault();  // a whole page: its sentence is shown, the rest of this page stays
    const page = new DOMParser().parseFromString(event.detail.ctx.text, "text/html");
    say((one("[role=alert]", page) || page.body).textContent.trim());
    return;
  }
  sendPressed();  // while its row is still there
  rememberFocus();
});
document.addEventListener("htmx:after:swap", event => {
  if (one("[data-panes]:not([data-show])")) showPane("catalog");
  listChanged();
  clocks();
  restoreFocus();
  const target = event.detail.ctx && event.detail.ctx.target;
  const id = target && target.id;
  if (id === "list") {
    say(one("#list").dataset.said, one("#list .said[data-last], #list [role=alert]"));
  }
  if (id === "now") {
    const said = one("#now [data-said]");
    if (said) {
      say(said.dataset.said);
      const like = one("#like");
      if (like) like.classList.add("pulse");
    }
  }
  tick();
});

document.addEventListener("keydown", event => {
  const search = one("#q, #find");
  if (event.key !== "/" || !search || event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  showPane("catalog");
  search.focus();
});

document.addEventListener("htmx:error", () => say("This did not reach the server: try again."));
document.addEventListener("visibilitychange", follow);
window.addEventListener("pagehide", unfollow);
window.addEventListener("pageshow", follow);

const here = one("header nav [aria-current]");
if (here) here.scrollIntoView({ inline: "center", block: "nearest" });
showPane(location.hash === "#list" ? "list" : "catalog");
if (location.hash === "#list" && matchMedia("(max-width: 56rem)").matches) {
  window.addEventListener("load", () => setTimeout(() => scrollTo(0, 0)));  // a tab needs no jump
}
listChanged();
clocks();
tick();
setInterval(tick, 1000);
follow();
