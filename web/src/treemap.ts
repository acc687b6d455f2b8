// The treemap: one tile for each item, by its size.

import { hierarchy, treemap } from "d3-hierarchy";
import type { Measure } from "./api";
import { element, set, text } from "./dom";
import { ageClass, bytes, count, percent } from "./format";
import type { Item } from "./items";

interface Tile {
    root: HTMLElement;
    name: HTMLElement;
    size: HTMLElement;
}

type Step = "ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown";

export class Treemap {
    readonly root = element("div", { class: "treemap", role: "group", "aria-label": "Treemap" });
    private readonly tiles = new Map<string, Tile>();
    private items: Item[] = [];
    private by: Measure = "allocated";
    private now = 0;

    constructor() {
        this.root.addEventListener("keydown", (event) => this.key(event));
        this.root.addEventListener("focusin", (event) => this.rove(event.target as HTMLElement));
        new ResizeObserver(() => this.place()).observe(this.root);
    }

    show(items: Item[], by: Measure, now: number): void {
        [this.items, this.by, this.now] = [items, by, now];
        this.place();
    }

    /** Puts the focus on a tile, or on the first. */
    focus(key?: string): void {
        const tile = (key !== undefined && this.tiles.get(key)?.root) || this.links()[0];
        tile?.focus();
    }

    private place(): void {
        const { clientWidth: width, clientHeight: height } = this.root;
        const wanted = this.items.filter((item) => item.size > 0);
        if (width === 0 || height === 0) return;
        const top = hierarchy<{ items?: Item[]; item?: Item }>({ items: wanted }, (of) =>
            of.items?.map((item) => ({ item })),
        ).sum((of) => of.item?.size ?? 0);
        const placed = treemap<{ items?: Item[]; item?: Item }>().size([width, height]).paddingInner(2).round(true)(top);
        const kept = new Set<string>();
        for (const leaf of placed.leaves()) {
            const item = leaf.data.item;
            const [w, h] = [leaf.x1 - leaf.x0, leaf.y1 - leaf.y0];
            if (!item || w < 1 || h < 1) continue;
            kept.add(item.key);
            this.tile(item, leaf.x0, leaf.y0, w, h);
        }
        for (const [key, tile] of this.tiles) {
            if (kept.has(key)) continue;
            tile.root.remove();
            this.tiles.delete(key);
        }
        this.root.classList.toggle("empty", kept.size === 0);
        this.rove(document.activeElement);
    }

    private tile(item: Item, x: number, y: number, width: number, height: number): void {
        let tile = this.tiles.get(item.key);
        const tag = item.address === null ? "DIV" : "A";
        if (tile && tile.root.tagName !== tag) {
            tile.root.remove();
            tile = undefined;
        }
        if (!tile) {
            const [name, size] = [element("bdi", { class: "name" }), element("span", { class: "size" })];
            tile = { root: element(tag === "A" ? "a" : "div", {}, name, size), name, size };
            this.tiles.set(item.key, tile);
            this.root.append(tile.root);
        }
        const whole = this.items.reduce((sum, other) => sum + other.size, 0);
        const size = this.by === "inodes" ? `${count(item.size)} entries` : bytes(item.size);
        const told = [item.label, size, percent(item.size, whole), item.note].filter(Boolean).join(", ");
        const age = item.kind === "directory" ? ageClass(item.newest, this.now) : item.kind;
        set(tile.root, {
            class: `tile ${item.seen} age-${age}${width < 44 || height < 20 ? " bare" : width < 72 || height < 40 ? " flat" : ""}`,
            href: item.address === null ? null : `#${item.address}`,
            title: told,
            "aria-label": told,
            role: item.address === null ? "img" : null,
        });
        text(tile.name, item.label);
        text(tile.size, item.seen === "none" ? "no access" : size);
        Object.assign(tile.root.style, {
            left: `${x}px`,
            top: `${y}px`,
            width: `${width}px`,
            height: `${height}px`,
        });
    }

    private links(): HTMLElement[] {
        return this.items.flatMap((item) => {
            const tile = item.address === null ? undefined : this.tiles.get(item.key);
            return tile ? [tile.root] : [];
        });
    }

    /** One tile is reached by Tab: the last that had the focus; the others by arrows. */
    private rove(target: Element | null): void {
        const links = this.links();
        const current = links.find((link) => link === target) ?? links.find((link) => link.tabIndex === 0) ?? links[0];
        for (const link of links) link.tabIndex = link === current ? 0 : -1;
    }

    private key(event: KeyboardEvent): void {
        if (event.altKey || event.ctrlKey || event.metaKey) return;
        const links = this.links();
        const from = links.find((link) => link === document.activeElement);
        if (!from) return;
        let to: HTMLElement | undefined;
        if (event.key === "Home") to = links[0];
        else if (event.key === "End") to = links[links.length - 1];
        else if (/^Arrow/.test(event.key)) to = nearest(from, links, event.key as Step);
        else return;
        event.preventDefault();
        to?.focus();
    }
}

/** The tile that comes next in a direction: near, and beside rather than askew. */
function nearest(from: HTMLElement, links: HTMLElement[], step: Step): HTMLElement | undefined {
    const here = from.getBoundingClientRect();
    let best: HTMLElement | undefined;
    let least = Infinity;
    for (const link of links) {
        const there = link.getBoundingClientRect();
        const horizontal = step === "ArrowLeft" || step === "ArrowRight";
        const ahead = {
            ArrowLeft: here.left - there.right,
            ArrowRight: there.left - here.right,
            ArrowUp: here.top - there.bottom,
            ArrowDown: there.top - here.bottom,
        }[step];
        if (link === from || ahead < -1) continue;
        const aside = horizontal
            ? Math.max(0, there.top - here.bottom, here.top - there.bottom) * 4 + Math.abs(there.top - here.top) / 8
            : Math.max(0, there.left - here.right, here.left - there.right) * 4 + Math.abs(there.left - here.left) / 8;
        if (ahead + aside < least) [best, least] = [link, ahead + aside];
    }
    return best;
}
