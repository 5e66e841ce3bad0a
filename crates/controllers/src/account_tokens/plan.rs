//! Decisions about Secrets with tokens: pure.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};

use super::{ACCOUNT_NAME, ACCOUNT_UID};

const TOKEN: &str = "token";
const ROOT_CA: &str = "ca.crt";
const NAMESPACE: &str = "namespace";

/// The account that a Secret names, with its uid; "" for none.
pub(super) fn names(secret: &Secret) -> (&str, &str) {
    let annotations = secret.metadata.annotations.as_ref();
    let get = |key: &str| annotations.and_then(|a| a.get(key)).map_or("", String::as_str);
    (get(ACCOUNT_NAME), get(ACCOUNT_UID))
}

/// Parts of a Secret with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Content {
    pub(super) token: bool,
    pub(super) root_ca: bool,
    pub(super) namespace: bool,
}

impl Content {
    /// The parts that a Secret lacks. A namespace or a token that somebody set stays.
    pub(super) fn missing(secret: &Secret, root_ca: &str) -> Self {
        let data =
            |key: &str| secret.data.as_ref().and_then(|d| d.get(key)).map_or(&[][..], |b: &ByteString| &b.0);
        Self {
            token: data(TOKEN).is_empty(),
            root_ca: !root_ca.is_empty() && data(ROOT_CA) != root_ca.as_bytes(),
            namespace: data(NAMESPACE).is_empty(),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Returns a Secret with what it lacked.
pub(super) fn filled(
    mut secret: Secret,
    account: &ServiceAccount,
    missing: &Content,
    root_ca: &str,
    token: Option<String>,
) -> Secret {
    let namespace = secret.metadata.namespace.clone().unwrap_or_default();
    let data = secret.data.get_or_insert_default();
    let mut put = |key: &str, value: String| data.insert(key.to_owned(), ByteString(value.into_bytes()));
    if missing.root_ca {
        put(ROOT_CA, root_ca.to_owned());
    }
    if missing.namespace {
        put(NAMESPACE, namespace);
    }
    if let Some(token) = token {
        put(TOKEN, token);
    }
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(ACCOUNT_NAME.to_owned(), account.metadata.name.clone().unwrap_or_default());
    annotations.insert(ACCOUNT_UID.to_owned(), account.metadata.uid.clone().unwrap_or_default());
    secret
}

/// Returns an account without the mention of a Secret; `None` if it is another account by now, or has no such mention.
pub(super) fn without(mut account: ServiceAccount, uid: &str, secret: &str) -> Option<ServiceAccount> {
    if !uid.is_empty() && account.metadata.uid.as_deref() != Some(uid) {
        return None;
    }
    let secrets = account.secrets.as_mut()?;
    let before = secrets.len();
    secrets.retain(|s| s.name.as_deref() != Some(secret));
    (secrets.len() != before).then_some(account)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn secret(data: Value) -> Secret {
        let encoded: serde_json::Map<String, Value> = data
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.clone(), json!(ByteString(v.as_str().unwrap().as_bytes().to_vec()))))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "token-secret-1", "namespace": "default", "uid": "23456",
                "annotations": {ACCOUNT_NAME: "default"}},
            "data": encoded,
        }))
        .unwrap()
    }

    fn account(secrets: &[&str]) -> ServiceAccount {
        let secrets: Vec<Value> = secrets.iter().map(|s| json!({ "name": s })).collect();
        let meta = json!({"name": "default", "namespace": "default", "uid": "12345"});
        serde_json::from_value(json!({"metadata": meta, "secrets": secrets})).unwrap()
    }

    /// 10 of upstream's 30 cases of `TestTokenCreation`: what a Secret has, added or updated. The simulation has 18 more.
    #[test]
    fn what_is_filled() {
        let check = |data: Value, want: Option<Value>| {
            let secret = secret(data);
            let missing = Content::missing(&secret, "CA Data");
            let token = missing.token.then(|| "ABC".to_owned());
            let got =
                (!missing.is_empty()).then(|| filled(secret, &account(&[]), &missing, "CA Data", token));
            let got = got.map(|s| {
                assert_eq!(names(&s), ("default", "12345"));
                let text = |b: &ByteString| String::from_utf8(b.0.clone()).unwrap();
                let data = s.data.unwrap_or_default();
                json!(
                    data.iter()
                        .map(|(k, v)| (k.clone(), text(v)))
                        .collect::<std::collections::BTreeMap<_, _>>()
                )
            });
            assert_eq!(got, want);
        };
        let whole = json!({"token": "ABC", "ca.crt": "CA Data", "namespace": "default"});
        let but = |key: &str, value: Option<&str>| {
            let mut data = whole.clone();
            let fields = data.as_object_mut().unwrap();
            fields.remove(key);
            if let Some(value) = value {
                fields.insert(key.to_owned(), value.into());
            }
            data
        };
        check(whole.clone(), None);
        for key in ["token", "ca.crt", "namespace"] {
            check(but(key, None), Some(whole.clone()));
        }
        check(but("ca.crt", Some("mismatched")), Some(whole.clone()));
        check(but("namespace", Some("custom")), None);
        check(json!({}), Some(whole.clone()));
        assert!(!Content::missing(&secret(json!({})), "").root_ca, "nobody knows the authorities");
    }

    /// The mention of upstream's cases of `TestTokenCreation` about a Secret that is gone.
    #[test]
    fn mentions() {
        let check = |secrets: &[&str], uid: &str, want: Option<&[&str]>| {
            let got = without(account(secrets), uid, "token-secret-1");
            let got = got.map(|a| a.secrets.into_iter().flatten().filter_map(|s| s.name).collect::<Vec<_>>());
            assert_eq!(
                got.as_deref(),
                want.map(|w| w.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).as_deref()
            );
        };
        check(&["token-secret-1"], "12345", Some(&[]));
        check(&["a", "token-secret-1", "b"], "", Some(&["a", "b"]));
        check(&["regular-secret-1"], "12345", None);
        check(&[], "12345", None);
        check(&["token-secret-1"], "another", None);
    }
}
