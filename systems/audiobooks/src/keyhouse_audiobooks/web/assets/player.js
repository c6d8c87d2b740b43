/* The player: one <audio> for the files of a book, as one line of time.

   It keeps playing while pages change, because it is outside of the part that is replaced. It knows
   no page: `view.js` shows it. Events: book, state, time, jump, finished, error. */

import { ApiError, call, withRoot } from "./api.js";
import { rewindSeconds, Timeline } from "./timeline.js";

const SAVE_SECONDS = 10;
const LAST_BOOK = "audiobooks-book";
export const SPEED_MIN = 0.5, SPEED_MAX = 3, SPEED_STEP = 0.05;

export class Player extends EventTarget {
  #audio;
  #places;
  #segment = null;
  #wanted = 0;
  #pausedAt = 0;
  #volume = 1;
  #saver = null;
  #loads = 0;
  #isAsked = false;
  book = null;
  timeline = new Timeline([]);
  speed = 1;

  constructor(audio, places) {
    super();
    this.#audio = audio;
    this.#places = places;
    audio.addEventListener("loadedmetadata", () => this.#ready());
    audio.addEventListener("timeupdate", () => this.#tell("time"));
    audio.addEventListener("play", () => this.#started());
    audio.addEventListener("pause", () => this.#paused());
    audio.addEventListener("ended", () => this.#endOfFile());
    audio.addEventListener("error", () => this.#failed());
    addEventListener("pagehide", () => this.#leave());
    document.addEventListener("visibilitychange", () => {
      if (document.hidden && !this.isPaused) this.#save("progress");
    });
  }

  get isPaused() { return this.#audio.paused; }
  get chapters() { return this.timeline.chapters; }
  get chapterIndex() { return this.timeline.chapterIndex(this.moment); }
  get chapter() { return this.timeline.chapter(this.moment); }
  get remaining() { return (this.timeline.duration - this.moment) / this.speed; }
  get volume() { return this.#volume; }

  /** The moment of the book. While a file loads it is the one that was asked for. */
  get moment() {
    if (!this.#segment) return this.#wanted;
    const isReady = this.#audio.readyState > 0 && !this.#audio.seeking;
    return isReady ? this.#segment.offset_start + this.#audio.currentTime : this.#wanted;
  }

  set fade(share) { this.#audio.volume = this.#volume * share; }
  set volume(share) { this.#volume = this.#audio.volume = Math.min(1, Math.max(0, share)); }

  /** Load a book at its place, or at a moment. */
  async load(id, { at = null, autoplay = false } = {}) {
    const load = ++this.#loads;  // the last one wins
    if (this.book?.id !== id) {
      if (this.book) this.pause();
      const [book, segments, place] = await Promise.all([
        call("GET", `/books/${id}`), call("GET", `/books/${id}/segments`), this.#places.start(id),
      ]);
      const speed = await this.#storedSpeed(id, place.speed);
      if (load !== this.#loads) return;
      if (!segments.items.length) throw new ApiError(404, "The book has no audio files.");
      this.book = book;
      this.timeline = new Timeline(segments.items);
      this.#segment = null;
      this.#pausedAt = place.at ? Date.parse(place.at) : 0;
      this.#wanted = this.timeline.moment(place.segment_id, place.position_seconds);
      if (this.#wanted >= this.timeline.duration - 1) this.#wanted = 0;
      this.#setSpeed(speed);
      localStorage.setItem(LAST_BOOK, id);
      this.#tell("book");
    }
    this.seek(at ?? this.#wanted, { isPlace: at === null });
    this.#places.ask(id);
    if (autoplay) await this.play();
  }

  /** Load the book that was open last on this device, paused. */
  async restore() {
    const id = localStorage.getItem(LAST_BOOK);
    if (!id) return;
    await this.load(id).catch(error => {
      if (error.status === 404) localStorage.removeItem(LAST_BOOK);
    });
  }

  async play() {
    if (!this.#segment) return;
    if (this.#pausedAt) {
      const back = rewindSeconds((Date.now() - this.#pausedAt) / 1000);
      this.#pausedAt = 0;
      const start = this.#segment.offset_start;
      if (back) this.seek(Math.max(start, this.moment - back), { isPlace: true });
    }
    this.#isAsked = true;
    if (this.#audio.error) this.#audio.load();  // the network may be back
    await this.#audio.play().catch(error => {
      if (error.name === "AbortError") return;
      if (this.#audio.error) this.#failed();
      else this.#tell("error", { message: `This cannot be played: ${error.message}` });
    });
  }

  pause() { this.#isAsked = false; this.#audio.pause(); }
  toggle() { return this.isPaused ? this.play() : this.pause(); }
  skip(seconds) { this.seek(this.moment + seconds); }

  /** Go to a moment. `isPlace`: it is the stored place, and not a jump of the listener. */
  seek(moment, { isPlace = false } = {}) {
    if (!this.timeline.segments.length) return;
    if (!isPlace && !this.isPaused) this.#save("progress");
    const isPlaying = !this.isPaused;
    const { segment, seconds } = this.timeline.locate(moment);
    this.#wanted = segment.offset_start + seconds;
    if (segment !== this.#segment) {
      this.#segment = segment;
      this.#audio.src = withRoot(segment.audio_url);
      if (isPlaying) this.#audio.play().catch(() => {});
    } else if (this.#audio.readyState > 0) {
      this.#audio.currentTime = seconds;
    }
    this.#audio.playbackRate = this.#audio.defaultPlaybackRate = this.speed;
    if (!isPlace) this.#save("progress", this.#wanted);
    this.#tell("jump");
  }

  seekChapter(index) {
    const chapter = this.chapters[Math.min(Math.max(0, index), this.chapters.length - 1)];
    if (chapter) this.seek(chapter.start);
  }

  /** To the start of this chapter, or to the one before within its first seconds. */
  previousChapter() {
    const isAtStart = this.moment - this.chapter.start < 3;
    this.seekChapter(this.chapterIndex - (isAtStart ? 1 : 0));
  }

  nextChapter() {
    if (this.chapterIndex + 1 < this.chapters.length) this.seekChapter(this.chapterIndex + 1);
  }

  /** Set the speed of this book, in steps of 0.05; it is stored as a preference. */
  changeSpeed(speed) {
    this.#setSpeed(speed);
    localStorage.setItem(`audiobooks-speed:${this.book.id}`, String(this.speed));
    const name = encodeURIComponent(`speed:${this.book.id}`);
    call("PUT", `/preferences/${name}`, this.speed).catch(() => {});
    this.#tell("state");
  }

  #setSpeed(speed) {
    const steps = Math.round(Math.min(SPEED_MAX, Math.max(SPEED_MIN, speed)) / SPEED_STEP);
    this.speed = Math.round(steps * SPEED_STEP * 100) / 100;
    this.#audio.playbackRate = this.#audio.defaultPlaybackRate = this.speed;
  }

  async #storedSpeed(id, last) {
    let stored, found, cursor = "@0";
    for (; cursor && !stored; cursor = found?.cursor) {
      found = await call("GET", `/preferences?limit=500&cursor=${cursor}`).catch(() => null);
      stored = found?.items.find(each => each.key === `speed:${id}`)?.value;
    }
    return Number(stored || localStorage.getItem(`audiobooks-speed:${id}`) || last || 1) || 1;
  }

  #ready() {
    const seconds = this.#wanted - this.#segment.offset_start;
    const audio = this.#audio;
    if (seconds > 0.05) audio.currentTime = Math.min(seconds, audio.duration || seconds);
    this.#tell("time");
  }

  #started() {
    this.#save("start");
    clearInterval(this.#saver);
    this.#saver = setInterval(() => this.#save("progress"), SAVE_SECONDS * 1000);
    this.#tell("state");
  }

  #paused() {
    clearInterval(this.#saver);
    if (this.#audio.ended) return;
    this.#pausedAt = Date.now();
    this.#save("pause");
    this.#tell("state");
  }

  #endOfFile() {
    const next = this.timeline.segments[this.timeline.segments.indexOf(this.#segment) + 1];
    if (next) {
      this.seek(next.offset_start, { isPlace: true });
      if (this.#isAsked) this.#audio.play().catch(() => {});  // not after a pause at the very end
      return;
    }
    clearInterval(this.#saver);
    this.#tell("state");
    this.#save("complete", this.timeline.duration).then(() => this.#tell("finished"));
  }

  /** Tell why a file is not played. One that nobody has asked to play, such as that of the last
      book, fails silently. */
  #failed() {
    if (!this.#audio.error || !this.#segment || !this.#isAsked) return;
    const isNetwork = this.#audio.error.code === MediaError.MEDIA_ERR_NETWORK || !navigator.onLine;
    this.#tell("error", {
      message: isNetwork
        ? "The audio cannot be loaded: there is no network. Keep a book to play it offline."
        : `This browser cannot play ${this.#segment.format} files, or the file is gone.`,
    });
  }

  #event(type, moment = this.moment) {
    const { segment, seconds } = this.timeline.locate(moment);
    return {
      segment_id: segment.id, position_seconds: Math.round(seconds * 1000) / 1000,
      event_type: type, play_speed: this.speed,
    };
  }

  async #save(type, moment) {
    if (!this.book) return;
    await this.#places.record(this.book.id, this.#event(type, moment)).catch(console.warn);
  }

  #leave() {
    if (this.book && !this.isPaused) this.#places.leave(this.book.id, this.#event("pause"));
  }

  #tell(name, detail = {}) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
