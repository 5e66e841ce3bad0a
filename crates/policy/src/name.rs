//! Names of chains and sets. What a tenant can choose goes through a hash that nobody can make collide: two selectors
//! with one name would be one set.

use std::fmt::Write;
use std::sync::Arc;

use objects::backends::Family;
use sha2::{Digest, Sha256};

/// The name of a chain or set.
pub(crate) type Name = Arc<str>;

/// The longest text of a namespace and a name that is a part of a chain's name; the kernel takes 255 bytes.
const LONGEST: usize = 200;

/// The digit by which names tell the families apart.
pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps parts apart.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// 16 bytes of the hash, as text.
pub(crate) fn hash(parts: &[&[u8]]) -> String {
    let mut text = String::with_capacity(32);
    for byte in &digest(parts)[..16] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// 8 bytes of the hash: the note of rules and sets.
pub(crate) fn note(parts: &[&[u8]]) -> u64 {
    digest(parts)[..8].iter().fold(0, |note, byte| note << 8 | u64::from(*byte))
}

/// The name of an object's chain behind `prefix`: readable if the object's name allows it.
pub(crate) fn of_object(prefix: &str, namespace: &str, name: &str) -> Name {
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    if namespace.len() + name.len() <= LONGEST && plain(namespace) && plain(name) {
        format!("{prefix}/{namespace}/{name}").into()
    } else {
        format!("{prefix}.{}", hash(&[namespace.as_bytes(), name.as_bytes()])).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chains() {
        let check = |namespace: &str, name: &str, expected: &str| {
            let found = of_object("ingress4", namespace, name);
            assert!(found.starts_with(expected) && found.len() < 250, "{found}");
        };
        check("shop", "web.a-b", "ingress4/shop/web.a-b");
        check("shop", &"x".repeat(253), "ingress4.");
        check("a/b", "c", "ingress4.");
        assert_ne!(of_object("i", "a/b", "c"), of_object("i", "a", "b/c"));
        assert_eq!(hash(&[b"a", b"bc"]).len(), 32);
        assert_ne!(hash(&[b"a", b"bc"]), hash(&[b"ab", b"c"]));
    }
}
