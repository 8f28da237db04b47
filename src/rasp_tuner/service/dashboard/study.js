// One study: fetches what changed, and hands it to the parts that show it.

import { Refused, get, path, post, watch } from "./api.js";
import { linkIs, showProblem, withKey } from "./shell.js";
import { confirm } from "./dialogs.js";
import { h, say, write } from "./dom.js";
import { Charts } from "./charts.js";
import { definition } from "./definition.js";
import { budget, scales } from "./budget.js";
import { ago, signed, whole } from "./numbers.js";
import { Suggestions } from "./suggestions.js";

const LEAST_MS = 700; // between two fetches of the same thing, and ten times as long as the last one took
const SHARE = 10;
const REST_MS = 30_000; // hidden so long, the page lets go of its connection: a browser has only six to a server

export async function showStudy(main, name) {
  const view = await withKey(() => get(path(name)));
  document.title = `${name} · RASP-Tuner`;
  const page = new StudyPage(name, view);
  main.replaceChildren(page.element);
  await page.refresh();
  page.watch();
}

class StudyPage {
  constructor(name, view) {
    this.name = name;
    this.view = view;
    this.badge = h("span", { class: "badge" });
    this.when = h("span", { class: "when" });
    this.freeze = h("button", { type: "button", id: "freeze", on: { click: () => this.askFreeze() } });
    this.stats = new Map();
    this.budget = h("p", { class: "note", id: "budget" });
    this.scales = h("p", { class: "note", id: "scales" });
    this.charts = new Charts(view);
    this.table = new Suggestions(view);
    this.waiting = waiting(view);
    const tiles = ["Learned", "Gain over default", "Regime", "Pending", "Failed", "Late", "Expired"].map((label) => {
      const text = h("dd", {}, "–");
      this.stats.set(label, text);
      return h("div", {}, h("dt", {}, label), text);
    });
    this.element = h(
      "div",
      { class: "study" },
      h(
        "header",
        { class: "study-head" },
        h(
          "div",
          {},
          h("p", { class: "crumb" }, h("a", { href: "/" }, "Studies")),
          h("h1", {}, name),
          h("p", { class: "state" }, this.badge, this.when),
        ),
        this.freeze,
      ),
      h("section", { "aria-label": "Counts" }, h("dl", { class: "stats" }, tiles), this.budget, this.scales),
      this.waiting,
      this.charts.element,
      h(
        "section",
        { "aria-labelledby": "suggestions" },
        h("h2", { id: "suggestions" }, "Recent suggestions"),
        this.table.element,
      ),
      definition(view),
    );
    this.parts = {
      history: new Part(
        () => get(path(name, `/history?points=${innerWidth < 600 ? 200 : 400}`)),
        (got) => this.charts.showHistory(got),
        LEAST_MS,
      ),
      memory: new Part(
        () => get(path(name, "/memory")),
        (got) => this.charts.showMemory(got),
        3 * LEAST_MS,
      ),
      suggestions: new Part(
        () => get(path(name, "/suggestions?limit=50")),
        (got) => this.table.update(got.suggestions),
        LEAST_MS,
      ),
      view: new Part(
        () => get(path(name)),
        (got) => this.showCounts(got),
        3 * LEAST_MS,
      ),
    };
    this.showCounts(view);
    setInterval(() => this.showWhen(), 1_000);
  }

  /** Everything anew, once. */
  async refresh() {
    await Promise.all(Object.values(this.parts).map((part) => part.now()));
  }

  watch() {
    let stop = null;
    let rest = null;
    const begin = () => {
      stop = watch(this.name, {
        onRow: (row) => this.took(row),
        onState: (state) => {
          linkIs(state);
          if (state === "live") this.changed(); // what was missed until now
        },
        onRefused: (error) => this.refused(error),
      });
    };
    document.addEventListener("visibilitychange", () => {
      clearTimeout(rest);
      if (document.hidden) {
        rest = setTimeout(() => {
          stop?.();
          stop = null;
          linkIs("rest");
        }, REST_MS);
      } else if (!stop) begin();
      else this.changed();
    });
    addEventListener("pagehide", () => stop?.());
    addEventListener("pageshow", (event) => event.persisted && location.reload());
    begin();
  }

  refused(error) {
    if (error.status === 401) location.reload();
    else showProblem(error.status === 404 ? "This study was deleted" : "The server refused", error.message);
  }

  took(row) {
    this.showCounts({ ...this.view, ...row, learned: this.view.learned });
    if (!document.hidden) this.changed();
  }

  changed() {
    for (const part of Object.values(this.parts)) part.soon();
  }

  showCounts(view) {
    const before = this.view.frozen;
    this.view = { ...this.view, ...view };
    const { frozen, tells, failures, observations, pending, late, expired } = this.view;
    const learned = tells + failures + observations;
    const state = frozen ? "frozen" : learned ? "learning" : "waiting";
    this.badge.dataset.state = state;
    write(this.badge, { frozen: "Frozen", learning: "Learning", waiting: "Waiting for the first tell" }[state]);
    write(this.freeze, frozen ? "Unfreeze" : "Freeze");
    if (before !== frozen) say(frozen ? "The study is frozen" : "The study is learning");
    this.waiting.hidden = learned > 0;
    this.charts.element.hidden = learned === 0;
    const shown = { Learned: learned, Pending: pending, Failed: failures, Late: late, Expired: expired };
    for (const [label, count] of Object.entries(shown)) write(this.stats.get(label), whole(count));
    const { gain, regime } = this.charts;
    write(this.stats.get("Gain over default"), gain === null ? "–" : signed(gain));
    write(this.stats.get("Regime"), regime ?? "–");
    write(this.budget, budget(this.view));
    write(this.scales, scales(this.view));
    this.showWhen();
  }

  showWhen() {
    const at = this.view.last_event_at;
    write(this.when, at ? `last event ${ago(at, Date.now() / 1000)}` : "no event yet");
  }

  askFreeze() {
    const { frozen } = this.view;
    confirm({
      title: frozen ? `Unfreeze ${this.name}?` : `Freeze ${this.name}?`,
      words: frozen
        ? "The tuner explores again: an ask may get parameters that were not tried before."
        : "Every ask then gets the best parameters known, and nothing new is tried. Tells are still learned. It can be undone at any time.",
      action: frozen ? "Unfreeze" : "Freeze",
      act: async () => {
        const answer = await post(path(this.name, frozen ? "/unfreeze" : "/freeze"));
        this.showCounts(answer);
        this.parts.history.soon();
      },
    });
  }
}

/** Something fetched again when it may have changed, never twice at once, and less often where it takes long. */
class Part {
  constructor(fetch, show, least) {
    this.fetch = fetch;
    this.show = show;
    this.least = least;
    this.next = 0;
    this.timer = null;
    this.busy = false;
    this.wanted = false;
  }

  async now() {
    this.busy = true;
    const began = performance.now();
    try {
      this.show(await this.fetch());
    } finally {
      const ended = performance.now();
      this.next = ended + Math.max(this.least, SHARE * (ended - began));
      this.busy = false;
      if (this.wanted) this.soon();
    }
  }

  soon() {
    this.wanted = this.busy;
    if (this.busy || this.timer !== null) return;
    this.timer = setTimeout(
      async () => {
        this.timer = null;
        try {
          await this.now();
        } catch (error) {
          if (!(error instanceof Refused || error instanceof TypeError)) throw error;
          this.next = performance.now() + 5_000; // the live stream says what is wrong
        }
      },
      Math.max(0, this.next - performance.now()),
    );
  }
}

const EXAMPLES = {
  number: 1.5,
  flag: true,
  category: "eu",
  name: "alice",
  "time of day": "13:45",
  weekday: "Mon",
};

function waiting(view) {
  const context = Array.isArray(view.context)
    ? Object.fromEntries(view.context.map((name) => [name, 1.5]))
    : typeof view.context === "number"
      ? Array(view.context).fill(1.5)
      : view.context === null || view.context === undefined
        ? null
        : Object.fromEntries(Object.entries(view.context).map(([name, kind]) => [name, EXAMPLES[kind.kind]]));
  const metrics = Object.fromEntries(Object.keys(view.metrics).map((name) => [name, 12.3]));
  const curl = (verb, body) =>
    `curl ${location.origin}${path(view.name, verb)} \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const id = "s0";
  return h(
    "section",
    { class: "empty", hidden: true },
    h("h2", {}, "Nothing learned yet"),
    h("p", {}, "Ask for parameters, run them, tell what came of it. The charts appear with the first tell."),
    h("pre", {}, `${curl("/ask", { context })}\n\n${curl("/tell", { id, metrics })}`),
  );
}
