//! MutatingAdmissionWebhook.

use std::sync::Arc;
use std::time::Instant;

use api::codec::json;
use api::go::quote;
use api::patch::JsonPatch;
use api::{Node, Status, Struct};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::call::{Refusal, identity};
use super::configuration::Hook;
use super::review::Response;
use super::{Hooks, Invocation};
use crate::admission::matching::configures_admission;
use crate::admission::plugin::{Env, Plugin};
use crate::admission::reinvocation::Reinvocation;
use crate::admission::{AdmissionConfig, AdmissionRequest};

/// The plugin's name.
const NAME: &str = "MutatingAdmissionWebhook";
/// The beginning of annotations for the audit.
const ANNOTATION: &str = "mutation.webhook.admission.k8s.io/";

/// Lets webhooks change or refuse the object of a request, one after the other.
pub(in crate::admission) struct MutatingWebhooks(Hooks);

impl MutatingWebhooks {
    pub(in crate::admission) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        let resource = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
        let plugin = (NAME, resource);
        Ok(Box::new(Self(Hooks::new(plugin, ("admit", "admit"), config)?)))
    }

    /// Asks all webhooks in their order. There is no object in a deletion.
    async fn ask(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        mut object: Option<&mut Struct>,
        hooks: Arc<[Arc<Hook>]>,
        again: &mut Reinvocation,
    ) -> Result<(), Status> {
        let round = usize::from(again.is_again());
        if round > 0 && object.as_deref().is_some_and(|object| again.calls(NAME).is_changed(object)) {
            again.calls(NAME).all_due();
        }
        for (index, hook) in hooks.iter().enumerate() {
            let invocation = self.0.invocation(env, request, object.as_deref(), (index, hook)).await?;
            let Some(invocation) = invocation else { continue };
            let identity = identity(&invocation);
            // A webhook that was not asked in the first round is not in the second.
            if round > 0 && !again.calls(NAME).is_due(&identity) {
                continue;
            }
            let since = Instant::now();
            let outcome = match self.0.ask(env, request, &invocation).await {
                Ok(response) => changed(request, object.as_deref(), &invocation, &response).await,
                Err(refusal) => Err(refusal),
            };
            let mutated = matches!(&outcome, Ok(Some(new)) if object.as_deref() != Some(new));
            let place = format!("round_{round}_index_{index}");
            let note = format!(
                "{{\"configuration\":{},\"webhook\":{},\"mutated\":{mutated}}}",
                text(&hook.configuration),
                text(&hook.name)
            );
            request.annotate(&format!("{ANNOTATION}{place}"), &note);
            let failed_open = || format!("failed-open.{ANNOTATION}{place}");
            let settled = self.0.settle((env, request), &invocation, (outcome, since), failed_open);
            if mutated {
                again.calls(NAME).all_due();
                again.want();
            }
            if hook.reinvoked {
                again.calls(NAME).called(identity);
            }
            if let (Some(Some(new)), Some(object)) = (settled?, object.as_deref_mut()) {
                *object = new;
            }
        }
        if let Some(object) = object {
            again.calls(NAME).leave(object);
        }
        Ok(())
    }

    fn hooks(&self, env: &Env, request: &AdmissionRequest<'_>) -> Arc<[Arc<Hook>]> {
        if configures_admission(request.request_kind) {
            return Arc::default();
        }
        self.0.configurations.hooks(&*env.reader)
    }
}

fn text(of: &str) -> String {
    let mut out = String::new();
    api::go::json_string(of, &mut out);
    out
}

/// The object after an answer's patch; `None` if it has none.
async fn changed(
    request: &AdmissionRequest<'_>,
    object: Option<&Struct>,
    invocation: &Invocation<'_>,
    response: &Response,
) -> Result<Option<Struct>, Refusal> {
    if response.patch.is_empty() {
        return Ok(None);
    }
    let hook = &invocation.hook;
    let undecodable =
        |why: String| Refusal::Failed(format!("received undecodable patch in webhook response: {why}"), 503);
    let patch = json::decode_any(&response.patch).map_err(|e| undecodable(e.to_string()))?;
    let patch = JsonPatch::from_node(patch).map_err(|e| undecodable(e.to_string()))?;
    if patch.0.is_empty() {
        return Ok(None);
    }
    let internal = |why: String| Refusal::Other(Status::internal(why));
    let (Some(tree), Some(_)) = (&invocation.versioned.object, object) else {
        return Err(internal(format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            quote(&hook.name)
        )));
    };
    if response.patch_type != "JSONPatch" {
        let why = format!("unsupported patch type {}", quote(&response.patch_type));
        return Err(Refusal::Failed(why, 400));
    }
    let kind = &invocation.matched.resource.kind;
    let value = invocation.value(request, tree);
    let patched = patch.apply(value.clone()).map_err(|e| internal(e.to_string()))?;
    same_kind(&value, &patched).map_err(internal)?;
    let tree = request.versions.tree(kind, patched, false).map_err(internal)?;
    let tree = request.versions.convert(tree, kind, request.kind).get().await.map_err(internal)?;
    Ok(Some(tree))
}

/// A patch must leave kind and version as they are.
fn same_kind(before: &Node, after: &Node) -> Result<(), String> {
    let text = |of: &Node, key: &str| of.as_map().and_then(|m| m.get(key)).map(|n| n.as_str().to_owned());
    let kind = text(after, "kind").unwrap_or_default();
    if kind.is_empty() {
        let mut shown = String::new();
        api::go::write_json(after, &mut shown);
        return Err(format!("Object 'Kind' is missing in '{shown}'"));
    }
    for key in ["kind", "apiVersion"] {
        if text(before, key) != text(after, key) {
            let version = text(after, "apiVersion").unwrap_or_default();
            return Err(format!("no kind {} is registered for version {}", quote(&kind), quote(&version)));
        }
    }
    Ok(())
}

impl Plugin for MutatingWebhooks {
    fn mutate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
        again: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let hooks = self.hooks(env, request);
        if hooks.is_empty() {
            return None;
        }
        Some(self.ask(env, request, Some(object), hooks, again).boxed())
    }
    fn admit_deletion<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let hooks = self.hooks(env, request);
        if hooks.is_empty() {
            return None;
        }
        let ask = async move { self.ask(env, request, None, hooks, &mut Reinvocation::default()).await };
        Some(ask.boxed())
    }
}
