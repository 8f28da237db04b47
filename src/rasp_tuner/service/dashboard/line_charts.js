// Values over time: a metric or a knob (LinePlot), a knob of choices (ChoicePlot), the summed gain (GainPlot).

import { s } from "./dom.js";
import { quantile, signed, value, whole } from "./numbers.js";
import { TimePlot, area, line, middles, pieceAt } from "./time_plot.js";

const TENFOLD = 10; // apart: such values are drawn along their logarithm
const FENCE = 3; // times the middle half of the values: what is farther out does not set the axis

/** The least and greatest of values that are not far from all others. */
function usual(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [quantile(sorted, 0.25), quantile(sorted, 0.75)];
  const reach = FENCE * (high - low) || FENCE * (quantile(sorted, 0.9) - quantile(sorted, 0.1));
  const kept = sorted.filter((x) => x >= low - reach && x <= high + reach);
  return [kept[0], kept.at(-1)];
}

/** The range to draw: what is usual of the means, of the band, and of the baseline. What is outside gets marks. */
function range({ mean, min, max }, others) {
  const sorted = [...mean, ...others].sort((a, b) => a - b);
  const smallest = Math.min(sorted[0], ...min);
  if (smallest > 0 && quantile(sorted, 0.95) >= TENFOLD * quantile(sorted, 0.05)) {
    return { low: smallest / 1.1, high: Math.max(sorted.at(-1), ...max) * 1.1, log: true };
  }
  const ends = [usual(mean), others.length ? usual(others) : []].flat();
  const [lows, highs] = [usual(min), usual(max)];
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const room = most - least || Math.abs(most) || 1;
  let low = Math.min(least, Math.max(lows[0], least - room));
  let high = Math.max(most, Math.min(highs[1], most + room));
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  low = low >= 0 && low - pad < 0 ? 0 : low - pad;
  high = high <= 0 && high + pad > 0 ? 0 : high + pad;
  return { low, high };
}

/** The mean of the first or last twentieth of a series. */
function end(means, first) {
  const count = Math.max(1, Math.round(means.length / 20));
  const part = first ? means.slice(0, count) : means.slice(-count);
  return part.reduce((sum, x) => sum + x, 0) / part.length;
}

/** data: { steps, bucket, regimes, series, baseline? (series), level? (a number) }; options.knob fixes the range. */
export class LinePlot extends TimePlot {
  constructor(options) {
    super(options);
    this.knob = options.knob ?? null;
    this.name = options.name ?? options.title;
    this.brief = options.brief ?? false;
    this.basis = options.basis ?? "default";
  }

  paint() {
    const { series, baseline, level } = this.data;
    const others = [...(baseline?.mean ?? []), ...(level === undefined ? [] : [level])];
    if (!series.step.length) return this.axes({ low: 0, high: 1 });
    if (this.knob) this.axes({ low: this.knob.low, high: this.knob.high, log: this.knob.log });
    else this.axes(range(series, others));
    const xs = middles(this, series.step);
    const y = (x) => Math.min(Math.max(this.y(x), this.box.top), this.box.bottom);
    this.svg.append(s("path", { class: "band", d: area(xs, series.min.map(y), series.max.map(y)) }));
    if (baseline?.step.length) {
      const from = middles(this, baseline.step);
      this.svg.append(
        s("path", {
          class: "base",
          d: line([...from, this.box.right], [...baseline.mean, baseline.mean.at(-1)].map(y)),
        }),
      );
    } else if (level !== undefined) {
      this.svg.append(s("path", { class: "base", d: `M${this.box.left} ${y(level)}H${this.box.right}` }));
    }
    if (xs.length === 1) this.svg.append(s("circle", { class: "dot main", cx: xs[0], cy: y(series.mean[0]), r: 3 }));
    else this.svg.append(s("path", { class: "line", d: line(xs, series.mean.map(y)) }));
    this.markOutside(xs, series);
    return undefined;
  }

  /** A small triangle at the edge for each value beyond it. */
  markOutside(xs, { mean }) {
    const { top, bottom } = this.box;
    let d = "";
    mean.forEach((value, i) => {
      const at = this.y(value);
      if (at < top - 1) d += `M${xs[i].toFixed(1)} ${top - 4}l3.5 6h-7z`;
      if (at > bottom + 1) d += `M${xs[i].toFixed(1)} ${bottom + 4}l3.5 -6h-7z`;
    });
    this.outside = d.split("M").length - 1;
    if (d) this.svg.append(s("path", { class: "outside", d }));
  }

  table() {
    const { series, baseline } = this.data;
    return this.seriesTable({ [this.name]: series, [this.basis]: baseline });
  }

  at(step) {
    const { series, baseline, level } = this.data;
    if (!series.step.length) return [];
    const i = pieceAt(series.step, step);
    if (step !== null) this.dot(step, series.mean[i], "main");
    const items = [
      { label: this.data.bucket > 1 && !this.brief ? "mean" : "", text: value(series.mean[i]), mark: "main" },
    ];
    if (series.max[i] > series.min[i])
      items.push({
        label: this.brief ? "" : "range",
        text: `${value(series.min[i])} to ${value(series.max[i])}`,
        mark: "spread",
      });
    const base = baseline?.step.length ? baseline.mean[pieceAt(baseline.step, step)] : level;
    if (base !== undefined && !this.brief) items.push({ label: this.basis, text: value(base), mark: "basis" });
    if (step === null && this.outside) items.push({ label: "beyond the axis", text: whole(this.outside), mark: "far" });
    return items;
  }

  words() {
    const { series, baseline, level, steps, clock } = this.data;
    if (!series.step.length) return `${this.name}: no values yet.`;
    const least = Math.min(...series.min);
    const most = Math.max(...series.max);
    const base = baseline?.step.length ? end(baseline.mean, false) : level;
    return (
      `${this.name} over ${whole(steps - clock.first)} steps: about ${value(end(series.mean, true))} at first, ` +
      `about ${value(end(series.mean, false))} lately; least ${value(least)}, most ${value(most)}.` +
      (base === undefined ? "" : ` The ${this.basis}: ${value(base)}.`)
    );
  }
}

/** A knob of choices: which of them were chosen in each piece of time. */
export class ChoicePlot extends TimePlot {
  constructor(options) {
    super(options);
    this.choices = options.choices;
  }

  paint() {
    const { series, level } = this.data;
    const few = this.choices.length <= 8;
    const names = few
      ? this.choices
      : this.choices.map((name, i) => (i === 0 || i === this.choices.length - 1 ? name : ""));
    this.axes({ low: 0, high: this.choices.length - 1, levels: names });
    if (level !== undefined) {
      this.svg.append(s("path", { class: "base", d: `M${this.box.left} ${this.y(level)}H${this.box.right}` }));
    }
    const { bucket, steps } = this.data;
    let d = "";
    for (let i = 0; i < series.step.length; i += 1) {
      const from = this.x(series.step[i]);
      const until = Math.min(Math.max(this.x(Math.min(series.step[i] + bucket, steps)), from + 1.5), this.box.right).toFixed(1);
      for (const place of new Set([series.min[i], series.max[i]])) d += `M${from.toFixed(1)} ${this.y(place).toFixed(1)}H${until}`;
    }
    this.svg.append(s("path", { class: "chosen", d }));
  }

  at(step) {
    const { series } = this.data;
    if (!series.step.length) return [];
    const i = pieceAt(series.step, step);
    const [least, most] = [this.choices[series.min[i]], this.choices[series.max[i]]];
    return [{ label: "", text: least === most ? least : `${least} and ${most}`, mark: "main" }];
  }

  table() {
    const { columns, rows } = this.seriesTable({ choice: this.data.series });
    return { columns, rows: rows.map(([step, time, , ...ends]) => [step, time, "", ...ends.map((x) => this.choices[x])]) };
  }

  words() {
    const { series, steps } = this.data;
    if (!series.step.length) return "No values yet.";
    return `Chosen over ${whole(steps)} steps, out of ${this.choices.join(", ")}: lately ${this.choices[series.max.at(-1)]}.`;
  }
}

/** data: { steps, bucket, regimes, at: [step], total: [sum so far] }. */
export class GainPlot extends TimePlot {
  paint() {
    const { at, total } = this.data;
    const low = Math.min(0, ...total);
    const high = Math.max(0, ...total);
    const pad = (high - low) * 0.06 || 1;
    this.axes({ low: low < 0 ? low - pad : 0, high: high > 0 ? high + pad : 0 + (low < 0 ? 0 : 1) });
    const xs = at.map((step) => this.x(Math.min(step + 1, this.data.steps)));
    const ys = total.map(this.y);
    const zero = this.y(0);
    const flat = xs.map(() => zero);
    this.svg.append(
      s("path", {
        class: "ahead",
        d: area(
          xs,
          flat,
          ys.map((y) => Math.min(y, zero)),
        ),
      }),
      s("path", {
        class: "behind",
        d: area(
          xs,
          flat,
          ys.map((y) => Math.max(y, zero)),
        ),
      }),
      s("line", { class: "axis", x1: this.box.left, x2: this.box.right, y1: zero, y2: zero }),
      s("path", { class: "line", d: line(xs, ys) }),
    );
  }

  at(step) {
    const { at, total } = this.data;
    if (!at.length) return [];
    const sum = total[pieceAt(at, step)];
    if (step !== null) this.dot(step, sum, "main");
    return [{ label: "gain so far", text: signed(sum), mark: sum < 0 ? "loss" : "main" }];
  }

  table() {
    const { at, total, clock } = this.data;
    return { columns: ["step", "time", "gain so far"], rows: at.map((step, i) => [step, clock.iso(step), total[i]]) };
  }

  words() {
    const { steps, total, clock } = this.data;
    if (!total.length) return "No gain is known yet.";
    const sum = total.at(-1);
    return `Over ${whole(steps - clock.first)} steps the gain sums to ${signed(sum)}: ${sum < 0 ? "worse than" : sum > 0 ? "better than" : "the same as"} the default.`;
  }
}
