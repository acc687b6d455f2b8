//! Signals that were ignored when this process began, so that the programs that it starts can have them so; and how it is stopped by one that it heeds.
#![allow(unsafe_code)]

use std::{
    io,
    mem::MaybeUninit,
    os::unix::process::CommandExt,
    process::Command,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

/// The last one that has a name. Nobody here changes those behind it.
const LAST: i32 = 31;

/// Those that were ignored: the lowest bit is signal 1.
static IGNORED: AtomicU32 = AtomicU32::new(0);

/// Rust's runtime ignores SIGPIPE before `main`, so it is looked before that.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_THE_BEGINNING: extern "C" fn() = note;

extern "C" fn note() {
    let ignored = (1..=LAST).filter(|signal| is_ignored(*signal)).map(bit).fold(0, |all, one| all | one);
    IGNORED.store(ignored, Ordering::Relaxed);
}

fn bit(signal: i32) -> u32 {
    1 << (signal - 1)
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set, and what is there is written to a place that is large enough.
    let told = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: it was written, as it is whenever the call succeeds.
    told == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Whether this process was started with that signal ignored, as under nohup and in the background of a script.
#[doc(alias = "SIG_IGN")]
pub fn was_ignored(signal: i32) -> bool {
    (1..=LAST).contains(&signal) && IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

/// Has a program begin with those signals ignored that this process was started with. Rust gives it SIGPIPE as if nobody had
/// ignored that, and what this process heeds or has changed would be as at first.
pub fn give_back_ignored(command: &mut Command) -> &mut Command {
    let ignored = IGNORED.load(Ordering::Relaxed);
    if ignored == 0 {
        return command;
    }
    let ignore = move || {
        let were_ignored = |signal: &i32| ignored & bit(*signal) != 0;
        (1..=LAST).filter(were_ignored).try_for_each(|signal| set(signal, libc::SIG_IGN))
    };
    // SAFETY: the closure runs in the forked child, and makes system calls alone: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(ignore) }
}

/// Has the kernel keep how programs end that this process starts, until it asks. Where SIGCHLD is ignored, nobody hears of that,
/// and who has started this process may have left it so.
#[doc(alias = "SIGCHLD")]
pub fn hear_of_ends() -> io::Result<()> {
    set(libc::SIGCHLD, libc::SIG_DFL)
}

/// Stops this process by SIGTSTP as if nobody here heeded that signal, until somebody continues it: who has started it, such as a shell, hears of that signal. Where no
/// shell could continue it (an orphaned group of processes), the kernel doesn't stop it.
#[doc(alias = "SIGTSTP")]
pub fn stop() -> io::Result<()> {
    let (mut default, mut before) = (MaybeUninit::<libc::sigaction>::zeroed(), MaybeUninit::uninit());
    // SAFETY: zeroes are an action: no flags, no signals, and the kernel's own in place of a function.
    unsafe { default.assume_init_mut() }.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the action is the kernel's own, and what was there is written to a place that is large enough.
    if unsafe { libc::sigaction(libc::SIGTSTP, default.as_ptr(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a number. It comes to this thread before the call returns, and stops all of them.
    let raised = unsafe { libc::raise(libc::SIGTSTP) };
    // SAFETY: what was there before, which was written above.
    unsafe { libc::sigaction(libc::SIGTSTP, before.as_ptr(), ptr::null_mut()) };
    if raised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set(signal: i32, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: the action is one of the kernel's own, and no function that would be called.
    if unsafe { libc::signal(signal, action) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    const TEST: &str = "signals::tests::what_was_ignored_is_known_and_given_to_programs";
    /// Tells this program that it is the one that was started so.
    const WITHIN: &str = "ONESWEEP_TEST_IGNORED_SIGNALS";
    const IGNORED_HERE: [i32; 3] = [libc::SIGPIPE, libc::SIGCHLD, libc::SIGXFSZ];
    const LEFT: [i32; 2] = [libc::SIGINT, libc::SIGUSR1];

    /// In a process of its own, since how a process was started is of all of it.
    #[test]
    fn what_was_ignored_is_known_and_given_to_programs() {
        if env::var_os(WITHIN).is_some() {
            return within();
        }
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", TEST, "--nocapture"]).env(WITHIN, "1");
        let start = || {
            LEFT.iter().try_for_each(|signal| set(*signal, libc::SIG_DFL))?;
            IGNORED_HERE.iter().try_for_each(|signal| set(*signal, libc::SIG_IGN))
        };
        // SAFETY: the closure runs in the forked child, and makes system calls alone.
        let out = unsafe { again.pre_exec(start) }.output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&out.stderr));
    }

    fn within() {
        assert!(IGNORED_HERE.iter().all(|signal| was_ignored(*signal)));
        assert!(!LEFT.iter().any(|signal| was_ignored(*signal)));
        assert!(!was_ignored(0) && !was_ignored(LAST + 1) && !was_ignored(-1));
        let told = |command: &mut Command| {
            let out = command.args(["^SigIgn:", "/proc/self/status"]).output().unwrap();
            assert!(out.status.success(), "{out:?}");
            let mask = String::from_utf8(out.stdout).unwrap().trim_start_matches("SigIgn:").trim().to_owned();
            u32::try_from(u64::from_str_radix(&mask, 16).unwrap() & u64::from(u32::MAX)).unwrap()
        };
        hear_of_ends().unwrap();
        // Of these two, a program wouldn't know.
        let without = told(&mut Command::new("grep"));
        assert!(without & (bit(libc::SIGPIPE) | bit(libc::SIGCHLD)) == 0, "{without:x}");
        let given = told(give_back_ignored(&mut Command::new("grep")));
        assert!(IGNORED_HERE.iter().all(|signal| given & bit(*signal) != 0), "{given:x}");
        assert!(!LEFT.iter().any(|signal| given & bit(*signal) != 0), "{given:x}");
    }
}
