use api::{Gvk, Schema};
use serde_json::{Value, json};

use super::*;
use crate::admission::tests::{parse, print};

fn range(limits: &Value) -> LimitRange {
    serde_json::from_value(json!({"metadata": {"name": "abc"}, "spec": {"limits": limits}})).unwrap()
}

/// Lets a range set its defaults and check an object; returns the object, and the errors.
fn limited(kind: &str, resource: &str, spec: &Value, limits: &Value) -> (Value, Vec<String>) {
    let schema = Schema::builtin();
    let object = json!({"metadata": {"name": "p"}, "spec": spec});
    let (mut tree, range) = (parse(&Gvk::new("", "v1", kind), &object), range(limits));
    if kind == "Pod" {
        set_defaults(&mut Edit::new(schema, &mut tree), &range);
    }
    (print(&tree), check(&View::new(schema, &tree), resource, &range))
}

/// Upstream's cases of `TestPodLimitFunc` and `TestPersistentVolumeClaimLimitFunc`.
#[test]
fn objects_within_ranges() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).unwrap();
    for case in &cases {
        let (kind, resource) = match case["kind"].as_str() {
            Some("pod") => ("Pod", "pods"),
            _ => ("PersistentVolumeClaim", "persistentvolumeclaims"),
        };
        let (_, errors) = limited(kind, resource, &case["spec"], &case["limits"]);
        assert_eq!(errors.is_empty(), case["fits"] == true, "{}: {errors:?}", case["name"]);
    }
    assert_eq!(cases.len(), 90);
}

fn two(limits: Value) -> Value {
    json!([
        {"type": "Pod", "max": {"cpu": "200m", "memory": "4Gi"}, "min": {"cpu": "50m", "memory": "2Mi"}},
        {"type": "Container", "max": {"cpu": "100m", "memory": "2Gi"}, "min": {"cpu": "25m", "memory": "1Mi"},
            "default": limits["limits"], "defaultRequest": limits["requests"]},
    ])
}

/// Upstream's cases of `TestMergePodResourceRequirements` and `TestPodLimitFuncApplyDefault`.
#[test]
fn defaults_are_set_and_noted() {
    let limits =
        two(json!({"limits": {"cpu": "75m", "memory": "10Mi"}, "requests": {"cpu": "50m", "memory": "5Mi"}}));
    let check = |spec: Value, want: Value, note: Option<&str>| {
        let (pod, _) = limited("Pod", "pods", &spec, &limits);
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array().into_iter().flatten() {
                assert_eq!(container["resources"], want, "{spec}");
            }
        }
        assert_eq!(pod["metadata"]["annotations"][ANNOTATION].as_str(), note, "{spec}");
    };
    let all =
        json!({"requests": {"cpu": "50m", "memory": "5Mi"}, "limits": {"cpu": "75m", "memory": "10Mi"}});
    check(
        json!({"containers": [{"name": "foo-0"}]}),
        all.clone(),
        Some(
            "LimitRanger plugin set: cpu, memory request for container foo-0; cpu, memory limit for container foo-0",
        ),
    );
    check(
        json!({"containers": [{"name": "foo-0"}], "initContainers": [{"name": "i"}]}),
        all,
        Some(
            "LimitRanger plugin set: cpu, memory request for container foo-0; cpu, memory limit for container foo-0; \
             cpu, memory request for init container i; cpu, memory limit for init container i",
        ),
    );
    check(
        json!({"containers": [{"name": "foo-0", "resources": {"requests": {"memory": "512Mi"}}}]}),
        json!({"requests": {"cpu": "50m", "memory": "512Mi"}, "limits": {"cpu": "75m", "memory": "10Mi"}}),
        Some(
            "LimitRanger plugin set: cpu request for container foo-0; cpu, memory limit for container foo-0",
        ),
    );
    let whole =
        json!({"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "200m", "memory": "1G"}});
    check(json!({"containers": [{"name": "foo-0", "resources": whole}]}), whole, None);
}

#[test]
fn texts() {
    let check = |resources: Value, item: Value, want: &[&str]| {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let (_, errors) = limited("Pod", "pods", &spec, &json!([item]));
        assert_eq!(errors, want, "{resources} {item}");
    };
    let item = |bound: &str, amount: Value| json!({"type": "Container", bound: amount});
    let cpu = |amount: &str| json!({"cpu": amount});
    check(
        json!({}),
        item("min", cpu("50m")),
        &["minimum cpu usage per Container is 50m.  No request is specified"],
    );
    check(
        json!({"requests": cpu("40m")}),
        item("min", cpu("50m")),
        &["minimum cpu usage per Container is 50m, but request is 40m"],
    );
    check(
        json!({"requests": cpu("60m"), "limits": cpu("40m")}),
        item("min", cpu("50m")),
        &["minimum cpu usage per Container is 50m, but limit is 40m"],
    );
    check(
        json!({}),
        item("max", cpu("1")),
        &["maximum cpu usage per Container is 1.  No limit is specified"],
    );
    check(
        json!({"limits": cpu("2")}),
        item("max", cpu("1000m")),
        &["maximum cpu usage per Container is 1, but limit is 2"],
    );
    check(
        json!({"requests": cpu("2"), "limits": cpu("1")}),
        item("max", cpu("1")),
        &["maximum cpu usage per Container is 1, but request is 2"],
    );
    check(
        json!({}),
        item("maxLimitRequestRatio", cpu("2")),
        &["cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"],
    );
    check(
        json!({"requests": cpu("1")}),
        item("maxLimitRequestRatio", cpu("2")),
        &["cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"],
    );
    check(
        json!({"requests": cpu("1"), "limits": cpu("3")}),
        item("maxLimitRequestRatio", cpu("2")),
        &["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
    );
    let claim = |spec: Value, item: Value, want: &[&str]| {
        let (_, errors) = limited("PersistentVolumeClaim", "persistentvolumeclaims", &spec, &json!([item]));
        assert_eq!(errors, want, "{spec}");
    };
    let storage = |amount: &str| json!({"storage": amount});
    let of = |bound: &str, amount: &str| json!({"type": "PersistentVolumeClaim", bound: storage(amount)});
    claim(
        json!({"resources": {"requests": storage("20Gi")}}),
        of("max", "10Gi"),
        &["maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi"],
    );
    claim(
        json!({}),
        of("max", "10Gi"),
        &["maximum storage usage per PersistentVolumeClaim is 10Gi.  No request is specified"],
    );
}

#[test]
fn several_errors() {
    let check = |errors: &[&str], want: Option<&str>| {
        let errors = errors.iter().map(|e| (*e).to_owned()).collect();
        assert_eq!(aggregate(errors).as_deref(), want);
    };
    check(&[], None);
    check(&["a"], Some("a"));
    check(&["a", "a"], Some("a"));
    check(&["a", "b", "a"], Some("[a, b]"));
}
