// A client of a served schema, for pages and overlays. No dependencies.
//
//   const store = new Keyhouse("http://localhost:8080/scores", token);
//   store.live("score", draw, { by: "points", order: "desc", limit: 5 });
//
// An address is the array of a record's key fields; an item is {key, fields, revision, value, …}.

/** A request that was rejected, or did not reach the service (status 0). */
export class KeyhouseError extends Error {
  constructor(status, problem = {}) {
    super(problem.detail || `The service answered ${status}.`);
    this.name = "KeyhouseError";
    this.status = status;
    this.code = problem.code || "";
    this.type = (problem.type || "").split(":").pop();
    this.fields = problem.fields || {};
  }
}

const SILENCE_MS = 45_000; // heartbeats come every 15 s
const RETRY_MS = 2_000;

export class Keyhouse {
  #url;
  #headers;

  /** `url` has the schema's path. `space`: for tokens with the scope `spaces`. */
  constructor(url, token, { space } = {}) {
    this.#url = url.replace(/\/+$/, "");
    if (/[^!-~]/.test(token)) {
      throw new TypeError(
        "The token has a line break, a space or another character that no token has");
    }
    this.#headers = { Authorization: `Bearer ${token}` };
    if (space !== undefined) this.#headers["Keyhouse-Space"] = space;
  }

  /** Some records: `{ items, revision, cursor }`. Options: by, order, limit, cursor, and filters
   * beside them: `{ minutes: 5, limit: 9 }`, `{ "minutes.from": 5 }`, `{ "title.prefix": "a" }`. */
  list(record, options = {}) {
    return this.#json("GET", `/records/${part(record)}${query(options)}`);
  }

  /** The item at an address, or null. A record without key fields has the address []. */
  async get(record, address) {
    if (!address.length) return (await this.list(record)).items[0] ?? null;
    return this.#found(at(record, address));
  }

  /** The item of a unique row, or null. */
  lookup(record, by, fields) {
    return this.#found(`/lookup/${part(record)}${query({ by, ...fields })}`);
  }

  /** Write a record. `expect`: its revision; null: it must not exist. */
  put(record, address, value, { ttl, expect } = {}) {
    return this.#json("PUT", `${at(record, address)}${query({ ttl })}`, value, conditions(expect));
  }

  /** Change some members by a merge patch; null removes one. */
  patch(record, address, patch, { expect } = {}) {
    const type = { "Content-Type": "application/merge-patch+json" };
    return this.#json("PATCH", at(record, address), patch, { ...type, ...conditions(expect) });
  }

  delete(record, address, { expect } = {}) {
    return this.#json("DELETE", at(record, address), undefined, conditions(expect));
  }

  /** Add to a counter; returns its value. */
  async add(counter, address, by = 1) {
    return (await this.#json("POST", `/counters/${path(counter, address)}`, { by })).value;
  }

  async count(counter, address) {
    return (await this.#json("GET", `/counters/${path(counter, address)}`)).value;
  }

  /** Run an operation of your own. */
  call(operation, request) {
    return this.#json("POST", `/operations/${part(operation)}`, request);
  }

  /** Apply operations: all, or none. */
  batch(operations) {
    return this.#json("POST", "/batch", { operations });
  }

  /** Iterate over changes after revision `since` (default: now): `{ type, item }`, type put, gone,
   * unreadable. Resumes without gap or repeat. Throws `watch-expired`: list again. */
  async *watch(record, { since, signal, fields = {} } = {}) {
    since ??= (await this.list(record, { limit: 1 })).revision;
    const partial = new Set();
    for (let failures = 0; !signal?.aborted; ) {
      try {
        const stream = this.#events(`/watch${query({ record, ...fields, since })}`, signal);
        for await (const { event, data, id } of stream) {
          failures = 0;
          if (event === "expired") throw new KeyhouseError(410, { type: "watch-expired" });
          const item = JSON.parse(data);
          const mark = `${item.revision} ${item.key}`;
          const isNew = !partial.has(mark);
          partial.add(mark);
          if (id) (since = Number(id)), partial.clear();
          if (isNew) yield { type: event, item };
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error.status && error.status < 500 && error.status !== 429) throw error;
      }
      await pause(Math.min(500 * 2 ** failures++, 5_000), signal);
    }
  }

  /** Render a list now, after each change and expiry, until the returned function is called.
   * Options: those of `list`, and `onError`. */
  live(record, render, { onError = console.warn, ...options } = {}) {
    const stop = new AbortController();
    const { signal } = stop;
    let newest = 0; // a late list is not rendered
    let timer;
    const show = async () => {
      const mine = ++newest;
      const page = await this.list(record, options);
      if (mine !== newest || signal.aborted) return page;
      const times = page.items.map((item) => Date.parse(item.expires_at) || Infinity);
      showIn(Math.min(...times) - Date.now());
      render(page.items);
      return page;
    };
    const showIn = (ms) => {
      clearTimeout(timer);
      if (!(ms < 2e9) || signal.aborted) return;
      const again = () => show().catch((error) => (onError(error), showIn(RETRY_MS)));
      timer = setTimeout(again, Math.max(ms + 50, 1_000));
    };
    (async () => {
      while (!signal.aborted) {
        try {
          const { revision: since } = await show();
          for await (const _ of this.watch(record, { since, signal })) await show();
        } catch (error) {
          onError(error);
          await pause(RETRY_MS, signal);
        }
      }
    })();
    return () => (stop.abort(), clearTimeout(timer));
  }

  async *#events(to, signal) {
    const silence = new AbortController();
    const stop = () => silence.abort();
    let timer = setTimeout(stop, SILENCE_MS);
    signal?.addEventListener("abort", stop);
    try {
      const response = await this.#send("GET", to, undefined, {}, silence.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE_MS);
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const lines of events) {
          const found = Object.fromEntries(lines.split("\n").map((line) => line.split(/: (.*)/s)));
          if (found.event) yield found;
        }
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      stop();
    }
  }

  #found(to) {
    return this.#json("GET", to).catch((error) => {
      if (error.status === 404 && error.fields.address) return null;
      throw error;
    });
  }

  async #json(method, to, body, headers) {
    const response = await this.#send(method, to, body, headers);
    return response.status === 204 ? null : response.json();
  }

  async #send(method, to, body, headers = {}, signal) {
    const type = body !== undefined && { "Content-Type": "application/json" };
    headers = { ...this.#headers, ...type, ...headers };
    const options = { method, headers, signal, cache: "no-store", body: JSON.stringify(body) };
    const response = await fetch(this.#url + to, options).catch((error) => {
      const detail = `${error.message}: is it running, with --cors for this page?`;
      throw new KeyhouseError(0, { detail });
    });
    if (response.ok) return response;
    throw new KeyhouseError(response.status, await response.json().catch(() => ({})));
  }
}

const part = encodeURIComponent;

const path = (name, address) => [name, ...address].map(part).join("/");

const at = (record, address) => `/records/${path(record, address)}`;

const query = (options) =>
  `?${new URLSearchParams(Object.entries(options).filter(([, value]) => value !== undefined))}`;

function conditions(expect) {
  if (expect === undefined) return {};
  return expect === null ? { "If-None-Match": "*" } : { "If-Match": `"${expect}"` };
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", resolve, { once: true });
  });
