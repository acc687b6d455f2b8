// A real `onesweep serve --http` over ext4 in an image file, and a browser that looks at it. All is taken down at the end,
// also when a test fails; a killed run is cleared away by the next run of the program's tests.

import { execFileSync, spawn } from "node:child_process";
import { chmodSync, closeSync, mkdirSync, openSync, rmSync, truncateSync, writeFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import os from "node:os";
import path from "node:path";
import { chromium } from "playwright-core";

const workspace = fileURLToPath(new URL("../..", import.meta.url));
const target = process.env.CARGO_TARGET_DIR ?? path.join(workspace, "target");
const program = process.env.ONESWEEP_TEST_BIN ?? path.join(target, "debug/onesweep");
export const NOBODY = 65534;
const BLOCK = 4096;
let images = 0;

function run(command, ...words) {
    return execFileSync(command, words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

/** An empty ext4, mounted, with as many inodes as are asked for, or usual; `close` takes it down. */
export function image(megabytes, inodes = 0) {
    const base = process.env.ONESWEEP_TEST_DIR ?? os.tmpdir();
    mkdirSync(base, { recursive: true });
    // As the program's own tests name theirs, whose next run clears away what a killed one left.
    const folder = path.join(base, `onesweep-test-${process.pid}-${images++}`);
    mkdirSync(folder);
    chmodSync(folder, 0o755);
    const [file, root] = [path.join(folder, "disk.img"), path.join(folder, "root")];
    let isMounted = false;
    const close = () => {
        if (isMounted) run("umount", root);
        isMounted = false;
        rmSync(file, { force: true });
        rmSync(root, { recursive: true, force: true });
        rmSync(folder, { recursive: true, force: true });
    };
    process.on("exit", () => close());
    const mount = () => {
        run("mount", "-o", "loop,noatime", file, root);
        isMounted = true;
    };
    /** Makes the content of a directory unreadable: its first block is no directory any more. */
    const damage = (name) => {
        run("umount", root);
        isMounted = false;
        const block = Number(run("debugfs", "-R", `blocks /${name}`, file).trim().split(" ")[0]);
        const disk = openSync(file, "r+");
        writeSync(disk, Buffer.alloc(BLOCK, 0xff), 0, BLOCK, block * BLOCK);
        closeSync(disk);
        mount();
    };
    writeFileSync(file, "");
    truncateSync(file, megabytes * 2 ** 20);
    const number = inodes ? ["-N", String(inodes)] : [];
    run("mkfs.ext4", "-q", "-b", String(BLOCK), ...number, "-E", "lazy_itable_init=1,lazy_journal_init=1", file);
    mkdirSync(root);
    mount();
    chmodSync(root, 0o755);
    return { root, folder, damage, close };
}

/** Makes a file of so many KiB, and the directories above it. */
export function fill(root, name, kib) {
    const file = path.join(root, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, Buffer.alloc(kib << 10, 1));
}

/** A server over an image, and a token of a user; `summaries` is the text of a file that declares some. Of one that `isTimed` nobody tells what changes. */
export async function serve({ root, folder, isTimed }, summaries = "", options = []) {
    const tokens = path.join(folder, "tokens");
    const token = (uid) => run(program, "serve", "--http-tokens", tokens, "--new-token", String(uid)).trim();
    const [mine, nobodys] = [token(0), token(NOBODY)];
    const words = ["--socket", path.join(folder, "socket"), "--store", path.join(folder, "stores"), "--http", "127.0.0.1:0"];
    const declared = path.join(folder, "summaries.toml");
    writeFileSync(declared, summaries, { mode: 0o644 });
    words.push("--summaries", declared);
    const serving = spawn(program, ["serve", ...words, ...options, "--http-tokens", tokens, ...(isTimed ? ["--timed"] : []), root], { stdio: ["ignore", "ignore", "pipe"] });
    const ended = new Promise((done) => serving.once("exit", done));
    const close = async () => {
        serving.kill("SIGTERM");
        await ended;
    };
    process.on("exit", () => serving.kill("SIGKILL"));
    const said = [];
    let url;
    for await (const line of createInterface({ input: serving.stderr })) {
        said.push(line);
        url ??= /listening at (http:\S+)/.exec(line)?.[1];
        if (url && line.includes(" directories harvested in ")) {
            serving.stderr.resume();
            return { url, root: mine, nobody: nobodys, close };
        }
    }
    throw new Error(`the server ended: ${said.join("\n")}`);
}

/** Chromium, which as root has no sandbox to run in. */
export function browser() {
    const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
    return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
}
