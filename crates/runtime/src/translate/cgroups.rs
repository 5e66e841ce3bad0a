//! The place of a container in the machine's cgroups, as the cgroup driver has it.

use std::path::{Component, Path, PathBuf};

use systemd::expand_slice;

use super::error::TranslateError;

/// The parent of Pods' cgroups when CRI names none.
const PARENT: &str = "/ferrokube-runtime";
/// The slice of Pods when CRI names none; runc's.
const SLICE: &str = "system.slice";
/// The beginning of the names of scopes: containerd's, so that tools find containers by it.
const PREFIX: &str = "cri-containerd";

/// The place of a cgroup below its parent: a path, or with `systemd` a scope in runc's form, `SLICE:PREFIX:ID`.
pub(crate) fn path(parent: &str, id: &str, systemd: bool) -> Result<PathBuf, TranslateError> {
    if systemd {
        return scope(parent, id);
    }
    let parent = if parent.is_empty() { PARENT } else { parent };
    if parent.strip_suffix(".slice").is_some_and(|bare| !bare.contains('/')) {
        return Err(TranslateError::Slice(parent.to_owned()));
    }
    // No component leads out of the hierarchy.
    let inside = Path::new(parent).components().filter(|one| matches!(one, Component::Normal(_)));
    Ok(Path::new("/").join(inside.collect::<PathBuf>()).join(id))
}

/// The parent is a slice, or a path that ends with one.
fn scope(parent: &str, id: &str) -> Result<PathBuf, TranslateError> {
    let parent = if parent.is_empty() { SLICE } else { parent };
    let slice = parent.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if slice.strip_suffix(".slice").is_none() {
        return Err(TranslateError::NoSlice(Path::new(parent).join(id)));
    }
    expand_slice(slice)?;
    Ok(format!("{slice}:{PREFIX}:{id}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let check = |parent: &str, expected: Option<&str>| {
            let got = path(parent, "c1", false).ok();
            assert_eq!(got.as_deref(), expected.map(Path::new), "{parent}");
        };
        check("/kubepods/podx", Some("/kubepods/podx/c1"));
        check("kubepods", Some("/kubepods/c1"));
        check("", Some("/ferrokube-runtime/c1"));
        check("/../../x", Some("/x/c1"));
        check("kubepods-podx.slice", None);
    }

    /// containerd's cases of its `getCgroupsPath`, and parents that systemd has no place for.
    #[test]
    fn scopes() {
        let check = |parent: &str, expected: Result<&str, &str>| {
            let got = path(parent, "test-id", true).map_err(|e| e.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), expected.map(Path::new), "{parent}");
        };
        check("a.slice", Ok("a.slice:cri-containerd:test-id"));
        check("/a.slice/a-b.slice", Ok("a-b.slice:cri-containerd:test-id"));
        check("/a.slice/a-b.slice/", Ok("a-b.slice:cri-containerd:test-id"));
        check("", Ok("system.slice:cri-containerd:test-id"));
        check("-.slice", Ok("-.slice:cri-containerd:test-id"));
        check(
            "/kubepods/podx",
            Err(
                "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got \"/kubepods/podx/test-id\" instead: this runtime's cgroup driver is systemd",
            ),
        );
        check("a--b.slice", Err("invalid slice name: a--b.slice"));
    }
}
