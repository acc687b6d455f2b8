//! Pictures: each kind is given numbers and words, and knows nothing of what they mean.
//!
//! Shades differ in grey too, and a value that wasn't measured leaves its place empty.

mod bars;
mod boxes;
mod lines;
mod ways;

pub(crate) use bars::Bars;
pub(crate) use boxes::{Boxes, Group};
pub(crate) use lines::{Line, Lines};
pub(crate) use ways::{Way, Ways};

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// From dark to light; in grey they are 0.16, 0.39, 0.59, 0.76 and 0.90.
const SHADES: [RGBColor; 5] = [
    RGBColor(0x1b, 0x2a, 0x49),
    RGBColor(0xb5, 0x44, 0x2e),
    RGBColor(0x5f, 0xa8, 0xd3),
    RGBColor(0xf2, 0xc1, 0x4e),
    RGBColor(0xe6, 0xe6, 0xe6),
];

const FONT: &str = "sans-serif";
const LETTERS: i32 = 15;

fn shade(index: usize) -> RGBColor {
    SHADES[index % SHADES.len()]
}

/// Something that can be drawn.
pub(crate) trait Draw {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);

    fn draw(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>>;
}

/// Where pictures go.
pub(crate) struct Pictures {
    dir: Option<PathBuf>,
    drawn: BTreeSet<OsString>,
}

impl Pictures {
    pub(crate) fn into(dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self { dir: Some(dir.to_owned()), drawn: BTreeSet::new() })
    }

    /// Draws nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { dir: None, drawn: BTreeSet::new() }
    }

    /// Draws `NAME.svg`, and gives the Markdown that shows it.
    pub(crate) fn add(&mut self, name: &str, words: &str, picture: &impl Draw) -> Result<String, String> {
        let folder = self.dir.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        if let Some(dir) = &self.dir {
            let svg = svg(picture).map_err(|error| format!("{name}: {error}"))?;
            let path = dir.join(format!("{name}.svg"));
            fs::write(&path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
            self.drawn.extend(path.file_name().map(OsString::from));
        }
        Ok(format!("![{words}]({folder}/{name}.svg)\n"))
    }

    /// Removes pictures of former results that are shown no more: those that the page showed `before`. Others' stay.
    pub(crate) fn drop_others(&self, before: &str) -> Result<(), String> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let said = |error: std::io::Error| format!("{}: {error}", dir.display());
        for entry in fs::read_dir(dir).map_err(said)? {
            let path = entry.map_err(said)?.path();
            let is_picture = path.extension().is_some_and(|extension| extension == "svg");
            let Some(name) = path.file_name().filter(|_| is_picture) else { continue };
            let is_ours = before.contains(&format!("/{})", name.to_string_lossy()));
            if is_ours && !self.drawn.contains(name) {
                fs::remove_file(&path).map_err(said)?;
            }
        }
        Ok(())
    }
}

fn svg(picture: &impl Draw) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, picture.size()).into_drawing_area();
        area.fill(&WHITE)?;
        picture.draw(&area)?;
        area.present()?;
    }
    Ok(text)
}

/// A place for words of a colour.
fn words(size: i32) -> TextStyle<'static> {
    TextStyle::from((FONT, size).into_font()).color(&BLACK)
}

/// The least round number above a value, a little above for what stands on top.
fn top_of(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max) * 1.08;
    if most <= 0.0 {
        return 1.0;
    }
    let step = 10_f64.powf(most.log10().floor()) / 4.0;
    (most / step).ceil() * step
}

/// A number on an axis.
fn tick(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The names of series with their shades, in one line at the top left.
fn legend(area: &Area, left: i32, top: i32, names: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let mut x = left;
    for (index, name) in names.iter().copied().enumerate() {
        let square = [(x, top), (x + 14, top + 14)];
        area.draw(&Rectangle::new(square, shade(index).filled()))?;
        area.draw(&Rectangle::new(square, BLACK.stroke_width(1)))?;
        area.draw(&Text::new(name.to_owned(), (x + 20, top), words(LETTERS)))?;
        x += entry_width(name);
    }
    Ok(())
}

/// What a name in the legend takes, with the space behind it.
fn entry_width(name: &str) -> i32 {
    20 + width_of(name) + 22
}

/// About how wide words are, on the wide side: the viewer's font isn't known here.
fn width_of(text: &str) -> i32 {
    (text.chars().count() as f64 * f64::from(LETTERS) * 0.54) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_above_what_they_show() {
        assert_eq!(top_of([3.0, 9.0].into_iter()), 9.75);
        assert_eq!(top_of([187.0].into_iter()), 225.0);
        assert_eq!(top_of(std::iter::empty()), 1.0);
        assert_eq!([0.5, 10.0, 2.25, 100.0].map(tick), ["0.5", "10", "2.25", "100"]);
    }

    #[test]
    fn shades_differ_in_grey() {
        let grey =
            |shade: &RGBColor| 0.299 * f64::from(shade.0) + 0.587 * f64::from(shade.1) + 0.114 * f64::from(shade.2);
        assert!(SHADES.windows(2).all(|pair| grey(&pair[1]) - grey(&pair[0]) > 30.0));
    }

    #[test]
    fn a_picture_is_shown_beside_its_page() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(&dir.path().join("pictures")).unwrap();
        let bars = Bars {
            title: "A title".into(),
            axis: "seconds".into(),
            groups: vec!["one".into(), "two\nlines".into()],
            series: vec![("off".into(), vec![Some(1.0), None]), ("on".into(), vec![Some(2.0), Some(12.5)])],
        };
        assert_eq!(pictures.add("figure", "words", &bars).unwrap(), "![words](pictures/figure.svg)\n");
        let svg = fs::read_to_string(dir.path().join("pictures/figure.svg")).unwrap();
        assert!(svg.contains("A title") && svg.contains("12.5") && svg.contains("lines"), "{svg}");
    }
}
