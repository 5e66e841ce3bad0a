//! Warnings about pods and pod templates.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use api::field::Path;
use api::go::quote;
use api::quantity::milli;
use api::view::View;

use super::annotations::{APPARMOR, app_armor_annotation};
use super::parts::{CONTAINER_LISTS, each_container};
use crate::validation::ip;

/// Deprecated labels of nodes and their replacements.
const NODE_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];

const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

const VOLUMES: &[(&str, &str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("ephemeral", "", ""),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The warning about a deprecated label of nodes.
pub(crate) fn node_label(name: &str) -> Option<&'static str> {
    NODE_LABELS.iter().find(|(n, _)| *n == name).map(|(_, m)| *m)
}

/// Warns of a term of a node selector; `preferred` if the term only has a weight.
pub(crate) fn node_term(out: &mut Vec<String>, at: &Path<'_>, t: View<'_>, preferred: bool) {
    let exprs = at.field("matchExpressions");
    for (i, e) in t.items("matchExpressions").enumerate() {
        let at = exprs.index(i);
        if let Some(m) = node_label(e.str("key")) {
            out.push(format!("{}: {} is {m}", at.field("key"), e.str("key")));
        }
        if preferred {
            let values = at.field("values");
            for (j, v) in e.strs("values").enumerate() {
                let bad = api::names::label_value(v);
                if !bad.is_empty() {
                    out.push(format!("{}: {v} is invalid, {}", values.index(j), bad.join("; ")));
                }
            }
        }
    }
}

fn fractional(out: &mut Vec<String>, at: &Path<'_>, m: Option<&api::Map>, names: &[&str]) {
    for name in names {
        if let Some(q) = m.and_then(|m| m.get(name)).map(api::Node::as_str)
            && milli(q) % 1000 != 0
        {
            out.push(format!(
                "{}: fractional byte value {} is invalid, must be an integer",
                at.key(name),
                quote(q)
            ));
        }
    }
}

/// Warns of a spec with its metadata; `at` is the path of both.
pub(crate) fn of_spec(out: &mut Vec<String>, at: &Path<'_>, meta: View<'_>, spec: View<'_>, template: bool) {
    let spec_at = at.field("spec");
    let notes_at = at.field("metadata");
    let notes_at = notes_at.field("annotations");
    placement(out, &spec_at, spec);
    for (key, why) in ANNOTATIONS {
        if meta.map("annotations").is_some_and(|m| m.get(key).is_some()) {
            out.push(format!("{}: {why}", notes_at.key(key)));
        }
    }
    volumes(out, &spec_at, spec);
    duplicates(out, &spec_at, spec);
    let memory = ["memory", "ephemeral-storage"];
    fractional(out, &spec_at.field("overhead"), spec.map("overhead"), &memory);
    let seccomp = |out: &mut Vec<String>, key: &str| {
        if meta.map("annotations").is_some_and(|m| m.get(key).is_some()) {
            out.push(format!(
                "{}: non-functional in v1.27+; use the \"seccompProfile\" field instead",
                notes_at.key(key)
            ));
        }
    };
    if !spec.st("securityContext").has("seccompProfile") {
        seccomp(out, "seccomp.security.alpha.kubernetes.io/pod");
    }
    let pod_profile = spec.st("securityContext").opt("appArmorProfile");
    each_container(spec, &spec_at, |at, c| {
        let name = c.str("name");
        let sc = c.st("securityContext");
        if !sc.has("seccompProfile") {
            seccomp(out, &format!("container.seccomp.security.alpha.kubernetes.io/{name}"));
        }
        // In a Pod, the warning comes where the annotation becomes a field.
        if template && !sc.has("appArmorProfile") {
            let key = format!("{APPARMOR}{name}");
            if let Some(v) = meta.map("annotations").and_then(|m| m.get(&key)) {
                let means = app_armor_annotation(v.as_str());
                let agrees = match (pod_profile, means) {
                    (Some(p), Some((ty, profile))) => {
                        p.str("type") == ty && p.opt_str("localhostProfile") == profile
                    }
                    _ => false,
                };
                if !agrees {
                    out.push(app_armor(&notes_at, &key));
                }
            }
        }
        let r = c.st("resources");
        for name in memory {
            for f in ["limits", "requests"] {
                let at = at.field("resources");
                fractional(out, &at.field(f), r.map(f), &[name]);
            }
        }
        env(out, at, c);
    });
    ports(out, &spec_at, spec);
    if spec.int("terminationGracePeriodSeconds") < 0 {
        out.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            spec_at.field("terminationGracePeriodSeconds")
        ));
    }
    null_selectors(out, &spec_at, spec);
    let servers = spec_at.field("dnsConfig");
    let servers = servers.field("nameservers");
    for (i, s) in spec.st("dnsConfig").strs("nameservers").enumerate() {
        out.extend(ip::warning(&servers.index(i), s));
    }
    let aliases = spec_at.field("hostAliases");
    for (i, a) in spec.items("hostAliases").enumerate() {
        let at = aliases.index(i);
        out.extend(ip::warning(&at.field("ip"), a.str("ip")));
    }
}

pub(super) fn app_armor(at: &Path<'_>, key: &str) -> String {
    format!("{}: deprecated since v1.30; use the \"appArmorProfile\" field instead", at.key(key))
}

fn placement(out: &mut Vec<String>, at: &Path<'_>, spec: View<'_>) {
    let selector = at.field("nodeSelector");
    for (k, _) in spec.texts("nodeSelector") {
        if let Some(m) = node_label(k) {
            out.push(format!("{}: {m}", selector.key(k)));
        }
    }
    let node = spec.st("affinity").st("nodeAffinity");
    let terms =
        at.field("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    for (i, t) in
        node.st("requiredDuringSchedulingIgnoredDuringExecution").items("nodeSelectorTerms").enumerate()
    {
        node_term(out, &terms.index(i), t, false);
    }
    let preferred = at.field("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution");
    for (i, t) in node.items("preferredDuringSchedulingIgnoredDuringExecution").enumerate() {
        let at = preferred.index(i);
        node_term(out, &at.field("preference"), t.st("preference"), true);
    }
    let spread = at.field("topologySpreadConstraints");
    for (i, t) in spec.items("topologySpreadConstraints").enumerate() {
        let at = spread.index(i);
        let key = t.str("topologyKey");
        if let Some(m) = node_label(key) {
            out.push(format!("{}: {key} is {m}", at.field("topologyKey")));
        }
        if !t.has("labelSelector") {
            out.push(format!("{}: {NULL_SELECTOR}", at.field("labelSelector")));
        }
    }
}

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn null_selectors(out: &mut Vec<String>, at: &Path<'_>, spec: View<'_>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(a) = spec.st("affinity").opt(kind) else { continue };
        let at = at.field("affinity");
        let at = at.field(kind);
        let required = at.field("requiredDuringSchedulingIgnoredDuringExecution");
        for (i, t) in a.items("requiredDuringSchedulingIgnoredDuringExecution").enumerate() {
            if !t.has("labelSelector") {
                let at = required.index(i);
                out.push(format!("{}: {NULL_SELECTOR}", at.field("labelSelector")));
            }
        }
        let preferred = at.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, t) in a.items("preferredDuringSchedulingIgnoredDuringExecution").enumerate() {
            if !t.st("podAffinityTerm").has("labelSelector") {
                let at = preferred.index(i);
                out.push(format!("{}: {NULL_SELECTOR}", at.field("podAffinityTerm.labelSelector")));
            }
        }
    }
}

fn duplicates(out: &mut Vec<String>, at: &Path<'_>, spec: View<'_>) {
    for (list, field, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let at = at.field(list);
        let mut seen: HashSet<&str> = HashSet::new();
        for (i, x) in spec.items(list).enumerate() {
            let v = x.str(field);
            if seen.contains(&v) {
                let at = at.index(i);
                out.push(format!("{}: duplicate {what} {}", at.field(field), quote(v)));
            } else {
                seen.insert(v);
            }
        }
    }
    let secrets = at.field("imagePullSecrets");
    for (i, s) in spec.items("imagePullSecrets").enumerate() {
        if s.str("name").is_empty() {
            let at = secrets.index(i);
            out.push(format!("{}: invalid empty name \"\"", at.field("name")));
        }
    }
}

fn volumes(out: &mut Vec<String>, at: &Path<'_>, spec: View<'_>) {
    let list = at.field("volumes");
    for (i, v) in spec.items("volumes").enumerate() {
        let at = list.index(i);
        for (field, name, why) in VOLUMES {
            let Some(s) = v.opt(field) else { continue };
            if *field == "ephemeral" {
                let at = at.field("ephemeral.volumeClaimTemplate.spec");
                claim_storage(out, &at, s.st("volumeClaimTemplate").st("spec"));
            } else {
                out.push(format!("{}: {why}", at.field(name)));
            }
        }
    }
    let mut left = MOST_PAIRS;
    for v in spec.items("volumes") {
        overlaps(out, v, &mut left);
    }
}

/// Warns of a claim's storage that is no whole number of bytes.
pub(crate) fn claim_storage(out: &mut Vec<String>, at: &Path<'_>, claim: View<'_>) {
    let at = at.field("resources");
    for f in ["requests", "limits"] {
        let at = at.field(f);
        fractional(out, &at, claim.st("resources").map(f), &["storage"]);
    }
}

struct Place {
    path: String,
    source: String,
}

impl Place {
    fn text(&self) -> String {
        let path = quote(&self.path[..self.path.floor_char_boundary(MOST_OF_A_PATH)]);
        if self.source.is_empty() { path } else { format!("{path} ({})", self.source) }
    }
    fn overlaps(&self, other: &Place) -> bool {
        let within = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let (a, b) = (&self.path, &other.path);
        !a.is_empty() && !b.is_empty() && (within(a, b) || within(b, a))
    }
}

/// The greatest number of pairs of paths, or of ports with the same number, that are compared for the warnings of one
/// pod.
///
/// DIFFERENCE: upstream compares every pair. 40,000 ports make 800 million, and as many warnings, of which the answer
/// has room for a few dozen.
const MOST_PAIRS: usize = 200_000;

/// The number of warnings, and the length of a path, that use up the room of an answer.
const MOST_WARNINGS: usize = 5000;
const MOST_OF_A_PATH: usize = 8192;

/// The first of the others, as many as there are pairs left.
fn some<'a, T>(others: &'a [T], left: &mut usize) -> impl Iterator<Item = &'a T> + use<'a, T> {
    let count = others.len().min(*left);
    *left -= count;
    others[..count].iter()
}

fn overlaps(out: &mut Vec<String>, v: View<'_>, left: &mut usize) {
    let name = v.str("name");
    let paths = |s: View<'_>, source: &str| -> Vec<Place> {
        s.items("items")
            .map(|i| Place { path: i.str("path").trim_end_matches('/').into(), source: source.into() })
            .collect()
    };
    let mut report = |desc: &str, list: Vec<Place>, seen: &mut Vec<Place>| {
        for p in list {
            for other in some(seen, left).filter(|o| o.overlaps(&p)) {
                if out.len() >= MOST_WARNINGS {
                    return;
                }
                out.push(format!(
                    "volume {} ({desc}): overlapping paths: {} with {}",
                    quote(name),
                    p.text(),
                    other.text()
                ));
            }
            seen.push(p);
        }
    };
    if let Some(c) = v.opt("configMap") {
        report(&format!("ConfigMap {}", quote(c.str("name"))), paths(c, ""), &mut Vec::new());
    }
    if let Some(s) = v.opt("secret") {
        report(&format!("Secret {}", quote(s.str("secretName"))), paths(s, ""), &mut Vec::new());
    }
    if let Some(d) = v.opt("downwardAPI") {
        report("DownwardAPI", paths(d, ""), &mut Vec::new());
    }
    let mut empty = 0;
    if let Some(p) = v.opt("projected") {
        let mut seen = Vec::new();
        for s in p.items("sources") {
            let place = |path: &str, source: &str| Place {
                path: path.trim_end_matches('/').into(),
                source: source.into(),
            };
            let list = if s.is_empty() {
                empty += 1;
                Vec::new()
            } else if let Some(c) = s.opt("configMap").filter(|c| c.has("items")) {
                paths(c, &format!("ConfigMap {}", quote(c.str("name"))))
            } else if let Some(c) = s.opt("secret").filter(|c| c.has("items")) {
                paths(c, &format!("Secret {}", quote(c.str("name"))))
            } else if let Some(d) = s.opt("downwardAPI").filter(|c| c.has("items")) {
                paths(d, "DownwardAPI")
            } else if let Some(t) = s.opt("serviceAccountToken") {
                vec![place(t.str("path"), "ServiceAccountToken")]
            } else if let Some(b) = s.opt("clusterTrustBundle") {
                let of = b.opt_str("name").unwrap_or_else(|| b.str("signerName"));
                vec![place(b.str("path"), &format!("ClusterTrustBundle {}", quote(of)))]
            } else {
                Vec::new()
            };
            report("Projected", list, &mut seen);
        }
    }
    // Equal warnings are sent as one header.
    if empty > 0 {
        out.push(format!("volume {} (Projected) has no sources provided", quote(name)));
    }
}

fn env(out: &mut Vec<String>, at: &Path<'_>, c: View<'_>) {
    let at = at.field("env");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, e) in c.items("env").enumerate() {
        let (name, value) = (e.str("name"), e.str("value"));
        if !seen.contains(&name) {
            seen.insert(name);
            continue;
        }
        let reference = format!("$({name})");
        if e.has("valueFrom") || value == reference || !value.contains(&reference) {
            out.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                at.index(i),
                quote(name)
            ));
        }
    }
}

fn ports(out: &mut Vec<String>, spec_at: &Path<'_>, spec: View<'_>) {
    // Ports are grouped by number and protocol, which all reported ones have in common.
    let mut seen: HashMap<(i64, &str), Vec<(String, View<'_>)>> = HashMap::new();
    let mut named: HashMap<&str, String> = HashMap::new();
    let mut left = MOST_PAIRS;
    let mut late = Vec::new();
    for list in CONTAINER_LISTS {
        let at = spec_at.field(list);
        for (i, c) in spec.items(list).enumerate() {
            let at = at.index(i);
            let at = at.field("ports");
            for (j, p) in c.items("ports").enumerate() {
                let at = at.index(j);
                let here = at.to_string();
                let (ip, host) = (p.str("hostIP"), p.int("hostPort"));
                if !ip.is_empty() && host == 0 {
                    let mut text = format!("{here}: hostIP set without hostPort: ");
                    let _ = write!(
                        text,
                        "{{Name:{} HostPort:{host} ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                        p.str("name"),
                        p.int("containerPort"),
                        p.str("protocol")
                    );
                    out.push(text);
                }
                let others = seen.entry((p.int("containerPort"), p.str("protocol"))).or_default();
                for (other_at, o) in some(others, &mut left) {
                    let (oip, ohost) = (o.str("hostIP"), o.int("hostPort"));
                    let what = if ip == oip && host == ohost {
                        "duplicate"
                    } else if host == 0 || ohost == 0 {
                        "overlapping"
                    } else if host == ohost && ip.is_empty() != oip.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    out.push(format!("{here}: {what} port definition with {other_at}"));
                }
                let name = p.str("name");
                if !name.is_empty() {
                    match named.get(name) {
                        Some(other) => late.push(format!(
                            "{here}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                            quote(name)
                        )),
                        None => drop(named.insert(name, here.clone())),
                    }
                }
                others.push((here, p));
            }
        }
    }
    out.extend(late);
}
