// Answers one context a line, as JSON; test_evaluators.py writes and reads the lines. Arguments: policy.mjs, policies.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const { check, leafOf, paramsOf, pickOf } = await import(process.argv[2]);
const policies = JSON.parse(readFileSync(process.argv[3], "utf8")).map(check);
const read = ([type, value]) => ({ n: Number(value), b: value, t: value, x: { an: "object" }, "-": null, u: undefined })[type];

for await (const line of createInterface({ input: process.stdin })) {
  const { table, values, names, key } = JSON.parse(line);
  const given = values.map(read);
  const context = names ? Object.fromEntries(names.map((name, i) => [name, given[i]])) : given;
  const leaf = leafOf(policies[table], context);
  console.log(JSON.stringify({ leaf: leaf === null ? -1 : leaf.leaf, params: paramsOf(policies[table], context), pick: pickOf(policies[table], context, key) }));
}
