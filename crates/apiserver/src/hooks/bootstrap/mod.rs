//! The first objects of a cluster: namespaces, RBAC policy, priority classes, flow control.
//!
//! Everything is made through the API, as a superuser. Objects that are there already are only added to, as
//! upstream does on every start.

pub(super) mod flowcontrol;
mod rbac;

use std::collections::HashMap;

use api::{FeatureGates, Status, Text};
use bytes::Bytes;
use client::{Call, FromJson, Resource, Transport, Verb};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

/// Writes under way at once: enough for the store to commit them in a few batches.
const AT_ONCE: usize = 64;
/// Attempts at one object while others write it.
const ATTEMPTS: usize = 5;
/// The namespaces of the system.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// One object that must be there.
struct Item {
    resource: Resource,
    object: Value,
    rule: Rule,
}

/// The treatment of an object that is there.
#[derive(Clone, Copy)]
enum Rule {
    Keep,
    Rbac,
    FlowControl,
}

impl Item {
    fn new(group: &str, version: &str, plural: &str, object: Value, rule: Rule) -> Self {
        let resource = Resource { group: group.into(), version: version.into(), plural: plural.into() };
        Self { resource, object, rule }
    }
    fn text(&self, field: &str) -> &str {
        self.object["metadata"][field].as_str().unwrap_or_default()
    }
    fn call(&self, verb: Verb, body: &Value) -> Call {
        let named = matches!(verb, Verb::Get | Verb::Update | Verb::Delete);
        Call {
            verb,
            resource: self.resource.clone(),
            namespace: self.text("namespace").into(),
            name: if named { self.text("name").into() } else { Text::default() },
            subresource: Text::default(),
            query: Vec::new(),
            body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
        }
    }
}

/// Makes the namespaces of the system.
pub(super) async fn namespaces(transport: &dyn Transport) -> Result<(), Status> {
    let namespaces = NAMESPACES.iter().map(|name| {
        let object = json!({ "metadata": { "name": name } });
        Item::new("", "v1", "namespaces", object, Rule::Keep)
    });
    ensure_all(transport, namespaces.collect()).await
}

/// Makes or completes the roles and bindings of the system.
pub(super) async fn roles(transport: &dyn Transport, gates: &FeatureGates) -> Result<(), Status> {
    let group = access::auth::rbac::GROUP;
    let policy =
        rbac::policy(gates).into_iter().map(|(plural, o)| Item::new(group, "v1", plural, o, Rule::Rbac));
    ensure_all(transport, policy.collect()).await
}

/// Makes or completes the flow schemas and priority levels of the system.
pub(super) async fn flow_control(transport: &dyn Transport) -> Result<(), Status> {
    let group = flowcontrol::FLOW_CONTROL;
    let of = |plural, object| Item::new(group, "v1", plural, object, Rule::FlowControl);
    let levels = flowcontrol::priority_levels().into_iter().map(|o| of(flowcontrol::PRIORITY_LEVELS, o));
    let schemas = flowcontrol::flow_schemas().into_iter().map(|o| of(flowcontrol::FLOW_SCHEMAS, o));
    ensure_all(transport, levels.chain(schemas).collect()).await
}

/// Makes the priority classes of the system.
pub(super) async fn priority_classes(transport: &dyn Transport) -> Result<(), Status> {
    let classes = classes().into_iter();
    let classes = classes.map(|o| Item::new("scheduling.k8s.io", "v1", "priorityclasses", o, Rule::Keep));
    ensure_all(transport, classes.collect()).await
}

fn classes() -> [Value; 2] {
    let class = |name: &str, value: i64, what: &str| {
        json!({
            "metadata": { "name": name },
            "value": value,
            "description": what,
            "preemptionPolicy": "PreemptLowerPriority",
        })
    };
    [
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}

async fn ensure_all(transport: &dyn Transport, items: Vec<Item>) -> Result<(), Status> {
    let mut stored: HashMap<Resource, HashMap<(String, String), Value>> = HashMap::new();
    for item in &items {
        if !stored.contains_key(&item.resource) {
            stored.insert(item.resource.clone(), list(transport, item).await?);
        }
    }
    let stored = &stored;
    let ensure = |item: Item| async move {
        let key = (item.text("namespace").to_owned(), item.text("name").to_owned());
        let found = stored.get(&item.resource).and_then(|of| of.get(&key)).cloned();
        ensure_one(transport, &item, found).await
    };
    stream::iter(items).map(ensure).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

async fn list(transport: &dyn Transport, item: &Item) -> Result<HashMap<(String, String), Value>, Status> {
    let mut call = item.call(Verb::List, &Value::Null);
    call.namespace = Text::default();
    let answer = transport.list(call).await?;
    let objects = answer.items.iter().filter_map(|body| Value::from_json(body).ok());
    let text = |o: &Value, field: &str| o["metadata"][field].as_str().unwrap_or_default().to_owned();
    Ok(objects.map(|o| ((text(&o, "namespace"), text(&o, "name")), o)).collect())
}

/// Makes or completes one object; begins anew when somebody else was faster.
async fn ensure_one(transport: &dyn Transport, item: &Item, mut found: Option<Value>) -> Result<(), Status> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let result = match &found {
            None => transport.call(item.call(Verb::Create, &item.object)).await.map(|_| ()),
            Some(stored) => bring_into_line(transport, item, stored).await,
        };
        match result {
            Ok(()) => return Ok(()),
            Err(status) if status.is_already_exists() || status.is_conflict() || status.is_not_found() => {
                last = Some(status);
            }
            Err(status) => return Err(status),
        }
        found = match transport.call(item.call(Verb::Get, &Value::Null)).await {
            Ok(body) => Value::from_json(&body).ok(),
            Err(status) if status.is_not_found() => None,
            Err(status) => return Err(status),
        };
    }
    Err(last.unwrap_or_else(|| Status::internal("the object keeps changing")))
}

async fn bring_into_line(transport: &dyn Transport, item: &Item, stored: &Value) -> Result<(), Status> {
    let update = match item.rule {
        Rule::Keep => None,
        Rule::FlowControl => flowcontrol::reconcile(&item.object, stored),
        Rule::Rbac => match rbac::reconcile(&item.object, stored) {
            rbac::Step::Nothing => None,
            rbac::Step::Update(new) => Some(new),
            rbac::Step::Recreate(new) => {
                transport.call(item.call(Verb::Delete, &Value::Null)).await?;
                return transport.call(item.call(Verb::Create, &new)).await.map(|_| ());
            }
        },
    };
    match update {
        Some(new) => transport.call(item.call(Verb::Update, &new)).await.map(|_| ()),
        None => Ok(()),
    }
}
