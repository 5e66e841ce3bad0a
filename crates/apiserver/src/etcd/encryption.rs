//! Values in etcd that are encrypted, in upstream's forms and by upstream's configuration
//! (`--encryption-provider-config`). The first provider of a resource writes, any of them reads.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::codec::json;
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce};
use aws_lc_rs::cipher::{
    self, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::iv::FixedLength;
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

use super::failed;
use super::kms::Kms;
use crate::health::Check;

/// What every encrypted value begins with; then come the method, a version and the name of a key.
const MARK: &[u8] = b"k8s:enc:";
/// What those begin with whose keys a KMS has.
const KMS_MARK: &[u8] = b"k8s:enc:kms:";
/// What stands before the encrypted bytes: the initialization vector or nonce.
const IV: usize = 16;
const GCM_NONCE: usize = 12;
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
    /// What its values begin with: `k8s:enc:aescbc:v1:key1:`; nothing for values as they are.
    prefix: String,
    method: Method,
}

enum Method {
    Identity,
    AesCbc(&'static cipher::Algorithm, Box<[u8]>),
    AesGcm(Box<LessSafeKey>),
    Secretbox(Box<XSalsa20Poly1305>),
    Kms(Arc<Kms>),
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
    /// Reads a configuration.
    pub fn from_file(file: &Path) -> Result<Self, EncryptionError> {
        let failed = |why: String| EncryptionError { file: file.to_owned(), why };
        let text = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
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
                provider.add_to(&mut providers, &mut named)?;
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
        for kms in self.kms() {
            kms.start(shutdown).await;
        }
    }

    /// The check of the health of all KMS providers; `None` if there is none.
    pub(crate) fn health(&self) -> Option<Check> {
        let all: Vec<_> = self.kms().into_iter().cloned().collect();
        let check = move || all.iter().try_for_each(|kms| kms.healthy());
        (!self.kms().is_empty()).then(|| Arc::new(check) as Check)
    }

    /// Every KMS provider once.
    fn kms(&self) -> Vec<&Arc<Kms>> {
        let mut all: Vec<&Arc<Kms>> = Vec::new();
        for provider in self.resources.values().flatten() {
            if let Method::Kms(kms) = &provider.method
                && !all.iter().any(|known| Arc::ptr_eq(known, kms))
            {
                all.push(kms);
            }
        }
        all
    }

    /// Fetches the key of a value from a KMS plugin, if one has it.
    pub(super) fn prepare<'a>(
        &'a self,
        group: &str,
        plural: &str,
        value: &'a [u8],
    ) -> Option<BoxFuture<'a, Result<(), CodecError>>> {
        if !value.starts_with(KMS_MARK) {
            return None;
        }
        self.providers(group, plural).iter().find_map(|provider| match &provider.method {
            Method::Kms(kms) => {
                let sealed = value.strip_prefix(provider.prefix.as_bytes())?;
                Some(kms.prepare(sealed).boxed())
            }
            _ => None,
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
            Some(provider) => match &provider.method {
                Method::Kms(kms) => {
                    let sealed = kms.seal(key, value)?;
                    Ok([provider.prefix.as_bytes(), &sealed].concat())
                }
                _ => provider.seal(key, value).map_err(|_| failed("it cannot be encrypted")),
            },
        }
    }

    /// What a value says that was read at a key, and whether it would be written in another form.
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
        if let Method::Kms(kms) = &provider.method {
            let (opened, stale) = kms.open(key, sealed)?;
            return Ok((Cow::Owned(opened), stale || at > 0));
        }
        let opened = provider.open(key, sealed);
        let opened = opened.map_err(|_| {
            failed(format!(
                "it cannot be decrypted with the key {}: the key is another than it was written with, or the value is \
                 damaged or of another etcd key",
                provider.prefix.trim_end_matches(':')
            ))
        })?;
        Ok((Cow::Owned(opened), at > 0))
    }
}

/// What is said of a value that no provider reads.
fn no_key(value: &[u8]) -> CodecError {
    let head = value.splitn(6, |b| *b == b':').take(5).collect::<Vec<_>>().join(&b':');
    let head = String::from_utf8_lossy(&head[..head.len().min(100)]).into_owned();
    let hint = if head.starts_with("k8s:enc:kms:v1:") {
        "version 1 of KMS is not known here: let kube-apiserver write it with another provider first"
    } else {
        "name the configuration that it was written with by --encryption-provider-config"
    };
    failed(format!("it is encrypted ({head}), and there is no key for it: {hint}"))
}

impl Providers {
    fn add_to(&self, all: &mut Vec<Arc<Provider>>, named: &mut HashSet<String>) -> Result<(), String> {
        if let Some(kms) = &self.kms {
            if !named.insert(kms.name.clone()) {
                return Err(format!("duplicate KMS provider name {}, names must be unique", kms.name));
            }
            all.push(Arc::new(kms.provider()?));
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
    fn provider(&self) -> Result<Provider, String> {
        match self.api_version.as_str() {
            "v2" => {}
            "" | "v1" => {
                return Err(
                    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 \
                            instead: set `apiVersion: v2`"
                        .into(),
                );
            }
            other => {
                return Err(format!(
                    "unsupported apiVersion {other} for KMS provider, only v1 and v2 are supported"
                ));
            }
        }
        let name = &self.name;
        if name.is_empty() {
            return Err("name is a mandatory field for a kms".into());
        }
        if name.contains(':') {
            return Err(format!("invalid KMS provider name {name}, must not contain ':'"));
        }
        if self.cache_size.is_some() {
            return Err("cachesize is not supported in v2".into());
        }
        let timeout = api::time::parse_duration(self.timeout.as_deref().unwrap_or("3s"))
            .and_then(|d| Duration::try_from(d).ok())
            .filter(|d| !d.is_zero())
            .ok_or("timeout should be a positive value")?;
        if self.endpoint.is_empty() {
            return Err("endpoint is a mandatory field for a kms".into());
        }
        let plugin = kms::Plugin::new(&self.endpoint, timeout).ok_or_else(|| {
            format!("invalid endpoint for kms provider, error: {:?} is no unix:///PATH", self.endpoint)
        })?;
        let kms = Kms::new(name.clone(), plugin, Clock::system());
        Ok(Provider { prefix: format!("k8s:enc:kms:v2:{name}:"), method: Method::Kms(Arc::new(kms)) })
    }
}

impl Method {
    /// `None` if the secret has the wrong length.
    fn new(name: &str, secret: &[u8]) -> Option<Self> {
        match name {
            "aescbc" => {
                let algorithm = match secret.len() {
                    16 => &cipher::AES_128,
                    24 => &cipher::AES_192,
                    32 => &cipher::AES_256,
                    _ => return None,
                };
                Some(Self::AesCbc(algorithm, secret.into()))
            }
            "aesgcm" => {
                let algorithm = match secret.len() {
                    16 => &aead::AES_128_GCM,
                    24 => &aead::AES_192_GCM,
                    32 => &aead::AES_256_GCM,
                    _ => return None,
                };
                let key = aead::UnboundKey::new(algorithm, secret).ok()?;
                Some(Self::AesGcm(Box::new(LessSafeKey::new(key))))
            }
            _ => Some(Self::Secretbox(Box::new(XSalsa20Poly1305::new_from_slice(secret).ok()?))),
        }
    }
}

impl Provider {
    fn seal(&self, key: &[u8], mut value: Vec<u8>) -> Result<Vec<u8>, Unspecified> {
        let mut out = self.prefix.clone().into_bytes();
        match &self.method {
            Method::Identity => return Ok(value),
            // Its plugin's answers say more.
            Method::Kms(_) => return Err(Unspecified),
            Method::AesCbc(algorithm, secret) => {
                let sealing = PaddedBlockEncryptingKey::cbc_pkcs7(UnboundCipherKey::new(algorithm, secret)?)?;
                let DecryptionContext::Iv128(iv) = sealing.encrypt(&mut value)? else {
                    return Err(Unspecified);
                };
                out.extend_from_slice(iv.as_ref());
                out.append(&mut value);
            }
            Method::AesGcm(sealing) => {
                let mut nonce = [0; GCM_NONCE];
                rand::fill(&mut nonce)?;
                sealing.seal_in_place_append_tag(
                    Nonce::assume_unique_for_key(nonce),
                    Aad::from(key),
                    &mut value,
                )?;
                out.extend_from_slice(&nonce);
                out.append(&mut value);
            }
            Method::Secretbox(sealing) => {
                let mut nonce = [0; BOX_NONCE];
                rand::fill(&mut nonce)?;
                out.extend_from_slice(&nonce);
                out.extend(sealing.encrypt(&nonce.into(), value.as_slice()).map_err(|_| Unspecified)?);
            }
        }
        Ok(out)
    }

    fn open(&self, key: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unspecified> {
        match &self.method {
            Method::Identity => Ok(sealed.to_vec()),
            Method::Kms(_) => Err(Unspecified),
            Method::AesCbc(algorithm, secret) => {
                let (iv, sealed) = sealed.split_first_chunk::<IV>().ok_or(Unspecified)?;
                let opening = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(algorithm, secret)?)?;
                let mut value = sealed.to_vec();
                let context = DecryptionContext::Iv128(FixedLength::from(*iv));
                let len = opening.decrypt(&mut value, context)?.len();
                value.truncate(len);
                Ok(value)
            }
            Method::AesGcm(opening) => {
                let (nonce, sealed) = sealed.split_first_chunk::<GCM_NONCE>().ok_or(Unspecified)?;
                let mut value = sealed.to_vec();
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let len = opening.open_in_place(nonce, Aad::from(key), &mut value)?.len();
                value.truncate(len);
                Ok(value)
            }
            Method::Secretbox(opening) => {
                let (nonce, sealed) = sealed.split_first_chunk::<BOX_NONCE>().ok_or(Unspecified)?;
                opening.decrypt(nonce.into(), sealed).map_err(|_| Unspecified)
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
        assert!(none.open(SECRETS, b"k", b"k8s:enc:kms:v1:x:..").unwrap_err().to_string().contains("KMS"));
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
        check("  - kms: {name: x}\n", "KMSv1 is deprecated");
        check("  - kms: {name: x, apiVersion: v3}\n", "unsupported apiVersion v3");
        check("  - kms: {apiVersion: v2}\n", "name is a mandatory field");
        check("  - kms: {name: 'a:b', apiVersion: v2}\n", "must not contain ':'");
        check("  - kms: {name: x, apiVersion: v2}\n", "endpoint is a mandatory field");
        check("  - kms: {name: x, apiVersion: v2, endpoint: 'http://a'}\n", "is no unix:///PATH");
        check("  - kms: {name: x, apiVersion: v2, endpoint: 'unix:///a', timeout: -1s}\n", "positive value");
        check("  - kms: {name: x, apiVersion: v2, endpoint: 'unix:///a', cachesize: 5}\n", "cachesize");
        check("  - rot13: {}\n", "rot13");
        assert!(Encryption::parse(b"kind: Pod\napiVersion: v1\nresources: []\n").is_err());
        assert!(Encryption::parse(b"{").is_err());
        let error = Encryption::from_file(Path::new("/nonexistent")).err().unwrap().to_string();
        assert!(error.starts_with("--encryption-provider-config /nonexistent: "), "{error}");
    }
}
