// Light or dark: as the reader's system has it, unless a button was pressed. Paper is always light.

import { otherVariables, seeAll } from "./dom";

const KEY = "backwater-theme";
type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");

function kept(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    // A page from disk may have no storage.
    return null;
  }
}

function set(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  otherVariables();
}

const wanted = (): Theme => kept() ?? (system.matches ? "dark" : "light");

/** Calls back after every change, so that what is drawn can be drawn anew. */
export function themes(changed: () => void): { toggle: () => void } {
  set(wanted());
  const to = (theme: Theme) => {
    set(theme);
    changed();
  };
  system.addEventListener("change", () => to(wanted()));
  addEventListener("beforeprint", () => {
    // Paper cannot be clicked: what is folded up would be lost, but for the choice of charts.
    document.querySelectorAll<HTMLDetailsElement>("details:not(.choice)").forEach((details) => (details.open = true));
    to("light");
    // The change has put aside what was drawn.
    seeAll();
  });
  addEventListener("afterprint", () => to(wanted()));
  const toggle = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Not kept, then.
    }
    to(next);
  };
  return { toggle };
}
