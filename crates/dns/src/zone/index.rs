//! The names of a cluster, and the objects behind them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use client::Change;
use compact_str::CompactString as Text;

use super::views::{NamespaceView, PodView, Reach, ServiceView, SliceView};
use crate::name::push_label;

/// A change of an object that DNS knows.
#[derive(Debug, Clone)]
pub enum Event {
    /// Of a Service.
    Service(Change<ServiceView>),
    /// Of an EndpointSlice.
    Slice(Change<SliceView>),
    /// Of a namespace.
    Namespace(Change<NamespaceView>),
    /// Of a Pod.
    Pod(Change<PodView>),
}

/// A Service with its slices; either may come first.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) service: Option<Arc<ServiceView>>,
    pub(crate) slices: Vec<Arc<SliceView>>,
}

/// Everything that can be asked for. A change touches the entry of its Service alone.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The entries by name and namespace, as labels on the wire.
    numbers: HashMap<Box<[u8]>, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The entries that have an address, as a ClusterIP or an endpoint.
    v4: BTreeSet<(u32, u32)>,
    v6: BTreeSet<(u128, u32)>,
    namespaces: HashSet<Box<[u8]>>,
    /// How many Pods of a namespace have an address.
    pods: BTreeMap<(IpAddr, Text), u32>,
    /// The time of the last change, in seconds: the zone's serial number.
    pub(crate) serial: u32,
}

/// Labels on the wire, in lower case; `None` for names that no query can have.
fn labels(names: &[&str]) -> Option<Vec<u8>> {
    let mut wire = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum());
    for name in names {
        push_label(&mut wire, name.as_bytes())?;
    }
    Some(wire)
}

impl Index {
    /// The entry of a Service, by the labels of its name and namespace.
    pub(crate) fn entry(&self, labels: &[u8]) -> Option<&Entry> {
        self.numbers.get(labels).and_then(|n| self.entries.get(*n as usize))
    }

    /// Whether a namespace is there, by its label.
    pub(crate) fn has_namespace(&self, label: &[u8]) -> bool {
        self.namespaces.contains(label)
    }

    /// Whether a Pod of a namespace has an address.
    pub(crate) fn has_pod(&self, address: IpAddr, namespace: &str) -> bool {
        self.pods.contains_key(&(address, Text::new(namespace)))
    }

    /// The entries with an address.
    pub(crate) fn having(&self, address: IpAddr) -> impl Iterator<Item = &Entry> {
        let (v4, v6) = match address {
            IpAddr::V4(a) => (Some(u32::from(a)), None),
            IpAddr::V6(a) => (None, Some(u128::from(a))),
        };
        let v4 = v4.into_iter().flat_map(|a| self.v4.range((a, 0)..=(a, u32::MAX)).map(|(_, n)| *n));
        let v6 = v6.into_iter().flat_map(|a| self.v6.range((a, 0)..=(a, u32::MAX)).map(|(_, n)| *n));
        v4.chain(v6).filter_map(|n| self.entries.get(n as usize))
    }

    /// Whether any entry has an address from `first` to `last`, as numbers of a family.
    pub(crate) fn any_within(&self, first: u128, last: u128, is_v6: bool) -> bool {
        if is_v6 {
            return self.v6.range((first, 0)..=(last, u32::MAX)).next().is_some();
        }
        let (Ok(first), Ok(last)) = (u32::try_from(first), u32::try_from(last)) else { return false };
        self.v4.range((first, 0)..=(last, u32::MAX)).next().is_some()
    }

    /// How many Services are known.
    pub(crate) fn services(&self) -> usize {
        self.entries.iter().filter(|e| e.service.is_some()).count()
    }

    /// Takes over a change.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Service(change) => {
                let object = change.object();
                let now = (!matches!(change, Change::Deleted(_))).then(|| object.clone());
                self.set_service(&object.id.name, &object.id.namespace, now);
            }
            Event::Slice(Change::Added(new)) => self.add_slice(new),
            Event::Slice(Change::Deleted(old)) => self.remove_slice(old),
            Event::Slice(Change::Updated { old, new }) => {
                self.remove_slice(old);
                self.add_slice(new);
            }
            Event::Namespace(change) => {
                let Some(label) = labels(&[&change.object().id.name]) else { return };
                if matches!(change, Change::Deleted(_)) {
                    self.namespaces.remove(label.as_slice());
                } else {
                    self.namespaces.insert(label.into());
                }
            }
            Event::Pod(change) => {
                let (old, new) = match change {
                    Change::Added(new) => (None, Some(new)),
                    Change::Deleted(old) => (Some(old), None),
                    Change::Updated { old, new } => (Some(old), Some(new)),
                };
                if let Some(pod) = new {
                    self.count_pod(pod);
                }
                if let Some(pod) = old {
                    self.forget_pod(pod);
                }
            }
        }
    }

    fn count_pod(&mut self, pod: &PodView) {
        for address in &pod.addresses {
            *self.pods.entry((*address, pod.id.namespace.clone())).or_default() += 1;
        }
    }

    fn forget_pod(&mut self, pod: &PodView) {
        for address in &pod.addresses {
            let slot = (*address, pod.id.namespace.clone());
            if let Some(count) = self.pods.get_mut(&slot) {
                *count -= 1;
                if *count == 0 {
                    self.pods.remove(&slot);
                }
            }
        }
    }

    fn set_service(&mut self, name: &str, namespace: &str, now: Option<Arc<ServiceView>>) {
        let Some(number) = self.number(name, namespace) else { return };
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        let before = std::mem::replace(&mut entry.service, now.clone());
        for address in before.iter().flat_map(|s| own(s)).copied() {
            self.unlink(address, number);
        }
        for address in now.iter().flat_map(|s| own(s)).copied() {
            self.link(address, number);
        }
        self.drop_if_empty(name, namespace, number);
    }

    fn add_slice(&mut self, slice: &Arc<SliceView>) {
        let Some(number) = self.number(&slice.service, &slice.id.namespace) else { return };
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        entry.slices.push(slice.clone());
        for address in slice.addresses.iter() {
            self.link(address, number);
        }
    }

    fn remove_slice(&mut self, slice: &SliceView) {
        let wire = labels(&[&slice.service, &slice.id.namespace]);
        let Some(number) = wire.and_then(|w| self.numbers.get(w.as_slice()).copied()) else { return };
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        entry.slices.retain(|s| s.id.name != slice.id.name);
        for address in slice.addresses.iter() {
            self.unlink(address, number);
        }
        self.drop_if_empty(&slice.service, &slice.id.namespace, number);
    }

    /// The number of an entry, which is made if there is none.
    fn number(&mut self, name: &str, namespace: &str) -> Option<u32> {
        let wire = labels(&[name, namespace])?;
        if let Some(number) = self.numbers.get(wire.as_slice()) {
            return Some(*number);
        }
        let number = if let Some(number) = self.free.pop() {
            number
        } else {
            self.entries.push(Entry::default());
            u32::try_from(self.entries.len() - 1).ok()?
        };
        self.numbers.insert(wire.into(), number);
        Some(number)
    }

    fn drop_if_empty(&mut self, name: &str, namespace: &str, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        if entry.service.is_none() && entry.slices.is_empty() {
            *entry = Entry::default();
            self.free.push(number);
            labels(&[name, namespace]).map(|w| self.numbers.remove(w.as_slice()));
        }
    }

    fn link(&mut self, address: IpAddr, number: u32) {
        match address {
            IpAddr::V4(a) => self.v4.insert((a.into(), number)),
            IpAddr::V6(a) => self.v6.insert((a.into(), number)),
        };
    }

    /// Takes an address from an entry, unless something else of the entry still has it.
    fn unlink(&mut self, address: IpAddr, number: u32) {
        let entry = self.entries.get(number as usize);
        let service = entry.and_then(|e| e.service.as_deref());
        let kept = service.is_some_and(|s| own(s).contains(&address))
            || entry.is_some_and(|e| e.slices.iter().any(|s| s.addresses.iter().any(|a| a == address)));
        match address {
            _ if kept => false,
            IpAddr::V4(a) => self.v4.remove(&(a.into(), number)),
            IpAddr::V6(a) => self.v6.remove(&(a.into(), number)),
        };
    }
}

/// A Service's own addresses.
fn own(service: &ServiceView) -> &[IpAddr] {
    match &service.reach {
        Reach::Cluster(addresses) => addresses,
        _ => &[],
    }
}
