//! Sweeps of small trees through the public interface.

mod changes;
mod consumers;
mod deep;
mod lent;
mod links;
mod noted;
mod order;
mod roots;
mod settled;
mod streams;
mod trees;
