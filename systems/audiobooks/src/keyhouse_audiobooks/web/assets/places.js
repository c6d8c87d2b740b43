/* A listener's places: none is lost, and none of another device is overwritten.

   state of a book      meaning                                        next
   -----------------    --------------------------------------------   -----------------------------
   sent                 the service has the newest place               record() -> queued
   queued               events wait in the queue, in order             sent, or on hold
   on hold              another device has moved on since `revision`   stay(), follow() -> queued

   `revision` is the state of the service that this device started from, and goes along as
   `based_on`. The newest place is also in localStorage, at once: a page that is closed loses
   nothing. */

import { ApiError, call, randomId } from "./api.js";
import { events } from "./queue.js";

const RETRY_SECONDS = 10;
const WAIT_SECONDS_MAX = 366 * 24 * 3600;
const key = book => `audiobooks-place:${book}`;

export class Places extends EventTarget {
  #user;
  #held = new Map();
  #sending = Promise.resolve();
  #waiting = 0;

  constructor(user) {
    super();
    this.#user = user;
    addEventListener("online", () => this.flush());
    setInterval(() => this.flush(), RETRY_SECONDS * 1000);
  }

  /** Return the newest place that this device knows, or null. */
  local(book) {
    const found = JSON.parse(localStorage.getItem(key(book)) || "null");
    return found && found.user === this.#user ? found : null;
  }

  #keep(book, place) {
    const known = this.local(book) || { user: this.#user, revision: 0 };
    localStorage.setItem(key(book), JSON.stringify({ ...known, ...place }));
  }

  /** Return where to start: { segment_id, position_seconds, at, speed }. */
  async start(book) {
    const mine = this.local(book);
    if (mine?.unsent) await this.#queueUnsent(book, mine);
    try {
      const state = await call("GET", `/books/${book}/state`);
      if (!this.local(book)?.unsent && !this.#held.has(book)) this.#adopt(book, state);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 404) throw error;
    }
    return this.local(book) || { segment_id: null, position_seconds: 0 };
  }

  #adopt(book, state) {
    this.#keep(book, {
      segment_id: state.last_segment_id, position_seconds: state.position_seconds,
      revision: state.revision, at: state.last_activity_at, speed: state.play_speed, unsent: "",
    });
  }

  /** Record an event of the player: it is queued, then sent. */
  async record(book, body) {
    const idempotency_key = randomId();
    this.#keep(book, { ...body, at: new Date().toISOString(), unsent: idempotency_key });
    this.#waiting++;
    const event = { user: this.#user, book, at: Date.now(), body: { ...body, idempotency_key } };
    await events.add(event);
    await this.flush();
  }

  /** Record the last place of a page that is closed: the request outlives the page. While events
   * wait it stays here, and is sent after them by the next page. */
  leave(book, body) {
    const idempotency_key = randomId();
    this.#keep(book, { ...body, at: new Date().toISOString(), unsent: idempotency_key });
    if (this.#waiting) return;
    const based_on = this.local(book).revision;
    const sent = { ...body, idempotency_key, based_on };
    call("POST", `/books/${book}/position`, sent, { keepalive: true })
      .then(state => this.#sent(book, idempotency_key, state)).catch(() => {});
  }

  async #queueUnsent(book, mine) {
    const { segment_id, position_seconds, play_speed, unsent } = mine;
    const waiting = await events.all();
    if (segment_id && !waiting.some(each => each.body.idempotency_key === unsent)) {
      const body = {
        segment_id, position_seconds, play_speed, event_type: "pause", idempotency_key: unsent,
      };
      await events.add({ user: this.#user, book, at: Date.parse(mine.at), body });
    }
    await this.flush();
  }

  /** Send what waits, in order: after a run that is under way, which may have missed the newest. */
  flush() {
    this.#sending = this.#sending.catch(() => {}).then(() => this.#send());
    return this.#sending;
  }

  async #send() {
    for (;;) {
      const waiting = (await events.all()).filter(each => each.user === this.#user);
      this.#waiting = waiting.length;
      this.#tell("waiting", { count: waiting.length });
      const event = waiting.find(each => !this.#held.has(each.book));
      if (!event || !this.#user) return;
      try {
        const based_on = this.local(event.book)?.revision || 0;
        const body = { ...event.body, based_on, seconds_ago: secondsSince(event.at) };
        const state = await call("POST", `/books/${event.book}/position`, body);
        await events.remove(event.id);
        this.#sent(event.book, event.body.idempotency_key, state);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 409 && error.data) {
          this.#held.set(event.book, error.data);
          if (this.#isHere(event.book, error.data)) await this.follow(event.book);
          else this.#tell("conflict", { book: event.book, state: error.data });
        } else if ([400, 404, 422].includes(error.status)) {
          await events.remove(event.id);
          this.#tell("failed", { book: event.book, message: error.message });
        } else {
          this.#tell("unreachable", { status: error.status, count: waiting.length });
          return;
        }
      }
    }
  }

  /** Tell whether the other place is this one, such as of an earlier session of this browser. */
  #isHere(book, state) {
    const mine = this.local(book);
    return mine?.segment_id === state.last_segment_id
      && Math.abs(mine.position_seconds - state.position_seconds) < 2;
  }

  #sent(book, id, state) {
    const done = this.local(book)?.unsent === id ? { unsent: "" } : {};
    this.#keep(book, { revision: state.revision, ...done });
    this.#tell("sent", { book, state });
  }

  /** Ask again about a book that is on hold: it was opened. */
  ask(book) {
    if (this.#held.has(book)) this.#tell("conflict", { book, state: this.#held.get(book) });
  }

  /** Keep this device's place: what waits is sent over the other one. */
  async stay(book) {
    const state = this.#held.get(book);
    this.#held.delete(book);
    if (state) this.#keep(book, { revision: state.revision });
    await this.flush();
  }

  /** Take the other device's place; returns that place. What waits is sent, because it was heard,
   * and then that place, so that it is the newest one again. */
  async follow(book) {
    const state = this.#held.get(book);
    const idempotency_key = randomId();
    const body = {
      segment_id: state.last_segment_id, position_seconds: state.position_seconds,
      event_type: "pause", play_speed: state.play_speed || 1, idempotency_key,
    };
    this.#adopt(book, state);
    if (state.last_segment_id) {
      await events.add({ user: this.#user, book, at: Date.now(), body });
      this.#keep(book, { unsent: idempotency_key });
    }
    this.#held.delete(book);
    this.flush().catch(console.warn);
    return state;
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** Return how long an event has waited. The service counts by the time at which it happened. */
function secondsSince(at) {
  const seconds = (Date.now() - at) / 1000;
  return Number.isFinite(seconds) ? Math.min(Math.max(0, seconds), WAIT_SECONDS_MAX) : 0;
}
