use std::slice::from_ref;

use objects::quota;
use serde_json::{Value, json};

use super::check::{Quota, Refusal, check};
use super::*;

/// A request about a typed object.
fn ask(resource: &str, new: &Value, old: Option<&Value>) -> Ask {
    let kind = Kind::of("", resource);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let taken = |object: &Value| {
        let json = object.to_string();
        let json = json.as_bytes();
        let counted = match kind {
            Kind::Pods => Counted::pod(&Pod::from_json(json).unwrap()),
            Kind::Services => Counted::service(&Service::from_json(json).unwrap()),
            Kind::Claims => Counted::claim(&PersistentVolumeClaim::from_json(json).unwrap()),
            _ => Counted::number(&kind),
        };
        let usage = counted.usage(now);
        Taken { counted, usage }
    };
    let (new, old) = (taken(new), old.map(taken));
    Ask { update: old.is_some(), new, old, may_exceed: false, devices: DeviceClasses::default(), kind }
}

/// A quota of a spec and amounts, given as `name: [used, hard]`.
fn quota_of(name: &str, spec: &Value, amounts: &Value) -> Quota {
    let part = |i: usize| -> Value {
        amounts.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v[i].clone())).collect()
    };
    let status = json!({"used": part(0), "hard": part(1)});
    let object = json!({"metadata": {"name": name}, "spec": spec, "status": status});
    Quota::new(serde_json::from_value(object).unwrap())
}

/// Checks a request; returns what is used then of the quotas that change.
fn used(quotas: &[Quota], ask: &Ask, limited: &[LimitedResource]) -> Result<Value, String> {
    let changes = check(quotas, ask, limited).map_err(|refusal| match refusal {
        Refusal::Forbidden(why) | Refusal::Failed(why) => why,
    })?;
    Ok(changes.into_iter().map(|(i, used)| (quotas[i].name.clone(), json!(quota::write(&used)))).collect())
}

fn pod(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
}

fn in_spec(mut object: Value, field: &str, value: Value) -> Value {
    object["spec"][field] = value;
    object
}

/// Upstream's cases of `TestAdmit…` about creates.
#[test]
fn creates() {
    let spec = json!({});
    let check = |amounts: Value, pod: Value, want: Result<Value, &str>| {
        let got = used(&[quota_of("quota", &spec, &amounts)], &ask("pods", &pod, None), &[]);
        assert_eq!(got, want.map_err(str::to_owned), "{amounts} {pod}");
    };
    let room = json!({"cpu": ["1", "3"], "memory": ["50Gi", "100Gi"], "pods": ["3", "5"]});
    check(
        room.clone(),
        pod(json!({"cpu": "100m", "memory": "2Gi"})),
        Ok(json!({"quota": {"cpu": "1100m", "memory": "52Gi", "pods": "4"}})),
    );
    check(
        room.clone(),
        pod(json!({"cpu": "100m", "memory": "60Gi"})),
        Err("exceeded quota: quota, requested: memory=60Gi, used: memory=50Gi, limited: memory=100Gi"),
    );
    check(
        room.clone(),
        pod(json!({"cpu": "3", "memory": "60Gi"})),
        Err(
            "exceeded quota: quota, requested: cpu=3,memory=60Gi, used: cpu=1,memory=50Gi, limited: cpu=3,memory=100Gi",
        ),
    );
    check(room, pod(json!({"memory": "1Gi"})), Err("failed quota: quota: must specify cpu for: c"));
    let storage = quota_of("s", &spec, &json!({"requests.storage": ["1Gi", "2Gi"]}));
    let negative = json!({"spec": {"resources": {"requests": {"storage": "-10Gi"}}}});
    assert_eq!(
        used(&[storage], &ask("persistentvolumeclaims", &negative, None), &[]),
        Err("quota usage is negative for resource(s): requests.storage".to_owned())
    );
    // An amount that exceeds its limit already is no concern of others.
    check(
        json!({"services": ["4", "3"], "pods": ["1", "4"]}),
        pod(json!({})),
        Ok(json!({"quota": {"services": "4", "pods": "2"}})),
    );
    check(json!({"services": ["4", "3"]}), pod(json!({})), Ok(json!({})));
    let unknown = Quota::new(
        serde_json::from_value(
            json!({"metadata": {"name": "new"}, "status": {"hard": {"pods": "1", "count/pods": "1"}}}),
        )
        .unwrap(),
    );
    assert_eq!(
        used(&[unknown], &ask("pods", &pod(json!({})), None), &[]),
        Err("status unknown for quota: new, resources: count/pods,pods".to_owned())
    );
    let numbers = quota_of("n", &spec, &json!({"configmaps": ["1", "2"], "count/configmaps": ["1", "1"]}));
    assert_eq!(
        used(&[numbers], &ask("configmaps", &json!({}), None), &[]),
        Err("exceeded quota: n, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1"
            .to_owned())
    );
}

/// Upstream's cases of `TestAdmit…` about updates.
#[test]
fn updates() {
    let check = |resource: &str, amounts: Value, old: Value, new: Value, want: Value| {
        let got = used(&[quota_of("quota", &json!({}), &amounts)], &ask(resource, &new, Some(&old)), &[]);
        assert_eq!(got, Ok(want), "{old} {new}");
    };
    let service = |kind: &str, ports: Value| json!({"spec": {"type": kind, "ports": ports}});
    let ports = || json!([{"port": 1234}]);
    let room = json!({"services": ["1", "10"], "services.loadbalancers": ["1", "10"], "services.nodeports": ["0", "10"]});
    check(
        "services",
        room.clone(),
        service("LoadBalancer", json!([])),
        service("NodePort", ports()),
        json!({"quota": {"services": "1", "services.loadbalancers": "1", "services.nodeports": "1"}}),
    );
    check("services", room.clone(), service("NodePort", ports()), service("NodePort", ports()), json!({}));
    check("services", room, service("NodePort", ports()), service("ClusterIP", ports()), json!({}));
    let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let room = json!({"persistentvolumeclaims": ["1", "3"], "requests.storage": ["10Gi", "100Gi"]});
    check("persistentvolumeclaims", room.clone(), claim("10Gi"), claim("5Gi"), json!({}));
    check(
        "persistentvolumeclaims",
        room,
        claim("10Gi"),
        claim("15Gi"),
        json!({"quota": {"persistentvolumeclaims": "1", "requests.storage": "15Gi"}}),
    );
}

/// Upstream's cases of `TestAdmitBelowTerminatingQuotaLimit`, `…WhenPodScopeUpdated`, `…BestEffortQuotaLimit` and
/// `…IgnoresBurstable`.
#[test]
fn scopes_of_pods() {
    let amounts = json!({"cpu": ["1", "3"], "memory": ["50Gi", "100Gi"], "pods": ["3", "5"]});
    let more = json!({"cpu": "1100m", "memory": "52Gi", "pods": "4"});
    let quotas = || {
        ["Terminating", "NotTerminating"].map(|scope| quota_of(scope, &json!({"scopes": [scope]}), &amounts))
    };
    let plain = || pod(json!({"cpu": "100m", "memory": "2Gi"}));
    let limited = || in_spec(plain(), "activeDeadlineSeconds", json!(5));
    let check = |new: Value, old: Option<Value>, want: Value| {
        assert_eq!(used(&quotas(), &ask("pods", &new, old.as_ref()), &[]), Ok(want), "{new}");
    };
    check(limited(), None, json!({"Terminating": more}));
    check(plain(), None, json!({"NotTerminating": more}));
    check(limited(), Some(plain()), json!({"Terminating": more}));
    check(plain(), Some(limited()), json!({"NotTerminating": more}));
    let efforts = [
        quota_of("best", &json!({"scopes": ["BestEffort"]}), &json!({"pods": ["3", "5"]})),
        quota_of("not", &json!({"scopes": ["NotBestEffort"]}), &json!({"pods": ["3", "5"]})),
    ];
    let check = |pod: Value, want: Value| {
        assert_eq!(used(&efforts, &ask("pods", &pod, None), &[]), Ok(want), "{pod}");
    };
    check(pod(json!({})), json!({"best": {"pods": "4"}}));
    check(pod(json!({"cpu": "100m"})), json!({"not": {"pods": "4"}}));
}

/// Upstream's cases of `TestAdmitBelowVolumeAttributesClassQuotaLimit…`.
#[test]
fn scopes_of_claims() {
    let amounts = json!({"persistentvolumeclaims": ["1", "3"], "requests.storage": ["10Gi", "100Gi"]});
    let more = json!({"persistentvolumeclaims": "2", "requests.storage": "11Gi"});
    let spec = |class: &str| {
        let chosen = json!({"scopeName": "VolumeAttributesClass", "operator": "In", "values": [class]});
        json!({"scopeSelector": {"matchExpressions": [chosen]}})
    };
    let quotas = ["gold", "silver", "copper"].map(|class| quota_of(class, &spec(class), &amounts));
    // A claim that wants, is being given and has classes.
    let claim = |wanted: &str, target: &str, current: &str| {
        let mut claim =
            json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}});
        if !wanted.is_empty() {
            claim["spec"]["volumeAttributesClassName"] = json!(wanted);
        }
        if !target.is_empty() {
            let modified = json!({"targetVolumeAttributesClassName": target, "status": "Pending"});
            claim["status"]["modifyVolumeStatus"] = modified;
        }
        if !current.is_empty() {
            claim["status"]["currentVolumeAttributesClassName"] = json!(current);
        }
        claim
    };
    let check = |new: Value, old: Option<Value>, want: Value| {
        let got = used(&quotas, &ask("persistentvolumeclaims", &new, old.as_ref()), &[]);
        assert_eq!(got, Ok(want), "{old:?} {new}");
    };
    check(claim("gold", "", ""), None, json!({"gold": more}));
    check(claim("", "", ""), None, json!({}));
    check(claim("gold", "", ""), Some(claim("", "", "")), json!({"gold": more}));
    check(claim("gold", "gold", ""), Some(claim("gold", "", "")), json!({}));
    check(claim("gold", "", "gold"), Some(claim("gold", "gold", "")), json!({}));
    check(claim("silver", "", "gold"), Some(claim("gold", "", "gold")), json!({"silver": more}));
    check(claim("silver", "silver", "gold"), Some(claim("silver", "", "gold")), json!({}));
    check(
        claim("copper", "silver", "gold"),
        Some(claim("silver", "silver", "gold")),
        json!({"copper": more}),
    );
    let full = json!({"persistentvolumeclaims": ["1", "1"], "requests.storage": ["10Gi", "10Gi"]});
    let quotas = [quota_of("gold", &spec("gold"), &amounts), quota_of("silver", &spec("silver"), &full)];
    let (old, new) = (claim("gold", "", "gold"), claim("gold", "gold", "silver"));
    let asked = ask("persistentvolumeclaims", &new, Some(&old));
    assert!(used(&quotas, &asked, &[]).is_err());
    assert_eq!(used(&quotas, &Ask { may_exceed: true, ..asked }, &[]), Ok(json!({"silver": more})));
}

/// Upstream's cases of `TestAdmitLimitedResource…` and those about usage without a covering quota.
#[test]
fn limited_resources() {
    let limited = |resource: &str, part: &str| {
        [LimitedResource {
            resource: resource.into(),
            match_contains: vec![part.into()],
            ..LimitedResource::default()
        }]
    };
    let check = |quotas: &[Quota], ask: Ask, limited: &[LimitedResource], want: Result<Value, &str>| {
        assert_eq!(used(quotas, &ask, limited), want.map_err(str::to_owned), "{ask:?}");
    };
    let spec = json!({});
    let three = || ask("pods", &pod(json!({"cpu": "3", "memory": "2Gi"})), None);
    check(&[], three(), &limited("pods", "cpu"), Err("insufficient quota to consume: cpu,requests.cpu"));
    check(&[], three(), &limited("services", "services"), Ok(json!({})));
    let cpu = quota_of("cpu", &spec, &json!({"requests.cpu": ["1", "10"]}));
    check(
        from_ref(&cpu),
        three(),
        &limited("pods", "requests.cpu"),
        Ok(json!({"cpu": {"requests.cpu": "4"}})),
    );
    let memory = quota_of("memory", &spec, &json!({"requests.memory": ["1Gi", "10Gi"]}));
    check(
        &[cpu, memory.clone()],
        three(),
        &limited("pods", "requests.cpu"),
        Ok(json!({"cpu": {"requests.cpu": "4"}, "memory": {"requests.memory": "3Gi"}})),
    );
    check(
        &[memory],
        three(),
        &limited("pods", "requests.cpu"),
        Err("insufficient quota to consume: requests.cpu"),
    );
    let service = |kind: &str| json!({"spec": {"type": kind}});
    let change = |old: &str, new: &str| ask("services", &service(new), Some(&service(old)));
    let balancers = limited("services", "services.loadbalancers");
    check(&[], change("LoadBalancer", "LoadBalancer"), &balancers, Ok(json!({})));
    check(
        &[],
        change("NodePort", "LoadBalancer"),
        &balancers,
        Err("insufficient quota to consume: services.loadbalancers"),
    );
    check(&[], change("LoadBalancer", "NodePort"), &balancers, Ok(json!({})));
}

/// Upstream's cases of `TestAdmitLimitedScopeWithCoverQuota`.
#[test]
fn limited_scopes() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("scopes.json")).unwrap();
    for case in &cases {
        let quotas: Vec<Quota> = case["quotas"]
            .as_array()
            .unwrap()
            .iter()
            .map(|q| Quota::new(serde_json::from_value(q.clone()).unwrap()))
            .collect();
        let document = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
            "limitedResources": case["limited"]});
        let limited = config::parse(Some(document.to_string().as_bytes())).unwrap();
        let asked = ask("pods", &json!({"spec": case["pod"]}), None);
        let error = used(&quotas, &asked, &limited).err().unwrap_or_default();
        let want = case["error"].as_str().unwrap().trim_start_matches("forbidden: ");
        assert_eq!(error, want, "{}", case["name"]);
    }
    assert_eq!(cases.len(), 20);
}
