// The shards of a cluster side by side: a row a shard, a column a figure that any of them has, and where each lies in its column.

import type { Shard } from "./document";
import { h } from "./dom";
import { bar, table } from "./tables";
import { show } from "./units";

export function shards(rows: Shard[]): HTMLElement {
  const all = rows[0]?.figures ?? [];
  const values = all.map((_, place) => rows.map((row) => row.figures[place]?.value ?? null));
  const columns = [...all.keys()].filter((place) => values[place]!.some((value) => value !== null));
  const cell = (order: number, place: number) => {
    const value = values[place]![order]!;
    return h("td", {}, show(all[place]!.unit, value), bar(value, Math.max(...values[place]!.map((other) => other ?? 0))));
  };
  const line = ({ shard, server }: Shard, order: number) =>
    h("tr", {}, h("th", { scope: "row" }, shard), h("td", {}, server), ...columns.map((place) => cell(order, place)));
  return h(
    "div",
    {},
    h("p", { class: "hint" }, "Of each shard the mean over the whole recording, while each member was primary."),
    table(["shard", "server", ...columns.map((place) => all[place]!.head)], rows.map(line), "measured"),
    h("p", { class: "hint" }, columns.map((place) => `${all[place]!.head}: ${all[place]!.label}`).join("; ")),
  );
}
