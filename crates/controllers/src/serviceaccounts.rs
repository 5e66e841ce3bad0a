//! ServiceAccount controller: a ServiceAccount `default` in every namespace.

use std::sync::Arc;

use api::Status;
use client::{Client, Informer, Key, Selection, resource_of};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::host::{Controller, Host, Next, Wiring};
use crate::namespace::{follow_one_of_each, is_active};

const NAME: &str = "default";

/// The controller of default ServiceAccounts.
pub(crate) struct ServiceAccounts {
    client: Client,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

impl Controller for ServiceAccounts {
    const NAME: &'static str = "serviceaccount-controller";
    const ALIASES: &'static [&'static str] = &["serviceaccount"];
    const ACCOUNT: &'static str = "service-account-controller";
    const QUEUE: &'static str = "serviceaccount";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let own = Selection { field_selector: format!("metadata.name={NAME}"), ..Selection::default() };
        Self {
            client: host.client(),
            namespaces: host.informer(),
            accounts: host.select(resource_of::<ServiceAccount>(), own),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        follow_one_of_each(wiring, &self.namespaces, &self.accounts);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let active = self.namespaces.get_key(&key).is_some_and(|n| is_active(&n));
        if active && self.accounts.get(&key.name, NAME).is_none() {
            ensure(&self.client, &key.name).await?;
        }
        Ok(Next::Done)
    }
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
        // The namespace is gone meanwhile.
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}
