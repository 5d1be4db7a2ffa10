// What a series comes to over a stretch, or at one piece of it.

import { least, most, type Page, type Queue, type Series } from "./document";
import type { View } from "./view";

export interface Summary {
  least: number | null;
  mean: number | null;
  most: number | null;
  last: number | null;
}

export const UNKNOWN: Summary = { least: null, mean: null, most: null, last: null };

/** Of a series that was recorded, where it has no reading; of one that was not, so that no stretch of this recording has it. */
const UNREAD = "not read here";
const UNCOUNTED = "not counted";

/** Why a figure of the series at this place is not known. */
export const missing = (place: number | null) => (place === null ? UNCOUNTED : UNREAD);

/** Least, mean and most of the pieces between `first` and `end`. */
export function summary(series: Series | undefined, count: number, first: number, end: number): Summary {
  if (!series) return UNKNOWN;
  if (series.constant !== undefined) {
    const value = series.constant;
    return { least: value, mean: value, most: value, last: value };
  }
  const [low, high] = [least(series, count), most(series, count)];
  const shares = new Map(series.known);
  let [sum, known] = [0, 0];
  const found: Summary = { ...UNKNOWN };
  for (let piece = first; piece < end; piece += 1) {
    const [a, b] = [low[piece] ?? null, high[piece] ?? null];
    if (a === null || b === null) continue;
    found.least = Math.min(found.least ?? a, a);
    found.most = Math.max(found.most ?? b, b);
    found.last = b;
    // A piece counts by as much of it as is known, so that the mean times that time is what a counter grew by.
    const share = shares.get(piece) ?? 1;
    sum += (series.mean?.[piece] ?? b) * share;
    known += share;
  }
  return { ...found, mean: known > 0 ? sum / known : null };
}

/** The same over what is looked at, or at the piece under the pointer. */
export function seen(page: Page, view: View, place: number | null): Summary {
  if (place === null) return UNKNOWN;
  const [first, end] = view.cursor === null ? view.pieces() : [view.cursor, view.cursor + 1];
  return summary(page.series[place], page.axis.count, first, end);
}

/** A level with its limits as they stood at the same moment. */
export interface Standing {
  level: number;
  soft: number | null;
  hard: number | null;
  /** Where whoever fills it begins to be held. */
  heldFrom: number | null;
  /** Level ÷ that. */
  fill: number | null;
}

/** Where whoever fills a queue begins to be held: half-way between its limits where the kernel pauses writers from there on. */
export function heldFrom({ held_midway }: Queue, soft: number | null, hard: number | null): number | null {
  if (!held_midway) return hard;
  return soft === null || hard === null ? null : (soft + hard) / 2;
}

/** A queue when its level was highest, and when it was nearest to where it holds, over what is looked at: limits change, too. */
export function standing(page: Page, view: View, queue: Queue): { highest: Standing | null; fullest: Standing | null } {
  const { count } = page.axis;
  const of = (place: number | null) => (place === null ? null : most(page.series[place]!, count));
  const [levels, softs, hards] = [of(queue.level), of(queue.soft_limit), of(queue.hard_limit)];
  const [first, end] = view.cursor === null ? view.pieces() : [view.cursor, view.cursor + 1];
  let [highest, fullest]: [Standing | null, Standing | null] = [null, null];
  for (let piece = first; levels && piece < end; piece += 1) {
    const value = levels[piece] ?? null;
    if (value === null) continue;
    const [soft, hard] = [softs?.[piece] ?? null, hards?.[piece] ?? null];
    const bound = heldFrom(queue, soft, hard);
    const here = { level: value, soft, hard, heldFrom: bound, fill: bound !== null && bound > 0 ? value / bound : null };
    // Of moments at which it stood as high, the one at which the limit is known, then the fullest.
    if (!highest || value > highest.level || (value === highest.level && (here.fill ?? -1) > (highest.fill ?? -1))) highest = here;
    if (here.fill !== null && (!fullest || here.fill > fullest.fill!)) fullest = here;
  }
  return { highest, fullest };
}
