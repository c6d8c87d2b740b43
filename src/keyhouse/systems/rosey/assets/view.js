// The operator's view. The token lives in this variable and nowhere else. What is shown is set as text, never as markup:
// keys and values are whatever a plugin likes.
"use strict";

let token = "";
let visit = new AbortController(); // ends with the token: an answer that comes later is not shown
let now = { plugin: "", prefix: "", keys: null, plugins: null };

const at = (id) => document.getElementById(id);
const main = document.querySelector("main");
const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
const time = (text) => (text === null || text === undefined ? "never" : text.replace("T", " ").replace(/\.\d+Z$/, " UTC"));
const part = (name) => "plugins/" + encodeURIComponent(name);

async function ask(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== "");
  const text = given.length ? "?" + new URLSearchParams(given) : "";
  const asked = now.plugin;
  const headers = { Authorization: "Bearer " + token };
  const answer = await fetch(path + text, { headers, cache: "no-store", credentials: "omit", signal: visit.signal });
  const body = await answer.text();
  if (path.includes("/") && asked !== now.plugin) throw new DOMException("another plugin was chosen meanwhile", "AbortError");
  if (answer.ok) return body;
  if (answer.status === 401 || answer.status === 403) leave();
  let said = answer.statusText;
  try { said = JSON.parse(body).detail; } catch { /* not one of our own answers: a proxy's */ }
  throw new Error(answer.status + ": " + said);
}

const read = async (path, query) => JSON.parse(await ask(path, query));

function told(work) {
  return (event) => {
    event?.preventDefault();
    at("problem").hidden = true;
    Promise.resolve(work(event)).catch((error) => {
      if (error.name === "AbortError") return; // the token was forgotten meanwhile, or another plugin was chosen
      at("problem").textContent = error.message;
      at("problem").hidden = false;
    });
  };
}

function row(body, cells, open) {
  const line = body.insertRow();
  cells.forEach((text, index) => {
    const cell = line.insertCell();
    if (index > 0) { cell.textContent = text; return; }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", told(() => {
      for (const other of body.rows) other.removeAttribute("aria-current");
      line.setAttribute("aria-current", "true");
      return open();
    }));
    cell.append(button);
  });
}

async function showFigures() {
  const found = await read("figures");
  const sum = (counts) => counts.reduce((total, each) => total + each, 0);
  const lines = [
    ["operations", number(sum(Object.values(found.operations).map((work) => work.count)))],
    ["refused or failed", number(sum(Object.values(found.errors)))],
    ["watches", number(found.watches)],
    ["cleanups", number(found.cleanups)],
    ["expired keys removed", number(found.cleaned)],
  ];
  at("figures").replaceChildren(...lines.map(([name, value]) => {
    const box = document.createElement("div");
    box.append(document.createElement("b"), document.createElement("span"));
    box.firstChild.textContent = value;
    box.lastChild.textContent = name;
    return box;
  }));
}

async function showPlugins(cursor) {
  const page = await read("plugins", { cursor });
  if (!cursor) at("plugins").replaceChildren();
  for (const each of page.plugins) {
    const cells = [each.plugin, number(each.keys), number(each.bytes), number(each.operations), number(each.errors)];
    row(at("plugins"), cells, () => showPlugin(each.plugin));
  }
  at("counted").textContent = page.counted_at ? "Keys and bytes as counted at " + time(page.counted_at) + "." : "Keys and bytes were not counted yet.";
  now.plugins = page.cursor ?? null;
  at("more-plugins").hidden = !page.truncated;
}

async function showPlugin(name) {
  now.plugin = name;
  at("prefix").value = "";
  at("value").hidden = true;
  await showAllowed("known");
  await showKeys(null);
  at("plugin").hidden = false;
  at("plugin").scrollIntoView({ block: "nearest" });
}

async function showAllowed(count) {
  const found = await read(part(now.plugin), { count });
  const of = (most) => (most === null ? "" : " of " + number(most));
  const said = [number(found.keys) + of(found.quota.keys) + (found.keys === 1 && found.quota.keys === null ? " key" : " keys"), number(found.bytes) + of(found.quota.bytes) + " bytes"];
  if (found.counted_at) said.push("counted at " + time(found.counted_at));
  if (found.rate) said.push(number(found.rate.left) + " of " + number(found.rate.burst) + " operations allowed now");
  for (const [name, work] of Object.entries(found.operations)) said.push(name + " " + number(work.count) + " × " + work.mean_ms + " ms");
  for (const [code, times] of Object.entries(found.errors)) said.push(code + " " + number(times));
  at("plugin-title").textContent = now.plugin;
  at("allowed").textContent = said.join(" · ");
}

async function showKeys(cursor) {
  if (!cursor) now.prefix = at("prefix").value;
  const page = await read(part(now.plugin) + "/keys", { prefix: now.prefix, cursor });
  if (!cursor) at("keys").replaceChildren();
  for (const each of page.keys) row(at("keys"), [each.key, number(each.bytes), each.revision, time(each.expires_at)], () => showValue(each.key));
  now.keys = page.cursor ?? null;
  at("none").hidden = at("keys").rows.length > 0;
  at("more-keys").hidden = !page.truncated;
}

async function showValue(key) {
  const text = await ask(part(now.plugin) + "/value", { key });
  const found = JSON.parse(text);
  at("value-title").textContent = key;
  const said = [number(found.bytes) + " bytes", "revision " + found.revision, "expires: " + time(found.expires_at)];
  at("told").textContent = (found.unreadable === undefined ? said : [...said, "not JSON"]).join(" · ");
  at("text").textContent = found.unreadable ?? stored(text) ?? JSON.stringify(found.value, null, 2);
  at("value").hidden = false;
  at("value").scrollIntoView({ block: "nearest" });
}

// Numbers that JavaScript would round are shown as they are stored: then the value is not set out in lines.
function stored(text) {
  const value = text.slice(text.indexOf(',"value":') + 9, text.lastIndexOf(',"bytes":'));
  try { return JSON.stringify(JSON.parse(value)) === value ? null : value; } catch { return null; }
}

function leave() {
  token = "";
  visit.abort();
  visit = new AbortController();
  now = { plugin: "", prefix: "", keys: null, plugins: null };
  main.hidden = at("leave").hidden = true;
  at("plugin").hidden = at("value").hidden = true;
  for (const id of ["plugins", "counted", "plugin-title", "allowed", "keys", "value-title", "told", "text", "figures"]) at(id).replaceChildren();
  at("prefix").value = "";
  at("door").hidden = false;
  at("token").focus();
}

async function enter() {
  token = at("token").value.trim();
  at("token").value = "";
  await showFigures();
  await showPlugins(null);
  at("door").hidden = true;
  main.hidden = at("leave").hidden = false;
}

at("door").addEventListener("submit", told(enter));
at("search").addEventListener("submit", told(() => showKeys(null)));
at("count").addEventListener("click", told(() => showAllowed("now")));
at("more-plugins").addEventListener("click", told(() => showPlugins(now.plugins)));
at("more-keys").addEventListener("click", told(() => showKeys(now.keys)));
at("leave").addEventListener("click", told(leave));
leave();
