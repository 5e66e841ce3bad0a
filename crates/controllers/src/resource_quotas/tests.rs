use serde_json::{Value, json};

use super::*;
use crate::resource_quotas::plan::Plan;
use crate::resource_quotas::views::Countable;

/// Sums what Pods take of a quota's amounts, without those that cannot be counted.
fn counted(quota: &ResourceQuota, pods: &[Value], unreadable: Option<&str>) -> Usage {
    let devices = DeviceClasses::default();
    let spec = quota.spec.clone().unwrap();
    let scopes = quota::scopes(&spec);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut usage = Usage::new();
    for name in spec.hard.iter().flat_map(|h| h.keys()) {
        let known = |kind: &Kind| Some(kind.resource().1) != unreadable;
        if Kind::counted_as(name, &devices).iter().all(known) {
            usage.insert(name.clone(), api::quantity::Quantity::default());
        }
    }
    for pod in pods {
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).unwrap();
        let one = pod.counted();
        if one.is_in_all(&scopes) {
            quota::add(&mut usage, &one.usage(now));
        }
    }
    let hard = spec.hard.unwrap();
    usage.retain(|name, _| hard.contains_key(name));
    usage
}

/// Upstream's 16 cases of `TestSyncResourceQuota`.
#[test]
fn statuses() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).unwrap();
    for case in &cases {
        let quota: ResourceQuota = serde_json::from_value(case["quota"].clone()).unwrap();
        let pods = case["pods"].as_array().unwrap();
        let usage = counted(&quota, pods, case["unreadable"].as_str());
        let got = plan(&quota, &usage, |_| None);
        let status = got.status.or(quota.status.clone()).unwrap();
        let mut want = case["status"].clone();
        if want["used"].is_null() {
            want["used"] = json!({});
        }
        let parsed = |value: &Value| {
            let list: Option<objects::quantity::ResourceList> =
                serde_json::from_value(value.clone()).unwrap();
            quota::read(list.as_ref())
        };
        let got = json!(status);
        assert_eq!(parsed(&got["hard"]), parsed(&want["hard"]), "{}", case["name"]);
        assert_eq!(parsed(&got["used"]), parsed(&want["used"]), "{}", case["name"]);
    }
    assert_eq!(cases.len(), 16);
}

fn of(hard: Value, status: Value) -> ResourceQuota {
    serde_json::from_value(json!({"spec": {"hard": hard}, "status": status})).unwrap()
}

fn amounts(of: &Value) -> Usage {
    let list: objects::quantity::ResourceList = serde_json::from_value(of.clone()).unwrap();
    quota::read(Some(&list))
}

#[test]
fn less_is_used_after_a_quiet_second() {
    let check = |used: Value, counted: Value, quiet: Option<u64>, want: Option<Value>, wait: Option<u64>| {
        let hard = json!({"pods": "5", "cpu": "3"});
        let quota = of(hard.clone(), json!({"hard": hard, "used": used}));
        let quiet = |name: &str| quiet.filter(|_| name == "pods").map(Duration::from_millis);
        let Plan { status, wait: waits } = plan(&quota, &amounts(&counted), quiet);
        assert_eq!(status.map(|s| json!(s.used)), want, "{used} {counted}");
        assert_eq!(waits, wait.map(Duration::from_millis), "{used} {counted}");
    };
    let both = |pods: &str, cpu: &str| json!({"pods": pods, "cpu": cpu});
    check(both("2", "1"), both("2", "1"), None, None, None);
    check(both("2", "1"), both("2", "1000m"), None, None, None);
    // More counts at once.
    check(both("2", "1"), both("3", "1"), Some(0), Some(both("3", "1")), None);
    check(both("2", "1"), both("1", "1"), None, Some(both("1", "1")), None);
    check(both("2", "1"), both("1", "1"), Some(1000), Some(both("1", "1")), None);
    check(both("2", "1"), both("1", "1"), Some(400), None, Some(600));
    // One amount's quiet is none of the other's concern.
    check(both("2", "2"), both("1", "1"), Some(400), Some(both("2", "1")), Some(600));
    check(json!({"pods": "2"}), both("1", "0"), Some(0), Some(both("2", "0")), Some(1000));
    // An amount that cannot be counted stays.
    check(both("2", "1"), json!({"pods": "2"}), None, None, None);
}

#[test]
fn new_limits_are_taken_over() {
    let check = |hard: Value, status: Value, counted: Value, want: Option<Value>| {
        let got = plan(&of(hard.clone(), status.clone()), &amounts(&counted), |_| None);
        assert_eq!(got.status.map(|s| json!(s)), want, "{hard} {status}");
    };
    let one = json!({"pods": "1"});
    check(one.clone(), json!({}), json!({"pods": "0"}), Some(json!({"hard": one, "used": {"pods": "0"}})));
    check(one.clone(), json!({}), json!({}), Some(json!({"hard": one, "used": {}})));
    let known = json!({"hard": {"pods": "1", "cpu": "1"}, "used": {"pods": "1", "cpu": "1"}});
    check(one.clone(), known, one.clone(), Some(json!({"hard": one, "used": one})));
    check(json!({}), json!({}), json!({}), Some(json!({"hard": {}, "used": {}})));
}

/// Upstream's 6 cases of `TestAddQuota`: a quota that lacks something gets its status, one that is whole does not. There is
/// one queue here, which is quick enough for both.
#[test]
fn what_a_quota_lacks() {
    let check = |name: &str, hard: Value, status: Value, counted: Value, want: bool| {
        let got = plan(&of(hard, status), &amounts(&counted), |_| None);
        assert_eq!(got.status.is_some(), want, "{name}");
    };
    let cpu = |amount: &str| json!({ "cpu": amount });
    let none = || cpu("0");
    check("no status", cpu("4"), json!({}), none(), true);
    check("no usage", cpu("4"), json!({"hard": cpu("4")}), none(), true);
    let extended = json!({"requests.example/foobars.example.com": "4"});
    let zero = json!({"requests.example/foobars.example.com": "0"});
    check("no usage", extended.clone(), json!({ "hard": extended }), zero, true);
    check("mismatch", cpu("4"), json!({"hard": cpu("6"), "used": none()}), none(), true);
    let unknown = json!({"foobars.example.com": "4"});
    check("nobody counts it", unknown.clone(), json!({"hard": unknown, "used": {}}), json!({}), false);
    check("ready", cpu("4"), json!({"hard": cpu("4"), "used": none()}), none(), false);
}
