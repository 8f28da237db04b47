// What an operator asks first: is it safe, what did it save, what is it trying now, who is using it.

import { h, write } from "./dom.js";
import { sentence } from "./gains.js";
import { ago, value, whole } from "./numbers.js";
import { shown } from "./suggestions.js";

const QUESTIONS = ["Is it safe?", "What did it save?", "What is it trying now?", "Who is using it?"];
const [SAFE, SAVED, TRYING, USERS] = QUESTIONS;
const FEW = 4; // names that are shown
const LEAST_TOLD = 10; // runs, before they are judged by limits

export class Glance {
  /** `saved` is the element that says it. */
  constructor({ metrics, default: usual }, saved) {
    this.study = { metrics, usual }; // a later view may be that of one event, with its metrics
    this.answers = new Map(QUESTIONS.map((question) => [question, h("dd", {}, "–")]));
    const rows = QUESTIONS.map((question) => h("div", {}, h("dt", {}, question), this.answers.get(question)));
    this.answers.get(SAVED).replaceChildren(saved);
    this.element = h("dl", { class: "glance" }, rows);
    this.latest = [];
  }

  /** The view of a study, and its recent suggestions, newest first, where they are known. */
  show(view, latest = this.latest) {
    this.latest = latest;
    const [verdict, words] = safe(view, broken(this.study.metrics, latest));
    this.say(SAFE, words, verdict);
    this.say(TRYING, trying(view, this.study.usual, latest[0]));
  }

  showUsers({ users }) {
    this.say(USERS, sentence(inWords(users, Date.now() / 1000)));
  }

  say(question, words, verdict = "open") {
    const answer = this.answers.get(question);
    write(answer, words);
    answer.dataset.verdict = verdict;
  }
}

function safe(view, over) {
  if (over.length) return ["bad", `No: in more than one of ten of the latest runs ${over.join(" and ")} broke its limit.`];
  if (view.alerts.length) return ["bad", view.alerts.length > 1 ? `Look at the ${view.alerts.length} alerts above.` : "Look at the alert above."];
  if (view.serves !== "suggestions") return ["good", "Yes: it is frozen, nothing new is tried."];
  const report = view.budget_report;
  if (!report) return ["open", "Nothing limits it: it has no budget."];
  const bill = Math.max(report.spent - report.earned, 0);
  const may = `${short(Math.max(bill + report.left, 0))} runs of the default`;
  return ["good", `Yes: exploring has ${bill ? `cost ${short(bill)}` : "cost nothing on balance"}. It may cost ${may}.`];
}

/** Metrics whose fixed limit more than one in ten of the latest runs broke. */
function broken(metrics, latest) {
  const told = latest.filter((one) => one.metrics);
  return Object.keys(metrics).filter((name) => {
    const { min = -Infinity, max = Infinity } = metrics[name];
    const bad = told.filter((one) => one.metrics[name] > max || one.metrics[name] < min);
    return told.length >= LEAST_TOLD && bad.length > told.length / 10;
  });
}

function trying({ pending }, usual, newest) {
  if (!newest) return "Nothing yet.";
  const changed = Object.entries(newest.params).filter(([name, x]) => !usual || usual[name] !== x);
  const words = changed.map(([name, x]) => `${name} ${shown(x)}${usual ? ` (default ${shown(usual[name])})` : ""}`);
  const more = words.length > FEW ? ` and ${words.length - FEW} more` : "";
  const out = pending ? `Not answered yet: ${whole(pending)}.` : "All are answered.";
  return `${words.length ? words.slice(0, FEW).join(", ") + more : "The default"}. ${out}`;
}

/** The keys that have asked or told lately, in words. */
function inWords(found, now) {
  if (!found.length) return "nobody in the last hour.";
  const words = found.slice(0, FEW).map(({ name, at }) => `${name === "local" ? "this machine, without a key" : name} (${ago(at, now)})`);
  return `${words.join(", ")}${found.length > FEW ? ` and ${found.length - FEW} more` : ""}.`;
}

function short(x) {
  return value(x < 10 ? Number(x.toPrecision(2)) : Math.round(x));
}
