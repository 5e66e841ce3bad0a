//! The holder of an address: the rule by which two nodes never answer for one.
//!
//! A node has a *session* while its Lease names it: a word that is never used twice. An address' record names the
//! session that holds it. A node answers for an address only while its session is the one recorded, and only until a
//! time after the sending of its last renewal that is shorter than the time for which others wait: [`Timing::safe`],
//! [`Timing::lease`]. Another node ends a session only by a write that compares: the Lease must still be the very one
//! that it has seen unchanged for `lease` by its own clock. Then the session cannot be renewed, and whoever had it has
//! stopped by its own clock; only then may the records of the session be taken, again by a write that compares. So no
//! clock is compared with another one; clocks may only differ in speed by less than `lease` to `safe`.
//!
//! A session is known to be over only by a Lease that names another one, or none, and is newer than the record: what a
//! watch shows late or in another order never takes an address from a node that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use objects::Cidr;

#[cfg(test)]
mod tests;

/// A time by a node's own clock, since any moment.
pub type Time = Duration;

/// The times of the rule.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long others see a Lease unchanged before they end its session.
    pub lease: Duration,
    /// How long after the sending of a renewal a node answers; shorter than `lease`.
    pub safe: Duration,
    /// The time between renewals.
    pub renew: Duration,
    /// The age of a session before it takes addresses, so that those who come at the same time share them.
    pub settle: Duration,
    /// The time after which something that failed is tried again.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(2),
            safe: Duration::from_millis(1500),
            renew: Duration::from_millis(500),
            settle: Duration::from_secs(1),
            retry: Duration::from_millis(200),
        }
    }
}

/// The name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// That of a node.
    Node(String),
    /// The record of an address.
    Address(IpAddr),
}

/// The content of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its resourceVersion.
    pub version: u64,
    /// The session, `NODE_WORD`; empty for none.
    pub holder: String,
    /// The networks of the node's links.
    pub networks: Vec<Cidr>,
}

/// Something to be done at the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Writes a Lease if it has this version, or makes it if there is none.
    Write {
        /// Which one.
        name: Name,
        /// The version that it must have; `None` if it must not be there.
        version: Option<u64>,
        /// The new holder.
        holder: String,
        /// The new networks.
        networks: Vec<Cidr>,
    },
    /// Deletes a Lease if it has this version.
    Delete {
        /// Which one.
        name: Name,
        /// The version that it must have.
        version: u64,
    },
    /// Reads a node's Lease as it is.
    Look {
        /// The node.
        node: String,
    },
}

impl Action {
    /// The Lease that it is about.
    pub fn name(&self) -> Name {
        match self {
            Self::Write { name, .. } | Self::Delete { name, .. } => name.clone(),
            Self::Look { node } => Name::Node(node.clone()),
        }
    }
}

/// The end of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was written, and has this version.
    Written(u64),
    /// It was deleted, or is not there.
    Gone,
    /// It has another version.
    Conflict,
    /// It was read.
    Looked(Option<Entry>),
    /// Nobody knows.
    Unknown,
}

/// An address that is to be announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The nodes that may, by the Services and by the nodes' state.
    pub nodes: BTreeSet<String>,
}

/// A node's Lease as it was seen.
#[derive(Debug, Clone)]
struct Seen {
    entry: Option<Entry>,
    /// Since when it looks so.
    since: Time,
}

/// The session of this node.
#[derive(Debug, Clone)]
struct Session {
    id: String,
    version: u64,
    began: Time,
    /// When it stops to answer.
    until: Time,
    renew_at: Time,
    /// Whether its Lease must be read before it is renewed.
    unsure: bool,
}

/// One node's view and decisions.
#[derive(Debug)]
pub struct Holding {
    node: String,
    timing: Timing,
    networks: Vec<Cidr>,
    wanted: BTreeMap<IpAddr, Wanted>,
    nodes: BTreeMap<String, Seen>,
    records: BTreeMap<IpAddr, Entry>,
    own: Option<Session>,
    /// The actions under way, one a Lease, with the time of their beginning.
    under_way: BTreeMap<Name, Time>,
    /// When a Lease may be written again after a failure.
    not_before: BTreeMap<Name, Time>,
    /// The versions of records at which this node gave the address back.
    given: BTreeMap<IpAddr, u64>,
}

/// The node of a session.
fn node_of(session: &str) -> &str {
    session.split('_').next().unwrap_or_default()
}

/// Whether an address is in one of the networks.
fn is_in(address: IpAddr, networks: &[Cidr]) -> bool {
    networks.iter().any(|network| network.contains(Cidr::from(address)))
}

/// The weight of a node for an address: the greatest one is chosen, and when a node goes only its addresses move.
fn weight(node: &str, address: IpAddr) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in node.bytes().chain([0]).chain(address.to_string().bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // Addresses that differ in their last byte alone must not prefer the same node.
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

impl Holding {
    /// The view of a node that has seen nothing yet.
    pub fn new(node: &str, timing: Timing) -> Self {
        Self {
            node: node.to_owned(),
            timing,
            networks: Vec::new(),
            wanted: BTreeMap::new(),
            nodes: BTreeMap::new(),
            records: BTreeMap::new(),
            own: None,
            under_way: BTreeMap::new(),
            not_before: BTreeMap::new(),
            given: BTreeMap::new(),
        }
    }

    /// Takes the networks of this node's links.
    pub fn set_networks(&mut self, networks: Vec<Cidr>) {
        self.networks = networks;
    }

    /// Takes the addresses that are to be announced.
    pub fn set_wanted(&mut self, wanted: BTreeMap<IpAddr, Wanted>) {
        self.wanted = wanted;
    }

    /// Takes a Lease as the watch shows it; `None` for one that went.
    pub fn observe(&mut self, name: &Name, entry: Option<Entry>, now: Time) {
        match name {
            Name::Node(node) => self.observe_node(node, entry, now),
            Name::Address(address) => self.observe_record(*address, entry),
        }
    }

    fn observe_node(&mut self, node: &str, entry: Option<Entry>, now: Time) {
        let known = self.nodes.get(node).and_then(|seen| seen.entry.as_ref());
        let news = match (&entry, known) {
            (Some(new), Some(old)) => new.version > old.version,
            (new, old) => new.is_some() != old.is_some(),
        };
        if !news {
            return;
        }
        if node == self.node && self.own.as_ref().is_some_and(|own| is_lost(own, entry.as_ref())) {
            self.own = None;
        }
        self.nodes.insert(node.to_owned(), Seen { entry, since: now });
    }

    fn observe_record(&mut self, address: IpAddr, entry: Option<Entry>) {
        match entry {
            None => drop(self.records.remove(&address)),
            Some(new) if self.records.get(&address).is_none_or(|old| new.version > old.version) => {
                self.records.insert(address, new);
            }
            Some(_) => {}
        }
    }

    /// The addresses for which this node answers now, and until when.
    pub fn answers(&self, now: Time) -> Option<(BTreeSet<IpAddr>, Time)> {
        let own = self.own.as_ref().filter(|own| now < own.until)?;
        let mine = |address: &IpAddr, record: &Entry| {
            record.holder == own.id && self.given.get(address).is_none_or(|at| record.version > *at)
        };
        let all = self.records.iter().filter(|(address, record)| mine(address, record));
        Some((all.map(|(address, _)| *address).collect(), own.until))
    }

    /// Decides what to do now; `word` makes words that are never used twice.
    pub fn decide(&mut self, now: Time, word: &mut dyn FnMut() -> String) -> Vec<Action> {
        self.not_before.retain(|_, time| *time > now);
        let mut actions = Vec::new();
        self.decide_own(now, word, &mut actions);
        let Some(own) = self.own.clone().filter(|own| now < own.until) else {
            return self.begin(actions, now);
        };
        let addresses: BTreeSet<IpAddr> = self.wanted.keys().chain(self.records.keys()).copied().collect();
        for address in addresses {
            actions.extend(self.decide_address(address, &own, now));
        }
        self.given.retain(|address, _| self.records.contains_key(address));
        self.begin(actions, now)
    }

    /// Keeps the actions whose Lease is free, and notes that they are under way.
    fn begin(&mut self, actions: Vec<Action>, now: Time) -> Vec<Action> {
        let mut begun = Vec::new();
        for action in actions {
            let name = action.name();
            if !self.under_way.contains_key(&name) && !self.not_before.contains_key(&name) {
                self.under_way.insert(name, now);
                begun.push(action);
            }
        }
        begun
    }

    /// Whether this node may hold one of the addresses.
    fn may_hold(&self) -> bool {
        self.wanted.iter().any(|(address, w)| w.nodes.contains(&self.node) && is_in(*address, &self.networks))
    }

    /// Gets, renews or gives up this node's session.
    fn decide_own(&mut self, now: Time, word: &mut dyn FnMut() -> String, actions: &mut Vec<Action>) {
        let name = Name::Node(self.node.clone());
        if self.under_way.contains_key(&name) || self.not_before.contains_key(&name) {
            return;
        }
        let may_hold = self.may_hold();
        let networks = self.networks.clone();
        let Some(own) = &mut self.own else {
            if !may_hold {
                return;
            }
            let seen = self.nodes.get(&self.node);
            let entry = seen.and_then(|seen| seen.entry.as_ref());
            match entry {
                Some(other) if !other.holder.is_empty() => {
                    // An earlier start of this node, which may still run.
                    if seen.is_some_and(|seen| now >= seen.since + self.timing.lease) {
                        let version = Some(other.version);
                        actions.push(Action::Write {
                            name,
                            version,
                            holder: String::new(),
                            networks: Vec::new(),
                        });
                    }
                }
                entry => {
                    let holder = format!("{}_{}", self.node, word());
                    actions.push(Action::Write { name, version: entry.map(|e| e.version), holder, networks });
                }
            }
            return;
        };
        if own.unsure {
            actions.push(Action::Look { node: self.node.clone() });
            return;
        }
        if !may_hold && !self.records.values().any(|record| record.holder == own.id) {
            let version = Some(own.version);
            self.own = None;
            actions.push(Action::Write { name, version, holder: String::new(), networks: Vec::new() });
        } else if now >= own.renew_at {
            own.renew_at = now + self.timing.renew;
            let (version, holder) = (Some(own.version), own.id.clone());
            actions.push(Action::Write { name, version, holder, networks });
        }
    }

    /// The state of the session that a record of this version names.
    fn state_of(&mut self, session: &str, recorded: u64, now: Time) -> State {
        if session.is_empty() {
            return State::Over;
        }
        let lease = self.timing.lease;
        let seen = self.nodes.entry(node_of(session).to_owned()).or_insert(Seen { entry: None, since: now });
        let is_over = |entry: &Entry| entry.holder != session && entry.version > recorded;
        if seen.entry.as_ref().is_some_and(is_over) {
            State::Over
        } else if now >= seen.since + lease {
            State::Silent(seen.entry.as_ref().map(|entry| entry.version))
        } else {
            State::Lives
        }
    }

    /// The node that should hold an address, of those whose sessions live, without one of them.
    fn chosen(&self, address: IpAddr, without: &str, now: Time) -> Option<String> {
        let wanted = self.wanted.get(&address);
        let lives = |node: &str, seen: &Seen| {
            let entry = seen.entry.as_ref().filter(|entry| !entry.holder.is_empty())?;
            let lives = node == self.node || now < seen.since + self.timing.lease;
            (lives && is_in(address, &entry.networks)).then_some(())
        };
        let may = |node: &str| wanted.is_none_or(|wanted| wanted.nodes.contains(node));
        let all = self.nodes.iter().filter(|(node, seen)| *node != without && lives(node, seen).is_some());
        let all = all.map(|(node, _)| node).filter(|node| may(node));
        all.max_by_key(|node| (weight(node, address), (*node).clone())).cloned()
    }

    fn decide_address(&mut self, address: IpAddr, own: &Session, now: Time) -> Option<Action> {
        let name = Name::Address(address);
        let record = self.records.get(&address).cloned();
        let version = record.as_ref().map(|record| record.version);
        let session = record.map(|record| record.holder).unwrap_or_default();
        let wanted = self.wanted.get(&address);
        if session == own.id {
            let stays =
                wanted.is_some_and(|w| w.nodes.contains(&self.node)) && is_in(address, &self.networks);
            let version = version?;
            if stays {
                // Given back without success meanwhile: a new version of the record says that it is held again.
                let is_given = self.given.get(&address).is_some_and(|at| version <= *at);
                let (version, holder) = (Some(version), own.id.clone());
                return is_given.then(|| Action::Write { name, version, holder, networks: Vec::new() });
            }
            let is_wanted = wanted.is_some();
            // It answers no more from here on, whatever becomes of the write.
            self.given.insert(address, version);
            return Some(if is_wanted {
                let version = Some(version);
                Action::Write { name, version, holder: String::new(), networks: Vec::new() }
            } else {
                Action::Delete { name, version }
            });
        }
        let is_wanted = wanted.is_some();
        match self.state_of(&session, version.unwrap_or(0), now) {
            State::Lives => None,
            State::Silent(silent) => {
                let node = node_of(&session).to_owned();
                let mine = self.chosen(address, &node, now).as_deref() == Some(&self.node);
                let (holder, networks) = (String::new(), Vec::new());
                mine.then_some(Action::Write { name: Name::Node(node), version: silent, holder, networks })
            }
            State::Over => {
                let last = node_of(&session);
                let others = self.chosen(address, last, now);
                let back = self.is_candidate(last, address, now);
                let chosen = if back { Some(last.to_owned()) } else { others };
                if chosen.as_deref() != Some(&self.node) || now < own.began + self.timing.settle {
                    return None;
                }
                match (is_wanted, version) {
                    (true, version) => {
                        Some(Action::Write { name, version, holder: own.id.clone(), networks: Vec::new() })
                    }
                    (false, Some(version)) => Some(Action::Delete { name, version }),
                    (false, None) => None,
                }
            }
        }
    }

    /// Whether a node lives and may hold an address.
    fn is_candidate(&self, node: &str, address: IpAddr, now: Time) -> bool {
        let Some(seen) = self.nodes.get(node) else { return false };
        let Some(entry) = seen.entry.as_ref().filter(|entry| !entry.holder.is_empty()) else { return false };
        let lives = node == self.node || now < seen.since + self.timing.lease;
        let may = self.wanted.get(&address).is_none_or(|wanted| wanted.nodes.contains(node));
        lives && may && is_in(address, &entry.networks)
    }

    /// Takes the end of an action.
    pub fn done(&mut self, action: Action, outcome: &Outcome, now: Time) {
        let name = action.name();
        let sent = self.under_way.remove(&name).unwrap_or(now);
        if matches!(outcome, Outcome::Conflict | Outcome::Unknown) {
            self.not_before.insert(name.clone(), now + self.timing.retry);
        }
        match (action, outcome) {
            (Action::Write { name, version, holder, networks }, Outcome::Written(new)) => {
                let entry = Entry { version: *new, holder, networks };
                match name {
                    Name::Node(node) if node == self.node => self.written(version, entry, sent, now),
                    name => self.observe(&name, Some(entry), now),
                }
            }
            (Action::Look { node }, Outcome::Looked(entry)) => {
                if let Some(own) = &mut self.own {
                    own.unsure = false;
                    match entry {
                        Some(entry) if entry.holder == own.id => {
                            own.version = entry.version;
                            own.renew_at = now;
                        }
                        _ => self.own = None,
                    }
                }
                self.observe_node(&node, entry.clone(), now);
            }
            (Action::Write { name: Name::Node(node), .. }, _) if node == self.node => {
                if let Some(own) = &mut self.own {
                    own.unsure = true;
                    self.not_before.remove(&Name::Node(node));
                } else if *outcome == Outcome::Gone {
                    self.observe_node(&node, None, now);
                }
            }
            (Action::Write { name, .. } | Action::Delete { name, .. }, Outcome::Gone) => {
                self.observe(&name, None, now);
            }
            _ => {}
        }
    }

    /// Takes the success of a write of this node's own Lease.
    fn written(&mut self, before: Option<u64>, entry: Entry, sent: Time, now: Time) {
        let timing = self.timing;
        match &mut self.own {
            Some(own) if own.id == entry.holder && Some(own.version) == before => {
                own.version = entry.version;
                own.until = sent + timing.safe;
            }
            None if !entry.holder.is_empty() => {
                self.own = Some(Session {
                    id: entry.holder.clone(),
                    version: entry.version,
                    began: now,
                    until: sent + timing.safe,
                    renew_at: sent + timing.renew,
                    unsure: false,
                });
            }
            _ => {}
        }
        self.nodes.insert(self.node.clone(), Seen { entry: Some(entry), since: now });
    }

    /// When to decide again, if nothing happens before; `None` if nothing needs it.
    pub fn wake(&self, now: Time) -> Option<Time> {
        let own = self.own.as_ref();
        if own.is_none() && !self.may_hold() {
            return None;
        }
        let settled = own.map(|own| own.began + self.timing.settle);
        let renewal = own.map(|own| own.renew_at);
        let silent = self.nodes.values().map(|seen| seen.since + self.timing.lease);
        let failed = self.not_before.values().copied();
        silent.chain(failed).chain(settled).chain(renewal).filter(|time| *time > now).min()
    }

    /// The write that ends this node's session, after which it answers no more.
    pub fn leave(&mut self) -> Option<Action> {
        let own = self.own.take()?;
        let name = Name::Node(self.node.clone());
        let version = Some(own.version);
        Some(Action::Write { name, version, holder: String::new(), networks: Vec::new() })
    }
}

/// The state of a session, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may be renewed.
    Lives,
    /// Its Lease, of this version, was not renewed for the whole time; `None` if there is no Lease.
    Silent(Option<u64>),
    /// It ended, and never comes back.
    Over,
}

/// Whether the state of this node's Lease ends its session.
fn is_lost(own: &Session, entry: Option<&Entry>) -> bool {
    match entry {
        Some(entry) => entry.holder != own.id && entry.version > own.version,
        None => true,
    }
}
