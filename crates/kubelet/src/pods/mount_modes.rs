//! The ways in which containers mount volumes.

use cri::runtime as pb;
use k8s_openapi::api::core::v1::VolumeMount;

/// Why a volume cannot be mounted as a container wants it; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MountModeError {
    #[error("invalid MountPropagation mode: {0:?}")]
    Propagation(String),
    #[error("volume {0:?} requested recursive read-only mode, but it is not read-only")]
    Writable(String),
    #[error(
        "volume {volume:?} requested recursive read-only mode, but it is not compatible with propagation {propagation:?}"
    )]
    Propagated { volume: String, propagation: String },
    #[error("volume {0:?} requested recursive read-only mode, but it is not supported by the runtime")]
    Unsupported(String),
    #[error("unknown recursive read-only mode {0:?}")]
    Unknown(String),
}

/// How mounts below a mount come to the container, and from it.
pub(super) fn propagation(mount: &VolumeMount) -> Result<pb::MountPropagation, MountModeError> {
    match mount.mount_propagation.as_deref() {
        None | Some("None" | "") => Ok(pb::MountPropagation::PropagationPrivate),
        Some("HostToContainer") => Ok(pb::MountPropagation::PropagationHostToContainer),
        Some("Bidirectional") => Ok(pb::MountPropagation::PropagationBidirectional),
        Some(other) => Err(MountModeError::Propagation(other.to_owned())),
    }
}

/// Whether a mount is read-only all the way down, by a runtime that can do that or cannot.
pub(crate) fn recursive_read_only(mount: &VolumeMount, runtime: bool) -> Result<bool, MountModeError> {
    let volume = || mount.name.clone();
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled" | "") => return Ok(false),
        Some(mode) => mode,
    };
    if mount.read_only != Some(true) {
        return Err(MountModeError::Writable(volume()));
    }
    if let Some(p) = mount.mount_propagation.as_deref().filter(|p| *p != "None") {
        return Err(MountModeError::Propagated { volume: volume(), propagation: p.to_owned() });
    }
    match mode {
        "IfPossible" => Ok(runtime),
        "Enabled" if runtime => Ok(true),
        "Enabled" => Err(MountModeError::Unsupported(volume())),
        other => Err(MountModeError::Unknown(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Upstream's 16 cases of `TestResolveRecursiveReadOnly`.
    #[test]
    fn mounts_are_read_only_all_the_way_down() {
        let check = |read_only: bool,
                     mode: &str,
                     propagation: &str,
                     runtime: bool,
                     expected: Result<bool, &str>| {
            let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
            let mount: VolumeMount = serde_json::from_value(json!({"name": "v", "mountPath": "/v",
                "readOnly": read_only, "recursiveReadOnly": some(mode), "mountPropagation": some(propagation)}))
            .unwrap();
            match (recursive_read_only(&mount, runtime), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{mount:?}"),
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                (got, expected) => panic!("{mount:?} {got:?} {expected:?}"),
            }
        };
        check(false, "", "", true, Ok(false));
        check(true, "", "", true, Ok(false));
        check(true, "Disabled", "", true, Ok(false));
        for mode in ["IfPossible", "Enabled"] {
            check(true, mode, "", true, Ok(true));
            check(true, mode, "None", true, Ok(true));
            for propagation in ["HostToContainer", "Bidirectional"] {
                check(true, mode, propagation, true, Err("not compatible with propagation"));
            }
            check(false, mode, "", true, Err("not read-only"));
        }
        check(false, "IfPossible", "", false, Err("not read-only"));
        check(true, "Enabled", "", false, Err("not supported by the runtime"));
        check(true, "foo", "", true, Err("unknown recursive read-only mode"));
        check(true, "IfPossible", "", false, Ok(false));
    }
}
