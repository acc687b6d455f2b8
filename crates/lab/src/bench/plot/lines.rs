//! Lines through points.

use plotters::prelude::*;

use super::{Area, Draw, LETTERS, legend, shade, tick, top_of, words};

/// Points of one series, from left to right.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over one axis.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) title: String,
    pub(crate) x_axis: String,
    pub(crate) y_axis: String,
    pub(crate) lines: Vec<Line>,
    /// Whether steps of the x axis are factors, not sums.
    pub(crate) log_x: bool,
}

impl Lines {
    fn x_range(&self) -> (f64, f64) {
        let xs = || self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let (least, most) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        if least < most { (least, most) } else { (0.0, 1.0) }
    }
}

impl Draw for Lines {
    fn size(&self) -> (u32, u32) {
        (820, 440)
    }

    fn draw(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        let (left, right) = self.x_range();
        let place = |x: f64| if self.log_x { x.max(f64::MIN_POSITIVE).log10() } else { x };
        let (from, to) = (place(left), place(right));
        let rim = (to - from) * 0.03;
        let top = top_of(self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)));
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .margin_top(34)
            .caption(&self.title, (super::FONT, 19))
            .x_label_area_size(52)
            .y_label_area_size(72)
            .build_cartesian_2d(from - rim..to + rim, 0.0..top)?;
        let unplace = |at: &f64| if self.log_x { tick(10_f64.powf(*at)) } else { tick(*at) };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .x_labels(if self.log_x { 0 } else { 13 })
            .x_label_formatter(&unplace)
            .y_label_formatter(&|value| tick(*value))
            .x_desc(&self.x_axis)
            .y_desc(&self.y_axis)
            .label_style(words(LETTERS))
            .draw()?;
        if self.log_x {
            self.label_each_x(area, &chart, place)?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            let points = || line.points.iter().map(|&(x, y)| (place(x), y));
            chart.draw_series(LineSeries::new(points(), shade(index).stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 4, shade(index).filled())))?;
            chart.draw_series(points().map(|point| Circle::new(point, 4, BLACK.stroke_width(1))))?;
        }
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        legend(area, 90, 8, &names)
    }
}

impl Lines {
    /// Where steps are factors, the values that were measured stand below the axis.
    fn label_each_x(
        &self,
        area: &Area,
        chart: &super::Chart<'_, '_>,
        place: impl Fn(f64) -> f64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        use plotters::style::text_anchor::{HPos, Pos, VPos};
        let mut xs: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        for x in xs {
            let (left, top) = chart.backend_coord(&(place(x), 0.0));
            let style = words(LETTERS - 1).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(tick(x), (left, top + 7), style))?;
        }
        Ok(())
    }
}
