// What is recommended in which situation, what that is expected to gain, and which knobs it comes from.

import { h } from "./dom.js";
import { shown } from "./suggestions.js";

const COLUMNS = ["Situation", "Use", "Expected against the default", "Which knobs", "No effect shown"];

function settings(params) {
  const texts = Object.entries(params).map(([name, value]) => `${name} ${shown(value)}`);
  return texts.length ? texts.join(", ") : "the default";
}

export class Recommended {
  constructor() {
    this.key = "";
    this.body = h("tbody", { role: "rowgroup" });
    const head = COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name));
    const table = h(
      "table",
      { role: "table", class: "situations" },
      h("caption", { class: "unseen" }, "Recommended settings by situation"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      this.body,
    );
    this.element = h(
      "section",
      { "aria-labelledby": "recommended", hidden: true },
      h("h2", { id: "recommended" }, "Recommended settings"),
      h("p", { class: "note" }, "By forecast, in the situations of the last 1,000 steps. No effect shown: what a knob does, if anything, cannot be told from noise, so its value was left to chance."),
      table,
    );
  }

  show({ situations }) {
    this.element.hidden = situations.length === 0;
    const rows = situations.map(({ label, proven, unproven, gains, source }) => {
      const gained = Object.keys(proven).length ? Object.entries(gains) : [];
      const now = Object.entries(unproven).map(([name, value]) => `${name} (now ${shown(value)})`);
      return [
        label,
        settings(proven),
        gained.map(([name, { words }]) => `${name}: ${words}`).join("; ") || "–",
        source || "–",
        now.join(", ") || "–",
      ];
    });
    const key = JSON.stringify(rows);
    if (key === this.key) return;
    this.key = key;
    this.body.replaceChildren(...rows.map(row));
  }
}

function row([label, ...texts]) {
  const cells = texts.map((text, i) => h("td", { role: "cell", data: { label: COLUMNS[i + 1] } }, text));
  return h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, label), cells);
}
