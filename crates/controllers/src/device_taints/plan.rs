//! When Pods have to go since their devices are tainted, and what rules say of that.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice,
};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use objects::devices;

/// The effect that evicts Pods.
pub(super) const NO_EXECUTE: &str = "NoExecute";
/// The condition of rules that says how far an eviction is.
pub(super) const IN_PROGRESS: &str = "EvictionInProgress";
/// The shortest time between two states of a rule, in seconds.
pub(super) const PERIOD: i64 = 10;

/// The time from which a Pod has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) when: Timestamp,
    /// The rules that evict it, by uid.
    pub(super) rules: BTreeSet<String>,
}

impl Eviction {
    /// The earlier time, for all reasons.
    pub(super) fn and(self, other: Self) -> Self {
        Self { when: self.when.min(other.when), rules: &self.rules | &other.rules }
    }
}

/// The devices of a claim.
pub(super) fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.iter().filter_map(|s| s.allocation.as_ref());
    allocation.flat_map(|a| &a.devices).flat_map(|d| d.results.iter().flatten())
}

/// Whether a rule taints a device. One without a selector taints none.
pub(super) fn matches(rule: &DeviceTaintRule, driver: &str, pool: &str, device: &str) -> bool {
    rule.spec.device_selector.is_some() && devices::selects(rule, driver, pool, device)
}

/// The same of a device that is allocated.
pub(super) fn taints(rule: &DeviceTaintRule, device: &DeviceRequestAllocationResult) -> bool {
    matches(rule, &device.driver, &device.pool, &device.device)
}

/// The slices of the newest generation of a pool.
pub(super) fn newest(slices: &[Arc<ResourceSlice>]) -> impl Iterator<Item = &Arc<ResourceSlice>> {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    slices.iter().filter(move |slice| Some(slice.spec.pool.generation) == newest)
}

/// When a taint ends the use of a device; `None` if it is tolerated.
fn ends(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> Option<Timestamp> {
    let added = taint.time_added.as_ref()?.0;
    let tolerates =
        |t: &&DeviceToleration| t.effect.as_deref() == Some(NO_EXECUTE) && devices::tolerates(t, taint);
    let all: Vec<_> = tolerations.iter().filter(tolerates).map(|t| t.toleration_seconds).collect();
    if all.iter().any(Option::is_none) {
        return None; // forever
    }
    let seconds = all.into_iter().flatten().min().unwrap_or(0).max(0);
    Some(added.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// When the Pods of a claim have to go: `slices` has those of a pool, `rules` are those that evict.
pub(super) fn of_claim(
    claim: &ResourceClaim,
    slices: impl Fn(&str, &str) -> Vec<Arc<ResourceSlice>>,
    rules: &[Arc<DeviceTaintRule>],
) -> Option<Eviction> {
    let mut eviction: Option<Eviction> = None;
    let mut add = |when: Timestamp, rule: Option<&str>| {
        let new = Eviction { when, rules: rule.into_iter().map(str::to_owned).collect() };
        eviction = Some(match eviction.take() {
            Some(before) => before.and(new),
            None => new,
        });
    };
    for result in results(claim) {
        let tolerations = result.tolerations.as_deref().unwrap_or_default();
        let pool = slices(&result.driver, &result.pool);
        let mut devices = newest(&pool).flat_map(|slice| slice.spec.devices.iter().flatten());
        if let Some(device) = devices.find(|device| device.name == result.device) {
            let taints = device.taints.iter().flatten().filter(|taint| taint.effect == NO_EXECUTE);
            taints.filter_map(|taint| ends(taint, tolerations)).for_each(|when| add(when, None));
        }
        for rule in rules.iter().filter(|rule| taints(rule, result)) {
            if let Some(when) = ends(&devices::taint_of(rule), tolerations) {
                add(when, rule.metadata.uid.as_deref());
            }
        }
    }
    eviction
}

/// The numbers that the condition of a rule tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Published devices that the rule taints.
    pub(super) published: usize,
    /// Allocated devices that it taints.
    pub(super) allocated: usize,
    /// Pods that it evicts.
    pub(super) pods: usize,
    /// The namespaces of those.
    pub(super) namespaces: usize,
    /// Pods that it has evicted.
    pub(super) evicted: usize,
}

fn many(n: usize, one: &str, more: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {more}") }
}

/// The rule's condition that says how far the eviction is.
pub(super) fn condition(rule: &DeviceTaintRule, counts: Counts, since: Timestamp) -> Condition {
    let Counts { published, allocated, pods, namespaces, evicted } = counts;
    let mut message = String::new();
    let mut status = "False";
    let reason = match rule.spec.taint.effect.as_str() {
        NO_EXECUTE if pods > 0 => {
            status = "True";
            let pods = many(pods, "pod needs", "pods need");
            let namespaces = many(namespaces, "namespace", "different namespaces");
            message = format!("{pods} to be evicted in {namespaces}.");
            "PodsPendingEviction"
        }
        NO_EXECUTE if evicted > 0 => "Completed",
        NO_EXECUTE => "NotStarted",
        "None" => {
            let published = many(published, "published device", "published devices");
            let allocated = many(allocated, "allocated device", "allocated devices");
            let pods = many(pods, "pod", "pods");
            let namespaces = many(namespaces, "namespace", "different namespaces");
            message = format!(
                "{published} selected. {allocated} selected. {pods} would be evicted in {namespaces} if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
            );
            "NoEffect"
        }
        _ => {
            "Eviction only happens for the NoExecute effect.".clone_into(&mut message);
            "OtherEffect"
        }
    };
    if evicted > 0 {
        if !message.is_empty() {
            message.push(' ');
        }
        message.push_str(&many(evicted, "pod", "pods"));
        message.push_str(" evicted since starting the controller.");
    }
    Condition {
        type_: IN_PROGRESS.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: rule.metadata.generation,
        last_transition_time: Time(since),
    }
}

/// The condition that a rule has.
pub(super) fn existing(rule: &DeviceTaintRule) -> Option<&Condition> {
    let conditions = rule.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().find(|c| c.type_ == IN_PROGRESS)
}
