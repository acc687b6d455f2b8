//! What a sweep did, in numbers.

use crate::{
    error::FileError,
    item::{Content, Kind, Route, SweptFile},
};

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Regular files delivered.
    pub files: u64,
    /// Entries of other kinds delivered.
    pub others: u64,
    /// Bytes of content delivered.
    pub bytes: u64,
    /// Files that failed, and other error items.
    pub errors: u64,
    /// Files served from the page cache.
    pub cached_files: u64,
    /// Their bytes.
    pub cached_bytes: u64,
    /// Files that were streamed (large, compressed, encrypted).
    pub streamed_files: u64,
    /// Their bytes.
    pub streamed_bytes: u64,
    /// Files read again through the file system because they changed, or what came first could not be trusted.
    pub reread_files: u64,
    /// Their bytes.
    pub reread_bytes: u64,
    /// In device mode: files that went through the file system from the start (changed just now, not clean in memory,
    /// inline, or without an address).
    pub through_files: u64,
    /// Their bytes.
    pub through_bytes: u64,
    /// Files without an address, read in inode order.
    pub unmapped_files: u64,
    /// Files of file systems that were not closed, and are read all the same.
    pub dirty_files: u64,
    /// Files that came as they are encrypted on the disk.
    pub encrypted_files: u64,
    /// Files of NTFS that only a driver of Windows can read: deduplicated, in a cloud, compressed by Windows for itself. They
    /// come as symbolic links that name the driver's tag, where links are handed over at all.
    pub unknown_reparse_points: u64,
    /// Read requests issued.
    pub requests: u64,
    /// Bytes read from disk for the sweep, gaps included.
    pub bytes_read: u64,
    /// The most that the budget ever held, in bytes.
    pub peak_budget: u64,
    /// Bytes that the consumer took over; they left the budget.
    pub taken_over_bytes: u64,
    /// Windows (1 unless the catalogue limit cut the tree).
    pub windows: u64,
    /// True when the sweep was cancelled.
    pub cancelled: bool,
}

impl Summary {
    /// Counts an item that is handed over.
    pub(crate) fn add(&mut self, item: &Result<SweptFile, FileError>) {
        let item = match item {
            Ok(item) => item,
            Err(_) => return self.errors += 1,
        };
        if item.is_closing() {
            return;
        }
        if item.metadata.kind != Kind::File || item.linked_to.is_some() {
            return self.others += 1;
        }
        self.dirty_files += u64::from(item.marks.dirty);
        self.encrypted_files += u64::from(item.marks.encrypted && !matches!(item.content, Content::None));
        let size = item.metadata.size;
        self.files += 1;
        self.bytes += size;
        let (files, bytes) = match item.route {
            Route::Cached => (&mut self.cached_files, &mut self.cached_bytes),
            Route::Streamed => (&mut self.streamed_files, &mut self.streamed_bytes),
            Route::Reread => (&mut self.reread_files, &mut self.reread_bytes),
            Route::NoRead | Route::Swept => return,
        };
        *files += 1;
        *bytes += size;
    }
}
