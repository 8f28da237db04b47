// What the study gained over its default, by metric: in its own unit, in percent, with an interval.

import { h, write } from "./dom.js";
import { estimate, percent } from "./numbers.js";

/** One gain in words: ["+12.4 (+8.1%)", "+10 to +15"]; where only the default ran it is exactly 0. */
export function gainWords(gain) {
  if (!gain) return ["not known yet", ""];
  const share = gain.mean_share === null ? "" : ` (${percent(gain.mean_share, true)})`;
  const interval =
    gain.low === null ? "" : gain.low === gain.high ? "only the default ran" : `${estimate(gain.low)} to ${estimate(gain.high)}`;
  return [`${estimate(gain.mean)}${share}`, interval];
}

/** Whether a gain is surely good or bad, or neither. */
export function verdict(gain) {
  if (!gain || gain.low === null) return "open";
  return gain.low > 0 ? "good" : gain.high < 0 ? "bad" : "open";
}

export class Gains {
  constructor(view) {
    this.cells = new Map();
    const body = Object.entries(view.metrics).map(([name, { direction }]) => {
      const cells = ["lately", "all"].map((part) => {
        const [mean, interval] = [h("b"), h("span", { class: "note" })];
        this.cells.set(`${name} ${part}`, [mean, interval]);
        return h("td", { data: { label: part === "all" ? "All steps" : "Lately" } }, mean, interval);
      });
      const better = h("span", { class: "note" }, direction === "max" ? "higher is better" : "lower is better");
      return h("tr", {}, h("th", { scope: "row" }, name, better), cells);
    });
    const heads = ["Gain over the default", "Lately", "All steps"].map((text) => h("th", { scope: "col" }, text));
    this.element = h(
      "table",
      { class: "gains" },
      h("caption", { class: "unseen" }, "Mean gain of a step over the default, with its 90% interval"),
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, body),
    );
  }

  show(gains) {
    for (const [name, parts] of Object.entries(gains)) {
      for (const [part, gain] of Object.entries(parts)) {
        const [mean, interval] = this.cells.get(`${name} ${part}`);
        const [text, between] = gainWords(gain);
        write(mean, text);
        write(interval, between);
        mean.dataset.verdict = verdict(gain);
      }
    }
  }
}
