//! Lines through points.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Draw, LETTERS, legend, shade, tick, top_of, words};

/// Points of one series, from left to right.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over one axis.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) title: String,
    pub(crate) x_axis: String,
    pub(crate) y_axis: String,
    pub(crate) lines: Vec<Line>,
    /// Whether steps of the x axis are factors, not sums.
    pub(crate) log_x: bool,
    /// The same of the y axis.
    pub(crate) log_y: bool,
}

impl Lines {
    fn x_range(&self) -> (f64, f64) {
        let xs = || self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let (least, most) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        if least < most { (least, most) } else { (0.0, 1.0) }
    }

    /// Where the y axis begins and ends, in powers of ten where its steps are factors.
    fn y_range(&self) -> (f64, f64) {
        let ys = || self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        if !self.log_y {
            return (0.0, top_of(ys()));
        }
        let (least, most) =
            ys().filter(|y| *y > 0.0).fold((f64::INFINITY, 0.0_f64), |(least, most), y| (least.min(y), most.max(y)));
        if least > most { (0.0, 1.0) } else { ((least / 1.5).log10(), (most * 1.5).log10()) }
    }
}

/// One, two and five of each power of ten between two powers.
fn steps(bottom: f64, top: f64) -> Vec<f64> {
    let powers = bottom.floor() as i32..=top.ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|first| first * 10_f64.powi(power)));
    all.filter(|value| (bottom..=top).contains(&value.log10())).collect()
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
        let (bottom, top) = self.y_range();
        let raise = |y: f64| if self.log_y { y.max(f64::MIN_POSITIVE).log10() } else { y };
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .margin_top(34)
            .caption(&self.title, (super::FONT, 19))
            .x_label_area_size(52)
            .y_label_area_size(72)
            .build_cartesian_2d(from - rim..to + rim, bottom..top)?;
        let unplace = |at: &f64| if self.log_x { tick(10_f64.powf(*at)) } else { tick(*at) };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .x_labels(if self.log_x { 0 } else { 13 })
            .x_label_formatter(&unplace)
            .y_labels(if self.log_y { 0 } else { 11 })
            .y_label_formatter(&|value| tick(*value))
            .x_desc(&self.x_axis)
            .y_desc(&self.y_axis)
            .label_style(words(LETTERS))
            .draw()?;
        if self.log_x {
            self.label_each_x(area, &chart, place)?;
        }
        if self.log_y {
            let rims = (from - rim, to + rim);
            for value in steps(bottom, top) {
                let at = value.log10();
                let line = PathElement::new(vec![(rims.0, at), (rims.1, at)], BLACK.mix(0.15));
                chart.draw_series([line])?;
                let (left, middle) = chart.backend_coord(&(rims.0, at));
                let style = words(LETTERS).pos(Pos::new(HPos::Right, VPos::Center));
                area.draw(&Text::new(tick(value), (left - 8, middle), style))?;
            }
        }
        for (index, line) in self.lines.iter().enumerate() {
            let points = || line.points.iter().map(|&(x, y)| (place(x), raise(y)));
            // The lightest shades need a rim to be seen on white.
            chart.draw_series(LineSeries::new(points(), BLACK.mix(0.5).stroke_width(4)))?;
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
        let mut xs: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        for x in xs {
            let (left, top) = chart.backend_coord(&(place(x), self.y_range().0));
            let style = words(LETTERS - 1).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(tick(x), (left, top + 7), style))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_factors_reaches_beyond_what_it_shows() {
        let line = Line { name: "a".into(), points: vec![(1.0, 15.0), (2.0, 200.0)] };
        let lines = Lines { log_y: true, lines: vec![line], ..Lines::default() };
        let (bottom, top) = lines.y_range();
        assert!((bottom - 1.0).abs() < 1e-9 && (top - 300_f64.log10()).abs() < 1e-9);
        assert_eq!(steps(bottom - 1e-9, top), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Lines { log_y: true, ..Lines::default() }.y_range(), (0.0, 1.0));
    }
}
