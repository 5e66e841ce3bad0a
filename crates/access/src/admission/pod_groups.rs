//! PodGroupProtection and PodGroupWorkloadExists.

use api::view::Edit;
use api::{Node, Status, Struct, Text};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::{ResourceName, read};

const GROUP: &str = "scheduling.k8s.io";
const WORKLOADS: ResourceName = (GROUP, "workloads");
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Keeps a PodGroup while pods are in it.
#[derive(Default)]
pub(super) struct PodGroupProtection;

impl Plugin for PodGroupProtection {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is(GROUP, "podgroups") {
            return Ok(());
        }
        let mut edit = Edit::new(env.schema, object);
        if let Some(mut meta) = edit.make("metadata") {
            let mut finalizers = meta.view().list("finalizers").to_vec();
            if !finalizers.iter().any(|f| f.as_str() == FINALIZER) {
                finalizers.push(FINALIZER.into());
                meta.set("finalizers", Node::List(finalizers));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Workload {
    spec: WorkloadSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadSpec {
    pod_group_templates: Vec<Template>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Template {
    name: Text,
}

/// Refuses a PodGroup of a Workload's template unless both exist.
#[derive(Default)]
pub(super) struct PodGroupWorkloadExists;

impl Plugin for PodGroupWorkloadExists {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if request.operation != Operation::Create || !request.is(GROUP, "podgroups") {
            return Ok(());
        }
        let reference = env.view(object).st("spec").st("podGroupTemplateRef");
        let Some(reference) = reference.opt("workload") else { return Ok(()) };
        let (name, template) = (reference.str("workloadName"), reference.str("podGroupTemplateName"));
        let refuse = |why: String| Err(request.forbidden(Some(object), format!("PodGroup rejected: {why}")));
        let Some(workload) = env.reader.get(WORKLOADS, request.namespace, name) else {
            return refuse(format!("Workload {name:?} not found"));
        };
        if workload.data.deleting {
            return refuse(format!("Workload {name:?} is being deleted"));
        }
        let templates = read::<Workload>(&workload).unwrap_or_default().spec.pod_group_templates;
        if templates.iter().any(|t| t.name == template) {
            return Ok(());
        }
        refuse(format!("PodGroupTemplate {template:?} not found in Workload {name:?}"))
    }
}
