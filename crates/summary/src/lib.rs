//! Directory summaries that never need a crawl.
//!
//! The system of *FastDu: Efficient Directory Summaries Harvest by Tracking File System Changes* (Liu, Wu, Xu, Wu, Yang, 2011):
//! a directory's totals are kept in a store, changes of the file system mark directories dirty, and a query harvests only what
//! is dirty.

pub mod access;
pub mod access_lists;
mod bulk;
pub mod catch_up;
pub mod clock;
mod code;
pub mod custom;
mod facts;
pub mod file_system;
mod harvest;
pub mod history;
pub mod identity;
pub mod ledger;
pub mod links;
mod lost_names;
mod mixing;
pub mod moment;
pub mod mounted;
mod mounts;
mod names;
pub mod nodes;
#[doc(hidden)]
pub mod order;
mod places;
mod preload;
pub mod reading;
pub mod record;
pub mod service;
mod settling;
mod sight;
pub mod store;
pub mod summaries;
pub mod survey;
pub mod totals;
pub mod tracker;
pub mod view;
pub mod volume;
pub mod walk;
pub mod warden;
pub mod whole_for;
mod written;
