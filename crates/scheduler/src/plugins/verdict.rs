//! The verdicts of plugins on a node, or on all.

/// Why a node can't take a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that refused.
    pub plugin: &'static str,
    /// Its reasons, in upstream's words.
    pub reasons: Vec<String>,
    /// Whether evicting other Pods could not change it (upstream's `UnschedulableAndUnresolvable`).
    pub unresolvable: bool,
}

/// Refuses a node for one reason.
pub(super) fn reject(
    plugin: &'static str,
    reason: impl Into<String>,
    unresolvable: bool,
) -> Result<(), Rejection> {
    Err(Rejection { plugin, reasons: vec![reason.into()], unresolvable })
}

/// Why no node needs to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// None can take the Pod, whichever Pods are evicted.
    Rejected(Rejection),
    /// The Pod's wishes cannot be understood: no decision, but an error, after which it is tried again.
    Error(String),
}

impl Stop {
    /// Refuses all nodes for one reason.
    pub(super) fn rejected(plugin: &'static str, reason: impl Into<String>) -> Self {
        Self::Rejected(Rejection { plugin, reasons: vec![reason.into()], unresolvable: true })
    }
}
