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

/// The objects of a request in the version in which a hook wants them, as values.
#[derive(Debug, Clone, PartialEq)]
struct Versioned {
    object: Option<Node>,
    old: Option<Node>,
}

impl Versioned {
    async fn of(
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
        matched: &Matched,
    ) -> Result<Self, Status> {
        let kind = &matched.resource.kind;
        let value = async |tree: Option<&Struct>| {
            let Some(tree) = tree else { return Ok(None) };
            let tree = request.versions.convert(tree.clone(), request.kind, kind).get().await;
            let tree = tree.map_err(Status::internal)?;
            Ok::<_, Status>(Some(request.versions.value(kind, &tree)))
        };
        Ok(Self { object: value(object).await?, old: value(request.old).await? })
    }
}

/// A hook that is to be asked, and what it is told.
struct Invocation {
    hook: Arc<Hook>,
    /// The place of the hook among all.
    index: usize,
    matched: Matched,
    versioned: Versioned,
}

impl Hooks {
    /// Whether a hook is to be asked about a request with its object as it is now.
    async fn invocation(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
        (index, hook): (usize, &Arc<Hook>),
    ) -> Result<Option<Invocation>, Status> {
        let subject = Subject::new(env, request, object);
        let Some(matched) = subject.matched(&hook.criteria)? else { return Ok(None) };
        let versioned = Versioned::of(request, object, &matched).await?;
        if !hook.conditions.is_empty() {
            let named = Named {
                kind: "webhook",
                step: self.conditions,
                name: &hook.name,
                operation: request.operation,
            };
            let mut input = Input::new(request, &matched.resource);
            (input.object, input.old) = (versioned.object.as_ref(), versioned.old.as_ref());
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
        Ok(Some(Invocation { hook: Arc::clone(hook), index, matched, versioned }))
    }
}
