// Suggestions that wait for a person: what each would change, what it may cost, why; and the two buttons.

import { path, post } from "./api.js";
import { confirm } from "./dialogs.js";
import { h } from "./dom.js";
import { ago, value } from "./numbers.js";

export class Approvals {
  /** `changed` is called once something was decided. */
  constructor(name, changed) {
    this.name = name;
    this.changed = changed;
    this.list = h("ul", { class: "approvals" });
    this.element = h(
      "section",
      { "aria-labelledby": "approvals", hidden: true },
      h("h2", { id: "approvals" }, "Waiting for approval"),
      this.list,
    );
  }

  show(waiting) {
    this.element.hidden = waiting.length === 0;
    const drawn = JSON.stringify(waiting);
    if (drawn === this.drawn) return; // a button that is replaced loses its focus
    this.drawn = drawn;
    this.list.replaceChildren(...waiting.map((one) => this.item(one)));
  }

  item(one) {
    const button = (action, words, where) =>
      h("button", { type: "button", on: { click: () => this.ask(one, action, words, where) } }, action);
    return h(
      "li",
      { id: `waiting-${one.id}` },
      h("p", { class: "change" }, changes(one)),
      h("p", { class: "note" }, `${one.id}, asked ${ago(one.asked_at, Date.now() / 1000)}${where(one.context)}. ${stake(one)}`),
      h("details", {}, h("summary", {}, "Why"), h("p", { class: "note" }, one.explanation)),
      h(
        "div",
        { class: "buttons" },
        button("Approve", "It runs at the next ask in this situation.", "/approve"),
        button("Refuse", "What runs now goes on. Neither these settings nor nearly the same are put up again for a day.", "/refuse"),
      ),
    );
  }

  ask(one, action, words, where) {
    confirm({
      title: `${action} ${one.id}?`,
      words: `${changes(one)}. ${words}`,
      action,
      act: async () => {
        await post(path(this.name, where), { id: one.id });
        this.changed();
      },
    });
  }
}

function shown(x) {
  return typeof x === "number" ? value(x) : x === null || x === undefined ? "none" : String(x);
}

function changes(one) {
  return Object.entries(one.changes)
    .map(([knob, [runs, wanted]]) => `${knob} ${shown(runs)} → ${shown(wanted)}`)
    .join(", ");
}

function where(context) {
  const parts = Object.entries(context ?? {}).map(([name, x]) => (Array.isArray(context) ? shown(x) : `${name} ${shown(x)}`));
  return parts.length ? `, where ${parts.join(", ")}` : "";
}

function stake({ stop, level }) {
  if (stop === null) return "No stop: the run goes on to its end.";
  const ratio = stop / level;
  const far = ratio >= 3 ? `${value(Math.round(ratio * 10) / 10)} times` : `${Math.round((ratio - 1) * 100)}% above`;
  const more = level > 0 ? `, ${far} what the default comes to` : "";
  return `The run should be ended at ${value(stop)}${more}.`;
}
