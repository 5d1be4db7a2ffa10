// The page's panels as a test handles them: charts, the pointer, a queue's card.
import assert from "node:assert/strict";

const FIELDS = ["level", "soft_limit", "hard_limit", "inflow", "outflow", "waiters"];

/** What the reader says of each curve of a chart: a queue's, or one that goes by the chart's name and its own. */
export function expected(document, reader, panel) {
  return panel.curves.map(({ series }) => {
    for (const queue of document.path.queues) {
      const field = FIELDS.find((field) => queue[field] === series);
      if (field) return reader.queue(queue)[field];
    }
    const name = `${panel.title} / ${document.series[series].label}`;
    assert.ok(reader.curves[name], `${name}: nothing was read of it`);
    return reader.curves[name];
  });
}

/** Chooses every chart that there is. Each is drawn once it is seen. */
export async function drawAll(page) {
  await page.evaluate(() => document.querySelectorAll(".choice input").forEach((box) => box.checked || box.click()));
}

/** Puts the pointer on a piece of a chart that shows `count` of them. */
export async function hover(page, chart, piece, count) {
  await chart.evaluate((element) => element.scrollIntoView({ block: "center" }));
  await chart.locator("canvas").waitFor();
  const box = await chart.locator(".u-over").boundingBox();
  await page.mouse.move(box.x + ((piece + 0.5) / count) * box.width, box.y + box.height / 2);
}

/** Tries until it holds: charts are drawn as they come into view, and a busy browser is late with what the pointer is over. */
export async function eventually(holds) {
  const end = Date.now() + 20_000;
  for (;;) {
    try {
      return await holds();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((again) => setTimeout(again, 100));
    }
  }
}

/** What is told of a queue: its text, and its figures by name. Leaves no queue chosen. */
export async function queueCard(page, place) {
  const queue = page.locator(`[data-queue="${place}"]`);
  await queue.click();
  const card = page.locator(".detail .card");
  const text = await card.textContent();
  const rows = await card.locator(".figures tr").evaluateAll((list) => list.map((row) => [row.querySelector("th").textContent, row.querySelector("td").textContent]));
  await queue.click();
  return { text, rows: Object.fromEntries(rows) };
}
