//! The plugins' devices and who has them. Pure but for the clock, which callers hand in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plugins::device as pb;
use tokio::time::Instant;

use super::allocated::Allocated;
use super::endpoint::Endpoint;
use super::record::Data;

/// How long after a plugin's end its resources are still told of; upstream's.
const GRACE: Duration = Duration::from_mins(5);
/// The most resources of plugins that a node has: a plugin chooses their names.
pub(super) const MOST_RESOURCES: usize = 1000;
/// The health of a device that can be given.
const HEALTHY: &str = "Healthy";

/// A plugin's resource.
#[derive(Debug)]
struct Resource {
    /// None after a restart, until the plugin is there again.
    endpoint: Option<Endpoint>,
    /// When the plugin was gone.
    stopped: Option<Instant>,
}

/// The resources that the Node tells of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// All devices of each resource, healthy or not.
    pub capacity: BTreeMap<String, usize>,
    /// The healthy ones.
    pub allocatable: BTreeMap<String, usize>,
    /// Resources whose plugins are gone for good.
    pub removed: BTreeSet<String>,
}

/// Everything that is known of devices.
#[derive(Debug, Default)]
pub(super) struct State {
    resources: BTreeMap<String, Resource>,
    /// The devices that plugins told of last, also of plugins that are gone.
    all: BTreeMap<String, BTreeMap<String, pb::Device>>,
    healthy: BTreeMap<String, BTreeSet<String>>,
    unhealthy: BTreeMap<String, BTreeSet<String>>,
    /// Resources that the Node is to tell of as none.
    removed: BTreeSet<String>,
    /// The devices that containers have.
    pub(super) allocated: Allocated,
    connections: u64,
}

impl State {
    /// Takes what an earlier process left. Its resources have no devices until their plugins are there again.
    pub(super) fn new(data: Data, now: Instant) -> Self {
        let allocated = Allocated::of_entries(data.pod_device_entries.unwrap_or_default());
        let mut state = Self { allocated, ..Self::default() };
        for name in data.registered_devices.into_iter().flatten().map(|(name, _)| name).take(MOST_RESOURCES) {
            state.healthy.insert(name.clone(), BTreeSet::new());
            state.unhealthy.insert(name.clone(), BTreeSet::new());
            state.resources.insert(name, Resource { endpoint: None, stopped: Some(now) });
        }
        state
    }

    /// The data that the next process is to find.
    pub(super) fn data(&self) -> Data {
        let entries = self.allocated.entries();
        let one =
            |(name, ids): (&String, &BTreeSet<String>)| (name.clone(), Some(ids.iter().cloned().collect()));
        Data {
            pod_device_entries: Some(entries).filter(|all| !all.is_empty()),
            registered_devices: Some(self.healthy.iter().map(one).collect()),
        }
    }

    /// A number for a connection to a plugin.
    pub(super) fn next_connection(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    /// Takes a plugin into use, in the place of one that had the resource before. Its devices are those that the other
    /// one told of until it tells of its own.
    ///
    /// # Errors
    /// There are too many resources.
    pub(super) fn connected(&mut self, resource: &str, endpoint: Endpoint) -> Result<(), String> {
        if self.resources.len() >= MOST_RESOURCES && !self.resources.contains_key(resource) {
            return Err(format!("more than {MOST_RESOURCES} resources of device plugins"));
        }
        let new = Resource { endpoint: Some(endpoint), stopped: None };
        if let Some(old) = self.resources.insert(resource.to_owned(), new).and_then(|old| old.endpoint) {
            old.gone.cancel();
        }
        self.removed.remove(resource);
        Ok(())
    }

    /// A plugin is gone: none of its devices is healthy. Answers whether it was the one in use.
    pub(super) fn disconnected(&mut self, resource: &str, connection: u64, now: Instant) -> bool {
        let Some(known) = self.resources.get_mut(resource) else { return false };
        if known.endpoint.as_ref().is_none_or(|e| e.connection != connection) || known.stopped.is_some() {
            return false;
        }
        known.stopped = Some(now);
        if let Some(endpoint) = &known.endpoint {
            endpoint.gone.cancel();
        }
        let healthy = std::mem::take(self.healthy.entry(resource.to_owned()).or_default());
        self.unhealthy.entry(resource.to_owned()).or_default().extend(healthy);
        true
    }

    /// The connection that is in use for a resource.
    pub(super) fn connection(&self, resource: &str) -> Option<u64> {
        Some(self.resources.get(resource)?.endpoint.as_ref()?.connection)
    }

    /// Takes the devices that a plugin tells of. Answers the Pods that have one whose health changed, or none if nothing
    /// did, or it is not the plugin in use. A device that is named twice is what was said of it last.
    pub(super) fn told(
        &mut self,
        resource: &str,
        connection: u64,
        devices: Vec<pb::Device>,
    ) -> Option<BTreeSet<String>> {
        if self.connection(resource) != Some(connection) || self.is_stopped(resource) {
            return None;
        }
        let new: BTreeMap<String, pb::Device> = devices.into_iter().map(|d| (d.id.clone(), d)).collect();
        let (healthy, unhealthy): (BTreeSet<_>, BTreeSet<_>) =
            new.keys().cloned().partition(|id| new[id].health == HEALTHY);
        let old = self.all.get(resource);
        if self.healthy.get(resource) == Some(&healthy)
            && self.unhealthy.get(resource) == Some(&unhealthy)
            && old == Some(&new)
        {
            return None;
        }
        let changed: BTreeSet<String> = new
            .values()
            .filter(|d| old.and_then(|old| old.get(&d.id)).is_none_or(|before| before.health != d.health))
            .map(|d| d.id.clone())
            .collect();
        let pods = self.allocated.pods_with(resource, &changed);
        self.healthy.insert(resource.to_owned(), healthy);
        self.unhealthy.insert(resource.to_owned(), unhealthy);
        self.all.insert(resource.to_owned(), new);
        Some(pods)
    }

    fn is_stopped(&self, resource: &str) -> bool {
        self.resources.get(resource).is_none_or(|r| r.stopped.is_some())
    }

    /// The plugin of a resource.
    ///
    /// # Errors
    /// It is gone, or there is none; upstream's texts.
    pub(super) fn endpoint(&self, resource: &str) -> Result<Endpoint, NoEndpoint> {
        let known = self.resources.get(resource).ok_or_else(|| NoEndpoint::Unknown(resource.to_owned()))?;
        match (&known.endpoint, known.stopped) {
            (Some(endpoint), None) => Ok(endpoint.clone()),
            _ => Err(NoEndpoint::Stopped(resource.to_owned())),
        }
    }

    /// Whether a plugin has a resource, or had it a short while ago.
    pub(super) fn knows(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// The plugin of a resource, whether or not it is gone.
    pub(super) fn last_endpoint(&self, resource: &str) -> Option<&Endpoint> {
        self.resources.get(resource)?.endpoint.as_ref()
    }

    /// Whether a resource is a plugin's, now or before.
    pub(super) fn is_plugins(&self, resource: &str) -> bool {
        self.healthy.contains_key(resource) || self.allocated.has(resource)
    }

    /// The healthy devices of a resource; none if no plugin ever had it.
    pub(super) fn healthy(&self, resource: &str) -> Option<&BTreeSet<String>> {
        self.healthy.get(resource)
    }

    /// A device as its plugin told of it.
    pub(super) fn device(&self, resource: &str, id: &str) -> Option<&pb::Device> {
        self.all.get(resource)?.get(id)
    }

    /// Takes devices as if a plugin had told of them.
    #[cfg(test)]
    pub(super) fn have(&mut self, resource: &str, devices: BTreeMap<String, pb::Device>) {
        self.healthy.insert(resource.to_owned(), devices.keys().cloned().collect());
        self.all.insert(resource.to_owned(), devices);
    }

    /// The devices of a resource as their plugin told of them.
    pub(super) fn devices(&self, resource: &str) -> Option<&BTreeMap<String, pb::Device>> {
        self.all.get(resource)
    }

    /// Whether a device is healthy, as far as is known; one that no plugin tells of is, as with upstream.
    pub(super) fn is_healthy(&self, resource: &str, id: &str) -> bool {
        self.device(resource, id).is_none_or(|d| d.health == HEALTHY)
    }

    /// The healthy devices of all resources.
    pub(super) fn allocatable(&self) -> impl Iterator<Item = (&str, Vec<&pb::Device>)> {
        self.healthy.iter().map(|(resource, ids)| {
            let all = ids.iter().filter_map(|id| self.device(resource, id)).collect();
            (resource.as_str(), all)
        })
    }

    /// The resources that the Node tells of. Those whose plugins are gone for too long are forgotten; answers whether
    /// there were any.
    pub(super) fn offer(&mut self, now: Instant) -> (Offer, bool) {
        let gone = |r: &Resource| r.stopped.is_some_and(|at| now.duration_since(at) > GRACE);
        let over: Vec<String> =
            self.resources.iter().filter(|(_, r)| gone(r)).map(|(name, _)| name.clone()).collect();
        for name in &over {
            self.resources.remove(name);
            self.healthy.remove(name);
            self.unhealthy.remove(name);
            self.all.remove(name);
            if self.removed.len() < MOST_RESOURCES {
                self.removed.insert(name.clone());
            }
        }
        let count =
            |sets: &BTreeMap<String, BTreeSet<String>>, name: &str| sets.get(name).map_or(0, BTreeSet::len);
        // One that has not told of any devices yet is not told of.
        let told = self.healthy.keys();
        let offer = Offer {
            capacity: told
                .clone()
                .map(|name| (name.clone(), count(&self.healthy, name) + count(&self.unhealthy, name)))
                .collect(),
            allocatable: told.map(|name| (name.clone(), count(&self.healthy, name))).collect(),
            removed: self.removed.clone(),
        };
        (offer, !over.is_empty())
    }
}

/// A resource whose plugin cannot be called; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoEndpoint {
    /// There is none.
    #[error("unknown Device Plugin {0}")]
    Unknown(String),
    /// It is gone.
    #[error("endpoint {0} has been stopped")]
    Stopped(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(ToString::to_string).collect()
    }

    fn devices(all: &[(&str, bool)]) -> Vec<pb::Device> {
        let one = |(id, healthy): &(&str, bool)| pb::Device {
            id: (*id).to_owned(),
            health: if *healthy { HEALTHY } else { "Unhealthy" }.to_owned(),
            topology: None,
        };
        all.iter().map(one).collect()
    }

    /// Resources with the number of all and of healthy devices.
    fn offered(state: &mut State, now: Instant) -> Vec<(String, usize, usize)> {
        let offer = state.offer(now).0;
        offer.capacity.iter().map(|(name, all)| (name.clone(), *all, offer.allocatable[name])).collect()
    }

    /// Upstream's `TestUpdateCapacityAllocatable`, and more.
    #[tokio::test(start_paused = true)]
    async fn what_a_node_offers() {
        let now = Instant::now();
        let mut state = State::default();
        state.connected("r", Endpoint::unused(1)).unwrap();
        assert!(offered(&mut state, now).is_empty(), "it has told of nothing yet");
        assert_eq!(state.told("r", 1, devices(&[("a", true), ("b", true), ("c", false)])), Some(ids(&[])));
        assert_eq!(offered(&mut state, now), [("r".to_owned(), 3, 2)]);
        assert_eq!(state.told("r", 1, devices(&[("a", true), ("b", true), ("c", false)])), None, "the same");
        // The last word about a device counts.
        assert!(state.told("r", 1, devices(&[("a", true), ("a", false)])).is_some());
        assert_eq!(offered(&mut state, now), [("r".to_owned(), 1, 0)]);
        state.told("r", 1, devices(&[("a", true), ("b", true)]));
        state.connected("s", Endpoint::unused(2)).unwrap();
        state.told("s", 2, Vec::new());
        assert_eq!(offered(&mut state, now), [("r".to_owned(), 2, 2), ("s".to_owned(), 0, 0)]);

        // A plugin that is gone: its devices are there for a while, but none is to be had.
        assert!(state.disconnected("r", 1, now));
        assert!(!state.disconnected("r", 1, now) && !state.disconnected("x", 1, now));
        assert_eq!(offered(&mut state, now + GRACE), [("r".to_owned(), 2, 0), ("s".to_owned(), 0, 0)]);
        assert_eq!(state.told("r", 1, devices(&[("a", true)])), None, "a late word");
        assert_eq!(state.endpoint("r").unwrap_err().to_string(), "endpoint r has been stopped");
        let later = now + GRACE + Duration::from_secs(1);
        let (offer, changed) = state.offer(later);
        assert!(changed && offer.removed == ids(&["r"]) && !offer.capacity.contains_key("r"));
        assert_eq!(state.offer(later).0.removed, ids(&["r"]), "until it is there again");
        assert_eq!(state.endpoint("r").unwrap_err().to_string(), "unknown Device Plugin r");
        state.connected("r", Endpoint::unused(3)).unwrap();
        assert!(state.offer(later).0.removed.is_empty());

        // One that takes another's place: the other's end and its words are nothing any more.
        state.told("r", 3, devices(&[("a", true)]));
        state.connected("r", Endpoint::unused(4)).unwrap();
        assert!(!state.disconnected("r", 3, later));
        assert_eq!(state.told("r", 3, devices(&[("b", true)])), None);
        assert_eq!(offered(&mut state, later), [("r".to_owned(), 1, 1), ("s".to_owned(), 0, 0)]);

        for n in 0..MOST_RESOURCES {
            let _ = state.connected(&format!("x{n}"), Endpoint::unused(9));
        }
        assert!(state.connected("y", Endpoint::unused(9)).is_err());
        assert_eq!(state.resources.len(), MOST_RESOURCES);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_process_begins_without_devices() {
        let now = Instant::now();
        let mut state = State::default();
        state.connected("r", Endpoint::unused(1)).unwrap();
        state.told("r", 1, devices(&[("a", true), ("b", false)]));
        let given = super::super::allocated::Allocation {
            devices: [(-1, ids(&["a"]))].into(),
            answer: Some(pb::ContainerAllocateResponse::default()),
        };
        state.allocated.insert("u", "c", "r", given);
        assert_eq!(state.told("r", 1, devices(&[("a", false), ("b", true)])), Some(ids(&["u"])));
        assert!(
            !state.is_healthy("r", "a") && state.is_healthy("r", "b") && state.is_healthy("r", "unknown")
        );
        assert_eq!(state.told("r", 1, devices(&[("a", false), ("b", false)])), Some(ids(&[])));
        let mut next = State::new(state.data(), now);
        assert_eq!(next.allocated, state.allocated);
        assert_eq!(offered(&mut next, now), [("r".to_owned(), 0, 0)]);
        assert!(next.is_plugins("r") && !next.is_plugins("s"));
        assert_eq!(next.endpoint("r").unwrap_err().to_string(), "endpoint r has been stopped");
        assert!(next.offer(now + GRACE + Duration::from_secs(1)).1);
        assert!(next.is_plugins("r") && !next.knows("r"), "a container still has one");
        assert_eq!(next.data().registered_devices, Some(BTreeMap::new()));
    }
}
