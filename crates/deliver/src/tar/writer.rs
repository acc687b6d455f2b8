//! [`TarWriter`]: which members an entry becomes.

use std::{
    io::{self, Write},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use onesweep::{Kind, Metadata, Route, SweptFile, Xattr};

use super::{
    TarOptions,
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
    output: PathBuf,
    archive: Vec<(u64, u64)>,
    totals: TarTotals,
    /// The error that ended the archive; nothing may follow a hole in it.
    broken: Option<io::ErrorKind>,
    name: Vec<u8>,
    link: Vec<u8>,
    scratch: Vec<u8>,
}

impl TarWriter<Output> {
    /// Begins an archive in a file. Errors name it, and it is not put into itself.
    pub fn to_output(output: Output, options: TarOptions) -> Result<Self, TarError> {
        let (name, archive) = (output.name().to_path_buf(), output.identities().to_vec());
        Ok(Self { output: name, archive, ..Self::new(output, options)? })
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
            output: PathBuf::from("output"),
            archive: Vec::new(),
            totals: TarTotals::default(),
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

    /// What was written so far; `written_bytes` is known at the end only.
    pub fn totals(&self) -> TarTotals {
        TarTotals { archive_bytes: self.sink.archive_bytes(), ..self.totals }
    }

    /// Adds an entry with all its names. What the warnings are about is in the archive as far as possible.
    ///
    /// After an error the archive is at its end, and each further call fails.
    pub fn append(&mut self, mut item: SweptFile) -> Result<Vec<TarWarning>, TarError> {
        let mut warnings = Vec::new();
        let outcome = match self.broken {
            Some(kind) => Err(kind.into()),
            None => self.entry(&mut item, &mut warnings),
        };
        outcome.map_err(|source| self.failed(source))?;
        Ok(warnings)
    }

    /// Ends the archive with two empty blocks, and zeros up to a whole record.
    pub fn finish(self) -> Result<(W, TarTotals), TarError> {
        let Self { sink, output, mut totals, broken, .. } = self;
        totals.archive_bytes = sink.archive_bytes();
        let outcome = match broken {
            Some(kind) => Err(kind.into()),
            None => sink.finish(),
        };
        let (out, written) = outcome.map_err(|source| TarError::Write { path: output, source })?;
        totals.written_bytes = written;
        Ok((out, totals))
    }

    fn failed(&mut self, source: io::Error) -> TarError {
        self.broken = Some(source.kind());
        TarError::Write { path: self.output.clone(), source }
    }

    fn entry(&mut self, item: &mut SweptFile, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        let metadata = *item.metadata();
        if metadata.kind == Kind::File && self.is_archive(metadata.dev, metadata.ino) {
            warnings.push(TarWarning::IsArchive { path: item.path().to_path_buf() });
            return Ok(());
        }
        if let Some(first) = item.linked_to() {
            self.hard_link(item.path(), first, &metadata, warnings)?;
        } else {
            match metadata.kind {
                Kind::Socket => {
                    let names = std::iter::once(item.path()).chain(item.links().iter().map(PathBuf::as_path));
                    warnings.extend(names.map(|name| TarWarning::Socket { path: name.to_path_buf() }));
                    return Ok(());
                }
                Kind::Directory => return self.directory(item, &metadata, warnings),
                Kind::File => self.file(item, &metadata, warnings)?,
                Kind::Symlink => self.bare(item, Type::Symlink, &metadata, warnings)?,
                Kind::Fifo => self.bare(item, Type::Fifo, &metadata, warnings)?,
                Kind::CharDevice => self.bare(item, Type::CharDevice, &metadata, warnings)?,
                Kind::BlockDevice => self.bare(item, Type::BlockDevice, &metadata, warnings)?,
            }
        }
        let first = item.linked_to().unwrap_or(item.path());
        for further in item.links() {
            self.hard_link(further, first, &metadata, warnings)?;
        }
        Ok(())
    }

    /// With interleaved members, a directory is first made usable, and gets its attributes at its close: an extractor
    /// applies them as soon as it has left the directory, and comes back.
    ///
    /// A default ACL has a member more, before the last. bsdtar (3.6.2) sets it on a directory that exists only when it
    /// changes the mode by the same member, which it doesn't when there is an access ACL as well.
    fn directory(&mut self, item: &SweptFile, metadata: &Metadata, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        let default_acl = if self.acls { default_acl(item.xattrs()) } else { None };
        let (mode, xattrs): (u32, &[Xattr]) = match (self.interleaved, item.is_closing()) {
            (false, true) => return Ok(()),
            (false, false) | (true, true) => (metadata.mode, item.xattrs()),
            (true, false) => (first_mode(metadata.mode, default_acl.is_some()), &[]),
        };
        self.stripper.member(bytes(item.path()), true, &mut self.name, warnings);
        self.link.clear();
        if let Some(default_acl) = default_acl.filter(|_| self.interleaved && item.is_closing()) {
            let alone = std::slice::from_ref(default_acl);
            self.header(item.path(), Type::Directory, metadata, mode, 0, None, alone, warnings)?;
        }
        self.header(item.path(), Type::Directory, metadata, mode, 0, None, xattrs, warnings)
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
        self.header(item.path(), kind, metadata, metadata.mode, 0, None, item.xattrs(), warnings)
    }

    fn hard_link(
        &mut self,
        path: &Path,
        first: &Path,
        metadata: &Metadata,
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        self.stripper.member(bytes(path), false, &mut self.name, warnings);
        self.stripper.link_target(bytes(first), &mut self.link, warnings);
        self.header(path, Type::Link, metadata, metadata.mode, 0, None, &[], warnings)
    }

    fn file(&mut self, item: &mut SweptFile, metadata: &Metadata, warnings: &mut Vec<TarWarning>) -> io::Result<()> {
        self.stripper.member(bytes(item.path()), false, &mut self.name, warnings);
        self.link.clear();
        let size = metadata.size;
        let map = if self.sparse { map_of(item, size) } else { None };
        let map = map.as_ref();
        self.header(item.path(), Type::File, metadata, metadata.mode, size, map, item.xattrs(), warnings)?;

        let is_hole = item.bytes().is_none() && item.route() == Route::NoRead;
        let source = match item.bytes() {
            Some(bytes) => Source::Bytes(bytes),
            None if is_hole => Source::Hole,
            None => Source::Reader(item.reader()),
        };
        let mismatch = copy(source, size, map, &mut self.sink, &mut self.scratch)?;
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
        warnings: &mut Vec<TarWarning>,
    ) -> io::Result<()> {
        let (name, link) = (&self.name[..], &self.link[..]);
        let member = Member { kind, name, link, metadata, mode, size, map, xattrs };
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
        // Of a stream without ranges nothing is known.
        None if item.data_ranges().is_empty() => None,
        None => Map::new(size, item.data_ranges()),
    }
}
