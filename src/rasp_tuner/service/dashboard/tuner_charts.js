// Regimes and events on a timeline, and calibration.

import { s } from "./dom.js";
import { linear, percent, value, whole } from "./numbers.js";
import { Plot } from "./plot.js";
import { letter } from "./regime_names.js";
import { TimePlot, area, line, middles, pieceAt } from "./time_plot.js";

const LANES = 58; // room for the names of lanes
const KINDS = {
  slow: "slow path", // of preset paper
  restated: "a metric changed its unit",
  novel: "novel context",
  returned: "a known situation returned",
  failed: "failed",
  late: "late",
  freeze: "frozen",
  default: "sent back to the default",
  unfreeze: "unfrozen",
  approved: "approved",
  refused: "refused",
};

/** data: { steps, regimes: [{ rank, from, to }] }. */
export class RegimePlot extends TimePlot {
  constructor(options) {
    super({ ...options, height: 76, strip: false });
  }

  paint() {
    this.box = { left: LANES, right: this.width - 10, top: 6, bottom: 46 };
    this.setX();
    this.svg.append(s("text", { class: "tick", x: LANES - 8, y: 30, "text-anchor": "end" }, "situation"));
    this.y = () => 0;
    this.regimes(8, 36);
    for (const { rank, from, to } of this.data.regimes) {
      if (to < this.first()) continue;
      const [left, right] = [this.x(Math.max(from, this.first())), this.x(to + 1)];
      if (right - left < 22) continue;
      this.svg.append(
        s("text", { class: `on r${rank % 12}`, x: (left + right) / 2, y: 31, "text-anchor": "middle" }, letter(rank)),
      );
    }
    this.stepAxis();
  }

  at(step) {
    const { regimes } = this.data;
    if (!regimes.length) return [];
    const { rank, from, to } =
      regimes[
        pieceAt(
          regimes.map((part) => part.from),
          step,
        )
      ];
    return [
      { label: "situation", text: letter(rank), mark: `r${rank % 12}` },
      { label: "steps", text: `${whole(from)} to ${whole(to)}` },
    ];
  }

  table() {
    const { regimes, clock } = this.data;
    const rows = regimes.filter(({ to }) => to >= clock.first);
    return {
      columns: ["situation", "from step", "to step", "from time"],
      rows: rows.map(({ rank, from, to }) => [letter(rank), from, to, from < clock.first ? "" : clock.iso(from)]),
    };
  }

  words() {
    const { regimes, steps } = this.data;
    if (!regimes.length) return "No regimes yet.";
    const lengths = new Map();
    for (const { rank, from, to } of regimes) lengths.set(rank, (lengths.get(rank) ?? 0) + to - from + 1);
    const shares = [...lengths].sort((a, b) => a[0] - b[0]).map(([rank, n]) => `${letter(rank)} ${percent(n / steps)}`);
    const now = regimes.at(-1);
    return `${lengths.size} situations in ${regimes.length} stretches; share of steps: ${shares.join(", ")}. Now in ${letter(now.rank)}, since step ${whole(now.from)}.`;
  }
}

/** data: { steps, regimes, series (novelty), events: [{ step, kind }] }; a lane of marks for each kind under the line. */
export class NoveltyPlot extends TimePlot {
  constructor(options) {
    super(options);
    this.margin = LANES - 10;
  }

  lanes() {
    const kinds = this.data.events.map(({ kind }) => kind);
    return Object.keys(KINDS).filter((kind) => kind !== "unfreeze" && (kind === "novel" || kinds.includes(kind)));
  }

  paint() {
    const { series, events } = this.data;
    const lanes = this.lanes();
    this.below = lanes.length * 16 + 8;
    this.axes({ low: 0, high: 1 });
    const xs = middles(this, series.step);
    this.svg.append(
      s("path", { class: "band", d: area(xs, series.min.map(this.y), series.max.map(this.y)) }),
      s("path", { class: "line", d: line(xs, series.mean.map(this.y)) }),
    );
    lanes.forEach((lane, i) => {
      const top = this.box.bottom + 14 + i * 16;
      const d = events
        .filter(({ kind }) => kind === lane || (lane === "freeze" && kind === "unfreeze"))
        .map(({ step }) => `M${this.x(step).toFixed(1)} ${top}v10`);
      this.svg.append(
        s("line", { class: "rule", x1: this.box.left, x2: this.box.right, y1: top + 10.5, y2: top + 10.5 }),
      );
      this.svg.append(s("text", { class: "tick", x: this.box.left - 8, y: top + 10, "text-anchor": "end" }, lane));
      this.svg.append(s("path", { class: `mark ${lane}`, d: [...new Set(d)].join("") }));
    });
  }

  at(step) {
    const { series, events, bucket, steps } = this.data;
    const items = [];
    if (series.step.length) {
      const i = pieceAt(series.step, step);
      if (step !== null) this.dot(step, series.mean[i], "main");
      items.push({ label: "novelty", text: value(series.mean[i]), mark: "main" });
    }
    const near = Math.max(bucket, steps / 200);
    for (const lane of this.lanes()) {
      const count = events.filter(
        ({ kind, step: at }) => kind === lane && (step === null || Math.abs(at - step) <= near),
      ).length;
      if (step === null || count) items.push({ label: KINDS[lane], text: whole(count), mark: lane });
    }
    return items;
  }

  table() {
    const { columns, rows } = this.seriesTable({ novelty: this.data.series });
    return {
      columns: [...columns, "event", "by", "about"],
      rows: [
        ...rows,
        ...this.data.events.map(({ step, at, kind, by, words }) => [
          step,
          new Date(at * 1000).toISOString(),
          ...columns.slice(2).map(() => ""),
          kind,
          by,
          words,
        ]),
      ],
    };
  }

  words() {
    const { series, events } = this.data;
    const latest = series.mean.length
      ? `Novelty is ${value(series.mean.at(-1))} lately, between 0 (known) and 1 (never seen). `
      : "";
    const counts = this.lanes().map((lane) => `${KINDS[lane]} ${events.filter(({ kind }) => kind === lane).length}`);
    return `${latest}Events kept: ${counts.join(", ")}.`;
  }
}

/** data: { expected: [share], observed: [share], count }. */
export class CalibrationPlot extends Plot {
  paint() {
    const { expected, observed } = this.data;
    const side = Math.min(this.width - 50, this.height - 40);
    const box = { left: 44, top: 10, bottom: 10 + side };
    const x = linear(0, 1, box.left, box.left + side);
    const y = linear(0, 1, box.bottom, box.top);
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const at = Math.round(y(share)) + 0.5;
      this.svg.append(
        s("line", { class: "rule", x1: x(0), x2: x(1), y1: at, y2: at }),
        s("text", { class: "tick", x: box.left - 8, y: at + 4, "text-anchor": "end" }, percent(share)),
      );
      if (share)
        this.svg.append(
          s("text", { class: "tick", x: x(share), y: box.bottom + 18, "text-anchor": "middle" }, percent(share)),
        );
    }
    this.svg.append(s("path", { class: "base", d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}` }));
    const points = [0, ...expected].map(x);
    const heights = [0, ...observed].map(y);
    this.svg.append(s("path", { class: "line", d: line(points, heights) }));
    expected.forEach((share, i) =>
      this.svg.append(s("circle", { class: "dot main", cx: x(share), cy: y(observed[i]), r: 3.5 })),
    );
  }

  rest() {
    const { expected, observed, count } = this.data;
    const i = expected.indexOf(0.9);
    this.read(
      i < 0
        ? []
        : [
            { label: "steps with a forecast", text: whole(count) },
            { label: "90% intervals that held", text: percent(observed[i]), mark: "main" },
          ],
    );
  }

  table() {
    const { expected, observed } = this.data;
    return { columns: ["interval", "outcomes inside"], rows: expected.map((share, i) => [share, observed[i]]) };
  }

  words() {
    const { expected, observed, count } = this.data;
    if (!expected.length) return "No forecasts yet.";
    const parts = expected.map((share, i) => `${percent(observed[i])} of the ${percent(share)} intervals`);
    return `Of ${whole(count)} forecasts, what came lay within ${parts.join(", ")}.`;
  }
}
