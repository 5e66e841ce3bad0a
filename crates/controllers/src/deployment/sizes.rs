//! The arithmetic of a rollout: the number of Pods of each ReplicaSet. Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::common::share;

/// The annotation of the number of Pods that a ReplicaSet's Deployment wanted when it was sized.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The annotation of the greatest number of Pods that its Deployment allowed then.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The way in which a Deployment replaces its Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    Recreate,
    /// New Pods replace old ones step by step, within numbers above the wanted number, and of unavailable Pods below
    /// it.
    Rolling {
        surge: i32,
        unavailable: i32,
    },
}

/// The number of Pods that a Deployment wants.
pub(super) fn wanted(d: &Deployment) -> i32 {
    d.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// The number of Pods that a ReplicaSet's spec wants.
pub(super) fn size(rs: &ReplicaSet) -> i32 {
    rs.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

pub(super) fn available(rs: &ReplicaSet) -> i32 {
    rs.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
}

pub(super) fn is_active(rs: &ReplicaSet) -> bool {
    size(rs) > 0
}

pub(super) fn strategy(d: &Deployment) -> Strategy {
    let strategy = d.spec.as_ref().and_then(|s| s.strategy.as_ref());
    if strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate") {
        return Strategy::Recreate;
    }
    let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
    let (surge, unavailable) = fenceposts(
        rolling.and_then(|r| r.max_surge.as_ref()),
        rolling.and_then(|r| r.max_unavailable.as_ref()),
        wanted(d),
    );
    // The wanted number and the surge together must be a number of the API.
    let surge = surge.min(i32::MAX - wanted(d).max(0));
    Strategy::Rolling { surge, unavailable: if wanted(d) == 0 { 0 } else { unavailable.min(wanted(d)) } }
}

/// Returns the surge, rounded up, and the unavailability, rounded down; if both come to nothing, one Pod may be
/// unavailable, because otherwise nothing could move.
fn fenceposts(surge: Option<&IntOrString>, unavailable: Option<&IntOrString>, wanted: i32) -> (i32, i32) {
    let surge = scaled(surge, wanted, true);
    let unavailable = scaled(unavailable, wanted, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Returns a number, or a percentage of `of`. Any other text counts as 0; the server does not let it in.
fn scaled(value: Option<&IntOrString>, of: i32, up: bool) -> i32 {
    let scaled = value.and_then(|v| share::scaled(v, i64::from(of), up).ok()).unwrap_or(0);
    i32::try_from(scaled).unwrap_or(if scaled < 0 { i32::MIN } else { i32::MAX })
}

pub(super) fn max_surge(d: &Deployment) -> i32 {
    if let Strategy::Rolling { surge, .. } = strategy(d) { surge } else { 0 }
}

pub(super) fn max_unavailable(d: &Deployment) -> i32 {
    if let Strategy::Rolling { unavailable, .. } = strategy(d) { unavailable } else { 0 }
}

pub(super) fn total<'a>(sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sum(sets.into_iter().map(|rs| size(rs)))
}

/// Adds any numbers of Pods, up to the largest number.
pub(super) fn sum(numbers: impl Iterator<Item = i32>) -> i32 {
    numbers.fold(0, i32::saturating_add)
}

/// Returns the size of the new ReplicaSet during a rollout; `current` is the size of all together.
pub(super) fn new_size(d: &Deployment, new: i32, current: i32) -> i32 {
    match strategy(d) {
        Strategy::Recreate => wanted(d),
        Strategy::Rolling { surge, .. } => {
            let limit = wanted(d) + surge;
            if current >= limit { new } else { new + (limit - current).min(wanted(d) - new) }
        }
    }
}

/// A ReplicaSet and the size that it should have.
pub(super) type Resize = (Arc<ReplicaSet>, i32);

/// Returns the new sizes of the old ReplicaSets that can shrink in a rolling update: first by their unavailable Pods,
/// then by available ones as long as enough are left.
pub(super) fn shrink_old(d: &Deployment, new: &Arc<ReplicaSet>, old: &[Arc<ReplicaSet>]) -> Vec<Resize> {
    let mut old: Vec<Resize> =
        old.iter().filter(|rs| is_active(rs)).map(|rs| (rs.clone(), size(rs))).collect();
    if old.is_empty() {
        return Vec::new();
    }
    let before = sum(old.iter().map(|(_, n)| *n));
    let min_available = wanted(d) - max_unavailable(d);
    let new_unavailable = size(new) - available(new);
    let mut budget =
        before.saturating_add(size(new)).saturating_sub(min_available).saturating_sub(new_unavailable);
    if budget <= 0 {
        return Vec::new();
    }
    by_age(&mut old, |r| &r.0);
    for (rs, n) in &mut old {
        let unhealthy = (*n - available(rs)).clamp(0, budget.max(0));
        *n -= unhealthy;
        budget -= unhealthy;
    }
    let all_available = sum(old.iter().map(|(rs, _)| available(rs))).saturating_add(available(new));
    let mut spare = all_available.saturating_sub(min_available).max(0);
    for (_, n) in &mut old {
        let surplus = (*n).min(spare);
        *n -= surplus;
        spare -= surplus;
    }
    old.retain(|(rs, n)| size(rs) != *n);
    old
}

/// Sorts by age, the oldest first, by name within a second.
pub(super) fn by_age<T>(sets: &mut [T], of: impl Fn(&T) -> &Arc<ReplicaSet>) {
    sets.sort_by_cached_key(|t| {
        let meta = &of(t).metadata;
        (meta.creation_timestamp.as_ref().map(|t| t.0), meta.name.clone())
    });
}

/// Returns the new sizes after the Deployment itself was scaled, or while it is paused: proportional, so that the
/// scaling moves the rollout neither forward nor back. The bool says whether a ReplicaSet that keeps its size still
/// needs its annotations written.
pub(super) fn scale(
    d: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
) -> (Vec<Resize>, bool) {
    if let Some(only) = active_or_latest(new, old) {
        let resize = (size(&only) != wanted(d)).then(|| (only, wanted(d)));
        return (resize.into_iter().collect(), false);
    }
    let active = |sets: &[Arc<ReplicaSet>]| -> Vec<Arc<ReplicaSet>> {
        sets.iter().filter(|rs| is_active(rs)).cloned().collect()
    };
    if new.is_some_and(|rs| is_saturated(d, rs)) {
        return (active(old).into_iter().map(|rs| (rs, 0)).collect(), false);
    }
    let Strategy::Rolling { surge, .. } = strategy(d) else { return (Vec::new(), false) };
    let mut all = active(old);
    all.extend(new.filter(|rs| is_active(rs)).cloned());
    let allowed = if wanted(d) > 0 { wanted(d) + surge } else { 0 };
    let to_add = allowed - total(&all);
    // Of ReplicaSets of one size, the newer grow first and the older shrink first.
    by_age(&mut all, |rs| rs);
    if to_add > 0 {
        all.reverse();
    }
    all.sort_by_key(|rs| Reverse(size(rs)));
    let mut added = 0;
    let mut sizes: Vec<Resize> = Vec::with_capacity(all.len());
    for rs in all {
        let share = proportion(d, &rs, to_add, added);
        added = added.saturating_add(share);
        let n = size(&rs).saturating_add(share);
        sizes.push((rs, n));
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = largest.saturating_add(to_add).saturating_sub(added).max(0);
    }
    (sizes, true)
}

/// Returns the only ReplicaSet with Pods, or the newest if none has; `None` if several have.
fn active_or_latest(new: Option<&Arc<ReplicaSet>>, old: &[Arc<ReplicaSet>]) -> Option<Arc<ReplicaSet>> {
    let mut active = old.iter().chain(new).filter(|rs| is_active(rs));
    match (active.next(), active.next()) {
        (Some(only), None) => Some(only.clone()),
        (Some(_), Some(_)) => None,
        (None, _) => new.cloned().or_else(|| {
            let mut old = old.to_vec();
            by_age(&mut old, |rs| rs);
            old.pop()
        }),
    }
}

fn annotated(rs: &ReplicaSet, key: &str) -> Option<i32> {
    let text = rs.metadata.annotations.as_ref()?.get(key)?;
    text.parse().ok().filter(|n| *n >= 0)
}

/// Returns the Deployment's size when a ReplicaSet was last written.
pub(super) fn desired_annotation(rs: &ReplicaSet) -> Option<i32> {
    annotated(rs, DESIRED)
}

/// Whether the new ReplicaSet has all the wanted Pods, and all are available.
fn is_saturated(d: &Deployment, rs: &ReplicaSet) -> bool {
    let n = wanted(d);
    size(rs) == n && desired_annotation(rs) == Some(n) && available(rs) == n
}

/// Returns a ReplicaSet's share of the Pods to add or (negative) remove.
fn proportion(d: &Deployment, rs: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    if size(rs) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(d, rs);
    let allowed = to_add - added;
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

fn fraction(d: &Deployment, rs: &ReplicaSet) -> i32 {
    if wanted(d) == 0 {
        return -size(rs);
    }
    let before = annotated(rs, MAX)
        .filter(|n| *n != 0)
        .or_else(|| d.status.as_ref().and_then(|s| s.replicas))
        .unwrap_or(0);
    if before == 0 {
        return 0;
    }
    let after = f64::from(size(rs)) * f64::from(wanted(d) + max_surge(d)) / f64::from(before);
    (after.round() as i32).saturating_sub(size(rs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(replicas: i32, surge: Value, unavailable: Value) -> Deployment {
        serde_json::from_value(json!({"spec": {
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        }}))
        .unwrap()
    }

    fn set(name: &str, age: i64, size: i32, available: i32, annotations: Value) -> Arc<ReplicaSet> {
        let created = jiff::Timestamp::from_second(1_000_000 - age).unwrap().to_string();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name, "creationTimestamp": created, "annotations": annotations},
                "spec": {"replicas": size, "selector": {}},
                "status": {"replicas": size, "availableReplicas": available},
            }))
            .unwrap(),
        )
    }

    /// Upstream's cases of `TestResolveFenceposts`.
    #[test]
    fn fenceposts_of_percentages() {
        let int_or = |v: &str| match v.parse() {
            Ok(n) => IntOrString::Int(n),
            Err(_) => IntOrString::String(v.to_owned()),
        };
        let check = |surge: Option<&str>, unavailable: Option<&str>, wanted: i32, want: (i32, i32)| {
            let (s, u) = (surge.map(int_or), unavailable.map(int_or));
            assert_eq!(
                fenceposts(s.as_ref(), u.as_ref(), wanted),
                want,
                "{surge:?} {unavailable:?} {wanted}"
            );
        };
        check(Some("0%"), Some("0%"), 0, (0, 1));
        check(Some("39%"), Some("39%"), 10, (4, 3));
        check(Some("56%"), None, 10, (6, 0));
        check(None, Some("99%"), 20, (0, 19));
        check(None, None, 10, (0, 1));
        check(Some("25%"), Some("25%"), 1, (1, 0));
        check(Some("2"), Some("0"), 3, (2, 0));
        check(Some("1000000000%"), None, i32::MAX, (i32::MAX, 0));
    }

    /// The largest numbers that the API lets in do not overflow.
    #[test]
    fn numbers_at_the_edge() {
        let d = deployment(i32::MAX, json!("1000000000%"), json!("100%"));
        assert_eq!(strategy(&d), Strategy::Rolling { surge: 0, unavailable: i32::MAX });
        assert_eq!(new_size(&d, 0, 0), i32::MAX);
        let some = deployment(5, json!("1000000000%"), json!(0));
        assert_eq!(max_surge(&some), 50_000_000);
        let sets: Vec<_> = (0..3).map(|i| set(&format!("s{i}"), i, i32::MAX, i32::MAX, json!({}))).collect();
        assert_eq!(total(&sets), i32::MAX);
        assert!(!shrink_old(&d, &sets[0], &sets[1..]).is_empty());
        scale(&d, Some(&sets[0]), &sets[1..]);
        scale(&some, Some(&sets[0]), &sets[1..]);
    }

    /// Upstream's cases of `TestDeploymentController_reconcileNewReplicaSet`.
    #[test]
    fn growth_of_the_new_set() {
        let check = |wanted: i32, surge: i32, old: i32, new: i32, want: i32| {
            let d = deployment(wanted, json!(surge), json!(0));
            let got = if new > wanted { wanted } else { new_size(&d, new, old + new) };
            assert_eq!(got, want, "{wanted} +{surge}: old {old} new {new}");
        };
        check(10, 0, 10, 0, 0);
        check(10, 2, 10, 0, 2);
        check(10, 2, 5, 0, 7);
        check(10, 2, 10, 2, 2);
        check(10, 2, 2, 11, 10);
    }

    /// Upstream's cases of `TestDeploymentController_reconcileOldReplicaSets` and of the scaling down after it.
    #[test]
    fn shrinking_of_the_old_sets() {
        let check = |wanted: i32, unavailable: i32, old: (i32, i32), new: (i32, i32), want: Option<i32>| {
            let d = deployment(wanted, json!(1), json!(unavailable));
            let old_set = set("old", 10, old.0, old.1, json!({}));
            let got = shrink_old(&d, &set("new", 0, new.0, new.1, json!({})), &[old_set]);
            assert_eq!(got.first().map(|r| r.1), want, "{wanted} -{unavailable}: old {old:?} new {new:?}");
        };
        check(10, 0, (10, 10), (0, 0), None);
        check(10, 2, (10, 10), (0, 0), Some(8));
        check(10, 2, (10, 8), (0, 0), Some(8));
        check(10, 2, (10, 8), (2, 0), Some(8));
        check(10, 2, (0, 0), (10, 10), None);
        check(10, 2, (1, 1), (10, 10), Some(0));
        check(1, 0, (1, 1), (1, 0), None);
        check(1, 0, (1, 1), (1, 1), Some(0));
    }

    #[test]
    fn unhealthy_pods_of_the_oldest_go_first() {
        let d = deployment(10, json!(0), json!(2));
        let old = [set("a", 30, 3, 3, json!({})), set("b", 20, 4, 0, json!({}))];
        let new = set("new", 0, 3, 3, json!({}));
        let got: Vec<_> = shrink_old(&d, &new, &old)
            .into_iter()
            .map(|(rs, n)| (rs.metadata.name.clone().unwrap(), n))
            .collect();
        assert_eq!(got, [("b".to_owned(), 2)], "two may go, and b has four that nobody misses");
    }

    /// Upstream's cases of `TestScale`: the sizes of the new and the old sets (oldest last), the Deployment's size
    /// before and now, and the sizes that the sets should have.
    #[test]
    fn proportional_scaling() {
        let check =
            |name: &str, now: i32, before: i32, surge: i32, new: Option<i32>, old: &[i32], want: &[i32]| {
                let d = deployment(now, json!(surge), json!(0));
                let marks = json!({DESIRED: before.to_string(), MAX: (before + surge).to_string()});
                let new_set = new.map(|n| set("new", 0, n, 0, marks.clone()));
                let old_sets: Vec<_> = old
                    .iter()
                    .enumerate()
                    .map(|(i, n)| set(&format!("old-{i}"), 10 + i as i64, *n, 0, marks.clone()))
                    .collect();
                let (resizes, _) = scale(&d, new_set.as_ref(), &old_sets);
                let after: Vec<i32> = new_set
                    .iter()
                    .chain(&old_sets)
                    .map(|rs| resizes.iter().find(|r| Arc::ptr_eq(&r.0, rs)).map_or(size(rs), |r| r.1))
                    .collect();
                assert_eq!(after, want, "{name}");
            };
        check("normal scaling event: 10 -> 12", 12, 10, 0, Some(10), &[], &[12]);
        check("normal scaling event: 10 -> 5", 5, 10, 0, Some(10), &[], &[5]);
        check("proportional scaling: 5 -> 10", 10, 5, 0, Some(2), &[3], &[4, 6]);
        check("proportional scaling: 5 -> 3", 3, 5, 0, Some(2), &[3], &[1, 2]);
        check("proportional scaling: 9 -> 4", 4, 9, 0, Some(8), &[1], &[4, 0]);
        check("proportional scaling: 7 -> 10", 10, 7, 0, Some(2), &[3, 2], &[3, 4, 3]);
        check("proportional scaling: 13 -> 8", 8, 13, 0, Some(2), &[8, 3], &[1, 5, 2]);
        check("leftover distribution, one new set: 3 -> 4", 4, 3, 0, Some(1), &[1, 1], &[2, 1, 1]);
        check("leftover distribution, only old sets", 4, 3, 0, None, &[1, 1, 1], &[2, 1, 1]);
        check("scale up from zero", 6, 6, 0, Some(0), &[0], &[6, 0]);
        check("scale down to zero", 0, 6, 0, Some(3), &[3], &[0, 0]);
        check("with surge: 5 -> 10 with 2", 10, 5, 2, Some(3), &[4], &[5, 7]);
    }
    /// Upstream's cases of `TestMaxUnavailable`.
    #[test]
    fn what_may_be_missing() {
        let check = |wanted: i32, unavailable: Value, want: i32| {
            assert_eq!(
                max_unavailable(&deployment(wanted, json!(1), unavailable.clone())),
                want,
                "{unavailable}"
            );
        };
        check(10, json!(5), 5);
        check(10, json!(10), 10);
        check(5, json!(10), 5);
        check(0, json!(10), 0);
        check(10, json!("50%"), 5);
        check(10, json!("100%"), 10);
        check(5, json!("100%"), 5);
        let mut recreated = deployment(10, json!(1), json!(1));
        recreated.spec.as_mut().unwrap().strategy =
            serde_json::from_value(json!({"type": "Recreate"})).unwrap();
        assert_eq!(max_unavailable(&recreated), 0);
    }

    /// Upstream's cases of `TestGetReplicaSetFraction`.
    #[test]
    fn fractions() {
        let check = |wanted: i32, told: i32, surge: i32, rs: i32, most: Option<&str>, want: i32| {
            let mut d = deployment(wanted, json!(surge), json!(1));
            d.status.get_or_insert_default().replicas = Some(told);
            let marks = most.map_or(json!({}), |most| json!({MAX: most}));
            assert_eq!(
                fraction(&d, &set("rs", 0, rs, 0, marks)),
                want,
                "{wanted} {told} {surge} {rs} {most:?}"
            );
        };
        check(0, 0, 0, 10, None, -10);
        check(10, 0, 0, 5, None, 0);
        check(10, 0, 0, 5, Some("0"), 0);
        check(120, 100, 0, 50, None, 10);
        check(120, 100, 0, 50, Some("0"), 10);
        check(120, 0, 0, 50, Some("100"), 10);
        check(120, 0, 10, 50, Some("110"), 9);
        check(10, 0, 0, 6, Some("12"), -1);
        check(100, 0, 10, 50, Some("130"), -8);
    }

    /// Upstream's cases of `TestNewRSNewReplicas`, beside a ReplicaSet of five.
    #[test]
    fn sizes_of_the_new_set() {
        let check = |kind: &str, wanted: i32, new: i32, surge: i32, want: i32| {
            let mut d = deployment(wanted, json!(surge), json!(1));
            d.spec.as_mut().unwrap().strategy.as_mut().unwrap().type_ = Some(kind.to_owned());
            assert_eq!(new_size(&d, new, 5), want, "{kind} {wanted} {new} {surge}");
        };
        check("RollingUpdate", 1, 5, 1, 5);
        check("RollingUpdate", 6, 2, 10, 6);
        check("Recreate", 3, 1, 1, 3);
    }

    /// Upstream's cases of `TestMinAvailable` about rolling updates: what is wanted without what may be missing. With the
    /// strategy `Recreate` nothing asks for it.
    #[test]
    fn what_must_be_there() {
        let check = |wanted: i32, unavailable: Value, want: i32| {
            let d = deployment(wanted, json!(1), unavailable.clone());
            assert_eq!(self::wanted(&d) - max_unavailable(&d), want, "{wanted} {unavailable}");
        };
        check(10, json!(5), 5);
        check(10, json!(10), 0);
        check(5, json!(10), 0);
        check(0, json!(10), 0);
        check(10, json!("60%"), 4);
        check(10, json!("100%"), 0);
        check(5, json!("100%"), 0);
    }

    /// Upstream's cases of `TestGetNonNegativeInt32FromAnnotation`.
    #[test]
    fn numbers_in_annotations() {
        let check = |annotations: Value, want: Option<i32>| {
            assert_eq!(annotated(&set("rs", 0, 0, 0, annotations.clone()), "test"), want, "{annotations}");
        };
        check(json!(null), None);
        for odd in ["invalid", "-1", "2147483648", "4294967296"] {
            check(json!({"test": odd, "foo": "2"}), None);
        }
        check(json!({"test": "0", "foo": "2"}), Some(0));
        check(json!({"test": "13", "foo": "2"}), Some(13));
        check(json!({"test": "2147483647", "foo": "2"}), Some(i32::MAX));
    }

    /// Upstream's cases of `TestDeploymentController_reconcileOldReplicaSets` as they are: the Pods that may be missing, the
    /// old set's size, the new one's, their available Pods, and the old set's size then.
    ///
    /// Those of `TestDeploymentController_cleanupUnhealthyReplicas` and
    /// `TestDeploymentController_scaleDownOldReplicaSetsForRollingUpdate` follow: here one function does both, as upstream
    /// does the one after the other.
    #[test]
    fn old_sets_shrink() {
        let check = |unavailable: i32, sizes: (i32, i32), available: (i32, i32), want: i32| {
            let d = deployment(10, json!(0), json!(unavailable));
            let old = [set("foo-old", 10, sizes.0, available.0, json!({}))];
            let got = shrink_old(&d, &set("foo-new", 0, sizes.1, available.1, json!({})), &old);
            let after = got.first().map_or(sizes.0, |r| r.1);
            assert_eq!(after, want, "-{unavailable}: {sizes:?} {available:?}");
        };
        check(0, (10, 0), (10, 0), 9);
        check(2, (10, 0), (10, 0), 8);
        check(2, (10, 0), (8, 0), 8);
        check(2, (10, 0), (9, 0), 8);
        check(2, (8, 2), (8, 0), 8);
        check(2, (0, 0), (10, 0), 0);
        check(2, (10, 0), (1, 0), 8);

        let unhealthy = |available: i32, most: i32, cleaned: i32| {
            let d = deployment(10, json!(2), json!(most));
            let got = shrink_old(
                &d,
                &set("new", 0, 0, 0, json!({})),
                &[set("foo-v2", 1, 10, available, json!({}))],
            );
            // More go as far as more than enough are available.
            let spare = (available - (10 - most)).max(0);
            assert_eq!(got.first().map_or(10, |r| r.1), 10 - cleaned - spare, "{available} {most}");
        };
        unhealthy(8, 1, 1);
        unhealthy(8, 3, 2);
        unhealthy(8, 0, 0);
        unhealthy(10, 3, 0);
    }
}
