//! Contents are scanned once, for all machines of a trust domain.
//!
//! An engine looks at a content; its verdict is kept under the hash of the content and under the engine with the epoch of its
//! signatures, here and on the server. Only who scans may tell a server, and what he tells is signed, so that a server can
//! lose verdicts but not make any. A client counts those signed by who is on its own list. Whatever isn't known so is scanned
//! here; and where anybody who counts has found something, that is the verdict.
//!
//! | module | subject |
//! |---|---|
//! | [`engine`] | what all engines have in common |
//! | [`clamd`], [`command`], [`yara`] | the engines |
//! | [`content`] | what a content is called |
//! | [`statement`] | a signed verdict, and whose counts |
//! | [`store`] | statements that are kept |
//! | [`judge`] | what is known of a content, from wherever |

pub mod clamd;
pub mod command;
pub mod content;
pub mod engine;
pub mod judge;
pub mod statement;
pub mod store;
pub mod yara;

pub use self::{
    engine::{Content, Engine, EngineError, EngineId, Verdict},
    judge::{Judge, Known, Source},
    statement::{Signer, SignerId, Statement, Trust},
    store::{Verdicts, VerdictsError},
};
