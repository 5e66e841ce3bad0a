//! The ConfigMap by which aggregated servers know whom to believe: `extension-apiserver-authentication` in
//! `kube-system`. The entries of the cluster's other servers stay.

use std::time::Duration;

use access::auth::{Authorities, Changes, RequestHeaders};
use access::pki;
use api::Status;
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::env::{AuthenticationInfo, Env};
use super::system_map::SystemMap;

const NAME: &str = "extension-apiserver-authentication";
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
    let authorities = own.client_authorities.as_ref().map(Authorities::pem).unwrap_or_default();
    let clients = pki::bundle(&[old("client-ca-file"), &authorities], now - SLACK);
    if !clients.is_empty() {
        data.insert("client-ca-file".into(), clients.into());
    }
    let none = RequestHeaders::default();
    let (authorities, headers) = match &own.front_proxies {
        Some((authorities, headers)) => (authorities.pem(), headers),
        None => (String::new(), &none),
    };
    let proxies = pki::bundle(&[old("requestheader-client-ca-file"), &authorities], now - SLACK);
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
    let info = env.authentication.clone();
    if info.client_authorities.is_none() && info.front_proxies.is_none() {
        return Ok(());
    }
    let (mut map, clock) = (SystemMap::new(env, NAME), env.objects.clock);
    ensure(&map, &info, clock).await?;
    let stop = env.shutdown.clone();
    let follow = |authorities: Option<&Authorities>| authorities.map(Authorities::changes);
    let mut clients = follow(info.client_authorities.as_ref());
    let mut proxies = follow(info.front_proxies.as_ref().map(|(authorities, _)| authorities));
    env.shutdown.spawn(async move {
        let keep = async {
            loop {
                tokio::select! {
                    () = map.changed() => {}
                    () = exchanged(&mut clients) => {}
                    () = exchanged(&mut proxies) => {}
                    () = tokio::time::sleep(AGAIN) => {}
                }
                while let Err(error) = ensure(&map, &info, clock).await {
                    tracing::warn!(%error, "cannot keep up what aggregated API servers need to know");
                    tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
                }
            }
        };
        stop.run(keep).await;
    });
    Ok(())
}

/// Returns once other authorities are there, if there can be others.
async fn exchanged(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// Makes the object, or adds what is missing in it. Other servers do the same at the same time.
async fn ensure(map: &SystemMap, info: &AuthenticationInfo, clock: Clock) -> Result<(), Status> {
    loop {
        let known = map.get().await?;
        let none = Map::new();
        let there = known.as_ref().and_then(|k| k["data"].as_object()).unwrap_or(&none);
        let data = combined(info, there, clock.now());
        if known.is_some() && *there == data || map.write(known, Value::Object(data)).await? {
            return Ok(());
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
            client_authorities: Some(Authorities::parse(&own).unwrap()),
            front_proxies: Some((Authorities::parse(&own).unwrap(), RequestHeaders::of_own(&own))),
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
        let clients = AuthenticationInfo { front_proxies: None, ..info };
        assert_eq!(combined(&clients, &Map::new(), now).len(), 1);
    }
}
