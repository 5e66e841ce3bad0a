//! The credentials that a Pod brings for an image: those of its image pull secrets, of the node's files, and of credential
//! providers.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::keyring::Keyring;
use super::names;
use super::node_files::NodeFiles;
use crate::credential_providers::{Provided, Providers};
use crate::objects::Objects;
use crate::pods::spec;
use crate::recorder::PodRecorder;

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

/// The credentials of a Pod for an image: those of its Secrets, then those of the node, then those of providers.
pub(super) async fn of_pod(
    secrets: &Objects,
    (node, providers): (&NodeFiles, Option<&Providers>),
    recorder: &PodRecorder,
    pod: &Pod,
    image: &str,
) -> Vec<Credential> {
    let Ok(name) = names::parse(image) else { return Vec::new() };
    let repository = names::with_registry(name.repository);
    let mut keyring = Keyring::default();
    for reference in spec::spec(pod).image_pull_secrets.iter().flatten() {
        match secrets.secret(spec::namespace(pod), &reference.name).await {
            Ok(secret) => of_secret(&secret, &mut keyring),
            Err(error) => {
                recorder.pod(
                    pod,
                    "Warning",
                    "FailedToRetrieveImagePullSecret",
                    format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    ),
                );
                tracing::debug!(secret = reference.name, %error, "image pull secret");
            }
        }
    }
    let mut found = keyring.find(&repository);
    let mut keyring = Keyring::default();
    for (server, credential) in node.credentials().await.iter() {
        keyring.add(server, credential.clone());
    }
    found.extend(keyring.find(&repository));
    if let Some(providers) = providers {
        found.extend(of_providers(providers.credentials(pod, &repository).await, &repository));
    }
    found
}

/// The credentials of providers for a repository.
fn of_providers(all: Vec<Provided>, repository: &str) -> Vec<Credential> {
    let mut keyring = Keyring::default();
    for Provided { logins, account } in all {
        let source = account.map_or(Source::Node, |account| {
            let (namespace, name, uid) = (account.namespace, account.name, account.uid);
            Source::Account(PullAccount { namespace, name, uid })
        });
        for (server, username, password) in logins {
            keyring.add(&server, Credential::of_login((username, password), source.clone()));
        }
    }
    keyring.find(repository)
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
    fn resolved(mut self) -> Self {
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

/// Adds the credentials of a Secret.
fn of_secret(secret: &Secret, to: &mut Keyring) {
    let data = secret.data.as_ref();
    let get = |key: &str| data.and_then(|d| d.get(key)).map(|v| v.0.as_slice());
    let found = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            get(".dockerconfigjson").and_then(|json| entries(json, true))
        }
        Some("kubernetes.io/dockercfg") => get(".dockercfg").and_then(|json| entries(json, false)),
        _ => None,
    };
    for (server, entry) in found.into_iter().flatten() {
        to.add(&server, credential(secret, entry));
    }
}

/// User and password of an entry's one field, which may lack what fills up base64.
fn user_and_password(auth: &str) -> Option<(String, String)> {
    let raw = STANDARD.decode(auth).or_else(|_| STANDARD_NO_PAD.decode(auth)).ok()?;
    let text = String::from_utf8(raw).ok()?;
    text.split_once(':').map(|(u, p)| (u.to_owned(), p.to_owned()))
}

fn credential(secret: &Secret, entry: Entry) -> Credential {
    let entry = entry.resolved();
    let meta = &secret.metadata;
    let source = PullSecret {
        uid: meta.uid.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        credential_hash: hash(&entry),
    };
    entry.credential(Source::Secret(source))
}

/// Upstream's hash of a credential: of its JSON, without what is not set.
fn hash(entry: &Entry) -> String {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::credential_providers::Account;

    #[test]
    fn secrets_give_their_credentials() {
        let auths = json!({"auths": {
            "host.test": {"username": "a", "password": "1"},
            "host.test/team": {"auth": "YjoyOjM="},
            "host.test/other": {"auth": "ZDo0"},
            "https://index.docker.io/v1/": {"username": "c", "password": "3"},
        }});
        let secret = |kind: &str| {
            let mut secret = Secret { type_: Some(kind.to_owned()), ..Secret::default() };
            secret.metadata.name = Some("s".into());
            let data = ByteString(auths.to_string().into_bytes());
            secret.data = Some(BTreeMap::from([(".dockerconfigjson".to_owned(), data)]));
            secret
        };
        let found = |kind: &str, repository: &str| {
            let mut keyring = Keyring::default();
            of_secret(&secret(kind), &mut keyring);
            keyring.find(&names::with_registry(repository))
        };
        let check = |repository: &str, want: &[(&str, &str)]| {
            let got = found("kubernetes.io/dockerconfigjson", repository);
            let got: Vec<_> =
                got.iter().map(|c| (c.auth.username.as_str(), c.auth.password.as_str())).collect();
            assert_eq!(got, want, "{repository}");
        };
        check("host.test/team/app", &[("b", "2:3"), ("a", "1")]);
        check("host.test/other", &[("d", "4"), ("a", "1")]);
        check("host.test/more", &[("a", "1")]);
        check("busybox", &[("c", "3")]);
        check("library/busybox", &[("c", "3")]);
        check("docker.io/library/busybox", &[("c", "3")]);
        check("elsewhere.test/x", &[]);
        assert!(found("Opaque", "host.test/other").is_empty());
        // Upstream's: the hash of {"username":"a","password":"1"}.
        let one = found("kubernetes.io/dockerconfigjson", "host.test/more").remove(0);
        assert!(one.auth.server_address.is_empty());
        let Source::Secret(secret) = one.source else { panic!("{one:?}") };
        assert_eq!(secret.credential_hash, hex(&Sha256::digest(r#"{"username":"a","password":"1"}"#)));
        assert_eq!(secret.name, "s");
    }

    #[test]
    fn providers_give_their_credentials() {
        let login = |place: &str, user: &str| (place.to_owned(), user.to_owned(), "p".to_owned());
        let account = Account { namespace: "n".into(), name: "a".into(), uid: "u".into() };
        let all = vec![
            Provided { logins: vec![login("r.test", "node"), login("o.test", "other")], account: None },
            Provided { logins: vec![login("r.test/team", "account")], account: Some(account) },
        ];
        let found = of_providers(all, "r.test/team/a");
        let found: Vec<_> = found.into_iter().map(|c| (c.auth.username, c.source)).collect();
        let account = PullAccount { namespace: "n".into(), name: "a".into(), uid: "u".into() };
        assert_eq!(found, [("account".into(), Source::Account(account)), ("node".into(), Source::Node)]);
    }
}
