//! A device as a Hilbert map in SVG.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    bytes_text,
    device_map::{DeviceMap, Shade},
    shortened,
    svg::Svg,
};

const MARGIN: f64 = 24.0;
/// Width of the map, whatever its cells.
const SIDE: u32 = 640;
const TOP: f64 = 66.0;
const STYLE: &str = "
text{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:#333}
.page{fill:#fff}.title{font-size:16px;font-weight:600;fill:#111}.frame{fill:none;stroke:#8a919c}
.free{fill:#f4f5f7}.partly{fill:#d3d7dd}.used{fill:#aab0ba}.unknown{fill:#e2e5e9}.whole{fill:#2f72b5}.fragmented{fill:#7a1f10}
@media (prefers-color-scheme:dark){text{fill:#c9ced6}.page{fill:#15181d}.title{fill:#f1f3f5}
.free{fill:#20252c}.partly{fill:#363d48}.used{fill:#565f6d}.unknown{fill:#2c323b}.whole{fill:#62a6e8}.fragmented{fill:#ffd29a}}
";

/// The map as SVG. `title` names the device, `subtitle` what was looked at.
pub fn svg(map: &DeviceMap, title: &str, subtitle: &str) -> String {
    let cell = f64::from(SIDE) / f64::from(map.side());
    let (width, height) = (f64::from(SIDE) + 2.0 * MARGIN, TOP + f64::from(SIDE) + 92.0);
    let mut svg = Svg::new(width, height, STYLE, title);
    svg.text("title", (MARGIN, 30.0), "start", &shortened(title, 64));
    svg.text("", (MARGIN, 50.0), "start", &shortened(subtitle, 94));
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    for y in 0..map.side() {
        let mut x = 0;
        while x < map.side() {
            let shade = map.shade_at(x, y);
            let mut end = x + 1;
            while end < map.side() && map.shade_at(end, y) == shade {
                end += 1;
            }
            let place = |at: u32| f64::from(at) * cell;
            let path = paths.entry(class(shade)).or_default();
            let (left, top, wide) = (MARGIN + place(x), TOP + place(y), place(end - x));
            let _ = write!(path, "M{left} {top}h{wide}v{cell}h-{wide}z");
            x = end;
        }
    }
    for (class, path) in &paths {
        svg.path(class, path);
    }
    svg.rect("frame", (MARGIN, TOP), (SIDE.into(), SIDE.into()));
    let below = TOP + f64::from(SIDE);
    let one = map.device_bytes() / (u64::from(map.side()) * u64::from(map.side()));
    let said = format!(
        "from byte 0 at the top left along a Hilbert curve to {} at the top right; a cell is {}",
        bytes_text(map.device_bytes()),
        bytes_text(one)
    );
    svg.text("", (MARGIN, below + 18.0), "start", &said);
    let mut legend = vec![(Shade::Fragmented, "these files, fragmented"), (Shade::Whole, "these files, in one piece")];
    match map.knows_free() {
        true => legend.extend([(Shade::Used, "others"), (Shade::Partly, "others, mostly free"), (Shade::Free, "free")]),
        false => legend.push((Shade::Unknown, "others or free: not known")),
    }
    for (index, (shade, text)) in legend.into_iter().enumerate() {
        let (column, row) = ((index % 3) as f64, (index / 3) as f64);
        let (x, y) = (MARGIN + column * 214.0, below + 32.0 + row * 22.0);
        svg.rect(class(shade), (x, y), (14.0, 14.0));
        svg.rect("frame", (x, y), (14.0, 14.0));
        svg.text("", (x + 20.0, y + 11.0), "start", text);
    }
    svg.finish()
}

fn class(shade: Shade) -> &'static str {
    match shade {
        Shade::Free => "free",
        Shade::Partly => "partly",
        Shade::Used => "used",
        Shade::Unknown => "unknown",
        Shade::Whole => "whole",
        Shade::Fragmented => "fragmented",
    }
}

#[cfg(test)]
mod tests {
    use super::super::device_map::Kind;
    use super::*;

    #[test]
    fn cells_are_drawn_where_the_curve_has_them() {
        // Four cells of a quarter each: down, right, up.
        let mut map = DeviceMap::new(400, 1);
        map.add(Kind::Whole, 0..10);
        map.add(Kind::Fragmented, 100..300);
        let text = svg(&map, "sda", "x");
        let path = |class: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("<path class=\"{class}\"")));
            line.and_then(|line| line.split("d=\"").nth(1)).unwrap_or_default().trim_end_matches("\"/>").to_owned()
        };
        assert_eq!(path("whole"), "M24 66h320v320h-320z");
        assert_eq!(path("fragmented"), "M24 386h640v320h-640z");
        assert_eq!(path("unknown"), "M344 66h320v320h-320z");
        assert!(text.contains("not known") && !text.contains(">free<"), "{text}");
        map.know_free();
        assert!(svg(&map, "sda", "x").contains(">free<"));
    }

    /// Shades differ in brightness, in light and in dark.
    #[test]
    fn shades_differ_in_grey() {
        let (light, dark) = STYLE.split_once("@media").unwrap();
        for (style, rising) in [(light, true), (dark, false)] {
            let grey = |class: &str| {
                let colour = style.split(&format!(".{class}{{fill:#")).nth(1).unwrap();
                let part = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap());
                0.299 * part(0) + 0.587 * part(2) + 0.114 * part(4)
            };
            let mut greys = ["fragmented", "whole", "used", "partly", "free"].map(grey);
            if !rising {
                greys.reverse();
            }
            assert!(greys.windows(2).all(|pair| pair[1] - pair[0] > 20.0), "{greys:?}");
        }
    }
}
