// What a study is, in a table that folds.

import { h } from "./dom.js";
import { value } from "./numbers.js";
import { shown } from "./suggestions.js";

function range(knob) {
  if (knob.when) {
    const parts = Object.entries(knob.when).map(([name, values]) => `${name} is ${values.map(shown).join(" or ")}`);
    return `${range({ ...knob, when: null })}, only if ${parts.join(" and ")}`;
  }
  if (knob.type === "categorical") return knob.choices.map(shown).join(knob.ordered ? " < " : ", ");
  if (knob.type === "bool") return "false, true";
  if (knob.knob) return `${shown(knob.word ?? null)} or ${range(knob.knob)}`;
  if (knob.type === "power_of_two") return `${value(knob.low)} to ${value(knob.high)}, powers of two`;
  const step = knob.step && !(knob.type === "int" && knob.step === 1) ? ` in steps of ${value(knob.step)}` : "";
  return `${value(knob.low)} to ${value(knob.high)}${knob.log ? ", logarithmic" : ""}${step}`;
}

export function definition(view) {
  const context = Array.isArray(view.context)
    ? view.context.join(", ")
    : typeof view.context === "number"
      ? `${view.context} numbers`
      : view.context === null || view.context === undefined
        ? "none"
        : Object.entries(view.context)
            .map(([name, kind]) => `${name} (${kind.kind})`)
            .join(", ");
  const rows = [
    ...Object.entries(view.space).map(([name, knob]) => [
      name,
      `${range(knob)}; default ${shown(view.default?.[name])}`,
    ]),
    ...Object.entries(view.metrics).map(([name, metric]) => [
      name,
      `${metric.direction === "max" ? "higher" : "lower"} is better, weight ${value(metric.weight)}, scale ${metric.scale}`,
    ]),
    ...(view.constraints?.length ? [["Constraints", view.constraints.join("; ")]] : []),
    ["Context", context],
    ["Preset", `${view.preset}, seed ${view.seed}`],
    [
      "Guard",
      view.guard === null || view.guard === undefined
        ? "none"
        : `at most ${value(view.guard * 100)}% worse than the default`,
    ],
    [
      "Budget",
      view.budget === null
        ? "none"
        : `the sum of losses at most ${value(view.budget * 100)}% above the default’s, after a start`,
    ],
    ["Holdout", view.holdout ? `${value(view.holdout * 100)}% of steps run the default, drawn at random` : "none"],
    ["Change a step", view.max_change ? change(view.max_change) : "any"],
    ["Approval", view.approve_s ? `suggestions wait for a person, up to ${value(view.approve_s)} s` : "not needed"],
    ["Switching cost", value(view.switching_cost)],
    ["Contexts", view.screen ? "ignored until they improve predictions" : "always used"],
    ["Lease", `${value(view.lease_s)} s, at most ${value(view.max_pending)} pending`],
    ["Created", new Date(view.created * 1000).toLocaleString()],
  ];
  return h(
    "details",
    { class: "definition" },
    h("summary", {}, "Definition"),
    h(
      "dl",
      {},
      rows.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))),
    ),
  );
}

/** How far a knob moves at most, in words. */
function change(limit) {
  if (typeof limit === "number") return `${value(limit * 100)}% of the range of a knob`;
  if (typeof limit === "string") return limit;
  return Object.entries(limit)
    .map(([name, one]) => `${name} ${change(one)}`)
    .join(", ");
}
