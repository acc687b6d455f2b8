//! Large files, which are streamed.

use std::{fs, io::Read};

use onesweep::{BulkRead, Order, Route};

#[test]
fn large_files_are_streamed_after_the_others() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("large"), vec![1; 3 << 20]).unwrap();
    fs::write(root.path().join("small"), vec![2; 10_000]).unwrap();
    let mut routes = Vec::new();
    let summary = BulkRead::new([root.path()])
        .large(1 << 20)
        .run(|item| {
            let mut file = item.unwrap();
            let mut content = Vec::new();
            file.reader().read_to_end(&mut content).unwrap();
            assert_eq!(content.len() as u64, file.metadata().size);
            routes.push(file.route());
            true
        })
        .unwrap();
    assert_eq!(routes[1], Route::Streamed);
    assert_eq!((summary.streamed_files, summary.streamed_bytes), (1, 3 << 20));
}

#[test]
fn a_plan_of_one_streamed_file_counts_its_bytes() {
    const SIZE: u64 = 3 << 20;
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("large"), vec![1; SIZE as usize]).unwrap();
    for order in Order::ALL {
        let sweep = BulkRead::new([root.path()]).order(order).large(1 << 20).ignore_cache(true).plan().unwrap();
        let estimate = sweep.estimate();
        assert_eq!((estimate.files, estimate.useful), (1, SIZE), "{order}");
        assert!(estimate.requests > 0 && estimate.read >= SIZE, "{order}: {estimate:?}");
        assert_eq!(estimate.peak_memory, 0, "{order}: a stream takes nothing of the budget");
    }
}

#[test]
fn many_large_files_need_few_descriptors() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..1200 {
        let directory = root.path().join(format!("d{n}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("large"), vec![1; 70_000]).unwrap();
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let mut streams = Vec::new();
    let files = BulkRead::new([root.path()]).large(64 << 10).order(Order::Directory).start().unwrap();
    for item in files {
        streams.push(item.unwrap());
    }
    assert_eq!(streams.len(), 1200);
    // Other tests of this process open files too.
    assert!(open() < before + 300, "{} descriptors for {} streams", open() - before, streams.len());
}
