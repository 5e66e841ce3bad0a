//! A step by which limits are set.

/// A file of a cgroup and what is written into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// The controller whose hierarchy has the file (v1); empty in v2.
    pub(crate) controller: &'static str,
    pub(crate) file: String,
    pub(crate) value: String,
    /// Whether a kernel without the file is no failure.
    pub(crate) optional: bool,
}
