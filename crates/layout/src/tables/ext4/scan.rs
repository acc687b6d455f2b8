//! The two passes: inodes in the order of their tables, then directories in the order of their blocks.

use std::{collections::HashSet, ops::ControlFlow};

use super::{
    checks::{Blocks, Checks},
    directory::{self, Directory, HashKind},
    extents::{Mapped, Nodes, Run},
    fields::le32,
    inode::{self, RawInode, kind},
    merge::{Piece, merged},
    no_key_name, orphans,
    source::{Gathered, Lack, Source},
    volume::Volume,
    xattr::{self, Owners, Told},
};
use crate::{
    block_read::BlockRead,
    extent::{Extent, ExtentFlags},
    tables::{
        Found, Inode, TableError, Wanted,
        cast::{to_u32, to_usize},
    },
};

/// Inodes that wait for blocks, at most, and their bytes.
const WAITING: usize = 16384;
const WAITING_BYTES: usize = 16 << 20;
/// Runs of directories that are kept to be read in the order of the disk. When there are more, those that are here are read
/// before further inodes.
const MAX_PIECES: usize = 4 << 20;
/// The kernel makes no longer target.
const LONGEST_TARGET: u64 = 65536;

pub(super) struct Scan<'a, B> {
    volume: &'a Volume<B>,
    wanted: Wanted,
    found: &'a mut dyn Found,
    orphans: HashSet<u32>,
    gathered: Gathered,
    waiting: Vec<Waiting>,
    directories: Vec<Directory>,
    /// Runs of the directories: their tags are indexes of `directories`.
    pieces: Vec<Piece>,
    max_pieces: usize,
    shown: Vec<u8>,
    /// Only what is in the inodes is told.
    facts_alone: bool,
    /// Directories aren't read.
    inodes_alone: bool,
    checks: Option<&'a mut Checks>,
    ended: ControlFlow<()>,
}

/// An inode that needs further blocks.
struct Waiting {
    number: u32,
    at: u64,
    bytes: Box<[u8]>,
}

/// What is known of an inode when everything it needs was read.
struct Complete {
    inode: Inode,
    /// Where blocks lie, and how many more tell that.
    runs: Vec<Run>,
    nodes: Nodes,
    /// What its block of extended attributes says of its owners, where it was read.
    owners: Option<Owners>,
    /// What is wrong with a directory of which some can be read.
    problem: Option<TableError>,
}

impl<'a, B: BlockRead> Scan<'a, B> {
    pub(super) fn new(volume: &'a Volume<B>, wanted: Wanted, found: &'a mut dyn Found) -> Scan<'a, B> {
        Scan {
            volume,
            wanted,
            found,
            orphans: HashSet::new(),
            gathered: Gathered::new(volume),
            waiting: Vec::new(),
            directories: Vec::new(),
            pieces: Vec::new(),
            max_pieces: MAX_PIECES,
            shown: Vec::new(),
            facts_alone: false,
            inodes_alone: false,
            checks: None,
            ended: ControlFlow::Continue(()),
        }
    }

    /// The same, with tables held against each other.
    pub(super) fn checked(self, checks: &'a mut Checks) -> Scan<'a, B> {
        Scan { checks: Some(checks), ..self }
    }

    /// Tells everything. `Break` where that was ended.
    pub(super) fn run(mut self) -> ControlFlow<()> {
        let mut problems = Vec::new();
        self.orphans = orphans::all(self.volume, |error| problems.push(error));
        for problem in problems {
            self.found.problem(problem)?;
        }
        self.inodes()?;
        self.directories()
    }

    /// Tells the inodes alone (and names that lie in them).
    pub(super) fn run_inodes(mut self) -> ControlFlow<()> {
        self.orphans = orphans::all(self.volume, |_| {});
        self.inodes_alone = true;
        self.inodes()
    }

    /// Tells the inodes that have names, without anything that lies outside of their tables.
    pub(super) fn run_facts(mut self) -> ControlFlow<()> {
        self.facts_alone = true;
        self.inodes()
    }

    fn inodes(&mut self) -> ControlFlow<()> {
        let volume = self.volume;
        let superblock = &volume.superblock;
        let block_bytes = superblock.block_bytes as usize;
        let per_block = to_u32((block_bytes / superblock.inode_bytes) as u64);
        let mut buffer = Vec::new();
        let mut unread = Vec::new();
        merged(volume.tables(), volume.gap_bytes, superblock.block_bytes, |request| {
            buffer.resize(request.count as usize * block_bytes, 0);
            volume.read(request.block, &mut buffer, &mut unread);
            for (block, problem) in unread.drain(..) {
                let needed = |piece: &Piece| (piece.block..piece.block + u64::from(piece.count)).contains(&block);
                if request.pieces.iter().any(needed) && self.tell_problem(problem).is_break() {
                    return false;
                }
            }
            for piece in request.pieces {
                let start = to_usize(piece.block - request.block) * block_bytes;
                let first = piece.offset * per_block;
                let end = volume.groups[piece.tag as usize].inodes.min(first + piece.count * per_block);
                let at = volume.byte_of(piece.block);
                let inodes = buffer[start..].chunks_exact(superblock.inode_bytes);
                for (index, bytes) in (first..end).zip(inodes) {
                    let number = piece.tag * superblock.inodes_per_group + index + 1;
                    let at = at + u64::from(index - first) * superblock.inode_bytes as u64;
                    self.inode(RawInode { number, bytes }, at);
                    if self.ended.is_break() {
                        return false;
                    }
                }
            }
            true
        });
        self.ended?;
        self.settle();
        self.ended
    }

    fn tell_problem(&mut self, problem: TableError) -> ControlFlow<()> {
        if self.ended.is_continue() {
            self.ended = self.found.problem(problem);
        }
        self.ended
    }

    /// Looks at an inode for the first time.
    fn inode(&mut self, raw: RawInode<'_>, at: u64) {
        let superblock = &self.volume.superblock;
        let (mode, links) = (raw.mode(), raw.links());
        if mode == 0 && links == 0 || superblock.is_special(raw.number) {
            return;
        }
        let deleted = links == 0 && !self.orphans.contains(&raw.number);
        if deleted && !superblock.is_checksummed() {
            return;
        }
        if let Some(checks) = &mut self.checks {
            checks.in_use(raw.number, at);
        }
        // A checksum also tells a deleted inode from one whose link count is damaged.
        if let Err(problem) = raw.check(self.volume, at) {
            let _ = self.tell_problem(problem);
            return;
        }
        if deleted || raw.flags() & inode::EA_INODE != 0 {
            return;
        }
        if self.facts_alone {
            let mut inode = raw.fields(superblock);
            if raw.kind() == kind::FILE && raw.flags() & inode::INLINE_DATA != 0 {
                // As the kernel tells it, or programs would take what lies in an inode for a hole.
                inode.allocated += inode.size.div_ceil(512) * 512;
            }
            self.ended = self.found.inode(inode);
            return;
        }
        match complete(&raw, at, self.wanted, self.volume, &mut self.gathered) {
            Ok(complete) => self.tell(&raw, at, complete),
            Err(Lack::Damaged(problem)) => {
                let _ = self.tell_problem(problem);
            }
            Err(Lack::Blocks) => {
                self.waiting.push(Waiting { number: raw.number, at, bytes: raw.bytes.into() });
                let most = WAITING.min(WAITING_BYTES / raw.bytes.len());
                if self.waiting.len() >= most || self.gathered.is_full() {
                    self.settle();
                }
            }
        }
    }

    /// Reads what inodes wait for, until none waits any more.
    fn settle(&mut self) {
        while !self.waiting.is_empty() && self.ended.is_continue() {
            let volume = self.volume;
            let mut problems = Vec::new();
            let gathered = self.gathered.read(volume, |problem| problems.push(problem));
            for problem in problems {
                let _ = self.tell_problem(problem);
            }
            for waiting in std::mem::take(&mut self.waiting) {
                if self.ended.is_break() {
                    return;
                }
                let raw = RawInode { number: waiting.number, bytes: &waiting.bytes };
                let completed = match gathered {
                    true => complete(&raw, waiting.at, self.wanted, volume, &mut self.gathered),
                    false => {
                        let mut direct = self.gathered.direct(volume);
                        let completed = complete(&raw, waiting.at, self.wanted, volume, &mut direct);
                        self.gathered.spent(&direct);
                        completed
                    }
                };
                match completed {
                    Ok(complete) => self.tell(&raw, waiting.at, complete),
                    Err(Lack::Damaged(problem)) => {
                        let _ = self.tell_problem(problem);
                    }
                    Err(Lack::Blocks) => self.waiting.push(waiting),
                }
            }
        }
        self.gathered.clear();
    }

    fn tell(&mut self, raw: &RawInode<'_>, at: u64, complete: Complete) {
        if let Some(problem) = complete.problem {
            self.found.incomplete(Some(raw.number.into()));
            if self.tell_problem(problem).is_break() {
                return;
            }
        }
        if let Some(checks) = &mut self.checks {
            let is_orphan = self.orphans.contains(&raw.number);
            let Complete { ref runs, ref nodes, owners, .. } = complete;
            let blocks = Blocks { runs, nodes, owners, is_orphan };
            if let Err(problem) = checks.inode(&self.volume.superblock, raw, at, &blocks)
                && self.tell_problem(problem).is_break()
            {
                return;
            }
        }
        self.ended = self.found.inode(complete.inode);
        if raw.kind() == kind::DIRECTORY && raw.links() > 0 && self.ended.is_continue() {
            self.directory(raw, at, &complete.runs);
        }
    }

    /// Notes where the blocks of a directory lie, or tells its names where they lie in the inode.
    fn directory(&mut self, raw: &RawInode<'_>, at: u64, runs: &[Run]) {
        let superblock = &self.volume.superblock;
        let blocks = raw.size(superblock).div_ceil(superblock.block_bytes.into());
        let hash = Directory::hash_kind(raw.flags(), blocks, superblock);
        let seed = if superblock.is_checksummed() { raw.seed(superblock) } else { 0 };
        let mut directory = Directory { number: raw.number, seed, flags: raw.flags(), hash, has_index_to_check: false };
        if raw.flags() & inode::INLINE_DATA != 0 {
            // The number of the directory above stands before the first part.
            let first = raw.block_field().get(4..).unwrap_or_default();
            if let Some(checks) = &mut self.checks {
                checks.above(raw.number, le32(raw.block_field(), 0));
            }
            let rest = xattr::inline_rest(raw, at).unwrap_or_default();
            for part in [first, rest] {
                self.names(&directory, part, at + 0x2C);
            }
            return;
        }
        if self.inodes_alone {
            return;
        }
        if let Some(checks) = &mut self.checks {
            directory.has_index_to_check = checks.takes_index(raw.flags(), blocks, superblock);
        }
        let tag = to_u32(self.directories.len() as u64);
        self.directories.push(directory);
        for run in runs.iter().filter(|run| !run.unwritten && run.logical < blocks) {
            let count = to_u32(run.count.min(blocks - run.logical));
            self.pieces.push(Piece { block: run.physical, count, tag, offset: to_u32(run.logical) });
        }
        if self.pieces.len() >= self.max_pieces {
            self.ended = self.directories();
        }
    }

    fn directories(&mut self) -> ControlFlow<()> {
        self.index_algorithms();
        let volume = self.volume;
        let block_bytes = volume.superblock.block_bytes as usize;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_unstable_by_key(|piece| (piece.block, piece.tag));
        let mut buffer = Vec::new();
        let mut unread = Vec::new();
        merged(pieces, volume.gap_bytes, volume.superblock.block_bytes, |request| {
            buffer.resize(request.count as usize * block_bytes, 0);
            volume.read(request.block, &mut buffer, &mut unread);
            for piece in request.pieces {
                let directory = self.directories[piece.tag as usize];
                for block in piece.block..piece.block + u64::from(piece.count) {
                    if let Some(index) = unread.iter().position(|(unread, _)| *unread == block) {
                        let (_, problem) = unread.swap_remove(index);
                        self.found.incomplete(Some(directory.number.into()));
                        let _ = self.tell_problem(problem);
                        continue;
                    }
                    let start = to_usize(block - request.block) * block_bytes;
                    let (bytes, at) = (&buffer[start..start + block_bytes], volume.byte_of(block));
                    let is_first = piece.offset == 0 && block == piece.block;
                    if let Some(checks) = self.checks.as_mut().filter(|_| is_first)
                        && let Err(problem) = checks.first_block(directory.number, bytes, at)
                    {
                        let _ = self.tell_problem(problem);
                    }
                    if let Some(checks) = self.checks.as_mut().filter(|_| directory.has_index_to_check) {
                        let number = u64::from(piece.offset) + (block - piece.block);
                        checks.index_block(&directory, to_u32(number), bytes, at, &volume.superblock);
                    }
                    self.block(&directory, bytes, at);
                    if self.ended.is_break() {
                        return false;
                    }
                }
            }
            unread.clear();
            true
        });
        self.directories.clear();
        self.checks.iter_mut().for_each(|checks| checks.compare_indexes());
        self.ended
    }

    /// The hashes of encrypted directories with an index are told by its root, which may be read after its leaves.
    fn index_algorithms(&mut self) {
        for piece in &self.pieces {
            let Some(directory) = self.directories.get_mut(piece.tag as usize) else { continue };
            let by_index = matches!(directory.hash, HashKind::Algorithm(_)) && directory.flags & inode::INDEXED != 0;
            if by_index
                && piece.offset == 0
                && let Ok(block) = self.volume.block(piece.block)
                && let Some(version) = directory::index_algorithm(&block)
            {
                directory.hash = HashKind::Algorithm(version);
            }
        }
    }

    fn block(&mut self, directory: &Directory, bytes: &[u8], at: u64) {
        if self.volume.superblock.is_checksummed()
            && let Err((expected, found)) = directory::check(directory, bytes)
        {
            self.found.incomplete(Some(directory.number.into()));
            let what = format!("the checksum of a block of directory {}", directory.number);
            let (expected, found) = (format!("{expected:#010x}"), format!("{found:#010x}"));
            let _ = self.tell_problem(TableError::damaged(what, at, expected, found));
            return;
        }
        self.names(directory, bytes, at);
    }

    fn names(&mut self, directory: &Directory, entries: &[u8], at: u64) {
        if self.ended.is_break() {
            return;
        }
        let Scan { found, checks, .. } = self;
        let ended =
            directory::names(
                directory,
                &self.volume.superblock,
                entries,
                at,
                &mut self.shown,
                &mut |told| match told {
                    Ok((name, kind)) => {
                        checks.iter_mut().for_each(|checks| checks.name(&name, kind, at));
                        found.name(name)
                    }
                    Err(problem) => {
                        found.incomplete(Some(directory.number.into()));
                        found.problem(problem)
                    }
                },
            );
        if ended.is_break() {
            self.ended = ended;
        }
    }
}

/// Puts together what is told of an inode.
fn complete<B: BlockRead>(
    raw: &RawInode<'_>,
    at: u64,
    wanted: Wanted,
    volume: &Volume<B>,
    source: &mut dyn Source,
) -> Result<Complete, Lack> {
    let superblock = &volume.superblock;
    let mut complete = Complete {
        inode: raw.fields(superblock),
        runs: Vec::new(),
        nodes: Nodes::default(),
        owners: None,
        problem: None,
    };
    let inode = &mut complete.inode;
    let is_directory = raw.kind() == kind::DIRECTORY;
    // What both need is asked for at once.
    let xattrs = if wanted.xattrs { xattr::all(raw, at, volume, source) } else { Ok(Told::default()) };
    match raw.kind() {
        kind::FILE | kind::DIRECTORY if raw.flags() & inode::INLINE_DATA != 0 => {
            let content = inline(raw, at, inode.size)?;
            if !is_directory {
                inode.inline = Some(content);
            }
        }
        kind::FILE | kind::DIRECTORY => {
            let Mapped { runs, nodes, lack } = raw.runs(volume, source);
            match lack {
                Some(Lack::Damaged(problem)) if is_directory => complete.problem = Some(problem),
                Some(lack) => return Err(lack),
                None => {}
            }
            inode.extents = extents(&runs, inode.size, superblock.block_bytes);
            (complete.runs, complete.nodes) = (runs, nodes);
        }
        kind::SYMLINK => {
            let target = target(raw, at, volume, source)?;
            inode.size = target.len() as u64;
            inode.inline = Some(target);
            if raw.flags() & inode::INLINE_DATA == 0 && !raw.is_fast_symlink(superblock) {
                let Mapped { runs, nodes, .. } = raw.runs(volume, source);
                (complete.runs, complete.nodes) = (runs, nodes);
            }
        }
        _ => {}
    }
    let Told { attributes, owners } = xattrs?;
    (inode.xattrs, complete.owners) = (attributes, owners);
    Ok(complete)
}

/// Content of `size` bytes in the inode.
fn inline(raw: &RawInode<'_>, at: u64, size: u64) -> Result<Vec<u8>, Lack> {
    let mut content = [raw.block_field(), xattr::inline_rest(raw, at)?].concat();
    if size > content.len() as u64 {
        let what = format!("the size of inode {}", raw.number);
        return Err(TableError::damaged(what, at + 4, format!("at most {}", content.len()), size).into());
    }
    content.truncate(to_usize(size));
    Ok(content)
}

/// The target of a symbolic link.
fn target<B: BlockRead>(
    raw: &RawInode<'_>,
    at: u64,
    volume: &Volume<B>,
    source: &mut dyn Source,
) -> Result<Vec<u8>, Lack> {
    let superblock = &volume.superblock;
    let size = raw.size(superblock);
    let damaged = |expected: &str, found: &dyn ToString| {
        let what = format!("the target of symbolic link {}", raw.number);
        Lack::from(TableError::damaged(what, at, expected, found.to_string()))
    };
    if size > LONGEST_TARGET {
        return Err(damaged("at most 65536 bytes", &size));
    }
    let target = if raw.flags() & inode::INLINE_DATA != 0 {
        inline(raw, at, size)?
    } else if raw.is_fast_symlink(superblock) {
        let field = raw.block_field();
        field.get(..to_usize(size)).ok_or_else(|| damaged("at most 60 bytes", &size))?.to_vec()
    } else {
        let Mapped { runs, lack, .. } = raw.runs(volume, source);
        if let Some(lack) = lack {
            return Err(lack);
        }
        let mut target = match runs.first() {
            Some(run) if run.logical == 0 && !run.unwritten => source.block(run.physical)?.to_vec(),
            _ => return Err(damaged("a block", &"none")),
        };
        if size > target.len() as u64 {
            return Err(damaged("a target within a block", &size));
        }
        target.truncate(to_usize(size));
        target
    };
    if raw.flags() & inode::ENCRYPTED == 0 {
        // The kernel ends it at the first zero.
        let end = target.iter().position(|&byte| byte == 0).unwrap_or(target.len());
        return Ok(target[..end].to_vec());
    }
    // Two bytes of length stand before what is encrypted.
    let length = usize::from(super::fields::le16(&target, 0));
    let encrypted =
        target.get(2..).and_then(|rest| rest.get(..length)).filter(|&name| name.len() >= no_key_name::SHORTEST);
    let mut shown = Vec::new();
    no_key_name::encode([0, 0], encrypted.ok_or_else(|| damaged("16 encrypted bytes or more", &length))?, &mut shown);
    Ok(shown)
}

/// The extents of a file, up to its end.
fn extents(runs: &[Run], size: u64, block_bytes: u32) -> Vec<Extent> {
    let block_bytes = u64::from(block_bytes);
    let end = size.checked_next_multiple_of(4096.min(block_bytes)).unwrap_or(u64::MAX);
    let kept = runs.iter().map_while(|run| {
        let logical = run.logical * block_bytes;
        let length = (run.count * block_bytes).min(end.checked_sub(logical)?);
        let flags = if run.unwritten { ExtentFlags::UNWRITTEN } else { ExtentFlags::empty() };
        (length > 0).then_some(Extent { logical, physical: Some(run.physical * block_bytes), length, flags })
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;
    use crate::tables::ext4::Ext4;

    #[derive(Default)]
    struct Counted {
        inodes: usize,
        names: Vec<(u64, Vec<u8>)>,
    }

    impl Found for Counted {
        fn inode(&mut self, _: Inode) -> ControlFlow<()> {
            self.inodes += 1;
            ControlFlow::Continue(())
        }

        fn name(&mut self, name: crate::tables::Name<'_>) -> ControlFlow<()> {
            self.names.push((name.directory, name.name.to_vec()));
            ControlFlow::Continue(())
        }

        fn incomplete(&mut self, directory: Option<u64>) {
            panic!("directory {directory:?} is sound");
        }

        fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
            panic!("{problem}")
        }
    }

    /// Each directory has a run or more, and all of them are told, in whatever portions they are read.
    #[test]
    fn directories_that_are_read_in_portions_are_all_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
        for directory in 0..40 {
            let directory = tree.join(format!("directory {directory}/below"));
            fs::create_dir_all(&directory).expect("a folder");
            (0..directory.as_os_str().len() % 7)
                .for_each(|name| fs::write(directory.join(name.to_string()), "").unwrap());
        }
        fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("a sparse file");
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-b", "1024", "-d"]).arg(&tree).arg(&image).status();
        assert!(made.expect("mkfs.ext4 runs").success());
        let tables = Ext4::open(fs::read(&image).expect("an image")).expect("tables");
        let scanned = |max_pieces| {
            let mut counted = Counted::default();
            let mut scan = Scan::new(&tables.volume, Wanted::default(), &mut counted);
            scan.max_pieces = max_pieces;
            assert!(scan.run().is_continue());
            counted.names.sort();
            (counted.inodes, counted.names)
        };
        let whole = scanned(usize::MAX);
        assert!(whole.1.len() > 80);
        for max_pieces in [1, 2, 7] {
            assert!(scanned(max_pieces) == whole, "portions of {max_pieces}");
        }
        let mut counted = Counted::default();
        let _ = Scan::new(&tables.volume, Wanted::default(), &mut counted).run_inodes();
        assert_eq!((counted.inodes, counted.names.len()), (whole.0, 0), "inodes alone have no names");
    }
}
