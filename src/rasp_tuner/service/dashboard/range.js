// The range picker: which part of the history is drawn, along steps or along time. Kept in the address.

import { fresh, h } from "./dom.js";

const RANGES = { hour: ["Last hour", 3_600], day: ["Last day", 86_400], all: ["All", null] };
const AXES = { steps: "Steps", time: "Time" };

/** Radio buttons that look like one strip. */
function strip(label, choices, chosen, act) {
  const name = fresh("strip");
  const parts = Object.entries(choices).map(([key, text]) => {
    const input = h("input", { type: "radio", name, value: key, checked: key === chosen, on: { change: () => act(key) } });
    return h("label", {}, input, h("span", {}, text));
  });
  return h("fieldset", { class: "strip" }, h("legend", { class: "unseen" }, label), parts);
}

export class Range {
  /** `changed(refetch)` is called when something else was picked. */
  constructor(changed) {
    const given = new URLSearchParams(location.hash.slice(1));
    this.span = RANGES[given.get("range")] ? given.get("range") : "all";
    this.axis = AXES[given.get("axis")] ? given.get("axis") : "steps";
    const pick = (field, refetch) => (key) => {
      this[field] = key;
      history.replaceState(null, "", `#range=${this.span}&axis=${this.axis}`);
      changed(refetch);
    };
    const spans = Object.fromEntries(Object.entries(RANGES).map(([key, [text]]) => [key, text]));
    this.element = h(
      "div",
      { class: "range", role: "group", "aria-label": "What the charts show" },
      strip("Range", spans, this.span, pick("span", true)),
      strip("Axis", AXES, this.axis, pick("axis", false)),
      h("button", { type: "button", class: "plain", on: { click: () => print() } }, "Print"),
    );
  }

  /** The first moment shown, in unix seconds; null: all of them. */
  since() {
    const seconds = RANGES[this.span][1];
    return seconds === null ? null : Math.floor(Date.now() / 1000 - seconds);
  }

  /** As part of the address of the history. */
  query() {
    const since = this.since();
    return since === null ? "" : `&since=${since}`;
  }
}
