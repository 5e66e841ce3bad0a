//! The proxy of a node: what is known of Services, and the table that follows from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use client::Key;
use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use netlink::Error;
use netlink::conntrack::Connections;
use netlink::nft::{self, Filter, Table};
use objects::backends::{Family, Viewpoint, by_port};

use crate::conntrack::{Routes, is_stale};
use crate::contents::{Changes, Contents, Owned};
use crate::plan::{Route, plan};
use crate::service::{HEADLESS, OTHER_PROXY, Served, key_of, read};
use crate::settings::Settings;

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

#[derive(Debug, Default)]
struct Entry {
    served: Served,
    slices: BTreeMap<Text, Arc<EndpointSlice>>,
    owned: Owned,
    routes: Vec<Route>,
    local: usize,
    without_local: [usize; 2],
}

/// Services of a node and their table.
#[derive(Debug)]
pub struct Proxier {
    table: Table,
    settings: Settings,
    place: Place,
    entries: BTreeMap<Arc<Key>, Entry>,
    /// The Service of each slice.
    slices: HashMap<Key, Arc<Key>>,
    /// The Services whose parts are to be planned anew.
    changed: BTreeSet<Arc<Key>>,
    contents: Contents,
    /// Whether connections without an end may lead to endpoints that are gone.
    routes_changed: bool,
}

impl Proxier {
    /// A proxy without Services. `table` names the table, of the family `inet`, that is the proxy's alone.
    pub fn new(table: &str, settings: Settings, place: Place) -> Self {
        Self {
            table: Table { family: nft::Family::Inet, name: table.to_owned() },
            settings,
            place,
            entries: BTreeMap::new(),
            slices: HashMap::new(),
            changed: BTreeSet::new(),
            contents: Contents::default(),
            routes_changed: false,
        }
    }

    /// Takes a change. It works at the next [`Self::sync`].
    pub fn apply(&mut self, event: Event) {
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

    /// Changes the settings or the node's zone.
    pub fn set(&mut self, settings: Settings, place: Place) {
        if self.place != place {
            self.changed.extend(self.entries.keys().cloned());
            self.place = place;
        }
        if self.settings != settings {
            self.settings = settings;
            self.contents.rules_changed();
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Plans what changed anew. Pure; [`Self::sync`] calls it.
    pub fn plan(&mut self) {
        let from = Viewpoint { node: &self.place.node, zone: &self.place.zone };
        for key in std::mem::take(&mut self.changed) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let wanted = |family| {
                !entry.served.ports.is_empty() && entry.served.ports.iter().any(|p| p.family == family)
            };
            let of = |family| {
                if wanted(family) {
                    by_port(entry.slices.values().map(|s| &**s), family)
                } else {
                    BTreeMap::new()
                }
            };
            let backends = [of(Family::V4), of(Family::V6)];
            let find = |family, name: &_| {
                let all = &backends[usize::from(family == Family::V6)];
                all.get(name).map(Vec::as_slice).unwrap_or_default()
            };
            let mut part = plan(&key, &entry.served, find, from);
            entry.local = part.local;
            entry.without_local = part.without_local;
            let routes = std::mem::take(&mut part.routes);
            if entry.routes != routes {
                entry.routes = routes;
                self.routes_changed = true;
            }
            self.contents.replace(&key, &mut entry.owned, part);
            if entry.served.ports.is_empty() && entry.slices.is_empty() {
                self.entries.remove(&key);
            }
        }
    }

    /// Makes the kernel's table what Services ask for; writes the difference alone.
    ///
    /// # Errors
    /// If the kernel refuses. The next call reads the table first.
    pub fn sync(&mut self, filter: &mut Filter) -> Result<Changes, Error> {
        self.plan();
        self.contents.commit(filter, &self.table, &self.settings)
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

    /// Removes the table; none is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(filter: &mut Filter, table: &str) -> Result<(), Error> {
        let table = Table { family: nft::Family::Inet, name: table.to_owned() };
        if filter.tables(table.family)?.contains(&table.name) {
            let mut batch = nft::Batch::new(&table);
            batch.delete_table();
            filter.commit(batch)?;
        }
        Ok(())
    }

    /// Whether changes wait for [`Self::sync`].
    pub fn is_pending(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The number of elements in the table's sets and maps.
    pub fn elements(&self) -> usize {
        self.contents.len()
    }

    /// The health-check ports of Services, with the number of their endpoints on this node.
    pub fn health_ports(&self) -> BTreeMap<Key, (u16, usize)> {
        let all = self.entries.iter();
        all.filter_map(|(key, e)| Some((Key::clone(key), (e.served.health_port?, e.local)))).collect()
    }

    /// How many ports that are to lead to endpoints of this node alone have none: by the internal and the external
    /// policy.
    pub fn without_local(&self) -> [usize; 2] {
        self.entries
            .values()
            .fold([0, 0], |sum, e| [sum[0] + e.without_local[0], sum[1] + e.without_local[1]])
    }

    /// Forgets UDP connections to endpoints that are gone, and to Services that had none before, if there may be any
    /// since the last call; tells how many they were. `None` if there was nothing to look for. It is for after a
    /// commit: packets of a forgotten connection find the rules of that moment.
    ///
    /// # Errors
    /// If the kernel refuses. The next call tries again.
    pub fn forget_stale(&mut self, connections: &mut Connections) -> Result<Option<usize>, Error> {
        if !self.routes_changed {
            return Ok(None);
        }
        let routes = self.entries.values().flat_map(|e| &e.routes);
        // Without endpoints a Service keeps its connections, as upstream's does.
        let used = routes.filter(|route| !route.serving.is_empty());
        let routes: Routes = used.map(|r| ((r.to.address, r.to.port), r.serving.clone())).collect();
        let count = connections.delete_all(|flow| is_stale(flow, &routes))?;
        self.routes_changed = false;
        Ok(Some(count))
    }
}
