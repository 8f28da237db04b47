// The table of recent suggestions. A row is made once and then only touched where it changed.

import { fresh, h, write } from "./dom.js";
import { value } from "./numbers.js";

const FEW = 10;
const STATES = { pending: "pending", expired: "expired", told: "told", failed: "failed" };
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** A parameter or a metric as text. */
export function shown(x) {
  if (x === undefined) return "–"; // a knob that does not exist beside the others' values
  return typeof x === "number" ? value(x) : x === null ? "none" : String(x);
}

function when(at) {
  const date = new Date(at * 1000);
  const today = new Date().toDateString() === date.toDateString();
  return today ? CLOCK.format(date) : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

function pairs(values) {
  return Object.entries(values ?? {})
    .map(([name, x]) => `${name} ${shown(x)}`)
    .join(" · ");
}

export class Suggestions {
  constructor(study) {
    this.knobs = Object.keys(study.space);
    this.metrics = Object.keys(study.metrics);
    this.wide = this.knobs.length + this.metrics.length <= 7; // a column each
    this.default = study.default ?? {};
    this.rows = new Map();
    this.all = false;
    this.body = h("tbody", { role: "rowgroup" });
    const names = [
      "Id",
      "Asked",
      ...(this.wide ? [...this.knobs, ...this.metrics] : ["Parameters", "Metrics"]),
      "State",
      "Why",
    ];
    const numeric = (i) => this.wide && i >= 2 && i < names.length - 2;
    const head = names.map((name, i) =>
      h("th", { scope: "col", role: "columnheader", class: numeric(i) ? "number" : null }, name),
    );
    this.columns = names;
    this.more = h(
      "button",
      { type: "button", class: "plain", hidden: true, on: { click: () => this.toggle() } },
      "Show more",
    );
    this.none = h("p", { class: "note" }, "None yet.");
    this.table = h(
      "table",
      { role: "table" },
      h("caption", { class: "unseen" }, "Recent suggestions, newest first"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      this.body,
    );
    this.element = h("div", { class: "suggestions" }, this.none, this.table, this.more);
  }

  toggle() {
    this.all = !this.all;
    write(this.more, this.all ? "Show fewer" : "Show more");
    this.sift();
  }

  sift() {
    let place = 0;
    for (const element of this.body.querySelectorAll("tr.suggestion")) {
      element.hidden = !this.all && place >= FEW;
      if (element.hidden) element.row.close();
      place += 1;
    }
    this.more.hidden = place <= FEW;
  }

  /** Newest first, as the server gives them. */
  update(suggestions) {
    this.none.hidden = suggestions.length > 0;
    this.table.hidden = suggestions.length === 0;
    const ids = new Set(suggestions.map(({ id }) => id));
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      row.element.remove();
      row.words.remove();
      this.rows.delete(id);
    }
    let before = null;
    for (const suggestion of [...suggestions].reverse()) {
      let row = this.rows.get(suggestion.id);
      if (!row) {
        row = new Row(this, suggestion.id);
        this.rows.set(suggestion.id, row);
        this.body.insertBefore(row.words, before);
        this.body.insertBefore(row.element, row.words);
      }
      row.update(suggestion);
      before = row.element;
    }
    this.sift();
  }
}

class Row {
  constructor(table, id) {
    this.table = table;
    this.key = "";
    const words = fresh("why");
    this.why = h(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-expanded": "false",
        "aria-controls": words,
        on: { click: () => this.toggle() },
      },
      "Why",
    );
    this.why.setAttribute("aria-label", `Why ${id}`);
    const middle = table.columns.length - 4;
    this.cells = table.columns.map((name, i) => {
      const number = table.wide && i >= 2 && i < middle + 2;
      return h(i ? "td" : "th", {
        role: i ? "cell" : "rowheader",
        scope: i ? null : "row",
        class: number ? "number" : null,
        data: { label: name },
      });
    });
    this.cells.at(-1).append(this.why);
    this.text = h("td", { role: "cell", colspan: table.columns.length });
    this.words = h("tr", { role: "row", class: "words", id: words, hidden: true }, this.text);
    this.element = h("tr", { role: "row", class: "suggestion" }, this.cells);
    this.element.row = this;
  }

  toggle() {
    this.words.hidden = !this.words.hidden;
    this.why.setAttribute("aria-expanded", String(!this.words.hidden));
  }

  close() {
    if (!this.words.hidden) this.toggle();
  }

  update(suggestion) {
    const key = JSON.stringify(suggestion);
    if (key === this.key) return;
    this.key = key;
    const { table } = this;
    const { id, asked_at: asked, metrics, status, late, reason, context, explanation, details } = suggestion;
    const params = suggestion.ran ?? suggestion.params; // the metrics belong to what ran
    const state = `${STATES[status] ?? status}${late ? ", late" : ""}`;
    const values = table.wide
      ? [
          ...table.knobs.map((name) => shown(params[name])),
          ...table.metrics.map((name) => (metrics ? shown(metrics[name]) : "–")),
        ]
      : [pairs(params), metrics ? pairs(metrics) : "–"];
    [id, when(asked), ...values, state].forEach((text, i) => write(this.cells[i], text));
    if (table.wide)
      table.knobs.forEach((name, i) =>
        this.cells[2 + i].classList.toggle("same", params[name] === table.default[name]),
      );
    this.cells.at(-2).dataset.state = status;
    const seen =
      context === null || context === undefined
        ? ""
        : Array.isArray(context)
          ? context.map(shown).join(", ")
          : pairs(context);
    const words = [h("p", {}, explanation || "The tuner no longer keeps the reasons of this one.")];
    if (details.length) words.push(h("p", { class: "note" }, details.join(" ")));
    if (suggestion.ran) words.push(h("p", {}, `Suggested, but not run: ${pairs(suggestion.params)}`));
    if (reason) words.push(h("p", {}, `Reason told: ${reason}`));
    if (seen) words.push(h("p", { class: "note" }, `Context: ${seen}`));
    this.text.replaceChildren(...words);
  }
}
