// What the study gained over its default: the server's own words, so that every page and client says the same.

import { h, write } from "./dom.js";

/** Whether a gain is surely good or bad, or neither. */
export function verdict(gain) {
  if (!gain || gain.low === null) return "open";
  return gain.low > 0 ? "good" : gain.high < 0 ? "bad" : "open";
}

export class Gains {
  constructor(view) {
    this.cells = new Map();
    this.words = h("span", { class: "versus" });
    this.basis = h("p", { class: "note" });
    const body = Object.entries(view.metrics).map(([name, { direction }]) => {
      const cells = ["lately", "metrics"].map((part) => {
        const text = h("b");
        this.cells.set(`${name} ${part}`, text);
        return h("td", { data: { label: part === "metrics" ? "All steps" : "Lately" } }, text);
      });
      const better = h("span", { class: "note" }, direction === "max" ? "higher is better" : "lower is better");
      return h("tr", {}, h("th", { scope: "row" }, name, better), cells);
    });
    const heads = ["Against the default", "Lately", "All steps"].map((text) => h("th", { scope: "col" }, text));
    this.table = h(
      "table",
      { class: "gains" },
      h("caption", { class: "unseen" }, "Gain of a step over the default, with its 95% interval"),
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, body),
    );
    this.edge = h("p", { class: "edge", hidden: true });
    this.element = h("div", { class: "versus-default" }, this.basis, this.edge, this.table);
  }

  /** What runs at edges gained: by the shares of keys that got the default, whatever the tuner expects. */
  showEdge({ edge }) {
    this.edge.hidden = !edge;
    if (!edge) return;
    write(this.edge, `At edges: ${edge.words}.`);
    this.edge.dataset.verdict = verdict(Object.values(edge.metrics)[0]);
  }

  show({ versus_default: versus }) {
    const known = versus ?? { gain: null, metrics: {}, lately: {} };
    write(this.words, versus ? `${sentence(versus.words)}.` : "Not known yet what was gained over the default.");
    this.words.dataset.verdict = verdict(known.gain);
    write(
      this.basis,
      !versus
        ? ""
        : versus.measured
          ? "Measured: some steps ran the default, drawn at random, or had a control beside them."
          : "A forecast, no proof: what the tuner expected of the default, beside what came. A holdout measures it.",
    );
    for (const [key, cell] of this.cells) {
      const at = key.lastIndexOf(" ");
      const gain = known[key.slice(at + 1)][key.slice(0, at)];
      write(cell, gain ? gain.words : "–");
      cell.dataset.verdict = verdict(gain);
    }
    this.table.hidden = !versus;
  }
}

/** The words with a capital letter. */
export function sentence(words) {
  return words[0].toUpperCase() + words.slice(1);
}
