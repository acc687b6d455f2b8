/*
 * libonesweep: reads every file of a tree in one sweep of the disk head.
 *
 * Made of crates/capi by cbindgen: change it there, and run `make header`. The guide is docs/c.md.
 *
 * Rules that hold for all of it:
 *  - Functions that can fail return ONESWEEP_OK or an error code; onesweep_last_message() and onesweep_last_errno() then tell this
 *    thread more.
 *  - Pointers may be NULL only where that is said; it is told as ONESWEEP_ERROR_ARGUMENT.
 *  - What is called handle is made and freed by the library alone; each kind has its own free. Nothing tells of one that is used
 *    after it was freed, is freed while a call that got it has not returned, or is changed by two threads at a time.
 *  - Strings end with a zero. Paths are bytes, not always UTF-8.
 *  - Structures that the library hands out may get more fields at their end in later versions; those that the caller has memory for
 *    have `reserved` fields for that.
 *  - No panic of the library gets through: it is ONESWEEP_ERROR_FAULT.
 */

#ifndef ONESWEEP_H
#define ONESWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a callback returns to get more.
#define ONESWEEP_CONTINUE 0

// What a callback returns to end the call, which then gives ONESWEEP_ERROR_CANCELLED. So does anything that isn't 0.
#define ONESWEEP_STOP 1

// Kind: a regular file; the only kind with content.
#define ONESWEEP_KIND_FILE 1

// Kind: a directory.
#define ONESWEEP_KIND_DIRECTORY 2

// Kind: a symbolic link.
#define ONESWEEP_KIND_SYMLINK 3

// Kind: a named pipe.
#define ONESWEEP_KIND_FIFO 4

// Kind: a socket.
#define ONESWEEP_KIND_SOCKET 5

// Kind: a character device.
#define ONESWEEP_KIND_CHAR_DEVICE 6

// Kind: a block device.
#define ONESWEEP_KIND_BLOCK_DEVICE 7

// Route: there was nothing to read from a disk.
#define ONESWEEP_ROUTE_NO_READ 0

// Route: it lay in the page cache.
#define ONESWEEP_ROUTE_CACHED 1

// Route: its fragments were read in the order of the disk.
#define ONESWEEP_ROUTE_SWEPT 2

// Route: it was read again through the file system.
#define ONESWEEP_ROUTE_REREAD 3

// Route: it is not in memory; `onesweep_file_pread` reads it.
#define ONESWEEP_ROUTE_STREAMED 4

// Of a file: its file system was not closed; what was written last may be missing.
#define ONESWEEP_FILE_DIRTY (1 << 0)

// Of a file: the content comes as it is encrypted on the disk.
#define ONESWEEP_FILE_ENCRYPTED (1 << 1)

// Of a directory: its second delivery, after everything in it.
#define ONESWEEP_FILE_CLOSING (1 << 2)

// Of a file: it is that of a snapshot (`onesweep_file_open_path`).
#define ONESWEEP_FILE_IN_SNAPSHOT (1 << 3)

// Reader: as `readdir` lists a directory.
#define ONESWEEP_READER_READDIR 0

// Reader: by inode number.
#define ONESWEEP_READER_INODE 1

// Reader: by name.
#define ONESWEEP_READER_NAME 2

// Flag: reads the block device itself and checks each file afterwards. Needs read access to the device, and Linux 6.5.
#define ONESWEEP_DEVICE (1 << 0)

// Flag: sweeps everything as it is at one moment, by a snapshot (btrfs, LVM) or by holding all writers until the plan stands.
// Needs root.
#define ONESWEEP_SNAPSHOT (1 << 1)

// Flag: stays on the file systems of the named paths.
#define ONESWEEP_ONE_FILE_SYSTEM (1 << 2)

// Flag: follows symbolic links that are named. Those below are never followed.
#define ONESWEEP_FOLLOW_ROOTS (1 << 3)

// Flag: leaves out what `.gitignore` and `.ignore` files name.
#define ONESWEEP_GITIGNORE (1 << 4)

// Flag: takes named directories as they are, without what lies below.
#define ONESWEEP_NO_RECURSION (1 << 5)

// Flag: reads extended attributes.
#define ONESWEEP_XATTRS (1 << 6)

// Flag: plans as if nothing were cached.
#define ONESWEEP_IGNORE_CACHE (1 << 7)

// Flag: learns where files lie also for orders that need not know.
#define ONESWEEP_ADDRESSES (1 << 8)

// Flag: reads images of NTFS that were not closed, too; their files have ONESWEEP_FILE_DIRTY.
#define ONESWEEP_FORCE_DIRTY (1 << 9)

// Flag: of images, what is in use but has no name comes too, below `lost`.
#define ONESWEEP_LOST (1 << 10)

// Flag: reads in the idle I/O class.
#define ONESWEEP_IDLE (1 << 11)

// Flag: keeps one request in flight, so that files come in the very order of the plan.
#define ONESWEEP_ONE_AT_A_TIME (1 << 12)

// Flag: hands requests to the kernel a whole queue at a time.
#define ONESWEEP_IN_BATCHES (1 << 13)

// Order: by fragment, unless every disk below is known to have no seeks; the default.
#define ONESWEEP_ORDER_AUTO 0

// Order: all fragments of all files by their place on the device.
#define ONESWEEP_ORDER_FRAGMENT 1

// Order: whole files by their first block.
#define ONESWEEP_ORDER_FIRST_EXTENT 2

// Order: whole files by inode number.
#define ONESWEEP_ORDER_INODE 3

// Order: by inode number, one directory after the other.
#define ONESWEEP_ORDER_INODE_PER_DIRECTORY 4

// Order: by first block, one directory after the other.
#define ONESWEEP_ORDER_FIRST_EXTENT_PER_DIRECTORY 5

// Order: as the directories list them.
#define ONESWEEP_ORDER_DIRECTORY 6

// Strategy: that of the way of reading, the default: merged for devices and images, else unmerged.
#define ONESWEEP_STRATEGY_AUTO 0

// Strategy: each fragment is a request, bytes that files share are read once (the paper's DAFTNM).
#define ONESWEEP_STRATEGY_UNMERGED 1

// Strategy: near fragments are one request, and the gap is read through (the paper's DAFTM). For devices.
#define ONESWEEP_STRATEGY_MERGED 2

// Strategy: each fragment is a request, for each file that has it: as files are read without a plan.
#define ONESWEEP_STRATEGY_VANILLA 3

// Reassembly: what fits the budget, the default.
#define ONESWEEP_REASSEMBLY_AUTO 0

// Reassembly: dynamic bin packing; what doesn't fit waits for the next pass.
#define ONESWEEP_REASSEMBLY_FIRST_FIT 1

// Reassembly: when a file doesn't fit, all that wait are completed first.
#define ONESWEEP_REASSEMBLY_ON_DEMAND 2

// Reassembly: the batch threshold S between both, in bytes.
#define ONESWEEP_REASSEMBLY_THRESHOLD 3

// Reassembly: files that would hold much memory for long are left to a second pass.
#define ONESWEEP_REASSEMBLY_DEFERRED 4

// Entries: regular files, the default.
#define ONESWEEP_ENTRIES_FILES 0

// Entries: everything. Directories come before what is in them, and once more when they are complete
// (ONESWEEP_FILE_CLOSING).
#define ONESWEEP_ENTRIES_ALL 1

// Page cache: left as it was found, the default.
#define ONESWEEP_CACHE_UNTOUCHED 0

// Page cache: files are brought in and stay.
#define ONESWEEP_CACHE_FILL 1

// Names and places: from a walk, the default; an image is a file like any other.
#define ONESWEEP_METADATA_WALK 0

// Names and places: from the tables, for images and devices that aren't mounted (`disk.img`, `disk.img@2`, `disk.img:/home`).
#define ONESWEEP_METADATA_AUTO 1

// Names and places: from the tables, or it is an error.
#define ONESWEEP_METADATA_TABLES 2

// Entries were found so far: `count`.
#define ONESWEEP_PROGRESS_WALKED 1

// Files were looked at so far: `count` of them, with `bytes`.
#define ONESWEEP_PROGRESS_SURVEYED 2

// A plan is ready, for the disk that `text` names: `count` files, `bytes`.
#define ONESWEEP_PROGRESS_PLANNED 3

// Files were read so far: `count` of them, with `bytes`.
#define ONESWEEP_PROGRESS_READ 4

// Something that is to be known and is no error: `text`.
#define ONESWEEP_PROGRESS_REMARK 5

// Bytes were read from streamed files so far: `bytes`.
#define ONESWEEP_PROGRESS_STREAMED 6

// Freshness: what has changed is counted first.
#define ONESWEEP_FRESHNESS_EXACT 0

// Freshness: what the store holds, at once.
#define ONESWEEP_FRESHNESS_CACHED 1

// Freshness: what waits in memory is written to the disk before, so that allocated blocks are what they will be.
#define ONESWEEP_FRESHNESS_SYNCED 2

// Rises when programs have to be changed and built anew; it is that of `libonesweep.so.1` too.
#define ONESWEEP_VERSION_MAJOR 1

// Rises with what is added.
#define ONESWEEP_VERSION_MINOR 1

// Rises with what is repaired.
#define ONESWEEP_VERSION_PATCH 0

// The content of a file that was taken over: the caller's own, and no part of the budget.
typedef struct onesweep_buffer onesweep_buffer;

// Stops sweeps from outside: from another thread, from a callback, from a signal handler.
typedef struct onesweep_cancel onesweep_cancel;

// A file that was swept, another entry, or a failure. Not for several threads at a time.
typedef struct onesweep_file onesweep_file;

// What sweeps are told to do. One of them serves any number of calls, in several threads too; it may be changed and freed when no
// call that got it is left. A plan that was made with it has all it needs.
typedef struct onesweep_options onesweep_options;

// A planned sweep: to be looked at, then carried out. Not for several threads at a time.
typedef struct onesweep_plan onesweep_plan;

// A connection to a server of directory summaries. Several threads may ask, one after the other.
typedef struct onesweep_service onesweep_service;

// What went wrong: one of the `ONESWEEP_ERROR_` constants, or `ONESWEEP_OK`. More may come; treat unknown ones as errors.
typedef uint32_t onesweep_error;

// Takes each file, and each failure: DAFT's CallBackFunction. The handle and all that it gives are valid until the callback
// returns, unless it is kept (`onesweep_file_keep`) or its bytes are taken over (`onesweep_file_take`).
//
// A callback may call any function of the library, also to begin another sweep. It must return: no `longjmp`, no exception,
// no end of the thread.
typedef int (*onesweep_file_callback)(void *user, struct onesweep_file *file);

// What a sweep did. Whoever calls has the memory for it; it is written when the sweep has begun, also when it ended early.
typedef struct onesweep_counts {
    // Regular files handed over.
    uint64_t files;
    // Entries of other kinds handed over.
    uint64_t others;
    // Bytes of the files handed over.
    uint64_t bytes;
    // Failures handed over, but for those that are about memory that the caller keeps.
    uint64_t errors;
    // Files that came from the page cache.
    uint64_t cached_files;
    // Their bytes.
    uint64_t cached_bytes;
    // Files that are streamed.
    uint64_t streamed_files;
    // Their bytes.
    uint64_t streamed_bytes;
    // Files read again through the file system.
    uint64_t reread_files;
    // Their bytes.
    uint64_t reread_bytes;
    // Of a device: files that went through the file system from the start.
    uint64_t through_files;
    // Their bytes.
    uint64_t through_bytes;
    // Files whose place is not known.
    uint64_t unmapped_files;
    // Files of file systems that were not closed.
    uint64_t dirty_files;
    // Files that came as they are encrypted on the disk.
    uint64_t encrypted_files;
    // Read requests.
    uint64_t requests;
    // Bytes read from disk, gaps included.
    uint64_t bytes_read;
    // The most that the budget ever held, in bytes.
    uint64_t peak_budget;
    // Bytes that were taken over.
    uint64_t taken_over_bytes;
    // Parts that the tree was swept in.
    uint64_t windows;
    // Whether it ended early.
    bool cancelled;
    // For later versions; 0.
    uint64_t reserved[8];
} onesweep_counts;

// Why something failed.
typedef struct onesweep_failure {
    // One of the ONESWEEP_ERROR_ constants.
    onesweep_error code;
    // What the kernel said (errno); 0 where no system call failed.
    int error_number;
    // What it is about; NULL when it is about no file.
    const char *path;
    // The path, what was tried, and why it failed, in one line.
    const char *text;
} onesweep_failure;

// A point in time: seconds since 1970, and nanoseconds counted forward from there.
typedef struct onesweep_time {
    // Negative before 1970.
    int64_t seconds;
    // 0 to 999,999,999.
    uint32_t nanoseconds;
} onesweep_time;

// The attributes of an entry when it was looked at.
typedef struct onesweep_stat {
    // One of the ONESWEEP_KIND_ constants.
    uint32_t kind;
    // As in `st_mode`.
    uint32_t mode;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Names of the inode.
    uint32_t nlink;
    // Bytes.
    uint64_t size;
    // Inode number.
    uint64_t ino;
    // As in `st_dev`.
    uint64_t dev;
    // As in `st_rdev`.
    uint64_t rdev;
    // Last change of the content.
    struct onesweep_time mtime;
    // Last change of the inode.
    struct onesweep_time ctime;
    // Last read before.
    struct onesweep_time atime;
} onesweep_stat;

// An extended attribute.
typedef struct onesweep_xattr {
    // Its name with its namespace.
    const char *name;
    // Its value, without a zero at the end.
    const void *value;
    // Bytes of the value.
    size_t size;
} onesweep_xattr;

// Neighbouring blocks, and those of them that are neighbours on the device.
typedef struct onesweep_score {
    // Pairs that are neighbours on the device.
    uint64_t contiguous;
    // Pairs.
    uint64_t pairs;
    // The first by the second, 0 to 1; -1 where there is no pair.
    double ratio;
} onesweep_score;

// As files lie, or as they would lie packed.
typedef struct onesweep_layout_side {
    // Runs of blocks.
    uint64_t fragments;
    // The layout score: how much of each file lies in one piece.
    struct onesweep_score layout;
    // The dynamic score: how much of what is read one after the other lies side by side.
    struct onesweep_score dynamic;
    // Seeks of who reads file by file.
    uint64_t seeks;
    // The time of the disk model for that.
    double seconds;
} onesweep_layout_side;

// How the files of a directory lie, or those of several. From `blocks` on, files whose place is known count.
typedef struct onesweep_layout_figures {
    // Files, each inode once.
    uint64_t files;
    // Those with blocks whose place is known.
    uint64_t placed_files;
    // Those of them in more than one piece.
    uint64_t fragmented_files;
    // Compressed files.
    uint64_t compressed_files;
    // Files whose place is not known.
    uint64_t unknown_files;
    // Blocks.
    uint64_t blocks;
    // Bytes of the blocks.
    uint64_t bytes;
    // As they lie.
    struct onesweep_layout_side before;
    // In one piece each, side by side.
    struct onesweep_layout_side packed;
    // For later versions; 0.
    uint64_t reserved[4];
} onesweep_layout_figures;

// A directory with the files directly in it, or a failure; all valid during the callback.
typedef struct onesweep_directory {
    // Its path.
    const char *path;
    // The disks below, by their kernel names. NULL for a failure.
    const char *disk;
    // The device of its file system, by its kernel name. NULL for a failure.
    const char *device;
    // The type of its file system. NULL for a failure.
    const char *fs_type;
    // Bytes of a block.
    uint64_t block_bytes;
    // How its files lie.
    struct onesweep_layout_figures layout;
    // Why something could not be looked at; else NULL.
    const struct onesweep_failure *failure;
} onesweep_directory;

// Takes each directory, and each failure.
typedef int (*onesweep_directory_callback)(void *user, const struct onesweep_directory *directory);

// One event. Numbers are totals since the start; those that an event doesn't tell are 0, and its text is NULL.
typedef struct onesweep_progress {
    // One of the ONESWEEP_PROGRESS_ constants; ignore others.
    uint32_t kind;
    // Entries or files.
    uint64_t count;
    // Bytes.
    uint64_t bytes;
    // One line, valid during the callback.
    const char *text;
} onesweep_progress;

// Is told of progress. Called by threads of the library, several at a time: be quick.
typedef void (*onesweep_progress_callback)(void *user, const struct onesweep_progress *progress);

// What a plan costs.
typedef struct onesweep_estimate {
    // Files with at least one byte to read.
    uint64_t files;
    // Fragments.
    uint64_t fragments;
    // Fragments whose place is not known.
    uint64_t without_address;
    // Reads.
    uint64_t requests;
    // Reads that don't begin where the one before ended.
    uint64_t seeks;
    // Bytes of the blocks that files have.
    uint64_t useful;
    // Bytes that come from the disk.
    uint64_t read;
    // Those of them in gaps that are read through.
    uint64_t wasted;
    // Bytes that aren't read, since files share them.
    uint64_t copied;
    // Runs of rising addresses.
    uint64_t passes;
    // Passes that leave files to the next.
    uint64_t bins;
    // How often waiting files are completed before others begin.
    uint64_t clean_ups;
    // The most bytes that files hold while they wait.
    uint64_t peak_memory;
    // What that would be without a budget.
    uint64_t peak_unlimited;
    // The time of the disk model; of several disks, which work side by side, that of the slowest.
    double seconds;
    // For later versions; 0.
    uint64_t reserved[4];
} onesweep_estimate;

// The plan of one disk; all valid during the callback.
typedef struct onesweep_disk_plan {
    // The disks below, by their kernel names, joined with `+`.
    const char *disk;
    // The order that was chosen: one of the ONESWEEP_ORDER_ constants, never AUTO.
    uint32_t order;
    // Why it isn't by fragment, when addresses mean nothing or the disk has no seeks; else NULL.
    const char *remark;
    // What it costs.
    struct onesweep_estimate estimate;
} onesweep_disk_plan;

// Takes the plan of each disk.
typedef int (*onesweep_disk_plan_callback)(void *user, const struct onesweep_disk_plan *plan);

// One file of a plan; all valid during the callback.
typedef struct onesweep_planned_file {
    // The path.
    const char *path;
    // The disk, by its kernel name.
    const char *disk;
    // Whether `address` is known.
    bool has_address;
    // The address on the device that gives it its place, in bytes.
    uint64_t address;
    // Fragments.
    uint32_t fragments;
    // Bytes.
    uint64_t size;
    // Whether its file system was not closed.
    bool is_dirty;
    // Whether it comes as it is encrypted on the disk.
    bool is_encrypted;
} onesweep_planned_file;

// Takes each file of a plan, in the order of reading.
typedef int (*onesweep_planned_file_callback)(void *user, const struct onesweep_planned_file *file);

// Takes each failure.
typedef int (*onesweep_failure_callback)(void *user, const struct onesweep_failure *failure);

// Sums over a directory.
typedef struct onesweep_totals {
    // Bytes as sizes tell them, but for directories.
    int64_t bytes;
    // Bytes of directories as their sizes tell them.
    int64_t directory_bytes;
    // Bytes that are allocated.
    int64_t allocated;
    // Bytes that removing it would free; 0 in a partial answer.
    int64_t freed;
    // Regular files.
    int64_t files;
    // Directories.
    int64_t directories;
    // Everything else.
    int64_t others;
} onesweep_totals;

// What a directory comes to.
typedef struct onesweep_summary {
    // With all that is below.
    struct onesweep_totals total;
    // Without the directories in it.
    struct onesweep_totals own;
    // The newest change of a content, in seconds since 1970; 0 when `has_newest` is false.
    int64_t newest;
    // Bytes of the largest file; 0 when `has_largest` is false.
    uint64_t largest;
    // When it was counted, in seconds since 1970.
    int64_t harvested_at;
    // Directories below that could not be read.
    uint64_t unreadable;
    // Whether `newest` is known.
    bool has_newest;
    // Whether `largest` is known.
    bool has_largest;
    // Whether nothing is known to have changed since it was counted.
    bool is_exact;
    // Whether something was left out that the user may not see.
    bool is_partial;
    // For later versions; 0.
    uint64_t reserved[4];
} onesweep_summary;

// All went well.
#define ONESWEEP_OK 0

// An argument is NULL that may not be, an unknown constant, or out of range. Nothing was done.
#define ONESWEEP_ERROR_ARGUMENT 1

// A fault of the library itself. What was asked for may be half done; please report it.
#define ONESWEEP_ERROR_FAULT 2

// It ended early, since the cancel handle was thrown, a callback asked for it, or the connection was stopped.
#define ONESWEEP_ERROR_CANCELLED 3

// A path or descriptor named by the caller can't be used, and no other was named that can.
#define ONESWEEP_ERROR_ROOT 4

// No path was named.
#define ONESWEEP_ERROR_NO_ROOTS 5

// An option is out of range or contradicts another.
#define ONESWEEP_ERROR_SETTING 6

// The block device below a path can't be read directly (ONESWEEP_DEVICE).
#define ONESWEEP_ERROR_DEVICE 7

// A file system can't be held at one moment (ONESWEEP_SNAPSHOT).
#define ONESWEEP_ERROR_SNAPSHOT 8

// The system refused something that every sweep needs: the table of mounts, a thread.
#define ONESWEEP_ERROR_SYSTEM 9

// Of a file: it was listed by its directory and was gone when it was needed.
#define ONESWEEP_ERROR_VANISHED 10

// A system call on a file failed; the error number tells why.
#define ONESWEEP_ERROR_IO 11

// An image has nothing of the name that was given.
#define ONESWEEP_ERROR_NOT_INSIDE 12

// Of a file: each reading of it met a change.
#define ONESWEEP_ERROR_CHANGED 13

// A directory that is its own ancestor through a mount; it is not entered again.
#define ONESWEEP_ERROR_LOOP 14

// What was swept is not from one moment, though it was to be (ONESWEEP_SNAPSHOT).
#define ONESWEEP_ERROR_NOT_ONE_MOMENT 15

// All memory of the budget is in files that the caller keeps. Free or take over some of them, and the sweep goes on; else
// the next one is ONESWEEP_ERROR_STOPPED.
#define ONESWEEP_ERROR_BUDGET_LENT 16

// The sweep of a whole disk ended early.
#define ONESWEEP_ERROR_STOPPED 17

// There is no content, or no more: not a regular file, taken over before, not in memory, or from a walk.
#define ONESWEEP_ERROR_NO_CONTENT 18

// The plan was carried out already, or is being looked at by a call that has not returned.
#define ONESWEEP_ERROR_USED 19

// No server of directory summaries listens there.
#define ONESWEEP_ERROR_NO_SERVER 20

// The directory is on no file system that the server tracks, or isn't known to it.
#define ONESWEEP_ERROR_NOT_TRACKED 21

// The user may not reach the directory.
#define ONESWEEP_ERROR_DENIED 22

// The server could not answer, for a reason that the message tells.
#define ONESWEEP_ERROR_REFUSED 23

// The connection to the server broke, or it said what can't be understood. Open another one.
#define ONESWEEP_ERROR_CONNECTION 24

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The bytes, valid until the buffer is freed; the caller may change them. NULL for NULL.
void *onesweep_buffer_data(struct onesweep_buffer *buffer);

// How many bytes there are. 0 for NULL.
size_t onesweep_buffer_size(const struct onesweep_buffer *buffer);

// Frees a buffer, in any thread, also after the sweep. NULL is ignored.
void onesweep_buffer_free(struct onesweep_buffer *buffer);

// Reads all named files, and all files below the named directories, in the order of the disk, and gives each to the callback,
// whole: DAFT's BulkFileRead(FileList, CallBackFunction).
//
// A file that fails is given to the callback too (`onesweep_file_failure`), and the sweep goes on: the call is ONESWEEP_OK when
// everything was handed over, failures among it. `options` NULL: the defaults. `counts` may be NULL. Returns when all is
// done; the callback is called by this thread (see `onesweep_options_set_threads`). Needs the privileges that opening the
// files needs.
//
// Errors: ARGUMENT, ROOT, NO_ROOTS, SETTING, DEVICE, SNAPSHOT, SYSTEM; CANCELLED when it ended early.
//
// The caller sees to it: `paths` has `path_count` strings.
onesweep_error onesweep_bulk_read(const char *const *paths,
                                  size_t path_count,
                                  const struct onesweep_options *options,
                                  onesweep_file_callback callback,
                                  void *user,
                                  struct onesweep_counts *counts);

// The same for open directories and files, which stay the caller's. A directory is read whatever it is called by now; a file
// must be there by the name that it was opened by, or it fails with ESTALE or ENOENT. Paths begin with
// `/proc/self/fd/N`, where N is the descriptor as it was given.
//
// Errors: as of `onesweep_bulk_read`; ARGUMENT with EBADF for what isn't open.
//
// The caller sees to it: `fds` has `fd_count` numbers.
onesweep_error onesweep_bulk_read_fd(const int *fds,
                                     size_t fd_count,
                                     const struct onesweep_options *options,
                                     onesweep_file_callback callback,
                                     void *user,
                                     struct onesweep_counts *counts);

// As `onesweep_bulk_read`, without content: names and attributes, in the order in which files would be read.
// ONESWEEP_ENTRIES_ALL gives directories and all else, too.
//
// The caller sees to it: `paths` has `path_count` strings.
onesweep_error onesweep_walk(const char *const *paths,
                             size_t path_count,
                             const struct onesweep_options *options,
                             onesweep_file_callback callback,
                             void *user,
                             struct onesweep_counts *counts);

// As `onesweep_bulk_read_fd`, without content.
//
// The caller sees to it: `fds` has `fd_count` numbers.
onesweep_error onesweep_walk_fd(const int *fds,
                                size_t fd_count,
                                const struct onesweep_options *options,
                                onesweep_file_callback callback,
                                void *user,
                                struct onesweep_counts *counts);

// Makes a cancel handle that is not thrown. Never NULL.
struct onesweep_cancel *onesweep_cancel_new(void);

// Stops all sweeps and plans that have this handle among their options, each within one request to its disk; those that begin
// later, too. Safe in any thread and in signal handlers, and more than once. NULL is ignored.
void onesweep_cancel_throw(const struct onesweep_cancel *cancel);

// Whether it was thrown. False for NULL.
bool onesweep_cancel_is_thrown(const struct onesweep_cancel *cancel);

// Frees a cancel handle. Options that have it, and sweeps that run, go on as if it were never thrown any more. NULL is
// ignored.
void onesweep_cancel_free(struct onesweep_cancel *cancel);

// What a code means, in a few words. Never NULL; valid for ever.
const char *onesweep_strerror(onesweep_error error);

// What went wrong in the last call of this thread that failed, in one line: with the path, the cause, and what to do where
// that is known. Empty before. Valid until the next call of this thread fails, or the thread ends.
const char *onesweep_last_message(void);

// The error number (errno) of that failure; 0 where no system call failed.
int onesweep_last_errno(void);

// The path: the root as it was named, and the way from there. NULL for a failure that is about no file.
const char *onesweep_file_path(const struct onesweep_file *file);

// Why it failed, or NULL when it did not. What failed has no attributes and no content.
const struct onesweep_failure *onesweep_file_failure(const struct onesweep_file *file);

// The attributes, or NULL when it failed.
const struct onesweep_stat *onesweep_file_stat(const struct onesweep_file *file);

// The whole content, when it is in memory: that of every regular file but the streamed ones. NULL without; an empty file has a
// pointer and 0 bytes. `size` may be NULL.
const void *onesweep_file_data(const struct onesweep_file *file,
                               size_t *size);

// Reads content into the caller's memory, from memory or through the file system: up to `size` bytes from `offset` on, less at
// the end alone. `got` is told how many.
//
// Errors: ARGUMENT; NO_CONTENT; of streamed files IO, CHANGED when it is not what it was when it was looked at, CANCELLED.
//
// The caller sees to it: `buffer` has room for `size` bytes.
onesweep_error onesweep_file_pread(const struct onesweep_file *file,
                                   void *buffer,
                                   size_t size,
                                   uint64_t offset,
                                   size_t *got);

// Takes the content over: it leaves the budget, and is the caller's until `onesweep_buffer_free`. Afterwards the file has
// none. A pointer to the bytes that `onesweep_file_data` gave is good for as long as the buffer.
//
// Errors: ARGUMENT; NO_CONTENT for what is not in memory.
onesweep_error onesweep_file_take(const struct onesweep_file *file,
                                  struct onesweep_buffer **buffer);

// Keeps the file beyond the callback, until `onesweep_file_free`, once for each call; gives the same handle. Its content counts
// against the budget on: who keeps too much gets ONESWEEP_ERROR_BUDGET_LENT. NULL for NULL.
//
// The caller sees to it: The handle is that of a callback that runs, or is kept.
struct onesweep_file *onesweep_file_keep(struct onesweep_file *file);

// Frees a file that was kept, in any thread, also after the sweep. A file that was not kept frees itself. NULL is ignored.
//
// The caller sees to it: The handle was kept, and not freed since.
void onesweep_file_free(struct onesweep_file *file);

// By which way the content came: one of the ONESWEEP_ROUTE_ constants.
uint32_t onesweep_file_route(const struct onesweep_file *file);

// What is to be known of it: ONESWEEP_FILE_ constants, joined with `|`.
uint32_t onesweep_file_flags(const struct onesweep_file *file);

// Where it can be opened, as long as the sweep runs: its path, or its place in the snapshot. NULL when it failed.
const char *onesweep_file_open_path(const struct onesweep_file *file);

// Further names of the inode (hard links) that the sweep met: how many.
size_t onesweep_file_link_count(const struct onesweep_file *file);

// One of them, counted from 0. NULL beyond.
const char *onesweep_file_link(const struct onesweep_file *file, size_t index);

// The name by which the inode was handed over before, in an earlier part of a tree that is swept part by part; such a file
// has no content. Else NULL.
const char *onesweep_file_linked_to(const struct onesweep_file *file);

// Where a symbolic link points. NULL for all else.
const char *onesweep_file_link_target(const struct onesweep_file *file);

// Ranges of the content that are no holes: how many. All of it is one where holes are not known.
size_t onesweep_file_range_count(const struct onesweep_file *file);

// One of them, counted from 0, in rising order: its first byte, and the first behind it.
//
// Errors: ARGUMENT, also when there are not so many.
onesweep_error onesweep_file_range(const struct onesweep_file *file, size_t index, uint64_t *start, uint64_t *end);

// Extended attributes (ONESWEEP_XATTRS): how many.
size_t onesweep_file_xattr_count(const struct onesweep_file *file);

// One of them, counted from 0, valid as long as the file.
//
// Errors: ARGUMENT, also when there are not so many.
onesweep_error onesweep_file_xattr(const struct onesweep_file *file, size_t index, struct onesweep_xattr *xattr);

// Tells of each directory of the named paths how the files directly in it lie for who reads them one by one, and how they
// would lie packed; reads no content. `reader`, one of the ONESWEEP_READER_ constants, is the order in which that one reads.
// Failures come first. `total` may be NULL; else it gets the sum, unless the call fails. Of the options, those that tell where
// to look count, and the disk model; a tree larger than the limit of names is looked at in its first part.
//
// Errors: ARGUMENT, ROOT, NO_ROOTS, SETTING, SNAPSHOT, SYSTEM, CANCELLED.
//
// The caller sees to it: `paths` has `path_count` strings.
onesweep_error onesweep_layout(const char *const *paths,
                               size_t path_count,
                               const struct onesweep_options *options,
                               uint32_t reader,
                               onesweep_directory_callback callback,
                               void *user,
                               struct onesweep_layout_figures *total);

// The same for open directories and files, as of `onesweep_bulk_read_fd`.
//
// The caller sees to it: `fds` has `fd_count` numbers.
onesweep_error onesweep_layout_fd(const int *fds,
                                  size_t fd_count,
                                  const struct onesweep_options *options,
                                  uint32_t reader,
                                  onesweep_directory_callback callback,
                                  void *user,
                                  struct onesweep_layout_figures *total);

// Makes options with all defaults. Never NULL.
struct onesweep_options *onesweep_options_new(void);

// Frees options. NULL is ignored.
void onesweep_options_free(struct onesweep_options *options);

// Sets all flags: ONESWEEP_DEVICE and those after it, joined with `|`. Those left out are cleared. Default 0.
onesweep_error onesweep_options_set_flags(struct onesweep_options *options, uint32_t flags);

// Bytes that files in memory may hold, over all disks. Default 256 MiB, at least 64 KiB.
onesweep_error onesweep_options_set_budget(struct onesweep_options *options, uint64_t bytes);

// Files over so many bytes are not put together in memory but streamed (`onesweep_file_pread`). Default: a quarter of the
// budget.
onesweep_error onesweep_options_set_large(struct onesweep_options *options,
                                          uint64_t bytes);

// Bytes for names and places of files; a larger tree is swept part by part. Default: an eighth of the memory.
onesweep_error onesweep_options_set_catalog_limit(struct onesweep_options *options, uint64_t bytes);

// The order of reading: one of the ONESWEEP_ORDER_ constants.
onesweep_error onesweep_options_set_order(struct onesweep_options *options, uint32_t order);

// How fragments become requests: one of the ONESWEEP_STRATEGY_ constants.
onesweep_error onesweep_options_set_strategy(struct onesweep_options *options, uint32_t strategy);

// How files wait for their fragments: one of the ONESWEEP_REASSEMBLY_ constants. `threshold` is for
// ONESWEEP_REASSEMBLY_THRESHOLD alone.
onesweep_error onesweep_options_set_reassembly(struct onesweep_options *options,
                                               uint32_t reassembly,
                                               uint64_t threshold);

// The longest that writers are held by ONESWEEP_SNAPSHOT, in milliseconds. Default 30 s.
onesweep_error onesweep_options_set_freeze_limit(struct onesweep_options *options, uint64_t milliseconds);

// Leaves out what matches a pattern, in GNU tar's meaning of `--exclude`. Adds to those before.
//
// The caller sees to it: `pattern` is a string or NULL.
onesweep_error onesweep_options_add_exclude(struct onesweep_options *options, const char *pattern);

// Which entries are handed over: ONESWEEP_ENTRIES_FILES or ONESWEEP_ENTRIES_ALL.
onesweep_error onesweep_options_set_entries(struct onesweep_options *options, uint32_t entries);

// What happens to the page cache: ONESWEEP_CACHE_UNTOUCHED or ONESWEEP_CACHE_FILL.
onesweep_error onesweep_options_set_cache(struct onesweep_options *options, uint32_t policy);

// Where names and places come from: one of the ONESWEEP_METADATA_ constants.
onesweep_error onesweep_options_set_metadata(struct onesweep_options *options, uint32_t source);

// Reads at most so many bytes a second. Default: no limit.
onesweep_error onesweep_options_set_bandwidth_limit(struct onesweep_options *options, uint64_t bytes_per_second);

// Requests in flight for each disk, 1 to 1024. Default 16.
onesweep_error onesweep_options_set_queue_depth(struct onesweep_options *options, size_t requests);

// Gaps of up to so many bytes are read through (ONESWEEP_STRATEGY_MERGED). Default: what costs as much as a seek.
onesweep_error onesweep_options_set_gap(struct onesweep_options *options, uint64_t bytes);

// The largest request in bytes, a multiple of 64 KiB. Default 4 MiB.
onesweep_error onesweep_options_set_max_request(struct onesweep_options *options, uint64_t bytes);

// The disk that times are predicted for, by its name (`onesweep plan --help` lists them). Default barracuda-7200.11.
//
// The caller sees to it: `name` is a string or NULL.
onesweep_error onesweep_options_set_disk_model(struct onesweep_options *options, const char *name);

// The directory that relative paths are looked up in. Default: the current one.
//
// The caller sees to it: `directory` is a string or NULL.
onesweep_error onesweep_options_set_base(struct onesweep_options *options, const char *directory);

// Where an XFS among the images has its realtime device (`mkfs.xfs -r rtdev=`): an image, a device, or a partition of one.
// Default: none; files there have no content that could be read.
//
// The caller sees to it: `device` is a string or NULL.
onesweep_error onesweep_options_set_rtdev(struct onesweep_options *options,
                                          const char *device);

// Where an XFS among the images has its log, when that is not in it (`mkfs.xfs -l logdev=`): an image, a device, or a partition of
// one. Default: none; such an XFS can't be read.
//
// The caller sees to it: `device` is a string or NULL.
onesweep_error onesweep_options_set_logdev(struct onesweep_options *options,
                                           const char *device);

// How many threads call back, 1 to 1024, for callbacks that need the CPU. With 1, the default, that is the thread that called
// the library; with more, none of them is.
onesweep_error onesweep_options_set_threads(struct onesweep_options *options,
                                            size_t threads);

// The handle that stops what is called with these options. It may be freed before the options. NULL: none any more.
onesweep_error onesweep_options_set_cancel(struct onesweep_options *options, const struct onesweep_cancel *cancel);

// Who is told of progress, with `user` for its own use. NULL: nobody any more.
onesweep_error onesweep_options_set_progress(struct onesweep_options *options,
                                             onesweep_progress_callback callback,
                                             void *user);

// Walks, maps and plans a sweep of all named paths; reads no content. Of a tree larger than the limit of names
// (`onesweep_options_set_catalog_limit`) it is the plan of the first part. `plan` gets a handle, or NULL when the call fails.
//
// Errors: ARGUMENT, ROOT, NO_ROOTS, SETTING, DEVICE, SNAPSHOT, SYSTEM. All else is a failure of the plan
// (`onesweep_plan_failures`). A plan that was cancelled while it was made is ONESWEEP_OK and not whole.
//
// The caller sees to it: `paths` has `path_count` strings.
onesweep_error onesweep_plan_new(const char *const *paths,
                                 size_t path_count,
                                 const struct onesweep_options *options,
                                 struct onesweep_plan **plan);

// The same for open directories and files, as of `onesweep_bulk_read_fd`. They may be closed afterwards.
//
// The caller sees to it: `fds` has `fd_count` numbers.
onesweep_error onesweep_plan_new_fd(const int *fds,
                                    size_t fd_count,
                                    const struct onesweep_options *options,
                                    struct onesweep_plan **plan);

// Frees a plan, carried out or not. NULL is ignored.
void onesweep_plan_free(struct onesweep_plan *plan);

// What the plan costs, on all disks together.
//
// Errors: ARGUMENT, USED.
onesweep_error onesweep_plan_estimate(const struct onesweep_plan *plan, struct onesweep_estimate *estimate);

// What the same files would cost in another order and by another strategy; ONESWEEP_STRATEGY_AUTO is UNMERGED here.
//
// Errors: ARGUMENT, USED.
onesweep_error onesweep_plan_estimate_with(const struct onesweep_plan *plan,
                                           uint32_t order,
                                           uint32_t strategy,
                                           struct onesweep_estimate *estimate);

// Gives the plan of each disk to the callback.
//
// Errors: ARGUMENT, USED, CANCELLED.
onesweep_error onesweep_plan_disks(const struct onesweep_plan *plan, onesweep_disk_plan_callback callback, void *user);

// Gives each file to the callback, in the order in which they will be read.
//
// Errors: ARGUMENT, USED, CANCELLED.
onesweep_error onesweep_plan_files(const struct onesweep_plan *plan,
                                   onesweep_planned_file_callback callback,
                                   void *user);

// Gives each failure that was met while the plan was made to the callback. `onesweep_plan_run` hands them over, too.
//
// Errors: ARGUMENT, USED, CANCELLED.
onesweep_error onesweep_plan_failures(const struct onesweep_plan *plan, onesweep_failure_callback callback, void *user);

// Whether the tree was larger than the limit of names, so that this is the plan of its first part. False for NULL, and when it
// was carried out.
bool onesweep_plan_is_partial(const struct onesweep_plan *plan);

// Carries the plan out, once: as `onesweep_bulk_read`, with the options that it was made with.
//
// Errors: ARGUMENT, USED, SYSTEM; CANCELLED when it ended early.
onesweep_error onesweep_plan_run(const struct onesweep_plan *plan,
                                 onesweep_file_callback callback,
                                 void *user,
                                 struct onesweep_counts *counts);

// Connects to the server that listens at `socket`; NULL: at $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock. `service` gets a
// handle, or NULL when the call fails.
//
// Errors: ARGUMENT, NO_SERVER.
//
// The caller sees to it: `socket` is a string or NULL.
onesweep_error onesweep_service_connect(const char *socket,
                                        struct onesweep_service **service);

// Ends a connection. NULL is ignored.
void onesweep_service_free(struct onesweep_service *service);

// Ends what a connection is asked: the question that waits for its answer, those of other threads that wait for their turn, and
// all later ones are CANCELLED, at once. A server that has just begun may answer in minutes only. Safe in any thread, in signal
// handlers (errno may be another one then), and more than once; the handle is freed as ever, when these calls have returned. NULL is
// ignored. Since 1.1.
void onesweep_service_stop(const struct onesweep_service *service);

// What a directory comes to with all below: the figures of `du`, as this user may see them, without a crawl. What is mounted
// below isn't in it, so it has to be asked for by itself; other subvolumes of a btrfs are. `freshness` is one of the
// ONESWEEP_FRESHNESS_ constants.
//
// It returns when the server has answered, however long that takes; `onesweep_service_stop` ends it.
//
// Errors: ARGUMENT; ROOT when the directory can't be opened; NOT_TRACKED, DENIED, REFUSED; CONNECTION; CANCELLED.
//
// The caller sees to it: `directory` is a string or NULL.
onesweep_error onesweep_service_summary(const struct onesweep_service *service,
                                        const char *directory,
                                        uint32_t freshness,
                                        struct onesweep_summary *summary);

// The same for an open directory, which stays the caller's.
onesweep_error onesweep_service_summary_fd(const struct onesweep_service *service,
                                           int directory_fd,
                                           uint32_t freshness,
                                           struct onesweep_summary *summary);

// The version of the library that runs, as "1.1.0": of its interface, which has numbers of its own.
const char *onesweep_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ONESWEEP_H */
