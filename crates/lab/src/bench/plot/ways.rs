//! The way of the head: from where to where it was, over time.

use plotters::prelude::*;

use super::{Area, Draw, LETTERS, shade, tick, words};

/// One panel.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) title: String,
    /// (seconds, from, to), each a tenth of a second.
    pub(crate) tenths: Vec<(f64, f64, f64)>,
}

/// Panels one below the other, over the same time, so that one that takes a tenth of it is a tenth as wide.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) axis: String,
    pub(crate) top: f64,
    pub(crate) panels: Vec<Way>,
}

impl Draw for Ways {
    fn size(&self) -> (u32, u32) {
        (900, self.panels.len() as u32 * 290)
    }

    fn draw(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        let seconds =
            self.panels.iter().filter_map(|way| way.tenths.last()).map(|tenth| tenth.0 + 0.1).fold(0.1, f64::max);
        for (index, (way, place)) in self.panels.iter().zip(area.split_evenly((self.panels.len(), 1))).enumerate() {
            let mut chart = ChartBuilder::on(&place)
                .margin(12)
                .margin_right(24)
                .caption(&way.title, (super::FONT, 17))
                .x_label_area_size(46)
                .y_label_area_size(70)
                .build_cartesian_2d(0.0..seconds, 0.0..self.top)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.15))
                .x_labels(11)
                .y_labels(6)
                .x_label_formatter(&|value| tick(*value))
                .y_label_formatter(&|value| tick(*value))
                .x_desc("seconds of modelled disk time")
                .y_desc(&self.axis)
                .label_style(words(LETTERS - 1))
                .draw()?;
            let colour = shade(index);
            chart.draw_series(way.tenths.iter().map(|&(at, from, to)| {
                // A single place must still be seen.
                let to = to.max(from + self.top / 250.0);
                Rectangle::new([(at, from), (at + 0.1_f64.max(seconds / 800.0), to)], colour.filled())
            }))?;
        }
        Ok(())
    }
}
