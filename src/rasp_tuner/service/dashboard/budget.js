// What suggestions have cost against the default, and on which scale metrics are compared, in words.

import { percent, value } from "./numbers.js";

function short(x) {
  return value(x < 10 ? Number(x.toPrecision(2)) : Math.round(x));
}

export function budget({ budget_report: report }) {
  if (!report) return "No budget: suggestions may cost more than the default.";
  const { share, spent, earned, left } = report;
  const sums = `${short(spent)} spent, ${short(earned)} earned, ${short(Math.max(left, 0))} left`;
  return `Budget ${percent(share)}: ${sums}, in steps of the default’s loss.`;
}

export function scales({ scales: found }) {
  const names = (wanted) => Object.keys(found).filter((name) => found[name] === wanted);
  return [
    ["log", "factors"],
    ["linear", "differences"],
  ]
    .filter(([scale]) => names(scale).length)
    .map(([scale, by]) => `Compared by ${by}, on a ${scale} scale: ${names(scale).join(", ")}.`)
    .join(" ");
}
