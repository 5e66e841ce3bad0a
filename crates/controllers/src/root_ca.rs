//! Root CA publisher: the ConfigMap `kube-root-ca.crt` in every namespace, by which Pods verify the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::{Client, Informer, Key, Selection, resource_of};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::host::{Controller, Host, Next, Wiring};
use crate::namespace::{follow_one_of_each, is_active};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
     the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
     Kubernetes clusters.",
);

/// The controller that publishes the root CA.
pub(crate) struct RootCa {
    client: Client,
    /// PEM of the authorities.
    root_ca: String,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
}

impl Controller for RootCa {
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    const ALIASES: &'static [&'static str] = &["root-ca-cert-publisher"];
    const ACCOUNT: &'static str = "root-ca-cert-publisher";
    const QUEUE: &'static str = "root_ca_cert_publisher";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let own = Selection { field_selector: format!("metadata.name={NAME}"), ..Selection::default() };
        Self {
            client: host.client(),
            root_ca: host.config().root_ca.clone(),
            namespaces: host.informer(),
            maps: host.select(resource_of::<ConfigMap>(), own),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        follow_one_of_each(wiring, &self.namespaces, &self.maps);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let active = self.namespaces.get_key(&key).is_some_and(|n| is_active(&n));
        let current = self.maps.get(&key.name, NAME);
        let action = if active { plan(current.as_deref(), &self.root_ca, &key.name) } else { None };
        execute(&self.client, &key.name, action).await?;
        Ok(Next::Done)
    }
}

#[derive(Debug, PartialEq)]
enum Action {
    Create(ConfigMap),
    Update(ConfigMap),
}

fn plan(current: Option<&ConfigMap>, root_ca: &str, namespace: &str) -> Option<Action> {
    let data = BTreeMap::from([(KEY.to_owned(), root_ca.to_owned())]);
    let description = BTreeMap::from([(DESCRIPTION.0.to_owned(), DESCRIPTION.1.to_owned())]);
    let Some(current) = current else {
        return Some(Action::Create(ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace.to_owned()),
                annotations: Some(description),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }));
    };
    let described = current
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|a| a.get(DESCRIPTION.0).is_some_and(|d| d == DESCRIPTION.1));
    if current.data.as_ref() == Some(&data) && described {
        return None;
    }
    let mut wanted = current.clone();
    wanted.data = Some(data);
    wanted.metadata.annotations.get_or_insert_default().extend(description);
    Some(Action::Update(wanted))
}

async fn execute(client: &Client, namespace: &str, action: Option<Action>) -> Result<(), Status> {
    let api = client.api::<ConfigMap>(namespace);
    let result = match &action {
        None => return Ok(()),
        Some(Action::Create(map)) => api.create(map).await,
        Some(Action::Update(map)) => api.update(map).await,
    };
    match result {
        Ok(_) => Ok(()),
        Err(e) if crate::common::namespace_is_terminating(&e) || e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans() {
        let Some(Action::Create(made)) = plan(None, "CA", "ns") else { panic!("it is to be made") };
        assert_eq!(made.data.as_ref().unwrap()[KEY], "CA");
        assert_eq!(plan(Some(&made), "CA", "ns"), None);
        assert!(matches!(plan(Some(&made), "other", "ns"), Some(Action::Update(_))));
        let mut more = made.clone();
        more.data.as_mut().unwrap().insert("x".into(), "y".into());
        assert_eq!(plan(Some(&more), "CA", "ns").map(|_| ()), Some(()), "nothing else belongs there");
        let mut bare = made;
        bare.metadata.annotations = None;
        assert!(matches!(plan(Some(&bare), "CA", "ns"), Some(Action::Update(_))));
    }
}
