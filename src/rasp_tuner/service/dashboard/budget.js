// What suggestions have cost against the default, spent and left; and on which scale metrics are compared.

import { h, write } from "./dom.js";
import { percent, value } from "./numbers.js";

function short(x) {
  return value(x < 10 ? Number(x.toPrecision(2)) : Math.round(x));
}

function words({ budget_report: report }) {
  if (!report) return "No budget: suggestions may cost more than the default.";
  const { share, spent, earned, left } = report;
  const sums = `${short(spent)} lost and ${short(earned)} surely won back, ${short(Math.max(left, 0))} may still be lost`;
  return `Exploring may cost ${percent(share)} more than the default. So far, counted in runs of the default: ${sums}.`;
}

export class Budget {
  constructor() {
    this.text = h("p", { class: "note", id: "budget" });
    this.bar = h("meter", { min: 0, max: 1, "aria-label": "Budget left", hidden: true });
    this.looks = h("p", { class: "note", id: "looks", hidden: true });
    this.element = h("div", { class: "budget" }, this.bar, this.text, this.looks);
  }

  show(view) {
    write(this.text, words(view));
    this.looks.hidden = !view.looks;
    write(this.looks, view.looks ? `Exploring: ${view.looks.words}.` : "");
    const report = view.budget_report;
    this.bar.hidden = !report;
    if (!report) return;
    const left = Math.max(report.left, 0);
    this.bar.value = left / Math.max(left + report.spent, 1e-12);
    this.bar.low = 0.1;
    this.bar.title = `${percent(this.bar.value)} of what could be spent is left`;
  }
}

export function scales({ scales: found }) {
  const names = (wanted) => Object.keys(found).filter((name) => found[name] === wanted);
  return [
    ["log", "factors"],
    ["linear", "differences"],
  ]
    .filter(([scale]) => names(scale).length)
    .map(([scale, by]) => `Compared by ${by}, on a ${scale} scale: ${names(scale).join(", ")}.`)
    .join(" ");
}
