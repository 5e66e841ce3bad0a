//! Upstream's cases of `replica_calculator_test.go` and `utilization_test.go`.

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    current: i32,
    #[serde(default)]
    want: i32,
    /// A part of the error.
    error: Option<String>,
    /// Down and up.
    tolerances: Option<[f64; 2]>,
    resource: Option<String>,
    #[serde(default)]
    requests: Vec<String>,
    levels: Vec<Levels>,
    #[serde(default)]
    names: Vec<String>,
    target: i64,
    #[serde(default)]
    utilization: i32,
    #[serde(default)]
    average: i64,
    #[serde(default)]
    container: String,
    metric: Option<String>,
    #[serde(default)]
    usage: i64,
    ready: Option<Vec<String>>,
    started: Option<Vec<String>>,
    phases: Option<Vec<String>>,
    deleted: Option<Vec<bool>>,
}

/// A measurement: of the two containers of a Pod, or one value.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Levels {
    Of(Vec<i64>),
    One(i64),
}

const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// Go's zero time.
fn zero() -> Timestamp {
    Timestamp::from_second(ZERO_TIME).unwrap()
}

impl Case {
    fn pods(&self) -> Vec<Arc<MeasuredPod>> {
        let count = (self.current as usize).max(self.phases.as_ref().map_or(0, Vec::len));
        let pod = |i: usize| {
            let ready = self.ready.as_ref().and_then(|all| all.get(i)).map_or("True", String::as_str);
            let phase = self.phases.as_ref().map_or("Running", |all| all[i].as_str());
            let deleted = self.deleted.as_ref().is_some_and(|all| all[i]);
            let started = match self.started.as_ref().map(|all| all[i].as_str()) {
                None => zero(),
                Some("hot") => now(),
                Some(_) => now() - SignedDuration::from_mins(3),
            };
            let requests = match (&self.resource, self.requests.get(i)) {
                (Some(resource), Some(amount)) => json!({ resource.as_str(): amount }),
                _ => json!({}),
            };
            let container = |name: &str| json!({"name": name, "resources": {"requests": requests}});
            let pod = json!({
                "metadata": {"name": format!("test-pod-{i}"), "deletionTimestamp": deleted.then_some(NOW)},
                "spec": {"containers": [container("container1"), container("container2")]},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            });
            let mut pod = <MeasuredPod as client::Cached>::decode(pod.to_string().as_bytes()).unwrap();
            pod.started = Some(started);
            Arc::new(pod)
        };
        (0..count).map(pod).collect()
    }

    fn metrics(&self) -> PodMetrics {
        let name = |i: usize| match self.names.get(i) {
            Some(name) => Text::from(name.as_str()),
            None => Text::from(format!("test-pod-{i}")),
        };
        let value = |levels: &Levels| match (levels, self.container.as_str()) {
            (Levels::One(value), _) => Some(*value),
            (Levels::Of(all), "") => Some(all.iter().sum()),
            (Levels::Of(all), "container1") => all.first().copied(),
            (Levels::Of(all), _) => all.get(1).copied(),
        };
        let metric = |value: i64| PodMetric { at: zero(), window: SignedDuration::from_mins(1), value };
        let all = self.levels.iter().enumerate();
        all.filter_map(|(i, levels)| Some((name(i), metric(value(levels)?)))).collect()
    }

    fn check(&self) {
        let pods = self.pods();
        let [down, up] = self.tolerances.unwrap_or([0.1, 0.1]);
        let calculator = Calculator {
            pods: &pods,
            now: now(),
            tolerances: Tolerances { down, up },
            cpu_initialization: SignedDuration::from_mins(2),
            initial_readiness: SignedDuration::from_secs(10),
            wanted: self.current,
            present: self.current,
        };
        let values: Vec<i64> = self.metrics().values().map(|m| m.value).collect();
        let (got, want) = if let Some(resource) = &self.resource {
            let of = (self.container.as_str(), resource.as_str());
            let made = calculator.of_resource(self.metrics(), of, self.target as i32);
            let made = made.map(|m| (m.replicas, i64::from(m.utilization), m.average));
            (made, (self.want, i64::from(self.utilization), self.average))
        } else {
            let made = match self.metric.as_deref().unwrap() {
                "podMetric" => calculator.of_values(self.metrics(), "", self.target),
                "objectMetric" => calculator.of_total(values[0], self.target),
                "objectPerPodMetric" => Ok(calculator.of_share(values[0], self.target)),
                "externalMetric" => calculator.of_total(sum(&values), self.target),
                "externalPerPodMetric" => Ok(calculator.of_share(sum(&values), self.target)),
                other => panic!("{other}"),
            };
            (made.map(|m| (m.replicas, m.usage, 0)), (self.want, self.usage, 0))
        };
        match (&self.error, got) {
            (None, got) => assert_eq!(got, Ok(want), "{}", self.name),
            (Some(part), Err(error)) => assert!(error.contains(part), "{}: {error}", self.name),
            (Some(_), Ok(got)) => panic!("{}: {got:?}", self.name),
        }
    }
}

#[test]
fn replicas() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases/calculator.json")).unwrap();
    assert_eq!(cases.len(), 77);
    for case in &cases {
        case.check();
    }
}

#[test]
fn sums_end_at_the_greatest_number() {
    assert_eq!(sum(&[1, 2]), 3);
    assert_eq!(sum(&[i64::MAX, 1]), i64::MAX);
    assert_eq!(sum(&[]), 0);
}

/// A Pod of this name and phase, how many seconds ago it was started, and its condition `Ready` with the seconds since
/// then.
type Pod = (&'static str, &'static str, Option<i64>, Option<(&'static str, i64)>);

fn measured(&(name, phase, started, ready): &Pod) -> Arc<MeasuredPod> {
    let ago = |seconds: i64| (now() - SignedDuration::from_secs(seconds)).to_string();
    let ready = ready
        .map(|(status, since)| json!({"type": "Ready", "status": status, "lastTransitionTime": ago(since)}));
    let pod = json!({
        "metadata": {"name": name, "deletionTimestamp": (name == "deleted").then_some(NOW)},
        "spec": {"containers": []},
        "status": {"phase": phase, "startTime": started.map(ago), "conditions": Vec::from_iter(ready)},
    });
    Arc::new(<MeasuredPod as client::Cached>::decode(pod.to_string().as_bytes()).unwrap())
}

/// Upstream's cases of `TestGroupPods`.
#[test]
fn groups_of_pods() {
    type Metric = (&'static str, Option<(i64, i64)>);
    let check = |pods: &[Pod], metrics: &[Metric], resource: &str, want: (usize, [&[&str]; 3])| {
        let made: Vec<Arc<MeasuredPod>> = pods.iter().map(measured).collect();
        let metric = |(name, of): &Metric| {
            let (at, window) = match of {
                None => (zero(), SignedDuration::ZERO),
                Some((ago, window)) => {
                    (now() - SignedDuration::from_secs(*ago), SignedDuration::from_secs(*window))
                }
            };
            (Text::from(*name), PodMetric { at, window, value: 1 })
        };
        let calculator = Calculator {
            pods: &made,
            now: now(),
            tolerances: Tolerances { down: 0.1, up: 0.1 },
            cpu_initialization: SignedDuration::from_mins(2),
            initial_readiness: SignedDuration::from_secs(10),
            wanted: 1,
            present: 1,
        };
        let groups = calculator.groups(&metrics.iter().map(metric).collect(), resource);
        let got = [groups.unready, groups.missing, groups.ignored];
        let got = got.map(|names| names.into_iter().map(Text::as_str).collect::<Vec<_>>());
        assert_eq!((groups.ready, got), (want.0, want.1.map(<[&str]>::to_vec)), "{pods:?}");
    };
    let (b, l) = ("bentham", "lucretius");
    let ended = "Succeeded";
    let none: [&[&str]; 3] = [&[], &[], &[]];
    check(&[], &[], "cpu", (0, none));
    check(&[(b, ended, None, None)], &[(b, Some((0, 60)))], "memory", (1, none));
    let unready = |name: &'static [&'static str]| -> [&'static [&'static str]; 3] { [name, &[], &[]] };
    check(&[(l, ended, Some(0), None)], &[(l, None)], "cpu", (0, unready(&["lucretius"])));
    let fresh = [(b, ended, Some(60), Some(("True", 30)))];
    check(&fresh, &[(b, Some((0, 30)))], "cpu", (1, none));
    check(&fresh, &[(b, Some((0, 60)))], "cpu", (0, unready(&["bentham"])));
    let never = [(l, ended, Some(600), Some(("False", 594)))];
    check(&never, &[(l, None)], "cpu", (0, unready(&["lucretius"])));
    let old = [(b, ended, Some(180), Some(("True", 180)))];
    check(&old, &[(b, Some((120, 60)))], "cpu", (1, none));
    for since in [540, 590] {
        let was_ready = [(l, ended, Some(600), Some(("False", since)))];
        check(&was_ready, &[(l, None)], "cpu", (1, none));
    }
    let missing = ("epicurus", ended, Some(180), None);
    check(&[missing], &[], "cpu", (0, [&[], &["epicurus"], &[]]));
    let several = [(l, ended, Some(0), None), ("niccolo", ended, Some(180), Some(("True", 180))), missing];
    let metrics = [(l, None), ("niccolo", None)];
    check(&several, &metrics, "cpu", (1, [&["lucretius"], &["epicurus"], &[]]));
    check(&[("unscheduled", "Pending", None, None)], &[], "cpu", (0, unready(&["unscheduled"])));
    for (name, phase) in [("deleted", "Pending"), ("failed", "Failed")] {
        check(&[(name, phase, None, None)], &[(name, None)], "cpu", (0, [&[], &[], &[name]]));
    }
}

/// Upstream's `TestGetResourceUtilizationRatioBaseCase`, `TestGetResourceUtilizationRatioIgnorePodsWithNoRequest`,
/// `TestGetResourceUtilizationRatioExtraRequest` and `TestGetResourceUtilizationRatioNoRequests`; the ratio of
/// `TestGetMetricUsageRatioBaseCase` is part of the calculation. Pods with what they use, Pods with what they request.
#[test]
fn ratios_of_utilization() {
    let check = |used: &[(&str, i64)], requests: &[(&str, i64)], want: Result<(f64, (i32, i64)), &str>| {
        let metric = |value: i64| PodMetric { at: now(), window: SignedDuration::ZERO, value };
        let metrics = used.iter().map(|(name, value)| (Text::from(*name), metric(*value))).collect();
        let requests: Vec<(Text, i64)> = requests.iter().map(|(n, r)| (Text::from(*n), *r)).collect();
        let requests = requests.iter().map(|(name, request)| (name, *request)).collect();
        assert_eq!(utilization(&metrics, &requests, 50), want.map_err(str::to_owned), "{used:?}");
    };
    let (used, requests) = ([("p0", 50), ("p1", 76)], [("p0", 100), ("p1", 100)]);
    let good = Ok((1.26, (63, 63)));
    check(&used, &requests, good);
    check(&[used[0], used[1], ("no-request", 100)], &requests, good);
    check(&used, &[requests[0], requests[1], ("extra", 500)], good);
    check(&used, &[], Err("no metrics returned matched known pods"));
}
