//! How many seats a request takes, and for how long after its end: more for lists that are large, and for writes of
//! which many watchers are told.

use access::{Query, RequestInfo};

use super::queues::Estimate;

/// How many of these bytes a seat is for.
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache has no more in memory at once.
const STREAMED: u64 = 1_000_000;
/// The size of an object of which nothing is known; etcd's largest.
const LARGEST: u64 = 1_500_000;
/// How many objects a seat is for, where their sizes do not count.
const OBJECTS_PER_SEAT: u64 = 100;
/// How many watchers a seat is for.
const WATCHERS_PER_SEAT: u64 = 10;
/// For how long after a write its watchers keep their seats.
const EVENTS: u64 = 5_000_000;
/// The most seats of a write.
const WRITE: u64 = 10;

/// The known figures of a resource's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stats {
    /// How many there are.
    pub(super) count: u64,
    /// Their size, on average; 0 if nobody knows.
    pub(super) size: u64,
}

/// The facts by which an estimate goes, besides the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// The objects of the resource, if they are here.
    pub(super) stats: Option<Stats>,
    /// The most seats that the level gives one request; 0 for any number.
    pub(super) most: u32,
    /// Sizes of objects count (the feature `SizeBasedListCostEstimate`).
    pub(super) by_size: bool,
    /// Watches count as lists (the feature `WatchList`).
    pub(super) watch_lists: bool,
}

/// The work of a request. `watchers` tells how many are told of it, if it matters.
pub(super) fn estimate(
    info: &RequestInfo,
    query: &Query,
    facts: Facts,
    watchers: impl FnOnce() -> usize,
) -> Estimate {
    match info.verb {
        "list" => Estimate::seats(of_list(info, query, facts)),
        "watch" if facts.watch_lists => Estimate::seats(of_list(info, query, facts)),
        "create" | "update" | "patch" | "delete" => {
            // A token is made without any event.
            if info.subresource == "token" { Estimate::seats(1) } else { of_write(watchers(), facts.most) }
        }
        _ => Estimate::seats(1),
    }
}

/// Within the limits of all requests of a kind and of the level.
fn most(of_level: u32, limit: u64) -> u64 {
    if of_level == 0 { limit } else { limit.min(of_level.into()) }
}

fn of_list(info: &RequestInfo, query: &Query, facts: Facts) -> u32 {
    let most = most(facts.most, if facts.by_size { 100 } else { 10 });
    let (Ok(limit), Ok(_)) = (query.int("limit"), query.int("timeoutSeconds")) else { return most as u32 };
    let revision = query.str("resourceVersion");
    let watch = info.verb == "watch";
    let initial = query.bool("sendInitialEvents") == Some(true) || matches!(revision, "" | "0");
    if watch && !initial {
        return 1;
    }
    // Another server's work.
    let Some(stats) = facts.stats else { return 1 };
    let list = List {
        limit: limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0),
        selects: ["fieldSelector", "labelSelector"].iter().any(|key| !query.str(key).is_empty()),
        single: !info.name.is_empty(),
        cached: watch || is_cached(query, limit.unwrap_or(0)),
    };
    let seats = if facts.by_size { list.by_size(stats) } else { list.by_count(stats) };
    seats.clamp(1, most) as u32
}

/// Whether upstream answers a list from its cache, by its `ShouldDelegateList`.
fn is_cached(query: &Query, limit: i64) -> bool {
    match query.str("resourceVersionMatch") {
        "NotOlderThan" => true,
        "" => {
            let exact = limit > 0 && !matches!(query.str("resourceVersion"), "" | "0");
            query.str("continue").is_empty() && !exact
        }
        _ => false,
    }
}

/// A list, as far as its work is concerned.
#[derive(Debug, Clone, Copy)]
struct List {
    limit: Option<u64>,
    /// It has a selector.
    selects: bool,
    /// It is of one object.
    single: bool,
    cached: bool,
}

impl List {
    fn by_count(self, stats: Stats) -> u64 {
        let limit = self.limit.map_or(stats.count, |limit| limit.min(stats.count));
        let objects = match self {
            Self { single: true, .. } => 1,
            Self { cached: true, .. } => stats.count,
            Self { selects: true, .. } => stats.count + limit,
            _ => 2 * limit,
        };
        objects.div_ceil(OBJECTS_PER_SEAT)
    }

    fn by_size(self, stats: Stats) -> u64 {
        let size = if stats.size == 0 && stats.count != 0 { LARGEST } else { stats.size };
        let limited = self.limit.map_or(stats.count, |limit| limit.min(stats.count));
        let objects = match self {
            Self { single: true, .. } => 1,
            Self { cached: false, selects: true, .. } => limited.max(stats.count / 2),
            _ => limited,
        };
        let bytes = objects.saturating_mul(size);
        let at_once = if self.cached { bytes.min(STREAMED) } else { bytes };
        at_once.div_ceil(BYTES_PER_SEAT)
    }
}

/// Watchers are told in parallel, each for a part of a seat; what would be wider than is allowed is longer instead.
fn of_write(watchers: usize, of_level: u32) -> Estimate {
    let watchers = watchers as u64;
    if watchers < WATCHERS_PER_SEAT {
        return Estimate::seats(1);
    }
    let wanted = watchers.div_ceil(WATCHERS_PER_SEAT);
    let last = wanted.min(most(of_level, WRITE));
    Estimate { initial: 1, last: last as u32, after: EVENTS * wanted / last }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `TestListWorkEstimator…`: bytes in all, objects, limit, selector, from the cache; seats by count and
    /// by size.
    #[test]
    fn lists() {
        let check = |(bytes, count): (u64, u64), limit: u64, selects, cached, expected: (u64, u64)| {
            let stats = Stats { count, size: (bytes - 1) / count };
            let limit = Some(limit).filter(|limit| *limit > 0);
            let list = List { limit, selects, single: false, cached };
            assert_eq!((list.by_count(stats), list.by_size(stats)), expected, "{bytes} {count} {list:?}");
        };
        let (small, middle, large) = (100_000, 1_000_000, 10_000_000);
        check((small, 99), 0, false, false, (2, 1));
        check((small, 10), 0, false, false, (1, 1));
        check((small, 99), 0, false, true, (1, 1));
        check((small, 10), 0, false, true, (1, 1));
        check((middle, 1000), 0, false, false, (20, 10));
        check((middle, 1000), 100, false, false, (2, 1));
        check((middle, 1000), 100, true, false, (11, 5));
        check((middle, 1000), 0, false, true, (10, 10));
        check((middle, 1000), 100, false, true, (10, 1));
        check((middle, 1000), 100, true, true, (10, 1));
        check((middle, 99), 0, false, false, (2, 10));
        check((middle, 99), 10, false, false, (1, 2));
        check((middle, 99), 10, true, false, (2, 5));
        check((middle, 99), 0, false, true, (1, 10));
        check((large, 1000), 0, false, false, (20, 100));
        check((large, 1000), 100, false, false, (2, 10));
        check((large, 1000), 100, true, false, (11, 50));
        check((large, 1000), 0, false, true, (10, 10));
        check((large, 1000), 100, true, true, (10, 10));
        check((large, 99), 0, false, false, (2, 100));
        check((large, 99), 10, false, false, (1, 11));
        check((large, 99), 10, true, false, (2, 50));
        check((large, 99), 10, true, true, (1, 10));
        let stats = Stats { count: 1000, size: 1_000_000 };
        for cached in [false, true] {
            let single = List { limit: None, selects: true, single: true, cached };
            assert_eq!((single.by_count(stats), single.by_size(stats)), (1, 10));
        }
        let unknown = List { limit: None, selects: false, single: true, cached: false };
        assert_eq!(unknown.by_size(Stats { count: 1, size: 0 }), 15);
    }

    /// Upstream's `TestWorkEstimator`.
    #[test]
    fn requests() {
        const BY_SIZE: Facts = Facts { stats: None, most: 100, by_size: true, watch_lists: true };
        let check = |verb: &'static str, query: &str, (count, size): (u64, u64), expected: u32| {
            let info = RequestInfo { verb, is_resource: true, ..RequestInfo::default() };
            let stats = Some(Stats { count, size });
            let got = estimate(&info, &Query::parse(query), Facts { stats, ..BY_SIZE }, || 1000);
            assert_eq!(got, Estimate::seats(expected), "{verb} {query}");
        };
        check("get", "", (799, 10_000), 1);
        check("deletecollection", "", (799, 10_000), 1);
        check("list", "limit=invalid", (799, 10_000), 100);
        check("list", "limit=399&resourceVersion=1", (699, 10_000), 40);
        check("list", "resourceVersion=1", (699, 10_000), 10);
        check("list", "resourceVersion=1", (69, 10_000), 7);
        check("list", "continue=x&limit=399", (699, 10_000), 40);
        check("list", "resourceVersionMatch=Exact&resourceVersion=1", (699, 10_000), 70);
        check("list", "resourceVersionMatch=NotOlderThan&resourceVersion=1&limit=50", (699, 10_000), 5);
        check("list", "", (0, 0), 1);
        check("watch", "", (799, 1000), 8);
        check("watch", "sendInitialEvents=false&resourceVersion=0", (799, 1000), 8);
        check("watch", "sendInitialEvents=false&resourceVersion=1", (799, 1000), 1);
        check("watch", "sendInitialEvents=true", (799, 1000), 8);
        check("watch", "sendInitialEvents=true&resourceVersion=7", (799, 1000), 8);
        let list = RequestInfo { verb: "list", ..RequestInfo::default() };
        let wide = |facts| estimate(&list, &Query::default(), facts, || 0).initial;
        let stats = Some(Stats { count: 100_000, size: 100 });
        assert_eq!(wide(BY_SIZE), 1, "it is another server's");
        assert_eq!(wide(Facts { stats, most: 4, ..BY_SIZE }), 4);
        assert_eq!(wide(Facts { stats, most: 0, by_size: false, ..BY_SIZE }), 10);
    }

    #[test]
    fn writes() {
        let check = |subresource: &str, watchers: usize, most: u32, expected: (u32, u64)| {
            let facts = Facts { stats: None, most, by_size: true, watch_lists: true };
            for verb in ["create", "update", "patch", "delete"] {
                let info = RequestInfo { verb, subresource: subresource.into(), ..RequestInfo::default() };
                let got = estimate(&info, &Query::default(), facts, || watchers);
                let expected = Estimate { initial: 1, last: expected.0, after: expected.1 };
                assert_eq!(got, expected, "{verb} {watchers}");
            }
        };
        const MILLI: u64 = 1_000_000;
        check("", 0, 10, (0, 0));
        check("", 5, 10, (0, 0));
        check("", 29, 10, (3, 5 * MILLI));
        check("", 199, 10, (10, 10 * MILLI));
        check("", 100, 5, (5, 10 * MILLI));
        check("", 1000, 20, (10, 50 * MILLI));
        check("", 1000, 0, (10, 50 * MILLI));
        check("token", 5777, 10, (0, 0));
    }
}
