//! Which Pods end when, and how much time each has; pure. Upstream's rules.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use crate::pods::spec::{self, SYSTEM_CRITICAL};

/// The time that Pods of a priority have to end; an entry of upstream's `shutdownGracePeriodByPodPriority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GracePeriod {
    /// The least priority of the Pods.
    pub priority: i32,
    /// Their time in seconds.
    pub seconds: i64,
}

/// The two periods of a configuration that tells critical Pods from others only; none where the machine's shutdown is not
/// waited for. `total` is for all Pods, `critical` the part of it that critical ones have after the others.
pub fn two_periods(total: Duration, critical: Duration) -> Vec<GracePeriod> {
    let Some(others) = total.checked_sub(critical).filter(|_| !total.is_zero()) else { return Vec::new() };
    let period = |priority, time: Duration| GracePeriod { priority, seconds: time.as_secs() as i64 };
    vec![period(0, others), period(SYSTEM_CRITICAL, critical)]
}

/// The periods in the order in which their Pods end.
pub(super) fn in_order(mut periods: Vec<GracePeriod>) -> Vec<GracePeriod> {
    periods.sort_by_key(|period| period.priority);
    periods
}

/// How long all Pods take at most.
pub(super) fn total(periods: &[GracePeriod]) -> Duration {
    Duration::from_secs(periods.iter().map(seconds).fold(0, u64::saturating_add))
}

/// How long Pods of a period are waited for.
pub(super) fn seconds(period: &GracePeriod) -> u64 {
    u64::try_from(period.seconds).unwrap_or(0)
}

/// Each period with its Pods: those whose priority is its own or above it, and below that of the next. Pods below all
/// periods are with the first one.
pub(super) fn groups<T>(
    periods: &[GracePeriod],
    pods: Vec<T>,
    priority: impl Fn(&T) -> i32,
) -> Vec<(GracePeriod, Vec<T>)> {
    let mut groups: Vec<(GracePeriod, Vec<T>)> = periods.iter().map(|period| (*period, Vec::new())).collect();
    for pod in pods {
        let above = periods.partition_point(|period| period.priority <= priority(&pod));
        if let Some((_, of_group)) = groups.get_mut(above.saturating_sub(1)) {
            of_group.push(pod);
        }
    }
    groups
}

/// The grace in seconds of a Pod of a period: its own, if that is shorter.
pub(super) fn grace(pod: &Pod, period: &GracePeriod) -> i64 {
    let own = spec::spec(pod).termination_grace_period_seconds;
    own.map_or(period.seconds, |own| own.min(period.seconds))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn periods(pairs: &[(i32, i64)]) -> Vec<GracePeriod> {
        pairs
            .iter()
            .map(|(priority, seconds)| GracePeriod { priority: *priority, seconds: *seconds })
            .collect()
    }

    /// Upstream's `Test_migrateConfig`.
    #[test]
    fn two_periods_as_upstream_has_them() {
        let check = |total: u64, critical: u64, expected: &[(i32, i64)]| {
            let got = two_periods(Duration::from_secs(total), Duration::from_secs(critical));
            assert_eq!(got, periods(expected), "{total} {critical}");
        };
        check(300, 120, &[(0, 180), (SYSTEM_CRITICAL, 120)]);
        check(100, 0, &[(0, 100), (SYSTEM_CRITICAL, 0)]);
        check(0, 0, &[]);
        check(1, 100, &[]);
        check(5, 5, &[(0, 0), (SYSTEM_CRITICAL, 5)]);
    }

    /// Upstream's `Test_groupByPriority`, and priorities below all periods.
    #[test]
    fn pods_are_with_the_period_of_their_priority() {
        let check = |of: &[(i32, i64)], pods: &[i32], expected: &[&[i32]]| {
            let got = groups(&in_order(periods(of)), pods.to_vec(), |priority| *priority);
            let got: Vec<Vec<i32>> = got.into_iter().map(|(_, pods)| pods).collect();
            assert_eq!(got, expected, "{of:?}");
        };
        let migrated = [(0, 180), (SYSTEM_CRITICAL, 120)];
        check(&migrated, &[0, 1_000_000_000, SYSTEM_CRITICAL], &[&[0, 1_000_000_000], &[SYSTEM_CRITICAL]]);
        let four = [(1, 10), (2, 20), (3, 30), (4, 40)];
        check(&four, &[0, 1, 2, 3, 4, 5], &[&[0, 1], &[2], &[3], &[4, 5]]);
        check(&[(4, 40), (1, 10)], &[-5, 3, 4], &[&[-5, 3], &[4]]);
        assert_eq!(total(&periods(&four)), Duration::from_secs(100));
    }

    /// The graces of upstream's `TestManager`.
    #[test]
    fn a_pod_has_the_shorter_grace() {
        let check = |own: Option<i64>, seconds: i64, expected: i64| {
            let pod: Pod = serde_json::from_value(
                json!({"spec": {"containers": [], "terminationGracePeriodSeconds": own}}),
            )
            .unwrap();
            assert_eq!(grace(&pod, &GracePeriod { priority: 0, seconds }), expected, "{own:?} {seconds}");
        };
        check(None, 20, 20);
        check(Some(2), 20, 2);
        check(Some(2), 10, 2);
        check(Some(1000), 20, 20);
        check(None, 0, 0);
    }
}
