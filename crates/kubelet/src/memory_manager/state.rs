//! Which containers have memory of which NUMA nodes, and the file in which that is kept: upstream's form and checksum.
//! Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Fnv, RecordError, RestoreError, go_map};

/// The file's name, in the kubelet's directory.
pub(crate) const FILE: &str = "memory_manager_state";

/// Memory of one kind of a NUMA node, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryTable {
    /// All of it.
    pub(crate) total: u64,
    /// The part that is kept for the system.
    pub(crate) system_reserved: u64,
    /// The part that containers can have.
    pub(crate) allocatable: u64,
    /// The part that containers have.
    pub(crate) reserved: u64,
    /// The part that they can still have.
    pub(crate) free: u64,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NumaState {
    /// How many blocks are of it.
    pub(crate) number_of_assignments: i64,
    /// Its memory by kinds: `memory`, `hugepages-2Mi`, ….
    pub(crate) memory_map: BTreeMap<String, MemoryTable>,
    /// The nodes that give memory together with it; itself alone if none does.
    pub(crate) cells: Vec<usize>,
}

/// The NUMA nodes by their numbers.
pub(crate) type MachineState = BTreeMap<usize, NumaState>;

/// Memory of one kind that a container has.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Block {
    /// The NUMA nodes that it is of.
    pub(crate) numa_affinity: Vec<usize>,
    /// Its kind.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// How much, in bytes.
    pub(crate) size: u64,
}

/// The holders of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryState {
    /// The machine.
    pub(crate) machine: MachineState,
    /// By the Pods' uids and the containers' names.
    pub(crate) containers: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
    /// The parts of Pods as a whole.
    pub(crate) pods: BTreeMap<String, Vec<Block>>,
}

impl MemoryState {
    /// The memory of a container; none if it was given nothing yet.
    pub(crate) fn of(&self, pod: &str, container: &str) -> Option<&Vec<Block>> {
        self.containers.get(pod)?.get(container)
    }
    /// Gives a container memory.
    pub(crate) fn set(&mut self, pod: &str, container: &str, blocks: Vec<Block>) {
        self.containers.entry(pod.to_owned()).or_default().insert(container.to_owned(), blocks);
    }
    /// Takes it from a container.
    pub(crate) fn take(&mut self, pod: &str, container: &str) -> Option<Vec<Block>> {
        let containers = self.containers.get_mut(pod)?;
        let taken = containers.remove(container);
        if containers.is_empty() {
            self.containers.remove(pod);
        }
        taken
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    policy_name: String,
    machine_state: MachineState,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pod_entries: BTreeMap<String, Whole>,
    #[serde(default)]
    checksum: u64,
}

/// The part of a Pod as a whole.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    memory_blocks: Vec<Block>,
}

fn numbers(all: &[usize]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!("([]int)[{}]", all.join(" "))
}

fn blocks(all: &[Block]) -> String {
    let one = |b: &Block| {
        let numa = numbers(&b.numa_affinity);
        format!("{{NUMAAffinity:{numa} Type:(v1.ResourceName){} Size:(uint64){}}}", b.kind, b.size)
    };
    let all: Vec<String> = all.iter().map(one).collect();
    format!("[{}]", all.join(" "))
}

fn machine(all: &MachineState) -> String {
    let table = |t: &MemoryTable| {
        format!(
            "<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}",
            t.total, t.system_reserved, t.allocatable, t.reserved, t.free
        )
    };
    go_map(all, |node| {
        let tables = go_map(&node.memory_map, table);
        format!(
            "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:{}}}",
            node.number_of_assignments,
            numbers(&node.cells)
        )
    })
}

/// Names under which upstream took checksums.
const NAME: &str = "MemoryManagerCheckpoint";
const NAME_V1: &str = "MemoryManagerCheckpointV1";

impl File {
    /// The text of which upstream takes the checksum, under a name of its type.
    fn text(&self, name: &str, pod_level: bool) -> String {
        let entries = go_map(&self.entries, |all| go_map(all, |b| blocks(b)));
        let whole = |whole: &Whole| {
            let all = &whole.memory_blocks;
            let all = if all.is_empty() { "<nil>".to_owned() } else { blocks(all) };
            format!("{{MemoryBlocks:([]state.Block){all}}}")
        };
        let pods = if pod_level {
            format!(" PodEntries:(state.PodMemoryAssignments){}", go_map(&self.pod_entries, whole))
        } else {
            String::new()
        };
        format!(
            "(*state.{name}){{PolicyName:(string){} MachineState:(state.NUMANodeMap){} Entries:(state.ContainerMemoryAssignments){entries}{pods} Checksum:(checksum.Checksum)0}}",
            self.policy_name,
            machine(&self.machine_state)
        )
    }
}

/// The file's content; `pod_level` says whether Pods are kept as a whole, which makes another version.
pub(crate) fn encode(policy: &str, state: &MemoryState, pod_level: bool) -> Result<Vec<u8>, RecordError> {
    let mut file = File {
        policy_name: policy.to_owned(),
        machine_state: state.machine.clone(),
        entries: state.containers.clone(),
        ..File::default()
    };
    if pod_level {
        let whole = |(uid, all): (&String, &Vec<Block>)| (uid.clone(), Whole { memory_blocks: all.clone() });
        file.pod_entries = state.pods.iter().map(whole).collect();
    }
    file.checksum = Fnv::of(&file.text(NAME, pod_level));
    Ok(serde_json::to_vec(&file)?)
}

/// Reads a file's content.
///
/// # Errors
/// It is another one than was written, of another policy, or cannot be understood.
pub(crate) fn decode(
    bytes: &[u8],
    policy: &'static str,
    pod_level: bool,
) -> Result<MemoryState, RestoreError> {
    let mut file: File = serde_json::from_slice(bytes).map_err(RecordError::from)?;
    let is = |name, pods| file.checksum == Fnv::of(&file.text(name, pods));
    if !(pod_level && is(NAME, true)) {
        let before = file.checksum == 0 || is(NAME, false) || !pod_level && is(NAME_V1, false);
        if !before {
            return Err(RecordError::Corrupt.into());
        }
        file.pod_entries.clear();
    }
    checkpoint::same_policy("[memorymanager] ", policy, file.policy_name)?;
    Ok(MemoryState {
        machine: file.machine_state,
        containers: file.entries,
        pods: file.pod_entries.into_iter().map(|(uid, whole)| (uid, whole.memory_blocks)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{blocks, containers, machine};
    use super::{decode, encode};
    use crate::checkpoint::RestoreError;
    use crate::topology_manager::cases::cases;
    use std::collections::BTreeMap;

    /// Files that upstream's code wrote.
    #[test]
    fn files_are_upstreams() {
        for (pod_level, file) in [
            (false, r#"{"policyName":"Static","machineState":{},"checksum":3940083781}"#),
            (true, r#"{"policyName":"None","machineState":{},"checksum":512582496}"#),
        ] {
            let policy = if pod_level { "None" } else { "Static" };
            let state = decode(file.as_bytes(), policy, pod_level).unwrap();
            assert_eq!(std::str::from_utf8(&encode(policy, &state, pod_level).unwrap()).unwrap(), file);
            for cut in 0..file.len() {
                assert!(decode(&file.as_bytes()[..cut], policy, pod_level).is_err(), "{cut}");
            }
        }
        let error = decode(br#"{"policyName":"None","machineState":{},"checksum":1}"#, "None", false);
        assert_eq!(error.unwrap_err().to_string(), "checkpoint is corrupted");
    }

    /// Upstream's table of files that are read.
    #[test]
    fn upstreams_cases() {
        for case in cases(include_str!("cases/restore.jsonl"), 8) {
            let text = case["checkpointContent"].as_str().unwrap();
            let pod_level = case["podLevelResourceManagersEnabled"] == true;
            let got = decode(text.as_bytes(), "static", pod_level);
            match case["expectedError"].as_str().filter(|e| !e.is_empty()) {
                Some(error) if error.contains("policy") => {
                    assert!(got.unwrap_err().to_string().contains(error), "{case}");
                }
                Some(_) => assert!(matches!(got, Err(RestoreError::Record(_))), "{case}: {got:?}"),
                None => {
                    let got = got.unwrap_or_else(|e| panic!("{e}: {case}"));
                    let expected = &case["expectedState"];
                    assert_eq!(got.containers, containers(&expected["assignments"]), "{case}");
                    assert_eq!(got.machine, machine(&expected["machineState"]), "{case}");
                    let pods = expected["podAssignments"].as_object().into_iter().flatten();
                    let pods: BTreeMap<_, _> =
                        pods.map(|(uid, whole)| (uid.clone(), blocks(&whole["MemoryBlocks"]))).collect();
                    assert_eq!(got.pods, pods, "{case}");
                }
            }
        }
    }
}
