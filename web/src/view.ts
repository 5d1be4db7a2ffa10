// What is looked at: a stretch of the axis, the moment under the pointer, and who wants to know.

import type { Axis } from "./document";
import { show } from "./units";

/** A stretch of time in seconds since the axis' begin. */
export interface Stretch {
  from: number;
  to: number;
}

const LEAST_PIECES = 3;

export class View {
  axis: Axis;
  whole: Stretch;
  stretch: Stretch;
  /** The piece under the pointer. */
  cursor: number | null = null;
  private readonly onStretch: (() => void)[] = [];
  private readonly onCursor: (() => void)[] = [];

  constructor(axis: Axis) {
    this.axis = axis;
    this.whole = { from: 0, to: axis.count * axis.step_s };
    this.stretch = this.whole;
  }

  /** Tells `act` of every other stretch, and of this one now. */
  follow(act: () => void): void {
    this.onStretch.push(act);
    act();
  }

  /** Tells `act` of every other moment under the pointer. */
  followCursor(act: () => void): void {
    this.onCursor.push(act);
  }

  /** Looks at another stretch, within the axis and never at less than a few pieces. */
  look(from: number, to: number): void {
    const room = this.whole.to;
    const length = Math.min(Math.max(to - from, LEAST_PIECES * this.axis.step_s), room);
    const start = Math.min(Math.max(from + (to - from - length) / 2, 0), room - length);
    if (start === this.stretch.from && start + length === this.stretch.to) return;
    this.stretch = { from: start, to: start + length };
    this.onStretch.forEach((act) => act());
  }

  /** Time has gone on: the axis is another. What was looked at stays so, unless it was everything or the newest. */
  renew(axis: Axis): void {
    const [whole, newest] = [this.isWhole(), this.stretch.to >= this.whole.to];
    const moved = ((axis.from_unix_ms ?? 0) - (this.axis.from_unix_ms ?? 0)) / 1e3;
    this.axis = axis;
    this.whole = { from: 0, to: axis.count * axis.step_s };
    const length = Math.min(this.stretch.to - this.stretch.from, this.whole.to);
    const wanted = newest ? this.whole.to - length : this.stretch.from - moved;
    const from = Math.min(Math.max(wanted, 0), this.whole.to - length);
    this.stretch = whole ? this.whole : { from, to: from + length };
    if (this.cursor !== null) this.cursor = Math.min(this.cursor, axis.count - 1);
    this.onStretch.forEach((act) => act());
  }

  /** Looks at everything. */
  reset(): void {
    this.look(0, this.whole.to);
  }

  /** Moves by a share of what is seen. */
  pan(share: number): void {
    const { from, to } = this.stretch;
    const by = Math.min(Math.max(share * (to - from), -from), this.whole.to - to);
    this.look(from + by, to + by);
  }

  /** Sees so many times as much, around the middle. */
  zoom(factor: number): void {
    const { from, to } = this.stretch;
    const half = ((to - from) * factor) / 2;
    this.look((from + to) / 2 - half, (from + to) / 2 + half);
  }

  point(piece: number | null): void {
    if (piece === this.cursor) return;
    this.cursor = piece;
    this.onCursor.forEach((act) => act());
  }

  /** First piece that is seen, and the one behind the last. */
  pieces(): [number, number] {
    const { from, to } = this.stretch;
    const step = this.axis.step_s;
    const first = Math.min(Math.max(Math.floor(from / step + 1e-9), 0), this.axis.count - 1);
    return [first, Math.max(Math.min(Math.ceil(to / step - 1e-9), this.axis.count), first + 1)];
  }

  /** Whether everything is seen. */
  isWhole(): boolean {
    return this.stretch.from <= 0 && this.stretch.to >= this.whole.to;
  }

  /** Seconds since the axis' begin as uPlot's x: Unix time, or as they are without a clock. */
  x(seconds: number): number {
    return seconds + (this.axis.from_unix_ms ?? 0) / 1e3;
  }

  /** A moment as a time of day, or seconds where there is no clock. */
  time(seconds: number): string {
    if (this.axis.from_unix_ms === null) return `${seconds.toFixed(0)} s`;
    return new Date(this.axis.from_unix_ms + seconds * 1e3).toLocaleTimeString("en-GB");
  }

  /** A stretch in words. */
  words({ from, to }: Stretch): string {
    return `${this.time(from)} – ${this.time(to)} (${show("seconds", to - from)})`;
  }

  /** The day, and by whose clock. */
  day(): string {
    if (this.axis.from_unix_ms === null) return "no clock was recorded: seconds since the begin";
    const date = new Date(this.axis.from_unix_ms);
    const minutes = -date.getTimezoneOffset();
    const two = (value: number) => String(value).padStart(2, "0");
    const offset = `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}, times in ${offset}`;
  }
}
