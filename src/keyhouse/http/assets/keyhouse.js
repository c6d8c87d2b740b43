// A client of a schema that `keyhouse serve` serves, for pages and overlays. No dependencies.
//
//   import { Keyhouse } from "http://localhost:8080/assets/keyhouse.js";
//   const store = new Keyhouse("http://localhost:8080/scores", token);
//   await store.put("score", ["ada"], { name: "Ada", points: 3 });
//   store.live("score", draw, { by: "points", order: "desc", limit: 5 });
//
// An address is the array of a record's key fields; an item is {key, fields, revision, value, …}.

/** A request that the service rejected, or that did not reach it (status 0). */
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
const RETRY_MS = [500, 1_000, 2_000, 5_000];

export class Keyhouse {
  #url;
  #headers;

  /** `url` has the schema's path. `space`: for tokens with the scope `spaces`. */
  constructor(url, token, { space } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = { Authorization: `Bearer ${token}` };
    if (space !== undefined) this.#headers["Keyhouse-Space"] = space;
  }

  /** Some records: `{ items, revision, cursor }`. Options: by, order, limit, cursor, and filters
   * such as `{ minutes: 5 }`, `{ "minutes.from": 5 }`, `{ "title.prefix": "a" }`. */
  list(record, options = {}) {
    return this.#json("GET", `/records/${part(record)}${query(options)}`);
  }

  /** The item at an address, or null. */
  get(record, address) {
    return this.#found(`/records/${path(record, address)}`);
  }

  /** The item of a unique row, or null. */
  lookup(record, by, fields) {
    return this.#found(`/lookup/${part(record)}${query({ by, ...fields })}`);
  }

  /** Write a record. `expect`: the revision it must be at; null: it must not exist. */
  put(record, address, value, { ttl, expect } = {}) {
    const to = `/records/${path(record, address)}${query({ ttl })}`;
    return this.#json("PUT", to, value, conditions(expect));
  }

  /** Change some members by a merge patch; null removes one. */
  patch(record, address, patch, { expect } = {}) {
    const headers = { "Content-Type": "application/merge-patch+json", ...conditions(expect) };
    return this.#json("PATCH", `/records/${path(record, address)}`, patch, headers);
  }

  /** Delete a record, if there is one. */
  delete(record, address, { expect } = {}) {
    return this.#json("DELETE", `/records/${path(record, address)}`, undefined, conditions(expect));
  }

  /** Add to a counter; returns its value. */
  async add(counter, address, by = 1) {
    return (await this.#json("POST", `/counters/${path(counter, address)}`, { by })).value;
  }

  /** The value of a counter. */
  async count(counter, address) {
    return (await this.#json("GET", `/counters/${path(counter, address)}`)).value;
  }

  /** Apply operations: all, or none. */
  batch(operations) {
    return this.#json("POST", "/batch", { operations });
  }

  /** Iterate over changes after revision `since` (default: now): `{ type, item }`, type
   * put, gone or unreadable. Reconnects, resumes without gap or repeat. Throws the type
   * `watch-expired`: list again. */
  async *watch(record, { since, signal, fields = {} } = {}) {
    since ??= (await this.list(record, { limit: 1 })).revision;
    const partial = new Set(); // of a commit not yet whole
    for (let failures = 0; !signal?.aborted; ) {
      try {
        const stream = this.#events(`/watch${query({ record, ...fields, since })}`, signal);
        for await (const { event, data, id } of stream) {
          failures = 0;
          if (event === "expired") {
            throw new KeyhouseError(410, { type: "watch-expired" });
          }
          const item = JSON.parse(data);
          const mark = `${item.revision} ${item.key}`;
          const isNew = !partial.has(mark);
          partial.add(mark);
          if (id) {
            since = Number(id);
            partial.clear();
          }
          if (isNew) yield { type: event, item };
        }
      } catch (error) {
        if (signal?.aborted) return;
        const rejected = error instanceof KeyhouseError && error.status && error.status < 500;
        if (rejected && error.status !== 429) throw error;
      }
      await pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)], signal);
    }
  }

  /** Call `render` with the items of a list, now and after each change, until the function that it
   * returns is called. Options are those of `list`, and `onError`. */
  live(record, render, { onError = console.warn, ...options } = {}) {
    const stop = new AbortController();
    const run = async () => {
      while (!stop.signal.aborted) {
        try {
          const page = await this.list(record, options);
          render(page.items);
          const watched = { since: page.revision, signal: stop.signal };
          for await (const _ of this.watch(record, watched)) {
            render((await this.list(record, options)).items);
          }
        } catch (error) {
          onError(error);
          await pause(RETRY_MS[2], stop.signal);
        }
      }
    };
    run();
    return () => stop.abort();
  }

  async *#events(to, signal) {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const stop = () => silence.abort();
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
          const found = {};
          for (const line of lines.split("\n")) {
            const at = line.indexOf(": ");
            if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
          }
          if (found.event) yield found;
        }
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      stop();
    }
  }

  async #found(to) {
    try {
      return await this.#json("GET", to);
    } catch (error) {
      if (error.status === 404 && error.fields.address) return null;
      throw error;
    }
  }

  async #json(method, to, body, headers) {
    const response = await this.#send(method, to, body, headers);
    return response.status === 204 ? null : response.json();
  }

  async #send(method, to, body, headers = {}, signal) {
    const type = body === undefined ? {} : { "Content-Type": "application/json" };
    const options = { method, headers: { ...this.#headers, ...type, ...headers }, signal, cache: "no-store" };
    if (body !== undefined) options.body = JSON.stringify(body);
    const response = await fetch(this.#url + to, options).catch((error) => {
      throw new KeyhouseError(0, { detail: `The service cannot be reached: ${error.message}` });
    });
    if (response.ok) return response;
    throw new KeyhouseError(response.status, await response.json().catch(() => ({})));
  }
}

const part = (value) => encodeURIComponent(value === null ? "null" : value);

const path = (record, address) => [record, ...address].map(part).join("/");

function query(options) {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function conditions(expect) {
  if (expect === undefined) return {};
  return expect === null ? { "If-None-Match": "*" } : { "If-Match": `"${expect}"` };
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
