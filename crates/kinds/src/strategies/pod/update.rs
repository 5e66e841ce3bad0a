//! The rules for updates of a pod.

use std::collections::{HashMap, HashSet};

use api::field::{Errors, Path};
use api::go::quote;
use api::names;
use api::status::FieldError;
use api::view::{Edit, View, same};
use api::{Gate, Node, Struct};

use super::leniency::options;
use super::options::Options;
use super::parts::old_of;
use super::resources::qos_class;
use super::spec::metadata_and_spec;
use super::{annotations, scheduling};
use crate::strategies::meta::core_meta_update;
use crate::strategy::Ctx;
use crate::validation::print::diff_structs;

pub(super) fn validate(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let (n, o) = (View::new(c.schema, new), View::new(c.schema, old));
    let opts = options(*c, true, Some(old_of(c, old)));
    check(&mut errs, n, o, &opts);
    errs.0
}

/// Checks that no container comes or goes, and that their images are named. False ends the checks.
fn images(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: View<'_>, list: &str) -> bool {
    let at = at.field(list);
    if new.len(list) != old.len(list) {
        errs.forbidden(&at, "pod updates may not add or remove containers");
        return false;
    }
    for (i, c) in new.items(list).enumerate() {
        let at = at.index(i);
        if c.str("image").is_empty() {
            errs.required(&at.field("image"), "");
        }
        super::containers::image_whitespace(errs, &at, c);
    }
    true
}

fn check(errs: &mut Errors, new: View<'_>, old: View<'_>, o: &Options<'_>) {
    let (meta_at, at) = (Path::root("metadata"), Path::root("spec"));
    let (nm, om) = (new.st("metadata"), old.st("metadata"));
    let (ns, os) = (new.st("spec"), old.st("spec"));
    core_meta_update(errs, nm, om);
    metadata_and_spec(errs, new, o);
    annotations::check_update(errs, &meta_at.field("annotations"), nm, om, ns, o);
    if !images(errs, &at, ns, os, "containers") || !images(errs, &at, ns, os, "initContainers") {
        return;
    }
    let deadline = at.field("activeDeadlineSeconds");
    match (ns.opt_int("activeDeadlineSeconds"), os.opt_int("activeDeadlineSeconds")) {
        (Some(n), _) if !(0..=i64::from(i32::MAX)).contains(&n) => {
            errs.invalid(&deadline, n, names::range(0, i64::from(i32::MAX)));
            return;
        }
        (Some(n), Some(o)) if o < n => {
            errs.invalid(&deadline, n, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            errs.invalid(&deadline, None::<&Node>, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    only_added_tolerations(errs, &at.field("tolerations"), ns, os, o);
    if ns.len("schedulingGates") > 0 {
        let at = at.field("schedulingGates");
        let gates: Vec<&str> = ns.items("schedulingGates").map(|g| g.str("name")).collect();
        let stored: HashSet<&str> = os.items("schedulingGates").map(|g| g.str("name")).collect();
        let last: HashMap<&str, usize> = gates.iter().enumerate().map(|(i, name)| (*name, i)).collect();
        for (i, name) in gates.iter().copied().enumerate() {
            if last.get(name) != Some(&i) {
                continue;
            }
            if !stored.contains(name) {
                let at = at.index(i);
                errs.forbidden(
                    &at.field("name"),
                    format!("only deletion is allowed, but found new scheduling gate '{name}'"),
                );
            }
        }
    }
    if same(new.get("spec"), old.get("spec")) {
        return;
    }
    let (Some(new_spec), Some(old_spec)) = (ns.raw(), os.raw()) else { return };
    let mut munged = new_spec.clone();
    munge(errs, &at, &mut munged, ns, os);
    if munged != *old_spec {
        errs.forbidden(
            &at,
            format!(
                "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n{}",
                diff_structs(new.schema, old_spec, &munged)
            ),
        );
    }
}

/// Puts back the fields that may change, so that any other difference is an error.
fn munge(errs: &mut Errors, at: &Path<'_>, munged: &mut Struct, ns: View<'_>, os: View<'_>) {
    let Some(old_spec) = os.raw() else { return };
    let mut m = Edit::new(ns.schema, munged);
    for list in ["containers", "initContainers"] {
        for (mut c, old) in m.items(list).zip(os.items(list)) {
            c.put("image", old.get("image").cloned());
        }
        // Upstream makes the list anew, so that one which was written empty shows as absent.
        if m.view().len(list) == 0 {
            m.remove(list);
        }
    }
    for f in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        m.copy(f, old_spec);
    }
    if os.int("terminationGracePeriodSeconds") < 0 && ns.int("terminationGracePeriodSeconds") == 1 {
        m.copy("terminationGracePeriodSeconds", old_spec);
    }
    if os.len("schedulingGates") == 0 {
        return;
    }
    if !same(ns.get("nodeSelector"), os.get("nodeSelector")) {
        let kept = os
            .texts("nodeSelector")
            .all(|(k, v)| ns.map("nodeSelector").and_then(|n| n.get(k)).is_some_and(|n| n.as_str() == v));
        if !kept {
            errs.invalid(
                &at.field("nodeSelector"),
                ns.get("nodeSelector"),
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        m.copy("nodeSelector", old_spec);
    }
    let (na, oa) = (ns.st("affinity"), os.st("affinity"));
    if !same(na.get("nodeAffinity"), oa.get("nodeAffinity")) {
        node_affinity_mutation(errs, at, na, oa);
        let only_node = !na.has("podAffinity") && !na.has("podAntiAffinity");
        if ns.has("affinity") && !os.has("affinity") && only_node {
            m.remove("affinity");
        } else if let Some(mut a) = m.make("affinity") {
            a.put("nodeAffinity", oa.get("nodeAffinity").cloned());
        }
    }
}

fn node_affinity_mutation(errs: &mut Errors, at: &Path<'_>, na: View<'_>, oa: View<'_>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |v: View<'_>| v.st("nodeAffinity").st(REQUIRED).list("nodeSelectorTerms").to_vec();
    let (new, old) = (terms(na), terms(oa));
    if old.is_empty() {
        return;
    }
    let at =
        at.field("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    if new.len() != old.len() {
        errs.invalid(
            &at,
            None::<&Node>,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
        return;
    }
    for (i, (n, o)) in new.iter().zip(&old).enumerate() {
        let (n, o) = (na.of(n), na.of(o));
        let grows =
            |f: &str| n.list(f).len() >= o.list(f).len() && n.list(f)[..o.list(f).len()] == *o.list(f);
        let from_nothing = o.len("matchExpressions") + o.len("matchFields") == 0
            && n.len("matchExpressions") + n.len("matchFields") > 0;
        if from_nothing || !grows("matchExpressions") || !grows("matchFields") {
            let value = n.raw().map(|s| crate::validation::print::internal(n.schema, s)).unwrap_or_default();
            errs.invalid(
                &at.index(i),
                api::field::Raw(value),
                "only additions are allowed (no mutations or deletions)",
            );
        }
    }
}

fn only_added_tolerations(errs: &mut Errors, at: &Path<'_>, ns: View<'_>, os: View<'_>, o: &Options<'_>) {
    let fields = |t: View<'_>| ["key", "operator", "value", "effect"].map(|f| t.str(f).to_owned());
    let new: HashSet<[String; 4]> = ns.items("tolerations").map(fields).collect();
    let kept = os.items("tolerations").all(|old| new.contains(&fields(old)));
    if kept {
        scheduling::tolerations(errs, at, ns, o);
    } else {
        errs.forbidden(at, "existing toleration can not be modified except its tolerationSeconds");
    }
}

fn is_mirror(meta: View<'_>) -> bool {
    meta.map("annotations").is_some_and(|a| a.get(annotations::MIRROR).is_some())
}

pub(super) fn validate_ephemeral_containers(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let (pod, stored) = (View::new(c.schema, new), View::new(c.schema, old));
    let opts = options(*c, true, Some(old_of(c, old)));
    let meta_at = Path::root("metadata");
    let (nm, om) = (pod.st("metadata"), stored.st("metadata"));
    core_meta_update(&mut errs, nm, om);
    metadata_and_spec(&mut errs, pod, &opts);
    annotations::check_update(&mut errs, &meta_at.field("annotations"), nm, om, pod.st("spec"), &opts);
    if is_mirror(om) {
        let mut only = Errors::new();
        only.forbidden(&Path::root(NOWHERE), "static pods do not support ephemeral containers");
        return only.0;
    }
    let at = Path::root("spec.ephemeralContainers");
    let new: HashMap<&str, View<'_>> =
        pod.st("spec").items("ephemeralContainers").map(|e| (e.str("name"), e)).collect();
    for old in stored.st("spec").items("ephemeralContainers") {
        let name = old.str("name");
        match new.get(name) {
            None => errs.forbidden(
                &at,
                format!("existing ephemeral containers {} may not be removed\n", quote(name)),
            ),
            Some(e) if e.raw() != old.raw() => {
                let diff = match (old.raw(), e.raw()) {
                    (Some(a), Some(b)) => diff_structs(c.schema, a, b),
                    _ => String::new(),
                };
                errs.forbidden(
                    &at,
                    format!("existing ephemeral containers {} may not be changed\n{diff}", quote(name)),
                );
            }
            Some(_) => {}
        }
    }
    errs.0
}

/// Upstream's text for the path of no field.
const NOWHERE: &str = "[]";

const ONLY_COMPUTE: &str = "only cpu and memory resources are mutable";

pub(super) fn validate_resize(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let (n, o) = (View::new(c.schema, new), View::new(c.schema, old));
    let opts = options(*c, true, Some(old_of(c, old)));
    core_meta_update(&mut errs, n.st("metadata"), o.st("metadata"));
    metadata_and_spec(&mut errs, n, &opts);
    let (ns, os) = (n.st("spec"), o.st("spec"));
    let refuse = |why: &str| {
        let mut only = Errors::new();
        only.forbidden(&Path::root(NOWHERE), why);
        only.0
    };
    if is_mirror(o.st("metadata")) {
        return refuse("static pods cannot be resized");
    }
    if os.st("os").str("name") == "windows" {
        return refuse("windows pods cannot be resized");
    }
    let at = Path::root("spec");
    let stored = o.st("status").str("qosClass");
    let stored = if stored.is_empty() { qos_class(c, os) } else { stored };
    if stored != qos_class(c, ns) {
        errs.invalid(
            &at,
            n.st("status").str("qosClass"),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let running = o.st("status").items("containerStatuses").find(|s| s.st("state").has("running"));
    if running.is_some_and(|s| !s.has("resources")) {
        errs.forbidden(&at, "Pod running on node without support for resize");
    }
    let Some(mut left) = ns.raw().cloned() else { return errs.0 };
    let asks = |s: View<'_>| ["requests", "limits"].iter().any(|f| s.st("resources").len(f) > 0);
    if asks(os) || asks(ns) {
        if !opts.gate(Gate::InPlacePodLevelResourcesVerticalScaling) {
            errs.forbidden(
                &Path::root(NOWHERE),
                "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled",
            );
            return errs.0;
        }
        resize_of_pod(&mut errs, &at, &mut Edit::new(c.schema, &mut left), ns, os);
    }
    if o.st("status").len("nodeAllocatableResourceClaimStatuses") > 0 {
        errs.forbidden(&at, "pods with node allocatable resource claims cannot be resized");
    }
    if !same_containers(&mut errs, &at, ns, os) {
        return errs.0;
    }
    let resizes = |c: View<'_>| {
        c.str("restartPolicy") == "Always" || opts.gate(Gate::InPlacePodVerticalScalingInitContainers)
    };
    for list in ["initContainers", "containers"] {
        let at = at.field(list);
        for (i, (new, old)) in ns.items(list).zip(os.items(list)).enumerate() {
            if list == "containers" || resizes(old) {
                let at = at.index(i);
                removed(&mut errs, &at.field("resources"), "resource", new, old);
            }
        }
    }
    let mut left = Edit::new(c.schema, &mut left);
    for (mut new, old) in left.items("containers").zip(os.items("containers")) {
        put_back_compute(&mut new, old, false);
        if Some(&*new.st) != old.raw() {
            errs.forbidden(&at, ONLY_COMPUTE);
        }
    }
    let init_at = at.field("initContainers");
    for (i, (mut new, old)) in left.items("initContainers").zip(os.items("initContainers")).enumerate() {
        let changed = Some(&*new.st) != old.raw();
        let here = init_at.index(i);
        if !resizes(new.view()) {
            if changed {
                errs.forbidden(&at, "resources for non-sidecar init containers are immutable");
            }
            continue;
        }
        put_back_compute(&mut new, old, false);
        if Some(&*new.st) != old.raw() {
            errs.forbidden(&here, "only cpu and memory resources for init or sidecar containers are mutable");
        }
        if changed && new.view().str("restartPolicy") != "Always" {
            let restarts = |p: &View<'_>| p.str("restartPolicy") == "RestartContainer";
            for _ in new.view().items("resizePolicy").filter(restarts) {
                errs.forbidden(
                    &here,
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
                );
            }
        }
    }
    if errs.is_empty() && Some(&*left.st) != os.raw() {
        errs.forbidden(&at, ONLY_COMPUTE);
    }
    errs.0
}

/// Checks the resources of the pod as a whole; in `left`, the fields that may change are put back.
fn resize_of_pod(errs: &mut Errors, at: &Path<'_>, left: &mut Edit<'_>, ns: View<'_>, os: View<'_>) {
    let here = at.field("resources");
    if os.has("resources") && !ns.has("resources") {
        errs.forbidden(&here, "pod-level resources cannot be removed");
        return;
    }
    removed(errs, &here, "pod-level resource", ns, os);
    if ns.has("resources") {
        put_back_compute(left, os, true);
    }
    if !same(left.view().get("resources"), os.get("resources")) {
        errs.forbidden(at, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Checks that there are the same containers in the same order.
fn same_containers(errs: &mut Errors, at: &Path<'_>, ns: View<'_>, os: View<'_>) -> bool {
    let before = errs.len();
    for list in ["containers", "initContainers"] {
        let at = at.field(list);
        if ns.len(list) != os.len(list) {
            errs.forbidden(&at, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (i, (new, old)) in ns.items(list).zip(os.items(list)).enumerate() {
            if new.str("name") != old.str("name") {
                let at = at.index(i);
                errs.forbidden(
                    &at.field("name"),
                    format!("{list} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    errs.len() == before
}

/// Reports requests and limits that were removed.
fn removed(errs: &mut Errors, at: &Path<'_>, whose: &str, new: View<'_>, old: View<'_>) {
    for f in ["requests", "limits"] {
        let new = new.st("resources").map(f);
        if old.st("resources").entries(f).any(|(k, _)| new.is_none_or(|n| n.get(k).is_none())) {
            errs.forbidden(&at.field(f), format!("{whose} {f} cannot be removed"));
        }
    }
}

/// Puts back cpu and memory, so that a difference lies elsewhere. A container's claims are forgotten, a pod's are not.
fn put_back_compute(new: &mut Edit<'_>, old: View<'_>, keep_claims: bool) {
    let Some(mut resources) = new
        .view()
        .st("resources")
        .raw()
        .or(old.st("resources").raw())
        .map(|s| if new.view().has("resources") { s.clone() } else { Struct::new(s.id) })
    else {
        return;
    };
    let mut e = Edit::new(old.schema, &mut resources);
    if !keep_claims {
        e.remove("claims");
    }
    for f in ["requests", "limits"] {
        let stored = old.st("resources").map(f);
        if let Some(m) = e.make_map(f) {
            for k in ["cpu", "memory"] {
                match stored.and_then(|s| s.get(k)) {
                    Some(v) => {
                        m.insert(k, v.clone());
                    }
                    None => {
                        m.remove(k);
                    }
                }
            }
            if m.is_empty() {
                e.remove(f);
            }
        }
    }
    let put: Node = resources.into();
    new.put("resources", Some(put).filter(|n| old.has("resources") || !n.is_zero()));
}
