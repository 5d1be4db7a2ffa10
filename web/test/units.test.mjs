// The page writes values letter for letter as the program does: test/units.json is checked here and by crates/report.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { transformWithEsbuild } from "vite";

const source = new URL("../src/units.ts", import.meta.url);
const { code } = await transformWithEsbuild(readFileSync(source, "utf8"), source.pathname);
const { show } = await import(`data:text/javascript;base64,${Buffer.from(code).toString("base64")}`);
const known = JSON.parse(readFileSync(new URL("units.json", import.meta.url), "utf8"));

test("values are written as the program writes them", () => {
  for (const [unit, value, text] of known) assert.equal(show(unit, value), text, `${value} ${unit}`);
});
