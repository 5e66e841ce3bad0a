//! Keeps what authorization knows in step with the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::auth::UnionAuthorizer;
use access::auth::node::{GraphChange, Kind, PodRefs, PvRefs};
use access::auth::rbac::{self, Binding, Change, Role};
use access::reader::read;
use api::{Object, Text};
use component::Shutdown;
use futures::StreamExt;
use serde::Deserialize;
use storage::{Batch, Cause, Event, ResourceId, Scope, Store, WatchOptions, WatchStart};

/// How long a feed waits before it starts anew after a watch was refused.
const PAUSE: Duration = Duration::from_millis(200);

/// A resource that authorization follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    ClusterRoles,
    Roles,
    ClusterRoleBindings,
    RoleBindings,
    Pods,
    Volumes,
    Attachments,
    Slices,
    PodCertificates,
}

const SOURCES: [(Source, &str, &str); 9] = [
    (Source::ClusterRoles, rbac::GROUP, "clusterroles"),
    (Source::Roles, rbac::GROUP, "roles"),
    (Source::ClusterRoleBindings, rbac::GROUP, "clusterrolebindings"),
    (Source::RoleBindings, rbac::GROUP, "rolebindings"),
    (Source::Pods, "", "pods"),
    (Source::Volumes, "", "persistentvolumes"),
    (Source::Attachments, "storage.k8s.io", "volumeattachments"),
    (Source::Slices, "resource.k8s.io", "resourceslices"),
    (Source::PodCertificates, "certificates.k8s.io", "podcertificaterequests"),
];

/// The present content of one object, or that it is gone.
enum Fact {
    Rbac(Change),
    Node(GraphChange),
}

/// The tasks that follow the store for authorization.
#[derive(Debug, Clone)]
pub(crate) struct Feeds(Arc<[(&'static str, AtomicBool)]>);

impl Feeds {
    /// Whether all of them go on; which do not.
    pub(crate) fn healthy(&self) -> Result<(), String> {
        let ended = self.0.iter().filter(|(_, ended)| ended.load(Ordering::Acquire));
        let ended: Vec<&str> = ended.map(|(plural, _)| *plural).collect();
        if ended.is_empty() { Ok(()) } else { Err(format!("{} informers ended: {ended:?}", ended.len())) }
    }
}

/// Notes that a feed ended, however it did.
struct Ended(Feeds, usize);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some((_, ended)) = self.0.0.get(self.1) {
            ended.store(true, Ordering::Release);
        }
    }
}

/// Reads all that authorization needs from the store, then follows it until shutdown. `find` tells
/// the store's resource of a group and plural name; one that it does not know is left out.
///
/// When it returns, everything stored so far is known.
pub(crate) fn feed(
    authorizer: &Arc<UnionAuthorizer>,
    store: &Store,
    shutdown: &Shutdown,
    find: impl Fn(&str, &str) -> Option<ResourceId>,
) -> Feeds {
    let feeds = Feeds(SOURCES.iter().map(|(_, _, plural)| (*plural, AtomicBool::new(false))).collect());
    for (at, (source, group, plural)) in SOURCES.into_iter().enumerate() {
        let Some(resource) = find(group, plural) else { continue };
        let after = load(authorizer, store, source, resource);
        let (authorizer, store, stop) = (authorizer.clone(), store.clone(), shutdown.clone());
        let ended = Ended(feeds.clone(), at);
        shutdown.spawn(async move {
            let _at_the_end = ended;
            stop.run(follow(&authorizer, &store, source, resource, after)).await;
        });
    }
    feeds
}

/// Takes in every object of a resource; the revision of what it saw.
fn load(authorizer: &UnionAuthorizer, store: &Store, source: Source, resource: ResourceId) -> u64 {
    let snapshot = store.snapshot(resource);
    let everything = Scope::default();
    let facts = snapshot.scan(&everything, None).map(|o| fact(source, o, true));
    apply(authorizer, facts.collect());
    snapshot.revision()
}

async fn follow(
    authorizer: &UnionAuthorizer,
    store: &Store,
    source: Source,
    resource: ResourceId,
    mut after: u64,
) {
    loop {
        let options = WatchOptions::default();
        if let Ok(mut watch) = store.watch(resource, Scope::default(), WatchStart::After(after), options) {
            while let Some(Ok(batch)) = watch.next().await {
                let Batch::Events(events) = batch else { continue };
                let facts = events.iter().filter(|e| matters(source, e));
                let facts = facts.map(|e| fact(source, &e.object, e.cause != Cause::Deleted));
                apply(authorizer, facts.collect());
            }
        }
        // The watch fell behind: what is there is read anew, and what went meanwhile is taken out.
        tokio::time::sleep(PAUSE).await;
        let before = known(authorizer, source);
        after = load(authorizer, store, source, resource);
        let snapshot = store.snapshot(resource);
        let lost = before.iter().filter(|(ns, name)| snapshot.get(ns, name).is_none());
        apply(authorizer, lost.map(|(ns, name)| gone(source, ns, name)).collect());
    }
}

/// The objects of a source that are known: namespace and name.
fn known(authorizer: &UnionAuthorizer, source: Source) -> Vec<(Text, Text)> {
    let (rbac, graph) = (authorizer.rbac(), authorizer.node().graph());
    match source {
        Source::ClusterRoles | Source::Roles => rbac.roles(source == Source::ClusterRoles),
        Source::ClusterRoleBindings | Source::RoleBindings => {
            rbac.bindings(source == Source::ClusterRoleBindings)
        }
        Source::Pods => graph.known(Kind::Pod),
        Source::Volumes => graph.known(Kind::Volume),
        Source::Attachments => graph.known(Kind::VolumeAttachment),
        Source::Slices => graph.known(Kind::ResourceSlice),
        Source::PodCertificates => graph.known(Kind::PodCertificateRequest),
    }
}

/// Whether an event can change what is known. The objects that a scheduled pod names change only when it gets
/// ephemeral containers or claims; its status changes often.
fn matters(source: Source, event: &Event) -> bool {
    let (Source::Pods, Cause::Modified, Some(previous)) = (source, event.cause, &event.previous) else {
        return true;
    };
    let later = |o: &Object| {
        contains(&o.data.body, b"\"ephemeralContainers\"") || contains(&o.data.body, b"esourceClaimStatus")
    };
    previous.data.uid != event.object.data.uid
        || previous.data.fields != event.object.data.fields
        || later(&event.object)
}

fn contains(body: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(body, needle).is_some()
}

fn gone(source: Source, namespace: &Text, name: &Text) -> Fact {
    let (ns, name) = (namespace.clone(), name.clone());
    match source {
        Source::ClusterRoles | Source::Roles => Fact::Rbac(Change::Role(ns, name, None)),
        Source::ClusterRoleBindings | Source::RoleBindings => Fact::Rbac(Change::Binding(ns, name, None)),
        Source::Pods => Fact::Node(GraphChange::Pod(ns, name, None)),
        Source::Volumes => Fact::Node(GraphChange::Volume(name, None)),
        Source::Attachments => Fact::Node(GraphChange::Owned(Kind::VolumeAttachment, ns, name, None)),
        Source::Slices => Fact::Node(GraphChange::Owned(Kind::ResourceSlice, ns, name, None)),
        Source::PodCertificates => {
            Fact::Node(GraphChange::Owned(Kind::PodCertificateRequest, ns, name, None))
        }
    }
}

fn fact(source: Source, object: &Object, there: bool) -> Fact {
    let (ns, name) = (object.data.namespace.clone(), object.data.name.clone());
    if !there {
        return gone(source, &ns, &name);
    }
    match source {
        Source::ClusterRoles | Source::Roles => Fact::Rbac(Change::Role(ns, name, Some(Role::read(object)))),
        Source::ClusterRoleBindings | Source::RoleBindings => {
            Fact::Rbac(Change::Binding(ns, name, Some(Binding::read(object))))
        }
        Source::Pods => Fact::Node(GraphChange::Pod(ns, name, PodRefs::read(object))),
        Source::Volumes => Fact::Node(GraphChange::Volume(name, PvRefs::read(object))),
        Source::Attachments => Fact::Node(GraphChange::Owned(Kind::VolumeAttachment, ns, name, node(object))),
        Source::Slices => Fact::Node(GraphChange::Owned(Kind::ResourceSlice, ns, name, node(object))),
        Source::PodCertificates => {
            Fact::Node(GraphChange::Owned(Kind::PodCertificateRequest, ns, name, node(object)))
        }
    }
}

/// `spec.nodeName`.
fn node(object: &Object) -> Option<Text> {
    #[derive(Deserialize)]
    struct Part {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: Option<Text>,
    }
    read::<Part>(object)?.spec.node_name.filter(|n| !n.is_empty())
}

fn apply(authorizer: &UnionAuthorizer, facts: Vec<Fact>) {
    let (mut rbac, mut graph) = (Vec::new(), Vec::new());
    for fact in facts {
        match fact {
            Fact::Rbac(change) => rbac.push(change),
            Fact::Node(change) => graph.push(change),
        }
    }
    if !rbac.is_empty() {
        authorizer.rbac().apply(rbac);
    }
    if !graph.is_empty() {
        authorizer.node().graph().apply(graph);
    }
}

#[cfg(test)]
mod tests {
    use access::UserInfo;
    use access::auth::{Access, AuthorizationMode};
    use serde_json::{Value, json};
    use storage::{ResourceSpec, Write};

    use super::*;

    /// Authorization knows the objects that are stored before and after the feed starts.
    #[tokio::test]
    async fn the_store_is_followed() {
        let store = Store::in_memory();
        let spec =
            |plural: &str| ResourceSpec { group: rbac::GROUP.into(), plural: plural.into(), indexed: vec![] };
        let (roles, bindings) =
            (store.register(spec("clusterroles")), store.register(spec("clusterrolebindings")));
        let put = async |resource, json: Value| {
            let object = api::NewObject {
                name: json["metadata"]["name"].as_str().unwrap().into(),
                namespace: "".into(),
                uid: "".into(),
                labels: Box::default(),
                owners: Box::default(),
                fields: Box::default(),
                deleting: false,
                finalizers: false,
                stamp: 0,
                body: json.to_string().into(),
                rv_at: 1,
            };
            store.commit(Write::Create { resource, object, ttl: None }).await.unwrap()
        };
        put(roles, json!({ "metadata": { "name": "view" }, "rules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }] })).await;
        let modes = vec![AuthorizationMode::Rbac];
        let authorizer = Arc::new(UnionAuthorizer::new(&modes, Arc::default(), Arc::default()));
        let shutdown = Shutdown::new();
        feed(&authorizer, &store, &shutdown, |_, plural| match plural {
            "clusterroles" => Some(roles),
            "clusterrolebindings" => Some(bindings),
            _ => None,
        });
        assert_eq!(authorizer.rbac().roles(true).len(), 1);
        let bound = put(
            bindings,
            json!({
                "metadata": { "name": "b" },
                "roleRef": { "kind": "ClusterRole", "name": "view" },
                "subjects": [{ "kind": "User", "name": "bob" }],
            }),
        );
        let bound = bound.await;
        let bob = UserInfo { name: "bob".into(), ..UserInfo::default() };
        let get = Access { is_resource: true, verb: "get", resource: "pods", ..Access::default() };
        let becomes = async |want: bool| {
            let reached = async {
                while authorizer.allows(&bob, &get).await != want {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), reached).await.unwrap();
        };
        becomes(true).await;
        let gone = Write::Delete {
            resource: bindings,
            namespace: "".into(),
            name: "b".into(),
            expect: bound.revision,
        };
        store.commit(gone).await.unwrap();
        becomes(false).await;
        shutdown.finish().await;
    }
}
