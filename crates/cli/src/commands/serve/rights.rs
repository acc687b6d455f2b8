//! Who has which rights: the warden, a process of its own, keeps what reading and watching file systems takes, and the daemon
//! nothing.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown, lchown},
            net::UnixStream,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use onesweep_summary::warden::{
    guarded::Warden,
    keeper::{self, Named},
};
use onesweep_sys::{
    files, mounting, process,
    rights::{self, Right},
    user,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{super::summaries, moves::Mover, settings};
use crate::{
    args::{ServeArgs, ServeSettings},
    message,
    report::{CANNOT_RUN, Failure},
};

/// Who the daemon is, where nobody else is named and there is such a user.
const USER: &str = "onesweep";
/// So long the end of the warden is waited for, and looked for so often.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the warden keeps,
const KEPT: [Right; 5] = [Right::SysAdmin, Right::DacReadSearch, Right::Lease, Right::Fowner, Right::SysPtrace];
/// and where a summary by a command is declared.
const KEPT_FOR_COMMANDS: [Right; 3] = [Right::Setuid, Right::Setgid, Right::Kill];

/// The number of the user that the daemon becomes, and of its group; `None` when it stays who it is.
pub(super) fn user(settings: &ServeSettings) -> Result<Option<(u32, u32)>, Failure> {
    let failed = |error: io::Error| Failure::told(format!("cannot look up users: {}", message::why(&error)));
    let Some(name) = &settings.user else {
        let known = if user::effective_uid() == 0 { user::named(USER).map_err(failed)? } else { None };
        return Ok(known);
    };
    if let Ok(number) = name.parse() {
        return Ok(Some((number, number)));
    }
    match user::named(name).map_err(failed)? {
        Some(found) => Ok(Some(found)),
        None => Err(Failure::told(format!("{}: there is no such user", message::one_line(name)))),
    }
}

/// Makes the directory of stores, and everything in it the daemon's.
pub(super) fn own_store(store: &Path, user: Option<(u32, u32)>) -> Result<(), Failure> {
    let failed = |step: &'static str| move |error: io::Error| Failure::io(store, step, &error);
    make_private(store).map_err(failed("make the directory of stores"))?;
    if user::effective_uid() != 0 {
        return Ok(());
    }
    let (uid, gid) = user.unwrap_or((0, 0));
    let is_its = store.symlink_metadata().map_err(failed("look at the directory of stores"))?.uid() == uid;
    for entry in fs::read_dir(store).map_err(failed("list"))? {
        let path = entry.map_err(failed("list"))?.path();
        let is_given = give_store(&path, uid, gid).map_err(failed("give the stores in it to their user"))?;
        if !is_given && !is_its {
            let why = format!("it holds {}, which is no store; name a directory of its own", message::path_text(&path));
            return Err(Failure::could_not_run(store, "give it to its user", why));
        }
    }
    if is_its { Ok(()) } else { lchown(store, Some(uid), Some(gid)).map_err(failed("give it to its user")) }
}

/// A directory of one user's in one that others come through, which has more than that in it.
fn make_private(store: &Path) -> io::Result<()> {
    if let Some(parent) = store.parent()
        && !parent.as_os_str().is_empty()
        && !parent.exists()
    {
        fs::create_dir_all(parent)?;
        fs::set_permissions(parent, fs::Permissions::from_mode(0o711))?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(store)
}

/// How a store begins.
const STORE: &[u8] = b"redb";

/// Gives a store to its user; false when it is none, and stays whose it is. One that has another name may be anybody's file.
fn give_store(path: &Path, uid: u32, gid: u32) -> io::Result<bool> {
    let Ok(fd) = files::open_file(path) else { return Ok(false) };
    let mut file = fs::File::from(fd);
    let found = file.metadata()?;
    let mut begins = Vec::new();
    if !found.is_file() || found.nlink() != 1 {
        return Ok(false);
    }
    io::Read::take(&mut file, STORE.len() as u64).read_to_end(&mut begins)?;
    // What was left when one was being made may be empty.
    if begins != STORE && !begins.is_empty() {
        return Ok(false);
    }
    if found.uid() != uid {
        fchown(&file, Some(uid), Some(gid))?;
    }
    Ok(true)
}

/// The warden, and the end of its process; with the mover, where there is one.
pub(super) struct Running {
    pub(super) warden: Arc<Warden>,
    pub(super) mover: Option<Mover>,
    process: Child,
}

impl Running {
    /// Starts the warden: this program once more. And the mover, where files are to be moved.
    pub(super) fn start(relocates: bool) -> Result<Running, Failure> {
        let failed = |error: io::Error| Failure::told(format!("cannot start the warden: {}", message::why(&error)));
        let (ours, its) = UnixStream::pair().map_err(failed)?;
        let mut words: Vec<OsString> = env::args_os().skip(1).collect();
        // Behind the command, before what may be paths alone.
        let place = words.iter().position(|word| word == "serve").map_or(0, |place| place + 1);
        words.insert(place, "--warden".into());
        let process = Command::new("/proc/self/exe")
            .args(words)
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .env_remove("NOTIFY_SOCKET")
            .spawn()
            .map_err(failed)?;
        let warden = Warden::new(ours, |error| {
            tracing::error!("cannot go on without the warden: {}", message::why(error));
            std::process::exit(CANNOT_RUN.into());
        });
        let mut running = Running { warden, mover: None, process };
        if relocates {
            match Mover::start() {
                Ok(mover) => running.mover = Some(mover),
                Err(failure) => {
                    running.end();
                    return Err(failure);
                }
            }
        }
        Ok(running)
    }

    /// Ends both, which removes the socket, and waits for that; but no longer than a while for the warden, which can't end while a file
    /// system owes it an answer. False where it hasn't by then: it does so as soon as it can.
    pub(super) fn end(mut self) -> bool {
        if let Some(mover) = self.mover.take() {
            mover.end();
        }
        self.warden.end();
        if ends_within(&mut self.process, ENDS_WITHIN) {
            return true;
        }
        tracing::warn!("the warden waits for a file system that doesn't answer: it ends when that does");
        false
    }
}

/// Whether a child has ended by then.
fn ends_within(process: &mut Child, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        match process.try_wait() {
            Ok(None) if Instant::now() < until => thread::sleep(LOOK_EVERY),
            Ok(None) => return false,
            // Nobody can tell any more where it isn't known.
            Ok(Some(_)) | Err(_) => return true,
        }
    }
}

/// Becomes the daemon: from here on this process may do nothing that others may not.
pub(super) fn give_up(user: Option<(u32, u32)>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::told(format!("cannot give up its rights: {}", message::why(&error)));
    if let Some((uid, gid)) = user {
        rights::become_user(uid, gid).map_err(failed)?;
    }
    rights::keep_only(&[]).map_err(failed)
}

/// Is the warden, until the daemon is gone.
pub(super) fn run_warden(args: ServeArgs) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::told(format!("the warden cannot go on: {}", message::why(&error)));
    // What is meant for both comes to the daemon, which ends the warden.
    let heeded = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&heeded)).map_err(failed)?;
    }
    // For people alone.
    let _ = process::set_name(c"onesweep-warden");
    let control = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).map_err(failed)?;
    let settings = settings::read(&args)?;
    let socket = settings.socket();
    if let Some(namespace) = &settings.mount_namespace {
        mounting::see_mounts_of(namespace)
            .map_err(|error| Failure::io(namespace, "see file systems as they are mounted there", &error))?;
    }
    let (_, declared) = summaries::declared(settings.summaries.as_deref())?;
    let runs_commands = declared.has_commands();
    let for_commands: &[Right] = if runs_commands { &KEPT_FOR_COMMANDS } else { &[] };
    rights::keep_only(&[&KEPT, for_commands].concat()).map_err(failed)?;
    let named = move || {
        let settings = settings::read(&args)?;
        let (summaries, _) = summaries::declared(settings.summaries.as_deref())?;
        let sizes_follow = settings.sizes_follow();
        let (paths, timed, tokens) = (settings.paths, settings.timed, settings.http_tokens);
        Ok::<_, Failure>(Named { paths, timed, tokens, summaries, sizes_follow })
    };
    let ended = keeper::run(&control, runs_commands, move || named().map_err(|failure| failure.messages().join("; ")));
    if ended.map_err(failed)? {
        // Somebody else may have removed it.
        let _ = fs::remove_file(&socket);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_end_is_not_waited_for() {
        let mut process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert!(!ends_within(&mut process, Duration::from_millis(20)));
        drop(process.stdin.take());
        assert!(ends_within(&mut process, Duration::from_secs(100_000)));
    }

    #[test]
    fn only_stores_are_given_away() {
        if user::effective_uid() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (at, owner) = (folder.path().join("stores"), |path: &Path| path.symlink_metadata().unwrap().uid());
        own_store(&at, Some((7, 8))).unwrap();
        assert_eq!(owner(&at), 7);
        let [store, other, named_twice] = ["store", "other", "twice"].map(|name| at.join(name));
        fs::write(&store, "redb and more").unwrap();
        own_store(&at, Some((7, 8))).unwrap();
        assert_eq!(owner(&store), 7);
        fs::write(&other, "something else").unwrap();
        fs::write(folder.path().join("secret"), "redb").unwrap();
        fs::hard_link(folder.path().join("secret"), &named_twice).unwrap();
        own_store(&at, Some((7, 8))).unwrap();
        assert_eq!([&other, &named_twice].map(|path| owner(path)), [0, 0]);
        let Err(Failure::Told(messages)) = own_store(&at, Some((9, 9))) else { panic!("it holds something else") };
        assert!(messages[0].contains("which is no store; name a directory of its own"), "{messages:?}");
        assert_eq!(owner(&at), 7);
        fs::remove_file(&other).unwrap();
        fs::remove_file(&named_twice).unwrap();
        own_store(&at, None).unwrap();
        assert_eq!([&at, &store].map(|path| owner(path)), [0, 0]);
        // Its user comes to it, and nobody else into it.
        let made = folder.path().join("made");
        own_store(&made.join("stores"), Some((7, 8))).unwrap();
        let mode = |path: &Path| path.symlink_metadata().unwrap().mode() & 0o7777;
        assert_eq!((owner(&made), mode(&made), mode(&made.join("stores"))), (0, 0o711, 0o700));
    }
}
