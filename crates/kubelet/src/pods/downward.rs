//! Values of a Pod that its containers may see: fields and resources of the downward API.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::spec;
use objects::quantity::{self, ResourceList};

/// Why a value of a Pod cannot be shown; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("fieldPath {0:?} does not support subscript")]
    Subscript(String),
    #[error("unsupported fieldPath: {0}")]
    Path(String),
    #[error("unsupported container resource : {0}")]
    Resource(String),
}

/// The facts that a Pod's fields are read from.
pub(crate) struct Facts<'a> {
    /// The Pod.
    pub(crate) pod: &'a Pod,
    /// Its addresses, the primary one first.
    pub(crate) pod_ips: &'a [String],
    /// The node's addresses, the primary one first.
    pub(crate) node_ips: &'a [IpAddr],
    /// The resources that the node gives to Pods: the limits of containers without limits.
    pub(crate) allocatable: &'a ResourceList,
}

impl Facts<'_> {
    /// The value of a field path, as upstream converts it.
    pub(crate) fn field(&self, path: &str) -> Result<String, FieldError> {
        let meta = &self.pod.metadata;
        if let Some((base, key)) = subscript(path) {
            return match base {
                "metadata.labels" => Ok(get(meta.labels.as_ref(), key)),
                "metadata.annotations" => Ok(get(meta.annotations.as_ref(), key)),
                _ => Err(FieldError::Subscript(path.to_owned())),
            };
        }
        let join = |ips: Vec<String>| ips.join(",");
        Ok(match path {
            "metadata.name" => spec::name(self.pod).to_owned(),
            "metadata.namespace" => spec::namespace(self.pod).to_owned(),
            "metadata.uid" => spec::uid(self.pod).to_owned(),
            "metadata.labels" => format_map(meta.labels.as_ref()),
            "metadata.annotations" => format_map(meta.annotations.as_ref()),
            "spec.nodeName" => spec::spec(self.pod).node_name.clone().unwrap_or_default(),
            "spec.serviceAccountName" => {
                spec::spec(self.pod).service_account_name.clone().unwrap_or_default()
            }
            "status.hostIP" => self.node_ips.first().map(ToString::to_string).unwrap_or_default(),
            "status.hostIPs" => join(self.node_ips.iter().map(ToString::to_string).collect()),
            "status.podIP" => self.pod_ips.first().cloned().unwrap_or_default(),
            "status.podIPs" => join(self.pod_ips.to_vec()),
            _ => return Err(FieldError::Path(path.to_owned())),
        })
    }

    /// The value of a container's resource (`limits.cpu`, …) in units of `divisor`, rounded up.
    pub(crate) fn resource(
        &self,
        container: &Container,
        resource: &str,
        divisor: Option<&str>,
    ) -> Result<String, FieldError> {
        let unsupported = || FieldError::Resource(resource.to_owned());
        let (list, name) = resource.split_once('.').ok_or_else(unsupported)?;
        let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        let r = container.resources.as_ref();
        let (amounts, limit) = match list {
            "limits" if known => (r.and_then(|r| r.limits.as_ref()), true),
            "requests" if known => (r.and_then(|r| r.requests.as_ref()), false),
            _ => return Err(unsupported()),
        };
        let set = amounts.and_then(|a| a.get(name));
        let mut value = quantity::milli(set);
        if value == 0 && limit {
            value = quantity::milli(self.allocatable.get(name));
        }
        let unit = match divisor {
            None | Some("" | "0") => 1000,
            Some(d) => quantity::parse_milli(d).filter(|d| *d > 0).unwrap_or(1000),
        };
        Ok((value / unit + i64::from(value % unit != 0)).to_string())
    }
}

fn get(map: Option<&BTreeMap<String, String>>, key: &str) -> String {
    map.and_then(|m| m.get(key)).cloned().unwrap_or_default()
}

/// `path['key']` in its parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (base, rest) = path.split_once("['")?;
    Some((base, rest.strip_suffix("']")?))
}

/// One `key="value"` a line, sorted, values quoted as Go quotes them.
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(k, v)| format!("{k}={}", api::go::quote(v))).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": "x\"y"}},
            "spec": {"nodeName": "node", "containers": []}
        }))
        .unwrap();
        let allocatable = ResourceList::from([("cpu".to_owned(), Quantity("4".into()))]);
        let facts =
            Facts { pod: &pod, pod_ips: &["10.0.0.1".into()], node_ips: &[], allocatable: &allocatable };
        for (path, want) in [
            ("metadata.name", Ok("p".to_owned())),
            ("metadata.labels", Ok("a=\"x\\\"y\"\nb=\"2\"".to_owned())),
            ("metadata.labels['b']", Ok("2".to_owned())),
            ("metadata.labels['none']", Ok(String::new())),
            ("status.podIP", Ok("10.0.0.1".to_owned())),
            ("spec.foo", Err("unsupported fieldPath: spec.foo".to_owned())),
        ] {
            assert_eq!(facts.field(path).map_err(|e| e.to_string()), want, "{path}");
        }
        let container = Container {
            resources: Some(ResourceRequirements {
                requests: Some(ResourceList::from([("memory".to_owned(), Quantity("100Mi".into()))])),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        };
        for (resource, divisor, want) in [
            ("limits.cpu", None, "4"),
            ("limits.cpu", Some("1m"), "4000"),
            ("requests.memory", Some("1Mi"), "100"),
            ("requests.memory", Some("1Gi"), "1"),
            ("requests.cpu", None, "0"),
        ] {
            assert_eq!(facts.resource(&container, resource, divisor).as_deref(), Ok(want), "{resource}");
        }
        assert!(facts.resource(&container, "limits.gpu", None).is_err());
    }
}
