// The list of studies: a page of them, sorted and sifted by the server, so that thousands cost no more than fifty.

import { Refused, get } from "./api.js";
import { h, write } from "./dom.js";
import { verdict } from "./gains.js";
import { ago, percent, value, whole } from "./numbers.js";
import { heard, linkIs, withKey } from "./shell.js";

const EVERY_MS = 3_000;
const TYPING_MS = 200;
const PAGE = 50;
const MANY = 8; // from so many on there are a filter and an order
const SORTS = {
  recent: "Newest event first",
  alerts: "Most alerts first",
  gain: "Worst gain first",
  learned: "Most learned first",
  name: "By name",
};

const EXAMPLE = `rasp study create checkout.toml

# or, from any language
curl ${location.origin}/v1/studies -H 'Content-Type: application/json' -d '{
  "name": "checkout",
  "space": {"pool": {"type": "int", "low": 1, "high": 64, "log": true}},
  "metrics": {"p99_ms": "min"},
  "context": ["qps"]
}'`;

export async function showList(main) {
  document.title = "Studies · RASP-Tuner";
  const list = new List(main);
  await withKey(() => list.fetch());
  linkIs("live");
  list.later();
}

class List {
  constructor(main) {
    this.cards = new Map();
    this.offset = 0;
    this.round = 0; // counts fetches, so that a slow answer does not replace a newer one
    this.list = h("ul", { class: "studies" });
    this.count = h("p", { class: "lead" });
    this.broken = h("p", { class: "broken", hidden: true });
    const typed = () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.turn(0), TYPING_MS);
    };
    this.filter = h("input", { type: "search", id: "filter", autocomplete: "off", on: { input: typed } });
    const options = Object.entries(SORTS).map(([value, text]) => h("option", { value }, text));
    this.sort = h("select", { id: "sort", on: { change: () => this.turn(0) } }, options);
    this.tools = h(
      "div",
      { class: "tools", hidden: true },
      h("div", {}, h("label", { for: "filter" }, "Find a study"), this.filter),
      h("div", {}, h("label", { for: "sort" }, "Order"), this.sort),
    );
    this.previous = h("button", { type: "button", on: { click: () => this.turn(this.offset - PAGE) } }, "Previous");
    this.next = h("button", { type: "button", on: { click: () => this.turn(this.offset + PAGE) } }, "Next");
    this.where = h("span", { class: "note" });
    this.pager = h("nav", { class: "pager", "aria-label": "Pages", hidden: true }, this.previous, this.where, this.next);
    this.empty = h(
      "section",
      { class: "empty", hidden: true },
      h("h2", {}, "No studies yet"),
      h("p", {}, "Create one and this page shows it:"),
      h("pre", {}, EXAMPLE),
    );
    main.replaceChildren(h("h1", {}, "Studies"), this.count, this.broken, this.tools, this.list, this.pager, this.empty);
  }

  async fetch() {
    this.round += 1;
    const round = this.round;
    const find = this.filter.value.trim();
    const query = new URLSearchParams({ limit: PAGE, offset: this.offset, sort: this.sort.value, find });
    const found = await get(`/v1/studies?${query}`);
    heard();
    if (round !== this.round) return;
    if (!found.studies.length && this.offset && !found.loading) {
      this.offset = 0; // there are fewer now
      await this.fetch();
      return;
    }
    this.show(found, find);
  }

  async turn(offset) {
    this.offset = Math.max(offset, 0);
    await this.tryFetch();
    scrollTo({ top: 0 });
  }

  async tryFetch() {
    try {
      await this.fetch();
      linkIs("live");
    } catch (error) {
      if (error.status === 401) location.reload(); // the key counts no more: ask for another
      if (!(error instanceof Refused || error instanceof TypeError)) throw error;
      linkIs("lost"); // the next round tries again
    }
  }

  later() {
    setTimeout(async () => {
      if (!document.hidden) await this.tryFetch();
      this.later();
    }, EVERY_MS);
  }

  show({ studies, total, loading, damaged = [], missing = [] }, find) {
    const names = new Set(studies.map(({ name }) => name));
    for (const [name, card] of this.cards) {
      if (names.has(name)) continue;
      card.element.remove();
      this.cards.delete(name);
    }
    studies.forEach((study, i) => {
      if (!this.cards.has(study.name)) this.cards.set(study.name, new Card(study));
      const card = this.cards.get(study.name);
      card.update(study);
      if (this.list.children[i] !== card.element && !this.list.contains(document.activeElement))
        this.list.insertBefore(card.element, this.list.children[i] ?? null);
      else if (!card.element.isConnected) this.list.append(card.element);
    });
    const some = find ? `${whole(total)} found.` : total === 1 ? "One study on this server." : `${whole(total)} studies on this server.`;
    const alarmed = studies.filter(({ alerts }) => alerts.length).length;
    const safe = !studies.length ? "" : alarmed ? ` ${whole(alarmed)} of this page ${alarmed === 1 ? "has" : "have"} alerts.` : " No alerts.";
    write(this.count, loading ? `${some} ${whole(loading)} of this page are still being read.` : `${some}${safe}`);
    this.count.hidden = !total && !find;
    const lost = [...damaged.map(({ name, health }) => `${name}: ${health}`), ...missing.map((name) => `${name}: its server does not answer`)];
    write(this.broken, lost.join("; "));
    this.broken.hidden = !lost.length;
    this.empty.hidden = total > 0 || Boolean(find) || lost.length > 0;
    this.tools.hidden = total < MANY && !find;
    this.pager.hidden = total <= PAGE;
    write(this.where, `${whole(this.offset + 1)} to ${whole(Math.min(this.offset + PAGE, total))} of ${whole(total)}`);
    this.previous.disabled = this.offset === 0;
    this.next.disabled = this.offset + PAGE >= total;
  }
}

const BADGES = {
  waiting: "Waiting",
  learning: "Learning",
  recommendation: "Frozen",
  default: "At the default",
};

/** A gain in two words: beside "p99 ↓" a sign would leave open which way is good. */
function inWords({ kind, value: gained }) {
  const size = Math.abs(gained);
  return `${kind === "share" ? percent(size) : value(size)} ${gained < 0 ? "worse" : "better"}`;
}

class Card {
  constructor({ name }) {
    this.state = h("span", { class: "badge" });
    this.facts = h("span", { class: "facts" });
    this.when = h("span", { class: "when" });
    this.about = h("span", { class: "about" });
    this.gain = h("b", { class: "gain" });
    this.alert = h("span", { class: "alert" });
    const link = h("a", { href: `/studies/${encodeURIComponent(name)}` }, name);
    this.element = h(
      "li",
      {},
      h("div", { class: "name" }, link, this.state, this.about),
      this.gain,
      h("div", { class: "what" }, this.facts, this.alert),
      this.when,
    );
  }

  update(study) {
    const state = study.serves !== "suggestions" ? study.serves : study.learned ? "learning" : "waiting";
    write(this.state, BADGES[state]);
    this.state.dataset.state = state;
    const metrics = Object.entries(study.metrics).map(
      ([name, { direction }]) => `${name} ${direction === "max" ? "↑" : "↓"}`,
    );
    const knobs = Object.keys(study.space).length;
    write(this.about, `${metrics.join(", ")} · ${knobs} ${knobs === 1 ? "knob" : "knobs"}`);
    const failed = study.failures ? `, of which ${whole(study.failures)} failed` : "";
    write(this.facts, `${whole(study.learned)} learned${failed} · ${whole(study.pending)} pending`);
    write(this.when, study.last_event_at ? ago(study.last_event_at, Date.now() / 1000) : "nothing yet");
    const gain = study.versus_default?.gain;
    write(this.gain, !gain ? "" : verdict(gain) === "open" ? "not clear yet" : inWords(gain));
    this.gain.dataset.verdict = verdict(gain);
    this.gain.title = study.versus_default?.words ?? "";
    const words = study.alerts;
    write(this.alert, words.length > 1 ? `${words[0]} And ${words.length - 1} more.` : (words[0] ?? ""));
  }
}
