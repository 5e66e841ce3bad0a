//! One object's life: made, changed, deleted, each with its conditions.

use serde_json::{Value, json};
use testkit::{Answer, Server};

use crate::api::{MAPS, map, pod, server, version};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn account(s: &Server) {
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
}

fn status(answer: Answer, code: u16) -> Value {
    let status = answer.expect(code).unwrap().json().unwrap();
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
    assert_eq!(status["code"], code);
    status
}

#[test]
fn names_made_by_the_server() {
    let s = server();
    let made = s.create(MAPS, &json!({"metadata": {"generateName": "some-"}})).unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("some-") && name.len() == "some-".len() + 5, "{name}");
    assert!(!made["metadata"]["uid"].as_str().unwrap().is_empty());
    let answer = s.request("POST", MAPS).json(&json!({"metadata": {}})).send().unwrap();
    let refused = status(answer, 422);
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "Required value: name or generateName is required"
    );
    let twice = status(s.request("POST", MAPS).json(&map(name)).send().unwrap(), 409);
    assert_eq!(twice["reason"], "AlreadyExists");
    assert_eq!(twice["message"], format!("configmaps \"{name}\" already exists"));
}

#[test]
fn updates_say_what_they_are_based_on() {
    let s = server();
    let made = s.create(MAPS, &map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let mut next = made.clone();
    next["data"]["k"] = "w".into();
    let changed = s.request("PUT", &path).json(&next).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_ne!(version(&changed), version(&made));
    let again = s.request("PUT", &path).json(&changed).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(version(&again), version(&changed), "an update that changes nothing is not written");
    let late = status(s.request("PUT", &path).json(&next).send().unwrap(), 409);
    assert_eq!(late["reason"], "Conflict");
    assert_eq!(
        late["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    // Without a revision the last writer wins.
    next["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    s.request("PUT", &path).json(&next).send().unwrap().expect(200).unwrap();
    let other = s.request("PUT", &path).json(&map("b")).send().unwrap();
    assert_eq!(
        status(other, 400)["message"],
        "the name of the object (b) does not match the name on the URL (a)"
    );
    let none = s.request("PUT", &format!("{MAPS}/none")).json(&map("none")).send().unwrap();
    assert_eq!(status(none, 404)["message"], "configmaps \"none\" not found");
    let mut strange = map("a");
    strange["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let refused = status(s.request("PUT", &path).json(&strange).send().unwrap(), 409);
    assert!(
        refused["message"].as_str().unwrap().contains("Precondition failed: UID in precondition"),
        "{refused}"
    );
}

#[test]
fn deletes_have_preconditions() {
    let s = server();
    let made = s.create(MAPS, &map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let with = |preconditions: Value| {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
        s.request("DELETE", &path).json(&body).send().unwrap()
    };
    assert_eq!(status(with(json!({"uid": "other"})), 409)["reason"], "Conflict");
    assert_eq!(status(with(json!({"resourceVersion": "1"})), 409)["reason"], "Conflict");
    with(json!({"uid": made["metadata"]["uid"], "resourceVersion": version(&made)})).expect(200).unwrap();
    status(s.request("DELETE", &path).send().unwrap(), 404);
    let bad = json!({"propagationPolicy": "Sideways"});
    s.create(MAPS, &map("a")).unwrap();
    let refused = status(s.request("DELETE", &path).json(&bad).send().unwrap(), 422);
    assert!(
        refused["message"].as_str().unwrap().contains("propagationPolicy: Unsupported value: \"Sideways\""),
        "{refused}"
    );
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    status(s.request("DELETE", &path).json(&both).send().unwrap(), 422);
}

#[test]
fn nothing_happens_in_a_dry_run() {
    let s = server();
    let there = |name: &str| s.get(&format!("{MAPS}/{name}")).send().unwrap().status == 200;
    let tried = s.create(&format!("{MAPS}?dryRun=All"), &map("a")).unwrap();
    assert!(!tried["metadata"]["uid"].as_str().unwrap().is_empty() && !there("a"));
    let made = s.create(MAPS, &map("a")).unwrap();
    let path = format!("{MAPS}/a?dryRun=All");
    let mut next = made.clone();
    next["data"]["k"] = "w".into();
    let tried = s.request("PUT", &path).json(&next).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(tried["data"]["k"], "w");
    let patched = s.patch(&path, "merge", &json!({"data": {"k": "w"}})).send().unwrap().expect(200).unwrap();
    assert_eq!(patched.json().unwrap()["data"]["k"], "w");
    s.request("DELETE", &path).send().unwrap().expect(200).unwrap();
    s.request("DELETE", &format!("{MAPS}?dryRun=All")).send().unwrap().expect(200).unwrap();
    assert_eq!(s.get(&format!("{MAPS}/a")).send().unwrap().json().unwrap(), made);
    let out = s.kubectl(&["create", "configmap", "k", "--dry-run=server", "-o", "name"]).unwrap();
    assert!(out == "configmap/k\n" && !there("k"), "{out}");
    status(s.request("POST", &format!("{MAPS}?dryRun=Some")).json(&map("b")).send().unwrap(), 422);
}

#[test]
fn unknown_and_double_fields() {
    let s = server();
    let body = r#"{"metadata":{"name":"a"},"data":{"k":"v"},"dat":{},"immutable":false,"immutable":true}"#;
    let send = |validation: &str| {
        let path = format!("{MAPS}?dryRun=All{validation}");
        s.request("POST", &path).body("application/json", body).send().unwrap()
    };
    for default in ["", "&fieldValidation=Warn"] {
        let warned = send(default).expect(201).unwrap();
        let warnings = warned.all("warning").collect::<Vec<_>>();
        assert_eq!(
            warnings,
            ["299 - \"unknown field \\\"dat\\\"\"", "299 - \"duplicate field \\\"immutable\\\"\""]
        );
        let made = warned.json().unwrap();
        assert_eq!((made.get("dat"), &made["immutable"]), (None, &json!(true)), "the last one counts");
    }
    let ignored = send("&fieldValidation=Ignore").expect(201).unwrap();
    assert_eq!(ignored.all("warning").count(), 0);
    let strict = status(send("&fieldValidation=Strict"), 400);
    assert_eq!(
        strict["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
         \"dat\", duplicate field \"immutable\""
    );
    status(send("&fieldValidation=Perhaps"), 422);
    let yaml = "metadata: {name: a}\ndata: {k: v}\nkind: ConfigMap\napiVersion: v1\nspec: 1\n";
    let refused = s.request("POST", &format!("{MAPS}?fieldValidation=Strict")).body("application/yaml", yaml);
    assert!(
        status(refused.send().unwrap(), 400)["message"].as_str().unwrap().contains("unknown field \"spec\"")
    );
}

#[test]
fn collections_are_deleted_by_selector() {
    let s = server();
    for name in ["a", "b", "c"] {
        let mut map = map(name);
        map["metadata"]["labels"] = json!({"name": name});
        s.create(MAPS, &map).unwrap();
    }
    let gone = s.request("DELETE", &format!("{MAPS}?labelSelector=name%20in%20(a,b)")).send().unwrap();
    assert_eq!(gone.expect(200).unwrap().json().unwrap()["kind"], "ConfigMapList");
    let left = s.get(&format!("{MAPS}?labelSelector=name")).send().unwrap().json().unwrap();
    assert_eq!(crate::api::names(&left), ["c"]);
}

#[test]
fn finalizers_hold_an_object() {
    let s = server();
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.create(MAPS, &held).unwrap();
    let path = format!("{MAPS}/a");
    let deleting = s.request("DELETE", &path).send().unwrap().expect(200).unwrap().json().unwrap();
    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
    // An object that is being deleted takes no new finalizers, and changes only those that it has.
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let refused = status(s.patch(&path, "merge", &more).send().unwrap(), 422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("no new finalizers can be added if the object is being deleted"),
        "{refused}"
    );
    s.patch(&path, "merge", &json!({"metadata": {"finalizers": null}})).send().unwrap().expect(200).unwrap();
    status(s.get(&path).send().unwrap(), 404);
    s.create(MAPS, &map("b")).unwrap();
    let foreground = json!({"propagationPolicy": "Foreground"});
    let held =
        s.request("DELETE", &format!("{MAPS}/b")).json(&foreground).send().unwrap().expect(200).unwrap();
    assert_eq!(held.json().unwrap()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[test]
fn pods_leave_gracefully() {
    let s = server();
    account(&s);
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = "n".into();
    s.create(PODS, &bound).unwrap();
    let path = format!("{PODS}/p");
    let going = s.request("DELETE", &path).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let sooner = json!({"gracePeriodSeconds": 5});
    let going = s.request("DELETE", &path).json(&sooner).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 5, "only ever sooner");
    let later = json!({"gracePeriodSeconds": 50});
    let going = s.request("DELETE", &path).json(&later).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 5);
    let out = s.kubectl(&["delete", "pod", "p", "--force"]).unwrap();
    assert!(out.contains("pod \"p\" force deleted"), "{out}");
    status(s.get(&path).send().unwrap(), 404);
    // A Pod without a node goes at once.
    s.create(PODS, &pod("q")).unwrap();
    s.request("DELETE", &format!("{PODS}/q")).send().unwrap().expect(200).unwrap();
    status(s.get(&format!("{PODS}/q")).send().unwrap(), 404);
}

#[test]
fn generations_follow_the_spec() {
    let s = server();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
        "status": {"replicas": 7},
    });
    let made = s.create(path, &deployment).unwrap();
    assert_eq!((&made["metadata"]["generation"], made["status"].get("replicas")), (&json!(1), None));
    let one = format!("{path}/d");
    let merge = |at: &str, patch: Value| {
        s.patch(at, "merge", &patch).send().unwrap().expect(200).unwrap().json().unwrap()
    };
    assert_eq!(merge(&one, json!({"metadata": {"labels": {"l": "1"}}}))["metadata"]["generation"], 1);
    assert_eq!(merge(&one, json!({"spec": {"replicas": 2}}))["metadata"]["generation"], 2);
    let told = merge(&format!("{one}/status"), json!({"spec": {"replicas": 9}, "status": {"replicas": 3}}));
    assert_eq!((&told["spec"]["replicas"], &told["status"]["replicas"]), (&json!(2), &json!(3)));
    assert_eq!(told["metadata"]["generation"], 2);
    let scale = merge(&format!("{one}/scale"), json!({"spec": {"replicas": 4}}));
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["status"]["selector"], "a=b");
    let table = s.get(&format!("{one}/scale")).accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = table.send().unwrap().expect(200).unwrap().json().unwrap();
    let columns: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert!(!table["columnDefinitions"][1]["description"].as_str().unwrap().is_empty());
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(4), json!(3)]);
    assert_eq!(s.get(&one).send().unwrap().json().unwrap()["metadata"]["generation"], 3);
    let fixed = json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}});
    let refused = status(s.patch(&one, "merge", &fixed).send().unwrap(), 422);
    assert!(refused["message"].as_str().unwrap().contains("field is immutable"), "{refused}");
}

#[test]
fn one_object_in_two_versions() {
    let s = server();
    let at =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let one = json!({
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 70,
        },
    });
    s.create(&at("v1"), &one).unwrap();
    let new = s.get(&format!("{}/h", at("v2"))).send().unwrap().json().unwrap();
    assert_eq!(new["apiVersion"], "autoscaling/v2");
    let metric = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}});
    assert_eq!(new["spec"]["metrics"], json!([{"type": "Resource", "resource": metric}]));
    let memory = json!({"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}});
    let two = json!({"spec": {"metrics": [{"type": "Resource", "resource": metric}, {"type": "Resource", "resource": memory}]}});
    s.patch(&format!("{}/h", at("v2")), "merge", &two).send().unwrap().expect(200).unwrap();
    let old = s.get(&format!("{}/h", at("v1"))).send().unwrap().json().unwrap();
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 70);
    let kept = old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str().unwrap();
    assert!(kept.contains("memory"), "a value without a field in the older version is not lost: {kept}");
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "message": "hello", "reason": "Why", "type": "Normal", "source": {"component": "me"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 2,
    });
    s.create("/api/v1/namespaces/default/events", &event).unwrap();
    let new = s.get("/apis/events.k8s.io/v1/namespaces/default/events/e").send().unwrap().json().unwrap();
    assert_eq!((&new["note"], &new["deprecatedCount"]), (&json!("hello"), &json!(2)));
    assert_eq!(new["regarding"]["name"], "p");
}

#[test]
fn pods_are_bound_evicted_and_resized() {
    let s = server();
    account(&s);
    s.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).unwrap();
    let room = json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi"}, "capacity": {"cpu": "1"}}});
    s.patch("/api/v1/nodes/n/status", "merge", &room).send().unwrap().expect(200).unwrap();
    let mut small = pod("p");
    small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    s.create(PODS, &small).unwrap();
    let path = format!("{PODS}/p");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    s.create(&format!("{path}/binding"), &binding).unwrap();
    let twice = status(s.request("POST", &format!("{path}/binding")).json(&binding).send().unwrap(), 409);
    assert!(
        twice["message"].as_str().unwrap().contains("pod p is already assigned to node \"n\""),
        "{twice}"
    );
    let huge = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
    let refused = status(s.patch(&format!("{path}/resize"), "strategic-merge", &huge).send().unwrap(), 403);
    assert_eq!(
        refused["message"],
        "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2000, \
         allocatable: 1000"
    );
    assert_eq!(refused["details"]["causes"][0]["reason"], "NodeCapacity");
    let larger = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}});
    let direct = status(s.patch(&path, "strategic-merge", &larger).send().unwrap(), 422);
    assert!(
        direct["message"].as_str().unwrap().contains("pod updates may not change fields other than"),
        "{direct}"
    );
    let resized = s.patch(&format!("{path}/resize"), "strategic-merge", &larger).send().unwrap();
    let resized = resized.expect(200).unwrap().json().unwrap();
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m");
    assert_eq!(resized["metadata"]["generation"], 2);
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}});
    let with = s.patch(&format!("{path}/ephemeralcontainers"), "strategic-merge", &debug).send().unwrap();
    assert_eq!(with.expect(200).unwrap().json().unwrap()["spec"]["ephemeralContainers"][0]["name"], "debug");
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}});
    s.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    s.patch(&format!("{path}/status"), "merge", &ready).send().unwrap().expect(200).unwrap();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let later = s.request("POST", &format!("{path}/eviction")).json(&eviction).send().unwrap();
    assert_eq!(status(later, 429)["reason"], "TooManyRequests");
    s.request("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b")
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
    s.create(&format!("{path}/eviction"), &eviction).unwrap();
    let gone = s.get(&path).send().unwrap().json().unwrap();
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn tokens_and_requests_for_certificates() {
    let s = server();
    account(&s);
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = json!({"spec": {"audiences": ["me"], "expirationSeconds": 600}});
    let token = s.create(path, &request).unwrap();
    assert_eq!(token["status"]["token"].as_str().unwrap().split('.').count(), 3);
    let short = json!({"spec": {"expirationSeconds": 60}});
    status(s.request("POST", path).json(&short).send().unwrap(), 422);
    let review = |token: &Value, audience: &str| {
        let review = json!({"spec": {"token": token["status"]["token"], "audiences": [audience]}});
        s.create("/apis/authentication.k8s.io/v1/tokenreviews", &review).unwrap()
    };
    let reviewed = review(&token, "me");
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:default:default");
    assert_ne!(review(&token, "you")["status"]["authenticated"], true);
    let out = s.kubectl(&["auth", "can-i", "list", "pods", "--as=system:serviceaccount:default:default"]);
    assert!(out.is_err(), "{out:?}");
    assert_eq!(s.kubectl(&["auth", "can-i", "delete", "nodes"]).unwrap(), "yes\n");
}
