//! `onesweep watch`: what takes space in a directory, live on the terminal.
//!
//! | module | what it does |
//! |---|---|
//! | [`look`] | what one answer tells |
//! | [`source`] | asks the server, or walks once |
//! | [`files`] | a directory's own files |
//! | [`growth`] | where growth counts from |
//! | [`state`] | what is shown, and what keys and answers make of it; pure |
//! | [`draw`] | how that looks on so many columns and lines; pure |
//! | [`names`] | names that do a terminal no harm |

mod draw;
mod files;
mod growth;
mod look;
mod names;
mod source;
mod state;

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use onesweep_summary::service::protocol::Refusal;
use onesweep_sys::ready::{self, Bell, Ready, Wanted as Readiness};
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::{
    look::{Look, Measure},
    source::{Missing, Source, Wanted},
    state::{Effect, State},
};
use crate::{args::WatchArgs, message, report::Failure};

/// The server is never asked more often.
const SHORTEST: Duration = Duration::from_secs(2);
/// It works at most one part in so many for one view.
const REST: u32 = 20;
/// So long a key, an answer or a signal may wait.
const TICK: Duration = Duration::from_millis(50);
/// So long an end may take.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: WatchArgs) -> Result<u8, Failure> {
    let path = &args.path;
    if !io::stdout().is_terminal() {
        let advice = "use `onesweep du` or `onesweep top` where there is none";
        return Err(Failure::told(format!("standard output is no terminal, on which `watch` shows; {advice}")));
    }
    onesweep_sys::files::open_dir_handle(path.as_path()).map_err(|error| Failure::io(path, "watch it", &error))?;
    let socket = args.socket();
    let measure = if args.apparent_size { Measure::Apparent } else { Measure::Allocated };
    let mut state = State::new(path.as_os_str().as_bytes().to_vec(), measure, false);
    let mut source = Source::server(path, socket.clone());
    let why_not = match UnixStream::connect(&socket) {
        Err(error) => Some(format!("no server at {}: {}", message::path_text(&socket), message::why(&error))),
        Ok(_) => match source::ask_at_once(path, &socket) {
            Ok(Err(Refusal::NotTracked)) => Some("the server tracks another file system".to_owned()),
            Ok(Err(Refusal::Late)) => {
                state.trouble = Some("the server is still counting".to_owned());
                None
            }
            // Whatever else goes wrong, the view tells.
            _ => None,
        },
    };
    if let Some(why) = why_not {
        let name = message::path_text(path);
        eprintln!("onesweep: {name}: {why}; walking it once (for a live view, {})", source::advice(path));
        source = Source::walk(path, now()).map_err(|why| Failure::could_not_run(path, "walk it", why))?;
        state.is_walked = true;
    }
    let signalled = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(signal, Arc::clone(&signalled), signal as usize)
            .map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    }
    let no_thread = |error: io::Error| Failure::told(format!("cannot start a thread: {error}"));
    let input = Input::new().map_err(|error| Failure::told(no_terminal(&error)))?;
    let asking = Asking::start(source).map_err(no_thread)?;
    let (shows, ended) = mpsc::channel::<()>();
    end_where_a_key_is_incomplete((input, ended), &signalled).map_err(no_thread)?;
    let shown = on_terminal(|terminal| show(terminal, &mut state, asking, &signalled));
    drop(shows);
    let signal = signalled.load(Ordering::SeqCst);
    if signal != 0 {
        // Who sent it sees that it was heeded.
        let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
    }
    shown.map(|()| 0).map_err(|error| Failure::told(no_terminal(&error)))
}

/// A part of a key has come, and crossterm waits for the rest: for ever, whatever signal comes, and at a whole processor where the terminal is gone. So a
/// thread looks whether what is to end has a second later, until `ended` has nobody at its other end.
fn end_where_a_key_is_incomplete(
    (input, ended): (Input, Receiver<()>),
    signalled: &Arc<AtomicUsize>,
) -> io::Result<()> {
    let signalled = Arc::clone(signalled);
    let goes_on = move || matches!(ended.recv_timeout(GRACE), Err(RecvTimeoutError::Timeout));
    let look = move || {
        while goes_on() {
            if input.is_gone() {
                let _ = signalled.compare_exchange(0, SIGHUP as usize, Ordering::SeqCst, Ordering::SeqCst);
            }
            let signal = signalled.load(Ordering::SeqCst);
            if signal != 0 && goes_on() {
                // It may be gone.
                let _ = ratatui::try_restore();
                let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
            }
        }
    };
    thread::Builder::new().name("watch-end".into()).spawn(look).map(drop)
}

/// Takes the terminal over for that time, and gives it back, also when it ends by a panic.
fn on_terminal<T>(act: impl FnOnce(DefaultTerminal) -> io::Result<T>) -> io::Result<T> {
    let done = ratatui::try_init().and_then(act);
    // It may be gone.
    let _ = ratatui::try_restore();
    done
}

fn no_terminal(error: &io::Error) -> String {
    format!("cannot use the terminal: {}", message::why(error))
}

/// Shows the view until a key or a signal ends it.
fn show(
    mut terminal: DefaultTerminal,
    state: &mut State,
    mut asking: Asking,
    signalled: &AtomicUsize,
) -> io::Result<()> {
    asking.ask(state.wanted());
    let input = Input::new()?;
    let mut drawn_at = None;
    while signalled.load(Ordering::SeqCst) == 0 {
        let now = now();
        // Ages change by themselves.
        if drawn_at != Some(now) {
            terminal.draw(|frame| {
                state.page = draw::page(frame.area().height);
                draw::draw(frame, state, now);
            })?;
            drawn_at = Some(now);
        }
        let has_input = match input.wait()? {
            // Nobody sees anything any more. The signal that says so may have been ignored.
            Come::End => {
                signalled.store(SIGHUP as usize, Ordering::SeqCst);
                return Ok(());
            }
            Come::Event => true,
            Come::Nothing => false,
        };
        if has_input {
            let effect = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => state.key(key),
                _ => Effect::None,
            };
            match effect {
                Effect::Quit => return Ok(()),
                Effect::Ask => asking.ask(state.wanted()),
                Effect::None => {}
            }
            drawn_at = None;
        }
        while let Some((wanted, answer)) = asking.answer()? {
            if state.answered(&wanted, answer, self::now()) == Effect::Ask {
                asking.ask(state.wanted());
            }
            drawn_at = None;
        }
        asking.ask_again(state);
    }
    Ok(())
}

/// What has come from the terminal.
enum Come {
    Event,
    Nothing,
    /// It is gone.
    End,
}

/// The terminal, which is waited for here: of one that is gone, crossterm reads the end over and over.
struct Input {
    /// Where keys come from, if that isn't the standard input.
    terminal: Option<File>,
    bell: Bell,
}

impl Input {
    fn new() -> io::Result<Input> {
        let terminal = if io::stdin().is_terminal() { None } else { Some(File::open("/dev/tty")?) };
        Ok(Input { terminal, bell: Bell::new()? })
    }

    fn is_gone(&self) -> bool {
        self.ready(Readiness::default(), Duration::ZERO).is_ok_and(|ready| ready.is_over)
    }

    fn ready(&self, wanted: Readiness, time: Duration) -> io::Result<Ready> {
        let stdin = io::stdin();
        let keys = self.terminal.as_ref().map_or(stdin.as_fd(), AsFd::as_fd);
        ready::wait(keys, wanted, &self.bell, Some(time))
    }

    /// A signal ends the waiting, and is no error.
    fn wait(&self) -> io::Result<Come> {
        for patience in [Duration::ZERO, TICK] {
            if self.ready(Readiness { read: true, write: false }, patience)?.is_over {
                return Ok(Come::End);
            }
            // Several may have come at once, and a change of size comes by a signal.
            match event::poll(Duration::ZERO) {
                Ok(true) => return Ok(Come::Event),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(Come::Nothing)
    }
}

type Answer = (Wanted, Result<Look, Missing>);

/// Asks on a thread of its own, so that a key never waits for an answer.
struct Asking {
    questions: Sender<(usize, Wanted)>,
    answers: Receiver<(usize, Answer, Duration)>,
    /// The number of the last question; those before it are wanted by nobody.
    last: Arc<AtomicUsize>,
    /// Since when an answer is waited for, or when to ask again.
    next: Option<Instant>,
}

impl Asking {
    fn start(mut source: Source) -> io::Result<Asking> {
        let (questions, to_answer) = mpsc::channel::<(usize, Wanted)>();
        let (answering, answers) = mpsc::channel();
        let last = Arc::new(AtomicUsize::new(0));
        let newest = Arc::clone(&last);
        thread::Builder::new().name("asking".into()).spawn(move || {
            for (number, wanted) in to_answer {
                let goes_on = || newest.load(Ordering::SeqCst) == number;
                if !goes_on() {
                    continue;
                }
                let began = Instant::now();
                let answer = source.look(&wanted, goes_on);
                if answering.send((number, (wanted, answer), began.elapsed())).is_err() {
                    break;
                }
            }
        })?;
        Ok(Asking { questions, answers, last, next: None })
    }

    /// At once; what is under way is dropped.
    fn ask(&mut self, wanted: Wanted) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.next = None;
        // That the thread is gone shows where answers are taken.
        let _ = self.questions.send((number, wanted));
    }

    fn ask_again(&mut self, state: &State) {
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.ask(state.wanted());
        }
    }

    fn answer(&mut self) -> io::Result<Option<Answer>> {
        loop {
            match self.answers.try_recv() {
                Ok((number, ..)) if number != self.last.load(Ordering::SeqCst) => {}
                Ok((_, answer, took)) => {
                    self.next = Some(Instant::now() + SHORTEST.max(took * REST));
                    return Ok(Some(answer));
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(io::Error::other("the thread that asks has ended")),
            }
        }
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Is run by the test below, on a terminal.
    #[test]
    #[ignore = "it panics"]
    fn panics_on_a_terminal() {
        let _ = on_terminal::<()>(|mut terminal| {
            terminal.draw(|frame| draw::draw(frame, &State::new(b"/".to_vec(), Measure::Allocated, false), 0))?;
            panic!("in the middle")
        });
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let this = std::env::current_exe().unwrap();
        let test = "commands::watch::tests::panics_on_a_terminal";
        let line =
            format!("stty -g; '{}' --exact {test} --ignored --nocapture --test-threads=1; stty -g", this.display());
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", &line, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
        let out = script.output().expect("script runs; try `make deps`");
        let seen = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<&str> = seen.lines().collect();
        assert!(lines.len() > 3 && lines[0].contains(':') && lines.first() == lines.last(), "{seen:?}");
        let [taken, told, given] = ["\x1b[?1049h", "in the middle", "\x1b[?1049l"].map(|part| seen.find(part));
        assert!(taken.is_some() && taken < given && given < told, "it is told where it can be seen: {seen:?}");
    }
}
