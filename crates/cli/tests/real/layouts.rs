//! File systems whose addresses say little, or whose files lie in no place of their own: the bytes are right all the
//! same, and the plan says what it does not know.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use crate::{
    equality::{by_sum, differences},
    image::{Folder, Fs, Image},
    run::{figure, finish, onesweep, root_test, run, seed, summary, text},
    tree::{self, Rng, Varied, sums},
};

const ORDERS: [&str; 7] =
    ["auto", "fragment", "first-extent", "inode", "inode-per-directory", "first-extent-per-directory", "directory"];

/// Sums in all orders equal those of `sha256sum`, from cold and then once more with all of it cached.
fn is_right_in_all_orders(root: &Path, mut cold: impl FnMut()) {
    let there = sums(&[root]);
    assert!(!there.is_empty());
    for order in ORDERS {
        cold();
        for budget in ["1M", "64M"] {
            let options = (vec!["--order", order, "--budget", budget], None);
            assert_eq!(differences(&there, &by_sum(&[root], &options)), None, "{order} {budget}");
        }
    }
}

/// The plan says in each of its forms why it knows no order, and which order it takes instead.
fn plan_says(root: &Path, order: &str, why: &str) {
    let plan = summary(&finish(onesweep(["plan", "--json"]).arg(root), 0).stdout);
    let disk = &plan["disks"][0];
    assert!(disk["remark"].as_str().is_some_and(|remark| remark.contains(why)), "no word of {why:?}: {disk}");
    let people = text(&finish(onesweep(["plan"]).arg(root), 0).stdout);
    assert!(people.contains(why), "no word of {why:?}: {people}");
    assert_eq!(disk["order"], order, "{disk}");
}

/// Files that btrfs has compressed are read through the file system, whatever their extents say.
/// Without cachestat the kernel would be asked about each page, for years.
#[test]
fn a_huge_hole_is_surveyed_at_once() {
    root_test!();
    let image = Image::new(Fs::Xfs, 320 << 20);
    fs::File::create(image.root().join("huge")).and_then(|file| file.set_len(1 << 62)).expect("a sparse file");
    let mut list = onesweep(["list", "-l"]);
    let out = finish(list.arg(image.root()).env("ONESWEEP_HIDE", "cachestat"), 0);
    assert!(text(&out.stdout).contains("huge"), "{}", text(&out.stdout));
}

#[test]
fn compressed_files_are_delivered() {
    root_test!();
    let mut image = Image::new(Fs::Btrfs, 640 << 20);
    image.set_options("compress-force=zstd");
    image.cold();
    let root = image.root().join("tree");
    tree::varied(&root, Fs::Btrfs, &Varied { files: 200, sparse: 4 << 20 }, seed());
    let mut rng = Rng::new(seed());
    for number in 0..40 {
        // Halves of text and of noise, so that some extents shrink and some do not.
        let text = format!("line {number} of a text that repeats itself\n").repeat(1 + rng.below(8000) as usize);
        let noise_bytes = rng.below(200_000) as usize;
        let noise = rng.bytes(noise_bytes);
        let mut bytes = [text.as_bytes(), &noise].concat();
        bytes.truncate(bytes.len() - number);
        fs::write(root.join(format!("text-{number}")), bytes).expect("a file");
    }
    tree::sync(&root);
    let flags = text(&crate::run::output(Command::new("filefrag").arg("-v").arg(root.join("text-1"))));
    assert!(flags.contains("encoded"), "nothing was compressed:\n{flags}");
    is_right_in_all_orders(&root, || image.cold());
}

#[test]
fn btrfs_on_several_devices_is_delivered_in_the_order_of_all_of_them() {
    root_test!();
    for (devices, data) in [(2, "raid0"), (2, "single"), (2, "raid1"), (4, "raid10")] {
        let mut image = Image::btrfs_on_devices(devices, data, 600 << 20);
        let root = image.root().join("tree");
        tree::varied(&root, Fs::Btrfs, &Varied { files: 200, sparse: 4 << 20 }, seed());
        let clones = root.join("clones");
        fs::create_dir(&clones).expect("a folder");
        for number in 0..4 {
            let (file, clone) = (clones.join(format!("{number}-a")), clones.join(format!("{number}-b")));
            fs::write(&file, Rng::new(number).bytes(3_000_000)).expect("a file");
            run(Command::new("cp").arg("--reflink=always").arg(&file).arg(&clone));
            let changed = File::options().write(true).open(&clone).expect("the clone");
            changed.write_all_at(b"other bytes", 300_000 * number).expect("a change");
        }
        image.cold();
        let plan = summary(&finish(onesweep(["plan", "--json"]).arg(&root), 0).stdout);
        assert_eq!(plan["disks"][0]["order"], "fragment", "{data}: {plan}");
        is_right_in_all_orders(&root, || image.cold());
    }
}

/// As for a user who may not ask btrfs for its chunks.
#[test]
fn btrfs_on_two_devices_is_delivered_and_the_plan_says_why_not_in_order() {
    root_test!();
    let mut image = Image::btrfs_on_devices(2, "raid0", 400 << 20);
    let root = image.root().join("tree");
    tree::varied(&root, Fs::Btrfs, &Varied { files: 300, sparse: 4 << 20 }, seed());
    image.cold();
    let mut plan = onesweep(["plan", "--json"]);
    let plan = summary(&finish(plan.arg(&root).env("ONESWEEP_HIDE", "treesearch"), 0).stdout);
    let disk = &plan["disks"][0];
    assert!(disk["remark"].as_str().is_some_and(|remark| remark.contains("2 devices")), "{disk}");
    assert_eq!(disk["order"], "inode", "{disk}");
    let there = sums(&[&root]);
    for order in ["auto", "first-extent"] {
        image.cold();
        let options = (vec!["--order", order], Some("treesearch"));
        assert_eq!(differences(&there, &by_sum(&[&root], &options)), None, "{order}");
    }
}

/// Where a plain file of btrfs is said to lie, its bytes are: on each of several devices.
#[test]
fn addresses_of_btrfs_are_places_on_its_devices() {
    root_test!();
    for (devices, data) in [(1, "dup"), (1, "raid0"), (2, "single"), (2, "raid1"), (3, "raid0")] {
        let image = Image::btrfs_on_devices(devices, data, 600 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        for number in 0..60 {
            fs::write(root.join(format!("{number}")), Rng::new(number).bytes(700_000)).expect("a file");
        }
        tree::sync(&root);
        let out = finish(onesweep(["list", "--json", "--order", "fragment"]).arg(&root), 0);
        let mut seen = BTreeMap::new();
        for line in text(&out.stdout).lines() {
            let file: serde_json::Value = serde_json::from_str(line).expect("an object on each line");
            let path = Path::new(file["path"].as_str().expect("a path")).to_owned();
            let (disk, address) =
                (file["disk"].as_str().expect("a disk"), file["address"].as_u64().expect("an address"));
            let device = match devices {
                1 => image.device().to_owned(),
                _ => Path::new("/dev").join(disk),
            };
            let raw = read_device(&device, address);
            let bytes = fs::read(&path).expect("the file");
            // Whatever part of the file comes first on its disk.
            assert!(bytes.chunks(4096).any(|block| raw.starts_with(block)), "{data}: {file}");
            *seen.entry(device).or_insert(0) += 1;
        }
        assert_eq!(seen.values().sum::<i32>(), 60, "{data}: {seen:?}");
    }
}

/// A block of a device, past the caches.
fn read_device(device: &Path, address: u64) -> Vec<u8> {
    let mut dd = Command::new("dd");
    dd.args(["iflag=direct,skip_bytes", "bs=4096", "count=1", "status=none", &format!("skip={address}")]);
    crate::run::output(dd.arg(format!("if={}", device.display())))
}

/// Files of the layer below, of the layer above, and of both.
#[test]
fn overlayfs_is_delivered_and_the_plan_says_why_not_in_order() {
    root_test!();
    let lower = Image::new(Fs::Ext4, 640 << 20);
    let upper = Image::new(Fs::Ext4, 256 << 20);
    tree::varied(&lower.root().join("tree"), Fs::Ext4, &Varied { files: 200, sparse: 4 << 20 }, seed());
    tree::sync(&lower.root());
    for name in ["upper", "work"] {
        fs::create_dir(upper.root().join(name)).expect("a folder");
    }
    let folder = Folder::new();
    let merged = folder.join("merged");
    fs::create_dir(&merged).expect("a mount point");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.root().display(),
        upper.root().join("upper").display(),
        upper.root().join("work").display()
    );
    run(Command::new("mount").args(["-t", "overlay", "-o", &layers, "none"]).arg(&merged));
    let root = merged.join("tree");
    for number in 0..50 {
        fs::write(root.join(format!("new-{number}")), vec![number; 1000 * usize::from(number)]).expect("a new file");
    }
    let changed = File::options().write(true).open(root.join("links/two-names-1")).expect("a file of below");
    changed.write_all_at(b"TWO", 0).expect("a change");
    fs::remove_file(root.join("names/tab\t")).expect("a deletion");
    plan_says(&root, "inode", "overlay");
    is_right_in_all_orders(&root, || ());
}

#[test]
fn files_in_memory_are_delivered_and_the_plan_says_why_not_in_order() {
    root_test!();
    let folder = Folder::new();
    let memory = folder.join("memory");
    fs::create_dir(&memory).expect("a mount point");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&memory));
    let root = memory.join("tree");
    fs::create_dir(&root).expect("a folder");
    let mut rng = Rng::new(seed());
    for number in 0..200 {
        let size = rng.size(8192.0, 1 << 20) as usize;
        fs::write(root.join(format!("{number}")), rng.bytes(size)).expect("a file");
    }
    File::create(root.join("hole")).and_then(|file| file.set_len(3 << 20)).expect("a sparse file");
    // Nothing is saved by any order here.
    plan_says(&root, "directory", "no seeks to save");
    is_right_in_all_orders(&root, || ());
}

/// Where nobody tells where files lie, that is counted, and they are read all the same.
#[test]
fn files_without_an_address_are_counted() {
    root_test!();
    const FILES: u64 = 30;
    let mut image = Image::new(Fs::Btrfs, 256 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    for number in 0..FILES {
        fs::write(root.join(format!("{number}")), Rng::new(number).bytes(100_000)).expect("a file");
    }
    let there = sums(&[&root]);
    // btrfs does not know FIBMAP, the way round FIEMAP.
    for (hidden, unmapped) in [("", 0), ("treesearch", 0), ("fiemap", 0), ("fiemap,treesearch", FILES)] {
        image.cold();
        let mut sum = onesweep(["sum", "--json", "--algorithm", "sha256", "--order", "fragment"]);
        let out = finish(sum.arg(&root).env("ONESWEEP_HIDE", hidden), 0);
        assert_eq!(differences(&there, &tree::sum_lines(&out.stdout).into_iter().collect()), None, "{hidden}");
        assert_eq!(figure(&summary(&out.stderr), "unmapped_files"), unmapped, "{hidden:?}: {}", text(&out.stderr));
    }
}

/// What files share is read once for all of them.
#[test]
fn shared_extents_are_read_once() {
    root_test!();
    const CLONES: usize = 8;
    for fs in [Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(fs, 400 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        let mut rng = Rng::new(seed());
        let mut copy_bytes = 0;
        for number in 0..20 {
            let size = 4096 * (1 + rng.below(100));
            copy_bytes += size;
            let original = root.join(format!("{number:02}-0"));
            fs::write(&original, rng.bytes(size as usize)).expect("a file");
            let original = File::open(&original).expect("the file");
            original.sync_all().expect("its blocks");
            for clone in 1..=CLONES {
                let clone = File::create(root.join(format!("{number:02}-{clone}"))).expect("a clone");
                rustix::fs::ioctl_ficlone(&clone, &original).expect("a reflink");
            }
        }
        tree::sync(&root);
        let there = sums(&[&root]);
        // Of a file that was changed just now nobody believes that its bytes are those of another.
        thread::sleep(Duration::from_millis(3200));
        let ways: &[&[&str]] = &[&["--device"], &[]];
        for options in &ways[usize::from(!fs.has_device_mode())..] {
            image.cold();
            let out = finish(onesweep(["sum", "--json", "--algorithm", "sha256"]).args(*options).arg(&root), 0);
            let delivered = tree::sum_lines(&out.stdout).into_iter().collect();
            assert_eq!(differences(&there, &delivered), None, "{} {options:?}", fs.name());
            let read = figure(&summary(&out.stderr), "bytes_read");
            assert!(
                read >= copy_bytes && read < copy_bytes * 3 / 2,
                "{} {options:?}: {read} bytes read for {} files that share {copy_bytes}: {}",
                fs.name(),
                there.len(),
                text(&out.stderr)
            );
        }
    }
}

/// Files of `/proc` say that they are empty, those of `/sys` that they hold a page.
#[test]
fn files_that_the_kernel_makes_up_are_read_to_their_end() {
    root_test!();
    let sources = ["/proc/sys/kernel/ostype", "/proc/sys/kernel/random/boot_id", "/sys/class/net/lo/mtu"];
    let roots = sources.map(Path::new);
    for options in [vec![], vec!["--order", "directory"], vec!["--budget", "64K"]] {
        assert_eq!(differences(&sums(&roots), &by_sum(&roots, &(options, None))), None);
    }
    let folder = Folder::new();
    let copies = folder.join("copies");
    fs::create_dir(&copies).expect("a folder");
    finish(onesweep(["copy"]).args(sources).arg(&copies), 0);
    let archive = folder.join("archive.tar");
    finish(onesweep(["tar", "-cf"]).arg(&archive).args(sources), 0);
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder.join("")));
    for source in roots {
        let content = fs::read(source).expect("its content");
        assert!(!content.is_empty());
        assert_eq!(fs::read(copies.join(source.file_name().expect("a name"))).expect("a copy"), content);
        let extracted =
            folder.join(source.strip_prefix("/").expect("an absolute path").to_str().expect("a plain path"));
        assert_eq!(fs::read(extracted).expect("a file from the archive"), content);
    }
}
