//! The decision about a quota's status.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use objects::quota::{self, Usage};

/// The time for which nothing more may have been reserved before less counts as used: a reservation comes before its
/// object.
///
/// DIFFERENCE: upstream lowers what is used whenever it counts less, and may so give away what a request has just
/// reserved.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// The decision about a quota's status.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// The status to write; `None` if it stays.
    pub(super) status: Option<ResourceQuotaStatus>,
    /// The time after which less may count as used.
    pub(super) wait: Option<Duration>,
}

/// Plans a quota's status from what was counted; amounts that could not be counted stay. `quiet` tells for how long
/// nobody has reserved more of an amount, as far as anybody ever did.
pub(super) fn plan(
    object: &ResourceQuota,
    counted: &Usage,
    quiet: impl Fn(&str) -> Option<Duration>,
) -> Plan {
    let hard = quota::read(object.spec.as_ref().and_then(|s| s.hard.as_ref()));
    let status = object.status.as_ref();
    let (seen, used) = (status.and_then(|s| s.hard.as_ref()), status.and_then(|s| s.used.as_ref()));
    let dirty = seen.is_none() || used.is_none() || quota::read(seen) != hard;
    let before = quota::read(used);
    let mut now = Usage::new();
    let mut wait: Option<Duration> = None;
    for name in hard.keys() {
        let (was, is) = (before.get(name), counted.get(name));
        let left = || quiet(name).and_then(|quiet| QUIET.checked_sub(quiet)).filter(|left| !left.is_zero());
        let amount = match (was, is) {
            (Some(was), Some(is)) if is < was => match left() {
                None => is,
                Some(left) => {
                    wait = Some(wait.map_or(left, |wait| wait.min(left)));
                    was
                }
            },
            (_, Some(is)) => is,
            (Some(was), None) => was,
            (None, None) => continue,
        };
        now.insert(name.clone(), amount.clone());
    }
    let changed = dirty || now != before;
    let written = || ResourceQuotaStatus { hard: Some(quota::write(&hard)), used: Some(quota::write(&now)) };
    Plan { status: changed.then(written), wait }
}
