//! The order of versions by their names, as Kubernetes has it (`CompareKubeAwareVersionStrings`).

use std::cmp::Ordering;

/// The parts of a version's name: how stable it is, its major and its minor number. `None` for another name.
fn parts(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let number = |text: &str| {
        let good = text.starts_with(|c: char| c.is_ascii_digit() && c != '0')
            && text.bytes().all(|b| b.is_ascii_digit());
        if good { text.parse().ok() } else { None }
    };
    for (stability, word) in [(1, "alpha"), (2, "beta")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((3, number(rest)?, 0))
}

/// The greater version is the one that is preferred: stable ones before betas before alphas, then higher numbers; other
/// names come last, by the alphabet.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_first() {
        let mut all = [
            "foo10",
            "v1alpha1",
            "v12alpha1",
            "v3beta1",
            "v10beta3",
            "v2",
            "v11beta2",
            "v1",
            "foo1",
            "v10",
            "v11alpha2",
            "v01",
        ];
        all.sort_by(|a, b| compare(b, a));
        let want = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "v1alpha1",
            "foo1",
            "foo10",
            "v01",
        ];
        assert_eq!(all, want);
    }
}
