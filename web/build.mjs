// Builds the page: one script, one style sheet, and what is taken as it is. Argument: the folder, dist unless named.

import { copyFile, mkdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, "dist"));
const licence = await readFile(path.join(here, "node_modules/d3-hierarchy/LICENSE"), "utf8");

await mkdir(out, { recursive: true });
await esbuild.build({
    absWorkingDir: here,
    entryPoints: { app: "src/main.ts" },
    outdir: out,
    bundle: true,
    minify: true,
    charset: "utf8",
    format: "iife",
    target: ["es2021"],
    banner: { js: `/* Holds d3-hierarchy.\n\n${licence.trim()}\n*/` },
});
await esbuild.build({
    absWorkingDir: here,
    entryPoints: { app: "src/style.css" },
    outdir: out,
    minify: true,
    charset: "utf8",
    target: ["chrome111", "firefox113", "safari16.2"],
});
for (const name of ["index.html", "icon.svg"]) {
    await copyFile(path.join(here, "src", name), path.join(out, name));
}
