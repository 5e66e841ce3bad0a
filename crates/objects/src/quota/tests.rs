use serde_json::{Value, json};

use super::*;

fn usage(counted: &Counted) -> Value {
    json!(write(&counted.usage(Timestamp::from_second(1000).unwrap())))
}

fn pod(value: Value) -> Counted {
    Counted::pod(&serde_json::from_value(value).unwrap())
}

fn container(requests: Value, limits: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
}

/// Upstream's cases of `TestPodEvaluatorUsage`.
#[test]
fn pods() {
    let check = |value: Value, want: Value| assert_eq!(usage(&pod(value.clone())), want, "{value}");
    let one = |requests: Value, limits: Value| json!({"spec": {"containers": [container(requests, limits)]}});
    let init = |requests: Value, limits: Value| json!({"spec": {"containers": [], "initContainers": [container(requests, limits)]}});
    for of in [one, init] {
        check(
            of(json!({"cpu": "1m"}), json!({"cpu": "2m"})),
            json!({"count/pods": "1", "pods": "1", "cpu": "1m", "requests.cpu": "1m", "limits.cpu": "2m"}),
        );
        check(
            of(json!({"memory": "1Mi"}), json!({"memory": "2Mi"})),
            json!({"count/pods": "1", "pods": "1", "memory": "1Mi", "requests.memory": "1Mi", "limits.memory": "2Mi"}),
        );
        check(
            of(json!({"ephemeral-storage": "32Mi"}), json!({"ephemeral-storage": "64Mi"})),
            json!({"count/pods": "1", "pods": "1", "ephemeral-storage": "32Mi",
                "requests.ephemeral-storage": "32Mi", "limits.ephemeral-storage": "64Mi"}),
        );
        check(
            of(json!({"hugepages-2Mi": "100Mi"}), json!({})),
            json!({"count/pods": "1", "pods": "1", "hugepages-2Mi": "100Mi", "requests.hugepages-2Mi": "100Mi"}),
        );
        check(
            of(json!({"example.com/dongle": "3"}), json!({"example.com/dongle": "3"})),
            json!({"count/pods": "1", "pods": "1", "requests.example.com/dongle": "3"}),
        );
    }
    let several = json!({"spec": {
        "initContainers": [container(json!({"cpu": "200m", "memory": "1Gi"}), json!({"cpu": "400m", "memory": "2Gi"}))],
        "containers": [
            container(json!({"cpu": "100m", "memory": "1Gi"}), json!({"cpu": "1", "memory": "2Gi"})),
            container(json!({"cpu": "50m", "memory": "1Gi"}), json!({"cpu": "50m", "memory": "1Gi"}))],
    }});
    check(
        several,
        json!({"count/pods": "1", "pods": "1", "cpu": "200m", "requests.cpu": "200m", "limits.cpu": "1050m",
            "memory": "2Gi", "requests.memory": "2Gi", "limits.memory": "3Gi"}),
    );
    let ended = |phase: &str| json!({"spec": {"containers": [container(json!({"cpu": "1"}), json!({}))]}, "status": {"phase": phase}});
    for phase in ["Succeeded", "Failed"] {
        check(ended(phase), json!({"count/pods": "1"}));
    }
    let deleted = |second: i64, grace: i64| {
        let time = Timestamp::from_second(second).unwrap().to_string();
        json!({"metadata": {"deletionTimestamp": time, "deletionGracePeriodSeconds": grace}})
    };
    check(deleted(900, 30), json!({"count/pods": "1"}));
    check(deleted(990, 30), json!({"count/pods": "1", "pods": "1"}));
}

/// Upstream's cases of `TestPodConstraintsFunc`.
#[test]
fn what_pods_must_say() {
    let check = |spec: Value, limited: &[&str], want: Result<(), &str>| {
        let got = pod(json!({ "spec": spec })).says_enough(limited.iter().copied());
        assert_eq!(got, want.map_err(str::to_owned), "{spec} {limited:?}");
    };
    let named = |name: &str, requests: Value| json!({"name": name, "resources": {"requests": requests}});
    let memory = |name: &str| named(name, json!({"memory": "1Mi"}));
    check(json!({"containers": [memory("a")]}), &["memory"], Ok(()));
    check(json!({"containers": [memory("a")]}), &["memory", "cpu"], Err("must specify cpu for: a"));
    check(
        json!({"containers": [memory("b"), memory("a")], "initContainers": [memory("i")]}),
        &["cpu", "limits.memory", "pods"],
        Err("must specify cpu for: a,b,i; limits.memory for: a,b,i"),
    );
    check(json!({"containers": [memory("a")]}), &["ephemeral-storage", "requests.example.com/x"], Ok(()));
    let of_pod = json!({"requests": {"cpu": "1"}});
    check(json!({"containers": [memory("a")], "resources": of_pod}), &["cpu"], Ok(()));
}

/// Upstream's cases of `TestPodEvaluatorMatchingScopes` and those of priority classes.
#[test]
fn scopes_choose() {
    let check = |spec: Value, want: &[&str]| {
        let pod = pod(json!({ "spec": spec }));
        let all = [
            "Terminating",
            "NotTerminating",
            "BestEffort",
            "NotBestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
            "VolumeAttributesClass",
        ];
        let scope = |name: &str| ScopedResourceSelectorRequirement {
            scope_name: name.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        };
        let got: Vec<&str> = all.into_iter().filter(|s| pod.is_in(&scope(s))).collect();
        assert_eq!(got, want, "{spec}");
    };
    check(json!({"containers": []}), &["NotTerminating", "BestEffort"]);
    check(json!({"containers": [], "activeDeadlineSeconds": 5}), &["Terminating", "BestEffort"]);
    check(
        json!({"containers": [], "priorityClassName": "c"}),
        &["NotTerminating", "BestEffort", "PriorityClass"],
    );
    let burst = container(json!({"cpu": "1"}), json!({}));
    check(json!({"containers": [burst]}), &["NotTerminating", "NotBestEffort"]);
    let storage = container(json!({"ephemeral-storage": "1"}), json!({}));
    check(json!({"containers": [storage]}), &["NotTerminating", "BestEffort"]);
    let term = json!([{"topologyKey": "k", "labelSelector": {}, "namespaceSelector": {}}]);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    check(
        json!({"containers": [], "affinity": affinity}),
        &["NotTerminating", "BestEffort", "CrossNamespacePodAffinity"],
    );
    let term = json!([{"weight": 1, "podAffinityTerm": {"topologyKey": "k", "namespaces": ["n"]}}]);
    let affinity = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": term}});
    check(
        json!({"containers": [], "affinity": affinity}),
        &["NotTerminating", "BestEffort", "CrossNamespacePodAffinity"],
    );
}

#[test]
fn operators() {
    let check = |class: &str, operator: &str, values: &[&str], want: bool| {
        let scope = ScopedResourceSelectorRequirement {
            scope_name: "PriorityClass".to_owned(),
            operator: operator.to_owned(),
            values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
        };
        let pod = pod(json!({"spec": {"containers": [], "priorityClassName": class}}));
        assert_eq!(pod.is_in(&scope), want, "{class} {operator} {values:?}");
    };
    check("high", "In", &["high", "low"], true);
    check("mid", "In", &["high", "low"], false);
    check("", "In", &["high"], false);
    check("high", "NotIn", &["high"], false);
    check("", "NotIn", &["high"], true);
    check("high", "Exists", &[], true);
    check("", "Exists", &[], false);
    check("", "DoesNotExist", &[], true);
    check("high", "DoesNotExist", &[], false);
}

/// Upstream's cases of `TestServiceEvaluatorUsage`.
#[test]
fn services() {
    let check = |spec: Value, node_ports: &str, balancers: &str| {
        let service = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let want = json!({"count/services": "1", "services": "1", "services.nodeports": node_ports,
            "services.loadbalancers": balancers});
        assert_eq!(usage(&Counted::service(&service)), want, "{spec}");
    };
    let port = |node: i32| json!({"port": 80, "nodePort": node});
    check(json!({"type": "LoadBalancer"}), "0", "1");
    check(json!({"type": "LoadBalancer", "ports": [port(0)]}), "1", "1");
    check(json!({"type": "ClusterIP"}), "0", "0");
    check(json!({"type": "ExternalName"}), "0", "0");
    check(json!({"type": "NodePort", "ports": [port(0)]}), "1", "0");
    check(json!({"type": "NodePort", "ports": [port(0), port(0)]}), "2", "0");
    let no = |ports: Value| json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports});
    check(no(json!([port(0)])), "0", "1");
    check(no(json!([port(30000), port(0)])), "1", "1");
}

/// Upstream's cases of `TestPersistentVolumeClaimEvaluatorUsage`.
#[test]
fn claims() {
    let check = |class: Option<&str>, request: &str, allocated: Option<&str>, want: &str| {
        let mut claim = json!({"spec": {"resources": {"requests": {"storage": request}}}});
        if let Some(class) = class {
            claim["spec"]["storageClassName"] = json!(class);
        }
        if let Some(allocated) = allocated {
            claim["status"] = json!({"allocatedResources": {"storage": allocated}});
        }
        let counted = Counted::claim(&serde_json::from_value(claim).unwrap());
        let mut all = json!({"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1",
            "requests.storage": want});
        if let Some(class) = class {
            all[format!("{class}.storageclass.storage.k8s.io/requests.storage")] = json!(want);
            all[format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims")] = json!("1");
        }
        assert_eq!(usage(&counted), all);
    };
    check(None, "10Gi", None, "10Gi");
    check(Some("gold"), "10Gi", None, "10Gi");
    check(None, "500m", None, "1");
    check(None, "10Gi", Some("5Gi"), "10Gi");
    check(None, "5Gi", Some("10Gi"), "10Gi");
}

/// Upstream's cases of `TestResourceClaimEvaluatorUsage`.
#[test]
fn claims_of_devices() {
    let mut classes = DeviceClasses::default();
    classes.insert("gpu", "example.com/gpu");
    classes.insert("tpu", "");
    let exactly = |class: &str, mode: &str, count: i64| json!({"deviceClassName": class, "allocationMode": mode, "count": count});
    let request = |exactly: Value| json!({"name": "r", "exactly": exactly});
    let first = |of: Vec<Value>| {
        let named = |mut sub: Value| {
            sub["name"] = json!("s");
            sub
        };
        json!({"name": "r", "firstAvailable": of.into_iter().map(named).collect::<Vec<_>>()})
    };
    let check = |requests: Value, classes: &DeviceClasses, pod: Option<&Usage>, want: &[(&str, &str)]| {
        let claim = serde_json::from_value(json!({"spec": {"devices": {"requests": requests}}})).unwrap();
        let got = write(&Counted::device_claim(&claim).usage_of_devices(classes, pod));
        let mut all = json!({"count/resourceclaims.resource.k8s.io": "1"});
        for (name, amount) in want {
            all[*name] = json!(amount);
        }
        assert_eq!(json!(got), all, "{requests}");
    };
    let none = DeviceClasses::default();
    let (of_gpu, implicit) =
        ("gpu.deviceclass.resource.k8s.io/devices", "requests.deviceclass.resource.kubernetes.io/gpu");
    let explicit = "requests.example.com/gpu";
    let one = || request(exactly("gpu", "ExactCount", 1));
    check(json!([one()]), &none, None, &[(of_gpu, "1"), (implicit, "1")]);
    check(json!([one(), one(), one(), one(), one()]), &none, None, &[(of_gpu, "5"), (implicit, "5")]);
    check(json!([request(exactly("gpu", "ExactCount", 5))]), &none, None, &[(of_gpu, "5"), (implicit, "5")]);
    check(json!([request(exactly("gpu", "All", 0))]), &none, None, &[(of_gpu, "32"), (implicit, "32")]);
    check(json!([request(exactly("gpu", "future", 7))]), &none, None, &[(of_gpu, "0")]);
    check(json!([{"name": "future"}]), &none, None, &[]);
    check(
        json!([first(vec![exactly("gpu", "ExactCount", 1)])]),
        &none,
        None,
        &[(of_gpu, "1"), (implicit, "1")],
    );
    let alternatives = vec![
        exactly("gpu", "ExactCount", 2),
        exactly("gpu", "ExactCount", 1),
        exactly("tpu", "ExactCount", 3),
    ];
    let tpu = [
        ("tpu.deviceclass.resource.k8s.io/devices", "3"),
        ("requests.deviceclass.resource.kubernetes.io/tpu", "3"),
    ];
    check(json!([first(alternatives)]), &none, None, &[(of_gpu, "2"), (implicit, "2"), tpu[0], tpu[1]]);
    check(
        json!([first(vec![exactly("gpu", "All", 0), exactly("gpu", "ExactCount", 1)])]),
        &none,
        None,
        &[(of_gpu, "32"), (implicit, "32")],
    );
    check(json!([one()]), &classes, None, &[(of_gpu, "1"), (implicit, "1"), (explicit, "1")]);
    // The Pod's own extended resources are not counted again.
    let taken =
        |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), Quantity::from_value(1))).collect::<Usage>();
    check(json!([one()]), &classes, Some(&taken(&[implicit])), &[(of_gpu, "1"), (explicit, "1")]);
    check(json!([one()]), &classes, Some(&taken(&[explicit])), &[(of_gpu, "1"), (implicit, "1")]);
    check(
        json!([one(), one()]),
        &classes,
        Some(&taken(&[implicit, explicit])),
        &[(of_gpu, "2"), (implicit, "1"), (explicit, "1")],
    );
}

/// Upstream's cases of `TestResourceClaimEvaluatorMatchingResources`.
#[test]
fn names_of_devices() {
    let mut classes = DeviceClasses::default();
    classes.insert("gpu", "example.com/gpu");
    let check = |name: &str, want: bool| {
        assert_eq!(Kind::DeviceClaims.counts(name, &classes), want, "{name}");
    };
    check("count/resourceclaims.resource.k8s.io", true);
    check("gpu.deviceclass.resource.k8s.io/devices", true);
    check("requests.deviceclass.resource.kubernetes.io/gpu", true);
    check("requests.deviceclass.resource.kubernetes.io/tpu", false);
    check("requests.example.com/gpu", true);
    check("requests.example.com/tpu", false);
    check("cpu", false);
    assert_eq!(Kind::counted_as("requests.example.com/gpu", &classes), [Kind::Pods, Kind::DeviceClaims]);
}

/// Upstream's `DefaultIgnoredResources`.
#[test]
fn what_is_left_alone() {
    let check = |group: &str, plural: &str, want: bool| {
        assert_eq!(Kind::of(group, plural).is_ignored(), want, "{plural}");
    };
    for (group, plural) in [
        ("", "bindings"),
        ("", "componentstatuses"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ] {
        check(group, plural, true);
    }
    check("", "pods", false);
    check("example.com", "events", false);
}

#[test]
fn differences() {
    let of = |all: &[(&str, &str)]| {
        all.iter().map(|(k, q)| ((*k).to_owned(), Quantity::parse(q).unwrap())).collect::<Usage>()
    };
    let check = |new: &[(&str, &str)], old: &[(&str, &str)], want: &[(&str, &str)]| {
        assert_eq!(less(&of(new), &of(old)), of(want), "{new:?} {old:?}");
    };
    check(&[("cpu", "2")], &[("cpu", "500m")], &[("cpu", "1500m")]);
    check(&[("cpu", "1")], &[("cpu", "1")], &[]);
    check(&[("cpu", "1")], &[("cpu", "2"), ("memory", "1")], &[]);
    check(&[("cpu", "1"), ("pods", "1")], &[], &[("cpu", "1"), ("pods", "1")]);
}

/// Upstream's cases of `TestPersistentVolumeClaimEvaluatorMatchingResources`, those of Pods and of Services.
#[test]
fn names() {
    let devices = DeviceClasses::default();
    let check = |name: &str, want: Option<(&str, &str)>| {
        let kinds = Kind::counted_as(name, &devices);
        assert_eq!(
            kinds.iter().map(Kind::resource).collect::<Vec<_>>(),
            want.into_iter().collect::<Vec<_>>(),
            "{name}"
        );
        assert!(kinds.iter().all(|kind| kind.counts(name, &devices)), "{name}");
    };
    for name in [
        "pods",
        "cpu",
        "memory",
        "requests.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "hugepages-2Mi",
        "requests.hugepages-1Gi",
        "requests.nvidia.com/gpu",
        "requests.deviceclass.resource.kubernetes.io/gpu",
        "count/pods",
    ] {
        check(name, Some(("", "pods")));
    }
    for name in ["services", "services.nodeports", "services.loadbalancers", "count/services"] {
        check(name, Some(("", "services")));
    }
    for name in [
        "persistentvolumeclaims",
        "requests.storage",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
        "count/persistentvolumeclaims",
    ] {
        check(name, Some(("", "persistentvolumeclaims")));
    }
    check("configmaps", Some(("", "configmaps")));
    check("count/configmaps", Some(("", "configmaps")));
    check("count/deployments.apps", Some(("apps", "deployments")));
    check("count/widgets.example.com", Some(("example.com", "widgets")));
    check("gold.storageclass.storage.k8s.io/cpu", None);
    check("example.com/gpu", None);
    check("deployments", None);
    let number = |group: &str, plural: &str| usage(&Counted::number(&Kind::of(group, plural)));
    assert_eq!(number("", "secrets"), json!({"count/secrets": "1", "secrets": "1"}));
    assert_eq!(number("apps", "deployments"), json!({"count/deployments.apps": "1"}));
}
