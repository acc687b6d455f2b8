//! Reads every file of one or many trees in the order in which their bytes lie on the disk.
