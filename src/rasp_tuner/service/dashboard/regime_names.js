// What regimes are called.

/** The name of a regime by its rank: A, B, ... */
export function letter(rank) {
  return rank < 26 ? String.fromCharCode(65 + rank) : `${rank + 1}`;
}
