//! Trees, the entries of trees, and what an extractor made of them.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::CStr,
    fs::{self, Permissions},
    io::{self, Write as _},
    ops::Range,
    os::{
        fd::AsFd as _,
        unix::{
            ffi::OsStringExt as _,
            fs::{MetadataExt as _, PermissionsExt as _},
        },
    },
    path::{Path, PathBuf},
    process::{Command, Output},
};

use onesweep::{Kind, Metadata, SweptFile, Timestamp, Xattr};
use onesweep_deliver::tar::{TarOptions, TarWarning, TarWriter};
use onesweep_sys::files::{self, Time};
use tempfile::TempDir;

pub(crate) fn is_root() -> bool {
    onesweep_sys::user::effective_uid() == 0
}

/// Says that the running test is left out, or a part of it, and why.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    // Past the test harness, which would keep it back: a run as root must not leave tests out unseen.
    let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// Prints why a test can't run here, and says so.
pub(crate) fn needs_root(what: &str) -> bool {
    if !is_root() {
        skipped(&format!("needs root: {what}"));
    }
    !is_root()
}

/// A directory that other users can enter.
pub(crate) fn scratch() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

pub(crate) fn options() -> TarOptions {
    TarOptions { xattrs: true, acls: true, ..TarOptions::default() }
}

/// Runs a program to its end. With `args` of an extractor, in its own directory.
pub(crate) fn run(dir: &Path, program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).current_dir(dir).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs a program that must succeed without a word on standard error.
pub(crate) fn run_quietly(dir: &Path, program: &str, args: &[&str]) -> String {
    let output = run(dir, program, args);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{program} {args:?}: {}\n{told}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An extractor, and who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extractor {
    pub(crate) program: &'static str,
    pub(crate) as_nobody: bool,
}

/// All extractors that this process can run; at least one.
pub(crate) fn extractors() -> Vec<Extractor> {
    let mut all = Vec::new();
    for program in ["tar", "bsdtar"] {
        if Command::new(program).arg("--version").output().is_err() {
            skipped(&format!("no {program}"));
            continue;
        }
        all.push(Extractor { program, as_nobody: false });
        if is_root() {
            all.push(Extractor { program, as_nobody: true });
        }
    }
    assert!(!all.is_empty(), "neither tar nor bsdtar is installed");
    all
}

impl Extractor {
    /// Extracts `archive` with all attributes, into a new directory. No message is allowed.
    pub(crate) fn extract(self, archive: &Path) -> TempDir {
        let (dir, told) = self.extract_with_messages(archive);
        assert_eq!(told, "", "{self:?}");
        dir
    }

    pub(crate) fn extract_with_messages(self, archive: &Path) -> (TempDir, String) {
        let dir = scratch();
        let mut args = Vec::new();
        if self.as_nobody {
            std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
            args.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        args.push(self.program);
        args.extend(["--xattrs", "--acls"]);
        if self.program == "tar" {
            args.extend(["--xattrs-include=*", "--warning=no-timestamp"]);
        }
        args.extend(["-xpf", archive.to_str().unwrap()]);
        let output = run(dir.path(), args[0], &args[1..]);
        assert!(output.status.success() || !output.stderr.is_empty(), "{self:?}");
        (dir, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Makes a tree removable again when the test is done with it.
pub(crate) fn remove(dir: TempDir) {
    let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(dir.path()).output();
    dir.close().unwrap();
}

/// Writes an archive and returns the warnings.
pub(crate) fn write(
    archive: &Path,
    items: impl IntoIterator<Item = SweptFile>,
    options: TarOptions,
) -> Vec<TarWarning> {
    let mut writer = TarWriter::new(fs::File::create(archive).unwrap(), options).unwrap();
    let warnings = items.into_iter().flat_map(|item| writer.append(item).unwrap()).collect();
    writer.finish().unwrap();
    warnings
}

pub(crate) fn to_bytes(items: impl IntoIterator<Item = SweptFile>, options: TarOptions) -> Vec<u8> {
    let mut writer = TarWriter::new(Vec::new(), options).unwrap();
    for item in items {
        writer.append(item).unwrap();
    }
    writer.finish().unwrap().0
}

pub(crate) fn metadata_of(path: &Path) -> Metadata {
    let found = fs::symlink_metadata(path).unwrap();
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Metadata {
        kind: Kind::of_mode(found.mode()).unwrap(),
        mode: found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        size: found.size(),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        atime: time(found.atime(), found.atime_nsec()),
        nlink: found.nlink() as u32,
        ino: found.ino(),
        dev: found.dev(),
        rdev: found.rdev(),
    }
}

pub(crate) fn xattrs_of(path: &Path) -> Vec<Xattr> {
    let names = files::list_xattrs_path(path).unwrap().into_iter();
    let value = |name: &CStr| files::xattr_path(path, name).unwrap().unwrap();
    let mut found: Vec<Xattr> = names.map(|name| (name.to_bytes().to_vec(), value(&name))).collect();
    found.sort();
    found
}

pub(crate) fn set_xattr(path: &Path, name: &[u8], value: &[u8]) {
    files::set_xattr_path(path, name, value).unwrap();
}

/// Sets the time of a file without following links.
pub(crate) fn set_mtime(path: &Path, secs: i64, nanos: u32) {
    files::set_times_path(path, None, Time { secs, nanos }).unwrap();
}

/// The ranges that are no holes.
pub(crate) fn data_ranges(path: &Path) -> Vec<Range<u64>> {
    let file = fs::File::open(path).unwrap();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(start) = files::seek_data(file.as_fd(), at).unwrap() {
        at = files::seek_hole(file.as_fd(), start).unwrap().unwrap();
        ranges.push(start..at);
    }
    ranges
}

/// All entries below `root`, named from `base` on; each directory before what is in it, and once more, closing, behind
/// it. Further names of an inode are with the first.
pub(crate) fn closed_entries(base: &Path, root: &str) -> Vec<SweptFile> {
    let mut all = Vec::new();
    let mut open: Vec<PathBuf> = Vec::new();
    for item in entries(base, root) {
        while let Some(dir) = open.pop_if(|dir| !item.path().starts_with(dir)) {
            all.push(entry(base, dir).with_closing());
        }
        if item.metadata().kind == Kind::Directory {
            open.push(item.path().to_path_buf());
        }
        all.push(item);
    }
    all.extend(open.into_iter().rev().map(|dir| entry(base, dir).with_closing()));
    all
}

/// The same without the closing ones.
pub(crate) fn entries(base: &Path, root: &str) -> Vec<SweptFile> {
    let mut paths = Vec::new();
    list(base, PathBuf::from(root), &mut paths);
    let mut first_names: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    let mut seen = HashMap::new();
    for path in paths {
        let metadata = metadata_of(&base.join(&path));
        if metadata.kind != Kind::Directory && metadata.nlink > 1 {
            if let Some(&first) = seen.get(&metadata.ino) {
                let (_, links): &mut (PathBuf, Vec<PathBuf>) = &mut first_names[first];
                links.push(path);
                continue;
            }
            seen.insert(metadata.ino, first_names.len());
        }
        first_names.push((path, Vec::new()));
    }
    first_names.into_iter().map(|(path, links)| entry(base, path).with_links(links)).collect()
}

fn list(base: &Path, path: PathBuf, paths: &mut Vec<PathBuf>) {
    let full = base.join(&path);
    paths.push(path.clone());
    if full.symlink_metadata().unwrap().is_dir() {
        let mut names: Vec<_> = fs::read_dir(&full).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.iter().for_each(|name| list(base, path.join(name), paths));
    }
}

/// One entry with everything.
pub(crate) fn entry(base: &Path, path: PathBuf) -> SweptFile {
    let full = base.join(&path);
    let metadata = metadata_of(&full);
    let item = SweptFile::new(path, metadata).with_xattrs(xattrs_of(&full));
    match metadata.kind {
        Kind::File => item.with_bytes(&fs::read(&full).unwrap(), data_ranges(&full)),
        Kind::Symlink => item.with_link_target(fs::read_link(&full).unwrap()),
        _ => item,
    }
}

/// One entry with its attributes alone.
pub(crate) fn entry_without_content(base: &Path, path: &str) -> SweptFile {
    SweptFile::new(path.into(), metadata_of(&base.join(path)))
}

/// Numbers that look random and are the same each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}

/// The entries in the order of a disk: files of all directories mixed, each directory just before the first thing in
/// it, and closed just after the last.
pub(crate) fn interleave(base: &Path, root: &str, seed: u64) -> Vec<SweptFile> {
    let mut all = entries(base, root);
    Dice(seed).shuffle(&mut all);
    let mut left: HashMap<PathBuf, usize> = HashMap::new();
    for item in &all {
        for name in std::iter::once(item.path()).chain(item.links().iter().map(PathBuf::as_path)) {
            for above in name.ancestors() {
                *left.entry(above.to_path_buf()).or_default() += 1;
            }
        }
    }
    let mut opened = std::collections::HashSet::new();
    let mut ordered = Vec::new();
    for item in all {
        let names: Vec<PathBuf> =
            std::iter::once(item.path().to_path_buf()).chain(item.links().iter().cloned()).collect();
        for name in &names {
            let mut above: Vec<_> = name.ancestors().filter(|above| base.join(above).is_dir()).collect();
            above.retain(|above| *above != Path::new("") && !base.join(above).is_symlink());
            for dir in above.into_iter().rev() {
                if opened.insert(dir.to_path_buf()) {
                    ordered.push(entry(base, dir.to_path_buf()));
                }
            }
        }
        if item.metadata().kind != Kind::Directory {
            ordered.push(item);
        }
        for name in names {
            for above in name.ancestors().filter(|above| *above != Path::new("")) {
                let count = left.get_mut(above).unwrap();
                *count -= 1;
                if *count == 0 && opened.contains(above) {
                    ordered.push(entry(base, above.to_path_buf()).with_closing());
                }
            }
        }
    }
    ordered
}

/// What is compared of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owners: Option<(u32, u32)>,
    pub(crate) mtime: Timestamp,
    pub(crate) size: u64,
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) target: Option<PathBuf>,
    pub(crate) device: u64,
    /// All names of the inode.
    pub(crate) names: Vec<PathBuf>,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
}

/// Everything below `root`, as far as the extractor can restore it.
pub(crate) fn facts(base: &Path, root: &str, extractor: Extractor) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    for item in entries(base, root) {
        let mut names = vec![item.path().to_path_buf()];
        names.extend_from_slice(item.links());
        for name in &names {
            let metadata = item.metadata();
            let is_dir = metadata.kind == Kind::Directory;
            let xattrs = item.xattrs().iter();
            let facts = Facts {
                kind: metadata.kind,
                mode: metadata.mode,
                owners: (!extractor.as_nobody).then_some((metadata.uid, metadata.gid)),
                mtime: metadata.mtime,
                size: if is_dir { 0 } else { metadata.size },
                content: item.bytes().map(<[u8]>::to_vec),
                target: item.link_target().map(Path::to_path_buf),
                device: metadata.rdev,
                names: names.clone(),
                xattrs: xattrs
                    .filter(|(name, _)| !extractor.as_nobody || !is_privileged(name))
                    .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.clone()))
                    .collect(),
            };
            found.insert(name.clone(), facts);
        }
    }
    found
}

/// Attributes that only root can set.
fn is_privileged(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

pub(crate) fn assert_same_tree(want: &BTreeMap<PathBuf, Facts>, got: &BTreeMap<PathBuf, Facts>, who: &str) {
    for (path, want) in want {
        let got = got.get(path).unwrap_or_else(|| panic!("{who}: {path:?} is missing"));
        if want != got {
            // Only the lines that differ; contents are long.
            let (want, got) = (format!("{want:#?}"), format!("{got:#?}"));
            let differs: Vec<_> = want.lines().zip(got.lines()).filter(|(want, got)| want != got).take(20).collect();
            panic!("{who}: {path:?}: {differs:?}");
        }
    }
    let extra: Vec<_> = got.keys().filter(|path| !want.contains_key(*path)).collect();
    assert!(extra.is_empty(), "{who}: {extra:?}");
}

/// A name made of any bytes that a file name can have.
pub(crate) fn any_name(dice: &mut Dice, longest: usize) -> PathBuf {
    let alphabets: [&[&[u8]]; 4] = [
        &[b"a", b"B", b"0", b" ", b"=", b"%", b"\\", b"\n", b"\t", b"'", b"\x7f", b"\x01", b"-", b"."],
        &["ä".as_bytes(), "漢".as_bytes(), "ß".as_bytes(), "😀".as_bytes(), b"x"],
        &["o\u{308}".as_bytes(), "か\u{3099}".as_bytes(), b"y"],
        &[b"\xe9", b"\xff", b"\xfe", b"\xc3", b"\x80", b"z"],
    ];
    let alphabet = alphabets[dice.below(4)];
    let length = 1 + dice.below(longest - 4);
    let mut name = vec![b'n'];
    while name.len() < length {
        name.extend_from_slice(alphabet[dice.below(alphabet.len())]);
    }
    PathBuf::from(std::ffi::OsString::from_vec(name))
}
