//! PodSecurity: pods keep to the level that the labels of their namespace ask for.
//!
//! Pods that violate it are refused; of pods, and of templates of pods, whoever sends them is warned, or the audit is
//! told. Where neither labels nor the configuration ask for anything, a pod costs one look at its namespace.

mod baseline;
#[cfg(test)]
mod check_tests;
mod checks;
mod config;
mod existing;
mod metrics;
mod pod;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use api::go::quote;
use api::status::FieldError;
use api::view::View;
use api::{Status, Struct, Text};
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;

use super::plugin::{Env, Plugin};
use super::{AdmissionConfig, AdmissionRequest, Operation};
use crate::reader::ResourceName;
use checks::Violations;
use config::{Configuration, Exemptions};
use existing::Limits;
use metrics::Metrics;
use pod::Pod;
use policy::{Mode, Policy, stored_label};

const NAMESPACES: ResourceName = ("", "namespaces");
const PODS: ResourceName = ("", "pods");

/// Subresources of pods that leave alone what is checked.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The plugin, with what it was told at the start and what it counts.
#[derive(Default)]
pub(super) struct PodSecurity {
    configuration: Configuration,
    metrics: Metrics,
}

/// The verdict on a request.
#[derive(Default)]
struct Verdict {
    refusal: Option<Status>,
    warning: Option<String>,
    notes: Notes,
}

/// The annotations for the audit, each below `pod-security.kubernetes.io/`.
#[derive(Default)]
struct Notes {
    /// Who or what exempts the request.
    exempt: Option<&'static str>,
    /// The level that was enforced.
    enforce_policy: Option<Cow<'static, str>>,
    audit_violations: Option<String>,
    error: Option<String>,
}

impl Verdict {
    fn noted(notes: Notes) -> Self {
        Self { notes, ..Self::default() }
    }
    /// Tells everybody.
    fn give(self, request: &AdmissionRequest<'_>) -> Result<(), Status> {
        if let Some(warning) = self.warning {
            request.warn(warning);
        }
        let Notes { exempt, enforce_policy, audit_violations, error } = &self.notes;
        let notes = [
            ("pod-security.kubernetes.io/exempt", *exempt),
            ("pod-security.kubernetes.io/enforce-policy", enforce_policy.as_deref()),
            ("pod-security.kubernetes.io/audit-violations", audit_violations.as_deref()),
            ("pod-security.kubernetes.io/error", error.as_deref()),
        ];
        for (key, value) in notes {
            if let Some(value) = value {
                request.annotate(key, value);
            }
        }
        self.refusal.map_or(Ok(()), Err)
    }
}

/// Where a kind has a pod, or the template of one.
fn place<'a>(request: &AdmissionRequest<'_>, object: View<'a>) -> Option<Pod<'a>> {
    let template = match (&*request.info.group, request.resource) {
        ("", "pods") => return Some(Pod::of(object)),
        ("", "podtemplates") => object.st("template"),
        ("", "replicationcontrollers") => object.st("spec").opt("template")?,
        ("batch", "cronjobs") => object.st("spec").st("jobTemplate").st("spec").st("template"),
        _ => object.st("spec").st("template"),
    };
    Some(Pod::of(template))
}

fn makes_pods(request: &AdmissionRequest<'_>) -> bool {
    matches!(
        (&*request.info.group, request.resource),
        ("", "replicationcontrollers" | "podtemplates")
            | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
            | ("batch", "jobs" | "cronjobs")
    )
}

/// Whether an update may make a pod violate what it did not: it has other images, or other containers.
fn is_significant(new: View<'_>, old: View<'_>) -> bool {
    let (new, old) = (new.st("spec"), old.st("spec"));
    for list in ["containers", "initContainers"] {
        let pairs = new.items(list).zip(old.items(list));
        let mut images = pairs.map(|(new, old)| (new.str("image"), old.str("image")));
        if new.len(list) != old.len(list) || images.any(|(new, old)| new != old) {
            return true;
        }
    }
    new.items("ephemeralContainers").any(|container| {
        let before = old.items("ephemeralContainers").find(|c| c.str("name") == container.str("name"));
        before.is_none_or(|before| before.str("image") != container.str("image"))
    })
}

/// One of the labels of an object.
fn label<'a>(object: View<'a>) -> impl Fn(&str) -> Option<&'a str> {
    let labels = object.st("metadata").map("labels");
    move |name| Some(labels?.get(name)?.as_str())
}

impl PodSecurity {
    /// With a `PodSecurityConfiguration`, or with upstream's defaults.
    fn new(document: Option<&[u8]>) -> Result<Self, String> {
        Ok(Self { configuration: Configuration::parse(document)?, metrics: Metrics::default() })
    }
    /// The plugin as admission's configuration has it.
    pub(super) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        Ok(Box::new(Self::new(config.of("PodSecurity"))?))
    }
    fn policy<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> (Policy, Vec<FieldError>) {
        Policy::of(label, self.configuration.defaults)
    }
    fn exempts_namespace(&self, name: &str) -> bool {
        Exemptions::has(&self.configuration.exemptions.namespaces, name)
    }

    /// Labels that are new must be valid.
    fn namespace(&self, request: &AdmissionRequest<'_>, new: View<'_>, old: Option<View<'_>>) -> Verdict {
        let (policy, errors) = self.policy(label(new));
        let before = old.map(|old| self.policy(label(old)));
        let known = before.as_ref().is_some_and(|(_, before)| *before == errors);
        if !errors.is_empty() && !known {
            let refusal = Status::invalid("", "Namespace", request.name, &errors);
            return Verdict { refusal: Some(refusal), ..Verdict::default() };
        }
        let tightens = before.is_none_or(|(before, _)| tightens(before, policy));
        let warning = (tightens && self.exempts_namespace(request.namespace)).then(|| {
            policy.exempt_warning(new.st("metadata").str("name"), label(new), &self.configuration.defaults)
        });
        Verdict { warning: warning.flatten(), ..Verdict::default() }
    }

    /// Whether the request is exempt as a whole, and why.
    fn exemption(&self, request: &AdmissionRequest<'_>) -> Option<&'static str> {
        let exemptions = &self.configuration.exemptions;
        if self.exempts_namespace(request.namespace) {
            Some("namespace")
        } else if Exemptions::has(&exemptions.usernames, &request.user.name) {
            Some("user")
        } else {
            None
        }
    }

    /// Pods, which are refused, and what makes pods, of which is only told.
    fn pod(&self, env: &Env, request: &AdmissionRequest<'_>, object: View<'_>) -> Verdict {
        let enforced = request.resource == "pods";
        if let Some(why) = self.exemption(request) {
            self.metrics.exempt(request);
            return Verdict::noted(Notes { exempt: Some(why), ..Notes::default() });
        }
        let Some(namespace) = env.reader.get(NAMESPACES, "", request.namespace) else {
            self.metrics.failed(request, true);
            let what = format!("failed to lookup namespace {}", quote(request.namespace));
            let missing = format!("namespaces {} not found", quote(request.namespace));
            let refusal = enforced.then(|| Status::internal(&what));
            let told = refusal.as_ref().map_or(what, |refusal| refusal.message.clone());
            let error = Some(format!("{told}: {missing}"));
            return Verdict { refusal, ..Verdict::noted(Notes { error, ..Notes::default() }) };
        };
        let (policy, errors) = self.policy(|name| stored_label(&namespace.data.labels, name));
        if errors.is_empty() && enforced && policy.is_privileged() {
            self.metrics.evaluated(request, true, policy.enforce, Mode::Enforce);
            let enforce_policy = Some("privileged:latest".into());
            return Verdict::noted(Notes { enforce_policy, ..Notes::default() });
        }
        let tells = !policy.audit.is_privileged() || !policy.warn.is_privileged();
        if errors.is_empty() && !enforced && !tells {
            return Verdict::default();
        }
        if let (true, Operation::Update, Some(old)) = (enforced, request.operation, request.old)
            && !is_significant(object, env.view(old))
        {
            return Verdict::default();
        }
        let Some(pod) = place(request, object) else { return Verdict::default() };
        self.evaluate(request, &pod, policy, &errors, enforced)
    }

    fn evaluate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &Pod<'_>,
        policy: Policy,
        errors: &[FieldError],
        enforced: bool,
    ) -> Verdict {
        let classes = &self.configuration.exemptions.runtime_classes;
        if Exemptions::has(classes, pod.spec.str("runtimeClassName")) {
            self.metrics.exempt(request);
            return Verdict::noted(Notes { exempt: Some("runtimeClass"), ..Notes::default() });
        }
        let mut verdict = Verdict::default();
        if !errors.is_empty() {
            let all: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            verdict.notes.error = Some(format!("Failed to parse policy: {}", config::aggregate(&all)));
            self.metrics.failed(request, false);
        }
        // Modes often ask for the same level.
        let mut evaluated: Vec<(policy::LevelVersion, Violations)> = Vec::with_capacity(2);
        for mode in Mode::ALL {
            let level = policy.at(mode);
            if mode == Mode::Enforce && !enforced || mode == Mode::Warn && verdict.refusal.is_some() {
                continue;
            }
            let at = evaluated.iter().position(|(of, _)| *of == level).unwrap_or_else(|| {
                evaluated.push((level, checks::evaluate(level, pod)));
                evaluated.len() - 1
            });
            let violations = &evaluated[at].1;
            let allowed = violations.is_empty();
            if mode == Mode::Enforce {
                verdict.notes.enforce_policy = Some(level.to_string().into());
            }
            if mode == Mode::Enforce || !allowed {
                self.metrics.evaluated(request, allowed, level, mode);
            }
            if allowed {
                continue;
            }
            let what = format!("PodSecurity {}: {}", quote(&level.to_string()), violations.details());
            match mode {
                Mode::Enforce => {
                    let why = format!("violates {what}");
                    verdict.refusal = Some(Status::forbidden("", request.resource, request.name, why));
                }
                Mode::Audit => verdict.notes.audit_violations = Some(format!("would violate {what}")),
                Mode::Warn => verdict.warning = Some(format!("would violate {what}")),
            }
        }
        verdict
    }
    /// The verdict on a request; `None` if the request does not concern the plugin.
    fn judge(&self, env: &Env, request: &AdmissionRequest<'_>, object: Option<&Struct>) -> Option<Verdict> {
        let is_write = matches!(request.operation, Operation::Create | Operation::Update);
        let object = env.view(object.filter(|_| is_write)?);
        if request.is("", "namespaces") {
            let old = request.old.filter(|_| request.operation == Operation::Update);
            return Some(self.namespace(request, object, old.map(|old| env.view(old))));
        }
        let concerned = if request.info.group.is_empty() && request.resource == "pods" {
            !IGNORED.contains(&request.subresource)
        } else {
            request.subresource.is_empty() && makes_pods(request)
        };
        concerned.then(|| self.pod(env, request, object))
    }
}

/// Whether more is enforced than before: then pods that are there already may violate it.
fn tightens(old: Policy, new: Policy) -> bool {
    new.enforce != old.enforce
        && !new.enforce.is_privileged()
        && (new.enforce.version != old.enforce.version || new.enforce.level > old.enforce.level)
}

impl Plugin for PodSecurity {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        self.judge(env, request, object).map_or(Ok(()), |verdict| verdict.give(request))
    }

    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if request.operation != Operation::Update || !request.is("", "namespaces") {
            return None;
        }
        let (object, old) = (env.view(object?), env.view(request.old?));
        let ((old, _), (new, _)) = (self.policy(label(old)), self.policy(label(object)));
        if !tightens(old, new) || self.exempts_namespace(request.namespace) {
            return None;
        }
        let look = async move {
            let namespace: Text = object.st("metadata").str("name").into();
            let pods = env.reader.list(PODS, &namespace);
            let pods = existing::prioritize(pods, &self.configuration.exemptions.runtime_classes);
            for warning in
                existing::warnings(env.schema, &namespace, pods, new.enforce, Limits::DEFAULT).await
            {
                request.warn(warning);
            }
            Ok(())
        };
        Some(look.boxed())
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }
}
