// Plot: a figure with a heading, a read-out, a drawing that follows its width, and the same in words.

import { download } from "./csv.js";
import { fresh, h, s, write } from "./dom.js";

const PERIOD_MS = 250; // drawings at most four times a second
const dirty = new Set();
const everyPlot = new Set();
let waiting = false;
let drawnAt = 0;

function queue(plot) {
  dirty.add(plot);
  if (waiting) return;
  waiting = true;
  setTimeout(() => requestAnimationFrame(drawAll), Math.max(0, drawnAt + PERIOD_MS - performance.now()));
}

/** Draw all plots now, seen or not: for printing. */
function drawUnseen() {
  for (const plot of everyPlot) {
    plot.width = Math.round(plot.canvas.clientWidth) || plot.width;
    plot.draw();
  }
}

addEventListener("beforeprint", drawUnseen);

function drawAll() {
  waiting = false;
  drawnAt = performance.now();
  for (const plot of dirty) {
    if (!plot.near) continue; // drawn when it is scrolled to
    dirty.delete(plot);
    plot.draw();
  }
}

const sight = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const plot = entry.target.plot;
      plot.near = entry.isIntersecting;
      if (plot.near && dirty.has(plot)) queue(plot);
    }
  },
  { rootMargin: "300px" },
);

const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const plot = entry.target.plot;
    const width = Math.round(entry.contentRect.width);
    if (width === plot.width) continue;
    plot.width = width;
    if (plot.data !== null) queue(plot);
  }
});

export class Plot {
  constructor({ title, note = "", height = 200, level = "h3" }) {
    this.height = height;
    this.width = 0;
    this.near = false;
    this.data = null;
    this.key = null;
    const names = fresh("plot");
    const words = fresh("words");
    this.svg = s("svg", { height, "aria-hidden": "true", focusable: "false" });
    this.canvas = h(
      "div",
      { class: "canvas", tabindex: 0, role: "img", "aria-labelledby": names, "aria-describedby": words },
      this.svg,
    );
    this.readout = h("p", { class: "readout" });
    this.heading = h(level, { id: names }, title);
    const save = () => this.data !== null && download(title, this.table());
    this.save = h("button", { type: "button", class: "plain csv", on: { click: save } }, "CSV");
    this.save.setAttribute("aria-label", `CSV of ${title}`);
    this.note = h("p", { class: "note" }, note);
    this.spoken = h("p", { id: words, class: "unseen words" });
    this.element = h(
      "figure",
      { class: "plot" },
      h("figcaption", {}, this.heading, this.note, this.save, this.readout),
      this.canvas,
      this.spoken,
    );
    this.canvas.plot = this;
    everyPlot.add(this);
    sight.observe(this.canvas);
    sizes.observe(this.canvas);
  }

  /** Take new data; nothing is drawn where the key says that nothing changed. */
  set(data, key) {
    if (key === this.key) return;
    this.key = key;
    this.data = data;
    write(this.spoken, this.words());
    queue(this);
  }

  draw() {
    if (!this.width || this.data === null) return;
    this.svg.setAttribute("width", this.width);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren();
    this.paint();
    this.rest();
  }

  /** Show values beside the heading: [{ label, text, mark }], mark being a class of colour. */
  read(items) {
    const parts = items.map(({ label, text, mark }) =>
      h(
        "span",
        { class: "item" },
        mark && h("i", { class: `swatch ${mark}` }),
        label && h("span", { class: "label" }, label),
        h("b", {}, text),
      ),
    );
    this.readout.replaceChildren(...parts);
  }

  // for those who draw

  paint() {}

  rest() {}

  words() {
    return "";
  }

  /** The same as a table for a CSV file: { columns, rows }. */
  table() {
    return { columns: [], rows: [] };
  }
}

/** How wide a text of an axis is, about. */
export function wide(text) {
  return text.length * 6.4;
}

/** A text of an axis, shortened to so many letters. */
export function short(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
