//! Values that are encrypted under keys of a key management service, as upstream's KMS v2 provider does it: with a key
//! for each value, made from a seed that a plugin encrypted; what the plugin made of the seed stands beside the value.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::aead::LessSafeKey;
use aws_lc_rs::{hkdf, rand};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use kms::rpc::{DecryptRequest, EncryptedObject, StatusResponse};
use kms::{Error, Plugin};
use parking_lot::Mutex;
use prost::Message;
use sha2::{Digest, Sha256};
use storage::CodecError;

use super::failed::failed;
use super::gcm;
use super::probe::{Probe, Probed};
use super::recent::Recent;

/// For how long a seed is written with after the plugin was last well.
const WRITES: SignedDuration = SignedDuration::from_mins(3);
/// The most bytes of a key's id, of what the plugin made of a seed, and of all annotations.
const KEY_ID: usize = 1 << 10;
const SOURCE: usize = 1 << 10;
const ANNOTATIONS: usize = 32 << 10;
/// How many decrypted seeds and keys are kept.
const KEPT: usize = 1000;
/// The length of the bytes before the nonce and the encrypted bytes; a value's key is made from them.
const INFO: usize = 32;
/// The length of a seed that we make.
const SEED: usize = 32;

/// [`EncryptedObject::encrypted_dek_source_type`]: the key itself, or a seed.
const OF_KEY: i32 = 0;
const OF_SEED: i32 = 1;

/// A provider.
pub(super) struct Kms {
    probe: Probe,
    plugin: Plugin,
    /// The key that new values are encrypted with; `None` until the plugin was well once.
    state: ArcSwapOption<State>,
    /// Decrypted seeds and keys, by what they are of.
    keys: Mutex<Recent<[u8; 32], Found>>,
    /// The version of the protocol that it first named.
    version: Mutex<String>,
}

/// The key that new values are encrypted with, and how the plugin encrypted it.
struct State {
    key_id: String,
    source: Vec<u8>,
    annotations: BTreeMap<String, Vec<u8>>,
    key: Arc<DataKey>,
    expires: Timestamp,
}

/// A decrypted key or seed that values are encrypted with.
enum DataKey {
    /// The key of each value.
    Key(LessSafeKey),
    /// The seed from which the key of each value is made.
    Seed(hkdf::Prk),
}

/// The key or seed that decrypts a value, or why there is none.
type Found = Result<Arc<DataKey>, String>;

/// A length that HKDF is asked for.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl DataKey {
    fn new(kind: i32, plain: &[u8]) -> Result<Self, String> {
        if kind == OF_SEED {
            if plain.len() < SEED {
                return Err(format!("invalid seed length {} used for key generation", plain.len()));
            }
            return Ok(Self::Seed(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, plain)));
        }
        gcm::key(plain).map(Self::Key).ok_or_else(|| format!("crypto/aes: invalid key size {}", plain.len()))
    }

    /// The key of a value.
    fn derived(seed: &hkdf::Prk, info: &[u8]) -> Option<LessSafeKey> {
        let mut key = [0; 32];
        seed.expand(&[info], Length(key.len())).ok()?.fill(&mut key).ok()?;
        gcm::key(&key)
    }

    fn open(&self, at: &[u8], data: &[u8]) -> Option<Vec<u8>> {
        let (derived, data) = match self {
            Self::Key(_) => (None, data),
            Self::Seed(seed) => {
                let (info, data) = data.split_at_checked(INFO)?;
                (Some(Self::derived(seed, info)?), data)
            }
        };
        let ((Self::Key(key), _) | (_, Some(key))) = (self, &derived) else { return None };
        gcm::open(key, at, data)
    }

    /// Encrypts with a key of the value's own.
    fn seal(&self, at: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
        let Self::Seed(seed) = self else { return None };
        let mut info = [0; INFO];
        rand::fill(&mut info).ok()?;
        gcm::seal(&Self::derived(seed, &info)?, at, value, info.to_vec())
    }
}

/// A key's id as it may be told.
fn hash(id: &str) -> String {
    if id.is_empty() {
        return String::new();
    }
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(id) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Upstream's `IsFullyQualifiedDomainName`.
fn is_domain(name: &str) -> bool {
    let label = |l: &str| {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        l.starts_with(good) && l.ends_with(good) && l.chars().all(|c| good(c) || c == '-')
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253 && name.contains('.') && name.split('.').all(label)
}

fn check_key_id(id: &str) -> Result<(), String> {
    match id.len() {
        0 => Err("keyID is empty".into()),
        len if len > KEY_ID => Err(format!("keyID is {len} bytes, which exceeds the max size of {KEY_ID}")),
        _ => Ok(()),
    }
}

/// Upstream's `ValidateEncryptedObject`, but for the data.
fn check_object(o: &EncryptedObject) -> Result<(), String> {
    if o.encrypted_dek_source_type != OF_KEY && o.encrypted_dek_source_type != OF_SEED {
        return Err(format!("unknown encryptedDEKSourceType: {}", o.encrypted_dek_source_type));
    }
    let source = o.encrypted_dek_source.len();
    let why = if source == 0 {
        "encrypted DEK source is empty".to_owned()
    } else if source > SOURCE {
        format!("encrypted DEK source is {source} bytes, which exceeds the max size of {SOURCE}")
    } else {
        String::new()
    };
    if !why.is_empty() {
        return Err(format!("failed to validate encrypted DEK source: {why}"));
    }
    check_key_id(&o.key_id).map_err(|e| format!("failed to validate key id: {e}"))?;
    let annotations = |why: String| Err(format!("failed to validate annotations: {why}"));
    if let Some(bad) = o.annotations.keys().find(|key| !is_domain(key)) {
        return annotations(format!(
            "annotations: Invalid value: {bad:?}: should be a domain with at least two segments separated by dots"
        ));
    }
    let size: usize = o.annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    if size > ANNOTATIONS {
        return annotations(format!(
            "total size of annotations is {size}, which exceeds the max size of {ANNOTATIONS}"
        ));
    }
    Ok(())
}

/// By what a decrypted seed or key is known again.
fn identity(o: &EncryptedObject) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(&o.encrypted_dek_source_type.to_le_bytes());
    add(&o.encrypted_dek_source);
    add(o.key_id.as_bytes());
    for (key, value) in &o.annotations {
        add(key.as_bytes());
        add(value);
    }
    hash.finalize().into()
}

fn parse(value: &[u8]) -> Result<EncryptedObject, String> {
    let object = EncryptedObject::decode(value).map_err(|e| e.to_string())?;
    if object.encrypted_data.is_empty() {
        return Err("encrypted data is empty".into());
    }
    check_object(&object).map(|()| object)
}

impl Probed for Kms {
    const POLL: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(10));

    fn probe(&self) -> &Probe {
        &self.probe
    }

    async fn check(&self) -> Result<(), String> {
        let name = self.probe.name();
        let status = self.plugin.status().await.map_err(|e| {
            format!(
                "failed to perform status section of the healthz check for KMS Provider {name}, error: {e}"
            )
        })?;
        let mut errors = self.complaints(&status);
        match check_key_id(&status.key_id) {
            Ok(()) => errors.extend(self.rotate(&status.key_id).await.err()),
            Err(e) => errors.push(format!("got invalid KMSv2 KeyID hash {:?}: {e}", hash(&status.key_id))),
        }
        let all = match errors.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        Err(format!("kmsv2 Provider {name} is not healthy, error: {all}"))
    }
}

impl Kms {
    pub(super) fn new(name: String, plugin: Plugin, clock: Clock) -> Self {
        Self {
            probe: Probe::new(name, clock),
            plugin,
            state: ArcSwapOption::empty(),
            keys: Mutex::new(Recent::new(KEPT)),
            version: Mutex::default(),
        }
    }

    fn complaints(&self, status: &StatusResponse) -> Vec<String> {
        let mut errors = Vec::new();
        if status.healthz != "ok" {
            errors.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            errors.push(format!("expected KMSv2 API version v2, got {}", status.version));
            return errors;
        }
        let mut version = self.version.lock();
        if version.is_empty() {
            version.clone_from(&status.version);
        }
        if *version != status.version {
            errors.push(format!(
                "KMSv2 API version should not change after the initial status response version {version}, got {}",
                status.version
            ));
        }
        errors
    }

    /// Goes on with the seed if the plugin still uses the key that it encrypted it under, and makes another if not.
    async fn rotate(&self, key_id: &str) -> Result<(), String> {
        // Counted from before the plugin is asked.
        let expires = self.probe.clock.now().saturating_add(WRITES).unwrap_or(Timestamp::MAX);
        if let Some(state) = self.state.load_full().filter(|s| s.key_id == key_id) {
            self.state.store(Some(Arc::new(State {
                key_id: state.key_id.clone(),
                source: state.source.clone(),
                annotations: state.annotations.clone(),
                key: Arc::clone(&state.key),
                expires,
            })));
            return Ok(());
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let (why, encrypted_under) = match self.new_state(&uid, expires).await {
            Ok(state) if state.key_id == key_id => {
                self.state.store(Some(Arc::new(state)));
                tracing::info!(
                    name = self.probe.name(),
                    key_id_hash = hash(key_id),
                    "successfully rotated DEK"
                );
                return Ok(());
            }
            Ok(state) => ("<nil>".to_owned(), state.key_id),
            Err(why) => (why, String::new()),
        };
        let state = self.state.load();
        let (known, until) = state
            .as_ref()
            .map_or((String::new(), String::new()), |s| (hash(&s.key_id), s.expires.to_string()));
        Err(format!(
            "failed to rotate DEK uid={uid:?}, useSeed=true, errGen={why}, statusKeyIDHash={:?}, \
             encryptKeyIDHash={:?}, stateKeyIDHash={known:?}, expirationTimestamp={until}",
            hash(key_id),
            hash(&encrypted_under)
        ))
    }

    async fn new_state(&self, uid: &str, expires: Timestamp) -> Result<State, String> {
        let mut seed = [0; SEED];
        rand::fill(&mut seed).map_err(|_| "no random numbers".to_owned())?;
        let key = Arc::new(DataKey::new(OF_SEED, &seed)?);
        let made = self.plugin.encrypt(uid, &seed).await;
        let made = made.map_err(|e| format!("failed to encrypt DEK, error: {e}"))?;
        let object = EncryptedObject {
            encrypted_data: Vec::new(),
            key_id: made.key_id,
            encrypted_dek_source: made.ciphertext,
            annotations: made.annotations,
            encrypted_dek_source_type: OF_SEED,
        };
        check_object(&object)?;
        self.keys.lock().put(identity(&object), Ok(Arc::clone(&key)));
        let EncryptedObject { key_id, encrypted_dek_source: source, annotations, .. } = object;
        Ok(State { key_id, source, annotations, key, expires })
    }

    /// Lets the plugin decrypt what a value takes, unless that is known. `Err` if the plugin does not answer.
    pub(super) async fn prepare(&self, value: &[u8]) -> Result<(), CodecError> {
        // Decoding tells what is wrong with the value.
        let Ok(object) = parse(value) else { return Ok(()) };
        let identity = identity(&object);
        if matches!(self.keys.lock().get(&identity), Some(Ok(_))) {
            return Ok(());
        }
        let kind = object.encrypted_dek_source_type;
        let request = DecryptRequest {
            ciphertext: object.encrypted_dek_source,
            uid: uuid::Uuid::new_v4().to_string(),
            key_id: object.key_id,
            annotations: object.annotations,
        };
        let found = match self.plugin.decrypt(request).await {
            Ok(plain) => DataKey::new(kind, &plain).map(Arc::new),
            Err(e @ Error::Unavailable { .. }) => {
                return Err(failed(format!("failed to decrypt DEK, error: {e}")));
            }
            Err(e) => Err(format!("failed to decrypt DEK, error: {e}")),
        };
        self.keys.lock().put(identity, found);
        Ok(())
    }

    /// Decrypts a value that was read at a key, and tells whether it would be written in another form.
    pub(super) fn open(&self, at: &[u8], value: &[u8]) -> Result<(Vec<u8>, bool), CodecError> {
        let object = parse(value).map_err(failed)?;
        let found = self.keys.lock().get(&identity(&object));
        let key = match found {
            Some(Ok(key)) => key,
            Some(Err(why)) => return Err(failed(why)),
            None => return Err(failed("failed to decrypt DEK, error: the KMS plugin was not asked")),
        };
        let opened = key.open(at, &object.encrypted_data).ok_or_else(|| {
            failed(format!(
                "it cannot be decrypted with the key that the KMS provider {} gave: the value is damaged or of another \
                 etcd key",
                self.probe.name()
            ))
        })?;
        let stale = self.state.load().as_ref().is_some_and(|state| {
            state.key_id != object.key_id || object.encrypted_dek_source_type != OF_SEED
        });
        Ok((opened, stale))
    }

    /// A value as it is written at a key, but for what it begins with.
    pub(super) fn seal(&self, at: &[u8], value: Vec<u8>) -> Result<Vec<u8>, CodecError> {
        let state = self.state.load();
        let Some(state) = state.as_ref() else {
            let why = self.probe.healthy().err().unwrap_or_default();
            return Err(failed(format!("it cannot be encrypted: {why}")));
        };
        let now = self.probe.clock.now();
        if now > state.expires {
            return Err(failed(format!(
                "encryptedDEKSource with keyID hash {:?} expired at {:.0} (current time is {now:.0})",
                hash(&state.key_id),
                state.expires
            )));
        }
        let data = state.key.seal(at, value).ok_or_else(|| failed("it cannot be encrypted"))?;
        let object = EncryptedObject {
            encrypted_data: data,
            key_id: state.key_id.clone(),
            encrypted_dek_source: state.source.clone(),
            annotations: state.annotations.clone(),
            encrypted_dek_source_type: OF_SEED,
        };
        Ok(object.encode_to_vec())
    }
}
