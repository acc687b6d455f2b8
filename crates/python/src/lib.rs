//! The package `onesweep` of Python, by PyO3: the sweep for programs in Python.
//!
//! `docs/python.md` has the guide, `python/onesweep/_onesweep.pyi` what each function takes and gives. This crate decides nothing:
//! it turns what Python says into calls of `onesweep`, `onesweep_deliver` and `onesweep_summary`, and what comes of them into
//! objects of Python.
//!
//! # How a call goes
//!
//! ```text
//!  Python ──► paths, options ──► a sweep in threads of its own ──► stream ──► file, record ──► Python
//!                │                        no lock of Python held       │
//!                └──► fault ◄──────────────────────────────────────────┘ errors, Ctrl-C
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `paths`, `options` | what Python names and wishes |
//! | `fault` | errors, as exceptions below `OSError` |
//! | `stream`, `wait` | what comes bit by bit, and what is waited for: without the lock, heeding signals, forks and closing |
//! | `reader`, `file` | a sweep that is iterated, and its files |
//! | `plan`, `layout`, `sum`, `du`, `table` | the other functions, one each |
//! | `record` | figures, as the dataclasses of `python/onesweep/_records.py` |
//! | `ffi` | what takes code that is unsafe: memory that Python looks at, descriptors that it has open |
//!
//! It is empty without the feature `extension`; `Cargo.toml` says why.

#[cfg(feature = "extension")]
mod extension;
