//! What is written through mappings, of which the kernel tells nobody, shows in a view all the same.

use std::{fs, process::Command};

use crate::{
    image::{Fs, Image},
    run::{finish, root_test, run, text},
    view::place,
};

/// Has a file mapped and written by another program, in the source `$2`, and reads it in the view `$1`, which has the old bytes in memory.
const SCRIPT: &str = r#"
set -e
view=$1/file source=$2/file
mkfifo "$3/commands"
xfs_io "$source" < "$3/commands" > /dev/null &
exec 3> "$3/commands"
same() {
    for i in $(seq 600); do cmp -s "$view" "$source" && return; sleep 0.1; done
    echo "old bytes stay: $1" >&2
    exit 1
}
# The first byte is of a letter.
is() { until test "$(head -c 1 "$source")" = "$1"; do sleep 0.01; done; }
cmp "$view" "$source"
echo 'mmap -rw 0 8192' >&3
echo 'mwrite -S 0x41 0 8192' >&3; echo 'msync -s' >&3; is A; same "made durable"
# Nothing but the bytes of a page changes, which is dirty already.
for letter in 42 43; do
    echo "mwrite -S 0x$letter 0 8192" >&3; is "$(printf "\\x$letter")"; same "dirty, $letter"
done
echo 'mwrite -S 0x44 0 8192' >&3; echo 'munmap' >&3; is D; same "unmapped and open"
exec 3>&-
wait
# Gone before anybody looks.
xfs_io -c 'mmap -rw 0 8192' -c 'mwrite -S 0x45 0 8192' -c munmap "$source"; is E; same closed
"#;

/// As root by fanotify, and by inotify as another user.
#[test]
fn what_is_written_through_a_mapping_shows_while_it_is_mapped() {
    root_test!();
    for (fs, is_root) in [(Fs::Ext4, true), (Fs::Btrfs, true), (Fs::Ext4, false)] {
        let image = Image::new(fs, 200 << 20);
        let (root, dir) = place(&image);
        let fifos = image.beside("fifos");
        for folder in [&root, &dir, &fifos] {
            fs::create_dir_all(folder).expect("a folder");
        }
        fs::write(root.join("file"), vec![b'z'; 8192]).expect("a file");
        run(Command::new("chown").arg("-R").arg("65534:65534").args([&root, &dir, &fifos]));
        let tool = image.beside("onesweep");
        crate::run::copy_program(&crate::run::program(), &tool);
        // Where nobody cares for devices, /dev/fuse is root's alone.
        let open = "mknod -m 666 \"$0\" c 10 229 && mount --bind \"$0\" /dev/fuse && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", open]).arg(image.beside("fuse"));
        if !is_root {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.arg(&tool).args(["view", "--fuse", "--verbose"]).args([&root, &dir]);
        let said =
            text(&finish(command.args(["--", "bash", "-c", SCRIPT, "bash"]).args([&dir, &root, &fifos]), 0).stderr);
        let way = if is_root && fs != Fs::Btrfs { "seen at once" } else { "changes are seen" };
        assert!(said.contains(way) && (is_root || said.contains("by inotify")), "{said}");
    }
}
