//! The graph of owners and dependents, and the effects of its changes: pure.
//!
//! Nodes are the objects that the informers show. Edges are kept by the owner's uid apart from the nodes, so that a
//! dependent is known before its owner is. DIFFERENCE: upstream puts a virtual node where an owner is not seen yet;
//! here the dependent itself is looked at, which asks the server for the owner.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use compact_str::CompactString as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::discovery::Served;
use crate::views::Meta;

/// The number of absent owners that are remembered.
const ABSENT: usize = 500;

/// Whether a deletion begins that a finalizer holds up.
fn starts(new: &Meta, old: Option<&Meta>, finalizer: fn(&Meta) -> bool) -> bool {
    let now = |m: &Meta| m.deleting && finalizer(m);
    now(new) && !old.is_some_and(now)
}

/// An object of the graph.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) served: Arc<Served>,
    pub(super) meta: Arc<Meta>,
}

impl Node {
    /// Whether a reference in an object of `namespace` means this object.
    fn is_meant_by(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        self.meta.name == reference.name.as_str()
            && self.served.kind == reference.kind
            && self.served.resource.group == group
            && (!self.served.namespaced || self.meta.namespace == namespace)
    }
}

/// The effect of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    /// The object may have to be deleted, or its deletion may go on.
    Delete(Text),
    /// The object's dependents must be freed.
    Orphan(Text),
    /// The object names an owner (by uid) that is in another namespace.
    InvalidNamespace(Text, Text),
}

/// The graph's knowledge about an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// The owner exists.
    Solid,
    /// The owner exists, and its deletion waits for its dependents.
    Waiting,
    /// The owner is gone.
    Absent,
    /// The graph does not know; the server must be asked.
    Unknown,
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Text, Node>,
    dependents: HashMap<Text, HashSet<Text>>,
    absent: HashSet<(Text, OwnerKey)>,
    absent_order: VecDeque<(Text, OwnerKey)>,
}

/// An owner in the words of a reference: API version, kind, name, uid.
type OwnerKey = (String, String, String, String);

fn owner_key(r: &OwnerReference) -> OwnerKey {
    (r.api_version.clone(), r.kind.clone(), r.name.clone(), r.uid.clone())
}

/// All fields of a reference.
type Named<'a> = ([&'a str; 4], Option<bool>, Option<bool>);

fn named(r: &OwnerReference) -> Named<'_> {
    ([&r.api_version, &r.kind, &r.name, &r.uid], r.controller, r.block_owner_deletion)
}

fn blocks(r: &OwnerReference) -> bool {
    r.block_owner_deletion == Some(true)
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<Node> {
        self.nodes.get(uid).cloned()
    }

    /// Returns the objects that name this one as an owner.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Node> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|d| self.get(d)).collect()
    }

    /// Returns the dependents that hold up a deletion in the foreground.
    pub(super) fn blocking_dependents(&self, uid: &str) -> Vec<Node> {
        let blocked = |n: &Node| n.meta.owners.iter().any(|r| r.uid == uid && blocks(r));
        self.dependents(uid).into_iter().filter(blocked).collect()
    }

    /// Returns the graph's knowledge about the owner that an object of `namespace` names.
    pub(super) fn known(&self, reference: &OwnerReference, namespace: &str) -> Known {
        match self.nodes.get(reference.uid.as_str()) {
            Some(node) if node.is_meant_by(reference, namespace) => {
                if node.meta.waits_for_dependents() {
                    Known::Waiting
                } else {
                    Known::Solid
                }
            }
            // The owner exists under another name or kind than the reference's: the server has the last word.
            Some(_) => Known::Unknown,
            None => {
                let key = owner_key(reference);
                let gone = [Text::default(), namespace.into()]
                    .into_iter()
                    .any(|ns| self.absent.contains(&(ns, key.clone())));
                if gone { Known::Absent } else { Known::Unknown }
            }
        }
    }

    /// Whether the owner was seen.
    pub(super) fn sees(&self, uid: &str) -> bool {
        self.nodes.contains_key(uid)
    }

    /// Remembers that the owner that an object of `namespace` names is gone.
    ///
    /// DIFFERENCE: of too many the first that was found is forgotten; upstream forgets the one that was asked for least
    /// lately. The server is asked again about either.
    pub(super) fn note_absent(&mut self, reference: &OwnerReference, namespace: &str) {
        let entry = (Text::from(namespace), owner_key(reference));
        if self.absent.insert(entry.clone()) {
            self.absent_order.push_back(entry);
            if self.absent_order.len() > ABSENT
                && let Some(oldest) = self.absent_order.pop_front()
            {
                self.absent.remove(&oldest);
            }
        }
    }

    /// Takes an object's new state in.
    pub(super) fn observe(&mut self, served: &Arc<Served>, meta: &Arc<Meta>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let uid = &meta.uid;
        let node = Node { served: served.clone(), meta: meta.clone() };
        let old = self.nodes.insert(uid.clone(), node.clone());
        let old_meta = old.as_ref().map(|o| &*o.meta);
        if old.is_none() {
            // Dependents that named the uid before it was seen may have meant another object.
            for dependent in self.dependents(uid) {
                let named = dependent.meta.owners.iter().filter(|r| r.uid == uid.as_str());
                if named.clone().any(|r| !node.is_meant_by(r, &dependent.meta.namespace)) {
                    if served.namespaced && dependent.meta.namespace != meta.namespace {
                        effects.push(Effect::InvalidNamespace(dependent.meta.uid.clone(), uid.clone()));
                    }
                    effects.push(Effect::Delete(dependent.meta.uid.clone()));
                }
            }
        }
        self.link(old_meta, meta, &mut effects);
        if starts(meta, old_meta, |m| m.orphan) {
            effects.push(Effect::Orphan(uid.clone()));
        } else if starts(meta, old_meta, |m| m.foreground) {
            let all = self.dependents(uid).into_iter().map(|d| d.meta.uid.clone());
            effects.extend(all.chain([uid.clone()]).map(Effect::Delete));
        }
        effects
    }

    /// Updates the edges to an object's owners.
    fn link(&mut self, old: Option<&Meta>, new: &Meta, effects: &mut Vec<Effect>) {
        let before = old.map_or(&[][..], |o| &o.owners);
        // Of several references with the same uid the first counts, which goes in last.
        let owners: HashMap<&str, &OwnerReference> =
            new.owners.iter().rev().map(|r| (r.uid.as_str(), r)).collect();
        let known: HashSet<Named<'_>> = before.iter().map(named).collect();
        for reference in before {
            let now = owners.get(reference.uid.as_str()).copied();
            if now.is_none() {
                self.unlink(&reference.uid, &new.uid);
            }
            if blocks(reference) && !now.is_some_and(blocks) && self.sees(&reference.uid) {
                effects.push(Effect::Delete(reference.uid.as_str().into()));
            }
        }
        let mut look = false;
        for reference in &new.owners {
            if known.contains(&named(reference)) {
                continue;
            }
            self.dependents.entry(reference.uid.as_str().into()).or_default().insert(new.uid.clone());
            look |= self.known(reference, &new.namespace) != Known::Solid;
            if let Some(owner) = self.nodes.get(reference.uid.as_str())
                && owner.served.namespaced
                && owner.meta.namespace != new.namespace
            {
                effects.push(Effect::InvalidNamespace(new.uid.clone(), reference.uid.as_str().into()));
            }
        }
        if look {
            effects.push(Effect::Delete(new.uid.clone()));
        }
    }

    fn unlink(&mut self, owner: &str, dependent: &Text) {
        if let Some(all) = self.dependents.get_mut(owner) {
            all.remove(dependent);
            if all.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// Takes an object out that is gone.
    pub(super) fn forget(&mut self, uid: &str) -> Vec<Effect> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut effects = Vec::new();
        for reference in &node.meta.owners {
            self.unlink(&reference.uid, &node.meta.uid);
            let waits = self.nodes.get(reference.uid.as_str()).is_some_and(|o| o.meta.waits_for_dependents());
            if waits {
                effects.push(Effect::Delete(reference.uid.as_str().into()));
            }
        }
        for dependent in self.dependents(uid) {
            for reference in dependent.meta.owners.iter().filter(|r| r.uid == uid) {
                if node.is_meant_by(reference, &dependent.meta.namespace) {
                    self.note_absent(reference, &node.meta.namespace);
                }
            }
            effects.push(Effect::Delete(dependent.meta.uid.clone()));
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Resource;

    fn served(kind: &str, namespaced: bool) -> Arc<Served> {
        Arc::new(Served::new(
            Resource { group: "apps".into(), version: "v1".into(), plural: kind.to_lowercase().into() },
            kind,
            namespaced,
        ))
    }

    fn object(uid: &str, owners: &[(&str, bool)]) -> Meta {
        let owner = |(uid, block): &(&str, bool)| OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Thing".into(),
            name: (*uid).into(),
            uid: (*uid).into(),
            controller: None,
            block_owner_deletion: Some(*block),
        };
        Meta {
            namespace: "ns".into(),
            name: uid.into(),
            uid: uid.into(),
            owners: owners.iter().map(owner).collect(),
            ..Meta::default()
        }
    }

    fn see(graph: &mut Graph, meta: Meta) -> Vec<String> {
        words(graph.observe(&served("Thing", true), &Arc::new(meta)))
    }

    fn words(effects: Vec<Effect>) -> Vec<String> {
        let mut all: Vec<String> = effects
            .into_iter()
            .map(|e| match e {
                Effect::Delete(u) => format!("delete {u}"),
                Effect::Orphan(u) => format!("orphan {u}"),
                Effect::InvalidNamespace(u, o) => format!("invalid {u} of {o}"),
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn dependents_follow_their_owner() {
        let mut g = Graph::default();
        assert!(see(&mut g, object("owner", &[])).is_empty());
        assert!(see(&mut g, object("a", &[("owner", false)])).is_empty(), "its owner is there");
        assert!(see(&mut g, object("b", &[("owner", false)])).is_empty());
        assert_eq!(words(g.forget("owner")), ["delete a", "delete b"]);
        let reference = &object("a", &[("owner", false)]).owners[0];
        assert_eq!(g.known(reference, "ns"), Known::Absent);
        assert_eq!(g.known(reference, "elsewhere"), Known::Unknown);
        assert!(words(g.forget("a")).is_empty());
    }

    #[test]
    fn a_dependent_seen_before_its_owner_is_looked_at_and_stays_linked() {
        let mut g = Graph::default();
        assert_eq!(see(&mut g, object("a", &[("owner", false)])), ["delete a"]);
        assert!(see(&mut g, object("owner", &[])).is_empty());
        assert_eq!(g.dependents("owner").len(), 1);
        assert_eq!(words(g.forget("owner")), ["delete a"]);
    }

    #[test]
    fn foreground_deletion_waits_for_blocking_dependents() {
        let mut g = Graph::default();
        see(&mut g, object("owner", &[]));
        see(&mut g, object("a", &[("owner", true)]));
        see(&mut g, object("b", &[("owner", false)]));
        let going = Meta { deleting: true, foreground: true, ..object("owner", &[]) };
        assert_eq!(see(&mut g, going.clone()), ["delete a", "delete b", "delete owner"]);
        assert!(see(&mut g, going).is_empty(), "it starts once");
        assert_eq!(g.known(&object("a", &[("owner", true)]).owners[0], "ns"), Known::Waiting);
        assert_eq!(g.blocking_dependents("owner").len(), 1);
        assert_eq!(see(&mut g, object("a", &[("owner", false)])), ["delete a", "delete owner"]);
        assert!(g.blocking_dependents("owner").is_empty());
        assert_eq!(words(g.forget("b")), ["delete owner"]);
    }

    #[test]
    fn orphaning_starts_once() {
        let mut g = Graph::default();
        see(&mut g, object("owner", &[]));
        let going = Meta { deleting: true, orphan: true, ..object("owner", &[]) };
        assert_eq!(see(&mut g, going.clone()), ["orphan owner"]);
        assert!(see(&mut g, going).is_empty());
    }

    #[test]
    fn references_that_mean_something_else_are_checked() {
        let mut g = Graph::default();
        see(&mut g, object("owner", &[]));
        let mut stranger = object("a", &[("owner", false)]);
        stranger.namespace = "other".into();
        assert_eq!(see(&mut g, stranger), ["delete a", "invalid a of owner"]);
        let mut misnamed = object("b", &[("owner", false)]);
        misnamed.owners[0].name = "x".into();
        assert_eq!(see(&mut g, misnamed), ["delete b"]);
    }

    /// An event of upstream's tests: an object that is there with these owners, or `None` for one that is gone.
    type Event = (&'static str, Option<&'static [&'static str]>);

    /// Upstream's 4 cases of `TestProcessEvent`: owners and dependents name each other after each event.
    #[test]
    fn events() {
        let check = |events: &[Event]| {
            let mut g = Graph::default();
            for (uid, owners) in events {
                match owners {
                    Some(owners) => {
                        let owners: Vec<(&str, bool)> = owners.iter().map(|uid| (*uid, false)).collect();
                        see(&mut g, object(uid, &owners));
                    }
                    None => drop(g.forget(uid)),
                }
                for (uid, node) in &g.nodes {
                    for owner in &node.meta.owners {
                        assert!(g.dependents[owner.uid.as_str()].contains(uid), "{events:?}");
                    }
                }
                for (owner, dependents) in &g.dependents {
                    assert!(!dependents.is_empty(), "{events:?}");
                    for dependent in dependents {
                        let named = &g.nodes[dependent].meta.owners;
                        assert!(named.iter().any(|r| r.uid == owner.as_str()), "{events:?}");
                    }
                }
            }
        };
        let (one, two, three): (Event, Event, Event) =
            (("1", Some(&[])), ("2", Some(&["1"])), ("3", Some(&["1", "2"])));
        check(&[one, two, three]);
        check(&[one, two, three, ("4", Some(&["2"])), ("2", None)]);
        check(&[one, two, three, ("4", Some(&["3"])), ("2", Some(&["4"]))]);
        check(&[("4", Some(&["2"])), three, two, one, ("2", None)]);
    }

    /// Upstream's case of `TestAbsentOwnerCache`, with its difference.
    #[test]
    fn absent_owners() {
        let mut g = Graph::default();
        let of = |uid: &str| object("pod", &[(uid, false)]).owners[0].clone();
        let known = |g: &Graph, uid: &str| g.known(&of(uid), "ns");
        for uid in ["1", "2"] {
            g.note_absent(&of(uid), "ns");
        }
        assert_eq!(
            (known(&g, "1"), known(&g, "2"), known(&g, "3")),
            (Known::Absent, Known::Absent, Known::Unknown)
        );
        let other = OwnerReference { controller: Some(true), ..of("1") };
        assert_eq!(g.known(&other, "ns"), Known::Absent, "it is the same owner");
        // One that is noted again keeps its place.
        g.note_absent(&of("1"), "ns");
        for uid in 3..=ABSENT + 1 {
            g.note_absent(&of(&uid.to_string()), "ns");
        }
        let last = (ABSENT + 1).to_string();
        let all = (known(&g, "1"), known(&g, "2"), known(&g, &last));
        assert_eq!(all, (Known::Unknown, Known::Absent, Known::Absent));
    }

    /// The API version, kind, namespace, name and uid of an object, or of an owner.
    type Id = [&'static str; 5];

    const POD1: Id = ["v1", "Pod", "ns1", "podname1", "poduid1"];
    const POD2_NS1: Id = ["v1", "Pod", "ns1", "podname2", "poduid2"];
    const POD2_NS2: Id = ["v1", "Pod", "ns2", "podname2", "poduid2"];
    const NODE1: Id = ["v1", "Node", "", "nodename", "nodeuid1"];
    const ROLE_BETA: Id = ["rbac.authorization.k8s.io/v1beta1", "Role", "ns1", "role1", "roleuid1"];
    const ROLE: Id = ["rbac.authorization.k8s.io/v1", "Role", "ns1", "role1", "roleuid1"];
    const DEPLOYMENT: Id = ["apps/v1", "Deployment", "ns1", "deployment1", "deploymentuid1"];
    const OLD_DEPLOYMENT: Id = ["extensions/v1beta1", "Deployment", "ns1", "deployment1", "deploymentuid1"];
    const BAD_SECRET: Id = ["v1", "Secret", "ns1", "secretname", "deploymentuid1"];
    const BAD_CHILD: Id = ["v1", "Pod", "ns1", "badpod", "badpoduid"];
    const GOOD_CHILD: Id = ["v1", "Pod", "ns1", "goodpod", "goodpoduid"];

    fn reference([api_version, kind, _, name, uid]: Id) -> OwnerReference {
        let [api_version, kind, name, uid] = [api_version, kind, name, uid].map(str::to_owned);
        OwnerReference { api_version, kind, name, uid, ..OwnerReference::default() }
    }

    /// Shows an object to the graph, or that it is gone.
    fn happens(g: &mut Graph, id: Id, owner: Option<Id>, gone: bool) -> Vec<String> {
        let [api_version, kind, namespace, name, uid] = id;
        if gone {
            return words(g.forget(uid));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let plural = kind.to_lowercase().into();
        let resource = Resource { group: group.into(), version: version.into(), plural };
        let served = Arc::new(Served::new(resource, kind, kind != "Node"));
        let meta = Meta {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            owners: owner.map(reference).into_iter().collect(),
            ..Meta::default()
        };
        words(g.observe(&served, &Arc::new(meta)))
    }

    /// The observations of upstream's `TestConflictingData`, as far as they do not turn on its virtual nodes: here a
    /// dependent is looked at where upstream looks at the virtual node of its owner.
    #[test]
    fn data_that_contradict() {
        type Step = (Id, Option<Id>, bool, &'static [&'static str]);
        let check = |name: &str, steps: &[Step], known: &[(Id, Known)]| {
            let mut g = Graph::default();
            for (id, owner, gone, want) in steps {
                assert_eq!(happens(&mut g, *id, *owner, *gone), *want, "{name}: {id:?}");
            }
            for (owner, want) in known {
                assert_eq!(g.known(&reference(*owner), "ns1"), *want, "{name}: {owner:?}");
            }
        };
        let (add, gone) = (false, true);
        check(
            "good child in ns1 -> cluster-scoped owner",
            &[(POD1, Some(NODE1), add, &["delete poduid1"]), (NODE1, None, add, &[])],
            &[(NODE1, Known::Solid)],
        );
        let bad = &["delete poduid1", "invalid poduid1 of poduid2"];
        check(
            "bad child in ns1 -> owner in ns2 (child first)",
            &[
                (POD1, Some(POD2_NS1), add, &["delete poduid1"]),
                (POD2_NS2, None, add, bad),
                (POD1, None, gone, &[]),
            ],
            &[(POD2_NS1, Known::Unknown)],
        );
        check(
            "bad child in ns1 -> owner in ns2 (owner first)",
            &[(POD2_NS2, None, add, &[]), (POD1, Some(POD2_NS1), add, bad), (POD1, None, gone, &[])],
            &[(POD2_NS1, Known::Unknown)],
        );
        let bad = &["delete nodeuid1", "invalid nodeuid1 of poduid1"];
        check(
            "bad cluster-scoped child -> owner in ns1 (child first)",
            &[(NODE1, Some(POD1), add, &["delete nodeuid1"]), (POD1, None, add, bad)],
            &[],
        );
        check(
            "bad cluster-scoped child -> owner in ns1 (owner first)",
            &[(POD1, None, add, &[]), (NODE1, Some(POD1), add, bad)],
            &[],
        );
        // DIFFERENCE: upstream looks at the child again, because the version is another one; the object is the same.
        check(
            "good child -> existing owner with non-preferred accessible API version",
            &[
                (POD1, Some(ROLE_BETA), add, &["delete poduid1"]),
                (ROLE, None, add, &[]),
                (ROLE, None, gone, &["delete poduid1"]),
                (POD1, None, gone, &[]),
            ],
            &[(ROLE_BETA, Known::Absent)],
        );
        check(
            "child -> existing owner with inaccessible API version (child first)",
            &[
                (POD1, Some(OLD_DEPLOYMENT), add, &["delete poduid1"]),
                (DEPLOYMENT, None, add, &["delete poduid1"]),
                (DEPLOYMENT, None, gone, &["delete poduid1"]),
            ],
            &[(OLD_DEPLOYMENT, Known::Unknown)],
        );
        check(
            "child -> existing owner with inaccessible API version (owner first)",
            &[
                (DEPLOYMENT, None, add, &[]),
                (POD1, Some(OLD_DEPLOYMENT), add, &["delete poduid1"]),
                (DEPLOYMENT, None, gone, &["delete poduid1"]),
            ],
            &[(OLD_DEPLOYMENT, Known::Unknown)],
        );
        check(
            "child -> non-existent owner with inaccessible API version",
            &[
                (POD1, Some(OLD_DEPLOYMENT), add, &["delete poduid1"]),
                (POD2_NS1, Some(DEPLOYMENT), add, &["delete poduid2"]),
                (POD2_NS1, None, gone, &[]),
            ],
            &[(OLD_DEPLOYMENT, Known::Unknown)],
        );
        check(
            "bad child -> existing owner with incorrect API version",
            &[
                (BAD_CHILD, Some(BAD_SECRET), add, &["delete badpoduid"]),
                (GOOD_CHILD, Some(DEPLOYMENT), add, &["delete goodpoduid"]),
                (DEPLOYMENT, None, add, &["delete badpoduid"]),
                (BAD_CHILD, None, gone, &[]),
            ],
            &[(DEPLOYMENT, Known::Solid), (BAD_SECRET, Known::Unknown)],
        );
    }

    /// Upstream's 15 cases of `TestGetAlternateOwnerIdentity`. There, a virtual node takes on the next of the names by which
    /// dependents call an owner that was looked for in vain under one of them; here each dependent asks for its own, so that
    /// none but those of the same name believes that the owner is gone.
    ///
    /// The namespaces of dependents with the owners that they name, the owner that was not found, and the owners about
    /// which the server is still to be asked.
    #[test]
    fn names_of_an_absent_owner() {
        type Dependent<'a> = (&'static str, &'a [Id]);
        let check = |name: &str, dependents: &[Dependent<'_>], absent: Id, want: &[Id]| {
            let mut g = Graph::default();
            g.note_absent(&reference(absent), absent[2]);
            let mut asked = Vec::new();
            for (namespace, owners) in dependents {
                for owner in owners.iter().filter(|owner| owner[4] == absent[4]) {
                    match g.known(&reference(*owner), namespace) {
                        Known::Unknown => asked.push(*owner),
                        known => assert_eq!(known, Known::Absent, "{name}"),
                    }
                }
            }
            asked.dedup();
            assert_eq!(asked, want, "{name}");
        };
        let of = |version, kind, namespace, name| [version, kind, namespace, name, "parentuid"];
        let (one, two) =
            (of("v1", "NSParent", "ns1", "parentname"), of("v1", "NSParent", "ns2", "parentname"));
        let version = of("xx", "NSParent", "ns1", "parentname");
        let kind = of("v1", "xxxxxxxx", "ns1", "parentname");
        let named = of("v1", "NSParent", "ns1", "xxxxxxxxxx");
        check("version", &[("ns1", &[one]), ("ns1", &[version])], one, &[version]);
        check("kind", &[("ns1", &[one]), ("ns1", &[kind])], one, &[kind]);
        check("namespace", &[("ns1", &[one]), ("ns2", &[two])], one, &[two]);
        check("name", &[("ns1", &[one]), ("ns1", &[named])], one, &[named]);
        let cluster = of("v1", "ClusterParent", "", "parentname");
        let version = of("xx", "ClusterParent", "", "parentname");
        let kind = of("v1", "xxxxxxxxxxxxx", "", "parentname");
        let named = of("v1", "ClusterParent", "", "xxxxxxxxxx");
        check("cluster version", &[("ns1", &[cluster]), ("ns1", &[version])], cluster, &[version]);
        check("cluster kind", &[("ns1", &[cluster]), ("ns1", &[kind])], cluster, &[kind]);
        check("cluster namespace", &[("ns1", &[cluster]), ("ns2", &[cluster])], cluster, &[]);
        check("cluster name", &[("ns1", &[cluster]), ("ns1", &[named])], cluster, &[named]);
        for (child, namespace) in [("ns1", "ns1"), ("", "")] {
            let all = ["v1", "v2", "v3", "v4", "v5"].map(|v| [v, "kind", namespace, "name", "uid"]);
            for absent in [4, 3] {
                let mut others = all.to_vec();
                others.remove(absent);
                check("versions in order", &[(child, &all)], all[absent], &others);
            }
        }
        let unrelated = ["v1", "Parent", "ns1", "name", "anotheruid"];
        check("ignore unrelated", &[("ns1", &[cluster, unrelated])], cluster, &[]);
        check("ignore matches", &[("ns1", &[cluster, cluster])], cluster, &[]);
        check("collapse duplicates", &[("", &[cluster, kind, kind])], cluster, &[kind]);
    }
}
