// Right at 10 sessions and at 1,000, at a minute and at a day: of the recordings `many` and `day` of crates/backwater/tests/page.
import assert from "node:assert/strict";
import { inaccessible, seeAll } from "./browser.mjs";
import { most, sessions, shows } from "./figures.mjs";
import { checks } from "./harness.mjs";
import { expected } from "./panels.mjs";

const list = (page) =>
  page.locator("#sessions table.tops tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].slice(0, 2).map((cell) => cell.textContent)));

checks((check) => {
  check("a thousand sessions add up, in classes and in every list", async ({ page, reader }) => {
    const { looked, lists } = reader.sessions;
    const whole = [0, looked.length];
    const classes = await page.locator("#sessions .legend .item b").allTextContents();
    const sum = (texts) => texts.reduce((sum, text) => sum + Number(text.replaceAll(",", "")), 0);
    assert.ok(Math.abs(sum(classes) - 1000) < 1, classes.join(" "));
    for (const [place, by] of (await page.locator("#by option").allTextContents()).entries()) {
      await page.locator("#by").selectOption(String(place));
      const rows = await list(page);
      assert.ok(rows.length <= 16, `${by}: ${rows.length} rows`);
      assert.ok(Math.abs(sum(rows.map(([, value]) => value)) - 1000) < 1.5, `${by} adds up to ${sum(rows.map(([, value]) => value))}`);
      const read = new Map(sessions(lists[by], looked, whole));
      const others = rows.find(([name]) => name === "others");
      assert.equal(Boolean(others), read.size > 15, `${by}: ${read.size} names`);
      for (const [name, value] of rows) if (name !== "others") shows(value, read.get(name) ?? null, "count", `${by}: ${name}`);
    }
  });

  check("the lists of a thousand follow the brush to the moment when they wait for a lock", async ({ page, document, reader }) => {
    const { count, step_s } = document.axis;
    const strip = await page.locator(".strip").boundingBox();
    const x = (seconds) => strip.x + 76 + (seconds / (count * step_s)) * (strip.width - 84);
    await page.mouse.move(x(31.5), strip.y + 40);
    await page.mouse.down();
    await page.mouse.move(x(38.5), strip.y + 40, { steps: 4 });
    await page.mouse.up();
    await page.locator("#by").selectOption({ label: "wait event and kernel wait" });
    const [[name, value]] = await list(page);
    assert.deepEqual([name, value], ["Lock:transactionid · do_epoll_wait", "900"]);
    const locked = reader.sessions.lists["wait event and kernel wait"][name];
    assert.equal(locked[35], 900, "as the reader has it");
    await page.locator("#by").selectOption({ label: "application" });
    const rows = await list(page);
    assert.equal(rows.length, 16, "the largest, and all others together");
    shows(rows.find(([name]) => name === "others")[1], 985, "count", "others");
  });

  for (const [width, height, touch] of [[1440, 900, false], [390, 844, true]]) {
    check(`a thousand are readable and accessible at ${width} pixels`, async ({ page }) => {
      await seeAll(page);
      assert.deepEqual(await inaccessible(page), []);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wide, 0);
    }, { width, height, touch });
  }
}, (name) => name === "many");

checks((check) => {
  check("one reading's peak survives a day on the screen, with the reader's value", async ({ page, document, reader }) => {
    const { axis } = document;
    assert.ok(axis.step_s >= 30 && axis.count <= 2880, `a piece is ${axis.step_s} s`);
    const place = document.panels.findIndex((panel) => panel.title.endsWith(": level") && panel.group.startsWith("host.dirty@"));
    const [lane] = expected(document, reader, document.panels[place]);
    const top = most(lane, [0, axis.count]);
    const peak = lane.findIndex((piece) => piece !== null && piece[1] === top);
    const second = Math.max(...lane.map((piece, at) => (piece && at !== peak ? piece[1] : 0)));
    assert.ok(top > 4 * second, `${top} was read once, else at most ${second}`);
    const chart = page.locator(`.chart[data-panel="${place}"]`);
    if ((await chart.count()) === 0) {
      await page.evaluate((place) => document.querySelectorAll(".choice input")[place].click(), place);
    }
    await chart.evaluate((element) => element.scrollIntoView({ block: "center" }));
    await chart.locator("canvas").waitFor();
    shows(await chart.locator(".legend b").first().textContent(), top, "bytes", "the most of the day");
    // The highest coloured dot above the peak's piece, as a share of the plot, and above every other place.
    const heights = await chart.evaluate((figure) => {
      const canvas = figure.querySelector("canvas");
      const [inner, outer] = [figure.querySelector(".u-over").getBoundingClientRect(), canvas.getBoundingClientRect()];
      const [left, up, width, height] = [inner.left - outer.left, inner.top - outer.top, inner.width, inner.height].map(Math.round);
      const { data } = canvas.getContext("2d").getImageData(left, up, width, height);
      const scratch = document.createElement("canvas").getContext("2d");
      scratch.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--line-0").trim();
      scratch.fillRect(0, 0, 1, 1);
      const [red, green, blue] = scratch.getImageData(0, 0, 1, 1).data;
      const near = (at) => Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 90 && data[at + 3] > 120;
      return Array.from({ length: width }, (_, x) => {
        for (let y = 0; y < height; y += 1) if (near(4 * (y * width + x))) return 1 - y / height;
        return 0;
      });
    });
    const at = Math.round(((peak + 0.5) / axis.count) * heights.length);
    const here = Math.max(...heights.slice(at - 2, at + 3));
    const elsewhere = Math.max(...heights.slice(0, at - 4), ...heights.slice(at + 5));
    assert.ok(here > 0.75 && here > 3 * elsewhere, `drawn to ${here} of the plot, elsewhere to ${elsewhere}`);
    // Closer and closer, to a few pieces around it: still there, and told of under the pointer.
    const middle = (peak + 0.5) * axis.step_s;
    await zoomTo(page, axis.count * axis.step_s, middle);
    shows(await chart.locator(".legend b").first().textContent(), top, "bytes", "the most around the peak");
    assert.ok(!(await page.locator(".now").textContent()).startsWith("All of it"));
  });

  check("curves and lists of a day follow the brush", async ({ page, document, reader }) => {
    const { axis } = document;
    const { looked, lists, slot_pieces } = reader.sessions;
    const once = lists.query["SELECT once_a_day()"];
    const [slot] = Object.keys(once).map(Number);
    await page.locator("#by").selectOption({ label: "query" });
    const found = (rows) => rows.find(([name]) => name === "SELECT once_a_day()");
    shows(found(await list(page))[1], sessions(lists.query, looked, [0, looked.length]).find(([name]) => name === "SELECT once_a_day()")[1], "count", "over the day");
    const stretch = await zoomTo(page, axis.count * axis.step_s, (slot + 0.5) * slot_pieces * axis.step_s);
    const slots = [Math.floor(Math.floor(stretch.from / axis.step_s + 1e-9) / slot_pieces), Math.ceil(Math.ceil(stretch.to / axis.step_s - 1e-9) / slot_pieces)];
    const wanted = sessions(lists.query, looked, slots).find(([name]) => name === "SELECT once_a_day()")[1];
    shows(found(await list(page))[1], wanted, "count", "in the minutes around it");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    assert.equal(found(await list(page)), undefined, "an hour later nobody runs it");
  });

  check("every chart of a day shows the reader's most", async ({ page, document, reader }) => {
    const whole = [0, document.axis.count];
    for (const figure of await page.locator(".chart[data-panel]").all()) {
      const panel = document.panels[Number(await figure.getAttribute("data-panel"))];
      const lanes = expected(document, reader, panel);
      for (const [order, text] of (await figure.locator(".legend b").allTextContents()).entries()) {
        if (panel.curves[order].role === "line") shows(text, most(lanes[order], whole), panel.unit, `${panel.title}, curve ${order}`);
      }
    }
  });

  for (const dark of [false, true]) {
    check(`a day is accessible, ${dark ? "dark" : "light"}`, async ({ page }) => {
      await seeAll(page);
      assert.deepEqual(await inaccessible(page), []);
    }, { dark });
  }
}, (name) => name === "day");

/** Zooms by keys, four times, moving so that a moment stays within. Gives the stretch that is looked at then, in seconds. */
async function zoomTo(page, whole, moment) {
  let [from, to] = [0, whole];
  await page.locator("h1").click();
  for (let step = 0; step < 5; step += 1) {
    await page.keyboard.press("+");
    const quarter = (to - from) / 4;
    [from, to] = [from + quarter, to - quarter];
    for (const [key, sign] of [["ArrowLeft", -1], ["ArrowRight", 1]]) {
      while (sign * (moment - (sign < 0 ? from : to)) > 0) {
        const by = Math.min(Math.max((sign * (to - from)) / 4, -from), whole - to);
        [from, to] = [from + by, to + by];
        await page.keyboard.press(key);
      }
    }
  }
  return { from, to };
}
