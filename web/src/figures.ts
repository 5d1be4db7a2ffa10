// What a series comes to over a stretch, or at one piece of it.

import { least, most, type Page, type Series } from "./document";
import type { View } from "./view";

export interface Summary {
  least: number | null;
  mean: number | null;
  most: number | null;
  last: number | null;
}

export const UNKNOWN: Summary = { least: null, mean: null, most: null, last: null };

/** Least, mean and most of the pieces between `first` and `end`; a piece's middle counts for the mean. */
export function summary(series: Series | undefined, count: number, first: number, end: number): Summary {
  if (!series) return UNKNOWN;
  if (series.constant !== undefined) {
    const value = series.constant;
    return { least: value, mean: value, most: value, last: value };
  }
  const [low, high] = [least(series, count), most(series, count)];
  let [sum, known] = [0, 0];
  const found: Summary = { ...UNKNOWN };
  for (let piece = first; piece < end; piece += 1) {
    const [a, b] = [low[piece] ?? null, high[piece] ?? null];
    if (a === null || b === null) continue;
    found.least = Math.min(found.least ?? a, a);
    found.most = Math.max(found.most ?? b, b);
    found.last = b;
    sum += (a + b) / 2;
    known += 1;
  }
  return { ...found, mean: known > 0 ? sum / known : null };
}

/** The same over what is looked at, or at the piece under the pointer. */
export function seen(page: Page, view: View, place: number | null): Summary {
  if (place === null) return UNKNOWN;
  const [first, end] = view.cursor === null ? view.pieces() : [view.cursor, view.cursor + 1];
  return summary(page.series[place], page.axis.count, first, end);
}

/** How full something was at most over what is looked at, and its limit at that moment. */
export function fullest(page: Page, view: View, level: number | null, limit: number | null): { fill: number; limit: number } | null {
  if (level === null || limit === null) return null;
  const { count } = page.axis;
  const [levels, limits] = [most(page.series[level]!, count), most(page.series[limit]!, count)];
  const [first, end] = view.cursor === null ? view.pieces() : [view.cursor, view.cursor + 1];
  let found: { fill: number; limit: number } | null = null;
  for (let piece = first; piece < end; piece += 1) {
    const [high, bound] = [levels[piece] ?? null, limits[piece] ?? null];
    if (high === null || bound === null || bound <= 0) continue;
    if (!found || high / bound > found.fill) found = { fill: high / bound, limit: bound };
  }
  return found;
}
