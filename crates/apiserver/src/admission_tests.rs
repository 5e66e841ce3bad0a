//! The questions that every way to write asks admission: the attributes are upstream's.

use std::sync::{Arc, OnceLock};

use access::Query;
use access::admission::{Admission, AdmissionRequest, Operation};
use api::view::View;
use api::{Schema, Status, Struct};
use client::{Transport, Verb};
use futures::future::BoxFuture;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::pipe;
use crate::request::Request;
use crate::testing::{Cluster, call, config_map, pod};

/// Admission that only listens.
#[derive(Default)]
struct Listener(Mutex<Vec<String>>, Mutex<Value>);

impl Listener {
    fn note(&self, phase: &str, request: &AdmissionRequest<'_>, object: bool) {
        let operation = format!("{:?}", request.operation).to_uppercase();
        let slash = if request.subresource.is_empty() { "" } else { "/" };
        let kind = request.options.kind();
        let options = request.options.tree(Schema::builtin()).filter(|_| kind != "DeleteOptions");
        let manager = options.as_ref().map_or("", |o| View::new(Schema::builtin(), o).str("fieldManager"));
        let line = format!(
            "{operation} {}{slash}{} {} {}/{}{}{} {}{}{}{}",
            request.resource,
            request.subresource,
            request.kind.kind,
            request.namespace,
            request.name,
            if object { " new" } else { "" },
            if request.old.is_some() { " old" } else { "" },
            kind,
            if manager.is_empty() { "" } else { " by " },
            manager,
            if request.dry_run { " dry" } else { "" },
        );
        let mut seen = self.0.lock();
        match seen.last_mut().filter(|last| phase == "V" && **last == format!("M {line}")) {
            Some(last) => *last = format!("MV {line}"),
            None => seen.push(format!("{phase} {line}")),
        }
    }
}

impl Admission for Listener {
    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
    ) -> BoxFuture<'a, Result<(), Status>> {
        self.note("M", request, true);
        let mut json = Vec::new();
        api::codec::json::encode(Schema::builtin(), object, &mut json);
        *self.1.lock() = serde_json::from_slice(&json).unwrap();
        Box::pin(async { Ok(()) })
    }
    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        self.note("V", request, object.is_some());
        Box::pin(async { Ok(()) })
    }
}

fn replica_set() -> Value {
    json!({"metadata": {"name": "r"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn scale(replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "r", "namespace": "ns"}, "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn connecting_asks() {
    let listener = Arc::new(Listener::default());
    let c = Cluster::with(Arc::<Listener>::clone(&listener));
    let rooms = &c.server.0;
    let ask = async |path: &str| {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = Query::parse(query);
        let info = access::request_info::parse(&Method::GET, path, &query).unwrap();
        listener.0.lock().clear();
        *listener.1.lock() = Value::Null;
        let asked =
            pipe::admit_connect(rooms, &Request::new(rooms.objects.catalog(), info, query, None)).await;
        asked.map(|()| (listener.0.lock().join(", "), listener.1.lock().clone()))
    };
    let check = async |path: &str, expected: &str, object: Value| {
        let expected =
            if expected.is_empty() { String::new() } else { format!("MV CONNECT {expected} new ") };
        assert_eq!(ask(path).await.unwrap(), (expected, object), "{path}");
    };
    let pod = "/api/v1/namespaces/ns/pods/p";
    check(
        &format!("{pod}/exec?command=ls&command=-l&container=c&stdin=1&stdout=true&tty=false"),
        "pods/exec PodExecOptions ns/p",
        json!({"command": ["ls", "-l"], "container": "c", "stdin": true, "stdout": true}),
    )
    .await;
    let attach = format!("{pod}/attach?stderr=&command=x");
    check(&attach, "pods/attach PodAttachOptions ns/p", json!({"stderr": true})).await;
    let forward = format!("{pod}/portforward?ports=80,81");
    check(&forward, "pods/portforward PodPortForwardOptions ns/p", json!({"ports": [80, 81]})).await;
    check(&format!("{pod}/proxy"), "pods/proxy PodProxyOptions ns/p", json!({})).await;
    let proxied = format!("{pod}:80/proxy/a/b/?path=x");
    check(&proxied, "pods/proxy PodProxyOptions ns/p:80", json!({"path": "/a/b/"})).await;
    let service = "/api/v1/namespaces/ns/services/https:s:web/proxy/x";
    check(service, "services/proxy ServiceProxyOptions ns/https:s:web", json!({"path": "/x"})).await;
    let node = "/api/v1/nodes/n/proxy/stats";
    check(node, "nodes/proxy NodeProxyOptions /n", json!({"path": "/stats"})).await;
    check(&format!("{pod}/log?follow=true"), "", Value::Null).await;
    let refused = ask(&format!("{pod}/exec?dryRun=All")).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (400, "dryRun is not supported"));
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn every_write_asks() {
    let listener = Arc::new(Listener::default());
    let c = Cluster::with(Arc::<Listener>::clone(&listener));
    for (path, object) in [
        ("-/v1/namespaces", json!({"metadata": {"name": "n"}})),
        ("-/v1/pods/ns", pod("p")),
        ("-/v1/pods/ns", pod("q")),
        ("-/v1/pods/ns", pod("gone")),
        ("-/v1/serviceaccounts/ns", json!({"metadata": {"name": "sa"}})),
        ("apps/v1/replicasets/ns", replica_set()),
        ("-/v1/nodes", json!({"metadata": {"name": "n"}})),
    ] {
        c.call(Verb::Create, path, object).await.unwrap();
    }
    let check = async |verb: Verb, path: &str, body: Value, expected: &[&str]| {
        listener.0.lock().clear();
        let result = c.call(verb, path, body).await;
        assert_eq!(*listener.0.lock(), expected, "{verb:?} {path}: {result:?}");
        result.unwrap_or_else(|e| panic!("{verb:?} {path}: {e}"));
    };
    let made = "MV CREATE configmaps ConfigMap ns/a new CreateOptions";
    let changed = "MV UPDATE configmaps ConfigMap ns/a new old UpdateOptions";
    let a = config_map("a", "1");
    let of_me = format!("{made} by me dry");
    check(Verb::Create, "-/v1/configmaps/ns?dryRun=All&fieldManager=me", a.clone(), &[&of_me]).await;
    check(Verb::Create, "-/v1/configmaps/ns", a.clone(), &[made]).await;
    check(Verb::Update, "-/v1/configmaps/ns/a", config_map("a", "2"), &[changed]).await;
    let dry = format!("{changed} dry");
    check(Verb::Update, "-/v1/configmaps/ns/a?dryRun=All", config_map("a", "3"), &[&dry]).await;
    check(Verb::MergePatch, "-/v1/configmaps/ns/a", json!({"data": {"k": "3"}}), &[changed]).await;
    check(Verb::StrategicPatch, "-/v1/configmaps/ns/a", json!({"data": {"k": "4"}}), &[changed]).await;
    let replace = json!([{"op": "replace", "path": "/data/k", "value": "5"}]);
    check(Verb::JsonPatch, "-/v1/configmaps/ns/a", replace, &[changed]).await;
    let by_me = format!("{changed} by me");
    let apply = "-/v1/configmaps/ns/a?fieldManager=me&force=true";
    check(Verb::Apply, apply, a, &[&by_me]).await;
    check(
        Verb::Apply,
        "-/v1/configmaps/ns/b?fieldManager=me",
        config_map("b", "1"),
        &["MV CREATE configmaps ConfigMap ns/b new CreateOptions by me"],
    )
    .await;
    check(
        Verb::Update,
        "coordination.k8s.io/v1/leases/ns/l",
        json!({"metadata": {"name": "l"}, "spec": {}}),
        &["MV CREATE leases Lease ns/l new CreateOptions"],
    )
    .await;
    let on_status = json!({"status": {"message": "x"}});
    let status = ["MV UPDATE pods/status Pod ns/p new old UpdateOptions"];
    check(Verb::MergePatch, "-/v1/pods/ns/p/status", on_status, &status).await;
    check(
        Verb::StrategicPatch,
        "-/v1/pods/ns/p/ephemeralcontainers",
        json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}),
        &["MV UPDATE pods/ephemeralcontainers Pod ns/p new old UpdateOptions"],
    )
    .await;
    check(
        Verb::MergePatch,
        "-/v1/pods/ns/p/resize",
        json!({}),
        &["MV UPDATE pods/resize Pod ns/p new old UpdateOptions"],
    )
    .await;
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    let bound = ["MV CREATE pods/binding Binding ns/p new CreateOptions"];
    check(Verb::Create, "-/v1/pods/ns/p/binding", binding("p"), &bound).await;
    let bound = ["MV CREATE bindings Binding ns/q new CreateOptions"];
    check(Verb::Create, "-/v1/bindings/ns", binding("q"), &bound).await;
    let evict = json!({"metadata": {"name": "gone", "namespace": "ns"}});
    let evicted = ["MV CREATE pods/eviction Eviction ns/gone new CreateOptions dry"];
    check(Verb::Create, "-/v1/pods/ns/gone/eviction?dryRun=All", evict.clone(), &evicted).await;
    let evicted = ["MV CREATE pods/eviction Eviction ns/gone new CreateOptions"];
    check(Verb::Create, "-/v1/pods/ns/gone/eviction", evict, &evicted).await;
    check(
        Verb::Create,
        "-/v1/serviceaccounts/ns/sa/token",
        json!({"spec": {"audiences": ["x"]}}),
        &["MV CREATE serviceaccounts/token TokenRequest ns/sa new CreateOptions"],
    )
    .await;
    let scaled = "MV UPDATE replicasets/scale Scale ns/r new old UpdateOptions";
    check(Verb::Update, "apps/v1/replicasets/ns/r/scale", scale(3), &[scaled]).await;
    check(Verb::MergePatch, "apps/v1/replicasets/ns/r/scale", json!({"spec": {"replicas": 4}}), &[scaled])
        .await;
    let path = "apps/v1/replicasets/ns/r/scale?fieldManager=me&force=true";
    check(Verb::Apply, path, scale(5), &[&format!("{scaled} by me")]).await;
    let finalize = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}});
    let finalized = ["MV UPDATE namespaces/finalize Namespace n/n new old UpdateOptions"];
    check(Verb::Update, "-/v1/namespaces/-/n/finalize", finalize, &finalized).await;
    let heartbeat = json!({"status": {"phase": "Running"}});
    let status = ["MV UPDATE nodes/status Node /n new old UpdateOptions"];
    check(Verb::MergePatch, "-/v1/nodes/-/n/status", heartbeat, &status).await;
    let deleted = "V DELETE configmaps ConfigMap ns/a old DeleteOptions";
    check(Verb::Delete, "-/v1/configmaps/ns/a?dryRun=All", Value::Null, &[&format!("{deleted} dry")]).await;
    check(Verb::Delete, "-/v1/configmaps/ns/a", json!({"propagationPolicy": "Background"}), &[deleted]).await;
    let each = ["V DELETE configmaps ConfigMap ns/ old DeleteOptions"];
    check(Verb::DeleteCollection, "-/v1/configmaps/ns", Value::Null, &each).await;
    let graceful = ["V DELETE pods Pod ns/p old DeleteOptions"];
    check(Verb::Delete, "-/v1/pods/ns/p", Value::Null, &graceful).await;
    let terminated = ["V DELETE namespaces Namespace n/n old DeleteOptions"];
    check(Verb::Delete, "-/v1/namespaces/-/n", Value::Null, &terminated).await;
    check(
        Verb::Create,
        "authorization.k8s.io/v1/selfsubjectaccessreviews",
        json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}),
        &["MV CREATE selfsubjectaccessreviews SelfSubjectAccessReview / new CreateOptions"],
    )
    .await;
    check(
        Verb::Create,
        "authorization.k8s.io/v1/localsubjectaccessreviews/ns",
        json!({"spec": {"user": "x", "resourceAttributes": {"namespace": "ns", "verb": "get"}}}),
        &["MV CREATE localsubjectaccessreviews LocalSubjectAccessReview ns/ new CreateOptions"],
    )
    .await;
}

#[tokio::test]
async fn a_name_is_made_between() {
    let listener = Arc::new(Listener::default());
    let c = Cluster::with(Arc::<Listener>::clone(&listener));
    let object = json!({"metadata": {"generateName": "a-"}});
    let made = c.call(Verb::Create, "-/v1/configmaps/ns", object).await.unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    let seen = [
        "M CREATE configmaps ConfigMap ns/ new CreateOptions".to_owned(),
        format!("V CREATE configmaps ConfigMap ns/{name} new CreateOptions"),
    ];
    assert_eq!(*listener.0.lock(), seen);
}

#[test]
fn options_of_a_deletion() {
    let check = |query: &str, expected: Value| {
        let options = crate::options::delete_options_of_query(&access::Query::parse(query), false).unwrap();
        let seen = access::admission::OperationOptions::delete(&options);
        let mut json = Vec::new();
        api::codec::json::encode(Schema::builtin(), &seen.tree(Schema::builtin()).unwrap(), &mut json);
        assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), expected, "{query}");
    };
    check("", json!({}));
    check(
        "gracePeriodSeconds=0&propagationPolicy=Foreground&dryRun=All",
        json!({"gracePeriodSeconds": 0, "propagationPolicy": "Foreground", "dryRun": ["All"]}),
    );
    check("orphanDependents=true", json!({"orphanDependents": true}));
}

/// Admission that lets nobody touch what has a label, and during whose first look somebody puts such an object in the
/// place of the one that it looks at.
#[derive(Default)]
struct Swapped {
    transport: OnceLock<Arc<dyn Transport>>,
    swap: Mutex<Option<(&'static str, &'static str, Value)>>,
}

impl Swapped {
    async fn look(&self, request: &AdmissionRequest<'_>) -> Result<(), Status> {
        if request.user.name == "other" {
            return Ok(());
        }
        let swap = self.swap.lock().take();
        let other = self.transport.get().unwrap();
        let decided = if let Some(old) = request.old {
            labelled(old)
        } else {
            let path = format!("-/v1/pods/{}/{}", request.namespace, request.name);
            let pod = other.call(call(Verb::Get, &path, &Value::Null)).await?;
            serde_json::from_slice::<Value>(&pod).unwrap()["metadata"]["labels"]["keep"].is_string()
        };
        if let Some((path, name, object)) = swap {
            let gone = json!({"gracePeriodSeconds": 0});
            other.call(call(Verb::Delete, &format!("{path}/{name}"), &gone)).await?;
            other.call(call(Verb::Create, path, &object)).await?;
        }
        let (resource, name) = (request.resource, request.name);
        if decided { Err(Status::forbidden("", resource, name, "it is kept")) } else { Ok(()) }
    }
}

fn labelled(object: &Struct) -> bool {
    let labels = View::new(Schema::builtin(), object).st("metadata");
    labels.texts("labels").any(|(key, _)| key == "keep")
}

impl Admission for Swapped {
    fn mutate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'a>,
        _: &'a mut Struct,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        _: Option<&'a Struct>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let asks = request.operation != Operation::Create || request.subresource == "eviction";
            if asks { self.look(request).await } else { Ok(()) }
        })
    }
}

#[tokio::test]
async fn what_took_the_place_of_an_object_is_looked_at_too() {
    let admission = Arc::new(Swapped::default());
    let c = Cluster::with(Arc::<Swapped>::clone(&admission));
    let other = access::UserInfo { name: "other".into(), ..Default::default() };
    assert!(admission.transport.set(c.server.transport(other, "test")).is_ok());
    let check = async |verb: Verb, path: &str, body: Value, place: &'static str, object: &Value| {
        let mut kept = object.clone();
        kept["metadata"]["labels"] = json!({"keep": "it"});
        let name = "x";
        c.call(Verb::Create, place, object.clone()).await.unwrap();
        *admission.swap.lock() = Some((place, name, kept));
        let refused = c.call(verb, path, body).await.unwrap_err();
        let there = format!("{place}/{name}");
        let found = c.call(Verb::Get, &there, Value::Null).await.unwrap();
        assert_eq!(found["metadata"]["labels"]["keep"], "it", "{verb:?} {path}");
        assert!(found["metadata"]["deletionTimestamp"].is_null(), "{verb:?} {path}");
        assert_eq!(refused.code, 403, "{verb:?} {path}: {refused}");
        let other = admission.transport.get().unwrap();
        other.call(call(Verb::Delete, &there, &json!({"gracePeriodSeconds": 0}))).await.unwrap();
    };
    let map = config_map("x", "1");
    let maps = "-/v1/configmaps/ns";
    check(Verb::Delete, "-/v1/configmaps/ns/x", Value::Null, maps, &map).await;
    check(Verb::DeleteCollection, maps, Value::Null, maps, &map).await;
    let patch = json!({"data": {"k": "2"}});
    check(Verb::MergePatch, "-/v1/configmaps/ns/x", patch, maps, &map).await;
    let mut held = map;
    held["metadata"]["finalizers"] = json!([]);
    held["metadata"]["annotations"] = json!({"a": "b"});
    check(Verb::Delete, "-/v1/configmaps/ns/x?propagationPolicy=Foreground", Value::Null, maps, &held).await;
    let mut running = pod("x");
    running["spec"]["nodeName"] = "n".into();
    let pods = "-/v1/pods/ns";
    check(Verb::Delete, "-/v1/pods/ns/x", Value::Null, pods, &running).await;
    let evict = json!({"metadata": {"name": "x", "namespace": "ns"}});
    check(Verb::Create, "-/v1/pods/ns/x/eviction", evict, pods, &running).await;
}
