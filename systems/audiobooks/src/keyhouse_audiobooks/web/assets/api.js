/* The library's API, as the scripts of the pages call it. */

/** The path of the first page: `/audiobooks/`, below the path of a proxy. */
export const HOME = new URL("../", import.meta.url).pathname;
export const API = `${HOME}api/v1`;

/** Return a path of the service, below the path of a proxy. */
export const withRoot = path => path && path.replace(/^.*\/audiobooks\//, HOME);

/** A rejected request. Status 0: the service cannot be reached. */
export class ApiError extends Error {
  constructor(status, message, data) {
    super(message);
    this.status = status;
    this.data = data;
  }
}

/** Send a request and return `data` of the reply. */
export async function call(method, path, body, options = {}) {
  const headers = { Accept: "application/json" };
  const sent = { method, credentials: "same-origin", headers, ...options };
  if (body !== undefined) {
    sent.body = JSON.stringify(body);
    sent.headers["Content-Type"] = "application/json";
  }
  const response = await fetch(API + path, sent).catch(() => {
    throw new ApiError(0, "The library cannot be reached.");
  });
  if (response.status === 204) return null;
  const reply = await response.json().catch(() => ({}));
  if (response.ok) return reply.data;
  throw new ApiError(response.status, reply.error || `Error ${response.status}`, reply.data);
}

/** Return a random id; `crypto.randomUUID` is absent on plain http. */
export function randomId() {
  const bytes = [...crypto.getRandomValues(new Uint8Array(12))];
  return bytes.map(each => each.toString(16).padStart(2, "0")).join("");
}

/** Return seconds as `1:02:03`. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60, rest = whole % 60;
  const two = number => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Return seconds as `3 h 12 min`. */
export function length(seconds) {
  const minutes = Math.round(seconds / 60);
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/* Time that is left, in whole minutes: it only falls, and the last minute is counted in seconds. */
export function remaining(seconds) {
  return length(seconds < 60 ? seconds : 60 * Math.ceil(seconds / 60));
}
