//! The version that a process tells: that of Kubernetes, or one that `--version` gives it (upstream:
//! `component-base/version`).

use std::sync::OnceLock;

/// The release of Kubernetes that every component is.
pub const KUBERNETES: &str = "v1.36.2";

/// The version of the API that every component has.
pub const EMULATION: &str = "1.36";

static GIVEN: OnceLock<String> = OnceLock::new();

/// The version that the command line gave, if it gave one.
pub fn given() -> Option<&'static str> {
    GIVEN.get().map(String::as_str)
}

/// The version that components other than the API server tell.
pub fn told() -> &'static str {
    given().unwrap_or(KUBERNETES)
}

/// Makes the process tell a version, which is this release's with words of a distributor behind it. The first one counts.
///
/// # Errors
/// It is no semantic version, or another release's; in upstream's words.
pub fn tell(version: &str) -> Result<(), String> {
    check(version)?;
    GIVEN.get_or_init(|| version.to_owned());
    Ok(())
}

/// Checks a version that is to be told.
fn check(version: &str) -> Result<(), String> {
    if numbers(version)? == numbers(KUBERNETES)? {
        return Ok(());
    }
    Err(format!("version {version:?} must match major/minor/patch of default version {KUBERNETES:?}"))
}

/// The three numbers of a semantic version, which may begin with `v` and have space around it.
fn numbers(version: &str) -> Result<Vec<u64>, String> {
    let text = version.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    // A dot that no digit follows belongs to the rest.
    let (digits, rest) = text.split_at(text[..end].trim_end_matches('.').len());
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || digits.contains("..") {
        return Err(format!("could not parse {version:?} as version"));
    }
    let parts: Vec<&str> = digits.split('.').collect();
    if parts.len() != 3 {
        return Err(format!("illegal version string {version:?}"));
    }
    let number = |part: &str| {
        if has_zeros(part) {
            return Err(zeros(part, version));
        }
        part.parse()
            .map_err(|e| format!("illegal non-numeric version component {part:?} in {version:?}: {e}"))
    };
    let numbers = parts.into_iter().map(number).collect::<Result<_, _>>()?;
    check_rest(rest, version)?;
    Ok(numbers)
}

fn has_zeros(part: &str) -> bool {
    part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit())
}

fn zeros(part: &str, version: &str) -> String {
    format!("illegal zero-prefixed version component {part:?} in {version:?}")
}

/// Checks the pre-release and the metadata behind the numbers, such as `-rc.1+build.5`.
fn check_rest(rest: &str, version: &str) -> Result<(), String> {
    let names = |text: &str| {
        text.split('.')
            .all(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
    };
    let (before, metadata) =
        rest.split_once('+').map_or((rest, None), |(before, after)| (before, Some(after)));
    let pre_release = before.strip_prefix('-');
    let is_good = (before.is_empty() || pre_release.is_some_and(names)) && metadata.is_none_or(names);
    if !is_good {
        return Err(format!("could not parse pre-release/metadata ({rest}) in version {version:?}"));
    }
    match pre_release.into_iter().flat_map(|text| text.split('.')).find(|part| has_zeros(part)) {
        Some(part) => Err(zeros(part, version)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestValidate` (`version/dynamic_test.go`), and those of its parser of versions.
    #[test]
    fn versions_of_this_release_may_be_told() {
        let check = |version: &str, want: Result<(), &str>| {
            assert_eq!(check(version), want.map_err(str::to_owned), "{version}");
        };
        check(KUBERNETES, Ok(()));
        check("v1.36.2-custom", Ok(()));
        check("v1.36.2+build", Ok(()));
        check("v1.36.2-alpha.0+build.01", Ok(()));
        check("v1.36.2-1-g0a", Ok(()));
        let other = r#"must match major/minor/patch of default version "v1.36.2""#;
        for version in ["v1.36.3", "v1.35.2", "v2.36.2", "v0.0.0"] {
            check(version, Err(&format!("version {version:?} {other}")));
        }
        check("", Err(r#"could not parse "" as version"#));
        check("v", Err(r#"could not parse "v" as version"#));
        check("vx1.2.3", Err(r#"could not parse "vx1.2.3" as version"#));
        check("v1", Err(r#"illegal version string "v1""#));
        check("v1.36", Err(r#"illegal version string "v1.36""#));
        check("v1.36.2.4", Err(r#"illegal version string "v1.36.2.4""#));
        check("v1.036.2", Err(r#"illegal zero-prefixed version component "036" in "v1.036.2""#));
        check("v1.36.2-01", Err(r#"illegal zero-prefixed version component "01" in "v1.36.2-01""#));
        for rest in ["-", "custom", "-a..b", "+", "-a_b", ".", "-a+b+c"] {
            let version = format!("v1.36.2{rest}");
            check(
                &version,
                Err(&format!("could not parse pre-release/metadata ({rest}) in version {version:?}")),
            );
        }
    }
}
