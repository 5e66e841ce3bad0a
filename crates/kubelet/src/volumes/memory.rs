//! The space of `emptyDir` volumes in memory, and their huge pages (upstream: `pkg/volume/emptydir`).

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};
use objects::quantity::{self, ResourceList};

use crate::pods::spec;

/// Why no huge pages can be given; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PagesError {
    /// The medium names no size, and there are several.
    #[error("medium: {0} can't be used if container requests multiple huge page sizes")]
    Several(String),
    /// The Pod asks for none of these.
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NotAsked(String),
    /// The medium names none.
    #[error("medium: {0} is not a hugepage medium")]
    Medium(String),
}

/// The bytes that a volume in memory may have: the least of its own limit, the Pod's, and what the node gives to Pods. None if
/// nothing limits it.
pub(super) fn size(source: &EmptyDirVolumeSource, pod: &Pod, allocatable: &ResourceList) -> Option<i64> {
    let limits = [
        quantity::value(source.size_limit.as_ref()),
        spec::pod_limit(pod, "memory"),
        quantity::value(allocatable.get("memory")),
    ];
    limits.into_iter().filter(|bytes| *bytes > 0).min()
}

/// The size of the huge pages of a medium (`HugePages` or `HugePages-2Mi`), as the name of the resource that the Pod asks for
/// has it.
///
/// # Errors
/// The Pod asks for no huge pages of that size, or for several sizes where the medium names none.
pub(super) fn page_size(medium: &str, pod: &Pod) -> Result<String, PagesError> {
    let wanted = match medium.strip_prefix("HugePages") {
        Some("") => None,
        Some(size) => {
            let size = size.strip_prefix('-').and_then(|size| Quantity::parse(size).ok());
            Some(size.ok_or_else(|| PagesError::Medium(medium.to_owned()))?.value())
        }
        None => return Err(PagesError::Medium(medium.to_owned())),
    };
    let of_pod = spec::spec(pod).resources.as_ref();
    let of_containers = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let all = of_pod.into_iter().chain(of_containers.filter_map(|c| c.resources.as_ref()));
    let names = all.filter_map(|r| r.requests.as_ref()).flat_map(|list| list.keys());
    let mut found: Option<(i64, &str)> = None;
    for name in names.filter_map(|name| name.strip_prefix("hugepages-")) {
        let Ok(size) = Quantity::parse(name).map(|size| size.value()) else { continue };
        match wanted {
            Some(wanted) if wanted != size => {}
            None if found.is_some_and(|(other, _)| other != size) => {
                return Err(PagesError::Several(medium.to_owned()));
            }
            _ => found = Some((size, name)),
        }
    }
    found.map(|(_, name)| name.to_owned()).ok_or_else(|| PagesError::NotAsked(medium.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(pod: Value) -> Pod {
        serde_json::from_value(pod).unwrap()
    }

    /// Upstream's 3 cases of `TestCalculateEmptyDirMemorySize`.
    #[test]
    fn memory_is_limited_by_what_is_least() {
        let check = |resources: Value, own: &str, expected: &str| {
            let pod = of(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}));
            let source = serde_json::from_value(json!({"medium": "Memory", "sizeLimit": own})).unwrap();
            let allocatable: ResourceList = serde_json::from_value(json!({"memory": "16Gi"})).unwrap();
            let expected = Quantity::parse(expected).unwrap().value();
            assert_eq!(size(&source, &pod, &allocatable), Some(expected), "{pod:?} {own}");
        };
        check(json!({"limits": {"memory": "10Gi"}}), "1Gi", "1Gi");
        check(json!({"limits": {"memory": "10Gi"}}), "0", "10Gi");
        check(json!({"requests": {"memory": "10Gi"}}), "0", "16Gi");
        // Nobody gets more than all Pods together.
        check(json!({}), "20Gi", "16Gi");
        check(json!({"limits": {"memory": "30Gi"}}), "20Gi", "16Gi");
        assert_eq!(size(&EmptyDirVolumeSource::default(), &of(json!({})), &ResourceList::new()), None);
    }

    fn requests(all: &[&[&str]]) -> Value {
        let list = |names: &[&str]| -> Value {
            names
                .iter()
                .map(|size| (format!("hugepages-{size}"), json!("2Gi")))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        all.iter().map(|names| json!({"name": "c", "resources": {"requests": list(names)}})).collect()
    }

    /// Upstream's 17 cases of `TestGetHugePagesMountOptions`.
    #[test]
    fn pages_are_those_that_the_pod_asks_for() {
        let check = |medium: &str,
                     pods: &[&str],
                     regular: &[&[&str]],
                     init: &[&[&str]],
                     expected: Result<&str, &str>| {
            let mut pod =
                json!({"spec": {"containers": requests(regular), "initContainers": requests(init)}});
            if !pods.is_empty() {
                pod["spec"]["resources"] = requests(&[pods])[0]["resources"].clone();
            }
            let got = page_size(medium, &of(pod)).map_err(|e| e.to_string());
            let got = got.as_deref().map_err(String::as_str);
            assert_eq!(got, expected, "{medium} {pods:?} {regular:?} {init:?}");
        };
        let several = Err("medium: HugePages can't be used if container requests multiple huge page sizes");
        let not_asked = |medium: &str| {
            format!(
                "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
            )
        };
        check("HugePages", &[], &[&["2Mi"]], &[], Ok("2Mi"));
        check("HugePages", &[], &[&["1Gi"], &["1Gi"]], &[], Ok("1Gi"));
        check("HugePages", &[], &[], &[&["1Gi"], &["1Gi"]], Ok("1Gi"));
        check("HugePages", &[], &[], &[&["2Mi"], &["1Gi"]], several);
        check("HugePages", &[], &[&["1Gi"], &["2Mi"]], &[], several);
        check("HugePages", &[], &[], &[], Err(&not_asked("HugePages")));
        check("HugePages-1Gi", &[], &[&["2Mi", "1Gi"]], &[], Ok("1Gi"));
        check("HugePages-2Mi", &[], &[], &[&["1Gi", "2Mi"], &["1Gi", "2Mi"]], Ok("2Mi"));
        check("HugePages-", &[], &[&["2Mi", "1Gi"]], &[], Err("medium: HugePages- is not a hugepage medium"));
        check("foo", &[], &[&["2Mi", "1Gi"]], &[], Err("medium: foo is not a hugepage medium"));
        check("HugePages-1Mi", &[], &[&["2Mi", "1Gi"]], &[], Err(&not_asked("HugePages-1Mi")));
        check("HugePages", &["2Mi"], &[], &[], Ok("2Mi"));
        check("HugePages-2Mi", &["2Mi"], &[], &[], Ok("2Mi"));
        check("HugePages", &["1Gi", "2Mi"], &[], &[], several);
        check("HugePages-2Mi", &["1Gi", "2Mi"], &[], &[], Ok("2Mi"));
        check("HugePages", &["1Gi"], &[&["2Mi"]], &[], several);
        check("HugePages-2Mi", &["1Gi"], &[&["2Mi"]], &[], Ok("2Mi"));
    }
}
