//! The credentials that a Pod brings for an image: those of its image pull secrets.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::names;
use crate::objects::Objects;
use crate::pods::spec;
use crate::recorder::PodRecorder;

/// Docker's own registry, as configurations name it.
const DEFAULT_REGISTRY: &str = "index.docker.io";

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

/// A credential, and the Secret it is from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Credential {
    /// The credential as the runtime takes it.
    pub(super) auth: pb::AuthConfig,
    /// Where it is from, and its hash.
    pub(super) secret: PullSecret,
}

/// The credentials of a Pod for an image, the Secrets in their order.
pub(super) async fn of_pod(
    secrets: &Objects,
    recorder: &PodRecorder,
    pod: &Pod,
    image: &str,
) -> Vec<Credential> {
    let Ok(name) = names::parse(image) else { return Vec::new() };
    let mut found = Vec::new();
    for reference in spec::spec(pod).image_pull_secrets.iter().flatten() {
        match secrets.secret(spec::namespace(pod), &reference.name).await {
            Ok(secret) => found.extend(matching(&secret, name.repository)),
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
    found
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

#[derive(serde::Deserialize)]
struct File {
    auths: BTreeMap<String, Entry>,
}

/// The credentials of a Secret that are meant for a repository.
fn matching(secret: &Secret, repository: &str) -> Vec<Credential> {
    let data = secret.data.as_ref();
    let get = |key: &str| data.and_then(|d| d.get(key)).map(|v| v.0.as_slice());
    let entries = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => get(".dockerconfigjson")
            .and_then(|json| serde_json::from_slice::<File>(json).ok())
            .map(|file| file.auths),
        Some("kubernetes.io/dockercfg") => {
            get(".dockercfg").and_then(|json| serde_json::from_slice(json).ok())
        }
        _ => None,
    };
    let entries: Vec<(String, Entry)> = entries.unwrap_or_default().into_iter().collect();
    let key = |server: &str| {
        let key = server.trim_start_matches("https://").trim_start_matches("http://");
        key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2").to_owned()
    };
    let mut found: Vec<(usize, Credential)> = Vec::new();
    let mut fallback = Vec::new();
    for (server, entry) in entries {
        let key = key(&server);
        if covers(&key, repository) {
            found.push((key.len(), credential(secret, server, entry)));
        } else if key == DEFAULT_REGISTRY && of_default_registry(repository) {
            fallback.push(credential(secret, server, entry));
        }
    }
    // The longest match is the most specific one.
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    if found.is_empty() { fallback } else { found.into_iter().map(|(_, c)| c).collect() }
}

fn credential(secret: &Secret, server: String, mut entry: Entry) -> Credential {
    if let Some((user, password)) = base64::engine::general_purpose::STANDARD
        .decode(&entry.auth)
        .ok()
        .and_then(|raw| String::from_utf8(raw).ok())
        .and_then(|text| text.split_once(':').map(|(u, p)| (u.to_owned(), p.to_owned())))
    {
        entry.username = user;
        entry.password = password;
    }
    let auth = pb::AuthConfig {
        username: entry.username,
        password: entry.password,
        server_address: server,
        identity_token: entry.identitytoken,
        registry_token: entry.registrytoken,
        ..pb::AuthConfig::default()
    };
    let meta = &secret.metadata;
    let secret = PullSecret {
        uid: meta.uid.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        credential_hash: hash(&auth),
    };
    Credential { auth, secret }
}

/// Upstream's hash of a credential: of its JSON, without what is not set.
fn hash(auth: &pb::AuthConfig) -> String {
    #[derive(Serialize)]
    struct Hashed<'a> {
        #[serde(skip_serializing_if = "str::is_empty")]
        username: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        password: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        identitytoken: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        registrytoken: &'a str,
    }
    let hashed = Hashed {
        username: &auth.username,
        password: &auth.password,
        identitytoken: &auth.identity_token,
        registrytoken: &auth.registry_token,
    };
    hex(&Sha256::digest(serde_json::to_vec(&hashed).unwrap_or_default()))
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a repository is one of Docker's own registry, named or not.
fn of_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some((host, _)) => matches!(host, "docker.io" | DEFAULT_REGISTRY) || !host.contains(['.', ':']),
    }
}

/// Whether a credential's key (`*.host:port/path`) covers a repository.
fn covers(key: &str, repository: &str) -> bool {
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = repository.split_once('/').unwrap_or((repository, ""));
    let (key_parts, parts): (Vec<&str>, Vec<&str>) =
        (key_host.split('.').collect(), host.split('.').collect());
    key_parts.len() == parts.len()
        && key_parts.iter().zip(&parts).all(|(k, p)| *k == "*" || k == p)
        && (key_path.is_empty() || path == key_path || path.starts_with(&format!("{key_path}/")))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_cover_repositories() {
        for (key, repository, want) in [
            ("host.test", "host.test/a", true),
            ("*.host.test", "x.host.test/a", true),
            ("*.host.test", "host.test/a", false),
            ("host.test/a", "host.test/a/b", true),
            ("host.test/a", "host.test/ab", false),
            ("host.test:5000", "host.test/a", false),
        ] {
            assert_eq!(covers(key, repository), want, "{key} {repository}");
        }
    }

    #[test]
    fn secrets_give_their_credentials() {
        let auths = json!({"auths": {
            "host.test": {"username": "a", "password": "1"},
            "host.test/team": {"auth": "YjoyOjM="},
            "https://index.docker.io/v1/": {"username": "c", "password": "3"},
        }});
        let secret = |kind: &str| {
            let mut secret = Secret { type_: Some(kind.to_owned()), ..Secret::default() };
            secret.metadata.name = Some("s".into());
            let data = ByteString(auths.to_string().into_bytes());
            secret.data = Some(BTreeMap::from([(".dockerconfigjson".to_owned(), data)]));
            secret
        };
        let check = |repository: &str, want: &[(&str, &str)]| {
            let got = matching(&secret("kubernetes.io/dockerconfigjson"), repository);
            let got: Vec<_> =
                got.iter().map(|c| (c.auth.username.as_str(), c.auth.password.as_str())).collect();
            assert_eq!(got, want, "{repository}");
        };
        check("host.test/team/app", &[("b", "2:3"), ("a", "1")]);
        check("host.test/other", &[("a", "1")]);
        check("busybox", &[("c", "3")]);
        check("library/busybox", &[("c", "3")]);
        check("docker.io/library/busybox", &[("c", "3")]);
        check("elsewhere.test/x", &[]);
        assert!(matching(&secret("Opaque"), "host.test/other").is_empty());
        // Upstream's: the hash of {"username":"a","password":"1"}.
        let one = matching(&secret("kubernetes.io/dockerconfigjson"), "host.test/other");
        assert_eq!(one[0].secret.credential_hash, hex(&Sha256::digest(r#"{"username":"a","password":"1"}"#)));
        assert_eq!(one[0].secret.name, "s");
    }
}
