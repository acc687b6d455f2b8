//! Ctrl-Z, of a view that the kernel shows: who is stopped answers nobody, so nobody may be asked meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use onesweep_sys::signals;
use onesweep_view::bind::Pauses;
use signal_hook::{
    consts::{SIGCONT, SIGTSTP},
    flag,
    iterator::Signals,
};

use crate::session::heeded_of;

/// From now on what stops this process waits until nobody waits for it. Where that can't be had, it stops at once, as any program.
pub(super) fn heed(pauses: Pauses) {
    let (begins, has_begun) = mpsc::channel::<()>();
    // It ends with the process. Without it the signal is left as it is.
    let heeding = move || {
        let Ok(mut signals) = Signals::new(heeded_of([SIGTSTP])) else { return };
        let is_continued = Arc::new(AtomicBool::new(false));
        let _ = flag::register(SIGCONT, Arc::clone(&is_continued));
        drop(begins);
        while !signals.is_closed() {
            if signals.wait().next().is_none() {
                continue;
            }
            is_continued.store(false, Ordering::SeqCst);
            pauses.begin();
            // Whoever continues a process undoes that it was to stop, also before it has.
            if !is_continued.load(Ordering::SeqCst) {
                // Returns when it is continued.
                let _ = signals::stop();
            }
            signals.pending().for_each(drop);
            pauses.end();
        }
    };
    if thread::Builder::new().name("view-stop".into()).spawn(heeding).is_ok() {
        // Nothing is ever told: it has an end.
        let _ = has_begun.recv();
    }
}
