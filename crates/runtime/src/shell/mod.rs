//! Looks at the machine and its files, so that the translation need not.

pub(crate) mod devices;
pub(crate) mod labels;
pub(crate) mod machine;
pub(crate) mod rooted;
pub(crate) mod volumes;
