//! The NUMA nodes from which a resource can come. Pure.

use std::collections::BTreeMap;

use super::mask::NumaMask;

/// A set of NUMA nodes that could give a container what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The nodes; none for any of them.
    pub(crate) affinity: Option<NumaMask>,
    /// Whether there is no better set.
    pub(crate) preferred: bool,
}

/// The hint of a container that nothing is known of, as upstream's zero value is.
pub(crate) const UNKNOWN: Hint = Hint { affinity: None, preferred: false };

/// The hints of one provider by the names of its resources: none for a resource that may come from anywhere, and an empty
/// list for one that cannot be had.
pub(crate) type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// Marks the hints of sets that are as small as can be.
pub(crate) fn prefer_smallest(masks: impl IntoIterator<Item = NumaMask>, smallest: usize) -> Vec<Hint> {
    let one = |mask: NumaMask| Hint { affinity: Some(mask), preferred: mask.count() == smallest };
    masks.into_iter().map(one).collect()
}
