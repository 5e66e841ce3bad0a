//! Root CA publisher: the ConfigMap `kube-root-ca.crt` in every namespace, by which Pods verify the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::{Change, Client, Factory, Key, Queue, Selection, resource_of};
use component::Shutdown;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::namespace::is_active;

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
     the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
     Kubernetes clusters.",
);

/// Starts it; `root_ca` is the PEM of the authorities.
pub(crate) fn start(client: Client, root_ca: String, factory: &Factory, shutdown: &Shutdown) {
    let root_ca = Arc::new(root_ca);
    let namespaces = factory.informer::<Namespace>();
    let only_ours = Selection { field_selector: format!("metadata.name={NAME}"), ..Selection::default() };
    let maps = factory.select::<ConfigMap>(resource_of::<ConfigMap>(), only_ours);
    let queue = Queue::<Key>::default();

    let enqueue = queue.clone();
    namespaces.handle(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            enqueue.add(Key::new("", change.object().metadata.name.as_deref().unwrap_or_default()));
        }
    });
    let enqueue = queue.clone();
    maps.handle(move |change| {
        if !matches!(change, Change::Added(_)) {
            enqueue.add(Key::new("", change.object().metadata.namespace.as_deref().unwrap_or_default()));
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("root-ca-certificate-publisher", 1, shutdown, move |key| {
            let active = namespaces.get_key(&key).is_some_and(|n| is_active(&n));
            let action =
                if active { plan(maps.get(&key.name, NAME).as_deref(), &root_ca, &key.name) } else { None };
            let client = client.clone();
            async move { execute(&client, &key.name, action).await }
        });
    });
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
