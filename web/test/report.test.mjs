// A report in a browser: every panel shows what the recording holds, by the recording's own reader; the page asks nobody for anything,
// and runs nothing but its own script.
//
// BACKWATER_REPORTS names the reports, parted by colons. Beside each X.html lies X.reader.json: what the reader says. Both are made by
// crates/backwater/tests/report.rs. How brush and zoom change what is shown is in brush.test.mjs.
import assert from "node:assert/strict";
import { atHighest, heldFrom, last, mean, most, said, sessions, shows, showsFullest, tells } from "./figures.mjs";
import { checks } from "./harness.mjs";
import { inaccessible, seeAll } from "./browser.mjs";
import { drawAll, eventually, expected, hover, queueCard } from "./panels.mjs";

checks((check) => {
  check("every finding is told whole, in its finder's words and figures", async ({ page, reader }) => {
    assert.equal(await page.locator("article.finding").count(), reader.findings.length);
    for (const [place, finding] of reader.findings.entries()) {
      const card = page.locator(`#finding-${place + 1}`);
      await card.evaluate((element) => element.querySelectorAll("details").forEach((details) => (details.open = true)));
      const text = await card.textContent();
      const words = [finding.rule, finding.cause, finding.queue, finding.summary, ...finding.victims];
      const others = [...finding.ruled_out.flatMap(({ cause, because }) => [cause, because]), ...finding.unseen.flatMap(({ what, why }) => [what, why])];
      for (const word of [...words, ...others]) assert.ok(text.includes(word), `${finding.rule}: ${word}`);
      if (finding.lost !== null) assert.ok(text.includes(`Foreground time lost: ${finding.lost}`), finding.lost);
      const rows = await card.locator(".figures tr").evaluateAll((list) => list.map((row) => [row.querySelector("th").textContent, row.querySelector("td").textContent]));
      for (const figure of [...finding.shown, ...finding.predicted.flat()]) {
        assert.ok(rows.some(([label, value]) => label === figure[0] && value === figure[1]), `${finding.rule}: ${figure.join(": ")}`);
      }
      assert.equal(await card.locator(".remedy").count(), finding.remedies.length);
    }
  });

  check("what is no longer read is said before the findings", async ({ page, document }) => {
    const said = await page.locator("#findings .failing").allTextContents();
    assert.deepEqual(said, document.failing.map((text) => `▲ ${text}`));
    const kinds = await page.locator("#findings .failing, #findings article.finding").evaluateAll((list) => list.map((one) => one.tagName));
    assert.deepEqual(kinds, [...kinds].sort().reverse(), "paragraphs, then articles");
  });

  check("each copy button copies its commands, whole", async ({ page, reader }) => {
    const wanted = reader.findings.flatMap(({ remedies, unseen }) => [
      ...remedies.flatMap(({ runtime, persistent, undo }) => [runtime, persistent, undo]).filter((list) => list.length > 0),
      ...unseen.flatMap(({ remedy }) => (remedy ? [[remedy]] : [])),
    ]);
    await page.evaluate(() => document.querySelectorAll("#findings details").forEach((details) => (details.open = true)));
    const buttons = page.locator("article.finding button.copy");
    assert.equal(await buttons.count(), wanted.length);
    for (const [place, commands] of wanted.entries()) {
      await buttons.nth(place).click();
      await page.waitForFunction((place) => document.querySelectorAll("article.finding button.copy")[place].textContent === "Copied", place);
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), commands.join("\n"));
    }
  }, { clipboard: true });

  check("where nothing may be copied the commands are selected", async ({ page }) => {
    const button = page.locator("article.finding button.copy").first();
    if ((await button.count()) === 0) return;
    // As a browser that refuses does.
    await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: { writeText: () => Promise.reject(new Error("refused")) } }));
    await button.click();
    await page.waitForFunction(() => document.querySelector("article.finding button.copy").textContent.startsWith("Selected"));
    const [chosen, text] = await page.evaluate(() => [getSelection().toString(), document.querySelector("article.finding .commands code").textContent]);
    assert.equal(chosen.trim(), text.trim());
  });

  check("the path shows each queue's level, limits and flows", async ({ page, document, reader }) => {
    const { queues } = document.path;
    assert.equal(await page.locator(".flow .queue").count(), queues.length);
    const whole = [0, document.axis.count];
    let summed = 0;
    for (const [place, queue] of queues.entries()) {
      const read = reader.queue(queue);
      const level = await page.locator(`[data-queue="${place}"] .level`).textContent();
      if (most(read.level, whole) === null) assert.equal(level, "not counted", queue.name);
      else shows(level.replace(/^at least /, ""), most(read.level, whole), queue.unit, `${queue.name}: level`);
      assert.equal(level.startsWith("at least "), read.at_least, `${queue.name}: ${level}`);
      const moves = await page.locator(`[data-queue="${place}"] .move`).allTextContents();
      if (moves.length > 0 || read.inflow.some(Boolean) || read.outflow.some(Boolean)) {
        const [inward, outward] = moves.map((text) => text.replace(/^(in|out) (≥ )?/, ""));
        for (const text of moves) assert.equal(text.includes("≥"), read.at_least && /\d/.test(text), `${queue.name}: ${text}`);
        const rate = queue.unit === "bytes" ? "bytes_per_second" : "per_second";
        shows(inward, mean(read.inflow, whole), rate, `${queue.name}: in`);
        shows(outward, mean(read.outflow, whole), rate, `${queue.name}: out`);
      }
      const card = await queueCard(page, place);
      assert.ok(card.text.includes(queue.about), queue.name);
      const rate = queue.unit === "bytes" ? "bytes_per_second" : "per_second";
      tells(card.rows, "highest level", queue.level, most(read.level, whole), queue.unit, `${queue.name}: highest`);
      tells(card.rows, "mean level", queue.level, mean(read.level, whole), queue.unit, `${queue.name}: mean`);
      tells(card.rows, "hard limit", queue.hard_limit, atHighest(read.level, read.hard_limit, whole), queue.unit, `${queue.name}: limit`);
      const bound = heldFrom(queue, read);
      const paused = queue.held_midway && bound ? queue.hard_limit : null;
      tells(card.rows, "writers are paused from", paused, paused === null ? null : atHighest(read.level, bound, whole), queue.unit, `${queue.name}: paused from`);
      tells(card.rows, "arrives", queue.inflow, mean(read.inflow, whole), rate, `${queue.name}: arrives`);
      tells(card.rows, "leaves", queue.outflow, mean(read.outflow, whole), rate, `${queue.name}: leaves`);
      showsFullest(card.rows.fullest, read.level, bound, whole, queue.unit, `${queue.name}: fullest`);
      // What arrived in all, by the counter's own readings: also what came in one leap.
      for (const [row, grown] of [["arrives", read.arrived], ["leaves", read.left]]) {
        if (grown === null) continue;
        const [growth, seconds] = grown;
        const [shown, off] = said(card.rows[row].replace(/^at least /, ""));
        assert.ok(Math.abs(shown * seconds - growth) <= off * seconds + growth * 0.001, `${queue.name} ${row}: ${card.rows[row]} for ${seconds} s is not ${growth}`);
        summed += 1;
      }
    }
    assert.ok(summed > 0 || reader.lab?.scenario !== "stampede", "no flow was summed up");
  });

  check("where nothing was read that is told, and not that it is never counted", async ({ page, document, reader }) => {
    const { queues } = document.path;
    const read = queues.map((queue) => reader.queue(queue));
    const place = read.findIndex(({ level }) => level.includes(null) && level.some((piece) => piece !== null));
    if (place < 0) return;
    const gap = read[place].level.indexOf(null);
    await eventually(async () => {
      await hover(page, page.locator(".chart[data-panel]").first(), gap, document.axis.count);
      assert.equal(await page.locator(`[data-queue="${place}"] .level`).textContent(), "not read here");
    });
    for (const [order, queue] of queues.entries()) {
      const box = page.locator(`[data-queue="${order}"]`);
      const level = await box.locator(".level").textContent();
      if (read[order].level[gap] === null) assert.equal(level, queue.level === null ? "not counted" : "not read here", queue.name);
      const bound = queue.hard_limit !== null && read[order].hard_limit[gap] === null;
      const limits = await box.locator(".limit").allTextContents();
      if (bound) assert.ok(!limits.includes("no limit of its own"), `${queue.name}: ${limits}`);
    }
  });

  check("what moves WAL to standbys is told with its shares, rates and ceilings", async ({ page, reader }) => {
    await page.evaluate(() => document.querySelectorAll("#path details").forEach((details) => (details.open = true)));
    const rows = await page.locator("#path .stages tbody tr").evaluateAll((list) => list.map((row) => [...row.children].map((cell) => cell.textContent)));
    assert.equal(rows.length, reader.stages.length);
    for (const [place, { name, shares, rate_per_s, ceiling, resource }] of reader.stages.entries()) {
      const [shown, busy, blocked, starved, moves, most, needs] = rows[place];
      assert.deepEqual([shown, needs], [name, resource ?? "–"]);
      for (const [text, share] of [[busy, shares.busy], [blocked, shares.blocked], [starved, shares.starved]]) shows(text, share, "ratio", name);
      shows(moves, rate_per_s, "bytes_per_second", `${name} moves`);
      shows(most, ceiling?.per_second ?? null, ceiling?.unit, `${name}: ceiling`);
    }
  });

  check("what binds and what it holds up are marked, by the findings", async ({ page, document, reader }) => {
    for (const [place, queue] of document.path.queues.entries()) {
      const own = reader.findings.filter(({ server }) => !server || !queue.target || server === queue.target);
      const binds = own.some((finding) => finding.queue === queue.name);
      const heldUp = !binds && own.some(({ victims }) => victims.includes(queue.name));
      const kind = await page.locator(`[data-queue="${place}"]`).getAttribute("class");
      assert.equal(/\bbinding\b/.test(kind), binds, `${queue.name}: ${kind}`);
      assert.equal(/\bvictim\b/.test(kind), heldUp, `${queue.name}: ${kind}`);
    }
  });

  check("a queue tells what it is, by mouse and by key, and shows its curves", async ({ page, document }) => {
    if (document.path.queues.length === 0) return;
    for (const act of [(queue) => queue.click(), (queue) => queue.press("Enter")]) {
      const queue = page.locator('[data-queue="0"]');
      await act(queue);
      assert.ok((await page.locator(".detail").innerText()).includes(document.path.queues[0].about));
      await act(queue);
      assert.equal(await page.locator(".detail .card").count(), 0);
    }
    for (const [place, queue] of document.path.queues.entries()) {
      await page.locator(`[data-queue="${place}"]`).press("Enter");
      const show = page.locator(".detail button", { hasText: "Show its curves" });
      assert.equal(await show.count(), queue.panels.length > 0 ? 1 : 0, queue.name);
      if (queue.panels.length === 0) continue;
      await show.click();
      for (const panel of queue.panels) assert.equal(await page.locator(`.chart[data-panel="${panel}"]`).count(), 1, queue.name);
      const first = page.locator(`.chart[data-panel="${queue.panels[0]}"]`);
      await first.locator("canvas").waitFor();
      assert.ok(await first.evaluate((element) => element.getBoundingClientRect().top < innerHeight), `${queue.name}: its curves are on the screen`);
    }
  });

  check("every chart shows the reader's values under the pointer, and the most of what is seen", async ({ page, document, reader }) => {
    await drawAll(page);
    const { count } = document.axis;
    let compared = 0;
    for (const [place, panel] of document.panels.entries()) {
      const chart = page.locator(`.chart[data-panel="${place}"]`);
      const lanes = expected(document, reader, panel);
      const values = () => chart.locator(".legend b").allTextContents();
      await page.mouse.move(2, 2);
      for (const [order, shown] of (await values()).entries()) {
        const line = panel.curves[order].role === "line";
        shows(shown, (line ? most : last)(lanes[order], [0, count]), panel.unit, `${panel.title}, curve ${order}`);
      }
      const lead = lanes[0];
      const peak = lead.findIndex((piece) => piece !== null && piece[1] === most(lead, [0, count]));
      for (const piece of new Set([peak, Math.floor(count * 0.37), lead.indexOf(null)])) {
        if (piece < 0) continue;
        await eventually(async () => {
          await hover(page, chart, piece, count);
          for (const [order, shown] of (await values()).entries()) {
            shows(shown, lanes[order][piece]?.[1] ?? null, panel.unit, `${panel.title}, curve ${order} at piece ${piece}`);
          }
        });
        compared += lanes.length;
      }
    }
    assert.ok(compared >= document.panels.length, `${compared} values`);
  });

  check("no curve that was read is missing", async ({ document, reader }) => {
    const there = new Set(document.panels.flatMap((panel) => panel.curves.map(({ series }) => `${panel.title} / ${document.series[series].label}`)));
    for (const name of Object.keys(reader.curves)) assert.ok(there.has(name), name);
  });

  check("findings are bands and events are marks, where they belong", async ({ page, document, reader }) => {
    const { step_s, count } = document.axis;
    const seconds = count * step_s;
    const plots = page.locator(".chart[data-panel]");
    for (let place = 0; place < Math.min(await plots.count(), 3); place += 1) {
      await plots.nth(place).evaluate((element) => element.scrollIntoView({ block: "center" }));
      await plots.nth(place).locator("canvas").waitFor();
      const seen = await plots.nth(place).evaluate((figure) => {
        const canvas = figure.querySelector("canvas");
        const [inner, outer] = [figure.querySelector(".u-over").getBoundingClientRect(), canvas.getBoundingClientRect()];
        const style = getComputedStyle(document.documentElement);
        const colour = (name) => asDrawn(style.getPropertyValue(`--${name}`).trim());
        const names = ["band-critical", "band-warning", "band-info", "event", "faint"];
        return { deeds: drawnOn(canvas), left: inner.left - outer.left, width: inner.width, colours: Object.fromEntries(names.map((name) => [name, colour(name)])) };
      });
      const x = (at) => seen.left + (Math.min(Math.max(at, 0), seconds) / seconds) * seen.width;
      const near = (a, b) => Math.abs(a - b) <= 1.6;
      for (const finding of reader.findings) {
        const [from, to] = [x(finding.from_s), x(finding.to_s)];
        if (to <= from) continue;
        const band = (deed) => deed.kind === "box" && deed.colour === seen.colours[`band-${finding.severity}`] && near(deed.x, from) && near(deed.x + deed.width, to);
        assert.ok(seen.deeds.some(band), `${finding.rule} from ${finding.from_s} s to ${finding.to_s} s`);
      }
      const through = ({ kind }) => ["restart", "setting", "decision", "gap"].includes(kind);
      for (const event of reader.events) {
        if (event.kind === "mark" || event.at_s > seconds) continue;
        const line = (deed) => deed.kind === "line" && deed.from[0] === deed.to[0] && deed.colour === seen.colours[through(event) ? "event" : "faint"] && near(deed.to[0], x(event.at_s));
        const alike = reader.events.filter((other) => other.at_s === event.at_s && other.kind !== "mark" && through(other) === through(event));
        assert.ok(seen.deeds.filter(line).length >= alike.length, `${event.kind} at ${event.at_s} s`);
      }
    }
    const strip = await page.locator(".strip").evaluate((svg) => [...svg.querySelectorAll(".band")].map((band) => ["x", "width"].map((name) => Number(band.getAttribute(name)))));
    assert.equal(strip.length, reader.findings.length, "on the strip");
  });

  check("sessions by class and every list are the reader's", async ({ page, reader }) => {
    if (!reader.sessions) return;
    const { looked, lists } = reader.sessions;
    const whole = [0, looked.length];
    await page.locator("#sessions").evaluate((element) => element.scrollIntoView());
    const classes = await page.locator("#sessions .legend .item").evaluateAll((list) => list.filter((item) => item.querySelector("b")).map((item) => [item.childNodes[1].textContent.trim(), item.querySelector("b").textContent]));
    const read = sessions(lists.class, looked, whole);
    assert.equal(classes.length, read.length);
    for (const [name, value] of read) shows(classes.find(([shown]) => shown === name.trim())?.[1] ?? "–", value, "count", name, 1e-3);
    const all = read.reduce((sum, [, value]) => sum + value, 0);
    const choices = await page.locator("#by option").allTextContents();
    assert.ok(choices.includes("wait event and kernel wait"), "kernel waits stand beside the server's");
    for (const [place, by] of choices.entries()) {
      await page.locator("#by").selectOption(String(place));
      const rows = await page.locator("#sessions table.tops tbody tr").evaluateAll((list) => list.map((row) => [...row.children].slice(0, 3).map((cell) => cell.textContent)));
      const named = new Map(sessions(lists[by], looked, whole));
      let listed = 0;
      for (const [name, shown, share] of rows) {
        const value = name === "others" ? all - listed : named.get(name);
        assert.ok(value !== undefined, `${by}: ${name} was not read`);
        listed += value;
        if (name === "others") continue;
        // Sessions of a slot are written with three digits behind the point.
        shows(shown, value, "count", `${by}: ${name}`, 1e-3);
        shows(share, value / all, "ratio", `${by}: share of ${name}`, 1e-3);
      }
      const largest = [...named][0];
      if (largest) assert.ok(rows.some(([name]) => name === largest[0]), `${by}: ${largest[0]}`);
    }
  });

  check("events are those of the recording", async ({ page, reader }) => {
    await page.locator("#timeline details.card summary").click();
    assert.ok((await page.locator("#timeline details.card summary").textContent()).includes(`(${reader.events.length})`));
    const rows = await page.locator("#timeline table.events tr").evaluateAll((list) => list.map((row) => [...row.children].map((cell) => cell.textContent)));
    assert.equal(rows.length, Math.min(reader.events.length, 200));
    if (reader.events.length > 200) return;
    // Of one moment in any order.
    const sorted = (list) => list.map((words) => words.join("\n")).sort();
    const time = (at_s) => new Date(reader.from_unix_ms + at_s * 1e3).toISOString().slice(11, 19);
    const read = reader.events.map(({ at_s, source, message }) => [time(at_s), source, message]);
    assert.deepEqual(sorted(rows.map(([at, , source, message]) => [at, source, message])), sorted(read));
  });

  check("flow shows who is held, at what rate, by what", async ({ page, reader }) => {
    const { flow } = reader;
    const decided = reader.events.some(({ kind }) => kind === "decision");
    if (!flow) return assert.equal(await page.locator("#flow").count(), decided ? 1 : 0);
    const rows = (table) => page.locator(`#flow table.${table} tbody tr`);
    const text = await page.locator("#flow").textContent();
    const { held, pools, rules, held_in_all } = flow;
    assert.ok(text.includes(held_in_all === 0 ? "nobody is held" : `${held_in_all} session`), text);
    for (const [table, list] of Object.entries({ held, pools, rules })) assert.equal(await rows(table).count(), list.length, table);
    for (const [place, one] of held.entries()) {
      const row = await rows("held").nth(place).textContent();
      for (const word of [one.user, one.pool, one.rule, one.bound_by]) assert.ok(!word || row.includes(word), `${word} in ${row}`);
      const cells = await rows("held").nth(place).locator("td").allTextContents();
      shows(cells[5], one.rate_bps, "bytes_per_second", "is sent");
      shows(cells[6], one.sent_bytes, "bytes", "so far");
      shows(cells[7].split(" by ")[0], one.allowed_bps, "bytes_per_second", "may be sent");
    }
  });

  check("the lab's tables are the outcome's", async ({ page, document, reader }) => {
    const { lab } = reader;
    if (!lab) return assert.equal(await page.locator("#lab").count(), 0);
    const text = await page.locator("#lab").textContent();
    for (const doubt of lab.doubts) assert.ok(text.includes(doubt), doubt);
    const table = page.locator("#lab table").filter({ has: page.locator("thead th", { hasText: /^metric$/ }) });
    const heads = await table.locator("thead th").allTextContents();
    assert.deepEqual(heads.slice(1), lab.arms.map(({ name }) => name));
    const rows = await table.locator("tbody tr").evaluateAll((list) => list.map((row) => [...row.children].map((cell) => cell.textContent)));
    let compared = 0;
    for (const [row, [label, ...cells]] of rows.entries()) {
      const { name } = document.lab.metrics[row];
      assert.equal(label, document.lab.metrics[row].label);
      for (const [place, cell] of cells.entries()) {
        const arm = lab.arms[place];
        const value = arm.metrics[name];
        if (value === undefined) {
          assert.equal(cell, "–", `${arm.name}: ${name}`);
          continue;
        }
        measured(cell, name, value, arm.repeats > 1 ? arm.spread[name] : undefined);
        compared += 1;
      }
    }
    const all = lab.arms.reduce((sum, { metrics }) => sum + Object.keys(metrics).length, 0);
    assert.equal(compared, all, "every metric of every arm");
    const arms = page.locator("#lab table.words").last().locator("tbody tr");
    for (const [place, arm] of lab.arms.entries()) assert.ok((await arms.nth(place).textContent()).includes(arm.expected.met ? "✓ yes" : "✗ no"), arm.name);
  });

  check("what is watched is told as it was recorded", async ({ page, document, reader }) => {
    assert.equal(document.axis.from_unix_ms, reader.from_unix_ms);
    const shown = await page.locator("header .hint").first().textContent();
    const [length, off] = said(/; (.+) recorded/.exec(shown)[1]);
    assert.ok(Math.abs(length - reader.seconds) <= off + 0.001 * reader.seconds, shown);
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

  check("paper holds commands, rules and tables whole: none waits to be scrolled", async ({ page }) => {
    await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
    await page.emulateMedia({ media: "print" });
    // A4 without its margins.
    await page.setViewportSize({ width: 718, height: 1040 });
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    const cut = await page.evaluate(() => {
      const hidden = ({ scrollWidth, clientWidth, scrollHeight, clientHeight }) => scrollWidth > clientWidth + 1 || scrollHeight > clientHeight + 1;
      const shown = [...document.querySelectorAll("pre, .scroll")].filter((element) => element.getClientRects().length > 0);
      return shown.filter(hidden).map((element) => `${element.tagName}.${element.className}: ${element.textContent.slice(0, 60)}`);
    });
    assert.deepEqual(cut, []);
    // A finding that is longer than a sheet begins on the sheet that is begun.
    const kept = await page.locator("article.finding").evaluateAll((list) => list.map((one) => getComputedStyle(one).breakInside));
    assert.ok(kept.every((value) => value === "auto"), `${kept}`);
  });

  for (const dark of [false, true]) {
    check(`accessible, ${dark ? "dark" : "light"}, with every chart drawn and everything unfolded`, async ({ page }) => {
      await drawAll(page);
      await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
      await seeAll(page);
      const queue = page.locator(".flow .queue").first();
      if (await queue.count()) await queue.click();
      assert.deepEqual(await inaccessible(page), []);
    }, { dark });
  }

  check("nothing is cut off on a phone", async ({ page }) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(wide, 0);
  }, { width: 390, height: 844, touch: true });
});

/** That a cell shows a metric: its median, and the least and the most of its repeats. */
function measured(cell, name, value, spread) {
  const [, median, , low, high] = /^([^(]+?)( \((.+) – (.+)\))?$/.exec(cell) ?? [];
  assert.ok(median, `${name}: '${cell}'`);
  assert.equal(spread === undefined, low === undefined, `${name}: ${cell} has a spread`);
  const unit = median.replace(/^-?[\d,.]+ ?/, "");
  const base = /_ms$/.test(name) ? 1e-3 : /_us$/.test(name) ? 1e-6 : 1;
  const one = (text, wanted) => {
    // `11.0 – 13.0`: both have the median's unit. KB and MB are shown as they are measured.
    const whole = /[^\d,.-]/.test(text) ? text : `${text} ${unit}`;
    const plain = whole.replace(/ [KM]B(\/s)?$/, "").replace(/^× /, "").trim();
    const [shown, off] = said(plain);
    assert.ok(Math.abs(shown - wanted * base) <= off + 1e-9, `${name}: ${text} is shown, ${wanted} was measured`);
  };
  one(median, value);
  if (spread) [[low, spread[0]], [high, spread[1]]].forEach(([text, wanted]) => one(text, wanted));
}
