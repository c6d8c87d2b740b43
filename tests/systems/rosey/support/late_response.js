// The script of the operator's view on a page of almost nothing, with answers that come late. The path of the script is the
// argument; what the page shows is printed as lines of JSON: with the token, after it was forgotten, of two plugins.
"use strict";

const { readFileSync } = require("node:fs");
const elements = {};
const buttons = {};
let asked = [];

function fresh() {
  const listeners = {};
  const children = [];
  const element = {
    hidden: false, value: "", textContent: "", shown: 0, rows: [], listeners, children,
    focus() {}, scrollIntoView() {}, removeAttribute() {}, setAttribute() {},
    insertRow: fresh, insertCell: fresh,
    replaceChildren(...given) { element.shown = given.length; },
    append(...given) { children.push(...given); if (listeners.click === undefined && given[0]?.listeners.click) buttons[given[0].textContent] = given[0]; },
    addEventListener(kind, work) { listeners[kind] = work; },
    get firstChild() { return children[0]; },
    get lastChild() { return children.at(-1); },
  };
  return element;
}

const at = (id) => (elements[id] ??= fresh());
const plugins = ["one", "two"].map((plugin) => ({ plugin, keys: 1, bytes: 1, operations: 1, errors: 0 }));

function answer(path) {
  if (path === "figures") return { operations: {}, errors: {}, watches: 0, cleanups: 0, cleaned: 0 };
  if (path === "plugins") return { plugins };
  if (path.endsWith("/keys?") || path.endsWith("/keys")) return { keys: [] };
  return { keys: path.startsWith("plugins/one") ? 111 : 222, bytes: 1, quota: { keys: null, bytes: null }, operations: {}, errors: {} };
}

globalThis.document = { getElementById: at, querySelector: at, createElement: fresh };
globalThis.fetch = (path, { signal } = {}) => new Promise((resolve, reject) => {
  asked.push({ path, give: () => resolve(new Response(JSON.stringify(answer(path)))) });
  signal?.addEventListener("abort", () => reject(signal.reason));
});

async function answered(order = (waiting) => waiting) {
  for (let turn = 0; turn < 4; turn += 1) {
    for (const { give } of order(asked.splice(0))) give();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function entered() {
  at("token").value = "secret";
  at("door").listeners.submit();
}

const say = (shown) => console.log(JSON.stringify(shown));
const page = () => ({ page: !at("main").hidden, figures: at("figures").shown, problem: !at("problem").hidden });

(async () => {
  (0, eval)(readFileSync(process.argv[2], "utf8"));
  entered();
  await answered();
  say(page());
  buttons.one.listeners.click();
  buttons.two.listeners.click();
  await answered((waiting) => waiting.sort((a, b) => (a.path < b.path ? 1 : -1))); // what was asked first comes last
  say({ title: at("plugin-title").textContent, allowed: at("allowed").textContent, problem: !at("problem").hidden });
  at("leave").listeners.click();
  entered();
  at("leave").listeners.click();
  await answered();
  say(page());
})();
