//! JobValidation: a Job whose Pods are scheduled together keeps their number.

use api::{Gate, Object, Status, Struct};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::{ResourceName, read};

const GROUPS: ResourceName = ("scheduling.k8s.io", "podgroups");

#[derive(Default)]
pub(super) struct JobValidation;

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodGroup {
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scheduling_policy: Policy,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Policy {
    gang: Option<IgnoredAny>,
}

fn is_gang(group: &Object) -> bool {
    read::<PodGroup>(group).is_some_and(|group| group.spec.scheduling_policy.gang.is_some())
}

impl Plugin for JobValidation {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let (Some(object), Some(old)) = (object, request.old) else { return Ok(()) };
        let gated = env.gates.enabled(Gate::GenericWorkload) || env.gates.enabled(Gate::WorkloadWithJob);
        if !gated || request.operation != Operation::Update || !request.is("batch", "jobs") {
            return Ok(());
        }
        let (new, old) = (env.view(object), env.view(old));
        if new.st("spec").opt_int("parallelism") == old.st("spec").opt_int("parallelism") {
            return Ok(());
        }
        let template = old.st("spec").st("template").st("spec");
        let gang = if let Some(name) = template.st("schedulingGroup").opt_str("podGroupName") {
            env.reader.get(GROUPS, request.namespace, name).filter(|group| is_gang(group))
        } else {
            let uid = old.st("metadata").str("uid");
            let owned = |group: &Object| group.data.owners.iter().any(|o| o.controller && o.uid == uid);
            let groups = env.reader.list(GROUPS, request.namespace);
            groups.into_iter().find(|group| owned(group) && is_gang(group))
        };
        let Some(group) = gang else { return Ok(()) };
        let why = format!(
            "cannot change parallelism for a Job referencing gang-scheduled PodGroup {}",
            api::go::quote(&group.data.name)
        );
        Err(request.forbidden(Some(object), why))
    }
}
