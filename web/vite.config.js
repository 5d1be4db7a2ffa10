// One script and one style sheet, always of the same names and bytes: the report embeds them and names their hashes.
//
// What package.json names, and why: uplot draws the curves; vite and typescript build; playwright-core and axe-core test in an
// installed browser. Rollup, which vite runs on, is its WebAssembly build, so that one lock file holds on every platform.
import { defineConfig } from "vite";

export default defineConfig({
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    sourcemap: false,
    reportCompressedSize: false,
    lib: { entry: "src/main.ts", formats: ["iife"], name: "backwater", fileName: () => "page.js", cssFileName: "page" },
  },
});
