//! Aggregated API servers that hang, lie or are gone: requests for their group versions fail, and nothing else does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Question, Reply, Server, Webhook, eventually};

use crate::api::aggregation::{HOST, api_service, fishes, front_proxy_authority, lead_to, wait_for};
use crate::hostile::alive::serves_others;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const FISHES: &str = "/apis/w.example/v1/namespaces/default/fishes";

fn start(answer: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> Result<(Server, Webhook)> {
    let server = Server::start(&[])?;
    let other = Webhook::aggregated(HOST, &front_proxy_authority(&server)?, answer)?;
    lead_to(&server, &other)?;
    server.create(SERVICES, &api_service("w.example", "v1", Some(other.bundle())))?;
    Ok((server, other))
}

fn text(code: u16, body: impl Into<Vec<u8>>) -> Reply {
    Reply::Raw(code, vec!["Content-Type: application/json".into()], body.into())
}

/// Discovery as all clients read it, without the fishes.
fn discovery(server: &Server) -> Result<Value> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut all = server.get("/apis").accept(accept).send()?.expect(200)?.json()?;
    if let Some(items) = all["items"].as_array_mut() {
        items.retain(|group| group["metadata"]["name"] != "w.example");
    }
    Ok(all)
}

#[test]
fn documents_that_lie_count_for_nobody() -> Result<()> {
    for evil in ["lies", "huge", "garbage", "deep", "odd", "redirects"] {
        let (server, other) = start(move |question| {
            let path = question.path.split('?').next().unwrap_or_default();
            if path == "/apis/w.example/v1" && evil != "redirects" {
                return fishes(question);
            }
            let media = "Content-Type: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let list = |body: Vec<u8>| Reply::Raw(200, vec![media.into()], body);
            match (evil, path) {
                ("lies", "/apis") => list(
                    json!({"kind": "APIGroupDiscoveryList", "items": [
                        {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": []}]},
                        {"metadata": {"name": "evil.example"}, "versions": [{"version": "v1", "resources": [{"resource": "x"}]}]},
                    ]})
                    .to_string()
                    .into(),
                ),
                ("huge", _) => list(vec![b' '; 12 << 20]),
                ("garbage", _) => list(vec![0xff; 1000]),
                ("deep", _) => list(vec![b'['; 1 << 20]),
                ("odd", _) => list(br#"{"items": 7, "paths": [], "definitions": null}"#.into()),
                ("redirects", _) => Reply::Raw(302, vec!["Location: https://127.0.0.1:1/".into()], Vec::new()),
                _ => fishes(question),
            }
        })?;
        let before = discovery(&server)?;
        let reason = if evil == "redirects" { "FailedDiscoveryCheck" } else { "Passed" };
        let message = wait_for(&server, "v1.w.example", reason)?;
        ensure!(evil != "redirects" || message.contains("bad status from"), "{evil}: {message}");
        eventually("its documents were asked for", || {
            let asked = other.asked();
            Ok((evil == "redirects" || asked.iter().any(|q| q.path == "/openapi/v3")).then_some(()))
        })?;
        ensure!(discovery(&server)? == before, "{evil}: other groups are as before");
        server.get("/openapi/v2").send()?.expect(200)?;
        let index = server.get("/openapi/v3").send()?.expect(200)?.json()?;
        ensure!(index["paths"]["apis/apps/v1"].is_object(), "{evil}: {index}");
        serves_others(&server)?;
    }
    Ok(())
}

#[test]
fn a_server_that_hangs_holds_up_nobody() -> Result<()> {
    let documents = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&documents);
    let (server, _other) = start(move |question| {
        let of_clients = !question.header("x-remote-user").any(|user| user == "system:kube-aggregator");
        let is_document = question.path == "/apis/w.example/v1" && of_clients;
        if question.path.starts_with(FISHES) || is_document && hangs.load(Ordering::Relaxed) {
            return Reply::Hang;
        }
        fishes(question)
    })?;
    wait_for(&server, "v1.w.example", "Passed")?;
    eventually("requests are led", || {
        let answer = server.get(&format!("{FISHES}?timeout=1s")).send()?;
        Ok((answer.status == 504).then_some(()))
    })?;
    // A document that all clients read is not waited for so long.
    documents.store(true, Ordering::Relaxed);
    let unread = server.get("/apis/w.example/v1").send()?.expect(503)?;
    ensure!(unread.text().contains("context deadline exceeded"), "{}", unread.text());
    let waiting: Vec<_> =
        (0..20).map(|_| server.get(&format!("{FISHES}?timeout=20s")).send_later()).collect::<Result<_>>()?;
    let start = Instant::now();
    serves_others(&server)?;
    server.get("/apis").send()?.expect(200)?;
    ensure!(start.elapsed() < Duration::from_secs(15), "others waited for {:?}", start.elapsed());
    for answer in waiting {
        ensure!(answer.wait()?.status == 504);
    }
    Ok(())
}

#[test]
fn answers_that_are_none() -> Result<()> {
    let (server, _other) = start(|question| match question.path.rsplit('/').next().unwrap_or_default() {
        "closes" => Reply::Close,
        "redirects" => Reply::Raw(307, vec!["Location: https://127.0.0.1:1/".into()], Vec::new()),
        "forges" => Reply::Raw(
            200,
            vec!["Audit-Id: forged".into(), "Access-Control-Allow-Origin: *".into()],
            b"{}".into(),
        ),
        "fails" => text(500, "oops"),
        _ => fishes(question),
    })?;
    wait_for(&server, "v1.w.example", "Passed")?;
    eventually("requests are led", || Ok((server.get(FISHES).send()?.status == 200).then_some(())))?;
    for (name, code, said) in [
        ("closes", 503, "error trying to reach service: EOF"),
        ("redirects", 502, "the backend attempted to redirect this request, which is not permitted"),
        ("fails", 500, "oops"),
    ] {
        let answer = server.get(&format!("{FISHES}/{name}")).send()?.expect(code)?;
        ensure!(answer.text().contains(said), "{name}: {}", answer.text());
        ensure!(answer.header("location").is_empty(), "{name}: it leads nowhere");
    }
    let forged = server.get(&format!("{FISHES}/forges")).send()?.expect(200)?;
    ensure!(forged.header("audit-id") != "forged" && forged.header("access-control-allow-origin").is_empty());
    // Where a Service must not lead, no server is: the API server's own machine.
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/fish-1";
    let kubernetes = server
        .get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
        .send()?
        .json()?;
    if let Some(address) = kubernetes["endpoints"][0]["addresses"][0].as_str() {
        let patch = json!({"ports": [{"name": "https", "port": server.port()}], "endpoints": [{"addresses": [address]}]});
        server.patch(slice, "merge", &patch).send()?.expect(200)?;
        let message = wait_for(&server, "v1.w.example", "FailedDiscoveryCheck")?;
        ensure!(message.contains("address not allowed"), "{message}");
    }
    serves_others(&server)
}
