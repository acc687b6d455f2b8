// The table: the same items as rows, for those who read rather than look.

import type { Measure } from "./api";
import { inodes } from "./api";
import { arrange, element, set, text } from "./dom";
import { ago, bytes, count, moment, percent } from "./format";
import type { Item } from "./items";

interface Row {
    root: HTMLTableRowElement;
    cells: HTMLElement[];
    name: HTMLElement;
    note: HTMLElement;
    bar: HTMLElement;
    linked: boolean;
}

const MEASURES: Record<Measure, string> = { allocated: "On disk", bytes: "Size", inodes: "Entries" };

export class Table {
    private readonly caption = element("caption", { class: "unseen" });
    private readonly sizeHead = element("th", { scope: "col", class: "figure" });
    private readonly countHead = element("th", { scope: "col", class: "figure second" });
    private readonly body = element("tbody");
    readonly root = element(
        "div",
        { class: "table" },
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
                    element("th", { scope: "col" }, "Name"),
                    this.sizeHead,
                    element("th", { scope: "col", class: "figure" }, "Share"),
                    this.countHead,
                    element("th", { scope: "col", class: "figure" }, "Changed"),
                ),
            ),
            this.body,
        ),
    );
    private readonly rows = new Map<string, Row>();

    show(items: Item[], by: Measure, now: number, title: string): void {
        text(this.caption, `What is in ${title}, the largest first`);
        text(this.sizeHead, MEASURES[by]);
        text(this.countHead, by === "inodes" ? MEASURES.allocated : MEASURES.inodes);
        const whole = items.reduce((sum, item) => sum + item.size, 0);
        const largest = items.reduce((most, item) => Math.max(most, item.size), 1);
        const wanted = items.map((item) => this.row(item, by, now, whole, largest));
        arrange(this.body, wanted.map((row) => row.root));
        const keys = new Set(items.map((item) => item.key));
        for (const key of this.rows.keys()) {
            if (!keys.has(key)) this.rows.delete(key);
        }
    }

    /** Puts the focus on a row, or on the first. */
    focus(key?: string): void {
        const of = key === undefined ? undefined : this.rows.get(key);
        (of?.linked ? of.name : this.body.querySelector("a"))?.focus();
    }

    private row(item: Item, by: Measure, now: number, whole: number, largest: number): Row {
        let row = this.rows.get(item.key);
        const linked = item.address !== null;
        if (!row || row.linked !== linked) {
            const name = element(linked ? "a" : "span", { class: "name" });
            const [note, bar] = [element("span", { class: "note" }), element("span", { class: "bar" })];
            const cells = [1, 2, 3, 4].map((at) => element("td", { class: `figure${["", "", " share", " second", ""][at]}` }));
            cells[1]!.append(element("span"), bar);
            const head = element("th", { scope: "row" }, name, note);
            row = { root: element("tr", {}, head, ...cells), cells, name, note, bar, linked };
            this.rows.set(item.key, row);
        }
        if (!row.name.firstElementChild) row.name.append(element("bdi"));
        text(row.name.firstElementChild!, item.label);
        if (linked) set(row.name, { href: `#${item.address}` });
        text(row.note, item.mark);
        set(row.note, { title: item.note || null });
        set(row.root, { class: `${item.kind} ${item.seen}` });
        const [size, share, others, changed] = row.cells as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
        text(size, by === "inodes" ? count(item.size) : bytes(item.size));
        text(share.firstElementChild!, percent(item.size, whole));
        row.bar.style.width = `${(100 * item.size) / largest}%`;
        text(others, by === "inodes" ? bytes(item.figures.allocated) : count(inodes(item.figures)));
        text(changed, item.newest === undefined ? "" : ago(item.newest, now));
        set(changed, { title: item.newest === undefined ? null : moment(item.newest) });
        return row;
    }
}
