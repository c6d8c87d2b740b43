/* A book as one line of time over its files. Pure: no page, no network. */

export class Timeline {
  /** `segments` as the API lists them, in order. */
  constructor(segments) {
    this.segments = segments;
    this.chapters = segments.flatMap((segment, number) => chaptersOf(segment, number + 1));
    const last = segments.at(-1);
    this.duration = last ? last.offset_start + last.duration_seconds : 0;
  }

  /** Return the file and the place in it of a moment. */
  locate(moment) {
    const at = Math.min(Math.max(0, moment), this.duration);
    const segment = this.segments.findLast(each => each.offset_start <= at) || this.segments[0];
    return { segment, seconds: Math.min(at - segment.offset_start, segment.duration_seconds) };
  }

  /** Return the moment of a place in a file; 0 for a file that the book no longer has. */
  moment(segmentId, seconds) {
    const segment = this.segments.find(each => each.id === segmentId);
    return segment ? segment.offset_start + seconds : 0;
  }

  chapterIndex(moment) {
    return Math.max(0, this.chapters.findLastIndex(each => each.start <= moment + 0.01));
  }

  chapter(moment) {
    return this.chapters[this.chapterIndex(moment)];
  }
}

function chaptersOf(segment, number) {
  const { offset_start: start, duration_seconds: duration } = segment;
  const marks = segment.chapters || [];
  const whole = { title: segment.title || `Part ${number}`, start, end: start + duration };
  if (!marks.length) return [whole];
  return marks.map((mark, index) => ({
    title: mark.title,
    start: start + mark.start_seconds,
    end: start + (marks[index + 1]?.start_seconds ?? duration),
  }));
}

/** Return the seconds to go back after a pause of this length: the longer it was, the more. */
export function rewindSeconds(pausedSeconds) {
  if (pausedSeconds < 10) return 0;
  if (pausedSeconds < 300) return 3;
  return pausedSeconds < 3600 ? 10 : 20;
}
