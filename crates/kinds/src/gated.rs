//! Fields of features that are off: a write loses them, unless the stored object has them already.

use api::schema::{StructMap, Type, TypeId};
use api::{FeatureGates, FieldNo, Gate, Node, Schema, Struct, StructId, Text};

/// Gates whose fields are dropped by the strategies, with rules of their own.
const ELSEWHERE: &[Gate] =
    &[Gate::ContainerRestartRules, Gate::CrossNamespaceVolumeDataSource, Gate::NodeDeclaredFeatures];

/// Fields whose gates are not those in the schema; without gates they always stay.
const MORE: &[(&str, &str, &[Gate])] = &[
    ("core.v1.ContainerStatus", "stopSignal", &[]),
    ("core.v1.VolumeMountStatus", "volumeStatus", &[Gate::ImageVolumeWithDigest]),
    ("core.v1.TopologySpreadConstraint", "matchLabelKeys", &[Gate::MatchLabelKeysInPodTopologySpread]),
    ("apps.v1.DeploymentStatus", "terminatingReplicas", &[Gate::DeploymentReplicaSetTerminatingReplicas]),
    ("apps.v1.ReplicaSetStatus", "terminatingReplicas", &[Gate::DeploymentReplicaSetTerminatingReplicas]),
    ("resource.v1.AllocationResult", "allocationTimestamp", &[]),
    ("resource.v1.DeviceRequestAllocationResult", "tolerations", &[]),
    ("resource.v1.DeviceRequestAllocationResult", "bindingConditions", &[Gate::DRADeviceBindingConditions]),
    (
        "resource.v1.DeviceRequestAllocationResult",
        "bindingFailureConditions",
        &[Gate::DRADeviceBindingConditions],
    ),
];

/// Gates of which each field is kept or dropped by itself. Under other gates, one field in use keeps all.
const ALONE: &[Gate] = &[Gate::CoordinatedLeaderElection, Gate::WorkloadAwarePreemption];

/// The fields that writes lose, since their features are off.
#[derive(Debug, Default)]
pub struct Gated {
    fields: StructMap<Vec<(FieldNo, Use)>>,
    /// Whether such a field is in the struct or further down.
    holds: StructMap<bool>,
}

type Place = (StructId, FieldNo);

/// A number for fields that stay or go together if a stored object uses one of them.
type Use = u16;

impl Gated {
    /// Finds the fields of a schema whose gates are not on.
    pub fn new(schema: &Schema, on: FeatureGates) -> Self {
        // A gate, with the name of the field if that is kept or dropped by itself.
        let mut uses: Vec<(Gate, Option<Text>)> = Vec::new();
        let fields = StructMap::new(schema, |_, st| {
            let mut of_struct = Vec::new();
            for (i, field) in st.fields.iter().enumerate() {
                let other = MORE.iter().find(|(ty, name, _)| st.name.ends_with(ty) && field.json == *name);
                let gates = other.map_or(&field.gates[..], |(_, _, gates)| gates);
                if !gates.iter().any(|g| !on.enabled(*g) && !ELSEWHERE.contains(g)) {
                    continue;
                }
                let of = (gates[0], ALONE.contains(&gates[0]).then(|| field.json.clone()));
                let at = uses.iter().position(|u| *u == of).unwrap_or_else(|| {
                    uses.push(of);
                    uses.len() - 1
                });
                of_struct.push((FieldNo(i as u16), at as Use));
            }
            of_struct
        });
        let mut holds = StructMap::new(schema, |id, _| fields.get(id).is_some_and(|f| !f.is_empty()));
        // A struct with a part that holds such a field holds it, too; the loop ends when no struct is added.
        let mut more = true;
        while more {
            more = false;
            for (id, st) in schema.structs() {
                let held = |id| holds.get(id) == Some(&true);
                let part = |ty: TypeId| inner(schema, ty).is_some_and(held);
                if !held(id) && st.fields.iter().any(|f| part(f.ty)) {
                    if let Some(of_struct) = holds.get_mut(id) {
                        *of_struct = true;
                    }
                    more = true;
                }
            }
        }
        Self { fields, holds }
    }

    /// Drops the fields from a new object, except those that the stored one uses.
    pub fn strip(&self, new: &mut Struct, old: Option<&Struct>) {
        let mut found = Vec::new();
        self.find(new, &mut found);
        if let Some(old) = old.filter(|_| !found.is_empty()) {
            let mut used = Vec::new();
            self.find(old, &mut used);
            found.retain(|(_, of)| !used.iter().any(|(_, u)| u == of));
        }
        if !found.is_empty() {
            let places: Vec<Place> = found.into_iter().map(|(place, _)| place).collect();
            remove(new, &places);
        }
    }

    fn find(&self, st: &Struct, found: &mut Vec<(Place, Use)>) {
        if self.holds.get(st.id) != Some(&true) {
            return;
        }
        for (no, of) in self.fields.get(st.id).into_iter().flatten() {
            // A field that was written empty counts, too: upstream tells it from an absent one until it is dropped.
            let written = st.has(*no) || st.written_empty(*no).is_some();
            if written && !found.contains(&((st.id, *no), *of)) {
                found.push(((st.id, *no), *of));
            }
        }
        for (_, node) in st.iter() {
            self.find_in(node, found);
        }
    }

    fn find_in(&self, node: &Node, found: &mut Vec<(Place, Use)>) {
        match node {
            Node::Struct(s) => self.find(s, found),
            // The elements of a list of scalars hold nothing.
            Node::List(l) if matches!(l.first(), Some(Node::Struct(_) | Node::List(_) | Node::Map(_))) => {
                for n in l {
                    self.find_in(n, found);
                }
            }
            Node::Map(m) => m.iter().for_each(|(_, n)| self.find_in(n, found)),
            _ => {}
        }
    }
}

/// The struct to which a type leads.
fn inner(schema: &Schema, ty: TypeId) -> Option<StructId> {
    match schema.ty(ty) {
        Type::Struct(id) | Type::Or { of: id, .. } => Some(*id),
        Type::List { of, .. } | Type::Map { of, .. } => inner(schema, *of),
        _ => None,
    }
}

fn remove(st: &mut Struct, fields: &[Place]) {
    let id = st.id;
    st.retain(|no, node| {
        let kept = !fields.contains(&(id, no));
        if kept {
            remove_in(node, fields);
        }
        kept
    });
    // The note of a field that was written empty goes, too.
    if st.noted().next().is_some() {
        for (_, no) in fields.iter().filter(|(of, _)| *of == id) {
            st.remove(*no);
        }
    }
}

fn remove_in(node: &mut Node, fields: &[Place]) {
    match node {
        Node::Struct(s) => remove(s, fields),
        Node::List(l) => l.iter_mut().for_each(|n| remove_in(n, fields)),
        Node::Map(m) => m.iter_mut().for_each(|(_, n)| remove_in(n, fields)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::codec::json;
    use api::schema::Gvk;

    #[test]
    fn fields_go_with_their_feature() {
        let schema = Schema::builtin();
        let check = |off: Gate, kind: &Gvk, new: &str, old: Option<&str>, expected: &str| {
            let read = |text: &str| {
                let root = schema.kind(kind).unwrap();
                json::decode(schema, root, text.as_bytes()).unwrap().tree
            };
            let mut tree = read(new);
            let on = Gate::all().fold(FeatureGates::default(), |on, gate| on.with(gate, gate != off));
            let gated = Gated::new(schema, on);
            gated.strip(&mut tree, old.map(read).as_ref());
            assert!(tree.same_as_written(&read(expected)), "{off}: {new}");
        };
        let pod = Gvk::new("", "v1", "Pod");
        let env = |from: &str| {
            format!(
                r#"{{"spec":{{"containers":[{{"name":"a","env":[{{"name":"E","valueFrom":{{{from}}}}}]}}]}}}}"#
            )
        };
        let with = env(r#""fileKeyRef":{"key":"k","path":"p","volumeName":"v"}"#);
        check(Gate::EnvFiles, &pod, &with, None, &env(""));
        check(Gate::EnvFiles, &pod, &with, Some(&with), &with);
        check(Gate::EnvFiles, &pod, &with, Some(&env("")), &env(""));
        check(Gate::HostnameOverride, &pod, &with, None, &with);
        let slice = Gvk::new("resource.k8s.io", "v1", "ResourceSlice");
        let device = |policy: &str| {
            format!(
                r#"{{"spec":{{"devices":[{{"name":"a","capacity":{{"m":{{"value":"1Gi"{policy}}}}}}}]}}}}"#
            )
        };
        let with = device(r#","requestPolicy":{"default":"1Gi"}"#);
        check(Gate::DRAConsumableCapacity, &slice, &with, None, &device(""));
        let attribute = |lists: &str| {
            format!(
                r#"{{"spec":{{"devices":[{{"name":"a","attributes":{{"b":{{"bool":true{lists}}}}}}}]}}}}"#
            )
        };
        let with = attribute(r#","bools":[]"#);
        check(Gate::DRAListTypeAttributes, &slice, &with, None, &attribute(""));
        check(Gate::DRAPrioritizedList, &slice, &with, None, &with);
    }
}
