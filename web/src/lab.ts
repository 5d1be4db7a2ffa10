// Lab results: what was published beside ours, arms side by side with their spread, and what makes the figures doubtful.

import type { Arm, Lab } from "./document";
import { h, type Child } from "./dom";
import { bar, table } from "./tables";

export function lab(run: Lab): HTMLElement {
  return h(
    "div",
    {},
    h("p", { class: run.met ? "good" : "bad" }, run.met ? "✓ Every arm was diagnosed as expected." : `✗ Not diagnosed as expected: ${missed(run)}`),
    h("p", { class: "hint" }, `Machine: ${run.machine}`),
    run.published ? published(run.published) : null,
    expectations(run.arms),
    metrics(run),
    run.figures.length > 0 ? h("details", {}, h("summary", {}, "Between arms"), pairs(run.figures)) : null,
    list("Arms that were skipped here", Object.entries(run.skipped).map(([arm, why]) => `${arm}: ${why}`)),
    list("Doubts about these figures", run.doubts),
  );
}

const missed = (run: Lab) => run.arms.filter((arm) => !arm.met).map((arm) => arm.name).join(", ");

function published(table_: NonNullable<Lab["published"]>): HTMLElement {
  const rows = table_.rows.flatMap((row, order) => [
    h("tr", { class: "theirs" }, h("th", { scope: "row" }, `${order + 1}. published`), ...row.set.map((text) => h("td", {}, text)), h("td", {}, row.seen)),
    h(
      "tr",
      { class: "ours" },
      h("th", { scope: "row" }, row.arm),
      ...(row.our_set ?? table_.columns.map(() => "–")).map((text) => h("td", {}, text)),
      h("td", {}, row.our_seen ?? "not run this time"),
    ),
  ]);
  return h(
    "div",
    {},
    h("h3", {}, "Published, and here"),
    h("p", { class: "hint" }, `Published: ${table_.source}. ${table_.caution}`),
    table(["row", ...table_.columns, "seen"], rows, "words"),
  );
}

function expectations(arms: Arm[]): HTMLElement {
  const row = (arm: Arm) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, arm.name),
      h("td", {}, arm.set),
      h("td", {}, arm.expected),
      h("td", {}, arm.found || "–"),
      h("td", { class: arm.met ? "good" : "bad" }, arm.met ? "✓ yes" : "✗ no"),
    );
  return h("div", {}, h("h3", {}, "Arms"), table(["arm", "set", "expected diagnosis", "found", "met"], arms.map(row), "words"));
}

/** Metrics as rows, arms as columns; below each figure where it lies between nothing and the largest of its row. */
function metrics(run: Lab): HTMLElement {
  const repeats = [...new Set(run.arms.map((arm) => arm.repeats))];
  const spread = repeats.length === 1 && repeats[0] === 1 ? "one repeat each: no spread is known" : "medians (least – most)";
  const row = ({ name, label }: Lab["metrics"][number]) => {
    const largest = Math.max(...run.arms.map((arm) => arm.values[name]?.spread?.[1] ?? arm.values[name]?.value ?? 0));
    return h("tr", {}, h("th", { scope: "row" }, label), ...run.arms.map((arm) => h("td", {}, ...told(arm, name), bar(arm.values[name]?.value ?? null, largest, arm.values[name]?.spread))));
  };
  return h("div", {}, h("h3", {}, `Measured: ${spread}`), table(["metric", ...run.arms.map((arm) => arm.name)], run.metrics.map(row), "measured"));
}

/** A metric's median, and below it what its repeats lay between. */
function told(arm: Arm, name: string): Child[] {
  const [median, spread] = (arm.values[name]?.text ?? "–").split(/ (?=\()/);
  return [median, spread ? h("span", { class: "spread" }, ` ${spread}`) : null];
}

function pairs(list: [string, string][]): HTMLElement {
  return h("table", { class: "figures" }, h("tbody", {}, ...list.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))));
}

function list(title: string, items: string[]): HTMLElement | null {
  if (items.length === 0) return null;
  return h("div", {}, h("h3", {}, title), h("ul", {}, ...items.map((item) => h("li", {}, item))));
}
