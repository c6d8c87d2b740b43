/* The channel: what is playing, the queue, the push that runs, and the stream of their events. */

import { all, home, live, one } from "./page.js";

/* What is playing: the time goes on between two events. */
function clock(seconds) {
  const whole = Math.floor(seconds), pad = number => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}
export function tick() {
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
  if (!now || now.dataset.video !== like.video_id) return;
  one("[data-likes]", now).textContent = like.like_count;
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
  const count = push.enqueued_count;
  section.hidden = false;
  one("[data-push-text]", section).textContent = running
    ? `Pushing to the channel: ${push.done} of ${push.total}`
    : `${end}: ${count} ${count === 1 ? "item" : "items"} added${
      failed.length ? `, ${failed.length} not` : ""}.`;
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
export function clocks() {
  for (const time of all("time[data-clock]")) {
    const at = new Date(time.dateTime);
    time.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  }
}

/* The stream is closed while the page is hidden: a phone in a pocket needs none. After an error
   that ends it, such as that of a proxy, it is opened again. */
let source = null;
let retry = 0;
let failures = 0;
export function unfollow() {
  clearTimeout(retry);
  if (source) source.close();
  source = null;
}
export function follow() {
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
