// What a study shows before its first tell: how to ask and tell.

import { path } from "./api.js";
import { h } from "./dom.js";

const EXAMPLES = {
  number: 1.5,
  flag: true,
  category: "eu",
  name: "alice",
  "time of day": "13:45",
  weekday: "Mon",
};

export function waiting(view) {
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
