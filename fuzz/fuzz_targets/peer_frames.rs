#![no_main]

use onesweep_peer::fuzzing::{FRAMES_MEMORY, frames};

libfuzzer_sys::fuzz_target!(|input: &[u8]| onesweep_fuzz::within(FRAMES_MEMORY, || frames(input)));
