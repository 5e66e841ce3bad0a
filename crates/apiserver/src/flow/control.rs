//! Flow control, as requests meet it: they are sorted in, get seats, and give them back.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use access::{Query, RequestInfo, UserInfo};
use api::{FeatureGates, Gate};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName};
use storage::ResourceId;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::bodies::{Bodies, Reader, Room, Share, USERS};
use super::counts::Kinds;
use super::in_flight::InFlight;
use super::levels::{Coming, Place, Refused};
use super::live::{Live, Schema};
use super::metrics::FlowMetrics;
use super::queues::Estimate;
use super::watchers::Watchers;
use super::width::{Facts, Stats};
use super::{dump, shuffle, width};
use crate::config::Limits;

/// The longest that a request waits for a seat; upstream's hard limit.
const LONGEST: Duration = Duration::from_mins(1);

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The caller of a request, as it was sorted in.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    pub(super) schema: Option<Arc<Schema>>,
    user: usize,
    /// Levels decide about its requests.
    told: bool,
}

impl Caller {
    /// A number that is most of the time the user's own.
    pub(crate) fn user(&self) -> usize {
        self.user
    }

    /// Tells the client how its request was sorted in.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        if let Some(schema) = self.schema.as_ref().filter(|_| self.told) {
            headers.insert(LEVEL_UID, schema.level_uid.clone());
            headers.insert(SCHEMA_UID, schema.uid.clone());
        }
    }
}

/// A seat for a request, from where it begins to be handled until it is answered; it is given back when this is dropped.
#[derive(Default)]
pub(crate) struct Seat {
    _at_level: Option<Place>,
    _in_flight: Option<OwnedSemaphorePermit>,
    _reads: Option<Reads>,
}

/// A request that counts as one that reads or writes.
struct Reads(Arc<Kinds>, bool);

impl Reads {
    fn new(kinds: &Arc<Kinds>, mutating: bool) -> Self {
        kinds.runs(mutating, true);
        Self(Arc::clone(kinds), mutating)
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.0.runs(self.1, false);
    }
}

/// There is no seat for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    /// After how many seconds it may come again.
    pub(crate) retry_after: u64,
}

/// The callers that wait for a seat in a server without priority and fairness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Nobody, as upstream.
    OnlyAtLevels,
    /// A caller in this process, whose number is bounded.
    Always,
}

/// A request, as far as its seat is concerned.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'r> {
    /// Its caller, as it was sorted in.
    pub(crate) caller: &'r Caller,
    /// Its user.
    pub(crate) user: &'r Arc<UserInfo>,
    /// Its target.
    pub(crate) info: &'r Arc<RequestInfo>,
    /// Query parameters.
    pub(crate) query: &'r Query,
    /// The resource that it is for, if its objects are stored here.
    pub(crate) stored: Option<ResourceId>,
    /// It is no GET or HEAD.
    pub(crate) mutating: bool,
    /// How long the client waits for the answer in all, if that is known.
    pub(crate) time: Option<Duration>,
}

/// The flow control of a server.
pub(crate) struct Flow {
    /// Levels decide (`--enable-priority-and-fairness`).
    fair: bool,
    pub(super) live: Arc<Live>,
    in_flight: InFlight,
    bodies: Bodies,
    hasher: RandomState,
    /// The watchers of all resources.
    pub(crate) watchers: Watchers,
    pub(super) kinds: Arc<Kinds>,
    pub(super) stats: ArcSwap<HashMap<ResourceId, Stats>>,
    by_size: bool,
    watch_lists: bool,
    /// How long a request without a deadline may take.
    request_timeout: Duration,
}

impl Flow {
    /// With the levels and schemas that every cluster begins with.
    pub(crate) fn new(limits: &Limits, gates: FeatureGates) -> Self {
        let start = Instant::now();
        let kinds = Arc::new(Kinds::new(start));
        let live =
            Live::new(limits.max_in_flight.saturating_add(limits.max_mutating_in_flight), start, &kinds);
        Self {
            fair: limits.priority_and_fairness,
            live: Arc::new(live),
            in_flight: InFlight::new(limits),
            bodies: Bodies::default(),
            hasher: RandomState::new(),
            watchers: Watchers::default(),
            kinds,
            stats: ArcSwap::default(),
            by_size: gates.enabled(Gate::SizeBasedListCostEstimate),
            watch_lists: gates.enabled(Gate::WatchList),
            request_timeout: limits.request_timeout,
        }
    }

    /// Sorts a request in.
    pub(crate) fn caller(&self, user: &UserInfo, info: &RequestInfo) -> Caller {
        let schema = self.live.find(user, info);
        Caller { schema, user: self.hasher.hash_one(&user.name) as usize % USERS, told: self.fair }
    }

    /// The work of a request of a caller, and the hash of its flow.
    fn measure(&self, schema: &Schema, asked: Asked<'_>) -> (Estimate, u64) {
        let stored = asked.stored.filter(|_| matches!(asked.info.verb, "list" | "watch"));
        let facts = Facts {
            stats: stored.and_then(|id| self.stats.load().get(&id).copied()),
            most: schema.level.widest(),
            by_size: self.by_size,
            watch_lists: self.watch_lists,
        };
        let told = || {
            let count = self.watchers.of_write(asked.info);
            schema.counts.watchers.observe(count as f64);
            count
        };
        let estimate = width::estimate(asked.info, asked.query, facts, told);
        let flow = schema.matcher.distinguisher.of(asked.user, asked.info);
        let hash = if schema.level.hashes() { shuffle::hash(&schema.name, flow) } else { 0 };
        (estimate, hash)
    }

    /// Refuses a request that would be refused if it were there already, before it is read.
    pub(crate) fn may_come(&self, asked: Asked<'_>) -> Result<(), TooMany> {
        let Some(schema) = &asked.caller.schema else { return Ok(()) };
        if !self.fair {
            let free = self.in_flight.is_free(asked.user, asked.mutating);
            return if free { Ok(()) } else { Err(TooMany { retry_after: 1 }) };
        }
        let (estimate, hash) = self.measure(schema, asked);
        let Some(reason) = schema.level.refusal(estimate, hash) else { return Ok(()) };
        schema.counts.refused(reason);
        Err(TooMany { retry_after: schema.level.dropped() })
    }

    /// A seat for a request, which may wait for it for a quarter of its time.
    pub(crate) async fn seat(&self, asked: Asked<'_>, patience: Patience) -> Result<Seat, TooMany> {
        let time = (asked.time.unwrap_or(self.request_timeout) / 4).min(LONGEST);
        let schema = asked.caller.schema.as_ref().filter(|_| self.fair);
        let Some(schema) = schema else { return self.in_flight_seat(asked, patience, time).await };
        let (estimate, hash) = self.measure(schema, asked);
        schema.counts.widths.observe(f64::from(estimate.most()));
        let coming = Coming {
            counts: Arc::clone(&schema.counts),
            distinguisher: schema.matcher.distinguisher,
            user: Arc::clone(asked.user),
            info: Arc::clone(asked.info),
            estimate,
            hash,
            mutating: asked.mutating,
        };
        let came = schema.level.now();
        let seat = schema.level.seat(coming, time).await;
        if !schema.exempt {
            let waited = Duration::from_nanos(schema.level.now().saturating_sub(came));
            // Upstream counts those that waited in vain among those that ran.
            schema.counts.waited(waited, !matches!(seat, Err(Refused::AtOnce(_))));
        }
        match seat {
            Ok(place) => Ok(Seat { _at_level: Some(place), ..Seat::default() }),
            Err(_) => Err(TooMany { retry_after: schema.level.dropped() }),
        }
    }

    async fn in_flight_seat(
        &self,
        asked: Asked<'_>,
        patience: Patience,
        time: Duration,
    ) -> Result<Seat, TooMany> {
        // Watches count nowhere.
        let held = if asked.info.verb == "watch" {
            Ok(None)
        } else if patience == Patience::Always {
            let waits = self.in_flight.wait(asked.user, asked.mutating);
            tokio::time::timeout(time, waits).await.unwrap_or(Err(()))
        } else {
            self.in_flight.take(asked.user, asked.mutating)
        };
        let held = held.map_err(|()| TooMany { retry_after: 1 })?;
        let reads = (asked.info.verb != "watch").then(|| Reads::new(&self.kinds, asked.mutating));
        Ok(Seat { _in_flight: held, _reads: reads, ..Seat::default() })
    }

    /// Room for a body, none of it yet.
    pub(crate) fn body(&self, caller: &Caller) -> Room {
        let share = match &caller.schema {
            Some(schema) if schema.exempt => None,
            Some(schema) => Some(schema.share),
            None => Some(Share::Others),
        };
        self.bodies.room(Reader { share, user: caller.user })
    }

    /// Answers upstream's pages about levels, queues and requests.
    pub(crate) fn page(&self, path: &str, details: bool) -> Option<String> {
        let page = path.strip_prefix("/debug/api_priority_and_fairness/").filter(|_| self.fair)?;
        match page {
            "dump_priority_levels" => Some(dump::levels(&self.live)),
            "dump_queues" => Some(dump::queues(&self.live)),
            "dump_requests" => Some(dump::requests(&self.live, details)),
            _ => None,
        }
    }

    /// The metrics.
    pub(crate) fn metrics(&self) -> FlowMetrics {
        FlowMetrics { fair: self.fair, live: Arc::clone(&self.live), kinds: Arc::clone(&self.kinds) }
    }

    /// Shares out seats anew; upstream does every ten seconds.
    pub(crate) fn adjust(&self) {
        self.live.adjust();
    }
}
