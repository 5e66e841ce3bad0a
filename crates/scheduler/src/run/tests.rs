//! The scheduler against a scripted API server, on paused time. The server remembers nothing of what it is told:
//! tests say themselves what its watches bring.

use std::collections::HashMap;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::{Call, EventKind, ListAnswer, Transport, Verb, WatchEvent};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;

type Answer = Result<(), Status>;

#[derive(Default)]
struct Server {
    /// The objects that each watch brings first.
    start: Mutex<HashMap<String, Vec<Value>>>,
    watches: Mutex<HashMap<String, mpsc::UnboundedSender<WatchEvent>>>,
    /// The requests that came: `bind pod node`, `status pod patch`, `delete pod`.
    asked: Mutex<Vec<String>>,
    /// Requests, by their first two words, that are answered when the test says so.
    held: Mutex<HashMap<String, oneshot::Receiver<Answer>>>,
    revision: Mutex<u64>,
}

impl Server {
    /// The next such request is answered by what is sent.
    fn hold(&self, what: &str) -> oneshot::Sender<Answer> {
        let (tx, rx) = oneshot::channel();
        self.held.lock().insert(what.to_owned(), rx);
        tx
    }
    fn send(&self, kind: EventKind, resource: &str, object: &Value) {
        let mut object = object.clone();
        let mut revision = self.revision.lock();
        *revision += 1;
        object["metadata"]["resourceVersion"] = json!((10 + *revision).to_string());
        let event = WatchEvent { kind, object: object.to_string().into() };
        self.watches.lock()[resource].send(event).unwrap();
    }
    /// Those requests that begin with these words.
    fn asked(&self, words: &str) -> Vec<String> {
        self.asked.lock().iter().filter(|a| a.starts_with(words)).cloned().collect()
    }
    /// Waits for so many of these requests.
    async fn asks(&self, words: &str, count: usize) -> String {
        let wait = async {
            while self.asked(words).len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let came = tokio::time::timeout(Duration::from_mins(20), wait).await.is_ok();
        assert!(came, "no {count} times {words:?} in {:#?}", self.asked.lock());
        self.asked(words)[count - 1].clone()
    }
}

impl Transport for Server {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let (what, more) = match (call.verb, call.subresource.as_str(), call.resource.plural.as_str()) {
            (_, _, "events") => (None, String::new()),
            (_, "binding", _) => (Some("bind"), body["target"]["name"].as_str().unwrap().to_owned()),
            (_, "status", _) => (Some("status"), body["status"].to_string()),
            (Verb::Delete, ..) => (Some("delete"), String::new()),
            other => panic!("{other:?} was not expected"),
        };
        let held = what.and_then(|what| {
            let first = format!("{what} {}", call.name);
            self.asked.lock().push(format!("{first} {more}"));
            self.held.lock().remove(&first)
        });
        async move {
            if let Some(held) = held {
                held.await.unwrap()?;
            }
            Ok(Bytes::from_static(b"{}"))
        }
        .boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        panic!("{call:?} was not expected")
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        panic!("{path} was not expected")
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        let plural = call.resource.plural.to_string();
        let (tx, rx) = mpsc::unbounded_channel();
        for object in self.start.lock().remove(&plural).unwrap_or_default() {
            let _ = tx.send(WatchEvent { kind: EventKind::Added, object: object.to_string().into() });
        }
        let end = json!({"metadata": {
            "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"},
        }});
        let _ = tx.send(WatchEvent { kind: EventKind::Bookmark, object: end.to_string().into() });
        self.watches.lock().insert(plural, tx);
        let stream = futures::stream::unfold(rx, async |mut rx| rx.recv().await.map(|event| (Ok(event), rx)));
        async move { Ok(stream.boxed()) }.boxed()
    }
}

/// Runs the scheduler with these nodes and Pods.
async fn run_with(nodes: Vec<Value>, pods: Vec<Value>) -> (Arc<Server>, Shutdown) {
    let server = Arc::new(Server::default());
    server.start.lock().insert("nodes".into(), nodes);
    server.start.lock().insert("pods".into(), pods);
    let (client, shutdown) = (Client::new(server.clone(), "test"), Shutdown::new());
    let clients = Clients::new(move |_| client.clone());
    shutdown.spawn(run(clients, Clock::system(), Registry::default(), shutdown.clone()));
    while server.watches.lock().len() < 6 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (server, shutdown)
}

fn node(cpu: &str, taints: Value) -> Value {
    json!({
        "metadata": {"name": "n", "uid": "n", "resourceVersion": "1"}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": cpu, "pods": "9"}},
    })
}

/// A Pod that asks for two CPUs.
fn pod(name: &str, priority: i32, more: Value) -> Value {
    let mut spec = json!({
        "priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}, "spec": spec,
    })
}

fn down() -> Answer {
    Err(Status::failure(500, "InternalError", "down"))
}

/// Longer than any back-off and any wait.
async fn long() {
    tokio::time::sleep(Duration::from_mins(6)).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_binding_puts_back_the_pod_as_it_is_now() {
    let (server, shutdown) = run_with(vec![node("4", json!([]))], vec![]).await;
    let answer = server.hold("bind p");
    server.send(EventKind::Added, "pods", &pod("p", 0, json!({})));
    server.asks("bind p", 1).await;
    server.send(EventKind::Modified, "pods", &pod("p", 0, json!({"schedulingGates": [{"name": "g"}]})));
    tokio::time::sleep(Duration::from_secs(1)).await;
    answer.send(down()).unwrap();
    let said = server.asks("status p", 1).await;
    assert!(said.contains("running Bind plugin \\\"DefaultBinder\\\": down"), "{said}");
    assert!(said.contains("SchedulerError"), "{said}");
    long().await;
    assert_eq!(server.asked("bind p").len(), 1, "it is gated now");
    server.send(EventKind::Modified, "pods", &pod("p", 0, json!({})));
    server.asks("bind p", 2).await;
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_meanwhile_does_not_come_back() {
    let (server, shutdown) = run_with(vec![node("4", json!([]))], vec![]).await;
    let answer = server.hold("bind p");
    server.send(EventKind::Added, "pods", &pod("p", 0, json!({})));
    server.asks("bind p", 1).await;
    server.send(EventKind::Deleted, "pods", &pod("p", 0, json!({})));
    tokio::time::sleep(Duration::from_secs(1)).await;
    answer.send(down()).unwrap();
    long().await;
    assert_eq!(*server.asked.lock(), ["bind p n"]);
    // The room that was held for it is free.
    server.send(
        EventKind::Added,
        "pods",
        &pod(
            "q",
            0,
            json!({"containers": [
                {"name": "c", "resources": {"requests": {"cpu": "4"}}}
            ]}),
        ),
    );
    server.asks("bind q", 1).await;
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn an_older_reason_does_not_take_the_place_of_a_newer_one() {
    let (server, shutdown) = run_with(vec![], vec![pod("p", 0, json!({}))]).await;
    server.asks("status p", 1).await;
    let first = server.hold("status p");
    server.send(EventKind::Added, "nodes", &node("1", json!([])));
    let said = server.asks("status p", 2).await;
    assert!(said.contains("Insufficient cpu"), "{said}");
    server.send(EventKind::Modified, "nodes", &node("1", json!([{"key": "t", "effect": "NoSchedule"}])));
    server.send(EventKind::Modified, "nodes", &node("3", json!([{"key": "t", "effect": "NoSchedule"}])));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.asked("status p").len(), 2, "the newer one waits");
    first.send(Ok(())).unwrap();
    let said = server.asks("status p", 3).await;
    assert!(said.contains("untolerated taint"), "{said}");
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_reason_is_not_written_after_the_binding() {
    let (server, shutdown) = run_with(vec![node("1", json!([]))], vec![]).await;
    let first = server.hold("status p");
    server.send(EventKind::Added, "pods", &pod("p", 0, json!({})));
    server.asks("status p", 1).await;
    server.send(EventKind::Modified, "nodes", &node("4", json!([])));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.asked("bind p").len(), 0, "its condition is on its way");
    first.send(Ok(())).unwrap();
    server.asks("bind p n", 1).await;
    assert_eq!(server.asked("status p").len(), 1);
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn nominations_are_read_at_the_start() {
    let victim = || {
        let mut pod = pod("victim", 1, json!({"nodeName": "n"}));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["status"] = json!({"conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]});
        pod
    };
    let mut high = pod("high", 9, json!({}));
    high["status"] = json!({"nominatedNodeName": "n"});
    let (server, shutdown) = run_with(vec![node("2", json!([]))], vec![victim(), high]).await;
    let said = server.asks("status high", 1).await;
    assert!(said.contains("not eligible due to a terminating pod on the nominated node"), "{said}");
    // The room is free, and the one it was made for backs off still: nobody else may have it.
    server.send(EventKind::Deleted, "pods", &victim());
    server.send(EventKind::Added, "pods", &pod("low", 0, json!({})));
    server.asks("bind high n", 1).await;
    assert_eq!(server.asked("bind low").len(), 0);
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_nomination_that_no_longer_holds_is_cleared() {
    let mut high = pod("high", 9, json!({}));
    high["status"] = json!({"nominatedNodeName": "n"});
    let (server, shutdown) = run_with(vec![node("1", json!([]))], vec![high]).await;
    let said = server.asks("status high", 1).await;
    assert!(said.contains(r#""nominatedNodeName":null"#), "{said}");
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_more_important_preemptor_takes_the_nomination_over() {
    let mut mid = pod("mid", 5, json!({}));
    mid["status"] = json!({"nominatedNodeName": "n"});
    let victim = pod("victim", 1, json!({"nodeName": "n"}));
    let gated = json!({"schedulingGates": [{"name": "g"}]});
    let mut waiting = pod("mid", 5, gated);
    waiting["status"] = mid["status"].clone();
    let (server, shutdown) = run_with(vec![node("2", json!([]))], vec![victim, waiting]).await;
    server.send(EventKind::Added, "pods", &pod("high", 9, json!({})));
    let said = server.asks("status high", 1).await;
    assert!(said.contains(r#""nominatedNodeName":"n""#), "{said}");
    let said = server.asks("status mid", 1).await;
    assert_eq!(said, r#"status mid {"nominatedNodeName":null}"#);
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_can_not_be_deleted_makes_the_preemptor_look_anew() {
    let victim = || pod("victim", 1, json!({"nodeName": "n"}));
    let (server, shutdown) = run_with(vec![node("2", json!([]))], vec![victim()]).await;
    let first = server.hold("delete victim");
    server.send(EventKind::Added, "pods", &pod("high", 9, json!({})));
    server.asks("delete victim", 1).await;
    let said = server.asked("status victim")[0].clone();
    assert!(said.contains("DisruptionTarget") && said.contains("PreemptionByScheduler"), "{said}");
    server.send(
        EventKind::Modified,
        "nodes",
        &node("2", json!([{"key": "t", "effect": "PreferNoSchedule"}])),
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.asked("delete victim").len(), 1, "it is not tried while its victims are being deleted");
    first.send(down()).unwrap();
    server.asks("delete victim", 2).await;
    server.send(EventKind::Deleted, "pods", &victim());
    server.asks("bind high n", 1).await;
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_can_not_be_marked_is_not_deleted() {
    let victim = || pod("victim", 1, json!({"nodeName": "n"}));
    let (server, shutdown) = run_with(vec![node("2", json!([]))], vec![victim()]).await;
    let mark = server.hold("status victim");
    server.send(EventKind::Added, "pods", &pod("high", 9, json!({})));
    server.asks("status victim", 1).await;
    mark.send(down()).unwrap();
    server.asks("delete victim", 1).await;
    assert_eq!(server.asked("status victim").len(), 2, "only after it was marked");
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_made_anew_is_another_one() {
    let placed = pod("p", 0, json!({"nodeName": "n"}));
    let (server, shutdown) = run_with(vec![node("2", json!([]))], vec![placed]).await;
    let mut anew = pod("p", 0, json!({}));
    anew["metadata"]["uid"] = json!("another");
    // The one before has left its room.
    server.send(EventKind::Modified, "pods", &anew);
    server.asks("bind p n", 1).await;
    shutdown.finish().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_costs_one_pod_its_turn() {
    let odd = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"{{.bad.}}": "v"}},
    }]});
    let (server, shutdown) =
        run_with(vec![node("4", json!([]))], vec![pod("odd", 9, odd), pod("plain", 0, json!({}))]).await;
    server.asks("bind plain n", 1).await;
    let said = server.asks("status odd", 1).await;
    assert!(said.contains("SchedulerError"), "{said}");
    assert!(said.contains("obtaining pod's hard topology spread constraints: key: Invalid value"), "{said}");
    // It is tried again, backing off.
    server.asks("status odd", 4).await;
    assert_eq!(server.asked("bind odd").len(), 0);
    shutdown.finish().await;
}

#[test]
fn panics_are_told() {
    let caught = |f: fn()| catch_unwind(f).map_err(|p| panic_text(p.as_ref()).to_owned()).unwrap_err();
    assert_eq!(caught(|| panic!("plain")), "plain");
    assert_eq!(caught(|| panic!("{}", "made".repeat(2))), "mademade");
    assert_eq!(caught(|| std::panic::panic_any(7)), "a panic without a message");
}
