//! Values in etcd that are encrypted, in upstream's forms and by upstream's configuration
//! (`--encryption-provider-config`). The first provider of a resource writes, any of them reads.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::codec::json;
use api::{FeatureGates, Gate};
use aws_lc_rs::aead::LessSafeKey;
use aws_lc_rs::cipher::Algorithm;
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component::{Clock, Shutdown};
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead, KeyInit};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use storage::CodecError;

use super::failed::failed;
use super::kms::Kms;
use super::kms_v1::KmsV1;
use super::probe::{self, Probed};
use super::{cbc, gcm};

/// The beginning of every encrypted value; then come the method, a version and the name of a key.
const MARK: &[u8] = b"k8s:enc:";
/// The beginning of the values whose keys a KMS has.
const KMS_MARK: &[u8] = b"k8s:enc:kms:";
/// How many decrypted keys a provider of KMS v1 keeps by default; upstream's number.
const CACHE_SIZE: usize = 1000;
/// The length of the nonce before the bytes that a secretbox encrypted.
const BOX_NONCE: usize = 24;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--encryption-provider-config {}: {why}", file.display())]
pub struct EncryptionError {
    file: PathBuf,
    why: String,
}

/// How the values of which resource are encrypted; by default none is.
#[derive(Default)]
pub struct Encryption {
    /// By resource as the configuration names it: `secrets`, `deployments.apps`, `*.apps`, `*.*`.
    resources: HashMap<String, Vec<Arc<Provider>>>,
}

struct Provider {
    /// The beginning of its values: `k8s:enc:aescbc:v1:key1:`; nothing for values as they are.
    prefix: String,
    method: Method,
}

enum Method {
    Identity,
    AesCbc(&'static Algorithm, Box<[u8]>),
    AesGcm(Box<LessSafeKey>),
    Secretbox(Box<XSalsa20Poly1305>),
    Kms(Arc<Kms>),
    KmsV1(Arc<KmsV1>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    kind: String,
    api_version: String,
    resources: Vec<Resources>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    resources: Vec<String>,
    providers: Vec<Providers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Providers {
    identity: Option<serde_json::Value>,
    aescbc: Option<Keys>,
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    kms: Option<KmsConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KmsConfig {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    endpoint: String,
    timeout: Option<String>,
    #[serde(rename = "cachesize")]
    cache_size: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    secret: String,
}

impl Encryption {
    /// Reads a configuration. The providers of KMS v1 are behind the gate `KMSv1`.
    pub fn from_file(file: &Path, gates: FeatureGates) -> Result<Self, EncryptionError> {
        Self::with_text(file, gates).map(|(encryption, _)| encryption)
    }

    /// Reads a configuration, and returns its text, too.
    pub(super) fn with_text(file: &Path, gates: FeatureGates) -> Result<(Self, Vec<u8>), EncryptionError> {
        let failed = |why: String| EncryptionError { file: file.to_owned(), why };
        let text = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
        Ok((Self::parse(&text, gates.enabled(Gate::KMSv1)).map_err(failed)?, text))
    }

    fn parse(text: &[u8], kms_v1: bool) -> Result<Self, String> {
        let mut json = Vec::new();
        json::encode_any(&api::yaml::parse(text).map_err(|e| e.to_string())?, &mut json);
        let config: Config = serde_json::from_slice(&json).map_err(|e| e.to_string())?;
        if (config.kind.as_str(), config.api_version.as_str())
            != ("EncryptionConfiguration", "apiserver.config.k8s.io/v1")
        {
            return Err(format!(
                "it is a {} of {}: want an EncryptionConfiguration of apiserver.config.k8s.io/v1",
                config.kind, config.api_version
            ));
        }
        let mut resources: HashMap<String, Vec<Arc<Provider>>> = HashMap::new();
        let mut named = HashSet::new();
        for entry in config.resources {
            if entry.resources.is_empty() || entry.providers.is_empty() {
                return Err("an entry names no resources or no providers".into());
            }
            let mut providers = Vec::new();
            for provider in &entry.providers {
                provider.add_to(&mut providers, &mut named, kms_v1)?;
            }
            for name in entry.resources {
                let of_it = resources.entry(name.trim_end_matches('.').to_owned()).or_default();
                of_it.extend(providers.iter().cloned());
            }
        }
        Ok(Self { resources })
    }

    /// Asks the plugins of all KMS providers how they are, and again and again until shutdown. Must be called before
    /// values of theirs are written.
    pub async fn start(&self, shutdown: &Shutdown) {
        for provider in self.with_plugins() {
            match &provider.method {
                Method::Kms(kms) => probe::start(kms, shutdown).await,
                Method::KmsV1(kms) => probe::start(kms, shutdown).await,
                _ => {}
            }
        }
    }

    /// Whether a plugin has any of its keys.
    pub(crate) fn has_plugins(&self) -> bool {
        !self.with_plugins().is_empty()
    }

    /// Whether the plugins of all KMS providers were well when they were last asked.
    pub(crate) fn healthy(&self) -> Result<(), String> {
        self.with_plugins().iter().try_for_each(|provider| match &provider.method {
            Method::Kms(kms) => kms.probe().healthy(),
            Method::KmsV1(kms) => kms.probe().healthy(),
            _ => Ok(()),
        })
    }

    /// Every KMS provider once.
    fn with_plugins(&self) -> Vec<Arc<Provider>> {
        let mut all: Vec<Arc<Provider>> = Vec::new();
        for provider in self.resources.values().flatten() {
            if matches!(provider.method, Method::Kms(_) | Method::KmsV1(_))
                && !all.iter().any(|known| Arc::ptr_eq(known, provider))
            {
                all.push(Arc::clone(provider));
            }
        }
        all
    }

    /// Has a KMS plugin encrypt the key of a value that is to be written, if each has its own.
    pub(super) fn prepare_write(
        &self,
        group: &str,
        plural: &str,
    ) -> Option<BoxFuture<'static, Result<(), CodecError>>> {
        match &self.providers(group, plural).first()?.method {
            Method::KmsV1(kms) => {
                let kms = Arc::clone(kms);
                Some(async move { kms.prepare_write().await }.boxed())
            }
            _ => None,
        }
    }

    /// Fetches the key of a value from a KMS plugin, if one has it.
    pub(super) fn prepare<'a>(
        &self,
        group: &str,
        plural: &str,
        value: &'a [u8],
    ) -> Option<BoxFuture<'a, Result<(), CodecError>>> {
        if !value.starts_with(KMS_MARK) {
            return None;
        }
        self.providers(group, plural).iter().find_map(|provider| {
            let sealed = || value.strip_prefix(provider.prefix.as_bytes());
            match &provider.method {
                Method::Kms(kms) => {
                    let (kms, sealed) = (Arc::clone(kms), sealed()?);
                    Some(async move { kms.prepare(sealed).await }.boxed())
                }
                Method::KmsV1(kms) => {
                    let (kms, sealed) = (Arc::clone(kms), sealed()?);
                    Some(async move { kms.prepare(sealed).await }.boxed())
                }
                _ => None,
            }
        })
    }

    fn providers(&self, group: &str, plural: &str) -> &[Arc<Provider>] {
        let exact = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let of_group = if group.is_empty() { "*".to_owned() } else { format!("*.{group}") };
        let found = [exact.as_str(), &of_group, "*.*"].into_iter().find_map(|name| self.resources.get(name));
        found.map_or(&[], Vec::as_slice)
    }

    /// A value as it is written at a key.
    pub(super) fn seal(
        &self,
        (group, plural): (&str, &str),
        key: &[u8],
        value: Vec<u8>,
    ) -> Result<Vec<u8>, CodecError> {
        match self.providers(group, plural).first() {
            None => Ok(value),
            Some(provider) => {
                let sealed = match &provider.method {
                    Method::Kms(kms) => kms.seal(key, value)?,
                    Method::KmsV1(kms) => kms.seal(key, value)?,
                    _ => return provider.seal(key, value).ok_or_else(|| failed("it cannot be encrypted")),
                };
                Ok([provider.prefix.as_bytes(), &sealed].concat())
            }
        }
    }

    /// Decrypts a value that was read at a key, and tells whether it would be written in another form.
    pub(super) fn open<'v>(
        &self,
        (group, plural): (&str, &str),
        key: &[u8],
        value: &'v [u8],
    ) -> Result<(Cow<'v, [u8]>, bool), CodecError> {
        let providers = self.providers(group, plural);
        if !value.starts_with(MARK) {
            let stale = providers.first().is_some_and(|p| !p.prefix.is_empty());
            if stale && !providers.iter().any(|p| p.prefix.is_empty()) {
                return Err(failed(
                    "it is not encrypted, and --encryption-provider-config allows only what is: add `identity` as \
                     the last provider of its resource",
                ));
            }
            return Ok((Cow::Borrowed(value), stale));
        }
        let matching = |p: &&Arc<Provider>| !p.prefix.is_empty() && value.starts_with(p.prefix.as_bytes());
        let Some(at) = providers.iter().position(|p| matching(&p)) else { return Err(no_key(value)) };
        let provider = &providers[at];
        let sealed = &value[provider.prefix.len()..];
        match &provider.method {
            Method::Kms(kms) => {
                let (opened, stale) = kms.open(key, sealed)?;
                return Ok((Cow::Owned(opened), stale || at > 0));
            }
            Method::KmsV1(kms) => return Ok((Cow::Owned(kms.open(key, sealed)?), at > 0)),
            _ => {}
        }
        let opened = provider.open(key, sealed).ok_or_else(|| {
            failed(format!(
                "it cannot be decrypted with the key {}: the key is another than it was written with, or the value is \
                 damaged or of another etcd key",
                provider.prefix.trim_end_matches(':')
            ))
        })?;
        Ok((Cow::Owned(opened), at > 0))
    }
}

/// The error for a value that no provider reads.
fn no_key(value: &[u8]) -> CodecError {
    let head = value.splitn(6, |b| *b == b':').take(5).collect::<Vec<_>>().join(&b':');
    let head = String::from_utf8_lossy(&head[..head.len().min(100)]).into_owned();
    failed(format!(
        "it is encrypted ({head}), and there is no key for it: name the configuration that it was written with by \
         --encryption-provider-config"
    ))
}

impl Providers {
    fn add_to(
        &self,
        all: &mut Vec<Arc<Provider>>,
        named: &mut HashSet<String>,
        kms_v1: bool,
    ) -> Result<(), String> {
        if let Some(kms) = &self.kms {
            if !named.insert(kms.name.clone()) {
                return Err(format!("duplicate KMS provider name {}, names must be unique", kms.name));
            }
            all.push(Arc::new(kms.provider(kms_v1)?));
        }
        if self.identity.is_some() {
            all.push(Arc::new(Provider { prefix: String::new(), method: Method::Identity }));
        }
        for (name, keys) in
            [("aescbc", &self.aescbc), ("aesgcm", &self.aesgcm), ("secretbox", &self.secretbox)]
        {
            let Some(keys) = keys else { continue };
            if keys.keys.is_empty() {
                return Err(format!("the provider {name} has no keys"));
            }
            for key in &keys.keys {
                let bad = |why: String| format!("key {:?} of {name}: {why}", key.name);
                if key.name.is_empty() || key.name.contains(':') {
                    return Err(bad("its name must be there, and have no colon".into()));
                }
                let secret = STANDARD
                    .decode(&key.secret)
                    .map_err(|e| bad(format!("its secret is not base64: {e}")))?;
                let method = Method::new(name, &secret).ok_or_else(|| {
                    let want = if name == "secretbox" { "32" } else { "16, 24 or 32" };
                    bad(format!("its secret has {} bytes, want {want}", secret.len()))
                })?;
                let prefix = format!("k8s:enc:{name}:v1:{}:", key.name);
                all.push(Arc::new(Provider { prefix, method }));
            }
        }
        Ok(())
    }
}

impl KmsConfig {
    /// Upstream's rules, in its words.
    fn provider(&self, v1_allowed: bool) -> Result<Provider, String> {
        // Upstream's default.
        let v1 = matches!(self.api_version.as_str(), "" | "v1");
        if !v1 && self.api_version != "v2" {
            return Err(format!(
                "unsupported apiVersion {} for KMS provider, only v1 and v2 are supported",
                self.api_version
            ));
        }
        let name = &self.name;
        if name.is_empty() {
            return Err("name is a mandatory field for a kms".into());
        }
        if !v1 && name.contains(':') {
            return Err(format!("invalid KMS provider name {name}, must not contain ':'"));
        }
        let timeout = api::time::parse_duration(self.timeout.as_deref().unwrap_or("3s"))
            .and_then(|d| Duration::try_from(d).ok())
            .filter(|d| !d.is_zero())
            .ok_or("timeout should be a positive value")?;
        if self.endpoint.is_empty() {
            return Err("endpoint is a mandatory field for a kms".into());
        }
        let no_socket =
            || format!("invalid endpoint for kms provider, error: {:?} is no unix:///PATH", self.endpoint);
        let (version, method) = if v1 {
            // DIFFERENCE: a negative number keeps no keys upstream, and the usual number here, where what decrypts a
            // value is fetched before it is decoded.
            let kept = match self.cache_size {
                Some(0) => return Err("cachesize should be a nonzero value".into()),
                size => size.and_then(|n| usize::try_from(n).ok()).unwrap_or(CACHE_SIZE),
            };
            if !v1_allowed {
                return Err(
                    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  \
                     Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
                        .into(),
                );
            }
            let plugin = kms::PluginV1::new(&self.endpoint, timeout).ok_or_else(no_socket)?;
            ("v1", Method::KmsV1(Arc::new(KmsV1::new(name.clone(), plugin, Clock::system(), kept))))
        } else {
            if self.cache_size.is_some() {
                return Err("cachesize is not supported in v2".into());
            }
            let plugin = kms::Plugin::new(&self.endpoint, timeout).ok_or_else(no_socket)?;
            ("v2", Method::Kms(Arc::new(Kms::new(name.clone(), plugin, Clock::system()))))
        };
        Ok(Provider { prefix: format!("k8s:enc:kms:{version}:{name}:"), method })
    }
}

impl Method {
    /// `None` if the secret has the wrong length.
    fn new(name: &str, secret: &[u8]) -> Option<Self> {
        match name {
            "aescbc" => Some(Self::AesCbc(cbc::algorithm(secret.len())?, secret.into())),
            "aesgcm" => Some(Self::AesGcm(Box::new(gcm::key(secret)?))),
            _ => Some(Self::Secretbox(Box::new(XSalsa20Poly1305::new_from_slice(secret).ok()?))),
        }
    }
}

impl Provider {
    /// With a key of the configuration; the plugins' answers say more.
    fn seal(&self, key: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
        let first = self.prefix.clone().into_bytes();
        match &self.method {
            Method::Identity => Some(value),
            Method::Kms(_) | Method::KmsV1(_) => None,
            Method::AesCbc(algorithm, secret) => cbc::seal(algorithm, secret, value, first),
            Method::AesGcm(sealing) => gcm::seal(sealing, key, value, first),
            Method::Secretbox(sealing) => {
                let mut nonce = [0; BOX_NONCE];
                rand::fill(&mut nonce).ok()?;
                let sealed = sealing.encrypt(&nonce.into(), value.as_slice()).ok()?;
                Some([&first[..], &nonce, &sealed].concat())
            }
        }
    }

    fn open(&self, key: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        match &self.method {
            Method::Identity => Some(sealed.to_vec()),
            Method::Kms(_) | Method::KmsV1(_) => None,
            Method::AesCbc(algorithm, secret) => cbc::open(algorithm, secret, sealed),
            Method::AesGcm(opening) => gcm::open(opening, key, sealed),
            Method::Secretbox(opening) => {
                let (nonce, sealed) = sealed.split_first_chunk::<BOX_NONCE>()?;
                opening.decrypt(nonce.into(), sealed).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: (&str, &str) = ("", "secrets");

    fn config(providers: &str) -> Result<Encryption, String> {
        let head = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n";
        Encryption::parse(
            format!("{head}- resources: [secrets, '*.apps']\n  providers:\n{providers}").as_bytes(),
            false,
        )
    }

    fn key(method: &str, name: &str, bytes: usize) -> String {
        format!("  - {method}: {{keys: [{{name: {name}, secret: {}}}]}}\n", STANDARD.encode(vec![7; bytes]))
    }

    #[test]
    fn there_and_back() {
        let value = b"k8s\0 some value, longer than a block";
        for (method, bytes) in [
            ("aescbc", 16),
            ("aescbc", 24),
            ("aescbc", 32),
            ("aesgcm", 16),
            ("aesgcm", 32),
            ("secretbox", 32),
        ] {
            let encryption = config(&key(method, "k1", bytes)).unwrap();
            let sealed = encryption.seal(SECRETS, b"/registry/secrets/a/b", value.to_vec()).unwrap();
            assert!(sealed.starts_with(format!("k8s:enc:{method}:v1:k1:").as_bytes()), "{method}");
            assert!(!sealed.windows(4).any(|w| w == b"some"));
            let (opened, stale) = encryption.open(SECRETS, b"/registry/secrets/a/b", &sealed).unwrap();
            assert_eq!((opened.as_ref(), stale), (&value[..], false), "{method} {bytes}");
            let again = encryption.seal(SECRETS, b"/registry/secrets/a/b", value.to_vec()).unwrap();
            assert_ne!(again, sealed, "every value has its own nonce");
            for cut in [0, 1, 20, sealed.len() - 30] {
                assert!(
                    encryption.open(SECRETS, b"x", &sealed[..sealed.len() - cut - 1]).is_err(),
                    "{method} {cut}"
                );
            }
            let other = config(&key(method, "k2", bytes)).unwrap();
            let error = other.open(SECRETS, b"/registry/secrets/a/b", &sealed).unwrap_err().to_string();
            assert!(error.contains(&format!("it is encrypted (k8s:enc:{method}:v1:k1)")), "{error}");
        }
        // A value of another key in etcd is not taken for its own.
        let gcm = config(&key("aesgcm", "k1", 32)).unwrap();
        let sealed = gcm.seal(SECRETS, b"/registry/secrets/a/b", value.to_vec()).unwrap();
        assert!(gcm.open(SECRETS, b"/registry/secrets/a/c", &sealed).is_err());
    }

    #[test]
    fn which_provider() {
        let both = config(&(key("secretbox", "new", 32) + &key("aescbc", "old", 32) + "  - identity: {}\n"))
            .unwrap();
        let old = config(&key("aescbc", "old", 32)).unwrap();
        let sealed = old.seal(SECRETS, b"k", b"v".to_vec()).unwrap();
        assert_eq!(both.open(SECRETS, b"k", &sealed).unwrap(), (Cow::Borrowed(&b"v"[..]), true));
        assert_eq!(both.open(SECRETS, b"k", b"plain").unwrap(), (Cow::Borrowed(&b"plain"[..]), true));
        assert!(old.open(SECRETS, b"k", b"plain").unwrap_err().to_string().contains("add `identity`"));
        assert!(
            both.seal(("apps", "deployments"), b"k", b"v".to_vec())
                .unwrap()
                .starts_with(b"k8s:enc:secretbox:")
        );
        for other in [("", "configmaps"), ("batch", "jobs")] {
            assert_eq!(both.seal(other, b"k", b"v".to_vec()).unwrap(), b"v");
            assert_eq!(both.open(other, b"k", b"v").unwrap(), (Cow::Borrowed(&b"v"[..]), false));
        }
        let none = Encryption::default();
        assert!(
            none.open(SECRETS, b"k", &sealed)
                .unwrap_err()
                .to_string()
                .contains("by --encryption-provider-config")
        );
    }

    #[test]
    fn bad_configurations() {
        let check = |providers: &str, expected: &str| {
            let error = config(providers).err().unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        };
        check(&key("aescbc", "k", 31), "has 31 bytes, want 16, 24 or 32");
        check(&key("secretbox", "k", 16), "has 16 bytes, want 32");
        check("  - aesgcm: {keys: []}\n", "has no keys");
        check("  - aesgcm: {keys: [{name: 'a:b', secret: ''}]}\n", "have no colon");
        check("  - aesgcm: {keys: [{name: a, secret: '!'}]}\n", "is not base64");
        check("  - kms: {name: x, endpoint: 'unix:///a'}\n", "KMSv1 is deprecated");
        check("  - kms: {name: x, endpoint: 'unix:///a', cachesize: 0}\n", "cachesize");
        check("  - kms: {name: x, apiVersion: v3}\n", "unsupported apiVersion v3");
        check("  - kms: {apiVersion: v2}\n", "name is a mandatory field");
        check("  - kms: {name: 'a:b', apiVersion: v2}\n", "must not contain ':'");
        check("  - kms: {name: x, apiVersion: v2}\n", "endpoint is a mandatory field");
        check("  - kms: {name: x, apiVersion: v2, endpoint: 'http://a'}\n", "is no unix:///PATH");
        check("  - kms: {name: x, apiVersion: v2, endpoint: 'unix:///a', timeout: -1s}\n", "positive value");
        check("  - kms: {name: x, apiVersion: v2, endpoint: 'unix:///a', cachesize: 5}\n", "cachesize");
        check("  - rot13: {}\n", "rot13");
        assert!(Encryption::parse(b"kind: Pod\napiVersion: v1\nresources: []\n", false).is_err());
        assert!(Encryption::parse(b"{", false).is_err());
        let error = Encryption::from_file(Path::new("/nonexistent"), FeatureGates::default())
            .err()
            .unwrap()
            .to_string();
        assert!(error.starts_with("--encryption-provider-config /nonexistent: "), "{error}");
    }
}
