//! Upstream's tables about memory.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::policy::StaticPolicy;
use super::reserved::ByNode;
use super::state::{Block, MachineState, MemoryState, MemoryTable, NumaState};
use super::wanted;
use crate::node::hardware::Hardware;
use crate::pods::spec;
use crate::resource_managers::Counters;
pub(super) use crate::topology_manager::cases::hardware;
use crate::topology_manager::cases::{cases, hint, usizes};
use crate::topology_manager::{Hint, UNKNOWN};

/// An amount, as a quantity or as a number.
pub(super) fn amount(value: &Value) -> u64 {
    match value.as_str() {
        Some(text) => u64::try_from(Quantity::parse(text).unwrap().value()).unwrap(),
        None => value.as_u64().unwrap(),
    }
}

pub(super) fn blocks(value: &Value) -> Vec<Block> {
    let one = |b: &Value| Block {
        numa_affinity: usizes(&b["NUMAAffinity"]),
        kind: b["Type"].as_str().unwrap().to_owned(),
        size: b["Size"].as_u64().unwrap(),
    };
    let mut all: Vec<Block> = value.as_array().into_iter().flatten().map(one).collect();
    all.sort_by(|a, b| a.kind.cmp(&b.kind));
    all
}

pub(super) fn containers(value: &Value) -> BTreeMap<String, BTreeMap<String, Vec<Block>>> {
    let of_pod = |all: &Value| {
        all.as_object().unwrap().iter().map(|(name, all)| (name.clone(), blocks(all))).collect()
    };
    value.as_object().into_iter().flatten().map(|(uid, all)| (uid.clone(), of_pod(all))).collect()
}

pub(super) fn machine(value: &Value) -> MachineState {
    let table = |t: &Value| {
        let n = |field: &str| t[field].as_u64().unwrap();
        MemoryTable {
            total: n("TotalMemSize"),
            system_reserved: n("SystemReserved"),
            allocatable: n("Allocatable"),
            reserved: n("Reserved"),
            free: n("Free"),
        }
    };
    let tables = |all: &Value| {
        all.as_object().into_iter().flatten().map(|(kind, t)| (kind.clone(), table(t))).collect()
    };
    let node = |n: &Value| NumaState {
        number_of_assignments: n["NumberOfAssignments"].as_i64().unwrap(),
        memory_map: tables(&n["MemoryMap"]),
        cells: usizes(&n["Cells"]),
    };
    value.as_object().into_iter().flatten().map(|(id, n)| (id.parse().unwrap(), node(n))).collect()
}

fn pod(value: &Value) -> Pod {
    serde_json::from_value(value.clone()).unwrap()
}

fn reserved(value: &Value) -> ByNode {
    let amounts = |all: &Value| {
        all.as_object().unwrap().iter().map(|(kind, n)| (kind.clone(), n.as_u64().unwrap())).collect()
    };
    value.as_object().into_iter().flatten().map(|(id, all)| (id.parse().unwrap(), amounts(all))).collect()
}

fn policy(case: &Value) -> Result<StaticPolicy, String> {
    let features = &case["features"];
    let on = |flag: &str, feature: &str| case[flag] == true || features[feature] == true;
    let pod_level = on("podLevelResourceManagersEnabled", "PodLevelResourceManagers")
        && on("podLevelResourcesEnabled", "PodLevelResources");
    let machine: Hardware = hardware(&case["machineInfo"]);
    StaticPolicy::new(&machine, reserved(&case["systemReserved"]), pod_level).map_err(|e| e.to_string())
}

fn state(case: &Value) -> MemoryState {
    MemoryState {
        machine: machine(&case["machineState"]),
        containers: containers(&case["assignments"]),
        pods: BTreeMap::new(),
    }
}

/// Whether a machine is as a case says; upstream compares nodes that give together as one.
fn assert_machine(got: &MachineState, case: &Value) {
    let expected = machine(&case["expectedMachineState"]);
    assert!(super::policy::same(got, &expected), "{got:?}\n{expected:?}\n{case}");
}

fn sorted(
    mut all: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
) -> BTreeMap<String, BTreeMap<String, Vec<Block>>> {
    for blocks in all.values_mut().flat_map(BTreeMap::values_mut) {
        blocks.sort_by(|a, b| a.kind.cmp(&b.kind));
    }
    all
}

#[test]
fn how_the_policy_starts() {
    for case in cases(include_str!("cases/start.jsonl"), 17) {
        let mut state = state(&case);
        let started = policy(&case).and_then(|policy| {
            if case["table"] == "TestStaticPolicyNew" {
                return Ok(());
            }
            policy.start(&mut state).map_err(|e| e.to_string())
        });
        if let Some(error) = case["expectedError"].as_str() {
            assert_eq!(started.unwrap_err(), error, "{case}");
        } else {
            started.unwrap_or_else(|e| panic!("{e}: {case}"));
            if !case["expectedMachineState"].is_null() {
                assert_machine(&state.machine, &case);
            }
        }
    }
}

#[test]
fn what_containers_get() {
    let counters = Counters::default();
    for case in cases(include_str!("cases/allocate.jsonl"), 26) {
        let (mut policy, mut state) = (policy(&case).unwrap(), state(&case));
        let pod = pod(&case["pod"]);
        let near: Hint = case.get("topologyHint").filter(|h| !h.is_null()).map_or(UNKNOWN, hint);
        let got = match case["table"].as_str().unwrap() {
            "TestStaticPolicyAllocatePod" => policy.allocate_pod(&mut state, &pod, near, &counters).map(drop),
            "TestStaticPolicyAllocate" => {
                let first = &spec::containers(&pod)[0];
                policy.allocate(&mut state, &pod, first, near, &counters).map(drop)
            }
            _ => {
                let mut all = spec::init_containers(&pod).iter().chain(spec::containers(&pod));
                all.try_for_each(|c| policy.allocate(&mut state, &pod, c, near, &counters).map(drop))
            }
        };
        if let Some(error) = case["expectedError"].as_str() {
            assert_eq!(got.unwrap_err().to_string(), error, "{case}");
        } else {
            got.unwrap_or_else(|e| panic!("{e}: {case}"));
            assert_eq!(sorted(state.containers), containers(&case["expectedAssignments"]), "{case}");
            assert_machine(&state.machine, &case);
        }
    }
}

#[test]
fn what_is_free_again() {
    for case in cases(include_str!("cases/remove.jsonl"), 3) {
        let (policy, mut state) = (policy(&case).unwrap(), state(&case));
        policy.remove(&mut state, "pod1", "container1");
        assert_eq!(sorted(state.containers), containers(&case["expectedAssignments"]), "{case}");
        assert_machine(&state.machine, &case);
    }
}

#[test]
fn where_memory_can_come_from() {
    for case in cases(include_str!("cases/hints.jsonl"), 17) {
        let (policy, state) = (policy(&case).unwrap(), state(&case));
        let pod = pod(&case["pod"]);
        let got = if case["table"] == "TestStaticPolicyGetPodTopologyHints" {
            policy.pod_hints(&state, &pod)
        } else {
            let first = spec::containers(&pod).first().or_else(|| spec::init_containers(&pod).first());
            policy.hints(&state, &pod, first.unwrap())
        };
        let expected = case["expectedTopologyHints"].as_object().into_iter().flatten();
        let list = |all: &Value| all.as_array().map(|all| all.iter().map(hint).collect::<Vec<_>>());
        let expected: BTreeMap<_, _> = expected.map(|(kind, all)| (kind.clone(), list(all))).collect();
        assert_eq!(got, expected, "{case}");
    }
}

#[test]
fn how_much_a_pod_needs() {
    for case in cases(include_str!("cases/wanted.jsonl"), 5) {
        let got = wanted::of_pod(&pod(&case["pod"]), false);
        assert_eq!(serde_json::to_value(got).unwrap(), case["expected"], "{case}");
    }
}

#[test]
fn which_nodes_cannot_give_together() {
    for case in cases(include_str!("cases/violations.jsonl"), 3) {
        let mask = hint(&case["topologyHint"]).affinity.unwrap();
        let got = super::policy::violates(&machine(&case["machineState"]), mask);
        assert_eq!(Value::from(got), case["isViolationExpected"], "{case}");
    }
}

#[test]
fn what_is_left_for_containers_that_share() {
    for mut case in cases(include_str!("cases/pools.jsonl"), 12) {
        case["systemReserved"] = serde_json::json!({"0": {"memory": 1}});
        let got = policy(&case).unwrap().validate_pool(&pod(&case["pod"]));
        let got = got.err().map(|e| e.to_string());
        assert_eq!(got.as_deref(), case["expectedErr"].as_str(), "{case}");
    }
}

/// Whatever is given and taken back, the file of it is what a new process takes.
#[test]
fn memory_is_neither_lost_nor_given_twice() {
    let counters = Counters::default();
    let mut random = fastrand::Rng::with_seed(11);
    let node = |id| serde_json::json!({"node_id": id, "memory": 8_u64 << 30, "hugepages": [{"page_size": 2048, "num_pages": 512}]});
    let case = serde_json::json!({
        "machineInfo": (0..3).map(node).collect::<Vec<_>>(),
        "systemReserved": {"0": {"memory": 1 << 30}},
    });
    let mut policy = policy(&case).unwrap();
    let mut state = MemoryState::default();
    policy.start(&mut state).unwrap();
    let untouched = state.machine.clone();
    for round in 0..500 {
        let uid = format!("pod{}", random.u32(..6));
        if random.bool() {
            let (memory, huge) =
                (format!("{}Mi", random.u32(1..9000)), format!("{}Mi", random.u32(0..300) * 2));
            let list = serde_json::json!({"cpu": "1", "memory": memory, "hugepages-2Mi": huge});
            let container = serde_json::json!({"name": "c", "resources": {"requests": list, "limits": list}});
            let pod =
                pod(&serde_json::json!({"metadata": {"uid": uid}, "spec": {"containers": [container]}}));
            let first = &spec::containers(&pod)[0];
            let before = state.clone();
            if policy.allocate(&mut state, &pod, first, UNKNOWN, &counters).is_err() {
                assert_eq!(state, before, "{round}");
            }
        } else {
            policy.remove(&mut state, &uid, "c");
        }
        assert_eq!(policy.start(&mut state.clone()), Ok(()), "{round}: {state:?}");
    }
    for uid in state.containers.clone().into_keys() {
        policy.remove(&mut state, &uid, "c");
    }
    assert_eq!(state.machine, untouched);
}
