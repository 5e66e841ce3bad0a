//! Bootstrap signer: the ConfigMap `cluster-info` is signed with each token that is for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::bootstrap::{CLUSTER_INFO, Entry, KUBECONFIG_KEY, Life, SIGNATURE_PREFIX, sign};
use client::{Client, Informer, Key, Selection, resource_of};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::host::{Controller, Host, Next, Wiring};

/// The signer.
pub(crate) struct Signer {
    client: Client,
    clock: Clock,
    tokens: Informer<Secret>,
    maps: Informer<ConfigMap>,
}

impl Controller for Signer {
    const NAME: &'static str = "bootstrap-signer-controller";
    const ALIASES: &'static [&'static str] = &["bootstrapsigner"];
    const ACCOUNT: &'static str = "bootstrap-signer";
    const QUEUE: &'static str = "bootstrap_signer_queue";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        let (namespace, name) = CLUSTER_INFO;
        let info = Selection {
            namespace: namespace.into(),
            field_selector: format!("metadata.name={name}"),
            ..Selection::default()
        };
        Self {
            client: host.client(),
            clock: host.clock(),
            tokens: host.select(resource_of::<Secret>(), super::tokens()),
            maps: host.select(resource_of::<ConfigMap>(), info),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, other) = (wiring.queue(), wiring.queue());
        let key = || Key::new(CLUSTER_INFO.0, CLUSTER_INFO.1);
        self.maps.handle(move |_| queue.add(key()));
        self.tokens.handle(move |_| other.add(key()));
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(map) = self.maps.get_key(&key) else { return Ok(Next::Done) };
        let now = self.clock.now();
        let tokens: Vec<Entry> = self.tokens.list().iter().map(|secret| Entry::from(&**secret)).collect();
        if let Some(data) = plan(map.data.as_ref(), &tokens, now) {
            let wanted = ConfigMap { data: Some(data), ..(*map).clone() };
            match self.client.api::<ConfigMap>(&key.namespace).update(&wanted).await {
                Err(e) if !e.is_not_found() => return Err(e),
                _ => {}
            }
        }
        // DIFFERENCE: upstream leaves the signature of a token whose time is over until its Secret is removed.
        let ends = tokens.iter().filter_map(|token| match token.life(now) {
            Life::Left(left) => Some(left),
            Life::Forever | Life::Over => None,
        });
        Ok(Next::at(ends.min()))
    }
}

/// The content of the map with the right signatures; `None` if it has them, or nothing to sign.
fn plan(
    data: Option<&BTreeMap<String, String>>,
    tokens: &[Entry],
    now: Timestamp,
) -> Option<BTreeMap<String, String>> {
    let data = data?;
    let content = data.get(KUBECONFIG_KEY)?;
    let mut wanted = data.clone();
    wanted.retain(|key, _| !key.starts_with(SIGNATURE_PREFIX));
    for (id, secret) in tokens.iter().filter_map(|token| token.signs(now)) {
        wanted.insert(format!("{SIGNATURE_PREFIX}{id}"), sign(content, id, secret));
    }
    (wanted != *data).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use client::bootstrap::{Spec, Token, is_signed};

    use super::*;

    /// Upstream's signature in `TestSimpleSign`, whose token is shorter than people may make one.
    #[test]
    fn upstreams_signature() {
        let want = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYzEyMyJ9..QSxpUG7Q542CirTI2ECPSZjvBOJURUW5a7XqFpNI958";
        assert_eq!(sign("payload", "abc123", "tokenSecret"), want);
    }

    /// Upstream's cases of `TestNoConfigMap`, `TestSimpleSign`, `TestNoSignNeeded`, `TestUpdateSignature` and
    /// `TestRemoveSignature`.
    #[test]
    fn signatures_are_those_of_the_tokens() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        let spec = |usage: &str, expires: Option<&str>| Spec {
            token: token.clone(),
            description: String::new(),
            expires: expires.map(|e| e.parse().unwrap()),
            usages: vec![usage.to_owned()],
            groups: Vec::new(),
        };
        let entry = |usage, expires| Entry::from(&spec(usage, expires).secret());
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let bare = map(&[(KUBECONFIG_KEY, "kubeconfig"), ("other", "kept")]);
        let signed = plan(Some(&bare), &[entry("signing", None)], now).unwrap();
        assert!(is_signed(&signed["jws-kubeconfig-abcdef"], "kubeconfig", &token));
        assert_eq!((signed.len(), signed["other"].as_str()), (3, "kept"));
        let check =
            |data: Option<&BTreeMap<String, String>>, tokens: &[Entry], expected: Option<&BTreeMap<_, _>>| {
                assert_eq!(plan(data, tokens, now).as_ref(), expected, "{data:?}");
            };
        check(None, &[entry("signing", None)], None);
        check(Some(&map(&[("other", "x")])), &[entry("signing", None)], None);
        check(Some(&bare), &[], None);
        check(Some(&bare), &[entry("authentication", None)], None);
        check(Some(&bare), &[entry("signing", Some("2025-01-01T00:00:00Z"))], None);
        check(Some(&signed), &[entry("signing", None)], None);
        check(Some(&signed), &[entry("signing", Some("2027-01-01T00:00:00Z"))], None);
        check(Some(&signed), &[], Some(&bare));
        let mut wrong = signed.clone();
        wrong.insert("jws-kubeconfig-abcdef".into(), "old".into());
        check(Some(&wrong), &[entry("signing", None)], Some(&signed));
    }

    /// Upstream's 11 cases of `TestValidateSecretForSigning`, `TestValidateSecret`, `TestBadSecretName` and
    /// `TestMismatchSecretName`: the name of a Secret, the token's id and secret, the mark, the end of its time, and whether
    /// it signs.
    #[test]
    fn secrets_that_sign() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let check = |name: &str, id: &str, secret: &str, mark: &str, expires: &str, want: bool| {
            let data = [
                ("token-id", id),
                ("token-secret", secret),
                ("usage-bootstrap-signing", mark),
                ("expiration", expires),
            ];
            let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
            let mut object = Secret {
                type_: Some(client::bootstrap::SECRET_TYPE.to_owned()),
                data: Some(data.iter().map(|(key, text)| ((*key).to_owned(), bytes(text))).collect()),
                ..Secret::default()
            };
            object.metadata.name = Some(name.to_owned());
            let entry = Entry::from(&object);
            assert_eq!(entry.signs(now), want.then_some((id, secret)), "{name} {data:?}");
        };
        let (name, id, secret) = ("bootstrap-token-abc123", "abc123", "tokenSecret");
        check(name, id, secret, "true", "", true);
        check(name, id, secret, "true", "2026-01-01T13:00:00Z", true);
        check(name, id, secret, "true", "2026-01-01T14:00:00+01:00", true);
        check(name, id, secret, "true", "2026-01-01T11:00:00Z", false);
        check(name, id, secret, "true", "garbage", false);
        check(name, id, secret, "", "garbage", false);
        check(name, id, secret, "", "", false);
        check(name, "", secret, "true", "", false);
        check(name, id, "", "true", "", false);
        check("abc123", id, secret, "true", "", false);
        check("bootstrap-token-def456", id, secret, "true", "", false);
    }
}
