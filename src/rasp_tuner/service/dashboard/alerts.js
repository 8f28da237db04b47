// What is wrong with a study, in words.

import { h } from "./dom.js";

export class Alerts {
  constructor() {
    this.element = h("section", { class: "alerts", "aria-label": "Alerts", role: "status" });
    this.key = null;
  }

  show(words, learned) {
    const key = JSON.stringify([words, learned > 0]);
    if (key === this.key) return;
    this.key = key;
    this.element.dataset.state = words.length ? "bad" : "good";
    this.element.hidden = !words.length && !learned;
    this.element.replaceChildren(
      words.length
        ? h(
            "ul",
            {},
            words.map((text) => h("li", {}, text)),
          )
        : h("p", {}, "No alerts."),
    );
  }
}
