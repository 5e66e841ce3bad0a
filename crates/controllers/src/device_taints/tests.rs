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

const KEY: &str = "example.com/taint";

/// The slice of upstream's tests: of these devices the first one has these taints.
fn published(name: &str, pool: &str, generation: i64, taints: &Value) -> Arc<ResourceSlice> {
    let some = |value: &str, effect: &str| json!({"key": KEY, "value": value, "effect": effect, "timeAdded": at(0).to_string()});
    let devices = json!([
        {"name": "instance", "taints": taints},
        {"name": "instance-no-schedule", "taints": [some("", "NoSchedule")]},
        {"name": "instance-no-execute", "taints": [some("", "None"), some("", "NoExecute")]},
    ]);
    let pool = json!({"name": pool, "generation": generation, "resourceSliceCount": 1});
    let spec = json!({"driver": "some-driver", "pool": pool, "devices": devices});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
}

/// A claim that has this device.
fn in_use(device: &str, tolerations: &Value) -> ResourceClaim {
    let result = json!({"request": "req-1", "driver": "some-driver", "pool": "worker", "device": device,
        "tolerations": tolerations});
    let status = json!({"allocation": {"devices": {"results": [result]}}});
    serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}, "status": status})).unwrap()
}

fn mark(key: &str, value: &str, effect: &str) -> Value {
    json!({"key": key, "value": value, "effect": effect, "timeAdded": at(0).to_string()})
}

/// A rule that evicts, of this uid.
fn evicts(uid: &str, selector: &Value, seconds: i64) -> Arc<DeviceTaintRule> {
    let taint = json!({"key": KEY, "value": "something", "effect": "NoExecute", "timeAdded": at(seconds).to_string()});
    let spec = json!({"deviceSelector": selector, "taint": taint});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec})).unwrap())
}

/// A toleration of NoExecute, of all keys or of one and for ever or for some seconds.
fn tolerates(key: Option<&str>, seconds: Option<i64>) -> Value {
    json!({"operator": "Exists", "key": key, "effect": "NoExecute", "tolerationSeconds": seconds})
}

fn told(eviction: Option<Eviction>) -> Option<(i64, Vec<String>)> {
    eviction.map(|e| (e.when.duration_since(at(0)).as_secs(), e.rules.into_iter().collect()))
}

/// The cases of upstream's `TestController` in which a claim alone decides, and those of its `TestEviction`: after how
/// many seconds Pods have to go, and because of which rules.
#[test]
fn claims_of_upstream() {
    let check = |name: &str,
                 slices: &[Arc<ResourceSlice>],
                 tolerations: Value,
                 rules: &[Arc<DeviceTaintRule>],
                 want: Option<(i64, &[&str])>| {
        let of_pool = |driver: &str, pool: &str| {
            let is = |s: &&Arc<ResourceSlice>| s.spec.driver == driver && s.spec.pool.name == pool;
            slices.iter().filter(is).cloned().collect()
        };
        let got = told(of_claim(&in_use("instance", &tolerations), of_pool, rules));
        let want = want.map(|(s, rules)| (s, rules.iter().map(|r| (*r).to_owned()).collect()));
        assert_eq!(got, want, "{name}");
    };
    let none = json!([]);
    let of = |taints: &Value| published("worker-some-driver", "worker", 0, taints);
    let slice = of(&none);
    let slice2 = published("worker-some-driver-2", "worker-2", 1, &none);
    let something = mark(KEY, "something", "NoExecute");
    let tainted = [of(&json!([something])), slice2.clone()];
    let clean = [slice.clone(), slice2.clone()];
    let rule = evicts("1234", &json!({"driver": "some-driver"}), 0);
    let now: Option<(i64, &[&str])> = Some((0, &[]));
    check("untainted-claim", &clean, none.clone(), &[], None);
    check("tainted-claim-through-resourceslice", &tainted, none.clone(), &[], now);
    check("tainted-claim-through-rule", &[], none.clone(), std::slice::from_ref(&rule), Some((0, &["1234"])));
    let exactly = |key: &str, seconds: i64| json!([{"key": key, "operator": "Equal", "value": "something", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    let later = exactly(KEY, 3600);
    check("evict-pod-rule-later", &[], later.clone(), std::slice::from_ref(&rule), Some((3600, &["1234"])));
    check("evict-pod-later", &tainted, later.clone(), &[], Some((3600, &[])));
    let mut many = exactly("example.com/taint-other", 20);
    many.as_array_mut().unwrap().extend([tolerates(None, Some(60)), tolerates(None, Some(30))]);
    check("evict-pod-later-many", &tainted, many, &[], Some((30, &[])));
    check("evict-pod-toleration-mismatch", &tainted, exactly("example.com/taint-other", 60), &[], now);
    let forever = tolerates(None, None);
    check("no-evict-pod-toleration-forever", &tainted, json!([forever]), &[], None);
    let both = json!([tolerates(None, Some(60)), forever]);
    check("no-evict-pod-toleration-forever-many", &tainted, both, &[], None);
    let other = "example.com/taint-other";
    let twice = [of(&json!([mark(KEY, "", "NoExecute"), mark(other, "", "NoExecute")])), slice2.clone()];
    check("evict-pod-partial-toleration", &twice, json!([tolerates(Some(KEY), None)]), &[], now);
    let rules = [rule, evicts("1234-other", &json!({"device": "instance"}), 0)];
    let each = json!([tolerates(Some(KEY), Some(60)), tolerates(Some(other), Some(30))]);
    check("evict-pod-many-taints", &twice, each, &rules, Some((30, &["1234", "1234-other"])));
    let elsewhere = json!({"metadata": {"name": "s"}, "spec": {"driver": "some-driver",
        "pool": {"name": "worker", "generation": 0, "resourceSliceCount": 1},
        "devices": [{"name": "instance-other", "taints": [something]}]}});
    let elsewhere = [Arc::new(serde_json::from_value(elsewhere).unwrap()), slice2.clone()];
    check("no-evict-other-device", &elsewhere, none.clone(), &[], None);
    for effect in ["NoSchedule", "None", "unknown-effect"] {
        let weaker = [of(&json!([mark(KEY, "something", effect)])), slice2.clone()];
        check(effect, &weaker, none.clone(), &[], None);
    }
    let changed = [of(&json!([mark(KEY, "something-other", "NoExecute")])), slice2.clone()];
    check("eviction-change-taint", &changed, later, &[], now);
    let replaced = published("worker-some-driver-updated", "worker", 1, &none);
    check("cancel-eviction-remove-taint-in-new-slice", &[replaced, slice2.clone()], none.clone(), &[], None);
    check("cancel-eviction-remove-slice", &[slice2], none.clone(), &[], None);
    let shadow = published("worker-some-driver-other", "worker", 100, &none);
    check("a newer slice, until it is deleted", &[tainted[0].clone(), shadow], none, &[], None);
}

/// The Pod of two claims in upstream's `TestController`, and the messages of its rules.
#[test]
fn pods_of_upstream() {
    let of_device = |device: &str, rules: &[Arc<DeviceTaintRule>]| {
        of_claim(&in_use(device, &json!([])), |_, _| Vec::new(), rules).unwrap()
    };
    let select = |device: &str| json!({"driver": "some-driver", "device": device});
    let rules = [evicts("1234", &select("instance"), 0), evicts("5678", &select("instance-no-execute"), 40)];
    let both = of_device("instance", &rules).and(of_device("instance-no-execute", &rules));
    assert_eq!(told(Some(both)), Some((0, vec!["1234".to_owned(), "5678".to_owned()])));
    let check = |[published, allocated, pods, namespaces]: [usize; 4], begins: &str| {
        let counts = Counts { published, allocated, pods, namespaces, evicted: 0 };
        let condition =
            condition(&rule("evict", "None", &json!({"driver": "some-driver"}), 0), counts, at(0));
        let end = "if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
        assert_eq!(condition.message, format!("{begins} {end}"));
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "NoEffect"));
    };
    check(
        [3, 1, 1, 1],
        "3 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace",
    );
    check(
        [0, 3, 2, 2],
        "0 published devices selected. 3 allocated devices selected. 2 pods would be evicted in 2 different namespaces",
    );
    check(
        [0, 3, 2, 1],
        "0 published devices selected. 3 allocated devices selected. 2 pods would be evicted in 1 namespace",
    );
    let check = |pods: usize, namespaces: usize, evicted: usize, want: [&str; 3]| {
        let counts = Counts { pods, namespaces, evicted, ..Counts::default() };
        let condition = condition(&rule("evict", "NoExecute", &json!({}), 0), counts, at(0));
        assert_eq!([&*condition.status, &*condition.reason, &*condition.message], want);
    };
    check(0, 0, 0, ["False", "NotStarted", ""]);
    let pending = "PodsPendingEviction";
    check(1, 1, 0, ["True", pending, "1 pod needs to be evicted in 1 namespace."]);
    check(2, 2, 0, ["True", pending, "2 pods need to be evicted in 2 different namespaces."]);
    check(2, 1, 0, ["True", pending, "2 pods need to be evicted in 1 namespace."]);
    check(0, 0, 1, ["False", "Completed", "1 pod evicted since starting the controller."]);
    check(0, 0, 2, ["False", "Completed", "2 pods evicted since starting the controller."]);
}
