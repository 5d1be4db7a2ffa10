// The document that a page shows. Its meaning is told in crates/report/src/html/document.rs; the two change together.

export const FORMAT = "backwater-page";
export const VERSION = 1;

export type Unit =
  | "bytes"
  | "bytes_per_second"
  | "count"
  | "per_second"
  | "seconds"
  | "milliseconds"
  | "microseconds"
  | "ratio"
  | "flag";

export interface Axis {
  from_unix_ms: number | null;
  step_s: number;
  count: number;
}

export type Values = (number | null)[];

export interface Series {
  label: string;
  unit: Unit;
  constant?: number;
  max?: Values;
  /** Least and mean of each piece, where they differ from the most anywhere. */
  min?: Values;
  mean?: Values;
  /** Pieces that are known in part, each with how much of it. */
  known?: [number, number][];
}

export interface Curve {
  series: number;
  role: "line" | "soft_limit" | "hard_limit";
}

export interface Panel {
  title: string;
  group: string;
  unit: Unit;
  curves: Curve[];
  shown: boolean;
}

export interface Queue {
  name: string;
  target: string | null;
  title: string;
  about: string;
  at_limit: string;
  docs: { title: string; url: string }[];
  row: number;
  step: number;
  unit: Unit;
  level: number | null;
  soft_limit: number | null;
  hard_limit: number | null;
  /** Whoever fills it is held from half-way between the two limits on. */
  held_midway: boolean;
  inflow: number | null;
  outflow: number | null;
  waiters: number | null;
  /** More stands in it and leaves it than was read. */
  at_least: boolean;
  panels: number[];
}

export interface Stage {
  standby: string;
  name: string;
  from: string | null;
  to: string | null;
  shares: { busy: number | null; blocked: number | null; starved: number | null };
  rate_per_s: number | null;
  ceiling: { per_second: number; unit: Unit; source: string } | null;
  resource: string | null;
}

export interface Mark {
  at_s: number;
  kind: "log" | "setting" | "restart" | "gap" | "absent" | "mark" | "recorder" | "decision";
  source: string;
  message: string;
}

export interface Phase {
  arm: string;
  phase: string;
  from_s: number;
  to_s: number;
}

export interface Figure {
  name: string;
  value: number | null;
  unit: Unit;
  label: string;
}

export interface Unseen {
  what: string;
  why: string;
  remedy: string | null;
}

export interface Remedy {
  title: string;
  runtime: string[];
  persistent: string[];
  activation: "immediate" | "reload" | "restart";
  undo: string[];
  predicted: Figure[];
  risk: string;
}

export interface Finding {
  from_s: number;
  to_s: number;
  rule: string;
  cause: string;
  severity: "info" | "warning" | "critical";
  queue: string;
  server?: string;
  foreground_lost: number | null;
  summary: string;
  evidence: Figure[];
  ruled_out: { cause: string; because: string }[];
  unseen: Unseen[];
  confidence: "low" | "medium" | "high";
  victims: string[];
  remedies: Remedy[];
}

export interface Group {
  name: string;
  slots: [number, number][];
}

export interface Sessions {
  pieces: number;
  looked: boolean[];
  classes: Group[];
  tops: { by: string; groups: Group[] }[];
}

export interface Measured {
  value: number | null;
  spread: [number, number] | null;
  text: string;
}

export interface Arm {
  name: string;
  set: string;
  repeats: number;
  values: Record<string, Measured>;
  expected: string;
  found: string;
  met: boolean;
}

export interface Lab {
  scenario: string;
  machine: string;
  met: boolean;
  metrics: { name: string; label: string }[];
  arms: Arm[];
  published: {
    source: string;
    caution: string;
    columns: string[];
    rows: { set: string[]; seen: string; arm: string; our_set: string[] | null; our_seen: string | null }[];
  } | null;
  figures: [string, string][];
  skipped: Record<string, string>;
  doubts: string[];
}

export interface FlowState {
  by: string;
  rate_bps: number | null;
  rate_by: string;
  waiting: number;
  queueing_us: number | null;
  pools: {
    name: string;
    priority: string;
    weight: number;
    rules: string[];
    max_connections: number | null;
    max_active: number | null;
    bandwidth_bps: number | null;
    sessions: number;
    running: number;
    waiting: number;
    held: number;
    sent_bytes: number;
  }[];
  rules: { name: string; action: string; conditions: string; pools: string[]; began: number; escalated: number; lifted: number; unseen: string }[];
  held: {
    session: number;
    user: string;
    database: string;
    application: string;
    client: string;
    pool: string;
    rule: string | null;
    state: string;
    for_s: number;
    sent_bytes: number;
    rate_bps: number | null;
    allowed_bps: number | null;
    bound_by: string;
  }[];
  held_in_all: number;
}

export interface Hold {
  from_s: number;
  to_s: number | null;
  rule: string;
  action: string;
  session: string;
  user: string;
  pool: string;
  message: string;
  end: string | null;
}

export interface Flow {
  at_s: number | null;
  state: FlowState | null;
  holds: Hold[];
  left_out: number;
}

/** One shard of a cluster; its figures are the same ones in the same order in every row. */
export interface Shard {
  shard: string;
  server: string;
  figures: { name: string; head: string; label: string; unit: Unit; value: number | null }[];
}

export interface Page {
  format: string;
  version: number;
  about: {
    title: string;
    written_by: string;
    made_by: string;
    seconds: number;
    facts: [string, string][];
    warnings: string[];
  };
  axis: Axis;
  series: Series[];
  panels: Panel[];
  path: { rows: string[]; queues: Queue[]; links: [number, number][]; stages: Stage[] };
  events: Mark[];
  events_left_out: number;
  phases: Phase[];
  findings: Finding[];
  rules: Record<string, { summary: string; page: string }>;
  shards: Shard[];
  unseen: Unseen[];
  failing: string[];
  /** Servers that were not seen, so that they may not be healthy though nothing was found. */
  blind: string[];
  sessions: Sessions | null;
  lab: Lab | null;
  flow: Flow | null;
}

/** The document inside this page. Throws what is wrong with it, in words. */
export function read(): Page {
  const text = document.getElementById("document")?.textContent;
  if (!text) throw new Error("This page holds no document.");
  return understood(JSON.parse(text) as Page);
}

/** A document that this page understands; throws where it does not. */
export function understood(page: Page): Page {
  if (page.format !== FORMAT) throw new Error("The document inside this page is of another kind.");
  if (page.version > VERSION) {
    throw new Error(`The document is of version ${page.version}; this page understands ${VERSION}. Make the report again.`);
  }
  return page;
}

/** Values of a series, one for each piece of the axis; a hole is null. */
export function most(series: Series, count: number): Values {
  return series.max ?? new Array<number | null>(count).fill(series.constant ?? null);
}

/** The least values, where they differ from the most. */
export function least(series: Series, count: number): Values {
  return series.min ?? most(series, count);
}
