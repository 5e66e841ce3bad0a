//! The devices that containers have. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use plugins::device as pb;
use prost::Message;

use super::record::{Binary, Entry};
use crate::pods::spec;

/// The number that stands for no NUMA node.
pub(super) const NO_NUMA_NODE: i64 = -1;

/// Devices of one resource that a container has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Allocation {
    /// By the NUMA node that they are near to; one that is near to several stands at each.
    pub(super) devices: BTreeMap<i64, BTreeSet<String>>,
    /// The plugin's answer; none while it is asked.
    pub(super) answer: Option<pb::ContainerAllocateResponse>,
}

impl Allocation {
    /// Each device once.
    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.devices.values().flatten().cloned().collect()
    }
}

/// Resources by their names.
pub(super) type Resources = BTreeMap<String, Allocation>;

/// The devices of all containers, by the Pods' uids and the containers' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Allocated(BTreeMap<String, BTreeMap<String, Resources>>);

impl Allocated {
    /// The resources of a container.
    pub(super) fn of_container(&self, pod: &str, container: &str) -> Option<&Resources> {
        self.0.get(pod)?.get(container)
    }

    /// The devices of one resource that a container has, and that its plugin knows of.
    pub(super) fn devices(&self, pod: &str, container: &str, resource: &str) -> Option<BTreeSet<String>> {
        let found = self.of_container(pod, container)?.get(resource)?;
        found.answer.is_some().then(|| found.ids())
    }

    /// Gives devices to a container.
    pub(super) fn insert(&mut self, pod: &str, container: &str, resource: &str, given: Allocation) {
        let resources = self.0.entry(pod.to_owned()).or_default().entry(container.to_owned()).or_default();
        resources.insert(resource.to_owned(), given);
    }

    /// Takes devices of one resource from a container.
    pub(super) fn take(&mut self, pod: &str, container: &str, resource: &str) {
        let Some(containers) = self.0.get_mut(pod) else { return };
        if let Some(resources) = containers.get_mut(container) {
            resources.remove(resource);
        }
        containers.retain(|_, resources| !resources.is_empty());
        if containers.is_empty() {
            self.0.remove(pod);
        }
    }

    /// The Pods that have devices, or are about to get some.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// Frees the devices of Pods.
    pub(super) fn free(&mut self, pods: &BTreeSet<String>) {
        self.0.retain(|pod, _| !pods.contains(pod));
    }

    /// The devices of a resource that any container has or is about to get.
    pub(super) fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let all = self.0.values().flat_map(BTreeMap::values);
        all.filter_map(|resources| resources.get(resource)).flat_map(Allocation::ids).collect()
    }

    /// Whether any container has devices of a resource.
    pub(super) fn has(&self, resource: &str) -> bool {
        self.0.values().flat_map(BTreeMap::values).any(|resources| resources.contains_key(resource))
    }

    /// The Pods that have one of these devices of a resource.
    pub(super) fn pods_with(&self, resource: &str, ids: &BTreeSet<String>) -> BTreeSet<String> {
        let has = |containers: &BTreeMap<String, Resources>| {
            let mut all = containers.values().filter_map(|r| r.get(resource));
            all.any(|a| a.devices.values().flatten().any(|id| ids.contains(id)))
        };
        self.0.iter().filter(|(_, containers)| has(containers)).map(|(pod, _)| pod.clone()).collect()
    }

    /// The devices that a container takes over from its Pod's init containers, which have ended before it starts. Those
    /// of sidecars and of containers before it are not among them.
    pub(super) fn reusable(&self, pod: &Pod, container: &str, resource: &str) -> BTreeSet<String> {
        let uid = spec::uid(pod);
        let of = |name: &str| {
            let found = self.of_container(uid, name).and_then(|r| r.get(resource));
            found.map(Allocation::ids).unwrap_or_default()
        };
        let mut free = BTreeSet::new();
        for c in spec::init_containers(pod) {
            if c.name == container {
                return free;
            }
            if spec::is_sidecar(c) {
                free = &free - &of(&c.name);
            } else {
                free.extend(of(&c.name));
            }
        }
        for c in spec::containers(pod) {
            if c.name == container {
                break;
            }
            free = &free - &of(&c.name);
        }
        free
    }

    /// The entries that are kept on the disk: devices that a plugin knows of.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut all = Vec::new();
        for (pod, containers) in &self.0 {
            for (container, resources) in containers {
                for (resource, given) in resources {
                    let Some(answer) = &given.answer else { continue };
                    let one =
                        |(node, ids): (&i64, &BTreeSet<String>)| (*node, Some(ids.iter().cloned().collect()));
                    all.push(Entry {
                        pod_uid: pod.clone(),
                        container_name: container.clone(),
                        resource_name: resource.clone(),
                        device_ids: Some(given.devices.iter().map(one).collect()),
                        alloc_resp: Some(Binary(answer.encode_to_vec())),
                    });
                }
            }
        }
        all
    }

    /// Reads what an earlier process kept. An entry whose answer cannot be read is passed over, as upstream does.
    pub(super) fn of_entries(entries: Vec<Entry>) -> Self {
        let mut all = Self::default();
        for entry in entries {
            let answer = entry.alloc_resp.unwrap_or_default().0;
            let Ok(answer) = pb::ContainerAllocateResponse::decode(answer.as_slice()) else {
                tracing::warn!(pod = entry.pod_uid, "the devices of a container are not known any more");
                continue;
            };
            let one = |(node, ids): (i64, Option<Vec<String>>)| (node, ids.into_iter().flatten().collect());
            let devices = entry.device_ids.into_iter().flatten().map(one).collect();
            let given = Allocation { devices, answer: Some(answer) };
            all.insert(&entry.pod_uid, &entry.container_name, &entry.resource_name, given);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(ToString::to_string).collect()
    }

    fn given(devices: &[&str]) -> Allocation {
        let answer = pb::ContainerAllocateResponse {
            envs: [("A".to_owned(), devices.join(","))].into(),
            ..pb::ContainerAllocateResponse::default()
        };
        Allocation { devices: [(NO_NUMA_NODE, ids(devices))].into(), answer: Some(answer) }
    }

    #[test]
    fn init_containers_hand_on_what_they_had() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {
            "initContainers": [{"name": "i1"}, {"name": "s", "restartPolicy": "Always"}, {"name": "i2"}],
            "containers": [{"name": "c1"}, {"name": "c2"}]}}))
        .unwrap();
        let mut all = Allocated::default();
        let check = |all: &Allocated, container: &str, expected: &[&str]| {
            assert_eq!(all.reusable(&pod, container, "r"), ids(expected), "{container}");
        };
        check(&all, "i1", &[]);
        all.insert("u", "i1", "r", given(&["a", "b"]));
        all.insert("u", "i1", "other", given(&["x"]));
        check(&all, "i1", &[]);
        check(&all, "s", &["a", "b"]);
        all.insert("u", "s", "r", given(&["a"]));
        check(&all, "i2", &["b"]);
        all.insert("u", "i2", "r", given(&["b", "c"]));
        check(&all, "c1", &["b", "c"]);
        all.insert("u", "c1", "r", given(&["c"]));
        check(&all, "c2", &["b"]);
        assert_eq!(all.in_use("r"), ids(&["a", "b", "c"]));
        assert_eq!(all.pods_with("r", &ids(&["c", "z"])), ids(&["u"]));
        assert!(all.pods_with("r", &ids(&["x"])).is_empty());
    }

    #[test]
    fn what_is_kept_is_what_was() {
        let mut all = Allocated::default();
        all.insert("u", "c", "r", given(&["a"]));
        let near = [(0, ids(&["d", "e"])), (1, ids(&["e"]))].into();
        all.insert("v", "c", "r", Allocation { devices: near, ..given(&[]) });
        let kept = all.clone();
        all.insert("u", "d", "r", Allocation { answer: None, ..given(&["b"]) });
        assert_eq!(all.devices("u", "d", "r"), None, "its plugin is still asked");
        assert_eq!(all.in_use("r"), ids(&["a", "b", "d", "e"]));
        assert_eq!(Allocated::of_entries(all.entries()), kept);
        all.take("u", "d", "r");
        assert_eq!(all, kept);
        all.take("u", "d", "r");
        all.take("u", "c", "r");
        assert!(all.of_container("u", "c").is_none() && all.has("r"));
        assert_eq!(all.pods(), ids(&["v"]));
        all.free(&ids(&["v", "x"]));
        assert_eq!(all, Allocated::default());
        let odd = Entry { alloc_resp: Some(Binary(vec![0xff; 4])), ..Entry::default() };
        assert_eq!(Allocated::of_entries(vec![odd]), Allocated::default());
    }
}
