//! The unit of `onesweep peer serve`: systemd takes it, and what it starts needs no more than it is given.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{copy_program, figure, finish, image, onesweep, path};

/// A user and group who have nothing.
const NOBODY: u32 = 65534;

fn unit() -> String {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/onesweep-peer@.service");
    fs::read_to_string(unit).unwrap()
}

/// What lines of this name say, in their order.
fn settings<'a>(unit: &'a str, name: &'a str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// systemd has nothing to say against a unit of ours.
pub(crate) fn assert_sound(unit: &Path) {
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output();
    let verified = verified.expect("systemd-analyze; try `make deps`");
    let said = [verified.stdout, verified.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(verified.status.success() && !said.contains("onesweep"), "{said}");
}

#[test]
fn the_unit_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("onesweep-peer@box.service");
    // It isn't installed while it is tested, nor is the user there.
    let text = unit().replace("/usr/local/bin/onesweep", env!("CARGO_BIN_EXE_onesweep"));
    fs::write(&copy, &text).unwrap();
    assert_sound(&copy);
    // Of 100: those who see the network and have a right or two get 40, this one less than 20.
    let mut security = Command::new("systemd-analyze");
    let scored = security.args(["security", "--offline=yes", "--threshold=20"]).arg(&copy).output().unwrap();
    assert!(scored.status.success(), "{}", String::from_utf8_lossy(&scored.stdout));
    // Whom it runs as is made with the package, and not the one who hears clients of onesweep serve.
    let sysusers = include_str!("../../../../packaging/onesweep.sysusers");
    let [user] = settings(&text, "User")[..] else { panic!("one user") };
    assert!(sysusers.lines().any(|line| line.starts_with(&format!("u {user} "))) && user != "onesweep", "{user}");
}

/// Its command line, by a user without rights who has what the unit gives: copies of four files, and a directory.
#[test]
fn what_the_unit_starts_serves_without_rights() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let keys = path(dir, "keys");
    finish(&mut onesweep(&["peer", "keys", &keys]), 0);
    finish(&mut onesweep(&["peer", "keys", &keys, "--add", "box", "--role", "server"]), 0);
    finish(&mut onesweep(&["peer", "keys", &keys, "--add", "notebook", "--role", "client"]), 0);

    let unit = unit().replace("%i", "box").replace("%S", dir.to_str().unwrap());
    let credentials = dir.join("credentials");
    fs::create_dir(&credentials).unwrap();
    for line in settings(&unit, "LoadCredential") {
        let (name, from) = line.split_once(':').unwrap();
        let from = from.strip_prefix("/etc/onesweep/peer/").expect("where keys are made");
        assert_ne!(from, "ca.key");
        fs::copy(dir.join("keys").join(from), credentials.join(name)).unwrap();
        fs::set_permissions(credentials.join(name), Permissions::from_mode(0o400)).unwrap();
    }
    let [state] = settings(&unit, "StateDirectory")[..] else { panic!("one directory") };
    fs::create_dir(dir.join(state)).unwrap();

    let [start] = settings(&unit, "ExecStart")[..] else { panic!("one command") };
    let [options] = settings(&unit, "Environment")[..] else { panic!("one variable") };
    let options = options.trim_matches('"').strip_prefix("PEER_OPTIONS=").unwrap();
    // Any port will do, and less memory.
    let options = options.replace(":7497", ":0") + " --memory 16M --disk 64M";
    let start = start.replace("${CREDENTIALS_DIRECTORY}", credentials.to_str().unwrap());
    let start = start.replace("$PEER_OPTIONS", &options);
    let (program, words) = start.split_once(' ').unwrap();
    assert_eq!(program, "/usr/local/bin/onesweep");
    let serve = onesweep(&words.split(' ').collect::<Vec<_>>());

    let mut command = if rustix::process::geteuid().is_root() {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        let tool = dir.join("onesweep");
        copy_program(Path::new(serve.get_program()), &tool);
        let own = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        own(&dir.join(state));
        fs::read_dir(&credentials).unwrap().for_each(|entry| own(&entry.unwrap().path()));
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]).arg(tool).args(serve.get_args());
        command
    } else {
        serve
    };
    let notify = UnixDatagram::bind(dir.join("notify")).unwrap();
    fs::set_permissions(dir.join("notify"), Permissions::from_mode(0o666)).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    command.env("NOTIFY_SOCKET", dir.join("notify")).current_dir("/").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.next().expect("it says where it listens").unwrap();
    let port = line.split_once("listening at 0.0.0.0:").unwrap_or_else(|| panic!("{line}")).1;
    let address = format!("127.0.0.1:{}", port.split(',').next().unwrap());
    std::thread::spawn(move || said.for_each(drop));
    // From here on it is ended whatever happens.
    let server = crate::Server { child, address };
    let mut told = [0; 100];
    let length = notify.recv(&mut told).unwrap();
    assert!(told[..length].starts_with(b"READY=1\n"));

    let (key, tls) = (path(dir, "keys/domain.key"), path(dir, "keys/notebook"));
    let words = ["peer", "push", "--json", "--server", &server.address, "--key", &key, "--tls", &tls];
    let image = image(dir, "a.img", 1000);
    let (sent, _) = finish(&mut onesweep(&[&words[..], &[&image]].concat()), 0);
    assert_eq!(figure(&sent, "sent_blocks"), 400);
    assert_eq!(server.end(), Some(0));
    assert!(fs::read_dir(dir.join(state)).unwrap().count() > 0, "blocks are in the directory of the unit");
}
