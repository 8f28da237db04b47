// TimePlot: a plot along the steps of a study, or along the time when they were (data.clock). All of them share one cursor, and a strip of regimes under the axis.

import { s, say } from "./dom.js";
import { linear, logTicks, logarithmic, tick, ticks, whole } from "./numbers.js";
import { Plot, short, wide } from "./plot.js";

const plots = new Set();
let cursor = null; // the step pointed at, in whichever plot

function point(step) {
  if (step === cursor) return;
  cursor = step;
  for (const plot of plots) if (plot.near) plot.follow();
}

export class TimePlot extends Plot {
  constructor(options) {
    super(options);
    this.strip = options.strip ?? true;
    this.margin = 24; // least room for the names of the ticks
    this.below = 0; // room between the strip and the steps, for lanes
    this.canvas.addEventListener("pointermove", (event) => this.pointed(event));
    this.canvas.addEventListener("pointerdown", (event) => this.pointed(event));
    this.canvas.addEventListener("pointerleave", () => point(null));
    this.canvas.addEventListener("blur", () => point(null));
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    plots.add(this);
  }

  pointed(event) {
    if (!this.x) return;
    const left = this.canvas.getBoundingClientRect().left;
    const share = (event.clientX - left - this.box.left) / Math.max(this.box.right - this.box.left, 1);
    const { clock } = this.data;
    point(clock.step(clock.low + Math.min(Math.max(share, 0), 1) * (clock.high - clock.low)));
  }

  pressed(event) {
    const stride = Math.max(this.data?.bucket ?? 1, Math.round(this.last() / 100), 1) * (event.shiftKey ? 10 : 1);
    const from = cursor ?? this.last();
    const to = { ArrowLeft: from - stride, ArrowRight: from + stride, Home: this.first(), End: this.last() }[event.key];
    if (event.key === "Escape") point(null);
    if (to === undefined) return;
    event.preventDefault();
    point(Math.min(Math.max(to, this.first()), this.last()));
    say(this.readout.innerText); // only here: a screen reader need not hear every new step
  }

  first() {
    return this.data?.clock.first ?? 0;
  }

  last() {
    return Math.max((this.data?.steps ?? 1) - 1, 0);
  }

  /** The axes: a y scale over [low, high], ticks given or found; leaves `box`, `x`, `y`. */
  axes({ low, high, log = false, levels = null }) {
    const marks = levels ? levels.map((text, at) => ({ at, text: short(text, 14) })) : this.yMarks(low, high, log);
    const left = Math.ceil(Math.max(this.margin, ...marks.map(({ text }) => wide(text))) + 10);
    const bottom = this.height - this.below - (this.strip ? 30 : 22);
    this.box = { left, right: this.width - 10, top: 8, bottom };
    this.setX();
    this.y = (log ? logarithmic : linear)(low, high, bottom - (levels ? 10 : 0), this.box.top + (levels ? 8 : 0));
    for (const { at, text } of marks) {
      const y = Math.round(this.y(at)) + 0.5;
      this.svg.append(s("line", { class: "rule", x1: left, x2: this.box.right, y1: y, y2: y }));
      this.svg.append(s("text", { class: "tick", x: left - 8, y: y + 4, "text-anchor": "end" }, text));
    }
    this.stepAxis();
    if (this.strip) this.regimes(this.box.bottom + 2, 4);
  }

  /** The x of a step. */
  setX() {
    const { clock } = this.data;
    const scale = linear(clock.low, clock.high, this.box.left, this.box.right);
    this.x = (step) => Math.max(scale(clock.place(step)), this.box.left);
  }

  yMarks(low, high, log) {
    const count = Math.max(2, Math.round(this.height / 48));
    if (log) return logTicks(low, high, count).map((at) => ({ at, text: tick(at, at) }));
    const { at, gap } = ticks(low, high, count);
    return at.map((x) => ({ at: x, text: tick(x, gap) }));
  }

  stepAxis() {
    const { clock } = this.data;
    const scale = linear(clock.low, clock.high, this.box.left, this.box.right);
    const count = Math.max(2, Math.floor(this.width / 90));
    const { at, gap } = ticks(clock.low, clock.high, count);
    const marks = clock.byTime
      ? clock.timeTicks(count)
      : at.filter(Number.isInteger).map((step) => ({ at: step, text: tick(step, gap) }));
    for (const { at: place, text } of marks) {
      const x = scale(place);
      const end = x + wide(text) / 2 > this.width;
      this.svg.append(
        s(
          "text",
          { class: "tick", x: end ? this.width : x, y: this.height - 4, "text-anchor": end ? "end" : "middle" },
          text,
        ),
      );
    }
  }

  /** A strip in the regimes' colours; pieces narrower than half a pixel go to their neighbour. */
  regimes(top, height) {
    const shapes = new Map();
    let open = null;
    const close = (until) => {
      if (!open) return;
      const path = `M${open.from.toFixed(1)} ${top}H${until.toFixed(1)}V${top + height}H${open.from.toFixed(1)}Z`;
      shapes.set(open.rank, (shapes.get(open.rank) ?? "") + path);
    };
    for (const { rank, from, to } of this.data.regimes) {
      if (to < this.first()) continue;
      const x = this.x(Math.max(from, this.first()));
      if (open && x - open.from < 0.5) open.rank = rank;
      else {
        close(x);
        open = { rank, from: x };
      }
    }
    close(this.box.right);
    for (const [rank, d] of shapes) this.svg.append(s("path", { class: `fill r${rank % 12}`, d }));
  }

  rest() {
    this.hair = s("line", { class: "hair", y1: this.box.top, y2: this.box.bottom, visibility: "hidden" });
    this.dots = s("g");
    this.svg.append(this.hair, this.dots);
    this.follow();
  }

  /** Show the values under the cursor, or the latest ones. */
  follow() {
    if (!this.hair) return;
    const step = cursor === null ? null : Math.min(Math.max(cursor, this.first()), this.last());
    this.hair.setAttribute("visibility", step === null ? "hidden" : "visible");
    this.dots.replaceChildren();
    if (step !== null) {
      this.hair.setAttribute("x1", this.x(step));
      this.hair.setAttribute("x2", this.x(step));
    }
    const shown = step ?? this.data.steps - 1;
    const when = step === null ? "" : this.data.clock.moment(shown);
    this.read([
      { label: "step", text: whole(shown) },
      ...(when ? [{ label: "at", text: when }] : []),
      ...this.at(step),
    ]);
  }

  /** A dot on a line under the cursor. */
  dot(step, value, mark) {
    const y = Math.min(Math.max(this.y(value), this.box.top), this.box.bottom);
    this.dots.append(s("circle", { class: `dot ${mark}`, cx: this.x(step), cy: y, r: 3.5 }));
  }

  /** A table of series: { name: { step, mean, min, max } or { step, mean } }, a row for each piece. */
  seriesTable(named) {
    const { clock } = this.data;
    const series = Object.entries(named).filter(([, found]) => found?.step.length);
    const parts = series.flatMap(([name, found]) =>
      ["mean", "min", "max"]
        .filter((part) => found[part])
        .map((part) => [part === "mean" ? name : `${name} ${part}`, new Map(found.step.map((x, i) => [x, found[part][i]]))]),
    );
    const steps = [...new Set(series.flatMap(([, found]) => found.step))].sort((a, b) => a - b);
    return {
      columns: ["step", "time", ...parts.map(([name]) => name)],
      rows: steps.map((step) => [step, clock.iso(step), ...parts.map(([, found]) => found.get(step))]),
    };
  }

  /** What the read-out says at a step; null: at the latest. */
  at() {
    return [];
  }
}

/** The index of the piece that holds a step; the last one for null. */
export function pieceAt(steps, step) {
  if (step === null) return steps.length - 1;
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Where the pieces of a series lie: the middle of each. */
export function middles(plot, steps) {
  const { bucket, steps: all } = plot.data;
  return steps.map((step) => plot.x((step + Math.min(step + bucket, all)) / 2));
}

/** The path of a line through points. */
export function line(xs, ys) {
  let d = "";
  for (let i = 0; i < xs.length; i += 1) d += `${i ? "L" : "M"}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
  return d;
}

/** The path of the area between two lines. */
export function area(xs, lows, highs) {
  if (!xs.length) return "";
  let d = line(xs, highs);
  for (let i = xs.length - 1; i >= 0; i -= 1) d += `L${xs[i].toFixed(1)} ${lows[i].toFixed(1)}`;
  return `${d}Z`;
}
