//! Upstream's own cases of the allocator (the tables of `structured/internal/allocatortesting`), with what upstream
//! v1.36.2 answers to each (but for those 21 of the gate DRAListTypeAttributes, which is off): the allocations, or the error, and how often it looked for a device where its table tells.
//! One case a line, in `cases/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::allocated::Allocated;
use super::search::STEPS;
use super::selector::Selectors;
use super::snapshot::Snapshot;
use super::stock::Slice;
use super::{AllocationError, Allocator, DeviceId, Features, Limits, WORK};

const CASES: &str = include_str!("cases/allocations.jsonl");

fn objects<T: DeserializeOwned>(values: &Value) -> Vec<T> {
    values.as_array().unwrap().iter().map(|v| serde_json::from_value(v.clone()).unwrap()).collect()
}

fn features(case: &Value) -> Features {
    let has = |name: &str| case["features"].as_array().unwrap().iter().any(|f| f == name);
    Features {
        admin_access: has("AdminAccess"),
        consumable_capacity: has("ConsumableCapacity"),
        binding_conditions: has("DeviceBindingAndStatus"),
        device_taints: has("DeviceTaints"),
        list_attributes: has("ListTypeAttributes"),
        partitionable_devices: has("PartitionableDevices"),
        prioritized_list: has("PrioritizedList"),
    }
}

fn id(device: &Value) -> DeviceId {
    let part = |i: usize| device[i].as_str().unwrap();
    DeviceId::new(part(0), part(1), part(2))
}

fn allocated(case: &Value) -> Allocated {
    let mut all = Allocated::default();
    let of = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    for device in of("allocated") {
        all.set(id(&device), None);
    }
    for device in of("shared") {
        all.set(id(&device), Some(BTreeMap::new()));
    }
    for part in of("consumed") {
        let amounts = part["capacity"].as_object().unwrap().iter();
        let amounts =
            amounts.map(|(name, q)| (name.clone(), Quantity::parse(q.as_str().unwrap()).unwrap())).collect();
        all.set(id(&part["device"]), Some(amounts));
    }
    all
}

fn allocator(case: &Value) -> Allocator {
    let classes = objects::<DeviceClass>(&case["classes"]).into_iter();
    let classes = classes.map(|c| (c.metadata.name.clone().unwrap(), Arc::new(c))).collect();
    let slices = objects(&case["slices"]).into_iter().map(|s| Arc::new(Slice::new(Arc::new(s))));
    Allocator::new(
        features(case),
        Snapshot::new(slices, &allocated(case)),
        Arc::new(classes),
        Arc::new(Selectors::default()),
        || "11111111-1111-1111-1111-111111111111".to_owned(),
    )
}

/// The answer in upstream's form: allocations, or an error.
fn answer(case: &Value, limits: Limits<'_>) -> Result<Value, String> {
    let node: Node = serde_json::from_value(case["node"].clone()).unwrap();
    let claims: Vec<ResourceClaim> = objects(&case["claims"]);
    let claims: Vec<&ResourceClaim> = claims.iter().collect();
    STEPS.set(0);
    match allocator(case).allocate((&Arc::new(node), 0), &claims, limits) {
        Ok(results) => Ok(serde_json::to_value(results.unwrap_or_default()).unwrap()),
        Err(AllocationError::Node(why) | AllocationError::Failed(why)) => Err(why),
        Err(AllocationError::TimedOut) => Err("timed out".to_owned()),
    }
}

const BOUNDS: Limits<'static> = Limits { work: WORK, expired: &|| false };

/// A text without what upstream's own test doubles say.
fn told(error: &str) -> String {
    match error.split_once("could not retrieve device class") {
        Some((about, _)) => about.to_owned(),
        None => error.to_owned(),
    }
}

/// Upstream's share ids are other ones.
fn shares(mut results: Value) -> Value {
    for result in results.as_array_mut().unwrap() {
        for device in result["devices"]["results"].as_array_mut().into_iter().flatten() {
            if device.get("shareID").is_some() {
                device["shareID"] = json!("");
            }
        }
    }
    results
}

#[test]
fn upstreams_allocations() {
    let (mut cases, mut wrong) = (0, Vec::new());
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        cases += 1;
        let name = case["name"].as_str().unwrap();
        let expected = match case.get("error") {
            Some(error) => Err(told(error.as_str().unwrap())),
            None => Ok(shares(case["results"].clone())),
        };
        let got = answer(&case, BOUNDS).map(shares).map_err(|e| told(&e));
        if got != expected {
            wrong.push(format!("{name}:\n  got      {got:?}\n  expected {expected:?}"));
        } else if let Some(steps) = case["steps"].as_u64()
            && steps != STEPS.get()
        {
            wrong.push(format!("{name}: {} steps, expected {steps}", STEPS.get()));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(cases, 198);
}
