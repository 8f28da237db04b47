// The parameters that an exported policy gives in a context: in Node and in browsers, with nothing else.
//
//   import { check, paramsOf } from "./policy.mjs";
//   const policy = check(JSON.parse(text));            // the text of policy.json
//   const params = paramsOf(policy, { qps: 420, region: "eu" });
//
// A policy that explores (docs/EDGE.md) has several settings in a leaf; a key, as the id of a user, always gets the same:
//
//   const { params, leaf, setting, probability } = pickOf(policy, { qps: 420, region: "eu" }, "user-17");
//
// A context that is wrong gets the default. docs/POLICY.md has the format and the rules.

const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const YES = ["true", "yes", "on", "1"];
const NO = ["false", "no", "off", "0"];
const MOMENT = new RegExp(
  "^(?:([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ](?=.)|$))?" +
    "(?:([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?$",
);

const WEIGHTS = 10000; // that the settings of a leaf have together: a weight of 500 is a probability of 5%
const MOST_SETTINGS = 8; // in a leaf
const UTF8 = new TextEncoder();

class Wrong extends Error {}

const KINDS = ["number", "flag", "category", "name", "time of day", "weekday"];
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The policy, if every context will get an answer from it; else an error that says where it is wrong. */
export function check(policy) {
  const must = (right, rule) => {
    if (!right) throw new Error(rule);
  };
  must(policy?.format === "rasp-policy" && policy.version === 1, "must be a rasp-policy of version 1");
  const fields = policy.context;
  const known = (field) => isObject(field) && typeof field.name === "string" && KINDS.includes(field.kind);
  must(Array.isArray(fields) && fields.every(known), "context must be a list of fields, each with a name and a kind");
  const kinds = new Map(fields.map((field) => [field.name, field.kind]));
  must(kinds.size === fields.length, "context must have every name once");
  must(isObject(policy.default), "default must hold parameters by name");
  const explore = policy.explore ?? null;
  const texts = typeof explore?.salt === "string" && typeof explore?.version === "string";
  must(explore === null || texts, "explore must have a salt and a version, each a text");
  const nodes = [["tree", policy.tree]];
  while (nodes.length) {
    const [place, node] = nodes.pop();
    must(isObject(node), `${place} must be a leaf or a test`);
    if ("params" in node) {
      must(isObject(node.params) && Number.isInteger(node.leaf), `${place} must have a number as leaf and params`);
      if (explore !== null) checkSettings(must, place, node.settings);
      continue;
    }
    const test = node.if;
    must(isObject(test) && kinds.has(test.field), `${place}.if must be a test of a field of the context`);
    const { at_most: most = 0, in: texts = [], missing = false } = test;
    must(Number.isFinite(most), `${place}.if.at_most must be a finite number`);
    const numeric = ["number", "time of day"].includes(kinds.get(test.field));
    must(numeric || !("at_most" in test), `${place}.if.at_most is for numbers and times of day`);
    must(Array.isArray(texts) && texts.every((text) => typeof text === "string"), `${place}.if.in must be texts`);
    must(typeof missing === "boolean", `${place}.if.missing must be true or false`);
    nodes.push([`${place}.else`, node.else], [`${place}.then`, node.then]);
  }
  return policy;
}

function checkSettings(must, place, settings) {
  const count = Array.isArray(settings) ? settings.length : 0;
  must(count >= 1 && count <= MOST_SETTINGS, `${place}.settings must be a list of 1 to ${MOST_SETTINGS} settings`);
  const right = (one) => isObject(one) && isObject(one.params) && Number.isInteger(one.weight) && one.weight >= 0;
  must(settings.every(right), `${place}.settings must each have params by name, and a weight of 0 or more`);
  const sum = settings.reduce((total, one) => total + one.weight, 0);
  must(sum === WEIGHTS, `${place}.settings must have weights that sum to ${WEIGHTS}`);
}

/** The parameters to run in this context; the default if the context is wrong. */
export function paramsOf(policy, context) {
  return { ...(leafOf(policy, context)?.params ?? policy.default) };
}

/** What this key runs in this context. Without a key, and if the policy does not explore: what is recommended. */
export function pickOf(policy, context, key) {
  const leaf = leafOf(policy, context);
  const version = policy.explore?.version ?? null;
  if (leaf === null) return { params: { ...policy.default }, leaf: -1, setting: 0, probability: null, version };
  const name = ["string", "number", "boolean"].includes(typeof key) ? textOf(key) : null;
  if (version === null || typeof name !== "string")
    return { params: { ...leaf.params }, leaf: leaf.leaf, setting: 0, probability: null, version };
  let bucket = bucketOf(policy.explore.salt, name);
  let setting = 0; // weights sum to WEIGHTS, so that one of them holds the bucket
  while ((bucket -= leaf.settings[setting].weight) >= 0) setting++;
  const { params, weight } = leaf.settings[setting];
  return { params: { ...params }, leaf: leaf.leaf, setting, probability: weight / WEIGHTS, version };
}

/** 0 to 9,999, the same for a key wherever it is computed; as if drawn at random for each salt. */
export const bucketOf = (salt, key) => Math.floor((murmur3(UTF8.encode(`${salt}/${key}`)) * WEIGHTS) / 2 ** 32);

/** MurmurHash3 of 32 bits with seed 0. */
export function murmur3(bytes) {
  const whole = bytes.length & ~3;
  let h = 0;
  for (let at = 0; at < bytes.length; at += 4) {
    let k = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24); // beyond the end: 0
    k = Math.imul(k, 0xcc9e2d51);
    h ^= Math.imul((k << 15) | (k >>> 17), 0x1b873593);
    if (at < whole) h = (Math.imul((h << 13) | (h >>> 19), 5) + 0xe6546b64) | 0;
  }
  h ^= bytes.length;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** The leaf of the tree that this context leads to; null if the context is wrong. */
export function leafOf(policy, context) {
  let values;
  try {
    values = readContext(policy.context, context);
  } catch (error) {
    if (error instanceof Wrong) return null;
    throw error;
  }
  let node = policy.tree;
  while (!("params" in node)) node = holds(node.if, values.get(node.if.field)) ? node.then : node.else;
  return node;
}

function holds(test, value) {
  if (value === null) return test.missing ?? false;
  if ("at_most" in test) return value <= test.at_most;
  return (test.in ?? []).includes(value);
}

/** The values of a context, given by name or in the order of the fields. */
function readContext(fields, context) {
  const names = fields.map((field) => field.name);
  let given = context ?? (fields.length ? null : []);
  if (typeof given !== "object" || given === null) throw new Wrong();
  if (!Array.isArray(given)) {
    if (Object.keys(given).some((name) => !names.includes(name))) throw new Wrong();
    given = names.map((name) => (Object.hasOwn(given, name) ? given[name] : null));
  }
  if (given.length !== names.length) throw new Wrong();
  return new Map(fields.map((field, i) => [field.name, read(field, given[i])]));
}

/** A value as tests compare it: a number (a time: seconds), a text, null if it is missing. */
function read(field, value) {
  if (value === undefined || value === null || Number.isNaN(value)) {
    if (field.kind === "number" && !("missing" in field)) throw new Wrong();
    return null;
  }
  if (!["string", "number", "boolean"].includes(typeof value)) throw new Wrong();
  if (field.kind === "number") {
    if (!Number.isFinite(value)) throw new Wrong();
    return value;
  }
  if (field.kind === "time of day") return seconds(value);
  if (field.kind === "weekday") return day(value);
  const text = textOf(value);
  if (field.kind !== "flag") return text;
  const word = String(text).toLowerCase();
  if (!YES.includes(word) && !NO.includes(word)) throw new Wrong();
  return String(YES.includes(word));
}

/** Whole numbers and booleans count as their text; any other number is a text that no test names. */
function textOf(value) {
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) && Math.abs(value) <= 2 ** 53 ? String(value) : Infinity;
}

function seconds(value) {
  if (typeof value === "string") {
    const found = value ? MOMENT.exec(value) : null;
    if (!found || (found[1] && !weekdayOf(found[1]))) throw new Wrong();
    const [hour, minute, second] = found.slice(2, 5).map((part) => Number(part ?? 0));
    if (hour > 23 || minute > 59 || second > 59) throw new Wrong();
    return hour * 3600 + minute * 60 + second;
  }
  if (typeof value === "boolean" || !(value >= 0 && value <= 86400)) throw new Wrong();
  return value;
}

function day(value) {
  if (typeof value === "string") {
    const named = DAYS.find((name) => value.length >= 3 && name.toLowerCase().startsWith(value.toLowerCase()));
    if (named) return named;
    seconds(value); // the whole text must be a moment
    const date = MOMENT.exec(value)[1];
    if (!date) throw new Wrong();
    return weekdayOf(date);
  }
  if (typeof value === "boolean" || !Number.isInteger(value) || value < 0 || value > 6) throw new Wrong();
  return DAYS[value];
}

/** The day of a date as in "2026-11-17"; null if there is no such date. */
function weekdayOf(text) {
  const at = new Date(`${text}T00:00:00Z`);
  if (Number.isNaN(at.getTime()) || at.toISOString().slice(0, 10) !== text || text.startsWith("0000")) return null;
  return DAYS[(at.getUTCDay() + 6) % 7];
}
