//! How many replicas a metric asks for (upstream: `replica_calculator.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use compact_str::CompactString as Text;
use jiff::{SignedDuration, Timestamp};

use super::pods::MeasuredPod;

/// A measurement of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PodMetric {
    /// When, and over which time before.
    pub(super) at: Timestamp,
    pub(super) window: SignedDuration,
    /// Thousandths.
    pub(super) value: i64,
}

/// The measurements of Pods, by their names.
pub(super) type PodMetrics = BTreeMap<Text, PodMetric>;

/// How far the ratio of a metric to its target may be from one before anything happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn hold(&self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The Pods of a target, and how they are looked at.
pub(super) struct Calculator<'a> {
    /// The Pods that the target's selector selects.
    pub(super) pods: &'a [Arc<MeasuredPod>],
    pub(super) now: Timestamp,
    pub(super) tolerances: Tolerances,
    /// How long after its start a Pod may be busy with starting.
    pub(super) cpu_initialization: SignedDuration,
    /// How long after its start a change of readiness counts as the first.
    pub(super) initial_readiness: SignedDuration,
    /// The target's replicas, as it wants them.
    pub(super) wanted: i32,
    /// The target's replicas, as there are.
    pub(super) present: i32,
}

/// The replicas that the use of a resource asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfResource {
    pub(super) replicas: i32,
    /// The use, as hundredths of what is requested.
    pub(super) utilization: i32,
    /// The average use of a Pod, in thousandths.
    pub(super) average: i64,
}

/// The replicas that a value asks for, and the value that the status shows, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfValue {
    pub(super) replicas: i32,
    pub(super) usage: i64,
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for targeted pods (pods might be unready)";

/// Go's zero time, which an absent time of a condition is there.
const ZERO_TIME: i64 = -62_135_596_800;

/// Pods by what their metrics mean.
#[derive(Default)]
struct Groups<'a> {
    ready: usize,
    unready: Vec<&'a Text>,
    missing: Vec<&'a Text>,
    ignored: Vec<&'a Text>,
}

impl Calculator<'_> {
    /// The replicas that the utilization of a resource asks for; `container` is "" for whole Pods.
    pub(super) fn of_resource(
        &self,
        metrics: PodMetrics,
        (container, resource): (&str, &str),
        target: i32,
    ) -> Result<OfResource, String> {
        let requests = || -> Result<BTreeMap<&Text, i64>, String> {
            self.pods.iter().map(|pod| Ok((&pod.name, pod.request(container, resource)?))).collect()
        };
        // Without the Pods' requests nothing but an error comes of it, so the fallback below is not asked for.
        let known = requests().unwrap_or_default();
        let fallback = |pod: &Text| {
            let request = i128::from(known.get(pod).copied().unwrap_or(0));
            clamp(request * i128::from(target.max(100)) / 100)
        };
        let ratio = |metrics: &PodMetrics| utilization(metrics, &requests()?, target);
        let (replicas, (utilization, average)) = self.of_pods(metrics, resource, fallback, ratio)?;
        Ok(OfResource { replicas, utilization, average })
    }

    /// The replicas that values of Pods ask for, of which the average has a target. `resource` is that of the values, if
    /// they are of one.
    pub(super) fn of_values(
        &self,
        metrics: PodMetrics,
        resource: &str,
        target: i64,
    ) -> Result<OfValue, String> {
        let ratio = |metrics: &PodMetrics| {
            let total: i128 = metrics.values().map(|m| i128::from(m.value)).sum();
            let usage = clamp(total / (metrics.len().max(1) as i128));
            Ok((usage as f64 / target as f64, usage))
        };
        let (replicas, usage) = self.of_pods(metrics, resource, |_| target, ratio)?;
        Ok(OfValue { replicas, usage })
    }

    /// The replicas that metrics of Pods ask for. `ratio` tells how far they are from the target, and what the status
    /// shows; a Pod without metrics may be taken for one with `fallback`.
    fn of_pods<T>(
        &self,
        mut metrics: PodMetrics,
        resource: &str,
        fallback: impl Fn(&Text) -> i64,
        ratio: impl Fn(&PodMetrics) -> Result<(f64, T), String>,
    ) -> Result<(i32, T), String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let groups = self.groups(&metrics, resource);
        for pod in groups.ignored.iter().chain(&groups.unready) {
            metrics.remove(*pod);
        }
        if metrics.is_empty() {
            return Err(NO_METRICS.to_owned());
        }
        let (before, shown) = ratio(&metrics)?;
        let unready_count = !groups.unready.is_empty() && before > 1.0;
        if !unready_count && groups.missing.is_empty() {
            let replicas = if self.tolerances.hold(before) {
                self.wanted
            } else {
                (before * groups.ready as f64).ceil() as i32
            };
            return Ok((replicas, shown));
        }
        // A Pod of which nothing is known must not add to the change: missing Pods use what keeps the size on a way down, and nothing
        // on a way up; Pods that are not ready use nothing yet.
        let mut put = |pod: &Text, value: i64| {
            let at = Timestamp::UNIX_EPOCH;
            metrics.insert(pod.clone(), PodMetric { at, window: SignedDuration::ZERO, value });
        };
        for pod in &groups.missing {
            if before < 1.0 {
                put(pod, fallback(pod));
            } else if before > 1.0 {
                put(pod, 0);
            }
        }
        if unready_count {
            groups.unready.iter().for_each(|pod| put(pod, 0));
        }
        let (after, _) = ratio(&metrics)?;
        let turns = before < 1.0 && after > 1.0 || before > 1.0 && after < 1.0;
        if self.tolerances.hold(after) || turns {
            return Ok((self.wanted, shown));
        }
        let replicas = (after * metrics.len() as f64).ceil() as i32;
        let turns = after < 1.0 && replicas > self.wanted || after > 1.0 && replicas < self.wanted;
        Ok((if turns { self.wanted } else { replicas }, shown))
    }

    fn groups(&self, metrics: &PodMetrics, resource: &str) -> Groups<'_> {
        let mut groups = Groups::default();
        for pod in self.pods {
            if pod.deleting || pod.phase == "Failed" {
                groups.ignored.push(&pod.name);
            } else if pod.phase == "Pending" {
                groups.unready.push(&pod.name);
            } else {
                match metrics.get(&pod.name) {
                    None => groups.missing.push(&pod.name),
                    Some(metric) if resource == "cpu" && self.is_starting(pod, metric) => {
                        groups.unready.push(&pod.name);
                    }
                    Some(_) => groups.ready += 1,
                }
            }
        }
        groups
    }

    /// Whether the use of the processor says nothing, because the Pod is starting.
    fn is_starting(&self, pod: &MeasuredPod, metric: &PodMetric) -> bool {
        let (Some(ready), Some(started)) = (pod.ready, pod.started) else { return true };
        let since = ready.since.or_else(|| Timestamp::from_second(ZERO_TIME).ok()).unwrap_or_default();
        let unready = ready.status == Some(false);
        let after = |time: Timestamp, by: SignedDuration| time.saturating_add(by).unwrap_or(Timestamp::MAX);
        if after(started, self.cpu_initialization) > self.now {
            unready || metric.at < after(since, metric.window)
        } else {
            unready && after(started, self.initial_readiness) > since
        }
    }

    /// The replicas that one value for all of them asks for, if the value itself has a target.
    pub(super) fn of_total(&self, usage: i64, target: i64) -> Result<OfValue, String> {
        let ratio = usage as f64 / target as f64;
        let replicas = if self.wanted == 0 {
            ratio.ceil() as i32
        } else if self.tolerances.hold(ratio) {
            self.wanted
        } else {
            if self.pods.is_empty() {
                return Err(format!("unable to calculate ready pods: {NO_PODS}"));
            }
            let ready = self.pods.iter().filter(|pod| pod.serves()).count();
            (ratio * ready as f64).ceil() as i32
        };
        Ok(OfValue { replicas, usage })
    }

    /// The replicas that one value for all of them asks for, if its share of each replica has a target.
    ///
    /// DIFFERENCE: where no replica is, upstream's share is what the processor makes of an infinite number; here it is
    /// the whole value.
    pub(super) fn of_share(&self, usage: i64, target: i64) -> OfValue {
        let ratio = usage as f64 / (target as f64 * f64::from(self.present));
        let replicas = if self.tolerances.hold(ratio) {
            self.present
        } else {
            (usage as f64 / target as f64).ceil() as i32
        };
        let share = if usage == i64::MAX {
            usage
        } else {
            (usage as f64 / f64::from(self.present.max(1))).ceil() as i64
        };
        OfValue { replicas, usage: share }
    }
}

/// The sum of values, at most the greatest number.
pub(super) fn sum(values: &[i64]) -> i64 {
    values.iter().fold(0, |sum: i64, value| sum.saturating_add(*value))
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n > 0 { i64::MAX } else { i64::MIN })
}

/// The ratio of utilization to its target, the utilization, and the average use of a Pod.
fn utilization(
    metrics: &PodMetrics,
    requests: &BTreeMap<&Text, i64>,
    target: i32,
) -> Result<(f64, (i32, i64)), String> {
    let (mut used, mut requested, mut count) = (0_i128, 0_i128, 0_i128);
    for (pod, metric) in metrics {
        let Some(request) = requests.get(pod) else { continue };
        used += i128::from(metric.value);
        requested += i128::from(*request);
        count += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let utilization = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
    Ok((f64::from(utilization) / f64::from(target), (utilization, clamp(used / count.max(1)))))
}

#[cfg(test)]
#[path = "calculator_tests.rs"]
mod tests;
