//! Odd objects of every kind that the API server accepts: the controllers go on with all others.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Server, eventually, within};

use crate::hostile::alive;

const LARGEST: i64 = i32::MAX as i64;

/// Requirements that every object meets.
fn requirements(count: usize) -> Value {
    (0..count).map(|i| json!({"key": format!("k{i}"), "operator": "DoesNotExist"})).collect()
}

fn owner(kind: &str, version: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true, "controller": false})
}

fn template(labels: &Value, account: &str) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {
        "serviceAccountName": account, "containers": [{"name": "c", "image": "i"}],
        "terminationGracePeriodSeconds": i64::MAX,
    }})
}

/// A server whose namespaces have the accounts that Pods need.
fn prepared() -> Result<Server> {
    let s = Server::start_as("server", &[])?;
    for namespace in ["odd", "gone"] {
        s.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}}))?;
    }
    for namespace in ["default", "odd", "gone"] {
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        eventually("the account", || Ok(s.get(&account).send()?.expect(200).ok()))?;
    }
    Ok(s)
}

/// Makes workloads with numbers and selectors at the edges of what is valid.
fn odd_workloads(s: &Server, namespace: &str) -> Result<()> {
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    let labels = json!({"app": "odd"});
    // The Deployment wants as many Pods as possible, none of which is admitted.
    let deployment = json!({"metadata": {"name": "huge"}, "spec": {
        "replicas": LARGEST, "minReadySeconds": LARGEST - 1, "progressDeadlineSeconds": LARGEST,
        "revisionHistoryLimit": LARGEST, "selector": {"matchLabels": labels},
        "strategy": {"rollingUpdate": {"maxSurge": "1000000000%", "maxUnavailable": "100%"}},
        "template": template(&labels, "missing"),
    }});
    s.create(&format!("{apps}/deployments"), &deployment)?;
    let set = json!({"metadata": {"name": "picky"}, "spec": {
        "replicas": LARGEST, "minReadySeconds": LARGEST,
        "selector": {"matchLabels": labels, "matchExpressions": requirements(10_000)},
        "template": template(&labels, "missing"),
    }});
    s.create(&format!("{apps}/replicasets"), &set)?;
    let budget = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let budgets = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let picky = json!({"matchExpressions": requirements(10_000)});
    for (name, spec) in [
        ("none", json!({"maxUnavailable": LARGEST, "selector": picky})),
        ("all", json!({"minAvailable": "100%", "selector": {}})),
        ("many", json!({"minAvailable": LARGEST, "selector": {"matchLabels": labels}})),
        ("nobody", json!({"minAvailable": 1})),
    ] {
        s.create(&budgets, &budget(name, spec))?;
    }
    let service = json!({"metadata": {"name": "all"}, "spec": {
        "selector": labels, "publishNotReadyAddresses": true, "ports": [{"port": 80, "targetPort": "nowhere"}],
    }});
    s.create(&format!("/api/v1/namespaces/{namespace}/services"), &service)?;
    let addresses: Vec<Value> =
        (0..5000).map(|i| json!({"ip": format!("10.9.{}.{}", i / 250, i % 250 + 1)})).collect();
    s.create(
        &format!("/api/v1/namespaces/{namespace}/services"),
        &json!({"metadata": {"name": "by-hand"}, "spec": {"ports": [{"port": 80}]}}),
    )?;
    let endpoints = json!({"metadata": {"name": "by-hand"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
    s.create(&format!("/api/v1/namespaces/{namespace}/endpoints"), &endpoints)?;
    Ok(())
}

/// Makes Pods with odd owners, and one that may take for ever to end.
fn odd_pods(s: &Server, namespace: &str) -> Result<()> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let mut of_nobody = owner("Nothing", "no.such.group/v1", "x", "uid-x");
    of_nobody["controller"] = json!(true);
    let mut of_a_node = owner("Node", "v1", "nowhere", "uid-node");
    of_a_node["controller"] = json!(true);
    for (name, owners) in
        [("of-nobody", json!([of_nobody])), ("of-a-node", json!([of_a_node])), ("of-none", json!([]))]
    {
        let mut pod = template(&json!({"app": "odd"}), "default");
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["ownerReferences"] = owners;
        pod["spec"]["nodeName"] = json!("nowhere");
        let tolerations =
            json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": i64::MAX}]);
        pod["spec"]["tolerations"] = tolerations;
        s.create(&pods, &pod)?;
        let status = json!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "9999-12-30T00:00:00Z"},
            {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "0001-01-02T00:00:00Z"},
        ]}});
        s.patch(&format!("{pods}/{name}/status"), "merge", &status).send()?.expect(200)?;
    }
    s.request("DELETE", &format!("{pods}/of-none")).json(&json!({"gracePeriodSeconds": i64::MAX})).send()?;
    Ok(())
}

/// Makes ConfigMaps that own each other in circles, one that owns itself, and one with thousands of owners that never
/// existed.
fn odd_owners(s: &Server, namespace: &str) -> Result<()> {
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let count = 200;
    let mut uids = Vec::new();
    for i in 0..count {
        let made = s.create(&maps, &json!({"metadata": {"name": format!("ring-{i}")}}))?;
        uids.push(made["metadata"]["uid"].as_str().context("no uid")?.to_owned());
    }
    for i in 0..count {
        let next = (i + 1) % count;
        let own = if i == 0 { 0 } else { next };
        let references = json!([
            owner("ConfigMap", "v1", &format!("ring-{own}"), &uids[own]),
            owner(
                "ConfigMap",
                "v1",
                &format!("ring-{next}"),
                if own == next { "uid-never" } else { &uids[next] }
            ),
        ]);
        let patch = json!({"metadata": {"ownerReferences": references}});
        s.patch(&format!("{maps}/ring-{i}"), "merge", &patch).send()?.expect(200)?;
    }
    let owners: Vec<Value> =
        (0..10_000).map(|i| owner("ConfigMap", "v1", &format!("never-{i}"), &format!("uid-{i}"))).collect();
    s.create(&maps, &json!({"metadata": {"name": "of-many", "ownerReferences": owners}}))?;
    let foreground = json!({"propagationPolicy": "Foreground"});
    s.request("DELETE", &format!("{maps}/ring-7")).json(&foreground).send()?;
    Ok(())
}

/// Makes odd objects of the cluster.
fn odd_cluster(s: &Server) -> Result<()> {
    let node = json!({"metadata": {"name": "odd"}, "spec": {"podCIDRs": ["203.0.113.0/32"], "podCIDR": "203.0.113.0/32",
        "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "9999-12-30T00:00:00Z"}]}});
    s.create("/api/v1/nodes", &node)?;
    let status = json!({"status": {"conditions": [
        {"type": "Ready", "status": "perhaps", "lastHeartbeatTime": "0001-01-02T00:00:00Z"},
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "9999-12-30T00:00:00Z"},
    ]}});
    // Two conditions of a type may be refused; both answers are right.
    s.patch("/api/v1/nodes/odd/status", "merge", &status).send()?;
    let lease = json!({"metadata": {"name": "odd", "namespace": "kube-node-lease"}, "spec": {
        "holderIdentity": "odd", "leaseDurationSeconds": LARGEST, "renewTime": "9999-12-30T00:00:00.000000Z"}});
    eventually("the leases' namespace", || {
        Ok(s.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).ok())
    })?;
    let role = json!({"metadata": {"name": "odd", "labels": {"app": "odd"}}, "rules": null, "aggregationRule": {
        "clusterRoleSelectors": [{"matchLabels": {"app": "odd"}}, {"matchExpressions": requirements(5000)}]}});
    s.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role)?;
    Ok(())
}

#[test]
fn odd_objects_cost_themselves() -> Result<()> {
    let s = prepared()?;
    for namespace in ["odd", "gone"] {
        odd_workloads(&s, namespace).context("workloads")?;
        odd_pods(&s, namespace).context("pods")?;
        odd_owners(&s, namespace).context("owners")?;
    }
    odd_cluster(&s).context("cluster")?;

    // An ordinary Deployment is rolled out, and out again.
    let labels = json!({"app": "web"});
    let mut template = template(&labels, "default");
    template["spec"]["terminationGracePeriodSeconds"] = json!(0);
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": labels}, "template": template,
        "strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "100%"}},
    }});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    s.create(deployments, &deployment)?;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": labels}}});
    s.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget)?;
    let pods = |image: &'static str| {
        eventually("the Pods", || {
            let list = s.get("/api/v1/namespaces/default/pods?labelSelector=app=web").send()?.json()?;
            let pods = list["items"].as_array().context("no list")?.clone();
            let new = pods.iter().filter(|p| p["spec"]["containers"][0]["image"] == image).count();
            Ok((new == 3 && pods.len() == 3).then_some(()))
        })
    };
    pods("i")?;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
    s.patch(&format!("{deployments}/web"), "strategic-merge", &image).send()?.expect(200)?;
    pods("j")?;

    // The budget of the Deployment is counted, and so are those of the odd ones that can be.
    let counted = |namespace: &str, name: &str| {
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}");
        eventually("the budget", || {
            let status = s.get(&path).send()?.json()?["status"].clone();
            Ok((status["observedGeneration"] == 1).then_some(status))
        })
    };
    let status = counted("default", "web")?;
    ensure!(status["expectedPods"] == 3 && status["desiredHealthy"] == 1, "{status}");
    counted("odd", "many")?;

    // A namespace goes with all its odd objects.
    s.request("DELETE", "/api/v1/namespaces/gone").send()?.expect(200)?;
    let pods = "/api/v1/namespaces/gone/pods";
    eventually("the end of the namespace", || {
        let list = s.get(pods).send()?.json()?;
        for pod in list["items"].as_array().into_iter().flatten() {
            // The test does a kubelet's work.
            let name = pod["metadata"]["name"].as_str().context("no name")?;
            s.request("DELETE", &format!("{pods}/{name}")).json(&json!({"gracePeriodSeconds": 0})).send()?;
        }
        Ok(s.get("/api/v1/namespaces/gone").send()?.expect(404).ok())
    })?;
    within(std::time::Duration::from_secs(30), "the server", || alive::serves_others(&s).map(Some))
}
