//! Text of SVG, piece by piece.

use std::fmt::{Display, Write};

/// An image that is being written. Elements are closed by who opens them.
pub(super) struct Svg {
    text: String,
    open: Vec<&'static str>,
}

impl Svg {
    /// Begins an image of that size, with style rules, an accessible title, and a background over all of it.
    pub(super) fn new(width: f64, height: f64, style: &str, title: &str) -> Svg {
        let mut svg = Svg { text: String::new(), open: Vec::new() };
        let _ = write!(
            svg.text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n<title>{}</title>\n<style>{style}</style>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n",
            escaped(title)
        );
        svg
    }

    /// An element without content.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.start(name, attributes);
        self.text.push_str("/>\n");
    }

    fn start(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        let _ = write!(self.text, "<{name}");
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"{}\"", escaped(&value.to_string()));
        }
    }

    /// Opens a group of a class; [`Svg::end`] closes it.
    pub(super) fn group(&mut self, class: &str) {
        self.start("g", &[("class", &class)]);
        self.text.push_str(">\n");
        self.open.push("g");
    }

    /// What is shown of a group where somebody points at it.
    pub(super) fn hint(&mut self, text: &str) {
        let _ = writeln!(self.text, "<title>{}</title>", escaped(text));
    }

    /// Closes what was opened last.
    pub(super) fn end(&mut self) {
        if let Some(name) = self.open.pop() {
            let _ = writeln!(self.text, "</{name}>");
        }
    }

    /// A line of text; `anchor` is start, middle or end.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        self.start("text", &[("class", &class), ("x", &Px(x)), ("y", &Px(y)), ("text-anchor", &anchor)]);
        let _ = writeln!(self.text, ">{}</text>", escaped(text));
    }

    /// A rectangle.
    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let mut attributes: Vec<(&str, &dyn Display)> = Vec::new();
        if !class.is_empty() {
            attributes.push(("class", &class));
        }
        let (x, y, width, height) = (Px(x), Px(y), Px(width), Px(height));
        attributes.extend([("x", &x as &dyn Display), ("y", &y), ("width", &width), ("height", &height)]);
        self.element("rect", &attributes);
    }

    /// A path by its commands.
    pub(super) fn path(&mut self, class: &str, commands: &str) {
        if !commands.is_empty() {
            self.element("path", &[("class", &class), ("d", &commands)]);
        }
    }

    /// The whole image.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// A length in pixels, with as many digits as can be seen.
#[derive(Clone, Copy)]
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.0 * 100.0).round() / 100.0;
        // No minus before a zero.
        write!(f, "{}", rounded + 0.0)
    }
}

/// Text that means itself. What XML has no way to write (control characters, but for white space) becomes U+FFFD.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_themselves() {
        assert_eq!(escaped("<a href=\"x\">&'\u{1b}[2J\n"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}[2J ");
    }

    #[test]
    fn what_is_open_is_closed() {
        let mut svg = Svg::new(10.0, 5.5, "", "a<b");
        svg.group("x");
        svg.group("y");
        svg.rect("", (1.0, 2.0), (0.333_33, -0.001));
        let text = svg.finish();
        assert!(text.contains("<title>a&lt;b</title>") && text.contains("viewBox=\"0 0 10 5.5\""), "{text}");
        assert!(text.ends_with("<rect x=\"1\" y=\"2\" width=\"0.33\" height=\"0\"/>\n</g>\n</g>\n</svg>\n"), "{text}");
    }
}
