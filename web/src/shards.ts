// The shards of a cluster side by side: a row a shard, a column a figure that any of them has, and where each lies in its column.

import type { Shard } from "./document";
import { h, s } from "./dom";
import { show } from "./units";

const WIDE = 84;

export function shards(rows: Shard[]): HTMLElement {
  const columns = (rows[0]?.figures ?? []).map((_, place) => place).filter((place) => rows.some((row) => valueOf(row, place) !== null));
  const figure = (place: number) => rows[0]!.figures[place]!;
  const heads = ["shard", "server", ...columns.map((place) => figure(place).head)];
  const largest = new Map(columns.map((place) => [place, Math.max(...rows.map((row) => valueOf(row, place) ?? 0))]));
  const cell = (row: Shard, place: number) => {
    const value = valueOf(row, place);
    return h("td", {}, value === null ? "–" : show(figure(place).unit, value), mark(value, largest.get(place) ?? 0));
  };
  const line = (row: Shard) =>
    h("tr", {}, h("th", { scope: "row" }, row.shard), h("td", {}, row.server), ...columns.map((place) => cell(row, place)));
  return h(
    "div",
    {},
    h("p", { class: "hint" }, "Of each shard the mean over the whole recording, while each member was primary."),
    h(
      "div",
      { class: "scroll", tabindex: 0 },
      h(
        "table",
        { class: "numbers measured" },
        h("thead", {}, h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, ...rows.map(line)),
      ),
    ),
    h("p", { class: "hint" }, columns.map((place) => `${figure(place).head}: ${figure(place).label}`).join("; ")),
  );
}

const valueOf = (row: Shard, place: number): number | null => row.figures[place]?.value ?? null;

/** Where a figure lies between nothing and the largest of its column. */
function mark(value: number | null, largest: number): Element | null {
  if (value === null || value < 0 || largest <= 0) return null;
  const bar = s("rect", { width: ((value / largest) * WIDE).toFixed(1), height: 8, rx: 2 });
  return s("svg", { class: "bar", width: WIDE, height: 8, "aria-hidden": "true" }, bar);
}
