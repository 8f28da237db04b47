// Part: something fetched again when it may have changed, never twice at once, and less often where it takes long.

import { Refused } from "./api.js";

const SHARE = 10; // a fetch may take this part of the time

export class Part {
  constructor(fetch, show, least) {
    this.fetch = fetch;
    this.show = show;
    this.least = least; // ms between two fetches
    this.next = 0;
    this.timer = null;
    this.busy = false;
    this.wanted = false;
  }

  async now() {
    this.busy = true;
    const began = performance.now();
    try {
      this.show(await this.fetch());
    } finally {
      const ended = performance.now();
      this.next = ended + Math.max(this.least, SHARE * (ended - began));
      this.busy = false;
      if (this.wanted) this.soon();
    }
  }

  soon() {
    this.wanted = this.busy;
    if (this.busy || this.timer !== null) return;
    this.timer = setTimeout(
      async () => {
        this.timer = null;
        try {
          await this.now();
        } catch (error) {
          if (!(error instanceof Refused || error instanceof TypeError)) throw error;
          this.next = performance.now() + 5_000; // the live stream says what is wrong
        }
      },
      Math.max(0, this.next - performance.now()),
    );
  }
}
