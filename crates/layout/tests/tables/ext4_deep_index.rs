//! A directory whose index has a level more than ext4 has without `large_dir`.

use std::{
    fs::{self, File},
    process::Command,
};

use onesweep_layout::{ImageFile, tables::ext4::Ext4};

use crate::{
    conformance::{by_kernel, by_tables, compare},
    image::{Image, run},
};

/// With the longest names, three to a block of 1 KiB: 123 times 126 blocks are not enough for these.
const NAMES: usize = 70_000;
/// ext4 gives a file 65,000 names.
const LINKS_MAX: usize = 60_000;

#[test]
fn an_index_of_three_levels() {
    for checksums in ["metadata_csum", "^metadata_csum"] {
        let features = format!("large_dir,^has_journal,{checksums}");
        let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-N", "2000", "-O", &features];
        let Some(mut image) = Image::new(200 << 20, &mkfs) else { return };
        image.mount(&["-t", "ext4"], "");
        let folder = image.root().join("many");
        fs::create_dir(&folder).unwrap();
        let mut file = folder.join("file");
        for number in 0..NAMES {
            if number % LINKS_MAX == 0 {
                file = folder.join(format!("file {number}"));
                File::create(&file).unwrap();
            }
            fs::hard_link(&file, folder.join(format!("{number:0>255}"))).unwrap();
        }
        image.unmount();
        let told = run(Command::new("debugfs").args(["-R", "htree_dump /many"]).arg(image.path())).stdout;
        let told = String::from_utf8_lossy(&told);
        let levels = told.lines().find_map(|line| line.trim().strip_prefix("Indirect levels: "));
        assert_eq!(levels, Some("2"), "{}", told.lines().take(9).collect::<Vec<_>>().join("\n"));
        let tables = by_tables(&mut Ext4::open(ImageFile::open(&image.path()).unwrap()).unwrap(), &[]);
        image.mount(&["-t", "ext4"], "ro");
        let kernel = by_kernel(&image.root(), &[]);
        image.unmount();
        compare(&kernel, &tables);
        assert!(kernel.len() > NAMES);
    }
}
