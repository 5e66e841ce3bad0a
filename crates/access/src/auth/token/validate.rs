//! Decides whether a token is valid now: by its times, and by the objects to which it is bound.

use std::sync::Arc;

use api::{Object, Text};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::claims::{Claims, LegacyClaims, Ref};
use super::error::TokenError;
use super::uses::Sort;
use crate::reader::Reader;
use crate::reader::{ResourceName, read};

/// The greatest difference of clocks that is allowed.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// The label of a Secret whose token is taken no longer.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

const ACCOUNTS: ResourceName = ("", "serviceaccounts");
const SECRETS: ResourceName = ("", "secrets");
const PODS: ResourceName = ("", "pods");
const NODES: ResourceName = ("", "nodes");

/// Whether an object's deletion was due longer ago than the leeway.
fn gone(object: &Object, now: Timestamp) -> bool {
    #[derive(Deserialize)]
    struct Part {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        deletion_timestamp: Text,
    }
    object.data.deleting
        && read::<Part>(object)
            .and_then(|p| p.metadata.deletion_timestamp.parse::<Timestamp>().ok())
            .is_none_or(|t| t < now.saturating_sub(LEEWAY).unwrap_or(now))
}

/// Checks that a referenced object exists and has the same uid; `what` names it in texts.
fn referenced(
    reader: &dyn Reader,
    resource: ResourceName,
    namespace: &str,
    wanted: &Ref,
    what: &str,
    now: Timestamp,
) -> Result<(), TokenError> {
    let invalidated = || TokenError::new("service account token has been invalidated");
    let object = reader.get(resource, namespace, &wanted.name).ok_or_else(invalidated)?;
    if object.data.uid != wanted.uid {
        let low = what.to_lowercase();
        return Err(TokenError(format!(
            "{what} UID ({}) does not match service account {low} ref claim ({})",
            object.data.uid, wanted.uid
        )));
    }
    if gone(&object, now) {
        return Err(invalidated());
    }
    Ok(())
}

/// Checks a bound token.
pub(super) fn bound(claims: &Claims, reader: &dyn Reader, now: Timestamp) -> Result<(), TokenError> {
    let second = now.as_second();
    let leeway = LEEWAY.as_secs();
    if second - leeway > claims.exp {
        return Err(TokenError::new("service account token has expired"));
    }
    if second + leeway < claims.nbf {
        return Err(TokenError::new("service account token is not valid yet"));
    }
    if second + leeway < claims.iat {
        return Err(TokenError::new("service account token is issued in the future"));
    }
    let k = &claims.kubernetes;
    let (namespace, name) = (&k.namespace, &k.serviceaccount.name);
    let account = reader
        .get(ACCOUNTS, namespace, name)
        .ok_or_else(|| TokenError(format!("serviceaccounts {name:?} not found")))?;
    if account.data.uid != k.serviceaccount.uid {
        return Err(TokenError(format!(
            "service account UID ({}) does not match claim ({})",
            account.data.uid, k.serviceaccount.uid
        )));
    }
    if gone(&account, now) {
        return Err(TokenError(format!("service account {namespace}/{name} has been deleted")));
    }
    if let Some(secret) = &k.secret {
        referenced(reader, SECRETS, namespace, secret, "secret", now)?;
    }
    if let Some(pod) = &k.pod {
        referenced(reader, PODS, namespace, pod, "Pod", now)?;
    } else if let Some(node) = &k.node {
        referenced(reader, NODES, "", node, "Node", now)?;
    }
    Ok(())
}

/// Checks that the claims of a token of a Secret are there and fit each other.
pub(super) fn legacy_claims(claims: &LegacyClaims) -> Result<(), TokenError> {
    let required = [
        (&claims.sub, "sub"),
        (&claims.namespace, "namespace"),
        (&claims.secret, "secretName"),
        (&claims.account, "serviceAccountName"),
        (&claims.uid, "serviceAccountUID"),
    ];
    if let Some((_, name)) = required.iter().find(|(value, _)| value.is_empty()) {
        return Err(TokenError(format!("{name} claim is missing")));
    }
    let (namespace, account) = (&claims.namespace, &claims.account);
    if claims.sub != format!("system:serviceaccount:{namespace}:{account}").as_str() {
        return Err(TokenError::new("sub claim is invalid"));
    }
    Ok(())
}

/// Checks a token of a Secret, but for whether it is marked as invalid; returns the Secret and its sort.
pub(super) fn legacy(
    claims: &LegacyClaims,
    token: &str,
    reader: &dyn Reader,
) -> Result<(Arc<Object>, Sort), TokenError> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Secret {
        data: Data,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Data {
        token: Text,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Account {
        secrets: Vec<Named>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Named {
        name: Text,
    }
    legacy_claims(claims)?;
    let (namespace, account) = (&claims.namespace, &claims.account);
    let secret = reader
        .get(SECRETS, namespace, &claims.secret)
        .filter(|s| !s.data.deleting)
        .ok_or_else(|| TokenError::new("Token has been invalidated"))?;
    let stored = read::<Secret>(&secret).unwrap_or_default().data.token;
    let copy = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, token);
    if aws_lc_rs::constant_time::verify_slices_are_equal(stored.as_bytes(), copy.as_bytes()).is_err() {
        return Err(TokenError::new("Token does not match server's copy"));
    }
    let stored = reader
        .get(ACCOUNTS, namespace, account)
        .ok_or_else(|| TokenError(format!("serviceaccounts {account:?} not found")))?;
    if stored.data.deleting {
        return Err(TokenError(format!("ServiceAccount {namespace}/{account} has been deleted")));
    }
    if stored.data.uid != claims.uid {
        return Err(TokenError(format!(
            "ServiceAccount UID ({}) does not match claim ({})",
            stored.data.uid, claims.uid
        )));
    }
    let sort = if secret.label(INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
        Sort::Invalid
    } else if read::<Account>(&stored).unwrap_or_default().secrets.iter().any(|s| s.name == claims.secret) {
        Sort::Automatic
    } else {
        Sort::Manual
    };
    Ok((secret, sort))
}

/// Refuses the token of a Secret that is marked as invalid.
pub(super) fn is_valid(claims: &LegacyClaims, sort: Sort) -> Result<(), TokenError> {
    if sort != Sort::Invalid {
        return Ok(());
    }
    let LegacyClaims { namespace, account, secret, .. } = claims;
    tracing::debug!(%namespace, %secret, "token is marked invalid");
    Err(TokenError(format!(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. \
         Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
         '{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
    )))
}
