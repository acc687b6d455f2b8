//! Aged file systems from a recipe and a seed.
//!
//! A recipe is a pure list of operations ([`recipe`], [`recipes`]): the same for the same seed, scale and steps, on every
//! machine. [`tree`] tells what they leave, [`apply`] does them to a mounted file system, [`image`] makes and names an
//! image of it, [`check`] holds what came out against the recipe ([`fragments`] counts), and [`pack`] keeps it small.

mod apart;
pub(crate) mod apply;
mod check;
pub(crate) mod day;
mod fragments;
pub(crate) mod image;
pub(crate) mod pack;
pub(crate) mod recipe;
pub(crate) mod recipes;
pub(crate) mod tree;
