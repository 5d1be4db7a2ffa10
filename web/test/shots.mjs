// Screenshots to look at: node test/shots.mjs REPORT DIRECTORY
import { mkdirSync } from "node:fs";
import { launch, open } from "./browser.mjs";

const [file, into] = process.argv.slice(2);
mkdirSync(into, { recursive: true });
const browser = await launch();
for (const [name, width, height] of [["desktop", 1440, 900], ["tablet", 834, 1112], ["phone", 390, 844]]) {
  for (const dark of [false, true]) {
    const { page, close } = await open(browser, file, { width, height, dark });
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${into}/${name}-${dark ? "dark" : "light"}.png`, fullPage: true });
    await close();
  }
}
const { page, close } = await open(browser, file);
await page.pdf({ path: `${into}/paper.pdf`, format: "A4" });
await close();
await browser.close();
