//! The credentials that a Pod brings for an image: those of its image pull secrets, of the node's files, and of credential
//! providers.

use k8s_openapi::api::core::v1::{Pod, Secret};

use super::credential::{Credential, Entry, PullAccount, PullSecret, Source, entries, hash};
use super::keyring::Keyring;
use super::names;
use super::node_files::NodeFiles;
use crate::credential_providers::{Provided, Providers};
use crate::objects::Objects;
use crate::pods::spec;
use crate::recorder::PodRecorder;

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use serde_json::json;
    use sha2::{Digest, Sha256};

    use super::super::credential::hex;
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
