// Times and amounts as people read them.
import { signal } from "@preact/signals";

/** now ticks once a second while the page is seen. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

/** span is a length of time in ms: "0.8 s", "12 min", "3 d". */
export function span(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 0.1) return `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** ago is how long ago a time was, in ms since 1970. */
export const ago = (at: number): string => `${span(now.value - at)} ago`;

const numbers = new Intl.NumberFormat();

/** count is a number with separators. */
export const count = (n: number): string => numbers.format(n);

const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", day: "numeric", month: "short" });

/** clock is a time of day, with its day. */
export const clock = (at: number): string => hours.format(at);

/** bytes is an amount of data. */
export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1 << 20) return `${(n / 1024).toFixed(1)} kB`;
  return n < 1 << 30 ? `${(n / (1 << 20)).toFixed(1)} MB` : `${(n / (1 << 30)).toFixed(1)} GB`;
}
