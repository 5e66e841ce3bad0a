//! The plugin ValidatingAdmissionPolicy (upstream: `policy/validating/dispatcher.go`).

use std::sync::OnceLock;

use api::status::Cause;
use api::{Node, Status, Struct};
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::is_exempt;
use super::metrics::{Checks, Validated, error_type};
use super::relevant::{Relevant, misconfigured, relevant};
use super::source::{Binding, Hook, Source};
use super::validator::{Annotation, Decision, Outcome, Validator, Verdict};
use super::versioned::{self, Versioned, Versions};
use crate::admission::AdmissionRequest;
use crate::admission::expressions::Input;
use crate::admission::matching::{Matched, Subject};
use crate::admission::plugin::{Env, Plugin};

/// The annotation that says which validations of an audited policy failed.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The greatest length of an audit annotation's value, in bytes.
const LONGEST_ANNOTATION: usize = 10 * 1024;

/// Refuses requests by ValidatingAdmissionPolicies, warns of them, and annotates them.
#[derive(Default)]
pub(in crate::admission) struct ValidatingAdmissionPolicy {
    source: Source<Validator>,
    checks: Checks<Validated>,
}

impl Plugin for ValidatingAdmissionPolicy {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if is_exempt(request) {
            return None;
        }
        let hooks = self.source.of(env)?;
        let asked = async move {
            let hooks = hooks.get().await;
            self.ask(env, request, object, &hooks.all).await
        };
        Some(asked.boxed())
    }
    fn register(&self, registry: &mut Registry) {
        self.checks.register(registry, "validating");
    }
}

/// A refusal: by a policy, by a binding of it, with a reason and a message.
struct Denial {
    policy: String,
    binding: Option<String>,
    reason: String,
    message: String,
}

/// A request that policies are asked about.
struct Asked<'a> {
    env: &'a Env,
    request: &'a AdmissionRequest<'a>,
    object: Option<&'a Struct>,
    versions: Versions,
    /// The namespace, once a policy asked for it; none for objects of the cluster.
    namespace: OnceLock<Option<Node>>,
    denials: Vec<Denial>,
}

impl ValidatingAdmissionPolicy {
    /// The policies of now.
    #[cfg(test)]
    pub(super) async fn source_for_tests(
        &self,
        env: &Env,
    ) -> std::sync::Arc<super::source::Hooks<Validator>> {
        self.source.hooks(env).await
    }

    async fn ask(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
        hooks: &[Hook<Validator>],
    ) -> Result<(), Status> {
        let subject = Subject::new(env, request, object);
        let mut asked = Asked {
            env,
            request,
            object,
            versions: Versions::default(),
            namespace: OnceLock::new(),
            denials: Vec::new(),
        };
        for hook in hooks {
            match relevant(env, &subject, request.namespace, hook).await {
                Ok(None) => {}
                Ok(Some(found)) => self.ask_policy(&mut asked, hook, found).await?,
                Err(why) => asked.misconfigured(hook, None, &why),
            }
        }
        asked.denials.into_iter().next().map_or(Ok(()), |denial| Err(refusal(request, object, denial)))
    }

    /// Asks the bindings of a policy that are about the request.
    async fn ask_policy(
        &self,
        asked: &mut Asked<'_>,
        hook: &Hook<Validator>,
        Relevant { matched, bindings }: Relevant,
    ) -> Result<(), Status> {
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for (binding, params) in bindings {
            let params = match params {
                Ok(params) => params,
                Err(why) => {
                    asked.misconfigured(hook, Some(&binding), &why);
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            let kind = &matched.resource.kind;
            let versioned = match asked.versions.get(asked.request, asked.object, kind).await {
                Ok(versioned) => versioned,
                Err(why) => {
                    let why = format!("failed to convert object version: {why}");
                    asked.misconfigured(hook, Some(&binding), &why);
                    continue;
                }
            };
            asked.find_namespace(hook.policy.compiled.uses_namespace)?;
            for param in &params {
                let outcome = self.evaluate(asked, hook, &matched, &versioned, param.as_deref()).await;
                self.decide(asked, hook, &binding, outcome, &mut annotations);
            }
        }
        for (key, values) in annotations {
            let key = format!("{}/{key}", hook.policy.name);
            asked.request.annotate(&key, &values.join(", "));
        }
        Ok(())
    }

    async fn evaluate(
        &self,
        asked: &Asked<'_>,
        hook: &Hook<Validator>,
        matched: &Matched,
        versioned: &Versioned,
        params: Option<&Node>,
    ) -> Outcome {
        let fill = |namespace| {
            let mut input = Input::new(asked.request, &matched.resource);
            (input.object, input.old) = (versioned.object.as_ref(), versioned.old.as_ref());
            (input.params, input.namespace) = (params, namespace);
            input
        };
        let namespace = asked.namespace.get().and_then(Option::as_ref);
        let (input, bare) = (fill(namespace), fill(None));
        let policy = &hook.policy;
        policy.compiled.validate(asked.env, &input, &bare, &asked.env.conditions, &policy.name).await
    }

    /// Does what a binding says about decisions.
    fn decide(
        &self,
        asked: &mut Asked<'_>,
        hook: &Hook<Validator>,
        binding: &Binding,
        outcome: Outcome,
        annotations: &mut Vec<(String, Vec<String>)>,
    ) {
        let policy = &hook.policy.name;
        let note = |enforcement_action, error_type, elapsed| {
            let labels = Validated {
                enforcement_action,
                error_type,
                policy: policy.clone(),
                policy_binding: binding.name.clone(),
            };
            self.checks.note(&labels, elapsed);
        };
        for (index, Decision { verdict, elapsed }) in outcome.decisions.into_iter().enumerate() {
            let (reason, message) = match verdict {
                Verdict::Admit => continue,
                Verdict::Error(why, false) => {
                    note("allow", error_type(&why), elapsed);
                    continue;
                }
                Verdict::Error(why, true) => (String::new(), why),
                Verdict::Deny(reason, message) => (reason, message),
            };
            let error = error_type(&message);
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => {
                        asked.deny(policy, Some(binding), reason.clone(), message.clone());
                        note("deny", error, elapsed);
                    }
                    "Audit" => {
                        asked.request.annotate(FAILURES, &failures(binding, policy, index, &message));
                        note("audit", error, elapsed);
                    }
                    "Warn" => {
                        let of = format!("'{policy}' with binding '{}'", binding.name);
                        let text = format!("Validation failed for ValidatingAdmissionPolicy {of}: {message}");
                        asked.request.warn(text);
                        note("warn", error, elapsed);
                    }
                    _ => {}
                }
            }
        }
        for annotation in outcome.annotations {
            match annotation {
                Annotation::Exclude => {}
                Annotation::Publish(key, value) => publish(annotations, key, cut(value)),
                Annotation::Error(why, elapsed) => {
                    note("deny", error_type(&why), elapsed);
                    asked.deny(policy, Some(binding), String::new(), why);
                }
            }
        }
    }
}

impl Asked<'_> {
    fn deny(&mut self, policy: &str, binding: Option<&Binding>, reason: String, message: String) {
        let (policy, binding) = (policy.to_owned(), binding.map(|b| b.name.clone()));
        self.denials.push(Denial { policy, binding, reason, message });
    }
    /// A policy that cannot be asked refuses the request, if its failure policy is `Fail`.
    fn misconfigured(&mut self, hook: &Hook<Validator>, binding: Option<&Binding>, why: &str) {
        if hook.policy.fails {
            let message = misconfigured(binding.is_some(), why);
            self.deny(&hook.policy.name, binding, String::new(), message);
        }
    }
    /// Finds the request's namespace; upstream does so for each policy, whether it is asked for or not.
    fn find_namespace(&mut self, is_used: bool) -> Result<(), Status> {
        if self.namespace.get().is_none() {
            let (env, request) = (self.env, self.request);
            if is_used {
                let _ = self.namespace.set(versioned::namespace(env, request)?);
            } else {
                versioned::is_there(env, request)?;
            }
        }
        Ok(())
    }
}

/// Adds an annotation, whose values are joined where bindings have several.
fn publish(annotations: &mut Vec<(String, Vec<String>)>, key: String, value: String) {
    match annotations.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => annotations.push((key, vec![value])),
    }
}

fn cut(mut value: String) -> String {
    if value.len() > LONGEST_ANNOTATION {
        // DIFFERENCE: upstream may cut a character in two.
        let end = (0..=LONGEST_ANNOTATION).rev().find(|i| value.is_char_boundary(*i));
        value.truncate(end.unwrap_or_default());
    }
    value
}

/// Upstream's refusal.
fn refusal(request: &AdmissionRequest<'_>, object: Option<&Struct>, denial: Denial) -> Status {
    let Denial { policy, binding, reason, message } = denial;
    let message = match binding {
        Some(binding) => {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
        }
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
    };
    let mut status = request.forbidden(object, &message);
    status.code = match &*reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = if reason.is_empty() { "Invalid".into() } else { reason };
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { message, ..Cause::default() });
    }
    status
}

/// The value of the annotation about a validation that failed.
fn failures(binding: &Binding, policy: &str, index: usize, message: &str) -> String {
    let text = |s: &str| {
        // Go's encoder escapes what could end a script in a page.
        let text = serde_json::Value::String(s.to_owned()).to_string();
        ['<', '>', '&', '\u{2028}', '\u{2029}']
            .iter()
            .fold(text, |text, c| text.replace(*c, &format!("\\u{:04x}", *c as u32)))
    };
    let actions: Vec<String> = binding.actions.iter().map(|a| text(a)).collect();
    format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{index},\"validationActions\":[{}]}}]",
        text(message),
        text(policy),
        text(&binding.name),
        actions.join(",")
    )
}
