//! Defaults that depend on other fields.

use api::view::{Edit, View, strings};
use api::{Map, Node, Text};
use base64::Engine as _;

use crate::resources::{self, PodTotals};

/// A default that depends on other fields.
pub(super) type Function = fn(&mut Edit<'_>);

/// The functions by type.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("core.v1.Container", pull_policy),
    ("core.v1.EphemeralContainer", pull_policy),
    ("core.v1.Volume", volume),
    ("core.v1.Pod", pod),
    ("core.v1.PodSpec", service_account_alias),
    ("core.v1.PodStatus", pod_ips),
    ("core.v1.NodeSpec", pod_cidrs),
    ("core.v1.Secret", string_data),
    ("core.v1.Service", service),
    ("core.v1.Namespace", namespace),
    ("core.v1.ReplicationController", replication_controller),
    ("core.v1.NodeStatus", node_status),
    ("core.v1.PersistentVolume", persistent_volume),
    ("core.v1.LimitRangeItem", limit_range_item),
    ("apps.v1.DeploymentStrategy", deployment_strategy),
    ("apps.v1.DaemonSet", template_generation),
    ("apps.v1.DaemonSetUpdateStrategy", daemon_set_strategy),
    ("apps.v1.StatefulSetUpdateStrategy", stateful_set_strategy),
    ("apps.v1.StatefulSetSpec", claim_types),
    ("autoscaling.v2.HorizontalPodAutoscalerSpec", autoscaler),
    ("batch.v1.Job", job_labels),
    ("rbac.v1.Subject", subject),
    ("rbac.v1.ClusterRoleBinding", role_ref),
    ("rbac.v1.RoleBinding", role_ref),
    ("networking.v1.NetworkPolicySpec", network_policy),
    ("storage.v1.CSIDriverSpec", csi_driver),
    ("resource.v1.ExactDeviceRequest", device_request),
    ("resource.v1.DeviceSubRequest", device_request),
    ("resource.v1.Device", device),
    ("apiextensions.v1.CustomResourceDefinition", custom_resource_definition),
    ("apiextensions.v1.CustomResourceDefinitionSpec", conversion),
];

/// Rounds a quantity up to thousandths; canonical text below that ends in `n` or `u`, or in an
/// exponent of -9 or -6.
pub(super) fn round_up(q: &mut Text) {
    if q.ends_with("e-9") || q.ends_with("e-6") {
        let milli = api::quantity::exact_milli(q);
        *q = match milli % 1000 {
            0 => compact_str::format_compact!("{}", milli / 1000),
            _ => compact_str::format_compact!("{milli}e-3"),
        };
    } else if q.ends_with('n') || q.ends_with('u') {
        let milli = api::quantity::exact_milli(q);
        *q = api::quantity::decimal(milli * 1_000_000).into();
    }
}

/// The tag of an image's name as upstream reads it: `latest` if there is neither tag nor digest, "" if the name is
/// malformed.
pub(crate) fn image_tag(image: &str) -> &str {
    let hash = image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if image.is_empty() || image.trim() != image || hash {
        return "";
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let (repo, tag) = last.split_once(':').map_or((last, None), |(r, t)| (r, Some(t)));
    let path = &name[..name.len() - last.len() + repo.len()];
    let part = |s: &str| {
        s.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|run| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|b| b == b'-'))
            && s.starts_with(|c: char| c.is_ascii_alphanumeric())
            && s.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let mut parts = path.split('/');
    let host = path.contains('/')
        && path.split('/').next().is_some_and(|h| {
            h.contains(['.', ':']) || h == "localhost" || h.bytes().any(|b| b.is_ascii_uppercase())
        });
    if host && !parts.next().is_some_and(is_registry) || !digest.is_none_or(is_digest) {
        return "";
    }
    // A name without a registry's domain counts with the domain for which it stands.
    let first = path.split('/').next().unwrap_or(path);
    let added = match path.contains('/') {
        false => "docker.io/library/".len(),
        true if first.contains(['.', ':']) || first == "localhost" => 0,
        true => "docker.io/".len(),
    };
    if !parts.all(part) || path.len() + added > 255 {
        return "";
    }
    match (tag, digest) {
        (Some(t), _) => {
            let good = !t.is_empty()
                && t.len() <= 128
                && !t.starts_with(['.', '-'])
                && t.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
            if good { t } else { "" }
        }
        (None, Some(_)) => "",
        (None, None) => "latest",
    }
}

/// Whether a text is the name of a registry, perhaps with a port.
fn is_registry(host: &str) -> bool {
    let (name, port) = match host.rfind(':').filter(|_| !host.ends_with(']')) {
        Some(i) => (&host[..i], Some(&host[i + 1..])),
        None => (host, None),
    };
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let v6 = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let named = match v6 {
        Some(v6) => !v6.is_empty() && v6.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
        None => name.split('.').all(label),
    };
    named && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a text is a digest by one of the algorithms that images use.
fn is_digest(digest: &str) -> bool {
    let length = match digest.split_once(':') {
        Some(("sha256", _)) => 64,
        Some(("sha384", _)) => 96,
        Some(("sha512", _)) => 128,
        _ => return false,
    };
    digest.split_once(':').is_some_and(|(_, hex)| {
        hex.len() == length && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn policy_for(image: &str) -> &'static str {
    if image_tag(image) == "latest" { "Always" } else { "IfNotPresent" }
}

fn pull_policy(e: &mut Edit<'_>) {
    if e.view().str("imagePullPolicy").is_empty() {
        let policy = policy_for(e.view().str("image"));
        e.set("imagePullPolicy", policy);
    }
}

fn volume(e: &mut Edit<'_>) {
    let only_name = e.st.iter().all(|(no, _)| e.schema.st(e.st.id).at(no).json == "name");
    if only_name {
        e.make("emptyDir");
    }
    if let Some(mut i) = e.at("image")
        && i.view().str("pullPolicy").is_empty()
    {
        let policy = policy_for(i.view().str("reference"));
        i.set("pullPolicy", policy);
    }
}

/// `serviceAccount` is an old name of `serviceAccountName`: both hold the latter's value.
pub(crate) fn service_account_alias(e: &mut Edit<'_>) {
    let name = Text::from(e.view().str("serviceAccountName"));
    if !name.is_empty() {
        e.set("serviceAccount", name);
    } else if let Some(old) = e.view().opt_str("serviceAccount").map(Text::from) {
        e.set("serviceAccountName", old);
    }
}

/// A list whose first entry an older field repeats.
fn first_of(e: &mut Edit<'_>, single: &str, first: Option<Text>, fill: impl FnOnce(&mut Edit<'_>, Text)) {
    let alone = Text::from(e.view().str(single));
    match first {
        Some(f) if alone.is_empty() => e.set(single, f),
        Some(f) if f != alone => fill(e, alone),
        None if !alone.is_empty() => fill(e, alone),
        _ => {}
    }
}

fn pod_ips(e: &mut Edit<'_>) {
    let first = e.view().items("podIPs").next().map(|i| Text::from(i.str("ip")));
    first_of(e, "podIP", first, |e, ip| {
        if let Some(mut entry) = e.fresh("podIPs") {
            Edit::new(e.schema, &mut entry).set("ip", ip);
            e.set("podIPs", vec![entry.into()]);
        }
    });
}

fn pod_cidrs(e: &mut Edit<'_>) {
    let first = e.view().strs("podCIDRs").next().map(Text::from);
    first_of(e, "podCIDR", first, |e, cidr| e.set("podCIDRs", strings([cidr.as_str()])));
}

/// Moves `stringData`, which clients only write, into the data.
fn string_data(e: &mut Edit<'_>) {
    let Some(Node::Map(plain)) = e.remove("stringData") else { return };
    if let Some(data) = e.make_map("data") {
        for (k, v) in plain.iter() {
            data.insert(k.clone(), base64::engine::general_purpose::STANDARD.encode(v.as_str()));
        }
    }
}

fn requests_from_limits(c: &mut Edit<'_>) {
    let Some(mut r) = c.at("resources") else { return };
    match r.view().get("limits").cloned() {
        Some(Node::Map(limits)) => fill(&mut r, "requests", &limits),
        _ if r.view().written_empty("limits") && !r.view().has("requests") => r.write_empty_map("requests"),
        _ => {}
    }
}

/// Adds the entries that a map does not have.
fn fill(e: &mut Edit<'_>, field: &str, from: &Map) {
    if from.is_empty() {
        return;
    }
    if let Some(m) = e.make_map(field) {
        for (k, v) in from.iter() {
            if m.get(k).is_none() {
                m.insert(k.clone(), v.clone());
            }
        }
    }
}

fn pod(e: &mut Edit<'_>) {
    let Some(mut spec) = e.make("spec") else { return };
    for list in ["containers", "initContainers"] {
        for mut c in spec.items(list) {
            requests_from_limits(&mut c);
        }
    }
    pod_level_limits(&mut spec);
    pod_level_requests(&mut spec);
    // Upstream's conversion does this to Pods, and not to templates of them.
    if spec.view().int("terminationGracePeriodSeconds") < 0 {
        spec.set("terminationGracePeriodSeconds", 1);
    }
    spec.default("enableServiceLinks", true);
    if spec.view().bool("hostNetwork") {
        for list in ["containers", "initContainers"] {
            for mut c in spec.items(list) {
                for mut p in c.items("ports") {
                    let v = p.view();
                    let port = v.int("containerPort");
                    if v.int("hostPort") == 0 && port != 0 {
                        p.set("hostPort", port);
                    }
                }
            }
        }
    }
}

/// Computes pod-level limits of huge pages from those of the containers.
fn pod_level_limits(spec: &mut Edit<'_>) {
    let v = spec.view();
    let Some(r) = v.opt("resources") else { return };
    if r.len("limits") == 0 && r.len("requests") == 0 {
        return;
    }
    let totals = PodTotals::of(v, "limits");
    let mut more = Map::new();
    for (name, amount) in totals.iter() {
        if name.starts_with("hugepages-") && r.map("requests").is_none_or(|m| m.get(name).is_none()) {
            more.insert(name, amount.as_str());
        }
    }
    if let Some(mut r) = spec.at("resources") {
        fill(&mut r, "limits", &more);
    }
}

/// Computes pod-level requests from those of the containers, then from the pod-level limits.
fn pod_level_requests(spec: &mut Edit<'_>) {
    let v = spec.view();
    let Some(r) = v.opt("resources") else { return };
    if r.len("limits") == 0 {
        return;
    }
    let mut more = Map::new();
    for (name, amount) in PodTotals::of(v, "requests").iter() {
        if resources::is_pod_level(name) && resources::is_overcommit_allowed(name) {
            more.insert(name, amount.as_str());
        }
    }
    for (name, amount) in r.entries("limits") {
        if resources::is_pod_level(name) && more.get(name).is_none() {
            more.insert(name, amount.clone());
        }
    }
    if let Some(mut r) = spec.at("resources") {
        fill(&mut r, "requests", &more);
    }
}

fn service(e: &mut Edit<'_>) {
    let Some(mut spec) = e.make("spec") else { return };
    spec.default_str("sessionAffinity", "None");
    match spec.view().str("sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            if let Some(mut c) = spec.make("sessionAffinityConfig")
                && let Some(mut ip) = c.make("clientIP")
            {
                ip.default("timeoutSeconds", 10800);
            }
        }
        _ => {}
    }
    spec.default_str("type", "ClusterIP");
    for mut p in spec.items("ports") {
        let v = p.view();
        let port = v.int("port");
        let unset = match v.get("targetPort") {
            None => true,
            Some(Node::Int(i)) => *i == 0,
            Some(n) => n.as_str().is_empty(),
        };
        if unset {
            p.set("targetPort", port);
        }
    }
    let ty = Text::from(spec.view().str("type"));
    let accessible =
        ty == "LoadBalancer" || ty == "NodePort" || ty == "ClusterIP" && spec.view().len("externalIPs") > 0;
    if accessible {
        spec.default_str("externalTrafficPolicy", "Cluster");
    }
    if matches!(ty.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        spec.default("internalTrafficPolicy", "Cluster");
    }
    if ty == "LoadBalancer" {
        spec.default("allocateLoadBalancerNodePorts", true);
        if let Some(mut s) = e.at("status")
            && let Some(mut lb) = s.at("loadBalancer")
        {
            for mut i in lb.items("ingress") {
                if !i.view().str("ip").is_empty() {
                    i.default("ipMode", "VIP");
                }
            }
        }
    }
}

fn namespace(e: &mut Edit<'_>) {
    let Some(mut meta) = e.at("metadata") else { return };
    let name = Text::from(meta.view().str("name"));
    if !name.is_empty()
        && let Some(labels) = meta.make_map("labels")
    {
        labels.insert("kubernetes.io/metadata.name", name);
    }
}

fn replication_controller(e: &mut Edit<'_>) {
    let labels = e.view().st("spec").st("template").st("metadata").get("labels").cloned();
    let Some(labels) = labels else { return };
    if let Some(mut spec) = e.at("spec")
        && spec.view().len("selector") == 0
    {
        spec.set("selector", labels.clone());
    }
    default_labels(e, labels);
}

fn default_labels(e: &mut Edit<'_>, labels: Node) {
    if let Some(mut meta) = e.make("metadata")
        && meta.view().len("labels") == 0
    {
        meta.set("labels", labels);
    }
}

/// Sets the defaults of a PersistentVolume. They are not of the spec's type, since a volume that stands in a
/// VolumeAttachment has no such defaults.
fn persistent_volume(e: &mut Edit<'_>) {
    if let Some(mut spec) = e.make("spec") {
        spec.default_str("persistentVolumeReclaimPolicy", "Retain");
        spec.default("volumeMode", "Filesystem");
    }
}

fn node_status(e: &mut Edit<'_>) {
    if !e.view().has("allocatable")
        && let Some(c) = e.view().get("capacity").cloned()
    {
        e.set("allocatable", c);
    }
}

fn limit_range_item(e: &mut Edit<'_>) {
    if e.view().str("type") != "Container" {
        return;
    }
    for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        if let Some(Node::Map(m)) = e.view().get(from).cloned() {
            fill(e, to, &m);
        }
    }
}

fn deployment_strategy(e: &mut Edit<'_>) {
    e.default_str("type", "RollingUpdate");
    if e.view().str("type") == "RollingUpdate"
        && let Some(mut r) = e.make("rollingUpdate")
    {
        r.default("maxUnavailable", "25%");
        r.default("maxSurge", "25%");
    }
}

/// Writes the annotation of the template's generation: upstream's internal type has a field for it, which its
/// conversion writes into every object.
fn template_generation(e: &mut Edit<'_>) {
    const NAME: &str = "deprecated.daemonset.template.generation";
    if let Some(mut m) = e.make("metadata")
        && let Some(annotations) = m.make_map("annotations")
        && annotations.get(NAME).is_none()
    {
        annotations.insert(NAME, "0");
    }
}

fn daemon_set_strategy(e: &mut Edit<'_>) {
    e.default_str("type", "RollingUpdate");
    if e.view().str("type") == "RollingUpdate"
        && let Some(mut r) = e.make("rollingUpdate")
    {
        r.default("maxUnavailable", 1);
        r.default("maxSurge", 0);
    }
}

fn stateful_set_strategy(e: &mut Edit<'_>) {
    if e.view().str("type").is_empty() {
        e.set("type", "RollingUpdate");
        e.make("rollingUpdate");
    }
    if e.view().str("type") == "RollingUpdate"
        && let Some(mut r) = e.at("rollingUpdate")
    {
        r.default("partition", 0);
    }
}

/// Gives templates of claims their type.
fn claim_types(e: &mut Edit<'_>) {
    for mut t in e.items("volumeClaimTemplates") {
        if t.view().knows("kind") {
            t.set("kind", "PersistentVolumeClaim");
            t.set("apiVersion", "v1");
        }
    }
}

fn autoscaler(e: &mut Edit<'_>) {
    if e.view().len("metrics") == 0
        && let Some(mut metric) = e.fresh("metrics")
    {
        let mut m = Edit::new(e.schema, &mut metric);
        m.set("type", "Resource");
        if let Some(mut r) = m.make("resource") {
            r.set("name", "cpu");
            if let Some(mut t) = r.make("target") {
                t.set("type", "Utilization");
                t.set("averageUtilization", 80);
            }
        }
        e.set("metrics", vec![metric.into()]);
    }
    let Some(mut b) = e.at("behavior") else { return };
    if let Some(mut up) = b.make("scaleUp") {
        up.default("stabilizationWindowSeconds", 0);
        scaling_rules(&mut up, &[("Pods", 4), ("Percent", 100)]);
    }
    if let Some(mut down) = b.make("scaleDown") {
        scaling_rules(&mut down, &[("Percent", 100)]);
    }
}

fn scaling_rules(e: &mut Edit<'_>, policies: &[(&str, i64)]) {
    e.default("selectPolicy", "Max");
    if e.view().has("policies") || e.view().written_empty("policies") {
        return;
    }
    let mut list = Vec::new();
    for (ty, value) in policies {
        if let Some(mut p) = e.fresh("policies") {
            let mut pe = Edit::new(e.schema, &mut p);
            pe.set("type", *ty);
            pe.set("value", *value);
            pe.set("periodSeconds", 15);
            list.push(p.into());
        }
    }
    e.set("policies", list);
}

/// Gives a Job the labels of its template as defaults.
pub(crate) fn job_labels(e: &mut Edit<'_>) {
    if let Some(mut s) = e.make("spec") {
        job_spec(&mut s);
    }
    if let Some(labels) = e.view().st("spec").st("template").st("metadata").get("labels").cloned() {
        default_labels(e, labels);
    }
}

/// Sets the defaults of a Job itself: upstream leaves the template of a CronJob as it is.
fn job_spec(e: &mut Edit<'_>) {
    let v = e.view();
    let (completions, parallelism) = (v.has("completions"), v.has("parallelism"));
    let per_index = v.has("backoffLimitPerIndex");
    let failure_policy = v.has("podFailurePolicy");
    if !completions && !parallelism {
        e.set("completions", 1);
    }
    e.default("parallelism", 1);
    e.default("backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    e.default("completionMode", "NonIndexed");
    e.default("suspend", false);
    e.default("podReplacementPolicy", if failure_policy { "Failed" } else { "TerminatingOrFailed" });
    e.default("manualSelector", false);
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn subject(e: &mut Edit<'_>) {
    if e.view().str("apiGroup").is_empty() && matches!(e.view().str("kind"), "User" | "Group") {
        e.set("apiGroup", RBAC);
    }
}

fn role_ref(e: &mut Edit<'_>) {
    if let Some(mut r) = e.make("roleRef") {
        r.default_str("apiGroup", RBAC);
    }
}

fn network_policy(e: &mut Edit<'_>) {
    if e.view().len("policyTypes") == 0 {
        let egress = e.view().len("egress") > 0;
        e.set("policyTypes", if egress { strings(["Ingress", "Egress"]) } else { strings(["Ingress"]) });
    }
}

fn csi_driver(e: &mut Edit<'_>) {
    if e.view().len("volumeLifecycleModes") == 0 {
        e.set("volumeLifecycleModes", strings(["Persistent"]));
    }
}

fn device_request(e: &mut Edit<'_>) {
    e.default_str("allocationMode", "ExactCount");
    if e.view().str("allocationMode") == "ExactCount" && e.view().int("count") == 0 {
        e.set("count", 1);
    }
}

fn device(e: &mut Edit<'_>) {
    let schema = e.schema;
    let Some(Node::Map(mappings)) = e.get_mut("nodeAllocatableResourceMappings") else { return };
    for mapping in mappings.iter_mut().filter_map(|(_, n)| n.as_struct_mut()) {
        Edit::new(schema, mapping).default("allocationMultiplier", "1");
    }
}

fn conversion(e: &mut Edit<'_>) {
    if !e.view().has("conversion")
        && let Some(mut c) = e.make("conversion")
    {
        c.set("strategy", "None");
    }
}

fn custom_resource_definition(e: &mut Edit<'_>) {
    if let Some(mut spec) = e.make("spec")
        && let Some(mut names) = spec.make("names")
    {
        let kind = Text::from(names.view().str("kind"));
        names.default_str("singular", &kind.to_lowercase());
        if !kind.is_empty() {
            names.default_str("listKind", &format!("{kind}List"));
        }
    }
    if e.view().st("status").len("storedVersions") == 0 {
        let stored = e
            .view()
            .st("spec")
            .items("versions")
            .find(|v| v.bool("storage"))
            .map(|v: View<'_>| Text::from(v.str("name")));
        if let Some(name) = stored
            && let Some(mut s) = e.make("status")
        {
            s.set("storedVersions", strings([name.as_str()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        for (image, want) in [
            ("nginx", "latest"),
            ("nginx:1.2", "1.2"),
            ("reg.example:5000/a/b", "latest"),
            ("reg.example:5000/a/b:v1", "v1"),
            ("a@sha256:0123", ""),
            ("", ""),
            ("Invalid_Name!", ""),
        ] {
            assert_eq!(image_tag(image), want, "{image}");
        }
    }
}
