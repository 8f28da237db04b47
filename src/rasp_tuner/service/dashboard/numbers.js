// Numbers: scales, ticks, and how they are written.

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** A whole number with separators. */
export function whole(value) {
  return PLAIN.format(value);
}

/** A measured value: four digits that matter. */
export function value(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return x.toExponential(2).replace("-", "−").replace("e+", "e");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4;
  const text = new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(x);
  return (text === "-0" ? "0" : text).replace("-", "−");
}

/** A value with its sign. */
export function signed(x) {
  return x > 0 ? `+${value(x)}` : value(x);
}

/** A share as a percentage. */
export function percent(x) {
  return `${value(Math.round(x * 1000) / 10)}%`;
}

/** What a tick says: short, and all ticks of an axis with as many decimals. */
export function tick(x, gap) {
  const size = Math.max(Math.abs(x), 0);
  for (const [unit, letter] of UNITS) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) {
      const digits = Math.max(0, Math.min(3, Math.ceil(-Math.log10(gap / unit) - 1e-9)));
      return `${(x / unit).toFixed(digits)}${letter}`.replace("-", "−");
    }
  }
  if (x !== 0 && gap < 1e-4) return x.toExponential(1).replace("-", "−");
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(gap) - 1e-9)));
  const text = new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(x);
  return text.replace("-", "−");
}

const MOST_TRIED = 16; // ticks wanted: beyond that the ends are as good as one number

/** Ticks at 1, 2 or 5 times a power of ten that lie in [low, high], about `count` of them and two at least, and the gap between. */
export function ticks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  if (!(raw > 0) || !Number.isFinite(raw)) return { at: [low], gap: 1 };
  const power = 10 ** Math.floor(Math.log10(raw));
  const gap = power * ([1, 2, 5].find((factor) => factor * power >= raw * 0.999) ?? 10);
  const at = [];
  for (let i = Math.ceil(low / gap - 1e-9); i * gap <= high + gap * 1e-9; i += 1) at.push(i * gap + 0); // + 0 makes 0 of -0
  return at.length > 1 || count > MOST_TRIED ? { at, gap } : ticks(low, high, 2 * count);
}

const FINER = [1, 2, 3, 5, 7]; // factors of a short axis, where the usual ones would give one tick or none

/** Ticks of a logarithmic axis: powers of a factor, few enough to read, and two at least. */
export function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  const factors = decades > count ? [1] : decades > count / 3 ? [1, 3] : [1, 2, 5];
  const skip = Math.max(1, Math.ceil(decades / count));
  for (const each of [factors, FINER]) {
    const at = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += skip) {
      at.push(...each.map((factor) => factor * 10 ** power).filter((x) => x >= low * 0.999 && x <= high * 1.001));
    }
    if (at.length > 1) return at;
  }
  return [low, high];
}

/** A scale from [low, high] to [from, to]. */
export function linear(low, high, from, to) {
  const slope = high > low ? (to - from) / (high - low) : 0;
  return (x) => (high > low ? from + (x - low) * slope : (from + to) / 2);
}

/** The same along the logarithm. */
export function logarithmic(low, high, from, to) {
  const inner = linear(Math.log(low), Math.log(high), from, to);
  return (x) => inner(Math.log(Math.max(x, low * 1e-6)));
}

/** The value below which a share of the sorted values lies. */
export function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(share * (sorted.length - 1))))];
}

/** How long ago, in words; both in seconds. */
export function ago(at, now) {
  const seconds = Math.max(0, Math.round(now - at));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
}
