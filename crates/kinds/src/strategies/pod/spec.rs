//! Rules of a pod's spec as a whole.

use std::collections::{HashMap, HashSet};

use api::Gate;
use api::field::{Errors, Path};
use api::names;
use api::view::View;

use super::containers::{self, Pod};
use super::options::Options;
use super::parts::each_container;
use super::resources::{self, Claims, Whose, requirements};
use super::{annotations, scheduling, security, volumes};
use crate::strategies::meta::core_meta;
use crate::validation::ip;
use crate::validation::meta::{annotations as check_annotations, labels};

/// Checks a spec; `meta` is the pod's metadata, absent in a template.
pub(crate) fn check(
    errs: &mut Errors,
    at: &Path<'_>,
    spec: View<'_>,
    meta: Option<View<'_>>,
    o: &Options<'_>,
) {
    let grace = spec.opt_int("terminationGracePeriodSeconds");
    if grace.is_none() {
        errs.required(&at.field("terminationGracePeriodSeconds"), "");
    }
    let volumes = volumes::check(errs, &at.field("volumes"), spec, meta, o);
    let claims = Claims::of(spec);
    containers::resource_claims(errs, &at.field("resourceClaims"), meta, spec);
    let host_users = spec.opt_bool("hostUsers") != Some(false);
    let p = Pod { spec, volumes, claims, grace, host_users, o: *o };
    containers::regular(errs, &at.field("containers"), &p);
    containers::init(errs, &at.field("initContainers"), &p);
    containers::ephemeral(errs, &at.field("ephemeralContainers"), &p);
    if o.gate(Gate::PodLevelResources) {
        resources::pod_level(errs, at, spec, &p.claims, o);
    }
    host_network(errs, at, spec, o);
    policies(errs, at, spec);
    labels(errs, &at.field("nodeSelector"), spec, "nodeSelector");
    security::of_pod(errs, &at.field("securityContext"), spec, o);
    scheduling::affinity(errs, &at.field("affinity"), spec, o);
    dns(errs, &at.field("dnsConfig"), spec, o);
    let gates = at.field("readinessGates");
    for (i, g) in spec.items("readinessGates").enumerate() {
        let name = g.str("conditionType");
        let at = gates.index(i);
        errs.each(&at.field("conditionType"), name, names::qualified_name(name));
    }
    let gates = at.field("schedulingGates");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, g) in spec.items("schedulingGates").enumerate() {
        let name = g.str("name");
        errs.each(&gates.index(i), name, names::qualified_name(name));
        if seen.contains(&name) {
            errs.duplicate(&gates.index(i), name);
        }
        seen.insert(name);
    }
    scheduling::spread(errs, &at.field("topologySpreadConstraints"), spec, o);
    security::host_process(errs, at, spec, o.ctx.privileged);
    security::host_users(errs, at, spec, o);
    hostname_override(errs, at, spec);
    scalars(errs, at, spec, o);
    security::os(errs, at, spec);
    if let Some(g) = spec.opt("schedulingGroup") {
        let at = at.field("schedulingGroup");
        match g.opt_str("podGroupName") {
            None => errs.invalid(
                &at.field("podGroupName"),
                None::<&api::Node>,
                "must specify one of: `podGroupName`",
            ),
            Some(name) => errs.each(&at.field("podGroupName"), name, names::name_subdomain(name, false)),
        }
    }
    file_key_volumes(errs, at, spec);
}

fn host_network(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    if !spec.bool("hostNetwork") {
        return;
    }
    let list = at.field("containers");
    for (i, c) in spec.items("containers").enumerate() {
        let at = list.index(i);
        let ports = at.field("ports");
        for (j, p) in c.items("ports").enumerate() {
            let (host, container) = (p.int("hostPort"), p.int("containerPort"));
            if (o.is_pod || host != 0) && host != container {
                let at = ports.index(j);
                errs.invalid(
                    &at.field("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn policies(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    for (f, valid) in [
        ("restartPolicy", &["Always", "OnFailure", "Never"][..]),
        ("dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"][..]),
    ] {
        let v = spec.str(f);
        if v.is_empty() {
            errs.required(&at.field(f), "");
        } else {
            errs.one_of(&at.field(f), v, valid);
        }
    }
}

fn dns(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let config = spec.opt("dnsConfig");
    if spec.str("dnsPolicy") == "None" {
        let Some(c) = config else {
            errs.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        };
        if c.len("nameservers") == 0 {
            errs.required(
                &at.field("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    let Some(c) = config else { return };
    let servers = at.field("nameservers");
    if c.len("nameservers") > 3 {
        errs.invalid(&servers, c.get("nameservers"), "must not have more than 3 nameservers");
    }
    for (i, s) in c.strs("nameservers").enumerate() {
        ip::check_legacy(errs, &servers.index(i), s, o.gate(Gate::StrictIPCIDRValidation), &ip::Kept::new());
    }
    let searches = at.field("searches");
    if c.len("searches") > 32 {
        errs.invalid(&searches, c.get("searches"), "must not have more than 32 search paths");
    }
    let length: usize = c.strs("searches").map(|s| s.len() + 1).sum();
    if length > 2049 {
        errs.invalid(
            &searches,
            c.get("searches"),
            "must not have more than 2048 characters (including spaces) in the search list",
        );
    }
    for (i, s) in c.strs("searches").enumerate() {
        if s != "." {
            let s = s.strip_suffix('.').unwrap_or(s);
            errs.each(&searches.index(i), s, names::dns1123_subdomain_with_underscore(s));
        }
    }
    let options = at.field("options");
    for (i, opt) in c.items("options").enumerate() {
        if opt.str("name").is_empty() {
            errs.required(&options.index(i), "must not be empty");
        }
    }
}

fn hostname_override(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let Some(name) = spec.opt_str("hostnameOverride") else { return };
    let at = at.field("hostnameOverride");
    if spec.bool("setHostnameAsFQDN") {
        errs.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.bool("hostNetwork") {
        errs.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errs.too_long(&at, 64);
    }
    errs.each(&at, name, names::dns1123_subdomain(name));
}

fn scalars(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    for f in ["serviceAccountName", "nodeName"] {
        let v = spec.str(f);
        if !v.is_empty() {
            errs.each(&at.field(f), v, names::name_subdomain(v, false));
        }
    }
    if let Some(s) = spec.opt_int("activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&s)
    {
        errs.invalid(&at.field("activeDeadlineSeconds"), s, names::range(1, i64::from(i32::MAX)));
    }
    for f in ["hostname", "subdomain"] {
        let v = spec.str(f);
        if !v.is_empty() {
            errs.each(&at.field(f), v, names::dns1123_label(v));
        }
    }
    scheduling::tolerations(errs, &at.field("tolerations"), spec, o);
    let aliases = at.field("hostAliases");
    for (i, a) in spec.items("hostAliases").enumerate() {
        let at = aliases.index(i);
        ip::check_legacy(
            errs,
            &at.field("ip"),
            a.str("ip"),
            o.gate(Gate::StrictIPCIDRValidation),
            &ip::Kept::new(),
        );
        let list = at.field("hostnames");
        for (j, h) in a.strs("hostnames").enumerate() {
            errs.each(&list.index(j), h, names::dns1123_subdomain(h));
        }
    }
    let class = spec.str("priorityClassName");
    if !class.is_empty() {
        errs.each(&at.field("priorityClassName"), class, names::name_subdomain(class, false));
    }
    if let Some(c) = spec.opt_str("runtimeClassName") {
        errs.each(&at.field("runtimeClassName"), c, names::name_subdomain(c, false));
    }
    if let Some(p) = spec.opt_str("preemptionPolicy") {
        preemption_policy(errs, &at.field("preemptionPolicy"), p);
    }
    if spec.has("overhead") {
        overhead(errs, &at.field("overhead"), spec, o);
    }
}

/// Checks `preemptionPolicy` of a pod or a PriorityClass.
pub(crate) fn preemption_policy(errs: &mut Errors, at: &Path<'_>, policy: &str) {
    if policy.is_empty() {
        errs.required(at, "");
    } else {
        errs.one_of(at, policy, &["PreemptLowerPriority", "Never"]);
    }
}

fn overhead(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    // The overhead is checked as the limits of a container that has nothing else.
    let Some(id) = spec.schema.named("io.k8s.api.core.v1.ResourceRequirements") else { return };
    let mut r = api::Struct::new(id);
    if let (Some(no), Some(v)) = (spec.schema.st(id).field("limits"), spec.get("overhead")) {
        r.set(no, v.clone());
    }
    requirements(errs, at, View::new(spec.schema, &r), Whose::Container, None, o);
}

fn file_key_volumes(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let volumes: HashMap<&str, View<'_>> = spec.items("volumes").map(|v| (v.str("name"), v)).collect();
    each_container(spec, at, |at, c| {
        let env = at.field("env");
        for (i, e) in c.items("env").enumerate() {
            let Some(r) = e.st("valueFrom").opt("fileKeyRef") else { continue };
            let at = env.index(i);
            let at = at.field("valueFrom.fileKeyRef.volumeName");
            let name = r.str("volumeName");
            match volumes.get(name) {
                None => errs.not_found(&at, name),
                Some(v) if !v.has("emptyDir") => {
                    errs.invalid(&at, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}

/// Checks a pod template.
pub(crate) fn template(errs: &mut Errors, at: &Path<'_>, t: View<'_>, o: &Options<'_>) {
    let (meta, spec) = (t.st("metadata"), t.st("spec"));
    let notes = at.field("annotations");
    let spec_at = at.field("spec");
    labels(errs, &at.field("labels"), meta, "labels");
    check_annotations(errs, &notes, meta);
    annotations::check(errs, &notes, meta, spec, o);
    check(errs, &spec_at, spec, None, o);
    annotations::match_fields(errs, &spec_at, meta, spec);
    if spec.len("ephemeralContainers") > 0 {
        errs.forbidden(
            &spec_at.field("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// Checks the metadata and spec of a pod.
pub(super) fn metadata_and_spec(errs: &mut Errors, pod: View<'_>, o: &Options<'_>) {
    let (meta_at, spec_at) = (Path::root("metadata"), Path::root("spec"));
    let (meta, spec) = (pod.st("metadata"), pod.st("spec"));
    core_meta(errs, meta, true, names::name_subdomain);
    annotations::check(errs, &meta_at.field("annotations"), meta, spec, o);
    check(errs, &spec_at, spec, Some(meta), o);
    if spec.str("serviceAccountName").is_empty() {
        let volumes = spec_at.field("volumes");
        for (i, v) in spec.items("volumes").enumerate() {
            let at = volumes.index(i);
            let at = at.field("projected.sources");
            for (j, s) in v.st("projected").items("sources").enumerate() {
                if s.has("serviceAccountToken") {
                    let at = at.index(j);
                    errs.forbidden(
                        &at.field("serviceAccountToken"),
                        "must not be specified when serviceAccountName is not set",
                    );
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let at = spec_at.field(list);
        for (i, c) in spec.items(list).enumerate() {
            containers::image_whitespace(errs, &at.index(i), c);
        }
    }
}
