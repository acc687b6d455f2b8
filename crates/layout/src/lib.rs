//! Where data lies.
