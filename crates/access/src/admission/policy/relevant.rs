//! The policies of a request (upstream: `policy/generic`).

use std::sync::Arc;

use api::{Node, Status};

use super::params;
use super::source::{Binding, Hook, Policy};
use crate::admission::matching::{Matched, Subject};
use crate::admission::plugin::Env;

/// The parameters for which a binding's policy is asked, each once; or why they cannot be had.
pub(super) type Params = Result<Vec<Option<Arc<Node>>>, String>;

/// The bindings of a policy that are about a request.
pub(super) struct Relevant {
    pub(super) matched: Matched,
    pub(super) bindings: Vec<(Arc<Binding>, Params)>,
}

/// Upstream's text for what is wrong with a policy, or with its binding.
pub(super) fn misconfigured(binding: bool, why: &str) -> String {
    let of = if binding { "binding" } else { "policy" };
    format!("failed to configure {of}: {why}")
}

/// Finds what is about a request. The error is the text for what is wrong with the policy.
pub(super) async fn relevant<C>(
    env: &Env,
    subject: &Subject<'_>,
    namespace: &str,
    hook: &Hook<C>,
) -> Result<Option<Relevant>, String> {
    let Hook { policy, bindings } = hook;
    let Policy { criteria, param_kind, .. } = &**policy;
    let text = |status: Status| status.message;
    let Some(matched) = subject.matched(criteria).map_err(text)? else { return Ok(None) };
    if let Some(kind) = param_kind.as_ref().filter(|kind| env.reader.is_namespaced(kind).is_none()) {
        return Err(params::unknown(kind));
    }
    let mut found = Vec::new();
    for binding in bindings {
        let is_meant = binding.criteria.as_ref().map_or(Ok(true), |criteria| {
            subject.matched(criteria).map(|matched| matched.is_some()).map_err(text)
        });
        let params = match is_meant {
            Ok(false) => continue,
            Ok(true) => params::collect(env, param_kind.as_ref(), binding.params.as_ref(), namespace).await,
            Err(why) => Err(why),
        };
        found.push((Arc::clone(binding), params));
    }
    Ok(Some(Relevant { matched, bindings: found }))
}
