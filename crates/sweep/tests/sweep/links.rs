//! Files with several names.

use std::{fs, io::Read, path::PathBuf};

use onesweep::{BulkRead, Order, Route};

#[test]
fn hard_links_are_read_once_and_keep_all_names() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<PathBuf> = (0..40).map(|n| root.path().join(format!("d{}/n{n}", n % 8))).collect();
    for path in &names {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if *path == names[0] {
            fs::write(path, b"content").unwrap();
        } else {
            fs::hard_link(&names[0], path).unwrap();
        }
    }
    for order in Order::ALL {
        for limit in [1000, 1 << 30] {
            let (mut with_content, mut all) = (0, Vec::new());
            BulkRead::new([root.path()])
                .order(order)
                .catalog_limit(limit)
                .run(|item| {
                    let file = item.unwrap();
                    if let Some(first) = file.linked_to() {
                        assert!(all.contains(&first.to_owned()), "a link comes after what it points to");
                        assert_eq!(file.bytes(), None);
                    } else {
                        with_content += 1;
                        assert_eq!(file.bytes(), Some(&b"content"[..]));
                    }
                    all.push(file.path().to_owned());
                    all.extend(file.links().iter().cloned());
                    true
                })
                .unwrap();
            assert_eq!(with_content, 1, "{order}");
            all.sort();
            let mut expected = names.clone();
            expected.sort();
            assert_eq!(all, expected, "{order}");
        }
    }
}

#[test]
fn a_stream_is_opened_by_a_name_that_is_left() {
    let root = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"].map(|name| root.path().join(name));
    fs::write(&names[0], vec![7; 1 << 20]).unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).unwrap());
    let mut files = BulkRead::new([root.path()]).large(4096).ignore_cache(true).start().unwrap();
    let mut file = files.next().unwrap().unwrap();
    assert_eq!((file.route(), file.links().len()), (Route::Streamed, 2));
    fs::remove_file(file.path()).unwrap();
    // Another file under one of its names is none of it.
    fs::remove_file(&file.links()[0]).unwrap();
    fs::write(&file.links()[0], vec![8; 1 << 20]).unwrap();
    let mut content = Vec::new();
    let read = file.reader().read_to_end(&mut content);
    // Its times have changed with its names.
    assert!(read.is_err_and(|error| error.to_string().contains("changed")) && content == vec![7; 1 << 20]);
}

#[test]
fn a_name_that_goes_takes_no_other_name_along() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    for replaced in [false, true] {
        fs::write(&b, b"content").unwrap();
        fs::hard_link(&b, &a).unwrap();
        for gone in [&a, &b] {
            let sweep = BulkRead::new([root.path()]).ignore_cache(true).plan().unwrap();
            let kept = root.path().join("kept");
            fs::rename(gone, &kept).unwrap();
            if replaced {
                fs::write(gone, b"another file").unwrap();
            }
            let items: Vec<_> = sweep.run().unwrap().collect();
            assert_eq!(items.len(), 1);
            assert_eq!(items[0].as_ref().unwrap().bytes(), Some(&b"content"[..]));
            fs::rename(&kept, gone).unwrap();
        }
        fs::remove_file(&a).unwrap();
    }
}

#[test]
fn roots_that_overlap_link_nothing_to_itself() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("s")).unwrap();
    fs::write(root.path().join("s/a"), b"content").unwrap();
    fs::hard_link(root.path().join("s/a"), root.path().join("s/b")).unwrap();
    for order in Order::ALL {
        BulkRead::new(["s", "s/a", "s"])
            .base(root.path())
            .order(order)
            .run(|item| {
                let file = item.unwrap();
                assert!(file.linked_to() != Some(file.path()), "{order}");
                assert!(!file.links().contains(&file.path().to_owned()), "{order}");
                true
            })
            .unwrap();
    }
}
