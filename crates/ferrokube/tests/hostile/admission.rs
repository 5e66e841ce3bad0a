//! A node that may do everything by RBAC is still limited to its own objects, in every kind of write.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Request, Server};

const NODE: &str = "system:node:one";

/// A server with two nodes, each with Pods, on which RBAC allows nodes everything.
fn cluster() -> Result<Server> {
    let server = Server::start(&[])?;
    server.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &json!({
            "metadata": {"name": "nodes-may-everything"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }),
    )?;
    server.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))?;
    for node in ["one", "two"] {
        server.create("/api/v1/nodes", &json!({"metadata": {"name": node}}))?;
    }
    for (name, node) in [("mine", "one"), ("mine-too", "one"), ("theirs", "two"), ("nobodys", "")] {
        server.create("/api/v1/namespaces/default/pods", &pod(name, node))?;
    }
    Ok(server)
}

fn pod(name: &str, node: &str) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"of": name}}, "spec": spec})
}

fn mirror_pod(name: &str, uid: &str) -> Value {
    let mut pod = pod(name, "one");
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "one", "uid": uid, "controller": true}]);
    pod
}

fn token(pod: &str, uid: &str) -> Value {
    json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}}})
}

fn eviction(pod: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}})
}

fn as_node(request: Request) -> Request {
    request.header("Impersonate-User", NODE).header("Impersonate-Group", "system:nodes")
}

fn uid(server: &Server, path: &str) -> Result<String> {
    let object = server.get(path).send()?.expect(200)?.json()?;
    Ok(object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

/// Makes a request for a write: `how` is a method, or a kind of patch.
fn request(server: &Server, how: &str, path: &str, body: &Value) -> Request {
    match how {
        "POST" | "PUT" => server.request(how, path).json(body),
        "DELETE" => server.request(how, path),
        patch => server.patch(path, patch, body),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_node_changes_its_own_objects_and_no_others() -> Result<()> {
    let server = cluster()?;
    let pods = "/api/v1/namespaces/default/pods";
    let of = |name: &str| format!("{pods}/{name}");
    let own = uid(&server, "/api/v1/nodes/one")?;
    let (mine, theirs) = (uid(&server, &of("mine"))?, uid(&server, &of("theirs"))?);
    let mine_only = "unexpected operation \"UPDATE\", node \"one\" can only create and delete mirror pods";
    let mirror = "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"one\" can only create mirror pods";
    let subresources = "only 'status' and 'eviction' are allowed";
    let stored = server.get(&of("theirs")).send()?.expect(200)?.json()?;
    let other_node = json!({"metadata": {"annotations": {"a": "b"}}});
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}});
    let running = json!({"status": {"message": "x"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let same_lease = "can only access node lease with the same name as the requesting node";
    let same_node = "node \"one\" is not allowed to modify node \"two\"";
    let tokens = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let slice = |node: &str| {
        json!({"metadata": {"name": format!("of-{node}")}, "spec": {"driver": "d.example.com", "nodeName": node,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
    };
    let csi = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
    let binding = json!({"metadata": {"name": "nobodys"}, "target": {"kind": "Node", "name": "one"}});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let evict_own = "node one can only evict pods with spec.nodeName set to itself";
    let delete_own = "node \"one\" can only delete pods with spec.nodeName set to itself";
    let status_own = "node \"one\" can only update pod status for pods with spec.nodeName set to itself";
    // Each case has a method, a path, a body, and the text of the refusal, "" for none.
    let cases: Vec<(&str, String, Value, &str)> = vec![
        ("POST", pods.into(), pod("new", "one"), mirror),
        ("POST", pods.into(), mirror_pod("mirror", &own), ""),
        ("POST", format!("{pods}?dryRun=All"), pod("new", "one"), mirror),
        ("PUT", of("theirs"), stored, mine_only),
        ("merge", of("mine"), other_node.clone(), mine_only),
        ("apply", format!("{}?fieldManager=m", of("fresh")), pod("fresh", "one"), mirror),
        ("apply", format!("{}?fieldManager=m&force=true", of("theirs")), pod("theirs", "two"), mine_only),
        ("merge", format!("{}/status", of("theirs")), running.clone(), status_own),
        ("merge", format!("{}/status", of("nobodys")), running.clone(), status_own),
        ("merge", format!("{}/status", of("mine")), running, ""),
        ("POST", format!("{}/binding", of("nobodys")), binding, subresources),
        ("strategic-merge", format!("{}/ephemeralcontainers", of("mine")), ephemeral, subresources),
        ("merge", format!("{}/resize", of("mine")), json!({}), subresources),
        ("POST", tokens.into(), json!({"spec": {}}), "node requested token not bound to a pod"),
        (
            "POST",
            tokens.into(),
            token("theirs", &theirs),
            "node requested token bound to a pod scheduled on a different node",
        ),
        ("POST", tokens.into(), token("mine", &mine), ""),
        ("POST", format!("{}/eviction", of("theirs")), eviction("theirs"), evict_own),
        ("POST", format!("{}/eviction?dryRun=All", of("theirs")), eviction("theirs"), evict_own),
        ("POST", format!("{}/eviction", of("nobodys")), eviction("nobodys"), evict_own),
        ("POST", format!("{}/eviction", of("mine-too")), eviction("mine-too"), ""),
        ("DELETE", of("theirs"), Value::Null, delete_own),
        ("DELETE", format!("{}?dryRun=All", of("theirs")), Value::Null, delete_own),
        ("DELETE", format!("{}?gracePeriodSeconds=0", of("nobodys")), Value::Null, delete_own),
        ("DELETE", format!("{pods}?labelSelector=of=theirs"), Value::Null, delete_own),
        ("DELETE", of("mine"), Value::Null, ""),
        ("merge", "/api/v1/nodes/two".into(), other_node.clone(), same_node),
        ("merge", "/api/v1/nodes/two/status".into(), json!({"status": {"phase": "Running"}}), same_node),
        ("DELETE", "/api/v1/nodes/two".into(), Value::Null, same_node),
        ("merge", "/api/v1/nodes/one".into(), other_node, ""),
        ("merge", "/api/v1/nodes/one/status".into(), json!({"status": {"phase": "Running"}}), ""),
        ("POST", leases.into(), lease("two"), same_lease),
        ("PUT", format!("{leases}/two"), lease("two"), same_lease),
        ("PUT", format!("{leases}/one"), lease("one"), ""),
        ("DELETE", format!("{leases}/one"), Value::Null, ""),
        (
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".into(),
            lease("one"),
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "POST",
            "/apis/storage.k8s.io/v1/csinodes".into(),
            csi("two"),
            "can only access CSINode with the same name as the requesting node",
        ),
        ("POST", "/apis/storage.k8s.io/v1/csinodes".into(), csi("one"), ""),
        (
            "POST",
            "/apis/resource.k8s.io/v1/resourceslices".into(),
            slice("two"),
            "can only create ResourceSlice with the same NodeName as the requesting node",
        ),
        ("POST", "/apis/resource.k8s.io/v1/resourceslices".into(), slice("one"), ""),
        (
            "POST",
            "/api/v1/namespaces/default/persistentvolumeclaims".into(),
            claim,
            "may only update PVC status",
        ),
    ];
    for (how, path, body, refusal) in &cases {
        let answer = as_node(request(&server, how, path, body)).send()?;
        let (status, text) = (answer.status, answer.text());
        if refusal.is_empty() {
            ensure!((200..300).contains(&status), "{how} {path}: {status} {text}");
        } else {
            let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
            ensure!(status == 403 && message.contains(refusal), "{how} {path}: {status} {text}");
        }
    }
    for kept in ["theirs", "nobodys"] {
        let pod = server.get(&of(kept)).send()?.expect(200)?.json()?;
        ensure!(pod["metadata"]["deletionTimestamp"].is_null(), "{kept} goes");
    }
    Ok(())
}
