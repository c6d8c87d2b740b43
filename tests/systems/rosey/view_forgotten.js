// The script of the operator's view on a page of almost nothing: the token is forgotten while answers are on their way.
// The path of the script is the argument; what the page shows at the end is printed as JSON.
"use strict";

const { readFileSync } = require("node:fs");
const elements = {};
const listeners = {};
const asked = [];

function element(id) {
  return (elements[id] ??= {
    hidden: false, value: "", textContent: "", shown: 0, rows: [],
    focus() {}, scrollIntoView() {}, insertRow: () => element(id + "-row"), insertCell: () => element(id + "-cell"),
    replaceChildren(...children) { this.shown = children.length; },
    append() {},
    addEventListener(kind, work) { listeners[id + " " + kind] = work; },
    get firstChild() { return element(id + "-first"); },
    get lastChild() { return element(id + "-last"); },
  });
}

globalThis.document = { getElementById: element, querySelector: element, createElement: () => element("made") };
globalThis.fetch = (path, { signal } = {}) => new Promise((resolve, reject) => {
  asked.push(() => resolve(new Response(JSON.stringify({ operations: {}, errors: {}, watches: 0, cleanups: 0, cleaned: 0, plugins: [] }))));
  signal?.addEventListener("abort", () => reject(signal.reason));
});

const settled = () => new Promise((resolve) => setTimeout(resolve, 1));

(async () => {
  (0, eval)(readFileSync(process.argv[2], "utf8"));
  for (const forgets of [false, true]) {
    asked.length = 0;
    element("token").value = "secret";
    listeners["door submit"]();
    if (forgets) listeners["leave click"]();
    for (let turn = 0; turn < 3; turn += 1) {
      for (const answer of asked.splice(0)) answer();
      await settled();
    }
    const shown = { page: !element("main").hidden, figures: element("figures").shown, problem: !element("problem").hidden };
    console.log(JSON.stringify(shown));
    listeners["leave click"]();
  }
})();
