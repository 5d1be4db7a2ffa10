// A report in a browser: it shows what its document holds, asks nobody for anything, and runs nothing but its own script.
//
// BACKWATER_REPORTS names the reports, parted by colons. They are made by crates/backwater/tests/report.rs.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { basename } from "node:path";
import { browserPath, inaccessible, launch, open } from "./browser.mjs";

const reports = (process.env.BACKWATER_REPORTS ?? "").split(":").filter(Boolean);
assert.ok(reports.length > 0, "BACKWATER_REPORTS names no report");
assert.ok(browserPath(), "no Chromium is installed; set BACKWATER_CHROMIUM");

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

for (const file of reports) {
  const name = basename(file);
  const check = (what, act, options) =>
    test(`${name}: ${what}`, async () => {
      const opened = await open(browser, file, options);
      try {
        await act(opened);
        assert.deepEqual(opened.seen.faults, [], "the console holds no error");
        assert.deepEqual(opened.others(), [], "no request leaves the page");
        assert.deepEqual(opened.seen.dialogs, [], "nothing of the recording ran");
      } finally {
        await opened.close();
      }
    });

  check("every finding is told whole", async ({ page, document }) => {
    assert.equal(await page.locator("article.finding").count(), document.findings.length);
    for (const [place, finding] of document.findings.entries()) {
      const text = await page.locator(`#finding-${place + 1}`).innerText();
      for (const said of [finding.rule, finding.cause, finding.queue, finding.summary]) assert.ok(text.includes(said.trim()), said);
      assert.equal(await page.locator(`#finding-${place + 1} .remedy`).count(), finding.remedies.length);
    }
  });

  check("the path shows the levels of the document", async ({ page, document }) => {
    const { queues } = document.path;
    assert.equal(await page.locator(".flow .queue").count(), queues.length);
    for (const [place, queue] of queues.entries()) {
      if (queue.level === null || queue.unit !== "bytes") continue;
      const highest = Math.max(...known(document.series[queue.level]));
      const shown = bytes(await page.locator(`[data-queue="${place}"] .level`).textContent());
      assert.ok(near(shown, highest), `${queue.name}: ${shown} is not ${highest}`);
    }
  });

  check("a queue tells what it is, by mouse and by key", async ({ page, document }) => {
    if (document.path.queues.length === 0) return;
    await page.locator('[data-queue="0"]').click();
    assert.ok((await page.locator(".detail").innerText()).includes(document.path.queues[0].about));
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".detail .card").count(), 0);
  });

  check("paper shows every chart, in light", async ({ page }) => {
    await page.evaluate(() => {
      const count = () => ({
        charts: document.querySelectorAll(".plot").length,
        drawn: document.querySelectorAll(".plot canvas").length,
        theme: document.documentElement.dataset.theme,
      });
      // After the page's own listener, which was there first.
      addEventListener("beforeprint", () => (window.printed = count()));
    });
    await page.pdf({ format: "A4" });
    const { charts, drawn, theme } = await page.evaluate(() => window.printed);
    assert.ok(drawn >= 1 && drawn === charts, `${drawn} of ${charts} charts are drawn`);
    assert.equal(theme, "light");
  }, { dark: true });

  check("the pointer shows the document's values", async ({ page, document }) => {
    const chart = page.locator(".chart[data-panel]").first();
    if ((await chart.count()) === 0) return;
    const panel = document.panels[Number(await chart.getAttribute("data-panel"))];
    await chart.evaluate((element) => element.scrollIntoView({ block: "center" }));
    const box = await chart.locator(".u-over").boundingBox();
    // Of a long recording several pieces share a pixel: a whole pixel is chosen that is well inside of one.
    const under = (x) => ((x - box.x) / box.width) * document.axis.count;
    let x = Math.round(box.x + box.width * 0.4);
    while (Math.abs((under(x) % 1) - 0.5) > 0.3) x += 1;
    const piece = Math.floor(under(x));
    await page.mouse.move(x, box.y + box.height / 2);
    const shown = await chart.locator(".legend b").allInnerTexts();
    const unit = (text) => (panel.unit === "bytes" || panel.unit === "bytes_per_second" ? bytes(text) : time(text));
    for (const [place, curve] of panel.curves.entries()) {
      const value = values(document.series[curve.series], document.axis.count)[piece];
      if (value === null) assert.equal(shown[place], "–");
      else assert.ok(near(unit(shown[place]), value), `${shown[place]} is not ${value}`);
    }
  });

  check("dragging over a chart looks closer, and a double click goes back", async ({ page, document }) => {
    const chart = page.locator(".chart[data-panel] .u-over").first();
    if ((await chart.count()) === 0 || document.axis.count < 20) return;
    const whole = await page.locator(".now").innerText();
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    await page.mouse.move(box.x + box.width * 0.25, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.75, box.y + 40, { steps: 6 });
    await page.mouse.up();
    const closer = await page.locator(".now").innerText();
    assert.notEqual(closer, whole);
    assert.ok(!closer.startsWith("All of it"));
    await page.mouse.dblclick(box.x + box.width / 2, box.y + 40);
    assert.equal(await page.locator(".now").innerText(), whole);
  });

  check("keys move, zoom and go back", async ({ page, document }) => {
    if (document.axis.count < 20) return;
    const now = () => page.locator(".now").innerText();
    const whole = await now();
    await page.keyboard.press("+");
    const closer = await now();
    assert.notEqual(closer, whole);
    await page.keyboard.press("ArrowRight");
    assert.notEqual(await now(), closer);
    await page.keyboard.press("0");
    assert.equal(await now(), whole);
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    await page.keyboard.press("t");
    assert.equal(await theme(), "dark");
  });

  check("sessions add up to the document's", async ({ page, document }) => {
    const { sessions } = document;
    if (!sessions) return;
    const looked = sessions.looked.filter(Boolean).length;
    const sum = (group) => group.slots.reduce((total, [, value]) => total + value, 0);
    const rows = await page.locator("#sessions table tr").filter({ has: page.locator("td b, td") }).allInnerTexts();
    const largest = sessions.tops[0].groups.filter((group) => group.name !== "others").sort((a, b) => sum(b) - sum(a))[0];
    if (!largest) return;
    const row = rows.find((text) => text.includes(largest.name));
    assert.ok(row, `${largest.name} is listed`);
    const shown = Number(row.slice(row.indexOf(largest.name) + largest.name.length).trim().split(/\s+/)[0].replaceAll(",", ""));
    assert.ok(near(shown, sum(largest) / looked), `${shown} is not ${sum(largest) / looked}`);
  });

  check("flow shows who is held, at what rate, by what", async ({ page, document }) => {
    const { flow } = document;
    if (!flow) return assert.equal(await page.locator("#flow").count(), 0);
    const rows = (table) => page.locator(`#flow table.${table} tbody tr`);
    const text = await page.locator("#flow").innerText();
    if (flow.state) {
      const { held, pools, rules, held_in_all } = flow.state;
      assert.ok(text.includes(held_in_all === 0 ? "nobody is held" : `${held_in_all} session`), text);
      for (const [table, list] of Object.entries({ held, pools, rules })) assert.equal(await rows(table).count(), list.length, table);
      for (const [place, one] of held.entries()) {
        const row = await rows("held").nth(place).innerText();
        for (const said of [one.user, one.pool, one.rule, one.bound_by]) assert.ok(!said || row.includes(said), `${said} in ${row}`);
        const [sent, allowed] = await rows("held").nth(place).locator("td").evaluateAll((cells) => [cells[5], cells[7]].map((cell) => cell.innerText));
        if (one.rate_bps !== null) assert.ok(near(bytes(sent), one.rate_bps), `${sent} is not ${one.rate_bps}`);
        if (one.allowed_bps !== null) assert.ok(near(bytes(allowed.split(" by ")[0]), one.allowed_bps), `${allowed} is not ${one.allowed_bps}`);
      }
    }
    assert.equal(await rows("deeds").count(), Math.min(flow.holds.length, 200));
    // The list follows what is looked at.
    const hold = flow.holds.find(({ to_s }) => to_s !== null && to_s < document.axis.count * document.axis.step_s * 0.55);
    if (!hold || document.axis.count < 40) return;
    const before = await rows("deeds").count();
    for (let step = 0; step < 4; step += 1) await page.keyboard.press("+");
    for (let step = 0; step < 12; step += 1) await page.keyboard.press("ArrowRight");
    assert.ok((await rows("deeds").count()) < before, "what ended before this stretch is not listed");
  });

  check("the lab's table is the document's", async ({ page, document }) => {
    if (!document.lab) return assert.equal(await page.locator("#lab").count(), 0);
    const text = await page.locator("#lab").innerText();
    for (const arm of document.lab.arms) {
      for (const { text: shown } of Object.values(arm.values)) assert.ok(text.includes(shown), shown);
    }
    for (const doubt of document.lab.doubts) assert.ok(text.includes(doubt), doubt);
  });

  for (const dark of [false, true]) {
    check(`accessible, ${dark ? "dark" : "light"}`, async ({ page }) => {
      assert.deepEqual(await inaccessible(page), []);
    }, { dark });
  }

  check("nothing is cut off on a phone", async ({ page }) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(wide, 0);
  }, { width: 390, height: 844, touch: true });
}

/** A series' most, piece by piece. */
function values(series, count) {
  return series.max ?? new Array(count).fill(series.constant ?? null);
}

function known(series) {
  return values(series, 1).filter((value) => value !== null);
}

/** A shown value has three digits. */
function near(shown, value) {
  return Math.abs(shown - value) <= Math.max(Math.abs(value) * 0.006, 0.0051);
}

function bytes(text) {
  const [number, unit] = text.replaceAll(",", "").split(" ");
  const power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].indexOf(unit.replace("/s", ""));
  return Number(number) * 1024 ** power;
}

/** A count, a rate, a share, or microseconds of a length of time. */
function time(text) {
  const number = Number.parseFloat(text.replaceAll(",", ""));
  if (text.endsWith(" %")) return number / 100;
  if (text.endsWith(" min")) return number * 6e7;
  if (text.endsWith(" ms")) return number * 1e3;
  return text.endsWith(" s") ? number * 1e6 : number;
}
