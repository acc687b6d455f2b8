//! A directory whose content the disk can't give back.

use std::{fs, os::unix::fs::FileExt, process::Command};

use onesweep_summary::summaries::Freshness;

use crate::{
    image::{Fs, Image},
    run::{output, root_test, run, text},
    tracked::{ask, tracked},
};

/// With nothing of it in memory the kernel can't open it by its number, for it looks into it for the directory above, and says that it is gone.
#[test]
fn it_is_told_by_who_comes_to_it_cold() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    let broken = image.root().join("above/broken");
    fs::create_dir_all(&broken).expect("directories");
    fs::write(broken.join("file"), [1; 40_960]).expect("a file");
    image.unmount();
    let blocks = output(Command::new("debugfs").args(["-R", "blocks /above/broken"]).arg(image.file()));
    let block: u64 = text(&blocks).trim().parse().expect("one block");
    let device = fs::File::options().write(true).open(image.device()).expect("the device");
    device.write_all_at(&[0xff; 4096], block * 4096).expect("damage");
    device.sync_all().expect("damage");
    drop(device);
    run(Command::new("blockdev").arg("--flushbufs").arg(image.device()));
    image.mount();

    let mut tracked = tracked(&image);
    let answer = ask(&mut tracked, &image.root(), Freshness::Exact);
    assert_eq!(answer.unreadable, 1, "{answer:?}");
    assert_eq!(answer.totals.sums.files, 0, "{answer:?}");
}
