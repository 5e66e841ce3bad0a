//! AES-GCM as upstream's providers use it: a nonce, the encrypted bytes and a tag, bound to the key in etcd.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand;

const NONCE: usize = 12;

/// The key of these bytes; `None` if there are not 16, 24 or 32.
pub(super) fn key(bytes: &[u8]) -> Option<LessSafeKey> {
    let algorithm = match bytes.len() {
        16 => &aead::AES_128_GCM,
        24 => &aead::AES_192_GCM,
        32 => &aead::AES_256_GCM,
        _ => return None,
    };
    UnboundKey::new(algorithm, bytes).ok().map(LessSafeKey::new)
}

/// Encrypts what stands at a key in etcd, after what comes first in the value.
pub(super) fn seal(key: &LessSafeKey, at: &[u8], mut value: Vec<u8>, mut first: Vec<u8>) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE];
    rand::fill(&mut nonce).ok()?;
    let unique = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(unique, Aad::from(at), &mut value).ok()?;
    first.reserve_exact(NONCE + value.len());
    first.extend_from_slice(&nonce);
    first.append(&mut value);
    Some(first)
}

/// Decrypts what stands at a key in etcd.
pub(super) fn open(key: &LessSafeKey, at: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let mut value = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let len = key.open_in_place(nonce, Aad::from(at), &mut value).ok()?.len();
    value.truncate(len);
    Some(value)
}
