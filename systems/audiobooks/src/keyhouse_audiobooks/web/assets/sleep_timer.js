/* The sleep timer: after minutes, or at the end of a chapter. It fades out, then pauses. */

const FADE_SECONDS = 10;

export class SleepTimer extends EventTarget {
  #player;
  #end = 0;
  #chapters = 0;

  constructor(player) {
    super();
    this.#player = player;
    setInterval(() => this.#check(), 500);
    player.addEventListener("time", () => this.#check());
    player.addEventListener("jump", () => this.#check());
  }

  /** `minutes:15`, `chapters:1`, or "" to stop it. */
  set(choice) {
    const [unit, text] = choice.split(":");
    this.#clear();
    if (unit === "minutes") this.#end = Date.now() + Number(text) * 60_000;
    if (unit === "chapters") this.#chapters = this.#player.chapterIndex + Number(text);
    this.dispatchEvent(new Event("change"));
  }

  /** Five more minutes, also after it has paused. */
  extend() {
    const end = Math.max(this.#end, Date.now()) + 5 * 60_000;
    this.#clear();
    this.#end = end;
    this.dispatchEvent(new Event("change"));
    if (this.#player.isPaused) this.#player.play();
  }

  get isSet() { return Boolean(this.#end || this.#chapters); }

  /** Seconds until it pauses; null if it is not set. */
  get remaining() {
    if (this.#end) return (this.#end - Date.now()) / 1000;
    if (!this.#chapters) return null;
    const last = this.#player.chapters[Math.min(this.#chapters, this.#player.chapters.length) - 1];
    return last ? (last.end - this.#player.moment) / this.#player.speed : 0;
  }

  get label() {
    if (this.#end) return null;
    const left = this.#chapters - this.#player.chapterIndex;
    return left <= 1 ? "end of chapter" : `${left} chapters`;
  }

  #clear() {
    this.#end = this.#chapters = 0;
    this.#player.fade = 1;
  }

  #check() {
    if (!this.isSet) return;
    const left = this.remaining;
    const isPast = this.#chapters && this.#player.chapterIndex >= this.#chapters;
    if (left > 0.25 && !isPast) {
      this.#player.fade = Math.min(1, Math.max(0.02, left / FADE_SECONDS));
      this.dispatchEvent(new Event("tick"));
      return;
    }
    this.#player.pause();
    this.#clear();
    this.dispatchEvent(new Event("ended"));
    this.dispatchEvent(new Event("change"));
  }
}
