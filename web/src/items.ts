// What of a listing is shown: the directories in it, its own files, and all others in one.

import { type Listing, type Measure, type Figures, inodes, value } from "./api";
import { counted } from "./format";
import { encoded, inside, shown } from "./names";

export interface Item {
    key: string;
    label: string;
    kind: "directory" | "files" | "rest";
    /** Where it leads; `null` where it can't be entered. */
    address: string | null;
    /** What isn't seen of it. */
    seen: "whole" | "part" | "none";
    /** That in a word or two, and in a sentence. */
    mark: string;
    note: string;
    figures: Figures;
    size: number;
    newest: number | undefined;
}

export function items(listing: Listing, path: string, by: Measure): Item[] {
    const found: Item[] = listing.children.map((child) => ({
        key: `d${encoded(child.name)}`,
        label: shown(child.name),
        kind: "directory",
        address: child.denied ? null : inside(path, child.name),
        seen: child.denied ? "none" : child.partial || child.unreadable > 0 ? "part" : "whole",
        mark: child.denied ? "no access" : child.partial ? "partial" : child.unreadable > 0 ? "unreadable" : "",
        note: note(child.denied, child.partial, child.unreadable),
        figures: child.total,
        size: value(child.total, by),
        newest: child.newest,
    }));
    const own = listing.own;
    if (!listing.denied && inodes(own) > 1) {
        const files = own.files + own.others;
        // Its newest change isn't told apart from that of all.
        found.push(item("files", counted(files, "file here", "files here"), own, by));
    }
    if (listing.rest.count > 0) {
        const label = counted(listing.rest.count, "smaller directory", "smaller directories");
        found.push(item("rest", label, listing.rest.total, by));
    }
    return found.sort((one, other) => Number(one.kind === "rest") - Number(other.kind === "rest") || other.size - one.size);
}

function item(kind: "files" | "rest", label: string, figures: Figures, by: Measure): Item {
    const size = Math.max(0, value(figures, by));
    return { key: kind, label, kind, address: null, seen: "whole", mark: "", note: "", figures, size, newest: undefined };
}

/** What isn't seen of a directory, in words; nothing where all is. */
export function note(denied: boolean, partial: boolean, unreadable: number): string {
    if (denied) return "no access";
    const notes = partial ? ["partial: some of it is not yours to see"] : [];
    if (unreadable > 0) notes.push(`${counted(unreadable, "directory", "directories")} could not be read`);
    return notes.join("; ");
}
