//! A small tree, and all that a sweep delivers.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use onesweep::{BulkRead, FileError, Summary};

/// A tree with the odd cases; gives what a sweep must deliver.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut expected = BTreeMap::new();
    let mut seed = 1_u64;
    for n in 0..300_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n | 1);
        let directory = root.join(format!("d{}", seed >> 60)).join(format!("e{}", (seed >> 56) & 3));
        fs::create_dir_all(&directory).unwrap();
        let size = [0, 1, 4095, 4096, 4097, 20_000, 300_000][(seed >> 40) as usize % 7];
        let content: Vec<u8> = (0..size).map(|at| (at as u64 * 31 + n) as u8).collect();
        let path = directory.join(format!("f{n}"));
        fs::write(&path, &content).unwrap();
        expected.insert(path, content);
    }
    let sparse = root.join("sparse");
    fs::File::create(&sparse).unwrap().set_len(100_000).unwrap();
    expected.insert(sparse, vec![0; 100_000]);
    expected
}

pub(crate) fn deliver(read: BulkRead) -> (BTreeMap<PathBuf, Vec<u8>>, Vec<FileError>, Summary) {
    let (mut found, mut errors) = (BTreeMap::new(), Vec::new());
    let summary = read
        .run(|item| {
            match item {
                Ok(mut file) => {
                    let mut content = Vec::new();
                    file.reader().read_to_end(&mut content).unwrap();
                    for path in std::iter::once(file.path()).chain(file.links().iter().map(PathBuf::as_path)) {
                        assert!(found.insert(path.to_owned(), content.clone()).is_none(), "delivered once");
                    }
                }
                Err(error) => errors.push(error),
            }
            true
        })
        .unwrap();
    (found, errors, summary)
}
