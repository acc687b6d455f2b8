//! Bars in groups.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Draw, LETTERS, entry_width, legend, shade, tick, top_of, words};
use crate::bench::page::number;

/// A bar for each series in each group.
#[derive(Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    /// What the numbers are, with their unit.
    pub(crate) axis: String,
    /// Below each group; may have two lines.
    pub(crate) groups: Vec<String>,
    /// A value for each group.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
}

/// The part of a group's width that its bars fill.
const FILLED: f64 = 0.8;

impl Draw for Bars {
    fn size(&self) -> (u32, u32) {
        let bars = self.groups.len() * self.series.len();
        let legend: i32 = self.series.iter().map(|series| entry_width(&series.0)).sum();
        ((bars as u32 * 42 + 160).clamp(700, 1400).max(legend as u32 + 100), 440)
    }

    fn draw(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        let groups = self.groups.len() as f64;
        let top = top_of(self.series.iter().flat_map(|series| series.1.iter().flatten().copied()));
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .margin_top(34)
            .caption(&self.title, (super::FONT, 19))
            .x_label_area_size(50)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..groups, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .y_labels(8)
            .y_label_formatter(&|value| tick(*value))
            .y_desc(&self.axis)
            .label_style(words(LETTERS))
            .draw()?;
        let middle = Pos::new(HPos::Center, VPos::Top);
        let above = words(LETTERS - 3).pos(Pos::new(HPos::Center, VPos::Bottom));
        let width = FILLED / self.series.len() as f64;
        for (index, (_, values)) in self.series.iter().enumerate() {
            for (group, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                let left = group as f64 + (1.0 - FILLED) / 2.0 + index as f64 * width;
                let corners = [(left, 0.0), (left + width * 0.94, value)];
                chart.draw_series([
                    Rectangle::new(corners, shade(index).filled()),
                    Rectangle::new(corners, BLACK.stroke_width(1)),
                ])?;
                let (x, y) = chart.backend_coord(&(left + width * 0.47, value));
                area.draw(&Text::new(number(value), (x, y - 3), above.clone()))?;
            }
        }
        for (group, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            for (line, text) in name.lines().enumerate() {
                let place = (x, y + 8 + line as i32 * (LETTERS + 3));
                area.draw(&Text::new(text.to_owned(), place, words(LETTERS - 1).pos(middle)))?;
            }
        }
        let names: Vec<&str> = self.series.iter().map(|series| series.0.as_str()).collect();
        if names.len() > 1 { legend(area, 90, 8, &names) } else { Ok(()) }
    }
}
