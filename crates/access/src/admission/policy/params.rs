//! The parameters of a policy (upstream's `CollectParams`).

use std::sync::Arc;

use api::selector::labels::Selector;
use api::{Gvk, Node};

use super::stored::ParamRef;
use crate::admission::plugin::Env;
use crate::reader::Which;

/// Where a binding's parameters are.
pub(super) struct ParamSource {
    name: String,
    namespace: String,
    selector: Option<Result<Selector, String>>,
    /// Whether a request is refused if there are none.
    needed: bool,
}

impl ParamSource {
    pub(super) fn new(of: ParamRef) -> Self {
        Self {
            name: of.name,
            namespace: of.namespace,
            selector: of.selector.map(|s| s.selector()),
            needed: of.parameter_not_found_action.as_deref() == Some("Deny"),
        }
    }
}

/// The parameters for a request in a namespace, or "": each is asked about once. Without a kind of parameters, or
/// without a source, one that is absent. The error is upstream's text.
pub(super) async fn collect(
    env: &Env,
    kind: Option<&Gvk>,
    source: Option<&ParamSource>,
    namespace: &str,
) -> Result<Vec<Option<Arc<Node>>>, String> {
    let (Some(kind), Some(source)) = (kind, source) else { return Ok(vec![None]) };
    let Some(namespaced) = env.reader.is_namespaced(kind) else { return Err(unknown(kind)) };
    let namespace = match (namespaced, &*source.namespace, namespace) {
        (true, "", "") => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            );
        }
        (true, "", of_request) => of_request,
        (true, own, _) => own,
        (false, "", _) => "",
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
    };
    let which = match (&*source.name, &source.selector) {
        ("", None) => return Err("one of name or selector must be provided".into()),
        ("", Some(selector)) => Which::Selected(selector.as_ref().map_err(Clone::clone)?),
        (name, None) => Which::Named(name),
        _ => return Err("paramRef.name and paramRef.selector are mutually exclusive".into()),
    };
    let found = env.reader.of_kind(kind, namespace, which).get().await.map_err(|e| e.message)?;
    if found.is_empty() && source.needed {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found.into_iter().map(Some).collect())
}

/// Upstream's error for a kind of parameters that nobody serves.
pub(super) fn unknown(kind: &Gvk) -> String {
    let Gvk { group, version, kind } = kind;
    format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
}
