//! Upstream's cases of `replica_calculator_test.go`.

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
    assert_eq!(cases.len(), 69);
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
