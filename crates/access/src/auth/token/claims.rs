//! The claims of a token.

use std::collections::BTreeMap;

use api::Text;
use compact_str::format_compact;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::UserInfo;

/// The claims of a bound token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences.
    #[serde(default, deserialize_with = "one_or_many")]
    pub aud: Vec<Text>,
    /// Expiry, in seconds since 1970.
    pub exp: i64,
    /// Issued at.
    pub iat: i64,
    /// Issuer.
    pub iss: String,
    /// Id of this token.
    #[serde(default)]
    pub jti: Text,
    /// Upstream's private claims.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    /// Not valid before.
    pub nbf: i64,
    /// User name.
    pub sub: Text,
}

/// The private claims.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesClaims {
    /// Namespace of the service account.
    pub namespace: Text,
    /// The node it is bound to, or on which the pod runs that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Ref>,
    /// The pod it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Ref>,
    /// The secret it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Ref>,
    /// The service account.
    pub serviceaccount: Ref,
    /// After this it should have been renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object by name and uid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ref {
    /// Name.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub name: Text,
    /// uid.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub uid: Text,
}

/// The object that a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Bound {
    /// Nothing but its service account.
    #[default]
    No,
    /// A pod, and the node on which it runs.
    Pod(Ref, Option<Ref>),
    /// A secret.
    Secret(Ref),
    /// A node.
    Node(Ref),
}

impl Claims {
    /// The claims of a new token; `lifetime` and `warn_after` in seconds from now.
    #[allow(clippy::too_many_arguments, reason = "each is one claim")]
    pub fn new(
        issuer: &str,
        namespace: &str,
        account: Ref,
        bound: Bound,
        audiences: Vec<Text>,
        now: Timestamp,
        lifetime: i64,
        warn_after: Option<i64>,
    ) -> Self {
        let now = now.as_second();
        let (pod, secret, node) = match bound {
            Bound::No => (None, None, None),
            Bound::Pod(pod, node) => (Some(pod), None, node),
            Bound::Secret(secret) => (None, Some(secret), None),
            Bound::Node(node) => (None, None, Some(node)),
        };
        Self {
            aud: audiences,
            exp: now.saturating_add(lifetime),
            iat: now,
            iss: issuer.into(),
            jti: uuid::Uuid::new_v4().to_string().into(),
            sub: format_compact!("system:serviceaccount:{namespace}:{}", account.name),
            kubernetes: KubernetesClaims {
                namespace: namespace.into(),
                node,
                pod,
                secret,
                serviceaccount: account,
                warnafter: warn_after.map(|s| now.saturating_add(s)),
            },
            nbf: now,
        }
    }

    /// The user that it is.
    pub(super) fn user(&self) -> UserInfo {
        let k = &self.kubernetes;
        let mut extra: BTreeMap<Text, Vec<Text>> = BTreeMap::new();
        let mut add = |key: &str, value: Text| {
            extra.insert(format_compact!("authentication.kubernetes.io/{key}"), vec![value]);
        };
        if let Some(pod) = k.pod.as_ref().filter(|p| !p.name.is_empty() && !p.uid.is_empty()) {
            add("pod-name", pod.name.clone());
            add("pod-uid", pod.uid.clone());
        }
        if !self.jti.is_empty() {
            add("credential-id", format_compact!("JTI={}", self.jti));
        }
        if let Some(node) = k.node.as_ref().filter(|n| !n.name.is_empty()) {
            add("node-name", node.name.clone());
            if !node.uid.is_empty() {
                add("node-uid", node.uid.clone());
            }
        }
        UserInfo { extra, ..account_user(&k.namespace, &k.serviceaccount.name, &k.serviceaccount.uid) }
    }
}

/// The claims of a token in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct LegacyClaims {
    pub sub: Text,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: Text,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: Text,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub account: Text,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub uid: Text,
}

impl LegacyClaims {
    pub(super) fn user(&self) -> UserInfo {
        account_user(&self.namespace, &self.account, &self.uid)
    }
}

/// The user of a service account.
fn account_user(namespace: &str, name: &str, uid: &str) -> UserInfo {
    UserInfo {
        name: format_compact!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format_compact!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ],
        extra: BTreeMap::new(),
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Text>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        One(Text),
        Many(Vec<Text>),
    }
    Ok(match Form::deserialize(d)? {
        Form::One(one) => vec![one],
        Form::Many(many) => many,
    })
}
