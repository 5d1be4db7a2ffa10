// How long a report takes in a browser: node test/speed.mjs REPORT…
//
// For each the size, the time from opening it until the browser is idle and takes keys (the median of five), and the longest and the
// median frame while zooming in and out twenty times.
import { statSync } from "node:fs";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./browser.mjs";

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const browser = await launch();
for (const file of process.argv.slice(2)) {
  const readies = [];
  let frames = [];
  for (let run = 0; run < 5; run += 1) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    const page = await context.newPage();
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector("footer");
    readies.push(await page.evaluate(() => new Promise((done) => requestIdleCallback(() => done(performance.now())))));
    if (run === 4) {
      frames = await page.evaluate(async () => {
        const lengths = [];
        const frame = () => new Promise((done) => requestAnimationFrame(done));
        document.getElementById("timeline").scrollIntoView();
        await frame();
        let last = await frame();
        for (let step = 0; step < 20; step += 1) {
          dispatchEvent(new KeyboardEvent("keydown", { key: step % 10 < 5 ? "+" : "-" }));
          const now = await frame();
          lengths.push(now - last);
          last = now;
        }
        return lengths;
      });
    }
    await context.close();
  }
  const size = (statSync(file).size / 1048576).toFixed(2);
  console.log(`${basename(file)}: ${size} MiB, ready after ${median(readies).toFixed(0)} ms (${Math.min(...readies).toFixed(0)} to ${Math.max(...readies).toFixed(0)}); zooming: a frame ${median(frames).toFixed(0)} ms, at most ${Math.max(...frames).toFixed(0)} ms`);
}
await browser.close();
