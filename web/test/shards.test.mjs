// Shards of a cluster side by side: the figures that the recording's own reader has of each, and a bar for each of them.
import assert from "node:assert/strict";
import { shows } from "./figures.mjs";
import { checks } from "./harness.mjs";

checks((check) => {
  check("a row for each shard, a column for each figure that any of them has", async ({ page, reader }) => {
    const rows = await page.locator("#shards tbody tr").evaluateAll((list) => list.map((row) => [...row.children].map((cell) => cell.textContent)));
    assert.equal(reader.shards.length, 2);
    assert.equal(rows.length, 2);
    const places = reader.shards[0].figures.map((_, place) => place).filter((place) => reader.shards.some((row) => row.figures[place].value !== null));
    assert.ok(places.length >= 3, "dirty share, trigger, connections");
    for (const [order, { shard, server, figures }] of reader.shards.entries()) {
      const [name, at, ...shown] = rows[order];
      assert.deepEqual([name, at], [shard, server]);
      assert.equal(shown.length, places.length);
      places.forEach((place, column) => shows(shown[column], figures[place].value, figures[place].unit, `${shard}: ${figures[place].label}`));
    }
    assert.equal(await page.locator("#shards tbody svg.bar").count(), 2 * places.length);
  });
});
