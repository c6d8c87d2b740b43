"use strict";
/* Behaviour of the playlist pages, which work without it: panes as tabs, dragging and arrow keys in
   the list, and the channel's events. Text of others is set as text only. */

const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const live = one("#live");
const home = live ? live.dataset.home : "";

/* A sentence about what was just done, also for screen readers. Where the page shows it already, at
   `shown`, only they get it. */
let toastTimer = 0;
function say(text, shown = null) {
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

/* The list: after each change, what is in it is marked in the catalog, and the focus stays. */
function listChanged() {
  for (const grip of all("[data-grip]")) grip.hidden = false;
  const list = one("#list");
  if (!list) return;
  if (list.dataset.partial !== undefined) { countItems(list); return; }
  const inList = new Set(all("[data-items] > li", list).map(row => row.dataset.video));
  for (const row of all(".titles > li")) {
    const mark = one("[data-in-list]", row);
    if (mark) mark.hidden = !inList.has(row.dataset.video);
  }
  countItems(list);
}
function countItems(list) {
  const count = one("#tab-count");
  if (count) count.textContent = list.dataset.count || "0";
}
let focused = null;
function rememberFocus() {
  const active = document.activeElement;
  if (!active || active === document.body) return;
  const row = active.closest("[data-items] > li");
  focused = { id: active.id, place: row ? [...row.parentNode.children].indexOf(row) : -1 };
  if (active.matches("input:not([type=checkbox], [type=radio])")) focused.at = active.selectionStart;
}
function restoreFocus() {
  if (!focused || (document.activeElement && document.activeElement !== document.body)) return;
  const same = focused.id && document.getElementById(focused.id);
  const rows = focused.place < 0 ? [] : all("[data-items] > li");
  const near = rows[Math.min(focused.place, rows.length - 1)];
  const chosen = same && !same.disabled ? same
    : (same && one(".tools button:not(:disabled)", same.closest("li")))
    || (near && one(".tools button:last-child", near))
    || (focused.place < 0 ? null : one("#list-title"));
  if (chosen) chosen.focus({ preventScroll: true });
  if (chosen === same && focused.at !== undefined) same.setSelectionRange(focused.at, focused.at);
  focused = null;
}
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
  if (id === "list") say(one("#list").dataset.said, one("#list .said[data-last], #list [role=alert]"));
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

/* Moving items: by a pointer on the grip, or its arrow keys. One request when it has ended. */
let moving = null;
function step(item, to) {
  const list = item.closest("#list"), from = Number(item.dataset.at);
  if (!list || from === to) return;
  [...item.parentNode.children].forEach((row, number) => {
    row.dataset.at = Number(list.dataset.start) + number;  // where the server will have it
  });
  htmx.ajax("POST", home + "items", {
    source: "#live",  // it stays, and its requests are sent one after the other
    target: list,
    swap: "outerSync",
    values: {
      list: list.dataset.id,
      from: list.dataset.start,
      step: `move ${from} ${to} ${item.dataset.video}`,
    },
  });
}
function place(item) { return [...item.parentNode.children].indexOf(item); }
function start(item) { return Number(item.closest("#list").dataset.start); }
function put(item, to) {
  const rows = [...item.parentNode.children].filter(row => row !== item);
  item.parentNode.insertBefore(item, rows[to] || null);
}
document.addEventListener("pointerdown", event => {
  const grip = event.target.closest("[data-grip]");
  if (!grip || event.button) return;
  event.preventDefault();
  const item = grip.closest("li");
  grip.focus({ preventScroll: true });
  grip.setPointerCapture(event.pointerId);
  item.classList.add("dragged");
  moving = { item, y: event.clientY, start: event.clientY };
  requestAnimationFrame(scrollAtEdge);
});
document.addEventListener("pointermove", event => {
  if (!moving) return;
  moving.y = event.clientY;
  followPointer();
});
function followPointer() {
  const { item, y } = moving;
  for (const row of item.parentNode.children) {
    if (row === item) continue;
    const box = row.getBoundingClientRect();
    const middle = box.top + box.height / 2;
    const before = item.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_PRECEDING;
    if (before && y < middle) { row.before(item); break; }
    if (!before && y > middle && y < box.bottom + box.height) row.after(item);
  }
}
/* Near an edge the list scrolls, as long as the pointer stays there. */
function scrollAtEdge() {
  const list = moving && moving.item.closest("#list");
  if (!list) return;
  const inner = list.scrollHeight > list.clientHeight + 1;
  const box = inner ? list.getBoundingClientRect() : { top: 0, bottom: innerHeight };
  const by = moving.y < box.top + 60 ? -9 : moving.y > box.bottom - 60 ? 9 : 0;
  if (by && moving.y !== moving.start) {
    (inner ? list : document.scrollingElement).scrollBy(0, by);
    followPointer();
  }
  requestAnimationFrame(scrollAtEdge);
}
function drop(event) {
  if (!moving) return;
  const { item } = moving;
  moving = null;
  item.classList.remove("dragged");
  if (!item.isConnected) return;
  if (event.type === "pointercancel") put(item, Number(item.dataset.at) - start(item));
  else step(item, start(item) + place(item));
}
document.addEventListener("pointerup", drop);
document.addEventListener("pointercancel", drop);
let keyTimer = 0;
let pressed = null;
function sendPressed() {
  clearTimeout(keyTimer);
  const item = pressed;
  pressed = null;
  if (item && item.isConnected) step(item, start(item) + place(item));
}
document.addEventListener("keydown", event => {
  const grip = event.target.closest && event.target.closest("[data-grip]");
  if (!grip) return;
  const item = grip.closest("li");
  const last = item.parentNode.children.length - 1;
  const to = {
    ArrowUp: place(item) - 1, ArrowDown: place(item) + 1, Home: 0, End: last,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  if (to < 0 || to > last) return;
  if (pressed !== item) sendPressed();
  pressed = item;
  put(item, to);
  grip.focus();
  clearTimeout(keyTimer);
  keyTimer = setTimeout(sendPressed, 400);
});

document.addEventListener("keydown", event => {
  const search = one("#q, #find");
  if (event.key !== "/" || !search || event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  showPane("catalog");
  search.focus();
});

/* What is playing: the time goes on between two events. */
function clock(seconds) {
  const whole = Math.floor(seconds), pad = number => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}
function tick() {
  const now = one("#now[data-uid]");
  if (!now) return;
  if (!now.dataset.since) now.dataset.since = String(performance.now());
  const passed = now.dataset.paused === "true" ? 0
    : (performance.now() - Number(now.dataset.since)) / 1000;
  const most = Number(now.dataset.seconds) || Infinity;
  const at = Math.min(most, Number(now.dataset.time) + passed);
  one("[data-elapsed]", now).textContent = clock(at);
  const bar = one("progress", now);
  if (bar) bar.value = at;
}
function playing(item) {
  const now = one("#now");
  if (!now) return;
  if (item && String(item.uid) === now.dataset.uid && item.video_id === now.dataset.video) {
    now.dataset.time = item.current_time;
    now.dataset.paused = String(item.paused);
    now.dataset.since = String(performance.now());
    tick();
  } else if (item || now.dataset.uid) {
    htmx.ajax("GET", home + "now", { target: "#now", swap: "outerSync" });
  }
}
function liked(like) {
  const now = one("#now");
  if (now && now.dataset.video === like.video_id) one("[data-likes]", now).textContent = like.like_count;
}
let queueTimer = 0;
function queued(queue) {
  const shown = one("[data-queue]");
  if (!shown) return;
  const uids = all("li[data-uid]", shown).map(row => row.dataset.uid).join();
  const playingUid = (one("li.playing", shown) || { dataset: {} }).dataset.uid;
  const current = queue.current ? String(queue.current.uid) : undefined;
  if (queue.items.map(item => String(item.uid)).join() === uids && playingUid === current) return;
  if (queueTimer) return;  // during a push, once a second is enough
  queueTimer = setTimeout(() => {
    queueTimer = 0;
    htmx.ajax("GET", home + "queue", { target: "#queue", swap: "outerSync" });
  }, 700 + 600 * Math.random());
}
function pushed(push) {
  const section = one("#push");
  if (!section) return;
  const running = push.status === "running";
  const end = { done: "Pushed", cancelled: "Cancelled", failed: "The push failed" }[push.status];
  const failed = push.failed || [];
  section.hidden = false;
  one("[data-push-text]", section).textContent = running
    ? `Pushing to the channel: ${push.done} of ${push.total}`
    : `${end}: ${push.enqueued_count} added${failed.length ? `, ${failed.length} not` : ""}.`;
  const bar = one("[data-push-bar]", section);
  bar.hidden = !running;
  bar.max = push.total || 1;
  bar.value = push.done;
  const cancel = one("[data-push-cancel]", section);
  if (cancel) {
    cancel.hidden = !running;
    one("input", cancel).value = push.apply_id;
  }
  const list = one("[data-push-failed]", section);
  list.hidden = !failed.length;
  list.replaceChildren(...failed.map(each => {
    const line = document.createElement("li");
    line.textContent = `${each.video_id}: ${each.reason.replaceAll("_", " ")}`;
    return line;
  }));
}
function clocks() {
  for (const time of all("time[data-clock]")) {
    const at = new Date(time.dateTime);
    time.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  }
}

/* The stream is closed while the page is hidden: a phone in a pocket needs none. After an error that
   ends it, such as that of a proxy, it is opened again. */
let source = null;
let retry = 0;
let failures = 0;
function unfollow() {
  clearTimeout(retry);
  if (source) source.close();
  source = null;
}
function follow() {
  if (!live || document.hidden) { unfollow(); return; }
  if (source) return;
  source = new EventSource(live.dataset.events);
  const on = (name, act) => source.addEventListener(name, event => act(JSON.parse(event.data)));
  on("nowplaying", playing);
  on("queue", queued);
  on("like", liked);
  on("apply", pushed);
  source.onopen = () => {
    const bar = one("[data-push-bar]");
    if (failures && bar && !bar.hidden) one("#push").hidden = true;  // it runs if an event says so
    failures = 0;
  };
  source.onerror = () => {
    failures += 1;
    if (!source || source.readyState !== EventSource.CLOSED) return;
    unfollow();
    retry = setTimeout(follow, Math.min(60_000, 1000 * 2 ** failures));
  };
}
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
