//! The conditions on which the validation of a pod's spec depends besides the spec: feature gates, and the rules that
//! the stored pod already violates.

use api::Gate;

use crate::strategy::Ctx;

/// The conditions of a validation; see the module.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "independent permissions")]
pub(crate) struct Options<'a> {
    /// The surroundings of the rules.
    pub ctx: Ctx<'a>,
    /// Whether the spec is of a Pod, not of a template.
    pub is_pod: bool,
    /// Keeps an annotation that is no number.
    pub invalid_deletion_cost: bool,
    /// Keeps values of selectors that are no label values.
    pub invalid_selector_values: bool,
    /// Keeps values in required node affinity that are no label values.
    pub invalid_node_affinity_values: bool,
    /// Keeps selectors of spread constraints with values that are no label values.
    pub invalid_spread_selectors: bool,
    /// Keeps amounts of huge pages that are no multiple of the page.
    pub indivisible_huge_pages: bool,
    /// Keeps sysctls of namespaces that the pod shares with the host.
    pub host_sysctls: bool,
    /// Keeps paths of projected tokens that leave the volume.
    pub non_local_token_path: bool,
    /// Keeps block devices in pods with a user namespace.
    pub devices_in_user_namespace: bool,
    /// Keeps a restart policy for resizing of plain init containers.
    pub restart_of_plain_init: bool,
    /// Takes every way of changing SELinux labels, not only the recursive one.
    pub any_selinux_policy: bool,
    /// Checks keys of spread constraints in the other way than the gate demands, since the stored ones pass only that.
    pub other_spread_keys: bool,
    /// Gates that count as on because the stored pod uses their features.
    pub(super) in_use: [Option<Gate>; 5],
}

impl Options<'_> {
    /// Whether a feature gate is on, or its feature is in use.
    pub(crate) fn gate(&self, gate: Gate) -> bool {
        self.ctx.gates.enabled(gate) || self.in_use.contains(&Some(gate))
    }
}
