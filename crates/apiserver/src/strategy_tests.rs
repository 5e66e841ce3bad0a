//! Resources whose strategies are made at run time, and whose names are those of built-in resources in other groups:
//! nothing that is done for those is done for them.

use std::sync::Arc;

use access::reader::Reader;
use api::managed::Taken;
use api::resources::{ResourceInfo, builtin};
use api::schema::Gvk;
use api::status::FieldError;
use api::view::{Edit, View};
use api::{Schema, Struct, Text};
use client::{EventKind, Verb};
use futures::StreamExt;
use jiff::Timestamp;
use kinds::columns::Row;
use kinds::convert::NoConversion;
use kinds::strategy::{Facts, Grace, SelectableField};
use kinds::{Ctx, Strategy, Subresource};
use serde_json::{Value, json};
use storage::Store;

use crate::catalog::{Catalog, NoDocuments};
use crate::config::Config;
use crate::objects::Objects;
use crate::testing::Cluster;

/// The rules of another kind, with a selectable field that is known at run time only, and a field that no new object
/// keeps.
struct Made {
    of: Arc<dyn Strategy>,
    facts: Facts,
    drops: Text,
}

impl Made {
    fn new(selectable: &str, drops: &str) -> Self {
        let of = kinds::strategy("apps", "deployments");
        let fields = vec![SelectableField { path: selectable.into(), indexed: false }];
        let facts = Facts { fields, ..of.facts().clone() };
        Self { of, facts, drops: drops.into() }
    }
}

impl Strategy for Made {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn prepare_create(&self, c: &Ctx<'_>, new: &mut Struct) {
        self.of.prepare_create(c, new);
        if let Some(mut spec) = Edit::new(c.schema, new).at("spec") {
            spec.remove(&self.drops);
        }
    }
    fn validate(&self, c: &Ctx<'_>, new: &Struct) -> Vec<FieldError> {
        self.of.validate(c, new)
    }
    fn canonicalize(&self, c: &Ctx<'_>, new: &mut Struct) {
        self.of.canonicalize(c, new);
    }
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
        self.of.prepare_update(c, new, old);
    }
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
        self.of.validate_update(c, new, old)
    }
    fn warnings(&self, c: &Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String> {
        self.of.warnings(c, new, old)
    }
    fn subresource(&self, name: &str) -> Option<&dyn Subresource> {
        self.of.subresource(name)
    }
    fn taken(&self, subresource: &str) -> Taken<'_> {
        self.of.taken(subresource)
    }
    fn field_values(&self, schema: &Schema, object: &Struct, out: &mut Vec<Text>) {
        let spec = View::new(schema, object).st("spec");
        out.extend(self.facts.fields.iter().map(|f| {
            let name = f.path.rsplit('.').next().unwrap_or_default();
            Text::from(if spec.bool(name) { "true" } else { "false" })
        }));
    }
    fn row(&self, schema: &Schema, object: &Struct, now: Timestamp) -> Row {
        self.of.row(schema, object, now)
    }
    fn grace(&self, schema: &Schema, object: &Struct) -> Option<Grace> {
        self.of.grace(schema, object)
    }
    fn is_held(&self, schema: &Schema, object: &Struct) -> bool {
        self.of.is_held(schema, object)
    }
    fn convert(&self, schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion> {
        self.of.convert(schema, tree, from, to)
    }
    fn settle(&self, schema: &Schema, object: &mut Struct) -> Result<(), String> {
        self.of.settle(schema, object)
    }
}

/// A server that serves Deployments under more names in their group.
fn cluster(plurals: &[&'static str]) -> Cluster {
    let row = builtin().iter().find(|r| (r.group, r.resource) == ("apps", "deployments")).unwrap();
    let mut rows: Vec<ResourceInfo> = builtin().iter().filter(|r| r.served_by_default).cloned().collect();
    rows.extend(plurals.iter().map(|plural| ResourceInfo { resource: plural, ..row.clone() }));
    let (config, store) = (Config::new(""), Store::in_memory());
    let rules = |group: &str, plural: &str| {
        if group == "apps" && plurals.contains(&plural) {
            Arc::new(Made::new("spec.paused", "revisionHistoryLimit"))
        } else {
            kinds::strategy(group, plural)
        }
    };
    let catalog = Catalog::new(&store, &rows, config.gates, Arc::new(NoDocuments), rules).unwrap();
    Cluster::over(Objects::with(store, &config, catalog))
}

fn deployment(name: &str, paused: bool) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    json!({
        "metadata": {"name": name},
        "spec": {"paused": paused, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    })
}

#[tokio::test]
async fn a_name_of_a_built_in_resource_means_nothing_in_another_group() {
    let plurals = ["jobs", "certificatesigningrequests", "replicationcontrollers", "pods", "services"];
    let c = cluster(&plurals);
    for plural in plurals {
        let path = format!("apps/v1/{plural}/ns");
        let made = c.call(Verb::Create, &path, deployment("d", false)).await.unwrap();
        // Jobs get defaults once more after their rules, requests get their user's name, Services an address.
        assert_eq!(made["spec"]["revisionHistoryLimit"], Value::Null, "{plural}");
        assert_eq!(made["spec"]["progressDeadlineSeconds"], 600, "{plural}");
        assert_eq!(made["spec"]["username"], Value::Null, "{plural}");
        assert_eq!(made["spec"]["clusterIP"], Value::Null, "{plural}");
        // The selector of a ReplicationController is a map.
        let scale = c.call(Verb::Get, &format!("{path}/d/scale"), Value::Null).await.unwrap();
        assert_eq!(scale["status"]["selector"], "app=a", "{plural}");
        // Pods that are on no node go at once, others after their grace.
        c.call(Verb::Delete, &format!("{path}/d"), Value::Null).await.unwrap();
        assert!(c.call(Verb::Get, &format!("{path}/d"), Value::Null).await.unwrap_err().is_not_found());
    }
}

#[tokio::test]
async fn facts_may_be_known_at_run_time_only() {
    let c = cluster(&["widgets"]);
    for (name, paused) in [("a", true), ("b", false)] {
        c.call(Verb::Create, "apps/v1/widgets/ns", deployment(name, paused)).await.unwrap();
    }
    let list = c.call(Verb::List, "apps/v1/widgets/ns?fieldSelector=spec.paused=true", Value::Null);
    let list = list.await.unwrap();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["a"]);
    let other = c.call(Verb::List, "apps/v1/widgets/ns?fieldSelector=spec.replicas=1", Value::Null).await;
    assert_eq!(other.unwrap_err().message, "field label not supported: spec.replicas");
    // The built-in resource of the kind has none.
    let own = c.call(Verb::List, "apps/v1/deployments/ns?fieldSelector=spec.paused=true", Value::Null).await;
    assert!(own.is_err());
}

#[tokio::test]
async fn requests_go_on_with_what_was_served_when_they_came() {
    let c = Cluster::new();
    let all: Vec<ResourceInfo> = builtin().iter().filter(|r| r.served_by_default).cloned().collect();
    let fewer: Vec<ResourceInfo> = all.iter().filter(|r| r.resource != "deployments").cloned().collect();
    let served = async || c.call(Verb::List, "apps/v1/deployments/ns", Value::Null).await;
    c.call(Verb::Create, "apps/v1/deployments/ns", deployment("a", false)).await.unwrap();
    let watch = crate::testing::call(Verb::Watch, "apps/v1/deployments/ns?resourceVersion=0", &Value::Null);
    let mut events = c.transport.watch(watch).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().kind, EventKind::Added);
    let objects = c.server.objects();
    objects.serve(&fewer).unwrap();
    assert!(served().await.unwrap_err().is_not_found());
    assert!(objects.list(("apps", "deployments"), "").is_empty());
    objects.serve(&all).unwrap();
    assert_eq!(served().await.unwrap()["items"][0]["metadata"]["name"], "a");
    c.call(Verb::Delete, "apps/v1/deployments/ns/a", Value::Null).await.unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(event.kind, EventKind::Deleted, "the watch goes on");
}
