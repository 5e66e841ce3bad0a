//! The volumes that Pods use, and the Pods that cannot use one together on a node; pure.

use std::collections::{BTreeMap, BTreeSet};

use client::Key;

use super::labels;

/// The most conflicts that the metric shows.
const MOST: usize = 10_000;

/// The way in which a Pod uses a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// The label that the volume is given, "" for none.
    pub(super) label: String,
    /// The Pod's policy of labelling.
    pub(super) policy: String,
}

/// A volume that Pods use.
#[derive(Debug, Default)]
struct Used {
    /// The volume's driver, "" for none.
    driver: String,
    pods: BTreeMap<Key, Use>,
}

/// Two Pods that cannot use a volume together, as one of the two is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conflict {
    /// The thing that differs.
    pub(super) property: Property,
    /// The Pod that is told.
    pub(super) pod: Key,
    /// Its value.
    pub(super) value: String,
    /// The other Pod.
    pub(super) other: Key,
    /// The other's value.
    pub(super) other_value: String,
}

/// A thing in which Pods differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property {
    /// The policy of labelling.
    ChangePolicy,
    /// The label.
    Label,
}

impl Property {
    /// The name, as Events and metrics have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ChangePolicy => "SELinuxChangePolicy",
            Self::Label => "SELinuxLabel",
        }
    }

    /// The reason of Events about it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::ChangePolicy => "SELinuxChangePolicyConflict",
            Self::Label => "SELinuxLabelConflict",
        }
    }

    fn of(self, used: &Use) -> &str {
        match self {
            Self::ChangePolicy => &used.policy,
            Self::Label => &used.label,
        }
    }

    fn differs(self, a: &Use, b: &Use) -> bool {
        match self {
            Self::ChangePolicy => a.policy != b.policy,
            Self::Label => labels::conflict(&a.label, &b.label),
        }
    }
}

impl Conflict {
    /// The message of the Event about it; upstream's, which names no Pod of another namespace.
    pub(super) fn message(&self) -> String {
        let (name, value, other) = (self.property.name(), &self.value, &self.other_value);
        let end = "If both pods land on the same node, only one of them may access the volume.";
        if self.pod.namespace == self.other.namespace {
            format!(
                "{name} \"{value}\" conflicts with pod {} that uses the same volume as this pod with {name} \"{other}\". {end}",
                self.other.name
            )
        } else {
            format!(
                "{name}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different {name}. {end}"
            )
        }
    }
}

/// The volumes of all Pods.
#[derive(Debug, Default)]
pub(super) struct Uses {
    volumes: BTreeMap<String, Used>,
    by_pod: BTreeMap<Key, BTreeSet<String>>,
}

impl Uses {
    /// Notes how a Pod uses a volume of a driver; returns the conflicts of the Pod that were not known, each in both
    /// directions.
    pub(super) fn add(&mut self, volume: &str, driver: &str, pod: &Key, how: Use) -> Vec<Conflict> {
        let used = self.volumes.entry(volume.to_owned()).or_default();
        if used.pods.get(pod) == Some(&how) {
            return Vec::new();
        }
        driver.clone_into(&mut used.driver);
        used.pods.insert(pod.clone(), how);
        self.by_pod.entry(pod.clone()).or_default().insert(volume.to_owned());
        conflicts_of(used, pod)
    }

    /// Forgets the volumes of a Pod but those in `kept`.
    pub(super) fn retain(&mut self, pod: &Key, kept: &BTreeSet<String>) {
        let Some(volumes) = self.by_pod.get_mut(pod) else { return };
        for volume in volumes.extract_if(.., |volume| !kept.contains(volume)) {
            let Some(used) = self.volumes.get_mut(&volume) else { continue };
            used.pods.remove(pod);
            if used.pods.is_empty() {
                self.volumes.remove(&volume);
            }
        }
        if volumes.is_empty() {
            self.by_pod.remove(pod);
        }
    }

    /// The Pods that use volumes of a driver.
    pub(super) fn pods_of(&self, driver: &str) -> BTreeSet<Key> {
        let of_driver = self.volumes.values().filter(|used| used.driver == driver);
        of_driver.flat_map(|used| used.pods.keys().cloned()).collect()
    }

    /// All conflicts, each in both directions. DIFFERENCE: of very many, which Pods of one volume can make with each other,
    /// only some.
    pub(super) fn conflicts(&self) -> BTreeSet<Conflict> {
        // Most volumes are used in one way, and by many Pods perhaps.
        let differ = |used: &&Used| {
            let mut all = used.pods.values();
            all.next().is_some_and(|first| all.any(|other| other != first))
        };
        let of = |used: &Used| used.pods.keys().flat_map(|pod| conflicts_of(used, pod)).collect::<Vec<_>>();
        self.volumes.values().filter(differ).flat_map(of).take(MOST).collect()
    }
}

/// The conflicts of a Pod about a volume, each in both directions.
fn conflicts_of(volume: &Used, pod: &Key) -> Vec<Conflict> {
    let Some(own) = volume.pods.get(pod) else { return Vec::new() };
    let mut found = Vec::new();
    for (other, theirs) in volume.pods.iter().filter(|(other, _)| *other != pod) {
        for property in [Property::ChangePolicy, Property::Label] {
            if property.differs(own, theirs) {
                let told = |(a, a_use): (&Key, &Use), (b, b_use): (&Key, &Use)| Conflict {
                    property,
                    pod: a.clone(),
                    value: property.of(a_use).to_owned(),
                    other: b.clone(),
                    other_value: property.of(b_use).to_owned(),
                };
                found.push(told((pod, own), (other, theirs)));
                found.push(told((other, theirs), (pod, own)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNT: &str = "MountOption";
    const RECURSIVE: &str = "Recursive";

    fn key(pod: &str) -> Key {
        let (namespace, name) = pod.split_once('/').unwrap();
        Key::new(namespace, name)
    }

    fn add(uses: &mut Uses, volume: &str, pod: &str, label: &str, policy: &str) -> Vec<Conflict> {
        let how = Use { label: label.to_owned(), policy: policy.to_owned() };
        uses.add(volume, "driver1", &key(pod), how)
    }

    /// Both indexes say the same.
    fn is_consistent(uses: &Uses) -> bool {
        let forward = uses.volumes.iter().flat_map(|(v, used)| used.pods.keys().map(move |p| (v, p)));
        let back = uses.by_pod.iter().flat_map(|(p, all)| all.iter().map(move |v| (v, p)));
        forward.collect::<BTreeSet<_>>() == back.collect()
    }

    #[test]
    fn a_page_has_an_end() {
        let mut uses = Uses::default();
        for i in 0..200 {
            add(&mut uses, "v", &format!("n/p{i}"), &format!(":::s0:c{i}"), MOUNT);
        }
        let shown = uses.conflicts().len();
        assert!((1..=MOST).contains(&shown), "{shown}");
    }

    /// Upstream's Pods of `TestVolumeCache_AddVolumeGetConflicts`.
    const PODS: [(&str, &str, &str, &str); 10] = [
        ("ns1/pod1-mountOption", "vol1", "system_u:system_r:label1", MOUNT),
        ("ns2/pod2-recursive", "vol2", "", RECURSIVE),
        ("ns3/pod3-1", "vol3", "", RECURSIVE),
        ("ns3/pod3-2", "vol3", "", RECURSIVE),
        ("ns4/pod4-1", "vol4", "system_u:system_r:label4", MOUNT),
        ("ns4/pod4-2", "vol4", "system_u:system_r:label4", MOUNT),
        ("ns5/pod5", "vol5", "::label5", MOUNT),
        ("ns6/pod6", "vol6", ":system_r:label6", MOUNT),
        ("ns7/pod7", "vol7", "::label7:c0,c1", MOUNT),
        ("ns8/pod8", "vol8", "", MOUNT),
    ];

    /// Upstream's 13 cases of `TestVolumeCache_AddVolumeGetConflicts`: the new Pod, and the other one of a conflict.
    #[test]
    fn one_more_pod() {
        type Other = Option<(Property, &'static str, &'static str)>;
        let check_in = |pods: &[(&str, &str, &str, &str)], new: (&str, &str, &str, &str), want: Other| {
            let mut uses = Uses::default();
            for (pod, volume, label, policy) in pods {
                assert_eq!(add(&mut uses, volume, pod, label, policy), [], "{pod}");
            }
            let (pod, volume, label, policy) = new;
            let got: BTreeSet<Conflict> = add(&mut uses, volume, pod, label, policy).into_iter().collect();
            let both = want.map(|(property, other, other_value)| {
                let value = if property == Property::Label { label } else { policy };
                let told = |(a, a_value): (&str, &str), (b, b_value): (&str, &str)| Conflict {
                    property,
                    pod: key(a),
                    value: a_value.to_owned(),
                    other: key(b),
                    other_value: b_value.to_owned(),
                };
                let (new, old) = ((pod, value), (other, other_value));
                [told(new, old), told(old, new)]
            });
            let want: BTreeSet<Conflict> = both.into_iter().flatten().collect();
            assert_eq!((&got, &uses.conflicts()), (&want, &want), "{new:?}");
            assert!(is_consistent(&uses));
            assert_eq!(add(&mut uses, volume, pod, label, policy), [], "it is said once");
        };
        let check = |pod, volume, label, policy, want| check_in(&PODS, (pod, volume, label, policy), want);
        let new = "testns/testpod";
        check_in(&[], (new, "vol-new", "system_u:system_r:label-new", MOUNT), None);
        check(new, "vol-new", "system_u:system_r:label-new", MOUNT, None);
        check(new, "vol1", "system_u:system_r:label1", MOUNT, None);
        let other = Some((Property::Label, "ns1/pod1-mountOption", "system_u:system_r:label1"));
        check(new, "vol1", "system_u:system_r:label-new", MOUNT, other);
        check(new, "vol1", "", RECURSIVE, Some((Property::ChangePolicy, "ns1/pod1-mountOption", MOUNT)));
        check("ns2/pod2-recursive", "vol2", "system_u:system_r:label-new", MOUNT, None);
        let other = Some((Property::ChangePolicy, "ns3/pod3-2", RECURSIVE));
        check("ns3/pod3-1", "vol3", "system_u:system_r:label-new", MOUNT, other);
        check(new, "vol5", "system_u:system_r:label5", MOUNT, None);
        check(new, "vol5", "::label6", MOUNT, Some((Property::Label, "ns5/pod5", "::label5")));
        check(new, "vol6", "system_u::label6", MOUNT, None);
        let other = Some((Property::Label, "ns7/pod7", "::label7:c0,c1"));
        check(new, "vol7", "system_u:system_r:label7", MOUNT, other);
        check(new, "vol8", "system_u:system_r:label8", MOUNT, None);
        check(new, "vol8", "system_u:system_r:label8:c0,c1", MOUNT, Some((Property::Label, "ns8/pod8", "")));
    }

    /// Upstream's cases of `TestVolumeCache_DeletePodConflicts` and `TestVolumeCache_MultiVolumeConflicts`: the Pods
    /// with their volumes, and the pairs of which conflicts are left after `a` is gone.
    #[test]
    fn a_pod_less() {
        let check = |pods: &[(&str, &str)], gone: &str, left: &[(&str, &str)]| {
            let mut uses = Uses::default();
            for (pod, volume) in pods {
                let label = format!("system_u:system_r:{pod}");
                add(&mut uses, volume, &format!("ns/{pod}"), &label, MOUNT);
            }
            for _ in 0..2 {
                uses.retain(&key(&format!("ns/{gone}")), &BTreeSet::new());
                let pairs = uses.conflicts();
                let pairs: Vec<(&str, &str)> =
                    pairs.iter().map(|c| (c.pod.name.as_str(), c.other.name.as_str())).collect();
                assert_eq!(pairs, left, "{pods:?} {gone}");
                assert!(is_consistent(&uses));
            }
        };
        check(&[("a", "1"), ("b", "1")], "a", &[]);
        check(&[("a", "1"), ("b", "1"), ("c", "2")], "c", &[("a", "b"), ("b", "a")]);
        check(&[("a", "1"), ("b", "1"), ("c", "1")], "a", &[("b", "c"), ("c", "b")]);
        check(&[("b", "1"), ("c", "2"), ("a", "1"), ("a", "2")], "a", &[]);
        check(&[("a", "1"), ("b", "1"), ("c", "2"), ("d", "2")], "a", &[("c", "d"), ("d", "c")]);
        check(&[("d", "3"), ("d", "4"), ("e", "3"), ("e", "4")], "a", &[("d", "e"), ("e", "d")]);
        let mut uses = Uses::default();
        for volume in ["1", "2"] {
            add(&mut uses, volume, "ns/a", "", MOUNT);
        }
        uses.retain(&key("ns/a"), &["2".to_owned()].into());
        assert_eq!(uses.volumes.keys().collect::<Vec<_>>(), ["2"]);
    }

    /// Upstream's cases of `TestVolumeCache_GetPodsForCSIDriver`.
    #[test]
    fn pods_of_drivers() {
        let mut uses = Uses::default();
        let pods = [
            ("driver1", "v1", "ns1/p1"),
            ("driver2", "v2", "ns2/p2"),
            ("driver2", "v3", "ns3/p1"),
            ("driver2", "v3", "ns3/p2"),
            ("driver3", "v4", "ns4/p1"),
        ];
        for (driver, volume, pod) in pods {
            let how = Use { label: String::new(), policy: MOUNT.to_owned() };
            assert_eq!(uses.add(volume, driver, &key(pod), how), []);
        }
        let of = |driver: &str| uses.pods_of(driver).iter().map(Key::to_string).collect::<Vec<_>>();
        assert_eq!(of("driver1"), ["ns1/p1"]);
        assert_eq!(of("driver2"), ["ns2/p2", "ns3/p1", "ns3/p2"]);
        assert_eq!(of("driver3"), ["ns4/p1"]);
        assert!(of("driver4").is_empty());
    }

    #[test]
    fn messages() {
        let check = |other: &str, want: &str| {
            let conflict = Conflict {
                property: Property::Label,
                pod: key("ns1/pod1"),
                value: ":::s0:c1,c2".to_owned(),
                other: key(other),
                other_value: ":::s0:c98,c99".to_owned(),
            };
            assert_eq!(conflict.message(), want);
        };
        check(
            "ns1/pod2",
            "SELinuxLabel \":::s0:c1,c2\" conflicts with pod pod2 that uses the same volume as this pod with SELinuxLabel \":::s0:c98,c99\". If both pods land on the same node, only one of them may access the volume.",
        );
        check(
            "ns2/pod2",
            "SELinuxLabel\":::s0:c1,c2\" conflicts with another pod that uses the same volume as this pod with a different SELinuxLabel. If both pods land on the same node, only one of them may access the volume.",
        );
    }
}
