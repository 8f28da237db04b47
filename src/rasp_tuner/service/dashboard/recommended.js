// What is recommended in which situation, what that is expected to gain, and which knobs it comes from.

import { h } from "./dom.js";
import { shown } from "./suggestions.js";

const COLUMNS = ["Situation", "Use", "Expected against the default", "Which knobs"];

function settings(changed) {
  const texts = Object.entries(changed).map(([name, value]) => `${name} ${shown(value)}`);
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
      h("p", { class: "note" }, "By forecast, in the situations of the last 1,000 steps."),
      table,
    );
  }

  show({ situations }) {
    this.element.hidden = situations.length === 0;
    const rows = situations.map(({ label, changed, gains, knobs }) => [
      label,
      settings(changed),
      Object.entries(gains)
        .map(([name, { words }]) => `${name}: ${words}`)
        .join("; ") || "–",
      knobs.words || "–",
    ]);
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
