//! The properties of a gate besides the gates that it requires.

/// The stage of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// New, and off by default.
    Alpha,
    /// Well tested, and mostly on by default.
    Beta,
    /// Finished (upstream prints `GA`).
    Stable,
    /// To be removed.
    Deprecated,
}

/// The properties of a gate.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) default: bool,
    pub(super) stage: Stage,
    pub(super) locked: bool,
}

/// The columns of the table, in its order.
pub(super) const fn row(name: &'static str, default: bool, stage: Stage, locked: bool) -> Row {
    Row { name, default, stage, locked }
}
