//! The EndpointSlices that one controller looks after.

use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, Factory, Informer, Key, Queue, Selection, resource_of};
use futures::future::join_all;
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};

use crate::common::expectations::Expectations;
use crate::common::namespace_is_terminating;

/// The label of the Service that a slice belongs to.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// The label of who looks after a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const NAME_LIMIT: usize = 253;

/// A controller's slices, found by their Service.
pub(super) struct Owned {
    slices: Informer<EndpointSlice>,
    /// Slices have generated names: without it, a late cache would have them made twice.
    expectations: Expectations,
}

impl Owned {
    /// Those of the controller of this name.
    pub(super) fn by(controller: &str, factory: &Factory) -> Arc<Self> {
        let label_selector = format!("{MANAGED_BY}={controller}");
        let ours = Selection { label_selector, ..Selection::default() };
        let slices = factory.select::<EndpointSlice>(resource_of::<EndpointSlice>(), ours);
        slices.index("service", |slice| vec![service_of(slice).to_string().into()]);
        Arc::new(Self { slices, expectations: Expectations::default() })
    }

    /// Adds the Service of each slice that changes to a queue.
    pub(super) fn follow(self: &Arc<Self>, queue: &Queue<Key>) {
        let (enqueue, owned) = (queue.clone(), self.clone());
        self.slices.handle(move |change| {
            let key = service_of(change.object());
            match change {
                Change::Added(_) => owned.expectations.created(&key, 1),
                Change::Deleted(slice) => owned.expectations.deleted(&key, slice.uid()),
                Change::Updated { .. } => {}
            }
            enqueue.add(key);
        });
    }

    /// The slices of a Service; none while the cache does not show what was done. What is awaited brings the
    /// Service back into the queue.
    pub(super) fn of(&self, key: &Key) -> Option<Vec<Arc<EndpointSlice>>> {
        self.expectations.satisfied(key).then(|| self.slices.by_index("service", &key.to_string()))
    }

    /// The Service is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.expectations.forget(key);
    }

    /// Carries out a plan for a Service.
    pub(super) async fn execute(&self, client: &Client, key: &Key, plan: Plan) -> Result<(), Status> {
        plan.execute(client, key, &self.expectations).await
    }
}

/// The Service that a slice belongs to.
fn service_of(slice: &EndpointSlice) -> Key {
    let name = slice.metadata.labels.as_ref().and_then(|l| l.get(SERVICE)).map_or("", String::as_str);
    Key::new(slice.namespace(), name)
}

/// What is to be written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

impl Plan {
    async fn execute(self, client: &Client, key: &Key, expectations: &Expectations) -> Result<(), Status> {
        let api = client.api::<EndpointSlice>(&key.namespace);
        if !self.create.is_empty() {
            expectations.expect_creations(key, self.create.len());
        } else if !self.delete.is_empty() {
            expectations.expect_deletions(key, self.delete.iter().map(|s| s.uid().to_owned()));
        }
        let mut result = Ok(());
        for made in join_all(self.create.iter().map(|s| api.create(s))).await {
            if let Err(e) = made {
                expectations.created(key, 1);
                if !namespace_is_terminating(&e) {
                    result = Err(e);
                }
            }
        }
        for written in join_all(self.update.iter().map(|s| api.update(s))).await {
            if let Err(e) = written {
                result = Err(e);
            }
        }
        let gone = join_all(self.delete.iter().map(|s| api.delete(s.name(), None))).await;
        for (slice, answer) in self.delete.iter().zip(gone) {
            if let Err(e) = answer {
                expectations.deleted(key, slice.uid());
                if !e.is_not_found() {
                    result = Err(e);
                }
            }
        }
        result
    }
}

/// What a slice's ports amount to, whatever their order.
pub(super) type PortKey = Vec<(Option<String>, Option<i32>, Option<String>, Option<String>)>;

pub(super) fn port_key(ports: &[EndpointPort]) -> PortKey {
    let mut key: PortKey = ports
        .iter()
        .map(|p| {
            let name = p.name.clone().filter(|n| !n.is_empty());
            (name, p.port, p.protocol.clone(), p.app_protocol.clone())
        })
        .collect();
    key.sort();
    key
}

/// The beginning of the names of a Service's slices.
pub(super) fn generate_name(service: &str) -> String {
    format!("{service}{}", if service.len() < NAME_LIMIT { "-" } else { "" })
}
