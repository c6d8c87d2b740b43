/* The player on the page: buttons, sliders, chapters, bookmarks, keys and the lock screen. */

import { call, clock, HOME, length, remaining, withRoot } from "./api.js";
import { SPEED_STEP } from "./player.js";

const BACK_SECONDS = 10, FORWARD_SECONDS = 30;
const AUTOPLAY = "audiobooks-autoplay";
const element = id => document.getElementById(id);

function button(text, press, className = "") {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.className = className;
  made.addEventListener("click", press);
  return made;
}

export class PlayerView {
  #player;
  #timer;
  #places;
  #isSliding = false;
  #isError = false;
  #bookmarks = [];

  constructor(player, timer, places) {
    this.#player = player;
    this.#timer = timer;
    this.#places = places;
    this.#bindButtons();
    this.#bindSliders();
    this.#bindTimer();
    player.addEventListener("book", () => this.#showBook());
    player.addEventListener("state", () => this.markPlaying());
    for (const name of ["state", "time", "jump"]) player.addEventListener(name, () => this.#show());
    player.addEventListener("error", event => {
      this.message(event.detail.message);
      this.#isError = true;
    });
    player.addEventListener("book", () => { element("player-message").hidden = true; });
    player.addEventListener("time", () => {
      if (this.#isError && !player.isPaused) element("player-message").hidden = true;
    });
    player.addEventListener("finished", () => this.#offerNext());
    places.addEventListener("conflict", event => this.#ask(event.detail));
    places.addEventListener("failed", event => {
      this.message(`The place was not saved: ${event.detail.message}`);
    });
    places.addEventListener("unreachable", event => this.#unreachable(event.detail));
    places.addEventListener("sent", () => { element("unsent").hidden = true; });
    document.addEventListener("keydown", event => this.#press(event));
    bindMediaSession(player);
  }

  /** Let the buttons of the page that play the current book say what they do now. */
  markPlaying() {
    const { book, isPaused } = this.#player;
    for (const each of document.querySelectorAll("[data-play]:not([data-at])")) {
      const isPlaying = !isPaused && each.dataset.play === book?.id;
      each.classList.toggle("playing", isPlaying);
      const label = each.querySelector("span");
      if (label) label.textContent = isPlaying ? "Pause" : label.dataset.label;
      else {
        const verb = isPlaying ? "Pause" : "Play";
        each.setAttribute("aria-label", each.getAttribute("aria-label").replace(/^\w+/, verb));
      }
    }
  }

  /** Show a message above the player, with buttons for what can be done. */
  message(text, ...buttons) {
    this.#isError = false;
    const place = element("player-message");
    place.querySelector("span").textContent = text;
    place.querySelector(".actions").replaceChildren(
      ...buttons.map(([label, press]) => {
        return button(label, () => { place.hidden = true; press(); }, "small primary");
      }),
      button("Close", () => { place.hidden = true; }, "small"),
    );
    element("player").hidden = place.hidden = false;
  }

  #bindButtons() {
    const player = this.#player;
    const presses = {
      "player-play": () => player.toggle(),
      "player-back": () => player.skip(-BACK_SECONDS),
      "player-forward": () => player.skip(FORWARD_SECONDS),
      "player-previous": () => player.previousChapter(),
      "player-next": () => player.nextChapter(),
      "player-more": () => this.#open(element("player-panel").hidden),
      "player-close": () => this.#open(false),
      "add-bookmark": () => this.#addBookmark(),
      "speed-down": () => player.changeSpeed(player.speed - SPEED_STEP),
      "speed-up": () => player.changeSpeed(player.speed + SPEED_STEP),
    };
    for (const [id, press] of Object.entries(presses)) element(id).addEventListener("click", press);
    element("speed").addEventListener("input", event => {
      player.changeSpeed(Number(event.target.value));
    });
    const autoplay = element("autoplay");
    autoplay.checked = localStorage.getItem(AUTOPLAY) === "yes";
    autoplay.addEventListener("change", () => {
      localStorage.setItem(AUTOPLAY, autoplay.checked ? "yes" : "");
    });
    element("volume").addEventListener("input", event => {
      player.volume = Number(event.target.value);
    });
  }

  #bindSliders() {
    const slide = (id, moment) => {
      const slider = element(id);
      slider.addEventListener("input", () => {
        this.#isSliding = true;
        this.#showTimes(moment(Number(slider.value)));
      });
      slider.addEventListener("change", () => {
        this.#isSliding = false;
        this.#player.seek(moment(Number(slider.value)));
      });
    };
    slide("chapter-slider", value => this.#player.chapter.start + value);
    slide("book-slider", value => value);
  }

  #bindTimer() {
    const timer = this.#timer, choice = element("sleep");
    choice.addEventListener("change", () => timer.set(choice.value));
    element("sleep-more").addEventListener("click", () => timer.extend());
    timer.addEventListener("change", () => {
      if (!timer.isSet) choice.value = "";
      this.#showTimer();
    });
    timer.addEventListener("tick", () => this.#showTimer());
    timer.addEventListener("ended", () => this.message("The sleep timer has paused the book.",
      ["5 more minutes", () => timer.extend()]));
  }

  #showTimer() {
    const timer = this.#timer, left = timer.remaining;
    element("sleep-more").hidden = element("sleep-left").hidden = !timer.isSet;
    element("sleep-left").textContent = timer.isSet ? `Sleep: ${timer.label || clock(left)}` : "";
    const end = timer.label === "end of chapter" ? "end of the chapter" : `end of ${timer.label}`;
    element("sleep-status").textContent = !timer.isSet ? "Off."
      : timer.label ? `Pauses at the ${end}.` : `Pauses in ${clock(left)}.`;
  }

  #open(isOpen) {
    element("player-panel").hidden = !isOpen;
    element("player").classList.toggle("open", isOpen);
    element("player-more").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) element("player-panel").querySelector("h2").focus();
    else element("player-more").focus();
  }

  #showBook() {
    const { book, chapters, timeline } = this.#player;
    element("player").hidden = false;
    document.body.classList.add("has-player");
    showText("[data-player-title]", book.title);
    showText("[data-player-author]", book.author_name || "");
    element("player-link").href = `${HOME}books/${book.id}`;
    for (const image of document.querySelectorAll("[data-player-cover]")) {
      image.hidden = !book.cover_url;
      if (book.cover_url) image.src = withRoot(book.cover_url); else image.removeAttribute("src");
    }
    element("book-slider").max = timeline.duration;
    element("player-chapters").replaceChildren(...chapters.map((chapter, index) => {
      const item = document.createElement("li"), time = document.createElement("span");
      time.textContent = length(chapter.end - chapter.start);
      time.className = "quiet";
      const press = button(chapter.title, () => {
        this.#player.seekChapter(index);
        this.#player.play();
      }, "link");
      item.append(press, time);
      return item;
    }));
    this.#loadBookmarks();
    this.#show();
  }

  #show() {
    const player = this.#player;
    if (!player.book) return;
    const play = element("player-play");
    play.setAttribute("aria-label", player.isPaused ? "Play" : "Pause");
    play.classList.toggle("playing", !player.isPaused);
    element("speed").value = player.speed;
    showText("[data-player-speed]", `${player.speed.toFixed(2)}×`);
    if (!this.#isSliding) this.#showTimes(player.moment);
    showMediaSession(player);
  }

  #showTimes(moment) {
    const { timeline, chapters, speed } = this.#player;
    const index = timeline.chapterIndex(moment), chapter = chapters[index];
    const inside = Math.max(0, moment - chapter.start), whole = chapter.end - chapter.start;
    const slider = element("chapter-slider"), bookSlider = element("book-slider");
    slider.max = whole;
    if (!this.#isSliding) { slider.value = inside; bookSlider.value = moment; }
    slider.setAttribute("aria-valuetext", `${clock(inside)} of ${clock(whole)}`);
    bookSlider.setAttribute("aria-valuetext", `${clock(moment)} of ${clock(timeline.duration)}`);
    element("chapter-time").textContent = clock(inside);
    element("chapter-left").textContent = `−${clock(whole - inside)}`;
    element("book-time").textContent = `${clock(moment)} of ${clock(timeline.duration)}`;
    const left = `${remaining((timeline.duration - moment) / speed)} left at ${speed.toFixed(2)}×`;
    showText("[data-player-left]", left);
    showText("[data-player-chapter]", chapter.title);
    const items = element("player-chapters").children;
    for (let at = 0; at < items.length; at++) {
      if (at === index) items[at].setAttribute("aria-current", "true");
      else items[at].removeAttribute("aria-current");
    }
  }

  // Bookmarks

  async #loadBookmarks() {
    const id = this.#player.book.id;
    const found = await call("GET", `/books/${id}/bookmarks?limit=500`).catch(() => null);
    this.#bookmarks = found?.items || [];
    this.#showBookmarks();
  }

  #showBookmarks() {
    const { timeline, book } = this.#player;
    const moments = this.#bookmarks.map(
      mark => ({ mark, moment: timeline.moment(mark.segment_id, mark.position_seconds) }));
    moments.sort((one, other) => one.moment - other.moment);
    element("no-bookmarks").hidden = moments.length > 0;
    element("bookmarks").replaceChildren(...moments.map(({ mark, moment }) => {
      const item = document.createElement("li");
      const title = mark.title || timeline.chapter(moment).title;
      const go = button(title, () => this.#player.seek(moment), "link");
      const time = document.createElement("span");
      time.className = "quiet";
      time.textContent = clock(moment);
      const remove = button("Delete", async () => {
        await call("DELETE", `/books/${book.id}/bookmarks/${mark.id}`)
          .catch(error => this.message(error.message));
        await this.#loadBookmarks();
      }, "small");
      remove.setAttribute("aria-label", `Delete the bookmark at ${clock(moment)}`);
      item.append(go, time, remove);
      return item;
    }));
  }

  async #addBookmark() {
    const { book, timeline, moment } = this.#player;
    if (!book) return;
    const { segment, seconds } = timeline.locate(moment), title = element("bookmark-title");
    try {
      await call("POST", `/books/${book.id}/bookmarks`, {
        segment_id: segment.id,
        position_seconds: Math.round(seconds * 1000) / 1000,
        title: title.value.trim(),
      });
      title.value = "";
      this.message(`Bookmark at ${clock(moment)}.`);
      await this.#loadBookmarks();
    } catch (error) {
      this.message(`The bookmark was not saved: ${error.message}`);
    }
  }

  // Messages

  #ask({ book, state }) {
    if (this.#player.book?.id !== book) return;  // asked when that book is opened
    const { timeline } = this.#player;
    const there = timeline.moment(state.last_segment_id, state.position_seconds);
    const here = this.#player.moment;
    const place = element("question");
    element("question-text").textContent =
      `Another device is at ${clock(there)}, ${timeline.chapter(there).title}.`
      + ` This one is at ${clock(here)}. Where do you want to continue?`;
    const done = work => async () => { place.hidden = true; await work(); };
    place.querySelector(".actions").replaceChildren(
      button(`Continue at ${clock(there)} (other device)`, done(async () => {
        await this.#places.follow(book);
        this.#player.seek(there, { isPlace: true });
      }), "primary"),
      button(`Stay at ${clock(here)} (this device)`, done(() => this.#places.stay(book))),
    );
    place.hidden = false;
  }

  #unreachable({ status, count }) {
    const place = element("unsent");
    place.hidden = false;
    place.textContent = status === 401
      ? "You are signed out: sign in again, your place is kept on this device."
      : `Offline: ${count} ${count === 1 ? "event waits" : "events wait"} on this device,`
        + " and will be sent.";
  }

  async #offerNext() {
    const { book } = this.#player;
    const found = await call("GET", "/me/continue").catch(() => null);
    const next = found?.next_in_series.find(
      each => each.series_id && each.series_id === book.series_id);
    if (!next) return this.message(`You have finished ${book.title}.`);
    const play = () => this.#player.load(next.id, { autoplay: true })
      .catch(error => this.message(error.message));
    if (element("autoplay").checked) return play();
    this.message(`You have finished ${book.title}. Next in the series: ${next.title}.`,
      [`Play ${next.title}`, play]);
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.closest("input, textarea, select, dialog, [role=region]")) return;
    const isButton = target.closest("button, a, summary");
    const player = this.#player;
    const name = (event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "") + event.key;
    const keys = {
      "/": () => element("q")?.focus(),
      "?": () => element("help").showModal(),
    };
    if (player.book) Object.assign(keys, {
      "k": () => player.toggle(),
      "ArrowLeft": () => player.skip(-BACK_SECONDS),
      "ArrowRight": () => player.skip(FORWARD_SECONDS),
      "Shift+ArrowLeft": () => player.previousChapter(),
      "Shift+ArrowRight": () => player.nextChapter(),
      "Shift+ArrowUp": () => player.changeSpeed(player.speed + SPEED_STEP),
      "Shift+ArrowDown": () => player.changeSpeed(player.speed - SPEED_STEP),
      "m": () => {
        player.volume = player.volume ? 0 : 1;
        element("volume").value = player.volume;
      },
      "b": () => this.#addBookmark(),
      ...(isButton ? {} : { " ": () => player.toggle() }),
      ...(element("player-panel").hidden ? {} : { "Escape": () => this.#open(false) }),
    });
    const press = keys[name];
    if (press) { event.preventDefault(); press(); }
  }
}

function showText(selector, text) {
  for (const each of document.querySelectorAll(selector)) each.textContent = text;
}

function bindMediaSession(player) {
  if (!("mediaSession" in navigator)) return;
  const actions = {
    play: () => player.play(),
    pause: () => player.pause(),
    seekbackward: detail => player.skip(-(detail.seekOffset || BACK_SECONDS)),
    seekforward: detail => player.skip(detail.seekOffset || FORWARD_SECONDS),
    seekto: detail => player.seek(player.chapter.start + detail.seekTime),
    previoustrack: () => player.previousChapter(),
    nexttrack: () => player.nextChapter(),
  };
  for (const [name, act] of Object.entries(actions)) {
    try {
      navigator.mediaSession.setActionHandler(name, act);
    } catch { /* not known to this browser */ }
  }
}

let announced = "";
/** The lock screen shows the chapter, and its slider spans the chapter. */
function showMediaSession(player) {
  if (!("mediaSession" in navigator)) return;
  const { book, chapter } = player, key = `${book.id} ${chapter.start}`;
  if (announced !== key) {
    announced = key;
    const artwork = book.cover_url ? [{ src: withRoot(book.cover_url) }] : [];
    navigator.mediaSession.metadata = new MediaMetadata(
      { title: chapter.title, artist: book.author_name || "", album: book.title, artwork });
  }
  navigator.mediaSession.playbackState = player.isPaused ? "paused" : "playing";
  const duration = Math.max(0.1, chapter.end - chapter.start);
  const position = Math.min(duration, Math.max(0, player.moment - chapter.start));
  navigator.mediaSession.setPositionState?.({ duration, position, playbackRate: player.speed });
}
