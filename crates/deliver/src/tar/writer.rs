//! [`TarWriter`]: which members an entry becomes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Write},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use onesweep::{Kind, Metadata, Route, SweptFile, Xattr};

use super::{
    ModeChanges, TarOptions,
    content::{Source, copy, is_zero},
    error::{TarError, TarWarning},
    header::Type,
    member::{Encoder, Member, acl_warning, default_acl},
    name::Stripper,
    output::Output,
    sink::Sink,
    sparse::Map,
};

/// What an archive holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TarTotals {
    /// Members, each directory and each further name counted.
    pub members: u64,
    /// Bytes of files' content, holes that were not stored left out.
    pub content_bytes: u64,
    /// Bytes of the archive before compression.
    pub archive_bytes: u64,
    /// Bytes that the output got.
    pub written_bytes: u64,
}

/// Writes entries into an archive as they come.
///
/// Dropping it without [`TarWriter::finish`] leaves the output incomplete.
pub struct TarWriter<W: Write> {
    sink: Sink<W>,
    encoder: Encoder,
    stripper: Stripper,
    interleaved: bool,
    sparse: bool,
    acls: bool,
    mode: Option<ModeChanges>,
    output: PathBuf,
    archive: Vec<(u64, u64)>,
    /// The name that the archive has while it is written, and the one that it will have.
    renamed: Option<(OsString, OsString)>,
    archive_told: bool,
    totals: TarTotals,
    /// Further names, by the directory that they wait for.
    held: BTreeMap<PathBuf, Vec<HeldLink>>,
    /// Symbolic links, by the directory whose close they wait for.
    held_symlinks: BTreeMap<PathBuf, Vec<SweptFile>>,
    /// The error that ended the archive; nothing may follow a hole in it.
    broken: Option<io::ErrorKind>,
    name: Vec<u8>,
    link: Vec<u8>,
    scratch: Vec<u8>,
}

/// A further name of a file, to be written when its directory comes.
struct HeldLink {
    path: PathBuf,
    first: PathBuf,
    metadata: Metadata,
    is_dirty: bool,
}

impl TarWriter<Output> {
    /// Begins an archive in a file. Errors name it, and it is not put into itself.
    pub fn to_output(output: Output, options: TarOptions) -> Result<Self, TarError> {
        let (name, archive) = (output.name().to_path_buf(), output.identities().to_vec());
        let renamed = output.file_names().map(|(now, then)| (now.to_owned(), then.to_owned()));
        Ok(Self { output: name, archive, renamed, ..Self::new(output, options)? })
    }

    /// Ends the archive and gives the file its name.
    pub fn commit(self) -> Result<TarTotals, TarError> {
        let (output, totals) = self.finish()?;
        output.commit()?;
        Ok(totals)
    }
}

impl<W: Write> TarWriter<W> {
    /// Begins an archive. Fails only for a compression level that doesn't exist.
    pub fn new(out: W, options: TarOptions) -> Result<Self, TarError> {
        Ok(Self {
            sink: Sink::new(out, options.compression)?,
            encoder: Encoder::new(&options),
            stripper: Stripper::new(options.absolute_names),
            interleaved: options.interleaved,
            sparse: options.sparse,
            acls: options.acls,
            mode: options.mode,
            output: PathBuf::from("output"),
            archive: Vec::new(),
            renamed: None,
            archive_told: false,
            totals: TarTotals::default(),
            held: BTreeMap::new(),
            held_symlinks: BTreeMap::new(),
            broken: None,
            name: Vec::new(),
            link: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// True for the file that the archive is written to.
    pub fn is_archive(&self, dev: u64, ino: u64) -> bool {
        self.archive.contains(&(dev, ino))
    }

    /// The names that [`TarWriter::append`] will write of an entry, and whether each is a directory (`tar -v`). A
    /// directory is named at its opening only.
    pub fn names<'a>(&self, item: &'a SweptFile) -> Vec<(&'a Path, bool)> {
        let metadata = item.metadata();
        let is_left_out = match metadata.kind {
            Kind::Socket => true,
            Kind::File => self.is_archive(metadata.dev, metadata.ino),
            _ => item.is_closing(),
        };
        if is_left_out {
            return Vec::new();
        }
        let names = std::iter::once(item.path()).chain(item.links().iter().map(PathBuf::as_path));
        names.map(|name| (name, metadata.kind == Kind::Directory)).collect()
    }

    /// The name that people know, for the file that is being written.
    fn final_path(&self, path: &Path) -> PathBuf {
        match &self.renamed {
            Some((now, then)) if path.file_name() == Some(now) => path.with_file_name(then),
            _ => path.to_path_buf(),
        }
    }

    /// What was written so far; `written_bytes` is known at the end only.
    pub fn totals(&self) -> TarTotals {
        TarTotals { archive_bytes: self.sink.archive_bytes(), ..self.totals }
    }

    /// Adds an entry with all its names. What the warnings are about is in the archive as far as possible.
    ///
    /// After an error the archive is at its end, and each further call fails.
    pub fn append(&mut self, item: SweptFile) -> Result<Vec<TarWarning>, TarError> {
        let mut warnings = Vec::new();
        let outcome = match self.broken {
            Some(kind) => Err(kind.into()),
            None => self.entry(item, &mut warnings),
        };
        outcome.map_err(|source| self.failed(source))?;
        Ok(warnings)
    }

    /// Ends the archive with two empty blocks, and zeros up to a whole record.
    pub fn finish(mut self) -> Result<(W, TarTotals), TarError> {
        if self.broken.is_none() {
            self.release_all().map_err(|source| self.failed(source))?;
        }
        let Self { sink, output, totals, broken, .. } = self;
        let outcome = match broken {
            Some(kind) => Err(kind.into()),
            None => sink.finish(),
        };
        let (out, archive_bytes, written_bytes) = outcome.map_err(|source| TarError::Write { path: output, source })?;
        Ok((out, TarTotals { archive_bytes, written_bytes, ..totals }))
    }

    /// Writes what waited for directories that never came, such as those above roots that are files.
    fn release_all(&mut self) -> io::Result<()> {
        // All that there is to warn of was told when they were held.
        let mut told = Vec::new();
        for symlinks in std::mem::take(&mut self.held_symlinks).into_values() {
            self.release_symlinks(&symlinks, &mut told)?;
        }
        while let Some(directory) = self.held.keys().next().cloned() {
            self.release(&directory, &mut told)?;
        }
        Ok(())
    }

    fn failed(&mut self, source: io::Error) -> TarError {
        self.broken = Some(source.kind());
        TarError::Write { path: self.output.clone(), source }
    }

    /// With the mode that is to be written.
    fn metadata_of(&self, item: &SweptFile) -> Metadata {
        let mut metadata = *item.metadata();
        if let Some(changes) = &self.mode {
            metadata.mode = metadata.mode & !0o7777 | changes.of(metadata.mode, metadata.kind == Kind::Directory);
        }
        metadata
    }

    fn entry(&mut self, mut item: SweptFile, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        let metadata = self.metadata_of(&item);
        if metadata.kind == Kind::File && self.is_archive(metadata.dev, metadata.ino) {
            // There may be the one that will be replaced, too.
            if !std::mem::replace(&mut self.archive_told, true) {
                warnings.push(TarWarning::IsArchive { path: self.final_path(item.path()) });
            }
            return Ok(());
        }
        match (metadata.kind, item.linked_to()) {
            // Its further names too, whichever way they come: there is no member that they could lead to.
            (Kind::Socket, _) => {
                let names = std::iter::once(item.path()).chain(item.links().iter().map(PathBuf::as_path));
                warnings.extend(names.map(|name| TarWarning::Socket { path: name.to_path_buf() }));
                return Ok(());
            }
            (_, Some(first)) => self.hard_link(item.path(), first, &metadata, item.marks().dirty, warnings)?,
            (Kind::Directory, _) => return self.directory(&item, &metadata, warnings),
            (Kind::Symlink, _) if self.interleaved && leads_out(item.link_target()) => {
                // For the warnings, which have nowhere to go at the end.
                self.stripper.member(bytes(item.path()), false, &mut self.name, warnings);
                let above = item.path().parent().unwrap_or(Path::new("")).to_path_buf();
                self.held_symlinks.entry(above).or_default().push(item);
                return Ok(());
            }
            (Kind::File, _) => self.file(&mut item, &metadata, warnings)?,
            (Kind::Symlink, _) => self.bare(&item, Type::Symlink, &metadata, warnings)?,
            (Kind::Fifo, _) => self.bare(&item, Type::Fifo, &metadata, warnings)?,
            (Kind::CharDevice, _) => self.bare(&item, Type::CharDevice, &metadata, warnings)?,
            (Kind::BlockDevice, _) => self.bare(&item, Type::BlockDevice, &metadata, warnings)?,
        }
        self.further_names(&item, &metadata, warnings)
    }

    fn further_names(
        &mut self,
        item: &SweptFile,
        metadata: &Metadata,
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        let first = item.linked_to().unwrap_or(item.path());
        for further in item.links() {
            if self.interleaved || further.parent() == first.parent() {
                self.hard_link(further, first, metadata, item.marks().dirty, warnings)?;
            } else {
                self.hold(further, first, metadata, item.marks().dirty, warnings);
            }
        }
        Ok(())
    }

    /// Keeps a further name until its directory is opened, or closed if it is above: a member elsewhere would make the
    /// extractor leave the directory that it is in, and what is made there later would spoil its time.
    fn hold(&mut self, path: &Path, first: &Path, metadata: &Metadata, is_dirty: bool, warnings: &mut Vec<TarWarning>) {
        // Only for the warning, which has nowhere to go later.
        self.stripper.link_target(bytes(first), &mut self.link, warnings);
        let above = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let link = HeldLink { path: path.to_path_buf(), first: first.to_path_buf(), metadata: *metadata, is_dirty };
        self.held.entry(above).or_default().push(link);
    }

    /// Writes the further names that wait for a directory.
    fn release(&mut self, directory: &Path, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        let links = self.held.remove(directory).unwrap_or_default();
        links
            .iter()
            .try_for_each(|link| self.hard_link(&link.path, &link.first, &link.metadata, link.is_dirty, warnings))
    }

    /// Writes symbolic links that lead out of the tree, just behind the close of their directory.
    ///
    /// GNU tar makes an empty file in place of such a link, and the link at its end. It spares the directory's time
    /// only if the directory is the one that it is about to finish when it meets the link.
    fn release_symlinks(&mut self, symlinks: &[SweptFile], warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        for item in symlinks {
            let metadata = self.metadata_of(item);
            self.bare(item, Type::Symlink, &metadata, warnings)?;
            self.further_names(item, &metadata, warnings)?;
        }
        Ok(())
    }

    /// With interleaved members, a directory is first made usable, and gets its attributes at its close: an extractor
    /// applies them as soon as it has left the directory, and comes back.
    fn directory(&mut self, item: &SweptFile, metadata: &Metadata, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        match (self.interleaved, item.is_closing()) {
            (false, false) => self.directory_member(item, metadata.mode, item.xattrs(), warnings)?,
            (false, true) => {}
            (true, false) => {
                let mode = first_mode(metadata.mode, self.default_acl(item).is_some());
                self.directory_member(item, mode, &[], warnings)?;
            }
            (true, true) => self.close(item, metadata.mode, warnings)?,
        }
        self.release(item.path(), warnings)
    }

    /// A default ACL has a member of its own, before the last. bsdtar (3.6.2) sets it on a directory that exists only
    /// when it changes the mode by the same member, which it doesn't when there is an access ACL as well. The symbolic
    /// links come behind the first of the two, since GNU tar applies that as soon as it meets the other.
    fn close(&mut self, item: &SweptFile, mode: u32, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        let symlinks = self.held_symlinks.remove(item.path()).unwrap_or_default();
        match self.default_acl(item) {
            Some(alone) => {
                self.directory_member(item, mode, std::slice::from_ref(alone), warnings)?;
                self.release_symlinks(&symlinks, warnings)?;
                self.directory_member(item, mode, item.xattrs(), warnings)
            }
            None => {
                self.directory_member(item, mode, item.xattrs(), warnings)?;
                self.release_symlinks(&symlinks, warnings)
            }
        }
    }

    fn default_acl<'a>(&self, item: &'a SweptFile) -> Option<&'a Xattr> {
        if self.acls { default_acl(item.xattrs()) } else { None }
    }

    fn directory_member(
        &mut self,
        item: &SweptFile,
        mode: u32,
        xattrs: &[Xattr],
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        self.stripper.member(bytes(item.path()), true, &mut self.name, warnings);
        self.link.clear();
        self.header(item.path(), Type::Directory, item.metadata(), mode, 0, None, xattrs, item.marks().dirty, warnings)
    }

    /// An entry without content.
    fn bare(
        &mut self,
        item: &SweptFile,
        kind: Type,
        metadata: &Metadata,
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        self.stripper.member(bytes(item.path()), false, &mut self.name, warnings);
        self.link.clear();
        self.link.extend_from_slice(item.link_target().map_or(&[], bytes));
        self.header(item.path(), kind, metadata, metadata.mode, 0, None, item.xattrs(), item.marks().dirty, warnings)
    }

    fn hard_link(
        &mut self,
        path: &Path,
        first: &Path,
        metadata: &Metadata,
        is_dirty: bool,
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        self.stripper.member(bytes(path), false, &mut self.name, warnings);
        self.stripper.link_target(bytes(first), &mut self.link, warnings);
        self.header(path, Type::Link, metadata, metadata.mode, 0, None, &[], is_dirty, warnings)
    }

    fn file(&mut self, item: &mut SweptFile, metadata: &Metadata, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        self.stripper.member(bytes(item.path()), false, &mut self.name, warnings);
        self.link.clear();
        let size = metadata.size;
        let map = if self.sparse { map_of(item, size) } else { None };
        let map = map.as_ref();
        let is_dirty = item.marks().dirty;
        self.header(item.path(), Type::File, metadata, metadata.mode, size, map, item.xattrs(), is_dirty, warnings)?;

        let is_hole = item.bytes().is_none() && item.route() == Route::NoRead;
        let mismatch = match item.bytes() {
            Some(bytes) => copy(Source::Bytes(bytes), size, map, &mut self.sink, &mut self.scratch)?,
            None if is_hole => copy(Source::Hole, size, map, &mut self.sink, &mut self.scratch)?,
            None => copy(Source::Reader(&mut item.reader()), size, map, &mut self.sink, &mut self.scratch)?,
        };
        warnings.extend(mismatch.map(|mismatch| mismatch.warning(item.path(), size)));
        self.totals.content_bytes += map.map_or(size, Map::data_len);
        self.sink.pad_block()
    }

    /// Writes the headers of a member whose name and link target are in their buffers.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one header")]
    fn header(
        &mut self,
        path: &Path,
        kind: Type,
        metadata: &Metadata,
        mode: u32,
        size: u64,
        map: Option<&Map>,
        xattrs: &[Xattr],
        is_dirty: bool,
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        let (name, link) = (&self.name[..], &self.link[..]);
        let member = Member { kind, name, link, metadata, mode, size, map, xattrs, is_dirty };
        let (blocks, acls) = self.encoder.encode(&member);
        if let Err(reason) = acls {
            warnings.push(acl_warning(path, reason));
        }
        self.totals.members += 1;
        self.sink.write_all(blocks)
    }
}

/// The mode that a directory has until it is closed. Without set-group-id, which what is made inside would inherit.
///
/// Before a default ACL it is never the last mode, so that the mode has to be changed.
fn first_mode(mode: u32, has_default_acl: bool) -> u32 {
    match (has_default_acl, mode & 0o7777) {
        (false, _) => mode & 0o777 | 0o700,
        (true, 0o700) => 0o710,
        (true, _) => 0o700,
    }
}

/// True for targets that GNU tar takes for dangerous: absolute ones, and those with `..`.
fn leads_out(target: Option<&Path>) -> bool {
    let is_out = |part| matches!(part, Component::ParentDir | Component::RootDir);
    target.is_some_and(|target| target.components().any(is_out))
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The map of a file with holes, if it is worth one. Content in memory must bear it out.
fn map_of(item: &SweptFile, size: u64) -> Option<Map> {
    match item.bytes() {
        Some(bytes) => {
            let map = Map::new(size, item.data_ranges())?;
            let is_hole =
                |range: std::ops::Range<u64>| bytes.get(range.start as usize..range.end as usize).is_some_and(is_zero);
            let holds = map.pieces().all(|(piece, stored)| stored || is_hole(piece));
            (holds && bytes.len() as u64 == size).then_some(map)
        }
        None if item.route() == Route::NoRead => Map::new(size, &[]),
        None => Map::new(size, item.data_ranges()),
    }
}
