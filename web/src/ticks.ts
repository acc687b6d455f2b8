// Where the axes of a chart are marked: at round figures, whatever the span.

import { UNITS, count } from "./format";

export type Tick = [number, string];

/** Steps between marks, at most. */
const MARKS = 4;

/** Round steps are 1, 2 and 5 times a power of ten. */
export function countTicks(low: number, high: number): Tick[] {
    const rough = Math.max((high - low) / MARKS, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough) ?? rough;
    return every(step, low, high).map((at) => [at, count(at)]);
}

/** Round steps are powers of two of bytes, so that they are round in KiB, MiB and so on. */
export function byteTicks(low: number, high: number): Tick[] {
    const step = 2 ** Math.ceil(Math.log2(Math.max((high - low) / MARKS, 1)));
    const ticks = every(step, low, high);
    let unit = UNITS.findIndex((_, power) => high < 1024 ** (power + 1));
    // In the largest unit in which no two look alike.
    for (; unit > 0; unit--) {
        const labels = ticks.map((at) => inUnit(at, unit));
        if (new Set(labels).size === labels.length && labels.every((label) => label.length < 12)) break;
    }
    return ticks.map((at) => [at, inUnit(at, Math.max(0, unit))]);
}

function inUnit(value: number, unit: number): string {
    return `${COUNT.format(value / 1024 ** unit)} ${UNITS[unit]}`;
}

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

function every(step: number, low: number, high: number): number[] {
    const ticks: number[] = [];
    for (let at = Math.ceil(low / step) * step; at <= high && ticks.length <= 2 * MARKS + 2; at += step) ticks.push(at);
    return ticks;
}

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((step) => step * MINUTE), ...[1, 2, 3, 6, 12].map((step) => step * HOUR)];
const DAYS = [1, 2, 7, 14];
const MONTHS = [1, 2, 3, 6, 12, 24, 60];

/** At most so many marks between two times, at full seconds, minutes, hours, days or months of the local clock. */
export function timeTicks(from: number, to: number, most: number): Tick[] {
    const span = Math.max(to - from, 1);
    const step = STEPS.find((step) => span / step <= most);
    if (step !== undefined) return clockTicks(from, to, step, span);
    const days = DAYS.find((days) => span / (days * DAY) <= most);
    const months = days === undefined ? (MONTHS.find((months) => span / (months * 30.44 * DAY) <= most) ?? 120) : 0;
    const at = new Date(from * 1000);
    at.setHours(0, 0, 0, 0);
    if (months > 0) {
        at.setDate(1);
        at.setMonth(months >= 12 ? 0 : at.getMonth() - (at.getMonth() % months));
    }
    const ticks: Tick[] = [];
    // Through the calendar, since days and months aren't all of one length.
    for (let guard = 0; guard < 1000 && at.getTime() / 1000 <= to; guard++) {
        const seconds = at.getTime() / 1000;
        if (seconds >= from) ticks.push([seconds, label(at, months > 0 ? { year: "numeric", month: "short" } : { day: "numeric", month: "short" })]);
        if (months > 0) at.setMonth(at.getMonth() + months);
        else at.setDate(at.getDate() + days!);
    }
    return ticks;
}

function clockTicks(from: number, to: number, step: number, span: number): Tick[] {
    const offset = new Date(from * 1000).getTimezoneOffset() * 60;
    const first = Math.ceil((from - offset) / step) * step + offset;
    const format: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", hour12: false };
    if (step < MINUTE) format.second = "2-digit";
    const ticks: Tick[] = [];
    for (let at = first; at <= to; at += step) {
        const date = new Date(at * 1000);
        const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
        ticks.push([at, label(date, isMidnight && span > HOUR ? { day: "numeric", month: "short" } : format)]);
    }
    return ticks;
}

function label(at: Date, how: Intl.DateTimeFormatOptions): string {
    return how.hour ? at.toLocaleTimeString("en-GB", how) : at.toLocaleDateString("en-GB", how);
}
