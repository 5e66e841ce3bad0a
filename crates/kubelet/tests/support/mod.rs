//! The things that tests of a whole kubelet share.

pub(crate) mod fake;
pub(crate) mod memory;
