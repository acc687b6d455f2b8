//! Aged file systems from a recipe and a seed.
//!
//! A recipe is a pure list of operations ([`recipe`], [`recipes`]): the same for the same seed, scale and steps, on every
//! machine. [`apply`] does them to a mounted image, [`image`] makes and names that image, and
//! [`pack`] keeps it small.

pub(crate) mod apply;
pub(crate) mod image;
pub(crate) mod pack;
pub(crate) mod recipe;
mod recipes;
