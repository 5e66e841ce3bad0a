mod optional;

use std::sync::Arc;

use api::{FeatureGates, Gvk, Schema, Status, Struct};
use component::Clock;
use serde_json::{Value, json};

use super::*;
use crate::Notes;
use crate::UserInfo;
use crate::auth::node::NodeAuthorizer;
use crate::auth::rbac::{Binding, Change, RbacIndex, Role, RoleRef, Rule, Subject};
use crate::auth::{AuthorizationMode, UnionAuthorizer};
use crate::testing::{Alone, Fake, alone};

/// A request by its parts; the rest is empty.
struct Case<'a> {
    user: UserInfo,
    operation: Operation,
    kind: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
    old: Option<Value>,
}

pub(super) fn parse(kind: &Gvk, json: &Value) -> Struct {
    let schema = Schema::builtin();
    let root = schema.kind(kind).unwrap_or_else(|| panic!("{kind:?}"));
    api::codec::json::decode(schema, root, json.to_string().as_bytes()).unwrap().tree
}

pub(super) fn print(tree: &Struct) -> Value {
    let mut out = Vec::new();
    api::codec::json::encode(Schema::builtin(), tree, &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn gvk(kind: &str) -> Gvk {
    let (group, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
    Gvk::new(group, "v1", kind)
}

fn rbac() -> RbacIndex {
    let rbac = RbacIndex::default();
    rbac.apply([
        Change::Role(
            "".into(),
            "view".into(),
            Some(Role { rules: vec![Rule::resources(&["get"], "", &["pods"])] }),
        ),
        Change::Role(
            "".into(),
            "all".into(),
            Some(Role { rules: vec![Rule::resources(&["*"], "*", &["*"])] }),
        ),
        Change::Binding(
            "".into(),
            "bob".into(),
            Some(Binding {
                name: "bob".into(),
                namespace: "".into(),
                subjects: vec![Subject { kind: "User".into(), name: "bob".into(), ..Subject::default() }],
                role_ref: RoleRef { kind: "ClusterRole".into(), name: "view".into(), api_group: "".into() },
            }),
        ),
    ]);
    rbac
}

fn cluster() -> Fake {
    let fake = Fake::default();
    let named = |namespace: &str, name: &str| json!({ "namespace": namespace, "name": name, "uid": "u" });
    for name in ["a", "kube-node-lease"] {
        fake.put(("", "namespaces"), json!({ "metadata": { "name": name } }));
    }
    fake.put(
        ("", "namespaces"),
        json!({ "metadata": { "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    );
    fake.put(("", "serviceaccounts"), json!({ "metadata": named("a", "default") }));
    fake.put(("", "serviceaccounts"), json!({
        "metadata": named("a", "puller"), "imagePullSecrets": [{ "name": "regcred" }], "automountServiceAccountToken": false,
    }));
    fake.put(("", "serviceaccounts"), json!({
        "metadata": { "namespace": "a", "name": "strict", "annotations": { "kubernetes.io/enforce-mountable-secrets": "true" } },
        "secrets": [{ "name": "mine" }],
    }));
    fake.put(
        ("scheduling.k8s.io", "priorityclasses"),
        json!({ "metadata": { "name": "high" }, "value": 1000, "preemptionPolicy": "Never" }),
    );
    fake.put(
        ("", "nodes"),
        json!({ "metadata": { "name": "n", "uid": "n1", "labels": { "topology.kubernetes.io/zone": "z" } } }),
    );
    fake.put(("", "pods"), json!({
        "metadata": { "namespace": "a", "name": "p", "uid": "p1" },
        "spec": { "nodeName": "n", "volumes": [{ "name": "t", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } }] },
    }));
    fake.put(
        ("", "pods"),
        json!({ "metadata": { "namespace": "a", "name": "q", "uid": "q1" }, "spec": { "nodeName": "m" } }),
    );
    fake.put(("node.k8s.io", "runtimeclasses"), json!({
        "metadata": { "name": "vm" }, "overhead": { "podFixed": { "cpu": "250m" } },
        "scheduling": { "nodeSelector": { "vm": "yes" }, "tolerations": [{ "key": "vm", "operator": "Exists" }] },
    }));
    fake.put(("storage.k8s.io", "storageclasses"), json!({
        "metadata": { "name": "old", "creationTimestamp": "2025-01-01T00:00:00Z", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
    }));
    fake.put(("storage.k8s.io", "storageclasses"), json!({
        "metadata": { "name": "new", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
    }));
    fake
}

/// Runs the whole chain, and returns the object as the chain leaves it.
async fn admit(case: Case<'_>, object: Option<Value>) -> Result<Value, Status> {
    let authorizer = UnionAuthorizer::new(
        &[AuthorizationMode::Rbac],
        Arc::new(NodeAuthorizer::default()),
        Arc::new(rbac()),
    );
    let chain = Chain::new(
        Schema::builtin(),
        alone(cluster()),
        Arc::new(authorizer),
        (FeatureGates::default(), Clock::system()),
        &[],
        &[],
        &AdmissionConfig::default(),
    )
    .unwrap();
    let kind = gvk(case.kind);
    let (group, resource) = case.resource.split_once(':').unwrap_or(("", case.resource));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let old = case.old.map(|o| parse(&kind, &o));
    let request = AdmissionRequest {
        user: &Arc::new(case.user),
        info: &RequestInfo { group: group.into(), ..RequestInfo::default() },
        operation: case.operation,
        kind: &kind,
        request_kind: &kind,
        versions: &Alone,
        resource,
        subresource,
        namespace: case.namespace,
        name: case.name,
        old: old.as_ref(),
        dry_run: false,
        options: OperationOptions::default(),
        notes: &Notes::default(),
    };
    let Some(object) = object else {
        return chain.validate(&request, None).await.map(|()| Value::Null);
    };
    let mut tree = parse(&kind, &object);
    chain.mutate(&request, &mut tree).await?;
    chain.validate(&request, Some(&tree)).await?;
    Ok(print(&tree))
}

fn user(name: &str) -> UserInfo {
    UserInfo { name: name.into(), ..UserInfo::default() }
}

fn kubelet(node: &str) -> UserInfo {
    UserInfo { groups: vec!["system:nodes".into()], ..user(&format!("system:node:{node}")) }
}

fn create<'a>(user: UserInfo, kind: &'a str, resource: &'a str, namespace: &'a str) -> Case<'a> {
    Case { user, operation: Operation::Create, kind, resource, namespace, name: "", old: None }
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({ "metadata": { "name": "x", "namespace": "a" }, "spec": spec });
    if pod["spec"]["containers"].is_null() {
        pod["spec"]["containers"] = json!([{ "name": "c", "image": "i" }]);
    }
    pod
}

async fn admit_pod(spec: Value) -> Result<Value, String> {
    admit(create(user("eve"), "Pod", "pods", "a"), Some(pod(spec))).await.map_err(|s| s.message)
}

#[tokio::test]
async fn a_pod_is_completed() {
    let made = admit_pod(json!({})).await.unwrap();
    let spec = &made["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    assert_eq!(
        spec["tolerations"],
        json!([toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable"),])
    );
    let name = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    assert_eq!(
        spec["volumes"][0]["projected"],
        json!({ "defaultMode": 420, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
        ]})
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([
            { "name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" },
        ])
    );
}

#[tokio::test]
async fn pods_and_their_service_accounts() {
    let volumes = |made: &Value| made["spec"]["volumes"].as_array().map_or(0, Vec::len);
    let made = admit_pod(json!({ "automountServiceAccountToken": false })).await.unwrap();
    assert_eq!(volumes(&made), 0);
    let made = admit_pod(json!({ "serviceAccountName": "puller" })).await.unwrap();
    assert_eq!((volumes(&made), &made["spec"]["imagePullSecrets"]), (0, &json!([{ "name": "regcred" }])));
    let own = json!([{ "name": "v", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }]);
    let spec = json!({ "containers": [{ "name": "c", "image": "i", "volumeMounts": own }] });
    assert_eq!(volumes(&admit_pod(spec).await.unwrap()), 0, "a mount of one's own stays alone");
    let refused = [
        (
            json!({ "serviceAccountName": "gone" }),
            "pods \"x\" is forbidden: error looking up service account a/gone: serviceaccount \"gone\" not found",
        ),
        (
            json!({ "serviceAccountName": "strict", "volumes": [{ "name": "v", "secret": { "secretName": "other" } }] }),
            "pods \"x\" is forbidden: volume with secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
        (
            json!({ "serviceAccountName": "strict", "containers": [{ "name": "c", "envFrom": [{ "secretRef": { "name": "other" } }] }] }),
            "pods \"x\" is forbidden: container c with envFrom referencing secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
    ];
    for (spec, want) in refused {
        assert_eq!(admit_pod(spec).await, Err(want.into()));
    }
    let allowed = json!({ "serviceAccountName": "strict", "volumes": [{ "name": "v", "secret": { "secretName": "mine" } }] });
    assert!(admit_pod(allowed).await.is_ok());
}

#[tokio::test]
async fn priorities_and_runtime_classes() {
    let made = admit_pod(json!({ "priorityClassName": "high" })).await.unwrap();
    assert_eq!(
        (&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]),
        (&json!(1000), &json!("Never"))
    );
    let made = admit_pod(json!({ "runtimeClassName": "vm", "nodeSelector": { "a": "b" } })).await.unwrap();
    assert_eq!(made["spec"]["overhead"], json!({ "cpu": "250m" }));
    assert_eq!(made["spec"]["nodeSelector"], json!({ "a": "b", "vm": "yes" }));
    assert_eq!(made["spec"]["tolerations"].as_array().map(Vec::len), Some(3));
    let refused = [
        (json!({ "priorityClassName": "low" }), "no PriorityClass with name low was found"),
        (
            json!({ "priority": 7 }),
            "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
        ),
        (json!({ "runtimeClassName": "none" }), "pod rejected: RuntimeClass \"none\" not found"),
        (
            json!({ "runtimeClassName": "vm", "nodeSelector": { "vm": "no" } }),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
        (
            json!({ "overhead": { "cpu": "1" } }),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ];
    for (spec, want) in refused {
        assert_eq!(admit_pod(spec).await, Err(format!("pods \"x\" is forbidden: {want}")));
    }
}

#[tokio::test]
async fn namespaces() {
    let config = json!({ "metadata": { "name": "c" } });
    let make =
        |namespace| admit(create(user("eve"), "ConfigMap", "configmaps", namespace), Some(config.clone()));
    assert!(make("a").await.is_ok());
    assert_eq!(make("none").await.unwrap_err().message, "namespaces \"none\" not found");
    let status = make("b").await.unwrap_err();
    assert_eq!(
        status.message,
        "configmaps \"c\" is forbidden: unable to create new content in namespace b because it is being terminated"
    );
    let cause = &status.details.unwrap().causes[0];
    assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("NamespaceTerminating", "metadata.namespace"));
    let delete = |name| Case {
        operation: Operation::Delete,
        name,
        ..create(user("eve"), "Namespace", "namespaces", name)
    };
    assert!(admit(delete("a"), None).await.is_ok());
    assert_eq!(
        admit(delete("kube-system"), None).await.unwrap_err().message,
        "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"
    );
}

#[tokio::test]
async fn storage_defaults() {
    let claim = json!({ "metadata": { "name": "c" }, "spec": {} });
    let made =
        admit(create(user("eve"), "PersistentVolumeClaim", "persistentvolumeclaims", "a"), Some(claim)).await;
    let made = made.unwrap();
    assert_eq!(made["spec"]["storageClassName"], "new");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn what_a_node_may_change() {
    let node = |labels: Value, taints: Value| json!({ "metadata": { "name": "n", "labels": labels }, "spec": { "taints": taints } });
    let plain = || node(json!({}), json!([]));
    let nodes = |user, old: Option<Value>| Case {
        operation: if old.is_some() { Operation::Update } else { Operation::Create },
        name: if old.is_some() { "n" } else { "" },
        old,
        ..create(user, "Node", "nodes", "")
    };
    let mirror = |uid: &str, spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h" });
        pod["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true }]);
        pod["spec"]["nodeName"] = "n".into();
        pod
    };
    let pods = |user| create(user, "Pod", "pods", "a");
    let token = |user, name: &str, uid: &str, audiences: Value| {
        (
            Case {
                name: "default",
                ..create(user, "authentication.k8s.io/TokenRequest", "serviceaccounts/token", "a")
            },
            Some(
                json!({ "spec": { "audiences": audiences, "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid } } }),
            ),
        )
    };
    let lease = |name: &str| {
        (
            create(
                kubelet("n"),
                "coordination.k8s.io/Lease",
                "coordination.k8s.io:leases",
                "kube-node-lease",
            ),
            Some(json!({ "metadata": { "name": name } })),
        )
    };
    let n = || kubelet("n");
    type Sent<'a> = (Case<'a>, Option<Value>);
    let cases: Vec<(Sent<'_>, Result<(), &str>)> = vec![
        ((nodes(n(), None), Some(plain())), Ok(())),
        (
            (nodes(kubelet("m"), None), Some(plain())),
            Err("nodes \"n\" is forbidden: node \"m\" is not allowed to modify node \"n\""),
        ),
        ((nodes(user("admin"), None), Some(node(json!({ "x.k8s.io/y": "" }), json!([])))), Ok(())),
        (
            (
                nodes(n(), None),
                Some(node(
                    json!({ "kubernetes.io/hostname": "n", "x.node.kubernetes.io/y": "", "own": "" }),
                    json!([]),
                )),
            ),
            Ok(()),
        ),
        (
            (
                nodes(n(), None),
                Some(node(
                    json!({ "node-role.kubernetes.io/x": "", "a.node-restriction.kubernetes.io/y": "" }),
                    json!([]),
                )),
            ),
            Err(
                "nodes \"n\" is forbidden: node \"n\" is not allowed to set the following labels: a.node-restriction.kubernetes.io/y, node-role.kubernetes.io/x",
            ),
        ),
        ((nodes(n(), Some(plain())), Some(node(json!({ "own": "1" }), json!([])))), Ok(())),
        (
            (
                nodes(n(), Some(plain())),
                Some(node(json!({}), json!([{ "key": "k", "effect": "NoSchedule" }]))),
            ),
            Err("nodes \"n\" is forbidden: node \"n\" is not allowed to modify taints"),
        ),
        (
            (nodes(n(), Some(plain())), Some(node(json!({ "x.k8s.io/y": "" }), json!([])))),
            Err("nodes \"n\" is forbidden: is not allowed to modify labels: x.k8s.io/y"),
        ),
        (
            (pods(n()), Some(pod(json!({})))),
            Err(
                "pods \"x\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods",
            ),
        ),
        ((pods(n()), Some(mirror("n1", json!({})))), Ok(())),
        (
            (pods(n()), Some(mirror("n2", json!({})))),
            Err("pods \"x\" is forbidden: node n UID mismatch: expected n2 got n1"),
        ),
        (
            (
                pods(n()),
                Some(mirror(
                    "n1",
                    json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] }),
                )),
            ),
            Err(
                "pods \"x\" is forbidden: node \"n\" can not create pods that reference persistentvolumeclaims",
            ),
        ),
        (token(n(), "p", "p1", json!([])), Ok(())),
        (
            token(n(), "p", "p1", json!(["vault"])),
            Err(
                "serviceaccounts \"default\" is forbidden: audience \"vault\" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience",
            ),
        ),
        (
            token(n(), "p", "p2", json!([])),
            Err(
                "serviceaccounts \"default\" is forbidden: the UID in the bound object reference (p2) does not match the UID in record. The object might have been deleted and then recreated",
            ),
        ),
        (
            token(n(), "q", "q1", json!([])),
            Err(
                "serviceaccounts \"default\" is forbidden: node requested token bound to a pod scheduled on a different node",
            ),
        ),
        (
            lease("m"),
            Err(
                "leases.coordination.k8s.io \"m\" is forbidden: can only access node lease with the same name as the requesting node",
            ),
        ),
        (
            (
                Case {
                    operation: Operation::Delete,
                    name: "q",
                    old: Some(json!({ "spec": { "nodeName": "m" } })),
                    ..pods(n())
                },
                None,
            ),
            Err("pods \"q\" is forbidden: node \"n\" can only delete pods with spec.nodeName set to itself"),
        ),
        (
            (
                Case {
                    operation: Operation::Delete,
                    name: "p",
                    old: Some(json!({ "spec": { "nodeName": "n" } })),
                    ..pods(n())
                },
                None,
            ),
            Ok(()),
        ),
    ];
    for (i, ((case, object), want)) in cases.into_iter().enumerate() {
        let got = admit(case, object).await.map(|_| ()).map_err(|s| s.message);
        assert_eq!(got, want.map_err(String::from), "case {i}");
    }
}

#[tokio::test]
async fn a_new_node_is_tainted_and_its_pods_are_labelled() {
    let node = json!({ "metadata": { "name": "n" } });
    let made = admit(create(kubelet("n"), "Node", "nodes", ""), Some(node)).await.unwrap();
    assert_eq!(
        made["spec"]["taints"],
        json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }])
    );
    let binding = json!({ "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n" } });
    let made = admit(create(user("scheduler"), "Binding", "pods/binding", "a"), Some(binding)).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({ "topology.kubernetes.io/zone": "z" }));
}

#[tokio::test]
async fn nobody_grants_what_they_lack() {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let role = |rules: Value| json!({ "metadata": { "name": "r" }, "rules": rules });
    let pods = |verbs: Value| json!([{ "verbs": verbs, "apiGroups": [""], "resources": ["pods"] }]);
    let binding = |role: &str| json!({ "metadata": { "name": "b" }, "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role } });
    let kinds = [
        ("rbac.authorization.k8s.io/Role", "rbac.authorization.k8s.io:roles"),
        ("rbac.authorization.k8s.io/RoleBinding", "rbac.authorization.k8s.io:rolebindings"),
    ];
    let root = UserInfo { groups: vec!["system:masters".into()], ..user("root") };
    let lacking = |what: &str, rules: &str| {
        Err(format!(
            "{what} is forbidden: user \"bob\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n{rules}"
        ))
    };
    let cases = [
        (user("bob"), 0, role(pods(json!(["get"]))), Ok(())),
        (
            user("bob"),
            0,
            role(pods(json!(["get", "list"]))),
            lacking(
                "roles.rbac.authorization.k8s.io \"r\"",
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}",
            ),
        ),
        (root, 0, role(pods(json!(["*"]))), Ok(())),
        (user("bob"), 1, binding("view"), Ok(())),
        (
            user("bob"),
            1,
            binding("all"),
            lacking(
                "rolebindings.rbac.authorization.k8s.io \"b\"",
                "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}",
            ),
        ),
        (
            user("bob"),
            1,
            binding("none"),
            Err("clusterrole.rbac.authorization.k8s.io \"none\" not found".into()),
        ),
    ];
    for (user, kind, object, want) in cases {
        let (kind, resource) = kinds[kind];
        let got = admit(create(user, kind, resource, "a"), Some(object)).await;
        assert_eq!(got.map(|_| ()).map_err(|s| s.message), want);
    }
    let stored = role(pods(json!(["list"])));
    let mut new = stored.clone();
    new["metadata"]["finalizers"] = json!(["x/y"]);
    let case = Case {
        operation: Operation::Update,
        name: "r",
        old: Some(stored),
        ..create(user("bob"), kinds[0].0, kinds[0].1, "a")
    };
    assert!(admit(case, Some(new)).await.is_ok(), "the garbage collector needs no rights of its own");
}

#[test]
fn plugins_by_name() {
    let chain = |enable: &[&str], disable: &[&str]| {
        let names = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let authorizer = UnionAuthorizer::new(&[], Arc::default(), Arc::default());
        Chain::new(
            Schema::builtin(),
            alone(Fake::default()),
            Arc::new(authorizer),
            (FeatureGates::default(), Clock::system()),
            &names(enable),
            &names(disable),
            &AdmissionConfig::default(),
        )
        .map(|_| ())
    };
    assert_eq!(chain(&["NodeRestriction"], &["ServiceAccount"]), Ok(()));
    assert_eq!(chain(&["PodSecurity"], &["LimitRanger"]), Ok(()));
    assert_eq!(chain(&["ImagePolicyWebhook"], &[]), Err(ChainError::Unknown("ImagePolicyWebhook".into())));
    assert_eq!(chain(&["Nonsense"], &[]), Err(ChainError::Unknown("Nonsense".into())));
    assert_eq!(chain(&["Priority"], &["Priority"]), Err(ChainError::Both("Priority".into())));
}

/// Admission reads the same subject in a request as authentication reads in the certificate that is made from it.
#[test]
fn a_request_and_its_certificate_name_the_same() {
    use rcgen::string::{BmpString, PrintableString, TeletexString, UniversalString};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    let masters = "system:masters";
    let values: [(DnValue, Option<&str>); 5] = [
        (DnValue::Utf8String(masters.into()), Some(masters)),
        (DnValue::PrintableString(PrintableString::try_from(masters).unwrap()), Some(masters)),
        (DnValue::TeletexString(TeletexString::try_from(masters).unwrap()), Some(masters)),
        (DnValue::BmpString(BmpString::try_from(masters).unwrap()), Some(masters)),
        (DnValue::UniversalString(UniversalString::try_from(masters).unwrap()), None),
    ];
    for (value, expected) in values {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "me");
        params.distinguished_name.push(DnType::OrganizationName, value.clone());
        let request = params.serialize_request(&key).unwrap();
        let requested = super::certificates::requested(request.der()).ok();
        let made = params.self_signed(&key).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(made.der()).unwrap();
        let user = crate::auth::certificate_user(&certificate, &[0; 32]);
        let groups = user.as_ref().map(|u| u.groups[0].to_string());
        assert_eq!(groups.as_deref(), expected, "{value:?}");
        assert_eq!(user.map(|u| u.name.to_string()), requested.as_ref().map(|r| r.common_name.clone()));
        assert_eq!(groups, requested.map(|r| r.organizations[0].clone()), "{value:?}");
    }
}
