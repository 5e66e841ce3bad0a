//! The plugin MutatingAdmissionPolicy (upstream: `policy/mutating/dispatcher.go`).

use std::sync::Arc;

use api::status::Cause;
use api::{Node, Status, Struct};
use cel::Version;
use cel::admission::{Composed, Parts, admission, with_composed};
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::is_exempt;
use super::metrics::{Checks, Mutated, NO_ERROR, error_type};
use super::patch::{Patch, Unpatched};
use super::relevant::{misconfigured, relevant};
use super::source::{Binding, Compiled, Hook, Policy, Source};
use super::stored::PolicySpec;
use super::validator::variables;
use super::versioned::{self, Versioned, Versions, value};
use crate::admission::expressions::{Conditions, Input, Met, Named, Scope, Variable};
use crate::admission::matching::{Matched, Subject};
use crate::admission::plugin::{Env, Plugin};
use crate::admission::reinvocation::Reinvocation;
use crate::admission::{AdmissionRequest, Operation};
use crate::reader::ResourceName;

const NAME: &str = "MutatingAdmissionPolicy";

/// The expressions of a policy.
pub(super) struct Mutator {
    variables: Vec<Variable>,
    conditions: Conditions,
    patches: Vec<Patch>,
    /// Whether it may be asked again after the object has changed.
    again: bool,
}

impl Compiled for Mutator {
    const POLICIES: ResourceName = ("admissionregistration.k8s.io", "mutatingadmissionpolicies");
    const BINDINGS: ResourceName = ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings");

    fn new(_: &str, spec: &PolicySpec) -> Self {
        let params = spec.param_kind.is_some();
        let composed = Arc::new(Composed::default());
        let env = |mutations| {
            let env = admission(Version::STORED, Parts { params, authorizer: true, mutations });
            with_composed(env, Arc::clone(&composed))
        };
        let (common, mutations) = (env(false), env(true));
        let variables = variables(spec, &common, &composed);
        Self {
            conditions: Conditions::new(&common, &spec.match_conditions, spec.fails()),
            variables,
            patches: spec.mutations.iter().filter_map(|m| Patch::new(&mutations, m)).collect(),
            again: spec.reinvocation_policy == "IfNeeded",
        }
    }
}

/// Changes objects by MutatingAdmissionPolicies.
#[derive(Default)]
pub(in crate::admission) struct MutatingAdmissionPolicy {
    source: Source<Mutator>,
    checks: Checks<Mutated>,
}

impl Plugin for MutatingAdmissionPolicy {
    fn mutate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
        again: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let is_on = env.gates.enabled(api::Gate::MutatingAdmissionPolicy);
        let handles = is_on && request.operation != Operation::Delete && !is_exempt(request);
        if !handles {
            return None;
        }
        let hooks = self.source.of(env)?;
        let asked = async move {
            let hooks = hooks.get().await;
            self.ask(env, request, object, &hooks.all, again).await
        };
        Some(asked.boxed())
    }
    fn register(&self, registry: &mut Registry) {
        self.checks.register(registry, "mutating");
    }
}

/// A policy that could not be asked, or whose mutation failed.
struct Fault {
    policy: String,
    binding: Option<String>,
    /// Whether it is more than a fault of the configuration.
    invalid: bool,
    why: String,
}

/// A policy with one of its bindings, and one of the parameters.
struct Invocation {
    policy: Arc<Policy<Mutator>>,
    binding: Arc<Binding>,
    matched: Arc<Matched>,
    param: Option<Arc<Node>>,
}

impl Invocation {
    fn key(&self) -> String {
        let meta = self.param.as_ref().and_then(|p| p.as_map()?.get("metadata")?.as_map());
        let (namespace, name) = meta.map_or(("", ""), |m| (m.str("namespace"), m.str("name")));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding.name)
    }
    fn fault(&self, why: String) -> Fault {
        let (policy, binding) = (self.policy.name.clone(), Some(self.binding.name.clone()));
        Fault { policy, binding, invalid: true, why }
    }
}

/// The objects of a request while it is mutated: those of each version as the last mutation left them.
struct Objects {
    versions: Versions,
    /// The object as it was mutated last, in its version.
    last: Option<(api::Gvk, Node)>,
}

impl MutatingAdmissionPolicy {
    async fn ask(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: &mut Struct,
        hooks: &[Hook<Mutator>],
        again: &mut Reinvocation,
    ) -> Result<(), Status> {
        let (invocations, mut faults) = collect(env, request, object, hooks).await;
        if !invocations.is_empty() {
            if again.is_again() && again.calls(NAME).is_changed(object) {
                again.calls(NAME).all_due();
            }
            let asked = self.invoke(env, request, object, &invocations, again, &mut faults).await;
            again.calls(NAME).leave(object);
            asked?;
        }
        let fails =
            |fault: &Fault| hooks.iter().any(|hook| hook.policy.name == fault.policy && hook.policy.fails);
        faults.retain(fails);
        if faults.is_empty() { Ok(()) } else { Err(refusal(request, object, &faults)) }
    }

    async fn invoke(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: &mut Struct,
        invocations: &[Invocation],
        again: &mut Reinvocation,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Status> {
        let namespace = versioned::namespace(env, request)?;
        let mut objects = Objects { versions: Versions::default(), last: None };
        for invocation in invocations {
            let kind = &invocation.matched.resource.kind;
            let versioned = match objects.version(request, object, kind).await {
                Ok(versioned) => versioned,
                Err(why) => {
                    let why = misconfigured(false, &why);
                    let policy = invocation.policy.name.clone();
                    faults.push(Fault { policy, binding: None, invalid: false, why });
                    continue;
                }
            };
            let asking = Asking { env, request, invocation, versioned: &versioned };
            match asking.is_met().await {
                Met::Yes => {}
                Met::No => continue,
                Met::Failed(why) => {
                    faults.push(invocation.fault(why));
                    continue;
                }
            }
            let key = invocation.key();
            if again.is_again() && !again.calls(NAME).is_due(&key) {
                continue;
            }
            let before = versioned.object.clone().unwrap_or(Node::Null);
            let after = self.mutate_by(&asking, before.clone(), namespace.as_ref(), faults).await?;
            if after.as_ref().is_some_and(|after| *after != before) {
                again.calls(NAME).all_due();
                again.want();
            }
            if let Some(after) = after {
                objects.last = Some((kind.clone(), after));
            }
            if invocation.policy.compiled.again {
                again.calls(NAME).called(key);
            }
        }
        if let Some((kind, last)) = objects.last {
            again.calls(NAME).all_due();
            again.want();
            *object = back(request, &kind, last)
                .await
                .map_err(|why| Status::internal(format!("failed to convert object: {why}")))?;
        }
        Ok(())
    }

    /// The object after the mutations of a policy; `None` if none of them could be made.
    async fn mutate_by(
        &self,
        asking: &Asking<'_>,
        mut object: Node,
        namespace: Option<&Node>,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<Node>, Status> {
        let Asking { env, request, invocation, versioned } = *asking;
        let (policy, resource) = (&invocation.policy, &invocation.matched.resource);
        let mut is_patched = false;
        for patch in &policy.compiled.patches {
            let began = Instant::now();
            let patched = {
                let mut input = Input::new(request, resource);
                (input.object, input.old) = (Some(&object), versioned.old.as_ref());
                (input.params, input.namespace) = (invocation.param.as_deref(), namespace);
                let scope = Scope::new(env, &input, &policy.compiled.variables);
                patch.patched(&scope, request.versions, &resource.kind, &object).await
            };
            let error_type = match &patched {
                Ok(_) => NO_ERROR,
                Err(Unpatched::Failed(why) | Unpatched::Internal(why)) => error_type(why),
            };
            let labels = Mutated {
                error_type,
                policy: policy.name.clone(),
                policy_binding: invocation.binding.name.clone(),
            };
            self.checks.note(&labels, began.elapsed());
            match patched {
                Ok(patched) => {
                    object = patched;
                    is_patched = true;
                }
                Err(Unpatched::Failed(why)) => faults.push(invocation.fault(why)),
                Err(Unpatched::Internal(why)) => return Err(Status::internal(why)),
            }
        }
        Ok(is_patched.then_some(object))
    }
}

/// An invocation with the objects that it sees.
#[derive(Clone, Copy)]
struct Asking<'a> {
    env: &'a Env,
    request: &'a AdmissionRequest<'a>,
    invocation: &'a Invocation,
    versioned: &'a Versioned,
}

impl Asking<'_> {
    /// Whether the policy's match conditions hold.
    async fn is_met(&self) -> Met {
        let Self { env, request, invocation, versioned } = *self;
        let policy = &invocation.policy;
        if policy.compiled.conditions.is_empty() {
            return Met::Yes;
        }
        let mut input = Input::new(request, &invocation.matched.resource);
        (input.object, input.old) = (versioned.object.as_ref(), versioned.old.as_ref());
        input.params = invocation.param.as_deref();
        let scope = Scope::new(env, &input, &policy.compiled.variables);
        // Upstream calls it so for these policies, too.
        let step = "validate";
        let named = Named { kind: "policy", step, name: &policy.name, operation: request.operation };
        policy.compiled.conditions.met(&scope, &env.conditions, named).await
    }
}

impl Objects {
    /// The objects in a version, as the last mutation left them.
    async fn version(
        &mut self,
        request: &AdmissionRequest<'_>,
        object: &Struct,
        kind: &api::Gvk,
    ) -> Result<Arc<Versioned>, String> {
        let Some((last_kind, last)) = &self.last else {
            return self.versions.get(request, Some(object), kind).await;
        };
        // The former object is what it was.
        let old = match request.old {
            Some(old) => Some(value(request, old, kind).await?),
            None => None,
        };
        let object = if last_kind == kind {
            last.clone()
        } else {
            let tree = request.versions.tree(last_kind, last.clone(), false)?;
            let tree = request.versions.convert(tree, last_kind, kind).get().await?;
            request.versions.value(kind, &tree)
        };
        Ok(Arc::new(Versioned { kind: kind.clone(), object: Some(object), old }))
    }
}

/// The tree of the request's kind for an object that was mutated in another version.
async fn back(request: &AdmissionRequest<'_>, kind: &api::Gvk, object: Node) -> Result<Struct, String> {
    let tree = request.versions.tree(kind, object, false)?;
    request.versions.convert(tree, kind, request.kind).get().await
}

/// The invocations that a request is about, in order, and what is wrong with policies and bindings.
async fn collect(
    env: &Env,
    request: &AdmissionRequest<'_>,
    object: &Struct,
    hooks: &[Hook<Mutator>],
) -> (Vec<Invocation>, Vec<Fault>) {
    let subject = Subject::new(env, request, Some(object));
    let (mut invocations, mut faults) = (Vec::new(), Vec::new());
    for hook in hooks {
        let mut fault = |binding: Option<&Binding>, why: &str| {
            let why = misconfigured(binding.is_some(), why);
            let (policy, binding) = (hook.policy.name.clone(), binding.map(|b| b.name.clone()));
            faults.push(Fault { policy, binding, invalid: false, why });
        };
        let found = match relevant(env, &subject, request.namespace, hook).await {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(why) => {
                fault(None, &why);
                continue;
            }
        };
        let matched = Arc::new(found.matched);
        for (binding, params) in found.bindings {
            match params {
                Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                    policy: Arc::clone(&hook.policy),
                    binding: Arc::clone(&binding),
                    matched: Arc::clone(&matched),
                    param,
                })),
                Err(why) => fault(Some(&binding), &why),
            }
        }
    }
    (invocations, faults)
}

/// Upstream's refusal: a 403 with the words of the first policy, and all of them as causes.
fn refusal(request: &AdmissionRequest<'_>, object: &Struct, faults: &[Fault]) -> Status {
    let mut status = request.forbidden(Some(object), "admission request denied by policy");
    let texts = faults.iter().map(|Fault { policy, binding, why, .. }| match binding {
        Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {why}"),
        None => format!("policy {} denied request: {why}", api::go::quote(policy)),
    });
    let texts: Vec<String> = texts.collect();
    if let (Some(text), Some(fault)) = (texts.first(), faults.first()) {
        status.message.clone_from(text);
        if fault.invalid {
            status.reason = "Invalid".into();
        }
    }
    if let Some(details) = &mut status.details {
        details.causes.extend(texts.into_iter().map(|message| Cause { message, ..Cause::default() }));
    }
    status
}
