//! A view in containers, whose programs see other mounts, another root and other users.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rustix::process::Signal;

use crate::{
    held_back::{self, in_memory},
    image::{Fs, Image},
    run::{not_here, output, root_test, text},
    tree,
    view::{OLDER_KERNEL, THIS_KERNEL, View, WAYS, brought_in, cold_tree, place},
};

/// As `docker run -v DIR:/data:ro` does it: a mount namespace, and the view bound to another place.
#[test]
fn a_view_reaches_into_containers() {
    root_test!(alone);
    in_containers(|dir, data| {
        let script = "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\" && shift && \
            cat \"$1/by its name\" > /dev/null && tar --format=gnu --sort=name --numeric-owner -cf - -C \"$1\" . && ! touch \"$1\"/new 2> /dev/null";
        let mut contained = Command::new("unshare");
        contained.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).args([dir, data]);
        contained
    });
}

/// With a root, processes and a network of its own, as another user.
#[test]
fn a_view_reaches_into_containers_of_systemd() {
    root_test!(alone);
    // Of the machine it has /usr alone. Nobody has to be there who keeps a list of containers.
    let container = || {
        let mut container = Command::new("systemd-nspawn");
        container.args([
            "--quiet",
            "--directory=/",
            "--volatile=yes",
            "--register=no",
            "--keep-unit",
            "--private-network",
        ]);
        container.arg("--pipe");
        container
    };
    let tried = container().arg("true").output().expect("it is installed");
    if !tried.status.success() {
        return not_here(&format!("systemd-nspawn begins no container: {}", text(&tried.stderr).trim()));
    }
    in_containers(|dir, _| {
        let script = "cat '/data/by its name' > /dev/null && tar --format=gnu --sort=name --numeric-owner -cf - -C /data . && \
            ! touch /data/new 2> /dev/null";
        let mut contained = container();
        contained.arg(format!("--bind-ro={}:/data", dir.to_str().expect("a path of text")));
        contained.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec", script]);
        contained
    });
}

/// Walks over a view, by each way, in what `contained` makes of where it is and of an empty folder.
fn in_containers(contained: impl Fn(&Path, &Path) -> Command) {
    let mut image = Image::new(Fs::Ext4, 100 << 20);
    let (root, dir) = place(&image);
    let data = image.beside("data");
    fs::create_dir_all(&data).expect("a folder");
    cold_tree(&mut image, &root);
    let files = tree::files(&root);
    let is_ahead = || in_memory(&files) > files.len() / 2;
    fs::write(root.join("by its name"), "bytes").expect("a file");
    // Whoever may not write there may not since it's shown to be read.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).expect("its mode");
    tree::sync(&root);
    for (kernel, way) in WAYS.map(|way| (THIS_KERNEL, way)).into_iter().chain([(OLDER_KERNEL, &[][..])]) {
        image.cold();
        let view = View::on(kernel, way, &root, &dir, &["--verbose"]);
        let archive = held_back::until(is_ahead, &mut contained(&dir, &data)).stdout;
        let mut plain = Command::new("tar");
        plain.args(["--format=gnu", "--sort=name", "--numeric-owner", "-cf", "-", "-C"]).arg(&root).arg(".");
        assert!(archive == output(&mut plain), "{way:?} {kernel}: the archive is another one");
        view.signal(Signal::INT);
        let said = view.end(Some(0));
        let (brought, sweeps) = brought_in(said.as_bytes());
        assert!(brought >= files.len() * 3 / 4 && sweeps == 1, "{way:?} {kernel}: {said}");
    }
}

/// A namespace of its own, as services have it (`PrivateTmp=`), has a copy of each mount.
#[test]
fn who_uses_the_source_in_another_namespace_waits_for_nothing() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 100 << 20);
    // The source is what is mounted.
    let (root, dir) = (image.root(), image.beside("shown"));
    cold_tree(&mut image, &root);
    let files = tree::files(&root);
    let archived = "tar --format=gnu --sort=name -cf - -C \"$2\" .";
    let bound = format!("mount --bind \"$1\" \"$2\" && {archived}");
    for kernel in [THIS_KERNEL, OLDER_KERNEL] {
        // By the place of the source a container sees the view, in the second turn.
        for (script, is_helped) in [(archived, false), (&bound, true)] {
            image.cold();
            let view = View::on(kernel, &[], &root, &dir, &["--verbose"]);
            let mut beside = Command::new("unshare");
            beside.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).args([&dir, &root]);
            let is_ahead = || !is_helped || in_memory(&files) > files.len() / 2;
            let archive = held_back::until(is_ahead, &mut beside).stdout;
            view.signal(Signal::INT);
            let said = view.end(Some(0));
            let (brought, sweeps) = brought_in(said.as_bytes());
            match is_helped {
                true => assert!(brought >= files.len() * 3 / 4 && sweeps == 1, "{kernel}: {said}"),
                false => assert!(sweeps == 0 && !said.contains("asked about"), "{kernel}: {said}"),
            }
            let mut plain = Command::new("tar");
            plain.args(["--format=gnu", "--sort=name", "-cf", "-", "-C"]).arg(&root).arg(".");
            assert!(archive == output(&mut plain), "{kernel}: the archive is another one");
        }
    }
}
