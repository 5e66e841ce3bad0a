//! Numbers as parts of names.

const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns a number's decimal digits as letters and digits of which no bad word can be made (upstream's
/// `rand.SafeEncodeString`).
pub(crate) fn safe_letters(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_letters() {
        let check = |number: u32, want: &str| assert_eq!(safe_letters(number), want, "{number}");
        check(0, "4");
        check(1_234_567_890, "56789bcdf4");
    }
}
