//! RuntimeClass: a pod gets its class's overhead and placement.

use std::collections::BTreeMap;

use api::quantity;
use api::view::{Edit, View};
use api::{Map, Node, Status, Struct, Text};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::toleration_list::{self, Toleration};
use super::{AdmissionRequest, Operation};
use crate::reader::read;

#[derive(Default)]
pub(super) struct RuntimeClass;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Class {
    overhead: Option<Overhead>,
    scheduling: Option<Scheduling>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Overhead {
    pod_fixed: BTreeMap<Text, Text>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Scheduling {
    node_selector: BTreeMap<Text, Text>,
    tolerations: Vec<Toleration>,
}

impl Class {
    /// Finds the class that a pod names; `None` if it names none.
    fn of(env: &Env, request: &AdmissionRequest<'_>, pod: &Struct) -> Result<Option<Self>, Status> {
        let Some(name) = env.view(pod).st("spec").opt_str("runtimeClassName") else { return Ok(None) };
        if let Some(class) = env.reader.get(("node.k8s.io", "runtimeclasses"), "", name) {
            return Ok(Some(read(&class).unwrap_or_default()));
        }
        let why = format!("pod rejected: RuntimeClass {} not found", api::go::quote(name));
        Err(request.forbidden(Some(pod), why))
    }
}

fn applies(request: &AdmissionRequest<'_>) -> bool {
    request.operation == Operation::Create && request.is("", "pods")
}

fn same_amounts(fixed: &BTreeMap<Text, Text>, pod: &View<'_>) -> bool {
    let spec = pod.st("spec");
    spec.len("overhead") == fixed.len()
        && spec
            .texts("overhead")
            .all(|(k, v)| fixed.get(k).is_some_and(|f| quantity::nano(f) == quantity::nano(v)))
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

impl Plugin for RuntimeClass {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !applies(request) {
            return Ok(());
        }
        let Some(class) = Class::of(env, request, object)? else { return Ok(()) };
        if let Some(overhead) = class.overhead {
            let pod = env.view(object);
            if pod.st("spec").len("overhead") > 0 && !same_amounts(&overhead.pod_fixed, &pod) {
                return Err(request.forbidden(Some(object), MISMATCH));
            }
            let entries = overhead.pod_fixed.into_iter().map(|(k, v)| (k, Node::from(v))).collect();
            let made = Map::from_entries(entries);
            if let Some(mut spec) = Edit::new(env.schema, object).make("spec") {
                spec.put("overhead", (!made.is_empty()).then(|| made.into()));
            }
        }
        if let Some(scheduling) = class.scheduling {
            let spec = env.view(object).st("spec");
            if let Some(selector) = spec.map("nodeSelector") {
                for (key, value) in &scheduling.node_selector {
                    if let Some(own) = selector.get(key).filter(|own| own.as_str() != value) {
                        let why = format!(
                            "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {}",
                            own.as_str()
                        );
                        return Err(request.forbidden(Some(object), why));
                    }
                }
            }
            let own = toleration_list::of(&spec);
            let merged = toleration_list::merge(own.into_iter().chain(scheduling.tolerations).collect());
            let mut edit = Edit::new(env.schema, object);
            let Some(mut spec) = edit.make("spec") else { return Ok(()) };
            if !scheduling.node_selector.is_empty()
                && let Some(selector) = spec.make_map("nodeSelector")
            {
                for (key, value) in scheduling.node_selector {
                    selector.insert(key, value);
                }
            }
            toleration_list::set(&mut spec, &merged);
        }
        Ok(())
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|_| applies(request)) else { return Ok(()) };
        let pod = env.view(object);
        let why = match Class::of(env, request, object)?.and_then(|c| c.overhead) {
            Some(overhead) if same_amounts(&overhead.pod_fixed, &pod) => return Ok(()),
            Some(_) => MISMATCH,
            None if pod.st("spec").as_written("overhead").is_none() => return Ok(()),
            None => "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        };
        Err(request.forbidden(Some(object), why))
    }
}
