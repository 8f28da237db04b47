// The list of studies.

import { Refused, get } from "./api.js";
import { linkIs, withKey } from "./shell.js";
import { h, write } from "./dom.js";
import { ago, whole } from "./numbers.js";

const EVERY_MS = 3_000;
const MANY = 12; // from so many on there is a filter

const EXAMPLE = `rasp study create checkout.toml

# or, from any language
curl ${location.origin}/v1/studies -H 'Content-Type: application/json' -d '{
  "name": "checkout",
  "space": {"pool": {"type": "int", "low": 1, "high": 64, "log": true}},
  "metrics": {"p99_ms": "min"},
  "context": ["qps"]
}'`;

export async function showList(main) {
  const { studies } = await withKey(() => get("/v1/studies"));
  document.title = "Studies · RASP-Tuner";
  const list = h("ul", { class: "studies" });
  const count = h("p", { class: "lead" });
  const filter = h("input", { type: "search", id: "filter", autocomplete: "off", on: { input: () => sift() } });
  const box = h("div", { class: "filter", hidden: true }, h("label", { for: "filter" }, "Find a study"), filter);
  const empty = h(
    "section",
    { class: "empty", hidden: true },
    h("h2", {}, "No studies yet"),
    h("p", {}, "Create one and this page shows it:"),
    h("pre", {}, EXAMPLE),
  );
  main.replaceChildren(h("h1", {}, "Studies"), count, box, list, empty);

  const cards = new Map();
  const sift = () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const [name, card] of cards) card.element.hidden = !name.toLowerCase().includes(wanted);
  };
  const update = (now) => {
    for (const [name, card] of cards) {
      if (now.some((study) => study.name === name)) continue;
      card.element.remove();
      cards.delete(name);
    }
    const order = [...now].sort((a, b) => (b.last_event_at ?? b.created) - (a.last_event_at ?? a.created));
    order.forEach((study, i) => {
      if (!cards.has(study.name)) cards.set(study.name, new Card(study));
      const card = cards.get(study.name);
      card.update(study);
      if (list.children[i] !== card.element && !list.contains(document.activeElement))
        list.insertBefore(card.element, list.children[i] ?? null);
      else if (!card.element.isConnected) list.append(card.element);
    });
    write(count, now.length === 1 ? "One study on this server." : `${whole(now.length)} studies on this server.`);
    count.hidden = !now.length;
    empty.hidden = now.length > 0;
    box.hidden = now.length < MANY;
    sift();
  };
  const again = async () => {
    if (!document.hidden) {
      try {
        update((await get("/v1/studies")).studies);
        linkIs("live");
      } catch (error) {
        if (error.status === 401) location.reload(); // the key counts no more: ask for another
        if (!(error instanceof Refused || error instanceof TypeError)) throw error;
        linkIs("lost"); // the next round tries again
      }
    }
    setTimeout(again, EVERY_MS);
  };
  update(studies);
  linkIs("live");
  setTimeout(again, EVERY_MS);
}

class Card {
  constructor({ name }) {
    this.state = h("span", { class: "badge" });
    this.facts = h("span", { class: "facts" });
    this.when = h("span", { class: "when" });
    this.about = h("span", { class: "about" });
    const link = h("a", { href: `/studies/${encodeURIComponent(name)}` }, name);
    this.element = h("li", {}, h("div", { class: "name" }, link, this.state), this.about, this.facts, this.when);
  }

  update(study) {
    write(this.state, study.frozen ? "Frozen" : study.learned ? "Learning" : "Waiting");
    this.state.dataset.state = study.frozen ? "frozen" : study.learned ? "learning" : "waiting";
    const metrics = Object.entries(study.metrics).map(
      ([name, { direction }]) => `${name} ${direction === "max" ? "↑" : "↓"}`,
    );
    const knobs = Object.keys(study.space).length;
    write(this.about, `${metrics.join(", ")} · ${knobs} ${knobs === 1 ? "knob" : "knobs"}`);
    const failed = study.failures ? ` · ${whole(study.failures)} failed` : "";
    write(this.facts, `${whole(study.learned)} learned · ${whole(study.pending)} pending${failed}`);
    write(this.when, study.last_event_at ? ago(study.last_event_at, Date.now() / 1000) : "nothing yet");
  }
}
