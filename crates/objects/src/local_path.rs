//! Volumes in a directory of a node: what their provisioner and the nodes' agents agree on.
//!
//! An agent tells its directory in the annotation [`DIRECTORY`] of its Node. A volume's directory has the volume's name
//! there, which comes from the uid of the claim for which it was made: no part of a path is anybody's choice. The
//! provisioner asks for the removal of directories by their names in [`REMOVE`], and the agent tells in [`REMOVED`]
//! which of those are gone; each annotation has one writer.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The provisioner, as classes and volumes name it.
pub const PROVISIONER: &str = "ferrokube.io/local-path";
/// The name of the class that every cluster has at first.
pub const CLASS: &str = "local-path";
/// The annotation of a Node with the directory of its volumes; its agent writes it.
pub const DIRECTORY: &str = "ferrokube.io/local-path-directory";
/// The annotation of a Node with the names of the volumes whose content is to be removed; the provisioner writes it.
pub const REMOVE: &str = "ferrokube.io/local-path-remove";
/// The annotation of a Node with those of the names in [`REMOVE`] of which nothing is left; the agent writes it.
pub const REMOVED: &str = "ferrokube.io/local-path-removed";
/// The annotation of a volume with the name of its node.
pub const NODE: &str = "ferrokube.io/local-path-node";
/// The most names in an annotation.
pub const MOST: usize = 64;

/// The annotation that every provisioner writes to its volumes.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PREFIX: &str = "pvc-";

/// Returns the name of the volume for the claim with this uid.
pub fn name_for(uid: &str) -> String {
    format!("{PREFIX}{uid}")
}

/// Whether a text is the name of a volume as [`name_for`] makes it of a uid, and so of one directory.
pub fn is_name(text: &str) -> bool {
    let Some(uid) = text.strip_prefix(PREFIX) else { return false };
    uid.len() == 36
        && uid.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => matches!(b, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// Reads the names of volumes in an annotation, at most [`MOST`]; what is no name is passed over.
pub fn names(meta: &ObjectMeta, annotation: &str) -> BTreeSet<String> {
    let text = meta.annotations.as_ref().and_then(|a| a.get(annotation)).map_or("", String::as_str);
    text.split(',').filter(|name| is_name(name)).take(MOST).map(str::to_owned).collect()
}

/// Writes names for an annotation; `None` if there are none.
pub fn text(names: &BTreeSet<String>) -> Option<String> {
    let all: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Returns the directory of a volume's content below `directory`, if the provisioner made the volume for that.
pub fn path_of(volume: &PersistentVolume, directory: &str) -> Option<String> {
    let by = volume.metadata.annotations.as_ref()?.get(PROVISIONED_BY)?;
    let name = volume.metadata.name.as_deref()?;
    let told = volume.spec.as_ref()?.local.as_ref()?.path.as_str();
    let path = join(directory, name);
    (by == PROVISIONER && is_name(name) && told == path).then_some(path)
}

/// Returns the path of a volume of this name below a directory.
pub fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "0a1b2c3d-0000-4444-8888-0123456789ab";

    #[test]
    fn names_are_of_uids() {
        let check = |text: &str, expected: bool| assert_eq!(is_name(text), expected, "{text}");
        check(&name_for(UID), true);
        for bad in ["", "pvc-", "pvc-../../../../etc", "x", UID, "pvc-0a1b2c3d-0000-4444-8888-0123456789a/"] {
            check(bad, false);
        }
        check(&name_for(&UID.to_uppercase()), false);
        check(&format!("{}x", name_for(UID)), false);
    }

    #[test]
    fn annotations_hold_names() {
        let meta = |text: &str| ObjectMeta {
            annotations: Some([(REMOVE.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let (one, other) = (name_for(UID), name_for(&UID.replace('a', "b")));
        let both = BTreeSet::from([one.clone(), other.clone()]);
        assert_eq!(names(&meta(&format!("{other},{one},../x,,{one}")), REMOVE), both);
        assert_eq!(names(&meta(&text(&both).unwrap()), REMOVE), both);
        assert_eq!((names(&meta(&one), REMOVED).len(), text(&BTreeSet::new())), (0, None));
    }

    #[test]
    fn paths_are_of_own_volumes() {
        let check = |name: &str, by: &str, path: &str, expected: Option<&str>| {
            let volume = serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": {PROVISIONED_BY: by}},
                "spec": {"local": {"path": path}},
            }))
            .unwrap();
            assert_eq!(path_of(&volume, "/data/volumes/").as_deref(), expected, "{name} {by} {path}");
        };
        let name = name_for(UID);
        let path = format!("/data/volumes/{name}");
        check(&name, PROVISIONER, &path, Some(&path));
        check(&name, "other", &path, None);
        check(&name, PROVISIONER, "/etc", None);
        check(&name, PROVISIONER, &format!("/data/volumes/x/../{name}"), None);
        check("x", PROVISIONER, "/data/volumes/x", None);
    }
}
