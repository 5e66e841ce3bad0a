//! Which containers have which processors, and the file in which that is kept: upstream's form and checksum. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cpu_set::CpuSet;
use crate::checkpoint::{self, Fnv, RecordError, RestoreError, go_map};

/// The file's name, in the kubelet's directory.
pub(crate) const FILE: &str = "cpu_manager_state";

/// Sets by the Pods' uids and the containers' names.
pub(crate) type Containers = BTreeMap<String, BTreeMap<String, CpuSet>>;

/// The holders of processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuState {
    /// Those that all others share.
    pub(crate) shared: CpuSet,
    /// Those that containers have alone.
    pub(crate) containers: Containers,
    /// Those that Pods have as a whole.
    pub(crate) pods: BTreeMap<String, CpuSet>,
}

impl CpuState {
    /// The processors that a container has alone.
    pub(crate) fn of(&self, pod: &str, container: &str) -> Option<&CpuSet> {
        self.containers.get(pod)?.get(container)
    }
    /// The processors that a container runs on.
    pub(crate) fn of_or_shared(&self, pod: &str, container: &str) -> &CpuSet {
        self.of(pod, container).unwrap_or(&self.shared)
    }
    /// Gives a container processors.
    pub(crate) fn set(&mut self, pod: &str, container: &str, cpus: CpuSet) {
        self.containers.entry(pod.to_owned()).or_default().insert(container.to_owned(), cpus);
    }
    /// Takes them from a container.
    pub(crate) fn take(&mut self, pod: &str, container: &str) -> Option<CpuSet> {
        let containers = self.containers.get_mut(pod)?;
        let taken = containers.remove(container);
        if containers.is_empty() {
            self.containers.remove(pod);
        }
        taken
    }
    /// All that any container has.
    pub(crate) fn exclusive(&self) -> CpuSet {
        self.containers.values().flat_map(BTreeMap::values).fold(CpuSet::new(), |all, one| all.union(one))
    }
}

/// Why the sets of a file are of no use; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetError {
    /// The shared set cannot be read.
    #[error("could not parse default cpu set {}: {error}", api::go::quote(.text))]
    Shared {
        /// The text.
        text: String,
        /// Why.
        error: super::cpu_set::CpuSetError,
    },
    /// A container's set cannot be read.
    #[error(
        "could not parse cpuset {} for container {} in pod {}: {error}",
        api::go::quote(.text),
        api::go::quote(.container),
        api::go::quote(.pod)
    )]
    Container {
        /// The text.
        text: String,
        /// The container.
        container: String,
        /// The Pod's uid.
        pod: String,
        /// Why.
        error: super::cpu_set::CpuSetError,
    },
    /// A container of an old file is not there.
    #[error(
        "failed to migrate checkpoint from v1 to v2: containerID '{0}' not found in initial containers list"
    )]
    NoContainer(String),
}

/// A file of upstream's, of any of its versions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<E> {
    policy_name: String,
    // Go reads names of fields in any case.
    #[serde(alias = "defaultCPUSet")]
    default_cpu_set: String,
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, E>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pod_entries: BTreeMap<String, Whole>,
    #[serde(default)]
    checksum: u64,
}

/// The part of a Pod as a whole.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cpu_set: String,
}

type Texts = BTreeMap<String, String>;

/// The version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Containers by their ids.
    V1,
    /// Containers by Pods and names.
    V2,
    /// Pods as well.
    V3,
}

impl<E> File<E> {
    /// The text of which upstream takes the checksum, under a name of its type.
    fn text(&self, name: &str, version: Version, entry: impl FnMut(&E) -> String) -> String {
        let kind = if version == Version::V1 { "map[string]string" } else { "map[string]map[string]string" };
        let entries = go_map(&self.entries, entry);
        let whole = |whole: &Whole| {
            // A set without members was never made.
            let members = match whole.cpu_set.parse::<CpuSet>() {
                Ok(set) if !set.is_empty() => go_map(set.iter().map(|c| (c, ())), |()| "{}".to_owned()),
                _ => "<nil>".to_owned(),
            };
            format!("{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){members}}}}}")
        };
        let pods = if version == Version::V3 {
            format!(" PodEntries:(state.PodCPUAssignments){}", go_map(&self.pod_entries, whole))
        } else {
            String::new()
        };
        format!(
            "(*state.{name}){{PolicyName:(string){} DefaultCPUSet:(string){} Entries:({kind}){entries}{pods} Checksum:(checksum.Checksum)0}}",
            self.policy_name, self.default_cpu_set
        )
    }
}

fn texts(all: &Texts) -> String {
    go_map(all, String::clone)
}

/// Names under which upstream took checksums.
const NAME: &str = "CPUManagerCheckpoint";
const NAME_V2: &str = "CPUManagerCheckpointV2";

/// The file's content; `pod_level` says whether Pods are kept as a whole, which makes another version.
pub(crate) fn encode(policy: &str, state: &CpuState, pod_level: bool) -> Result<Vec<u8>, RecordError> {
    let sets = |all: &BTreeMap<String, CpuSet>| all.iter().map(|(n, s)| (n.clone(), s.to_string())).collect();
    let mut file: File<Texts> = File {
        policy_name: policy.to_owned(),
        default_cpu_set: state.shared.to_string(),
        entries: state.containers.iter().map(|(uid, all)| (uid.clone(), sets(all))).collect(),
        pod_entries: BTreeMap::new(),
        checksum: 0,
    };
    if pod_level {
        let whole = |(uid, set): (&String, &CpuSet)| (uid.clone(), Whole { cpu_set: set.to_string() });
        file.pod_entries = state.pods.iter().map(whole).collect();
    }
    let version = if pod_level { Version::V3 } else { Version::V2 };
    file.checksum = Fnv::of(&file.text(NAME, version, texts));
    Ok(serde_json::to_vec(&file)?)
}

/// Whether a file has the checksum of v1.
fn is_v1(bytes: &[u8]) -> bool {
    let file = serde_json::from_slice::<File<String>>(bytes);
    file.is_ok_and(|f| f.checksum == 0 || f.checksum == Fnv::of(&f.text(NAME, Version::V1, String::clone)))
}

/// Whether a file names containers by their ids, as those before v1.18 do.
pub(crate) fn is_old(bytes: &[u8]) -> bool {
    serde_json::from_slice::<File<String>>(bytes).is_ok_and(|file| !file.entries.is_empty())
}

/// Reads a file's content. `find` knows the Pod and the name of a container by its id, which files before v1.18 have.
///
/// # Errors
/// It is another one than was written, of another policy, or cannot be understood.
pub(crate) fn decode(
    bytes: &[u8],
    policy: &'static str,
    pod_level: bool,
    find: &dyn Fn(&str) -> Option<(String, String)>,
) -> Result<CpuState, RestoreError<SetError>> {
    let file = newest(bytes, pod_level, find)?;
    checkpoint::same_policy("", policy, file.policy_name)?;
    let text = file.default_cpu_set;
    let shared = text.parse().map_err(|error| RestoreError::Content(SetError::Shared { text, error }))?;
    let mut state = CpuState { shared, ..CpuState::default() };
    for (pod, containers) in file.entries {
        for (container, text) in containers {
            match text.parse() {
                Ok(cpus) => state.set(&pod, &container, cpus),
                Err(error) => {
                    return Err(RestoreError::Content(SetError::Container { text, container, pod, error }));
                }
            }
        }
    }
    for (uid, whole) in file.pod_entries {
        let set = whole.cpu_set.parse().map_err(|_| RecordError::Corrupt)?;
        state.pods.insert(uid, set);
    }
    Ok(state)
}

/// Reads a file as the newest version that it can be.
fn newest(
    bytes: &[u8],
    pod_level: bool,
    find: &dyn Fn(&str) -> Option<(String, String)>,
) -> Result<File<Texts>, RestoreError<SetError>> {
    if let Ok(mut file) = serde_json::from_slice::<File<Texts>>(bytes) {
        let is = |name, version| file.checksum == Fnv::of(&file.text(name, version, texts));
        if pod_level && is(NAME, Version::V3) {
            return Ok(file);
        }
        let v2 = file.checksum == 0 || is(NAME, Version::V2) || !pod_level && is(NAME_V2, Version::V2);
        // One of v1 that names nobody looks the same but for its checksum.
        let v1 = || file.entries.is_empty() && is_v1(bytes);
        if !v2 && !v1() {
            return Err(RecordError::Corrupt.into());
        }
        file.pod_entries.clear();
        return Ok(file);
    }
    let old: File<String> = serde_json::from_slice(bytes).map_err(RecordError::from)?;
    if !is_v1(bytes) {
        return Err(RecordError::Corrupt.into());
    }
    let mut entries: BTreeMap<String, Texts> = BTreeMap::new();
    for (id, cpus) in old.entries {
        let (pod, container) = find(&id).ok_or(RestoreError::Content(SetError::NoContainer(id)))?;
        entries.entry(pod).or_default().insert(container, cpus);
    }
    let File { policy_name, default_cpu_set, checksum, .. } = old;
    Ok(File { policy_name, default_cpu_set, entries, pod_entries: BTreeMap::new(), checksum })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::topology_manager::cases::cases;

    /// Files that upstream's code wrote.
    #[test]
    fn files_are_upstreams() {
        let none = |_: &str| None;
        for (pod_level, file) in [
            (false, r#"{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438}"#),
            (
                false,
                r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"pod1":{"x y":""},"pod2":{"a":"2-3","b":"4"}},"checksum":1910266079}"#,
            ),
            (
                true,
                r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"pod1":{"x y":""},"pod2":{"a":"2-3","b":"4"}},"podEntries":{"pod0":{},"pod1":{"cpuSet":"1-2,5"}},"checksum":2584871775}"#,
            ),
        ] {
            let state = decode(file.as_bytes(), "static", pod_level, &none).unwrap();
            let again = encode("static", &state, pod_level).unwrap();
            assert_eq!(std::str::from_utf8(&again).unwrap(), file);
            for cut in 0..file.len() {
                assert!(decode(&file.as_bytes()[..cut], "static", pod_level, &none).is_err(), "{cut}");
            }
            let other = file.replace("0-1", "0-2");
            let error = decode(other.as_bytes(), "static", pod_level, &none).unwrap_err();
            assert_eq!(error.to_string(), "checkpoint is corrupted");
        }
        let empty = encode("none", &CpuState::default(), true).unwrap();
        assert_eq!(empty, br#"{"policyName":"none","defaultCpuSet":"","checksum":642675224}"#);
        let old = r#"{"policyName":"none","defaultCpuSet":"","entries":{"id1":"1","id2":"2"},"checksum":0}"#;
        let find = |id: &str| Some(("pod".to_owned(), format!("of-{id}")));
        assert!(is_old(old.as_bytes()) && !is_old(&empty));
        let state = decode(old.as_bytes(), "none", false, &find).unwrap();
        assert_eq!(state.of("pod", "of-id2").unwrap().to_string(), "2");
    }

    /// Upstream's table of files that are read.
    #[test]
    fn upstreams_cases() {
        for case in cases(include_str!("cases/restore.jsonl"), 15) {
            let text = case["checkpointContent"].as_str().unwrap();
            let known = case["initialContainers"].as_object();
            let find = |id: &str| {
                let one = known?.get(id)?;
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                Some((text("podUID"), text("containerName")))
            };
            let policy = case["policyName"].as_str().unwrap();
            let policy = if policy == "none" { "none" } else { "static" };
            let pod_level = case["podLevelResourceManagersEnabled"] == true;
            let got = decode(text.as_bytes(), policy, pod_level, &find);
            match case["expectedError"].as_str().filter(|e| !e.is_empty()) {
                Some(error) if error.contains("parse") || error.contains("policy") => {
                    let text = got.expect_err(error).to_string();
                    assert!(text.contains(error), "{text}: {case}");
                }
                // The texts about files that cannot be read are Go's own.
                Some(_) => assert!(matches!(got, Err(RestoreError::Record(_))), "{case}: {got:?}"),
                None => {
                    let got = got.unwrap_or_else(|e| panic!("{e}: {case}"));
                    let expected = &case["expectedState"];
                    assert_eq!(Value::from(got.shared.to_string()), expected["defaultCPUSet"], "{case}");
                    let containers = serde_json::to_value(&got.containers).unwrap();
                    let none = |v: &Value| v.as_object().is_none_or(serde_json::Map::is_empty);
                    assert!(
                        containers == expected["assignments"]
                            || none(&expected["assignments"]) && none(&containers),
                        "{case}"
                    );
                }
            }
        }
    }
}
