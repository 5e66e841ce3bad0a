//! The files of ConfigMap, Secret, downward API and projected volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, PodCertificateProjection, ProjectedVolumeSource, Volume,
    VolumeProjection,
};

use super::atomic::{File, Payload};
use super::tokens::{Issuer, TokenError};
use crate::objects::{NotThere, Objects};
use crate::pod_certificates::{Bundle, CredentialError, PodCertificates};
use crate::pods::downward::{Facts, FieldError};
use crate::pods::spec;
use crate::trust_bundles::{TrustBundles, TrustError};

/// Why the files of a volume cannot be made; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PayloadError {
    #[error(transparent)]
    Object(#[from] NotThere),
    #[error("references non-existent {kind} key: {key}")]
    NoKey { kind: &'static str, key: String },
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("container {0} not found")]
    NoContainer(String),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Certificate(#[from] CredentialError),
    #[error("the projection has no source that this node can serve")]
    NoSource,
    #[error("[{}]", texts(.0))]
    Several(Vec<Self>),
}

fn texts(errors: &[PayloadError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The sources of the files of volumes.
pub(crate) struct Sources {
    /// ConfigMaps and Secrets.
    pub(crate) objects: Arc<Objects>,
    /// Service account tokens.
    pub(crate) issuer: Issuer,
    /// Trust anchors.
    pub(crate) trust: TrustBundles,
    /// Certificates of Pods.
    pub(crate) certificates: PodCertificates,
}

fn mode(own: Option<i32>, default: Option<i32>) -> u32 {
    u32::try_from(own.or(default).unwrap_or(0o644)).unwrap_or(0o644) & 0o7777
}

/// The files that `items` choose of `data`, or all of it.
fn select(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&Vec<KeyToPath>>,
    default_mode: Option<i32>,
    optional: bool,
    kind: &'static str,
) -> Result<Payload, PayloadError> {
    let file = |data: &Vec<u8>, own| File { data: data.clone(), mode: mode(own, default_mode), owner: None };
    let Some(items) = items.filter(|i| !i.is_empty()) else {
        return Ok(data.iter().map(|(key, data)| (key.clone(), file(data, None))).collect());
    };
    let mut files = Payload::new();
    for item in items {
        match data.get(&item.key) {
            Some(found) => {
                files.insert(item.path.clone(), file(found, item.mode));
            }
            None if optional => {}
            None => return Err(PayloadError::NoKey { kind, key: item.key.clone() }),
        }
    }
    Ok(files)
}

fn downward(
    facts: &Facts<'_>,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, PayloadError> {
    let mut files = Payload::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            facts.field(&field.field_path)?
        } else if let Some(resource) = &item.resource_field_ref {
            let name = resource.container_name.as_deref().unwrap_or_default();
            let container = spec::find_container(facts.pod, name)
                .ok_or_else(|| PayloadError::NoContainer(name.to_owned()))?;
            let divisor = resource.divisor.as_ref().map(|d| d.0.as_str());
            facts.resource(&container, &resource.resource, divisor)?
        } else {
            continue;
        };
        let file = File { data: text.into_bytes(), mode: mode(item.mode, default_mode), owner: None };
        files.insert(item.path.clone(), file);
    }
    Ok(files)
}

/// The one user that all containers run as, if there is one.
fn common_user(pod: &Pod) -> Option<u32> {
    let users: Vec<Option<i64>> = spec::init_containers(pod)
        .iter()
        .chain(spec::containers(pod))
        .map(|c| crate::pods::security::effective(pod, c).run_as_user)
        .collect();
    let first = *users.first()?;
    users.iter().all(|u| *u == first).then_some(first).flatten().and_then(|u| u32::try_from(u).ok())
}

/// A file for the containers' user alone, if they have one user or a group.
fn own_file(pod: &Pod, text: String, default: Option<i32>) -> File {
    let owner = common_user(pod);
    let grouped = spec::spec(pod).security_context.as_ref().and_then(|c| c.fs_group).is_some();
    let mode = if owner.is_some() || grouped { 0o600 } else { mode(None, default) };
    File { data: text.into_bytes(), mode, owner }
}

/// The files of a certificate and its key: paths and texts.
fn credentials(source: &PodCertificateProjection, bundle: &Bundle) -> Vec<(String, String)> {
    let (key, chain) = (bundle.key.expose(), &*bundle.chain);
    let files = [
        (&source.credential_bundle_path, [key, chain].concat()),
        (&source.key_path, key.to_owned()),
        (&source.certificate_chain_path, chain.to_owned()),
    ];
    let named = files.into_iter().filter_map(|(path, text)| Some((path.clone()?, text)));
    named.filter(|(path, _)| !path.is_empty()).collect()
}

impl Sources {
    async fn config_map(
        &self,
        pod: &Pod,
        name: &str,
        items: Option<&Vec<KeyToPath>>,
        default_mode: Option<i32>,
        optional: bool,
    ) -> Result<Payload, PayloadError> {
        let data = match self.objects.config_map(spec::namespace(pod), name).await {
            Ok(map) => {
                let texts = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
                texts.chain(map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()))).collect()
            }
            Err(NotThere::Missing(_)) if optional => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        select(&data, items, default_mode, optional, "config")
    }

    async fn secret(
        &self,
        pod: &Pod,
        name: &str,
        items: Option<&Vec<KeyToPath>>,
        default_mode: Option<i32>,
        optional: bool,
    ) -> Result<Payload, PayloadError> {
        let data = match self.objects.secret(spec::namespace(pod), name).await {
            Ok(secret) => secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect(),
            Err(NotThere::Missing(_)) if optional => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        select(&data, items, default_mode, optional, "secret")
    }

    /// The files of one source of a projected volume, which has a place among others.
    async fn part(
        &self,
        facts: &Facts<'_>,
        (volume, number): (&str, usize),
        part: &VolumeProjection,
        default: Option<i32>,
    ) -> Result<Payload, PayloadError> {
        let pod = facts.pod;
        if let Some(s) = &part.secret {
            self.secret(pod, &s.name, s.items.as_ref(), default, s.optional == Some(true)).await
        } else if let Some(c) = &part.config_map {
            self.config_map(pod, &c.name, c.items.as_ref(), default, c.optional == Some(true)).await
        } else if let Some(d) = &part.downward_api {
            downward(facts, d.items.as_deref().unwrap_or_default(), default)
        } else if let Some(t) = &part.service_account_token {
            let audience = t.audience.as_deref().unwrap_or_default();
            let token = self.issuer.token(pod, audience, t.expiration_seconds.unwrap_or(3600)).await?;
            Ok(Payload::from([(t.path.clone(), own_file(pod, token.text, default))]))
        } else if let Some(t) = &part.cluster_trust_bundle {
            let anchors = self.trust.anchors(t).await?;
            Ok(Payload::from([(t.path.clone(), own_file(pod, anchors, default))]))
        } else if let Some(c) = &part.pod_certificate {
            let bundle = self.certificates.bundle(pod, volume, number)?;
            let files = credentials(c, &bundle).into_iter();
            Ok(files.map(|(path, text)| (path, own_file(pod, text, default))).collect())
        } else {
            Err(PayloadError::NoSource)
        }
    }

    async fn projected(
        &self,
        facts: &Facts<'_>,
        name: &str,
        source: &ProjectedVolumeSource,
    ) -> Result<Payload, PayloadError> {
        let mut files = Payload::new();
        let mut errors = Vec::new();
        for (number, part) in source.sources.iter().flatten().enumerate() {
            match self.part(facts, (name, number), part, source.default_mode).await {
                Ok(more) => files.extend(more),
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(files),
            1 => Err(errors.remove(0)),
            _ => Err(PayloadError::Several(errors)),
        }
    }

    /// The files of a volume; none if it is not of files.
    pub(crate) async fn of_volume(
        &self,
        facts: &Facts<'_>,
        volume: &Volume,
    ) -> Option<Result<Payload, PayloadError>> {
        let pod = facts.pod;
        if let Some(s) = &volume.config_map {
            return Some(
                self.config_map(pod, &s.name, s.items.as_ref(), s.default_mode, s.optional == Some(true))
                    .await,
            );
        }
        if let Some(s) = &volume.secret {
            let name = s.secret_name.as_deref().unwrap_or_default();
            return Some(
                self.secret(pod, name, s.items.as_ref(), s.default_mode, s.optional == Some(true)).await,
            );
        }
        if let Some(s) = &volume.downward_api {
            return Some(downward(facts, s.items.as_deref().unwrap_or_default(), s.default_mode));
        }
        if let Some(s) = &volume.projected {
            return Some(self.projected(facts, &volume.name, s).await);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_files() {
        let data = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]);
        let item = |key: &str, path: &str, mode| KeyToPath { key: key.into(), path: path.into(), mode };
        let check = |items: Option<Vec<KeyToPath>>, optional, want: Result<Vec<(&str, u32)>, &str>| {
            let got = select(&data, items.as_ref(), Some(0o600), optional, "config");
            let got = got.map(|p| p.into_iter().map(|(path, f)| (path, f.mode)).collect::<Vec<_>>());
            let got = got.map_err(|e| e.to_string());
            let want =
                want.map(|w| w.into_iter().map(|(p, m)| (p.to_owned(), m)).collect()).map_err(str::to_owned);
            assert_eq!(got, want);
        };
        check(None, false, Ok(vec![("a", 0o600), ("b", 0o600)]));
        check(Some(vec![item("a", "x/y", Some(0o400))]), false, Ok(vec![("x/y", 0o400)]));
        check(Some(vec![item("c", "x", None)]), false, Err("references non-existent config key: c"));
        check(Some(vec![item("c", "x", None)]), true, Ok(vec![]));
    }

    /// 8 of upstream's 9 cases of a Secret's `TestMakePayload`, of which two say the same, and which the tables of projected
    /// volumes repeat; the 11 of a ConfigMap's differ from them in where the data come from.
    #[test]
    fn items_choose_files() {
        let data = BTreeMap::from([("foo".to_owned(), b"foo".to_vec()), ("bar".to_owned(), b"bar".to_vec())]);
        let check = |items: &[(&str, &str, Option<i32>)],
                     optional: bool,
                     expected: Option<&[(&str, &str, u32)]>| {
            let items: Vec<_> = items
                .iter()
                .map(|(key, path, mode)| KeyToPath { key: (*key).into(), path: (*path).into(), mode: *mode })
                .collect();
            let got = select(&data, Some(&items), Some(0o644), optional, "secret").ok();
            let expected: Option<Payload> = expected.map(|all| {
                let file = |text: &str, mode| File { data: text.into(), mode, owner: None };
                all.iter().map(|(path, text, mode)| ((*path).to_owned(), file(text, *mode))).collect()
            });
            assert_eq!(got, expected, "{items:?}");
        };
        check(&[], false, Some(&[("foo", "foo", 0o644), ("bar", "bar", 0o644)]));
        check(&[("foo", "path/to/foo.txt", None)], false, Some(&[("path/to/foo.txt", "foo", 0o644)]));
        let deep = "path/to/1/2/3/foo.txt";
        check(&[("foo", deep, None)], false, Some(&[(deep, "foo", 0o644)]));
        let other = "another/path/to/the/esteemed/bar.bin";
        check(
            &[("foo", deep, None), ("bar", other, None)],
            false,
            Some(&[(deep, "foo", 0o644), (other, "bar", 0o644)]),
        );
        check(&[("zab", "path/to/foo.txt", None)], false, None);
        check(
            &[("foo", "foo.txt", Some(0o400)), ("bar", "bar.bin", Some(0o400))],
            false,
            Some(&[("foo.txt", "foo", 0o400), ("bar.bin", "bar", 0o400)]),
        );
        check(
            &[("foo", "foo.txt", None), ("bar", "bar.bin", None)],
            false,
            Some(&[("foo.txt", "foo", 0o644), ("bar.bin", "bar", 0o644)]),
        );
        check(&[("zab", "path/to/foo.txt", None)], true, Some(&[]));
    }

    /// Upstream's 5 cases of `TestFsUserFrom`: the users of the init container, the two others, and the ephemeral one.
    #[test]
    fn containers_may_have_one_user() {
        let check = |init: &[Option<i64>],
                     regular: &[Option<i64>],
                     ephemeral: Option<i64>,
                     expected: Option<u32>| {
            let of = |users: &[Option<i64>]| -> Vec<serde_json::Value> {
                let one = |user: &Option<i64>| serde_json::json!({"name": "c", "securityContext": {"runAsUser": user}});
                users.iter().map(one).collect()
            };
            let pod = serde_json::json!({"spec": {"securityContext": {}, "initContainers": of(init),
                "containers": of(regular), "ephemeralContainers": of(&[ephemeral])}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(common_user(&pod), expected, "{init:?} {regular:?}");
        };
        check(&[], &[], None, None);
        check(&[Some(1000)], &[Some(1000), None], None, None);
        check(&[Some(999)], &[Some(1000), Some(1000)], Some(1001), None);
        check(&[Some(1000)], &[Some(1000), Some(1000)], None, Some(1000));
        check(&[Some(1000)], &[Some(1000), Some(1000)], Some(1000), Some(1000));
    }
}
