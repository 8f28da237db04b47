// What every view stands in: the server's health, the key, the page of a problem.

import { Refused, key } from "./api.js";
import { askKey } from "./dialogs.js";
import { h, say, write } from "./dom.js";
import { ago } from "./numbers.js";

const HEALTH_MS = 15_000;
const main = document.getElementById("main");
const forget = document.getElementById("forget");

const HEALTH = {
  wait: "Connecting",
  live: "Live",
  lost: "Connection lost, trying again",
  broken: "Cannot store tells",
  rest: "Paused while hidden",
};
let link = "wait"; // what the view says of its connection
let broken = false; // what /readyz says
let heardAt = Date.now(); // when the server last said something
const watchers = [];

/** Called by the views with the state of their connection. */
export function linkIs(state) {
  link = state;
  if (state === "live") heardAt = Date.now();
  document.body.dataset.link = state; // style.css greys numbers that may be old
  showHealth();
  showAge();
  watchers.forEach((act) => act(state));
}

/** Call `act` with the state of the connection whenever it may have changed. */
export function onLink(act) {
  watchers.push(act);
}

/** Called by the views when the server said something. */
export function heard() {
  heardAt = Date.now();
  showAge();
}

function showAge() {
  const old = link === "lost" || link === "rest";
  write(document.getElementById("age"), old ? `numbers are from ${ago(heardAt / 1000, Date.now() / 1000)}` : "");
}

function showHealth() {
  const state = link === "live" && broken ? "broken" : link;
  const shown = document.getElementById("health");
  if (shown.dataset.state === state) return;
  const before = shown.dataset.state;
  shown.dataset.state = state;
  write(shown, HEALTH[state]);
  if (before !== "rest" && state !== "rest") say(HEALTH[state]);
}

setInterval(showAge, 1_000);

/** Ask now and then whether the server can store tells. */
export async function checkHealth() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/readyz", { cache: "no-store" });
      await answer.text();
      broken = answer.status === 503;
    } catch {
      broken = false; // not reached at all: the link says so
    }
    showHealth();
  }
  setTimeout(checkHealth, HEALTH_MS);
}

/** Run a view's first request; a 401 asks for the key and runs it again. */
export async function withKey(act) {
  for (;;) {
    try {
      const result = await act();
      forget.hidden = key.get() === null;
      return result;
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401) throw error;
      const wrong = key.get() !== null;
      key.forget();
      await askKey(wrong);
    }
  }
}

/** In place of a view: why there is none. */
export function showProblem(title, words) {
  main.replaceChildren(
    h("h1", {}, title),
    h("p", { class: "lead" }, words),
    h("p", {}, h("a", { href: "/" }, "All studies")),
  );
  say(title);
}
