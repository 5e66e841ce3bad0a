//! The levels and schemas that are in force: how they follow their configuration, and how their seats are shared out.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{RequestInfo, UserInfo};
use api::Text;
use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bodies::Share;
use super::borrowing::{Bounds, Sharer, share_out};
use super::classify::Matcher;
use super::config::{CATCH_ALL, Configs, EXEMPT, LevelConfig, SchemaConfig};
use super::counts::{Counts, Kinds};
use super::demand::Demand;
use super::levels::Level;
use super::queues::Limit;

/// A schema with its level.
pub(super) struct Schema {
    /// Its name.
    pub(super) name: Text,
    /// Its uid.
    pub(super) uid: HeaderValue,
    /// The uid of its level.
    pub(super) level_uid: HeaderValue,
    /// Its requests.
    pub(super) matcher: Matcher,
    /// Where they go.
    pub(super) level: Arc<Level>,
    /// The level is the one without limits.
    pub(super) exempt: bool,
    /// The bytes that are kept for their bodies.
    pub(super) share: Share,
    /// Their counts.
    pub(super) counts: Arc<Counts>,
}

/// A level, and its seats.
pub(super) struct Seats {
    /// Its configuration.
    pub(super) config: LevelConfig,
    /// Its requests.
    pub(super) level: Arc<Level>,
    /// The bounds of its seats.
    pub(super) bounds: Bounds,
    /// The demand of the last periods.
    pub(super) demand: Demand,
    /// The seats that it has.
    pub(super) current: u32,
    /// The seats that it was to have.
    pub(super) target: f64,
}

/// All levels, by their names.
#[derive(Default)]
pub(super) struct Levels {
    /// The levels.
    pub(super) all: BTreeMap<Text, Seats>,
    /// The part of its target that each got.
    pub(super) fair: f64,
    /// The counts of the schemas; also of those that are gone, as long as their requests are there.
    pub(super) counts: Vec<Arc<Counts>>,
}

/// The levels and schemas that are in force.
pub(super) struct Live {
    schemas: ArcSwap<Vec<Arc<Schema>>>,
    levels: Mutex<Levels>,
    /// The seats of the server.
    server: u32,
    start: Instant,
    kinds: Arc<Kinds>,
    /// A level that goes is idle.
    pub(super) idle: Arc<Notify>,
}

impl Live {
    /// With the levels and schemas that every cluster begins with.
    pub(super) fn new(server: usize, start: Instant, kinds: &Arc<Kinds>) -> Self {
        let live = Self {
            schemas: ArcSwap::default(),
            levels: Mutex::default(),
            server: u32::try_from(server).unwrap_or(u32::MAX),
            start,
            kinds: Arc::clone(kinds),
            idle: Arc::default(),
        };
        live.configure(Configs::suggested());
        live
    }

    /// The schema of a request. That of what matches nothing else takes also those that do not even match it, such as
    /// of users in no group.
    pub(super) fn find(&self, user: &UserInfo, info: &RequestInfo) -> Option<Arc<Schema>> {
        let schemas = self.schemas.load();
        let found = schemas.iter().find(|schema| schema.matcher.is(user, info));
        found.or_else(|| schemas.iter().rfind(|schema| schema.name == CATCH_ALL)).cloned()
    }

    /// These are in force from now on, with those that are mandatory. Levels that are no longer wanted stay until their
    /// requests have ended.
    pub(super) fn configure(&self, configs: Configs) {
        let Configs { levels: wanted, schemas } = configs.completed();
        let mut levels = self.levels.lock();
        let levels = &mut *levels;
        let Levels { all, .. } = levels;
        all.retain(|name, seats| {
            if wanted.iter().any(|level| level.name == *name) {
                return true;
            }
            let empty = seats.level.is_empty();
            seats.level.let_go(true);
            !empty
        });
        for config in wanted {
            if let Some(seats) = all.get_mut(&config.name) {
                seats.level.let_go(false);
                seats.config = config;
                continue;
            }
            let level = Arc::new(Level::new(self.start, &self.kinds, &self.idle));
            let (bounds, demand) = (Bounds::default(), Demand::default());
            let seats = Seats { level, bounds, demand, current: 0, target: 0.0, config };
            all.insert(seats.config.name.clone(), seats);
        }
        let sum: f64 = all.values().map(|seats| f64::from(seats.config.shares.nominal.max(0))).sum();
        for seats in all.values_mut() {
            let new = seats.bounds == Bounds::default();
            seats.bounds = Bounds::new(self.server, sum, seats.config.shares);
            if new {
                seats.current = seats.bounds.first();
            }
        }
        self.share_out(levels);
        let made: Vec<_> = schemas.into_iter().filter_map(|schema| levels.schema(schema)).collect();
        levels
            .counts
            .retain(|counts| counts.is_busy() || made.iter().any(|s| Arc::ptr_eq(&s.counts, counts)));
        self.schemas.store(Arc::new(made));
        self.limit_kinds(levels);
    }

    /// The requests of a kind are as many as all levels have seats and places in queues.
    fn limit_kinds(&self, levels: &Levels) {
        let seats: u32 = levels.all.values().map(|seats| seats.bounds.nominal).sum();
        let places = levels.all.values().map(|seats| match seats.config.limit {
            Limit::Queue { dealer, length } => dealer.deck() * length,
            Limit::Exempt | Limit::Reject => 0,
        });
        let places = u32::try_from(places.sum::<usize>()).unwrap_or(u32::MAX);
        let now = self.kinds.now();
        for mutating in 0..2 {
            self.kinds.running[mutating].of(now, seats);
            self.kinds.waiting[mutating].of(now, places);
        }
    }

    /// Shares out seats anew, by what levels have used since the last time.
    pub(super) fn adjust(&self) {
        self.share_out(&mut self.levels.lock());
    }

    fn share_out(&self, levels: &mut Levels) {
        for seats in levels.all.values_mut() {
            seats.demand.update(seats.level.demand());
        }
        let sharers: Vec<Sharer> = levels.all.values().map(Seats::sharer).collect();
        let (fair, shares) = share_out(&sharers);
        levels.fair = fair;
        for (seats, share) in levels.all.values_mut().zip(shares) {
            (seats.current, seats.target) = (share.seats, share.target);
            let some = (f64::from(self.server) / 10.0).round().max(1.0) as u32;
            let whole = if share.seats > 0 { share.seats } else { some };
            let widest = seats.config.hand.map_or(0, |hand| seats.bounds.widest(hand));
            seats.level.configure(seats.config.limit, share.seats, whole, widest);
        }
    }

    /// Looks at all levels.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Levels) -> T) -> T {
        look(&self.levels.lock())
    }
}

impl Seats {
    fn sharer(&self) -> Sharer {
        let exempt = self.config.limit == Limit::Exempt;
        Sharer { exempt, bounds: self.bounds, demand: self.demand, current: self.current }
    }
}

impl Levels {
    /// The counts of a schema at a level.
    fn counts(&mut self, level: &Text, schema: &Text) -> Arc<Counts> {
        let known = self.counts.iter().find(|c| c.level == *level && c.schema == *schema);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let counts = Arc::new(Counts::new(level, schema));
        self.counts.push(Arc::clone(&counts));
        counts
    }

    fn schema(&mut self, config: SchemaConfig) -> Option<Arc<Schema>> {
        let counts = self.counts(&config.level, &config.name);
        let seats = self.all.get(&config.level)?;
        let header = |uid: &str| HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""));
        Some(Arc::new(Schema {
            uid: header(&config.uid),
            level_uid: header(&seats.config.uid),
            matcher: config.matcher,
            level: Arc::clone(&seats.level),
            exempt: config.level == EXEMPT,
            share: Share::of_level(&config.level),
            counts,
            name: config.name,
        }))
    }
}
