//! Files of images that nobody mounts: they are what the file system shows when it is mounted, and the image stays what it is.

mod external_log;
mod journal;
mod limit;
mod lost;
mod ntfs;
mod realtime;
mod refused;
mod rootless;
mod windows;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    equality::differences,
    image::{Folder, Fs, Image, unmount},
    run::{figure, finish, long, onesweep, output, program, root_test, run, seed, summary, text},
    tree::{self, Rng, Varied, sum_lines, sums},
};

/// An image, and what was in it when it was mounted.
pub(crate) struct Made {
    pub(crate) folder: Folder,
    /// By the path inside.
    sums: BTreeMap<Vec<u8>, String>,
    paths: Vec<Vec<u8>>,
}

impl Made {
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    /// Its sums under another name of its root.
    fn sums_below(&self, root: &Path) -> BTreeMap<Vec<u8>, String> {
        let shown = |path: &Vec<u8>| [root.as_os_str().as_bytes(), b"/", path].concat();
        self.sums.iter().map(|(path, sum)| (shown(path), sum.clone())).collect()
    }

    pub(crate) fn named(&self, inside: &str) -> PathBuf {
        let mut name = self.file().into_os_string();
        name.push(inside);
        name.into()
    }
}

/// Without the root, in the order of their bytes.
fn below(root: &Path, path: &[u8]) -> Vec<u8> {
    let root = root.as_os_str().as_bytes();
    path.strip_prefix(root).expect("below the root").strip_prefix(b"/").unwrap_or_default().to_vec()
}

/// Files of all sizes, fragmented and sparse ones, links, and names that are not easy.
fn fill(root: &Path, files: u64) {
    let mut rng = Rng::new(seed());
    let mut folders = vec![root.to_owned()];
    for number in 0..files / 10 {
        let folder = folders[rng.below(folders.len() as u64) as usize].join(format!("folder {number}"));
        fs::create_dir(&folder).expect("a folder");
        folders.push(folder);
    }
    let mut grown = Vec::new();
    for number in 0..files {
        let path = folders[rng.below(folders.len() as u64) as usize].join(format!("файл {number}"));
        let size = [0, 1, 500, 900, 4096, 4097, 70_000, 400_000][rng.below(8) as usize];
        fs::write(&path, rng.bytes(size)).expect("a file");
        grown.push(path);
    }
    // In turns, so that they lie in pieces.
    for _ in 0..6 {
        for path in grown.iter().step_by(7) {
            let mut file = fs::File::options().append(true).open(path).expect("a file");
            std::io::Write::write_all(&mut file, &rng.bytes(20_000)).expect("more of it");
        }
    }
    let sparse = fs::File::create(root.join("sparse")).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 30 << 20).expect("a few bytes");
    sparse.set_len(60 << 20).expect("a hole");
    fs::hard_link(&grown[0], root.join("further name")).expect("a link");
    symlink("folder 0/nothing", root.join("symbolic link")).expect("a link");
    fs::write(root.join("large"), rng.bytes(20 << 20)).expect("a file");
    fs::remove_file(&grown[1]).expect("it goes");
}

pub(crate) fn ntfs(files: u64) -> Made {
    ntfs_with(|root| fill(root, files))
}

/// An NTFS with what is put into it, where it is mounted so that it can compress.
fn ntfs_with(put: impl FnOnce(&Path)) -> Made {
    ntfs_mounted_with("compression", put)
}

fn ntfs_mounted_with(options: &str, put: impl FnOnce(&Path)) -> Made {
    let folder = Folder::new();
    let (file, root) = (folder.join("disk.img"), folder.join("mounted"));
    fs::create_dir(&root).expect("a mount point");
    fs::File::create(&file).and_then(|file| file.set_len(400 << 20)).expect("a sparse file");
    run(Command::new("mkntfs").args(["-Q", "-F", "-q", "-s", "512", "-p", "0", "-H", "0", "-S", "0"]).arg(&file));
    run(Command::new("ntfs-3g").args(["-o", options]).arg(&file).arg(&root));
    put(&root);
    made(folder, &root)
}

/// Takes down what is in a file system, and unmounts it.
fn made(folder: Folder, root: &Path) -> Made {
    let sums = sums(&[root]).into_iter().map(|(path, sum)| (below(root, &path), sum)).collect();
    let found = output(Command::new("find").arg(root).arg("-print0"));
    let mut paths: Vec<Vec<u8>> =
        found.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(|path| below(root, path)).collect();
    paths.sort();
    unmount(root);
    Made { folder, sums, paths }
}

const SUM: [&str; 4] = ["sum", "--json", "--algorithm", "sha256"];

fn every_way_delivers_the_same(made: &Made) {
    let before = output(Command::new("sha256sum").arg(made.file()));
    let root = made.named(":");
    let orders =
        ["fragment", "first-extent", "inode", "inode-per-directory", "first-extent-per-directory", "directory"];
    for (at, order) in orders.into_iter().enumerate() {
        let strategies: &[&str] = if long() { &["merged", "unmerged", "vanilla"] } else { &["merged"] };
        for strategy in strategies {
            let budget = ["128K", "1M", "256M"][at % 3];
            let hidden = ["", "direct", "io_uring"][at / 2];
            let mut sum = onesweep(SUM);
            sum.args(["--order", order, "--budget", budget]).arg(made.named(":/")).env("ONESWEEP_HIDE", hidden);
            // Without a word it is merged.
            if at % 2 == 0 || *strategy != "merged" {
                sum.args(["--strategy", strategy]);
            }
            let out = finish(&mut sum, 0);
            let delivered = sum_lines(&out.stdout).into_iter().collect();
            assert_eq!(differences(&made.sums_below(&root), &delivered), None, "{order} {strategy} {budget} {hidden}");
            let told = summary(&out.stderr);
            assert_eq!(figure(&told, "errors"), 0);
            assert_eq!(figure(&told, "files") + 1, made.sums.len() as u64, "a further name is no further file");
        }
    }
    let after = output(Command::new("sha256sum").arg(made.file()));
    assert_eq!(text(&before), text(&after), "the image is what it was");
}

#[test]
fn files_of_an_ntfs_image_are_those_of_the_file_system() {
    root_test!();
    every_way_delivers_the_same(&ntfs(300));
}

/// What an archive, a copy and a list hold of an image is what the file system shows.
fn every_command_knows_images(made: &Made) {
    let root = made.named(":");
    for limit in [&[][..], &["--catalog-limit", "16K"]] {
        let listed = output(onesweep(["find", "-0"]).args(limit).arg(made.named(":/")));
        let mut found: Vec<Vec<u8>> =
            listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(|path| below(&root, path)).collect();
        found.sort();
        assert_eq!(found, made.paths, "{limit:?}");
    }

    let list = output(onesweep(["list", "-0"]).arg(made.file()));
    let mut listed: Vec<Vec<u8>> =
        list.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(|path| below(&root, path)).collect();
    listed.sort();
    assert_eq!(listed, made.sums.keys().cloned().collect::<Vec<_>>(), "by the names that can be given back");

    let archive = made.folder.join("archive.tar");
    let out = finish(onesweep(["tar", "-cf"]).arg(&archive).arg(made.file()), 0);
    assert!(text(&out.stderr).contains("the files in it are read"), "{}", text(&out.stderr));
    let extracted = made.folder.join("extracted");
    fs::create_dir(&extracted).expect("a folder");
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&extracted));
    // As if it had been mounted, and archived from its root.
    let by_tar = extracted;
    let copied = made.folder.join("copied");
    finish(onesweep(["copy"]).arg(made.named(":/")).arg(&copied), 0);
    for root in [by_tar, copied] {
        assert_eq!(differences(&made.sums_below(&root), &sums(&[&root])), None, "{}", root.display());
        assert_eq!(fs::read_link(root.join("symbolic link")).expect("a link"), Path::new("folder 0/nothing"));
    }

    let plan = finish(onesweep(["plan", "--json"]).arg(made.file()), 0);
    assert!(figure(&summary(&plan.stdout), "files") > 50);
    let one = finish(onesweep(SUM).arg(made.named(":/large")), 0);
    assert_eq!(sum_lines(&one.stdout)[0].1, made.sums[&b"large"[..]]);
    for command in [&SUM[..], &["list"], &["find"], &["plan"], &["tar", "-cf", "/dev/null"]] {
        let out = finish(onesweep(command).arg(made.named(":/none")), 2);
        let said = text(&out.stderr);
        assert!(said.contains("no such file or directory inside") && !said.contains("tables"), "{command:?}: {said}");
    }
    let out = finish(onesweep(SUM).arg(made.named(":/none")).arg(made.named(":/large")), 1);
    assert!(text(&out.stderr).contains("no such file or directory inside"), "{}", text(&out.stderr));
}

/// The same of a file system that the kernel can loop-mount.
pub(crate) fn of_kernel(fs: Fs, files: u64) -> Made {
    let folder = Folder::new();
    let (file, root) = (folder.join("disk.img"), folder.join("mounted"));
    fs::create_dir(&root).expect("a mount point");
    fs::File::create(&file).and_then(|file| file.set_len(400 << 20)).expect("a sparse file");
    run(&mut fs.mkfs(&file));
    run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&root));
    fill(&root, files);
    made(folder, &root)
}

/// Or what a test reads of an image would depend on what runs beside it.
#[test]
fn an_image_is_whole_once_it_was_unmounted() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("file"), vec![7; 100_000]).expect("a file");
    // It has all that is mounted here, and lets go of it by itself.
    let mut beside = Command::new("unshare");
    beside.args(["-m", "sh", "-c", "echo begun; sleep 2"]).stdout(Stdio::piped());
    let mut beside = beside.spawn().expect("unshare runs");
    let mut begun = [0; 6];
    beside.stdout.take().expect("it was piped").read_exact(&mut begun).expect("it begins");
    image.unmount();
    let told = output(onesweep(SUM).arg(image.file()));
    assert_eq!(sum_lines(&told).len(), 1, "{}", text(&told));
    beside.wait().expect("it ends");
}

#[test]
fn files_of_ext4_and_xfs_images_are_those_of_the_file_system() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Ext4Small, Fs::Ext4Inline, Fs::Xfs] {
        every_way_delivers_the_same(&of_kernel(fs, 300));
    }
}

#[test]
fn every_command_knows_ext4_and_xfs_images() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        every_command_knows_images(&of_kernel(fs, 120));
    }
}

#[test]
fn btrfs_is_mounted_to_be_read() {
    root_test!();
    let made = of_kernel(Fs::Btrfs, 10);
    let out = finish(onesweep(SUM).arg(made.named(":/")), 2);
    assert!(text(&out.stderr).contains("btrfs") && text(&out.stderr).contains("mount it"), "{}", text(&out.stderr));
}

/// Attributes and access lists come from the tables as well.
#[test]
fn an_archive_of_an_image_has_every_attribute() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let mut image = crate::image::Image::new(fs, 1 << 30);
        let root = image.root().join("tree");
        tree::varied(&root, fs, &Varied { files: 200, sparse: 8 << 20 }, seed());
        let before = tree::manifest(&root);
        image.unmount();
        let archive = image.beside("archive.tar");
        let mut named = image.file().into_os_string();
        named.push(":/tree");
        finish(onesweep(["tar", "--xattrs", "--acls", "-S", "-cf"]).arg(&archive).arg(&named), 0);
        let out = crate::image::Image::new(Fs::Ext4, 1 << 30);
        let mut tar = Command::new("tar");
        tar.args([
            "--preserve-permissions",
            "--same-owner",
            "--numeric-owner",
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
        ]);
        run(tar.arg("-xf").arg(&archive).arg("-C").arg(out.root()));
        tree::sync(&out.root());
        let extracted = out.root().join("tree");
        crate::archives::compare(&before, &tree::manifest(&extracted));
        image.mount();
    }
}

#[test]
fn every_command_knows_ntfs_images() {
    root_test!();
    every_command_knows_images(&ntfs(120));
}

/// An image file is read with the rights of an ordinary user, and taken as the file that it is where that is asked for.
#[test]
fn an_image_is_a_file_as_well() {
    root_test!();
    let made = ntfs(40);
    let folder = made.file().parent().expect("its folder").to_owned();
    run(Command::new("chmod").args(["a+rx"]).arg(&folder));
    // Of another's file nobody may ask what is cached.
    for name in [made.named(":/"), made.file()] {
        let mut sum = Command::new("setpriv");
        sum.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program()).args(SUM).arg(name);
        let out = finish(&mut sum, 0);
        assert_eq!(sum_lines(&out.stdout).len(), made.sums.len());
    }

    let whole = output(Command::new("sha256sum").arg(made.file()));
    let walked = finish(onesweep(SUM).args(["--metadata", "walk"]).arg(made.file()), 0);
    assert_eq!(text(&walked.stdout), text(&whole));
    let manifest = made.folder.join("manifest");
    fs::write(&manifest, &whole).expect("a manifest");
    let checked = finish(onesweep(["sum", "--check", "--algorithm", "sha256"]).arg(&manifest), 0);
    assert!(text(&checked.stdout).ends_with(": OK\n"), "{}", text(&checked.stdout));
    let warmed = finish(onesweep(["warm"]).arg(made.file()), 0);
    assert!(text(&warmed.stdout).starts_with("1 of 1 files"), "{}", text(&warmed.stdout));
    assert_eq!(text(&warmed.stderr), "", "nothing is said of an image that is taken as a file");
    // A long list of files is not looked into one by one.
    let others: Vec<PathBuf> = (0..20).map(|number| made.folder.join(&format!("other {number}"))).collect();
    others.iter().for_each(|path| fs::write(path, "x").expect("a file"));
    let many = finish(onesweep(SUM).arg(made.file()).args(&others), 0);
    assert_eq!(sum_lines(&many.stdout).len(), 21);
}

/// The second partition of a disk image, and what is said where none is named.
#[test]
fn partitions_are_named_by_number() {
    root_test!();
    let made = ntfs(30);
    let disk = made.folder.join("whole.img");
    let start: u32 = 2048;
    let sectors = u32::try_from(fs::metadata(made.file()).expect("its size").len() / 512).expect("a small image");
    let mut record = vec![0; 512];
    for (slot, first, sectors) in [(0, 64, 1000), (1, start, sectors)] {
        let entry: &mut [u8] = &mut record[446 + 16 * slot..][..16];
        entry[4] = 0x07;
        entry[8..12].copy_from_slice(&u32::to_le_bytes(first));
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&disk, record).expect("a disk");
    run(Command::new("dd").arg(format!("if={}", made.file().display())).arg(format!("of={}", disk.display())).args([
        "bs=1M",
        "seek=1",
        "conv=sparse,notrunc",
        "status=none",
    ]));
    fs::File::options()
        .write(true)
        .open(&disk)
        .and_then(|file| file.set_len((1 << 20) + (400 << 20)))
        .expect("its end");
    let named = |inside: &str| PathBuf::from(format!("{}{inside}", disk.display()));
    let out = finish(onesweep(SUM).arg(named("@2:/")), 0);
    assert_eq!(differences(&made.sums_below(&named("@2:")), &sum_lines(&out.stdout).into_iter().collect()), None);
    let out = finish(onesweep(["find"]).arg(&disk), 2);
    assert!(
        text(&out.stderr).contains("name one of") && text(&out.stderr).contains("whole.img@2"),
        "{}",
        text(&out.stderr)
    );
    let out = finish(onesweep(["find"]).arg(named("@3")), 2);
    assert!(text(&out.stderr).contains("whole.img@3: no partition 3; there are 1, 2"), "{}", text(&out.stderr));
}

/// Partitions as sfdisk makes them: of a GPT, and a logical one.
#[test]
fn partitions_of_a_real_tool_are_swept() {
    root_test!();
    let made = ntfs(30);
    let disk = made.folder.join("whole.img");
    let sectors = fs::metadata(made.file()).expect("its size").len() / 512;
    for (table, number) in [
        ("label: gpt\nx1 : start=2048, size=100\nx3 : start=8192, size=SECTORS\n", 3),
        (
            "label: dos\nx2 : start=2048, size=830000, type=5\nx5 : start=3000, size=9\nx6 : start=8192, size=SECTORS\n",
            6,
        ),
    ] {
        fs::File::create(&disk).and_then(|file| file.set_len(840_000 * 512)).expect("a sparse file");
        let script = made.folder.join("table");
        fs::write(&script, table.replace("SECTORS", &sectors.to_string())).expect("a script");
        let mut sfdisk = Command::new("sfdisk");
        sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&disk);
        run(sfdisk.stdin(fs::File::open(&script).expect("the script")));
        let (from, to) = (format!("if={}", made.file().display()), format!("of={}", disk.display()));
        let seek = ["bs=1M", "seek=4194304", "oflag=seek_bytes", "conv=sparse,notrunc", "status=none"];
        run(Command::new("dd").args([from, to]).args(seek));
        let named = |inside: &str| PathBuf::from(format!("{}@{number}{inside}", disk.display()));
        let out = finish(onesweep(SUM).arg(named(":/")), 0);
        let delivered = sum_lines(&out.stdout).into_iter().collect();
        assert_eq!(differences(&made.sums_below(&named(":")), &delivered), None, "{table}");
        let out = finish(onesweep(["find"]).arg(&disk), 2);
        let said = text(&out.stderr);
        assert!(said.contains("name one of") && said.contains(&format!("whole.img@{number}")), "{said}");
    }
}

/// What is mounted for writing is not in its tables yet.
#[test]
fn an_image_that_is_mounted_is_refused() {
    root_test!();
    let image = crate::image::Image::new(crate::image::Fs::Ext4, 64 << 20);
    for name in [image.file(), image.device().to_owned()] {
        let out = finish(onesweep(["find"]).arg(&name), 2);
        assert!(text(&out.stderr).contains("it is mounted at"), "{}", text(&out.stderr));
    }
}
