use jiff::Timestamp;
use serde_json::{Value, json};

use super::plan::*;
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn rule(name: &str, effect: &str, selector: &Value, seconds: i64) -> Arc<DeviceTaintRule> {
    let taint = json!({"key": name, "effect": effect, "timeAdded": at(seconds).to_string()});
    let meta = json!({"name": name, "uid": name, "generation": 1});
    Arc::new(
        serde_json::from_value(
            json!({"metadata": meta, "spec": {"deviceSelector": selector, "taint": taint}}),
        )
        .unwrap(),
    )
}

fn claim(tolerations: &Value) -> ResourceClaim {
    let result = |device: &str| json!({"request": "r", "driver": "d", "pool": "p", "device": device, "tolerations": tolerations});
    let results = json!([result("a"), result("b")]);
    let claim = json!({"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}});
    serde_json::from_value(claim).unwrap()
}

fn slice(generation: i64, taints: &Value) -> Arc<ResourceSlice> {
    let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": 1});
    let spec =
        json!({"driver": "d", "pool": pool, "devices": [{"name": "a", "taints": taints}, {"name": "b"}]});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap())
}

fn taint(effect: &str, seconds: i64) -> Value {
    json!({"key": "k", "value": "v", "effect": effect, "timeAdded": at(seconds).to_string()})
}

/// After how many seconds Pods have to go, and because of which rules.
#[test]
fn times() {
    let check = |tolerations: Value,
                 slices: &[Arc<ResourceSlice>],
                 rules: &[Arc<DeviceTaintRule>],
                 expected: Option<(i64, &[&str])>| {
        let got = of_claim(&claim(&tolerations), |_, _| slices.to_vec(), rules);
        let got =
            got.map(|e| (e.when.duration_since(at(0)).as_secs(), e.rules.into_iter().collect::<Vec<_>>()));
        let expected = expected.map(|(s, r)| (s, r.iter().map(|r| (*r).to_owned()).collect()));
        assert_eq!(got, expected, "{tolerations} {slices:?} {rules:?}");
    };
    let tolerates = |seconds: Value| json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    let tainted = [slice(1, &json!([taint("NoExecute", 10)]))];
    check(json!([]), &[slice(1, &json!([]))], &[], None);
    check(json!([]), &[slice(1, &json!([taint("NoSchedule", 10)]))], &[], None);
    check(json!([]), &tainted, &[], Some((10, &[])));
    check(tolerates(json!(null)), &tainted, &[], None);
    check(tolerates(json!(60)), &tainted, &[], Some((70, &[])));
    check(tolerates(json!(-60)), &tainted, &[], Some((10, &[])));
    // A toleration has to name the effect.
    check(json!([{"key": "k", "operator": "Exists"}]), &tainted, &[], Some((10, &[])));
    // An older generation says nothing.
    check(json!([]), &[tainted[0].clone(), slice(2, &json!([]))], &[], None);
    // The first of several taints counts.
    let two = [slice(1, &json!([taint("NoExecute", 10), taint("NoExecute", 5)]))];
    check(json!([]), &two, &[], Some((5, &[])));
    // Rules taint devices that nobody publishes, too.
    let one = rule("one", "NoExecute", &json!({"driver": "d", "device": "b"}), 20);
    check(json!([]), &[], std::slice::from_ref(&one), Some((20, &["one"])));
    check(json!([]), &tainted, std::slice::from_ref(&one), Some((10, &["one"])));
    check(json!([]), &[], &[rule("other", "NoExecute", &json!({"pool": "q"}), 20)], None);
    check(json!([]), &[], &[rule("none", "NoExecute", &json!(null), 20)], None);
}

/// The texts of upstream's condition.
#[test]
fn conditions() {
    let check = |effect: &str, counts: Counts, expected: [&str; 3]| {
        let condition = condition(&rule("r", effect, &json!({}), 0), counts, at(0));
        assert_eq!([&*condition.status, &*condition.reason, &*condition.message], expected);
        assert_eq!((condition.type_.as_str(), condition.observed_generation), (IN_PROGRESS, Some(1)));
    };
    let none = Counts::default();
    check("NoExecute", none, ["False", "NotStarted", ""]);
    let one = Counts { pods: 1, namespaces: 1, ..none };
    check("NoExecute", one, ["True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."]);
    let more = Counts { pods: 3, namespaces: 2, evicted: 2, ..none };
    let message =
        "3 pods need to be evicted in 2 different namespaces. 2 pods evicted since starting the controller.";
    check("NoExecute", more, ["True", "PodsPendingEviction", message]);
    let done = Counts { evicted: 1, ..none };
    check("NoExecute", done, ["False", "Completed", "1 pod evicted since starting the controller."]);
    check("NoSchedule", none, ["False", "OtherEffect", "Eviction only happens for the NoExecute effect."]);
    let would = Counts { published: 1, allocated: 2, pods: 1, namespaces: 1, evicted: 0 };
    let message = "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
    check("None", would, ["False", "NoEffect", message]);
}
