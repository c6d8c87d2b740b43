/* The service worker of the library: pages and kept books without a network.

   request                                  answered from
   --------------------------------------   -----------------------------------------------------
   audio of a kept book                     the cache of kept books, by ranges too
   scripts, styles, icons                   the network; the shell without one
   pages, and lists of a kept book          the network; the kept copy, or the offline page
   everything else, and every write         the network */

const SHELL = "audiobooks-shell-1", KEPT = "audiobooks-kept-1";
const HOME = new URL("./", self.location).pathname;
const OFFLINE = `${HOME}offline`;
const FILES = [
  OFFLINE, `${HOME}app.webmanifest`,
  ...["pages.css", "htmx.min.js", "icon.svg"]
    .map(name => new URL(`../assets/${name}`, self.location).pathname),
  ...["library.css", "app.js", "api.js", "kept.js", "operations.js", "places.js", "player.js",
    "queue.js", "sleep_timer.js", "timeline.js", "view.js", "icon-192.png"]
    .map(name => `${HOME}assets/${name}`),
];

self.addEventListener("install", event => {
  const stored = caches.open(SHELL).then(cache => cache.addAll(FILES));
  event.waitUntil(stored.then(() => self.skipWaiting()));
});

self.addEventListener("activate", event => {
  const isOld = name => name.startsWith("audiobooks-") && ![SHELL, KEPT].includes(name);
  const remove = names => Promise.all(names.filter(isOld).map(name => caches.delete(name)));
  event.waitUntil(caches.keys().then(remove).then(() => self.clients.claim()));
});

self.addEventListener("message", event => {
  if (event.data === "claim") event.waitUntil(self.clients.claim());
});

self.addEventListener("fetch", event => {
  const { request } = event, url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  const { headers } = request, path = url.pathname;
  if (headers.has("X-Keep") || headers.get("Accept") === "text/event-stream") return;
  if (/\/segments\/\w+\/audio$/.test(path)) event.respondWith(audio(request));
  else if (FILES.includes(path) && path !== OFFLINE) event.respondWith(shellFile(request));
  else if (isPage(request, url)) event.respondWith(page(request, url));
  else if (/\/books\/\w+(\/segments|\/cover)?$/.test(path)) event.respondWith(withKept(request));
});

const isPage = (request, url) => request.mode === "navigate" ||
  (request.headers.has("HX-Request") && !url.pathname.includes("/api/"));

async function audio(request) {
  const kept = await caches.match(request.url, { cacheName: KEPT, ignoreVary: true });
  return kept ? partOf(kept, request.headers.get("Range")) : fetch(request);
}

/* Return the range of a complete response that a media element asks for. */
async function partOf(response, range) {
  const blob = await response.blob();
  const headers = new Headers({
    "Content-Type": response.headers.get("Content-Type") || "application/octet-stream",
    "Accept-Ranges": "bytes",
  });
  const match = /^bytes=(\d*)-(\d*)$/.exec(range || "");
  if (!match || (!match[1] && !match[2])) {
    headers.set("Content-Length", blob.size);
    return new Response(blob, { headers });
  }
  const start = match[1] ? Number(match[1]) : Math.max(0, blob.size - Number(match[2]));
  const end = match[1] && match[2] ? Math.min(Number(match[2]), blob.size - 1) : blob.size - 1;
  if (start >= blob.size || start > end) {
    headers.set("Content-Range", `bytes */${blob.size}`);
    return new Response(null, { status: 416, headers });
  }
  headers.set("Content-Range", `bytes ${start}-${end}/${blob.size}`);
  headers.set("Content-Length", end - start + 1);
  return new Response(blob.slice(start, end + 1), { status: 206, headers });
}

async function shellFile(request) {
  try {
    const response = await fetch(request);
    if (response.ok) (await caches.open(SHELL)).put(request, response.clone());
    return response;
  } catch (error) {
    const found = await caches.match(request.url, { ignoreVary: true });
    if (found) return found;
    throw error;
  }
}

async function withKept(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const found = await caches.match(request.url, { cacheName: KEPT, ignoreVary: true });
    if (found) return found;
    throw error;
  }
}

async function page(request, url) {
  try {
    return await fetch(request);
  } catch (error) {
    const inKept = { cacheName: KEPT, ignoreVary: true };
    const kept = await caches.match(url.origin + url.pathname, inKept);
    const found = kept || await caches.match(OFFLINE, { cacheName: SHELL, ignoreVary: true });
    if (found) return found;
    throw error;
  }
}
