//! The EndpointSlices that one controller manages.

use std::collections::HashMap;
use std::sync::Arc;

use api::Status;
use client::{Cached, Client, Factory, Index, Informer, Key, Queue, Selection, resource_of};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use parking_lot::Mutex;

use crate::common::{batch, deleting, namespace_is_terminating, retry};

/// The label with the name of a slice's Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
/// The label with the name of a slice's manager.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const NAME_LIMIT: usize = 253;

/// A write of a slice that the cache may not show yet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Done {
    /// The slice was written; its name, and the version that it has since.
    Written(String, u64),
    Deleted,
}

/// A controller's slices, found by their Service.
pub(super) struct Owned {
    slices: Informer<EndpointSlice>,
    by_service: Index<EndpointSlice>,
    /// The writes for a Service, by the slices' uids. Slices have generated names: without these, a late cache would
    /// have them made twice.
    awaited: Mutex<HashMap<Key, HashMap<String, Done>>>,
}

fn version(slice: &EndpointSlice) -> u64 {
    slice.resource_version().parse().unwrap_or(0)
}

impl Owned {
    /// Finds the slices of the controller of this name.
    pub(super) fn by(controller: &str, factory: &Factory) -> Arc<Self> {
        let label_selector = format!("{MANAGED_BY}={controller}");
        let ours = Selection { label_selector, ..Selection::default() };
        let slices = factory.select::<EndpointSlice>(resource_of::<EndpointSlice>(), ours);
        let by_service = slices.index("service", |slice| vec![service_of(slice).to_string().into()]);
        Arc::new(Self { slices, by_service, awaited: Mutex::default() })
    }

    /// Adds the Services of each slice that changes to a queue, before the change and after it. A slice that names none
    /// stays as it is.
    pub(super) fn follow(self: &Arc<Self>, queue: &Queue<Key>) {
        let enqueue = queue.clone();
        self.slices.handle(move |change| {
            let services = change.states().map(|slice| service_of(slice));
            services.filter(|service| !service.name.is_empty()).for_each(|service| enqueue.add(service));
        });
    }

    /// Returns the slices of a Service that stay; `None` as long as the cache does not show all writes of them.
    pub(super) async fn of(
        &self,
        client: &Client,
        key: &Key,
    ) -> Result<Option<Vec<Arc<EndpointSlice>>>, Status> {
        let mut shown = self.by_service.get(&key.to_string());
        let missing = self.missing(key, &shown);
        let api = client.api::<EndpointSlice>(&key.namespace);
        for (uid, name) in missing {
            // Another client may have deleted the slice, and a new watch may have missed both writes. Or it gave the slice to
            // another Service.
            let lost = match api.get(&name).await {
                Ok(found) => found.uid() != uid || service_of(&found) != *key,
                Err(e) if e.is_not_found() => true,
                Err(e) => return Err(e),
            };
            if lost && let Some(awaited) = self.awaited.lock().get_mut(key) {
                awaited.remove(&uid);
            }
        }
        let mut all = self.awaited.lock();
        if all.get(key).is_some_and(|awaited| !awaited.is_empty()) {
            return Ok(None);
        }
        all.remove(key);
        // One that another client's finalizer holds would be in the way for ever.
        shown.retain(|slice| !deleting(&slice.metadata));
        Ok(Some(shown))
    }

    /// Forgets the writes that the cache shows; returns the slices that were written and are not cached, by uid and
    /// name.
    fn missing(&self, key: &Key, shown: &[Arc<EndpointSlice>]) -> Vec<(String, String)> {
        let mut all = self.awaited.lock();
        let Some(awaited) = all.get_mut(key) else { return Vec::new() };
        let known: HashMap<&str, &Arc<EndpointSlice>> = shown.iter().map(|s| (s.uid(), s)).collect();
        awaited.retain(|uid, done| match (done, known.get(uid.as_str())) {
            (Done::Written(_, at), Some(slice)) => version(slice) < *at,
            (Done::Written(..), None) => true,
            (Done::Deleted, slice) => slice.is_some_and(|s| !deleting(&s.metadata)),
        });
        awaited
            .iter()
            .filter_map(|(uid, done)| match done {
                Done::Written(name, _) if !known.contains_key(uid.as_str()) => {
                    Some((uid.clone(), name.clone()))
                }
                _ => None,
            })
            .collect()
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.awaited.lock().remove(key);
    }

    fn wait_for(&self, key: &Key, uid: &str, done: Done) {
        self.awaited.lock().entry(key.clone()).or_default().insert(uid.to_owned(), done);
    }

    /// Carries out a plan for a Service.
    pub(super) async fn execute(&self, client: &Client, key: &Key, plan: Plan) -> Result<(), Status> {
        let api = client.api::<EndpointSlice>(&key.namespace);
        let written = |slice: &EndpointSlice| {
            self.wait_for(key, slice.uid(), Done::Written(slice.name().to_owned(), version(slice)));
        };
        let mut result = Ok(());
        for made in batch::all(plan.create.iter().map(|s| api.create(s))).await {
            match made {
                Ok(slice) => written(&slice),
                Err(e) if namespace_is_terminating(&e) => {}
                Err(e) => result = Err(e),
            }
        }
        for updated in batch::all(plan.update.iter().map(|s| api.update(s))).await {
            match updated {
                Ok(slice) => written(&slice),
                Err(e) => result = Err(e),
            }
        }
        let gone = batch::all(plan.delete.iter().map(|s| api.delete(s.name(), None))).await;
        for (slice, answer) in plan.delete.iter().zip(gone) {
            match answer {
                Ok(()) => self.wait_for(key, slice.uid(), Done::Deleted),
                Err(e) if e.is_not_found() => {}
                Err(e) => result = Err(e),
            }
        }
        result
    }
}

/// The error after which a Service is looked at again, because the cache does not show the own writes.
pub(super) fn late() -> Status {
    retry("EndpointSlice informer cache is out of date")
}

/// Returns the Service of a slice.
fn service_of(slice: &EndpointSlice) -> Key {
    let name = slice.metadata.labels.as_ref().and_then(|l| l.get(SERVICE)).map_or("", String::as_str);
    Key::new(slice.namespace(), name)
}

/// The writes of a sync.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

/// The ports of a slice, in sorted order.
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

/// Returns the beginning of the names of a Service's slices.
pub(super) fn generate_name(service: &str) -> String {
    format!("{service}{}", if service.len() < NAME_LIMIT { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's cases of `TestServiceControllerKey`, and those of `TestEndpointSlicesMirroredForService` about namespaces
    /// and Services: a slice without the label belongs to no Service.
    #[test]
    fn services_of_slices() {
        let check = |meta: Value, namespace: &str, name: &str| {
            let slice: EndpointSlice =
                serde_json::from_value(json!({"metadata": meta, "addressType": "IPv4", "endpoints": []}))
                    .unwrap();
            assert_eq!(service_of(&slice), Key::new(namespace, name), "{meta}");
        };
        check(json!({}), "", "");
        check(json!({"namespace": "ns", "labels": {SERVICE: "svc"}}), "ns", "svc");
        check(json!({"namespace": "ns1", "labels": {SERVICE: "svc1", MANAGED_BY: "x"}}), "ns1", "svc1");
        check(json!({"namespace": "ns2", "labels": {SERVICE: "svc1", MANAGED_BY: "x"}}), "ns2", "svc1");
        check(json!({"namespace": "ns1", "labels": {SERVICE: "svc2", MANAGED_BY: "x"}}), "ns1", "svc2");
        check(json!({"namespace": "ns1", "labels": {MANAGED_BY: "x"}}), "ns1", "");
    }

    /// Upstream's case of `TestNewPortMapKey_NilVsEmptySlice`, and keys that must not depend on the order.
    #[test]
    fn keys_of_ports() {
        let port = |n: i32, name: Option<&str>| EndpointPort {
            port: Some(n),
            name: name.map(str::to_owned),
            ..EndpointPort::default()
        };
        assert_eq!(port_key(&[]), PortKey::new());
        let check = |a: &[EndpointPort], b: &[EndpointPort], want: bool| {
            assert_eq!(port_key(a) == port_key(b), want, "{a:?} {b:?}");
        };
        check(&[port(80, None), port(443, None)], &[port(443, None), port(80, None)], true);
        check(&[port(80, None)], &[port(80, Some(""))], true);
        check(&[port(80, None)], &[port(80, Some("http"))], false);
        check(&[port(80, None)], &[port(81, None)], false);
    }
}
