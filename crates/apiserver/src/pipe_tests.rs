//! The pipe from flow control to the store, by the transport of this process.

use access::UserInfo;
use client::{EventKind, Verb};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::testing::{Cluster, call, config_map, pod};

#[tokio::test]
async fn an_object_lives() {
    let c = Cluster::new();
    let made = c.call(Verb::Create, "-/v1/configmaps/ns", config_map("a", "1")).await.unwrap();
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["metadata"]["namespace"], "ns");
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert!(revision.parse::<u64>().unwrap() > 0);

    let again = c.call(Verb::Create, "-/v1/configmaps/ns", config_map("a", "1")).await.unwrap_err();
    assert_eq!((again.code, again.message.as_str()), (409, "configmaps \"a\" already exists"));

    let same = c.call(Verb::Update, "-/v1/configmaps/ns/a", made.clone()).await.unwrap();
    assert_eq!(same["metadata"]["resourceVersion"], revision.as_str(), "an update of nothing writes nothing");

    let mut changed = made.clone();
    changed["data"]["k"] = "2".into();
    let updated = c.call(Verb::Update, "-/v1/configmaps/ns/a", changed.clone()).await.unwrap();
    assert_ne!(updated["metadata"]["resourceVersion"], revision.as_str());
    changed["data"]["k"] = "3".into();
    let stale = c.call(Verb::Update, "-/v1/configmaps/ns/a", changed).await.unwrap_err();
    assert_eq!(
        stale.message,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );

    let patch = json!({"data": {"k": null, "l": "x"}});
    let patched = c.call(Verb::MergePatch, "-/v1/configmaps/ns/a", patch).await.unwrap();
    assert_eq!(patched["data"], json!({"l": "x"}));

    let gone = c.call(Verb::Delete, "-/v1/configmaps/ns/a", Value::Null).await.unwrap();
    assert_eq!((&gone["status"], &gone["details"]["kind"]), (&json!("Success"), &json!("configmaps")));
    let missing = c.call(Verb::Get, "-/v1/configmaps/ns/a", Value::Null).await.unwrap_err();
    assert_eq!((missing.code, missing.message.as_str()), (404, "configmaps \"a\" not found"));
}

#[tokio::test]
async fn pages_and_selectors() {
    let c = Cluster::new();
    for name in ["a", "b", "c", "d", "e"] {
        c.call(Verb::Create, "-/v1/configmaps/ns", config_map(name, name)).await.unwrap();
    }
    let null = Value::Null;
    let page = c.transport.list(call(Verb::List, "-/v1/configmaps/ns?limit=2", &null)).await.unwrap();
    assert_eq!(page.items.len(), 2);
    c.call(Verb::Delete, "-/v1/configmaps/ns/d", Value::Null).await.unwrap();
    let mut names = Vec::new();
    let mut token = page.continue_token;
    while !token.is_empty() {
        let mut next = call(Verb::List, "-/v1/configmaps/ns?limit=2", &null);
        next.query.push(("continue".into(), token));
        let page = c.transport.list(next).await.unwrap();
        for item in &page.items {
            let item: Value = serde_json::from_slice(item).unwrap();
            names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
        }
        token = page.continue_token;
    }
    assert_eq!(names, ["c", "d", "e"], "pages show one state");
    let one = call(Verb::List, "-/v1/configmaps/-?labelSelector=app in (b,x)", &null);
    assert_eq!(c.transport.list(one).await.unwrap().items.len(), 1);
    let bad = call(Verb::List, "-/v1/configmaps/ns?fieldSelector=spec.x=1", &null);
    assert_eq!(c.transport.list(bad).await.unwrap_err().code, 400);
}

#[tokio::test]
async fn a_watch_sees_what_enters_and_leaves() {
    let c = Cluster::new();
    c.call(Verb::Create, "-/v1/configmaps/ns", config_map("a", "1")).await.unwrap();
    let watch = call(
        Verb::Watch,
        "-/v1/configmaps/ns?labelSelector=app=a&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        &Value::Null,
    );
    let mut events = c.transport.watch(watch).await.unwrap();
    let mut next = async || {
        let event = events.next().await.unwrap().unwrap();
        (event.kind, serde_json::from_slice::<Value>(&event.object).unwrap())
    };
    assert_eq!(next().await.0, EventKind::Added);
    let (kind, bookmark) = next().await;
    assert_eq!(kind, EventKind::Bookmark);
    assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    c.call(Verb::MergePatch, "-/v1/configmaps/ns/a", json!({"metadata": {"labels": {"app": "z"}}}))
        .await
        .unwrap();
    let (kind, left) = next().await;
    assert_eq!((kind, &left["metadata"]["labels"]["app"]), (EventKind::Deleted, &json!("a")));
    c.call(Verb::MergePatch, "-/v1/configmaps/ns/a", json!({"metadata": {"labels": {"app": "a"}}}))
        .await
        .unwrap();
    assert_eq!(next().await.0, EventKind::Added);
}

#[tokio::test]
async fn pods_are_bound_and_leave_gracefully() {
    let c = Cluster::new();
    c.call(Verb::Create, "-/v1/pods/ns", pod("p")).await.unwrap();
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    c.call(Verb::Create, "-/v1/pods/ns/p/binding", binding.clone()).await.unwrap();
    let again = c.call(Verb::Create, "-/v1/pods/ns/p/binding", binding).await.unwrap_err();
    assert_eq!(
        again.message,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    let on = call(Verb::List, "-/v1/pods/-?fieldSelector=spec.nodeName=n", &Value::Null);
    assert_eq!(c.transport.list(on).await.unwrap().items.len(), 1);
    let going = c.call(Verb::Delete, "-/v1/pods/ns/p", Value::Null).await.unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    c.call(Verb::Delete, "-/v1/pods/ns/p", json!({"gracePeriodSeconds": 0})).await.unwrap();
    assert_eq!(c.call(Verb::Get, "-/v1/pods/ns/p", Value::Null).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn services_get_distinct_addresses() {
    let c = Cluster::new();
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let (a, b) = tokio::join!(
        c.call(Verb::Create, "-/v1/services/ns", service("a")),
        c.call(Verb::Create, "-/v1/services/ns", service("b")),
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_ne!(a["spec"]["clusterIP"], b["spec"]["clusterIP"]);
    assert_ne!(a["spec"]["ports"][0]["nodePort"], b["spec"]["ports"][0]["nodePort"]);
    let mut taken = service("c");
    taken["spec"]["clusterIP"] = a["spec"]["clusterIP"].clone();
    let refused = c.call(Verb::Create, "-/v1/services/ns", taken.clone()).await.unwrap_err();
    assert!(refused.message.contains("provided IP is already allocated"), "{refused}");
    c.call(Verb::Delete, "-/v1/services/ns/a", Value::Null).await.unwrap();
    c.call(Verb::Create, "-/v1/services/ns", taken).await.unwrap();
}

#[tokio::test]
async fn finalizers_and_namespaces() {
    let c = Cluster::new();
    let mut held = config_map("a", "1");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    c.call(Verb::Create, "-/v1/configmaps/ns", held).await.unwrap();
    c.call(Verb::Delete, "-/v1/configmaps/ns/a", Value::Null).await.unwrap();
    let going = c.call(Verb::Get, "-/v1/configmaps/ns/a", Value::Null).await.unwrap();
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    c.call(Verb::MergePatch, "-/v1/configmaps/ns/a", json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    assert_eq!(c.call(Verb::Get, "-/v1/configmaps/ns/a", Value::Null).await.unwrap_err().code, 404);

    let made = c.call(Verb::Create, "-/v1/namespaces", json!({"metadata": {"name": "n"}})).await.unwrap();
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    let gone = c.call(Verb::Delete, "-/v1/namespaces/-/n", Value::Null).await.unwrap();
    assert_eq!(gone["status"]["phase"], "Terminating");
    let mut done = gone.clone();
    done["spec"]["finalizers"] = json!([]);
    c.call(Verb::Update, "-/v1/namespaces/-/n/finalize", done).await.unwrap();
    assert_eq!(c.call(Verb::Get, "-/v1/namespaces/-/n", Value::Null).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn scale_and_dry_run() {
    let c = Cluster::new();
    let set = json!({"metadata": {"name": "r"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    c.call(Verb::Create, "apps/v1/replicasets/ns", set).await.unwrap();
    let mut scale = c.call(Verb::Get, "apps/v1/replicasets/ns/r/scale", Value::Null).await.unwrap();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("a=b")));
    scale["spec"]["replicas"] = 5.into();
    c.call(Verb::Update, "apps/v1/replicasets/ns/r/scale?dryRun=All", scale.clone()).await.unwrap();
    let now = c.call(Verb::Get, "apps/v1/replicasets/ns/r", Value::Null).await.unwrap();
    assert_eq!(now["spec"]["replicas"], 2);
    c.call(Verb::Update, "apps/v1/replicasets/ns/r/scale", scale).await.unwrap();
    let now = c.call(Verb::Get, "apps/v1/replicasets/ns/r", Value::Null).await.unwrap();
    assert_eq!(now["spec"]["replicas"], 5);
}

#[tokio::test]
async fn events_are_one_store_in_two_groups() {
    let c = Cluster::new();
    let event = json!({"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
        "reason": "R", "message": "m", "type": "Normal", "count": 1});
    c.call(Verb::Create, "-/v1/events/ns", event).await.unwrap();
    let new = c.call(Verb::Get, "events.k8s.io/v1/events/ns/e", Value::Null).await.unwrap();
    assert_eq!((&new["note"], &new["regarding"]["name"]), (&json!("m"), &json!("p")));
}

#[tokio::test]
async fn who_may_not_gets_upstreams_words() {
    let c = Cluster::new();
    let user = UserInfo { name: "nobody".into(), ..UserInfo::default() };
    let nobody = c.server.transport(user, "test");
    let refused = nobody.call(call(Verb::Get, "-/v1/pods/ns/p", &Value::Null)).await.unwrap_err();
    assert_eq!(
        refused.message,
        "pods \"p\" is forbidden: User \"nobody\" cannot get resource \"pods\" in API group \"\" in the namespace \"ns\""
    );
}
