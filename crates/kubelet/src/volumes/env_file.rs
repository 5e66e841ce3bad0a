//! Environment variables that an init container leaves in a file of a volume.

use std::path::Path;

use k8s_openapi::api::core::v1::{FileKeySelector, Pod};

use super::atomic::{self, PathError};
use super::plugin;
use crate::files::{self, Links};
use crate::pods::spec;
use crate::work::{Interrupted, blocking};

/// The longest file that is read.
///
/// DIFFERENCE: upstream has no limit for the file; what is in it must fit into an environment anyway.
const MAX_FILE: u64 = 1 << 20;
/// The longest line; that of Go's scanner.
const MAX_LINE: usize = 64 << 10;

/// Why a variable cannot be had from a file; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvFileError {
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    #[error(transparent)]
    Path(#[from] PathError),
    /// The text keeps the content of the file from those who read the Pod's status.
    #[error("couldn't parse env file")]
    Unusable,
    #[error("environment variable key {key:?} not found in file {file:?}")]
    NoKey { key: String, file: String },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Why a file cannot be read, for the kubelet's own log.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Utf8(#[from] std::str::Utf8Error),
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Why a text does not hold variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum FormatError {
    #[error("invalid environment variable format at line {line}: {why}")]
    Line { line: usize, why: &'static str },
    #[error("invalid environment variable format starting at line {line}: unclosed single quote")]
    Unclosed { line: usize },
    #[error("token too long")]
    Long,
}

/// The value of a variable in a file of a volume; none if it is missing there and optional.
pub(crate) async fn value(
    pod_dir: &Path,
    pod: &Pod,
    selector: &FileKeySelector,
) -> Result<Option<String>, EnvFileError> {
    let volume = spec::spec(pod)
        .volumes
        .iter()
        .flatten()
        .find(|v| v.name == selector.volume_name && v.empty_dir.is_some())
        .ok_or_else(|| EnvFileError::NoVolume(selector.volume_name.clone()))?;
    atomic::check_path(&selector.path)?;
    let dir = pod_dir.join("volumes").join(plugin(volume)).join(&volume.name);
    let file = dir.join(&selector.path);
    let (path, key) = (selector.path.clone(), selector.key.clone());
    let found = blocking(move || {
        read(&dir, Path::new(&path), &key).map_err(|error| {
            tracing::debug!(volume = %dir.display(), path, %error, "env file");
            EnvFileError::Unusable
        })
    })
    .await??;
    match found {
        Some(value) => Ok(Some(value)),
        None if selector.optional == Some(true) => Ok(None),
        None => {
            let file = file.to_string_lossy().into_owned();
            Err(EnvFileError::NoKey { key: selector.key.clone(), file })
        }
    }
}

/// The value of a key in a file below `volume`. Links resolve as they do for a process whose root
/// the volume is.
fn read(volume: &Path, path: &Path, key: &str) -> Result<Option<String>, ReadError> {
    let root = files::root(volume)?;
    let bytes = files::read(&root, path, Links::InRoot, MAX_FILE)?;
    let content = std::str::from_utf8(&bytes)?;
    Ok(variable(content, key)?.filter(|v| !v.is_empty()))
}

/// The value of a key in lines of `KEY='value'`: a subset of what a shell reads. A value may have
/// several lines; a blank behind `=` makes it empty, as in a shell.
///
/// # Errors
/// Upstream's text, for what stands before the key only.
fn variable(text: &str, key: &str) -> Result<Option<String>, FormatError> {
    let invalid = |line: usize, why: &'static str| Err(FormatError::Line { line, why });
    let (mut rest, mut number) = (text, 0);
    while !rest.is_empty() {
        number += 1;
        let (line, after) = first_line(rest)?;
        let trimmed = line.trim_start_matches([' ', '\t']);
        if trimmed.is_empty() || trimmed.starts_with('#') {
            rest = after;
            continue;
        }
        let Some((name, value)) = trimmed.split_once('=') else { return invalid(number, "missing '='") };
        let bare = name.trim_end_matches([' ', '\t']);
        if bare.is_empty() {
            return invalid(number, "empty variable name");
        }
        if bare != name {
            return invalid(number, "whitespace before '=' is not allowed");
        }
        if value.starts_with([' ', '\t']) {
            if name == key {
                return Ok(Some(String::new()));
            }
            rest = after;
            continue;
        }
        if !value.starts_with('\'') {
            return invalid(number, "value must be enclosed in single quotes");
        }
        // From the opening quote on, over as many lines as it takes.
        let open = &rest[line.len() - value.len() + 1..];
        let Some(end) = open.find('\'') else {
            return Err(FormatError::Unclosed { line: number });
        };
        let (quoted, behind) = (&open[..end], &open[end + 1..]);
        let lines = quoted.matches('\n').count();
        if quoted.split('\n').any(|l| l.len() > MAX_LINE) {
            return Err(FormatError::Long);
        }
        number += lines;
        let (tail, after) = first_line(behind)?;
        let tail = tail.trim_start_matches([' ', '\t']);
        if !tail.is_empty() && !tail.starts_with('#') {
            return invalid(number, "unexpected content after closing quote");
        }
        if name == key {
            return Ok(Some(quoted.replace("\r\n", "\n")));
        }
        rest = after;
    }
    Ok(None)
}

/// A line without its end, and what follows it.
fn first_line(text: &str) -> Result<(&str, &str), FormatError> {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    if line.len() > MAX_LINE {
        return Err(FormatError::Long);
    }
    Ok((line.strip_suffix('\r').unwrap_or(line), after))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn variables_of_files() {
        let check = |text: &str, key: &str, want: Result<Option<&str>, &str>| {
            let got = variable(text, key);
            match want {
                Ok(want) => assert_eq!(got.as_ref().map(|v| v.as_deref()), Ok(want), "{text:?}"),
                Err(want) => {
                    assert!(got.as_ref().is_err_and(|e| e.to_string().contains(want)), "{text:?}: {got:?}");
                }
            }
        };
        check("   KEY1='val1'\n\t\tKEY2='val2'\nKEY3='val3'\n", "KEY2", Ok(Some("val2")));
        check("# comment\nKEY1='foo'\n   # another\n\nKEY2='bar'", "KEY2", Ok(Some("bar")));
        check("KEY1 = 'val1'\nKEY2='v'", "KEY2", Err("line 1: whitespace before '=' is not allowed"));
        check("KEY1=  'val1'\nKEY2='v'", "KEY1", Ok(Some("")));
        check("KEY1=  'val1'\nKEY2='v'", "KEY2", Ok(Some("v")));
        check("KEY1='foo'\n", "KEY3", Ok(None));
        check("KEY1='foo#no'\n", "KEY1", Ok(Some("foo#no")));
        check("KEY1='foo=bar=baz'", "KEY1", Ok(Some("foo=bar=baz")));
        check("KEY1='foo'\nKEY2='bar' # comment\n", "KEY2", Ok(Some("bar")));
        check("='foo'\n", "KEY2", Err("line 1: empty variable name"));
        check("KEY1='$VAR${X}'", "KEY1", Ok(Some("$VAR${X}")));
        check("KEY1='foo'\nINVALID_LINE\nKEY2='b'", "KEY2", Err("line 2: missing '='"));
        check("KEY1='foo'\nINVALID_LINE\n", "KEY1", Ok(Some("foo")));
        check("KEY1=foo", "KEY1", Err("value must be enclosed in single quotes"));
        check("KEY1=\"foo\"", "KEY1", Err("value must be enclosed in single quotes"));
        check("KEY1='foo''bar'", "KEY1", Err("unexpected content after closing quote"));
        check("KEY2='bar\nKEY3='baz'\n", "KEY2", Err("line 2: unexpected content after closing quote"));
        check("KEY1='a\nb\n\nc'\nKEY2='x'", "KEY1", Ok(Some("a\nb\n\nc")));
        check("KEY1='a\nb'\nKEY2='x'\nbad", "KEY2", Ok(Some("x")));
        check("A='1'\r\nB='a\r\nb'\r\n", "B", Ok(Some("a\nb")));
        check("KEY1='a\nb'\nbad", "KEY2", Err("line 3: missing '='"));
        check("KEY1='a\nb", "KEY1", Err("starting at line 1: unclosed single quote"));
        check(&format!("A='{}'", "x".repeat(MAX_LINE)), "A", Err("token too long"));
        check(&format!("A='\n{}'", "x".repeat(MAX_LINE + 1)), "A", Err("token too long"));
    }

    #[test]
    fn what_is_not_a_file_of_the_volume_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, secret) = (dir.path().join("volume"), dir.path().join("secret"));
        fs::create_dir_all(volume.join("sub")).unwrap();
        fs::write(&secret, "A='secret'\n").unwrap();
        fs::write(volume.join("sub/f"), "A='a'\n").unwrap();
        fs::write(volume.join("empty"), "A=''\n").unwrap();
        fs::write(volume.join("bytes"), b"A='\xff'\n").unwrap();
        symlink("sub/f", volume.join("near")).unwrap();
        symlink("/sub/f", volume.join("rooted")).unwrap();
        symlink(&secret, volume.join("far")).unwrap();
        symlink("../../secret", volume.join("sub/up")).unwrap();
        rustix::fs::mknodat(CWD, volume.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::File::create(volume.join("huge")).unwrap().set_len(10 << 30).unwrap();
        let check = |path: &str, want: Option<Option<&str>>| {
            let got = read(&volume, Path::new(path), "A").ok();
            assert_eq!(got.as_ref().map(|v| v.as_deref()), want, "{path}");
        };
        check("sub/f", Some(Some("a")));
        check("near", Some(Some("a")));
        check("rooted", Some(Some("a")));
        check("empty", Some(None));
        for path in ["far", "sub/up", "fifo", "huge", "sub", "none", "bytes"] {
            check(path, None);
        }
    }
}
