/* Books that are kept on this device: their files, cover and pages in the browser's own cache.

   The service worker plays them from there. `kept` of IndexedDB lists the complete ones. */

import { API, HOME, length, withRoot } from "./api.js";
import { keptBooks } from "./queue.js";

export const CACHE = "audiobooks-kept-1";

const megabytes = bytes => bytes >= 1e9
  ? `${(bytes / 1e9).toFixed(2)} GB` : `${Math.max(1, Math.round(bytes / 1e6))} MB`;

/** The sentence that says why books cannot be kept here; null if they can. */
export function obstacle() {
  if (!("serviceWorker" in navigator) || !("caches" in window)) {
    return "This browser keeps books only on https, or on the machine of the service.";
  }
  return null;
}

async function paths(id) {
  const response = await fetch(`${API}/books/${id}/segments`);
  if (!response.ok) throw new Error("The list of files cannot be loaded.");
  const segments = (await response.json()).data.items;
  return { segments, urls: segments.map(each => withRoot(each.audio_url)) };
}

/** Keep a book. `tell` is called with sentences about the progress. */
export async function keep(id, tell) {
  const { segments, urls } = await paths(id);
  const bytes = segments.reduce((sum, each) => sum + each.size_bytes, 0);
  const { quota = Infinity, usage = 0 } = await navigator.storage?.estimate?.() ?? {};
  if (bytes > quota - usage) {
    const free = megabytes(quota - usage);
    throw new Error(`There is not enough space: the book has ${megabytes(bytes)},`
      + ` and ${free} are free for this site.`);
  }
  await navigator.storage?.persist?.();
  const cache = await caches.open(CACHE);
  try {
    for (const [index, url] of urls.entries()) {
      tell(`Keeping file ${index + 1} of ${urls.length}.`);
      await store(cache, url);
    }
    const book = (await (await store(cache, `${API}/books/${id}`)).json()).data;
    await store(cache, `${API}/books/${id}/segments`);
    await store(cache, `${HOME}books/${id}`);
    if (book.cover_url) await store(cache, withRoot(book.cover_url));
    await keptBooks.put({
      id, title: book.title, author: book.author_name || "", duration: book.duration || 0,
      cover: withRoot(book.cover_url) || "", bytes, urls,
    });
    return `Kept on this device: ${megabytes(bytes)}.`;
  } catch (error) {
    await forget(id, urls);
    if (error.name === "QuotaExceededError") {
      const size = megabytes(bytes);
      throw new Error(`There is not enough space for ${size}: remove another kept book.`);
    }
    throw error;
  }
}

async function store(cache, url) {
  const response = await fetch(url, { headers: { "X-Keep": "1" } });
  if (!response.ok) throw new Error(`A file cannot be loaded (${response.status}).`);
  const copy = response.clone();
  await cache.put(url, response);
  return copy;
}

/** Remove a kept book from this device. */
export async function forget(id, urls = null) {
  const known = await keptBooks.get(id);
  const cache = await caches.open(CACHE);
  const all = [...(urls || known?.urls || []), `${API}/books/${id}`, `${API}/books/${id}/segments`,
    `${HOME}books/${id}`, known?.cover].filter(Boolean);
  for (const url of all) await cache.delete(url, { ignoreVary: true });
  await keptBooks.remove(id);
}

/** Remove all kept books: at sign-out. */
export async function forgetAll() {
  if ("caches" in window) await caches.delete(CACHE);
  for (const book of await keptBooks.all()) await keptBooks.remove(book.id);
}

/** Bind the control of a book's page: <div data-keep="ID">. */
export async function bindKeep(place) {
  const id = place.dataset.keep, button = place.querySelector("button");
  const state = place.querySelector("[role=status]");
  const problem = obstacle();
  if (problem) { button.disabled = true; state.textContent = problem; return; }
  const files = place.dataset.files.split(" ");
  const isCurrent = book => files.every(file => book.urls.some(url => url.includes(file)));
  const show = async text => {
    const book = await keptBooks.get(id), isOld = book && !isCurrent(book);
    button.textContent = isOld ? "Keep the new files"
      : book ? "Remove from this device" : "Keep on this device";
    state.textContent = text ?? (isOld ? "The files of the book have changed since it was kept."
      : book ? `Kept on this device: ${megabytes(book.bytes)}.` : "");
    button.disabled = false;
  };
  button.onclick = async () => {
    button.disabled = true;
    const known = await keptBooks.get(id);
    if (known && !isCurrent(known)) await forget(id);
    if (known && isCurrent(known)) {
      await forget(id);
      await show("Removed from this device.");
    } else {
      const progress = text => { button.disabled = true; state.textContent = text; };
      await show(await keep(id, progress).catch(error => error.message));
    }
  };
  await show();
}

/** List the kept books on the page for use without a network. */
export async function listKept(place) {
  const books = await keptBooks.all();
  document.getElementById("none-kept").hidden = books.length > 0;
  place.replaceChildren(...books.map(book => {
    const item = document.createElement("li"), link = document.createElement("a");
    const facts = document.createElement("span"), play = document.createElement("button");
    link.href = `${HOME}books/${book.id}`;
    link.textContent = book.title;
    facts.className = "quiet";
    facts.textContent = [book.author, length(book.duration), megabytes(book.bytes)]
      .filter(Boolean).join(" · ");
    const label = document.createElement("span");
    label.textContent = label.dataset.label = "Play";
    play.append(label);
    play.className = "primary";
    play.dataset.play = book.id;
    item.append(link, facts, play);
    return item;
  }));
}
