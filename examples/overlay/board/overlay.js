// The overlay: the five best scores, drawn again whenever one changes.
// Its address has the token: http://localhost:8080/pages/overlay.html#token=TOKEN
// Elsewhere, or opened as a file, it says where: overlay.html#service=URL&token=TOKEN

const settings = new URLSearchParams(location.hash.slice(1));
const own = location.protocol === "file:" ? "http://localhost:8080" : location.origin;
const service = settings.get("service") || own;
const list = document.getElementById("scores");
const state = document.getElementById("state");

function row({ value }) {
  const item = document.createElement("li");
  for (const name of ["name", "points"]) {
    const text = document.createElement("span");
    text.className = name;
    text.textContent = value[name];
    item.append(text);
  }
  return item;
}

function fail(error) {
  state.textContent = error.message;
}

// A plain script with import(), since a page opened as a file may not load a module from a file.
async function start() {
  const { Keyhouse } = await import(`${service}/assets/keyhouse.js`);
  const store = new Keyhouse(`${service}/scores`, settings.get("token") || "");
  const draw = (items) => {
    list.replaceChildren(...items.map(row));
    state.textContent = "";
  };
  store.live("score", draw, { by: "points", order: "desc", limit: 5, onError: fail });
}

start().catch(fail);
