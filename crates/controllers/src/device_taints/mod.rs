//! Pods go whose devices have a taint NoExecute that their claims do not tolerate, from the driver or a DeviceTaintRule
//! (upstream: `pkg/controller/devicetainteviction`).
//!
//! A look at a Pod works out anew when it has to go: nothing is remembered but what is told once, so an end of the
//! controller at any point costs nothing.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{Gate, Status};
use client::{Cached, Change, Client, EventType, Index, Informer, Key, Patch, Queue, Recorder};
use component::Clock;
use component::metrics::Histogram;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use objects::claims::{is_for, is_pod, is_pod_group, is_reserved_for, reserved_for};
use parking_lot::Mutex;
use serde_json::json;

use crate::common::pods;
use crate::config::Config;
use crate::host::{Controller, Host, Next, Shared, Wiring};
use crate::views::PodView;
use plan::{Counts, Eviction, NO_EXECUTE, PERIOD, results};

/// Seconds from 5 ms to 4 minutes.
const LATENCY: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

/// A Pod or a rule that is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    Pod(Key),
    Rule(Key),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod:{key}"),
            Self::Rule(key) => write!(f, "rule:{key}"),
        }
    }
}

/// The Pods that were evicted.
struct Evicted {
    pods: u64,
    latency: Histogram,
    /// By the uid of a rule.
    by_rule: HashMap<String, usize>,
}

/// The controller of tainted devices.
pub(crate) struct DeviceTaintEviction {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    pods: Informer<PodView>,
    /// The Pods by their PodGroups; none where those have no claims.
    by_group: Option<Index<PodView>>,
    claims: Informer<ResourceClaim>,
    /// The claims by the pools of their devices.
    by_pool: Index<ResourceClaim>,
    /// The slices by pool.
    slices: Index<ResourceSlice>,
    published: Informer<ResourceSlice>,
    rules: Option<Informer<DeviceTaintRule>>,
    queue: Queue<Work>,
    /// The Pods that are to go, by uid.
    pending: Mutex<HashSet<String>>,
    evicted: Arc<Mutex<Evicted>>,
}

fn pool(driver: &str, pool: &str) -> String {
    format!("{driver}/{pool}")
}

fn is_tainted(slice: &ResourceSlice) -> bool {
    let mut taints = slice.spec.devices.iter().flatten().flat_map(|d| d.taints.iter().flatten());
    taints.any(|taint| taint.effect == NO_EXECUTE)
}

impl Controller for DeviceTaintEviction {
    const NAME: &'static str = "device-taint-eviction-controller";
    const ACCOUNT: &'static str = "device-taint-eviction-controller";
    const QUEUE: &'static str = "device-taint-eviction-controller";
    type Key = Work;

    fn wanted(shared: &Shared) -> bool {
        shared.config.gates.enabled(Gate::DRADeviceTaints)
    }

    fn workers(config: &Config) -> usize {
        config.workers.device_taints
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let claims = host.informer::<ResourceClaim>();
        let by_pool = claims.index("pool", |claim| {
            let pools: BTreeSet<String> = results(claim).map(|r| pool(&r.driver, &r.pool)).collect();
            pools.into_iter().map(Into::into).collect()
        });
        let published = host.informer::<ResourceSlice>();
        let slices =
            published.index("pool", |slice| vec![pool(&slice.spec.driver, &slice.spec.pool.name).into()]);
        let evicted = Evicted { pods: 0, latency: Histogram::new(LATENCY), by_rule: HashMap::new() };
        let evicted = Arc::new(Mutex::new(evicted));
        let told = evicted.clone();
        host.metrics().register(Self::NAME, move |page| {
            let evicted = told.lock();
            let name = "device_taint_eviction_controller_pod_deletions_total";
            page.metric(name, "counter", "[ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.");
            page.value(name, &[], evicted.pods as f64);
            let name = "device_taint_eviction_controller_pod_deletion_duration_seconds";
            page.metric(name, "histogram", "[ALPHA] Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.");
            page.histogram(name, &[], &evicted.latency);
        });
        let pods = pods::informer(host.factory());
        let by_group = host.config().gates.enabled(Gate::DRAWorkloadResourceClaims);
        let with_rules = host.config().gates.enabled(Gate::DRADeviceTaintRules);
        Self {
            client: host.client(),
            clock: host.clock(),
            recorder: host.recorder(Self::NAME),
            by_group: by_group.then(|| pods::by_group(&pods)),
            pods,
            claims,
            by_pool,
            slices,
            published,
            rules: with_rules.then(|| host.informer()),
            queue: host.main_queue(),
            pending: Mutex::default(),
            evicted,
        }
    }

    fn watch(self: &Arc<Self>, _wiring: &Wiring<Work>) {
        let c = self.clone();
        self.pods.handle(move |change| {
            let pod = change.object();
            if let Change::Deleted(pod) = change {
                c.pending.lock().remove(pod.uid());
            } else if !pod.claim_places().is_empty() && !pod.node.is_empty() {
                c.queue.add(Work::Pod(pod.key()));
            }
        });
        let c = self.clone();
        self.claims.handle(move |change| {
            if let Change::Updated { old, .. } = change {
                c.look_at_pods(old);
            }
            c.look_at_pods(change.object());
        });
        let c = self.clone();
        self.published.handle(move |change| {
            let old = match change {
                Change::Updated { old, .. } => Some(old),
                _ => None,
            };
            let slice = change.object();
            // A newer generation may end older taints.
            if [Some(slice), old].into_iter().flatten().any(|s| is_tainted(s)) || !c.pending.lock().is_empty()
            {
                let key = pool(&slice.spec.driver, &slice.spec.pool.name);
                c.by_pool.get(&key).iter().for_each(|claim| c.look_at_pods(claim));
            }
        });
        let Some(rules) = &self.rules else { return };
        let c = self.clone();
        rules.handle(move |change| c.take_rule(change));
    }

    async fn sync(&self, key: Work) -> Result<Next, Status> {
        match key {
            Work::Pod(key) => self.sync_pod(&key).await,
            Work::Rule(key) => self.sync_rule(&key).await,
        }
    }
}

impl DeviceTaintEviction {
    /// The Pods that use a claim are to be looked at.
    fn look_at_pods(&self, claim: &ResourceClaim) {
        for consumer in reserved_for(claim) {
            let key = Key::new(claim.namespace(), &consumer.name);
            if is_pod(consumer) {
                self.queue.add(Work::Pod(key));
            } else if let Some(members) = self.by_group.as_ref().filter(|_| is_pod_group(consumer)) {
                members
                    .get(&pods::claim_key(claim.namespace(), &consumer.name))
                    .iter()
                    .for_each(|pod| self.queue.add(Work::Pod(pod.key())));
            }
        }
    }

    fn take_rule(&self, change: &Change<DeviceTaintRule>) {
        let rule = change.object();
        let old = match change {
            Change::Updated { old, new } if old.metadata.uid == new.metadata.uid && old.spec == new.spec => {
                return;
            }
            Change::Updated { old, .. } => Some(old),
            _ => None,
        };
        if let Change::Deleted(rule) = change {
            self.evicted.lock().by_rule.remove(rule.uid());
        } else {
            // Its state is written before any Pod goes because of it.
            self.queue.add(Work::Rule(rule.key()));
        }
        for claim in self.claims.list() {
            let tainted = |rule: &DeviceTaintRule| results(&claim).any(|r| plan::taints(rule, r));
            if tainted(rule) || old.is_some_and(|old| tainted(old)) {
                self.look_at_pods(&claim);
            }
        }
    }

    /// The rules that evict Pods.
    fn evicting(&self) -> Vec<Arc<DeviceTaintRule>> {
        let all = self.rules.iter().flat_map(|rules| rules.list());
        all.filter(|rule| rule.spec.taint.effect == NO_EXECUTE).collect()
    }

    /// When a Pod has to go.
    fn eviction(&self, pod: &PodView, rules: &[Arc<DeviceTaintRule>]) -> Option<Eviction> {
        if pod.node.is_empty() {
            return None;
        }
        let its = |(name, made): (&str, bool)| {
            let claim = self.claims.get(pod.namespace(), name)?;
            let user = pod.user(self.by_group.is_some());
            let owned = !made || is_for(user, &claim).is_ok();
            (owned && is_reserved_for(user, &claim)).then_some(claim)
        };
        let claims = pod.claim_places().iter().filter_map(|place| its(place.named()?));
        let slices = |driver: &str, name: &str| self.slices.get(&pool(driver, name));
        claims.filter_map(|claim| plan::of_claim(&claim, slices, rules)).reduce(Eviction::and)
    }

    fn event(&self, pod: &PodView, message: &str) {
        self.recorder.event_about(pod.reference(), EventType::Normal, "DeviceTaintManagerEviction", message);
    }

    async fn sync_pod(&self, key: &Key) -> Result<Next, Status> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Next::Done) };
        let Some(eviction) = self.eviction(&pod, &self.evicting()) else {
            if self.pending.lock().remove(pod.uid()) && !pod.is_deleting() {
                self.event(&pod, "Cancelling deletion");
            }
            return Ok(Next::Done);
        };
        if pod.is_deleting() {
            return Ok(Next::Done);
        }
        self.pending.lock().insert(pod.uid().to_owned());
        let rules = self.rules_of(&eviction);
        let period = Duration::from_secs(PERIOD.unsigned_abs());
        for rule in &rules {
            self.queue.add_after(Work::Rule(rule.clone()), period);
        }
        let now = self.clock.now();
        if let Ok(left) = Duration::try_from(eviction.when.duration_since(now))
            && !left.is_zero()
        {
            return Ok(Next::After(left));
        }
        if self.evict(&pod).await? {
            let mut evicted = self.evicted.lock();
            evicted.pods += 1;
            evicted.latency.observe(now.duration_since(eviction.when).as_secs_f64());
            for uid in &eviction.rules {
                *evicted.by_rule.entry(uid.clone()).or_default() += 1;
            }
            drop(evicted);
            for rule in rules {
                self.queue.add_after(Work::Rule(rule), period);
            }
        }
        Ok(Next::Done)
    }

    fn rules_of(&self, eviction: &Eviction) -> Vec<Key> {
        let all = self.rules.iter().flat_map(|rules| rules.list());
        all.filter(|rule| eviction.rules.contains(rule.uid())).map(|rule| rule.key()).collect()
    }

    /// Says in the Pod's status why it goes, and deletes it; `false` if somebody else did.
    async fn evict(&self, seen: &PodView) -> Result<bool, Status> {
        let api = self.client.api::<Pod>(seen.namespace());
        let pod = match api.get(seen.name()).await {
            Ok(pod) => pod,
            Err(e) if e.is_not_found() => return Ok(false),
            Err(e) => return Err(e),
        };
        if pod.metadata.uid.as_deref() != Some(seen.uid()) || pod.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        self.event(seen, "Marking for deletion");
        const REASON: &str = "DeletionByDeviceTaintManager";
        let said = objects::pod::condition(&pod, "DisruptionTarget");
        if !said.is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some(REASON)) {
            let patch = json!({"metadata": {"uid": seen.uid()}, "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": REASON,
                "message": "Device Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": api::time::format(self.clock.now()).as_str(),
            }]}});
            match api.patch_status(seen.name(), &Patch::Strategic(patch)).await {
                Err(e) if e.is_not_found() || e.is_conflict() => return Ok(false),
                result => drop(result?),
            }
        }
        let uid = Some(seen.uid().to_owned());
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        match api
            .delete(seen.name(), Some(&DeleteOptions { preconditions, ..DeleteOptions::default() }))
            .await
        {
            Ok(()) => Ok(true),
            Err(e) if e.is_not_found() || e.is_conflict() => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn sync_rule(&self, key: &Key) -> Result<Next, Status> {
        let Some(rule) = self.rules.as_ref().and_then(|rules| rules.get_key(key)) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        let existing = plan::existing(&rule);
        let since = existing.map_or(now, |c| c.last_transition_time.0);
        if let Some(existing) = existing {
            let age = now.duration_since(since);
            if existing.observed_generation == rule.metadata.generation && age.as_secs() < PERIOD {
                let left = u64::try_from(PERIOD - age.as_secs()).unwrap_or(0);
                return Ok(Next::After(Duration::from_secs(left)));
            }
        }
        let condition = plan::condition(&rule, self.count(&rule), since);
        if Some(&condition) == existing {
            return Ok(Next::Done);
        }
        let patch = json!({"metadata": {"uid": rule.metadata.uid}, "status": {"conditions": [{
            "type": condition.type_, "status": condition.status, "reason": condition.reason,
            "message": condition.message, "observedGeneration": condition.observed_generation,
            "lastTransitionTime": api::time::format(now).as_str(),
        }]}});
        match self.client.api::<DeviceTaintRule>("").patch_status(&key.name, &Patch::Strategic(patch)).await {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(Next::Done),
        }
    }

    /// This is what the rule does, or would do.
    fn count(&self, rule: &Arc<DeviceTaintRule>) -> Counts {
        let uid = rule.uid();
        let evicted = self.evicted.lock().by_rule.get(uid).copied().unwrap_or(0);
        let mut counts = Counts { evicted, ..Counts::default() };
        let simulated = rule.spec.taint.effect == "None";
        let rules = if simulated {
            let mut rule = (**rule).clone();
            NO_EXECUTE.clone_into(&mut rule.spec.taint.effect);
            vec![Arc::new(rule)]
        } else if rule.spec.taint.effect == NO_EXECUTE {
            self.evicting()
        } else {
            return counts;
        };
        let mut namespaces = BTreeSet::new();
        for pod in self.pods.list().iter().filter(|p| !p.claim_places().is_empty() && !p.is_deleting()) {
            if self.eviction(pod, &rules).is_some_and(|e| e.rules.contains(uid)) {
                counts.pods += 1;
                namespaces.insert(pod.namespace().to_owned());
            }
        }
        counts.namespaces = namespaces.len();
        if simulated {
            let mut pools: HashMap<String, Vec<Arc<ResourceSlice>>> = HashMap::new();
            for slice in self.published.list() {
                pools.entry(pool(&slice.spec.driver, &slice.spec.pool.name)).or_default().push(slice);
            }
            for slice in pools.values().flat_map(|slices| plan::newest(slices)) {
                let spec = &slice.spec;
                let devices = spec.devices.iter().flatten();
                let tainted = devices.filter(|d| plan::matches(rule, &spec.driver, &spec.pool.name, &d.name));
                counts.published += tainted.count();
            }
            let claims = self.claims.list();
            let allocated = claims.iter().flat_map(|claim| results(claim));
            counts.allocated = allocated.filter(|r| plan::taints(rule, r)).count();
        }
        counts
    }
}
