//! Which fields a resource or subresource resets on a write: nobody comes to manage them through it.
//! Upstream's `GetResetFields` and `GetResetFieldsFilter`.

/// A path of field names.
pub type Path = &'static [&'static str];
/// A path in which `None` stands for any step.
pub type Pattern = &'static [Option<&'static str>];

const SPEC: &[Path] = &[&["spec"]];
const STATUS: &[Path] = &[&["status"]];
const SPEC_AND_METADATA: &[Path] = &[&["spec"], &["metadata"]];

/// The fields that are reset with all below them. `has_status` says whether the resource has a
/// subresource `status`.
pub fn fields(group: &str, resource: &str, subresource: &str, has_status: bool) -> &'static [Path] {
    match (group, resource, subresource) {
        ("certificates.k8s.io", "certificatesigningrequests", "") => &[&["spec"], &["status"]],
        ("certificates.k8s.io", "certificatesigningrequests", "status") => {
            &[&["spec"], &["status", "conditions"]]
        }
        ("certificates.k8s.io", "certificatesigningrequests", "approval") => {
            &[&["spec"], &["status", "certificate"]]
        }
        ("", "namespaces", "finalize") => STATUS,
        ("", "pods", "status") => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        ("apps", "deployments", "status") => &[&["spec"], &["metadata", "labels"]],
        (
            "scheduling.k8s.io"
            | "resource.k8s.io"
            | "storagemigration.k8s.io"
            | "internal.apiserver.k8s.io"
            | "storage.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "admissionregistration.k8s.io"
            | "apiregistration.k8s.io",
            _,
            "status",
        )
        | ("networking.k8s.io", "servicecidrs", "status") => SPEC_AND_METADATA,
        (_, _, "status") => SPEC,
        (_, _, "") if has_status => STATUS,
        _ => &[],
    }
}

/// The only fields that are taken, if the subresource writes just a part of the object.
pub fn only(group: &str, resource: &str, subresource: &str) -> Option<&'static [Pattern]> {
    match (group, resource, subresource) {
        ("", "pods", "ephemeralcontainers") => Some(&[&[Some("spec"), Some("ephemeralContainers")]]),
        ("", "pods", "resize") => Some(&[
            &[Some("spec"), Some("containers"), None, Some("resources")],
            &[Some("spec"), Some("containers"), None, Some("resizePolicy")],
            &[Some("spec"), Some("initContainers"), None, Some("resources")],
            &[Some("spec"), Some("initContainers"), None, Some("resizePolicy")],
        ]),
        _ => None,
    }
}
