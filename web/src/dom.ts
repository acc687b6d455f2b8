// Elements, without any text that could be taken for markup.

type Attributes = Record<string, string | null>;

export function element<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    attributes: Attributes = {},
    ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
    const made = document.createElement(tag);
    set(made, attributes);
    made.append(...children);
    return made;
}

/** Sets attributes that differ; `null` takes one away. */
export function set(target: Element, attributes: Attributes): void {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === null) target.removeAttribute(name);
        else if (target.getAttribute(name) !== value) target.setAttribute(name, value);
    }
}

export function text(target: Element, value: string): void {
    if (target.textContent !== value) target.textContent = value;
}

/** Makes the children of `parent` those of `wanted`, and moves no more than needed, so that the focus stays. */
export function arrange(parent: Element, wanted: Element[]): void {
    const keep = new Set(wanted);
    for (const child of [...parent.children]) {
        if (!keep.has(child)) child.remove();
    }
    wanted.forEach((child, at) => {
        const there = parent.children[at];
        if (there !== child) parent.insertBefore(child, there ?? null);
    });
}
