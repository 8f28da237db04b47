// Decides by a policy in flagd's own evaluator, in this process; no code of RASP-Tuner (docs/EDGE.md).
// npm ci && node evaluate.mjs flags.json < contexts.ndjson
// Each line of the input is {"flag": ..., "context": {...}}; each line of the output has value, variant, reason and flagMetadata.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { FlagdCore } from '@openfeature/flagd-core';

const flagd = new FlagdCore();
flagd.setConfigurations(readFileSync(process.argv[2], 'utf8'));
const resolve = {
  object: (flag, context) => flagd.resolveObjectEvaluation(flag, {}, context),
  number: (flag, context) => flagd.resolveNumberEvaluation(flag, 0, context),
  string: (flag, context) => flagd.resolveStringEvaluation(flag, '', context),
  boolean: (flag, context) => flagd.resolveBooleanEvaluation(flag, false, context),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { flag, context, type = 'object' } = JSON.parse(line);
  console.log(JSON.stringify(resolve[type](flag, context)));
}
