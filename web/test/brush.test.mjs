// Brush and zoom in a browser, by pointer, by key and by button: whatever stretch is chosen, every panel shows what the recording's
// reader says of that stretch. Of the same reports as report.test.mjs.
import assert from "node:assert/strict";
import { atHighest, heldFrom, last, mean, most, pieces, said, sessions, shows, showsFullest, tells } from "./figures.mjs";
import { checks } from "./harness.mjs";
import { expected, queueCard } from "./panels.mjs";

/** Room for numbers left of the strip's curve, and at its right: GUTTER of web/src/chart.ts and the 8 of web/src/overview.ts. */
const [LEFT, RIGHT] = [76, 8];

/** Whose panels differ from the others' only in which series they are of: report.test.mjs asks these. */
const ALIKE = ["ttl-burst", "wal-lag"];

checks((check) => {
  check("a brush over the strip chooses what every panel shows, and a click shows all again", async (opened) => {
    const { page, document } = opened;
    const { count, step_s } = document.axis;
    if (count < 20) return;
    await same(opened, { from: 0, to: count * step_s });
    const strip = await page.locator(".strip").boundingBox();
    const x = (seconds) => strip.x + LEFT + (seconds / (count * step_s)) * (strip.width - LEFT - RIGHT);
    // From inside of one piece to inside of another, so that which pieces are seen does not hang on a pixel.
    for (const [first, end] of [[0.2, 0.45], [0.55, 0.9]]) {
      const [from, to] = [first, end].map((share) => (Math.floor(count * share) + 0.5) * step_s);
      await page.mouse.move(x(from), strip.y + 40);
      await page.mouse.down();
      await page.mouse.move(x(to), strip.y + 40, { steps: 5 });
      await page.mouse.up();
      await page.mouse.move(2, 2);
      await same(opened, { from, to });
      assert.equal(await page.locator(".strip .edge").count(), 2, "the strip shows what is looked at");
    }
    await page.mouse.click(x(count * step_s * 0.1), strip.y + 40);
    await page.mouse.move(2, 2);
    await same(opened, { from: 0, to: count * step_s });
    assert.equal(await page.locator(".strip .edge").count(), 0);
  });

  check("keys and buttons zoom and move", async (opened) => {
    const { page, document } = opened;
    const whole = document.axis.count * document.axis.step_s;
    if (document.axis.count < 20) return;
    const ways = {
      keys: (sign) => page.keyboard.press({ "←": "ArrowLeft", "→": "ArrowRight", "−": "-", All: "0" }[sign] ?? sign),
      buttons: (sign) => page.locator(".bar button", { hasText: new RegExp(`^${sign === "+" ? "\\+" : sign}$`) }).click(),
    };
    for (const [way, act] of Object.entries(ways)) {
      // What keys do in every panel, buttons do too.
      const shown = (from, to) => same(opened, { from: whole * from, to: whole * to }, way === "keys");
      await act("+");
      await shown(1 / 4, 3 / 4);
      await act("→");
      await shown(3 / 8, 7 / 8);
      await act("+");
      await act("←");
      await shown(7 / 16, 11 / 16);
      await act("−");
      await shown(5 / 16, 13 / 16);
      await act("All");
      await shown(0, 1);
    }
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    await page.keyboard.press("t");
    assert.equal(await theme(), "dark");
  });

  check("dragging over any chart looks closer, and a double click goes back", async (opened) => {
    const { page, document } = opened;
    const { count, step_s } = document.axis;
    if (count < 20) return;
    const charts = page.locator("figure.chart");
    for (let place = 0; place < (await charts.count()); place += 1) {
      const chart = charts.nth(place);
      const seen = async () => {
        await chart.evaluate((element) => element.scrollIntoView({ block: "center" }));
        await chart.locator("canvas").waitFor();
        return chart.locator(".u-over").boundingBox();
      };
      const box = await seen();
      const [from, to] = [0.3, 0.7].map((share) => (Math.floor(count * share) + 0.5) * step_s);
      const x = (seconds) => box.x + (seconds / (count * step_s)) * box.width;
      await page.mouse.move(x(from), box.y + 40);
      await page.mouse.down();
      await page.mouse.move(x(to), box.y + 40, { steps: 6 });
      await page.mouse.up();
      await page.mouse.move(2, 2);
      await same(opened, { from, to }, place === 0);
      const again = await seen();
      await page.mouse.dblclick(again.x + again.width / 2, again.y + 40);
      await page.mouse.move(2, 2);
      await same(opened, { from: 0, to: count * step_s }, false);
    }
  });

  check("a finding is looked at with what lies around it", async (opened) => {
    const { page, document, reader } = opened;
    const whole = document.axis.count * document.axis.step_s;
    for (const [place, { from_s, to_s }] of reader.findings.entries()) {
      await page.locator(`#finding-${place + 1} button`, { hasText: "Look at it" }).click();
      await page.mouse.move(2, 2);
      const margin = Math.max((to_s - from_s) / 4, document.axis.step_s * 2);
      // As long as it is with its margins, moved to where there is something.
      const length = Math.min(to_s - from_s + 2 * margin, whole);
      const from = Math.min(Math.max(from_s - margin, 0), whole - length);
      await same(opened, { from, to: from + length }, place === 0);
      await page.keyboard.press("0");
    }
  });
}, (name) => !ALIKE.includes(name));

/** That every panel shows what the reader says of a stretch; without `all` only the head and the charts are asked. */
async function same({ page, document, reader }, stretch, all = true) {
  const { axis } = document;
  const range = pieces(axis, stretch);
  const [length, off] = said(/\(([^()]+)\)$/.exec(await page.locator(".now").textContent())[1]);
  assert.ok(Math.abs(length - (stretch.to - stretch.from)) <= off + axis.step_s * 0.4, `${length} s are looked at, not ${stretch.to - stretch.from}`);
  await charts(page, document, reader, range);
  if (!all) return;
  await path(page, document, reader, stretch, range);
  await whoWaits(page, reader, range);
  await happenings(page, axis, reader, stretch);
}

async function charts(page, document, reader, range) {
  const shown = await page.locator(".chart[data-panel]").evaluateAll((list) =>
    list.map((figure) => [Number(figure.dataset.panel), [...figure.querySelectorAll(".legend b")].map((value) => value.textContent)]),
  );
  for (const [place, values] of shown) {
    const panel = document.panels[place];
    const lanes = expected(document, reader, panel);
    for (const [order, value] of values.entries()) {
      const line = panel.curves[order].role === "line";
      shows(value, (line ? most : last)(lanes[order], range), panel.unit, `${panel.title}, curve ${order}, pieces ${range}`);
    }
  }
}

async function path(page, document, reader, { from, to }, range) {
  for (const [place, queue] of document.path.queues.entries()) {
    const read = reader.queue(queue);
    const { rows } = await queueCard(page, place);
    const rate = queue.unit === "bytes" ? "bytes_per_second" : "per_second";
    tells(rows, "highest level", queue.level, most(read.level, range), queue.unit, `${queue.name}: level`);
    tells(rows, "hard limit", queue.hard_limit, atHighest(read.level, read.hard_limit, range), queue.unit, `${queue.name}: limit`);
    showsFullest(rows.fullest, read.level, heldFrom(queue, read), range, queue.unit, `${queue.name}: fullest`);
    tells(rows, "arrives", queue.inflow, mean(read.inflow, range), rate, `${queue.name}: arrives`);
    tells(rows, "leaves", queue.outflow, mean(read.outflow, range), rate, `${queue.name}: leaves`);
    const own = reader.findings.filter(({ server, from_s, to_s }) => from_s <= to && to_s >= from && (!server || !queue.target || server === queue.target));
    const binds = own.some((finding) => finding.queue === queue.name);
    const kind = await page.locator(`[data-queue="${place}"]`).getAttribute("class");
    assert.equal(/\bbinding\b/.test(kind), binds, `${queue.name} from ${from} to ${to}`);
    assert.equal(/\bvictim\b/.test(kind), !binds && own.some(({ victims }) => victims.includes(queue.name)), `${queue.name} from ${from} to ${to}`);
  }
}

async function whoWaits(page, reader, [first, end]) {
  if (!reader.sessions) return;
  const { looked, lists, slot_pieces } = reader.sessions;
  const slots = [Math.floor(first / slot_pieces), Math.ceil(end / slot_pieces)];
  const by = await page.locator("#by").evaluate((select) => select.selectedOptions[0].textContent);
  const read = sessions(lists[by], looked, slots);
  const rows = await page.locator("#sessions table.tops tbody tr").evaluateAll((list) => list.map((row) => [...row.children].slice(0, 2).map((cell) => cell.textContent)));
  assert.equal(rows.length === 0, read.length === 0);
  for (const [name, value] of rows) {
    if (name !== "others") shows(value, read.find(([known]) => known === name)?.[1] ?? null, "count", `${by}: ${name} in slots ${slots}`, 1e-3);
  }
  const shown = await page.locator("#sessions .legend .item b").allTextContents();
  const sum = shown.reduce((sum, text) => sum + (text === "–" ? 0 : said(text)[0]), 0);
  const wanted = sessions(lists.class, looked, slots).reduce((sum, [, value]) => sum + value, 0);
  assert.ok(Math.abs(sum - wanted) <= 0.006 * (wanted + shown.length), `${sum} sessions by class, not ${wanted}`);
}

async function happenings(page, axis, reader, { from, to }) {
  const whole = from <= 0 && to >= axis.count * axis.step_s;
  const inside = reader.events.filter(({ at_s }) => at_s >= from && at_s <= to);
  const title = await page.locator("#timeline details.card summary").textContent();
  assert.equal(title, `Events ${whole ? "" : "of this stretch "}(${inside.length})`);
  if (!reader.flow) return;
  // What rules did: each began with a decision, and is listed where any of it lies in the stretch.
  const listed = await page.locator("#flow table.deeds tbody tr").count();
  const began = reader.events.filter(({ kind, at_s }) => kind === "decision" && at_s >= from && at_s <= to).length;
  assert.ok(began === 0 || listed > 0, "what a rule did in this stretch is listed");
}
