//! Aggregated API servers: a server that the test makes answers for a group version, over real HTTPS.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Question, Reply, Server, Webhook, eventually};

use crate::api::server;
use crate::hostile::wire::Wire;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.w.example";
const FISHES: &str = "/apis/w.example/v1/namespaces/default/fishes";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The name of the aggregated server's certificate.
pub(crate) const HOST: &str = "fish.default.svc";

fn fish(name: &str) -> Value {
    json!({"apiVersion": "w.example/v1", "kind": "Fish", "metadata": {"name": name, "namespace": "default"}})
}

/// The answer of an aggregated server that is as it should be.
pub(crate) fn fishes(question: &Question) -> Reply {
    let (path, query) = question.path.split_once('?').unwrap_or((&question.path, ""));
    let kind = json!({"group": "w.example", "version": "v1", "kind": "Fish"});
    match path {
        "/apis" => {
            let resource = json!({
                "resource": "fishes", "responseKind": kind, "scope": "Namespaced", "singularResource": "fish",
                "verbs": ["get", "list", "watch"], "shortNames": ["fi"],
            });
            let versions = json!([{"version": "v1", "freshness": "Current", "resources": [resource]}]);
            let list = json!({
                "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
                "items": [{"metadata": {"name": "w.example"}, "versions": versions}],
            });
            Reply::Raw(200, vec![format!("Content-Type: {AGGREGATED}")], list.to_string().into())
        }
        "/apis/w.example/v1" => Reply::Json(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "w.example/v1", "resources": [{
                "name": "fishes", "singularName": "fish", "namespaced": true, "kind": "Fish",
                "verbs": ["get", "list", "watch"], "shortNames": ["fi"],
            }],
        })),
        "/openapi/v3" => Reply::Json(json!({"paths": {
            "apis/w.example/v1": {"serverRelativeURL": "/openapi/v3/apis/w.example/v1?hash=F15"},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=LIES"},
        }})),
        "/openapi/v3/apis/w.example/v1" => {
            let fish = json!({
                "type": "object", "description": "It swims.", "x-kubernetes-group-version-kind": [kind],
                "properties": {"fins": {"type": "integer", "description": "How many it has."}},
            });
            let get =
                json!({"operationId": "listFish", "responses": {}, "x-kubernetes-group-version-kind": kind});
            Reply::Json(json!({
                "openapi": "3.0.0", "info": {"title": "fish", "version": "1"},
                "paths": {"/apis/w.example/v1/namespaces/{namespace}/fishes": {"get": get}}, "components": {"schemas": {"Fish": fish}},
            }))
        }
        "/openapi/v2" => Reply::Json(json!({
            "swagger": "2.0", "info": {"title": "fish", "version": "1"},
            "paths": {
                FISHES: {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/Fish"}}}}},
                "/apis/apps/v1/lies": {},
            },
            "definitions": {"Fish": {"type": "object"}, "Lie": {"type": "object"}},
        })),
        FISHES if query.contains("watch=") => {
            Reply::Lines(["nemo", "dory"].map(|name| json!({"type": "ADDED", "object": fish(name)})).into())
        }
        FISHES => Reply::Json(json!({
            "kind": "FishList", "apiVersion": "w.example/v1", "metadata": {"resourceVersion": "7"},
            "items": [fish("nemo")],
        })),
        _ if path == format!("{FISHES}/nemo") => Reply::Json(fish("nemo")),
        _ if path == format!("{FISHES}/nemo/exec") => Reply::Echo,
        _ => Reply::Raw(404, vec!["Content-Type: text/plain".into()], b"404 page not found\n".into()),
    }
}

/// The authority by which an aggregated server knows the API server.
pub(crate) fn front_proxy_authority(s: &Server) -> Result<String> {
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = s.get(path).send()?.expect(200)?.json()?;
    let data = &map["data"];
    ensure!(data.as_object().is_some_and(|d| d.len() == 7), "{data}");
    ensure!(data["requestheader-allowed-names"] == "[\"front-proxy-client\"]", "{data}");
    ensure!(data["requestheader-uid-headers"] == "[\"X-Remote-Uid\"]", "{data}");
    Ok(data["requestheader-client-ca-file"].as_str().unwrap_or_default().to_owned())
}

/// The objects that lead the Service `fish` to a server.
pub(crate) fn lead_to(s: &Server, to: &Webhook) -> Result<()> {
    let service = json!({"metadata": {"name": "fish"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    s.create("/api/v1/namespaces/default/services", &service)?;
    let family = if to.address().is_ipv4() { "IPv4" } else { "IPv6" };
    let slice = json!({
        "metadata": {"name": "fish-1", "labels": {"kubernetes.io/service-name": "fish"}},
        "addressType": family, "ports": [{"name": "https", "port": to.port()}],
        "endpoints": [{"addresses": [to.address().ip().to_string()], "conditions": {"ready": true}}],
    });
    s.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice)?;
    Ok(())
}

/// An APIService that gives a group version to the Service `fish`.
pub(crate) fn api_service(group: &str, version: &str, bundle: Option<&str>) -> Value {
    let mut made = json!({
        "metadata": {"name": format!("{version}.{group}")},
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 15,
            "service": {"namespace": "default", "name": "fish"},
        },
    });
    match bundle {
        Some(bundle) => made["spec"]["caBundle"] = bundle.into(),
        None => made["spec"]["insecureSkipTLSVerify"] = true.into(),
    }
    made
}

/// Waits until the condition of an APIService has a reason; its message.
pub(crate) fn wait_for(s: &Server, name: &str, reason: &str) -> Result<String> {
    eventually(&format!("{name} is {reason}"), || {
        let found = s.get(&format!("{SERVICES}/{name}")).send()?.expect(200)?.json()?;
        let condition = &found["status"]["conditions"][0];
        ensure!(condition["reason"] == reason, "{condition}");
        Ok(condition["message"].as_str().map(str::to_owned))
    })
}

/// Waits until discovery shows a version of the group with resources, or says that it is stale.
fn wait_for_discovery(s: &Server, freshness: &str) -> Value {
    eventually("discovery", || {
        let all = s.get("/apis").accept(AGGREGATED).send()?.expect(200)?.json()?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let group = items.into_iter().find(|g| g["metadata"]["name"] == "w.example");
        let group = group.filter(|g| g["versions"][0]["freshness"] == freshness);
        Ok(group.filter(|g| freshness != "Current" || g["versions"][0]["resources"].is_array()))
    })
    .unwrap()
}

/// A server with an aggregated one.
fn aggregated() -> (Server, Webhook) {
    let s = server();
    let other = Webhook::aggregated(HOST, &front_proxy_authority(&s).unwrap(), fishes).unwrap();
    lead_to(&s, &other).unwrap();
    s.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle()))).unwrap();
    assert_eq!(wait_for(&s, NAME, "Passed").unwrap(), "all checks passed");
    (s, other)
}

#[test]
fn requests_are_led_with_the_callers_name() {
    let (s, other) = aggregated();
    let before = other.asked().len();
    let lies = [("X-Remote-User", "root"), ("X-Remote-Group", "system:nodes"), ("X-Remote-Extra-A", "b")];
    let ask = lies.iter().fold(s.get(FISHES), |ask, (name, value)| ask.header(name, value));
    let list = ask.send().unwrap().expect(200).unwrap();
    let asked = other.asked();
    let of_list = asked.get(before..).unwrap().iter().find(|q| q.path == FISHES).unwrap();
    let headers = |name| of_list.header(name).collect::<Vec<_>>();
    assert!(of_list.certified, "the front proxy's certificate is shown");
    assert_eq!(headers("x-remote-user"), ["kubernetes-admin"]);
    assert_eq!(headers("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(headers("x-remote-extra-a"), [""; 0]);
    assert_eq!(headers("authorization"), [""; 0]);
    assert_eq!(headers("x-forwarded-for").len(), 1);
    assert_eq!(headers("x-forwarded-uri"), [FISHES]);
    assert_eq!((headers("x-forwarded-host").len(), headers("x-forwarded-proto")), (1, vec!["https"]));
    // Both servers audit the request under one name.
    assert_eq!(headers("audit-id"), [list.header("audit-id")]);
    let list = list.json().unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "nemo");
    let checked = asked.iter().find(|q| q.path == "/apis/w.example/v1").unwrap();
    assert_eq!(checked.header("x-remote-user").collect::<Vec<_>>(), ["system:kube-aggregator"]);
    // An answer of the server is passed on as it is.
    s.get("/apis/w.example/v1/nothing").send().unwrap().expect(404).unwrap();
    let refused = s.anonymous("GET", FISHES).send().unwrap().expect(403).unwrap().json().unwrap();
    assert!(refused["message"].as_str().unwrap().contains("fishes.w.example is forbidden"), "{refused}");

    let mut watch = s.get(&format!("{FISHES}?watch=true")).stream().unwrap();
    for name in ["nemo", "dory"] {
        assert_eq!(watch.json().unwrap()["object"]["metadata"]["name"], name, "each event at once");
    }
    let mut wire = Wire::h1(&s).unwrap();
    let upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\nHost: x\r\nX-Remote-User: root\r\n\r\n";
    wire.send(format!("POST {FISHES}/nemo/exec HTTP/1.1\r\n{upgrade}")).unwrap();
    assert_eq!(wire.status().unwrap(), 101);
    wire.0.write_all(b"bubbles").unwrap();
    let mut back = [0; 7];
    wire.0.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"bubbles");
    let upgraded = other.asked().into_iter().find(|q| q.path.ends_with("/exec")).unwrap();
    assert_eq!(upgraded.header("x-remote-user").collect::<Vec<_>>(), ["kubernetes-admin"]);
}

#[test]
fn kubectl_knows_what_others_serve() {
    let (s, _other) = aggregated();
    let group = wait_for_discovery(&s, "Current");
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "fishes");
    let groups = s.get("/apis").send().unwrap().json().unwrap();
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(names.first(), Some(&"apiregistration.k8s.io"));
    assert!(names.ends_with(&["w.example", "metrics.k8s.io"]), "{names:?}");
    let resources = s.kubectl(&["api-resources", "--api-group=w.example"]).unwrap();
    assert!(resources.contains("fishes") && resources.contains("fi "), "{resources}");
    assert!(s.kubectl(&["get", "fi"]).unwrap().contains("nemo"));
    let described = s.kubectl(&["describe", "apiservice", NAME]).unwrap();
    assert!(described.contains("all checks passed"), "{described}");
    let row = s.kubectl(&["get", "apiservice", NAME]).unwrap();
    assert!(row.contains("default/fish") && row.contains("True"), "{row}");
    let explained = eventually("explain", || Ok(s.kubectl(&["explain", "fishes.fins"]).ok())).unwrap();
    assert!(explained.contains("How many it has."), "{explained}");
    let index = s.get("/openapi/v3").send().unwrap().json().unwrap();
    let url = |path: &str| index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert_eq!(url("apis/w.example/v1"), "/openapi/v3/apis/w.example/v1?hash=F15");
    assert!(!url("apis/apps/v1").contains("LIES"), "its own group version counts alone");
    let v2 = s.get("/openapi/v2").send().unwrap().expect(200).unwrap().json().unwrap();
    assert!(v2["paths"][FISHES].is_object() && v2["definitions"]["Fish"].is_object());
    assert!(v2["paths"]["/apis/apps/v1/lies"].is_null() && v2["definitions"]["Lie"].is_null());
    assert!(v2["paths"]["/api/v1/pods"].is_object());
    let packed = s.get("/openapi/v2").accept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    let packed = packed.send().unwrap().expect(200).unwrap();
    assert!(packed.body.windows(FISHES.len()).any(|w| w == FISHES.as_bytes()));
}

#[test]
fn conditions_say_why_a_server_is_not_available() {
    let s = server();
    let other = Webhook::aggregated(HOST, &front_proxy_authority(&s).unwrap(), fishes).unwrap();
    s.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle()))).unwrap();
    let message = wait_for(&s, NAME, "ServiceNotFound").unwrap();
    assert_eq!(message, "service/fish in \"default\" is not present");
    let gone = s.get(FISHES).send().unwrap().expect(503).unwrap();
    assert_eq!(gone.text(), "service unavailable\n");
    wait_for_discovery(&s, "Stale");
    lead_to(&s, &other).unwrap();
    wait_for(&s, NAME, "Passed").unwrap();
    s.get(FISHES).send().unwrap().expect(200).unwrap();
    wait_for_discovery(&s, "Current");
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/fish-1";
    s.request("DELETE", slice).send().unwrap().expect(200).unwrap();
    let message = wait_for(&s, NAME, "EndpointsNotFound").unwrap();
    assert_eq!(message, "cannot find endpointslices for service/fish in \"default\"");
    eventually("503", || Ok((s.get(FISHES).send()?.status == 503).then_some(()))).unwrap();
    let stale = wait_for_discovery(&s, "Stale");
    assert_eq!(stale["versions"][0]["resources"][0]["resource"], "fishes", "the last that was known");
    let metrics = s.get("/metrics").send().unwrap().text();
    for line in [
        format!("aggregator_unavailable_apiservice{{name=\"{NAME}\"}} 1"),
        "aggregator_unavailable_apiservice{name=\"v1.apps\"} 0".into(),
        format!("aggregator_unavailable_apiservice_total{{name=\"{NAME}\",reason=\"EndpointsNotFound\"}} 1"),
    ] {
        assert!(metrics.contains(&line), "{line}");
    }
    s.request("DELETE", &format!("{SERVICES}/{NAME}")).send().unwrap().expect(200).unwrap();
    eventually("the group is gone", || {
        Ok((s.get("/apis/w.example").send()?.status == 404 && s.get(FISHES).send()?.status == 404)
            .then_some(()))
    })
    .unwrap();
    assert!(!s.get("/metrics").send().unwrap().text().contains(&format!("apiservice{{name=\"{NAME}\"}}")));
}

#[test]
fn a_certificate_of_nobody_is_not_believed() {
    let s = server();
    let authority = front_proxy_authority(&s).unwrap();
    let other = Webhook::aggregated("another.default.svc", &authority, fishes).unwrap();
    lead_to(&s, &other).unwrap();
    s.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle()))).unwrap();
    let message = wait_for(&s, NAME, "FailedDiscoveryCheck").unwrap();
    assert!(
        message.contains("certificate is valid for another.default.svc, not fish.default.svc"),
        "{message}"
    );
    let patch = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    s.patch(&format!("{SERVICES}/{NAME}"), "merge", &patch).send().unwrap().expect(200).unwrap();
    wait_for(&s, NAME, "Passed").unwrap();
    eventually("200", || Ok((s.get(FISHES).send()?.status == 200).then_some(()))).unwrap();
}

#[test]
fn local_ones_are_kept() {
    let mut s = server();
    let all = s.get(SERVICES).send().unwrap().expect(200).unwrap().json().unwrap();
    let find = |all: &Value, name: &str| {
        all["items"].as_array().unwrap().iter().find(|a| a["metadata"]["name"] == name).cloned().unwrap()
    };
    for (name, group, version) in [("v1.", 18000, 1), ("v1.apps", 17800, 15), ("v2.autoscaling", 17500, 30)] {
        let api = find(&all, name);
        assert_eq!(api["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
        assert_eq!(
            (&api["spec"]["groupPriorityMinimum"], &api["spec"]["versionPriority"]),
            (&json!(group), &json!(version))
        );
        assert_eq!(api["status"]["conditions"][0]["reason"], "Local");
    }
    assert!(
        all["items"].as_array().unwrap().iter().all(|a| a["metadata"]["name"] != "v1.apiregistration.k8s.io")
    );
    let ready = s.get("/readyz?verbose").send().unwrap().text();
    assert!(
        ready.contains("[+]autoregister-completion ok")
            && ready.contains("[+]poststarthook/apiservice-discovery-controller ok")
    );

    // Those of definitions come and go with them.
    let definition = json!({
        "metadata": {"name": "things.kept.example"},
        "spec": {
            "group": "kept.example", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    s.create(definitions, &definition).unwrap();
    wait_for(&s, "v1.kept.example", "Local").unwrap();
    let patch = json!({"spec": {"versionPriority": 7}});
    s.patch(&format!("{SERVICES}/v1.kept.example"), "merge", &patch).send().unwrap().expect(200).unwrap();
    eventually("it is put right", || {
        let api = s.get(&format!("{SERVICES}/v1.kept.example")).send()?.json()?;
        Ok((api["spec"]["versionPriority"] == 100).then_some(()))
    })
    .unwrap();
    s.request("DELETE", &format!("{definitions}/things.kept.example")).send().unwrap().expect(200).unwrap();
    eventually("it goes", || {
        Ok((s.get(&format!("{SERVICES}/v1.kept.example")).send()?.status == 404).then_some(()))
    })
    .unwrap();

    // One that a user took over is never reset, and the priority counts.
    let taken = json!({
        "metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": null}},
        "spec": {"groupPriorityMinimum": 19000},
    });
    s.patch(&format!("{SERVICES}/v1.storage.k8s.io"), "merge", &taken).send().unwrap().expect(200).unwrap();
    let second = |s: &Server| {
        let groups = s.get("/apis").send()?.json()?;
        Ok((groups["groups"][1]["name"] == "storage.k8s.io").then_some(()))
    };
    eventually("it is the first after APIServices", || second(&s)).unwrap();
    s.restart().unwrap();
    eventually("still", || second(&s)).unwrap();
    let api = s.get(&format!("{SERVICES}/v1.storage.k8s.io")).send().unwrap().json().unwrap();
    assert_eq!(api["spec"]["groupPriorityMinimum"], 19000);
}

#[test]
fn another_server_may_take_the_place_of_what_is_built_in() {
    let s = server();
    let other = Webhook::aggregated(HOST, &front_proxy_authority(&s).unwrap(), |question| {
        Reply::Json(json!({"kind": "Fish", "path": question.path}))
    })
    .unwrap();
    lead_to(&s, &other).unwrap();
    let spec = api_service("node.k8s.io", "v1", Some(other.bundle()));
    s.patch(&format!("{SERVICES}/v1.node.k8s.io"), "merge", &spec).send().unwrap().expect(200).unwrap();
    wait_for(&s, "v1.node.k8s.io", "Passed").unwrap();
    let path = "/apis/node.k8s.io/v1/runtimeclasses";
    eventually("the other answers", || {
        let answer = s.get(path).send()?.json()?;
        Ok((answer["path"] == path).then_some(()))
    })
    .unwrap();
    // APIServices themselves are nobody else's.
    let own = api_service("apiregistration.k8s.io", "v1", Some(other.bundle()));
    s.create(SERVICES, &own).unwrap();
    let back = json!({"spec": {"service": null, "caBundle": null}});
    s.patch(&format!("{SERVICES}/v1.node.k8s.io"), "merge", &back).send().unwrap().expect(200).unwrap();
    wait_for(&s, "v1.node.k8s.io", "Local").unwrap();
    eventually("it is answered here again", || {
        Ok((s.get(path).send()?.json()?["kind"] == "RuntimeClassList").then_some(()))
    })
    .unwrap();
}

#[test]
fn controllers_see_what_others_serve() {
    let s = Server::start_as("server", &["--disable-dns"]).unwrap();
    let authority = front_proxy_authority(&s).unwrap();
    let emptied = AtomicBool::new(false);
    let other = Webhook::aggregated(HOST, &authority, move |question| {
        let mut reply = fishes(question);
        if let Reply::Json(Value::Object(list)) = &mut reply
            && let Some(resources) = list.get_mut("resources")
        {
            resources[0]["verbs"] = json!(["delete", "deletecollection", "get", "list"]);
        }
        if question.path.contains("/namespaces/pond/") {
            emptied.fetch_or(question.method() == "DELETE", Ordering::SeqCst);
            let left = if emptied.load(Ordering::SeqCst) { json!([]) } else { json!([fish("nemo")]) };
            return Reply::Json(json!({
                "kind": "FishList", "apiVersion": "w.example/v1", "metadata": {"resourceVersion": "1"}, "items": left,
            }));
        }
        reply
    })
    .unwrap();
    lead_to(&s, &other).unwrap();
    s.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle()))).unwrap();
    wait_for(&s, NAME, "Passed").unwrap();
    eventually("requests are led", || Ok((s.get(FISHES).send()?.status == 200).then_some(()))).unwrap();
    s.create("/api/v1/namespaces", &json!({"metadata": {"name": "pond"}})).unwrap();
    s.request("DELETE", "/api/v1/namespaces/pond").send().unwrap().expect(200).unwrap();
    eventually("the namespace goes", || {
        Ok((s.get("/api/v1/namespaces/pond").send()?.status == 404).then_some(()))
    })
    .unwrap();
    let asked = other.asked();
    let emptied = asked.iter().find(|q| q.method() == "DELETE" && q.path.contains("/namespaces/pond/fishes"));
    let emptied = emptied.expect("the fishes of the namespace are deleted");
    let user = emptied.header("x-remote-user").collect::<Vec<_>>();
    assert_eq!(user, ["system:serviceaccount:kube-system:namespace-controller"]);
}

#[test]
fn a_server_that_knows_openapi_v2_alone_is_described_in_v3() {
    let s = server();
    let other = Webhook::aggregated(HOST, &front_proxy_authority(&s).unwrap(), |question| {
        if question.path.starts_with("/openapi/v3") {
            return Reply::Raw(404, vec!["Content-Type: text/plain".into()], b"404 page not found\n".into());
        }
        if question.path == "/apis" {
            return Reply::Raw(406, Vec::new(), Vec::new());
        }
        fishes(question)
    })
    .unwrap();
    lead_to(&s, &other).unwrap();
    s.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle()))).unwrap();
    wait_for(&s, NAME, "Passed").unwrap();
    let group = wait_for_discovery(&s, "Current");
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!((&resource["resource"], &resource["scope"]), (&json!("fishes"), &json!("Namespaced")));
    let index = s.get("/openapi/v3").send().unwrap().json().unwrap();
    let url = index["paths"]["apis/w.example/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = s.get(&url).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(document["components"]["schemas"]["Fish"], json!({"type": "object"}));
    let packed = s.get(&url).accept("application/com.github.proto-openapi.spec.v3@v1.0+protobuf");
    packed.send().unwrap().expect(200).unwrap();
}

/// Webhooks of the Service `kubernetes` are behind this server: an aggregated one answers them, and is told that this
/// server asks.
#[test]
fn webhooks_of_aggregated_servers() {
    const REVIEWS: &str = "/apis/w.example/v1/reviews";
    let s = server();
    let other = Webhook::aggregated(HOST, &front_proxy_authority(&s).unwrap(), |question| {
        if question.path.split('?').next() != Some(REVIEWS) {
            return fishes(question);
        }
        let (uid, name) = (&question.body["request"]["uid"], &question.body["request"]["name"]);
        let response = json!({"uid": uid, "allowed": name == "good", "status": {"message": "it swims not"}});
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Reply::Raw(201, vec!["Content-Type: application/json".into()], review.to_string().into())
    });
    let other = other.unwrap();
    lead_to(&s, &other).unwrap();
    s.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle()))).unwrap();
    wait_for(&s, NAME, "Passed").unwrap();
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let service = |path: &str| json!({"namespace": "default", "name": "kubernetes", "path": path});
    let configure = |name: &str, path: &str| {
        let of = json!({
            "name": format!("{name}.example.com"), "clientConfig": {"service": service(path)}, "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        });
        let made = json!({"metadata": {"name": name}, "webhooks": [of]});
        s.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", &made).unwrap();
    };
    configure("default", REVIEWS);
    let create = |namespace: &str, name: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        s.request("POST", &path).json(&json!({"metadata": {"name": name}})).send().unwrap()
    };
    create("default", "good").expect(201).unwrap();
    let refused = create("default", "bad").expect(400).unwrap().json().unwrap();
    let told = "admission webhook \"default.example.com\" denied the request: it swims not";
    assert_eq!(refused["message"], told);
    let asked = other.asked();
    let review = asked.iter().find(|q| q.path.starts_with(REVIEWS)).unwrap();
    assert_eq!(review.header("x-remote-user").collect::<Vec<_>>(), ["system:apiserver"]);
    assert_eq!(review.body["request"]["name"], "good");
    configure("kube-public", "/nowhere");
    let refused = create("kube-public", "a").expect(500).unwrap().json().unwrap();
    let told = "Internal error occurred: failed calling webhook \"kube-public.example.com\": failed to call webhook: the server could not find the requested resource";
    assert_eq!(refused["message"], told);
}
