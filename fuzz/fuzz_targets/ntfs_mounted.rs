#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| onesweep_fuzz::run_image("ntfs_mounted", input));
