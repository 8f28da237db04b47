// The README's example through OpenFeature's own SDK and OFREP provider; no client of RASP-Tuner.
// npm ci && node ofrep.mjs http://127.0.0.1:8321   with a study "cache" (docs/OPENFEATURE.md)
import { OpenFeature } from '@openfeature/server-sdk';
import { OFREPApi } from '@openfeature/ofrep-core';
import { OFREPProvider } from '@openfeature/ofrep-provider';

const url = process.argv[2] ?? 'http://127.0.0.1:8321';
await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url }));
const flags = OpenFeature.getClient();
const today = { cache_gb: 8, timeout_s: 1 }; // what runs if nobody answers

for (let hour = 0; hour < 96; hour++) {
  const qps = hour % 24 >= 12 ? 900 : 100;
  const context = { targetingKey: 'host-7', qps };
  const params = await flags.getObjectValue('cache', today, context);
  const off = Math.log(params.cache_gb / (qps === 900 ? 40 : 4)); // your system would run here
  await track('cache', context, { value: 20 + 10 * off ** 2 });
}

// A last look at every type of answer, as JSON for whoever runs this.
const seen = { targetingKey: 'host-8', qps: 900 };
const looks = {
  object: await flags.getObjectDetails('cache', today, seen),
  number: await flags.getNumberDetails('cache.cache_gb', 8, seen),
  again: await flags.getNumberDetails('cache.timeout_s', 1, seen),
  wrongType: await flags.getStringDetails('cache.cache_gb', 'none', seen),
  noFlag: await flags.getNumberDetails('cash.cache_gb', 8, seen),
  noContext: await flags.getNumberDetails('cache.cache_gb', 8, { targetingKey: 'host-9' }),
};

// All flags at once, as providers for browsers ask for them: the second time nothing has changed.
const api = new OFREPApi(url);
const all = await api.postBulkEvaluateFlags({ context: seen });
const etag = all.httpResponse.headers.get('etag');
const same = await api.postBulkEvaluateFlags({ context: seen }, { headers: [['If-None-Match', etag]] });
looks.bulk = { keys: all.value.flags.map((flag) => flag.key), statuses: [all.httpStatus, same.httpStatus] };

await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: 'http://127.0.0.1:9' }));
looks.noServer = await flags.getNumberDetails('cache.cache_gb', 8, seen);
console.log(JSON.stringify(looks));
await OpenFeature.close();

// OFREP has no tracking yet: this is the shape that docs/OPENFEATURE.md describes.
async function track(trackingEventName, context, trackingEventDetails) {
  const body = JSON.stringify({ trackingEventName, context, trackingEventDetails });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${url}/ofrep/v1/track`, { method: 'POST', headers, body });
  if (!answer.ok) throw new Error(await answer.text());
}
