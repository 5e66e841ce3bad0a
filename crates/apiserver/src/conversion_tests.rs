//! A resource whose objects somebody else converts, who takes time for it: HorizontalPodAutoscalers, which are stored
//! as `autoscaling/v2`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::resources::{ResourceInfo, builtin};
use api::schema::Gvk;
use api::{Schema, Status, Struct};
use client::{EventKind, Verb};
use futures::StreamExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use storage::Store;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::catalog::conversion::Conversion;
use crate::catalog::converter::Converter;
use crate::catalog::{Catalog, NoDocuments, Rules};
use crate::config::Config;
use crate::objects::Objects;
use crate::testing::Cluster;

const GROUP: &str = "autoscaling";
const PLURAL: &str = "horizontalpodautoscalers";

/// Converts as the strategy does, as often as it may.
struct Asked {
    /// How many trees each call had, and their version.
    calls: Mutex<Vec<(usize, String)>>,
    /// Answers that may still be given.
    answers: Semaphore,
    fails: AtomicBool,
}

impl Asked {
    /// The calls since the last look at them.
    fn calls(&self) -> Vec<(usize, String)> {
        std::mem::take(&mut *self.calls.lock())
    }
    /// Gives answers without end.
    fn open(&self) {
        self.answers.add_permits(1_000_000);
    }
}

/// The converter as the catalog has it.
struct Handle(Arc<Asked>);

impl Converter for Handle {
    fn convert(
        &self,
        trees: Vec<Struct>,
        from: &Gvk,
        to: &Gvk,
    ) -> BoxFuture<'static, Result<Vec<Struct>, String>> {
        let (asked, from, to) = (Arc::clone(&self.0), from.clone(), to.clone());
        asked.calls.lock().push((trees.len(), from.version.to_string()));
        Box::pin(async move {
            asked.answers.acquire().await.unwrap().forget();
            if asked.fails.load(Ordering::Relaxed) {
                return Err("no answer".into());
            }
            let strategy = kinds::strategy(GROUP, PLURAL);
            let convert = |tree| strategy.convert(Schema::builtin(), tree, &from, &to).unwrap();
            Ok(trees.into_iter().map(convert).collect())
        })
    }
}

fn cluster() -> (Cluster, Arc<Asked>) {
    let answers = Semaphore::new(0);
    let asked = Arc::new(Asked { calls: Mutex::default(), answers, fails: AtomicBool::new(false) });
    let rules = |group: &str, plural: &str| {
        let rules = Rules::builtin(group, plural);
        if (group, plural) != (GROUP, PLURAL) {
            return rules;
        }
        Rules { converter: Some(Arc::new(Handle(Arc::clone(&asked)))), ..rules }
    };
    let rows: Vec<ResourceInfo> = builtin().iter().filter(|r| r.served_by_default).cloned().collect();
    let (config, store) = (Config::new(""), Store::in_memory());
    let catalog = Catalog::new(&store, &rows, config.gates, Arc::new(NoDocuments), rules).unwrap();
    (Cluster::over(Objects::with(store, &config, catalog)), asked)
}

fn path(version: &str, rest: &str) -> String {
    format!("{GROUP}/{version}/{PLURAL}/ns{rest}")
}

fn scaler(name: &str, most: u32) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    json!({"metadata": {"name": name}, "spec": {"maxReplicas": most, "scaleTargetRef": target}})
}

async fn create(c: &Cluster, names: impl IntoIterator<Item = String>) {
    for name in names {
        c.call(Verb::Create, &path("v2", ""), scaler(&name, 3)).await.unwrap();
    }
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_get_waits_for_its_conversion() {
    let (c, asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    let stored = c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    assert_eq!(stored["spec"]["metrics"][0]["type"], "Resource");
    assert_eq!(asked.calls(), [], "nobody is asked for what is stored");
    let get = path("v1", "/a");
    let mut get = Box::pin(c.call(Verb::Get, &get, Value::Null));
    assert!(futures::poll!(&mut get).is_pending());
    settle().await;
    assert!(futures::poll!(&mut get).is_pending());
    c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    asked.answers.add_permits(1);
    let got = get.await.unwrap();
    assert_eq!(got["apiVersion"], "autoscaling/v1");
    assert_eq!(got["spec"]["targetCPUUtilizationPercentage"], 80);
    assert_eq!(got["metadata"], stored["metadata"]);
    assert_eq!(asked.calls(), [(1, "v2".to_owned())]);
}

#[tokio::test]
async fn a_list_is_one_question() {
    let (c, asked) = cluster();
    create(&c, (0..1000).map(|n| format!("a{n:04}"))).await;
    asked.open();
    let list = c.call(Verb::List, &path("v1", ""), Value::Null).await.unwrap();
    assert_eq!(asked.calls(), [(1000, "v2".to_owned())]);
    let items = list["items"].as_array().unwrap();
    let names = items.iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned());
    assert!(names.eq((0..1000).map(|n| format!("a{n:04}"))));
    assert!(items.iter().all(|i| i["spec"]["targetCPUUtilizationPercentage"] == 80));
    let page = c.call(Verb::List, &path("v1", "?limit=10"), Value::Null).await.unwrap();
    assert_eq!(page["metadata"]["remainingItemCount"], 990);
    assert_eq!(asked.calls(), [(10, "v2".to_owned())], "a page is asked for alone");
    let empty = c.call(Verb::List, "autoscaling/v1/horizontalpodautoscalers/other", Value::Null).await;
    assert_eq!((empty.unwrap()["items"].clone(), asked.calls()), (json!([]), vec![]));
}

#[tokio::test]
async fn a_watch_keeps_the_order_and_holds_up_no_other() {
    let (c, asked) = cluster();
    let watch = async |version: &str| {
        let call = crate::testing::call(Verb::Watch, &path(version, "?resourceVersion=0"), &Value::Null);
        c.transport.watch(call).await.unwrap()
    };
    let (mut old, mut new) = (watch("v1").await, watch("v2").await);
    create(&c, ["a".to_owned(), "b".to_owned()]).await;
    let mut first = old.next();
    assert!(futures::poll!(&mut first).is_pending(), "it waits for its conversion");
    c.call(Verb::Delete, &path("v2", "/a"), Value::Null).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = new.next().await.unwrap().unwrap();
        let object: Value = serde_json::from_slice(&event.object).unwrap();
        seen.push((event.kind, object["metadata"]["name"].clone(), object["metadata"].clone()));
    }
    assert!(futures::poll!(&mut first).is_pending(), "it still waits");
    asked.open();
    let mut got = vec![first.await.unwrap().unwrap()];
    for _ in 1..3 {
        got.push(old.next().await.unwrap().unwrap());
    }
    let names = [(EventKind::Added, "a"), (EventKind::Added, "b"), (EventKind::Deleted, "a")];
    for ((event, (kind, name, metadata)), expected) in got.iter().zip(&seen).zip(names) {
        let object: Value = serde_json::from_slice(&event.object).unwrap();
        assert_eq!((event.kind, object["metadata"]["name"].as_str().unwrap()), expected);
        assert_eq!((*kind, name.as_str().unwrap()), expected);
        assert_eq!(object["apiVersion"], "autoscaling/v1");
        assert_eq!(object["metadata"], *metadata);
    }
    let asked: usize = asked.calls().iter().map(|(count, _)| count).sum();
    assert_eq!(asked, 3, "each event once");
}

#[tokio::test]
async fn writes_are_converted_and_keep_their_managers() {
    let (c, asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    asked.open();
    let put = json!({"metadata": {"name": "a"}, "spec": {
        "maxReplicas": 4, "minReplicas": 2, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
    }});
    let written = c.call(Verb::Update, &path("v1", "/a"), put).await.unwrap();
    assert_eq!(written["spec"]["targetCPUUtilizationPercentage"], 50);
    let patch = json!({"spec": {"minReplicas": 3}});
    c.call(Verb::MergePatch, &path("v1", "/a"), patch).await.unwrap();
    assert!(!asked.calls().is_empty());
    let stored = c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    assert_eq!(stored["spec"]["minReplicas"], 3);
    assert_eq!(stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);

    // The other managers' fields are those of v2 and of v1.
    let config = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 9},
    });
    let apply = |query: &str| path("v1", &format!("/a?fieldManager=me{query}"));
    let refused = c.call(Verb::Apply, &apply(""), config.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"), "{refused:?}");
    let applied = c.call(Verb::Apply, &apply("&force=true"), config).await.unwrap();
    assert_eq!(applied["spec"]["maxReplicas"], 9);
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let find = |operation: &str| managers.iter().filter(|m| m["operation"] == operation).collect::<Vec<_>>();
    assert_eq!(find("Apply")[0]["apiVersion"], "autoscaling/v1");
    assert!(find("Update").iter().all(|m| m["fieldsV1"]["f:spec"].get("f:maxReplicas").is_none()));
    c.call(Verb::Delete, &path("v1", "/a"), Value::Null).await.unwrap();
}

#[tokio::test]
async fn an_error_is_told_as_upstream_does() {
    let (c, asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    let call = crate::testing::call(Verb::Watch, &path("v1", "?resourceVersion=0"), &Value::Null);
    let mut watch = c.transport.watch(call).await.unwrap();
    asked.fails.store(true, Ordering::Relaxed);
    asked.open();
    let check = |status: Status, kind: &str| {
        assert_eq!((status.code, status.reason.as_str()), (500, ""));
        let text = format!("conversion webhook for autoscaling/v2, Kind={kind} failed: no answer");
        assert_eq!(status.message, text);
    };
    let kind = "HorizontalPodAutoscaler";
    check(c.call(Verb::Get, &path("v1", "/a"), Value::Null).await.unwrap_err(), kind);
    let listed = c.call(Verb::List, &path("v1", ""), Value::Null).await;
    check(listed.unwrap_err(), "HorizontalPodAutoscalerList");
    check(watch.next().await.unwrap().unwrap_err(), kind);
    assert!(watch.next().await.is_none(), "the watch ends with it");
    let patched = c.call(Verb::MergePatch, &path("v1", "/a"), json!({"spec": {"minReplicas": 3}})).await;
    check(patched.unwrap_err(), kind);
    let stored = c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    assert_eq!(stored["spec"]["minReplicas"], 1, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_forever() {
    let (c, _asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    let started = Instant::now();
    let late = c.call(Verb::Get, &path("v1", "/a"), Value::Null).await.unwrap_err();
    assert_eq!(late.code, 500);
    assert!(late.message.ends_with("failed: context deadline exceeded"), "{late:?}");
    assert_eq!(started.elapsed().as_secs(), 30);

    let catalog = c.server.0.objects.catalog();
    let find = |version| catalog.resources.find(GROUP, version, PLURAL).unwrap();
    let (from, to) = (&find("v2").kind, &find("v1").kind);
    let deadline = Some(Instant::now() + Duration::from_secs(2));
    let conversion = Conversion { schema: catalog.schema(), resource: find("v1"), from, to, deadline };
    let started = Instant::now();
    let late = conversion.one(Struct::new(find("v2").root)).get().await.unwrap_err();
    assert_eq!((late.code, late.reason.as_str()), (504, "Timeout"));
    assert_eq!(started.elapsed().as_secs(), 2);
}
