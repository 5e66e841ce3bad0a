//! The flag `--version` of the components: it asks for the version, or gives one to tell (upstream:
//! `component-base/version/verflag`).

use std::ffi::OsString;

use anyhow::{Result, anyhow};
use api::go::parse_bool;
use component::version;

/// The form in which a component is asked for its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// `--version`: in a line for people.
    Line,
    /// `--version=raw`: all that there is to say, as Go prints a value.
    Raw,
}

impl Question {
    /// The answer.
    pub(crate) fn answer(self) -> String {
        match self {
            Self::Line => format!("Kubernetes {}", version::told()),
            Self::Raw => {
                let text = apiserver::version_text();
                format!("version.Info{{{text}}}")
            }
        }
    }
}

/// Takes the flag out of a component's arguments. The last one counts; one that names a version makes the process tell
/// that.
///
/// # Errors
/// A value is none of upstream's.
pub(crate) fn take(arguments: &mut Vec<OsString>) -> Result<Option<Question>> {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    let mut question = None;
    for argument in &arguments[..end] {
        let value = match argument.to_str().and_then(|a| a.strip_prefix("--version")) {
            Some("") => "true",
            Some(rest) => match rest.strip_prefix('=') {
                Some(value) => value,
                None => continue,
            },
            None => continue,
        };
        let invalid = |why: String| anyhow!("invalid argument {value:?} for \"--version\" flag: {why}");
        question = match value {
            "raw" => Some(Question::Raw),
            named if named.starts_with('v') => {
                version::tell(named).map_err(invalid)?;
                None
            }
            other => {
                let no_bool = || invalid(format!("strconv.ParseBool: parsing {other:?}: invalid syntax"));
                parse_bool(other).ok_or_else(no_bool)?.then_some(Question::Line)
            }
        };
    }
    let mut at = 0;
    arguments.retain(|argument| {
        at += 1;
        let is_flag = argument.to_str().is_some_and(|a| a == "--version" || a.starts_with("--version="));
        at > end || !is_flag
    });
    Ok(question)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_flag_counts() {
        let check = |given: &[&str], want: Result<Option<Question>, &str>, left: &[&str]| {
            let mut arguments: Vec<OsString> = given.iter().map(OsString::from).collect();
            let taken = take(&mut arguments).map_err(|e| e.to_string());
            assert_eq!(taken, want.map_err(str::to_owned), "{given:?}");
            if taken.is_ok() {
                assert_eq!(arguments, left, "{given:?}");
            }
        };
        check(&["-v", "2", "--versions"], Ok(None), &["-v", "2", "--versions"]);
        check(&["--version", "--a"], Ok(Some(Question::Line)), &["--a"]);
        check(&["--version=1"], Ok(Some(Question::Line)), &[]);
        check(&["--version", "--version=false"], Ok(None), &[]);
        check(&["--version", "--version=raw"], Ok(Some(Question::Raw)), &[]);
        check(&["--", "--version"], Ok(None), &["--", "--version"]);
        check(&["--version", "--version=v1.36.2"], Ok(None), &[]);
        let invalid =
            |value: &str, why: &str| format!("invalid argument {value:?} for \"--version\" flag: {why}");
        let why = r#"version "v1.35.0" must match major/minor/patch of default version "v1.36.2""#;
        check(&["--version=v1.35.0"], Err(&invalid("v1.35.0", why)), &[]);
        check(&["--version=x"], Err(&invalid("x", r#"strconv.ParseBool: parsing "x": invalid syntax"#)), &[]);
    }
}
