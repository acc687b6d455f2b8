// Figures for people.

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const COUNT = new Intl.NumberFormat("en");

export function bytes(value: number): string {
    let unit = 0;
    let scaled = Math.max(0, value);
    while (scaled >= 999.5 && unit + 1 < UNITS.length) {
        scaled /= 1024;
        unit += 1;
    }
    const digits = unit === 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
    return `${scaled.toFixed(digits)} ${UNITS[unit]}`;
}

export function count(value: number): string {
    return COUNT.format(value);
}

/** A count with its noun. */
export function counted(value: number, one: string, many: string): string {
    return `${count(value)} ${value === 1 ? one : many}`;
}

/** A change of something that `figure` writes. */
export function signed(change: number, figure: (value: number) => string): string {
    return change === 0 ? "±0" : `${change < 0 ? "−" : "+"}${figure(Math.abs(change))}`;
}

export function percent(part: number, whole: number): string {
    if (whole <= 0) return "–";
    const share = (100 * part) / whole;
    if (share > 0 && share < 0.1) return "< 0.1 %";
    return `${share.toFixed(share < 9.95 ? 1 : 0)} %`;
}

const STEPS: [number, string][] = [
    [60, "s"],
    [60, "min"],
    [24, "h"],
    [30.44, "d"],
    [12, "mo"],
    [Infinity, "y"],
];

/** A span of seconds, roughly. */
export function span(seconds: number): string {
    let value = Math.max(0, seconds);
    for (const [size, unit] of STEPS) {
        if (value < size) return `${Math.floor(value)} ${unit}`;
        value /= size;
    }
    return "";
}

/** How long ago; `at` and `now` in seconds since 1970. */
export function ago(at: number, now: number): string {
    return now - at < 5 ? "just now" : `${span(now - at)} ago`;
}

export function moment(at: number): string {
    return new Date(at * 1000).toLocaleString();
}

/** Ages by which tiles are coloured: the upper end in seconds, and what it is called. */
export const AGES: [number, string][] = [
    [3600, "hour"],
    [86_400, "day"],
    [7 * 86_400, "week"],
    [30.44 * 86_400, "month"],
    [365.25 * 86_400, "year"],
    [Infinity, "older"],
];

export function ageClass(newest: number | undefined, now: number): string {
    if (newest === undefined) return "older";
    return AGES.find(([end]) => now - newest < end)?.[1] ?? "older";
}
