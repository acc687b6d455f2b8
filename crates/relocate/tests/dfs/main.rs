//! The algorithm of DFS on disks that are drawn.

mod drawing;
mod figures;
mod properties;
mod rules;
