//! Texts in base64, as Go reads them: line breaks count for nothing.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::tree::Text;

/// Standard base64 as Go reads it: padded, and lenient about the bits that the padding cuts off.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The bytes of a text. The error is Go's.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    decoded(&clean(text), text)
}

/// The text as Go writes its bytes. The error is Go's.
pub(crate) fn canonical(text: &str) -> Result<Text, String> {
    let clean = clean(text);
    let bytes = decoded(&clean, text)?;
    // Only the bits that the padding cuts off can make a second text for the same bytes.
    Ok(if clean.ends_with('=') { BASE64.encode(bytes).into() } else { clean.into() })
}

fn decoded(clean: &str, text: &str) -> Result<Vec<u8>, String> {
    let bytes = BASE64.decode(clean);
    bytes.map_err(|_| format!("illegal base64 data at input byte {}", corrupt(text.as_bytes())))
}

/// A text without line breaks.
fn clean(text: &str) -> Cow<'_, str> {
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect())
}

/// The place where Go's decoder finds that a text is not base64: a byte that may not stand there, or the group of four
/// that is not full.
fn corrupt(text: &[u8]) -> usize {
    let newline = |b: &u8| matches!(b, b'\r' | b'\n');
    let after = |from: usize| from + text[from.min(text.len())..].iter().take_while(|b| newline(b)).count();
    let mut filled = 0;
    let mut at = 0;
    while let Some(b) = text.get(at) {
        match b {
            b'=' if filled < 2 => return at,
            b'=' => {
                let mut next = after(at + 1);
                if filled == 2 {
                    match text.get(next) {
                        None => return text.len(),
                        Some(b'=') => next = after(next + 1),
                        Some(_) => return next - 1,
                    }
                }
                return next.min(text.len());
            }
            b if newline(b) => {}
            b if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/') => filled = (filled + 1) % 4,
            _ => return at,
        }
        at += 1;
    }
    at - filled
}
