// Tables of figures, and the bar that shows where a figure lies in its row or column.

import { h, s } from "./dom";

export function table(heads: string[], rows: HTMLElement[], kind = ""): HTMLElement {
  const head = h("tr", {}, ...heads.map((name) => h("th", { scope: "col", class: kind === "words" ? "text" : "" }, name)));
  return h("div", { class: "scroll", tabindex: 0 }, h("table", { class: `numbers ${kind}` }, h("thead", {}, head), h("tbody", {}, ...rows)));
}

const WIDE = 84;

/** Where a figure lies between nothing and the largest, and what its repeats lay between. */
export function bar(value: number | null, largest: number, spread: [number, number] | null = null): Element | null {
  if (value === null || value < 0) return null;
  const x = (at: number) => ((at / Math.max(largest, 1e-300)) * WIDE).toFixed(1);
  const reach = spread ? s("line", { class: "reach", x1: x(spread[0]), x2: x(spread[1]), y1: 4, y2: 4 }) : null;
  return s("svg", { class: "bar", width: WIDE, height: 8, "aria-hidden": "true" }, s("rect", { width: x(value), height: 8, rx: 2 }), reach);
}
