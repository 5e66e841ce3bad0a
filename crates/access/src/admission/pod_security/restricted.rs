//! The checks of the restricted level besides the baseline's: a pod gives up what it does not need.

use std::collections::BTreeSet;

use super::baseline::{added_capabilities, bad_seccomp, seccomp};
use super::pod::{Pod, Violation, containers, has_own_users, is_windows, plural, quoted, setters};

pub(super) fn allow_privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let allowing = pod
        .containers()
        .filter(|c| c.st("securityContext").opt_bool("allowPrivilegeEscalation") != Some(false));
    let names: Vec<&str> = allowing.map(|c| c.str("name")).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names)),
    })
}

pub(super) fn allow_privilege_escalation_1_25(pod: &Pod<'_>) -> Option<Violation> {
    if is_windows(pod) { None } else { allow_privilege_escalation(pod) }
}

pub(super) fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let keeping = pod.containers().filter(|c| {
        !c.st("securityContext").st("capabilities").strs("drop").any(|capability| capability == "ALL")
    });
    let keeping: Vec<&str> = keeping.map(|c| c.str("name")).collect();
    let (adding, added) = added_capabilities(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details
            .push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(added)
        ));
    }
    (!details.is_empty())
        .then(|| Violation { reason: "unrestricted capabilities", detail: details.join("; ") })
}

pub(super) fn capabilities_1_25(pod: &Pod<'_>) -> Option<Violation> {
    if is_windows(pod) { None } else { capabilities(pod) }
}

/// The sources that a volume may have.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// All others, in the order in which the first counts.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), BTreeSet::new());
    for volume in pod.spec.items("volumes").filter(|v| !VOLUMES.iter().any(|source| v.has(source))) {
        names.push(volume.str("name"));
        types.insert(RESTRICTED_VOLUMES.into_iter().find(|source| volume.has(source)).unwrap_or("unknown"));
    }
    (!names.is_empty()).then(|| Violation {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {} {}",
            plural(names.len(), "volume", "volumes"),
            quoted(names.iter().copied()),
            plural(names.len(), "uses", "use"),
            plural(types.len(), "restricted volume type", "restricted volume types"),
            quoted(types)
        ),
    })
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of_pod = pod.spec.st("securityContext").opt_bool("runAsNonRoot");
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        match container.st("securityContext").opt_bool("runAsNonRoot") {
            Some(true) => {}
            Some(false) => explicit.push(container.str("name")),
            None if of_pod == Some(true) => {}
            None => implicit.push(container.str("name")),
        }
    }
    if let Some(setters) = setters(of_pod == Some(false), &explicit) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Some(Violation { reason: REASON, detail });
    }
    (!implicit.is_empty()).then(|| Violation {
        reason: REASON,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit)),
    })
}

pub(super) fn run_as_non_root_1_35(pod: &Pod<'_>) -> Option<Violation> {
    if has_own_users(pod) { None } else { run_as_non_root(pod) }
}

pub(super) fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let root = pod.containers().filter(|c| c.st("securityContext").opt_int("runAsUser") == Some(0));
    let names: Vec<&str> = root.map(|c| c.str("name")).collect();
    let by_pod = pod.spec.st("securityContext").opt_int("runAsUser") == Some(0);
    let setters = setters(by_pod, &names)?;
    Some(Violation { reason: "runAsUser=0", detail: format!("{setters} must not set runAsUser=0") })
}

pub(super) fn run_as_user_1_35(pod: &Pod<'_>) -> Option<Violation> {
    if has_own_users(pod) { None } else { run_as_user(pod) }
}

pub(super) fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let of_pod = seccomp(pod.spec.st("securityContext"), &mut types);
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        match seccomp(container.st("securityContext"), &mut types) {
            Some(true) => {}
            Some(false) => explicit.push(container.str("name")),
            None if of_pod == Some(true) => {}
            None => implicit.push(container.str("name")),
        }
    }
    if let Some(violation) = bad_seccomp(of_pod == Some(false), &explicit, &types) {
        return Some(violation);
    }
    (!implicit.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&implicit)
        ),
    })
}

pub(super) fn seccomp_profile_1_25(pod: &Pod<'_>) -> Option<Violation> {
    if is_windows(pod) { None } else { seccomp_profile(pod) }
}
