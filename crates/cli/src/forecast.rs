//! Plans: everything that knows what an estimate, a strategy and a disk model look like.

use std::{fmt::Write, io};

use onesweep::{CatalogueSize, DiskModel, DiskPlan, Estimate, Order, Reassembly, Strategy, Sweep};
use serde::Serialize;

use crate::{
    args::{DiskName, ReassemblyName, Settings},
    message,
    size::{Size, duration},
};

/// Reads the name of a way of reassembly.
pub(crate) fn reassembly(text: &str) -> Result<ReassemblyName, String> {
    match text {
        "auto" => Ok(ReassemblyName(Reassembly::Auto)),
        "first-fit" => Ok(ReassemblyName(Reassembly::FirstFit)),
        "deferred" => Ok(ReassemblyName(Reassembly::Deferred)),
        "on-demand" => Ok(ReassemblyName(Reassembly::OnDemand)),
        _ => Err(format!("unknown way of reassembly '{text}'; use auto, deferred, on-demand or first-fit")),
    }
}

/// Reads the name of a disk model.
pub(crate) fn disk_model(text: &str) -> Result<DiskName, String> {
    DiskModel::named(text).map(DiskName).ok_or_else(|| format!("unknown disk '{text}'; use one of {}", disk_names()))
}

fn disk_names() -> String {
    DiskModel::names().collect::<Vec<_>>().join(", ")
}

/// The help of `--disk`.
pub(crate) fn disk_help() -> String {
    format!("Disk that times are predicted for: {} [default: the first]", disk_names())
}

/// Predicted seconds, for the bar.
pub(crate) fn seconds_of(estimate: &Estimate) -> f64 {
    estimate.seconds
}

/// One line of a plan.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    order: &'static str,
    strategy: &'static str,
    chosen: bool,
    requests: u64,
    seeks: u64,
    bytes_useful: u64,
    bytes_read: u64,
    passes: u64,
    peak_memory: u64,
    seconds: f64,
}

impl Row {
    fn new(order: Order, strategy: Strategy, chosen: bool, estimate: &Estimate) -> Self {
        Self {
            order: order.name(),
            strategy: strategy.name(),
            chosen,
            requests: estimate.requests,
            seeks: estimate.seeks,
            bytes_useful: estimate.useful,
            bytes_read: estimate.read,
            passes: estimate.passes,
            peak_memory: estimate.peak_memory,
            seconds: estimate.seconds,
        }
    }
}

/// What was chosen for one disk.
#[derive(Debug, Serialize)]
pub(crate) struct Disk {
    disk: String,
    order: &'static str,
    remark: Option<String>,
    requests: u64,
    seeks: u64,
    seconds: f64,
}

impl Disk {
    fn new(plan: &DiskPlan) -> Self {
        Self {
            disk: plan.disk.clone(),
            order: plan.order.name(),
            remark: plan.remark.clone(),
            requests: plan.estimate.requests,
            seeks: plan.estimate.seeks,
            seconds: plan.estimate.seconds,
        }
    }
}

/// A whole plan, with what else would be possible.
#[derive(Debug, Serialize)]
pub(crate) struct Forecast {
    model: String,
    files: u64,
    partial: bool,
    disks: Vec<Disk>,
    plans: Vec<Row>,
    catalog: Catalog,
    errors: Vec<String>,
}

/// What is kept of the tree in memory.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Catalog {
    entries: u64,
    name_bytes: u64,
    fragments: u64,
    bytes: u64,
}

impl Catalog {
    fn new(size: CatalogueSize) -> Self {
        let CatalogueSize { entries, name_bytes, fragments, bytes } = size;
        Self { entries, name_bytes, fragments, bytes }
    }
}

impl Forecast {
    /// The plan in all orders and by all strategies.
    pub(crate) fn of(sweep: &Sweep, settings: &Settings) -> Self {
        // As the library chooses when nobody does.
        let by_mode = if settings.device == Some(true) { Strategy::Merged } else { Strategy::Unmerged };
        let chosen = settings.strategy.unwrap_or(by_mode);
        let disks = sweep.disks();
        let chosen_order = |order| disks.iter().any(|disk| disk.order == order);
        let mut plans = Vec::new();
        for order in Order::ALL.into_iter().filter(|&order| order != Order::Auto) {
            for strategy in Strategy::ALL {
                let is_chosen = chosen_order(order) && chosen == strategy;
                plans.push(Row::new(order, strategy, is_chosen, &sweep.estimate_with(order, strategy)));
            }
        }
        Self {
            model: disks.first().map(|disk| disk.estimate.disk.clone()).unwrap_or_default(),
            files: sweep.estimate().files,
            partial: sweep.is_partial(),
            disks: disks.iter().map(Disk::new).collect(),
            plans,
            catalog: Catalog::new(sweep.catalogue_size()),
            errors: sweep.errors().map(message::of_file).collect(),
        }
    }

    /// Writes tables for people.
    pub(crate) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(self.text().as_bytes())
    }

    /// Writes one JSON object.
    pub(crate) fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    fn text(&self) -> String {
        let mut text = format!("{} files to read; times for a {}\n", self.files, self.model);
        if self.partial {
            text.push_str("This is the plan of the first window: the tree exceeds --catalog-limit.\n");
        }
        for disk in &self.disks {
            let remark = disk.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
            let _ = writeln!(text, "disk {}: by {}{remark}", disk.disk, disk.order);
        }
        text.push('\n');
        text.push_str(HEADER);
        for row in &self.plans {
            let _ = writeln!(
                text,
                "{} {:<27} {:<9} {:>9} {:>9} {:>10} {:>10} {:>7} {:>10} {:>8}",
                if row.chosen { '*' } else { ' ' },
                row.order,
                row.strategy,
                row.requests,
                row.seeks,
                Size(row.bytes_useful),
                Size(row.bytes_read),
                row.passes,
                Size(row.peak_memory),
                duration(row.seconds)
            );
        }
        text
    }
}

const HEADER: &str =
    "  ORDER                       STRATEGY   REQUESTS     SEEKS     USEFUL       READ  PASSES     MEMORY     TIME\n";

/// The chosen plan in a few lines, for `--show-plan`.
pub(crate) fn short(sweep: &Sweep) -> String {
    let mut text = String::new();
    for disk in sweep.disks() {
        let remark = disk.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
        let _ = writeln!(text, "plan: {} by {}{remark}: {}", disk.disk, disk.order, cost(&disk.estimate));
    }
    if sweep.is_partial() {
        text.push_str("plan: that is the first window; the tree exceeds --catalog-limit\n");
    }
    text
}

fn cost(estimate: &Estimate) -> String {
    format!(
        "{} requests, {} seeks, {} useful of {} read, {} passes, {} of memory, {} on a {}",
        estimate.requests,
        estimate.seeks,
        Size(estimate.useful),
        Size(estimate.read),
        estimate.passes,
        Size(estimate.peak_memory),
        duration(estimate.seconds),
        estimate.disk
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for name in DiskModel::names() {
            assert_eq!(disk_model(name).unwrap().0.name, name);
            assert!(disk_help().contains(name));
        }
        assert!(reassembly("x").is_err() && disk_model("x").is_err());
    }

    #[test]
    fn the_table_is_aligned() {
        let estimate =
            Estimate { requests: 12, seeks: 3, useful: 4096, read: 8192, seconds: 1.5, ..Estimate::default() };
        let row = |chosen| Row::new(Order::FirstExtentPerDirectory, Strategy::Unmerged, chosen, &estimate);
        let forecast = Forecast {
            model: "test disk".into(),
            files: 2,
            partial: true,
            disks: vec![],
            plans: vec![row(true), row(false)],
            catalog: Catalog::default(),
            errors: vec![],
        };
        let text = forecast.text();
        let lines: Vec<_> = text.lines().skip_while(|line| !line.contains("STRATEGY")).collect();
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        assert!(lines[1].starts_with('*') && lines[2].starts_with(' '), "{text}");
        assert!(text.contains("first window"));
    }
}
