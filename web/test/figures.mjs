// What the page's texts say as numbers, and what a recording holds by its own reader.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SECONDS = { min: 60, s: 1, ms: 1e-3, µs: 1e-6 };
/** The document has four digits of a value. */
const FOUR_DIGITS = 6e-4;

/** A shown value in the base of its unit (bytes, seconds, a plain number), and how far what it was made of may lie from it. */
export function said(text) {
  const long = /^(-?\d+) min (\d+) s$/.exec(text);
  if (long) return [Number(long[1]) * 60 + Number(long[2]), 1];
  const [, number, unit] = /^(-?[\d,.]+) ?(.*)$/.exec(text) ?? [];
  assert.ok(number !== undefined, `'${text}' is no value`);
  const digits = /\.(\d+)/.exec(number)?.[1].length ?? 0;
  const scale = scaleOf(unit, text);
  return [Number(number.replaceAll(",", "")) * scale, 0.5001 * 10 ** -digits * scale];
}

function scaleOf(unit, text) {
  if (unit === "" || unit === "/s") return 1;
  if (unit === "%") return 0.01;
  const bytes = BYTES.indexOf(unit.replace("/s", ""));
  if (bytes >= 0) return 1024 ** bytes;
  assert.ok(SECONDS[unit] !== undefined, `'${text}' has an unknown unit`);
  return SECONDS[unit];
}

/** What one of this unit is in the base of its unit. */
const BASE = { milliseconds: 1e-3, microseconds: 1e-6 };

/** That a text shows this value of this unit, or one of several; a dash shows what is not known. `more` is how far it may be off besides. */
export function shows(text, value, unit, what, more = 0) {
  if (value === null || value === undefined) return assert.equal(text, "–", what);
  if (text === "–") assert.fail(`${what}: nothing is shown, ${value} was read`);
  const [shown, off] = said(text);
  const near = (one) => Math.abs(shown - one * (BASE[unit] ?? 1)) <= off + more + Math.abs(one * (BASE[unit] ?? 1)) * FOUR_DIGITS;
  assert.ok([value].flat().some(near), `${what}: ${text} is shown, ${value} (${unit}) was read`);
}

/** That a queue's card shows a figure: of what was recorded and has no reading here, that; of the rest a value, or no row at all. */
export function tells(rows, row, place, value, unit, what) {
  if (value === null && place !== null) return assert.equal(rows[row], "not read here", what);
  shows(rows[row]?.replace(/^at least /, "") ?? "–", value, unit, what);
}

/** What a report's recording holds: crates/backwater/tests/page/reader.rs reads it and writes it down beside the report. */
export function reader(file) {
  const beside = file.replace(/\.html$/, ".reader.json");
  return existsSync(beside) ? JSON.parse(readFileSync(beside, "utf8")) : null;
}

/** The pieces of an axis that a stretch in seconds touches: the first, and the one behind the last. */
export function pieces(axis, { from, to }) {
  const first = Math.min(Math.max(Math.floor(from / axis.step_s + 1e-9), 0), axis.count - 1);
  return [first, Math.max(Math.min(Math.ceil(to / axis.step_s - 1e-9), axis.count), first + 1)];
}

/** What is known of a lane between two pieces. */
const known = (lane, [first, end]) => (lane ?? []).slice(first, end).filter((piece) => piece !== null);

export function most(lane, range) {
  const list = known(lane, range);
  return list.length === 0 ? null : list.reduce((top, [, high]) => Math.max(top, high), -Infinity);
}

/** The mean of the pieces' means, each counting by as much of its piece as is known. */
export function mean(lane, range) {
  const list = known(lane, range);
  return list.length === 0 ? null : list.reduce((sum, [, , middle, share]) => sum + middle * share, 0) / list.reduce((sum, [, , , share]) => sum + share, 0);
}

export const last = (lane, range) => known(lane, range).at(-1)?.[1] ?? null;

/** Pieces in which a level and its limit are both known, with how full it was. */
function fills(level, limit, range) {
  const list = [];
  for (let piece = range[0]; piece < range[1]; piece += 1) {
    const [high, bound] = [level?.[piece]?.[1], limit?.[piece]?.[1]];
    if (high !== undefined && bound > 0) list.push({ fill: high / bound, high, bound });
  }
  return list;
}

/** The limit at the moment at which a level was highest (of moments that four digits cannot tell apart all), else the newest. */
export function atHighest(level, limit, range) {
  const top = most(level, range);
  const high = fills(level, limit, range).filter((piece) => piece.high >= top * (1 - 2 * FOUR_DIGITS));
  return high.length > 0 ? high.map(({ bound }) => bound) : last(limit, range);
}

/** Where a queue begins to hold, piece by piece, as pieces of its lane. */
export function heldFrom({ held_midway }, { soft_limit, hard_limit }) {
  if (!held_midway) return hard_limit;
  const middle = (piece) => (soft_limit?.[piece] ? [null, (soft_limit[piece][1] + hard_limit[piece][1]) / 2] : null);
  return hard_limit?.map((hard, piece) => (hard === null ? null : middle(piece)));
}

/** That a text tells when a level was nearest to where it holds: the share, and both of that moment. */
export function showsFullest(text, level, limit, range, unit, what) {
  const list = fills(level, limit, range);
  if (list.length === 0) return assert.equal(text, undefined, what);
  const top = Math.max(...list.map(({ fill }) => fill));
  const near = list.filter(({ fill }) => fill >= top * (1 - 2 * FOUR_DIGITS));
  const [, share, high, bound] = text.match(/^(.*): (.*) of (.*)$/);
  shows(share, top, "ratio", what);
  shows(high, near.map((piece) => piece.high), unit, what);
  shows(bound, near.map((piece) => piece.bound), unit, what);
}

/** Sessions on average by name over slots in which somebody looked, the largest first. */
export function sessions(list, looked, [first, end]) {
  const slots = [];
  for (let slot = first; slot < Math.min(end, looked.length); slot += 1) if (looked[slot]) slots.push(slot);
  const averages = Object.entries(list).map(([name, by]) => [name, slots.reduce((sum, slot) => sum + (by[slot] ?? 0), 0) / Math.max(slots.length, 1)]);
  return averages.filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
}
