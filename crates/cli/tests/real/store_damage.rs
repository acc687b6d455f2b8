//! A store that the disk has damaged, beside one that is whole.

use std::{fs, path::PathBuf};

use crate::{
    image::{Fs, Image},
    run::{finish, output, root_test, text},
    serving::Serving,
    tree,
};

/// The others are answered as before; what it knew is found out again, and the file is kept.
#[test]
fn only_what_it_was_about_is_harvested_anew() {
    root_test!();
    let images = [Image::new(Fs::Ext4, 64 << 20), Image::new(Fs::Xfs, 320 << 20)];
    for image in &images {
        fs::create_dir_all(image.root().join("a/b")).expect("directories");
        fs::write(image.root().join("a/b/f"), [7; 50_000]).expect("a file");
        tree::sync(&image.root());
    }
    let answered = |serving: &Serving| {
        images.each_ref().map(|image| text(&finish(&mut serving.du(&["-s"], &image.root()), 0).stdout))
    };
    let serving = Serving::start_on(&[&images[0], &images[1]]);
    let before = answered(&serving);
    serving.end();
    let all_stores = || -> Vec<PathBuf> {
        let listed = fs::read_dir(images[0].beside("stores")).expect("the stores");
        let mut found: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
        found.sort();
        found
    };
    let stores = all_stores();
    assert_eq!(stores.len(), 2, "{stores:?}");
    let mut damaged = fs::read(&stores[0]).expect("a store");
    damaged[..4096].fill(0x5a);
    fs::write(&stores[0], &damaged).expect("damage");

    let serving = Serving::start_on(&[&images[0], &images[1]]);
    assert_eq!(answered(&serving), before);
    assert_eq!(before[0], text(&output(std::process::Command::new("du").arg("-s").arg(images[0].root()))));
    let said = serving.end();
    let kept = all_stores().into_iter().find(|path| path.to_string_lossy().ends_with(".damaged")).expect("it is kept");
    assert!(said.contains("was damaged") && said.contains(&*kept.to_string_lossy()), "{said}");
    assert_eq!(fs::read(kept).expect("it is kept"), damaged);

    // Nothing is said of it any more.
    let serving = Serving::start_on(&[&images[0], &images[1]]);
    assert_eq!(answered(&serving), before);
    let said = serving.end();
    assert!(!said.contains("damaged"), "{said}");
}
