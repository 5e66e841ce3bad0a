//! Upstream's cases of `horizontal_test.go` that go through one look at an autoscaler.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::pod_autoscalers::calculator::{Calculator, PodMetric, PodMetrics};
use crate::pod_autoscalers::limits::Usual;
use crate::pod_autoscalers::pods::MeasuredPod;
use crate::pod_autoscalers::targets::{self, Answer, Question};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    min: i32,
    max: i32,
    spec: i32,
    #[serde(default)]
    status: i32,
    #[serde(default)]
    want: i32,
    #[serde(default)]
    cpu: i32,
    #[serde(default)]
    metrics: Vec<Value>,
    #[serde(default)]
    levels: Vec<i64>,
    requests: Option<Vec<String>>,
    ready: Option<Vec<String>>,
    started: Option<Vec<String>>,
    phases: Option<Vec<String>>,
    deleted: Option<Vec<bool>>,
    conditions: Option<Value>,
    before: Option<Value>,
    up: Option<Value>,
    down: Option<Value>,
    utilization: Option<i32>,
    action: Option<String>,
    recommended: Option<Vec<(i32, u64)>>,
    /// Whether scaling to zero is on.
    #[serde(default)]
    zero: bool,
    #[serde(default)]
    gates: Vec<String>,
    /// The metrics APIs that fail: resource, custom, external.
    #[serde(default)]
    broken: Vec<String>,
    /// The reason for which the target's selector is no good.
    selector: Option<String>,
    /// Whether the target's scale cannot be read.
    #[serde(default)]
    unscaled: bool,
    /// Whether the target's scale cannot be written.
    #[serde(default)]
    stuck: bool,
}

const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn moment() -> Moment {
    Moment { now: now(), at: Instant::now() + Duration::from_hours(1) }
}

/// The outcome of a look at a target.
enum Decision {
    /// Nothing can be said.
    Nothing,
    Keep,
    Scale(Rescale),
}

impl Case {
    fn hpa(&self) -> HorizontalPodAutoscaler {
        let cpu = |target: Value| json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        let mut metrics = Vec::new();
        if self.cpu > 0 {
            metrics.push(cpu(json!({"type": "Utilization", "averageUtilization": self.cpu})));
        }
        metrics.extend(self.metrics.iter().cloned());
        if metrics.is_empty() {
            metrics.push(cpu(json!({"type": ""})));
        }
        let behavior = (self.up.is_some() || self.down.is_some())
            .then(|| json!({"scaleUp": self.up, "scaleDown": self.down}));
        let hpa = json!({
            "metadata": {"namespace": "test-namespace", "name": "test-hpa"},
            "spec": {
                "scaleTargetRef": {"kind": "ReplicationController", "name": "test-rc", "apiVersion": "v1"},
                "minReplicas": self.min, "maxReplicas": self.max, "behavior": behavior, "metrics": metrics,
            },
            "status": {
                "currentReplicas": self.spec, "desiredReplicas": self.spec, "conditions": self.before,
            },
        });
        serde_json::from_value(hpa).unwrap()
    }

    fn pods(&self) -> Vec<Arc<MeasuredPod>> {
        let count = self.requests.as_ref().map_or(self.status as usize, Vec::len);
        let pod = |i: usize| {
            let started = match self.started.as_ref().map(|all| all[i].as_str()) {
                None => "0001-01-01T00:00:00Z".parse().unwrap(),
                Some("hot") => now(),
                Some(_) => now() - SignedDuration::from_mins(3),
            };
            let request = self.requests.as_ref().map_or("1", |all| all[i].as_str());
            let half = format!("{}m", objects::quantity::parse_milli(request).unwrap() / 2);
            let container = |name: &str| json!({"name": name, "resources": {"requests": {"cpu": half}}});
            let ready = self.ready.as_ref().map_or("True", |all| all[i].as_str());
            let phase = self.phases.as_ref().map_or("Running", |all| all[i].as_str());
            let deleted = self.deleted.as_ref().is_some_and(|all| all[i]);
            let pod = json!({
                "metadata": {"name": format!("test-pod-{i}"), "deletionTimestamp": deleted.then_some(NOW)},
                "spec": {"containers": [container("container1"), container("container2")]},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            });
            let mut pod = <MeasuredPod as client::Cached>::decode(pod.to_string().as_bytes()).unwrap();
            pod.started = Some(started);
            if let Some(ready) = &mut pod.ready {
                ready.since = Some(started);
            }
            Arc::new(pod)
        };
        (0..count).map(pod).collect()
    }

    fn answer(&self, question: &Question<'_>) -> Result<Answer, String> {
        let api = match question {
            Question::Resource { .. } => "resource",
            Question::Pods { .. } | Question::Object { .. } => "custom",
            Question::External { .. } => "external",
        };
        if self.broken.iter().any(|broken| broken == api) {
            return Err("something went wrong".to_owned());
        }
        if self.levels.is_empty() {
            return Err(format!("no metrics returned from {api} metrics API"));
        }
        let of_pods = |value: &dyn Fn(i64) -> i64| -> PodMetrics {
            let metric = |level: i64| PodMetric {
                at: now(),
                window: SignedDuration::from_mins(1),
                value: value(level),
            };
            let named = |(i, level): (usize, &i64)| (format!("test-pod-{i}").into(), metric(*level));
            self.levels.iter().enumerate().map(named).collect()
        };
        Ok(match question {
            Question::Resource { container, resource } => {
                let half = |level: i64| if *resource == "cpu" { level / 2 } else { 512 * 1024 * 1000 };
                let parts = if container.is_empty() { 2 } else { 1 };
                Answer::Pods(of_pods(&|level| parts * half(level)))
            }
            Question::Pods { .. } => Answer::Pods(of_pods(&|level| level)),
            Question::Object { .. } => Answer::One(self.levels[0]),
            Question::External { .. } => Answer::Several(self.levels.clone()),
        })
    }

    fn conditions(&self) -> Vec<(String, String, String)> {
        let ok = [
            ("AbleToScale", "True", "SucceededRescale"),
            ("ScalingActive", "True", "ValidMetricFound"),
            ("ScalingLimited", "False", "DesiredWithinRange"),
        ];
        let mut all: Vec<_> =
            ok.map(|(t, s, r)| (t.to_owned(), s.to_owned(), r.to_owned())).into_iter().collect();
        let read = |list: &Value| -> Vec<(String, String, String)> {
            let text = |c: &Value, field: &str| c[field].as_str().unwrap().to_owned();
            let list = list.as_array().unwrap().iter();
            list.map(|c| (text(c, "type"), text(c, "status"), text(c, "reason"))).collect()
        };
        match &self.conditions {
            None => {}
            Some(Value::Object(over)) => {
                for condition in read(&over["over"]) {
                    match all.iter_mut().find(|c| c.0 == condition.0) {
                        Some(known) => *known = condition,
                        None => all.push(condition),
                    }
                }
            }
            Some(list) => all = read(list),
        }
        all
    }

    fn decide(&self, look: &mut Look<'_>, statuses: &mut Vec<MetricStatus>) -> Decision {
        let (hpa, pods, moment) = (look.hpa, self.pods(), look.moment);
        let mut history = History::default();
        match &self.recommended {
            None => history.begin(self.spec, moment.at),
            Some(all) => {
                let at = |ago: u64| moment.at - Duration::from_secs(ago);
                history.recommended = all.iter().map(|(size, ago)| (*size, at(*ago))).collect();
            }
        }
        let calculator = Calculator {
            pods: &pods,
            now: now(),
            tolerances: tolerances(hpa, 0.1, look.gates),
            cpu_initialization: SignedDuration::from_mins(2),
            initial_readiness: SignedDuration::from_secs(10),
            wanted: self.spec,
            present: self.status,
        };
        match look.begin(self.spec) {
            Begin::Disabled => Decision::Keep,
            Begin::Scale(to, reason) => Decision::Scale(Rescale { to, reason }),
            Begin::Measure => {
                let measured = match self.selector.as_deref() {
                    Some("SelectorRequired") => look.bad_selector("SelectorRequired", "why"),
                    Some("InvalidSelector") => look.bad_selector("InvalidSelector", "why"),
                    Some(_) => look.bad_selector("AmbiguousSelector", "why"),
                    None => {
                        let specs = hpa.spec.metrics.iter().flatten();
                        let made = specs.map(|spec| {
                            let question = targets::question(spec)?;
                            let answer = self.answer(&question);
                            let answer =
                                answer.map_err(|why| targets::unanswered(spec, "test-namespace", &why))?;
                            targets::proposal(spec, answer, &calculator)
                        });
                        look.measured(self.spec, made.collect())
                    }
                };
                statuses.clone_from(&measured.statuses);
                // Upstream's tests let sizes grow by this.
                let usual = Usual { window: Duration::from_mins(5), growth: 8 };
                if measured.replicas.is_some() {
                    let rescale = look.limited(self.spec, &measured, &mut history, usual);
                    rescale.map_or(Decision::Keep, Decision::Scale)
                } else {
                    look.unmeasured(self.spec, measured.statuses, &measured.error.unwrap());
                    Decision::Nothing
                }
            }
        }
    }

    /// Looks at an autoscaler; returns whether its target got another size, and what the metrics say.
    fn look(&self, look: &mut Look<'_>) -> (bool, Vec<MetricStatus>) {
        let mut statuses = Vec::new();
        if self.unscaled {
            look.no_scale("something went wrong");
            return (false, statuses);
        }
        let rescaled = match self.decide(look, &mut statuses) {
            Decision::Scale(rescale) if self.stuck => {
                look.not_rescaled(self.spec, &rescale, statuses.clone(), "something went wrong");
                false
            }
            Decision::Scale(rescale) => {
                look.rescaled(self.spec, &rescale, statuses.clone());
                true
            }
            Decision::Keep => {
                look.kept(self.spec, statuses.clone());
                false
            }
            Decision::Nothing => false,
        };
        (rescaled, statuses)
    }

    fn gates(&self) -> FeatureGates {
        let zero = self.zero.then_some("HPAScaleToZero=true");
        FeatureGates::parse(self.gates.iter().map(String::as_str).chain(zero)).unwrap()
    }

    fn check(&self) {
        let name = &self.name;
        let hpa = self.hpa();
        let mut look = Look::new(&hpa, self.gates(), moment());
        let (rescaled, statuses) = self.look(&mut look);
        let status = look.changed().cloned().unwrap_or_else(|| hpa.status.clone().unwrap());
        assert_eq!(status.desired_replicas, self.want, "{name}");
        assert_eq!(rescaled, self.spec != self.want, "{name}");
        let got: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone().unwrap_or_default()))
            .collect();
        assert_eq!(got, self.conditions(), "{name}");
        if let Some(action) = &self.action {
            let made = match self.want.cmp(&self.spec) {
                std::cmp::Ordering::Greater => "ScaleUp",
                std::cmp::Ordering::Less => "ScaleDown",
                std::cmp::Ordering::Equal => "None",
            };
            assert_eq!(made, action, "{name}");
        }
        if let Some(want) = self.utilization.map(|n| if n == 0 { self.overall() } else { n }) {
            let resource = statuses.iter().find_map(|s| s.resource.as_ref());
            let got = resource.and_then(|r| r.current.average_utilization);
            assert_eq!(got, Some(want), "{name}");
        }
    }

    /// The use by all Pods, in hundredths of their requests.
    fn overall(&self) -> i32 {
        let requests = self.requests.iter().flatten();
        let requested: i64 = requests.map(|r| objects::quantity::parse_milli(r).unwrap()).sum();
        (100 * self.levels.iter().sum::<i64>() / requested) as i32
    }
}

#[tokio::test(start_paused = true)]
async fn looks() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases/looks.json")).unwrap();
    assert_eq!(cases.len(), 95);
    for case in &cases {
        case.check();
    }
}

/// Upstream's case of `TestAvoidUnnecessaryUpdates`: nothing changes, so nothing is written.
#[tokio::test(start_paused = true)]
async fn what_is_known_is_not_written() {
    let case = json!({
        "name": "TestAvoidUnnecessaryUpdates", "min": 2, "max": 6, "spec": 2, "status": 2, "cpu": 80,
        "levels": [400, 500, 700], "requests": ["1.0", "1.0", "1.0"], "started": ["cool", "hot", "hot"],
        "recommended": [],
    });
    let case: Case = serde_json::from_value(case).unwrap();
    let before = (now() - SignedDuration::from_hours(1)).to_string();
    let said = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": before});
    let mut hpa = case.hpa();
    let status = json!({
        "currentReplicas": 2, "desiredReplicas": 2, "lastScaleTime": before,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageValue": "400m", "averageUtilization": 40}}}],
        "conditions": [
            said("AbleToScale", "ReadyForNewScale", "recommended size matches current size"),
            said("ScalingActive", "ValidMetricFound", "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"),
            said("ScalingLimited", "TooFewReplicas", "the desired replica count is less than the minimum replica count"),
        ],
    });
    hpa.status = serde_json::from_value(status).unwrap();
    let mut look = Look::new(&hpa, case.gates(), moment());
    assert!(!case.look(&mut look).0);
    assert_eq!(look.changed(), None);
}

/// Upstream's case of `TestReplicaCalcEmptyMetrics`.
#[test]
fn no_metrics() {
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100}});
    let spec = serde_json::from_value(json!({"type": "Resource", "resource": cpu})).unwrap();
    let unable = targets::unanswered(&spec, "n", "no metrics returned from resource metrics API");
    let want = "unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    assert!(unable.cause.ends_with(want), "{}", unable.cause);
}

fn hpa(metrics: Value) -> HorizontalPodAutoscaler {
    let hpa = json!({
        "metadata": {"namespace": "n", "name": "h"},
        "spec": {"scaleTargetRef": {"kind": "K", "name": "t"}, "minReplicas": 1, "maxReplicas": 5, "metrics": metrics},
    });
    serde_json::from_value(hpa).unwrap()
}

/// The conditions, Events and sentences of looks that fail.
#[tokio::test(start_paused = true)]
async fn failures() {
    let gates = FeatureGates::default();
    let said = |look: &Look<'_>| -> Vec<String> {
        let conditions = look.changed().unwrap().conditions.clone().unwrap_or_default();
        let conditions = conditions
            .into_iter()
            .map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason.unwrap(), c.message.unwrap()));
        conditions.chain(look.events.iter().map(|(_, reason, text)| format!("{reason}: {text}"))).collect()
    };
    let plain = hpa(json!([]));
    let mut look = Look::new(&plain, gates, moment());
    look.no_scale("something");
    assert_eq!(
        said(&look),
        [
            "AbleToScale=False FailedGetScale: the HPA controller was unable to get the target's current scale: something",
            "FailedGetScale: something",
        ]
    );
    let mut look = Look::new(&plain, gates, moment());
    look.begin(3);
    look.bad_selector("SelectorRequired", "selector is required");
    assert_eq!(
        said(&look)[1..],
        [
            "ScalingActive=False InvalidSelector: the HPA target's scale is missing a selector",
            "SelectorRequired: selector is required",
        ]
    );
    let mut look = Look::new(&plain, gates, moment());
    let rescale = Rescale { to: 4, reason: "cpu above target".to_owned() };
    look.not_rescaled(3, &rescale, Vec::new(), "no");
    assert_eq!(
        said(&look),
        [
            "AbleToScale=False FailedUpdateScale: the HPA controller was unable to update the target scale: no",
            "FailedRescale: New size: 4; reason: cpu above target; error: no",
        ]
    );
    let metric = json!({"name": "qps", "selector": {"matchLabels": {"a": "b"}}});
    let target = json!({"type": "AverageValue", "averageValue": "2"});
    let sources = hpa(json!([
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}}},
        {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": target}},
        {"type": "Object", "object": {"metric": {"name": "qps"}, "target": target,
            "describedObject": {"kind": "Ingress", "name": "i"}}},
        {"type": "External", "external": {"metric": metric, "target": target}},
        {"type": "Odd"},
    ]));
    let check = |i: usize, want: &str| {
        let spec = &sources.spec.metrics.as_ref().unwrap()[i];
        let unable = targets::unanswered(spec, "n", "why");
        assert_eq!(format!("{}: {}", unable.reason, unable.error), want);
    };
    check(
        0,
        "FailedGetResourceMetric: failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: why",
    );
    check(1, "FailedGetPodsMetric: failed to get pods metric value: unable to get metric qps: why");
    check(
        2,
        "FailedGetObjectMetric: failed to get object metric value: failed to get qps object metric: unable to get metric qps: why on Ingress n/i",
    );
    check(
        3,
        "FailedGetExternalMetric: failed to get qps external metric value: failed to get qps external metric: unable to get external metric n/qps/&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}: why",
    );
    check(4, "InvalidMetricSourceType: why");
    let odd = sources.spec.metrics.as_ref().unwrap().last().unwrap();
    assert_eq!(targets::question(odd).unwrap_err().cause, "unknown metric source type \"Odd\"");
    // One metric that cannot be told keeps the target from getting smaller, not from getting larger.
    let unable = || Err(targets::unable(odd, "why".to_owned()));
    let proposal =
        |replicas| Ok(Proposal { replicas, name: "m".to_owned(), status: MetricStatus::default() });
    let mut look = Look::new(&plain, gates, moment());
    let smaller = look.measured(3, vec![proposal(2), unable()]);
    assert_eq!(
        (smaller.replicas, smaller.error.as_deref()),
        (None, Some("invalid metrics (1 invalid out of 2), first error is: why"))
    );
    let larger = look.measured(3, vec![unable(), proposal(4)]);
    assert_eq!((larger.replicas, larger.metric.as_str(), larger.error.is_some()), (Some(4), "m", true));
}

#[test]
fn tolerances_of_each_direction() {
    let behavior = json!({"scaleUp": {"tolerance": "200m"}, "scaleDown": {"tolerance": "0"}});
    let mut hpa = hpa(json!([]));
    hpa.spec.behavior = serde_json::from_value(behavior).unwrap();
    let on = FeatureGates::default();
    assert_eq!(tolerances(&hpa, 0.1, on), Tolerances { down: 0.0, up: 0.2 });
    let off = FeatureGates::parse(["HPAConfigurableTolerance=false"]).unwrap();
    assert_eq!(tolerances(&hpa, 0.1, off), Tolerances { down: 0.1, up: 0.1 });
}
