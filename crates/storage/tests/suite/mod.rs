//! Tests for every store, whatever keeps its data: cases after upstream's store and watcher tests, a sequential model,
//! and histories of concurrent clients. Revisions are compared, never counted on: a store may be one of several users
//! of the same sequence.
//!
//! An engine joins with a [`Fixture`] and `suite!(ItsFixture)`.

pub(crate) mod histories;
pub(crate) mod model;
pub(crate) mod objects;
pub(crate) mod watches;

use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Object, Text};
use ferrokube_storage as storage;
use futures::StreamExt;
use storage::{
    Batch, Event, ResourceId, ResourceSpec, Scope, Snapshot, Store, WatchOptions, WatchStart, Watcher, Write,
    WriteError,
};

/// A time far longer than any step, so that only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// The field by which objects are indexed.
pub(crate) const NODE: usize = 0;

/// A store for one test.
pub(crate) trait Fixture: Sized {
    /// Makes an empty store.
    async fn fresh() -> Self;
    /// The store.
    fn store(&self) -> &Store;
    /// Closes the store, and opens the same data.
    async fn reopen(self) -> Self;
}

/// Makes a test of each case for a fixture.
#[macro_export]
macro_rules! suite {
    ($fixture:ty) => {
        $crate::suite!($fixture, objects: create_and_get, names_are_taken_once, an_update_is_of_one_revision,
            a_deletion_is_of_one_revision, what_changes_nothing_is_not_written, what_lives_for_a_time_goes,
            resources_are_apart, lists_are_in_order_and_of_a_scope, an_index_follows,
            a_snapshot_stays_and_the_past_can_be_read, pages_of_one_revision, compaction, a_revision_is_waited_for,
            a_closed_store_can_be_read);
        $crate::suite!($fixture, watches: from_now, from_every_revision, of_a_scope, of_what_is_deleted,
            of_the_future, of_what_is_forgotten, nothing_is_missed_or_doubled_at_the_start, one_that_is_slow,
            one_that_takes_its_time, events_are_shared, progress, resumed_after_a_restart);
        $crate::suite!($fixture, model: sequential);
        $crate::suite!($fixture, histories: linearizable);
    };
    ($fixture:ty, $module:ident: $($case:ident),*) => {
        mod $module {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::suite::$module::$case::<$fixture>().await;
            })*
        }
    };
}

pub(crate) fn pods(store: &Store) -> ResourceId {
    store.register(ResourceSpec { group: "".into(), plural: "pods".into(), indexed: vec![NODE] })
}

/// Makes a resource known, and waits until it can be read.
pub(crate) async fn late(store: &Store) -> ResourceId {
    let spec = ResourceSpec { group: "late.example.com".into(), plural: "things".into(), indexed: vec![] };
    let resource = store.register(spec);
    assert!(store.wait_for(resource, 0, LONG).await);
    resource
}

pub(crate) fn object(namespace: &str, name: &str, node: &str, text: &str) -> NewObject {
    let head = r#"{"metadata":{"resourceVersion":""#;
    NewObject {
        name: name.into(),
        namespace: namespace.into(),
        uid: format!("{namespace}-{name}").into(),
        labels: Box::new([("app".into(), "x".into())]),
        owners: Box::new([]),
        fields: Box::new([Text::from(node)]),
        deleting: false,
        finalizers: false,
        stamp: 1,
        body: format!(
            r#"{head}","namespace":"{namespace}","name":"{name}"}},"node":"{node}","text":"{text}"}}"#
        )
        .into(),
        rv_at: head.len() as u32,
    }
}

pub(crate) async fn try_create(
    s: &Store,
    r: ResourceId,
    namespace: &str,
    name: &str,
    node: &str,
) -> Result<Arc<Object>, WriteError> {
    let object = object(namespace, name, node, "");
    s.commit(Write::Create { resource: r, object, ttl: None }).await
}

pub(crate) async fn create(s: &Store, r: ResourceId, namespace: &str, name: &str, node: &str) -> Arc<Object> {
    try_create(s, r, namespace, name, node).await.unwrap()
}

pub(crate) async fn update(
    s: &Store,
    r: ResourceId,
    old: &Object,
    node: &str,
    text: &str,
) -> Result<Arc<Object>, WriteError> {
    let object = object(&old.data.namespace, &old.data.name, node, text);
    s.commit(Write::Update { resource: r, object, expect: old.revision, ttl: None }).await
}

pub(crate) async fn delete(s: &Store, r: ResourceId, old: &Object) -> Result<Arc<Object>, WriteError> {
    let (namespace, name) = (old.data.namespace.clone(), old.data.name.clone());
    s.commit(Write::Delete { resource: r, namespace, name, expect: old.revision }).await
}

pub(crate) fn watch(s: &Store, r: ResourceId, scope: Scope, start: WatchStart) -> Watcher {
    s.watch(r, scope, start, WatchOptions::default()).unwrap()
}

pub(crate) fn in_namespace(namespace: &str) -> Scope {
    Scope { namespace: namespace.into(), ..Scope::default() }
}

pub(crate) fn named(namespace: &str, name: &str) -> Scope {
    Scope { name: name.into(), ..in_namespace(namespace) }
}

pub(crate) fn on_node(namespace: &str, node: &str) -> Scope {
    Scope { field: Some((NODE, node.into())), ..in_namespace(namespace) }
}

/// The next item of a watcher.
pub(crate) async fn next(w: &mut Watcher) -> Batch {
    let next = tokio::time::timeout(LONG, w.next()).await.expect("something comes");
    next.expect("the watch goes on").expect("the watch goes on")
}

/// The next events of a watcher, at least so many.
pub(crate) async fn events(w: &mut Watcher, count: usize) -> Vec<Arc<Event>> {
    let mut all = Vec::new();
    while all.len() < count {
        match next(w).await {
            Batch::Events(events) => all.extend(events),
            Batch::Progress(_) => {}
            Batch::Synced(_) => panic!("the initial state came again"),
        }
    }
    all
}

/// An event as `Cause namespace/name revision`.
pub(crate) fn shown(event: &Event) -> String {
    let data = &event.object.data;
    format!("{:?} {}/{} {}", event.cause, data.namespace, data.name, event.revision)
}

/// Checks the next events. Any further ones show with the next call.
pub(crate) async fn expect(w: &mut Watcher, expected: &[String]) {
    let found: Vec<_> = events(w, expected.len()).await.iter().map(|e| shown(e)).collect();
    assert_eq!(found, expected);
}

/// The text of [`shown`] for an event of an object.
pub(crate) fn event(cause: &str, object: &Object) -> String {
    format!("{cause} {}/{} {}", object.data.namespace, object.data.name, object.revision)
}

pub(crate) fn names(s: &Snapshot, scope: &Scope, after: Option<(&str, &str)>) -> Vec<String> {
    assert_eq!(s.scan(scope, after).count(), s.count(scope, after));
    s.scan(scope, after).map(|o| format!("{}/{}", o.data.namespace, o.data.name)).collect()
}
