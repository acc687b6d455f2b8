//! What the server tells on standard error: for the journal a level and the text, for everybody else the time, too.

use std::{
    fmt,
    io::{self, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_sys::{files, local_time};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
};

use crate::{args::LogLevel, message};

/// Changes how much is told.
pub(in crate::commands) struct Switch(Box<dyn Fn(LevelFilter) + Send>);

impl Switch {
    pub(super) fn set(&self, level: LogLevel) {
        (self.0)(filter(level));
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

/// From now on everything that is told goes to standard error.
pub(in crate::commands) fn start(level: LogLevel) -> Switch {
    let (filter, handle) = reload::Layer::new(filter(level));
    let layer = tracing_subscriber::fmt::layer()
        .event_format(Lines { is_journal: is_journal() })
        .with_writer(|| Stderr)
        .log_internal_errors(false);
    // In one process it is started once.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(layer));
    Switch(Box::new(move |level| _ = handle.modify(|filter| *filter = level)))
}

/// Whether standard error goes to the journal of systemd, which says so by device and inode.
fn is_journal() -> bool {
    let Some(told) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(stat) = files::statx_fd(io::stderr().as_fd()) else { return false };
    told.as_bytes() == format!("{}:{}", stat.dev, stat.ino).as_bytes()
}

/// Nobody has to read it.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Lines {
    is_journal: bool,
}

/// Levels of syslog, by which the journal sorts.
fn syslog(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Lines {
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = *event.metadata().level();
        if self.is_journal {
            write!(out, "<{}>", syslog(level))?;
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
            let time = local_time::format(now, "%Y-%m-%d %H:%M:%S").unwrap_or_default();
            write!(out, "{time} {:<5} ", level.as_str())?;
        }
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writeln!(out, "{}", message::one_line(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn told(is_journal: bool) -> String {
        let kept = Kept::default();
        let into = kept.clone();
        let layer =
            tracing_subscriber::fmt::layer().event_format(Lines { is_journal }).with_writer(move || into.clone());
        let all = tracing_subscriber::registry().with(LevelFilter::INFO).with(layer);
        tracing::subscriber::with_default(all, || {
            tracing::warn!("a\nb: {}", 7);
            tracing::debug!("hidden");
        });
        String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_journal_gets_a_level_and_others_the_time() {
        assert_eq!(told(true), "<4>a\\nb: 7\n");
        let line = told(false);
        assert!(
            line.ends_with(" WARN  a\\nb: 7\n") && line.starts_with("20") && line.matches('\n').count() == 1,
            "{line}"
        );
    }
}
