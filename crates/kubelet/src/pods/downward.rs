//! Values of a Pod that its containers may see: fields and resources of the downward API.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::names;
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
    #[error("invalid key subscript in {path}: {faults}")]
    Key { path: String, faults: String },
    #[error("unsupported container resource : {0}")]
    Resource(String),
    #[error("container {0} not found")]
    Container(String),
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
            // Keys of annotations may have capital letters in their domain.
            let (map, checked) = match base {
                "metadata.labels" => (meta.labels.as_ref(), key.to_owned()),
                "metadata.annotations" => (meta.annotations.as_ref(), key.to_lowercase()),
                _ => return Err(FieldError::Subscript(path.to_owned())),
            };
            let faults = names::qualified_name(&checked).join(";");
            if !faults.is_empty() {
                return Err(FieldError::Key { path: base.to_owned(), faults });
            }
            return Ok(get(map, key));
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

    /// The limit in thousandths of a container without one: that of the whole Pod, or what the node gives. Huge pages have
    /// none.
    fn default_limit(&self, name: &str) -> i64 {
        let of_pod = spec::spec(self.pod).resources.as_ref().and_then(|r| r.limits.as_ref());
        let of_node = self.allocatable.get(name);
        match quantity::milli(of_pod.and_then(|limits| limits.get(name))) {
            own if own > 0 && of_node.is_some() && name != "ephemeral-storage" => own,
            _ => quantity::milli(of_node),
        }
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
        if value == 0 && limit && !name.starts_with("hugepages-") {
            value = self.default_limit(name);
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
    let (base, rest) = path.split_once("['").filter(|(base, _)| !base.is_empty())?;
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

    fn facts<'a>(pod: &'a Pod, allocatable: &'a ResourceList) -> Facts<'a> {
        Facts { pod, pod_ips: &[], node_ips: &[], allocatable }
    }

    /// 13 of upstream's 14 cases of `TestExtractFieldPathAsString`, whose other has no object, and the 3 of `TestFormatMap`.
    #[test]
    fn fields() {
        let check = |meta: serde_json::Value, path: &str, expected: Result<&str, &str>| {
            let pod: Pod = serde_json::from_value(json!({"metadata": meta})).unwrap();
            match (facts(&pod, &ResourceList::new()).field(path), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{path}"),
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                (got, expected) => panic!("{path} {got:?} {expected:?}"),
            }
        };
        check(json!({"namespace": "object-namespace"}), "metadata.namespace", Ok("object-namespace"));
        check(json!({"name": "object-name"}), "metadata.name", Ok("object-name"));
        check(json!({"labels": {"key": "value"}}), "metadata.labels", Ok("key=\"value\""));
        check(json!({"labels": {"key": "value\n"}}), "metadata.labels", Ok("key=\"value\\n\""));
        check(
            json!({"annotations": {"builder": "john-doe"}}),
            "metadata.annotations",
            Ok("builder=\"john-doe\""),
        );
        for key in ["spec.pod.beta.kubernetes.io/statefulset-index", "Www.k8s.io/test"] {
            check(json!({"annotations": {key: "1"}}), &format!("metadata.annotations['{key}']"), Ok("1"));
        }
        let uid = "b70b3269-858e-12a8-9cf2-1232a194038a";
        check(json!({"uid": uid}), "metadata.uid", Ok(uid));
        check(
            json!({"labels": {"something": "label value"}}),
            "metadata.labels['something']",
            Ok("label value"),
        );
        check(json!({}), "metadata.whoops", Err("unsupported fieldPath"));
        let of_annotations = "invalid key subscript in metadata.annotations";
        check(json!({}), "metadata.annotations['invalid~key']", Err(of_annotations));
        check(
            json!({}),
            "metadata.labels['Www.k8s.io/test']",
            Err("invalid key subscript in metadata.labels"),
        );
        let path = "metadata.notexisting['something']";
        check(
            json!({}),
            path,
            Err("fieldPath \"metadata.notexisting['something']\" does not support subscript"),
        );

        let check = |map: &[(&str, &str)], expected: &str| {
            let map = map.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(format_map(Some(&map)), expected);
        };
        assert_eq!(format_map(None), "");
        check(
            &[
                ("kubernetes.io/os", "linux"),
                ("node-role.kubernetes.io/master", "true"),
                ("beta.kubernetes.io/os", "linux"),
                ("kubernetes.io/hostname", "master01"),
            ],
            "beta.kubernetes.io/os=\"linux\"\nkubernetes.io/hostname=\"master01\"\nkubernetes.io/os=\"linux\"\nnode-role.kubernetes.io/master=\"true\"",
        );
        check(
            &[("flannel.alpha.coreos.com/backend-data", "{\"VNI\":1,\"VtepMAC\":\"ce:f9:c7:a4:de:64\"}")],
            "flannel.alpha.coreos.com/backend-data=\"{\\\"VNI\\\":1,\\\"VtepMAC\\\":\\\"ce:f9:c7:a4:de:64\\\"}\"",
        );
    }

    /// Upstream's 12 cases of `TestSplitMaybeSubscriptedPath`.
    #[test]
    fn subscripts() {
        for (path, expected) in [
            ("metadata.annotations['key']", Some(("metadata.annotations", "key"))),
            ("metadata.annotations['a[b']c']", Some(("metadata.annotations", "a[b']c"))),
            ("metadata.labels['['key']", Some(("metadata.labels", "['key"))),
            ("metadata.labels['key']']", Some(("metadata.labels", "key']"))),
            ("metadata.labels['']", Some(("metadata.labels", ""))),
            ("metadata.labels[' ']", Some(("metadata.labels", " "))),
            ("metadata.labels[ 'key' ]", None),
            ("metadata.labels[]", None),
            ("metadata.labels[']", None),
            ("metadata.labels['key']foo", None),
            ("['key']", None),
            ("metadata.labels", None),
        ] {
            assert_eq!(subscript(path), expected, "{path}");
        }
    }

    /// Upstream's 9 cases of `TestPodResourceLimitsDefaulting`, and the 16 of `TestExtractResourceValue`, of which 8 say the same
    /// of an init container. Limits are `CPU,MEMORY`; nobody has huge pages who did not ask for some.
    #[test]
    fn limits_and_requests() {
        let list = |text: &str| {
            let (cpu, memory) = text.split_once(',').unwrap();
            let set = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
            json!(
                set.map(|(name, amount)| (name.to_owned(), json!(amount))).collect::<serde_json::Map<_, _>>()
            )
        };
        let allocatable: ResourceList =
            serde_json::from_value(json!({"cpu": "6", "memory": "4Gi", "hugepages-2Mi": "1Gi"})).unwrap();
        let check = |of_pod: &str, own: &str, cpu: &str, memory: &str| {
            let mut pod =
                json!({"spec": {"containers": [{"name": "foo", "resources": {"limits": list(own)}}]}});
            if !of_pod.is_empty() {
                pod["spec"]["resources"] = json!({"limits": list(of_pod)});
            }
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let c = &spec::containers(&pod)[0];
            let ask = |name: &str| facts(&pod, &allocatable).resource(c, name, None).unwrap();
            assert_eq!([ask("limits.cpu"), ask("limits.memory")], [cpu, memory], "{of_pod} {own}");
            assert_eq!(ask("limits.hugepages-2Mi"), "0");
        };
        let (node, mib) = ("4294967296", "1048576");
        check("", "0,0", "6", node);
        check("", "1,0", "1", node);
        check("", ",", "6", node);
        check("", "0,1Mi", "6", mib);
        check("0,1Mi", "0,0", "6", mib);
        check("1,0", "0,0", "1", node);
        check("1,1Mi", ",", "1", mib);
        check("1,5Mi", "0,1Mi", "1", mib);
        check("1,5Mi", "1,1Mi", "1", mib);

        let check = |resource: &str, divisor: &str, requests: &str, limits: &str, expected: &str| {
            let container =
                json!({"name": "foo", "resources": {"requests": list(requests), "limits": list(limits)}});
            let pod: Pod = serde_json::from_value(
                json!({"spec": {"containers": [container], "initContainers": [container]}}),
            )
            .unwrap();
            let all = spec::containers(&pod).iter().chain(spec::init_containers(&pod));
            for c in all {
                let got = facts(&pod, &allocatable).resource(c, resource, Some(divisor));
                assert_eq!(got.as_deref(), Ok(expected), "{resource} {divisor}");
            }
        };
        check("limits.cpu", "0", ",", "9,", "9");
        check("requests.cpu", "0", ",", ",", "0");
        check("requests.cpu", "0", "8,", ",", "8");
        check("requests.cpu", "0", "100m,", ",", "1");
        check("requests.cpu", "100m", "1200m,", ",", "12");
        check("requests.memory", "0", ",100Mi", ",", "104857600");
        check("requests.memory", "1Mi", ",100Mi", ",1Gi", "100");
        check("limits.memory", "0", ",10Mi", ",100Mi", "104857600");
    }
}
