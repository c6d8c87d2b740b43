// Three live lists. The token is behind the # of the address: /pages/#TOKEN

import { Keyhouse } from "/assets/keyhouse.js";

const store = new Keyhouse("/songs", location.hash.slice(1));
const state = document.getElementById("state");
const onError = (error) => (state.textContent = error.message);
const today = () => new Date().toISOString().slice(0, 10); // days are those of UTC

function show(id, texts) {
  state.textContent = "";
  const rows = texts.map((text) => {
    const row = document.createElement("li");
    row.textContent = text;
    return row;
  });
  document.getElementById(id).replaceChildren(...rows);
}

const showNow = ([item]) => (document.getElementById("now").textContent = item?.value ?? "–");
const showQueue = (items) =>
  show("queue", items.map(({ value }) => `${value.title} (${value.user})`));
const showBest = (items) => show("best", items.map(({ value }) => `${value.user} ${value.points}`));

store.live("now", showNow, { onError });
store.live("request", showQueue, { limit: 5, onError });

function showToday() {
  const day = today();
  const best = { by: "best", day, order: "desc", limit: 5, onError };
  const stop = store.live("points", showBest, best);
  const timer = setInterval(() => {
    if (today() === day) return;
    clearInterval(timer);
    stop();
    showToday();
  }, 60_000);
}
showToday();
