//! AES-CBC as upstream's providers use it: an initialization vector and the encrypted bytes, padded by PKCS #7.

use aws_lc_rs::cipher::{
    self, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

const IV: usize = 16;

/// The cipher for keys of so many bytes.
pub(super) fn algorithm(key: usize) -> Option<&'static Algorithm> {
    match key {
        16 => Some(&cipher::AES_128),
        24 => Some(&cipher::AES_192),
        32 => Some(&cipher::AES_256),
        _ => None,
    }
}

/// Encrypts, after what comes first in the value.
pub(super) fn seal(
    algorithm: &'static Algorithm,
    key: &[u8],
    mut value: Vec<u8>,
    mut first: Vec<u8>,
) -> Option<Vec<u8>> {
    let key = UnboundCipherKey::new(algorithm, key).ok()?;
    let context = PaddedBlockEncryptingKey::cbc_pkcs7(key).ok()?.encrypt(&mut value).ok()?;
    let DecryptionContext::Iv128(iv) = context else { return None };
    first.extend_from_slice(iv.as_ref());
    first.append(&mut value);
    Some(first)
}

/// Decrypts.
pub(super) fn open(algorithm: &'static Algorithm, key: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (iv, sealed) = sealed.split_first_chunk::<IV>()?;
    let key = UnboundCipherKey::new(algorithm, key).ok()?;
    let mut value = sealed.to_vec();
    let context = DecryptionContext::Iv128(FixedLength::from(*iv));
    let len = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?.decrypt(&mut value, context).ok()?.len();
    value.truncate(len);
    Some(value)
}
