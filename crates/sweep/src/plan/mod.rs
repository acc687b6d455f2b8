//! Stand-in until the planner lands.
/// How fragments become read requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Files one after the other.
    Vanilla,
    /// DAFTNM.
    Unmerged,
    /// DAFTM.
    Merged,
}
/// A disk.
#[derive(Debug, Clone)]
pub struct DiskModel;
/// What a plan will cost (fields to come).
#[derive(Debug, Clone, Default)]
pub struct Estimate;
