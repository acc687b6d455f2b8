//! The system calls of onesweep.
