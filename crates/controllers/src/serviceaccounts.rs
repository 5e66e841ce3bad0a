//! ServiceAccount controller: a ServiceAccount `default` in every namespace.

use api::Status;
use client::{Change, Client, Factory, Key, Queue, Selection, resource_of};
use component::Shutdown;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::namespace::is_active;

const NAME: &str = "default";

/// Starts it.
pub(crate) fn start(client: Client, factory: &Factory, shutdown: &Shutdown) {
    let namespaces = factory.informer::<Namespace>();
    let only_default = Selection { field_selector: format!("metadata.name={NAME}"), ..Selection::default() };
    let accounts = factory.select::<ServiceAccount>(resource_of::<ServiceAccount>(), only_default);
    let queue = Queue::<Key>::default();

    let enqueue = queue.clone();
    namespaces.handle(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            enqueue.add(Key::new("", change.object().metadata.name.as_deref().unwrap_or_default()));
        }
    });
    let enqueue = queue.clone();
    accounts.handle(move |change| {
        if let Change::Deleted(account) = change {
            enqueue.add(Key::new("", account.metadata.namespace.as_deref().unwrap_or_default()));
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("serviceaccount", 1, shutdown, move |key| {
            let wanted = namespaces.get_key(&key).is_some_and(|n| is_active(&n))
                && accounts.get(&key.name, NAME).is_none();
            let client = client.clone();
            async move { if wanted { ensure(&client, &key.name).await } else { Ok(()) } }
        });
    });
}

async fn ensure(client: &Client, namespace: &str) -> Result<(), Status> {
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    match client.api::<ServiceAccount>(namespace).create(&account).await {
        Ok(_) => Ok(()),
        Err(e) if e.is_already_exists() || crate::common::namespace_is_terminating(&e) => Ok(()),
        // The namespace went meanwhile.
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}
