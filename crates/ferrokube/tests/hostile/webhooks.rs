//! Webhooks that hang or lie: the request that needs them has upstream's error, others are served meanwhile, and nothing
//! stored is lost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Question, Reply, Server, Webhook, eventually};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// An evil answer to a review of a kind, by the name of the evil.
fn evil(name: &str, question: &Question) -> Reply {
    let review = |response: Value| {
        let (version, kind) = (&question.body["apiVersion"], &question.body["kind"]);
        Reply::Json(json!({"apiVersion": version, "kind": kind, "response": response}))
    };
    let text = vec!["Content-Type: application/json".to_owned()];
    match name {
        "hangs" => Reply::Hang,
        "closes" => Reply::Close,
        "kind" => Reply::Json(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})),
        "large" => Reply::Raw(200, text, vec![b' '; 16 << 20]),
        "garbage" => Reply::Raw(200, text, vec![0xff; 100]),
        "deep" => Reply::Raw(200, text, vec![b'['; 1 << 20]),
        "uid" => review(json!({"uid": "another", "allowed": true, "result": {"status": "Success"}})),
        "redirect" => Reply::Raw(307, vec!["Location: https://127.0.0.1:1/".into()], Vec::new()),
        "patch" => review(json!({
            "uid": question.body["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            // [{"op":"replace","path":"/metadata","value":7}]
            "patch": "W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9tZXRhZGF0YSIsInZhbHVlIjo3fV0=",
        })),
        _ => review(json!({"uid": question.body["request"]["uid"], "allowed": true})),
    }
}

#[test]
fn a_webhook_that_lies_costs_its_request_alone() -> Result<()> {
    let server = Server::start(&[])?;
    let hook = Webhook::start(|q| evil(q.body["request"]["name"].as_str().unwrap_or_default(), q))?;
    let configuration = json!({"metadata": {"name": "evil"}, "webhooks": [{
        "name": "evil.example.com", "clientConfig": hook.client_config("/"), "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 3,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    }]});
    server.create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &configuration)?;
    let failed = "failed calling webhook \"evil.example.com\": ";
    for (name, text) in [
        ("closes", "EOF"),
        ("kind", "no kind \"Pod\" is registered for version \"v1\""),
        ("large", "response body too large"),
        ("garbage", "json parse error"),
        ("deep", "json parse error"),
        ("uid", "expected response.uid="),
        ("redirect", "the server responded with the status code 307"),
    ] {
        let answer = server.request("POST", MAPS).json(&map(name)).send()?.expect(500)?;
        ensure!(answer.text().contains("failed calling webhook"), "{name}: {}", answer.text());
        let said = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
        ensure!(said.contains(failed) && said.contains(text), "{name}: {said}");
    }
    let patched = server.request("POST", MAPS).json(&map("patch")).send()?;
    ensure!(patched.status >= 400, "metadata is no number: {}", patched.text());
    // Many hang; others are served meanwhile.
    let waiting: Vec<_> = (0..20)
        .map(|i| {
            let mut object = map("hangs");
            object["metadata"]["labels"] = json!({"n": i.to_string()});
            server.request("POST", MAPS).json(&object).send_later()
        })
        .collect::<Result<_>>()?;
    let start = Instant::now();
    server.create(MAPS, &map("fine"))?;
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "other"}}))?;
    ensure!(start.elapsed() < Duration::from_secs(2), "others waited for {:?}", start.elapsed());
    for answer in waiting {
        let said = answer.wait()?;
        ensure!(said.status == 500 && said.text().contains("context deadline exceeded"), "{}", said.text());
    }
    let list = server.get(MAPS).send()?.expect(200)?.json()?;
    let names =
        list["items"].as_array().map(|all| all.iter().map(|o| o["metadata"]["name"].clone()).collect());
    let names: Vec<Value> = names.unwrap_or_default();
    ensure!(names.contains(&json!("fine")) && !names.contains(&json!("hangs")), "{names:?}");
    Ok(())
}

#[test]
fn a_conversion_that_lies_loses_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    let hook = Webhook::start(|q| {
        let name = q.body["request"]["objects"][0]["metadata"]["name"].as_str().unwrap_or_default();
        evil(name, q)
    })?;
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}})
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"metadata": {"name": "things.evil.example.com"}, "spec": {
        "group": "evil.example.com", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [version("v1"), version("v2")],
        "conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": hook.client_config("/"), "conversionReviewVersions": ["v1"],
        }},
    }});
    server.create(definitions, &definition)?;
    let path = |version: &str, rest: &str| {
        format!("/apis/evil.example.com/{version}/namespaces/default/things{rest}")
    };
    eventually("the definition is served", || {
        Ok((server.get(&path("v1", "")).send()?.status == 200).then_some(()))
    })?;
    for (name, text) in [
        ("closes", "EOF"),
        ("kind", "no kind \"Pod\" is registered for version \"v1\""),
        ("large", "response body too large"),
        ("garbage", "json parse error"),
        ("uid", "expected response.uid="),
        ("redirect", "the server responded with the status code 307"),
        ("empty", "response.result.status was '', not 'Success'"),
    ] {
        let object =
            json!({"apiVersion": "evil.example.com/v1", "kind": "Thing", "metadata": {"name": name}});
        server.create(&path("v1", ""), &object)?;
        let answer = server.get(&path("v2", &format!("/{name}"))).send()?.expect(500)?;
        let said = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
        let head = "conversion webhook for evil.example.com/v1, Kind=Thing failed: ";
        ensure!(said.starts_with(head) && said.contains(text), "{name}: {said}");
        let stored = server.get(&path("v1", &format!("/{name}"))).send()?.expect(200)?.json()?;
        ensure!(stored["metadata"]["name"] == name, "{stored}");
        let patch = json!({"spec": {"a": 1}});
        server.patch(&path("v2", &format!("/{name}")), "merge", &patch).send()?.expect(500)?;
    }
    // One that hangs holds up nobody else, and the definition goes with all its objects.
    let object = json!({"apiVersion": "evil.example.com/v1", "kind": "Thing", "metadata": {"name": "hangs"}});
    server.create(&path("v1", ""), &object)?;
    let waiting = server.get(&path("v2", "/hangs")).send_later()?;
    let start = Instant::now();
    server.get(&path("v1", "/hangs")).send()?.expect(200)?;
    server.create(MAPS, &map("fine"))?;
    ensure!(start.elapsed() < Duration::from_secs(2), "others waited for {:?}", start.elapsed());
    drop(waiting);
    let definition = format!("{definitions}/things.evil.example.com");
    server.request("DELETE", &definition).send()?.expect(200)?;
    eventually("the definition is gone", || {
        Ok((server.get(&definition).send()?.status == 404).then_some(()))
    })?;
    Ok(())
}

/// A definition of reviews, and a webhook that sends each review of a review to the server itself: every call leads to the
/// next, until the first one's time is over.
#[test]
fn a_webhook_that_asks_the_server_itself_ends() -> Result<()> {
    let server = Server::start(&[])?;
    let definition = json!({
        "metadata": {
            "name": "admissionreviews.admission.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": "admission.k8s.io", "scope": "Cluster",
            "names": {"plural": "admissionreviews", "singular": "admissionreview", "kind": "AdmissionReview"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)?;
    let reviews = "/apis/admission.k8s.io/v1/admissionreviews";
    eventually("the reviews", || Ok(server.get(reviews).send()?.expect(200).ok()))?;
    let itself = json!({"namespace": "default", "name": "kubernetes", "path": reviews});
    let configuration = json!({"metadata": {"name": "circle"}, "webhooks": [{
        "name": "circle.example.com", "clientConfig": {"service": itself}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
        "rules": [{
            "operations": ["*"], "apiGroups": ["admission.k8s.io"], "apiVersions": ["v1"],
            "resources": ["admissionreviews"],
        }],
    }]});
    // A mutating one: what it sends on has no name, which is seen only after it.
    server.create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &configuration)?;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "metadata": {"name": "first"},
    });
    let told = eventually("the webhook", || {
        let answer = server.request("POST", reviews).json(&review).send()?;
        if answer.status == 201 {
            server.request("DELETE", &format!("{reviews}/first")).send()?;
            return Ok(None);
        }
        Ok(Some(answer.text()))
    })?;
    ensure!(told.contains("failed calling webhook") || told.contains("failed to call webhook"), "{told}");
    // Others are served meanwhile and afterwards.
    server.create(MAPS, &map("fine"))?;
    ensure!(server.get("/livez").send()?.status == 200);
    Ok(())
}
