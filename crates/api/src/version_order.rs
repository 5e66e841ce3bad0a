//! The order of versions by which the preferred one is chosen: generally available ones first, then beta, then alpha,
//! each from the highest down; other names follow, by the alphabet (`k8s.io/apimachinery/pkg/version`).

use std::cmp::{Ordering, Reverse};

/// A version such as `v1beta2`: how mature it is, and its numbers.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let end = digits(rest);
    let number = |s: &str| {
        let plain = !s.is_empty() && !s.starts_with('0') && s.bytes().all(|b| b.is_ascii_digit());
        if plain { s.parse::<u64>().ok() } else { None }
    };
    let major = number(&rest[..end])?;
    let stage = &rest[end..];
    if stage.is_empty() {
        return Some((2, major, 0));
    }
    let (level, minor) = match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (None, Some(minor)) => (0, minor),
        _ => return None,
    };
    Some((level, major, number(minor)?))
}

/// Compares versions: the preferred one is less.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => Reverse(a).cmp(&Reverse(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_order() {
        let mut all =
            ["foo10", "v1", "v10", "v11alpha2", "v12alpha1", "v2", "v3beta1", "foo1", "v11beta2", "v10beta3"];
        all.sort_by(|a, b| compare(a, b));
        assert_eq!(
            all,
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
        );
    }
}
