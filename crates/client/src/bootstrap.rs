//! Bootstrap tokens: the credentials with which a machine that has none yet asks for its own, and by which it
//! recognises the cluster. Forms, names and rules are upstream's (`k8s.io/cluster-bootstrap`).
//!
//! A token is `ID.SECRET`, and is kept in the Secret `bootstrap-token-ID` of `kube-system`. The API server takes it as a
//! bearer token, and a controller signs the ConfigMap `cluster-info` with each token that is there ([`sign`]): who knows
//! the token can tell whether the ConfigMap is its cluster's before anything else is trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::json::FromJson;

/// The namespace of the tokens' Secrets.
pub const NAMESPACE: &str = "kube-system";
/// The type of the tokens' Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The beginning of the names of the tokens' Secrets.
pub const SECRET_PREFIX: &str = "bootstrap-token-";
/// The namespace and the name of the ConfigMap by which a machine recognises the cluster.
pub const CLUSTER_INFO: (&str, &str) = ("kube-public", "cluster-info");
/// The key of the kubeconfig in the ConfigMap.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// The beginning of the keys of signatures in the ConfigMap.
pub const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// The beginning of the names of users with bootstrap tokens.
pub const USER_PREFIX: &str = "system:bootstrap:";
/// The group of all users with bootstrap tokens.
pub const GROUP: &str = "system:bootstrappers";
/// The group of tokens for nodes, unless they are made for others; kubeadm's.
pub const NODE_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// The form of a token, as upstream's messages show it.
pub const TOKEN_PATTERN: &str = r"\A([a-z0-9]{6})\.([a-z0-9]{16})\z";
/// The form of a token's id.
pub const ID_PATTERN: &str = r"\A([a-z0-9]{6})\z";
/// The form of a group that a token may bring.
pub const GROUP_PATTERN: &str = r"\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z";

/// The uses that a token may be made for.
pub const USAGES: [&str; 2] = ["authentication", "signing"];

const ID_KEY: &str = "token-id";
const SECRET_KEY: &str = "token-secret";
const EXPIRATION_KEY: &str = "expiration";
const DESCRIPTION_KEY: &str = "description";
const GROUPS_KEY: &str = "auth-extra-groups";
const USAGE_PREFIX: &str = "usage-bootstrap-";

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
}

/// The text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bootstrap token was not of the form \"{TOKEN_PATTERN}\"")]
pub struct TokenError;

impl Token {
    /// Makes a new token that nobody can guess. `None` if the system gives no random numbers.
    pub fn generate() -> Option<Self> {
        Some(Self { id: random(ID_LENGTH)?, secret: random(SECRET_LENGTH)? })
    }
    /// The part that may be known.
    pub fn id(&self) -> &str {
        &self.id
    }
    /// The part that nobody else may know.
    pub fn secret(&self) -> &str {
        &self.secret
    }
    /// The name of the token's Secret.
    pub fn secret_name(&self) -> String {
        format!("{SECRET_PREFIX}{}", self.id)
    }
    /// The whole token, `ID.SECRET`.
    pub fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let (id, secret) = text.split_once('.').ok_or(TokenError)?;
        let good = is_id(id) && secret.len() == SECRET_LENGTH && secret.bytes().all(allowed);
        if good { Ok(Self { id: id.to_owned(), secret: secret.to_owned() }) } else { Err(TokenError) }
    }
}

impl fmt::Debug for Token {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

/// Whether a text is the id of a token.
pub fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(allowed)
}

fn allowed(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Random characters of a token.
fn random(length: usize) -> Option<String> {
    const ALL: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    /// The greatest multiple of 36 that a byte can be: from there on, some characters would come more often.
    const FAIR: u8 = 252;
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).ok()?;
        let fair = bytes.iter().filter(|b| **b < FAIR);
        text.extend(fair.map(|b| char::from(ALL[usize::from(*b) % ALL.len()])).take(length - text.len()));
    }
    Some(text)
}

/// Whether a token may bring a group.
pub fn is_group(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("system:bootstrappers:") else { return false };
    let last = rest.bytes().next_back().is_some_and(allowed);
    last && rest.len() <= 256 && rest.bytes().all(|b| allowed(b) || b == b':' || b == b'-')
}

/// The time for which a token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It never ends.
    Forever,
    /// It ends after this time.
    Left(Duration),
    /// It has ended, or its end cannot be read.
    Over,
}

/// The reason for which a Secret does not authenticate a token; upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The Secret is being deleted.
    #[error("is deleted and awaiting removal")]
    Deleted,
    /// The Secret is of another type.
    #[error("has invalid type, expected {SECRET_TYPE}.")]
    Type,
    /// A field is not the token's.
    #[error("has invalid value for key {0}.")]
    Value(&'static str),
    /// The token's time is over.
    #[error("has expired")]
    Expired,
    /// The token is for something else.
    #[error("not marked {USAGE_PREFIX}authentication=true.")]
    Usage,
    /// The token brings a group that no token may bring.
    #[error(
        "has invalid value for key auth-extra-groups: bootstrap group {0:?} is invalid (must match {GROUP_PATTERN})."
    )]
    Group(String),
}

/// A token as its Secret holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    name: String,
    kind: String,
    deleting: bool,
    data: BTreeMap<String, Vec<u8>>,
}

impl From<&Secret> for Entry {
    fn from(secret: &Secret) -> Self {
        let data = secret.data.iter().flatten();
        Self {
            name: secret.metadata.name.clone().unwrap_or_default(),
            kind: secret.type_.clone().unwrap_or_default(),
            deleting: secret.metadata.deletion_timestamp.is_some(),
            data: data.map(|(key, value)| (key.clone(), value.0.clone())).collect(),
        }
    }
}

impl Entry {
    /// Reads the JSON of a Secret.
    pub fn from_json(json: &[u8]) -> Option<Self> {
        Secret::from_json(json).ok().map(|secret| Self::from(&secret))
    }

    fn bytes(&self, key: &str) -> &[u8] {
        self.data.get(key).map_or(&[], Vec::as_slice)
    }

    fn text(&self, key: &str) -> &str {
        std::str::from_utf8(self.bytes(key)).unwrap_or_default()
    }

    fn is_for(&self, usage: &str) -> bool {
        self.text(&format!("{USAGE_PREFIX}{usage}")) == "true"
    }

    /// Checks whether the Secret authenticates the token that names it; returns the user's groups, sorted.
    ///
    /// # Errors
    /// The first of upstream's rules that the Secret breaks.
    pub fn authenticate(&self, token: &Token, now: Timestamp) -> Result<Vec<String>, Refusal> {
        if self.deleting {
            return Err(Refusal::Deleted);
        }
        if self.kind != SECRET_TYPE {
            return Err(Refusal::Type);
        }
        let same = constant_time::verify_slices_are_equal(self.bytes(SECRET_KEY), token.secret.as_bytes());
        if same.is_err() {
            return Err(Refusal::Value(SECRET_KEY));
        }
        if self.bytes(ID_KEY) != token.id.as_bytes() {
            return Err(Refusal::Value(ID_KEY));
        }
        if self.life(now) == Life::Over {
            return Err(Refusal::Expired);
        }
        if !self.is_for("authentication") {
            return Err(Refusal::Usage);
        }
        let mut groups = BTreeSet::from([GROUP.to_owned()]);
        let Ok(extra) = std::str::from_utf8(self.bytes(GROUPS_KEY)) else {
            return Err(Refusal::Value(GROUPS_KEY));
        };
        if !extra.is_empty() {
            for group in extra.split(',') {
                if !is_group(group) {
                    return Err(Refusal::Group(group.to_owned()));
                }
                groups.insert(group.to_owned());
            }
        }
        Ok(groups.into_iter().collect())
    }

    /// The token, if the ConfigMap is to be signed with it.
    pub fn signs(&self, now: Timestamp) -> Option<(&str, &str)> {
        let (id, secret) = (self.text(ID_KEY), self.text(SECRET_KEY));
        let named =
            self.kind == SECRET_TYPE && is_id(id) && self.name.strip_prefix(SECRET_PREFIX) == Some(id);
        let good = named && !secret.is_empty() && self.life(now) != Life::Over && self.is_for("signing");
        good.then_some((id, secret))
    }

    /// The time for which the token is still good.
    pub fn life(&self, now: Timestamp) -> Life {
        let text = self.bytes(EXPIRATION_KEY);
        if text.is_empty() {
            return Life::Forever;
        }
        let end = std::str::from_utf8(text).ok().and_then(api::time::parse);
        let left = end.map(|end| end.duration_since(now)).and_then(|left| Duration::try_from(left).ok());
        left.filter(|left| !left.is_zero()).map_or(Life::Over, Life::Left)
    }

    /// The token as a person wrote it down; `None` if the Secret has none.
    pub fn spec(&self) -> Option<Spec> {
        let token: Token = format!("{}.{}", self.text(ID_KEY), self.text(SECRET_KEY)).parse().ok()?;
        let named = self.kind == SECRET_TYPE && self.name == token.secret_name();
        let groups = self.text(GROUPS_KEY).split(',').filter(|g| !g.is_empty());
        named.then(|| Spec {
            token,
            description: self.text(DESCRIPTION_KEY).to_owned(),
            expires: api::time::parse(self.text(EXPIRATION_KEY)),
            usages: USAGES.iter().filter(|u| self.is_for(u)).map(|u| (*u).to_owned()).collect(),
            groups: groups.map(ToOwned::to_owned).collect(),
        })
    }
}

/// A token with all that its Secret tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The token.
    pub token: Token,
    /// The words of a person about it; may be empty.
    pub description: String,
    /// The end of its time; none for a token that lasts.
    pub expires: Option<Timestamp>,
    /// Its uses, some of [`USAGES`].
    pub usages: Vec<String>,
    /// The groups that it brings besides [`GROUP`].
    pub groups: Vec<String>,
}

impl Spec {
    /// Makes the token's Secret.
    pub fn secret(&self) -> Secret {
        let mut data = BTreeMap::from([
            (ID_KEY.to_owned(), self.token.id.clone()),
            (SECRET_KEY.to_owned(), self.token.secret.clone()),
        ]);
        if !self.description.is_empty() {
            data.insert(DESCRIPTION_KEY.to_owned(), self.description.clone());
        }
        if let Some(expires) = self.expires {
            data.insert(EXPIRATION_KEY.to_owned(), api::time::format(expires).to_string());
        }
        for usage in &self.usages {
            data.insert(format!("{USAGE_PREFIX}{usage}"), "true".to_owned());
        }
        if !self.groups.is_empty() {
            data.insert(GROUPS_KEY.to_owned(), self.groups.join(","));
        }
        Secret {
            metadata: ObjectMeta {
                name: Some(self.token.secret_name()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))).collect()),
            ..Secret::default()
        }
    }
}

/// The detached signature (JWS, HS256) of a text with a token.
pub fn sign(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

/// Whether a detached signature is that of a text with a token.
pub fn is_signed(signature: &str, content: &str, token: &Token) -> bool {
    let wanted = sign(content, &token.id, &token.secret);
    constant_time::verify_slices_are_equal(signature.as_bytes(), wanted.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Upstream's vectors of `TestComputeDetachedSignature`.
    #[test]
    fn signatures() {
        const CONTENT: &str = "Hello from the other side. I must have called a thousand times.";
        let check = |content: &str, secret: &str, expected: &str| {
            let expected = format!("eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..{expected}");
            assert_eq!(sign(content, "joshua", secret), expected);
        };
        check(CONTENT, "my voice is my passcode", "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8");
        check("", "my voice is my passcode", "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk");
        check(CONTENT, "", "UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8");
        let token: Token = "joshua.0123456789abcdef".parse().unwrap();
        let signature = sign(CONTENT, token.id(), token.secret());
        assert!(is_signed(&signature, CONTENT, &token));
        assert!(!is_signed(&format!("{signature}foo"), CONTENT, &token));
        assert!(!is_signed(&signature, "other", &token));
        assert!(!is_signed("", CONTENT, &token));
    }

    #[test]
    fn forms() {
        let check = |text: &str, good: bool| assert_eq!(text.parse::<Token>().is_ok(), good, "{text}");
        check("abcdef.0123456789abcdef", true);
        for bad in [
            "",
            ".",
            "abcdef",
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcde",
            "Abcdef.0123456789abcdef",
            "abcdef.0123456789abcdeF",
            "abcdef.0123456789abcdef.",
            "abcdef.0123456789abcdef\n",
            "abcdef:0123456789abcdef",
        ] {
            check(bad, false);
        }
        let one = Token::generate().unwrap();
        assert_eq!(one.text().parse::<Token>().unwrap(), one);
        assert_ne!(Token::generate().unwrap(), one);
        assert!(!format!("{one:?}").contains(one.secret()));
        let group = |name: &str, good: bool| assert_eq!(is_group(name), good, "{name}");
        group(NODE_GROUP, true);
        group("system:bootstrappers:a", true);
        group(&format!("system:bootstrappers:{}", "a".repeat(256)), true);
        for bad in [
            "system:bootstrappers",
            "system:bootstrappers:",
            "system:bootstrappers:a-",
            "system:bootstrappers:A",
            "system:masters",
            "foo",
            "system:bootstrappers:a b",
        ] {
            group(bad, false);
        }
        group(&format!("system:bootstrappers:{}", "a".repeat(257)), false);
    }

    /// Upstream's cases of `TestTokenAuthenticator`, and those of ours at the end.
    #[test]
    fn who_is_let_in() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let token: Token = "token0.0123456789abcdef".parse().unwrap();
        let good = json!({"token-id": "token0", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"});
        let with = |key: &str, value: &str| {
            let mut data = good.clone();
            data[key] = value.into();
            data
        };
        let entry = |kind: &str, data: &serde_json::Value, deleted: bool| Entry {
            name: "bootstrap-token-token0".to_owned(),
            kind: kind.to_owned(),
            deleting: deleted,
            data: data
                .as_object()
                .unwrap()
                .iter()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap().as_bytes().to_vec()))
                .collect(),
        };
        let check = |data: serde_json::Value, expected: Result<&[&str], Refusal>| {
            let got = entry(SECRET_TYPE, &data, false).authenticate(&token, now);
            let expected = expected.map(|groups| groups.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>());
            assert_eq!(got, expected, "{data}");
        };
        check(good.clone(), Ok(&[GROUP]));
        check(with(GROUPS_KEY, "system:bootstrappers:foo"), Ok(&[GROUP, "system:bootstrappers:foo"]));
        check(with(GROUPS_KEY, "foo"), Err(Refusal::Group("foo".to_owned())));
        check(with(GROUPS_KEY, "system:masters"), Err(Refusal::Group("system:masters".to_owned())));
        check(with("usage-bootstrap-authentication", "yes"), Err(Refusal::Usage));
        check(with(SECRET_KEY, "0123456789abcdee"), Err(Refusal::Value(SECRET_KEY)));
        check(with(SECRET_KEY, ""), Err(Refusal::Value(SECRET_KEY)));
        check(with(ID_KEY, "barfoo"), Err(Refusal::Value(ID_KEY)));
        check(with(EXPIRATION_KEY, "2009-11-10T23:00:00Z"), Err(Refusal::Expired));
        check(with(EXPIRATION_KEY, "2109-11-10T23:00:00Z"), Ok(&[GROUP]));
        check(with(EXPIRATION_KEY, "2026-01-01T00:00:00Z"), Err(Refusal::Expired));
        check(with(EXPIRATION_KEY, "tomorrow"), Err(Refusal::Expired));
        let refused = |kind, deleted| entry(kind, &good, deleted).authenticate(&token, now).unwrap_err();
        assert_eq!(refused("Opaque", false), Refusal::Type);
        assert_eq!(refused(SECRET_TYPE, true), Refusal::Deleted);
    }

    #[test]
    fn a_secret_tells_all_of_its_token() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let spec = Spec {
            token: "abcdef.0123456789abcdef".parse().unwrap(),
            description: "mine".to_owned(),
            expires: Some("2026-01-02T00:00:00Z".parse().unwrap()),
            usages: vec!["authentication".to_owned(), "signing".to_owned()],
            groups: vec![NODE_GROUP.to_owned()],
        };
        let entry = Entry::from(&spec.secret());
        assert_eq!(entry.spec(), Some(spec.clone()));
        assert_eq!(entry.life(now), Life::Left(Duration::from_hours(24)));
        assert_eq!(entry.signs(now), Some(("abcdef", "0123456789abcdef")));
        let later = "2026-01-03T00:00:00Z".parse().unwrap();
        assert_eq!((entry.life(later), entry.signs(later)), (Life::Over, None));
        let short = Spec { usages: vec!["authentication".to_owned()], expires: None, ..spec };
        let entry = Entry::from(&short.secret());
        assert_eq!((entry.signs(now), entry.life(now)), (None, Life::Forever));
        let renamed = Entry { name: "bootstrap-token-fedcba".to_owned(), ..Entry::from(&short.secret()) };
        assert_eq!((renamed.spec(), renamed.signs(now)), (None, None));
    }
}
