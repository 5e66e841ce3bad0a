//! Texts that should be base64, as Go reads them.

/// Go's error for a text that is not base64.
pub fn error(text: &str) -> String {
    format!("illegal base64 data at input byte {}", corrupt(text.as_bytes()))
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
