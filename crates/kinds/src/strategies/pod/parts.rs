//! Parts of a pod that many rules look at.

use api::Struct;
use api::field::Path;
use api::view::View;

use crate::strategy::Ctx;

/// The lists of containers in the order in which upstream visits them.
pub(super) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Calls `f` with the path of each container, init containers first.
pub(super) fn each_container(spec: View<'_>, spec_at: &Path<'_>, mut f: impl FnMut(&Path<'_>, View<'_>)) {
    for list in CONTAINER_LISTS {
        let at = spec_at.field(list);
        for (i, c) in spec.items(list).enumerate() {
            f(&at.index(i), c);
        }
    }
}

/// The spec and the metadata of a stored pod.
pub(super) fn old_of<'a>(c: &Ctx<'a>, old: &'a Struct) -> (View<'a>, View<'a>) {
    let o = View::new(c.schema, old);
    (o.st("spec"), o.st("metadata"))
}

/// Whether a stored spec has containers that are started again by rules of their own.
pub(super) fn restart_rules_used(spec: View<'_>) -> bool {
    spec.items("initContainers")
        .any(|c| c.opt_str("restartPolicy").is_some_and(|p| p != "Always") || c.len("restartPolicyRules") > 0)
        || spec.items("containers").any(|c| c.has("restartPolicy"))
}
