// Clock: when the steps of a history were, and where a step lies on an axis of steps or of time.

const MINUTE = 60;
const HOUR = 3_600;
const DAY = 86_400;
const GAPS = [1, 5, 15, 30, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY];
const FORMATS = {
  second: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }),
  minute: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false }),
  day: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }),
};

/** The value at x of the line through points (xs, ys), both rising. */
function between(xs, ys, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const gap = xs[high] - xs[low];
  return gap > 0 ? ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / gap : ys[low];
}

export class Clock {
  /** Of a history; `since` (unix seconds or null) is where a range begins, `now` where it ends. */
  constructor({ first, steps, bucket, times }, { axis, since, now }) {
    this.first = first;
    this.steps = steps;
    this.ats = []; // steps whose time is known, and those times
    this.moments = [];
    times.step.forEach((step, i) => {
      const last = Math.min(step + bucket, steps);
      this.know(step, times.first[i]);
      if (last > step + 1) this.know(last, times.last[i]);
    });
    this.byTime = axis === "time" && this.moments.length > 0;
    const from = since ?? this.moments[0];
    this.low = this.byTime ? from : first;
    this.high = this.byTime ? Math.max(since === null ? this.moments.at(-1) : now, from + 1) : Math.max(steps, first + 1);
  }

  know(step, moment) {
    this.ats.push(step);
    this.moments.push(Math.max(moment, this.moments.at(-1) ?? moment));
  }

  /** Where a step lies between `low` and `high`. */
  place(step) {
    return this.byTime ? between(this.ats, this.moments, step) : step;
  }

  /** The step at a place. */
  step(place) {
    const step = this.byTime ? between(this.moments, this.ats, place) : place;
    return Math.min(Math.max(Math.floor(step), this.first), Math.max(this.steps - 1, this.first));
  }

  /** When a step was, in words; empty where that is not known. */
  moment(step) {
    if (!this.moments.length) return "";
    const date = new Date(between(this.ats, this.moments, step) * 1000);
    const today = new Date().toDateString() === date.toDateString();
    return today ? FORMATS.second.format(date) : `${FORMATS.day.format(date)}, ${FORMATS.minute.format(date)}`;
  }

  /** The same for a machine. */
  iso(step) {
    return this.moments.length ? new Date(between(this.ats, this.moments, step) * 1000).toISOString() : "";
  }

  /** Ticks of an axis of time: [{ at, text }], about `count`. */
  timeTicks(count) {
    const wanted = (this.high - this.low) / count;
    const gap = GAPS.find((x) => x >= wanted) ?? DAY * Math.ceil(wanted / DAY);
    const format = gap >= DAY ? FORMATS.day : gap < MINUTE ? FORMATS.second : FORMATS.minute;
    const offset = new Date(this.low * 1000).getTimezoneOffset() * MINUTE; // whole hours and days of the reader
    const found = [];
    for (let at = Math.ceil((this.low - offset) / gap) * gap + offset; at <= this.high; at += gap)
      found.push({ at, text: format.format(new Date(at * 1000)) });
    return found;
  }
}
