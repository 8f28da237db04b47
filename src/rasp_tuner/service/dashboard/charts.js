// All charts of a study: which there are, and which part of the history each shows.

import { Clock } from "./clock.js";
import { h } from "./dom.js";
import { CalibrationPlot, NoveltyPlot, RegimePlot } from "./tuner_charts.js";
import { ChoicePlot, GainPlot, LinePlot } from "./line_charts.js";
import { letter } from "./regime_names.js";
import { Situations } from "./situations.js";
import { shown } from "./suggestions.js";

const FEW = 12; // knobs shown before the rest is asked for

function section(title, note, ...content) {
  const id = `about-${title.toLowerCase().replaceAll(" ", "-")}`;
  return h(
    "section",
    { "aria-labelledby": id },
    h("h2", { id }, title),
    note && h("p", { class: "note" }, note),
    ...content,
  );
}

export class Charts {
  constructor(view) {
    this.view = view;
    this.regime = null;
    this.ranks = new Map(); // regime label -> 0, 1, ... in order of appearance
    this.metrics = Object.entries(view.metrics);
    const [only] = this.metrics.length === 1 && view.preset === "default" ? this.metrics : [null];
    this.lines = this.metrics.map(([name, { direction }]) => [
      name,
      new LinePlot({
        title: name,
        name,
        basis: view.preset === "paper" ? "default, when it ran" : "default",
        note: `${direction === "max" ? "higher" : "lower"} is better${only ? "; this is what the tuner works on" : ""}`,
      }),
    ]);
    this.total = new GainPlot({
      title: "Gain over the default",
      note:
        this.metrics.length === 1
          ? "what the default would have given less what came, summed; positive is better; an outlier counts as ten times the usual at most"
          : "shares of the default’s level, the mean of all metrics, summed; positive is better",
    });
    this.regimes = new RegimePlot({ title: "Situations over time", note: "what the contexts fall into; named below" });
    this.regimes.element.hidden = true; // until there are several
    this.situations = new Situations();
    this.novelty = new NoveltyPlot({
      title: "Novelty and events",
      note: "0 is known, 1 was never seen",
      height: 210,
    });
    this.knobs = Object.entries(view.space).map(([name, knob]) => [name, this.knob(name, knob)]);
    this.calibration = new CalibrationPlot({
      title: "Calibration",
      note: "outcomes inside the predicted interval; the first steps have no forecast yet",
      height: 300,
    });
    this.element = h(
      "div",
      { class: "charts" },
      section(
        "Outcome",
        "",
        h(
          "div",
          { class: "grid two" },
          [...this.lines.map(([, plot]) => plot), this.total].map((plot) => plot.element),
        ),
      ),
      section("Contexts over time", "", this.regimes.element, this.situations.element, this.novelty.element),
      section("Knobs", "Dashed is the default; the shade is the range within a piece of time.", this.knobGrid()),
      section("Forecasts", "", h("div", { class: "grid map" }, this.calibration.element)),
    );
  }

  knob(name, knob) {
    const choices = choicesOf(knob);
    if (choices) return new ChoicePlot({ title: name, choices: choices.map(shown), height: 150 });
    return new LinePlot({ title: name, name, knob: axisOf(knob.knob ?? knob), height: 150, brief: true });
  }

  knobGrid() {
    const elements = this.knobs.map(([, plot]) => plot.element);
    const grid = h("div", { class: "grid three" }, elements.slice(0, FEW));
    if (elements.length <= FEW) return grid;
    const more = h("button", { type: "button", class: "plain" }, `Show all ${elements.length} knobs`);
    const showAll = () => {
      grid.append(...elements.slice(FEW));
      more.remove();
    };
    more.addEventListener("click", showAll);
    addEventListener("beforeprint", showAll, { once: true, capture: true }); // before the plots are drawn
    return h("div", {}, grid, more);
  }

  rank(label) {
    if (!this.ranks.has(label)) this.ranks.set(label, this.ranks.size);
    return this.ranks.get(label);
  }

  showHistory(history, range) {
    const { steps, bucket, series, events, calibration } = history;
    this.history = history;
    const clock = new Clock(history, range);
    this.ranks = new Map(
      [...new Set(history.regimes.map(({ regime }) => regime))].sort((a, b) => a - b).map((label, i) => [label, i]),
    );
    const regimes = history.regimes.map(({ regime, from, to }) => ({ rank: this.rank(regime), from, to }));
    const several = this.ranks.size > 1; // one alone says nothing
    this.regimes.element.hidden = !several;
    this.regime = several ? letter(regimes.at(-1).rank) : null;
    const common = { steps, bucket, regimes, clock };
    const moved = clock.byTime && range.since !== null ? Math.round((clock.high - clock.low) / 100) : 0; // a point or so
    const key = [steps, bucket, clock.first, clock.byTime, moved && Math.floor(clock.high / moved)].join(" ");
    const inside = events.filter(({ step }) => step >= clock.first);
    const marks = events.length ? `${events.length} ${events.at(-1).at}` : "";
    for (const [name, plot] of this.lines)
      plot.set({ ...common, series: series[`metric:${name}`], baseline: series[`default:${name}`] }, key);
    this.total.set({ ...common, ...summed(series.gain, history) }, key);
    this.regimes.set(common, key);
    const visited = (history.situations ?? []).map((one) => ({ ...one, rank: this.rank(one.regime) }));
    this.situations.set(several ? visited : [], steps, range.now);
    this.novelty.set({ ...common, series: series.novelty, events: inside }, `${key} ${marks}`);
    for (const [name, plot] of this.knobs)
      plot.set({ ...common, series: series[`param:${name}`], level: this.level(name) }, key);
    this.calibration.set(calibration, `${calibration.count} ${calibration.observed}`);
  }

  /** The default of a knob as its chart draws it. */
  level(name) {
    const choices = choicesOf(this.view.space[name]);
    const given = this.view.default?.[name];
    if (!choices) return typeof given === "number" ? given : undefined; // not a word such as "auto"
    const place = choices.indexOf(given);
    return place < 0 ? undefined : place;
  }
}

function choicesOf(knob) {
  return knob.type === "bool" ? [false, true] : knob.choices;
}

/** The range of a number knob as a chart draws it; a logarithmic one that starts at 0 has it just below 1. */
function axisOf(knob) {
  const log = knob.log || knob.type === "power_of_two";
  return { low: log && knob.low === 0 ? 0.5 : knob.low, high: knob.high, log };
}

/** The gain summed up to the end of each piece; of all steps the last sum is the server's own, and the others follow. */
function summed({ step, mean }, { first, steps, bucket, gain_total: total }) {
  let sum = 0;
  const sums = step.map((from, i) => (sum += mean[i] * Math.min(bucket, steps - from)));
  const rest = first ? 0 : total - sum; // steps that were not judged inside a piece are not told apart from others
  const at = step.map((from) => Math.min(from + bucket, steps) - 1);
  return { at, total: sums.map((x, i) => x + (rest * (i + 1)) / sums.length) };
}
