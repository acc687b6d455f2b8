// Growth: what the directory came to over time, as a line, and as a table for those who read rather than look.

import { type Figures, type Growth, type Measure, type Past, value } from "./api";
import { arrange, element, set, text } from "./dom";
import { bytes, count, moment, signed } from "./format";
import { byteTicks, countTicks, timeTicks } from "./ticks";

const MEASURES: Record<Measure, string> = { allocated: "on disk", bytes: "size", inodes: "entries" };
/** Room around the line, in pixels: for figures at its left, times below it. */
const EDGE = { left: 70, right: 14, top: 10, bottom: 22 };
/** Rows of the table, at most; the line shows all points. */
const ROWS = 60;

interface Point {
    at: number;
    value: number;
}

export class GrowthPanel {
    private readonly heading = element("h2", {}, "Growth");
    private readonly told = element("p", { class: "told" });
    private readonly plot = svg("svg", { tabindex: "0", role: "img", class: "plot" });
    private readonly read = element("output", { class: "reading", hidden: "" });
    private readonly body = element("tbody");
    private readonly valueHead = element("th", { scope: "col", class: "figure" });
    private readonly caption = element("caption", { class: "unseen" });
    private readonly table = element(
        "details",
        {},
        element("summary", {}, "As a table"),
        element(
            "div",
            { class: "table", tabindex: "0", role: "group", "aria-label": "Growth as a table" },
            element(
                "table",
                {},
                this.caption,
                element(
                    "thead",
                    {},
                    element(
                        "tr",
                        {},
                        element("th", { scope: "col" }, "When"),
                        this.valueHead,
                        element("th", { scope: "col", class: "figure" }, "Change"),
                    ),
                ),
                this.body,
            ),
        ),
    );
    readonly root = element(
        "section",
        { class: "growth", "aria-label": "Growth" },
        element("div", { class: "head" }, this.heading, this.told),
        element("div", { class: "chart" }, this.plot, this.read),
        this.table,
    );
    private points: Point[] = [];
    private by: Measure = "allocated";
    private name = "";
    /** The point that is read, while somebody does. */
    private current: number | undefined;
    private signature = "";

    constructor() {
        new ResizeObserver(() => this.draw(true)).observe(this.plot);
        this.plot.addEventListener("keydown", (event) => this.key(event));
        this.plot.addEventListener("pointermove", (event) => this.point(event.offsetX));
        this.plot.addEventListener("pointerleave", () => this.mark(undefined));
        this.plot.addEventListener("blur", () => this.mark(undefined));
    }

    /** `total` is what it comes to at `now`. */
    show(growth: Growth, total: Figures, by: Measure, now: number, name: string): void {
        if (name !== this.name || by !== this.by) this.current = undefined;
        [this.by, this.name] = [by, name];
        const known = growth.points.filter((point) => point.at < now).map((point) => ({ at: point.at, value: past(point, by) }));
        this.points = growth.partial ? [] : [...known, { at: now, value: value(total, by) }];
        this.root.classList.toggle("empty", this.points.length < 2);
        text(this.told, growth.partial ? "Not told: some of it is not yours to see." : this.summary());
        this.draw();
    }

    private summary(): string {
        const [first, last] = [this.points[0], this.points[this.points.length - 1]];
        if (!first || !last || this.points.length < 2) return "Noted from now on, every ten minutes.";
        const change = last.value - first.value;
        const how = change === 0 ? "no change" : signed(change, this.by === "inodes" ? count : bytes);
        return `${how} ${MEASURES[this.by]} since ${moment(first.at)}`;
    }

    private figure(of: number): string {
        return this.by === "inodes" ? `${count(of)} entries` : bytes(of);
    }

    /** Anew only when something of it has changed, or the room for it. */
    private draw(isAnew = false): void {
        const { clientWidth: width, clientHeight: height } = this.plot;
        const signature = JSON.stringify([this.by, this.name, this.points, width, height]);
        if ((!isAnew && signature === this.signature) || this.points.length < 2 || width === 0 || height === 0) return;
        this.signature = signature;
        const { x, y, low, high, from, to } = this.scales(width, height);
        const parts: SVGElement[] = [];
        const floor = height - EDGE.bottom;
        for (const [at, label] of (this.by === "inodes" ? countTicks : byteTicks)(low, high)) {
            parts.push(svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(at), y2: y(at) }));
            parts.push(svg("text", { class: "tick", x: EDGE.left - 8, y: y(at) + 4, "text-anchor": "end" }, label));
        }
        const most = Math.max(2, Math.floor((width - EDGE.left) / 85));
        for (const [at, label] of timeTicks(from, to, most)) {
            parts.push(svg("line", { class: "notch", x1: x(at), x2: x(at), y1: floor, y2: floor + 4 }));
            parts.push(svg("text", { class: "tick", x: x(at), y: height - 4, "text-anchor": "middle" }, label));
        }
        const line = this.points.map((point) => `${x(point.at).toFixed(1)},${y(point.value).toFixed(1)}`);
        const [left, right] = [x(from).toFixed(1), x(to).toFixed(1)];
        // An area says how much: only from nothing up.
        if (low === 0) parts.push(svg("path", { class: "area", d: `M${left},${floor}L${line.join("L")}L${right},${floor}Z` }));
        parts.push(svg("path", { class: "line", d: `M${line.join("L")}` }));
        parts.push(svg("g", { class: "cursor" }));
        this.plot.replaceChildren(...parts);
        const least = Math.min(...this.points.map((point) => point.value));
        const top = Math.max(...this.points.map((point) => point.value));
        const range = `between ${this.figure(least)} and ${this.figure(top)}`;
        const keys = "Left and right read the points.";
        set(this.plot, { "aria-label": `Growth of ${this.name}: ${this.summary()}, ${range}. ${keys}` });
        this.mark(this.current);
        this.rows();
    }

    private scales(width: number, height: number) {
        const values = this.points.map((point) => point.value);
        const [from, to] = [this.points[0]!.at, this.points[this.points.length - 1]!.at];
        const [least, most] = [Math.min(...values), Math.max(...values)];
        // Something that hardly changes is no flat line at the top; what stays as it is stands in the middle.
        const room = Math.max((most - least) * 0.12, most === least ? Math.max(most * 0.1, 1) : 0);
        const [low, high] = [least < most / 2 ? 0 : Math.max(0, least - room), most + room];
        const x = (at: number) => EDGE.left + ((at - from) / (to - from || 1)) * (width - EDGE.left - EDGE.right);
        const y = (of: number) => height - EDGE.bottom - ((of - low) / (high - low || 1)) * (height - EDGE.top - EDGE.bottom);
        return { x, y, low, high, from, to };
    }

    private rows(): void {
        text(this.caption, `Growth of ${this.name}, the newest first`);
        text(this.valueHead, this.by === "inodes" ? "Entries" : this.by === "bytes" ? "Size" : "On disk");
        const step = Math.max(1, Math.ceil(this.points.length / ROWS));
        // The last one always, and others at even distances before it.
        const told = this.points.filter((_, at) => (this.points.length - 1 - at) % step === 0);
        const rows = told.map((point, at) => {
            const before = told[at - 1];
            const change = before === undefined ? "" : signed(point.value - before.value, this.by === "inodes" ? count : bytes);
            return element(
                "tr",
                {},
                element("th", { scope: "row" }, moment(point.at)),
                element("td", { class: "figure" }, this.by === "inodes" ? count(point.value) : bytes(point.value)),
                element("td", { class: "figure" }, change),
            );
        });
        arrange(this.body, rows.reverse());
    }

    private point(offset: number): void {
        if (this.points.length < 2) return;
        const { x } = this.scales(this.plot.clientWidth, this.plot.clientHeight);
        let nearest = 0;
        this.points.forEach((point, at) => {
            if (Math.abs(x(point.at) - offset) < Math.abs(x(this.points[nearest]!.at) - offset)) nearest = at;
        });
        this.mark(nearest);
    }

    private key(event: KeyboardEvent): void {
        if (event.altKey || event.ctrlKey || event.metaKey || this.points.length < 2) return;
        const last = this.points.length - 1;
        const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
        const step = steps[event.key];
        if (step === undefined) return;
        event.preventDefault();
        this.mark(Math.min(last, Math.max(0, (this.current ?? last + (step < 0 ? 1 : 0)) + step)));
    }

    /** Marks a point and reads it out. */
    private mark(at: number | undefined): void {
        this.current = at === undefined ? undefined : Math.min(at, this.points.length - 1);
        const cursor = this.plot.querySelector(".cursor");
        const point = this.current === undefined ? undefined : this.points[this.current];
        this.read.hidden = point === undefined;
        if (!cursor || point === undefined) return cursor?.replaceChildren();
        const { clientWidth: width, clientHeight: height } = this.plot;
        const { x, y } = this.scales(width, height);
        const [across, down] = [x(point.at), y(point.value)];
        cursor.replaceChildren(
            svg("line", { x1: across, x2: across, y1: EDGE.top, y2: height - EDGE.bottom }),
            svg("circle", { cx: across, cy: down, r: 4 }),
        );
        text(this.read, `${this.figure(point.value)}, ${moment(point.at)}`);
        this.read.classList.toggle("at-left", across > width / 2);
    }
}

function past(point: Past, by: Measure): number {
    return by === "inodes" ? point.inodes : point[by];
}

function svg(tag: string, attributes: Record<string, string | number>, label?: string): SVGElement {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    if (label !== undefined) made.append(label);
    return made;
}
