// Asks again and again while somebody looks.

/** What comes of asking once: all was told, the server is still counting, or there is nothing more to ask. */
export type Asked = "told" | "counting" | "over";

/** Never more often; so often where it took long because the server waited, and did nothing for it. */
const SHORTEST_MS = 2000;
/** The server works at most one part in so many for one page. */
const REST = 20;

/** Calls `ask` until it is ended, each time when it is time; not while the page is hidden. */
export class Live {
    private timer: number | undefined;
    private running: AbortController | undefined;

    constructor(private readonly ask: (signal: AbortSignal) => Promise<Asked>) {
        document.addEventListener("visibilitychange", () => (document.hidden ? this.end() : void this.now()));
    }

    /** Asks at once; what is under way is dropped. */
    async now(): Promise<void> {
        this.end();
        const running = new AbortController();
        this.running = running;
        const began = performance.now();
        const asked = await this.ask(running.signal);
        if (running.signal.aborted || asked === "over") return;
        const took = asked === "counting" ? 0 : performance.now() - began;
        this.timer = window.setTimeout(() => void this.now(), Math.max(SHORTEST_MS, REST * took));
    }

    private end(): void {
        window.clearTimeout(this.timer);
        this.running?.abort();
    }
}
