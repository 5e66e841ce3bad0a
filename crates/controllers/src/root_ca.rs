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
    // A controller of another version may describe it in its own words: they must not write in turn.
    let annotations = current.metadata.annotations.as_ref();
    let described = annotations.is_some_and(|a| a.get(DESCRIPTION.0).is_some_and(|text| !text.is_empty()));
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

    /// The plan's verb, "" for none.
    fn verb(current: Option<&ConfigMap>) -> &'static str {
        match plan(current, "fake", "default") {
            None => "",
            Some(Action::Create(made)) => {
                let map = made.data.as_ref().unwrap();
                assert_eq!((map[KEY].as_str(), made.metadata.name.as_deref()), ("fake", Some(NAME)));
                "create"
            }
            Some(Action::Update(written)) => {
                assert_eq!(written.data, Some(BTreeMap::from([(KEY.to_owned(), "fake".to_owned())])));
                assert_eq!(written.metadata.annotations.unwrap()[DESCRIPTION.0], DESCRIPTION.1);
                "update"
            }
        }
    }

    /// 3 of upstream's 7 cases of `TestConfigMapCreation`, and its 3 of `TestConfigMapUpdateNoHotLoop`: the map's content
    /// and its description. In the four others a map of another name changes, or the namespace goes: the simulation has
    /// them.
    #[test]
    fn upstreams_maps() {
        type Map<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let check = |map: Option<Map<'_>>, want: &str| {
            let made = map.map(|(data, description)| ConfigMap {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    annotations: description.map(|d| BTreeMap::from([(DESCRIPTION.0.into(), d.to_owned())])),
                    ..ObjectMeta::default()
                },
                data: Some(data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
                ..ConfigMap::default()
            });
            assert_eq!(verb(made.as_ref()), want, "{map:?}");
        };
        let right: &[_] = &[(KEY, "fake")];
        check(None, "create");
        check(Some((&[(KEY, "fake"), ("test", "test")], Some(DESCRIPTION.1))), "update");
        check(Some((&[(KEY, "abc")], Some(DESCRIPTION.1))), "update");
        check(Some((right, None)), "update");
        check(Some((right, Some(DESCRIPTION.1))), "");
        check(Some((right, Some("different"))), "");
        check(Some((right, Some(""))), "update");
        let Some(Action::Create(made)) = plan(None, "fake", "default") else { panic!("it is to be made") };
        assert_eq!(verb(Some(&made)), "");
    }
}
