//! Boxplots, several panels of them.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Draw, LETTERS, shade, tick, words};
use crate::bench::statistics::Spread;

/// A box for each series, over one name.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) boxes: Vec<Option<Spread>>,
}

/// Panels with groups of boxes over an axis whose steps are factors: from quartile to quartile, with the median in it, and the extremes at its arms.
/// A box that is too flat to show its colour is a dot instead.
#[derive(Debug)]
pub(crate) struct Boxes {
    pub(crate) axis: String,
    pub(crate) series: Vec<String>,
    pub(crate) panels: Vec<(String, Vec<Group>)>,
    pub(crate) columns: usize,
}

/// A box of less than so many pixels of height shows nothing but its rim.
const FLAT: i32 = 6;

/// Where the axis of a panel begins and ends: a fifth beyond what it shows.
fn rims(spreads: impl Iterator<Item = Spread>) -> (f64, f64) {
    let rims =
        spreads.fold((f64::INFINITY, 0.0_f64), |rims, spread| (rims.0.min(spread.least), rims.1.max(spread.greatest)));
    if rims.0 > 0.0 && rims.1.is_finite() && rims.0 <= rims.1 { (rims.0 / 1.2, rims.1 * 1.2) } else { (0.1, 10.0) }
}

/// One, two and five of each power of ten have a label; more would overlap.
fn step(value: f64) -> String {
    let first = value / 10_f64.powf(value.log10().floor());
    if [1.0, 2.0, 5.0].iter().any(|step| (first - step).abs() < 0.01) { tick(value) } else { String::new() }
}

impl Draw for Boxes {
    fn size(&self) -> (u32, u32) {
        let rows = self.panels.len().div_ceil(self.columns).max(1);
        (self.columns as u32 * 440, rows as u32 * 320 + 34)
    }

    fn draw(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
        super::legend(area, 70, 10, &names)?;
        let (_, below) = area.split_vertically(34);
        let rows = self.panels.len().div_ceil(self.columns).max(1);
        for (panel, place) in self.panels.iter().zip(below.split_evenly((rows, self.columns))) {
            self.panel(&place, &panel.0, &panel.1)?;
        }
        Ok(())
    }
}

impl Boxes {
    fn panel(&self, area: &Area, title: &str, groups: &[Group]) -> Result<(), Box<dyn std::error::Error>> {
        let all = groups.iter().flat_map(|group| group.boxes.iter().flatten());
        let (least, most) = rims(all.copied());
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .caption(title, (super::FONT, 16))
            .x_label_area_size(34)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..groups.len() as f64, (least..most).log_scale())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .y_labels(12)
            .y_label_formatter(&|value| step(*value))
            .y_desc(&self.axis)
            .label_style(words(LETTERS - 2))
            .draw()?;
        for (place, group) in groups.iter().enumerate() {
            for (index, spread) in group.boxes.iter().enumerate() {
                let Some(spread) = spread else { continue };
                let width = 0.8 / self.series.len() as f64;
                let left = place as f64 + 0.1 + index as f64 * width + width * 0.1;
                let (right, middle) = (left + width * 0.8, left + width * 0.4);
                let corners = [(left, spread.lower), (right, spread.upper)];
                let line = |from, to| PathElement::new(vec![from, to], BLACK.stroke_width(1));
                chart.draw_series([line((middle, spread.least), (middle, spread.greatest))])?;
                let arm = width * 0.2;
                for value in [spread.least, spread.greatest] {
                    chart.draw_series([line((middle - arm, value), (middle + arm, value))])?;
                }
                let height = chart.backend_coord(&corners[0]).1 - chart.backend_coord(&corners[1]).1;
                if height < FLAT {
                    let dot = |style: ShapeStyle| Circle::new((middle, spread.median), FLAT - 1, style);
                    chart.draw_series([dot(shade(index).filled()), dot(BLACK.stroke_width(1))])?;
                    continue;
                }
                chart.draw_series([
                    Rectangle::new(corners, shade(index).filled()),
                    Rectangle::new(corners, BLACK.stroke_width(1)),
                ])?;
                let median = vec![(left, spread.median), (right, spread.median)];
                chart.draw_series([PathElement::new(median, WHITE.stroke_width(2))])?;
            }
            let (x, y) = chart.backend_coord(&(place as f64 + 0.5, least));
            let style = words(LETTERS - 2).pos(Pos::new(HPos::Center, VPos::Top));
            // Coordinates of a panel are those of the whole picture.
            let (left, top) = area.get_base_pixel();
            area.draw(&Text::new(group.name.clone(), (x - left, y - top + 7), style))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::statistics;

    #[test]
    fn a_panel_reaches_beyond_what_it_shows() {
        let spread = |values: &[f64]| statistics::spread(values.to_vec()).unwrap();
        let (least, most) = rims([spread(&[1.2, 3.0]), spread(&[2.0, 10.0])].into_iter());
        assert!((least - 1.0).abs() < 1e-9 && (most - 12.0).abs() < 1e-9);
        assert_eq!([0.02, 10.0, 50.0, 70.0].map(step), ["0.02", "10", "50", ""]);
        assert_eq!(rims(std::iter::empty()), (0.1, 10.0));
    }
}
