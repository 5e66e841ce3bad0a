//! A credential for an image, where it is from, and how Docker's configuration writes it.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use cri::runtime as pb;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Docker's own registry, as configurations name it.
pub(super) const DEFAULT_REGISTRY: &str = "index.docker.io";

/// A Secret whose credential pulled an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PullSecret {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) credential_hash: String,
}

impl PullSecret {
    /// Whether both are from the same Secret.
    pub(super) fn same_secret(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
    }
}

/// A service account whose token pulled an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct PullAccount {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// Where a credential is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The node's files, or a provider that gives it to all Pods of the node.
    Node,
    /// A Secret.
    Secret(PullSecret),
    /// A provider that was shown a token of the account.
    Account(PullAccount),
}

/// A credential, and where it is from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Credential {
    /// The credential as the runtime takes it. It names no server: runtimes leave out one whose server is not the very
    /// host that they ask.
    pub(super) auth: pb::AuthConfig,
    pub(super) source: Source,
}

impl Credential {
    /// A credential of a user and a password.
    pub(super) fn of_login((username, password): (String, String), source: Source) -> Self {
        Self { auth: pb::AuthConfig { username, password, ..pb::AuthConfig::default() }, source }
    }
}

/// A server's entry in Docker's configuration.
#[derive(serde::Deserialize, Default)]
#[serde(default)]
pub(super) struct Entry {
    username: String,
    password: String,
    auth: String,
    email: String,
    identitytoken: String,
    registrytoken: String,
}

#[derive(serde::Deserialize)]
struct File {
    auths: BTreeMap<String, Entry>,
}

/// The entries of Docker's configuration by their servers, which are below `auths` in its newer form; none if it is none.
pub(super) fn entries(json: &[u8], newer: bool) -> Option<BTreeMap<String, Entry>> {
    if newer {
        serde_json::from_slice::<File>(json).ok().map(|file| file.auths)
    } else {
        serde_json::from_slice(json).ok()
    }
}

impl Entry {
    /// User and password as they are used: those of the one field count more.
    pub(super) fn resolved(mut self) -> Self {
        if let Some((user, password)) = user_and_password(&self.auth) {
            self.username = user;
            self.password = password;
        }
        self
    }

    /// The entry's credential.
    pub(super) fn credential(self, source: Source) -> Credential {
        let entry = self.resolved();
        let auth = pb::AuthConfig {
            username: entry.username,
            password: entry.password,
            identity_token: entry.identitytoken,
            registry_token: entry.registrytoken,
            ..pb::AuthConfig::default()
        };
        Credential { auth, source }
    }
}

/// User and password of an entry's one field, which may lack what fills up base64.
fn user_and_password(auth: &str) -> Option<(String, String)> {
    let raw = STANDARD.decode(auth).or_else(|_| STANDARD_NO_PAD.decode(auth)).ok()?;
    let text = String::from_utf8(raw).ok()?;
    text.split_once(':').map(|(u, p)| (u.to_owned(), p.to_owned()))
}

/// Upstream's hash of a credential: of its JSON, without what is not set.
pub(super) fn hash(entry: &Entry) -> String {
    #[derive(Serialize)]
    struct Hashed<'a> {
        #[serde(skip_serializing_if = "str::is_empty")]
        username: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        password: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        email: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        identitytoken: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        registrytoken: &'a str,
    }
    let hashed = Hashed {
        username: &entry.username,
        password: &entry.password,
        email: &entry.email,
        identitytoken: &entry.identitytoken,
        registrytoken: &entry.registrytoken,
    };
    hex(&Sha256::digest(serde_json::to_vec(&hashed).unwrap_or_default()))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
