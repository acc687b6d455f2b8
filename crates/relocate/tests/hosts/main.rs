//! Hosts: what holds for all of them, plans carried out on a model, and on a real ext4.

mod carry;
mod conformance;
mod crash;
mod ext4;
mod image;
mod model;
mod refusals;
mod tree;
mod writers;
