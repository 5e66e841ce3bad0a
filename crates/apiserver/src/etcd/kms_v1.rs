//! Values that are encrypted under keys of a key management service, as upstream's KMS v1 provider does it: each with
//! a key of its own, and what a plugin made of that key before it. Behind the gate `KMSv1`.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use component::Clock;
use kms::{Error, PluginV1};
use parking_lot::Mutex;
use storage::CodecError;

use super::failed::failed;
use super::probe::{Probe, Probed};
use super::recent::Recent;
use super::{cbc, gcm};

/// The length of the keys that we make.
const KEY: usize = 32;
/// How many keys are there that nothing was encrypted with yet; those that are not taken were fetched for writes
/// that were not made.
const FRESH: usize = 1024;
/// The text that a health check lets the plugin encrypt.
const PING: &[u8] = b"ping";

/// A decrypted key, or why there is none.
type Found = Result<Arc<[u8]>, String>;

/// A new key.
struct Fresh {
    key: Arc<[u8]>,
    /// The key as the plugin encrypted it.
    wrapped: Vec<u8>,
}

/// A provider.
pub(super) struct KmsV1 {
    probe: Probe,
    plugin: PluginV1,
    /// Decrypted keys, by what the plugin made of them.
    keys: Mutex<Recent<Vec<u8>, Found>>,
    fresh: Mutex<Vec<Fresh>>,
}

impl Probed for KmsV1 {
    /// As upstream, it is asked when somebody wants to know.
    const POLL: (Duration, Duration) = (Duration::MAX, Duration::MAX);

    fn probe(&self) -> &Probe {
        &self.probe
    }

    async fn check(&self) -> Result<(), String> {
        let part = |part: &'static str| {
            let name = self.probe.name();
            move |e: Error| {
                format!(
                    "failed to perform {part} section of the healthz check for KMS Provider {name}, error: {e}"
                )
            }
        };
        let sealed = self.plugin.encrypt(PING).await.map_err(part("encrypt"))?;
        self.plugin.decrypt(&sealed).await.map_err(part("decrypt")).map(drop)
    }
}

impl KmsV1 {
    /// `kept` is how many decrypted keys are kept.
    pub(super) fn new(name: String, plugin: PluginV1, clock: Clock, kept: usize) -> Self {
        let keys = Mutex::new(Recent::new(kept));
        Self { probe: Probe::new(name, clock), plugin, keys, fresh: Mutex::default() }
    }

    /// Lets the plugin decrypt the key of a value, unless that is known. `Err` if the plugin does not answer.
    pub(super) async fn prepare(&self, value: &[u8]) -> Result<(), CodecError> {
        // Decoding tells what is wrong with the value.
        let Some((wrapped, _)) = parse(value) else { return Ok(()) };
        if matches!(self.keys.lock().get(wrapped), Some(Ok(_))) {
            return Ok(());
        }
        let found = match self.plugin.decrypt(wrapped).await {
            Ok(plain) => Ok(plain.into()),
            Err(e @ Error::Unavailable { .. }) => return Err(failed(e)),
            Err(e) => Err(e.to_string()),
        };
        self.keys.lock().put(wrapped.to_vec(), found);
        Ok(())
    }

    /// Makes the key of one value and lets the plugin encrypt it.
    pub(super) async fn prepare_write(&self) -> Result<(), CodecError> {
        let mut key = [0; KEY];
        rand::fill(&mut key).map_err(|_| failed("no random numbers"))?;
        let wrapped = self.plugin.encrypt(&key).await.map_err(failed)?;
        if u16::try_from(wrapped.len()).is_err() {
            return Err(failed(format!(
                "the KMS plugin made {} bytes of a key, more than a value can name",
                wrapped.len()
            )));
        }
        let key: Arc<[u8]> = key.into();
        self.keys.lock().put(wrapped.clone(), Ok(Arc::clone(&key)));
        let mut fresh = self.fresh.lock();
        if fresh.len() < FRESH {
            fresh.push(Fresh { key, wrapped });
        }
        Ok(())
    }

    /// Decrypts a value that was read at a key. Before 1.25 upstream wrote AES-CBC.
    pub(super) fn open(&self, at: &[u8], value: &[u8]) -> Result<Vec<u8>, CodecError> {
        let (wrapped, sealed) = parse(value).ok_or_else(|| {
            failed(
                "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data",
            )
        })?;
        let found = self.keys.lock().get(wrapped);
        let key = found.unwrap_or_else(|| Err("the KMS plugin was not asked".into())).map_err(failed)?;
        let by_gcm = gcm::key(&key).and_then(|key| gcm::open(&key, at, sealed));
        by_gcm.or_else(|| cbc::open(cbc::algorithm(key.len())?, &key, sealed)).ok_or_else(|| {
            failed(format!(
                "it cannot be decrypted with the key that the KMS provider {} gave: the value is damaged or of another \
                 etcd key",
                self.probe.name()
            ))
        })
    }

    /// A value as it is written at a key, but for what it begins with.
    pub(super) fn seal(&self, at: &[u8], value: Vec<u8>) -> Result<Vec<u8>, CodecError> {
        let fresh = self.fresh.lock().pop();
        let Fresh { key, wrapped } = fresh.ok_or_else(|| failed("the KMS plugin was not asked for a key"))?;
        let len = u16::try_from(wrapped.len()).unwrap_or(u16::MAX);
        let first = [&len.to_be_bytes(), wrapped.as_slice()].concat();
        let key = gcm::key(&key);
        key.and_then(|key| gcm::seal(&key, at, value, first)).ok_or_else(|| failed("it cannot be encrypted"))
    }
}

/// Splits a value into the key as the plugin encrypted it, and the bytes that are encrypted with that key.
fn parse(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = value.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*len).into())
}
