//! RuntimeClass: a pod gets its class's overhead and placement.

use std::collections::BTreeMap;

use api::quantity;
use api::view::{Edit, View};
use api::{Map, Node, Status, Struct, Text};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::read;

#[derive(Default)]
pub(super) struct RuntimeClass;

#[derive(Deserialize, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Toleration {
    key: Text,
    operator: Text,
    value: Text,
    effect: Text,
    toleration_seconds: Option<i64>,
}

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
        Err(env.forbidden(request, Some(pod), why))
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
                return Err(env.forbidden(request, Some(object), MISMATCH));
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
                        return Err(env.forbidden(request, Some(object), why));
                    }
                }
            }
            let own = spec.items("tolerations").map(|t| Toleration {
                key: t.str("key").into(),
                operator: t.str("operator").into(),
                value: t.str("value").into(),
                effect: t.str("effect").into(),
                toleration_seconds: t.opt_int("tolerationSeconds"),
            });
            let merged = merge(own.chain(scheduling.tolerations).collect());
            let mut edit = Edit::new(env.schema, object);
            let Some(mut spec) = edit.make("spec") else { return Ok(()) };
            if !scheduling.node_selector.is_empty()
                && let Some(selector) = spec.make_map("nodeSelector")
            {
                for (key, value) in scheduling.node_selector {
                    selector.insert(key, value);
                }
            }
            let made: Vec<Node> =
                merged.iter().filter_map(|t| toleration(&spec, t)).map(Node::from).collect();
            spec.put("tolerations", (!made.is_empty()).then_some(Node::List(made)));
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
        Err(env.forbidden(request, Some(object), why))
    }
}

fn toleration(spec: &Edit<'_>, from: &Toleration) -> Option<Struct> {
    let mut made = spec.fresh("tolerations")?;
    let mut edit = Edit::new(spec.schema, &mut made);
    let texts =
        [("key", &from.key), ("operator", &from.operator), ("value", &from.value), ("effect", &from.effect)];
    for (field, value) in texts {
        if !value.is_empty() {
            edit.set(field, value.clone());
        }
    }
    if let Some(seconds) = from.toleration_seconds {
        edit.set("tolerationSeconds", seconds);
    }
    Some(made)
}

/// The greatest number of tolerations that are merged; more stay as they are.
///
/// DIFFERENCE: upstream compares each with each, also 40,000.
const MOST_MERGED: usize = 1000;

/// Leaves out the tolerations that another one makes needless; of equal ones the first stays.
fn merge(all: Vec<Toleration>) -> Vec<Toleration> {
    if all.len() > MOST_MERGED {
        return all;
    }
    let mut merged: Vec<Toleration> = Vec::new();
    for (i, t) in all.iter().enumerate() {
        let covered = merged.iter().any(|m| is_superset(m, t))
            || all[i + 1..].iter().any(|later| later != t && is_superset(later, t));
        if !covered {
            merged.push(t.clone());
        }
    }
    merged
}

/// Whether `wide` tolerates everything that `t` does.
fn is_superset(wide: &Toleration, t: &Toleration) -> bool {
    if wide == t {
        return true;
    }
    if wide.key != t.key && !(wide.key.is_empty() && wide.operator == "Exists")
        || wide.effect != t.effect && !wide.effect.is_empty()
    {
        return false;
    }
    if wide.effect == "NoExecute"
        && let Some(seconds) = wide.toleration_seconds
        && t.toleration_seconds.is_none_or(|s| s > seconds)
    {
        return false;
    }
    match wide.operator.as_str() {
        "Equal" | "" => t.operator == "Equal" && wide.value == t.value,
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_merge() {
        let t = |key: &str, operator: &str, value: &str, effect: &str, seconds: Option<i64>| Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
            toleration_seconds: seconds,
        };
        let equal = t("a", "Equal", "1", "NoSchedule", None);
        let exists = t("a", "Exists", "", "NoSchedule", None);
        let all = t("", "Exists", "", "", None);
        let cases = [
            (vec![equal.clone(), equal.clone()], vec![equal.clone()]),
            (vec![equal.clone(), exists.clone()], vec![exists.clone()]),
            (vec![all.clone(), exists.clone(), equal.clone()], vec![all.clone()]),
            (
                vec![t("b", "Exists", "", "NoExecute", Some(5)), t("b", "Exists", "", "NoExecute", Some(9))],
                vec![t("b", "Exists", "", "NoExecute", Some(9))],
            ),
        ];
        for (given, want) in cases {
            assert!(merge(given) == want);
        }
    }
}
