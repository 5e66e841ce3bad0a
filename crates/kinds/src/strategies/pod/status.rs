//! Updates of a pod's status.

use api::Struct;
use api::status::FieldError;

use super::options::Options;
use super::{annotations, core_meta_update, old_of};
use crate::access::View;
use crate::strategy::Ctx;
use crate::validation::print::scalar_json;
use crate::validation::{Errors, IMMUTABLE, Path, Raw, ip, names};

pub(super) fn validate(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let (n, o) = (View::new(c.schema, new), View::new(c.schema, old));
    let opts = Options::new(*c, true, Some(old_of(c, old)));
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
        if opts.gate("ClearingNominatedNodeNameAfterBinding") && !o.st("spec").str("nodeName").is_empty() {
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
        errs.invalid(&at.field("qosClass"), ns.str("qosClass"), IMMUTABLE);
    }
    for (list, of) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        transitions(&mut errs, &at.field(list), ns, os, list, Some((o.st("spec"), of)), &opts);
    }
    let ephemeral = "ephemeralContainerStatuses";
    transitions(&mut errs, &at.field(ephemeral), ns, os, ephemeral, None, &opts);
    claim_statuses(&mut errs, &at.field("resourceClaimStatuses"), n);
    ips(&mut errs, &at.field("podIPs"), ns, os, "podIPs", &opts);
    let hosts = at.field("hostIPs");
    if let Some(first) = ns.items("hostIPs").next() {
        if first.str("ip") != ns.str("hostIP") {
            let at = hosts.index(0);
            errs.invalid(&at.field("ip"), first.str("ip"), "must be equal to `hostIP`");
        }
        ips(&mut errs, &hosts, ns, os, "hostIPs", &opts);
    }
    errs.0
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

/// Whether a container that ended with this code is started again.
fn restarts(spec: View<'_>, list: &str, name: &str, code: i64) -> bool {
    let Some(c) = spec.items(list).find(|c| c.str("name") == name) else { return false };
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

/// A container that ended for good stays so.
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
        let all_restart = o.gate("RestartAllContainersOnContainerExits")
            && ["containers", "initContainers"].iter().any(|l| {
                spec.items(l)
                    .any(|c| c.items("restartPolicyRules").any(|r| r.str("action") == "RestartAllContainers"))
            });
        if all_restart {
            return;
        }
    }
    for (i, old) in old.items(list).enumerate() {
        let Some(ended) = old.st("state").opt("terminated") else { continue };
        let name = old.str("name");
        let back = new.items(list).any(|n| n.str("name") == name && !n.st("state").has("terminated"));
        if back && !of.is_some_and(|(spec, l)| restarts(spec, l, name, ended.int("exitCode"))) {
            let at = at.index(i);
            errs.forbidden(&at.field("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn claim_statuses(errs: &mut Errors, at: &Path<'_>, pod: View<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, s) in pod.st("status").items("resourceClaimStatuses").enumerate() {
        let at = at.index(i);
        let name = s.str("name");
        if !pod.st("spec").items("resourceClaims").any(|c| c.str("name") == name) {
            errs.invalid(&at.field("name"), name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            seen.push(name);
        }
        if let Some(c) = s.opt_str("resourceClaimName") {
            errs.each(&at.field("resourceClaimName"), c, names::name_subdomain(c, false));
        }
    }
}

fn ips(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: View<'_>, list: &str, o: &Options<'_>) {
    let kept: Vec<&str> = old.items(list).map(|i| i.str("ip")).collect();
    let all: Vec<&str> = new.items(list).map(|i| i.str("ip")).collect();
    for (i, ip) in all.iter().enumerate() {
        ip::check_legacy(errs, &at.index(i), ip, o.gate("StrictIPCIDRValidation"), &kept);
    }
    if all.len() > 1 {
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
