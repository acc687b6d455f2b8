#![no_main]

use onesweep_peer::fuzzing::{SESSION_MEMORY, session};

libfuzzer_sys::fuzz_target!(|input: &[u8]| onesweep_fuzz::within(SESSION_MEMORY, || session(input)));
