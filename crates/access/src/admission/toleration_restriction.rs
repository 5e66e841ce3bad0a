//! PodTolerationRestriction: the Pods of a namespace get its tolerations, and have no others than it allows.

use std::collections::BTreeMap;

use api::quantity;
use api::view::{Edit, View};
use api::{Status, Struct};
use serde::Deserialize;

use super::config::{self, Unknown};
use super::plugin::{Env, Plugin};
use super::toleration_list::{self, Toleration, is_superset};
use super::{AdmissionConfig, AdmissionRequest, Operation};
use crate::reader::read;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// The greatest number of comparisons of a Pod's tolerations with those that are allowed.
///
/// DIFFERENCE: upstream compares each with each, however many there are.
const MOST_COMPARED: usize = 1_000_000;

/// The plugin, with what holds where a namespace says nothing.
pub(super) struct PodTolerationRestriction {
    defaults: Vec<Toleration>,
    allowed: Vec<Toleration>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    default: Option<Vec<Toleration>>,
    #[serde(default)]
    whitelist: Option<Vec<Toleration>>,
    #[serde(flatten)]
    _unknown: Unknown,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

impl Namespace {
    fn of(env: &Env, name: &str) -> Result<Self, Status> {
        let object = env.reader.get(("", "namespaces"), "", name);
        let object = object.ok_or_else(|| Status::not_found("", "namespaces", name))?;
        Ok(read(&object).unwrap_or_default())
    }

    /// The tolerations in an annotation; `None` without it.
    fn tolerations(&self, annotation: &str) -> Result<Option<Vec<Toleration>>, Status> {
        match self.metadata.annotations.get(annotation).map(String::as_str) {
            None => Ok(None),
            Some("") => Ok(Some(Vec::new())),
            Some(text) => {
                let list: Result<Option<Vec<Toleration>>, _> = serde_json::from_str(text);
                list.map(|list| Some(list.unwrap_or_default()))
                    .map_err(|e| Status::failure(500, "", e.to_string()))
            }
        }
    }
}

impl PodTolerationRestriction {
    /// Makes the plugin from its configuration.
    pub(super) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        let (defaults, allowed) = parse(config.of("PodTolerationRestriction"))?;
        Ok(Box::new(Self { defaults, allowed }))
    }

    fn check(&self, env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> Result<(), Status> {
        let own = toleration_list::of(&env.view(object).st("spec"));
        if own.is_empty() {
            return Ok(());
        }
        let of_namespace = Namespace::of(env, request.namespace)?.tolerations(ALLOWED)?;
        let (allowed, whose) = match &of_namespace {
            Some(allowed) => (allowed, "namespace"),
            None => (&self.allowed, "cluster"),
        };
        if allowed.is_empty() {
            return Ok(());
        }
        let many = own.len().saturating_mul(allowed.len()) > MOST_COMPARED;
        if many || !own.iter().all(|t| allowed.iter().any(|wide| is_superset(wide, t))) {
            let why = format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
            );
            return Err(Status::failure(500, "", why));
        }
        Ok(())
    }
}

fn parse(text: Option<&[u8]>) -> Result<(Vec<Toleration>, Vec<Toleration>), String> {
    const VERSIONS: [&str; 1] = ["podtolerationrestriction.admission.k8s.io/v1alpha1"];
    let Some(text) = text else { return Ok(Default::default()) };
    let document: Document = config::document(text, "Configuration", &VERSIONS)
        .map_err(|why| format!("couldn't init admission plugin \"PodTolerationRestriction\": {why}"))?;
    Ok((document.default.unwrap_or_default(), document.whitelist.unwrap_or_default()))
}

fn is_concerned(request: &AdmissionRequest<'_>) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
}

/// Whether a Pod asks for no CPU and no memory.
fn is_best_effort(pod: &View<'_>) -> bool {
    let class = pod.st("status").str("qosClass");
    if !class.is_empty() {
        return class == "BestEffort";
    }
    let spec = pod.st("spec");
    let asks = |of: &View<'_>| {
        let resources = of.st("resources");
        ["requests", "limits"].iter().any(|field| {
            resources
                .texts(field)
                .any(|(name, amount)| matches!(name, "cpu" | "memory") && quantity::nano(amount) > 0)
        })
    };
    let whole = spec.st("resources");
    if whole.len("requests") > 0 || whole.len("limits") > 0 {
        return !asks(&spec);
    }
    !spec.items("containers").chain(spec.items("initContainers")).any(|container| asks(&container))
}

impl Plugin for PodTolerationRestriction {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !is_concerned(request) {
            return Ok(());
        }
        let mut more = Vec::new();
        if request.operation == Operation::Create {
            let of_namespace = Namespace::of(env, request.namespace)?.tolerations(DEFAULTS)?;
            more = of_namespace.unwrap_or_else(|| self.defaults.clone());
        }
        let pod = env.view(object);
        if !is_best_effort(&pod) {
            more.push(Toleration {
                key: "node.kubernetes.io/memory-pressure".into(),
                operator: "Exists".into(),
                effect: "NoSchedule".into(),
                ..Toleration::default()
            });
        }
        if !more.is_empty() {
            let own = toleration_list::of(&pod.st("spec"));
            let merged = toleration_list::merge(own.into_iter().chain(more).collect());
            if let Some(mut spec) = Edit::new(env.schema, object).make("spec") {
                toleration_list::set(&mut spec, &merged);
            }
        }
        self.check(env, request, object)
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        match object.filter(|_| is_concerned(request)) {
            Some(object) => self.check(env, request, object),
            None => Ok(()),
        }
    }
}
