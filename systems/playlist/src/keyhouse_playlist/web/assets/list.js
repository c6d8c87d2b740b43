/* The working list: its marks in the catalog, the focus over a change, and moving its items. */

import { all, home, one } from "./page.js";

/* The list: after each change, what is in it is marked in the catalog, and the focus stays. */
export function listChanged() {
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

/* The focus stays where it was, or near it, when a part of the page is replaced. */
let focused = null;
export function rememberFocus() {
  const active = document.activeElement;
  if (!active || active === document.body) return;
  const row = active.closest("[data-items] > li");
  focused = { id: active.id, place: row ? [...row.parentNode.children].indexOf(row) : -1 };
  const isText = active.matches("input:not([type=checkbox], [type=radio])");
  if (isText) focused.at = active.selectionStart;
}
export function restoreFocus() {
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
export function sendPressed() {
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
