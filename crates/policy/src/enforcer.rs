//! The facts that are known of the cluster, and the contents of the table that follow from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use client::{Cached, Key};
use compact_str::CompactString as Text;
use netlink::Error;
use netlink::nft::{self, Filter, Table};
use objects::backends::Family;

use crate::chains::{isolated, itself};
use crate::contents::{Bytes, Changes, Contents, Size};
use crate::name::Name;
use crate::selections::{Id, Selections};
use crate::spec::{DIRECTIONS, Direction, FAMILIES, Policy, Selection};
use crate::uses::{Use, Uses};
use crate::views::{Listed, PodView, PolicyView, SpaceView};

/// The Pod of a container, as its runtime names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Namespace and name.
    pub key: Key,
    /// The uid, "" if the runtime does not tell.
    pub uid: Text,
}

/// A container that is joined to the node's pod network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The runtime's name of it.
    pub container: Text,
    /// Its Pod.
    pub pod: Owner,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A change of the cluster, or of the node's containers.
#[derive(Debug, Clone)]
pub enum Event {
    /// A Pod is new, or has changed.
    Pod(Arc<PodView>),
    /// A Pod is gone.
    PodGone(Key),
    /// A namespace is new, or has changed.
    Space(Arc<SpaceView>),
    /// A namespace is gone.
    SpaceGone(Text),
    /// A policy is new, or has changed.
    Policy(Arc<PolicyView>),
    /// A policy is gone.
    PolicyGone(Key),
    /// A container is joined to the network.
    Attached(Attached),
    /// A container is gone from it.
    Released(Text),
}

/// A direction and an address in which a Pod is isolated, and the chain that says so.
type Isolation = Vec<(Direction, IpAddr, Use)>;

#[derive(Debug)]
struct Pod {
    view: Arc<PodView>,
    /// Whether the API has it no more, and containers of it are here still.
    gone: bool,
    addresses: Vec<IpAddr>,
    /// In order.
    selected: Vec<Id>,
    isolation: Isolation,
}

/// The peers of a rule: all, or those selected and those of the rule's blocks.
type Named = Option<Vec<Id>>;

#[derive(Debug)]
struct Held {
    view: Arc<PolicyView>,
    subject: Id,
    /// The selections of each rule, of both directions.
    peers: [Vec<Named>; 2],
}

impl Held {
    fn ids(&self) -> impl Iterator<Item = Id> {
        let peers = self.peers.iter().flatten().flatten().flatten().copied();
        peers.chain([self.subject])
    }
}

/// The policies of a node and their table.
#[derive(Debug)]
pub struct Enforcer {
    pub(crate) table: Table,
    node: Text,
    pods: BTreeMap<Arc<Key>, Pod>,
    /// The Pods of this node.
    local: BTreeSet<Arc<Key>>,
    policies: BTreeMap<Arc<Key>, Held>,
    pub(crate) selections: Selections,
    pub(crate) uses: Uses,
    pub(crate) contents: Contents,
    attached: BTreeMap<Text, Attached>,
    /// The container to which an address was given last.
    owners: HashMap<IpAddr, Text>,
    /// Containers whose Pods are not known, and how they are isolated.
    strangers: BTreeMap<Text, Isolation>,
    /// The Pods whose isolation is to be looked at.
    dirty: BTreeSet<Arc<Key>>,
    /// The containers of which it is to be looked whether they are strangers.
    dirty_containers: BTreeSet<Text>,
    /// Selections that are named no more once isolation is as it should be.
    doomed: Vec<Id>,
    /// Whether a Pod was isolated by other policies since it was asked last.
    isolated: bool,
}

pub(crate) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// address . protocol . port
pub(crate) fn endpoint(address: IpAddr, protocol: u8, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    [&bytes(address)[..], &[protocol, 0, 0, 0, high, low, 0, 0]].concat()
}

impl Enforcer {
    /// Nothing is known. `table` names the table, of the family `inet`, that is the enforcer's alone.
    pub fn new(table: &str, node: &str) -> Self {
        Self {
            table: Table { family: nft::Family::Inet, name: table.to_owned() },
            node: node.into(),
            pods: BTreeMap::new(),
            local: BTreeSet::new(),
            policies: BTreeMap::new(),
            selections: Selections::default(),
            uses: Uses::default(),
            contents: Contents::new(),
            attached: BTreeMap::new(),
            owners: HashMap::new(),
            strangers: BTreeMap::new(),
            dirty: BTreeSet::new(),
            dirty_containers: BTreeSet::new(),
            doomed: Vec::new(),
            isolated: false,
        }
    }

    /// Takes a change. It works at the next [`Self::sync`].
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Pod(view) => self.put_pod(view),
            Event::PodGone(key) => self.remove_pod(&Arc::new(key)),
            Event::Space(view) => {
                if self.selections.set_namespace(&view.name, Some(view.labels.clone())) {
                    self.refresh_all(&view.name);
                }
            }
            Event::SpaceGone(name) => {
                if self.selections.set_namespace(&name, None) {
                    self.refresh_all(&name);
                }
            }
            Event::Policy(view) => self.put_policy(view),
            Event::PolicyGone(key) => self.remove_policy(&key),
            Event::Attached(one) => self.attach(one),
            Event::Released(container) => self.release_container(&container),
        }
    }

    /// Whether a container's Pod, its namespace, and these policies of it are known, as new as listed or newer.
    pub(crate) fn knows(&self, one: &Attached, listed: &[Listed]) -> bool {
        let number = |version: &str| version.parse::<u64>().unwrap_or_default();
        let namespace = &one.pod.key.namespace;
        self.is_known(&one.pod)
            && self.selections.knows(namespace)
            && listed.iter().all(|listed| {
                let held = self.policies.get(&Key::new(namespace, &listed.name));
                held.is_some_and(|held| number(&held.view.version) >= number(&listed.version))
            })
    }

    fn is_known(&self, pod: &Owner) -> bool {
        let known = self.pods.get(&pod.key);
        known.is_some_and(|known| pod.uid.is_empty() || known.view.has_uid(&pod.uid))
    }

    fn put_pod(&mut self, view: Arc<PodView>) {
        let key = Arc::new(view.key());
        if view.node == self.node && !view.host_network {
            self.local.insert(key.clone());
        } else {
            self.local.remove(&key);
        }
        if !self.pods.contains_key(&key) {
            let (addresses, selected, isolation) = Default::default();
            let pod = Pod { view: view.clone(), gone: false, addresses, selected, isolation };
            self.pods.insert(key.clone(), pod);
        }
        self.look_for_strangers(&key);
        self.refresh(&key, Some(view));
    }

    /// Forgets a Pod, unless containers of it are here.
    fn remove_pod(&mut self, key: &Arc<Key>) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        pod.gone = true;
        if !self.containers(key).is_empty() {
            return;
        }
        self.look_for_strangers(key);
        self.local.remove(key);
        self.refresh(key, None);
    }

    /// The addresses of the containers that are a Pod's.
    fn containers(&self, key: &Key) -> Vec<IpAddr> {
        let Some(pod) = self.pods.get(key).filter(|_| self.local.contains(key)) else { return Vec::new() };
        let own = self.attached.values().filter(|one| one.pod.key == *key);
        let own = own.filter(|one| one.pod.uid.is_empty() || pod.view.has_uid(&one.pod.uid));
        own.flat_map(|one| {
            one.addresses.iter().copied().filter(|a| self.owners.get(a) == Some(&one.container))
        })
        .collect()
    }

    /// The addresses that a Pod has: those that its containers were given, or else those that its status tells.
    fn addresses(&self, key: &Key) -> Vec<IpAddr> {
        let Some(pod) = self.pods.get(key) else { return Vec::new() };
        let mut found = self.containers(key);
        if found.is_empty() && !pod.gone && !pod.view.ended && !pod.view.host_network {
            let told = pod.view.addresses.iter().copied();
            found.extend(told.filter(|address| !self.owners.contains_key(address)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The elements of sets in use that a Pod is the reason for.
    fn elements(&self, pod: &Pod) -> BTreeSet<(Name, Vec<u8>)> {
        let mut found = BTreeSet::new();
        for address in &pod.addresses {
            let family = Family::of(*address);
            for id in &pod.selected {
                if let Some(used) = self.uses.get(&Use::Peers(family, *id)) {
                    found.insert((used.name.clone(), bytes(*address)));
                }
            }
            for port in &pod.view.ports {
                if let Some(used) = self.uses.get(&Use::Named(family, port.protocol, port.name.clone())) {
                    found.insert((used.name.clone(), endpoint(*address, port.protocol, port.port)));
                }
            }
        }
        found
    }

    /// Works out anew who selects a Pod, which has changed to a state if one is given, and which addresses it has.
    fn refresh(&mut self, key: &Arc<Key>, state: Option<Arc<PodView>>) {
        let Some(mut pod) = self.pods.remove(key) else { return };
        let before = self.elements(&pod);
        if let Some(view) = state {
            pod.view = view;
            pod.gone = false;
        }
        let is_over = pod.gone && !self.local.contains(key);
        let selected = if is_over || pod.view.host_network {
            Vec::new()
        } else {
            self.selections.of(&key.namespace, &pod.view.labels)
        };
        for id in pod.selected.iter().filter(|id| selected.binary_search(id).is_err()) {
            if let Some(one) = self.selections.get_mut(*id) {
                one.pods.remove(key);
            }
        }
        for id in selected.iter().filter(|id| pod.selected.binary_search(id).is_err()) {
            if let Some(one) = self.selections.get_mut(*id) {
                one.pods.insert(key.clone());
            }
        }
        pod.selected = selected;
        self.pods.insert(key.clone(), pod);
        let addresses = self.addresses(key);
        let Some(pod) = self.pods.get_mut(key) else { return };
        pod.addresses = addresses;
        let Some(pod) = self.pods.get(key) else { return };
        let after = self.elements(pod);
        for (set, element) in before.difference(&after) {
            self.contents.unhold(set, &Bytes::from(&element[..]));
        }
        for (set, element) in after.difference(&before) {
            self.contents.hold(set, &Bytes::from(&element[..]));
        }
        if self.local.contains(key) || !pod.isolation.is_empty() || pod.gone {
            self.dirty.insert(key.clone());
        }
    }

    fn pods_in(&self, namespace: &str) -> Vec<Arc<Key>> {
        let first = Key::new(namespace, "");
        let from = self.pods.range::<Key, _>((Bound::Included(&first), Bound::Unbounded));
        from.map(|(key, _)| key).take_while(|key| key.namespace == namespace).cloned().collect()
    }

    fn refresh_all(&mut self, namespace: &str) {
        for key in self.pods_in(namespace) {
            self.refresh(&key, None);
        }
    }

    fn attach(&mut self, one: Attached) {
        self.release_container(&one.container);
        for address in &one.addresses {
            self.owners.insert(*address, one.container.clone());
        }
        let key = Arc::new(one.pod.key.clone());
        let addresses = one.addresses.clone();
        self.dirty_containers.insert(one.container.clone());
        self.attached.insert(one.container.clone(), one);
        self.refresh(&key, None);
        self.refresh_owners(&addresses);
    }

    fn release_container(&mut self, container: &Text) {
        let Some(one) = self.attached.remove(container) else { return };
        for address in &one.addresses {
            if self.owners.get(address) == Some(container) {
                self.owners.remove(address);
            }
        }
        self.dirty_containers.insert(container.clone());
        let key = Arc::new(one.pod.key);
        if self.pods.get(&key).is_some_and(|pod| pod.gone) {
            self.remove_pod(&key);
        }
        self.refresh(&key, None);
        self.refresh_owners(&one.addresses);
    }

    /// Looks at the Pods of this node that had, or claim, one of these addresses.
    fn refresh_owners(&mut self, addresses: &[IpAddr]) {
        let claims =
            |pod: &Pod| addresses.iter().any(|a| pod.addresses.contains(a) || pod.view.addresses.contains(a));
        let others = self.local.iter().filter(|key| self.pods.get(*key).is_some_and(claims));
        for key in others.cloned().collect::<Vec<_>>() {
            self.refresh(&key, None);
        }
    }

    fn look_for_strangers(&mut self, key: &Key) {
        let of = self.attached.values().filter(|one| one.pod.key == *key);
        self.dirty_containers.extend(of.map(|one| one.container.clone()));
    }

    /// Names a selection, and finds its Pods if it is new.
    fn name_selection(&mut self, selection: &Selection) -> Id {
        let (id, spaces) = self.selections.acquire(selection);
        for space in spaces {
            for key in self.pods_in(&space) {
                let Some(pod) = self.pods.get_mut(&key) else { continue };
                if pod.view.host_network || !self.selections.selects(id, &pod.view.labels) {
                    continue;
                }
                if let Err(at) = pod.selected.binary_search(&id) {
                    pod.selected.insert(at, id);
                    if let Some(one) = self.selections.get_mut(id) {
                        one.pods.insert(key.clone());
                    }
                }
            }
        }
        id
    }

    fn put_policy(&mut self, view: Arc<PolicyView>) {
        let key = Arc::new(view.key());
        if let Some(held) = self.policies.get_mut(&key)
            && held.view.policy == view.policy
        {
            held.view = view;
            return;
        }
        let subject = self.name_selection(&view.policy.subject);
        let mut peers: [Vec<Named>; 2] = Default::default();
        for (direction, named) in DIRECTIONS.into_iter().zip(&mut peers) {
            for rule in view.policy.rules(direction).unwrap_or_default() {
                let all = rule.peers.iter().flat_map(|peers| &peers.selections);
                let all: Vec<Id> = all.map(|one| self.name_selection(one)).collect();
                named.push(rule.peers.as_ref().map(|_| all));
            }
        }
        let isolates = |policy: &Policy| DIRECTIONS.map(|direction| policy.rules(direction).is_some());
        let now = isolates(&view.policy);
        let old = self.policies.insert(key.clone(), Held { view, subject, peers });
        let same =
            old.as_ref().is_some_and(|old| old.subject == subject && isolates(&old.view.policy) == now);
        if !same {
            if let Some(old) = &old {
                self.leave_subject(&key, old.subject);
            }
            if let Some(one) = self.selections.get_mut(subject) {
                one.policies.insert(key.clone());
                self.dirty.extend(one.pods.iter().cloned());
            }
        }
        for direction in DIRECTIONS {
            for family in FAMILIES {
                self.rewrite(&Use::Policy(direction, family, key.clone()));
            }
        }
        self.doomed.extend(old.iter().flat_map(Held::ids));
    }

    fn remove_policy(&mut self, key: &Key) {
        let Some((key, old)) = self.policies.remove_entry(key) else { return };
        self.leave_subject(&key, old.subject);
        self.doomed.extend(old.ids());
    }

    fn leave_subject(&mut self, key: &Arc<Key>, subject: Id) {
        let Some(one) = self.selections.get_mut(subject) else { return };
        one.policies.remove(key);
        self.dirty.extend(one.pods.iter().cloned());
    }

    /// The selections that each rule of a policy names.
    pub(crate) fn policy(&self, key: &Key, direction: Direction) -> Option<(&Policy, &[Named])> {
        let held = self.policies.get(key)?;
        let place = usize::from(direction == Direction::Egress);
        Some((&held.view.policy, &held.peers[place]))
    }

    /// The addresses of selected Pods.
    pub(crate) fn addresses_of(&self, id: Id) -> impl Iterator<Item = IpAddr> {
        let pods = self.selections.get(id).into_iter().flat_map(|one| &one.pods);
        pods.filter_map(|key| self.pods.get(key)).flat_map(|pod| pod.addresses.iter().copied())
    }

    /// The ports of all Pods that have this name.
    pub(crate) fn ports_named(&self, protocol: u8, name: &str) -> impl Iterator<Item = (IpAddr, u16)> {
        self.pods.values().flat_map(move |pod| {
            let ports = pod.view.ports.iter().filter(move |p| p.protocol == protocol && p.name == name);
            ports.flat_map(|port| pod.addresses.iter().map(|address| (*address, port.port)))
        })
    }

    /// How a Pod of this node is isolated.
    fn isolation(&self, key: &Key) -> Isolation {
        let Some(pod) = self.pods.get(key).filter(|_| self.local.contains(key)) else { return Vec::new() };
        let mut found = Vec::new();
        for direction in DIRECTIONS {
            let selected = pod.selected.iter().filter_map(|id| self.selections.get(*id));
            let policies = selected.flat_map(|one| &one.policies);
            let isolating = policies.filter(|key| {
                self.policies.get(*key).is_some_and(|held| held.view.policy.rules(direction).is_some())
            });
            let mut policies: Vec<Arc<Key>> = isolating.cloned().collect();
            if policies.is_empty() {
                continue;
            }
            policies.sort_unstable();
            let policies: Arc<[Arc<Key>]> = policies.into();
            for address in &pod.addresses {
                let chain = Use::Pods(direction, Family::of(*address), policies.clone());
                found.push((direction, *address, chain));
            }
        }
        found
    }

    /// How a container whose Pod is not known is isolated: wholly.
    fn isolation_of_stranger(&self, container: &Text) -> Isolation {
        let Some(one) = self.attached.get(container).filter(|one| !self.is_known(&one.pod)) else {
            return Vec::new();
        };
        let own = one.addresses.iter().filter(|a| self.owners.get(*a) == Some(container));
        let all = own.flat_map(|address| DIRECTIONS.map(|direction| (direction, *address)));
        all.map(|(direction, address)| {
            (direction, address, Use::Pods(direction, Family::of(address), Arc::default()))
        })
        .collect()
    }

    /// Plans what changed anew. Pure; [`Self::sync`] calls it.
    pub fn plan(&mut self) {
        for key in std::mem::take(&mut self.dirty) {
            let now = self.isolation(&key);
            let before =
                self.pods.get_mut(&key).map(|pod| std::mem::replace(&mut pod.isolation, now.clone()));
            self.isolate(&key, &before.unwrap_or_default(), &now);
            let unused = |pod: &Pod| pod.gone && !self.local.contains(&key);
            if self.pods.get(&key).is_some_and(unused) {
                self.pods.remove(&key);
            }
        }
        for container in std::mem::take(&mut self.dirty_containers) {
            let now = self.isolation_of_stranger(&container);
            let before = if now.is_empty() {
                self.strangers.remove(&container)
            } else {
                self.strangers.insert(container.clone(), now.clone())
            };
            self.isolate(&Arc::new(Key::new("", &container)), &before.unwrap_or_default(), &now);
        }
        for id in std::mem::take(&mut self.doomed) {
            for key in self.selections.release(id) {
                if let Some(pod) = self.pods.get_mut(&key) {
                    pod.selected.retain(|one| *one != id);
                }
            }
        }
    }

    /// Whether the last changes may forbid what was allowed.
    pub(crate) fn take_stricter(&mut self, changes: Changes) -> bool {
        std::mem::take(&mut self.isolated) || changes.removed + changes.objects > 0
    }

    fn isolate(&mut self, owner: &Arc<Key>, before: &Isolation, now: &Isolation) {
        self.isolated |= !now.is_empty() && now != before;
        for (direction, address, chain) in now {
            let name = self.acquire(chain);
            let family = Family::of(*address);
            let key = Bytes::from(bytes(*address));
            self.contents.lead(&isolated(*direction, family), &key, owner, Some(&name));
            self.contents.hold(&itself(family), &Bytes::from(bytes(*address).repeat(2)));
        }
        for (direction, address, chain) in before {
            let family = Family::of(*address);
            if !now.iter().any(|(d, a, _)| (d, a) == (direction, address)) {
                let key = Bytes::from(bytes(*address));
                self.contents.lead(&isolated(*direction, family), &key, owner, None);
            }
            self.contents.unhold(&itself(family), &Bytes::from(bytes(*address).repeat(2)));
            self.release(chain);
        }
    }

    /// Makes the kernel's table what policies ask for; writes the difference alone.
    ///
    /// # Errors
    /// If the kernel refuses. The next call reads the table first.
    pub fn sync(&mut self, filter: &mut Filter) -> Result<Changes, Error> {
        self.plan();
        self.contents.commit(filter, &self.table)
    }

    /// The next [`Self::sync`] reads the table first and mends what somebody else changed.
    pub fn doubt(&mut self) {
        self.contents.doubt();
    }

    /// Whether the table is there still. It looks at chains and sets, not at elements.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn is_there(&self, filter: &mut Filter) -> Result<bool, Error> {
        self.contents.is_there(filter, &self.table)
    }

    pub(crate) fn size(&self) -> Size {
        self.contents.size()
    }

    /// How many policies are known.
    pub(crate) fn policies(&self) -> usize {
        self.policies.len()
    }
}
