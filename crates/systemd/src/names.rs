//! Names of slices.

/// A name that no slice has; the words are runc's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid slice name: {0}")]
pub struct InvalidSlice(pub String);

/// The path of a slice below the root of a hierarchy, without a slash at its beginning: the name holds the slices above
/// it, so that `a-b.slice` is `a.slice/a-b.slice`. The root's slice, `-.slice`, is the empty path. systemd's rule.
///
/// # Errors
/// It is no name of a slice.
pub fn expand_slice(slice: &str) -> Result<String, InvalidSlice> {
    let invalid = || InvalidSlice(slice.to_owned());
    let bare = slice.strip_suffix(".slice").ok_or_else(invalid)?;
    if bare == "-" {
        return Ok(String::new());
    }
    if bare.contains('/') || bare.split('-').any(str::is_empty) {
        return Err(invalid());
    }
    let ends = bare.match_indices('-').map(|(at, _)| at).chain([bare.len()]);
    let parts: Vec<String> = ends.map(|end| format!("{}.slice", &bare[..end])).collect();
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of systemd's `test_slice_to_path` and `test_slice_name_is_valid`.
    #[test]
    fn slices_are_in_slices() {
        let check = |slice: &str, expected: Option<&str>| {
            assert_eq!(expand_slice(slice).ok().as_deref(), expected, "{slice}");
        };
        check("foobar.slice", Some("foobar.slice"));
        check("foobar-waldo.slice", Some("foobar.slice/foobar-waldo.slice"));
        check("-.slice", Some(""));
        check("a-b.slice", Some("a.slice/a-b.slice"));
        check("a-b-c.slice", Some("a.slice/a-b.slice/a-b-c.slice"));
        check("a-b-c-d.slice", Some("a.slice/a-b.slice/a-b-c.slice/a-b-c-d.slice"));
        for none in [
            "foobar-waldo.service",
            "--.slice",
            "-",
            "-foo-.slice",
            "-foo.slice",
            "foo-.slice",
            "foo--bar.slice",
            "foo.slice/foo--bar.slice",
            "-foo-bar-baz.slice",
            "foo--bar--baz.slice",
            ".slice",
            "",
            "foo.service",
        ] {
            check(none, None);
        }
        assert_eq!(expand_slice("a/b.slice").unwrap_err().to_string(), "invalid slice name: a/b.slice");
    }
}
