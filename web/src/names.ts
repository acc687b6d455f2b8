// Names and paths: bytes to the kernel, text to people, percent signs in addresses.

/** Text where it is UTF-8, else its bytes. */
export type Name = string | number[];

const PLAIN = /[A-Za-z0-9\-_.~/]/;

function bytesOf(name: Name): Uint8Array {
    return typeof name === "string" ? new TextEncoder().encode(name) : Uint8Array.from(name);
}

/** A name or path as it stands in an address, whatever its bytes. */
export function encoded(name: Name): string {
    let text = "";
    for (const byte of bytesOf(name)) {
        const char = String.fromCharCode(byte);
        text += byte < 128 && PLAIN.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    }
    return text;
}

/** The same from an address that somebody may have typed. */
export function normalized(address: string): string {
    const bytes: number[] = [];
    for (let at = 0; at < address.length; ) {
        const escape = /^%[0-9a-fA-F]{2}/.exec(address.slice(at, at + 3));
        if (escape) {
            bytes.push(parseInt(escape[0].slice(1), 16));
            at += 3;
        } else {
            const char = String.fromCodePoint(address.codePointAt(at)!);
            bytes.push(...new TextEncoder().encode(char));
            at += char.length;
        }
    }
    return encoded(bytes);
}

/** A name for people: what isn't text as U+FFFD, control characters as pictures of them. */
export function shown(name: Name): string {
    const text = typeof name === "string" ? name : new TextDecoder().decode(bytesOf(name));
    return text.replace(/[\u0000-\u001f]/g, (char) => String.fromCharCode(0x2400 + char.charCodeAt(0))).replace(/\u007f/g, "\u2421");
}

/** The address of what is called `name` in the directory at `path`. */
export function inside(path: string, name: Name): string {
    return `${path === "/" ? "" : path}/${encoded(name)}`;
}

/** The path above; `null` of the root. */
export function above(path: string): string | null {
    return path === "/" ? null : path.slice(0, path.lastIndexOf("/")) || "/";
}

/** What of an address is shown. */
export function shownAddress(address: string): string {
    const bytes = address.split(/(%[0-9A-F]{2})/).flatMap((part) =>
        /^%[0-9A-F]{2}$/.test(part) ? [parseInt(part.slice(1), 16)] : [...new TextEncoder().encode(part)],
    );
    return shown(bytes);
}
