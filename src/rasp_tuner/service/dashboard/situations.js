// The situations of a study: how often each was visited, when last, and whether returns recover sooner than at first.

import { h, write } from "./dom.js";
import { value, whole } from "./numbers.js";
import { letter } from "./regime_names.js";

const HALF_A_DAY = 43_200;
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const NOTE =
  "Contexts that stay alike for a while are one situation here, named A, B, and so on; the recommended settings may tell more apart. Answered suggestions are counted, without single odd contexts.";
const COLUMNS = ["Situation", "Visits", "Steps", "Last seen", "Steps to settle at first", "On return", "Saved"];

function lastSeen({ current, last_at: at, last_step: step }, steps, now) {
  if (current) return "now";
  const before = `${whole(steps - step)} steps ago`;
  if (at === null) return before;
  const format = now - at < HALF_A_DAY ? TIME : DATE; // a time, not how long ago: that would change while nothing happens
  return `${format.format(new Date(at * 1000))}, ${before}`;
}

function onReturn({ visits, took_on_return: took, returns_measured: measured, returns_missed: missed }) {
  if (visits < 2) return "–";
  if (!measured) return missed ? `not reached (${missed} of ${missed})` : "not measured";
  const all = measured + missed;
  return `${value(took)} (${missed ? `median; ${measured} of ${all} got there` : measured === 1 ? "one return" : `median of ${measured}`})`;
}

export class Situations {
  constructor() {
    this.key = "";
    this.back = h("p", { class: "back", hidden: true });
    this.body = h("tbody", { role: "rowgroup" });
    const head = COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name));
    this.table = h(
      "table",
      { role: "table", class: "situations visits" },
      h("caption", { class: "unseen" }, "Visits to each situation, and how many steps it takes to recover"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      this.body,
    );
    this.element = h("div", { hidden: true }, this.back, h("p", { class: "note" }, NOTE), this.table);
  }

  /** `situations` with the rank of their regime; `steps` of the study so far. */
  set(situations, steps, now) {
    this.element.hidden = situations.length === 0;
    const current = situations.find(({ words }) => words);
    this.back.hidden = !current;
    if (current) write(this.back, `${name(current)} is back. ${current.words}`);
    const rows = situations.map((one) => [
      one.rank,
      one.label,
      whole(one.visits),
      whole(one.steps),
      lastSeen(one, steps, now),
      one.first_took === null ? "not measured" : whole(one.first_took),
      onReturn(one),
      one.saved === null ? "–" : `about ${whole(one.saved)} steps`,
    ]);
    const key = JSON.stringify(rows);
    if (key === this.key) return;
    this.key = key;
    this.body.replaceChildren(...rows.map(row));
  }
}

/** What a situation is called: by the values of its contexts. */
function name({ rank, label }) {
  return label ? `${letter(rank)}: ${label}` : `Situation ${letter(rank)}`;
}

function row([rank, label, ...texts]) {
  const head = h(
    "th",
    { scope: "row", role: "rowheader" },
    h("span", { class: `swatch r${rank % 12}` }),
    ` ${name({ rank, label })}`,
  );
  const cells = texts.map((text, i) => h("td", { role: "cell", data: { label: COLUMNS[i + 1] } }, text));
  return h("tr", { role: "row" }, head, cells);
}
