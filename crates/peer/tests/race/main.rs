//! The race by a simulated clock: whatever both sides do, reads get the local disk's bytes in the local disk's time.

mod learning;
mod properties;
mod simulation;
