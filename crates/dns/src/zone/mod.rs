//! The cluster's zone: the records of Kubernetes' DNS specification 1.1, made from objects when they are asked for.

mod authority;
mod config;
mod find;
mod index;
mod records;
mod reverse;
pub mod views;

use jiff::Timestamp;
use parking_lot::RwLock;

/// The forms in which changes of objects come.
pub use client::{Cached, Change};
pub use config::{PodMode, ZoneConfig};
pub use index::Event;

use crate::name::{Name, QName};
use crate::packet::{ASKED, Owner, Rcode, Section, Writer, kind};
use find::Found;
use index::Index;
use records::Records;

/// The most CNAMEs that are followed within the zone; CoreDNS'.
const MAX_CHAIN: usize = 10;

/// The way that a question went.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is not of this zone; nothing was written.
    Outside,
    /// It was answered.
    Answered(Rcode),
    /// A CNAME was written, which leads out of the zone: the answer lacks the rest.
    Elsewhere(Name),
    /// It is of this zone, but not answered, since the zone is not whole yet.
    Unknown,
}

/// The zone. Readers share a lock that a change holds for one object.
#[derive(Debug)]
pub struct Zone {
    config: ZoneConfig,
    domain_labels: usize,
    index: RwLock<Index>,
    /// Whether it has seen a whole state.
    synced: std::sync::atomic::AtomicBool,
}

impl Zone {
    /// An empty zone, which knows that it is not whole.
    pub fn new(config: ZoneConfig) -> Self {
        let domain_labels = config.domain.labels();
        Self { config, domain_labels, index: RwLock::default(), synced: false.into() }
    }

    /// Takes over a change that was seen at a time.
    pub fn apply(&self, event: &Event, at: Timestamp) {
        let mut index = self.index.write();
        index.apply(event);
        index.serial = at.as_second() as u32;
    }

    /// Says that the zone is whole: a name that it does not have does not exist.
    pub fn set_synced(&self) {
        self.synced.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Whether the zone is whole.
    pub fn is_synced(&self) -> bool {
        self.synced.load(std::sync::atomic::Ordering::Acquire)
    }

    /// The cluster's domain.
    pub fn domain(&self) -> &Name {
        &self.config.domain
    }

    /// How many Services it has.
    pub fn services(&self) -> usize {
        self.index.read().services()
    }

    /// Whether a Service is headless; `None` if it is not known.
    pub fn is_headless(&self, name: &str, namespace: &str) -> Option<bool> {
        let index = self.index.read();
        let mut labels = Vec::new();
        crate::name::push_label(&mut labels, name.as_bytes())?;
        crate::name::push_label(&mut labels, namespace.as_bytes())?;
        let service = index.entry(&labels)?.service.as_ref()?;
        Some(service.reach == views::Reach::Headless)
    }

    /// Answers a question if it is of this zone.
    pub fn answer(&self, writer: &mut Writer<'_>) -> Lookup {
        let query = writer.query();
        let index = self.index.read();
        if let Some(before) = query.name.below(self.config.domain.wire(), self.domain_labels) {
            return self.answer_forward(&index, before, writer);
        }
        self.answer_reverse(&index, writer)
    }

    /// Answers a question below the cluster's domain, and follows CNAMEs as far as they stay there.
    fn answer_forward(&self, index: &Index, before: usize, writer: &mut Writer<'_>) -> Lookup {
        let query = writer.query();
        // Records that the answer owns lie at the question's name, or at a CNAME's target.
        let zone_at = crate::packet::HEADER + query.name.start(before);
        let (mut owner, mut target, mut below) = (ASKED, None::<QName>, before);
        let mut seen: Vec<&Name> = Vec::new();
        loop {
            let name = target.as_ref().unwrap_or(&query.name);
            let found = index.find(name, below, self.config.pods);
            let Found::External(next) = found else {
                let mut records =
                    Records { config: &self.config, index, writer, owner, name, below, zone_at };
                let missing = matches!(found, Found::Missing);
                if missing && !self.is_synced() {
                    return Lookup::Unknown;
                }
                let any = records.write(found, query.kind);
                let cname = !seen.is_empty();
                let cut = cname && writer.is_full();
                if !any && !cut {
                    authority::start(&self.config, index.serial, writer, (zone_at, Section::Authority));
                }
                return Lookup::Answered(if missing { Rcode::NxDomain } else { Rcode::NoError });
            };
            let at = writer.record(Section::Answer, owner, kind::CNAME, self.config.ttl, |data| {
                data.extend(next.wire());
            });
            let (Some(at), true) = (at, query.kind != kind::CNAME) else {
                return Lookup::Answered(Rcode::NoError);
            };
            let follow = QName::from(next);
            let Some(inside) = follow.below(self.config.domain.wire(), self.domain_labels) else {
                return Lookup::Elsewhere(next.clone());
            };
            if seen.len() >= MAX_CHAIN || seen.contains(&next) {
                return Lookup::Answered(Rcode::ServFail);
            }
            seen.push(next);
            (owner, target, below) = (Owner::At(at), Some(follow), inside);
        }
    }
}
