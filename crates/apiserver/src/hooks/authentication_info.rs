//! The ConfigMap by which aggregated servers know whom to believe: `extension-apiserver-authentication` in
//! `kube-system`. The entries of the cluster's other servers stay.

use std::sync::Arc;
use std::time::Duration;

use access::auth::RequestHeaders;
use access::pki;
use api::{Status, Text};
use bytes::Bytes;
use client::{Call, FromJson, Resource, Transport, Verb};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use storage::{Batch, Scope, WatchOptions, WatchStart, Watcher};

use super::env::{AuthenticationInfo, Env};
use crate::objects::Objects;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const MAPS: (&str, &str) = ("", "configmaps");
/// After what time the object is looked at in any case; upstream's.
const AGAIN: Duration = Duration::from_mins(1);
/// The time to wait after a write failed.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a certificate is kept after its end, since clocks differ; upstream's.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

/// The texts of two lists, each once.
fn union(old: &str, new: &[String]) -> String {
    let mut all: Vec<String> = serde_json::from_str(old).unwrap_or_default();
    for text in new {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
    json!(all).to_string()
}

/// The data that should be there, by what is there.
fn combined(own: &AuthenticationInfo, there: &Map<String, Value>, now: Timestamp) -> Map<String, Value> {
    let old = |key: &str| there.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut data = Map::new();
    let clients = pki::bundle(&[old("client-ca-file"), &own.client_authorities], now - SLACK);
    if !clients.is_empty() {
        data.insert("client-ca-file".into(), clients.into());
    }
    let none = RequestHeaders::default();
    let headers = own.request_headers.as_ref().unwrap_or(&none);
    let proxies = pki::bundle(&[old("requestheader-client-ca-file"), &headers.authorities_pem], now - SLACK);
    if proxies.is_empty() {
        return data;
    }
    data.insert("requestheader-client-ca-file".into(), proxies.into());
    for (key, list) in [
        ("requestheader-allowed-names", &headers.allowed_names),
        ("requestheader-username-headers", &headers.username),
        ("requestheader-uid-headers", &headers.uid),
        ("requestheader-group-headers", &headers.group),
        ("requestheader-extra-headers-prefix", &headers.extra_prefixes),
    ] {
        let list = union(old(key), list);
        if key != "requestheader-uid-headers" || own.uid && list != "[]" {
            data.insert(key.into(), list.into());
        }
    }
    data
}

/// Makes the object, and keeps it from then on.
pub(super) async fn run(env: &Env) -> Result<(), Status> {
    let kept = Kept {
        objects: Arc::clone(&env.objects),
        transport: Arc::clone(&env.transport),
        info: env.authentication.clone(),
    };
    if kept.info.client_authorities.is_empty() && kept.info.request_headers.is_none() {
        return Ok(());
    }
    let mut changes = kept.watch();
    kept.ensure().await?;
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let keep = async {
            loop {
                tokio::select! {
                    () = changed(&mut changes) => {}
                    () = tokio::time::sleep(AGAIN) => {}
                }
                if changes.is_none() {
                    changes = kept.watch();
                }
                while let Err(error) = kept.ensure().await {
                    tracing::warn!(%error, "cannot keep up what aggregated API servers need to know");
                    tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
                }
            }
        };
        stop.run(keep).await;
    });
    Ok(())
}

struct Kept {
    objects: Arc<Objects>,
    transport: Arc<dyn Transport>,
    info: AuthenticationInfo,
}

/// Returns once the object changed, or nothing tells of changes any more.
async fn changed(watcher: &mut Option<Watcher>) {
    while let Some(events) = watcher {
        match events.next().await {
            Some(Ok(Batch::Events(_))) => return,
            Some(Ok(_)) => {}
            Some(Err(_)) | None => *watcher = None,
        }
    }
    tokio::time::sleep(PAUSE).await;
}

impl Kept {
    fn watch(&self) -> Option<Watcher> {
        let id = self.objects.id(MAPS)?;
        let scope = Scope { namespace: NAMESPACE.into(), name: NAME.into(), field: None };
        let start = WatchStart::After(self.objects.store.current(id));
        self.objects.store.watch(id, scope, start, WatchOptions::default()).ok()
    }
    fn call(verb: Verb, body: Option<&Value>) -> Call {
        Call {
            verb,
            resource: Resource { group: Text::default(), version: "v1".into(), plural: MAPS.1.into() },
            namespace: NAMESPACE.into(),
            name: if verb == Verb::Create { Text::default() } else { NAME.into() },
            subresource: Text::default(),
            query: Vec::new(),
            body: body.map_or_else(Bytes::new, |b| b.to_string().into()),
        }
    }
    /// Makes the object, or adds what is missing in it. Other servers do the same at the same time.
    async fn ensure(&self) -> Result<(), Status> {
        loop {
            let (verb, mut object) = match self.transport.call(Self::call(Verb::Get, None)).await {
                Ok(bytes) => (Verb::Update, Value::from_json(&bytes)?),
                Err(e) if e.is_not_found() => {
                    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
                    (Verb::Create, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                }
                Err(e) => return Err(e),
            };
            let none = Map::new();
            let there = object.get("data").and_then(Value::as_object).unwrap_or(&none);
            let data = combined(&self.info, there, self.objects.clock.now());
            if verb == Verb::Update && *there == data {
                return Ok(());
            }
            object["data"] = Value::Object(data);
            match self.transport.call(Self::call(verb, Some(&object))).await {
                Err(e) if e.is_conflict() || e.is_already_exists() || e.is_not_found() => {}
                other => return other.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use access::pki::Authority;

    use super::*;

    #[test]
    fn what_others_wrote_stays() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = |at| Authority::generate("front-proxy-ca", at).unwrap().certificate_pem;
        let (own, other, ended) =
            (authority(now), authority(now), authority(now - SignedDuration::from_hours(20 * 365 * 24)));
        let info = AuthenticationInfo {
            client_authorities: own.clone(),
            request_headers: Some(RequestHeaders::of_own(&own)),
            uid: true,
        };
        let first = combined(&info, &Map::new(), now);
        let keys: Vec<&str> = first.keys().map(String::as_str).collect();
        let mut want = [
            "client-ca-file",
            "requestheader-allowed-names",
            "requestheader-client-ca-file",
            "requestheader-extra-headers-prefix",
            "requestheader-group-headers",
            "requestheader-uid-headers",
            "requestheader-username-headers",
        ];
        want.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, want);
        assert_eq!(first["requestheader-allowed-names"], "[\"front-proxy-client\"]");
        assert_eq!(combined(&info, &first, now), first, "nothing is added twice");
        let theirs = json!({
            "client-ca-file": format!("{other}{ended}"),
            "requestheader-allowed-names": "[\"theirs\"]",
            "requestheader-group-headers": "no list",
            "stray": "gone",
        });
        let both = combined(&info, theirs.as_object().unwrap(), now);
        let count = both["client-ca-file"].as_str().unwrap().matches("BEGIN").count();
        assert_eq!(count, 2, "one has ended");
        assert_eq!(both["requestheader-allowed-names"], "[\"theirs\",\"front-proxy-client\"]");
        assert_eq!(both["requestheader-group-headers"], "[\"X-Remote-Group\"]");
        assert!(!both.contains_key("stray"));
        let without = AuthenticationInfo { uid: false, ..info.clone() };
        assert!(!combined(&without, &Map::new(), now).contains_key("requestheader-uid-headers"));
        let clients = AuthenticationInfo { request_headers: None, ..info };
        assert_eq!(combined(&clients, &Map::new(), now).len(), 1);
    }
}
