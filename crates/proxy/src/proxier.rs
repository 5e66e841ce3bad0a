//! The table that follows from Services.

use std::collections::BTreeMap;

use client::Key;
use netlink::Error;
use netlink::conntrack::Connections;
use netlink::nft::{self, Filter, Table};

use crate::conntrack::{Routes, is_stale};
use crate::contents::{Changes, Contents, Owned};
use crate::known::{Event, Known, Place};
use crate::plan::{Route, plan};
use crate::settings::Settings;

/// The part of the table that a Service has.
#[derive(Debug, Default)]
struct Made {
    owned: Owned,
    routes: Vec<Route>,
}

/// Services of a node and their table.
#[derive(Debug)]
pub struct Proxier {
    table: Table,
    settings: Settings,
    known: Known<Made>,
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
            known: Known::new(place),
            contents: Contents::default(),
            routes_changed: false,
        }
    }

    /// Takes a change. It works at the next [`Self::sync`].
    pub fn apply(&mut self, event: Event) {
        self.known.apply(event);
    }

    /// Changes the settings or the node's zone.
    pub fn set(&mut self, settings: Settings, place: Place) {
        self.known.set_place(place);
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
        self.known.plan(|service, made| {
            let (mut part, counts) = plan(service);
            let routes = std::mem::take(&mut part.routes);
            if made.routes != routes {
                made.routes = routes;
                self.routes_changed = true;
            }
            self.contents.replace(service.key, &mut made.owned, part);
            counts
        });
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
        self.known.is_pending()
    }

    /// The number of elements in the table's sets and maps.
    pub fn elements(&self) -> usize {
        self.contents.len()
    }

    /// The health-check ports of Services, with the number of endpoints on this node that take new
    /// connections.
    pub fn health_ports(&self) -> BTreeMap<Key, (u16, usize)> {
        self.known.health_ports()
    }

    /// How many ports that are to lead to endpoints of this node alone have none: by the internal and the external
    /// policy.
    pub fn without_local(&self) -> [usize; 2] {
        self.known.without_local()
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
        let routes = self.known.made().flat_map(|made| &made.routes);
        // Without endpoints a Service keeps its connections, as upstream's does.
        let used = routes.filter(|route| !route.serving.is_empty());
        let routes: Routes = used.map(|r| ((r.to.address, r.to.port), r.serving.clone())).collect();
        let count = connections.delete_all(|flow| is_stale(flow, &routes))?;
        self.routes_changed = false;
        Ok(Some(count))
    }
}
