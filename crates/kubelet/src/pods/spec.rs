//! Questions about a Pod's specification.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, EnvVar, EphemeralContainer, Pod, PodSpec, PodStatus, VolumeDevice,
    VolumeMount,
};

use objects::Amount;
pub(crate) use objects::pod::is_sidecar;
use objects::quantity::{self, ResourceList};
use objects::resources::{self, Counting};

/// The specification; an empty one where there is none.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static NONE: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NONE)
}
/// The status that the API knows; an empty one where there is none.
pub(crate) fn status(pod: &Pod) -> &PodStatus {
    static NONE: LazyLock<PodStatus> = LazyLock::new(PodStatus::default);
    pod.status.as_ref().unwrap_or(&NONE)
}
/// uid.
pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}
/// Name.
pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
/// Namespace.
pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}
/// `name_namespace(uid)`, as upstream's messages name a Pod.
pub(crate) fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}
/// Init containers.
pub(crate) fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod).init_containers.as_deref().unwrap_or_default()
}
/// Containers.
pub(crate) fn containers(pod: &Pod) -> &[Container] {
    &spec(pod).containers
}
/// The names of the volumes that containers of any kind mount, have as devices, or read a variable from.
pub(crate) fn used_volumes<'p>(pod: &'p Pod) -> HashSet<&'p str> {
    type Uses<'p> = (&'p Option<Vec<VolumeMount>>, &'p Option<Vec<VolumeDevice>>, &'p Option<Vec<EnvVar>>);
    let mut used = HashSet::new();
    let mut add = |(mounts, devices, variables): Uses<'p>| {
        used.extend(mounts.iter().flatten().map(|mount| mount.name.as_str()));
        used.extend(devices.iter().flatten().map(|device| device.name.as_str()));
        let sources = variables.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
        used.extend(sources.filter_map(|source| Some(source.file_key_ref.as_ref()?.volume_name.as_str())));
    };
    for c in containers(pod).iter().chain(init_containers(pod)) {
        add((&c.volume_mounts, &c.volume_devices, &c.env));
    }
    for c in spec(pod).ephemeral_containers.iter().flatten() {
        add((&c.volume_mounts, &c.volume_devices, &c.env));
    }
    used
}
/// Ephemeral containers as containers, each with its target.
pub(crate) fn ephemeral_containers(pod: &Pod) -> Vec<(Container, Option<String>)> {
    spec(pod).ephemeral_containers.iter().flatten().map(ephemeral).collect()
}

fn ephemeral(e: &EphemeralContainer) -> (Container, Option<String>) {
    let e = e.clone();
    let container = Container {
        args: e.args,
        command: e.command,
        env: e.env,
        env_from: e.env_from,
        image: e.image,
        image_pull_policy: e.image_pull_policy,
        lifecycle: e.lifecycle,
        liveness_probe: e.liveness_probe,
        name: e.name,
        ports: e.ports,
        readiness_probe: e.readiness_probe,
        resize_policy: e.resize_policy,
        resources: e.resources,
        restart_policy: e.restart_policy,
        restart_policy_rules: e.restart_policy_rules,
        security_context: e.security_context,
        startup_probe: e.startup_probe,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        tty: e.tty,
        volume_devices: e.volume_devices,
        volume_mounts: e.volume_mounts,
        working_dir: e.working_dir,
    };
    (container, e.target_container_name)
}

/// The container of a name, of any of the three kinds.
pub(crate) fn find_container(pod: &Pod, name: &str) -> Option<Container> {
    containers(pod).iter().chain(init_containers(pod)).find(|c| c.name == name).cloned().or_else(|| {
        spec(pod).ephemeral_containers.iter().flatten().find(|c| c.name == name).map(|e| ephemeral(e).0)
    })
}

/// Where a container stands in the Pod, as events and upstream's messages point to it.
pub(crate) fn field_path(pod: &Pod, container: &str) -> String {
    let list = if containers(pod).iter().any(|c| c.name == container) {
        "containers"
    } else if init_containers(pod).iter().any(|c| c.name == container) {
        "initContainers"
    } else {
        "ephemeralContainers"
    };
    format!("spec.{list}{{{container}}}")
}

/// The Pod's restart policy.
pub(crate) fn restart_policy(pod: &Pod) -> &str {
    spec(pod).restart_policy.as_deref().unwrap_or("Always")
}
/// Whether the Pod shares the node's network.
pub(crate) fn host_network(pod: &Pod) -> bool {
    spec(pod).host_network == Some(true)
}
/// Whether the Pod comes from a file of this node.
pub(crate) fn is_static(pod: &Pod) -> bool {
    pod.metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(super::labels::CONFIG_SOURCE))
        .is_some_and(|source| source != "api")
}
/// A Pod of the API as this kubelet takes it: no writer of the API makes it one of the node's own.
pub(crate) fn of_api(pod: &Arc<Pod>) -> Arc<Pod> {
    if !is_static(pod) {
        return pod.clone();
    }
    let mut own = Pod::clone(pod);
    let annotations = own.metadata.annotations.get_or_insert_default();
    annotations.insert(super::labels::CONFIG_SOURCE.into(), "api".into());
    Arc::new(own)
}
/// Whether the Pod stands for one that comes from a file of this node.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(super::labels::CONFIG_MIRROR))
}
/// The least priority of the classes that upstream keeps for the system.
pub(crate) const SYSTEM_CRITICAL: i32 = 2_000_000_000;
/// Whether the node depends on the Pod; upstream's rule.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || spec(pod).priority.is_some_and(|p| p >= SYSTEM_CRITICAL)
}
/// The grace period of deletion if it is being deleted, else the Pod's own.
pub(crate) fn grace_period(pod: &Pod) -> i64 {
    pod.metadata.deletion_grace_period_seconds.or(spec(pod).termination_grace_period_seconds).unwrap_or(30)
}

fn rule_matches(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let named = codes.values.as_ref().is_some_and(|v| v.contains(&exit_code));
    match codes.operator.as_str() {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    }
}

/// The first of a container's rules that is about its end with this code.
pub(crate) fn matching_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().flatten().find(|rule| rule_matches(rule, exit_code))
}

/// Whether a container that ended with this code is to run again: its own rules, then its own
/// policy, then the Pod's.
pub(crate) fn should_restart(container: &Container, pod: &Pod, exit_code: i32) -> bool {
    let policy = if let Some(policy) = &container.restart_policy {
        if matching_rule(container, exit_code).is_some() {
            return true;
        }
        policy.as_str()
    } else {
        restart_policy(pod)
    };
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

/// Quality of service class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Qos {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The class, as the API's status has it or computed from cpu and memory.
pub(crate) fn qos(pod: &Pod) -> Qos {
    match status(pod).qos_class.as_deref() {
        Some("Guaranteed") => return Qos::Guaranteed,
        Some("Burstable") => return Qos::Burstable,
        Some("BestEffort") => return Qos::BestEffort,
        _ => {}
    }
    let mut guaranteed = true;
    let mut any = false;
    let pod_level = spec(pod).resources.iter().filter(|r| r.limits.is_some() || r.requests.is_some());
    let mut all: Vec<_> = pod_level.cloned().collect();
    if all.is_empty() {
        all = containers(pod)
            .iter()
            .chain(init_containers(pod))
            .map(|c| c.resources.clone().unwrap_or_default())
            .collect();
    }
    for r in all {
        for name in ["cpu", "memory"] {
            let request = amount(r.requests.as_ref(), name);
            let limit = amount(r.limits.as_ref(), name);
            any |= request > 0 || limit > 0;
            guaranteed &= limit > 0 && (request == limit || request == 0);
        }
    }
    match (any, guaranteed) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

/// An amount of a resource list in thousandths.
pub(crate) fn amount(list: Option<&ResourceList>, name: &str) -> i64 {
    quantity::milli(list.and_then(|l| l.get(name)))
}
/// A container's limit in thousandths; 0 for none.
fn limit(c: &Container, name: &str) -> i64 {
    amount(c.resources.as_ref().and_then(|r| r.limits.as_ref()), name)
}

/// The request of the whole Pod for a resource: cpu in thousandths, everything else in units. The kubelet has put what it
/// gave into the specification, so the status does not count.
pub(crate) fn pod_request(pod: &Pod, name: &str) -> i64 {
    saturated(resources::pod_requests(pod, Counting::default()).get(name))
}
/// The whole Pod's limit: cpu in thousandths, everything else in units; 0 if any container is without one.
pub(crate) fn pod_limit(pod: &Pod, name: &str) -> i64 {
    let at_pod = amount(spec(pod).resources.as_ref().and_then(|r| r.limits.as_ref()), name);
    let unlimited = |c: &Container| limit(c, name) == 0;
    if at_pod == 0 && (containers(pod).iter().any(unlimited) || init_containers(pod).iter().any(unlimited)) {
        return 0;
    }
    saturated(resources::pod_limits(pod).get(name))
}

/// The amount of a resource that a node gives, in the units of [`pod_request`].
pub(crate) fn capacity(allocatable: &ResourceList, name: &str) -> i64 {
    let amount = allocatable.get(name);
    if name == "cpu" { quantity::milli(amount) } else { quantity::value(amount) }
}

fn saturated(amount: Amount) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Hash of what makes a running container another one when it changes: its name and image. Resources
/// are resized in place.
///
/// DIFFERENCE: upstream hashes the same two fields in another text. Only the kubelet that made a container reads it.
pub(crate) fn container_hash(c: &Container) -> u64 {
    let text =
        serde_json::json!({"name": c.name, "image": c.image.as_deref().unwrap_or_default()}).to_string();
    // FNV-1a, 32 bits: stable across builds, which std's hasher is not.
    u64::from(text.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193)))
}

/// The key under which the failures of a container are counted, beginning with the Pod's uid: a container of another image
/// or of other resources starts anew.
pub(crate) fn backoff_key(uid: &str, c: &Container) -> String {
    // The texts of resources, whose maps are in order: equal ones are equal.
    let resources = serde_json::json!(c.resources);
    format!("{uid}/{}/{:x}/{resources}", c.name, container_hash(c))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(value: Value) -> Container {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn volumes_that_are_used() {
        let mount = |volume: &str| json!([{"name": volume, "mountPath": "/d"}]);
        let file = json!([{"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "f", "path": "p", "key": "k"}}},
            {"name": "P", "value": "v"}]);
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "unused", "emptyDir": {}}],
            "initContainers": [{"name": "i", "volumeMounts": mount("a")}],
            "containers": [{"name": "c", "volumeDevices": [{"name": "b", "devicePath": "/dev/x"}], "env": file},
                {"name": "d", "volumeMounts": mount("a")}],
            "ephemeralContainers": [{"name": "e", "volumeMounts": mount("c")}],
        }}))
        .unwrap();
        let mut used: Vec<&str> = used_volumes(&pod).into_iter().collect();
        used.sort_unstable();
        assert_eq!(used, ["a", "b", "c", "f"]);
    }

    /// Upstream's case of `TestHashContainer` and its 4 of `TestHashContainerWithoutResources`, where nothing but the name and
    /// the image counts.
    #[test]
    fn hashes_stay_what_they_are() {
        let check = |c: Value, like: Value| {
            assert_eq!(container_hash(&container(c.clone())), container_hash(&container(like)), "{c}");
        };
        check(
            json!({"name": "test_container", "image": "foo/image:v1", "args": ["/bin/sh", "-c", "echo abc"],
                "ports": [{"containerPort": 8001}]}),
            json!({"name": "test_container", "image": "foo/image:v1"}),
        );
        for (limit, restarts) in [("200m", "cpu"), ("200m", "memory"), ("100m", "cpu"), ("100m", "memory")] {
            let policy = |name: &str| {
                let policy = if name == restarts { "RestartContainer" } else { "NotRequired" };
                json!({"resourceName": name, "restartPolicy": policy})
            };
            check(
                json!({"name": "foo", "image": "bar", "resizePolicy": [policy("cpu"), policy("memory")],
                    "resources": {"limits": {"cpu": limit}, "requests": {"cpu": "100m"}}}),
                json!({"name": "foo", "image": "bar"}),
            );
        }
        let of = |name: &str, image: &str| container_hash(&container(json!({"name": name, "image": image})));
        assert!(of("foo", "bar") != of("foo", "baz") && of("foo", "bar") != of("fox", "bar"));
    }

    /// Upstream's 2 Pods of `TestGetBackoffKey`: another container, Pod, image or request starts anew, nothing else does.
    #[test]
    fn failures_are_counted_anew_after_a_change() {
        let with = json!({"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "200m", "memory": "200Mi"}});
        for resources in [json!({}), with] {
            let first = json!({"name": "test_container", "image": "foo/image:v1", "resources": resources});
            let original = backoff_key("a", &container(first.clone()));
            let check = |change: (&str, Value), same: bool| {
                let mut changed = first.clone();
                changed[change.0] = change.1.clone();
                assert_eq!(backoff_key("a", &container(changed)) == original, same, "{change:?}");
            };
            check(("args", json!(["x"])), true);
            check(("name", json!("second_container")), false);
            check(("image", json!("foo/image:v2")), false);
            let mut larger = resources.clone();
            larger["requests"]["cpu"] = json!("200m");
            check(("resources", larger), false);
            assert_ne!(backoff_key("b", &container(first.clone())), original);
        }
    }
}
