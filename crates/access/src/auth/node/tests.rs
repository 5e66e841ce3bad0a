use api::Text;

use super::*;

fn node(name: &str) -> UserInfo {
    UserInfo {
        name: format!("system:node:{name}").into(),
        groups: vec!["system:nodes".into()],
        ..UserInfo::default()
    }
}

fn access<'a>(verb: &'a str, resource: &'a str, namespace: &'a str, name: &'a str) -> Access<'a> {
    let (group, resource) = resource.rsplit_once(':').unwrap_or(("", resource));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Access { is_resource: true, verb, group, resource, subresource, namespace, name, ..Access::default() }
}

fn authorizer() -> NodeAuthorizer {
    let authorizer = NodeAuthorizer::default();
    let t = |s: &str| Text::from(s);
    let pod = |node: &str, names: &[(Kind, &str)]| {
        Some(PodRefs {
            node: node.into(),
            mirror: false,
            names: names.iter().map(|(k, n)| (*k, t(n))).collect(),
        })
    };
    authorizer.graph().reset([
        GraphChange::Pod(
            t("x"),
            t("p"),
            pod(
                "a",
                &[
                    (Kind::Secret, "s"),
                    (Kind::ConfigMap, "c"),
                    (Kind::ServiceAccount, "default"),
                    (Kind::Claim, "claim"),
                ],
            ),
        ),
        GraphChange::Pod(t("x"), t("waiting"), pod("", &[(Kind::Secret, "other")])),
        GraphChange::Pod(
            t("x"),
            t("mirror"),
            Some(PodRefs { node: t("a"), mirror: true, names: vec![(Kind::Secret, t("mine"))] }),
        ),
        GraphChange::Volume(
            t("pv"),
            Some(PvRefs { claim: Some((t("x"), t("claim"))), secrets: vec![(t("y"), t("disk"))] }),
        ),
        GraphChange::Owned(Kind::VolumeAttachment, "".into(), t("va"), Some(t("a"))),
    ]);
    authorizer
}

#[test]
fn decisions() {
    const NO_RELATION: &str = "no relationship found between node 'b' and this object";
    let cases: &[(&str, Access<'_>, Result<(), &str>)] = &[
        ("a", access("get", "secrets", "x", "s"), Ok(())),
        ("a", access("watch", "secrets", "x", "s"), Ok(())),
        ("b", access("get", "secrets", "x", "s"), Err(NO_RELATION)),
        (
            "a",
            access("get", "secrets", "x", "other"),
            Err("no relationship found between node 'a' and this object"),
        ),
        (
            "a",
            access("get", "secrets", "x", "mine"),
            Err("no relationship found between node 'a' and this object"),
        ),
        ("a", access("list", "secrets", "x", ""), Err("No Object name found")),
        ("a", access("update", "secrets", "x", "s"), Err("can only read resources of this type")),
        ("a", access("get", "configmaps", "x", "c"), Ok(())),
        ("a", access("get", "persistentvolumeclaims", "x", "claim"), Ok(())),
        ("a", access("get", "persistentvolumes", "", "pv"), Ok(())),
        ("a", access("get", "secrets", "y", "disk"), Ok(())),
        ("b", access("get", "secrets", "y", "disk"), Err(NO_RELATION)),
        ("a", access("get", "storage.k8s.io:volumeattachments", "", "va"), Ok(())),
        ("a", access("create", "serviceaccounts/token", "x", "default"), Ok(())),
        ("b", access("create", "serviceaccounts/token", "x", "default"), Err(NO_RELATION)),
        ("a", access("update", "coordination.k8s.io:leases", "kube-node-lease", "a"), Ok(())),
        (
            "a",
            access("update", "coordination.k8s.io:leases", "kube-node-lease", "b"),
            Err("can only access node lease with the same name as the requesting node"),
        ),
        (
            "a",
            access("get", "coordination.k8s.io:leases", "x", "a"),
            Err("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
        ("a", access("get", "nodes", "", "a"), Ok(())),
        ("a", access("get", "nodes", "", "b"), Err("node 'a' cannot read 'b', only its own Node object")),
        (
            "a",
            access("list", "nodes", "", ""),
            Err("node 'a' cannot read all nodes, only its own Node object"),
        ),
        ("a", access("patch", "nodes/status", "", "a"), Ok(())),
        ("a", access("delete", "nodes", "", "a"), Err("")),
        ("a", access("get", "pods", "x", "p"), Ok(())),
        ("b", access("get", "pods", "x", "p"), Err(NO_RELATION)),
        (
            "a",
            access("list", "pods", "", ""),
            Err("can only list/watch pods with spec.nodeName field selector"),
        ),
        ("a", Access { field_selector: "spec.nodeName=a", ..access("watch", "pods", "", "") }, Ok(())),
        (
            "a",
            Access { field_selector: "spec.nodeName=b", ..access("watch", "pods", "", "") },
            Err("can only list/watch pods with spec.nodeName field selector"),
        ),
        ("a", access("list", "services", "", ""), Ok(())),
        ("a", access("create", "events.k8s.io:events", "x", ""), Ok(())),
        ("a", access("get", "apps:deployments", "x", "d"), Err("")),
        ("", access("get", "services", "x", "s"), Err("unknown node for user \"system:node:\"")),
    ];
    let authorizer = authorizer();
    for (name, access, want) in cases {
        let want = match want {
            Ok(()) => Decision::Allow(String::new()),
            Err(reason) => Decision::NoOpinion((*reason).into()),
        };
        assert_eq!(authorizer.decision(&node(name), access), want, "{name} {access:?}");
    }
    let stranger = UserInfo { name: "system:node:a".into(), ..UserInfo::default() };
    assert_eq!(
        authorizer.decision(&stranger, &access("get", "secrets", "x", "s")),
        Decision::NoOpinion(String::new())
    );
}

#[test]
fn what_is_gone_opens_nothing() {
    let authorizer = authorizer();
    let get = access("get", "secrets", "y", "disk");
    authorizer.graph().apply([GraphChange::Pod("x".into(), "p".into(), None)]);
    assert!(matches!(authorizer.decision(&node("a"), &get), Decision::NoOpinion(_)));
}

#[test]
fn trust_bundles_are_for_nodes_where_the_gate_is_on() {
    let group = "certificates.k8s.io:clustertrustbundles";
    let check = |on: bool, verb: &str, expected: bool| {
        let decided = NodeAuthorizer::new(false, on).decide("a", &access(verb, group, "", ""));
        assert_eq!(decided.is_ok(), expected, "{on} {verb}");
    };
    for verb in ["get", "list", "watch"] {
        check(true, verb, true);
        check(false, verb, false);
    }
    check(true, "create", false);
}
