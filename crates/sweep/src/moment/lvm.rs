//! Snapshots of logical volumes, by the programs of LVM. Tested with what these answered where no volume can be active
//! (`tests/lvm`), and with stand-ins for what they can't do there; not on a device.

use std::{
    ffi::OsStr,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use onesweep_layout::mounts::{Mount, MountTable};
use onesweep_sys::{files, mounting};

use super::{
    InSnapshot, Kind, Live, NOT_BELOW, Voice,
    left_over::{Names, is_alive},
    mounts_below, place_of, refused,
};
use crate::{error::SweepError, placement::Placement};

/// LVM allows no name to begin with a full stop or a hyphen, and reserves "snapshot".
const NAMES: Names = Names { prefix: "onesweep_moment_" };

/// Where snapshots are mounted.
const MOUNT_POINTS: &str = "/run";

/// How long a snapshot that somebody has open is tried to be unmounted, and how often.
const LET_GO: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The share of its origin that may change while the snapshot is there, in percent. Thin volumes need none.
const CHANGES: &str = "10%ORIGIN";

/// Whether a file system lies on a logical volume.
pub(super) fn is_volume(placement: &Placement) -> bool {
    let top = placement.stack.as_ref().and_then(|stack| stack.through.first());
    top.is_some_and(|layer| layer.kind.as_deref() == Some("LVM"))
}

/// Why no snapshot is to be had, with what the kernel said, where it was asked and no program of LVM.
#[derive(Debug)]
struct Trouble {
    text: String,
    source: Option<io::Error>,
}

impl Trouble {
    fn of_kernel(text: String, source: io::Error) -> Self {
        Self { text, source: Some(source) }
    }
}

impl<T: Into<String>> From<T> for Trouble {
    fn from(text: T) -> Self {
        Self { text: text.into(), source: None }
    }
}

/// The programs of LVM.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// Where they are, if not on the PATH.
    folder: Option<PathBuf>,
    /// Where snapshots are mounted.
    mount_points: PathBuf,
}

impl Programs {
    pub(super) fn of_system() -> Self {
        Self { folder: None, mount_points: MOUNT_POINTS.into() }
    }

    /// Runs one of them; gives what it wrote, or what it said.
    fn run(&self, program: &str, arguments: &[&OsStr]) -> Result<String, Trouble> {
        let path = self.folder.as_ref().map_or_else(|| program.into(), |folder| folder.join(program));
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C").env("LVM_SUPPRESS_FD_WARNINGS", "1");
        let out = command.output().map_err(|error| {
            // Without what the kernel said: that would be taken for what it says of the tree.
            match error.kind() {
                io::ErrorKind::NotFound => format!("{program} is not installed; install lvm2, or leave out --snapshot"),
                _ => format!("cannot run {program}: {error}"),
            }
        })?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&out.stderr);
        Err(format!("{program} failed: {}", reason(&said).unwrap_or("it says nothing")).into())
    }

    /// What `lvs` tells of some volumes: one row for each, in the order of `fields`.
    fn volumes(&self, fields: &str, of: &[&OsStr]) -> Result<Vec<Vec<String>>, Trouble> {
        let shape = ["--noheadings", "--separator", "|", "-o", fields].map(OsStr::new);
        let told = self.run("lvs", &[&shape, of].concat())?;
        let rows: Vec<Vec<String>> =
            told.lines().map(row).filter(|row| row.iter().any(|field| !field.is_empty())).collect();
        let expected = fields.split(',').count();
        match rows.iter().find(|row| row.len() != expected) {
            Some(odd) => Err(format!("lvs told {odd:?} where {expected} fields were asked for").into()),
            None => Ok(rows),
        }
    }
}

/// Why a program failed: the last that it said, without what it says after that anyway.
fn reason(said: &str) -> Option<&str> {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_aside = |line: &str| line.starts_with("WARNING:") || line.starts_with("Run `");
    lines().rfind(|&line| !is_aside(line)).or_else(|| lines().next_back())
}

/// The fields of a line of `lvs`.
fn row(line: &str) -> Vec<String> {
    line.trim().split('|').map(|field| field.trim().to_owned()).collect()
}

/// What makes a snapshot of a volume. One of a thin volume shares its pool, and is not activated unless it is told.
fn creation(name: &str, origin: &str, is_thin: bool) -> Vec<String> {
    let size: &[&str] = if is_thin { &["--setactivationskip", "n"] } else { &["--extents", CHANGES] };
    let words = ["--snapshot", "--yes", "--quiet", "--name", name];
    [&words, size, &[origin]].concat().into_iter().map(str::to_owned).collect()
}

/// How a snapshot is mounted: two XFS of one identity are not mounted at a time unless it is told.
fn options(fs_type: &str) -> &'static str {
    if fs_type == "xfs" { "nouuid" } else { "" }
}

/// A snapshot that is mounted.
pub(super) struct LvmSnapshot {
    programs: Programs,
    /// `group/volume`.
    volume: String,
    /// Where it is mounted, if it is by now.
    mount_point: Option<PathBuf>,
    ended: bool,
}

impl LvmSnapshot {
    pub(super) fn end(mut self) -> io::Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> io::Result<()> {
        self.ended = true;
        if let Some(mount_point) = self.mount_point.take() {
            unmount(&mount_point)?;
            fs::remove_dir(&mount_point)?;
        }
        remove_volume(&self.programs, &self.volume).map_err(|trouble| io::Error::other(trouble.text))
    }
}

impl Drop for LvmSnapshot {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.remove();
        }
    }
}

/// Whoever looks at all that is mounted lets go soon, and so does a child of this process that is about to run another program.
fn unmount(mount_point: &Path) -> io::Result<()> {
    let until = Instant::now() + LET_GO;
    loop {
        match mounting::unmount(mount_point) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => thread::sleep(LOOK),
            ended => return ended,
        }
    }
}

fn remove_volume(programs: &Programs, volume: &str) -> Result<(), Trouble> {
    programs.run("lvremove", &["--force", "--quiet", volume].map(OsStr::new)).map(drop)
}

/// Takes a snapshot of the volume of a root and mounts it.
pub(super) fn snapshot(
    root: &Live<'_>,
    mount: &Mount,
    mounts: &MountTable,
    programs: &Programs,
    voice: &Voice,
) -> Result<InSnapshot, SweepError> {
    // Of `/dev/dm-3` LVM says that there is no volume group dm-3.
    let node = root.placement.stack.as_ref().and_then(|stack| stack.mapper_node.clone());
    let node = node.ok_or_else(|| refused(root.shown, "its device is not known"))?;
    let place = place_of(root)?;
    if mount.root != Path::new("/") || !place.path.starts_with(&mount.mount_point) {
        return Err(refused(root.shown, NOT_BELOW));
    }
    let fail = |what: &str, Trouble { text, source }| {
        let (path, reason) = (root.shown.to_owned(), format!("cannot {what} of its volume: {text}"));
        SweepError::Snapshot { path, reason, source }
    };
    let taken =
        take(&node, &mount.fs_type, programs, mounts, voice).map_err(|trouble| fail("take a snapshot", trouble))?;
    let at = taken.mount_point.clone().unwrap_or_default();
    let stat = files::open_dir(at.as_path()).and_then(|fd| files::statx_fd(fd.as_fd()));
    let stat = stat.map_err(|error| fail("open the snapshot", Trouble::of_kernel(error.to_string(), error)))?;
    Ok(InSnapshot {
        dev: stat.dev,
        live_dev: place.dev,
        at,
        live: mount.mount_point.clone(),
        mounts: mounts_below(mounts, &mount.mount_point),
        kind: Kind::Lvm(taken),
    })
}

/// Takes a snapshot of the volume with this node in `/dev/mapper` and mounts it.
fn take(
    node: &Path,
    fs_type: &str,
    programs: &Programs,
    mounts: &MountTable,
    voice: &Voice,
) -> Result<LvmSnapshot, Trouble> {
    let volumes = programs.volumes("vg_name,lv_name,pool_lv", &[node.as_os_str()])?;
    let [volume] = &volumes[..] else {
        return Err(format!("lvs knows {} volumes of it, not one", volumes.len()).into());
    };
    let (group, origin, is_thin) = (&volume[0], format!("{}/{}", volume[0], volume[1]), !volume[2].is_empty());
    remove_left_over(group, programs, mounts, voice)?;
    let name = NAMES.next();
    let words = creation(&name, &origin, is_thin);
    programs.run("lvcreate", &words.iter().map(OsStr::new).collect::<Vec<_>>())?;
    let volume = format!("{group}/{name}");
    // From here on, whatever fails removes it.
    let mut taken = LvmSnapshot { programs: programs.clone(), volume, mount_point: None, ended: false };
    let told = programs.volumes("lv_path", &[OsStr::new(&taken.volume)])?;
    let device = told.first().map(|row| PathBuf::from(&row[0])).ok_or("lvs does not know the snapshot")?;
    let mount_point = programs.mount_points.join(&name);
    let failed = |what: &str, error: io::Error| {
        Trouble::of_kernel(format!("cannot {what} {}: {error}", mount_point.display()), error)
    };
    fs::create_dir(&mount_point).map_err(|error| failed("make", error))?;
    if let Err(error) = mounting::mount_read_only(&device, &mount_point, fs_type, options(fs_type)) {
        let _ = fs::remove_dir(&mount_point);
        return Err(failed("mount it on", error));
    }
    taken.mount_point = Some(mount_point);
    Ok(taken)
}

/// Removes snapshots whose makers are gone.
fn remove_left_over(group: &str, programs: &Programs, mounts: &MountTable, voice: &Voice) -> Result<(), Trouble> {
    for volume in programs.volumes("lv_name", &[OsStr::new(group)])? {
        let name = &volume[0];
        let Some(maker) = NAMES.maker(name).filter(|&maker| maker != std::process::id()) else { continue };
        let whole = format!("{group}/{name}");
        if is_alive(maker) {
            continue;
        }
        let mount_point = programs.mount_points.join(name);
        if mounts.iter().any(|mount| mount.mount_point == mount_point) {
            let _ = unmount(&mount_point);
        }
        let _ = fs::remove_dir(&mount_point);
        match remove_volume(programs, &whole) {
            Ok(()) => voice.tell(format!("{whole}: a snapshot that an earlier run left; removed")),
            Err(Trouble { text, .. }) => {
                voice.tell(format!("{whole}: cannot remove a snapshot that an earlier run left: {text}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::PermissionsExt, sync::Mutex};

    use super::{snapshot as snapshot_of, *};
    use crate::progress::Progress;

    /// Stand-ins for the programs, which write down how they are called, and answer as they are told to.
    struct StandIns {
        folder: tempfile::TempDir,
        programs: Programs,
    }

    impl StandIns {
        /// `lvs` answers by the fields it is asked for: those of a volume, all names of the group, the path of the snapshot.
        fn new(volume: &str, names: &str, snapshot: &Path) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let programs = Programs { folder: Some(folder.path().into()), mount_points: folder.path().into() };
            let this = Self { folder, programs };
            let path = snapshot.display();
            this.program(
                "lvs",
                &format!(
                    "case \"$5\" in\nvg_name*) echo '{volume}';;\nlv_name) printf '{names}';;\nlv_path) echo '  {path}';;\nesac"
                ),
            );
            this.program("lvcreate", "echo '  Logical volume \"x\" created.'");
            this.program("lvremove", "true");
            this
        }

        fn program(&self, name: &str, does: &str) {
            let path = self.folder.path().join(name);
            let calls = self.folder.path().join("calls");
            fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\" >> {}\n{does}\n", calls.display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn calls(&self) -> Vec<String> {
            let calls = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
            calls.lines().map(str::to_owned).collect()
        }

        fn take(&self, fs_type: &str) -> Result<LvmSnapshot, Trouble> {
            let voice = Voice(None);
            take(Path::new("/dev/mapper/vg0-home"), fs_type, &self.programs, &MountTable::default(), &voice)
        }
    }

    /// What LVM's programs answered when `tests/lvm/record.sh` asked them: a command, its lines, those on standard error behind
    /// `! `, and its exit code behind `? `.
    struct Recording(StandIns);

    /// The name of a snapshot in recordings, where one that is made now has another.
    const RECORDED: &str = "onesweep_moment_1-0";

    impl Recording {
        fn new(text: &str) -> Self {
            let stand_ins = StandIns::new("", "", Path::new("/dev/null"));
            let own = format!("{}{}-[0-9]*", NAMES.prefix, std::process::id());
            let mut cases = [("lvs", String::new()), ("lvcreate", String::new()), ("lvremove", String::new())];
            for (number, block) in text.split("\n$ ").skip(1).enumerate() {
                let (command, answer) = block.split_once('\n').unwrap();
                let (program, arguments) = command.split_once(' ').unwrap();
                let lines = |mark: &str| answer.lines().filter_map(|line| line.strip_prefix(mark)).collect::<Vec<_>>();
                let out: Vec<&str> = answer.lines().filter(|line| line.starts_with(' ')).collect();
                let [code] = lines("? ")[..] else { panic!("{command}: not one code") };
                for (name, lines) in [("out", out), ("err", lines("! "))] {
                    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
                    fs::write(stand_ins.folder.path().join(format!("{number}.{name}")), text).unwrap();
                }
                let at = stand_ins.folder.path().join(number.to_string());
                let cases = cases.iter_mut().find(|(name, _)| *name == program).unwrap();
                let case = format!("'{arguments}') cat {0}.out; cat {0}.err >&2; exit {code};;\n", at.display());
                cases.1.push_str(&case);
            }
            for (program, cases) in cases {
                let asked = format!("$(echo \"$*\" | sed 's/{own}/{RECORDED}/')");
                let does = format!("case \"{asked}\" in\n{cases}*) echo \"not recorded: $*\" >&2; exit 99;;\nesac");
                stand_ins.program(program, &does);
            }
            Self(stand_ins)
        }

        fn row_of(&self, node: &str) -> Result<Vec<Vec<String>>, Trouble> {
            self.0.programs.volumes("vg_name,lv_name,pool_lv", &[OsStr::new(node)])
        }

        fn take(&self, node: &str) -> Result<LvmSnapshot, Trouble> {
            take(Path::new(node), "ext4", &self.0.programs, &MountTable::default(), &Voice(None))
        }
    }

    #[test]
    fn what_lvs_answered_is_understood() {
        let thick = Recording::new(include_str!("../../tests/lvm/thick.txt"));
        assert_eq!(thick.row_of("/dev/mapper/vg0-home").unwrap(), [["vg0", "home", ""]]);
        let hyphens = Recording::new(include_str!("../../tests/lvm/hyphens.txt"));
        assert_eq!(hyphens.row_of("/dev/mapper/vg--a-my--home").unwrap(), [["vg-a", "my-home", ""]]);
        let snapshots = Recording::new(include_str!("../../tests/lvm/snapshots.txt"));
        assert_eq!(snapshots.row_of("/dev/mapper/vg1-home").unwrap(), [["vg1", "home", ""]]);
        assert_eq!(snapshots.row_of("/dev/mapper/vg1-thin").unwrap(), [["vg1", "thin", "pool"]]);
        let path = snapshots.0.programs.volumes("lv_path", &[OsStr::new("vg1/onesweep_moment_1-1")]).unwrap();
        assert_eq!(path, [["/dev/vg1/onesweep_moment_1-1"]]);
    }

    /// The kernel's name of a volume is none to LVM, which is why it isn't asked by that.
    #[test]
    fn why_a_program_failed_is_what_it_said_of_it() {
        let thick = Recording::new(include_str!("../../tests/lvm/thick.txt"));
        for (node, said) in [
            ("/dev/dm-3", "lvs failed: Cannot process volume group dm-3"),
            ("/dev/mapper/vg0-none", "lvs failed: Failed to find logical volume \"vg0/none\""),
            ("/dev/mapper/none-home", "lvs failed: Cannot process volume group none"),
        ] {
            assert_eq!(thick.row_of(node).unwrap_err().text, said);
        }
        let said = "lvcreate failed: snapshot: Required device-mapper target(s) not detected in your kernel.";
        assert_eq!(thick.take("/dev/mapper/vg0-home").err().unwrap().text, said);
        let snapshots = Recording::new(include_str!("../../tests/lvm/snapshots.txt"));
        let said = remove_volume(&snapshots.0.programs, "vg1/onesweep_moment_1-2").unwrap_err().text;
        assert_eq!(said, "lvremove failed: Failed to update pool vg1/pool.");
        remove_volume(&snapshots.0.programs, "vg1/onesweep_moment_1-1").unwrap();
        let full = Recording::new(include_str!("../../tests/lvm/full.txt"));
        let words = "--driverloaded n --yes --quiet --name onesweep_moment_1-0 -an -Zn -Wn --extents 16 vg0";
        let said =
            full.0.programs.run("lvcreate", &words.split(' ').map(OsStr::new).collect::<Vec<_>>()).unwrap_err().text;
        assert_eq!(said, "lvcreate failed: Volume group \"vg0\" has insufficient free space (0 extents): 16 required.");
        assert_eq!((reason("WARNING: x\n"), reason(" \n")), (Some("WARNING: x"), None));
    }

    /// The snapshot is made with the words that were recorded, of a group and a volume with hyphens too, and what an earlier run
    /// left in that group is removed before.
    #[test]
    fn lvm_is_asked_as_it_was_when_it_answered() {
        let no_device_mapper =
            "lvcreate failed: snapshot: Required device-mapper target(s) not detected in your kernel.";
        let hyphens = Recording::new(include_str!("../../tests/lvm/hyphens.txt"));
        assert_eq!(hyphens.take("/dev/mapper/vg--a-my--home").err().unwrap().text, no_device_mapper);
        let calls = hyphens.0.calls();
        let removed: Vec<_> = calls.iter().filter(|call| call.starts_with("lvremove")).collect();
        assert_eq!(removed, ["lvremove --force --quiet vg-a/onesweep_moment_4294967294-0"]);
        assert!(calls.last().unwrap().ends_with(" --extents 10%ORIGIN vg-a/my-home"), "{calls:?}");

        let snapshots = Recording::new(include_str!("../../tests/lvm/snapshots.txt"));
        assert_eq!(snapshots.take("/dev/mapper/vg1-thin").err().unwrap().text, no_device_mapper);
        let made = snapshots.0.calls().pop().unwrap();
        assert!(made.ends_with(" --setactivationskip n vg1/thin"), "{made}");
    }

    #[test]
    fn a_snapshot_of_a_volume_needs_room_and_one_of_a_thin_volume_none() {
        assert_eq!(
            creation("n", "vg/lv", false).join(" "),
            "--snapshot --yes --quiet --name n --extents 10%ORIGIN vg/lv"
        );
        assert_eq!(
            creation("n", "vg/lv", true).join(" "),
            "--snapshot --yes --quiet --name n --setactivationskip n vg/lv"
        );
        assert_eq!((options("xfs"), options("ext4")), ("nouuid", ""));
    }

    /// What can't be mounted is removed, with the folder that it was to be mounted on.
    #[test]
    fn what_fails_leaves_nothing() {
        let stand_ins = StandIns::new("  vg0|home|", "  home\\n", Path::new("/dev/null"));
        let why = stand_ins.take("ext4").err().unwrap();
        assert!(why.text.contains("cannot mount it on"), "{why:?}");
        assert!(why.source.is_some_and(|said| said.raw_os_error().is_some()), "the number is the kernel's");
        let calls = stand_ins.calls();
        let created = calls.iter().find(|call| call.starts_with("lvcreate")).unwrap();
        let name = created.split(' ').find(|word| word.starts_with(NAMES.prefix)).unwrap();
        assert!(created.ends_with(" --extents 10%ORIGIN vg0/home"), "{created}");
        assert_eq!(calls.last().unwrap(), &format!("lvremove --force --quiet vg0/{name}"));
        assert!(!stand_ins.folder.path().join(name).exists());
    }

    #[test]
    fn what_lvm_says_is_told() {
        let stand_ins = StandIns::new("  vg0|home|", "  home\\n", Path::new("/dev/null"));
        let full = "echo '  Volume group \"vg0\" has insufficient free space (0 extents): 256 required.' >&2; exit 5";
        stand_ins.program("lvcreate", full);
        let why = stand_ins.take("ext4").err().unwrap();
        assert!(why.source.is_none(), "a program said it, not the kernel");
        assert_eq!(
            why.text,
            "lvcreate failed: Volume group \"vg0\" has insufficient free space (0 extents): 256 required."
        );
        assert!(stand_ins.calls().iter().all(|call| !call.starts_with("lvremove")));
        stand_ins.program("lvs", "echo '  Failed to find logical volume \"x\"' >&2; exit 5");
        assert!(stand_ins.take("xfs").err().unwrap().text.contains("Failed to find"));
        stand_ins.program("lvs", "echo '  vg0|home'");
        assert!(stand_ins.take("xfs").err().unwrap().text.contains("3 fields"));
        fs::remove_file(stand_ins.folder.path().join("lvs")).unwrap();
        assert!(stand_ins.take("xfs").err().unwrap().text.contains("lvs is not installed"));
    }

    /// A loop device, detached when dropped, with what is mounted of it.
    struct Loop(PathBuf);

    impl Loop {
        fn new(image: &Path) -> Self {
            Self(done("losetup", &["--find".as_ref(), "--show".as_ref(), image.as_os_str()]).trim().into())
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let mounts = MountTable::read().unwrap();
            for mount in mounts.iter().filter(|mount| mount.source == self.0) {
                let _ = mounting::unmount(&mount.mount_point);
            }
            let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    fn done(program: &str, arguments: &[&OsStr]) -> String {
        let out = Command::new(program).args(arguments).output().unwrap();
        assert!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// With a copy of an image in the place of a snapshot: two XFS of one identity are mounted, and nothing stays.
    #[test]
    fn a_snapshot_is_mounted_and_goes() {
        if onesweep_sys::user::effective_uid() != 0 {
            // Past the test harness, which would keep it back.
            let _ = writeln!(io::stderr(), "skipped: {}: needs root", thread::current().name().unwrap_or("a test"));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let [image, copy, origin] = ["image", "copy", "origin"].map(|name| folder.path().join(name));
        for path in [&image, &copy] {
            fs::File::create(path).unwrap().set_len(320 << 20).unwrap();
        }
        done("mkfs.xfs", &["-q".as_ref(), image.as_os_str()]);
        fs::create_dir(&origin).unwrap();
        let (device, other) = (Loop::new(&image), Loop::new(&copy));
        done("mount", &[device.0.as_os_str(), origin.as_os_str()]);
        fs::create_dir(origin.join("d")).unwrap();
        fs::write(origin.join("d/a"), "before").unwrap();
        let stand_ins = StandIns::new("  vg0|home|", "  home\\n", &other.0);
        let (from, to, at, snapshot) = (image.display(), copy.display(), origin.display(), other.0.display());
        let take = format!(
            "fsfreeze -f {at}; cp --sparse=never {from} {to}; fsfreeze -u {at}; blockdev --flushbufs {snapshot}"
        );
        stand_ins.program("lvcreate", &take);

        let placements = crate::placement::Placements::of_system().unwrap();
        let below = origin.join("d");
        let fd = files::open_dir(below.as_path()).unwrap();
        let mut placement = placements.of(fd.as_fd(), &files::statx_fd(fd.as_fd()).unwrap());
        drop(fd);
        drop(placements);
        // As if it were a volume.
        let stack = std::sync::Arc::get_mut(&mut placement).unwrap().stack.as_mut().unwrap();
        stack.mapper_node = Some("/dev/mapper/vg0-home".into());
        let root = Live { shown: Path::new("d"), opened: &below, placement: &placement };
        let mounts = MountTable::read().unwrap();
        let mount = mounts.of_path(&origin).unwrap();
        let taken = snapshot_of(&root, mount, &mounts, &stand_ins.programs, &Voice(None)).unwrap();
        fs::write(origin.join("d/a"), "after").unwrap();
        assert_eq!(fs::read_to_string(taken.at.join("d/a")).unwrap(), "before");
        assert!(taken.dev != taken.live_dev && taken.live == origin);
        assert!(fs::write(taken.at.join("d/b"), "x").is_err(), "it is for reading");
        let at = taken.at.clone();
        let Kind::Lvm(taken) = taken.kind else { panic!("another kind") };
        // Somebody has a look at it, and lets go only when it was tried once.
        let held = fs::File::open(at.join("d/a")).unwrap();
        assert_eq!(mounting::unmount(&at).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        let looker = thread::spawn(move || {
            thread::sleep(4 * LOOK);
            drop(held);
        });
        taken.end().unwrap();
        looker.join().unwrap();
        assert!(!at.exists());
        assert!(MountTable::read().unwrap().iter().all(|mount| mount.mount_point != at));
        assert!(stand_ins.calls().last().unwrap().starts_with("lvremove --force --quiet vg0/onesweep_moment_"));
    }

    /// Of the snapshots in the group, those go whose makers are gone.
    #[test]
    fn what_a_killed_run_left_is_removed() {
        let (gone, alive) = ("onesweep_moment_4294967294-0", "onesweep_moment_1-7");
        let names = format!("  home\\n  {gone}\\n  {alive}\\n  onesweep_moment_x\\n");
        let stand_ins = StandIns::new("  vg0|home|pool", &names, Path::new("/dev/null"));
        let told: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let observer = move |event: Progress| {
            if let Progress::Remark { text } = event {
                told.lock().unwrap().push(text);
            }
        };
        let voice = Voice(Some(std::sync::Arc::new(observer)));
        remove_left_over("vg0", &stand_ins.programs, &MountTable::default(), &voice).unwrap();
        let removed: Vec<_> = stand_ins.calls().into_iter().filter(|call| call.starts_with("lvremove")).collect();
        assert_eq!(removed, [format!("lvremove --force --quiet vg0/{gone}")]);
        assert_eq!(*told.lock().unwrap(), [format!("vg0/{gone}: a snapshot that an earlier run left; removed")]);
    }
}
