//! The bar on a terminal: bytes, files, time left by the plan's estimate.

use std::{
    fmt,
    io::IsTerminal,
    sync::Mutex,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use onesweep::{FileError, Kind, Observer, Progress, Route, SweptFile};

use crate::{
    args::ProgressWhen,
    forecast,
    size::{Size, duration},
};

/// What is shown while directories are read and files looked up.
const SEARCHING: &str = "{spinner} {msg}";
/// What is shown while files are read.
const READING: &str = "{bar:30} {bytes}/{total_bytes}, {msg}{left} left";

/// The bar; hidden when nobody would see it.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    planned_seconds: f64,
    planned_bytes: u64,
    reading_since: Option<Instant>,
    files: u64,
    /// Of files that were handed over whole.
    bytes: u64,
    /// Read from those that are streamed.
    streamed: u64,
}

impl Bar {
    pub(crate) fn new(when: ProgressWhen, quiet: bool) -> Self {
        let shown = match when {
            ProgressWhen::Always => true,
            ProgressWhen::Never => false,
            ProgressWhen::Auto => !quiet && std::io::stderr().is_terminal(),
        };
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if shown {
            bar.set_style(style(SEARCHING));
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, state: Mutex::default() }
    }

    /// Shows bytes of so many; the caller counts them.
    pub(crate) fn of_bytes(&self, bytes: u64) -> ProgressBar {
        self.bar.set_length(bytes);
        if !self.bar.is_hidden() {
            self.bar.set_style(style("{bar:30} {bytes}/{total_bytes}, {eta} left"));
        }
        self.bar.clone()
    }

    /// Lets `print` write to the terminal without mixing with the bar.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn planned(&self, seconds: f64, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.planned_seconds += seconds;
        state.planned_bytes += bytes;
        self.bar.set_length(state.planned_bytes);
        let since = *state.reading_since.get_or_insert_with(|| {
            self.bar.set_message("");
            Instant::now()
        });
        self.bar.set_style(reading(state.planned_seconds, since));
    }

    /// Counts an item that was handed over. The sweep tells the same, but less often.
    pub(crate) fn deliver(&self, item: &Result<SweptFile, FileError>) {
        let Ok(file) = item else { return };
        if self.bar.is_hidden() || file.metadata().kind != Kind::File || file.linked_to().is_some() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.files += 1;
        if file.route() != Route::Streamed {
            state.bytes += file.metadata().size;
        }
        self.show(&state);
    }

    fn streamed(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.streamed = state.streamed.max(bytes);
        self.show(&state);
    }

    fn show(&self, state: &State) {
        let (files, bytes) = (state.files, state.bytes + state.streamed);
        // Files from the cache are read too, and are in no plan.
        self.bar.set_length(state.planned_bytes.max(bytes));
        self.bar.set_position(bytes);
        self.bar.set_message(delivered(files, bytes, state.reading_since.is_some()));
    }
}

/// What the bar says of the items so far. Before there is a plan, it shows nothing but this.
fn delivered(files: u64, bytes: u64, planned: bool) -> String {
    if planned { format!("{files} files, ") } else { format!("{files} files, {}", Size(bytes)) }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The style while files are read. The time left is worked out at each tick, since events may be far apart.
fn reading(planned_seconds: f64, since: Instant) -> ProgressStyle {
    style(READING).with_key("left", move |state: &ProgressState, out: &mut dyn fmt::Write| {
        let done = state.pos() as f64 / state.len().unwrap_or(0).max(1) as f64;
        let left = seconds_left(planned_seconds, since.elapsed().as_secs_f64(), done);
        let _ = match left {
            Some(left) => out.write_str(&duration(left)),
            None => out.write_str("?"),
        };
    })
}

/// Seconds left: at the start what the plan says, and the more is done the more what was measured.
/// `None` when the plan's time is over and nothing is done.
fn seconds_left(planned: f64, elapsed: f64, done: f64) -> Option<f64> {
    if done <= 0.0 {
        return (planned > elapsed).then_some(planned - elapsed);
    }
    let measured = elapsed * (1.0 - done) / done;
    let trust = (done * 4.0).min(1.0);
    Some(measured * trust + planned * (1.0 - done) * (1.0 - trust))
}

impl Observer for Bar {
    fn on(&self, event: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        match event {
            Progress::Walked { entries } => self.bar.set_message(format!("{entries} entries found")),
            Progress::Surveyed { files, bytes } => {
                self.bar.set_message(format!("{files} files looked up, {}", Size(bytes)));
            }
            Progress::Planned { estimate, bytes, .. } => self.planned(forecast::seconds_of(&estimate), bytes),
            Progress::Streamed { bytes } => self.streamed(bytes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_goes_from_the_plan_to_the_clock() {
        assert_eq!(seconds_left(100.0, 0.0, 0.0), Some(100.0));
        assert_eq!(seconds_left(100.0, 150.0, 0.0), None);
        assert_eq!(seconds_left(100.0, 100.0, 0.5), Some(100.0));
        assert_eq!(seconds_left(100.0, 200.0, 1.0), Some(0.0));
        let early = seconds_left(100.0, 0.1, 0.01).unwrap();
        assert!(early > 90.0 && early < 100.0, "{early}");
    }

    #[test]
    fn what_is_delivered_without_a_plan_is_told_whole() {
        assert_eq!(delivered(9, 4096, false), "9 files, 4.0 KiB");
        assert_eq!(delivered(9, 4096, true), "9 files, ", "the bar itself has the bytes");
    }

    #[test]
    fn a_hidden_bar_takes_every_event() {
        let bar = Bar::new(ProgressWhen::Never, false);
        bar.on(Progress::Walked { entries: 1 });
        bar.deliver(&Err(FileError::Vanished { path: "x".into() }));
        assert_eq!(bar.aside(|| 7), 7);
        bar.finish();
    }
}
