//! What every [`ReadQueue`] promises, asked of each implementation in turn.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::*;
use crate::buffer::FileBuffer;
use crate::files::{CURRENT_DIR, open_direct_at};
use crate::testing::skipped;

/// Runs `test` on each kind of queue, `depth` deep.
fn on_each_queue(depth: usize, test: impl Fn(&mut dyn ReadQueue)) {
    match UringQueue::new(depth) {
        Ok(mut queue) => test(&mut queue),
        Err(error) => skipped(&format!("no io_uring: {error}")),
    }
    for threads in [1, 3] {
        test(&mut PoolQueue::new(depth, threads));
    }
    test(&mut PoolQueue::of_copies(depth, 2));
    test(&mut without_threads(depth));
    test(best_queue(depth).as_mut());
}

/// A pool for which the system refused every thread.
fn without_threads(depth: usize) -> PoolQueue {
    PoolQueue::of_threads(depth, 0)
}

/// A file of `len` bytes, each of which tells its offset to those who know [`byte_at`].
fn sample(len: usize) -> (tempfile::NamedTempFile, Arc<OwnedFd>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..len).map(byte_at).collect();
    file.write_all(&bytes).unwrap();
    file.as_file().sync_all().unwrap();
    let fd = open(file.path());
    (file, fd)
}

fn open(path: &Path) -> Arc<OwnedFd> {
    Arc::new(File::open(path).unwrap().into())
}

fn byte_at(offset: usize) -> u8 {
    (offset as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0]
}

fn op(token: u64, file: &Arc<OwnedFd>, offset: u64, parts: Vec<ReadPart>) -> ReadOp {
    ReadOp { token, file: Arc::clone(file), offset, parts, dont_cache: false, copy: None }
}

/// One part that is a whole new buffer.
fn fresh(len: usize) -> Vec<ReadPart> {
    vec![ReadPart::Buffer(FileBuffer::zeroed(len).lend(0..len))]
}

/// Asserts that the buffers among `parts` hold what the sample has from `offset` on, as far as `read` bytes go.
#[track_caller]
fn assert_holds(parts: &[ReadPart], offset: usize, read: usize) {
    let (mut at, end) = (offset, offset + read);
    for part in parts {
        if let ReadPart::Buffer(part) = part {
            for (byte, at) in part.as_slice().iter().zip(at..end) {
                assert_eq!(*byte, byte_at(at), "byte {at}");
            }
        }
        at += part.len();
    }
}

#[test]
fn bytes_arrive() {
    let (_kept, file) = sample(10_000);
    on_each_queue(4, |queue| {
        queue.push(op(7, &file, 123, fresh(5000))).unwrap();
        assert_eq!(queue.in_flight(), 1);
        let done = queue.wait().unwrap();
        assert_eq!((done.token, done.result.unwrap(), queue.in_flight()), (7, 5000, 0));
        assert_holds(&done.parts, 123, 5000);
    });
}

#[test]
fn one_reader_keeps_the_order() {
    // All bytes are cached, so io_uring answers each read when it is submitted.
    let (kept, file) = sample(100 * 512);
    let in_order = |queue: &mut dyn ReadQueue| {
        for token in 0..100 {
            queue.push(op(token, &file, (99 - token) * 512, fresh(512))).unwrap();
        }
        queue.submit().unwrap();
        for token in 0..100 {
            assert_eq!(queue.wait().unwrap().token, token);
        }
    };
    std::fs::read(kept.path()).unwrap();
    in_order(&mut PoolQueue::new(100, 1));
    in_order(&mut without_threads(100));
    match UringQueue::new(100) {
        Ok(mut queue) => in_order(&mut queue),
        Err(error) => skipped(&format!("no io_uring: {error}")),
    }
}

#[test]
fn end_of_file_is_a_short_read() {
    let (_kept, file) = sample(1000);
    on_each_queue(4, |queue| {
        queue.push(op(0, &file, 900, fresh(500))).unwrap();
        let done = queue.wait().unwrap();
        assert_eq!(done.result.unwrap(), 100);
        assert_holds(&done.parts, 900, 100);
        queue.push(op(1, &file, 5000, fresh(500))).unwrap();
        assert_eq!(queue.wait().unwrap().result.unwrap(), 0);
    });
}

#[test]
fn parts_are_filled_one_after_the_other() {
    let (_kept, file) = sample(1 << 20);
    on_each_queue(4, |queue| {
        let buffer = FileBuffer::zeroed(5000);
        let parts = vec![
            ReadPart::Skip(10),
            ReadPart::Buffer(buffer.lend(0..1000)),
            ReadPart::Skip(700_000),
            ReadPart::Buffer(buffer.lend(3000..5000)),
            ReadPart::Buffer(buffer.lend(1000..1001)),
            ReadPart::Skip(0),
        ];
        let len: usize = parts.iter().map(ReadPart::len).sum();
        queue.push(op(0, &file, 77, parts)).unwrap();
        let done = queue.wait().unwrap();
        assert_eq!(done.result.unwrap(), len);
        assert_holds(&done.parts, 77, len);
        drop(done.parts);
        assert!(buffer.try_into_bytes().unwrap()[1001..3000].iter().all(|&byte| byte == 0));
    });
}

#[test]
fn reads_without_bytes_end() {
    let (_kept, file) = sample(10);
    on_each_queue(4, |queue| {
        queue.push(op(0, &file, 0, Vec::new())).unwrap();
        assert_eq!(queue.wait().unwrap().result.unwrap(), 0);
        queue.push(op(1, &file, 0, vec![ReadPart::Skip(10)])).unwrap();
        assert_eq!(queue.wait().unwrap().result.unwrap(), 10);
    });
}

#[test]
fn too_many_pieces_are_a_short_read() {
    let (_kept, file) = sample(4000);
    on_each_queue(4, |queue| {
        let buffer = FileBuffer::zeroed(1500);
        let parts = (0..1500).map(|at| ReadPart::Buffer(buffer.lend(at..at + 1))).collect();
        queue.push(op(0, &file, 5, parts)).unwrap();
        let mut done = queue.wait().unwrap();
        assert_eq!(done.result.unwrap(), PIECES_MAX);
        assert_holds(&done.parts, 5, PIECES_MAX);
        advance_parts(&mut done.parts, PIECES_MAX);
        queue.push(op(0, &file, 5 + PIECES_MAX as u64, done.parts)).unwrap();
        let done = queue.wait().unwrap();
        assert_eq!(done.result.unwrap(), 1500 - PIECES_MAX);
        drop(done.parts);
        let bytes = buffer.try_into_bytes().unwrap();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == byte_at(5 + at)));
    });
}

#[test]
fn failures_belong_to_their_read() {
    let (kept, file) = sample(1000);
    let directory = open(kept.path().parent().unwrap());
    let write_only: Arc<OwnedFd> = Arc::new(File::options().write(true).open(kept.path()).unwrap().into());
    on_each_queue(4, |queue| {
        queue.push(op(1, &directory, 0, fresh(10))).unwrap();
        queue.push(op(2, &write_only, 0, fresh(10))).unwrap();
        queue.push(op(3, &file, 0, fresh(10))).unwrap();
        for _ in 0..3 {
            let done = queue.wait().unwrap();
            assert_eq!(done.parts.len(), 1, "the parts come back from a failed read too");
            let code = done.result.map_err(|error| error.raw_os_error());
            match done.token {
                1 => assert_eq!(code, Err(Some(libc::EISDIR))),
                2 => assert_eq!(code, Err(Some(libc::EBADF))),
                _ => assert_eq!(code, Ok(10)),
            }
        }
    });
}

#[test]
fn direct_reads_must_be_aligned() {
    let (kept, _file) = sample(16 << 10);
    let Ok(direct) = open_direct_at(CURRENT_DIR, kept.path()).map(Arc::new) else {
        return skipped(&format!("no O_DIRECT for {}", kept.path().display()));
    };
    on_each_queue(4, |queue| {
        queue.push(op(1, &direct, 4096, fresh(8192))).unwrap();
        let done = queue.wait().unwrap();
        assert_eq!(done.result.unwrap(), 8192);
        assert_holds(&done.parts, 4096, 8192);
        queue.push(op(2, &direct, 1, fresh(8192))).unwrap();
        match queue.wait().unwrap().result {
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
            Ok(read) => eprintln!("this file system reads {read} unaligned bytes"),
        }
    });
}

#[test]
fn impossible_offsets_are_refused() {
    let (_kept, file) = sample(10);
    on_each_queue(4, |queue| {
        for offset in [u64::MAX, 1 << 63] {
            let error = queue.push(op(0, &file, offset, fresh(10))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(queue.in_flight(), 0);
    });
}

#[test]
fn capacity_is_kept() {
    let (_kept, file) = sample(10);
    on_each_queue(3, |queue| {
        assert_eq!(queue.capacity(), 3);
        for round in 0..3 {
            for token in 0..3 {
                assert_eq!(queue.in_flight(), token);
                queue.push(op(token as u64, &file, 0, fresh(10))).unwrap();
                if round == 1 {
                    queue.submit().unwrap();
                }
            }
            let error = queue.push(op(3, &file, 0, fresh(10))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            for left in [2, 1, 0] {
                assert_eq!(queue.wait().unwrap().result.unwrap(), 10);
                assert_eq!(queue.in_flight(), left);
            }
        }
    });
}

#[test]
fn waiting_for_nothing_fails() {
    on_each_queue(3, |queue| {
        assert_eq!(queue.wait().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(queue.try_wait().is_none());
        queue.submit().unwrap();
    });
}

#[test]
fn try_wait_takes_what_is_over() {
    let (_kept, file) = sample(10);
    on_each_queue(3, |queue| {
        queue.push(op(5, &file, 0, fresh(10))).unwrap();
        assert!(queue.try_wait().is_none(), "nothing begins before it is submitted");
        queue.submit().unwrap();
        let done = loop {
            match queue.try_wait() {
                Some(done) => break done,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!((done.token, done.result.unwrap()), (5, 10));
    });
}

#[test]
fn dropping_gives_the_memory_back() {
    let (kept, _file) = sample(4 << 20);
    let direct = open_direct_at(CURRENT_DIR, kept.path()).map_or_else(|_| open(kept.path()), Arc::new);
    let fill = |mut queue: Box<dyn ReadQueue>, submit: bool| {
        let buffer = FileBuffer::zeroed(4 << 20);
        for number in 0..64 {
            let (start, end) = (number * (64 << 10), (number + 1) * (64 << 10));
            let part = ReadPart::Buffer(buffer.lend(start..end));
            queue.push(op(0, &direct, start as u64, vec![part, ReadPart::Skip(4096)])).unwrap();
        }
        if submit {
            queue.submit().unwrap();
        }
        drop(queue);
        assert_eq!(buffer.lent(), 0);
        buffer.try_into_bytes().unwrap();
    };
    for submit in [true, false] {
        if let Ok(queue) = UringQueue::new(64) {
            fill(Box::new(queue), submit);
        }
        fill(Box::new(PoolQueue::new(64, 3)), submit);
        fill(Box::new(without_threads(64)), submit);
    }
    assert_eq!(Arc::strong_count(&direct), 1);
}

#[test]
fn dont_cache_works_or_says_so() {
    let (_kept, file) = sample(8192);
    on_each_queue(3, |queue| {
        queue.push(ReadOp { dont_cache: true, ..op(0, &file, 0, fresh(8192)) }).unwrap();
        let done = queue.wait().unwrap();
        match done.result {
            Ok(read) => assert_holds(&done.parts, 0, read),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
    });
}

#[test]
fn many_reads_go_through_a_small_queue() {
    const LEN: usize = 300_000;
    let (_kept, file) = sample(LEN);
    on_each_queue(8, |queue| {
        let mut random = 1_u64;
        let mut below = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % bound
        };
        let mut offsets = Vec::new();
        for token in 0..600 {
            if queue.in_flight() == queue.capacity() {
                check(queue.wait().unwrap(), &offsets);
            }
            let offset = below(LEN);
            let parts = (0..below(6))
                .map(|_| match below(3) {
                    0 => ReadPart::Skip(below(20_000)),
                    _ => ReadPart::Buffer(FileBuffer::zeroed(20_000).lend(0..below(20_000))),
                })
                .collect();
            offsets.push(offset);
            queue.push(op(token, &file, offset as u64, parts)).unwrap();
        }
        while queue.in_flight() > 0 {
            check(queue.wait().unwrap(), &offsets);
        }
    });

    fn check(done: Completion, offsets: &[usize]) {
        let (offset, read) = (offsets[done.token as usize], done.result.unwrap());
        let asked: usize = done.parts.iter().map(ReadPart::len).sum();
        assert_eq!(read, asked.min(LEN - offset));
        assert_holds(&done.parts, offset, read);
    }
}

#[test]
fn advanced_parts_are_the_rest() {
    let buffer = FileBuffer::zeroed(100);
    let all = || vec![ReadPart::Buffer(buffer.lend(0..10)), ReadPart::Skip(20), ReadPart::Buffer(buffer.lend(50..60))];
    let rest = |read: usize| {
        let mut parts = all();
        advance_parts(&mut parts, read);
        parts.iter().map(ReadPart::len).collect::<Vec<_>>()
    };
    assert_eq!(rest(0), [10, 20, 10]);
    assert_eq!(rest(4), [6, 20, 10]);
    assert_eq!(rest(10), [20, 10]);
    assert_eq!(rest(29), [1, 10]);
    assert_eq!(rest(30), [10]);
    assert_eq!(rest(40), [] as [usize; 0]);
}

#[test]
#[should_panic(expected = "more bytes than were asked for")]
fn advancing_too_far_panics() {
    advance_parts(&mut vec![ReadPart::Skip(3)], 4);
}
