//! Admission webhooks, as clients and webhooks see them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testkit::{Answer, Question, Reply, Server, Webhook};

use crate::api::{MAPS, map, pod, server};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// An answer that lets a request pass, with more in it.
fn allowed(question: &Question, more: Value) -> Reply {
    let mut response = json!({"uid": question.body["request"]["uid"], "allowed": true});
    if let (Some(response), Some(more)) = (response.as_object_mut(), more.as_object()) {
        response.extend(more.clone());
    }
    answered(question, response)
}

fn answered(question: &Question, response: Value) -> Reply {
    let version = &question.body["apiVersion"];
    Reply::Json(json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
}

fn denied(question: &Question, status: Value) -> Reply {
    let uid = &question.body["request"]["uid"];
    answered(question, json!({"uid": uid, "allowed": false, "status": status}))
}

fn patched(question: &Question, patch: &Value) -> Reply {
    let patch = BASE64_STANDARD.encode(patch.to_string());
    allowed(question, json!({"patch": patch, "patchType": "JSONPatch"}))
}

/// A rule about a resource.
fn rule(operations: &[&str], group: &str, version: &str, resource: &str) -> Value {
    json!({
        "operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource],
    })
}

fn maps() -> Value {
    rule(&["CREATE", "UPDATE", "DELETE"], "", "v1", "configmaps")
}

/// Configures one webhook of a kind; `change` makes it what a test needs.
fn configure(
    s: &Server,
    kind: &str,
    name: &str,
    hook: &Webhook,
    rules: Value,
    change: impl FnOnce(&mut Value),
) {
    let mut of = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": hook.client_config(&format!("/{name}")),
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    change(&mut of);
    let resource = format!("{kind}webhookconfigurations");
    s.create(&format!("{GROUP}/{resource}"), &json!({"metadata": {"name": name}, "webhooks": [of]})).unwrap();
}

fn post(s: &Server, path: &str, object: &Value) -> Answer {
    s.request("POST", path).json(object).send().unwrap()
}

fn message(answer: &Answer) -> String {
    answer.json().unwrap()["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_webhook_is_told_what_upstreams_are() {
    let s = &server();
    let hook = Webhook::start(|q| allowed(q, json!({"warnings": ["mind this"]}))).unwrap();
    configure(s, "validating", "all", &hook, json!([maps()]), |_| {});
    let made = post(s, &format!("{MAPS}?fieldManager=me"), &map("a")).expect(201).unwrap();
    assert!(made.header("warning").contains("mind this"), "{:?}", made.header("warning"));
    let first = hook.asked().remove(0);
    assert_eq!(first.path, "/all?timeout=10s");
    assert!(first.head.iter().any(|l| l.eq_ignore_ascii_case("user-agent: kube-apiserver-admission")));
    let request = &first.body["request"];
    assert_eq!(first.body["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(request["requestResource"], request["resource"]);
    let text = |field: &str| request[field].as_str().unwrap().to_owned();
    assert_eq!(
        (text("name"), text("namespace"), text("operation")),
        ("a".into(), "default".into(), "CREATE".into())
    );
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["object"]["kind"], "ConfigMap");
    assert_eq!(request["object"]["data"], json!({"k": "v"}));
    assert_eq!((&request["oldObject"], &request["dryRun"]), (&Value::Null, &json!(false)));
    let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"});
    assert_eq!(request["options"], options);
    let of = format!("{MAPS}/a");
    s.patch(&of, "merge", &json!({"data": {"k": "w"}})).send().unwrap().expect(200).unwrap();
    s.request("DELETE", &of).send().unwrap().expect(200).unwrap();
    let asked = hook.asked();
    let [_, update, delete] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(update.body["request"]["oldObject"]["data"]["k"], "v");
    assert_eq!(update.body["request"]["object"]["data"]["k"], "w");
    assert_eq!(delete.body["request"]["operation"], "DELETE");
    assert_eq!(delete.body["request"]["object"], Value::Null);
    assert_eq!(delete.body["request"]["oldObject"]["data"]["k"], "w");
    assert_eq!(delete.body["request"]["options"]["kind"], "DeleteOptions");
    assert_eq!(hook.connections(), 1, "the connection is kept");
}

#[test]
fn refusals_have_upstreams_texts() {
    let s = &server();
    let hook = Webhook::start(|q| match q.body["request"]["name"].as_str() {
        Some("plain") => denied(q, Value::Null),
        Some("said") => denied(q, json!({"message": "not this", "reason": "Why", "code": 418})),
        Some("late") => Reply::Hang,
        Some("gone") => Reply::Close,
        Some("error") => Reply::Raw(500, vec!["Content-Type: text/plain".into()], b"oops".to_vec()),
        Some("moved") => Reply::Raw(307, vec!["Location: https://127.0.0.1:1/".into()], Vec::new()),
        Some("uid") => answered(q, json!({"uid": "x", "allowed": true})),
        Some("patch") => patched(q, &json!([{"op": "remove", "path": "/data"}])),
        _ => allowed(q, json!({})),
    })
    .unwrap();
    configure(s, "validating", "says", &hook, json!([maps()]), |h| h["timeoutSeconds"] = json!(1));
    let check = |name: &str, code: u16, text: &str| {
        let answer = post(s, MAPS, &map(name));
        let said = message(&answer);
        assert_eq!(answer.status, code, "{name}: {said}");
        assert!(said.starts_with(text), "{name}: {said}");
    };
    check("fine", 201, "");
    check("plain", 400, "admission webhook \"says.example.com\" denied the request without explanation");
    check("said", 418, "admission webhook \"says.example.com\" denied the request: not this");
    let calling = "Internal error occurred: failed calling webhook \"says.example.com\": ";
    let url = format!("Post \"https://127.0.0.1:{}/says?timeout=1s\": ", hook.port());
    check("late", 500, &format!("{calling}failed to call webhook: {url}context deadline exceeded"));
    check("gone", 500, &format!("{calling}failed to call webhook: {url}EOF"));
    check(
        "error",
        500,
        &format!(
            "{calling}failed to call webhook: an error on the server (\"oops\") has prevented the request from succeeding"
        ),
    );
    check(
        "moved",
        500,
        &format!(
            "{calling}failed to call webhook: the server responded with the status code 307 but did not return more information"
        ),
    );
    check("uid", 500, &format!("{calling}received invalid webhook response: expected response.uid="));
    check(
        "patch",
        500,
        &format!(
            "{calling}received invalid webhook response: validating webhook may not return response.patch"
        ),
    );
    let metrics = s.get("/metrics").send().unwrap().text();
    for line in [
        "apiserver_admission_webhook_rejection_count",
        "apiserver_admission_webhook_request_total",
        "apiserver_admission_webhook_admission_duration_seconds_bucket",
    ] {
        assert!(metrics.lines().any(|l| l.starts_with(line) && l.contains("says.example.com")), "{line}");
    }
}

#[test]
fn failures_may_be_ignored() {
    let s = &server();
    let hook = Webhook::start(|_| Reply::Close).unwrap();
    configure(s, "validating", "a", &hook, json!([maps()]), |h| h["failurePolicy"] = json!("Ignore"));
    configure(s, "mutating", "b", &hook, json!([maps()]), |h| h["failurePolicy"] = json!("Ignore"));
    post(s, MAPS, &map("a")).expect(201).unwrap();
    assert_eq!(hook.asked().len(), 2);
    let metrics = s.get("/metrics").send().unwrap().text();
    let open = |l: &&str| l.starts_with("apiserver_admission_webhook_fail_open_count") && l.ends_with(" 1");
    assert_eq!(metrics.lines().filter(open).count(), 2, "{metrics}");
}

#[test]
fn objects_are_patched_in_order_and_completed() {
    let s = &server();
    let hook = Webhook::start(|q| {
        let path = q.path.split('?').next().unwrap_or_default().to_owned();
        match path.as_str() {
            "/one" => patched(
                q,
                &json!([
                    {"op": "add", "path": "/data/one", "value": "1"},
                    {"op": "add", "path": "/bogus", "value": "pruned"},
                ]),
            ),
            "/two" => {
                let saw = q.body["request"]["object"]["data"]["one"].as_str().unwrap_or("nothing").to_owned();
                patched(q, &json!([{"op": "add", "path": "/data/two", "value": format!("saw {saw}")}]))
            }
            "/container" => patched(
                q,
                &json!([
                    {"op": "add", "path": "/spec/initContainers", "value": [{"name": "i", "image": "i"}]},
                ]),
            ),
            _ => allowed(q, json!({})),
        }
    })
    .unwrap();
    for name in ["one", "two"] {
        configure(s, "mutating", name, &hook, json!([maps()]), |_| {});
    }
    let pods = json!([rule(&["CREATE"], "", "v1", "pods")]);
    configure(s, "mutating", "container", &hook, pods, |_| {});
    let made = post(s, MAPS, &map("a")).expect(201).unwrap().json().unwrap();
    // By the configurations' names: container, one, two.
    assert_eq!(made["data"], json!({"k": "v", "one": "1", "two": "saw 1"}));
    assert_eq!(made["bogus"], Value::Null);
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    let made = post(s, "/api/v1/namespaces/default/pods", &pod("p")).expect(201).unwrap().json().unwrap();
    assert_eq!(
        made["spec"]["initContainers"][0]["terminationMessagePolicy"], "File",
        "defaults are set again"
    );
}

#[test]
fn webhooks_are_asked_again_if_others_change_the_object() {
    let s = &server();
    let hook = Webhook::start(|q| match q.path.split('?').next() {
        Some("/b-changes") if q.body["request"]["object"]["data"]["b"].is_null() => {
            patched(q, &json!([{"op": "add", "path": "/data/b", "value": "1"}]))
        }
        _ => allowed(q, json!({})),
    })
    .unwrap();
    configure(s, "mutating", "a-again", &hook, json!([maps()]), |h| {
        h["reinvocationPolicy"] = json!("IfNeeded");
    });
    configure(s, "mutating", "a-once", &hook, json!([maps()]), |_| {});
    configure(s, "mutating", "b-changes", &hook, json!([maps()]), |_| {});
    configure(s, "mutating", "c-again", &hook, json!([maps()]), |h| {
        h["reinvocationPolicy"] = json!("IfNeeded");
    });
    post(s, MAPS, &map("a")).expect(201).unwrap();
    let asked: Vec<String> = hook
        .asked()
        .iter()
        .map(|q| q.path.split('?').next().unwrap().trim_start_matches('/').to_owned())
        .collect();
    assert_eq!(asked, ["a-again", "a-once", "b-changes", "c-again", "a-again"]);
}

#[test]
fn equivalent_resources_selectors_and_conditions() {
    let s = &server();
    let hook = Webhook::start(|q| denied(q, json!({"message": "matched"}))).unwrap();
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let scaler = |version: &str| {
        json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        })
    };
    let v1 = json!([rule(&["CREATE"], "autoscaling", "v1", "horizontalpodautoscalers")]);
    configure(s, "validating", "exact", &hook, v1.clone(), |h| h["matchPolicy"] = json!("Exact"));
    post(s, &format!("{path}?dryRun=All"), &scaler("v2")).expect(201).unwrap();
    assert!(hook.asked().is_empty());
    configure(s, "validating", "equivalent", &hook, v1, |_| {});
    let refused = post(s, path, &scaler("v2")).expect(400).unwrap();
    assert!(message(&refused).ends_with("denied the request: matched"));
    let asked = hook.asked().remove(0).body["request"].clone();
    assert_eq!(asked["kind"]["version"], "v1");
    assert_eq!(asked["requestKind"]["version"], "v2");
    assert_eq!(asked["resource"]["version"], "v1");
    assert_eq!(asked["requestResource"]["version"], "v2");
    assert_eq!(asked["object"]["apiVersion"], "autoscaling/v1");
    assert_eq!(asked["object"]["spec"]["targetCPUUtilizationPercentage"], 80);

    configure(s, "validating", "selected", &hook, json!([maps()]), |h| {
        h["objectSelector"] = json!({"matchLabels": {"watch": "yes"}});
        h["namespaceSelector"] = json!({"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]});
        h["matchConditions"] = json!([
            {"name": "not-me", "expression": "request.userInfo.username != 'somebody'"},
            {"name": "named", "expression": "object.metadata.name != 'free'"},
        ]);
    });
    let labelled = |name: &str| {
        let mut map = map(name);
        map["metadata"]["labels"] = json!({"watch": "yes"});
        map
    };
    s.create("/api/v1/namespaces", &json!({"metadata": {"name": "skipped", "labels": {"skip": ""}}}))
        .unwrap();
    post(s, MAPS, &map("plain")).expect(201).unwrap();
    post(s, MAPS, &labelled("free")).expect(201).unwrap();
    post(s, "/api/v1/namespaces/skipped/configmaps", &labelled("a")).expect(201).unwrap();
    post(s, MAPS, &labelled("a")).expect(400).unwrap();

    // A condition that cannot be evaluated refuses the request.
    configure(s, "validating", "broken", &hook, json!([maps()]), |h| {
        h["matchConditions"] = json!([{"name": "c", "expression": "object.data.gone == 'x'"}]);
    });
    let failed = post(s, MAPS, &map("b")).expect(403).unwrap();
    assert!(message(&failed).contains("no such key: gone"), "{}", message(&failed));
}

#[test]
fn dry_runs_need_webhooks_without_side_effects() {
    let s = &server();
    let hook = Webhook::start(|q| allowed(q, json!({}))).unwrap();
    configure(s, "validating", "none", &hook, json!([maps()]), |h| h["sideEffects"] = json!("NoneOnDryRun"));
    post(s, &format!("{MAPS}?dryRun=All"), &map("a")).expect(201).unwrap();
    assert_eq!(hook.asked()[0].body["request"]["dryRun"], true);
}

#[test]
fn subresources_and_connections_are_asked_about() {
    let s = &server();
    let hook = Webhook::start(|q| {
        let request = &q.body["request"];
        match (request["operation"].as_str(), request["subResource"].as_str()) {
            (Some("CONNECT"), _) => denied(q, json!({"message": "no streams"})),
            (_, Some("scale")) => {
                patched(q, &json!([{"op": "replace", "path": "/spec/replicas", "value": 7}]))
            }
            (_, Some("status")) => denied(q, json!({"message": "no status"})),
            (_, Some("eviction")) => denied(q, json!({"message": "no eviction"})),
            (_, Some("binding")) => denied(q, json!({"message": "no binding"})),
            _ => allowed(q, json!({})),
        }
    })
    .unwrap();
    let every = |group: &str| rule(&["*"], group, "*", "*/*");
    configure(s, "mutating", "every", &hook, json!([every(""), every("apps")]), |_| {});
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    s.create(pods, &pod("p")).unwrap();
    let refused = |answer: Answer, text: &str| {
        let said = message(&answer);
        assert!(answer.status == 400 && said.ends_with(text), "{} {said}", answer.status);
    };
    refused(s.request("POST", &format!("{pods}/p/exec?command=x&stdout=true")).send().unwrap(), "no streams");
    let connect = hook.asked().into_iter().find(|q| q.body["request"]["operation"] == "CONNECT").unwrap();
    assert_eq!(connect.body["request"]["object"]["kind"], "PodExecOptions");
    assert_eq!(connect.body["request"]["object"]["command"], json!(["x"]));
    assert_eq!(connect.body["request"]["options"], Value::Null);
    let status = s.patch(&format!("{pods}/p/status"), "merge", &json!({"status": {"message": "x"}}));
    refused(status.send().unwrap(), "no status");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    refused(post(s, &format!("{pods}/p/eviction"), &eviction), "no eviction");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    refused(post(s, &format!("{pods}/p/binding"), &binding), "no binding");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template,
    }});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    s.create(deployments, &deployment).unwrap();
    let scaled = s.patch(&format!("{deployments}/d/scale"), "merge", &json!({"spec": {"replicas": 2}}));
    assert_eq!(scaled.send().unwrap().expect(200).unwrap().json().unwrap()["spec"]["replicas"], 7);
}

#[test]
fn configurations_are_nobodys_affair() {
    let s = &server();
    let hook = Webhook::start(|q| denied(q, json!({"message": "never"}))).unwrap();
    let every = json!([rule(&["*"], "*", "*", "*")]);
    configure(s, "validating", "every", &hook, every.clone(), |_| {});
    configure(s, "mutating", "every", &hook, every, |_| {});
    post(s, MAPS, &map("a")).expect(400).unwrap();
    for kind in ["mutating", "validating"] {
        let path = format!("{GROUP}/{kind}webhookconfigurations/every");
        s.patch(&path, "merge", &json!({"metadata": {"labels": {"a": "b"}}}))
            .send()
            .unwrap()
            .expect(200)
            .unwrap();
        s.request("DELETE", &path).send().unwrap().expect(200).unwrap();
    }
    post(s, MAPS, &map("a")).expect(201).unwrap();
}

#[test]
fn custom_resources_are_patched_and_pruned() {
    let s = &server();
    let hook = Webhook::start(|q| {
        patched(q, &json!([
            {"op": "add", "path": "/spec/size", "value": 5}, {"op": "add", "path": "/spec/bogus", "value": 1},
        ]))
    })
    .unwrap();
    let of = crate::api::custom_resources::defined(s, "hooked.example.com", |_| {});
    configure(
        s,
        "mutating",
        "cr",
        &hook,
        json!([rule(&["CREATE"], "hooked.example.com", "v1", "widgets")]),
        |_| {},
    );
    let object = json!({
        "apiVersion": "hooked.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"color": "red"},
    });
    let made = post(s, &of, &object).expect(201).unwrap().json().unwrap();
    assert_eq!(made["spec"], json!({"color": "red", "size": 5, "most": 10}));
}
