//! What tests of a whole kubelet share.

pub(crate) mod memory;
