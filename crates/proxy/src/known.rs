//! The Services that are known, and which of them are to be planned anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use client::Key;
use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use objects::backends::{Backend, Choice, Family, PortName, Viewpoint, by_port, choose};

use crate::service::{HEADLESS, OTHER_PROXY, Port, Served, key_of, read};

/// The label of a slice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A change of the cluster.
#[derive(Debug, Clone)]
pub enum Event {
    /// A Service is new, or has changed.
    Service(Arc<Service>),
    /// A Service is gone.
    ServiceGone(Key),
    /// A slice is new, or has changed.
    Slice(Arc<EndpointSlice>),
    /// A slice is gone.
    SliceGone(Key),
}

/// The node on which the proxy works.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The node's name.
    pub node: Text,
    /// Its zone, "" for none.
    pub zone: Text,
}

/// A Service, and `T` that follows from it.
#[derive(Debug, Default)]
struct Entry<T> {
    served: Served,
    slices: BTreeMap<Text, Arc<EndpointSlice>>,
    counts: Counts,
    made: T,
}

/// Endpoints of this node, as health checks and metrics count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The endpoints on this node that take new connections, for the health check.
    pub(crate) local: usize,
    /// How many ports of each policy have endpoints, but none on this node: internal, external.
    pub(crate) without_local: [usize; 2],
}

/// A Service that is to be planned anew.
pub(crate) struct Planned<'a> {
    pub(crate) key: &'a Arc<Key>,
    pub(crate) from: Viewpoint<'a>,
    served: &'a Served,
    backends: [BTreeMap<PortName, Vec<Backend>>; 2],
}

/// All Services, with `T` for each.
#[derive(Debug)]
pub(crate) struct Known<T> {
    place: Place,
    entries: BTreeMap<Arc<Key>, Entry<T>>,
    /// The Service of each slice.
    slices: HashMap<Key, Arc<Key>>,
    changed: BTreeSet<Arc<Key>>,
}

impl<T: Default> Known<T> {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, entries: BTreeMap::new(), slices: HashMap::new(), changed: BTreeSet::new() }
    }

    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Service(service) => {
                let key = Arc::new(key_of(&service));
                let served = read(&service);
                if served.ports.is_empty() && !self.entries.contains_key(&key) {
                    return;
                }
                let entry = self.entries.entry(key.clone()).or_default();
                if entry.served != served {
                    entry.served = served;
                    self.changed.insert(key);
                }
            }
            Event::ServiceGone(key) => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.served = Served::default();
                    self.changed.insert(Arc::new(key));
                }
            }
            Event::Slice(slice) => self.put_slice(slice),
            Event::SliceGone(key) => self.remove_slice(&key),
        }
    }

    fn put_slice(&mut self, slice: Arc<EndpointSlice>) {
        let of = &slice.metadata;
        let namespace = of.namespace.as_deref().unwrap_or_default();
        let key = Key::new(namespace, of.name.as_deref().unwrap_or_default());
        let labels = of.labels.as_ref();
        let mine = !labels.is_some_and(|l| l.contains_key(OTHER_PROXY) || l.contains_key(HEADLESS));
        let service = labels.and_then(|l| l.get(SERVICE_NAME)).filter(|name| mine && !name.is_empty());
        let service = service.map(|name| Arc::new(Key::new(namespace, name)));
        if self.slices.get(&key) != service.as_ref() {
            self.remove_slice(&key);
        }
        let Some(service) = service else { return };
        let name = key.name.clone();
        self.slices.insert(key, service.clone());
        let entry = self.entries.entry(service.clone()).or_default();
        entry.slices.insert(name, slice);
        self.changed.insert(service);
    }

    fn remove_slice(&mut self, key: &Key) {
        let Some(service) = self.slices.remove(key) else { return };
        if let Some(entry) = self.entries.get_mut(&service) {
            entry.slices.remove(&key.name);
        }
        self.changed.insert(service);
    }

    /// Changes the node's place.
    pub(crate) fn set_place(&mut self, place: Place) {
        if self.place != place {
            self.changed.extend(self.entries.keys().cloned());
            self.place = place;
        }
    }

    /// Whether Services wait for [`Self::plan`].
    pub(crate) fn is_pending(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Plans what changed anew.
    pub(crate) fn plan(&mut self, mut plan: impl FnMut(&Planned<'_>, &mut T) -> Counts) {
        let from = Viewpoint { node: &self.place.node, zone: &self.place.zone };
        for key in std::mem::take(&mut self.changed) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let of = |family| {
                if entry.served.ports.iter().any(|p| p.family == family) {
                    by_port(entry.slices.values().map(|s| &**s), family)
                } else {
                    BTreeMap::new()
                }
            };
            let backends = [of(Family::V4), of(Family::V6)];
            let planned = Planned { key: &key, from, served: &entry.served, backends };
            entry.counts = plan(&planned, &mut entry.made);
            if entry.served.ports.is_empty() && entry.slices.is_empty() {
                self.entries.remove(&key);
            }
        }
    }

    /// The things that follow from all Services.
    pub(crate) fn made(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.made)
    }

    /// The health-check ports of Services, with the number of their endpoints on this node.
    pub(crate) fn health_ports(&self) -> BTreeMap<Key, (u16, usize)> {
        let all = self.entries.iter();
        all.filter_map(|(key, e)| Some((Key::clone(key), (e.served.health_port?, e.counts.local)))).collect()
    }

    /// How many ports that are to lead to endpoints of this node alone have none: by the internal and the external
    /// policy.
    pub(crate) fn without_local(&self) -> [usize; 2] {
        let all = self.entries.values().map(|e| e.counts.without_local);
        all.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }
}

impl Planned<'_> {
    /// The Service's ports, each with all its endpoints, and those of them that are chosen.
    pub(crate) fn ports(&self, mut each: impl FnMut(&Port, &[Backend], &Choice<'_>)) -> Counts {
        let (mut here, mut without_local) = (Vec::new(), [0, 0]);
        for port in &self.served.ports {
            let all = self.backends[usize::from(port.family == Family::V6)].get(&port.name);
            let all = all.map(Vec::as_slice).unwrap_or_default();
            let policies = port.policies;
            let choice = choose(all, policies, self.from);
            if policies.external_local {
                // Balancers leave a node whose endpoints are all to go, though these are used until then.
                here.extend(all.iter().filter(|b| b.ready && self.from.is_local(b)).map(|b| b.address));
            }
            let kept = [policies.internal_local, policies.external_local && policies.external];
            if choice.any && choice.local.as_ref().is_none_or(Vec::is_empty) {
                for (count, kept) in without_local.iter_mut().zip(kept) {
                    *count += usize::from(kept);
                }
            }
            each(port, all, &choice);
        }
        here.sort_unstable();
        here.dedup();
        Counts { local: here.len(), without_local }
    }
}
