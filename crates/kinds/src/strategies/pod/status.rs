//! Updates of a pod's status.

use std::collections::{HashMap, HashSet};

use api::Gate;
use api::Struct;
use api::field::{Errors, IMMUTABLE, Path, Raw, Typed};
use api::go::scalar_json;
use api::names;
use api::quantity;
use api::status::FieldError;
use api::view::View;

use super::annotations;
use super::leniency::options;
use super::options::Options;
use super::parts::old_of;
use crate::strategies::meta::core_meta_update;
use crate::strategy::Ctx;
use crate::validation::ip;

pub(super) fn validate(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let (n, o) = (View::new(c.schema, new), View::new(c.schema, old));
    let opts = options(*c, true, Some(old_of(c, old)));
    let meta_at = Path::root("metadata");
    core_meta_update(&mut errs, n.st("metadata"), o.st("metadata"));
    annotations::check_update(
        &mut errs,
        &meta_at.field("annotations"),
        n.st("metadata"),
        o.st("metadata"),
        n.st("spec"),
        &opts,
    );
    let at = Path::root("status");
    let (ns, os) = (n.st("status"), o.st("status"));
    conditions(&mut errs, &at.field("conditions"), ns);
    if n.st("spec").str("nodeName") != o.st("spec").str("nodeName") {
        errs.forbidden(&at.field("nodeName"), "may not be changed directly");
    }
    let nominated = ns.str("nominatedNodeName");
    if !nominated.is_empty() && nominated != os.str("nominatedNodeName") {
        let at = at.field("nominatedNodeName");
        errs.each(&at, nominated, names::name_subdomain(nominated, false));
        if opts.gate(Gate::ClearingNominatedNodeNameAfterBinding) && !o.st("spec").str("nodeName").is_empty()
        {
            errs.forbidden(&at, "may not be set on pods that are already bound to a node");
        }
    }
    if ns.int("observedGeneration") < 0 {
        errs.invalid(
            &at.field("observedGeneration"),
            ns.int("observedGeneration"),
            "must be a non-negative integer",
        );
    }
    if ns.str("qosClass") != os.str("qosClass") {
        errs.invalid(&at.field("qosClass"), Typed(ns.str("qosClass")), IMMUTABLE);
    }
    for (list, of) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        transitions(&mut errs, &at.field(list), ns, os, list, Some((o.st("spec"), of)), &opts);
    }
    let ephemeral = "ephemeralContainerStatuses";
    transitions(&mut errs, &at.field(ephemeral), ns, os, ephemeral, None, &opts);
    claim_statuses(&mut errs, &at.field("resourceClaimStatuses"), n);
    if let Some(claim) = ns.opt("extendedResourceClaimStatus") {
        extended_claim(&mut errs, &at.field("extendedResourceClaimStatus"), claim, n.st("spec"));
    }
    node_allocatable(&mut errs, &at.field("nodeAllocatableResourceClaimStatuses"), n);
    ips(&mut errs, &at.field("podIPs"), ns, os, "podIPs", &opts);
    let hosts = at.field("hostIPs");
    if let Some(first) = ns.items("hostIPs").next() {
        if first.str("ip") != ns.str("hostIP") {
            let at = hosts.index(0);
            errs.invalid(&at.field("ip"), first.str("ip"), "must be equal to `hostIP`");
        }
        ips(&mut errs, &hosts, ns, os, "hostIPs", &opts);
    }
    for (list, _) in STATUS_LISTS {
        users(&mut errs, &at.field(list), ns, list, n.st("spec").st("os").opt_str("name"));
    }
    for (list, of) in STATUS_LISTS {
        match of {
            Some(of) => health(&mut errs, &at.field(list), ns, list, n.st("spec"), of),
            // Ephemeral containers are given nothing.
            None => no_health(&mut errs, &at.field(list), ns, list),
        }
    }
    if opts.gate(Gate::ImageVolumeWithDigest) {
        for (list, _) in STATUS_LISTS {
            image_digests(&mut errs, &at.field(list), ns, list);
        }
    }
    errs.0
}

/// The lists of states of containers, each with the list of its containers.
const STATUS_LISTS: [(&str, Option<&str>); 3] = [
    ("containerStatuses", Some("containers")),
    ("initContainerStatuses", Some("initContainers")),
    ("ephemeralContainerStatuses", None),
];

/// Checks the claim that was made for the extended resources of a pod.
fn extended_claim(errs: &mut Errors, at: &Path<'_>, claim: View<'_>, spec: View<'_>) {
    let maps = at.field("requestMappings");
    if claim.len("requestMappings") == 0 {
        errs.required(&maps, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    let mut containers: HashMap<&str, View<'_>> = HashMap::new();
    for list in ["initContainers", "containers"] {
        containers.extend(spec.items(list).map(|c| (c.str("name"), c)));
    }
    for (i, m) in claim.items("requestMappings").enumerate() {
        let here = maps.index(i);
        let (container, resource, request) =
            (m.str("containerName"), m.str("resourceName"), m.str("requestName"));
        match containers.get(container) {
            Some(c) if c.st("resources").map("requests").is_none_or(|r| r.get(resource).is_none()) => {
                errs.invalid(
                    &here.field("resourceName"),
                    resource,
                    "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
                );
            }
            Some(_) => {}
            None => errs.invalid(
                &here.field("containerName"),
                container,
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
        }
        errs.each(&at.field("requestName"), request, names::dns1123_label(request));
        if seen.contains(&(container, resource, request)) {
            errs.duplicate(&here.field("containerName"), container);
            errs.duplicate(&here.field("resourceName"), resource);
            errs.duplicate(&here.field("requestName"), request);
        }
        seen.insert((container, resource, request));
    }
    let (at, name) = (at.field("resourceClaimName"), claim.str("resourceClaimName"));
    if name.is_empty() {
        errs.required(&at, "");
    } else {
        errs.each(&at, name, names::name_subdomain(name, false));
    }
}

/// Checks the amounts of the node's own resources that claims take.
fn node_allocatable(errs: &mut Errors, at: &Path<'_>, pod: View<'_>) {
    let status = pod.st("status");
    let refs: HashSet<&str> = pod
        .st("spec")
        .items("resourceClaims")
        .chain(status.items("resourceClaimStatuses"))
        .filter_map(|r| r.opt_str("resourceClaimName"))
        .collect();
    for (i, s) in status.items("nodeAllocatableResourceClaimStatuses").enumerate() {
        let at = at.index(i);
        let name_at = at.field("resourceClaimName");
        let name = s.str("resourceClaimName");
        if name.is_empty() {
            errs.required(&name_at, "must not be empty");
        }
        if !refs.contains(name) {
            errs.invalid(&name_at, name, "no mapping found in pod reference");
        }
        if s.len("containers") == 0 {
            errs.required(&at.field("containers"), "must not be empty");
        }
        let resources = at.field("resources");
        if s.len("resources") == 0 {
            errs.required(&resources, "must not be empty");
        }
        for (k, q) in s.texts("resources") {
            let at = resources.key(k);
            if !crate::resources::is_native(k) {
                errs.invalid(
                    &at,
                    Raw(scalar_json(&api::Node::from(k))),
                    "must be a node allocatable resource name",
                );
            }
            if quantity::nano(q) < 0 {
                errs.invalid(&at, q, "must be non-negative");
            }
        }
    }
}

/// Checks the users as which containers run.
fn users(errs: &mut Errors, at: &Path<'_>, status: View<'_>, list: &str, os: Option<&str>) {
    for (i, s) in status.items(list).enumerate() {
        let at = at.index(i);
        let at = at.field("user.linux");
        let Some(user) = s.st("user").opt("linux") else { continue };
        match os.unwrap_or("linux") {
            "windows" => errs.forbidden(&at, "cannot be set for a windows pod"),
            "linux" => {
                let mut id = |at: &Path<'_>, id: i64| {
                    if !(0..=MAX_ID).contains(&id) {
                        errs.invalid(at, id, names::range(0, MAX_ID));
                    }
                };
                id(&at.field("uid"), user.int("uid"));
                id(&at.field("gid"), user.int("gid"));
                let groups = at.field("supplementalGroups");
                for (i, g) in user.list("supplementalGroups").iter().enumerate() {
                    id(&groups.index(i), g.as_int().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
}

const MAX_ID: i64 = i32::MAX as i64;

fn no_health(errs: &mut Errors, at: &Path<'_>, status: View<'_>, list: &str) {
    for (i, s) in status.items(list).enumerate() {
        if s.len("allocatedResourcesStatus") > 0 {
            let at = at.index(i);
            errs.forbidden(
                &at.field("allocatedResourcesStatus"),
                "must not be specified in container status",
            );
        }
    }
}

/// The longest message about a resource's health, in bytes.
const MAX_HEALTH_MESSAGE: usize = 1024;

/// Checks the health of the resources that containers were given.
fn health(errs: &mut Errors, at: &Path<'_>, status: View<'_>, list: &str, spec: View<'_>, of: &str) {
    let containers = by_name(spec, of);
    let mut claims: HashMap<&str, HashSet<String>> = HashMap::new();
    let claim_name = |c: View<'_>| match c.str("request") {
        "" => format!("claim:{}", c.str("name")),
        request => format!("claim:{}/{request}", c.str("name")),
    };
    for (i, s) in status.items(list).enumerate() {
        let at = at.index(i);
        let at = at.field("allocatedResourcesStatus");
        let container = containers.get(s.str("name"));
        for (j, given) in s.items("allocatedResourcesStatus").enumerate() {
            let at = at.index(j);
            let name = given.str("name");
            if let Some(resources) = container.map(|c| c.st("resources")) {
                let (found, why) = if name.starts_with("claim:") {
                    (
                        claims
                            .entry(s.str("name"))
                            .or_insert_with(|| resources.items("claims").map(claim_name).collect())
                            .contains(name),
                        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
                    )
                } else {
                    (
                        resources.map("requests").is_some_and(|r| r.get(name).is_some()),
                        "must match one of the container's resource requests",
                    )
                };
                if !found {
                    errs.invalid(&at.field("name"), Raw(scalar_json(&api::Node::from(name))), why);
                }
            }
            let mut seen = HashSet::new();
            let at = at.field("resources");
            for (k, r) in given.items("resources").enumerate() {
                let at = at.index(k);
                errs.one_of(&at.field("health"), r.str("health"), &["Healthy", "Unhealthy", "Unknown"]);
                match r.opt_str("message") {
                    Some("") => {
                        errs.required(&at.field("message"), "must be non-empty if specified");
                    }
                    Some(m) if m.len() > MAX_HEALTH_MESSAGE => {
                        errs.too_long(&at.field("message"), MAX_HEALTH_MESSAGE);
                    }
                    _ => {}
                }
                let id = r.str("resourceID");
                if seen.contains(&id) {
                    errs.duplicate(&at.field("resourceID"), Raw(scalar_json(&api::Node::from(id))));
                }
                seen.insert(id);
            }
        }
    }
}

/// The longest reference to an image, in bytes.
const MAX_IMAGE_REF: usize = 256;

/// Checks the images to which image volumes were resolved.
fn image_digests(errs: &mut Errors, at: &Path<'_>, status: View<'_>, list: &str) {
    for (i, s) in status.items(list).enumerate() {
        let at = at.index(i);
        let at = at.field("volumeMounts");
        for (j, m) in s.items("volumeMounts").enumerate() {
            let Some(image) = m.st("volumeStatus").opt("image") else { continue };
            let at = at.index(j);
            let at = at.field("volumeStatus.imageVolumeStatus");
            let (at, reference) = (at.field("imageRef"), image.str("imageRef"));
            if reference.is_empty() {
                errs.required(&at, "imageRef must not be empty");
            }
            if reference.len() > MAX_IMAGE_REF {
                errs.too_long(&at, MAX_IMAGE_REF);
            }
        }
    }
}

fn conditions(errs: &mut Errors, at: &Path<'_>, status: View<'_>) {
    for (i, c) in status.items("conditions").enumerate() {
        let at = at.index(i);
        let generation = c.int("observedGeneration");
        if generation < 0 {
            errs.invalid(&at.field("observedGeneration"), generation, "must be a non-negative integer");
        }
        let ty = c.str("type");
        if !matches!(ty, "PodScheduled" | "Ready" | "Initialized") {
            errs.each(&at.field("Type"), ty, names::qualified_name(ty));
        }
    }
}

/// The containers of a list by name; of several with the same name, the first.
fn by_name<'a>(spec: View<'a>, list: &str) -> HashMap<&'a str, View<'a>> {
    // The container that is inserted last counts.
    spec.items(list).rev().map(|c| (c.str("name"), c)).collect()
}

/// Whether a container that ended with this code is started again.
fn restarts(spec: View<'_>, container: Option<&View<'_>>, code: i64) -> bool {
    let Some(c) = container else { return false };
    for r in c.items("restartPolicyRules") {
        let codes = r.st("exitCodes");
        let listed = codes.list("values").iter().any(|v| v.as_int() == Some(code));
        let matches = match codes.str("operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if matches {
            return true;
        }
    }
    match c.opt_str("restartPolicy").unwrap_or_else(|| spec.str("restartPolicy")) {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// Checks that a container that ended for good stays so.
fn transitions(
    errs: &mut Errors,
    at: &Path<'_>,
    new: View<'_>,
    old: View<'_>,
    list: &str,
    of: Option<(View<'_>, &str)>,
    o: &Options<'_>,
) {
    if let Some((spec, _)) = of {
        let all_restart = o.gate(Gate::RestartAllContainersOnContainerExits)
            && ["containers", "initContainers"].iter().any(|l| {
                spec.items(l)
                    .any(|c| c.items("restartPolicyRules").any(|r| r.str("action") == "RestartAllContainers"))
            });
        if all_restart {
            return;
        }
    }
    let containers = of.map(|(spec, l)| by_name(spec, l)).unwrap_or_default();
    let live: HashSet<&str> =
        new.items(list).filter(|n| !n.st("state").has("terminated")).map(|n| n.str("name")).collect();
    for (i, old) in old.items(list).enumerate() {
        let Some(ended) = old.st("state").opt("terminated") else { continue };
        let name = old.str("name");
        let again = |spec| restarts(spec, containers.get(name), ended.int("exitCode"));
        if live.contains(name) && !of.is_some_and(|(spec, _)| again(spec)) {
            let at = at.index(i);
            errs.forbidden(&at.field("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn claim_statuses(errs: &mut Errors, at: &Path<'_>, pod: View<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    let declared: HashSet<&str> = pod.st("spec").items("resourceClaims").map(|c| c.str("name")).collect();
    for (i, s) in pod.st("status").items("resourceClaimStatuses").enumerate() {
        let at = at.index(i);
        let name = s.str("name");
        if !declared.contains(name) {
            errs.invalid(&at.field("name"), name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            seen.insert(name);
        }
        if let Some(c) = s.opt_str("resourceClaimName") {
            errs.each_typed(&at.field("resourceClaimName"), c, names::name_subdomain(c, false));
        }
    }
}

fn ips(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: View<'_>, list: &str, o: &Options<'_>) {
    let kept: ip::Kept<'_> = old.items(list).map(|i| i.str("ip")).collect();
    let all: Vec<&str> = new.items(list).map(|i| i.str("ip")).collect();
    for (i, ip) in all.iter().enumerate() {
        ip::check_legacy(errs, &at.index(i), ip, o.gate(Gate::StrictIPCIDRValidation), &kept);
    }
    if all.len() > 1 {
        if let Some((i, bad)) = all.iter().enumerate().find(|(_, a)| ip::parse_sloppy(a).is_none()) {
            errs.internal(at, format!("failed to check for dual stack with error:invalid IP[{i}]: {bad}"));
        }
        let v6 = all.iter().filter(|i| i.contains(':')).count();
        if all.len() > 2 || v6 != 1 {
            let value = new
                .type_of(list)
                .map(|ty| crate::validation::print::value(new.schema, ty, new.get(list), false));
            errs.invalid(
                at,
                Raw(value.unwrap_or_else(|| new.get(list).map(scalar_json).unwrap_or_default())),
                "may specify no more than one IP for each IP family",
            );
        }
    }
}
