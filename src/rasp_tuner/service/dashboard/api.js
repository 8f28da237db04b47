// Talking to the server: requests with the key, if one is needed, and the live stream.

const KEY = "rasp-key";
const LONGEST_MS = 4_000; // between two tries to connect
const SILENCE_MS = 40_000; // the server speaks at least every 15 s

/** What the server refused, in its own words. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

function headers() {
  const known = key.get();
  return known ? { Authorization: `Bearer ${known}` } : {};
}

/** The path of a study, or of something in it. */
export function path(name, rest = "") {
  return `/v1/studies/${encodeURIComponent(name)}${rest}`;
}

/** The JSON at a path. */
export async function get(where, signal = undefined) {
  return answer(await fetch(where, { headers: headers(), signal, cache: "no-store" }));
}

/** The JSON that comes of a write. */
export async function post(where, body = {}) {
  const sent = { ...headers(), "Content-Type": "application/json" };
  return answer(await fetch(where, { method: "POST", headers: sent, body: JSON.stringify(body) }));
}

async function answer(response) {
  if (response.ok) return response.status === 204 ? null : response.json();
  throw await refusal(response);
}

async function refusal(response) {
  let problem = {};
  try {
    problem = (await response.json()).error ?? {};
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error; // a proxy's page is no JSON; its status says enough
  }
  return new Refused(
    response.status,
    problem.code ?? "unknown",
    problem.message ?? `the server answered ${response.status}`,
  );
}

/** The connection ended or never was. */
class Gone extends Error {}

function orGone(promise) {
  return promise.catch((error) => {
    throw new Gone(error.message);
  });
}

/** Rows of /live to `onRow`, states to `onState`, for ever; reconnects by itself. Returns what ends it. */
export function watch(name, { onRow, onState, onRefused }) {
  let control = null;
  let ended = false;
  let tries = 0;

  async function connect(doubt) {
    const options = { headers: headers(), signal: control.signal, cache: "no-store" };
    const response = await orGone(fetch(path(name, "/live"), options));
    if (!response.ok) throw await refusal(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let first = true; ; first = false) {
      const { done, value } = await orGone(reader.read());
      if (done || ended) return;
      doubt.again();
      if (first) onState("live"); // the server's first words: from now on nothing is missed
      tries = 0;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      blocks
        .map(dataOf)
        .filter(Boolean)
        .forEach((data) => onRow(JSON.parse(data)));
    }
  }

  async function run() {
    while (!ended) {
      control = new AbortController();
      const doubt = timer(() => control.abort());
      try {
        await connect(doubt);
      } catch (error) {
        if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
          ended = true;
          onRefused(error);
        } else if (!(error instanceof Gone || error instanceof Refused)) reportError(error); // a bug: seen, and survived
      } finally {
        doubt.stop();
      }
      if (ended) return;
      onState("lost");
      tries += 1;
      const most = Math.min(500 * 2 ** tries, LONGEST_MS);
      await new Promise((resolve) => setTimeout(resolve, most * (0.5 + Math.random() / 2)));
    }
  }

  run();
  return () => {
    ended = true;
    control?.abort();
  };
}

function timer(act) {
  let id = setTimeout(act, SILENCE_MS);
  return {
    again() {
      clearTimeout(id);
      id = setTimeout(act, SILENCE_MS);
    },
    stop: () => clearTimeout(id),
  };
}

/** The data of a server-sent event; empty for a heartbeat. */
function dataOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).trim()).join("\n");
}
