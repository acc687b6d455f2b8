//! The wire format holds for any bytes: what is written comes back, what is cut is waited for, what is changed is another
//! frame or an error.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::id::DomainName;

fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash::from_bytes)
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::Waiting), Just(Priority::Prefetch)]
}

/// A request, as bytes.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }
    let greeting = (any::<u16>(), any::<u16>(), any::<[u8; 16]>()).prop_map(|(one, other, domain)| {
        let greeting = Greeting { lowest: one.min(other), highest: one.max(other), domain: DomainName(domain) };
        written(|out| greeting.encode(out))
    });
    prop_oneof![
        greeting,
        (0..u32::MAX - 2000, priority(), vec(hash(), 1..20))
            .prop_map(|(first, priority, hashes)| written(|out| Request::get(out, first, priority, &hashes))),
        (any::<u32>(), vec(hash(), 1..20)).prop_map(|(id, hashes)| written(|out| Request::has(out, id, &hashes))),
        (any::<u32>(), hash(), vec(any::<u8>(), 1..300))
            .prop_map(|(id, hash, bytes)| written(|out| Request::put(out, id, &hash, &bytes))),
        (0..u32::MAX - 70_000, 1..u16::MAX)
            .prop_map(|(first, count)| written(|out| Request::cancel(out, first, count))),
        any::<u32>().prop_map(|id| written(|out| Request::stat(out, id))),
        any::<u32>().prop_map(|id| written(|out| Request::ping(out, id))),
        (any::<u32>(), engine(), vec(hash(), 1..20)).prop_map(|(id, (name, epoch), hashes)| {
            written(|out| Request::verdicts(out, id, EngineName { name: &name, epoch: &epoch }, &hashes))
        }),
        (any::<u32>(), engine(), vec((hash(), record()), 1..6)).prop_map(|(id, (name, epoch), records)| {
            let told: Vec<_> = records.iter().map(|(hash, record)| (*hash, borrowed(record))).collect();
            written(|out| Request::tell(out, id, EngineName { name: &name, epoch: &epoch }, &told))
        }),
    ]
}

fn engine() -> impl Strategy<Value = (String, String)> {
    ("[a-z]{1,20}", ".{1,40}")
}

type OwnedRecord = ([u8; 32], u64, Option<String>, Vec<u8>);

fn record() -> impl Strategy<Value = OwnedRecord> {
    (any::<[u8; 32]>(), any::<u64>(), proptest::option::of(".{1,30}"), vec(any::<u8>(), 0..80))
}

fn borrowed((signer, time, infection, signature): &OwnedRecord) -> Record<'_> {
    Record { signer: *signer, time: *time, infection: infection.as_deref(), signature }
}

/// An answer, as bytes.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    fn written(answer: &Answer<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        answer.encode(&mut out);
        out
    }
    let welcome = (any::<u16>(), [1..u32::MAX, 1..u32::MAX, 1..u32::MAX, 1..u32::MAX]);
    let welcome = welcome.prop_map(|(version, [in_flight, batch, block_bytes, put_bytes])| {
        written(&Answer::Welcome(Welcome { version, in_flight, batch, block_bytes, put_bytes }))
    });
    let has = (any::<u32>(), vec(any::<bool>(), 1..40)).prop_map(|(id, are_there)| {
        let mut out = Vec::new();
        Answer::has(&mut out, id, &are_there);
        out
    });
    prop_oneof![
        welcome,
        has,
        (any::<u32>(), vec(any::<u8>(), 1..300)).prop_map(|(id, bytes)| written(&Answer::Block { id, bytes: &bytes })),
        (any::<u32>(), any::<bool>()).prop_map(|(id, was_known)| written(&Answer::Stored { id, was_known })),
        (any::<u32>(), 0..7_usize)
            .prop_map(|(id, at)| written(&Answer::Failed { id, why: super::answer::tests::refusal(at) })),
        (any::<u32>(), ".{0,40}").prop_map(|(id, text)| written(&Answer::Stat { id, text: &text })),
        any::<u32>().prop_map(|id| written(&Answer::Pong { id })),
        (0..7_usize).prop_map(|at| written(&Answer::Closing(super::answer::tests::closing(at)))),
        (any::<u32>(), vec((any::<u16>(), record()), 0..6)).prop_map(|(id, records)| {
            let found: Vec<_> = records.iter().map(|(place, record)| (*place, borrowed(record))).collect();
            let mut out = Vec::new();
            Answer::verdicts(&mut out, id, &found);
            out
        }),
        (any::<u32>(), any::<u16>()).prop_map(|(id, new)| written(&Answer::Told { id, new })),
    ]
}

/// What holds for each side. `again` decodes a frame and encodes it again.
fn holds(bytes: &[u8], flip: (usize, u8), again: impl Fn(&[u8]) -> Result<Option<(Vec<u8>, usize)>, FrameError>) {
    // What was written comes back, whatever follows.
    let mut followed = bytes.to_vec();
    followed.extend_from_slice(b"\xff\xff\xff");
    assert_eq!(again(&followed), Ok(Some((bytes.to_vec(), bytes.len()))));
    // What is cut is waited for.
    for end in 0..bytes.len() {
        assert_eq!(again(&bytes[..end]), Ok(None), "cut at {end}");
    }
    // What is changed is an error, another frame, or waits for more.
    let mut changed = bytes.to_vec();
    let at = flip.0 % changed.len();
    changed[at] ^= flip.1;
    if let Ok(Some((written, used))) = again(&changed) {
        assert_ne!(written, bytes);
        assert_eq!(written, changed[..used]);
    }
}

fn request_again(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, FrameError> {
    let Some((request, used)) = request(bytes)? else { return Ok(None) };
    let mut out = Vec::new();
    request.encode(&mut out);
    Ok(Some((out, used)))
}

fn answer_again(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, FrameError> {
    let Some((answer, used)) = answer(bytes)? else { return Ok(None) };
    let mut out = Vec::new();
    answer.encode(&mut out);
    Ok(Some((out, used)))
}

proptest! {
    #[test]
    fn requests_hold(bytes in requests(), at in any::<usize>(), change in 1..=u8::MAX) {
        holds(&bytes, (at, change), request_again);
    }

    #[test]
    fn answers_hold(bytes in answers(), at in any::<usize>(), change in 1..=u8::MAX) {
        holds(&bytes, (at, change), answer_again);
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in vec(any::<u8>(), 0..200), kind in 0_u8..16, length in 0_u32..200) {
        let mut framed = length.to_le_bytes().to_vec();
        framed.push(kind);
        framed.extend_from_slice(&bytes);
        let _ = (request_again(&bytes), request_again(&framed));
        framed[4] |= 0x80;
        let _ = (answer_again(&bytes), answer_again(&framed));
    }
}

#[test]
fn a_length_is_judged_before_anything_of_the_body_came() {
    for kind in 1..=10_u8 {
        for length in [0, 1, FRAME_BYTES_MAX as u32, u32::MAX] {
            let mut head = length.to_le_bytes().to_vec();
            assert_eq!(request(&head), Ok(None));
            head.push(kind);
            assert!(matches!(request(&head), Err(FrameError::Length { .. })) || kind == 10, "{kind} {length}");
            head[4] |= 0x80;
            assert!(answer(&head).is_err(), "{kind} {length}");
        }
    }
    assert_eq!(request(&[1, 0, 0, 0, 0x55]), Err(FrameError::Kind(0x55)));
}

#[test]
fn the_largest_frames_are_as_large_as_they_may_be() {
    let mut out = Vec::new();
    let block = vec![1; crate::id::BLOCK_BYTES_MAX];
    Request::put(&mut out, 1, &Hash::from_bytes([2; 32]), &block);
    assert_eq!(out.len(), FRAME_BYTES_MAX);
    assert!(matches!(request(&out), Ok(Some((Request::Put { id: 1, .. }, FRAME_BYTES_MAX)))));
    out.clear();
    let hashes = vec![Hash::from_bytes([3; 32]); BATCH_MAX];
    Request::get(&mut out, 0, Priority::Prefetch, &hashes);
    assert!(out.len() < FRAME_BYTES_MAX);
    let Ok(Some((Request::Get { hashes, .. }, _))) = request(&out) else { panic!("a batch") };
    assert_eq!(hashes.len(), BATCH_MAX);
}

#[test]
fn the_largest_answer_with_verdicts_is_a_frame() {
    let (infection, signature) = ("x".repeat(INFECTION_BYTES_MAX), [5; SIGNATURE_BYTES_MAX]);
    let record = Record { signer: [1; 32], time: 1, infection: Some(&infection), signature: &signature };
    let records = vec![(3, record); VERDICT_BATCH_MAX * VERDICTS_OF_ONE_MAX];
    let mut out = Vec::new();
    Answer::verdicts(&mut out, 1, &records);
    assert!(out.len() <= FRAME_BYTES_MAX, "{}", out.len());
    let Ok(Some((Answer::Verdicts { found, .. }, _))) = answer(&out) else { panic!("an answer") };
    assert!(found.iter().all(|(place, found)| place == [3, 0] && found == record) && found.len() == records.len());
    let told = vec![(Hash::from_bytes([7; 32]), record); VERDICT_BATCH_MAX];
    let (name, epoch) = ("n".repeat(ENGINE_BYTES_MAX), "e".repeat(EPOCH_BYTES_MAX));
    out.clear();
    Request::tell(&mut out, 1, EngineName { name: &name, epoch: &epoch }, &told);
    let Ok(Some((Request::Tell { told: read, .. }, used))) = request(&out) else { panic!("a request") };
    assert_eq!((read.len(), used, read.iter().count()), (VERDICT_BATCH_MAX, out.len(), VERDICT_BATCH_MAX));
}

#[test]
fn bodies_that_make_no_sense_are_refused() {
    let mut numbers = Vec::new();
    Request::get(&mut numbers, u32::MAX, Priority::Waiting, &[Hash::from_bytes([0; 32]); 2]);
    let mut count = Vec::new();
    Request::has(&mut count, 1, &[Hash::from_bytes([0; 32]); 2]);
    count[9] = 1;
    let mut backwards = Vec::new();
    Greeting { lowest: 2, highest: 1, domain: DomainName([0; 16]) }.encode(&mut backwards);
    let mut magic = Vec::new();
    Greeting { lowest: 1, highest: 1, domain: DomainName([0; 16]) }.encode(&mut magic);
    magic[5] ^= 1;
    for bytes in [numbers, count, backwards, magic] {
        assert!(matches!(request(&bytes), Err(FrameError::Body { .. })), "{bytes:?}");
    }
    let mut bits = Vec::new();
    Answer::has(&mut bits, 1, &[true, false, true]);
    *bits.last_mut().unwrap() |= 8;
    assert!(matches!(answer(&bits), Err(FrameError::Body { .. })));
}

#[test]
fn a_block_that_is_not_there_leaves_no_bytes() {
    let mut out = vec![9];
    let absent: Result<bool, ()> = Answer::block(&mut out, 1, |_| Ok(false));
    assert_eq!((absent, out.len()), (Ok(false), 1));
    let failed = Answer::block(&mut out, 1, |out| {
        out.extend_from_slice(b"half");
        Err("torn")
    });
    assert_eq!((failed, out.len()), (Err("torn"), 1));
    let there: Result<bool, ()> = Answer::block(&mut out, 7, |out| {
        out.extend_from_slice(b"all");
        Ok(true)
    });
    assert_eq!(there, Ok(true));
    assert_eq!(answer(&out[1..]), Ok(Some((Answer::Block { id: 7, bytes: b"all" }, out.len() - 1))));
}
