//! How fast and how far a size may change (upstream: the second half of `horizontal.go`).

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior as Behavior,
};
use tokio::time::Instant;

/// Without rules a size may become this at once.
const SMALL: i32 = 4;

/// The limits of an autoscaler without rules of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    /// How far back a size that goes down looks at what was recommended.
    pub(super) window: Duration,
    /// How many times as large a size may become at once.
    pub(super) growth: i32,
}

/// Upstream's factor of growth.
pub(super) const GROWTH: i32 = 2;

/// A change of size that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// By how many replicas.
    pub(super) by: i32,
    pub(super) at: Instant,
}

/// The sizes that were recommended for an autoscaler and the changes that were made, as far back as anything reads
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    /// The sizes that were recommended, before they were limited.
    pub(super) recommended: Vec<(i32, Instant)>,
    pub(super) ups: Vec<Change>,
    pub(super) downs: Vec<Change>,
}

/// The bounds of a size, and the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) min: i32,
    pub(super) max: i32,
    pub(super) current: i32,
    /// The size that the metrics ask for.
    pub(super) desired: i32,
}

/// A size after limits, with the reasons and messages of two conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) size: i32,
    /// Why the target may be scaled now.
    pub(super) able: (&'static str, &'static str),
    /// Whether the size is limited, and why.
    pub(super) limited: bool,
    pub(super) limit: (&'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

fn seconds(n: i32) -> Duration {
    Duration::from_secs(u64::try_from(n).unwrap_or(0))
}

/// Whether something is at most as old as a time.
fn within(at: Instant, window: Duration, now: Instant) -> bool {
    now.saturating_duration_since(at) < window
}

impl History {
    /// Begins with the size that is there, if nothing is known.
    pub(super) fn begin(&mut self, current: i32, now: Instant) {
        if self.recommended.is_empty() {
            self.recommended.push((current, now));
        }
    }

    /// Limits a size, and remembers it.
    pub(super) fn limit(
        &mut self,
        sizes: Sizes,
        behavior: Option<&Behavior>,
        usual: Usual,
        now: Instant,
    ) -> Limited {
        let (stable, why, (size, limit)) = match behavior {
            None => {
                let stable = self.highest(sizes.desired, usual.window, now);
                (stable, DOWN_STABILIZED, without_rules(Sizes { desired: stable, ..sizes }, usual.growth))
            }
            Some(behavior) => {
                let rules = Rules::new(behavior, usual.window);
                let (stable, why) = self.stable(sizes, &rules, now);
                (stable, why, self.by_rules(Sizes { desired: stable, ..sizes }, &rules, now))
            }
        };
        let able = if stable == sizes.desired { READY } else { why };
        Limited { size, able, limited: size != stable, limit }
    }

    /// The highest of the sizes that were recommended lately.
    fn highest(&mut self, desired: i32, window: Duration, now: Instant) -> i32 {
        self.recommended.retain(|(_, at)| now.saturating_duration_since(*at) <= window);
        let highest = self.recommended.iter().map(|r| r.0).max();
        self.recommended.push((desired, now));
        highest.unwrap_or(desired).max(desired)
    }

    /// The size nearest to the current one that was not recommended against lately.
    fn stable(
        &mut self,
        sizes: Sizes,
        rules: &Rules<'_>,
        now: Instant,
    ) -> (i32, (&'static str, &'static str)) {
        let (up, down) = (rules.up_window, rules.down_window);
        let (mut lowest, mut highest) = (sizes.desired, sizes.desired);
        for (size, at) in &self.recommended {
            if within(*at, up, now) {
                lowest = lowest.min(*size);
            }
            if within(*at, down, now) {
                highest = highest.max(*size);
            }
        }
        let stable = sizes.current.max(lowest).min(highest);
        self.recommended.retain(|(_, at)| now.saturating_duration_since(*at) <= up.max(down));
        self.recommended.push((sizes.desired, now));
        let why = if sizes.desired >= sizes.current { UP_STABILIZED } else { DOWN_STABILIZED };
        (stable, why)
    }

    fn by_rules(&self, sizes: Sizes, rules: &Rules<'_>, now: Instant) -> (i32, (&'static str, &'static str)) {
        let Sizes { min, max, current, desired } = sizes;
        if desired > current {
            let limit = self.up_limit(current, rules.up, now).max(current);
            let (most, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > most {
                return (most, why);
            }
        } else if desired < current {
            let limit = self.down_limit(current, rules.down, now).min(current);
            let (least, why) = if min < limit { (limit, DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < least {
                return (least, why);
            }
        }
        (desired, WITHIN)
    }

    /// The size at the beginning of a period.
    fn at_start(&self, current: i32, period: i32, now: Instant) -> i32 {
        let sum = |changes: &[Change]| -> i32 {
            let of = changes.iter().filter(|c| within(c.at, seconds(period), now));
            of.fold(0, |sum, change| sum.saturating_add(change.by))
        };
        current.saturating_sub(sum(&self.ups)).saturating_add(sum(&self.downs))
    }

    /// The largest size to which rules let it grow.
    fn up_limit(&self, current: i32, rules: &HPAScalingRules, now: Instant) -> i32 {
        let proposals = policies(rules, true).into_iter().map(|policy| {
            let start = self.at_start(current, policy.period_seconds, now);
            if policy.type_ == "Pods" {
                start.saturating_add(policy.value)
            } else {
                // Rounded up: otherwise a small size would never grow.
                (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => proposals.min().unwrap_or(i32::MAX),
            _ => proposals.max().unwrap_or(i32::MIN),
        }
    }

    /// The smallest size to which rules let it shrink.
    fn down_limit(&self, current: i32, rules: &HPAScalingRules, now: Instant) -> i32 {
        let proposals = policies(rules, false).into_iter().map(|policy| {
            let start = self.at_start(current, policy.period_seconds, now);
            if policy.type_ == "Pods" {
                start.saturating_sub(policy.value)
            } else {
                (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32
            }
        });
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => proposals.max().unwrap_or(i32::MIN),
            _ => proposals.min().unwrap_or(i32::MAX),
        }
    }

    /// Remembers a change of size, if rules ask for it later.
    pub(super) fn changed(&mut self, behavior: Option<&Behavior>, from: i32, to: i32, now: Instant) {
        let Some(behavior) = behavior else { return };
        let (changes, rules, up) = if to > from {
            (&mut self.ups, &behavior.scale_up, true)
        } else {
            (&mut self.downs, &behavior.scale_down, false)
        };
        let default = HPAScalingRules::default();
        let policies = policies(rules.as_ref().unwrap_or(&default), up);
        let longest = policies.iter().map(|p| p.period_seconds).max().unwrap_or(0);
        changes.retain(|c| now.saturating_duration_since(c.at) <= seconds(longest));
        changes.push(Change { by: to.saturating_sub(from).saturating_abs(), at: now });
    }
}

/// The rules of an autoscaler.
struct Rules<'a> {
    up: &'a HPAScalingRules,
    down: &'a HPAScalingRules,
    up_window: Duration,
    down_window: Duration,
}

/// Rules that say nothing.
static SILENT: HPAScalingRules = HPAScalingRules {
    policies: None,
    select_policy: None,
    stabilization_window_seconds: None,
    tolerance: None,
};

impl<'a> Rules<'a> {
    fn new(behavior: &'a Behavior, window: Duration) -> Self {
        let (up, down) =
            (behavior.scale_up.as_ref().unwrap_or(&SILENT), behavior.scale_down.as_ref().unwrap_or(&SILENT));
        Self {
            up,
            down,
            up_window: up.stabilization_window_seconds.map_or(Duration::ZERO, seconds),
            down_window: down.stabilization_window_seconds.map_or(window, seconds),
        }
    }
}

/// The policies of rules; upstream's defaults where there are none.
fn policies(rules: &HPAScalingRules, up: bool) -> Vec<HPAScalingPolicy> {
    if let Some(policies) = rules.policies.as_ref().filter(|p| !p.is_empty()) {
        return policies.clone();
    }
    let policy = |type_: &str, value| HPAScalingPolicy { type_: type_.to_owned(), value, period_seconds: 15 };
    if up { vec![policy("Pods", 4), policy("Percent", 100)] } else { vec![policy("Percent", 100)] }
}

/// The limits where no rules are.
fn without_rules(sizes: Sizes, growth: i32) -> (i32, (&'static str, &'static str)) {
    let limit = sizes.current.saturating_mul(growth).max(SMALL);
    let (most, why) = if sizes.max > limit { (limit, UP_LIMIT) } else { (sizes.max, TOO_MANY) };
    if sizes.desired < sizes.min {
        (sizes.min, TOO_FEW)
    } else if sizes.desired > most {
        (most, why)
    } else {
        (sizes.desired, WITHIN)
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
