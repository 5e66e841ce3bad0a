//! Directories in volumes of files, where containers mount other volumes (upstream: `nested_volumes.go`). Containers have
//! such volumes read-only, so nothing else can make these directories.

use std::borrow::Cow;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, VolumeMount};

use crate::pods::spec;

/// A volume that a container mounts outside of its own files; upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid container mount point {0}")]
pub(crate) struct OutsideError(String);

/// A path without needless parts, lexically.
fn clean(path: &str) -> Cow<'_, str> {
    let is_clean = |rest: &str| rest.split('/').all(|name| !matches!(name, "" | "." | ".."));
    if path.strip_prefix('/').is_some_and(is_clean) {
        return Cow::Borrowed(path);
    }
    let absolute = path.starts_with('/');
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." if names.last().is_some_and(|last| *last != "..") => drop(names.pop()),
            ".." if absolute => {}
            name => names.push(name),
        }
    }
    Cow::Owned(match (absolute, names.join("/")) {
        (true, path) => format!("/{path}"),
        (false, path) if path.is_empty() => ".".to_owned(),
        (false, path) => path,
    })
}

/// The part of a path that is below another one.
fn below<'p>(path: &'p str, parent: &str) -> Option<&'p str> {
    path.strip_prefix(parent)?.strip_prefix('/')
}

/// The directories that a volume of a Pod must have, relative to its root: those on which containers mount other volumes, but
/// none that is below another one.
///
/// # Errors
/// A container mounts the volume outside of its own files.
pub(super) fn mount_points(volume: &str, pod: &Pod) -> Result<BTreeSet<String>, OutsideError> {
    let containers = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let ephemeral = spec::spec(pod).ephemeral_containers.iter().flatten();
    let all = containers.map(|c| &c.volume_mounts).chain(ephemeral.map(|c| &c.volume_mounts));
    let mut found = BTreeSet::new();
    for mounts in all.flatten() {
        of_container(volume, mounts, &mut found)?;
    }
    Ok(found)
}

fn of_container(
    volume: &str,
    mounts: &[VolumeMount],
    found: &mut BTreeSet<String>,
) -> Result<(), OutsideError> {
    for own in mounts.iter().filter(|m| m.name == volume).map(|m| clean(&m.mount_path)) {
        if own.starts_with("../") {
            return Err(OutsideError(own.into_owned()));
        }
        let inner = |m: &VolumeMount| below(&clean(&m.mount_path), &own).map(str::to_owned);
        let mut nested: Vec<String> = mounts.iter().filter_map(inner).collect();
        // A path comes right before all that are below it.
        nested.sort_unstable_by(|a, b| a.split('/').cmp(b.split('/')));
        let mut outer: Option<String> = None;
        for path in nested {
            if outer.as_ref().is_none_or(|outer| path != *outer && below(&path, outer).is_none()) {
                found.insert(path.clone());
                outer = Some(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mounts(all: &[(&str, &str)]) -> Value {
        all.iter().map(|(path, name)| json!({"mountPath": path, "name": name})).collect()
    }

    /// Upstream's 6 cases of `TestGetNestedMountpoints`: the directories of the volume `vol1`.
    #[test]
    fn directories_are_there_for_other_volumes() {
        let check = |regular: &[(&str, &str)], init: &[(&str, &str)], expected: Option<&[&str]>| {
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "containers": [{"name": "c", "volumeMounts": mounts(regular)}],
                "initContainers": [{"name": "i", "volumeMounts": mounts(init)}]}}))
            .unwrap();
            let got = mount_points("vol1", &pod).ok();
            let expected: Option<BTreeSet<String>> =
                expected.map(|all| all.iter().map(|path| (*path).to_owned()).collect());
            assert_eq!(got, expected, "{regular:?} {init:?}");
        };
        check(&[("/dir", "vol1")], &[], Some(&[]));
        check(&[("/dir", "vol1"), ("/dir/nested", "vol2")], &[], Some(&["nested"]));
        let unsorted = [
            ("/dir/nested/double", "vol3"),
            ("/ignore", "vol4"),
            ("/dir/nested", "vol2"),
            ("/ignore2", "vol5"),
            ("/dir", "vol1"),
            ("/dir/nested-vol", "vol6"),
            ("/dir/nested.vol", "vol7"),
            ("/dir/nested2/double", "vol8"),
            ("/dir/nested2", "vol3"),
        ];
        check(&unsorted, &[], Some(&["nested", "nested-vol", "nested.vol", "nested2"]));
        let twice = [
            ("/dir", "vol1"),
            ("/dir/nested", "vol2"),
            ("/ignore", "vol4"),
            ("/other", "vol1"),
            ("/other/nested2", "vol3"),
        ];
        check(&twice, &[], Some(&["nested", "nested2"]));
        let regular = [
            ("/mnt", "vol1"),
            ("/ignore", "vol2"),
            ("/mnt/sub1/sub2/sub3", "vol3"),
            ("/mnt/sub1/sub2/sub4", "vol4"),
            ("/mnt/sub1/sub2/sub4/skip", "vol5"),
            ("/mnt/sub1/sub2/sub4/skip2", "vol5a"),
            ("/mnt/sub1/sub2/sub6", "vol6"),
            ("/mnt7", "vol7"),
        ];
        let init = [
            ("/mnt/dir", "vol1"),
            ("/mnt/dir_ignore", "vol8"),
            ("/ignore", "vol9"),
            ("/mnt/dir/sub", "vol11"),
        ];
        check(&regular, &init, Some(&["sub1/sub2/sub3", "sub1/sub2/sub4", "sub1/sub2/sub6", "sub"]));
        check(&[("foo/../../dir", "vol1"), ("foo/../../dir/skip", "vol10")], &[], None);
        // Needless parts of a path do not matter, nor do those that climb out of the root.
        check(&[("/dir/", "vol1"), ("/x/../../dir//./a/../b", "vol2")], &[], Some(&["b"]));
    }
}
