//! Upstream's tables about processors.

use std::collections::BTreeMap;

use api::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;

use super::assignment::{Accumulator, Sorting, distributed, packed};
use super::policy::{StaticPolicy, StaticSettings};
use super::topology::{CpuDetails, CpuInfo, CpuTopology, Level};
use super::{CpuOptions, CpuSet, CpuState, wanted};
use crate::pods::spec;
use crate::resource_managers::Counters;
use crate::topology_manager::cases::{cases, hint, mask, options, usizes};
use crate::topology_manager::{Hint, PolicyKind};

/// Upstream's machines by their names.
fn topologies() -> BTreeMap<String, CpuTopology> {
    let one = |case: Value| {
        let [cpus, cores, uncores, sockets, numas] = usizes(&case["counts"])[..] else { panic!("{case}") };
        let info = |row: &Value| {
            let [cpu, numa, socket, core, uncore] = usizes(row)[..] else { panic!("{row}") };
            (cpu, CpuInfo { numa, socket, core, uncore })
        };
        let details = CpuDetails(case["cpus"].as_array().unwrap().iter().map(info).collect());
        let topology = CpuTopology { cpus, cores, uncores, sockets, numas, details };
        (case["name"].as_str().unwrap().to_owned(), topology)
    };
    cases(include_str!("cases/topologies.jsonl"), 23).into_iter().map(one).collect()
}

fn cpus(value: &Value) -> CpuSet {
    value.as_str().unwrap_or_default().parse().unwrap()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap_or_default()).unwrap()
}

fn pod(value: &Value) -> Pod {
    serde_json::from_value(value.clone()).unwrap()
}

fn state(case: &Value) -> CpuState {
    let assignments = case["stAssignments"].as_object().or_else(|| case["assignments"].as_object());
    let shared =
        if case["stDefaultCPUSet"].is_null() { &case["defaultCPUSet"] } else { &case["stDefaultCPUSet"] };
    let containers =
        |all: &Value| all.as_object().unwrap().iter().map(|(name, set)| (name.clone(), cpus(set))).collect();
    let all = assignments.into_iter().flatten();
    CpuState {
        shared: cpus(shared),
        containers: all.map(|(uid, all)| (uid.clone(), containers(all))).collect(),
        pods: BTreeMap::new(),
    }
}

fn gates() -> FeatureGates {
    FeatureGates::default().with(Gate::CPUManagerPolicyAlphaOptions, true)
}

/// The policy of a case; the fields of upstream's tables have several names.
fn policy(case: &Value, topology: &CpuTopology) -> Result<StaticPolicy, String> {
    let given = if case["options"].is_null() { &case["cpuPolicyOptions"] } else { &case["options"] };
    let given = if given.is_null() { &case["policyOptions"] } else { given };
    let reserved = if case["reserved"].is_null() { &case["reservedCPUs"] } else { &case["reserved"] };
    let reserved_count = number(if case["numReservedCPUs"].is_null() {
        &case["numReserved"]
    } else {
        &case["numReservedCPUs"]
    });
    let features = &case["features"];
    let pod_level = case["podLevelResourceManagersEnabled"] == true
        && case["podLevelResourcesEnabled"] != false
        || features["PodLevelResourceManagers"] == true && features["PodLevelResources"] != false;
    StaticPolicy::new(StaticSettings {
        topology: topology.clone(),
        reserved_count,
        reserved: cpus(reserved),
        options: CpuOptions::parse(&options(given), gates()).map_err(|e| e.to_string())?,
        topology_policy: PolicyKind::None,
        pod_level,
    })
    .map_err(|e| e.to_string())
}

fn topology<'a>(all: &'a BTreeMap<String, CpuTopology>, case: &Value) -> &'a CpuTopology {
    let name = case["topo"].as_str().or_else(|| case["topology"].as_str()).unwrap();
    all.get(name).unwrap()
}

#[test]
fn what_is_free() {
    let all = topologies();
    for case in cases(include_str!("cases/free.jsonl"), 44) {
        let acc = Accumulator::new(topology(&all, &case), &cpus(&case["availableCPUs"]), 0, Sorting::Packed);
        let (got, expected) = match case["table"].as_str().unwrap() {
            "FreeSockets" => (acc.free_parts(Level::Socket), &case["expect"]),
            "FreeNUMANodes" => (acc.free_parts(Level::Numa), &case["expect"]),
            "FreeCores" => (acc.free_parts(Level::Core), &case["expect"]),
            "FreeCPUs" => (acc.cpus(), &case["expect"]),
            _ => {
                assert_eq!(acc.free_parts(Level::Socket), usizes(&case["expectSockets"]), "{case}");
                (acc.free_parts(Level::Numa), &case["expectNUMANodes"])
            }
        };
        let (mut got, mut expected) = (got, usizes(expected));
        // Upstream's tests of these sort what they get.
        if matches!(case["table"].as_str(), Some("FreeSockets" | "FreeNUMANodes")) {
            got.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(got, expected, "{case}");
    }
    for case in cases(include_str!("cases/accumulate.jsonl"), 6) {
        let (available, count) = (cpus(&case["availableCPUs"]), number(&case["numCPUs"]));
        let mut acc = Accumulator::new(topology(&all, &case), &available, count, Sorting::Packed);
        for taken in case["takeCPUs"].as_array().unwrap() {
            acc.take(&cpus(taken));
        }
        assert_eq!(Value::from(acc.is_satisfied()), case["expectSatisfied"], "{case}");
        assert_eq!(Value::from(acc.is_failed()), case["expectFailed"], "{case}");
    }
}

#[test]
fn what_is_taken() {
    let all = topologies();
    for case in cases(include_str!("cases/take.jsonl"), 75) {
        let (topology, available) = (topology(&all, &case), cpus(&case["availableCPUs"]));
        let (count, opts) = (number(&case["numCPUs"]), case["opts"].to_string());
        let has = |name: &str| opts.contains(name);
        let sorting = if has("DistributeCPUsAcrossCores") { Sorting::Spread } else { Sorting::Packed };
        let got = if case["table"] == "NUMADistributed" {
            let group = case["cpuGroupSize"].as_u64().map_or(1, |n| usize::try_from(n).unwrap());
            distributed(topology, &available, count, group, sorting)
        } else {
            packed(topology, &available, count, sorting, has("PreferAlignByUncoreCacheOption"))
        };
        match case["expErr"].as_str().filter(|e| !e.is_empty()) {
            Some(error) => assert_eq!(got.unwrap_err().to_string(), error, "{case}"),
            None => assert_eq!(got.unwrap(), cpus(&case["expResult"]), "{case}"),
        }
    }
}

#[test]
fn how_the_policy_starts() {
    let all = topologies();
    for case in cases(include_str!("cases/start.jsonl"), 13) {
        let made = policy(&case, topology(&all, &case));
        if let Some(error) = case["expNewErr"].as_str() {
            assert_eq!(made.unwrap_err(), error, "{case}");
            continue;
        }
        let mut state = state(&case);
        let started = made.unwrap().start(&mut state);
        if let Some(error) = case["expErr"].as_str() {
            assert_eq!(started.unwrap_err().to_string(), error, "{case}");
        } else {
            started.unwrap_or_else(|e| panic!("{e}: {case}"));
            assert_eq!(state.shared, cpus(&case["expCSet"]), "{case}");
        }
    }
}

#[test]
fn what_containers_get() {
    let all = topologies();
    let counters = Counters::default();
    for case in cases(include_str!("cases/allocate.jsonl"), 55) {
        let topology = topology(&all, &case);
        let mut policy = policy(&case, topology).unwrap();
        let mut state = state(&case);
        let uncore = case["table"] == "TestStaticPolicyAddWithUncoreAlignment";
        if uncore {
            state.shared = state.shared.difference(&cpus(&case["reserved"]));
        }
        let pod = pod(&case["pod"]);
        let near = case.get("topologyHint").filter(|h| !h.is_null()).and_then(|h| hint(h).affinity);
        let containers = spec::containers(&pod);
        let first = &containers[0];
        for container in containers.iter().take(if uncore { usize::MAX } else { 1 }) {
            let got = policy.allocate(&mut state, &pod, container, near, &counters);
            match case["expErr"].as_str() {
                Some(error) => assert_eq!(got.unwrap_err().to_string(), error, "{case}"),
                None => drop(got.unwrap_or_else(|e| panic!("{e}: {case}"))),
            }
        }
        let got = state.of(spec::uid(&pod), &first.name);
        if case["expCPUAlloc"] == true {
            assert_eq!(got, Some(&cpus(&case["expCSet"])), "{case}");
            assert!(state.shared.intersection(got.unwrap()).is_empty(), "{case}");
        } else if uncore {
            let taken = state.exclusive();
            let caches: CpuSet = taken.iter().map(|cpu| topology.details.0[&cpu].uncore).collect();
            assert_eq!(caches, cpus(&case["expUncoreCache"]), "{case}");
        } else {
            assert_eq!(got, None, "{case}");
        }
    }
}

#[test]
fn what_is_free_again() {
    let all = topologies();
    for case in cases(include_str!("cases/remove.jsonl"), 4) {
        let (policy, mut state) = (policy(&case, topology(&all, &case)).unwrap(), state(&case));
        let (uid, container) = (case["podUID"].as_str().unwrap(), case["containerName"].as_str().unwrap());
        policy.remove(&mut state, uid, container);
        assert_eq!(state.shared, cpus(&case["expCSet"]), "{case}");
        assert_eq!(state.of(uid, container), None, "{case}");
    }
}

#[test]
fn what_is_near() {
    let all = topologies();
    for case in cases(include_str!("cases/near.jsonl"), 5) {
        let (policy, mut state) = (policy(&case, topology(&all, &case)).unwrap(), state(&case));
        let near = Some(&case["socketMask"]).filter(|m| !m.is_null()).map(mask);
        let got = policy.allocate_cpus(&mut state, number(&case["numRequested"]), near, &CpuSet::new());
        assert_eq!(got.unwrap(), cpus(&case["expCSet"]), "{case}");
    }
}

fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::init_containers(pod).iter().chain(spec::containers(pod))
}

#[test]
fn init_containers_hand_on_what_they_had() {
    let all = topologies();
    let counters = Counters::default();
    for case in cases(include_str!("cases/reuse.jsonl"), 2) {
        let (mut policy, mut state) = (policy(&case, topology(&all, &case)).unwrap(), state(&case));
        let pod = pod(&case["pod"]);
        for container in all_containers(&pod) {
            policy.allocate(&mut state, &pod, container, None, &counters).unwrap();
        }
        assert_eq!(state.shared, cpus(&case["expCSetAfterAlloc"]), "{case}");
        if let Some(after) = case.get("expCSetAfterRemove") {
            policy.remove(&mut state, spec::uid(&pod), case["containerName"].as_str().unwrap());
            assert_eq!(state.shared, cpus(after), "{case}");
        }
    }
    for case in cases(include_str!("cases/init_containers.jsonl"), 9) {
        let (mut policy, mut state) = (policy(&case, topology(&all, &case)).unwrap(), state(&case));
        let pod = pod(&case["pod"]);
        for container in all_containers(&pod) {
            policy.allocate(&mut state, &pod, container, None, &counters).unwrap();
        }
        for (list, containers) in
            [("expInitCSets", spec::init_containers(&pod)), ("expCSets", spec::containers(&pod))]
        {
            for (expected, container) in case[list].as_array().unwrap().iter().zip(containers) {
                let got = state.of(spec::uid(&pod), &container.name).cloned().unwrap_or_default();
                assert_eq!(got, cpus(expected), "{}: {case}", container.name);
            }
        }
    }
}

/// The machine of upstream's tables of hints.
fn two_nodes() -> CpuTopology {
    let info = |cpu: usize| {
        let node = cpu % 6 / 3;
        (cpu, CpuInfo { numa: node, socket: node, core: cpu % 6, uncore: 1 })
    };
    let details = CpuDetails((0..12).map(info).collect());
    CpuTopology { cpus: 12, cores: 6, uncores: 1, sockets: 0, numas: 2, details }
}

#[test]
fn where_processors_can_come_from() {
    let all = topologies();
    for case in cases(include_str!("cases/hints.jsonl"), 34) {
        let table = case["table"].as_str().unwrap();
        let machine = case["topology"].as_str().map(|name| all[name].clone());
        let machine = machine.unwrap_or_else(two_nodes);
        let mut with = case.clone();
        if table == "TestTopologyHintsPodLevelResources" {
            with["podLevelResourceManagersEnabled"] = true.into();
            with["podLevelResourcesEnabled"] = true.into();
        }
        let (policy, state) = (policy(&with, &machine).unwrap(), state(&case));
        let (pod, container) = (pod(&case["pod"]), &case["container"]);
        let container: Container = serde_json::from_value(container.clone()).unwrap_or_default();
        let check = |got: crate::topology_manager::Hints, expected: &Value| {
            let sort = |mut all: Vec<Hint>| {
                all.sort_by_key(|h| (!h.preferred, h.affinity.map(|m| (m.count(), m))));
                all
            };
            let got = got.get("cpu").cloned().flatten().unwrap_or_default();
            let expected = expected.as_array().into_iter().flatten().map(hint).collect();
            assert_eq!(sort(got), sort(expected), "{case}");
        };
        match table {
            "TestGetTopologyHints" => check(policy.hints(&state, &pod, &container), &case["expectedHints"]),
            "TestTopologyHintsPodLevelResources" => {
                check(policy.pod_hints(&state, &pod), &case["expectedPodLevelHints"]);
                check(policy.hints(&state, &pod, &container), &case["expectedContainerLevelHints"]);
            }
            _ => check(policy.pod_hints(&state, &pod), &case["expectedHints"]),
        }
    }
}

#[test]
fn how_many_a_pod_needs() {
    for case in cases(include_str!("cases/wanted.jsonl"), 13) {
        let pod_level = case["podLevelResourceManagersEnabled"] == true;
        assert_eq!(wanted::of_pod(&pod(&case["pod"]), pod_level), number(&case["expectedCPU"]), "{case}");
    }
}

#[test]
fn what_pods_get_as_a_whole() {
    let all = topologies();
    for case in cases(include_str!("cases/allocate_pod.jsonl"), 9) {
        let (mut policy, mut state) = (policy(&case, topology(&all, &case)).unwrap(), state(&case));
        let pod = pod(&case["pod"]);
        let got = policy.allocate_pod(&mut state, &pod, None, &Counters::default());
        if !case["expErr"].is_null() {
            // Upstream's test looks for any error.
            assert!(got.is_err(), "{case}");
            continue;
        }
        got.unwrap_or_else(|e| panic!("{e}: {case}"));
        assert_eq!(state.shared, cpus(&case["expDefaultCPUSet"]), "{case}");
        let assignments = serde_json::to_value(&state.containers).unwrap();
        let expected = if case["expPodAssignments"].is_null() {
            serde_json::json!({})
        } else {
            case["expPodAssignments"].clone()
        };
        assert_eq!(assignments, expected, "{case}");
        // A kubelet that starts anew gives nothing again, and takes all back with the last container.
        let before = state.clone();
        policy.allocate_pod(&mut state, &pod, None, &Counters::default()).unwrap();
        assert_eq!(state, before, "{case}");
        for container in all_containers(&pod) {
            policy.remove(&mut state, spec::uid(&pod), &container.name);
        }
        assert!(state.pods.is_empty() && !state.containers.contains_key(spec::uid(&pod)), "{case}");
    }
    for case in cases(include_str!("cases/pools.jsonl"), 11) {
        let policy = policy(&case, topology(&all, &case)).unwrap();
        let got = policy.validate_pool(&pod(&case["pod"]));
        assert_eq!(Value::from(got.is_err()), case["expectErr"], "{case}");
    }
}

#[test]
fn what_options_say() {
    let all = topologies();
    for case in cases(include_str!("cases/options.jsonl"), 29) {
        let none = FeatureGates::default();
        let gate = case["featureGate"].as_str().and_then(Gate::named);
        let with = |gates: FeatureGates| match gate {
            Some(gate) => gates.with(gate, case["featureGateEnable"] != false),
            None => gates,
        };
        match case["table"].as_str().unwrap() {
            "TestPolicyOptionsAvailable" => {
                let option = case["option"].as_str().unwrap().to_owned();
                let got = CpuOptions::parse(&[(option, "true".to_owned())].into(), with(none));
                assert_eq!(Value::from(got.is_ok()), case["expectedAvailable"], "{case}");
            }
            "TestPolicyOptionsCompatibility" => {
                let got = CpuOptions::parse(&options(&case["policyOptions"]), with(none));
                assert_eq!(Value::from(got.is_err()), case["expectedErr"], "{case}");
            }
            "TestStaticPolicyOptions" => {
                let got = CpuOptions::parse(&options(&case["policyOptions"]), gates());
                if case["expectedError"] == true {
                    assert!(got.is_err(), "{case}");
                    continue;
                }
                let (got, expected) = (got.unwrap(), &case["expectedValue"]);
                for (field, is) in [
                    ("FullPhysicalCPUsOnly", got.full_cores),
                    ("DistributeCPUsAcrossNUMA", got.distribute_numa),
                    ("AlignBySocket", got.by_socket),
                    ("DistributeCPUsAcrossCores", got.distribute_cores),
                    ("StrictCPUReservation", got.strict),
                    ("PreferAlignByUncoreCacheOption", got.by_uncore),
                ] {
                    assert_eq!(Value::from(is), expected[field], "{field}: {case}");
                }
            }
            _ => {
                let got = CpuOptions::parse(&options(&case["policyOption"]), gates()).unwrap();
                let kind = PolicyKind::named(case["topoMgrPolicy"].as_str().unwrap()).unwrap_or_default();
                let got = got.validate(topology(&all, &case), kind);
                assert_eq!(Value::from(got.is_err()), case["expectedErr"], "{case}");
            }
        }
    }
}

/// Whatever is given and taken back, each processor is in one place.
#[test]
fn processors_are_neither_lost_nor_given_twice() {
    let counters = Counters::default();
    let mut random = fastrand::Rng::with_seed(7);
    for (name, topology) in topologies() {
        let case = serde_json::json!({"numReservedCPUs": 1});
        let mut policy = policy(&case, &topology).unwrap();
        let mut state = CpuState::default();
        policy.start(&mut state).unwrap();
        for round in 0..200 {
            let uid = format!("pod{}", random.u32(..8));
            if random.bool() {
                let cpu = random.u32(1..=12).to_string();
                let resources = serde_json::json!({"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}});
                let pod = serde_json::json!({"metadata": {"uid": uid}, "spec": {"containers": [{"name": "c", "resources": resources}]}});
                let pod: Pod = serde_json::from_value(pod).unwrap();
                let container = &spec::containers(&pod)[0];
                let before = state.clone();
                match policy.allocate(&mut state, &pod, container, None, &counters) {
                    Ok(true) => assert!(!state.of(&uid, "c").unwrap().is_empty()),
                    Ok(false) | Err(_) => assert_eq!(state, before),
                }
            } else {
                policy.remove(&mut state, &uid, "c");
            }
            let sets: Vec<&CpuSet> = state.containers.values().flat_map(BTreeMap::values).collect();
            let count: usize = sets.iter().map(|set| set.len()).sum();
            assert_eq!(state.exclusive().len(), count, "{name} {round}: given twice");
            assert_eq!(state.shared.union(&state.exclusive()), topology.details.cpus(), "{name} {round}");
            assert_eq!(policy.start(&mut state.clone()), Ok(()), "{name} {round}");
        }
    }
}
