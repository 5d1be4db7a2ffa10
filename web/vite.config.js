// One script and one style sheet, always of the same names and bytes: the report embeds them and names their hashes.
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
