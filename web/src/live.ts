// Asks again and again while somebody looks.

/** Never more often. */
const SHORTEST_MS = 2000;
/** The server works at most one part in so many for one page. */
const REST = 20;

/** Calls `ask` until it is ended, each time when it is time; not while the page is hidden. */
export class Live {
    private timer: number | undefined;
    private running: AbortController | undefined;

    constructor(private readonly ask: (signal: AbortSignal) => Promise<boolean>) {
        document.addEventListener("visibilitychange", () => (document.hidden ? this.end() : void this.now()));
    }

    /** Asks at once; what is under way is dropped. */
    async now(): Promise<void> {
        this.end();
        const running = new AbortController();
        this.running = running;
        const began = performance.now();
        const goesOn = await this.ask(running.signal);
        if (running.signal.aborted || !goesOn) return;
        const took = performance.now() - began;
        this.timer = window.setTimeout(() => void this.now(), Math.max(SHORTEST_MS, REST * took));
    }

    private end(): void {
        window.clearTimeout(this.timer);
        this.running?.abort();
    }
}
