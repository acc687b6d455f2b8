//! A tree that is shown, until it is to go.

use std::{io, path::Path, sync::mpsc, thread, time::Duration};

use onesweep_sys::user;
use onesweep_view::{ahead::Figures, mount::View};
use signal_hook::iterator::Signals;

use super::place;
use crate::{
    message,
    report::{Failure, INTERRUPTED},
};

/// How often it is looked whether somebody else has unmounted it.
pub(super) const LOOK: Duration = Duration::from_millis(200);

pub(in crate::commands) fn refused(dir: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound && !Path::new("/dev/fuse").exists() {
        let why = "there is no /dev/fuse; load the module with: modprobe fuse";
        return Failure::could_not_run(dir, "show the tree there", why);
    }
    if error.kind() == io::ErrorKind::NotFound && !Path::new("/proc/self").exists() {
        return Failure::could_not_run(dir, "show the tree there", "there is no /proc; mount it");
    }
    // Where a folder of PATH can't be searched, that it isn't there is told so, too.
    let is_missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    if is_missing && user::effective_uid() != 0 && !place::can_mount_for_users() {
        let why = "who isn't root needs fusermount3 for it; install the package fuse3";
        return Failure::could_not_run(dir, "show the tree there", why);
    }
    if error.raw_os_error().is_none() && error.kind() == io::ErrorKind::PermissionDenied {
        let why = "other users may look only if /etc/fuse.conf says user_allow_other";
        return Failure::could_not_run(dir, "show the tree there", why);
    }
    Failure::io(dir, "show the tree there", error)
}

/// Signals, one by one.
pub(in crate::commands) fn listen(mut signals: Signals) -> Result<mpsc::Receiver<i32>, Failure> {
    let (tell, told) = mpsc::channel();
    // It ends with the process.
    let heard = thread::Builder::new().spawn(move || {
        for signal in signals.forever() {
            if tell.send(signal).is_err() {
                return;
            }
        }
    });
    heard.map(|_| told).map_err(|error| Failure::told(message::no_thread(&error)))
}

pub(in crate::commands) fn wait_for_end(is_over: impl Fn() -> bool, told: &mpsc::Receiver<i32>) {
    while told.recv_timeout(LOOK).is_err() && !is_over() {}
}

/// Unmounts it. Who still uses it keeps it, and is waited for until another signal comes. `dir` is the place as it was typed,
/// and the absolute one.
pub(in crate::commands) fn take_away(
    mut view: View,
    (typed, dir): (&Path, &Path),
    told: &mpsc::Receiver<i32>,
) -> Result<Figures, Failure> {
    if !view.is_over() && view.unmount().is_err() && !view.is_over() {
        // The Ctrl-C that has ended a program came to this process, too, and is no second signal. It is told in a moment.
        thread::sleep(LOOK);
        told.try_iter().for_each(drop);
        let detached = place::detach(dir);
        if !view.is_over() {
            detached.map_err(|error| Failure::io(typed, "unmount it", &error))?;
        }
        let name = message::path_text(typed);
        if !view.is_over() {
            eprintln!("onesweep: {name} is unmounted, and still in use; waiting for that (Ctrl-C: no longer)");
        }
        while !view.is_over() {
            if told.recv_timeout(LOOK).is_ok() {
                eprintln!("onesweep: {name}: those who still use it get errors from now on");
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    }
    view.wait().map_err(|error| Failure::io(typed, "serve it", &error))
}
