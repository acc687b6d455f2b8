// What is asked, and what comes back (docs/FORMATS.md).

import type { Name } from "./names";

export type Measure = "allocated" | "bytes" | "inodes";

export interface Figures {
    bytes: number;
    directory_bytes: number;
    allocated: number;
    freed: number;
    files: number;
    directories: number;
    others: number;
}

export interface Child {
    name: Name;
    denied: boolean;
    partial: boolean;
    unreadable: number;
    total: Figures;
    newest?: number;
    largest?: number;
}

export interface Listing {
    answered_at: number;
    path: Name;
    top: Name;
    denied: boolean;
    partial: boolean;
    exact: boolean;
    /** When files that are written silently were looked for last. */
    checked_at?: number;
    /** Nobody tells what changes there: all was read again at `checked_at`. */
    timed?: boolean;
    /** Time was up: it is what was stored, and so many directories or more aren't counted yet. */
    late?: number;
    harvested_at: number;
    /** So many seconds ago it was right. */
    age: number;
    unreadable: number;
    total: Figures;
    own: Figures;
    newest?: number;
    largest?: number;
    children: Child[];
    rest: { count: number; total: Figures };
}

/** A summary that is declared. */
export interface Summary {
    name: string;
    by: string;
}

/** A pair of a breakdown; which values it has depends on the summary. */
export interface Share {
    key: Name;
    label?: string;
    from?: number;
    to?: number;
    inodes?: number;
    bytes?: number;
    allocated?: number;
    value?: number;
}

/** A directory by a summary. */
export interface Breakdown {
    by: string;
    answered_at: number;
    partial: boolean;
    shares: Share[];
    other?: Omit<Share, "key">;
    unknown: number;
    unknown_in?: Name[];
}

/** What a directory came to at a time. */
export interface Past {
    at: number;
    bytes: number;
    allocated: number;
    inodes: number;
}

export interface Growth {
    answered_at: number;
    path: Name;
    partial: boolean;
    points: Past[];
}

/** The server has said why there is no answer. */
export class Refused extends Error {
    constructor(
        readonly status: number,
        /** For programs. */
        readonly word: string,
        message: string,
    ) {
        super(message);
    }
}

const STORED = "token";

/** Only this page and origin can read it, and it goes with the tab. */
export const token = {
    get: (): string | null => sessionStorage.getItem(STORED),
    set: (value: string): void => sessionStorage.setItem(STORED, value),
    forget: (): void => sessionStorage.removeItem(STORED),
};

async function ask<T>(address: string, signal?: AbortSignal): Promise<T> {
    const headers = { Authorization: `Bearer ${token.get() ?? ""}` };
    const response = await fetch(address, { headers, signal, credentials: "omit" });
    const body = await response.json();
    if (!response.ok) throw new Refused(response.status, String(body.error), String(body.message));
    return body as T;
}

/** Directories that are told of by name. */
const LIMIT = 200;

/** `path` as in an address. */
export function directory(path: string, by: Measure, signal?: AbortSignal): Promise<Listing> {
    return ask(`/api/directory?limit=${LIMIT}&by=${by}&path=${path}`, signal);
}

/** After the directory itself was asked for: from then on it is noted. */
export function history(path: string, signal?: AbortSignal): Promise<Growth> {
    return ask(`/api/history?freshness=cached&path=${path}`, signal);
}

export function fileSystems(signal?: AbortSignal): Promise<Name[]> {
    return ask("/api/file-systems", signal);
}

export function summaries(signal?: AbortSignal): Promise<Summary[]> {
    return ask("/api/summaries", signal);
}

/** `path` as in an address. */
export function breakdown(path: string, by: string, signal?: AbortSignal): Promise<Breakdown> {
    return ask(`/api/breakdown?by=${encodeURIComponent(by)}&path=${path}`, signal);
}

export function value(figures: Figures, by: Measure): number {
    switch (by) {
        case "allocated":
            return figures.allocated;
        case "bytes":
            return figures.bytes + figures.directory_bytes;
        case "inodes":
            return inodes(figures);
    }
}

export function inodes(figures: Figures): number {
    return figures.files + figures.directories + figures.others;
}
