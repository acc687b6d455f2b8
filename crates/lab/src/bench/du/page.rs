//! Tables and pictures of what was measured.

use std::fmt::Write as _;
use std::path::Path;

use super::outcomes::{Cost, Costs, Days, Many, Measured, Outcome, Outcomes, Step, Times};
use crate::bench::page::{Table, count, fs_name, number, spread};
use crate::bench::plot::{Line, Lines, Pictures};
use crate::bench::statistics;

/// The part of the page; empty where nothing was measured at full size.
pub(crate) fn show(dir: &Path, pictures: &mut Pictures) -> Result<String, String> {
    let outcomes = Outcomes::load(dir)?;
    let all: Vec<(&str, &Measured)> =
        outcomes.cases.iter().filter(|case| case.1.scale == 1.0).map(|(name, measured)| (&**name, measured)).collect();
    if all.is_empty() {
        return Ok(String::new());
    }
    let mut commits: Vec<String> = all.iter().map(|case| format!("`{}`", case.1.commit)).collect();
    commits.sort();
    commits.dedup();
    let mut text = format!(
        "\n## Directory summaries\n\nMeasured by `onesweep-lab bench du`, at {}. The server's store lies on another disk. Before \
         each question the file system is frozen and thawed, so that nothing waits in its log, and all caches are \
         dropped; `onesweep du -s` and GNU `du -s` are asked one after the other, and have to say the same.\n",
        commits.join(", ")
    );
    let of_days = |case: &(&str, &Measured)| match &case.1.outcome {
        Outcome::Days(days) => Some((case.0.to_owned(), days.clone())),
        _ => None,
    };
    let days: Vec<(String, Days)> = all.iter().filter_map(of_days).collect();
    if !days.is_empty() {
        text += &of_all_days(&days, pictures)?;
    }
    text += &of_the_rest(&all);
    Ok(text)
}

fn seconds(cost: Cost) -> String {
    number(cost.busy_ms / 1000.0)
}

fn times(of: Cost, ours: Cost) -> f64 {
    of.busy_ms / ours.busy_ms.max(0.001)
}

fn of_all_days(all: &[(String, Days)], pictures: &mut Pictures) -> Result<String, String> {
    let mut text = String::from(
        "\n### FastDu, figure 2: a question after each day\n\nSeconds of the modelled disk (`barracuda-7200.11`, track buffer \
         off, the image over the whole stroke). The paper: over 100 times, about 10 after day 11 of server A, on which 8 % \
         new files come.\n\n",
    );
    let mut table =
        Table::new(&["days", "question", "GNU du", "du ÷ ours, median", "least", "after day 11", "1 % scattered"]);
    let mut first = Table::new(&["first harvest", "ours", "GNU du", "gdu", "dua", "diskus"]);
    let mut lines = Vec::new();
    for (name, days) in all {
        let mut ratios: Vec<f64> =
            days.days.iter().filter(|day| day.day != 11).map(|day| times(day.du, day.ours)).collect();
        ratios.sort_by(f64::total_cmp);
        let mut ours: Vec<Cost> = days.days.iter().map(|day| day.ours).collect();
        ours.sort_by(|one, other| one.busy_ms.total_cmp(&other.busy_ms));
        let mut du: Vec<Cost> = days.days.iter().map(|day| day.du).collect();
        du.sort_by(|one, other| one.busy_ms.total_cmp(&other.busy_ms));
        let middle = |costs: &[Cost]| costs.get(costs.len() / 2).copied().map_or(String::new(), seconds);
        let eleventh = days.days.iter().find(|day| day.day == 11);
        table.row(vec![
            format!("`{name}`: {} files, {} directories", count(days.files), count(days.directories)),
            middle(&ours),
            middle(&du),
            ratios.get(ratios.len() / 2).map_or(String::new(), |ratio| number(*ratio)),
            ratios.first().map_or(String::new(), |ratio| number(*ratio)),
            eleventh.map_or(String::new(), |day| number(times(day.du, day.ours))),
            number(times(days.scattered.du, days.scattered.ours)),
        ]);
        let walk = |name: &str| days.walks.get(name).map_or("–".into(), |cost| seconds(*cost));
        first.row(vec![format!("`{name}`"), seconds(days.first), walk("du"), walk("gdu"), walk("dua"), walk("diskus")]);
        let points = |cost: fn(&super::outcomes::Day) -> Cost| {
            days.days.iter().map(|day| (f64::from(day.day), cost(day).busy_ms / 1000.0)).collect()
        };
        lines.push(Line { name: format!("{name}: onesweep"), points: points(|day| day.ours) });
        lines.push(Line { name: format!("{name}: GNU du"), points: points(|day| day.du) });
    }
    let _ = writeln!(text, "{table}\nCold, with everything to be read:\n\n{first}");
    for (index, pair) in lines.chunks(4).enumerate() {
        let picture = Lines {
            title: "A question after each day".into(),
            x_axis: "day".into(),
            y_axis: "disk time (s)".into(),
            lines: pair.to_vec(),
            log_x: false,
        };
        text +=
            &pictures.add(&format!("fastdu-2-{}", index + 1), "disk time of a question after each day", &picture)?;
    }
    Ok(text)
}

fn of_the_rest(all: &[(&str, &Measured)]) -> String {
    let mut text = String::new();
    for (_, measured) in all {
        match &measured.outcome {
            Outcome::Still(still) => {
                let _ = writeln!(
                    text,
                    "\n### A question where nothing has changed\n\n{} directories on ext4, in memory, by the Unix socket: {} µs \
                     in the median of {}, {} µs the slowest of a hundred; {} a second by four connections. A `getppid` \
                     takes {:.3} µs in the same run.",
                    count(still.directories),
                    number(still.median_us),
                    count(still.questions),
                    number(still.slowest_of_100_us),
                    count(still.per_second as u64),
                    still.getppid_us
                );
            }
            Outcome::Homes(homes) => {
                let _ = writeln!(
                    text,
                    "\n### Closed homes\n\n{} homes of mode 0700, asked for by one of their owners, the start of the program \
                     included: {} ms; GNU du, with everything in memory, {} ms.",
                    count(homes.homes),
                    number(homes.median_ms),
                    number(homes.du_ms)
                );
            }
            Outcome::Costs(costs) => text += &of_costs(costs),
            Outcome::Overwrite(overwrite) => {
                let middle = |times: &[f64]| statistics::spread(times.to_vec()).map_or(String::new(), spread);
                let _ = writeln!(
                    text,
                    "\n### A write into a directory that has changed\n\n4 KiB that are in memory, on ext4, in µs: {} with the \
                     tracker, {} without.",
                    middle(&overwrite.tracked_us),
                    middle(&overwrite.alone_us)
                );
            }
            Outcome::Days(_) | Outcome::Many(_) => {}
        }
    }
    let of_many = |case: &(&str, &Measured)| match &case.1.outcome {
        Outcome::Many(many) => Some((case.0.trim_start_matches("many-").to_owned(), many.clone())),
        _ => None,
    };
    let many: Vec<(String, Many)> = all.iter().filter_map(of_many).collect();
    if !many.is_empty() {
        let heads = [
            "many directories",
            "first harvest (s)",
            "GNU du",
            "gdu",
            "dua",
            "diskus",
            "restart (s)",
            "memory (MiB)",
            "store (bytes a directory)",
        ];
        let mut table = Table::new(&heads);
        for (fs, many) in many {
            let walk = |name: &str| many.walks_s.get(name).map_or("–".into(), |seconds| number(*seconds));
            table.row(vec![
                format!("{}: {} inodes in {} directories", fs_name(&fs), count(many.inodes), count(many.directories)),
                number(many.first_s),
                walk("du"),
                walk("gdu"),
                walk("dua"),
                walk("diskus"),
                number(many.restart_s),
                number(many.resident_kib as f64 / 1024.0),
                number(many.store_bytes as f64 / many.directories as f64),
            ]);
        }
        let _ = writeln!(text, "\n### Many directories, everything in memory\n\nBy the clock.\n\n{table}");
    }
    text
}

/// Round by round, what a tracker adds.
fn of_costs(costs: &Costs) -> String {
    let added = |step: &Step, of: fn(&Times) -> f64| {
        let more = step.tracked.iter().zip(&step.alone).map(|(tracked, alone)| (of(tracked) / of(alone) - 1.0) * 100.0);
        statistics::spread(more.collect()).map_or(String::new(), spread)
    };
    let mut table =
        Table::new(&["step", "elapsed, without (s)", "elapsed, more (%)", "CPU, without (s)", "CPU, more (%)"]);
    for step in &costs.steps {
        let middle = |of: fn(&Times) -> f64| {
            statistics::spread(step.alone.iter().map(of).collect())
                .map_or(String::new(), |spread| number(spread.median))
        };
        table.row(vec![
            step.name.clone(),
            middle(|times| times.wall_s),
            added(step, |times| times.wall_s),
            middle(|times| times.cpu_s),
            added(step, |times| times.cpu_s),
        ]);
    }
    format!(
        "\n### FastDu, table 2: what the tracker costs others\n\nA source tree of {} files on an ext4 in memory, ten rounds with \
         the tracker and without it in turns; the server's CPU counts.\n\n{table}\n",
        count(costs.files)
    )
}

#[cfg(test)]
mod tests {
    use super::super::outcomes::{Day, Still};
    use super::*;

    #[test]
    fn what_was_measured_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::none();
        assert_eq!(show(dir.path(), &mut pictures).unwrap(), "");
        let cost = |busy_ms| Cost { busy_ms, ..Cost::default() };
        let day = |day, ours, du| Day { day, ours: cost(ours), du: cost(du), ..Day::default() };
        let days = Days {
            files: 1000,
            days: vec![day(1, 100.0, 20_000.0), day(2, 200.0, 20_000.0), day(11, 1000.0, 20_000.0)],
            scattered: day(14, 500.0, 20_000.0),
            ..Days::default()
        };
        let mut outcomes = Outcomes::default();
        outcomes.enter("days-a-ext4".into(), 1.0, "abc".into(), Outcome::Days(days));
        outcomes.enter(
            "still".into(),
            1.0,
            "abc".into(),
            Outcome::Still(Still { median_us: 25.0, ..Still::default() }),
        );
        outcomes.enter("many-xfs".into(), 0.1, "abc".into(), Outcome::Many(Many::default()));
        outcomes.save(dir.path()).unwrap();
        let text = show(dir.path(), &mut pictures).unwrap();
        assert!(text.contains("at `abc`") && text.contains("25.0 µs"), "{text}");
        assert!(text.contains("| 0.20 | 20.0 | 200 | 100 | 20.0 | 40.0 |"), "{text}");
        assert!(!text.contains("Many directories"), "{text}");
    }
}
