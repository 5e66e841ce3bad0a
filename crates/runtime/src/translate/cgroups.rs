//! The place of a container in the machine's cgroups, which are made by directories.

use std::path::{Component, Path, PathBuf};

use super::error::TranslateError;

/// The parent of Pods' cgroups when CRI names none.
const PARENT: &str = "/ferrokube-runtime";

/// The path of a cgroup below its parent.
pub(crate) fn path(parent: &str, id: &str) -> Result<PathBuf, TranslateError> {
    let parent = if parent.is_empty() { PARENT } else { parent };
    if parent.strip_suffix(".slice").is_some_and(|bare| !bare.contains('/')) {
        return Err(TranslateError::Slice(parent.to_owned()));
    }
    // No component leads out of the hierarchy.
    let inside = Path::new(parent).components().filter(|one| matches!(one, Component::Normal(_)));
    Ok(Path::new("/").join(inside.collect::<PathBuf>()).join(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let check = |parent: &str, expected: Option<&str>| {
            let got = path(parent, "c1").ok();
            assert_eq!(got.as_deref(), expected.map(Path::new), "{parent}");
        };
        check("/kubepods/podx", Some("/kubepods/podx/c1"));
        check("kubepods", Some("/kubepods/c1"));
        check("", Some("/ferrokube-runtime/c1"));
        check("/../../x", Some("/x/c1"));
        check("kubepods-podx.slice", None);
    }
}
