//! A resource whose objects somebody else converts, who takes time for it: widgets, which are stored as `v2`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::schema::Gvk;
use api::view::View;
use api::{Node, Schema, Status, Struct};
use client::{EventKind, Verb};
use component::Shutdown;
use futures::StreamExt;
use futures::future::BoxFuture;
use kinds::custom::Definition;
use parking_lot::Mutex;
use serde_json::{Value, json};
use storage::Store;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::catalog::conversion::Conversion;
use crate::catalog::converter::{Converter, NotConverted};
use crate::catalog::custom::CustomResource;
use crate::catalog::definitions::Change;
use crate::config::Config;
use crate::objects::Objects;
use crate::testing::Cluster;

const GROUP: &str = "example.com";
const PLURAL: &str = "widgets";

/// Renames `spec.size` of `v2` to `spec.extent` of `v1` and back, as often as it may.
struct Asked {
    /// How many objects each call had, and the version that was wanted.
    calls: Mutex<Vec<(usize, String)>>,
    /// Answers that may still be given.
    answers: Semaphore,
    fails: AtomicBool,
    /// Answers what it was sent.
    lies: AtomicBool,
    /// The resource, whose watches end with it.
    widgets: Mutex<Option<Arc<CustomResource>>>,
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

fn renamed(mut object: Node, to: &str) -> Node {
    let (from_name, to_name) = if to.ends_with("v1") { ("size", "extent") } else { ("extent", "size") };
    if let Some(map) = object.as_map_mut() {
        map.insert("apiVersion", to);
        if let Some(spec) = map.get_mut("spec").and_then(Node::as_map_mut)
            && let Some(size) = spec.remove(from_name)
        {
            spec.insert(to_name, size);
        }
    }
    object
}

impl Converter for Handle {
    fn convert(&self, objects: &[Node], to: &str) -> BoxFuture<'static, Result<Vec<Node>, NotConverted>> {
        let (asked, objects, to) = (Arc::clone(&self.0), objects.to_vec(), to.to_owned());
        asked.calls.lock().push((objects.len(), to.clone()));
        Box::pin(async move {
            asked.answers.acquire().await.unwrap().forget();
            if asked.fails.load(Ordering::Relaxed) {
                return Err(NotConverted("no answer".into()));
            }
            if asked.lies.load(Ordering::Relaxed) {
                return Ok(objects);
            }
            Ok(objects.into_iter().map(|object| renamed(object, &to)).collect())
        })
    }
}

fn definition() -> Definition {
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == "v2", "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                field: {"type": "integer"}, "color": {"type": "string"},
            }}},
        }}, "selectableFields": [{"jsonPath": format!(".spec.{field}")}]})
    };
    let body = json!({"spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [version("v1", "extent"), version("v2", "size")],
    }});
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")).unwrap();
    let tree = api::codec::json::decode(schema, root, body.to_string().as_bytes()).unwrap().tree;
    Definition::of(View::new(schema, &tree))
}

fn cluster() -> (Cluster, Arc<Asked>) {
    let answers = Semaphore::new(0);
    let (fails, lies) = (AtomicBool::new(false), AtomicBool::new(false));
    let (calls, widgets) = (Mutex::default(), Mutex::default());
    let asked = Arc::new(Asked { calls, answers, fails, lies, widgets });
    let objects = Objects::new(Store::in_memory(), &Config::new("")).unwrap();
    let converter: Arc<dyn Converter> = Arc::new(Handle(Arc::clone(&asked)));
    let made_of = ("uid".into(), 1, false);
    let widgets = CustomResource::new(
        &objects.store,
        Arc::new(definition()),
        Vec::new(),
        Some(converter),
        made_of,
        &Shutdown::new(),
    );
    let widgets = Arc::new(widgets.unwrap());
    let (group, plural) = (GROUP.into(), PLURAL.into());
    objects.serve_definitions(&[Change { group, plural, resource: Some(Arc::clone(&widgets)) }]);
    *asked.widgets.lock() = Some(widgets);
    (Cluster::over(objects), asked)
}

fn path(version: &str, rest: &str) -> String {
    format!("{GROUP}/{version}/{PLURAL}/ns{rest}")
}

fn widget(name: &str, size: u32) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

async fn create(c: &Cluster, names: impl IntoIterator<Item = String>) {
    for name in names {
        c.call(Verb::Create, &path("v2", ""), widget(&name, 3)).await.unwrap();
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
    assert_eq!(stored["spec"], json!({"size": 3}));
    assert_eq!(asked.calls(), [], "nobody is asked for what is stored");
    let get = path("v1", "/a");
    let mut get = Box::pin(c.call(Verb::Get, &get, Value::Null));
    assert!(futures::poll!(&mut get).is_pending());
    settle().await;
    assert!(futures::poll!(&mut get).is_pending());
    c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    asked.answers.add_permits(1);
    let got = get.await.unwrap();
    assert_eq!(got["apiVersion"], "example.com/v1");
    assert_eq!(got["spec"], json!({"extent": 3}));
    assert_eq!(got["metadata"], stored["metadata"]);
    assert_eq!(asked.calls(), [(1, "example.com/v1".to_owned())]);
}

#[tokio::test]
async fn a_list_is_one_question() {
    let (c, asked) = cluster();
    create(&c, (0..1000).map(|n| format!("a{n:04}"))).await;
    asked.open();
    let list = c.call(Verb::List, &path("v1", ""), Value::Null).await.unwrap();
    assert_eq!(asked.calls(), [(1000, "example.com/v1".to_owned())]);
    let items = list["items"].as_array().unwrap();
    let names = items.iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned());
    assert!(names.eq((0..1000).map(|n| format!("a{n:04}"))));
    assert!(items.iter().all(|i| i["spec"]["extent"] == 3));
    let page = c.call(Verb::List, &path("v1", "?limit=10"), Value::Null).await.unwrap();
    assert_eq!(page["metadata"]["remainingItemCount"], 990);
    assert_eq!(asked.calls(), [(10, "example.com/v1".to_owned())], "a page is asked for alone");
    let empty = c.call(Verb::List, "example.com/v1/widgets/other", Value::Null).await;
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
        assert_eq!(object["apiVersion"], "example.com/v1");
        assert_eq!(object["metadata"], *metadata);
    }
    // The last state is asked for with what was before it.
    let asked: usize = asked.calls().iter().map(|(count, _)| count).sum();
    assert!((3..=4).contains(&asked), "each event once, not {asked}");
}

#[tokio::test]
async fn writes_are_converted_and_keep_their_managers() {
    let (c, asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    asked.open();
    let of_v1 = |name: &str, spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    let current = c.call(Verb::Get, &path("v1", "/a"), Value::Null).await.unwrap();
    let mut put = of_v1("a", json!({"extent": 50, "color": "red"}));
    put["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    let written = c.call(Verb::Update, &path("v1", "/a"), put).await.unwrap();
    assert_eq!(written["spec"], json!({"extent": 50, "color": "red"}));
    let patch = json!({"spec": {"color": "blue"}});
    c.call(Verb::MergePatch, &path("v1", "/a"), patch).await.unwrap();
    assert!(!asked.calls().is_empty());
    let stored = c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    assert_eq!(stored["spec"], json!({"size": 50, "color": "blue"}));

    // The other managers' fields are those of v2 and of v1.
    let config = of_v1("a", json!({"extent": 9}));
    let apply = |query: &str| path("v1", &format!("/a?fieldManager=me{query}"));
    let refused = c.call(Verb::Apply, &apply(""), config.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"), "{refused:?}");
    let applied = c.call(Verb::Apply, &apply("&force=true"), config).await.unwrap();
    assert_eq!(applied["spec"]["extent"], 9);
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let find = |operation: &str| managers.iter().filter(|m| m["operation"] == operation).collect::<Vec<_>>();
    assert_eq!(find("Apply")[0]["apiVersion"], "example.com/v1");
    let taken = |m: &&Value| m["fieldsV1"]["f:spec"].get("f:extent").is_none();
    assert!(find("Update").iter().all(taken), "{managers:?}");
    c.call(Verb::Delete, &path("v1", "/a"), Value::Null).await.unwrap();
}

#[tokio::test]
async fn fields_are_selected_in_the_version_that_is_asked_for() {
    let (c, asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    c.call(Verb::Create, &path("v2", ""), widget("b", 4)).await.unwrap();
    asked.open();
    let selected = async |query: &str| {
        let list = c.call(Verb::List, &path("v1", &format!("?fieldSelector={query}")), Value::Null).await;
        list.map(|l| l["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].clone()).collect())
    };
    let found: Vec<Value> = selected("spec.extent=4").await.unwrap();
    assert_eq!(found, ["b"]);
    let unknown = selected("spec.size=4").await.unwrap_err();
    assert_eq!(unknown.message, "field label not supported: spec.size");
}

#[tokio::test]
async fn lies_are_not_believed() {
    let (c, asked) = cluster();
    create(&c, ["a".to_owned()]).await;
    asked.lies.store(true, Ordering::Relaxed);
    asked.open();
    let refused = c.call(Verb::Get, &path("v1", "/a"), Value::Null).await.unwrap_err();
    assert_eq!(
        refused.message,
        "conversion webhook for example.com/v2, Kind=Widget returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v2)"
    );
    let listed = c.call(Verb::List, &path("v1", ""), Value::Null).await.unwrap_err();
    assert_eq!(
        listed.message,
        "conversion webhook for example.com/v2, Kind=WidgetList returned invalid converted object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v2)"
    );
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
        let text = format!("conversion webhook for example.com/v2, Kind={kind} failed: no answer");
        assert_eq!(status.message, text);
    };
    let kind = "Widget";
    check(c.call(Verb::Get, &path("v1", "/a"), Value::Null).await.unwrap_err(), kind);
    let listed = c.call(Verb::List, &path("v1", ""), Value::Null).await;
    check(listed.unwrap_err(), "WidgetList");
    check(watch.next().await.unwrap().unwrap_err(), kind);
    assert!(watch.next().await.is_none(), "the watch ends with it");
    let patched = c.call(Verb::MergePatch, &path("v1", "/a"), json!({"spec": {"extent": 5}})).await;
    check(patched.unwrap_err(), kind);
    let stored = c.call(Verb::Get, &path("v2", "/a"), Value::Null).await.unwrap();
    assert_eq!(stored["spec"]["size"], 3, "nothing was written");
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
