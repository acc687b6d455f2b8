// The page: which directory is shown is in the address, so back and forward are those of the browser.

import { type Listing, type Measure, Refused, directory, fileSystems, history as growthOf, inodes, token } from "./api";
import { BreakdownPanel } from "./breakdown";
import { arrange, element, set, text } from "./dom";
import { AGES, ago, bytes, count, counted, moment, span } from "./format";
import { GrowthPanel } from "./growth";
import { items, note } from "./items";
import { type Asked, Live } from "./live";
import { above, encoded, normalized, shown, shownAddress } from "./names";
import { Table } from "./table";
import { Treemap } from "./treemap";

const MEASURES: [Measure, string, string][] = [
    ["allocated", "On disk", "Bytes that are allocated"],
    ["bytes", "Size", "Bytes as sizes tell them"],
    ["inodes", "Entries", "Files, directories and all others"],
];

const map = new Treemap();
const table = new Table();
const growth = new GrowthPanel();
const crumbs = element("ol");
const measures = element("fieldset", { class: "measures" }, element("legend", { class: "unseen" }, "Measure"));
const state = element("span", { class: "state" }, element("span", { class: "lamp" }), element("span"));
const title = element("h1", { tabindex: "-1" });
const badge = element("p", { class: "badge", role: "status", hidden: "" });
const facts = element("dl", { class: "facts" });
const legend = element("p", { class: "legend" });
const spoken = element("p", { class: "unseen", "aria-live": "polite" });
const overview = element("section", { class: "overview", "aria-label": "Totals" }, element("div", {}, title, badge), facts);
const content = element(
    "div",
    { class: "content" },
    element("div", { class: "map" }, map.root, legend, growth.root),
    element("section", { class: "list", "aria-label": "Table" }, table.root),
);
const message = element("div", { class: "message", hidden: "" });
const breakdown = new BreakdownPanel(() => void live.now());
const main = element("main", {}, overview, content, breakdown.root, message);

let by: Measure = "allocated";
/** What the address names, and what is shown. */
let path: string | null = null;
let last: { path: string; top: string } | undefined;
let answeredAt = 0;
/** Where the focus goes when what is asked for comes: which part, and which item of it. */
let focus: { part: "map" | "table"; key?: string } | undefined;
/** Which item was entered, by the path that it is in. */
const entered = new Map<string, string>();
let systems: string[] = [];

const live = new Live(async (signal) => {
    const late = window.setTimeout(() => say("state", "Counting …"), 500);
    try {
        if (token.get() === null) return signIn();
        if (path === null) return await choose(signal);
        const listing = await directory(path, by, signal);
        answeredAt = Date.now();
        show(path, listing);
        await breakdown.follow(path, by, signal);
        growth.show(await growthOf(path, signal), listing.total, by, listing.answered_at, shown(listing.path));
        connected(howTrue(listing));
        return listing.late === undefined ? "told" : "counting";
    } catch (error) {
        if (signal.aborted) return "over";
        return failed(error);
    } finally {
        window.clearTimeout(late);
    }
});

function howTrue({ exact, checked_at, timed, late }: Listing): string {
    if (late !== undefined) return "As it was stored";
    if (exact) return "Live";
    if (checked_at === undefined) return "Still changing";
    return timed ? "Read from time to time" : "Live but for open files";
}

function failed(error: unknown): Asked {
    if (error instanceof Refused && error.status === 401) {
        token.forget();
        return signIn("This token isn't known.");
    }
    if (error instanceof Refused) {
        const isTold = last === undefined && !message.hidden && message.dataset.told === `${path} ${error.message}`;
        last = undefined;
        const isLate = error.word === "late";
        const heading = isLate ? "Not counted yet" : "Not here";
        if (!isTold) tell(heading, error.message, ...(path === null || path === "/" ? [] : [link("#", "To the top")]));
        connected(isLate ? "Counting …" : "Live");
        if (isLate) return "counting";
        return error.status === 404 || error.status >= 500 ? "told" : "over";
    }
    say("state lost", "The server doesn't answer");
    return "told";
}

function connected(how: string): void {
    say("state live", how);
}

function say(kind: string, how: string): void {
    set(state, { class: kind });
    text(state.lastElementChild!, how);
}

/** Shows a word instead of a directory. */
function tell(heading: string, why: string, ...more: Node[]): void {
    overview.hidden = content.hidden = measures.hidden = true;
    breakdown.forget();
    message.hidden = false;
    message.dataset.told = `${path} ${why}`;
    message.replaceChildren(element("h1", { tabindex: "-1" }, heading), element("p", {}, why), ...more);
    trail(path);
    document.title = "onesweep";
}

function signIn(why = ""): Asked {
    const field = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: "" });
    const form = element(
        "form",
        { class: "sign-in" },
        element("label", { for: "token" }, "Token"),
        field,
        element("button", {}, "Show"),
    );
    form.addEventListener("submit", (event) => {
        event.preventDefault();
        token.set(field.value.trim());
        void live.now();
    });
    const how = "onesweep serve --new-token UID --http-tokens FILE";
    const hint = element("p", { class: "hint" }, "Root makes one by ", element("code", {}, how), ".");
    tell("onesweep", why || "Whose view is it? A token belongs to one user.", form, hint);
    if (why) spoken.textContent = why;
    say("state", "");
    field.focus();
    return "over";
}

/** The top of the file system, or a choice of several. */
async function choose(signal: AbortSignal): Promise<Asked> {
    systems = (await fileSystems(signal)).map(encoded);
    if (systems.length === 1) {
        history.replaceState(null, "", `#${systems[0]}`);
        read();
        return "over";
    }
    const links = systems.map((system) => element("li", {}, link(`#${system}`, shownAddress(system))));
    tell("File systems", "Tracked on this machine:", element("ul", { class: "systems" }, ...links));
    connected("Live");
    return "over";
}

function link(address: string, label: string): HTMLAnchorElement {
    return element("a", { href: address }, element("bdi", {}, label));
}

function show(at: string, listing: Listing): void {
    const isNew = last?.path !== at;
    const now = listing.answered_at;
    const found = items(listing, at, by);
    const name = shown(listing.path);
    message.hidden = true;
    overview.hidden = content.hidden = measures.hidden = false;
    const top = encoded(listing.top);
    last = { path: at, top };
    trail(at, top);
    text(title, name === "/" ? "/" : name.slice(name.lastIndexOf("/") + 1));
    document.title = `${name} – onesweep`;
    const left = note(listing.denied, listing.partial, listing.unreadable);
    text(badge, listing.denied ? "no access: what is in it is not yours to see" : left);
    badge.hidden = left === "";
    describe(listing, now);
    map.root.dataset.empty = listing.denied ? "No access" : "Nothing in it";
    map.show(found, by, now);
    table.show(found, by, now, name);
    if (isNew) arrive(at, name, listing);
}

/** After another directory has come: the focus stays where it was, in the map or in the table. */
function arrive(at: string, name: string, listing: Listing): void {
    const size = bytes(listing.total.allocated);
    spoken.textContent = `${name}: ${size}, ${counted(listing.total.files, "file", "files")}`;
    if (!focus) return;
    const key = entered.get(at);
    if (focus.part === "map") map.focus(key);
    else table.focus(key);
    if (!content.contains(document.activeElement)) title.focus();
    focus = undefined;
}

function describe(listing: Listing, now: number): void {
    const { total, newest, largest } = listing;
    const told: [string, string, string?][] = [
        ["On disk", bytes(total.allocated)],
        ["Size", bytes(total.bytes + total.directory_bytes)],
        ["Files", count(total.files)],
        ["Directories", count(total.directories)],
    ];
    if (total.others > 0) told.push(["Others", count(total.others)]);
    if (largest !== undefined) told.push(["Largest file", bytes(largest)]);
    if (newest !== undefined) told.push(["Newest change", ago(newest, now), moment(newest)]);
    const { checked_at, age, timed, late } = listing;
    const when = (name: string, at: number): void => void told.push([name, `${span(now - at)} ago`, moment(at)]);
    if (late !== undefined) {
        when("Counted", now - age);
        // How much isn't told where something is left out.
        told.push(["Not counted yet", late === 0 ? "something" : `${counted(late, "directory", "directories")} or more`]);
    } else if (checked_at !== undefined) when(timed ? "Read as a whole" : "Open files as of", checked_at);
    else if (!listing.exact) when("Counted", now - age);
    while (facts.children.length > told.length) facts.lastElementChild!.remove();
    told.forEach(([name, value, more], at) => {
        const there = facts.children[at] ?? facts.appendChild(element("div", {}, element("dt"), element("dd")));
        text(there.firstElementChild!, name);
        text(there.lastElementChild!, value);
        set(there, { title: more ?? null });
    });
    set(facts, { "data-inodes": String(inodes(total)) });
}

/** The directories above, from the top of the file system. */
function trail(at: string | null, top = "/"): void {
    const steps: [string, string][] = [];
    for (let step = at; step !== null; step = step === top ? null : above(step)) {
        const name = step === top ? shownAddress(step) : shownAddress(step.slice(step.lastIndexOf("/") + 1));
        steps.unshift([step, name]);
    }
    if (systems.length > 1) steps.unshift(["", "File systems"]);
    const signature = JSON.stringify(steps);
    if (crumbs.dataset.steps === signature) return;
    crumbs.dataset.steps = signature;
    arrange(
        crumbs,
        steps.map(([address, name], index) => {
            const step = link(`#${address}`, name);
            if (index === steps.length - 1) step.setAttribute("aria-current", "page");
            return element("li", {}, step);
        }),
    );
}

/** Takes up the address. */
function read(): void {
    const address = location.hash.slice(1);
    if (address.startsWith("token=")) {
        token.set(decodeURIComponent(address.slice("token=".length)));
        // Nothing that stays in the history names it.
        history.replaceState(null, "", location.pathname);
        path = null;
    } else {
        path = address.startsWith("/") ? normalized(address.replace(/(.)\/+$/, "$1")) : null;
    }
    void live.now();
}

function leaveTo(part: "map" | "table", target: Element): void {
    const address = target.closest("a")?.getAttribute("href");
    if (address === undefined || address === null || path === null) return;
    entered.set(path, `d${address.slice(address.lastIndexOf("/") + 1)}`);
    entered.delete(address.slice(1));
    focus = { part };
}

for (const [measure, label, meaning] of MEASURES) {
    const radio = element("input", { type: "radio", name: "measure", value: measure, id: `by-${measure}` });
    radio.checked = measure === by;
    radio.addEventListener("change", () => {
        by = measure;
        void live.now();
    });
    measures.append(radio, element("label", { for: radio.id, title: meaning }, label));
}
legend.append(
    element("span", {}, "Changed within the last"),
    ...AGES.map(([, name]) => element("span", { class: `swatch age-${name}` }, name)),
    element("span", { class: "keys" }, "↑ ↓ ← → move · Enter opens · Backspace goes up"),
);
map.root.addEventListener("click", (event) => leaveTo("map", event.target as Element));
table.root.addEventListener("click", (event) => leaveTo("table", event.target as Element));
document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement && event.target.type !== "radio";
    if (event.key !== "Backspace" || isTyping || path === null || last === undefined) return;
    const up = path === last.top ? null : above(path);
    if (up === null) return;
    event.preventDefault();
    entered.set(up, `d${path.slice(path.lastIndexOf("/") + 1)}`);
    focus = { part: table.root.contains(document.activeElement) ? "table" : "map" };
    location.hash = up;
});
window.addEventListener("popstate", () => {
    focus ??= table.root.contains(document.activeElement) ? { part: "table" } : undefined;
    focus ??= map.root.contains(document.activeElement) ? { part: "map" } : undefined;
});
window.addEventListener("hashchange", read);
window.setInterval(() => {
    if (answeredAt > 0) set(state, { title: `answered ${span((Date.now() - answeredAt) / 1000)} ago` });
}, 1000);

document.body.append(
    element("a", { class: "skip", href: "#", id: "skip" }, "To the table"),
    element(
        "header",
        {},
        element("span", { class: "mark", "aria-hidden": "true" }),
        element("nav", { "aria-label": "Directories above" }, crumbs),
        measures,
        state,
    ),
    main,
    spoken,
);
document.getElementById("skip")!.addEventListener("click", (event) => {
    event.preventDefault();
    table.focus();
});
read();
