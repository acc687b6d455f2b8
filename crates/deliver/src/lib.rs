//! What is done with swept files.

pub mod tar;
