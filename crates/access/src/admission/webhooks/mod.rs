//! Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook (upstream:
//! `apiserver/pkg/admission/plugin/webhook`).
//!
//! Configurations are read from the store with each request, and compiled once ([`configuration`]): what was written
//! before a request counts for it. Which hooks are asked about a request is found here; a hook is asked by
//! [`call`], with the review of [`review`].

mod call;
mod config;
mod configuration;
#[cfg(test)]
mod matching_tests;
pub(super) mod metrics;
mod mutating;
mod review;
#[cfg(test)]
mod tests;
mod validating;

use std::borrow::Cow;
use std::sync::Arc;

use api::{Node, Status, Struct};

use super::expressions::{Input, Met, Named, Scope};
use super::matching::{Matched, Subject};
use super::plugin::Env;
use super::{AdmissionConfig, AdmissionRequest};
use crate::reader::ResourceName;
use crate::webhook::Webhooks;
use configuration::{Configurations, Hook};

pub(super) use mutating::MutatingWebhooks;
pub(super) use validating::ValidatingWebhooks;

/// The configurations of a plugin, and a client for them.
struct Hooks {
    configurations: Configurations,
    client: Webhooks,
    /// The plugin's name in metrics of calls: `admit` or `validating`.
    step: &'static str,
    /// The plugin's name in metrics of match conditions.
    conditions: &'static str,
}

impl Hooks {
    fn new(
        (plugin, resource): (&str, ResourceName),
        (step, conditions): (&'static str, &'static str),
        config: &AdmissionConfig,
    ) -> Result<Self, String> {
        Ok(Self {
            configurations: Configurations::new(resource),
            client: Webhooks::new(config::credentials(config.of(plugin))?),
            step,
            conditions,
        })
    }
}

/// The objects of a request in the version in which a hook wants them.
struct Versioned<'a> {
    object: Option<Cow<'a, Struct>>,
    old: Option<Cow<'a, Struct>>,
}

impl<'a> Versioned<'a> {
    async fn of(
        request: &AdmissionRequest<'a>,
        object: Option<&'a Struct>,
        matched: &Matched,
    ) -> Result<Self, Status> {
        let kind = &matched.resource.kind;
        let tree = async |tree: Option<&'a Struct>| {
            let Some(tree) = tree else { return Ok(None) };
            if request.kind == kind {
                return Ok(Some(Cow::Borrowed(tree)));
            }
            let tree = request.versions.convert(tree.clone(), request.kind, kind).get().await;
            Ok::<_, Status>(Some(Cow::Owned(tree.map_err(Status::internal)?)))
        };
        Ok(Self { object: tree(object).await?, old: tree(request.old).await? })
    }
}

/// A hook that is to be asked, and what it is told.
struct Invocation<'a> {
    hook: Arc<Hook>,
    /// The place of the hook among all.
    index: usize,
    matched: Matched,
    versioned: Versioned<'a>,
}

impl Invocation<'_> {
    /// The value of one of its objects as expressions and patches see it.
    fn value(&self, request: &AdmissionRequest<'_>, tree: &Struct) -> Node {
        request.versions.value(&self.matched.resource.kind, tree)
    }
}

impl Hooks {
    /// Whether a hook is to be asked about a request with its object as it is now.
    async fn invocation<'a>(
        &self,
        env: &Env,
        request: &AdmissionRequest<'a>,
        object: Option<&'a Struct>,
        (index, hook): (usize, &Arc<Hook>),
    ) -> Result<Option<Invocation<'a>>, Status> {
        let subject = Subject::new(env, request, object);
        let Some(matched) = subject.matched(&hook.criteria)? else { return Ok(None) };
        let versioned = Versioned::of(request, object, &matched).await?;
        let invocation = Invocation { hook: Arc::clone(hook), index, matched, versioned };
        if !hook.conditions.is_empty() {
            let value =
                |tree: &Option<Cow<'_, Struct>>| tree.as_deref().map(|t| invocation.value(request, t));
            let (object, old) = (value(&invocation.versioned.object), value(&invocation.versioned.old));
            let named = Named {
                kind: "webhook",
                step: self.conditions,
                name: &hook.name,
                operation: request.operation,
            };
            let mut input = Input::new(request, &invocation.matched.resource);
            (input.object, input.old) = (object.as_ref(), old.as_ref());
            let scope = Scope::new(env, &input, &[]);
            match hook.conditions.met(&scope, &env.conditions, named).await {
                Met::Yes => {}
                Met::No => {
                    env.conditions.excluded(named);
                    return Ok(None);
                }
                Met::Failed(why) => {
                    let (group, resource) = (&request.info.group, request.resource);
                    return Err(Status::forbidden(group, resource, request.name, why));
                }
            }
        }
        Ok(Some(invocation))
    }
}
