//! The delay of Pods that replace failed ones.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::views::PodView;

/// The delay after the first failure; each further one doubles it.
const FIRST: Duration = Duration::from_secs(10);
/// The longest delay.
const LONGEST: Duration = Duration::from_mins(10);

/// The failures of a Job's Pods since the last success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) failures: i32,
    pub(super) last: Option<Timestamp>,
}

/// The time at which a Pod ended.
pub(super) fn ended(pod: &PodView) -> Timestamp {
    pod.task().and_then(|t| t.finished).or(pod.created).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Backoff {
    /// The failures after Pods that have ended since.
    pub(super) fn after(self, succeeded: &[Arc<PodView>], failed: &[Arc<PodView>]) -> Self {
        let last = |pods: &[Arc<PodView>]| pods.iter().map(|p| ended(p)).max();
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        match (last(succeeded), last(failed)) {
            (None, None) => self,
            (None, failure) => {
                Self { failures: self.failures.saturating_add(count(failed.len())), last: failure }
            }
            (Some(_), None) => Self::default(),
            (Some(success), Some(failure)) => {
                let later = failed.iter().filter(|p| ended(p) > success).count();
                Self { failures: count(later), last: Some(failure).filter(|_| later > 0) }
            }
        }
    }

    /// The time for which no Pod is made.
    pub(super) fn remaining(self, now: Timestamp) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let Some(doublings) = self.failures.checked_sub(1).and_then(|n| u32::try_from(n).ok()) else {
            return Duration::ZERO;
        };
        let factor = 2u32.checked_pow(doublings).unwrap_or(u32::MAX);
        let delay = FIRST.saturating_mul(factor).min(LONGEST);
        // DIFFERENCE: an end that lies ahead, by a node's clock or by a Pod's status that anybody wrote, counts as now;
        // upstream's waits for that time too.
        let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        delay.saturating_sub(passed)
    }

    /// The time for which no Pod is made for an index, whose last Pod is this one.
    pub(super) fn remaining_of(last: &PodView, now: Timestamp) -> Duration {
        let before = last.task().map_or(0, |t| t.failures.saturating_add(t.ignored));
        Self { failures: before.saturating_add(1), last: Some(ended(last)) }.remaining(now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::views::tests::view;

    const NOW: i64 = 10_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pods(ends: &[i64]) -> Vec<Arc<PodView>> {
        let pod = |end: &i64| {
            let state = json!({"terminated": {"finishedAt": at(*end).to_string()}});
            Arc::new(view(
                &json!({"metadata": {}, "status": {"containerStatuses": [{"name": "c", "state": state}]}}),
            ))
        };
        ends.iter().map(pod).collect()
    }

    /// Upstream's cases of `TestNewBackoffRecord`.
    #[test]
    fn failures() {
        let check = |old: (i32, Option<i64>), ok: &[i64], bad: &[i64], want: (i32, Option<i64>)| {
            let made = |(failures, last): (i32, Option<i64>)| Backoff { failures, last: last.map(at) };
            assert_eq!(made(old).after(&pods(ok), &pods(bad)), made(want), "{old:?} {ok:?} {bad:?}");
        };
        check((0, None), &[], &[], (0, None));
        check((0, None), &[NOW - 60], &[], (0, None));
        check((0, None), &[], &[NOW - 60], (1, Some(NOW - 60)));
        check((0, None), &[NOW - 120], &[NOW - 60], (1, Some(NOW - 60)));
        check((1, Some(NOW - 60)), &[NOW], &[], (0, None));
        check((1, Some(NOW - 3600)), &[], &[NOW - 60, NOW - 120, NOW - 30], (4, Some(NOW - 30)));
        check((1, Some(NOW - 60)), &[NOW], &[NOW - 30], (0, None));
        check((1, Some(NOW - 60)), &[NOW - 30], &[NOW], (1, Some(NOW)));
        check((2, None), &[], &[], (2, None));
        check((1, None), &[], &[NOW - 60, NOW - 30], (3, Some(NOW - 30)));
        check((1, None), &[NOW - 45], &[NOW - 60, NOW - 30, NOW - 45], (1, Some(NOW - 30)));
        check((i32::MAX, None), &[], &[NOW], (i32::MAX, Some(NOW)));
    }

    /// Upstream's cases of `TestGetRemainingBackoffTime` and `TestGetRemainingBackoffTimePerIndex`.
    #[test]
    fn delays() {
        let check = |failures: i32, ago: i64, want: u64| {
            let backoff = Backoff { failures, last: Some(at(NOW - ago)) };
            assert_eq!(backoff.remaining(at(NOW)).as_secs(), want, "{failures} {ago}");
        };
        check(0, 0, 0);
        check(1, 0, 10);
        check(1, 4, 6);
        check(1, 60, 0);
        check(2, 2, 18);
        check(3, 10, 30);
        check(6, 0, 320);
        check(7, 0, 600);
        check(100, 0, 600);
        check(100, 60, 540);
        check(i32::MAX, 600, 0);
        check(1, -3600, 10);
        assert_eq!(Backoff { failures: 1, last: None }.remaining(at(NOW)), Duration::ZERO);
        let of = |failures: &str, ignored: &str, end: i64| {
            let annotations = json!({
                "batch.kubernetes.io/job-index-failure-count": failures,
                "batch.kubernetes.io/job-index-ignored-failure-count": ignored,
            });
            let state = json!({"terminated": {"finishedAt": at(end).to_string()}});
            let pod = view(&json!({"metadata": {"annotations": annotations},
                "status": {"containerStatuses": [{"name": "c", "state": state}]}}));
            Backoff::remaining_of(&pod, at(NOW)).as_secs()
        };
        assert_eq!(of("0", "0", NOW), 10);
        assert_eq!(of("1", "0", NOW - 1), 19);
        assert_eq!(of("1", "2", NOW), 80);
        assert_eq!(of("x", "", NOW), 10);
    }
}
