//! A profile for one architecture, before it is a program.

use std::collections::BTreeMap;

use oci_spec::runtime::LinuxSeccompArg;

/// The answer that ends a thread.
pub(super) const RET_KILL_THREAD: u32 = 0;

/// A condition on an argument: its place, the comparison.
pub(super) type Condition = LinuxSeccompArg;

/// The fate of a call: the first alternative all of whose conditions hold, or the default.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: u32,
}

/// The calls of an architecture, and the fate of those above all of them.
#[derive(Debug, PartialEq)]
pub(super) struct Table {
    pub(super) calls: BTreeMap<u32, Vec<Rule>>,
    pub(super) above: u32,
}
