//! What is done with swept files.
