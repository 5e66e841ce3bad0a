//! Plugins that are off by default, each in a chain with the others that are off.

use std::slice::from_ref;

use super::*;

struct Asked<'a> {
    operation: Operation,
    kind: &'a str,
    resource: &'a str,
    old: Option<Value>,
}

fn creates<'a>(kind: &'a str, resource: &'a str) -> Asked<'a> {
    Asked { operation: Operation::Create, kind, resource, old: None }
}

/// Runs a chain of one plugin alone, with its configuration and these namespaces' annotations.
async fn alone(
    plugin: &str,
    config: &str,
    annotations: &Value,
    asked: Asked<'_>,
    object: Value,
) -> Result<Value, String> {
    let fake = cluster();
    fake.put(("", "namespaces"), json!({"metadata": {"name": "a", "annotations": annotations}}));
    fake.put(
        ("", "nodes"),
        json!({"metadata": {"name": "able"}, "status": {"declaredFeatures": ["InPlacePodVerticalScalingInitContainers"]}}),
    );
    let off: Vec<String> = super::super::chain::names().map(str::to_owned).filter(|n| n != plugin).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admission.yaml");
    let document = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": plugin, "path": "own.yaml"}]});
    std::fs::write(&file, document.to_string()).unwrap();
    std::fs::write(dir.path().join("own.yaml"), config).unwrap();
    let config = match config {
        "" => AdmissionConfig::default(),
        _ => AdmissionConfig::from_file(&file).unwrap(),
    };
    let authorizer = UnionAuthorizer::new(
        &[AuthorizationMode::Rbac],
        Arc::new(NodeAuthorizer::default()),
        Arc::new(rbac()),
    );
    let chain = Chain::new(
        Schema::builtin(),
        crate::testing::alone(fake),
        Arc::new(authorizer),
        (FeatureGates::default(), Clock::system()),
        &[plugin.to_owned()],
        &off,
        &config,
    )
    .unwrap();
    let kind = gvk(asked.kind);
    let (group, resource) = asked.resource.split_once(':').unwrap_or(("", asked.resource));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let old = asked.old.map(|o| parse(&kind, &o));
    let request = AdmissionRequest {
        user: &Arc::new(user("eve")),
        info: &RequestInfo { group: group.into(), ..RequestInfo::default() },
        operation: asked.operation,
        kind: &kind,
        request_kind: &kind,
        versions: &Alone,
        resource,
        subresource,
        namespace: "a",
        name: "x",
        old: old.as_ref(),
        dry_run: false,
        options: OperationOptions::default(),
        notes: &Notes::default(),
    };
    let mut tree = parse(&kind, &object);
    let all = async {
        chain.mutate(&request, &mut tree).await?;
        chain.validate(&request, Some(&tree)).await
    };
    all.await.map_err(|s: Status| s.message)?;
    Ok(print(&tree))
}

async fn of_pod(plugin: &str, config: &str, annotations: Value, spec: Value) -> Result<Value, String> {
    let made = alone(plugin, config, &annotations, creates("Pod", "pods"), pod(spec)).await?;
    Ok(made["spec"].clone())
}

fn forbidden(why: &str) -> String {
    format!("pods \"x\" is forbidden: {why}")
}

#[tokio::test]
async fn all_or_nothing() {
    assert!(of_pod("AlwaysAdmit", "", json!({}), json!({})).await.is_ok());
    let got = of_pod("AlwaysDeny", "", json!({}), json!({})).await;
    assert_eq!(got, Err(forbidden("admission control is denying all modifications")));
}

/// Upstream's cases of the antiaffinity plugin.
#[tokio::test]
async fn anti_affinity() {
    let check = async |terms: Value, want: Result<(), &str>| {
        let spec = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
        let got = of_pod("LimitPodHardAntiAffinityTopology", "", json!({}), spec).await.map(drop);
        assert_eq!(got, want.map_err(forbidden), "{terms}");
    };
    let term = |key: &str| json!({"topologyKey": key});
    check(json!([]), Ok(())).await;
    check(json!([term("kubernetes.io/hostname")]), Ok(())).await;
    let why = "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey az but only key kubernetes.io/hostname is allowed";
    check(json!([term("az")]), Err(why)).await;
    check(json!([term("kubernetes.io/hostname"), term("az")]), Err(why)).await;
}

/// Upstream's cases of the alwayspullimages plugin.
#[tokio::test]
async fn images_are_pulled() {
    let container = |name: &str, policy: &str| json!({"name": name, "image": "i", "imagePullPolicy": policy});
    let spec = json!({
        "initContainers": [container("a", ""), container("b", "Never")],
        "containers": [container("c", "IfNotPresent"), container("d", "Always")],
        "volumes": [{"name": "v", "image": {"reference": "r", "pullPolicy": "IfNotPresent"}}],
    });
    let got = of_pod("AlwaysPullImages", "", json!({}), spec).await.unwrap();
    for list in ["initContainers", "containers"] {
        for container in got[list].as_array().unwrap() {
            assert_eq!(container["imagePullPolicy"], "Always");
        }
    }
    assert_eq!(got["volumes"][0]["image"]["pullPolicy"], "Always");
    // An update without new images stays as it is.
    let of =
        |image: &str| pod(json!({"containers": [{"name": "c", "image": image, "imagePullPolicy": "Never"}]}));
    let update =
        |old: &str| Asked { operation: Operation::Update, old: Some(of(old)), ..creates("Pod", "pods") };
    for (old, want) in [("i", "Never"), ("j", "Always")] {
        let got = alone("AlwaysPullImages", "", &json!({}), update(old), of("i")).await.unwrap();
        assert_eq!(got["spec"]["containers"][0]["imagePullPolicy"], want, "{old}");
    }
}

/// Upstream's cases of the podnodeselector plugin.
#[tokio::test]
async fn node_selectors() {
    let default = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: infra = false}";
    let listed =
        "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: infra=false, a: \"infra=false,env=test\"}";
    let check = async |config: &str, selector: Option<&str>, own: Value, want: Result<Value, &str>| {
        let annotations =
            selector.map_or(json!({}), |s| json!({"scheduler.alpha.kubernetes.io/node-selector": s}));
        let got = of_pod("PodNodeSelector", config, annotations, json!({"nodeSelector": own})).await;
        assert_eq!(
            got.map(|spec| spec["nodeSelector"].clone()),
            want.map_err(forbidden),
            "{selector:?} {own}"
        );
    };
    let conflict = Err("pod node label selector conflicts with its namespace node label selector");
    let unlisted = Err("pod node label selector labels conflict with its namespace whitelist");
    check(default, None, json!({}), Ok(json!({"infra": "false"}))).await;
    check(default, Some(""), json!({}), Ok(Value::Null)).await;
    check(default, Some("infra=true"), json!({}), Ok(json!({"infra": "true"}))).await;
    check(default, Some("infra=true"), json!({"env": "test"}), Ok(json!({"env": "test", "infra": "true"})))
        .await;
    check(default, Some("infra=true"), json!({"infra": "false"}), conflict.clone()).await;
    check(default, None, json!({"infra": "true"}), conflict).await;
    check(listed, None, json!({"env": "test"}), Ok(json!({"env": "test", "infra": "false"}))).await;
    check(listed, None, json!({"env": "dev"}), unlisted.clone()).await;
    check(listed, None, json!({"other": "x"}), unlisted).await;
    let bad = json!({"scheduler.alpha.kubernetes.io/node-selector": "bad"});
    let got = of_pod("PodNodeSelector", default, bad, json!({})).await;
    assert_eq!(got, Err("invalid selector: [bad]".to_owned()));
}

/// Upstream's cases of the podtolerationrestriction plugin.
#[tokio::test]
async fn tolerations_are_restricted() {
    let tolerates = |key: &str, value: &str| json!({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"});
    let list = |all: &[Value]| Value::from(all.to_vec()).to_string();
    let check = async |default: Option<String>,
                       allowed: Option<String>,
                       own: &[Value],
                       want: Result<&[Value], &str>| {
        let mut annotations = json!({});
        if let Some(default) = default {
            annotations["scheduler.alpha.kubernetes.io/defaultTolerations"] = default.into();
        }
        if let Some(allowed) = allowed {
            annotations["scheduler.alpha.kubernetes.io/tolerationsWhitelist"] = allowed.into();
        }
        let config = json!({"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration",
            "default": [tolerates("cluster", "1")], "whitelist": [tolerates("cluster", "1"), tolerates("a", "1")]});
        let spec = json!({"tolerations": own});
        let got = of_pod("PodTolerationRestriction", &config.to_string(), annotations.clone(), spec).await;
        let got = got.map(|spec| spec["tolerations"].as_array().cloned().unwrap_or_default());
        assert_eq!(got, want.map(<[_]>::to_vec).map_err(str::to_owned), "{annotations} {own:?}");
    };
    let (a, b, c) = (tolerates("a", "1"), tolerates("b", "2"), tolerates("cluster", "1"));
    let conflict = |whose: &str| {
        format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
        )
    };
    check(None, None, &[], Ok(from_ref(&c))).await;
    check(None, None, from_ref(&a), Ok(&[a.clone(), c.clone()])).await;
    check(None, None, from_ref(&b), Err(&conflict("cluster"))).await;
    // A namespace with an empty list has none, and needs none.
    check(Some(String::new()), None, &[], Ok(&[])).await;
    check(Some(list(from_ref(&b))), Some(list(from_ref(&b))), &[], Ok(from_ref(&b))).await;
    check(Some(list(from_ref(&b))), Some(list(from_ref(&a))), &[], Err(&conflict("namespace"))).await;
    check(Some(list(from_ref(&b))), Some(String::new()), from_ref(&a), Ok(&[a.clone(), b.clone()])).await;
    let wide = json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"});
    check(Some(String::new()), Some(list(&[wide])), from_ref(&a), Ok(from_ref(&a))).await;
    let busy = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
    let got = of_pod("PodTolerationRestriction", "", json!({}), busy).await.unwrap();
    assert_eq!(
        got["tolerations"],
        json!([{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}])
    );
}

/// Upstream's cases of the extendedresourcetoleration plugin.
#[tokio::test]
async fn extended_resources_are_tolerated() {
    let check = async |own: Value, requests: &[&str], want: Value| {
        let containers: Vec<Value> = requests
            .iter()
            .enumerate()
            .map(|(i, name)| json!({"name": format!("c{i}"), "image": "i", "resources": {"requests": {*name: "1"}}}))
            .collect();
        let (init, plain) = containers.split_at(containers.len() / 2);
        let spec = json!({"tolerations": own, "initContainers": init, "containers": plain});
        let got = of_pod("ExtendedResourceToleration", "", json!({}), spec).await.unwrap();
        let got = got.get("tolerations").cloned().unwrap_or(json!([]));
        assert_eq!(got, want, "{own} {requests:?}");
    };
    let exists = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
    check(json!([]), &["cpu", "kubernetes.io/x", "memory"], json!([])).await;
    check(
        json!([]),
        &["example.com/b", "example.com/a", "example.com/b"],
        json!([exists("example.com/a"), exists("example.com/b")]),
    )
    .await;
    let other = json!({"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"});
    check(json!([other]), &["example.com/a"], json!([other, exists("example.com/a")])).await;
    check(json!([exists("example.com/a")]), &["example.com/a"], json!([exists("example.com/a")])).await;
    let any = json!({"key": "example.com/a", "operator": "Exists"});
    check(json!([any]), &["example.com/a"], json!([any, exists("example.com/a")])).await;
}

/// Upstream's cases of the denyserviceexternalips plugin.
#[tokio::test]
async fn external_addresses() {
    let service = |ips: &[&str]| json!({"metadata": {"name": "x"}, "spec": {"externalIPs": ips}});
    let check = async |old: Option<&[&str]>, new: &[&str], allowed: bool| {
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let asked = Asked { operation, old: old.map(service), ..creates("Service", "services") };
        let got = alone("DenyServiceExternalIPs", "", &json!({}), asked, service(new)).await.map(drop);
        let refused = "services \"x\" is forbidden: Use of external IPs is denied by admission control";
        assert_eq!(got, if allowed { Ok(()) } else { Err(refused.to_owned()) }, "{old:?} {new:?}");
    };
    check(None, &[], true).await;
    check(None, &["1.2.3.4"], false).await;
    check(Some(&["1.2.3.4"]), &["1.2.3.4"], true).await;
    check(Some(&["1.2.3.4", "4.3.2.1"]), &["4.3.2.1"], true).await;
    check(Some(&["1.2.3.4"]), &["1.2.3.4", "4.3.2.1"], false).await;
    check(Some(&["1.2.3.4"]), &["4.3.2.1"], false).await;
    check(Some(&[]), &["1.2.3.4"], false).await;
    check(Some(&["1.2.3.4"]), &[], true).await;
}

/// Upstream's cases of the gc plugin that need no kinds.
#[tokio::test]
async fn owners_need_rights() {
    let owned = |owners: Value| json!({"metadata": {"name": "x", "ownerReferences": owners}});
    let owner = |uid: &str, blocks: bool| json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": uid, "blockOwnerDeletion": blocks});
    let check = async |old: Option<Value>, new: Value, path: &str, want: Option<&str>| {
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let asked = Asked { operation, old: old.clone().map(owned), ..creates("Pod", path) };
        let got =
            alone("OwnerReferencesPermissionEnforcement", "", &json!({}), asked, owned(new.clone())).await;
        let got = got.err();
        assert_eq!(got.is_some(), want.is_some(), "{old:?} {new}: {got:?}");
        assert!(got.unwrap_or_default().contains(want.unwrap_or_default()), "{old:?} {new}");
    };
    let cannot = "cannot set an ownerRef on a resource you can't delete: , <nil>";
    check(None, json!([]), "pods", None).await;
    check(None, json!([owner("1", false)]), "pods", None).await;
    check(None, json!([owner("1", true)]), "pods", Some("cannot set blockOwnerDeletion in this case")).await;
    check(Some(json!([])), json!([owner("1", false)]), "pods", Some(cannot)).await;
    check(Some(json!([owner("1", false)])), json!([]), "pods", Some(cannot)).await;
    check(Some(json!([owner("1", false)])), json!([owner("1", false)]), "pods", None).await;
    check(Some(json!([])), json!([owner("1", false)]), "pods/status", None).await;
}

/// Upstream's cases of the nodedeclaredfeatures plugin.
#[tokio::test]
async fn nodes_must_follow() {
    let on = |node: &str, generation: u64, spec: Value| {
        let mut pod = pod(spec);
        pod["spec"]["nodeName"] = node.into();
        pod["metadata"]["generation"] = generation.into();
        pod
    };
    let check = async |old: Value, new: Value, want: Option<&str>| {
        let asked =
            Asked { operation: Operation::Update, old: Some(old.clone()), ..creates("Pod", "pods/resize") };
        let got = alone("NodeDeclaredFeatureValidator", "", &json!({}), asked, new.clone()).await.err();
        assert_eq!(got, want.map(forbidden), "{old} {new}");
    };
    let init = |cpu: &str| json!({"initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
    let whole = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
    check(on("n", 1, init("1")), on("n", 1, init("2")), None).await;
    check(on("", 1, init("1")), on("", 2, init("2")), None).await;
    check(on("n", 1, json!({})), on("n", 2, json!({"priority": 1})), None).await;
    check(on("gone", 1, init("1")), on("gone", 2, init("2")), Some("node \"gone\" not found")).await;
    check(on("able", 1, init("1")), on("able", 2, init("2")), None).await;
    let lacks = |features: &str, node: &str| {
        format!("pod update requires features {features} which are not available on node {node:?}")
    };
    let both = "InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers";
    check(
        on("n", 1, init("1")),
        on("n", 2, init("2")),
        Some(&lacks("InPlacePodVerticalScalingInitContainers", "n")),
    )
    .await;
    check(
        on("able", 1, whole("1")),
        on("able", 2, whole("2")),
        Some(&lacks("InPlacePodLevelResourcesVerticalScaling", "able")),
    )
    .await;
    let mut more = init("2");
    more["resources"] = json!({"requests": {"cpu": "2"}});
    check(on("n", 1, init("1")), on("n", 2, more), Some(&lacks(both, "n"))).await;
}

#[tokio::test]
async fn namespaces_exist() {
    let got = of_pod("NamespaceExists", "", json!({}), json!({})).await;
    assert!(got.is_ok());
    let got = of_pod("NamespaceAutoProvision", "", json!({}), json!({})).await;
    assert!(got.is_ok(), "a namespace that is there is not made");
}
