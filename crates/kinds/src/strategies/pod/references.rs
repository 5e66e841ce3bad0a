//! The parts that containers and volumes have in common: references to fields of the pod and to resources of containers,
//! and the policy of pulls.

use api::field::{Errors, Path, Plain};
use api::names;
use api::quantity::nano;
use api::view::View;

/// Checks `imagePullPolicy`.
pub(super) fn pull_policy(errs: &mut Errors, at: &Path<'_>, policy: &str) {
    if policy.is_empty() {
        errs.required(at, "");
    } else {
        errs.one_of(at, policy, &["Always", "IfNotPresent", "Never"]);
    }
}

/// The path and key of a text such as `metadata.labels['key']`.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_suffix("']")?;
    let (path, key) = rest.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

const POD_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Checks a reference to a field of the pod.
pub(super) fn field_ref(errs: &mut Errors, at: &Path<'_>, r: View<'_>, allowed: &[&str]) {
    let (version, path) = (r.str("apiVersion"), r.str("fieldPath"));
    if version.is_empty() {
        errs.required(&at.field("apiVersion"), "");
        return;
    }
    if path.is_empty() {
        errs.required(&at.field("fieldPath"), "");
        return;
    }
    let convert = |errs: &mut Errors, why: String| {
        errs.invalid(&at.field("fieldPath"), path, format!("error converting fieldPath: {why}"));
    };
    if version != "v1" {
        convert(errs, format!("unsupported pod version: {version}"));
        return;
    }
    if let Some((field, key)) = subscripted(path) {
        match field {
            "metadata.annotations" => {
                errs.each(at, &key.to_lowercase(), names::qualified_name(&key.to_lowercase()));
            }
            "metadata.labels" => errs.each(at, key, names::qualified_name(key)),
            _ => convert(errs, format!("field label does not support subscript: {path}")),
        }
        return;
    }
    let path_now = if path == "spec.host" { "spec.nodeName" } else { path };
    if !POD_FIELDS.contains(&path_now) {
        convert(errs, format!("field label not supported: {path}"));
        return;
    }
    errs.one_of(&at.field("fieldPath"), path_now, allowed);
}

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks a reference to a container's resource.
pub(super) fn resource_field_ref(errs: &mut Errors, at: &Path<'_>, r: View<'_>, volume: bool) {
    const SIZES: &str = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let resource = r.str("resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if volume && r.str("containerName").is_empty() {
        errs.required(&at.field("containerName"), "");
    } else if resource.is_empty() {
        errs.required(&at.field("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge {
        errs.not_supported(&at.field("resource"), Plain(resource), RESOURCE_FIELDS);
    }
    let divisor = r.str("divisor");
    if divisor.is_empty() || nano(divisor) == 0 {
        return;
    }
    let size = matches!(
        divisor,
        "1" | "1k" | "1M" | "1G" | "1T" | "1P" | "1E" | "1Ki" | "1Mi" | "1Gi" | "1Ti" | "1Pi" | "1Ei"
    );
    let why = match resource {
        "limits.cpu" | "requests.cpu" if divisor != "1" && divisor != "1m" => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        "limits.memory" | "requests.memory" if !size => format!("{SIZES} memory resource"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" if !size => {
            format!("{SIZES} local ephemeral storage resource")
        }
        _ if huge && !size => format!("{SIZES} hugepages resource"),
        _ => return,
    };
    errs.invalid(&at.field("divisor"), resource, why);
}
