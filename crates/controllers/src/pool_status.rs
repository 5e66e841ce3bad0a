//! Answers to ResourcePoolStatusRequests: how many devices of a driver's pools there are, and how many are taken
//! (upstream: `pkg/controller/resourcepoolstatusrequest`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::{Gate, Status};
use client::{Cached, Change, Client, Informer, Key};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::{
    PoolStatus as Pool, ResourcePoolStatusRequest, ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, DeleteOptions, Preconditions, Time};

use crate::common::counters::{Counters, SHORT_SECONDS};
use crate::common::retry;
use crate::host::{Controller, Host, Next, Shared, Wiring};

/// Upstream's times.
const CLEAN_UP: Duration = Duration::from_mins(10);
const COMPLETED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);
/// The number of pools of an answer, unless the request says it.
const LIMIT: i32 = 100;
/// The length that the API allows for what is wrong with a pool, in bytes.
const LONGEST: usize = 256;

const PROCESSED: &str = "resourcepoolstatusrequest_controller_requests_processed_total";
const ERRORS: &str = "resourcepoolstatusrequest_controller_request_processing_errors_total";
const SECONDS: &str = "resourcepoolstatusrequest_controller_request_processing_duration_seconds";

/// The controller.
pub(crate) struct PoolStatus {
    client: Client,
    clock: Clock,
    requests: Informer<ResourcePoolStatusRequest>,
    slices: Informer<ResourceSlice>,
    claims: Informer<ResourceClaim>,
    counters: Arc<Counters>,
}

impl Controller for PoolStatus {
    const NAME: &'static str = "resourcepoolstatusrequest-controller";
    const ACCOUNT: &'static str = "resourcepoolstatusrequest-controller";
    const QUEUE: &'static str = "resourcepoolstatusrequest";
    type Key = Key;

    fn wanted(shared: &Shared) -> bool {
        let gates = &shared.config.gates;
        gates.enabled(Gate::DRAResourcePoolStatus) && gates.enabled(Gate::DynamicResourceAllocation)
    }

    fn new(host: &Host<Key>) -> Self {
        let counters = Arc::new(Counters::new(
            &[
                (PROCESSED, &["driver_name"], "[ALPHA] Total number of ResourcePoolStatusRequests processed"),
                (
                    ERRORS,
                    &["driver_name"],
                    "[ALPHA] Total number of errors while processing ResourcePoolStatusRequests",
                ),
            ],
            &[(
                (SECONDS, &["driver_name"], "[ALPHA] Time taken to process a ResourcePoolStatusRequest"),
                SHORT_SECONDS,
            )],
        ));
        let reported = counters.clone();
        host.metrics().register(Self::NAME, move |page| reported.report(page));
        Self {
            client: host.client(),
            clock: host.clock(),
            requests: host.informer(),
            slices: host.informer(),
            claims: host.informer(),
            counters,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let queue = wiring.queue();
        self.requests.handle(move |change| {
            if !matches!(change, Change::Deleted(_)) && change.object().status.is_none() {
                queue.add(change.object().key());
            }
        });
        let c = self.clone();
        wiring.spawn(async move {
            let mut tick = tokio::time::interval(CLEAN_UP);
            loop {
                tick.tick().await;
                c.clean_up().await;
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(request) = self.requests.get_key(&key).filter(|r| r.status.is_none()) else {
            return Ok(Next::Done);
        };
        let begun = self.clock.monotonic();
        let status = answer(&request.spec, &self.slices.list(), &self.claims.list(), self.clock.now());
        if status.pools.iter().flatten().any(|pool| pool.validation_error.is_some()) {
            // DIFFERENCE: upstream gives up after five attempts; the driver may take longer to say everything.
            return Err(retry("incomplete pools detected, requeueing"));
        }
        let mut wanted = ResourcePoolStatusRequest::clone(&request);
        wanted.status = Some(status);
        let done = self.client.api::<ResourcePoolStatusRequest>("").update_status(&wanted).await;
        let driver = [request.spec.driver.as_str()];
        self.counters.add(PROCESSED, &driver, 1);
        self.counters.observe(SECONDS, &driver, (self.clock.monotonic() - begun).as_secs_f64());
        match done {
            Err(e) if e.is_not_found() => Ok(Next::Done),
            Err(e) => {
                self.counters.add(ERRORS, &driver, 1);
                Err(e)
            }
            Ok(_) => Ok(Next::Done),
        }
    }
}

impl PoolStatus {
    /// Removes requests that have had their time.
    async fn clean_up(&self) {
        let now = self.clock.now();
        let api = self.client.api::<ResourcePoolStatusRequest>("");
        for request in self.requests.list().iter().filter(|r| is_over(r, now)) {
            let uid = Preconditions { uid: request.metadata.uid.clone(), ..Preconditions::default() };
            let options = DeleteOptions { preconditions: Some(uid), ..DeleteOptions::default() };
            match api.delete(request.name(), Some(&options)).await {
                Err(e) if !e.is_not_found() && !e.is_conflict() => {
                    let name = request.name();
                    tracing::warn!(error = e.message, name, "unable to delete ResourcePoolStatusRequest");
                }
                _ => {}
            }
        }
    }
}

/// Whether a request has had its time: after its answer, or without one.
fn is_over(request: &ResourcePoolStatusRequest, now: Timestamp) -> bool {
    let older = |since: Option<&Time>, than| since.is_some_and(|since| now.duration_since(since.0) > than);
    let created = request.metadata.creation_timestamp.as_ref();
    let Some(status) = &request.status else { return older(created, PENDING) };
    let ends = |c: &&Condition| matches!(c.type_.as_str(), "Complete" | "Failed");
    let ended = status.conditions.iter().flatten().find(ends).map(|c| &c.last_transition_time);
    older(ended.or(created), COMPLETED)
}

/// The state of a pool, by its slices of the newest generation.
#[derive(Default)]
struct Seen<'a> {
    generation: i64,
    node: Option<&'a str>,
    mixed: bool,
    devices: i32,
    slices: i32,
    expected: i64,
}

/// Counts the devices that a request asks about.
fn answer(
    spec: &ResourcePoolStatusRequestSpec,
    slices: &[Arc<ResourceSlice>],
    claims: &[Arc<ResourceClaim>],
    now: Timestamp,
) -> ResourcePoolStatusRequestStatus {
    let mut taken: HashMap<&str, i32> = HashMap::new();
    let allocations = claims.iter().filter_map(|c| c.status.as_ref()?.allocation.as_ref()?.devices.as_ref());
    for result in allocations.flat_map(|d| d.results.iter().flatten()).filter(|r| r.driver == spec.driver) {
        *taken.entry(result.pool.as_str()).or_default() += 1;
    }
    let all: Vec<Pool> = pools(spec, slices)
        .into_iter()
        .map(|(name, seen)| pool(&spec.driver, name, &seen, taken.get(name).copied().unwrap_or(0)))
        .collect();
    let count = number(all.len());
    let limit = usize::try_from(spec.limit.unwrap_or(LIMIT)).unwrap_or(0);
    let shown: Vec<Pool> = all.into_iter().take(limit).collect();
    let incomplete = shown.iter().filter(|p| p.validation_error.is_some()).count();
    let mut message = format!("Calculated status for {} pools", shown.len());
    if incomplete > 0 {
        message = format!("{message} ({incomplete} incomplete)");
    }
    ResourcePoolStatusRequestStatus {
        pool_count: count,
        pools: Some(shown),
        conditions: Some(vec![Condition {
            type_: "Complete".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Time(now),
            reason: "CalculationComplete".to_owned(),
            message,
            observed_generation: None,
        }]),
    }
}

/// The pools that a request asks about, by name.
fn pools<'a>(
    spec: &ResourcePoolStatusRequestSpec,
    slices: &'a [Arc<ResourceSlice>],
) -> BTreeMap<&'a str, Seen<'a>> {
    let wanted = spec.pool_name.as_deref().filter(|name| !name.is_empty());
    let mut pools: BTreeMap<&str, Seen<'_>> = BTreeMap::new();
    for slice in slices.iter().map(|s| &s.spec).filter(|s| s.driver == spec.driver) {
        let of = &slice.pool;
        if wanted.is_some_and(|wanted| wanted != of.name) {
            continue;
        }
        let node = slice.node_name.as_deref();
        let seen = pools.entry(of.name.as_str()).or_default();
        if seen.slices == 0 || of.generation > seen.generation {
            *seen = Seen {
                generation: of.generation,
                node,
                expected: of.resource_slice_count,
                ..Seen::default()
            };
        } else if of.generation < seen.generation {
            continue;
        }
        seen.slices += 1;
        seen.devices = seen.devices.saturating_add(number(slice.devices.as_ref().map_or(0, Vec::len)));
        seen.mixed |= seen.node != node;
    }
    pools
}

fn pool(driver: &str, name: &str, seen: &Seen<'_>, taken: i32) -> Pool {
    let mut pool = Pool {
        driver: driver.to_owned(),
        pool_name: name.to_owned(),
        generation: seen.generation,
        node_name: seen.node.filter(|node| !seen.mixed && !node.is_empty()).map(str::to_owned),
        ..Pool::default()
    };
    if i64::from(seen.slices) < seen.expected {
        let Seen { slices, expected, generation, .. } = seen;
        let mut why = format!(
            "pool {driver}/{name} is incomplete: observed {slices}/{expected} slices at generation {generation}"
        );
        why.truncate(why.floor_char_boundary(LONGEST));
        pool.validation_error = Some(why);
        return pool;
    }
    pool.resource_slice_count = Some(seen.slices);
    pool.total_devices = Some(seen.devices);
    pool.allocated_devices = Some(taken);
    pool.available_devices = Some(seen.devices.saturating_sub(taken).max(0));
    // As in upstream's: neither taints nor the health of devices are looked at yet.
    pool.unavailable_devices = Some(0);
    pool
}

fn number(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DRIVER: &str = "test.example.com";

    /// A slice: driver, pool, node, devices, generation, and how many slices the pool has.
    type Slice<'a> = (&'a str, &'a str, Option<&'a str>, usize, i64, i64);

    fn slice(of: &Slice<'_>) -> Arc<ResourceSlice> {
        let (driver, pool, node, devices, generation, count) = of;
        let devices: Vec<_> = (0..*devices).map(|i| json!({ "name": format!("device-{i}") })).collect();
        let pool = json!({"name": pool, "generation": generation, "resourceSliceCount": count});
        let spec = json!({"driver": driver, "pool": pool, "nodeName": node, "devices": devices});
        Arc::new(serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
    }

    fn claim(pool: &str) -> Arc<ResourceClaim> {
        let result = json!({"request": "r", "driver": DRIVER, "pool": pool, "device": "d"});
        let allocation = json!({"devices": {"results": [result]}});
        Arc::new(
            serde_json::from_value(json!({"metadata": {}, "spec": {}, "status": {"allocation": allocation}}))
                .unwrap(),
        )
    }

    fn ask(more: serde_json::Value) -> ResourcePoolStatusRequestSpec {
        let mut spec = json!({ "driver": DRIVER });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    /// The pools that are shown, all pools, and the devices, those that are taken, and the incomplete pools.
    type Wanted = (usize, i32, i32, i32, usize);

    fn check(more: serde_json::Value, slices: &[Slice<'_>], claims: &[&str], want: Wanted) -> Vec<Pool> {
        let slices: Vec<_> = slices.iter().map(slice).collect();
        let claims: Vec<_> = claims.iter().map(|pool| claim(pool)).collect();
        let got = answer(&ask(more), &slices, &claims, Timestamp::UNIX_EPOCH);
        let pools = got.pools.unwrap();
        let sum = |of: fn(&Pool) -> Option<i32>| pools.iter().filter_map(of).sum::<i32>();
        let incomplete = pools.iter().filter(|p| p.validation_error.is_some()).count();
        let (total, taken) = (sum(|p| p.total_devices), sum(|p| p.allocated_devices));
        assert_eq!((pools.len(), got.pool_count, total, taken, incomplete), want, "{slices:?}");
        assert!(pools.iter().all(|p| p.validation_error.is_none() || p.total_devices.is_none()));
        pools
    }

    /// Upstream's 15 cases of `TestCalculatePoolStatus`.
    #[test]
    fn upstreams_cases() {
        let (one, two) = (Some("node-1"), Some("node-2"));
        let plain = |pool, node, devices| (DRIVER, pool, node, devices, 1, 1);
        let pair = [plain("pool-1", one, 4), plain("pool-2", two, 8)];
        check(json!({}), &pair[..1], &[], (1, 1, 4, 0, 0));
        check(json!({}), &pair[..1], &["pool-1", "pool-1"], (1, 1, 4, 2, 0));
        check(json!({}), &pair, &[], (2, 2, 12, 0, 0));
        let other = ("other.example.com", "pool-2", two, 8, 1, 1);
        check(json!({}), &[pair[0], other], &[], (1, 1, 4, 0, 0));
        check(json!({"poolName": "pool-1"}), &pair, &[], (1, 1, 4, 0, 0));
        check(json!({}), &[pair[0], pair[0]], &[], (1, 1, 8, 0, 0));
        check(json!({"limit": 1}), &pair, &[], (1, 2, 4, 0, 0));
        check(json!({"driver": "nonexistent.example.com"}), &pair[..1], &[], (0, 0, 0, 0, 0));
        let old = (DRIVER, "pool-1", one, 8, 1, 1);
        let new = (DRIVER, "pool-1", one, 4, 2, 2);
        check(json!({}), &[old, new, new], &[], (1, 1, 8, 0, 0));
        check(json!({}), &[new, old, new], &[], (1, 1, 8, 0, 0));
        let part = (DRIVER, "pool-1", one, 4, 1, 5);
        let pools = check(json!({}), &[part, part, part], &[], (1, 1, 0, 0, 1));
        let why = "pool test.example.com/pool-1 is incomplete: observed 3/5 slices at generation 1";
        assert_eq!(pools[0].validation_error.as_deref(), Some(why));
        let third = (DRIVER, "pool-2", two, 4, 1, 3);
        check(json!({}), &[pair[0], third, third], &[], (2, 2, 4, 0, 1));
        let node = |slices: &[Slice<'_>]| check(json!({}), slices, &[], (1, 1, 8, 0, 0))[0].node_name.clone();
        assert_eq!(node(&[pair[0], pair[0]]).as_deref(), one);
        assert_eq!(node(&[pair[0], plain("pool-1", two, 4)]), None);
        assert_eq!(node(&[plain("pool-1", None, 4), plain("pool-1", None, 4)]), None);
        let half = (DRIVER, "pool-1", one, 4, 1, 2);
        check(json!({}), &[half, half], &[], (1, 1, 8, 0, 0));
    }

    /// Upstream's cases of `TestIsOlderThan` and `TestCleanupExpiredRequests`.
    #[test]
    fn requests_have_their_time() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let ago = |minutes: i64| Time(now - SignedDuration::from_mins(minutes));
        let check = |made: i64, answered: Option<i64>, over: bool| {
            let mut request = ResourcePoolStatusRequest::default();
            request.metadata.creation_timestamp = Some(ago(made));
            request.status = answered.map(|minutes| {
                let mut status = answer(&ask(json!({})), &[], &[], now);
                status.conditions.as_mut().unwrap()[0].last_transition_time = ago(minutes);
                status
            });
            assert_eq!(is_over(&request, now), over, "{made} {answered:?}");
        };
        check(120, Some(30), false);
        check(120, Some(61), true);
        check(60, None, false);
        check(25 * 60, None, true);
        check(24 * 60, None, false);
        assert!(!is_over(&ResourcePoolStatusRequest::default(), now), "nobody knows when it was made");
    }
}
