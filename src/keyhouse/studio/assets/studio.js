"use strict";
/* Behaviour of the Studio's pages. Pages work without it: it adds keys, live changes and a
   countdown. */

class Countdown extends HTMLElement {
  connectedCallback() {
    const end = performance.now() + Number(this.dataset.milliseconds);
    const show = () => {
      const left = Math.max(0, Math.floor((end - performance.now()) / 1000));
      const days = Math.floor(left / 86400), hours = Math.floor(left / 3600) % 24;
      const minutes = Math.floor(left / 60) % 60, seconds = left % 60;
      const parts = days ? [days + " d", hours + " h"] : hours ? [hours + " h", minutes + " min"]
        : minutes ? [minutes + " min", seconds + " s"] : [seconds + " s"];
      this.textContent = left ? parts.join(" ") : "expired";
      if (!left) clearInterval(this.timer);
    };
    show();
    this.timer = setInterval(show, 1000);
  }
  disconnectedCallback() { clearInterval(this.timer); }
}
customElements.define("kh-ttl", Countdown);

let source = null;
function follow() {
  const row = document.querySelector("[data-live]");
  if (!row || source) return;
  source = new EventSource(row.dataset.live);
  const state = text => {
    const place = document.querySelector("[data-live-state]");
    if (place) place.textContent = text;
  };
  source.onopen = () => state("Live: changes appear here.");
  source.onerror = () => state(source.readyState === EventSource.CLOSED
    ? "No longer live: the session has ended, or the service was stopped. Reload the page."
    : "The connection was lost; reconnecting.");
  for (const name of ["put", "gone"]) {
    source.addEventListener(name, event => {
      // as sent: a number may be too large
      const revision = /"revision":\s*(\d+)/.exec(event.data)?.[1];
      htmx.ajax("GET", location.pathname + location.search,
        { target: "#row", select: "#row", swap: "outerHTML" })
        .then(() => state(`Changed at revision ${revision}.`));
    });
  }
}
window.addEventListener("pagehide", () => source && source.close());

/* The text of a record gets an editor with line numbers and marked errors. It lives in a shadow
   root, where it needs no inline styles; the textarea stays the input of the form. */
async function upgrade() {
  const area = document.querySelector("textarea[data-editor]");
  if (!area) return;
  const { openEditor } = await import(area.dataset.editor);
  const host = document.createElement("div"), label = area.labels[0];
  const root = host.attachShadow({ mode: "open" }), place = document.createElement("div");
  root.append(place);
  area.after(host);
  const editor = openEditor({
    parent: place, root, text: area.value, label: label.textContent,
    change: text => { area.value = text; },
  });
  area.hidden = true;
  label.addEventListener("click", () => editor.focus());
}
upgrade();

/* The filter completes its last word: the options of a datalist are those of the whole input. */
function complete() {
  const input = document.querySelector("[data-filter]");
  if (!input || !input.list) return;
  const known = [...input.list.options].map(each => [each.value, each.textContent]);
  input.addEventListener("input", () => {
    const start = input.value.slice(0, input.value.lastIndexOf(" ") + 1);
    input.list.replaceChildren(...known
      .filter(([value]) => !start.split(" ").some(word => word.startsWith(value)))
      .map(([value, text]) => new Option(text, start + value)));
  });
}
complete();

/* One box selects all rows; the buttons for selected rows wait until there is one. The keys are
   sent in the address, which servers accept up to a length. */
const ADDRESS_CHARS_MAX = 16000;
function select() {
  const all = document.querySelector("[data-all]");
  if (!all) return;
  const boxes = [...document.querySelectorAll("input[form=selection][name=k]")];
  const update = () => {
    const keys = boxes.filter(box => box.checked).map(box => encodeURIComponent(box.value));
    const tooLong = keys.join("&k=").length > ADDRESS_CHARS_MAX;
    for (const each of document.querySelectorAll("button[form=selection]")) {
      each.disabled = !keys.length || tooLong;
    }
    document.querySelector("[data-too-long]").hidden = !tooLong;
  };
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const each of boxes) each.checked = all.checked;
    update();
  });
  for (const each of boxes) each.addEventListener("change", update);
  update();
}
select();

function rows() {
  return [...document.querySelectorAll("[data-rows] tbody tr, ul[data-rows] > li")]
    .map(each => each.querySelector("a")).filter(Boolean);
}
function move(step) {
  const links = rows();
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + step))].focus();
}

function palette() {
  const dialog = document.getElementById("palette");
  const list = dialog.querySelector("ul"), input = dialog.querySelector("input");
  const links = [...document.querySelectorAll("header a[href], main a[href]")]
    .filter(each => each.textContent.trim());
  const fill = () => {
    const words = input.value.toLowerCase();
    list.replaceChildren(...links
      .filter(each => each.textContent.toLowerCase().includes(words)).slice(0, 12)
      .map(each => {
        const item = document.createElement("li"), link = document.createElement("a");
        link.href = each.href;
        link.textContent = each.textContent.trim();
        item.append(link);
        return item;
      }));
  };
  input.value = "";
  input.oninput = fill;
  input.onkeydown = event => {
    const first = list.querySelector("a");
    if (event.key === "Enter" && first) { event.preventDefault(); first.click(); }
  };
  fill();
  dialog.showModal();
  input.focus();
}

document.addEventListener("keydown", event => {
  const typing = event.target.closest("input, textarea, select, dialog") || event.target.shadowRoot;
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    palette();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const press = {
    "/": () => document.querySelector("[data-filter], [data-go]")?.focus(),
    "g": () => {
      const go = document.querySelector("[data-go]");
      if (go) go.focus(); else document.getElementById("go-key")?.showModal();
    },
    "j": () => move(1),
    "k": () => move(-1),
    "e": () => document.querySelector("[data-edit]")?.click(),
    "?": () => document.getElementById("help")?.showModal(),
  }[event.key];
  if (press) { event.preventDefault(); press(); }
});
follow();
