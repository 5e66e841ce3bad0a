//! Finalizers, which hold a deleted object until they are removed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether an object has a finalizer.
pub(crate) fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

/// Returns an object's finalizers with one more; `None` if it has that already.
pub(crate) fn with(meta: &ObjectMeta, finalizer: &str) -> Option<Vec<String>> {
    if has(meta, finalizer) {
        return None;
    }
    let mut all = meta.finalizers.clone().unwrap_or_default();
    all.push(finalizer.to_owned());
    Some(all)
}

/// Returns an object's finalizers without one; `None` if it does not have that.
pub(crate) fn without(meta: &ObjectMeta, finalizer: &str) -> Option<Vec<String>> {
    if !has(meta, finalizer) {
        return None;
    }
    let mut all = meta.finalizers.clone().unwrap_or_default();
    all.retain(|f| f != finalizer);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_and_one_less() {
        let meta = |all: &[&str]| ObjectMeta {
            finalizers: Some(all.iter().map(|f| (*f).to_owned()).collect()),
            ..ObjectMeta::default()
        };
        let list = |all: &[&str]| Some(all.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
        assert_eq!(with(&meta(&["a"]), "b"), list(&["a", "b"]));
        assert_eq!(with(&meta(&["a"]), "a"), None);
        assert_eq!(with(&ObjectMeta::default(), "a"), list(&["a"]));
        assert_eq!(without(&meta(&["a", "b"]), "a"), list(&["b"]));
        assert_eq!(without(&meta(&["b"]), "a"), None);
        assert_eq!(without(&ObjectMeta::default(), "a"), None);
    }
}
