//! The files of ConfigMap, Secret, downward API and projected volumes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::Client;
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
};
use parking_lot::Mutex;

use super::atomic::{File, Payload};
use crate::objects::{NotThere, Objects};
use crate::pods::downward::{Facts, FieldError};
use crate::pods::spec;

/// After which time a token that could not be renewed is asked for again.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

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
    #[error("failed to fetch token: the answer has none")]
    EmptyToken,
    #[error("failed to fetch token: {0}")]
    Token(Box<Status>),
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
    /// Requests with the node's identity.
    pub(super) client: Client,
    /// The time of day.
    pub(super) clock: Clock,
    /// ConfigMaps and Secrets.
    pub(super) objects: Arc<Objects>,
    /// Service account tokens.
    pub(super) tokens: Tokens,
}

/// Service account tokens of Pods, kept until they must be renewed.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<TokenKey, Token>>);

/// Pod uid, audience, lifetime asked for.
type TokenKey = (String, String, i64);

#[derive(Clone)]
struct Token {
    text: String,
    renew: Timestamp,
    expires: Timestamp,
}

impl Tokens {
    /// Forgets a Pod's tokens.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().retain(|key, _| key.0 != uid);
    }
    /// Puts off the renewal of a token that could not be renewed.
    fn retry(&self, key: &TokenKey, now: Timestamp) {
        if let Some(token) = self.0.lock().get_mut(key) {
            token.renew = now.checked_add(RENEW_AGAIN).unwrap_or(now);
        }
    }
    /// When a Pod's next token is to be renewed.
    pub(crate) fn next_renewal(&self, uid: &str) -> Option<Timestamp> {
        self.0.lock().iter().filter(|(key, _)| key.0 == uid).map(|(_, t)| t.renew).min()
    }
}

/// When a token is renewed: after 80 % of its life or a day, a little earlier for some than for others.
fn renewal(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let life = Duration::try_from(expires.duration_since(issued)).unwrap_or_default();
    let at = life.mul_f64(0.8).min(Duration::from_hours(24));
    let jitter = Duration::from_secs(10).mul_f64(fastrand::f64()).min(at / 10);
    issued.checked_add(at.saturating_sub(jitter)).unwrap_or(expires)
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

impl Sources {
    async fn token(
        &self,
        pod: &Pod,
        projection: &ServiceAccountTokenProjection,
    ) -> Result<String, PayloadError> {
        let seconds = projection.expiration_seconds.unwrap_or(3600);
        let audience = projection.audience.clone().unwrap_or_default();
        let key = (spec::uid(pod).to_owned(), audience.clone(), seconds);
        let kept = self.tokens.0.lock().get(&key).cloned();
        let now = self.clock.now();
        if let Some(token) = kept.as_ref().filter(|t| t.renew > now) {
            return Ok(token.text.clone());
        }
        let account =
            spec::spec(pod).service_account_name.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(audience).filter(|a| !a.is_empty()).map(|a| vec![a]),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(spec::name(pod).to_owned()),
                    uid: Some(spec::uid(pod).to_owned()),
                }),
                expiration_seconds: Some(seconds),
            }),
            ..TokenRequest::default()
        };
        let accounts = self.client.api::<k8s_openapi::api::core::v1::ServiceAccount>(spec::namespace(pod));
        match accounts.token(account, &request).await {
            Ok(answer) => {
                let status = answer.status.unwrap_or_default();
                let text = status.token.ok_or(PayloadError::EmptyToken)?;
                let expires = status.expiration_timestamp.map_or(now, |t| t.0);
                let token = Token { text: text.clone(), renew: renewal(now, expires), expires };
                self.tokens.0.lock().insert(key, token);
                Ok(text)
            }
            // An old token is better than none while the server is away, as long as it is one.
            Err(error) => {
                if let Some(token) = kept.filter(|t| t.expires > now) {
                    tracing::warn!(%error, pod = spec::full_name(pod), "token not renewed");
                    self.tokens.retry(&key, now);
                    Ok(token.text)
                } else {
                    self.tokens.0.lock().remove(&key);
                    Err(PayloadError::Token(Box::new(error)))
                }
            }
        }
    }

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

    async fn projected(
        &self,
        facts: &Facts<'_>,
        source: &ProjectedVolumeSource,
    ) -> Result<Payload, PayloadError> {
        let pod = facts.pod;
        let default = source.default_mode;
        let mut files = Payload::new();
        let mut errors = Vec::new();
        for part in source.sources.iter().flatten() {
            let made = if let Some(s) = &part.secret {
                self.secret(pod, &s.name, s.items.as_ref(), default, s.optional == Some(true)).await
            } else if let Some(c) = &part.config_map {
                self.config_map(pod, &c.name, c.items.as_ref(), default, c.optional == Some(true)).await
            } else if let Some(d) = &part.downward_api {
                downward(facts, d.items.as_deref().unwrap_or_default(), default)
            } else if let Some(t) = &part.service_account_token {
                let user = common_user(pod);
                let grouped = spec::spec(pod).security_context.as_ref().and_then(|c| c.fs_group).is_some();
                let mode = if user.is_some() || grouped { 0o600 } else { mode(None, default) };
                self.token(pod, t).await.map(|text| {
                    Payload::from([(t.path.clone(), File { data: text.into_bytes(), mode, owner: user })])
                })
            } else {
                Err(PayloadError::NoSource)
            };
            match made {
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
            return Some(self.projected(facts, s).await);
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

    #[test]
    fn a_token_that_cannot_be_renewed_is_asked_for_later() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let tokens = Tokens::default();
        let key = ("u".to_owned(), String::new(), 3600);
        let token = Token { text: "t".into(), renew: at(100), expires: at(200) };
        tokens.0.lock().insert(key.clone(), token);
        tokens.retry(&key, at(150));
        assert_eq!(tokens.next_renewal("u"), Some(at(160)), "not at once, again and again");
        tokens.forget("u");
        assert_eq!(tokens.next_renewal("u"), None);
    }

    #[test]
    fn tokens_are_renewed_in_time() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let r = renewal(at(0), at(3600)).as_second();
        assert!((2860..=2880).contains(&r), "{r}");
        let r = renewal(at(0), at(365 * 86400)).as_second();
        assert!((86_380..=86_400).contains(&r), "{r}");
    }
}
