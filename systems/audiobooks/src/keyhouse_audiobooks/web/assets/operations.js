/* Operations that run: progress and log lines as they come. */

import { API, call } from "./api.js";

let sources = [];

/** Follow the operation that the page shows, and close what an earlier page followed. */
export function followOperations() {
  for (const each of sources) each.close();
  sources = [];
  const one = document.querySelector("[data-operation]");
  if (one) followOne(one);
  else if (document.querySelector("[data-operations]")) followList();
}

function followOne(place) {
  const id = place.dataset.operation;
  if (place.dataset.active !== "true") return;
  const lines = document.getElementById("lines");
  let last = Number(lines.dataset.last);
  const show = line => {
    if (line.seq <= last) return;
    last = line.seq;
    const row = lines.insertRow(), time = row.insertCell(), text = row.insertCell();
    time.className = "nowrap";
    time.textContent = line.timestamp.slice(11, 19);
    if (line.level !== "info") {
      const badge = document.createElement("span");
      badge.className = "badge warn";
      badge.textContent = line.level;
      text.append(badge, " ");
    }
    text.append(line.message);
    document.getElementById("no-lines").hidden = true;
    const box = lines.closest(".log");
    box.scrollTop = box.scrollHeight;
  };
  const log = new EventSource(`${API}/operations/${id}/events`);
  log.addEventListener("put", event => show(JSON.parse(event.data).value));
  const changes = new EventSource(`${API}/operations/events`);
  changes.addEventListener("operation.updated", event => {
    const { id: changed, data } = JSON.parse(event.data);
    if (changed !== id) return;
    showProgress(data);
    if (["completed", "failed"].includes(data.status)) finish();
  });
  const catchUp = async () => {
    const found = await call("GET", `/operations/${id}/logs?after=${last}&limit=500`)
      .catch(() => null);
    for (const line of found?.items || []) show(line);
  };
  const finish = async () => {
    changes.close();
    await catchUp();
    log.close();
    reload("#operation");
  };
  log.onopen = catchUp;
  changes.onopen = async () => {
    const now = await call("GET", `/operations/${id}`).catch(() => null);
    if (now && ["completed", "failed"].includes(now.status)) finish();
  };
  sources = [log, changes];
}

function showProgress(operation) {
  const { current, total } = operation.progress, bar = document.getElementById("progress");
  document.getElementById("progress-text").textContent =
    total ? `${current} of ${total}` : `${current} done`;
  if (total) { bar.max = total; bar.value = current; }
}

function followList() {
  const changes = new EventSource(`${API}/operations/events`);
  let waiting = null;
  changes.addEventListener("operation.updated", () => {
    waiting ||= setTimeout(() => { waiting = null; reload("#operations"); }, 500);
  });
  sources = [changes];
}

function reload(part) {
  if (!document.querySelector(part)) return;
  htmx.ajax("GET", location.pathname, { target: part, select: part, swap: "outerHTML" });
}

addEventListener("pagehide", () => sources.forEach(each => each.close()));
