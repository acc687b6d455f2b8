//! What the fuzzer calls: the wire format, and a server's session, with bytes that nobody has looked at before. Compiled for `cargo fuzz` and for the
//! tests of this crate, which go through all that the fuzzer has found before.

use crate::{
    serve::conversation,
    wire::{Decoded, FRAME_BYTES_MAX, answer, request},
};

/// Bytes that [`frames`] may have allocated at any moment: a frame, written again, and its hashes.
pub const FRAMES_MEMORY: usize = 4 * FRAME_BYTES_MAX;

/// Reads bytes as what a client says, and as what a server says. Panics where a promise is broken: that decoding ends, takes
/// no more than there is, and that what it took for a frame is written as just those bytes.
pub fn frames(input: &[u8]) {
    all(input, |bytes| {
        let decoded = request(bytes)?;
        Ok(decoded.map(|(request, used)| (Box::new(move |out: &mut Vec<u8>| request.encode(out)) as Encode<'_>, used)))
    });
    all(input, |bytes| {
        let decoded = answer(bytes)?;
        Ok(decoded.map(|(answer, used)| (Box::new(move |out: &mut Vec<u8>| answer.encode(out)) as Encode<'_>, used)))
    });
}

/// Bytes that [`session`] may have allocated at any moment, beside what it was given: the server's store, and what it answers.
pub const SESSION_MEMORY: usize = 8 << 20;

/// Says these bytes to a server: the first tells how, see `serve::conversation`. Panics where a promise is broken: that each request is
/// answered as often as it has to be, that a block is one that was asked for, and that no more wait than may.
pub fn session(input: &[u8]) {
    _ = conversation::hold(input);
}

type Encode<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;

fn all<'a>(mut input: &'a [u8], decode: impl Fn(&'a [u8]) -> Decoded<Encode<'a>>) {
    let mut again = Vec::new();
    while let Ok(Some((encode, used))) = decode(input) {
        assert!((5..=FRAME_BYTES_MAX).contains(&used), "a frame of {used} bytes");
        again.clear();
        encode(&mut again);
        assert_eq!(again, input[..used], "a frame that is written otherwise than it was read");
        input = &input[used..];
    }
    assert!(input.is_empty() || input.len() < FRAME_BYTES_MAX || decode(input).is_err(), "a frame that never ends");
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        id::{DomainName, Hash},
        serve::conversation::{Came, way},
        wire::{Answer, EngineName, Greeting, Priority, Record, Request},
    };

    /// What broke a promise once.
    #[test]
    fn no_known_input_breaks_a_promise() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crashers/peer_frames");
        for file in fs::read_dir(folder).into_iter().flatten() {
            frames(&fs::read(file.unwrap().path()).unwrap());
        }
    }

    const ENGINE: EngineName<'_> = EngineName { name: "engine", epoch: "1" };
    const CLEAN: Record<'_> = Record { signer: [5; 32], time: 6, infection: None, signature: b"signature" };
    const INFECTED: Record<'_> = Record { infection: Some("bad"), ..CLEAN };

    fn requests() -> Vec<u8> {
        let (mut out, hash) = (Vec::new(), Hash::from_bytes([3; 32]));
        Greeting { lowest: 1, highest: 1, domain: DomainName([4; 16]) }.encode(&mut out);
        Request::get(&mut out, 7, Priority::Waiting, &[hash; 3]);
        Request::put(&mut out, 8, &hash, b"block");
        Request::verdicts(&mut out, 11, ENGINE, &[hash; 2]);
        Request::tell(&mut out, 12, ENGINE, &[(hash, CLEAN), (hash, INFECTED)]);
        out
    }

    fn answers() -> Vec<u8> {
        let mut out = Vec::new();
        Answer::Block { id: 9, bytes: b"block" }.encode(&mut out);
        Answer::has(&mut out, 10, &[true; 11]);
        Answer::verdicts(&mut out, 11, &[(0, INFECTED), (1, CLEAN)]);
        Answer::Told { id: 12, new: 2 }.encode(&mut out);
        out
    }

    /// After the greeting: known blocks and others, now and later, taken back, kept; more than may be asked for at a time.
    fn conversation() -> Vec<u8> {
        let (mut out, domain) = (Vec::new(), crate::serve::conversation::domain());
        let [known, other] = crate::serve::conversation::BLOCKS.map(|block| domain.hash(block));
        let absent = Hash::from_bytes([3; 32]);
        Request::get(&mut out, 1, Priority::Prefetch, &[known, absent, other]);
        Request::get(&mut out, 4, Priority::Waiting, &[known; 20]);
        Request::Cancel { first: 2, count: 9 }.encode(&mut out);
        Request::has(&mut out, 30, &[known, absent]);
        Request::put(&mut out, 31, &domain.hash(b"new"), b"new");
        Request::put(&mut out, 32, &absent, b"a lie");
        Request::get(&mut out, 33, Priority::Waiting, &[domain.hash(b"new"), absent]);
        Request::Stat { id: 40 }.encode(&mut out);
        Request::Ping { id: 41 }.encode(&mut out);
        Request::verdicts(&mut out, 42, ENGINE, &[absent; 2]);
        Request::tell(&mut out, 43, ENGINE, &[(absent, CLEAN)]);
        Request::tell(&mut out, 44, ENGINE, &[(known, INFECTED), (absent, INFECTED)]);
        Request::verdicts(&mut out, 45, ENGINE, &[absent, known]);
        out
    }

    /// Nobody guesses what hashes to what: seeds have to say it.
    #[test]
    fn seeds_ask_for_a_block_that_the_server_has() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let hash = crate::serve::conversation::domain().hash(crate::serve::conversation::BLOCKS[0]);
        let hex: String = hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(fs::read_to_string(seeds).unwrap().contains(&hex), "{hex}");
    }

    /// Whoever says it, and however it is served.
    #[test]
    fn a_conversation_is_understood_to_the_end() {
        for way in 0..128 {
            session(&[&[way], &conversation()[..]].concat());
        }
    }

    /// Else nothing of what a server does with verdicts would be looked at.
    #[test]
    fn verdicts_are_taken_of_a_scanner_who_has_signed_them_and_of_nobody_else() {
        let (mut said, absent) = (Vec::new(), Hash::from_bytes([3; 32]));
        Request::tell(&mut said, 1, ENGINE, &[(absent, INFECTED)]);
        Request::tell(&mut said, 2, ENGINE, &[(absent, CLEAN)]);
        Request::verdicts(&mut said, 3, ENGINE, &[absent; 2]);
        Request::verdicts(&mut said, 4, EngineName { epoch: "2", ..ENGINE }, &[absent]);
        let came = |way: u8| conversation::hold(&[&[way], &said[..]].concat());
        let all = way::SCANNER | way::KEEPS | way::CERTIFIED | way::SIGNED;
        assert_eq!(came(all), Came { taken: 1, known: 2 });
        for lacks in [way::SCANNER, way::KEEPS, way::CERTIFIED, way::SIGNED] {
            assert_eq!(came(all & !lacks), Came::default(), "without {lacks}");
        }
        // More than are kept of one epoch: none of them.
        let mut said = Vec::new();
        let many: Vec<_> = (0..9).map(|n| (Hash::from_bytes([n; 32]), CLEAN)).collect();
        Request::tell(&mut said, 1, ENGINE, &many);
        assert_eq!(conversation::hold(&[&[all], &said[..]].concat()), Came::default());
    }

    /// Else what is changed below would never be looked at.
    #[test]
    fn each_side_is_understood_to_the_end() {
        let (requests, answers) = (requests(), answers());
        let (mut heard, mut said) = (&requests[..], &answers[..]);
        while let Some((_, used)) = request(heard).unwrap() {
            heard = &heard[used..];
        }
        while let Some((_, used)) = answer(said).unwrap() {
            said = &said[used..];
        }
        assert_eq!((heard, said), (&[][..], &[][..]));
    }

    proptest! {
        #[test]
        fn changed_frames_break_no_promise(
            of_server in any::<bool>(),
            changes in vec((any::<usize>(), any::<u8>()), 0..6),
            cut in any::<usize>(),
        ) {
            let mut bytes = if of_server { answers() } else { requests() };
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.drain(..cut % bytes.len());
            frames(&bytes);
        }

        #[test]
        fn changed_conversations_break_no_promise(
            way in any::<u8>(),
            changes in vec((any::<usize>(), any::<u8>()), 0..6),
            cut in any::<usize>(),
        ) {
            let mut bytes = conversation();
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(bytes.len() - cut % 50);
            bytes.insert(0, way);
            session(&bytes);
        }
    }
}
