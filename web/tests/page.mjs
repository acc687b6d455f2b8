// The page in headless Chromium, before a real server over a real file system.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, rmSync } from "node:fs";
import { after, before, test as nodeTest } from "node:test";
import { NOBODY, browser, fill, image, serve } from "./server.mjs";

const MANY = 260;
/** Half of them in one directory, and a thousand in each of others. */
const VERY_MANY = process.env.ONESWEEP_TEST_LONG ? 1_000_000 : 20_000;
const isRoot = process.getuid() === 0;
if (!isRoot) console.log("skipped: web: needs root");
let disk, server, chromium;

function test(name, body) {
    nodeTest(name, { skip: !isRoot }, body);
}

before(async () => {
    if (!isRoot) return;
    disk = image(512);
    for (const [name, kib] of [["large", 9000], ["middle", 4000], ["small", 800], ["private", 600], ["mixed/open", 300]]) {
        fill(disk.root, `${name}/inner/file`, kib);
    }
    fill(disk.root, "mixed/closed/file", 200);
    fill(disk.root, "alone", 700);
    fill(disk.root, "odd <b>&amp; 100% #?+/file", 120);
    // A name that isn't UTF-8.
    mkdirSync(Buffer.concat([Buffer.from(`${disk.root}/bytes-`), Buffer.from([0xff, 0x0a])]));
    for (let number = 0; number < MANY; number++) fill(disk.root, `many/d${number}/file`, 4 + (number % 40));
    for (const hidden of ["private", "mixed/closed"]) chmodSync(`${disk.root}/${hidden}`, 0o700);
    server = await serve(disk);
    chromium = await browser();
});

after(async () => {
    await chromium?.close();
    await server?.close();
    disk?.close();
});

/** A page that has asked nobody but the server, in no address named the token, and complained of nothing. */
async function open(token, options = {}, address = "", at = server) {
    const context = await chromium.newContext({ viewport: { width: 1360, height: 800 }, reducedMotion: "reduce", ...options });
    // What a million directories take without optimisation.
    if (process.env.ONESWEEP_TEST_LONG) context.setDefaultTimeout(300_000);
    const page = await context.newPage();
    const complaints = [];
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("console", (line) => complaints.push(line.text()));
    page.on("request", (request) => {
        const url = request.url();
        if (!url.startsWith(at.url) || (token && url.includes(token))) complaints.push(url);
    });
    await page.goto(at.url);
    if (token) await page.goto(`${at.url}#token=${token}`);
    if (token) await page.getByRole("table").waitFor();
    if (address) await page.goto(`${at.url}#${address}`);
    return { page, complaints, close: () => context.close() };
}

const heading = (page, name) => page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
const row = (page, name) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name }) });
const focused = (page) => page.evaluate(() => document.activeElement?.textContent ?? "");

/** Inodes as GNU du counts them. */
function inodes(path) {
    return execFileSync("du", ["-s", "--inodes", path], { encoding: "utf8" }).split("\t")[0];
}

test("opening shows the largest first, on screen and to a reader, and keeps the token to itself", async () => {
    const { page, complaints, close } = await open(server.root);
    await heading(page, "root");
    assert.equal(await page.evaluate(() => location.hash), `#${disk.root}`);
    assert.equal(await page.locator(".facts").getAttribute("data-inodes"), inodes(disk.root));
    const names = await page.getByRole("rowheader").allTextContents();
    assert.deepEqual(names.slice(0, 5), ["large", "many", "middle", "small", "1 file here"]);
    const tiles = await page.locator(".tile").all();
    assert.equal(tiles.length, names.length);
    const [first, last] = [await tiles[0].boundingBox(), await page.locator(".tile", { hasText: "small" }).boundingBox()];
    assert.ok(first.width * first.height > 8 * last.width * last.height, "by size");
    const columns = await page.getByRole("columnheader").allTextContents();
    assert.deepEqual(columns, ["Name", "On disk", "Share", "Entries", "Changed"]);
    await page.reload();
    await heading(page, "root");
    assert.deepEqual(complaints, []);
    await close();
});

test("a directory is entered by a click, and the browser goes back and forward", async () => {
    const { page, complaints, close } = await open(server.root);
    await page.locator("a.tile", { hasText: "large" }).click();
    await heading(page, "large");
    assert.deepEqual(await page.locator("nav li").allTextContents(), [disk.root, "large"]);
    await page.getByRole("table").getByRole("link", { name: "inner" }).click();
    await heading(page, "inner");
    assert.equal(await page.title(), `${disk.root}/large/inner – onesweep`);
    await page.goBack();
    await heading(page, "large");
    await page.goBack();
    await heading(page, "root");
    await page.goForward();
    await heading(page, "large");
    await page.getByRole("navigation").getByRole("link", { name: disk.root }).click();
    await heading(page, "root");
    assert.deepEqual(complaints, []);
    await close();
});

test("names of all kinds are shown as they are, and can be entered", async () => {
    const { page, complaints, close } = await open(server.root);
    await page.getByRole("table").getByRole("link", { name: "odd <b>&amp; 100% #?+" }).click();
    await heading(page, "odd <b>&amp; 100% #?+");
    await page.goBack();
    await page.getByRole("table").getByRole("link", { name: "bytes-\ufffd\u240a" }).click();
    await heading(page, "bytes-\ufffd\u240a");
    assert.match(await page.evaluate(() => location.hash), /bytes-%FF%0A$/);
    assert.deepEqual(complaints, []);
    await close();
});

test("a file that is written, and one that goes, show by themselves", async () => {
    const { page, complaints, close } = await open(server.root, {}, `${disk.root}/middle`);
    await heading(page, "middle");
    await page.getByRole("table").getByRole("link", { name: "inner" }).focus();
    fill(disk.root, "middle/new/file", 7000);
    await row(page, "new").getByRole("cell", { name: /MiB/ }).waitFor();
    await page.locator("a.tile", { hasText: "new" }).waitFor();
    assert.equal((await page.getByRole("rowheader").allTextContents())[0], "new", "the largest comes first");
    assert.equal(await focused(page), "inner", "the focus stays");
    rmSync(`${disk.root}/middle/new`, { recursive: true });
    await row(page, "new").waitFor({ state: "detached" });
    assert.deepEqual(complaints, []);
    await close();
});

test("what a user may not see is said to be there, and isn't shown", async () => {
    const { page, close } = await open(server.nobody);
    await heading(page, "root");
    assert.match(await page.getByRole("status").textContent(), /^partial/);
    assert.match(await row(page, "private").textContent(), /no access/);
    assert.equal(await row(page, "private").getByRole("link").count(), 0);
    assert.match(await row(page, "mixed").textContent(), /partial/);
    await page.locator("a.tile.part", { hasText: "mixed" }).click();
    await heading(page, "mixed");
    assert.match(await row(page, "closed").textContent(), /no access/);
    await page.locator(".tile.none", { hasText: "closed" }).waitFor();
    assert.equal(await page.locator("a.tile", { hasText: "closed" }).count(), 0);
    // By its address: the directory itself, and nothing of what is in it.
    await page.goto(`${server.url}#${disk.root}/private`);
    await heading(page, "private");
    assert.match(await page.getByRole("status").textContent(), /no access/);
    assert.equal(await page.locator(".facts").getAttribute("data-inodes"), "1");
    for (const hidden of ["private/inner", "private/nothing"]) {
        await page.goto(`${server.url}#${disk.root}/${hidden}`);
        await heading(page, "Not here");
    }
    await close();
});

test("what the disk can't give back is said to be unreadable, and by all above it", async () => {
    const damaged = image(64);
    let serving;
    try {
        fill(damaged.root, "sound/file", 40);
        fill(damaged.root, "above/broken/file", 40);
        damaged.damage("above/broken");
        serving = await serve(damaged);
        const { page, close } = await open(serving.root, {}, "", serving);
        assert.match(await page.getByRole("status").textContent(), /1 directory could not be read/);
        assert.match(await row(page, "above").textContent(), /unreadable/);
        assert.doesNotMatch(await row(page, "sound").textContent(), /unreadable/);
        await page.getByRole("table").getByRole("link", { name: "above" }).click();
        await heading(page, "above");
        assert.match(await row(page, "broken").textContent(), /unreadable/);
        await close();
    } finally {
        await serving?.close();
        damaged.close();
    }
});

test("the keyboard alone does it all, and shows where it is", async () => {
    const { page, complaints, close } = await open(null);
    await heading(page, "onesweep");
    await page.keyboard.type("no token");
    await page.keyboard.press("Enter");
    await page.getByRole("main").getByText("This token isn't known.").waitFor();
    await page.keyboard.type(server.root);
    await page.keyboard.press("Enter");
    await heading(page, "root");

    const visible = () =>
        page.evaluate(() => {
            const style = getComputedStyle(document.activeElement);
            return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
        });
    const reach = async (selector) => {
        for (let presses = 0; presses < 40; presses++) {
            await page.keyboard.press("Tab");
            if (await page.evaluate((selector) => document.activeElement?.matches(selector), selector)) return;
        }
        assert.fail(`${selector} isn't reached by Tab`);
    };
    await reach("a.tile");
    assert.match(await focused(page), /^large/);
    assert.ok(await visible());
    await page.keyboard.press("ArrowRight");
    const beside = await focused(page);
    assert.doesNotMatch(beside, /^large/);
    await page.keyboard.press("ArrowLeft");
    assert.match(await focused(page), /^large/);
    await page.keyboard.press("Enter");
    await heading(page, "large");
    await page.waitForFunction(() => document.activeElement?.textContent?.startsWith("inner"));
    await page.keyboard.press("Backspace");
    await heading(page, "root");
    await page.waitForFunction(() => document.activeElement?.matches("a.tile"));
    assert.match(await focused(page), /^large/, "the one that was entered");

    await reach("tbody a");
    assert.ok(await visible());
    await page.keyboard.press("Tab");
    const second = await focused(page);
    await page.keyboard.press("Enter");
    await heading(page, second);
    // Without a window the browser has no keys of its own.
    await page.goBack();
    await heading(page, "root");
    await page.waitForFunction((name) => document.activeElement?.closest("tbody") && document.activeElement.textContent === name, second);

    await page.evaluate(() => document.querySelector("h1").focus());
    await reach("a.skip");
    await page.keyboard.press("Enter");
    assert.ok(await page.evaluate(() => document.activeElement?.closest("tbody") !== null), "past the map");
    await reach("input[type=radio]");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.getByRole("columnheader", { name: "Entries" }).waitFor();
    await page.waitForFunction(() => document.querySelector(".list tbody th")?.textContent === "many");
    assert.deepEqual(complaints.filter((line) => !line.includes("401")), []);
    await close();
});

/** The contrast of each text with what is behind it, by WCAG's formula; 4.5 is what it asks for. */
function contrasts() {
    const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const parse = (color) => color.match(/[\d.]+/g).map(Number);
    const luminance = ([red, green, blue]) =>
        0.2126 * channel(red / 255) + 0.7152 * channel(green / 255) + 0.0722 * channel(blue / 255);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const texts = [...document.querySelectorAll("h1, h2, .told, .growth summary, .reading, dt, dd, nav a, .measures label, .state, .badge, .swatch, .keys, .shares span, .shares bdi, .breakdown label, .breakdown summary, .breakdown .hint, .tile, th, td, th *")];
    return texts
        .filter((element) => element.textContent.trim() !== "" && element.getClientRects().length > 0)
        .map((element) => {
            const [one, other] = [luminance(parse(getComputedStyle(element).color)), luminance(behind(element))];
            const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
            return [`${element.className || element.tagName} ${element.textContent}`, contrast];
        });
}

test("dark and light follow the system, and can be read in both", async () => {
    const backs = [];
    for (const colorScheme of ["light", "dark"]) {
        const { page, close } = await open(server.nobody, { colorScheme });
        await page.locator(".tile").first().waitFor();
        backs.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
        const poor = (await page.evaluate(contrasts)).filter(([, contrast]) => contrast < 4.5);
        assert.deepEqual(poor, [], colorScheme);
        await close();
    }
    assert.notEqual(backs[0], backs[1]);
});

test("of very many directories the largest are named, the rest summed up, and a small screen holds it", async () => {
    const { page, complaints, close } = await open(server.root, { viewport: { width: 420, height: 800 } }, `${disk.root}/many`);
    await heading(page, "many");
    await row(page, "60 smaller directories").waitFor();
    assert.equal(await page.getByRole("rowheader").count(), MANY - 60 + 1);
    assert.equal(await page.locator(".facts").getAttribute("data-inodes"), inodes(`${disk.root}/many`));
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing sticks out");
    assert.deepEqual(complaints, []);
    await close();
});

test("before very many directories, also in one, the page asks for what it shows, and stays live", async () => {
    const crowded = image(1024 + VERY_MANY / 200, 2 * VERY_MANY);
    let serving;
    try {
        for (let number = 0; number < VERY_MANY / 2; number++) mkdirSync(`${crowded.root}/all/d${number}`, { recursive: number === 0 });
        for (let number = 0; number < VERY_MANY / 2; number++) {
            const project = `${crowded.root}/projects/p${Math.floor(number / 1000)}`;
            mkdirSync(`${project}/d${number % 1000}`, { recursive: number % 1000 === 0 });
        }
        fill(crowded.root, "projects/p7/d7/file", 30000);
        serving = await serve(crowded);
        const { page, complaints, close } = await open(serving.root, {}, `${crowded.root}/all`, serving);
        let received = 0;
        page.on("response", (response) => (received = Math.max(received, Number(response.headers()["content-length"] ?? 0))));
        await heading(page, "all");
        await row(page, / smaller directories$/).waitFor();
        assert.equal(await page.getByRole("rowheader").count(), 201);
        assert.equal(await page.locator(".facts").getAttribute("data-inodes"), inodes(`${crowded.root}/all`));
        await page.goto(`${serving.url}#${crowded.root}/projects`);
        await heading(page, "projects");
        assert.equal((await page.getByRole("rowheader").allTextContents())[0], "p7");
        await page.locator("a.tile", { hasText: /^p7/ }).first().click();
        await heading(page, "p7");
        await row(page, /^d7$/).waitFor();
        fill(crowded.root, "projects/p7/d8/file", 60000);
        await page.waitForFunction(() => document.querySelector(".list tbody th")?.textContent === "d8");
        await page.goto(`${serving.url}#${crowded.root}`);
        await heading(page, "root");
        assert.equal(await page.locator(".facts").getAttribute("data-inodes"), inodes(crowded.root));
        assert.ok(received > 0 && received < 200_000, `no answer is as long as the list of all: ${received}`);
        assert.deepEqual(complaints, []);
        await close();
    } finally {
        await serving?.close();
        crowded.close();
    }
});

test("a breakdown shows what is declared, by the keyboard too, in dark and in light", async () => {
    const declared = image(64);
    let serving;
    try {
        for (const [name, kib, uid] of [["a/one.txt", 800, 0], ["a/two.TXT", 400, NOBODY], ["b/three.log", 300, NOBODY]]) {
            fill(declared.root, name, kib);
            chownSync(`${declared.root}/${name}`, uid, uid);
        }
        fill(declared.root, "hidden/four.iso", 2000);
        chmodSync(`${declared.root}/hidden`, 0o700);
        const kinds = { age: "age", largest: "largest", owner: "owner", type: "extension" };
        serving = await serve(declared, Object.entries(kinds).map(([name, by]) => `[${name}]\nby = "${by}"\n`).join(""));
        const names = (page) => page.locator(".share-name").allTextContents();
        for (const colorScheme of ["light", "dark"]) {
            const { page, complaints, close } = await open(serving.root, { colorScheme }, "", serving);
            const panel = page.getByRole("region", { name: "Breakdown" });
            await panel.getByText(/^\d{4}-\d{2}$/).waitFor();
            assert.deepEqual(await panel.getByRole("option").allTextContents(), Object.keys(kinds));
            await panel.getByLabel("By", { exact: true }).focus();
            await page.keyboard.press("ArrowDown");
            await panel.getByText("hidden/four.iso").waitFor();
            assert.deepEqual(await names(page), ["hidden/four.iso", "a/one.txt", "a/two.TXT", "b/three.log"]);
            await page.keyboard.press("ArrowDown");
            await panel.getByText("root", { exact: true }).waitFor();
            assert.deepEqual(await names(page), ["root", "nobody"]);
            await page.keyboard.press("ArrowDown");
            await panel.getByText(".iso").waitFor();
            assert.deepEqual((await names(page)).slice(0, 3), [".iso", ".txt", ".log"]);
            // What is written shows by itself.
            fill(declared.root, "b/five.pdf", 5000);
            await panel.getByText(".pdf").waitFor();
            rmSync(`${declared.root}/b/five.pdf`);
            await panel.getByText(".pdf").waitFor({ state: "detached" });
            // By another measure, and in another directory.
            await page.getByText("Entries", { exact: true }).first().click();
            await page.waitForFunction(() => document.querySelector(".share-name")?.textContent === "(directory)");
            await page.goto(`${serving.url}#${declared.root}/b`);
            await heading(page, "b");
            await panel.getByText(".txt").waitFor({ state: "detached" });
            const poor = (await page.evaluate(contrasts)).filter(([, contrast]) => contrast < 4.5);
            assert.deepEqual(poor, [], colorScheme);
            assert.deepEqual(complaints, []);
            await close();
        }
        const { page, close } = await open(serving.nobody, { viewport: { width: 420, height: 800 } }, "", serving);
        const panel = page.getByRole("region", { name: "Breakdown" });
        await panel.getByLabel("By", { exact: true }).selectOption("type");
        await panel.getByText(".txt").waitFor();
        assert.ok(!(await names(page)).includes(".iso"), "what is hidden isn't told");
        await panel.getByText("Some of it is not yours to see.").waitFor();
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing sticks out");
        await close();
    } finally {
        await serving?.close();
        declared.close();
    }
});

test("where sizes follow at close the page claims no more", async () => {
    const disk = image(64);
    let serving;
    try {
        fill(disk.root, "a/file", 100);
        serving = await serve(disk, "", ["--sizes-follow", "close"]);
        const { page, complaints, close } = await open(serving.root, {}, "", serving);
        await page.getByText("Live but for open files", { exact: true }).waitFor();
        await page.getByText("Open files as of", { exact: true }).waitFor();
        assert.deepEqual(complaints, []);
        await close();
    } finally {
        await serving?.close();
        disk.close();
    }
});

test("where nobody tells what changes the page says how old it is", async () => {
    const disk = image(64);
    let serving;
    try {
        fill(disk.root, "a/file", 100);
        serving = await serve({ ...disk, isTimed: true });
        const { page, complaints, close } = await open(serving.root, {}, "", serving);
        await page.getByText("Read from time to time", { exact: true }).waitFor();
        await page.getByText("Read as a whole", { exact: true }).waitFor();
        assert.equal(await page.getByText("Open files as of", { exact: true }).count(), 0);
        assert.deepEqual(complaints, []);
        await close();
    } finally {
        await serving?.close();
        disk.close();
    }
});

/** A disk that takes its time can't be had here: what the server says is made late on its way. */
test("what was stored when time was up is told to be that", async () => {
    const { page, complaints, close } = await open(server.root);
    await page.route(/\/api\/directory/, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...(await response.json()), exact: false, late: 3 } });
    });
    await page.getByText("As it was stored", { exact: true }).waitFor();
    await page.getByText("3 directories or more", { exact: true }).waitFor();
    await page.getByText("Counted", { exact: true }).waitFor();
    assert.deepEqual(complaints, []);
    await close();
});

test("what nothing is known of yet is said to be that, and shown when it is", async () => {
    const { page, complaints, close } = await open(server.root);
    const json = { error: "late", message: "nothing is stored of it yet" };
    // As the server does it, which waits for a while before it says so: that is no reason to ask it less often.
    const waits = new Promise((resolve) => setTimeout(resolve, 1500));
    await page.route(/\/api\/directory/, async (route) => {
        await waits;
        await route.fulfill({ status: 503, json });
    });
    await heading(page, "Not counted yet");
    await page.getByText("Counting …", { exact: true }).waitFor();
    assert.equal(await page.getByRole("table").count(), 0);
    await page.unroute(/\/api\/directory/);
    await page.getByText("Live", { exact: true }).waitFor();
    assert.ok(await page.getByRole("table").isVisible());
    // That there is no answer yet is told on the console, too.
    assert.ok(complaints.every((complaint) => complaint.includes("503")), complaints.join());
    await close();
});

/** Totals are known while what summaries come to that were declared anew isn't. */
test("a directory is shown while its breakdown isn't known yet", async () => {
    const declared = image(64);
    let serving;
    try {
        fill(declared.root, "a/one.txt", 800);
        serving = await serve(declared, '[type]\nby = "extension"\n');
        const { page, complaints, close } = await open(serving.root, {}, "", serving);
        const panel = page.getByRole("region", { name: "Breakdown" });
        await panel.getByText(".txt").waitFor();
        const json = { error: "late", message: "nothing is stored of it yet" };
        await page.route(/\/api\/breakdown/, (route) => route.fulfill({ status: 503, json }));
        await panel.getByText("nothing is stored of it yet").waitFor();
        assert.equal(await panel.getByText(".txt").count(), 0);
        await page.getByText("Live", { exact: true }).waitFor();
        assert.ok(await page.getByRole("table").isVisible());
        await page.unroute(/\/api\/breakdown/);
        await panel.getByText(".txt").waitFor();
        assert.ok(complaints.every((complaint) => complaint.includes("503")), complaints.join());
        await close();
    } finally {
        await serving?.close();
        declared.close();
    }
});

test("a server that is away is said to be, and taken up again", async () => {
    const { page, close } = await open(server.root);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.context().setOffline(true);
    await page.getByText("The server doesn't answer").waitFor();
    assert.ok(await page.getByRole("table").isVisible(), "what is known stays");
    await page.context().setOffline(false);
    await page.getByText("Live", { exact: true }).waitFor();
    await close();
});

/** Figures of a directory's totals as they were noted: allocated bytes. */
const noted = async (at, path) => {
    const headers = { Authorization: `Bearer ${at.root}` };
    const response = await fetch(`${at.url}api/history?freshness=cached&path=${path}`, { headers });
    return (await response.json()).points.map((point) => point.allocated);
};

test("growth is a line over time, and a table, and goes on while somebody looks", async () => {
    const grown = image(64);
    let serving;
    try {
        fill(grown.root, "sub/file", 2048);
        serving = await serve(grown);
        // The first visit begins the history, and the next server adds to it.
        const first = await open(serving.root, {}, "", serving);
        await first.page.getByText("Noted from now on").or(first.page.locator(".plot .line")).waitFor();
        await first.close();
        // Of each second the last total is kept.
        const second = () => Math.floor(Date.now() / 1000);
        for (const before = second(); second() === before; ) await new Promise((done) => setTimeout(done, 20));
        fill(grown.root, "sub/more", 4096);
        execFileSync("sync", ["--file-system", grown.root]);
        await serving.close();
        serving = await serve(grown);
        // Both servers note what there is when they begin.
        const gain = async () => {
            const points = await noted(serving, grown.root);
            return points.at(-1) - points[0];
        };
        for (let times = 0; times < 600 && (await gain()) === 0; times++) await new Promise((done) => setTimeout(done, 50));
        const { page, complaints, close } = await open(serving.root, {}, "", serving);
        await page.locator(".plot .line").waitFor();
        assert.match(await page.locator(".growth .told").textContent(), /^\+4\.0\d? MiB on disk since /);
        assert.equal(await gain(), 4 << 20);
        // What comes now is added to the line.
        fill(grown.root, "sub/last", 8192);
        await page.getByText(/^\+12\.\d MiB on disk since /).waitFor();
        assert.ok((await page.locator(".plot .tick").count()) >= 4, "axes");
        assert.match(await page.locator(".plot").getAttribute("aria-label"), /^Growth of .*between .*MiB and .*MiB/);
        await page.getByText("As a table").click();
        const rows = page.locator(".growth tbody tr");
        assert.match(await rows.first().textContent(), /MiB/);
        assert.ok((await rows.count()) >= 3);
        // By keys.
        await page.locator(".plot").focus();
        await page.keyboard.press("Home");
        const reading = page.locator(".growth .reading");
        assert.match(await reading.textContent(), /^2\.\d+ MiB, /);
        await page.keyboard.press("ArrowRight");
        assert.match(await reading.textContent(), /^6\.\d+ MiB, /);
        await page.keyboard.press("Tab");
        await reading.waitFor({ state: "hidden" });
        await page.getByRole("radio", { name: "Entries" }).check();
        await page.getByText(/^\+2 entries since /).waitFor();
        assert.deepEqual(complaints, []);
        await close();
        // Who doesn't see all of it is told of none.
        chmodSync(`${grown.root}/sub`, 0o700);
        const other = await open(serving.nobody, {}, "", serving);
        await other.page.getByText("Not told: some of it is not yours to see.").waitFor();
        assert.equal(await other.page.locator(".plot .line").isVisible(), false);
        await other.close();
    } finally {
        await serving?.close();
        grown.close();
    }
});

/** Totals of more than a year that come to `last`, as a server would have thinned them out. */
function year(now, last) {
    const ages = [];
    for (let age = 400; age > 31; age -= 1) ages.push(age * 86_400);
    for (let age = 31 * 86_400; age > 0; age -= 6 * 3600) ages.push(age);
    return ages.map((age, at) => {
        const allocated = Math.round(last * (0.4 + (0.6 * at) / ages.length + 0.08 * Math.sin(at / 25)));
        return { at: now - age, bytes: allocated, allocated, inodes: 1000 + at };
    });
}

test("times are marked at round places, whatever the span", async () => {
    const { page, complaints, close } = await open(null, { viewport: { width: 1000, height: 800 } });
    let span = 0;
    await page.route(/\/api\/history/, async (route) => {
        const said = await (await route.fetch()).json();
        const last = said.points.at(-1);
        const points = [...Array(20).keys()].map((at) => ({
            ...last,
            at: said.answered_at - Math.round((span * (20 - at)) / 20),
            allocated: last.allocated - (20 - at) * 512 * span,
        }));
        await route.fulfill({ json: { ...said, points } });
    });
    for (const [seconds, form] of [
        [20, /^\d\d:\d\d:\d\d$/],
        [600, /^\d\d:\d\d$/],
        [7000, /^\d\d:\d\d$|^\d+ \w{3}$/],
        [2 * 86_400, /^\d\d:\d\d$|^\d+ \w{3}$/],
        [40 * 86_400, /^\d+ \w{3,4}$/],
        [4000 * 86_400, /^Jan \d{4}$/],
    ]) {
        span = seconds;
        await page.goto(`${server.url}?${seconds}#token=${server.root}`);
        await page.locator(".plot .line").waitFor();
        await page.waitForFunction(() => document.querySelectorAll('.plot .tick[text-anchor="middle"]').length > 0);
        const labels = await page.locator('.plot .tick[text-anchor="middle"]').allTextContents();
        assert.ok(labels.length >= 2 && labels.length <= 11, `${seconds}: ${labels}`);
        labels.forEach((label) => assert.match(label, form, `${seconds}: ${labels}`));
        // The hours of another day may be the same.
        assert.ok(labels.every((label, at) => label !== labels[at + 1]), `${seconds}: ${labels}`);
        const sizes = await page.locator('.plot .tick[text-anchor="end"]').allTextContents();
        assert.ok(sizes.length >= 2 && new Set(sizes).size === sizes.length, `${seconds}: ${sizes}`);
    }
    assert.deepEqual(complaints, []);
    await close();
});

test("a long history fits on any screen, dark and light, with marks that can be told apart", async () => {
    for (const [colorScheme, width] of [["light", 1360], ["dark", 1360], ["dark", 420]]) {
        const context = { colorScheme, viewport: { width, height: 900 } };
        const { page, complaints, close } = await open(null, context);
        await page.route(/\/api\/history/, async (route) => {
            const said = await (await route.fetch()).json();
            await route.fulfill({ json: { ...said, points: year(said.answered_at, said.points.at(-1).allocated) } });
        });
        await page.goto(`${server.url}#token=${server.root}`);
        await page.locator(".plot .line").waitFor();
        const plot = await page.locator(".plot").boundingBox();
        const ticks = await page.locator(".plot .tick").evaluateAll((all) =>
            all.map((tick) => {
                const { left, right, top, bottom } = tick.getBoundingClientRect();
                return { left, right, top, bottom, label: tick.textContent };
            }),
        );
        const labels = ticks.map((tick) => tick.label);
        assert.equal(new Set(labels).size, labels.length, labels.join());
        assert.ok(labels.some((label) => /^\w{3} \d{4}$/.test(label)) && labels.some((label) => / MiB$/.test(label)), labels.join());
        assert.ok(labels.filter((label) => / \d{4}$/.test(label)).length >= 2, labels.join());
        for (const [at, one] of ticks.entries()) {
            assert.ok(one.left >= plot.x - 1 && one.right <= plot.x + plot.width + 20, `${one.label} sticks out`);
            for (const other of ticks.slice(at + 1)) {
                const apart = one.right < other.left || other.right < one.left || one.bottom <= other.top || other.bottom <= one.top;
                assert.ok(apart, `${one.label} lies on ${other.label}`);
            }
        }
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing sticks out");
        const map = await page.locator(".treemap").boundingBox();
        assert.ok(map.height >= 240, "the map keeps its room");
        if (process.env.ONESWEEP_SCREENSHOTS) {
            await page.locator(".plot").focus();
            await page.keyboard.press("PageUp");
            await page.screenshot({ path: `${process.env.ONESWEEP_SCREENSHOTS}/growth-${colorScheme}-${width}.png` });
        }
        assert.deepEqual(complaints, []);
        await close();
    }
});
