// Values as people read them, letter for letter as crates/model/src/units.rs writes them.

import type { Unit } from "./document";

/** A number with so many digits behind the point; what lies exactly between two goes to the even one, as in Rust. */
function fixed(value: number, digits: number): string {
  const text = value.toFixed(digits);
  const scaled = Math.abs(value) * 10 ** digits;
  if (scaled % 1 !== 0.5 || Math.floor(scaled) % 2 !== 0) return text;
  return (Math.sign(value) * (Math.floor(scaled) / 10 ** digits)).toFixed(digits);
}

function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return fixed(value, 0);
  return fixed(value, size >= 10 ? 1 : 2);
}

function grouped(value: number): string {
  if (Math.abs(value) < 10_000) return digits(value);
  const whole = fixed(Math.abs(value), 0).replace(/\B(?=(\d{3})+$)/g, ",");
  return value < 0 ? `-${whole}` : whole;
}

const STEPS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

function scaled(value: number, unit: string): string {
  let size = value;
  let step = 0;
  while (Math.abs(size) >= 1024 && step + 1 < STEPS.length) {
    size /= 1024;
    step += 1;
  }
  return step === 0 ? `${fixed(size, 0)} ${unit}` : `${digits(size)} ${STEPS[step]}${unit}`;
}

const MINUTE_S = 60;
const HOUR_S = 3_600;
const DAY_S = 86_400;

/** Whole pieces of so many seconds, and what is left in smaller ones. */
function split(value: number, large: number, small: number, units: [string, string]): string {
  const rest = String(Math.abs(Math.trunc((value % large) / small))).padStart(2, "0");
  return `${Math.trunc(value / large)} ${units[0]} ${rest} ${units[1]}`;
}

function seconds(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size >= 2 * DAY_S) return split(value, DAY_S, HOUR_S, ["d", "h"]);
  if (size >= 5 * HOUR_S) return split(value, HOUR_S, MINUTE_S, ["h", "min"]);
  if (size >= 2 * MINUTE_S) return split(value, MINUTE_S, 1, ["min", "s"]);
  if (size >= 1) return `${digits(value)} s`;
  return size >= 1e-3 ? `${digits(value * 1e3)} ms` : `${digits(value * 1e6)} µs`;
}

/** A value of this unit: three digits and the unit. A dash for what is not known. */
export function show(unit: Unit, value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  switch (unit) {
    case "bytes":
      return scaled(value, "B");
    case "bytes_per_second":
      return scaled(value, "B/s");
    case "count":
      return Number.isInteger(value) && Math.abs(value) < 10_000 ? String(value) : grouped(value);
    case "per_second":
      return `${grouped(value)}/s`;
    case "seconds":
      return seconds(value);
    case "milliseconds":
      return seconds(value / 1e3);
    case "microseconds":
      return seconds(value / 1e6);
    case "ratio":
      return `${digits(value * 100)} %`;
    case "flag":
      return value === 0 ? "no" : "yes";
  }
}

/** The unit of what changes by this unit in a second. */
export function perSecond(unit: Unit): Unit {
  if (unit === "bytes") return "bytes_per_second";
  return unit === "seconds" || unit === "milliseconds" || unit === "microseconds" ? "ratio" : "per_second";
}

/** Whether an axis of this unit steps by powers of two. */
export function isBinary(unit: Unit): boolean {
  return unit === "bytes" || unit === "bytes_per_second";
}
