//! DefaultTolerationSeconds: pods stay five minutes on a node that is not ready or not reachable.
//! ExtendedResourceToleration: pods tolerate the taints of nodes that are kept for those who use their resources.

use std::collections::BTreeSet;

use api::view::Edit;
use api::{Status, Struct};

use super::plugin::{Env, Plugin};
use super::service_account::append;
use super::toleration_list::{self, Toleration};
use super::{AdmissionConfig, AdmissionRequest, Operation};

/// The taints that every Pod tolerates for a time.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(super) struct DefaultTolerationSeconds {
    /// The time of each taint, in seconds.
    seconds: [i64; 2],
}

impl DefaultTolerationSeconds {
    /// With the server's times.
    pub(super) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        Ok(Box::new(Self { seconds: config.toleration_seconds }))
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "pods") {
            return Ok(());
        }
        let mut pod = Edit::new(env.schema, object);
        let Some(mut spec) = pod.make("spec") else { return Ok(()) };
        for (key, seconds) in TAINTS.into_iter().zip(self.seconds) {
            let tolerated = spec.view().items("tolerations").any(|t| {
                matches!(t.str("key"), k if k == key || k.is_empty())
                    && matches!(t.str("effect"), "NoExecute" | "")
            });
            // Both tolerations are looked for before either is added; the ones added here have other keys.
            if !tolerated {
                append(&mut spec, "tolerations", |toleration| {
                    toleration.set("key", key);
                    toleration.set("operator", "Exists");
                    toleration.set("effect", "NoExecute");
                    toleration.set("tolerationSeconds", seconds);
                });
            }
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct ExtendedResourceToleration;

/// Whether a resource is none of Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && api::names::qualified_name(&format!("requests.{name}")).is_empty()
}

impl Plugin for ExtendedResourceToleration {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "pods") {
            return Ok(());
        }
        let spec = env.view(object).st("spec");
        let mut names = BTreeSet::new();
        for container in spec.items("containers").chain(spec.items("initContainers")) {
            let requests = container.st("resources");
            names.extend(requests.texts("requests").map(|(name, _)| name).filter(|name| is_extended(name)));
        }
        if names.is_empty() {
            return Ok(());
        }
        let mut all = toleration_list::of(&spec);
        for name in names {
            add(&mut all, name);
        }
        if let Some(mut spec) = Edit::new(env.schema, object).make("spec") {
            toleration_list::set(&mut spec, &all);
        }
        Ok(())
    }
}

/// Adds the toleration of a resource's taint, or puts it in the place of one for the same taint.
fn add(all: &mut Vec<Toleration>, resource: &str) {
    let wanted = Toleration {
        key: resource.into(),
        operator: "Exists".into(),
        effect: "NoSchedule".into(),
        ..Toleration::default()
    };
    let same = |t: &Toleration| {
        (&t.key, &t.effect, &t.operator, &t.value)
            == (&wanted.key, &wanted.effect, &wanted.operator, &wanted.value)
    };
    match all.iter().position(same) {
        Some(at) => all[at] = wanted,
        None => all.push(wanted),
    }
}
