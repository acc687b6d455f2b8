// The breakdown: a directory by one of the summaries that are declared, where there are any.

import { type Breakdown, type Measure, type Share, type Summary, Refused, breakdown, summaries } from "./api";
import { arrange, element, set, text } from "./dom";
import { ageClass, ago, bytes, count, counted, percent } from "./format";
import { shown } from "./names";

/** Keys that are shown. */
const SHOWN = 12;

interface Row {
    root: HTMLElement;
    name: HTMLElement;
    size: HTMLElement;
    share: HTMLElement;
    bar: HTMLElement;
}

interface Line {
    key: string;
    label: string;
    more: string;
    /** Of ages: their colour. */
    age: string;
    value: number;
}

export class BreakdownPanel {
    private readonly choice = element("select", { id: "breakdown-by" });
    private readonly list = element("ol", { class: "shares" });
    private readonly left = element("p", { class: "hint", role: "note" });
    private readonly box = element(
        "details",
        { open: "" },
        element("summary", {}, "Breakdown"),
        element("p", { class: "choice" }, element("label", { for: "breakdown-by" }, "By"), " ", this.choice),
        this.list,
        this.left,
    );
    readonly root = element("section", { class: "breakdown", "aria-label": "Breakdown", hidden: "" }, this.box);
    private readonly rows = new Map<string, Row>();
    /** Asked for once. */
    private known: Summary[] | undefined;

    constructor(again: () => void) {
        this.choice.addEventListener("change", again);
        this.box.addEventListener("toggle", () => {
            if (this.box.open && !this.root.hidden) again();
        });
    }

    /** Another user may come: nothing of this one stays. */
    forget(): void {
        this.root.hidden = true;
        this.list.replaceChildren();
        this.rows.clear();
    }

    /** Asks for the directory that is shown. */
    async follow(path: string, by: Measure, signal: AbortSignal): Promise<void> {
        this.known ??= await summaries(signal);
        if (this.known.length === 0) return;
        if (this.choice.options.length === 0) {
            this.choice.append(...this.known.map(({ name }) => element("option", { value: name }, name)));
        }
        try {
            if (this.box.open) this.show(await breakdown(path, this.choice.value, signal), by);
            this.root.hidden = false;
        } catch (error) {
            // Summaries are declared anew: the directory is known all the same.
            if (error instanceof Refused && error.word === "late") return this.wait(error.message);
            if (!(error instanceof Refused) || error.status !== 404) throw error;
            // Other summaries are declared by now, or the directory is gone, which the next answer says.
            this.known = undefined;
            this.choice.replaceChildren();
            this.forget();
        }
    }

    /** There is nothing to show by now. */
    private wait(why: string): void {
        this.list.replaceChildren();
        this.rows.clear();
        text(this.left, why);
        this.left.hidden = this.root.hidden = false;
    }

    private show(found: Breakdown, by: Measure): void {
        const lines = linesOf(found, by);
        const isSum = found.shares.every((share) => share.inodes !== undefined);
        const whole = lines.reduce((sum, line) => sum + Math.max(0, line.value), 0);
        const largest = lines.reduce((most, line) => Math.max(most, Math.abs(line.value)), 1);
        const isCount = isSum ? by === "inodes" : found.shares.some((share) => share.value !== undefined);
        const rows = lines.map((line) => {
            const row = this.row(line.key);
            text(row.name, line.label);
            set(row.name, { title: line.more || null });
            text(row.size, isCount ? count(line.value) : bytes(line.value));
            text(row.share, isSum ? percent(line.value, whole) : "");
            set(row.bar, { class: `share-bar${line.age ? ` age-${line.age}` : ""}` });
            row.bar.style.width = `${(100 * Math.abs(line.value)) / largest}%`;
            return row.root;
        });
        arrange(this.list, rows);
        const kept = new Set(lines.map((line) => line.key));
        for (const key of this.rows.keys()) {
            if (!kept.has(key)) this.rows.delete(key);
        }
        text(this.left, notes(found));
        this.left.hidden = this.left.textContent === "";
    }

    private row(key: string): Row {
        let row = this.rows.get(key);
        if (!row) {
            const [name, bar] = [element("bdi", { class: "share-name" }), element("span", { class: "share-bar" })];
            const [size, share] = [element("span", { class: "share-size" }), element("span", { class: "share-part" })];
            const track = element("span", { class: "share-track", "aria-hidden": "true" }, bar);
            row = { root: element("li", {}, name, track, size, share), name, size, share, bar };
            this.rows.set(key, row);
        }
        return row;
    }
}

/** What a share is by the measure that is looked at, where it has that. */
function value(share: Omit<Share, "key">, by: Measure): number {
    return share[by] ?? share.value ?? share.bytes ?? 0;
}

function linesOf(found: Breakdown, by: Measure): Line[] {
    const now = found.answered_at;
    const lines: Line[] = found.shares.map((share) => {
        const key = shown(share.key);
        const isAge = share.from !== undefined && share.to !== undefined;
        return {
            key: `k${JSON.stringify(share.key)}`,
            label: share.label ?? key,
            more: share.label ? `number ${key}` : isAge ? `changed ${ago(share.to! - 1, now)} or before` : "",
            age: isAge ? ageClass(share.to! > now ? now : share.to! - 1, now) : "",
            value: value(share, by),
        };
    });
    if (found.by === "age") lines.sort((one, other) => (one.label < other.label ? 1 : -1));
    else if (found.shares.every((share) => share.value === undefined)) lines.sort((one, other) => other.value - one.value);
    const rest = lines.splice(SHOWN);
    const sum = rest.reduce((sum, line) => sum + line.value, found.other ? value(found.other, by) : 0);
    const isSum = found.shares.every((share) => share.inodes !== undefined);
    if (isSum && (rest.length > 0 || found.other)) {
        const others = found.other ? "all others" : counted(rest.length, "other", "others");
        const label = found.by === "age" ? "all before" : others;
        lines.push({ key: "rest", label, more: "", age: "", value: sum });
    }
    return lines;
}

/** What is missing, in words. */
function notes(found: Breakdown): string {
    const notes = found.partial ? ["Some of it is not yours to see."] : [];
    if (found.unknown > 0) {
        const where = (found.unknown_in ?? []).map((name) => shown(name) || "here").join(", ");
        notes.push(`Not known of ${counted(found.unknown, "directory", "directories")}: ${where}.`);
    }
    return notes.join(" ");
}
