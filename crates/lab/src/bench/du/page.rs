//! Tables and pictures of what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::costs;
use super::goals::{self, Outcomes as ByCase, is_plain, times};
use super::outcomes::{Ages, Cost, Days, Linked, Many, Measured, Outcome, Outcomes, Still, Wide};
use super::peers::PEERS;
use crate::bench::page::{Table, commits, count, fs_name, hosts, number, spread};
use crate::bench::plot::{Line, Lines, Pictures};
use crate::bench::results::Machine;
use crate::bench::statistics;

/// Marks of this part, which can be written without the others.
pub(crate) const BEGIN: &str = "<!-- du: written by `onesweep-lab bench report` -->\n";
pub(crate) const END: &str = "<!-- end of du -->\n";

/// The part of the page; empty where nothing was measured at full size.
pub(crate) fn show(dir: &Path, pictures: &mut Pictures) -> Result<String, String> {
    let outcomes = Outcomes::load(dir)?;
    let all: BTreeMap<&str, &Measured> =
        outcomes.cases.iter().filter(|case| case.1.scale == 1.0).map(|(name, measured)| (&**name, measured)).collect();
    if all.is_empty() {
        return Ok(String::new());
    }
    let by_case: ByCase = all.iter().map(|(name, measured)| (*name, &measured.outcome)).collect();
    let mut text = format!("\n## Directory summaries\n\n{}\n", preface(&all));
    let _ = writeln!(
        text,
        "\n### What has to come out of them\n\nA median has its least and greatest beside it. Every answer of the cases \
         `days`, `many`, `filled`, `linked`, `storm` and `ages` is held against GNU du's in the same state, and a case without the same figures has no \
         outcome; that answers are exact after any operations, kills and lost events is what the tests `summaries`, `catch_up` \
         and `storms` show ([TESTING.md](TESTING.md)).\n\n{}",
        goals::table(&by_case)
    );
    let days: Vec<(&str, &Days)> = of_kind(&by_case, |outcome| match outcome {
        Outcome::Days(days) => Some(days),
        _ => None,
    });
    if !days.is_empty() {
        text += &of_all_days(&days, pictures)?;
    }
    for (case, outcome) in &by_case {
        text += &match outcome {
            Outcome::Still(still) => of_still(still),
            Outcome::Homes(homes) => format!(
                "\n### Closed homes\n\n{} homes of mode 0700, asked for by one of their owners, the start of the program \
                 included: {} ms; GNU du, with everything in memory, {} ms.\n",
                count(homes.homes),
                number(homes.median_ms),
                number(homes.du_ms)
            ),
            Outcome::Costs(costs) if *case == "cost" => costs::in_memory(costs),
            Outcome::Costs(costs) if *case == "cost-known" => costs::where_all_is_known(costs),
            Outcome::Costs(costs) if *case == "follow-cost" => costs::of_following(costs),
            Outcome::Costs(costs) => costs::on_disk(costs),
            Outcome::Background(background) => costs::of_background(background),
            Outcome::Overwrite(overwrite) => costs::of_overwrite(overwrite),
            Outcome::Records(records) => costs::of_records(records, *case == "disk-records", pictures)?,
            Outcome::Storm(storm) => costs::of_storm(storm),
            Outcome::Ages(ages) => of_ages(ages),
            Outcome::Wide(wide) => of_wide(wide),
            Outcome::Days(_) | Outcome::Many(_) | Outcome::Linked(_) => String::new(),
        };
    }
    let many: Vec<(&str, &Many)> = of_kind(&by_case, |outcome| match outcome {
        Outcome::Many(many) => Some(many),
        _ => None,
    });
    if !many.is_empty() {
        text += &of_many(&many);
    }
    let linked: Vec<(&str, &Linked)> = of_kind(&by_case, |outcome| match outcome {
        Outcome::Linked(linked) => Some(linked),
        _ => None,
    });
    if !linked.is_empty() {
        text += &of_linked(&linked);
    }
    Ok(text)
}

fn of_kind<'a, T>(all: &ByCase<'a>, kind: impl Fn(&'a Outcome) -> Option<&'a T>) -> Vec<(&'a str, &'a T)> {
    all.iter().filter_map(|(case, outcome)| Some((*case, kind(outcome)?))).collect()
}

fn preface(all: &BTreeMap<&str, &Measured>) -> String {
    let commits = commits(all.iter().map(|(case, measured)| ((*case).to_owned(), measured.commit.as_str())));
    let known = all.iter().filter(|(_, measured)| !measured.machine.kernel.is_empty());
    let machines = known.map(|(case, measured)| ((*case).to_owned(), &measured.machine));
    let host = |machine: &Machine| format!("{}, Linux {}", machine.processors, machine.kernel);
    let hosts = hosts(machines.clone().map(|(case, machine)| (case, host(machine))));
    let version = |(name, line): (&String, &String)| {
        let number = line.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        format!("{name} {}", number.unwrap_or("of unknown version"))
    };
    let programs: BTreeSet<String> = machines.flat_map(|(_, machine)| machine.programs.iter().map(version)).collect();
    let mut text = format!("Measured by `onesweep-lab bench du`, at {commits}");
    if let Some(hosts) = hosts {
        let programs = programs.into_iter().collect::<Vec<_>>().join(", ");
        let _ = write!(text, ", on {hosts}. Programs: {programs}");
    }
    text + ". The server's store lies on another disk, and so does duc's index. Before each question from cold the file system is \
            frozen and thawed, so that nothing waits in its log, and all caches are dropped; `onesweep du -s` and GNU `du -s` \
            are asked one after the other, and have to say the same."
}

fn seconds(cost: &Cost) -> String {
    number(cost.busy_ms / 1000.0)
}

fn of_all_days(all: &[(&str, &Days)], pictures: &mut Pictures) -> Result<String, String> {
    let mut text = String::from(
        "\n### FastDu, figure 2: a question after each day\n\nSeconds of the modelled disk (`barracuda-7200.11`, track buffer \
         off, the image over the whole stroke), medians. The paper: over 100 times, about 10 after day 11 of server A, on \
         which 8 % new files come. What others need is in the next table, and `onesweep du` where no server is: they walk anew each time, and duc tells what was \
         true when its index was made.\n\n",
    );
    let mut table = Table::new(&["days", "question", "GNU du", "du ÷ ours", "after day 11", "1 % scattered"]);
    let heads = ["cold", "first harvest", "another start"].into_iter().chain(PEERS.map(|peer| peer.name));
    let mut walks = Table::new(&heads.chain(["one pass over the inode tables"]).collect::<Vec<_>>());
    let mut lines = Vec::new();
    for (name, days) in all {
        let middle = |costs: Vec<f64>| statistics::spread(costs).map(|spread| spread.median / 1000.0);
        let said = |seconds: Option<f64>| seconds.map_or(String::new(), number);
        let ratios = statistics::spread(days.days.iter().filter(is_plain).map(times).collect());
        table.row(vec![
            format!("`{name}`: {} files, {} directories", count(days.files), count(days.directories)),
            said(middle(days.days.iter().map(|day| day.ours.busy_ms).collect())),
            said(middle(days.days.iter().map(|day| day.du.busy_ms).collect())),
            ratios.map_or(String::new(), spread),
            said(days.days.iter().find(|day| day.day == 11).map(times)),
            number(times(&days.scattered)),
        ]);
        let told = |cost: Option<&Cost>| cost.map_or("–".into(), seconds);
        let mut row = vec![format!("`{name}`"), seconds(&days.first), told(days.restart.as_ref())];
        row.extend(PEERS.map(|peer| told(days.walks.get(peer.name))));
        row.push(days.pass_ms.map_or("–".into(), |ms| number(ms / 1000.0)));
        walks.row(row);
        let points = days.days.iter().map(|day| (f64::from(day.day), times(day))).collect();
        lines.push(Line { name: (*name).to_owned(), points });
    }
    let _ = writeln!(
        text,
        "{table}\nWith everything to be read, seconds of the disk (–: not run; only those that ran are the quickest of them):\n\n{walks}"
    );
    let picture = Lines {
        title: "A question after each day".into(),
        x_axis: "day".into(),
        y_axis: "disk time, GNU du ÷ ours".into(),
        lines,
        log_x: false,
        log_y: true,
    };
    text += &pictures.add("fastdu-2", "how many times as long GNU du takes, after each day", &picture)?;
    Ok(text)
}

fn of_still(still: &Still) -> String {
    let mut text = format!(
        "\n### A question where nothing has changed\n\n{} directories on ext4, in memory, by the Unix socket: {} µs in the median \
         of {}, {} µs the slowest of a hundred; {} a second by four connections. A `getppid` takes {:.3} µs in the same \
         run.\n",
        count(still.directories),
        number(still.median_us),
        count(still.questions),
        number(still.slowest_of_100_us),
        count(still.per_second as u64),
        still.getppid_us
    );
    if let Some(closed) = &still.after_close {
        let _ = writeln!(
            text,
            "\nRight after a file grew and was closed, {} of {} answers were true to the byte, in {} µs.",
            count(closed.exact),
            count(closed.asked),
            number(closed.median_us)
        );
    }
    text
}

fn of_wide(wide: &Wide) -> String {
    let median = |all: &[f64]| statistics::spread(all.to_vec()).map_or("–".into(), |spread| number(spread.median));
    let most = |all: &[f64]| number(all.iter().copied().fold(0.0, f64::max));
    format!(
        "\n### A directory with very many in it\n\nWhat the page shows of a directory with {} directories in it, the thousand largest \
         and the sum of the others, takes {} ms in the median of {}, {} at most: the record of each is read. Whoever asks for another \
         directory meanwhile waits {} µs in the median of {} questions, {} at most; {} and {} where nobody looks.\n",
        count(wide.directories),
        median(&wide.looks_ms),
        wide.looks_ms.len(),
        most(&wide.looks_ms),
        median(&wide.beside_us),
        count(wide.beside_us.len() as u64),
        most(&wide.beside_us),
        median(&wide.alone_us),
        most(&wide.alone_us),
    )
}

fn of_many(all: &[(&str, &Many)]) -> String {
    let heads = ["many directories", "first harvest", "stored"].into_iter().chain(PEERS.map(|peer| peer.name));
    let heads = heads.chain([
        "restart",
        "for it were read",
        "restart after a kill",
        "for it were read",
        "memory (MiB)",
        "the most, first harvest",
        "the most, restart",
        "store (bytes a directory)",
        "its index (bytes an inode)",
        "root (µs)",
        "its page (ms)",
        "a getppid (µs)",
    ]);
    let mut table = Table::new(&heads.collect::<Vec<_>>());
    for (case, many) in all {
        let fs = fs_name(case.rsplit('-').next().unwrap_or(case));
        let what = format!("{fs}: {} inodes in {} directories", count(many.inodes), count(many.directories));
        let seconds = |seconds: Option<f64>| seconds.map_or("–".into(), number);
        let mut row = vec![what, number(many.first_s), seconds(many.first_stored_s)];
        row.extend(PEERS.map(|peer| many.walks_s.get(peer.name).map_or("–".into(), |seconds| number(*seconds))));
        row.push(number(many.restart_s));
        let read = |read: u64| format!("{} directories", count(read));
        row.push(read(many.restart_read));
        row.push(seconds(many.killed_restart_s));
        row.push(many.killed_restart_s.map_or("–".into(), |_| read(many.killed_restart_read)));
        row.push(number(many.resident_kib as f64 / 1024.0));
        let mib = |kib: Option<u64>| kib.map_or("–".into(), |kib| number(kib as f64 / 1024.0));
        row.extend([many.first_peak_kib, many.restart_peak_kib].map(mib));
        row.push(number(many.store_bytes as f64 / many.directories as f64));
        row.push(many.index_bytes.map_or("–".into(), number));
        row.push(many.root_us.map_or("–".into(), number));
        row.push(many.page_ms.map_or("–".into(), number));
        row.push(many.getppid_us.map_or("–".into(), |us| format!("{us:.3}")));
        table.row(row);
    }
    format!(
        "\n### Many directories, everything in memory\n\nSeconds by the clock: the median of three times, after one that \
         brings everything there, into a new store each time. One of a hundred directories holds a file, or each of them five, as \
         the inodes tell. A restart is from the start to the first exact \
         answer, after a hundred directories have changed while no server ran: the median of five, and of three after the server was killed; rows without \
         such a kill had one, and a store that wasn't compacted before its bytes were counted. The root is asked for a thousand times, one after \
         the other, while nothing changes: the median; and so for what the page shows of it, the root and the largest of those in \
         it. Memory is that of both processes, at rest, and the most that each has ever had until the first answer. The index is that \
         from inodes to directories, with the tree of the store that holds it; as it is written, 64 numbers of inodes in a row take five \
         bytes each at most, of up to 134,217,728 directories (tests of `crates/summary/src/places.rs`). What such a row takes beside, its \
         key and its share of pages, is little where ten of its numbers or more are files, which then take at most five bytes each, and \
         most of it where one in a hundred directories holds a file: directories aren't in the index, so such a row is there for a \
         file or two.\n\n{table}"
    )
}

fn of_ages(ages: &Ages) -> String {
    format!(
        "\n### How old what is stored becomes\n\n{} directories on ext4, `--harvest-after {}s`, {} writes within {} s, each into another directory \
         than the one before. Of {} answers with `--cached` the oldest was {} s old; the exact one at the end was GNU du's.\n",
        count(ages.directories),
        ages.timeout_s,
        count(ages.changes),
        number(ages.seconds),
        count(ages.asked),
        ages.greatest_s,
    )
}

fn of_linked(all: &[(&str, &Linked)]) -> String {
    let heads = ["snapshots", "first harvest", "stored"].into_iter().chain(PEERS.map(|peer| peer.name));
    let heads = heads.chain([
        "memory (MiB)",
        "the most, first harvest",
        "store (bytes a directory)",
        "root (µs)",
        "root, one removed",
        "du, one removed",
        "a getppid (µs)",
    ]);
    let mut table = Table::new(&heads.collect::<Vec<_>>());
    for (case, linked) in all {
        let fs = fs_name(case.rsplit('-').next().unwrap_or(case));
        let [snapshots, files, directories] = [linked.snapshots, linked.files, linked.directories].map(count);
        let what = format!("{fs}: {snapshots} of {files} files, {directories} directories");
        let seconds = |seconds: Option<f64>| seconds.map_or("–".into(), number);
        let mut row = vec![what, number(linked.first_s), seconds(linked.first_stored_s)];
        row.extend(PEERS.map(|peer| linked.walks_s.get(peer.name).map_or("–".into(), |seconds| number(*seconds))));
        row.extend([linked.resident_kib, linked.first_peak_kib].map(|kib| number(kib as f64 / 1024.0)));
        row.push(number(linked.store_bytes as f64 / linked.directories.max(1) as f64));
        row.extend([linked.root_us, linked.removed_s, linked.removed_du_s].map(number));
        row.push(format!("{:.3}", linked.getppid_us));
        table.row(row);
    }
    format!(
        "\n### Snapshots by hard links, everything in memory\n\nAs `cp -al` makes them: each file has a name in each snapshot. Seconds by \
         the clock, measured as in the table above; the store is that after the first harvest{}. Then a server that has started \
         anew is asked for the whole right after `rm -r` has removed the oldest snapshot, the start of the program included, and GNU du \
         behind it. Before and after that both say the same.\n\n{table}",
        if all.iter().all(|(_, linked)| linked.compacted) { ", compacted" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::super::outcomes::{Background, Day, Homes};
    use super::*;

    #[test]
    fn what_was_measured_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(&dir.path().join("pictures")).unwrap();
        assert_eq!(show(dir.path(), &mut pictures).unwrap(), "");
        let cost = |busy_ms| Cost { busy_ms, ..Cost::default() };
        let day = |day, ours, du| Day { day, ours: cost(ours), du: cost(du), ..Day::default() };
        let days = Days {
            files: 1000,
            first: cost(2000.0),
            walks: [("gdu".to_owned(), cost(9000.0)), ("duc ls".to_owned(), cost(10.0))].into(),
            days: vec![day(1, 100.0, 20_000.0), day(2, 200.0, 20_000.0), day(11, 1000.0, 20_000.0)],
            scattered: day(14, 500.0, 20_000.0),
            restart: Some(cost(1200.0)),
            pass_ms: Some(1000.0),
            ..Days::default()
        };
        let programs = [("gdu".to_owned(), "Version:\t 5.22.0-1+b1".to_owned())].into();
        let machine = Machine { processors: "2 processors".into(), kernel: "6.18".into(), programs };
        let wide = Wide {
            directories: 1_000_000,
            looks_ms: vec![700.0, 900.0, 800.0],
            alone_us: vec![20.0, 30.0, 25.0],
            beside_us: vec![40.0, 9000.0, 50.0, 60.0],
        };
        let linked = Linked {
            snapshots: 10,
            files: 100_000,
            directories: 100_001,
            first_s: 2.0,
            first_stored_s: Some(2.25),
            walks_s: [("onesweep du, no server".to_owned(), 1.5), ("diskus".to_owned(), 1.6)].into(),
            resident_kib: 51_200,
            store_bytes: 20_000_200,
            removed_s: 0.4,
            removed_du_s: 0.9,
            ..Linked::default()
        };
        let mut outcomes = Outcomes::default();
        for (case, scale, outcome) in [
            ("days-a-ext4", 1.0, Outcome::Days(days)),
            ("still", 1.0, Outcome::Still(Still { median_us: 25.0, ..Still::default() })),
            ("many-xfs", 0.1, Outcome::Many(Many::default())),
            ("homes", 1.0, Outcome::Homes(Homes::default())),
            ("wide", 1.0, Outcome::Wide(wide)),
            ("linked-xfs", 1.0, Outcome::Linked(linked)),
            ("background", 1.0, Outcome::Background(Background::default())),
            ("ages", 1.0, Outcome::Ages(Ages { timeout_s: 10, greatest_s: 9, asked: 1200, ..Ages::default() })),
        ] {
            let processors = if case == "wide" { "4 processors" } else { "2 processors" }.to_owned();
            let machine = Machine { processors, ..machine.clone() };
            let measured = Measured { scale, commit: "abc".into(), machine, outcome };
            outcomes.enter(case.into(), measured);
        }
        outcomes.save(dir.path()).unwrap();
        let text = show(dir.path(), &mut pictures).unwrap();
        for words in [
            "at `abc`, on 2 processors, Linux 6.18 (but `wide` on 4 processors, Linux 6.18). Programs: gdu 5.22.0-1+b1.",
            "25.0 µs",
            "| 0.20 | 20.0 | 150 (100 to 200) | 20.0 | 40.0 |",
            "| `days-a-ext4` | 2.00 | 1.20 | – | – | 9.00 | – | – | – | 0.01 | 1.00 |",
            "| XFS: 10 of 100,000 files, 100,001 directories | 2.00 | 2.25 | – | 1.50 | – | – | 1.60 | – | – | 50.0 | 0.00 | 200 | 0.00 | 0.40 | 0.90 |",
            "### What a harvest in the background costs a reader",
            "Of 1,200 answers with `--cached` the oldest was 9 s old",
            "its greatest age | times the timeout | – | ≤ 1 | 0.90 | met |",
            "| server A, ext4: after a day, 0.1 % of directories changed | disk time, GNU du ÷ ours | over 100 | ≥ 100 |",
            "walk ÷ ours | – | ≥ 3 | 4.50 | met |",
            "inode tables | – | ≤ 1.3 | 1.20 | met |",
            "a directory with 1,000,000 directories in it, the thousand largest",
            "takes 800 ms in the median of 3, 900 at most",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("Many directories"), "{text}");
        assert!(std::fs::read_to_string(dir.path().join("pictures/fastdu-2.svg")).unwrap().contains("days-a-ext4"));
    }
}
