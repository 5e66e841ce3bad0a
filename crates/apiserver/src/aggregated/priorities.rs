//! The places of groups and versions in discovery: those of upstream's tables (`pkg/controlplane/apiserver/aggregator.go`
//! and `cmd/kube-apiserver/app/aggregator.go`).

/// The place of a group version: higher numbers come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority {
    /// Of the group (`groupPriorityMinimum`).
    pub(crate) group: i32,
    /// Of the version in it (`versionPriority`).
    pub(crate) version: i32,
}

/// The group of APIServices themselves, which has none, and stands before all others.
pub(crate) const REGISTRATION: &str = "apiregistration.k8s.io";

/// The group that is computed here unless another server has it. Those who install such a server bring its APIService
/// and own it, so none is made here that would be in the way. Its place is that of metrics-server.
pub(crate) const COMPUTED: &str = "metrics.k8s.io";
const OF_COMPUTED: Priority = Priority { group: 100, version: 100 };

/// A group with its priority, and its versions with theirs.
type Row = (&'static str, i32, &'static [(&'static str, i32)]);

const TABLE: [Row; 21] = [
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15), ("v1beta1", 5)]),
    ("authentication.k8s.io", 17700, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[("v1", 15), ("v2", 30), ("v2beta1", 9), ("v2beta2", 1)]),
    ("batch", 17400, &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)]),
    ("certificates.k8s.io", 17300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("networking.k8s.io", 17200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("scheduling.k8s.io", 16600, &[("v1", 15), ("v1alpha2", 2)]),
    ("coordination.k8s.io", 16500, &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)]),
    ("node.k8s.io", 16300, &[("v1", 15), ("v1alpha1", 1), ("v1beta1", 9)]),
    ("discovery.k8s.io", 16200, &[("v1", 15), ("v1beta1", 12)]),
    ("resource.k8s.io", 16200, &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)]),
    ("flowcontrol.apiserver.k8s.io", 16100, &[("v1", 21), ("v1beta3", 18), ("v1beta2", 15)]),
    ("internal.apiserver.k8s.io", 16000, &[("v1alpha1", 9)]),
];
const MIGRATION: Row = ("storagemigration.k8s.io", 15800, &[("v1beta1", 9)]);

/// The place of a group version that is built in; `None` if upstream's tables do not have it, and so no APIService is
/// made for it.
pub(crate) fn of_builtin(group: &str, version: &str) -> Option<Priority> {
    let (_, of_group, versions) = TABLE.iter().chain([&MIGRATION]).find(|row| row.0 == group)?;
    let (_, of_version) = versions.iter().find(|(name, _)| *name == version)?;
    Some(Priority { group: *of_group, version: *of_version })
}

/// The place of a version of a definition.
pub(crate) fn of_definition() -> Priority {
    Priority { group: 1000, version: 100 }
}

/// The place of a group version that is served here, unless its APIService says another: what is not built in is of a
/// definition.
pub(crate) fn usual(group: &str, version: &str) -> Priority {
    match group {
        REGISTRATION => return Priority { group: 20001, version: 0 },
        COMPUTED => return OF_COMPUTED,
        _ => {}
    }
    of_builtin(group, version).unwrap_or_else(of_definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_that_is_built_in_has_a_place() {
        for r in api::resources::builtin().iter().filter(|r| ![REGISTRATION, COMPUTED].contains(&r.group)) {
            assert!(of_builtin(r.group, r.version).is_some(), "{}/{}", r.group, r.version);
        }
        assert_eq!(of_builtin("apps", "v7"), None);
        assert_eq!(of_builtin("example.com", "v1"), None);
        assert_eq!(of_builtin("autoscaling", "v2"), Some(Priority { group: 17500, version: 30 }));
    }
}
