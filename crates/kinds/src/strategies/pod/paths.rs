//! Paths that must stay below a directory.

use api::field::{Errors, Path};

/// Checks a relative path without `..`.
pub(crate) fn local_descending(errs: &mut Errors, at: &Path<'_>, path: &str) {
    if path.starts_with('/') {
        errs.invalid(at, path, "must be a relative path");
    }
    no_backsteps(errs, at, path);
}

/// Checks a path without `..`.
pub(crate) fn no_backsteps(errs: &mut Errors, at: &Path<'_>, path: &str) {
    if path.split('/').any(|p| p == "..") {
        errs.invalid(at, path, "must not contain '..'");
    }
}

/// Checks a relative path that does not start with two dots either.
pub(crate) fn local_non_reserved(errs: &mut Errors, at: &Path<'_>, path: &str) {
    local_descending(errs, at, path);
    if path.starts_with("..") && !path.starts_with("../") {
        errs.invalid(at, path, "must not start with '..'");
    }
}
