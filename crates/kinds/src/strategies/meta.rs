//! The metadata of Kubernetes' own kinds.

use api::field::{Errors, Path};
use api::view::View;

use crate::validation::meta::{object_meta, object_meta_update};

/// Checks that finalizers of Kubernetes' own kinds are qualified or known.
pub(crate) fn finalizers(errs: &mut Errors, at: &Path<'_>, meta: View<'_>) {
    let at = at.field("finalizers");
    for (i, f) in meta.strs("finalizers").enumerate() {
        if !f.contains('/') && !matches!(f, "kubernetes" | "orphan" | "foregroundDeletion") {
            errs.invalid(
                &at.index(i),
                f,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

/// Checks the metadata of a create of one of Kubernetes' own kinds.
pub(crate) fn core_meta(errs: &mut Errors, meta: View<'_>, namespaced: bool, check: api::names::NameCheck) {
    object_meta(errs, meta, namespaced, check);
    finalizers(errs, &Path::root("metadata"), meta);
}

/// Checks the metadata of an update of one of Kubernetes' own kinds.
pub(crate) fn core_meta_update(errs: &mut Errors, new: View<'_>, old: View<'_>) {
    object_meta_update(errs, new, old);
    finalizers(errs, &Path::root("metadata"), new);
}
