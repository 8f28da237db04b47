// One study: fetches what changed, and hands it to the parts that show it.

import { get, path, post, watch } from "./api.js";
import { Alerts } from "./alerts.js";
import { Approvals } from "./approvals.js";
import { Budget, scales } from "./budget.js";
import { Charts } from "./charts.js";
import { definition } from "./definition.js";
import { confirm } from "./dialogs.js";
import { h, say, write } from "./dom.js";
import { Gains } from "./gains.js";
import { Glance } from "./glance.js";
import { Recommended } from "./recommended.js";
import { ago, whole } from "./numbers.js";
import { Part } from "./parts.js";
import { Range } from "./range.js";
import { heard, linkIs, onLink, showProblem, withKey } from "./shell.js";
import { Suggestions } from "./suggestions.js";
import { waiting } from "./waiting.js";

const LEAST_MS = 700; // between two fetches of the same thing
const REST_MS = 30_000; // hidden so long, the page lets go of its connection: a browser has only six to a server
const TILES = ["Learned", "Of them failed", "Situation", "Pending", "Late", "Expired"];
const STATES = {
  waiting: "Waiting for the first tell",
  suggestions: "Learning",
  recommendation: "Frozen",
  default: "Frozen at the default",
};
const DONE = { suggestions: "unfrozen", recommendation: "frozen", default: "sent back to the default" };
const QUESTIONS = {
  suggestions: [
    "Unfreeze",
    "The tuner explores again: an ask may get parameters that were not tried before.",
    "/unfreeze",
    {},
  ],
  recommendation: [
    "Freeze",
    "Every ask then gets the best parameters known, and nothing new is tried. Tells are still learned. It can be undone at any time.",
    "/freeze",
    {},
  ],
  default: [
    "Back to the default",
    "Every ask then gets the default, whatever was learned. Tells are still learned. It can be undone at any time.",
    "/freeze",
    { at: "default" },
  ],
};

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
    this.lost = false;
    this.badge = h("span", { class: "badge" });
    this.when = h("span", { class: "when" });
    this.who = h("span", { class: "who" });
    this.place = h("span", { class: "place" });
    this.freeze = h("button", { type: "button", id: "freeze", on: { click: () => this.ask(this.other()) } });
    this.back = h(
      "button",
      { type: "button", id: "back", on: { click: () => this.ask("default") } },
      "Back to the default",
    );
    this.alerts = new Alerts();
    this.gains = new Gains(view);
    this.glance = new Glance(view, this.gains.words);
    this.budget = new Budget();
    this.scales = h("p", { class: "note", id: "scales" });
    this.recommended = new Recommended();
    this.charts = new Charts(view);
    this.range = new Range((refetch) => (refetch ? this.parts.history.soon() : this.redraw()));
    this.table = new Suggestions(view);
    this.waiting = waiting(view);
    this.approvals = new Approvals(name, () => this.changed());
    this.stats = new Map(TILES.map((label) => [label, h("dd", {}, "–")]));
    const tiles = TILES.map((label) => h("div", {}, h("dt", {}, label), this.stats.get(label)));
    this.element = h("div", { class: "study" }, this.head(), this.alerts.element, this.summary(tiles), this.waiting, [
      this.approvals.element,
      this.recommended.element,
      this.range.element,
      this.charts.element,
      h(
        "section",
        { "aria-labelledby": "suggestions" },
        h("h2", { id: "suggestions" }, "Recent suggestions"),
        this.table.element,
      ),
      definition(view),
    ]);
    this.parts = {
      history: new Part(() => this.getHistory(), (got) => this.showHistory(got), LEAST_MS),
      situations: new Part(
        () => get(path(name, "/situations")),
        (got) => this.recommended.show(got),
        6 * LEAST_MS,
      ),
      users: new Part(
        () => get(path(name, "/users")),
        (got) => this.glance.showUsers(got),
        6 * LEAST_MS,
      ),
      edge: new Part(
        () => get(path(name, "/edge")),
        (got) => this.gains.showEdge(got),
        6 * LEAST_MS,
      ),
      suggestions: new Part(
        () => get(path(name, "/suggestions?limit=50")),
        (got) => {
          this.table.update(got.suggestions);
          this.glance.show(this.view, got.suggestions);
        },
        LEAST_MS,
      ),
      view: new Part(
        () => get(path(name)),
        (got) => this.showCounts(got),
        3 * LEAST_MS,
      ),
    };
    if (view.approve_s) {
      this.parts.approvals = new Part(
        () => get(path(name, "/waiting")),
        (got) => this.approvals.show(got.waiting),
        LEAST_MS,
      );
    }
    this.showCounts(view);
    setInterval(() => this.showWhen(), 1_000);
    onLink((state) => {
      this.freeze.disabled = this.back.disabled = state !== "live"; // what it would change may have changed
      this.lost = state === "lost";
      this.showAlerts();
    });
  }

  head() {
    const words = [
      h("p", { class: "crumb" }, h("a", { href: "/" }, "Studies")),
      h("h1", {}, this.name),
      h("p", { class: "state" }, this.badge, this.who, this.when, this.place),
    ];
    const buttons = h("div", { class: "actions" }, this.freeze, this.back);
    return h("header", { class: "study-head" }, h("div", {}, words), buttons);
  }

  summary(tiles) {
    return h(
      "section",
      { "aria-label": "Counts", class: "summary" },
      this.glance.element,
      this.gains.element,
      h("dl", { class: "stats" }, tiles),
      this.budget.element,
      this.scales,
    );
  }

  getHistory() {
    const points = innerWidth < 600 ? 200 : 400;
    return get(path(this.name, `/history?points=${points}${this.range.query()}`));
  }

  showHistory(history) {
    this.fetched = { history, since: this.range.since(), now: Date.now() / 1000 };
    this.redraw();
  }

  redraw() {
    const { history, since, now } = this.fetched;
    this.charts.showHistory(history, { axis: this.range.axis, since, now });
    write(this.stats.get("Situation"), this.charts.regime ?? "–");
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
    heard();
    this.showCounts({ ...this.view, ...row, learned: this.view.learned });
    if (!document.hidden) this.changed();
  }

  changed() {
    for (const part of Object.values(this.parts)) part.soon();
  }

  showCounts(view) {
    const before = this.view.serves;
    this.view = { ...this.view, ...view };
    const { serves, tells, failures, observations, pending, late, expired } = this.view;
    const learned = tells + failures + observations;
    this.badge.dataset.state = serves !== "suggestions" ? serves : learned ? "learning" : "waiting";
    write(this.badge, STATES[serves === "suggestions" && !learned ? "waiting" : serves]);
    write(this.freeze, QUESTIONS[this.other()][0]);
    this.back.hidden = serves === "default";
    if (before !== serves) say(`The study was ${DONE[serves]}`);
    this.showAlerts();
    this.waiting.hidden = learned > 0;
    for (const part of [this.charts, this.range, this.gains, this.glance]) part.element.hidden = learned === 0;
    const shown = { Learned: learned, "Of them failed": failures, Pending: pending, Late: late, Expired: expired };
    for (const [label, count] of Object.entries(shown)) write(this.stats.get(label), whole(count));
    this.gains.show(this.view);
    this.glance.show(this.view);
    this.budget.show(this.view);
    write(this.scales, scales(this.view));
    write(this.place, this.view.server ? `on ${this.view.server}` : "");
    this.showWhen();
  }

  showAlerts() {
    const { tells, failures, observations } = this.view;
    const lost = this.lost ? ["The connection to the server is lost: what this page shows may be old."] : [];
    this.alerts.show([...lost, ...this.view.alerts], tells + failures + observations);
  }

  showWhen() {
    const { last_event_at: at, switched, serves } = this.view;
    const now = Date.now() / 1000;
    write(this.when, at ? `last event ${ago(at, now)}` : "no event yet");
    const who = switched ? `${DONE[serves]} ${ago(switched.at, now)}${switched.by ? ` by ${switched.by}` : ""}` : "";
    write(this.who, who);
    this.who.title = switched ? new Date(switched.at * 1000).toLocaleString() : "";
  }

  /** What the first button leads to. */
  other() {
    return this.view.serves === "suggestions" ? "recommendation" : "suggestions";
  }

  ask(serves) {
    const [action, words, where, body] = QUESTIONS[serves];
    confirm({
      title: serves === "default" ? `${this.name} back to its default?` : `${action} ${this.name}?`,
      words,
      action,
      act: async () => {
        this.showCounts(await post(path(this.name, where), body));
        this.parts.history.soon();
      },
    });
  }
}
