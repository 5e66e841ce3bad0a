//! Evictions and PodDisruptionBudgets: the refusals of the API server, the counts of the disruption controller, and
//! `kubectl drain`, which needs both.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, Remote};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testkit::{Server, eventually};

use super::{pod, server};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const TOO_MANY: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// A server whose default namespace can have Pods.
fn prepared() -> Server {
    let s = server();
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    s
}

/// A Pod on a node, in a phase, ready or not.
fn running(s: &Server, name: &str, phase: &str, ready: Option<bool>) {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!("n");
    s.create(PODS, &pod).unwrap();
    let ready = ready.map(|r| json!({"type": "Ready", "status": if r { "True" } else { "False" }}));
    let conditions: Vec<Value> = ready.into_iter().collect();
    let status = json!({"status": {"phase": phase, "conditions": conditions}});
    s.patch(&format!("{PODS}/{name}/status"), "merge", &status).send().unwrap().expect(200).unwrap();
}

/// A budget of the Pods with a label, with a status.
fn budget(s: &Server, name: &str, app: &str, policy: Option<&str>, status: &Value) {
    let budget = json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": app}}, "unhealthyPodEvictionPolicy": policy,
    }});
    s.create(BUDGETS, &budget).unwrap();
    s.patch(&format!("{BUDGETS}/{name}/status"), "merge", &json!({"status": status}))
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
}

fn eviction(pod: &str, options: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, "deleteOptions": options})
}

fn evict(s: &Server, pod: &str, options: &Value) -> testkit::Answer {
    s.request("POST", &format!("{PODS}/{pod}/eviction")).json(&eviction(pod, options)).send().unwrap()
}

/// The cases of upstream's tests (`eviction_test.go`): a Pod, the status of its budget, and the cause of the refusal,
/// or none if the Pod goes.
#[test]
fn what_budgets_refuse() {
    let s = prepared();
    let all = [None, Some("IfHealthyBudget"), Some("AlwaysAllow")];
    let strict = &all[..2];
    let counts = |allowed: i64, current: i64, desired: i64| {
        json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
            "desiredHealthy": desired, "expectedPods": 3})
    };
    let said = |mut status: Value, reason: &str, message: &str| {
        status["conditions"] = json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        status
    };
    let mut behind = counts(1, 3, 2);
    behind["observedGeneration"] = json!(0);
    let ready = Some(true);
    let unready = Some(false);
    // A Pod's phase and readiness, its budget's status, the policies, and the cause.
    type Case<'a> = (&'a str, Option<bool>, Value, &'a [Option<&'a str>], &'a str);
    #[rustfmt::skip]
    let cases: Vec<Case<'_>> = vec![
        ("Running", None, counts(0, 0, 0), strict, "needs 0 healthy pods and has 0 currently"),
        ("Running", None, counts(0, 0, 0), &all[2..], ""),
        ("Pending", None, counts(0, 0, 0), &all, ""),
        ("Succeeded", None, counts(0, 0, 0), &all, ""),
        ("Failed", None, counts(0, 0, 0), &all, ""),
        ("Running", ready, counts(1, 3, 2), &all, ""),
        ("Running", ready, counts(0, 2, 2), &all, "needs 2 healthy pods and has 2 currently"),
        ("Running", ready, counts(0, 4, 3), &all, "does not allow evicting pods currently"),
        ("Running", unready, counts(0, 2, 2), &all, ""),
        ("Running", unready, counts(0, 1, 2), strict, "needs 2 healthy pods and has 1 currently"),
        ("Running", ready, said(counts(0, 0, 0), "SyncFailed", "hoge"), &all,
            "does not allow evicting pods currently because it failed sync: hoge"),
        ("Running", ready, said(counts(0, 4, 3), "BarReason", "hoge"), &all,
            "does not allow evicting pods currently (BarReason): hoge"),
        ("Running", ready, behind, &all, "is still being processed by the server."),
    ];
    for (i, (phase, is_ready, status, policies, refused)) in cases.iter().enumerate() {
        for (j, policy) in policies.iter().enumerate() {
            let name = format!("p{i}-{j}");
            running(&s, &name, phase, *is_ready);
            budget(&s, &name, &name, *policy, status);
            let answer = evict(&s, &name, &json!({"gracePeriodSeconds": 0}));
            if refused.is_empty() {
                answer.expect(201).unwrap();
                s.get(&format!("{PODS}/{name}")).send().unwrap().expect(404).unwrap();
                continue;
            }
            let answer = answer.expect(429).unwrap();
            let again = if refused.starts_with("is still") { "10" } else { "" };
            assert_eq!(answer.header("retry-after"), again, "{name}");
            let answer = answer.json().unwrap();
            let cause = &answer["details"]["causes"][0];
            assert_eq!(
                (&answer["message"], &answer["reason"]),
                (&json!(TOO_MANY), &json!("TooManyRequests"))
            );
            assert_eq!(cause["reason"], "DisruptionBudget");
            assert_eq!(cause["message"], format!("The disruption budget {name} {refused}"), "{name}");
        }
    }
}

#[test]
fn an_eviction_takes_one_from_the_budget() {
    let s = prepared();
    let status = |allowed: i64| {
        json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]})
    };
    for (name, allowed, condition) in
        [("one", 1, ("False", "InsufficientPods")), ("three", 3, ("True", "SufficientPods"))]
    {
        running(&s, name, "Running", Some(true));
        budget(&s, name, name, None, &status(allowed));
        let at = format!("{BUDGETS}/{name}");
        let read = || s.get(&at).send().unwrap().json().unwrap()["status"].clone();
        let before = read();
        for dry in [json!({"dryRun": ["All"]}), json!({"dryRun": ["All"], "gracePeriodSeconds": 0})] {
            evict(&s, name, &dry).expect(201).unwrap();
            let path = format!("{PODS}/{name}/eviction?dryRun=All");
            s.request("POST", &path).json(&eviction(name, &dry)).send().unwrap().expect(201).unwrap();
        }
        assert_eq!(read(), before, "nothing was stored");
        evict(&s, name, &json!({})).expect(201).unwrap();
        let after = read();
        assert_eq!(after["disruptionsAllowed"], allowed - 1);
        assert!(after["disruptedPods"][name].is_string(), "{after}");
        let said = &after["conditions"][0];
        assert_eq!((&said["status"], &said["reason"]), (&json!(condition.0), &json!(condition.1)));
        assert_eq!(said["observedGeneration"], 1);
        let pod = s.get(&format!("{PODS}/{name}")).send().unwrap().json().unwrap();
        assert!(pod["metadata"]["deletionTimestamp"].is_string());
        let told =
            pod["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget");
        let told = told.unwrap();
        assert_eq!(
            (&told["status"], &told["reason"], &told["message"]),
            (&json!("True"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"))
        );
    }
    running(&s, "dry", "Running", Some(true));
    let path = format!("{PODS}/dry/eviction?dryRun=All");
    let twice = eviction("dry", &json!({"dryRun": ["All", "All"]}));
    let answer = s.request("POST", &path).json(&twice).send().unwrap().expect(500).unwrap();
    assert_eq!(
        answer.json().unwrap()["message"],
        "Non-matching dry-run options in request and content: [All] and [All All]"
    );
}

#[test]
fn evictions_that_are_refused_otherwise() {
    let s = prepared();
    let many: serde_json::Map<String, Value> =
        (0..2001).map(|i| (format!("p{i}"), json!("2026-01-01T00:00:00Z"))).collect();
    let counts = json!({"observedGeneration": 1, "disruptionsAllowed": 5, "currentHealthy": 3, "desiredHealthy": 2,
        "expectedPods": 3});
    running(&s, "two", "Running", Some(true));
    budget(&s, "first", "two", None, &counts);
    budget(&s, "second", "two", None, &counts);
    let answer = evict(&s, "two", &json!({})).expect(500).unwrap().json().unwrap();
    assert_eq!(
        answer["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    running(&s, "crowd", "Running", Some(true));
    let mut crowded = counts.clone();
    crowded["disruptedPods"] = Value::Object(many);
    budget(&s, "crowd", "crowd", None, &crowded);
    let answer = evict(&s, "crowd", &json!({})).expect(403).unwrap().json().unwrap();
    assert_eq!(
        answer["message"],
        "poddisruptionbudget.policy \"crowd\" is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    );
    // Each state of a Pod is tried with preconditions.
    for (name, phase, ready) in
        [("ready", "Running", Some(true)), ("unready", "Running", Some(false)), ("pending", "Pending", None)]
    {
        running(&s, name, phase, ready);
        budget(&s, name, name, Some("AlwaysAllow"), &counts);
        let has = s.get(&format!("{PODS}/{name}")).send().unwrap().json().unwrap();
        for (wrong, code) in [
            // About a Pod that is not healthy upstream answers that it may have become so.
            (json!({"uid": "other"}), if name == "unready" { 429 } else { 409 }),
            (json!({"resourceVersion": "1"}), 409),
        ] {
            let answer = evict(&s, name, &json!({"preconditions": wrong})).expect(code).unwrap();
            if code == 409 {
                let message = answer.json().unwrap()["message"].as_str().unwrap().to_owned();
                assert!(message.contains("in the precondition"), "{message}");
            }
        }
        let right =
            json!({"uid": has["metadata"]["uid"], "resourceVersion": has["metadata"]["resourceVersion"]});
        evict(&s, name, &json!({"preconditions": right, "gracePeriodSeconds": 0})).expect(201).unwrap();
    }
    let other = s.request("POST", &format!("{PODS}/crowd/eviction")).json(&eviction("two", &json!({})));
    let answer = other.send().unwrap().expect(400).unwrap().json().unwrap();
    assert_eq!(answer["message"], "name in URL does not match name in Eviction object");
}

/// Does a kubelet's work for the Pods of all nodes: they become ready, and go when they are to. Returns the number of
/// ready ones.
fn tend(s: &Server) -> usize {
    let list = s.get(PODS).send().unwrap().json().unwrap();
    let mut ready = 0;
    for pod in list["items"].as_array().unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let now = json!({"gracePeriodSeconds": 0});
            s.request("DELETE", &format!("{PODS}/{name}")).json(&now).send().unwrap();
        } else if pod["status"]["phase"] == "Running" {
            ready += 1;
        } else if pod["spec"]["nodeName"].is_string() {
            let status =
                json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            s.patch(&format!("{PODS}/{name}/status"), "strategic-merge", &status).send().unwrap();
        }
    }
    ready
}

#[test]
fn kubectl_drains_a_node_as_its_budget_allows() {
    let s = Server::start_as("server", &[]).unwrap();
    for name in ["a", "b"] {
        let node = json!({"metadata": {"name": name}});
        s.create("/api/v1/nodes", &node).unwrap();
        let room = json!({"cpu": "8", "memory": "8Gi", "pods": "100"});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"allocatable": room, "capacity": room, "conditions": conditions}});
        s.patch(&format!("/api/v1/nodes/{name}/status"), "merge", &status)
            .send()
            .unwrap()
            .expect(200)
            .unwrap();
    }
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    s.create("/apis/apps/v1/namespaces/default/deployments", &deployment).unwrap();
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 3, "selector": {"matchLabels": labels}}});
    let made = s.request("POST", BUDGETS).json(&budget).send().unwrap().expect(201).unwrap();
    assert_eq!(made.all("warning").count(), 0, "budgets are acted on");
    let status = || s.get(&format!("{BUDGETS}/web")).send().unwrap().json().unwrap()["status"].clone();
    let counted = |allowed: i64| {
        eventually("the budget is counted", || {
            tend(&s);
            let s = status();
            let has = [
                &s["currentHealthy"],
                &s["expectedPods"],
                &s["disruptionsAllowed"],
                &s["observedGeneration"],
            ];
            let generation = if allowed == 0 { 1 } else { 2 };
            Ok((has == [&json!(3), &json!(3), &json!(allowed), &json!(generation)]).then_some(()))
        })
        .unwrap();
    };
    counted(0);
    let nodes = || {
        let list = s.get(PODS).send().unwrap().json().unwrap();
        let pods = list["items"].as_array().unwrap().clone();
        pods.iter().map(|p| p["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let node = nodes()[0].clone();
    let drain = ["drain", &node, "--ignore-daemonsets", "--timeout=3s"];
    let refused = s.kubectl(&drain).unwrap_err().to_string();
    assert!(refused.contains(TOO_MANY), "{refused}");
    assert_eq!(tend(&s), 3, "nothing was evicted");

    let two = json!({"spec": {"minAvailable": 2}});
    s.patch(&format!("{BUDGETS}/web"), "merge", &two).send().unwrap().expect(200).unwrap();
    counted(1);
    let mut drain =
        s.kubectl_command(&["drain", &node, "--ignore-daemonsets", "--timeout=90s"]).spawn().unwrap();
    let mut least = 3;
    let done = eventually("the drain", || {
        least = least.min(tend(&s));
        Ok(drain.try_wait()?)
    })
    .unwrap();
    assert!(done.success(), "{done}");
    assert!(least >= 2, "at some time there were only {least}");
    assert!(!nodes().contains(&node));
    counted(1);
}

/// A Pod without a node is marked and then removed: nobody else would remove one that is only marked.
#[test]
fn a_deletion_ends_although_its_client_has_gone() {
    const ALL: u32 = 60;
    let s = prepared();
    for i in 0..ALL {
        s.create(PODS, &pod(&format!("p{i}"))).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let remote = Remote::new(Config::from_kubeconfig(&s.path("kubeconfig"), None).unwrap()).unwrap();
        let api = Client::new(Arc::new(remote), "test").api::<Pod>("default");
        let mut ended = 0;
        for i in 0..ALL {
            // From one that hardly has time to be sent to one that is answered.
            let wait = Duration::from_micros(u64::from(i) * 100);
            ended += u32::from(tokio::time::timeout(wait, api.delete(&format!("p{i}"), None)).await.is_ok());
        }
        ended
    });
    assert!(ended < ALL, "no client has gone");
    eventually("no Pod is only marked", || {
        let left = s.get(PODS).send()?.expect(200)?.json()?;
        let marked = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
        Ok((!left["items"].as_array().unwrap().iter().any(marked)).then_some(()))
    })
    .unwrap();
}
