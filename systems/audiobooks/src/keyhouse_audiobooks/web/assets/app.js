/* The entry of the pages' scripts: it connects the player with the page, and pages with each
   other. */

import { HOME } from "./api.js";
import { bindKeep, forgetAll, listKept } from "./kept.js";
import { followOperations } from "./operations.js";
import { Places } from "./places.js";
import { Player } from "./player.js";
import { SleepTimer } from "./sleep_timer.js";
import { PlayerView } from "./view.js";

const USER = "audiobooks-user";
const place = document.getElementById("player");
const user = place.dataset.user || localStorage.getItem(USER) || "";
if (place.dataset.user) localStorage.setItem(USER, user);

const places = new Places(user);
const player = new Player(document.getElementById("audio"), places);
const view = new PlayerView(player, new SleepTimer(player), places);

/* Another tab that plays pauses this one. */
const tabs = new BroadcastChannel("keyhouse-audiobooks");
player.addEventListener("state", () => { if (!player.isPaused) tabs.postMessage("plays"); });
tabs.onmessage = () => player.pause();

document.addEventListener("click", event => {
  const play = event.target.closest("[data-play]");
  if (!play) return;
  event.preventDefault();
  const at = play.dataset.at === undefined ? null : Number(play.dataset.at);
  if (at === null && player.book?.id === play.dataset.play) { player.toggle(); return; }
  player.load(play.dataset.play, { at, autoplay: true })
    .catch(error => view.message(error.message));
});

document.addEventListener("submit", event => {
  const form = event.target;
  if (!form.matches("[data-sign-out]") || form.dataset.ready) return;
  event.preventDefault();
  player.pause();
  places.flush().catch(() => {}).then(forgetAll).finally(() => {
    localStorage.removeItem(USER);
    localStorage.removeItem("audiobooks-book");
    form.dataset.ready = "yes";
    form.requestSubmit();
  });
});

/* Bind what the current page has: after the first load, and after each page that htmx puts in. */
function bindPage() {
  for (const each of document.querySelectorAll("[data-keep]")) bindKeep(each);
  const kept = document.getElementById("kept-books");
  if (kept) listKept(kept).then(() => view.markPlaying());
  followOperations();
  for (const link of document.querySelectorAll(".top nav a")) {
    const path = new URL(link.href).pathname;
    const isHere = path === HOME ? location.pathname === path : location.pathname.startsWith(path);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const list = link.parentElement;
    if (isHere) list.scrollLeft = link.offsetLeft - list.offsetLeft - 16;
  }
}

document.addEventListener("htmx:after:swap", event => {
  bindPage();
  view.markPlaying();
  if (event.detail?.ctx?.target?.id !== "main") return;
  document.getElementById("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("change", event => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});
addEventListener("offline", () => { document.getElementById("offline-badge").hidden = false; });
addEventListener("online", () => { document.getElementById("offline-badge").hidden = true; });
document.getElementById("offline-badge").hidden = navigator.onLine;

bindPage();
player.restore();
places.flush().catch(() => {});
if ("serviceWorker" in navigator) {
  navigator.serviceWorker.register(`${HOME}service_worker.js`, { scope: HOME }).catch(console.warn);
  // A page that was loading when the worker became active is not controlled by it.
  navigator.serviceWorker.ready.then(({ active }) => {
    if (!navigator.serviceWorker.controller) active.postMessage("claim");
  });
}
document.documentElement.dataset.ready = "yes";
