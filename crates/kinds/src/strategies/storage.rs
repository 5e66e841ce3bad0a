//! The kinds of `storage.k8s.io`: classes, drivers, their nodes and capacities, and attachments.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::field::{Errors, IMMUTABLE, NEGATIVE, Path};
use api::names::{self, name_subdomain};
use api::quantity::nano;
use api::status::FieldError;
use api::view::{Edit, View, same};
use api::{Gate, Node, Struct};

use crate::columns;
use crate::strategies::core::persistent_volume::inline_volume;
use crate::strategies::generic::{
    CLUSTER, NAMESPACED, STATUS_ALONE, bump_spec, check, check_update, drop_status, keep_status,
};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::volume_sources::csi_driver_name;
use crate::strategies::pod::warnings::node_label;
use crate::strategies::rules::{Going, Rules, SubresourceRules, Takes};
use crate::strategies::template::whole;
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::meta::{SelectorOptions, label_name, label_selector};

const GROUP: &str = "storage.k8s.io";

/// Upstream's limits: the bytes and the number of parameters, an attachment's metadata, an error's text, a node's id
/// and a token's lifetime in seconds.
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
const MAX_PARAMETERS: usize = 512;
const MAX_METADATA: usize = 256 * 1024;
const MAX_MESSAGE: usize = 1024;
const MAX_NODE_ID: usize = 256;
const MIN_TOKEN: i64 = 600;
const MAX_TOKEN: i64 = 1 << 32;

pub(super) const STORAGE_CLASS: Rules = Rules {
    group: GROUP,
    resource: "storageclasses",
    columns: columns::storage::STORAGE_CLASS,
    validate: |c, s| check(c, s, class),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            class(e, n);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let at = Path::root("");
            for f in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                immutable(e, &at, n, o, f);
            }
        })
    },
    warnings: |c, n, _| {
        let mut out = Vec::new();
        let at = Path::root("allowedTopologies");
        for (i, term) in View::new(c.schema, n).items("allowedTopologies").enumerate() {
            let at = at.index(i);
            let at = at.field("matchLabelExpressions");
            for (j, e) in term.items("matchLabelExpressions").enumerate() {
                if let Some(why) = node_label(e.str("key")) {
                    out.push(format!("{}: {why}", at.index(j).field("key")));
                }
            }
        }
        out
    },
    ..CLUSTER
};

fn provisioner(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
    } else {
        let name = name.to_lowercase();
        errs.each(at, &name, names::qualified_name(&name));
    }
}

fn parameters(errs: &mut Errors, v: View<'_>, may_be_empty: bool) {
    let at = Path::root("parameters");
    if v.len("parameters") > MAX_PARAMETERS {
        errs.too_long(&at, MAX_PARAMETERS);
        return;
    }
    let mut size = 0;
    for (k, value) in v.texts("parameters") {
        if k.is_empty() {
            errs.invalid(&at, k, "field can not be empty.");
        }
        size += k.len() + value.len();
    }
    if size > MAX_PARAMETERS_SIZE {
        errs.too_long(&at, MAX_PARAMETERS_SIZE);
    }
    if !may_be_empty && v.len("parameters") == 0 {
        errs.required(&at, "must contain at least one key/value pair");
    }
}

fn class(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    provisioner(errs, &Path::root("provisioner"), v.str("provisioner"));
    parameters(errs, v, true);
    let policy = v.str("reclaimPolicy");
    if !policy.is_empty() {
        errs.one_of(&Path::root("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode_at = Path::root("volumeBindingMode");
    match v.opt_str("volumeBindingMode") {
        None => errs.required(&mode_at, ""),
        Some(m) => errs.one_of(&mode_at, m, &["Immediate", "WaitForFirstConsumer"]),
    }
    let at = Path::root("allowedTopologies");
    let mut terms: HashMap<BTreeMap<&str, Vec<&str>>, usize> = HashMap::new();
    for (i, term) in v.items("allowedTopologies").enumerate() {
        let at = at.index(i);
        let exprs_at = at.field("matchLabelExpressions");
        let mut exprs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (j, e) in term.items("matchLabelExpressions").enumerate() {
            let at = exprs_at.index(j);
            let values_at = at.field("values");
            let mut values: BTreeSet<&str> = BTreeSet::new();
            if e.len("values") == 0 {
                errs.required(&values_at, "");
            }
            for (k, value) in e.strs("values").enumerate() {
                if !values.insert(value) {
                    errs.duplicate(&values_at.index(k), value);
                }
            }
            let key = e.str("key");
            label_name(errs, &at.field("key"), key);
            if exprs.insert(key, values.into_iter().collect()).is_some() {
                errs.duplicate(&at.field("key"), key);
            }
        }
        // Upstream's list starts with as many empty terms as there are terms.
        let empty = if exprs.is_empty() { v.len("allowedTopologies") } else { 0 };
        let seen = terms.entry(exprs).or_default();
        errs.times(empty + *seen, |e| e.duplicate(&exprs_at, ""));
        *seen += 1;
    }
}

pub(super) const ATTRIBUTES_CLASS: Rules = Rules {
    group: GROUP,
    resource: "volumeattributesclasses",
    columns: columns::storage::VOLUME_ATTRIBUTES_CLASS,
    going: &[Going {
        version: "v1beta1",
        since: 34,
        removed: "1.37",
        instead: "; use storage.k8s.io/v1 VolumeAttributesClass",
    }],
    validate: |c, s| check(c, s, attributes_class),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            for f in ["driverName", "parameters"] {
                if !same(n.get(f), o.get(f)) {
                    e.forbidden(&Path::root(f), format!("updates to {f} are forbidden."));
                }
            }
            attributes_class(e, n);
        })
    },
    ..CLUSTER
};

fn attributes_class(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    provisioner(errs, &Path::root("driverName"), v.str("driverName"));
    parameters(errs, v, false);
}

pub(super) const ATTACHMENT: Rules = Rules {
    group: GROUP,
    resource: "volumeattachments",
    columns: columns::storage::VOLUME_ATTACHMENT,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: drop_status,
    prepare_update: keep_status,
    validate: |c, s| check(c, s, attachment),
    validate_update: attachment_update,
    subresources: &[SubresourceRules { validate_update: attachment_update, ..STATUS_ALONE }],
    ..CLUSTER
};

fn attachment_update(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    check_update(c, new, old, |e, n, o| {
        attachment(e, n);
        immutable(e, &Path::root(""), n, o, "spec");
    })
}

fn attachment(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    csi_driver_name(errs, &at.field("attacher"), spec.str("attacher"));
    let source_at = at.field("source");
    let source = spec.st("source");
    let name = source.opt_str("persistentVolumeName");
    match (source.opt("inlineVolumeSpec"), name) {
        (None, None) => {
            errs.required(
                &source_at,
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            );
        }
        (Some(_), Some(_)) => {
            errs.forbidden(
                &source_at,
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            );
        }
        (None, Some(name)) => {
            if name.is_empty() {
                errs.required(
                    &source_at.field("persistentVolumeName"),
                    "must specify non empty persistentVolumeName",
                );
            }
        }
        (Some(inline), None) => inline_volume(errs, &source_at.field("inlineVolumeSpec"), inline),
    }
    let node = spec.str("nodeName");
    errs.each(&at.field("nodeName"), node, name_subdomain(node, false));
    attachment_status(errs, v.st("status"));
    if let Some(name) = name {
        errs.each(&source_at.field("persistentVolumeName"), name, name_subdomain(name, false));
    }
}

fn attachment_status(errs: &mut Errors, status: View<'_>) {
    let at = Path::root("status");
    let size: usize = status.texts("attachmentMetadata").map(|(k, v)| k.len() + v.len()).sum();
    if size > MAX_METADATA {
        errs.too_long(&at.field("attachmentMetadata"), MAX_METADATA);
    }
    for f in ["attachError", "detachError"] {
        let Some(e) = status.opt(f) else { continue };
        let at = at.field(f);
        if e.str("message").len() > MAX_MESSAGE {
            // The limit in the text is upstream's.
            errs.too_long(&at.field("message"), MAX_METADATA);
        }
        if let Some(code) = e.opt_int("errorCode").filter(|c| *c < 0) {
            errs.invalid(&at.field("errorCode"), code, names::range(0, i64::from(i32::MAX)));
        }
    }
}

/// The greatest number of drivers of one name that are compared with those that a CSINode had.
const MOST_OF_A_NAME: usize = 16;

pub(super) const CSI_NODE: Rules = Rules {
    group: GROUP,
    resource: "csinodes",
    columns: columns::storage::CSI_NODE,
    unconditional_update: false,
    validate: |c, s| check(c, s, csi_node),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            csi_node(e, n);
            let count_may_change = c.gates.enabled(Gate::MutableCSINodeAllocatableCount);
            let fixed = |v: View<'_>| {
                let mut s = v.raw().cloned()?;
                if count_may_change {
                    Edit::new(v.schema, &mut s).remove("allocatable");
                }
                Some(s)
            };
            let mut by_name: HashMap<&str, Vec<_>> = HashMap::new();
            for new in n.st("spec").items("drivers") {
                let same = by_name.entry(new.str("name")).or_default();
                // DIFFERENCE: upstream compares all. A name that stands twice is refused anyway.
                if same.len() < MOST_OF_A_NAME {
                    same.push(fixed(new));
                }
            }
            for old in o.st("spec").items("drivers") {
                let same = by_name.get(old.str("name")).into_iter().flatten();
                let old = fixed(old);
                for new in same {
                    if *new != old
                        && let Some(new) = new
                    {
                        e.invalid(&Path::root("spec.drivers"), whole(View::new(n.schema, new)), IMMUTABLE);
                    }
                }
            }
        })
    },
    ..CLUSTER
};

fn csi_node(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec.drivers");
    let drivers: Vec<View<'_>> = v.st("spec").items("drivers").collect();
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, d) in drivers.iter().enumerate() {
        let at = at.index(i);
        let (name, id) = (d.str("name"), d.str("nodeID"));
        csi_driver_name(errs, &at.field("name"), name);
        if id.is_empty() {
            errs.required(&at.field("nodeID"), "");
        }
        if id.len() > MAX_NODE_ID {
            errs.invalid(&at.field("nodeID"), id, format!("must be {MAX_NODE_ID} characters or less"));
        }
        if let Some(n) = d.st("allocatable").opt_int("count") {
            errs.non_negative(&at.field("allocatable").field("count"), n);
        }
        if !seen.insert(name) {
            errs.duplicate(&at.field("name"), name);
        }
        let mut keys: HashSet<&str> = HashSet::new();
        for key in d.strs("topologyKeys") {
            if key.is_empty() {
                errs.required(&at, "");
            }
            if !keys.insert(key) {
                errs.duplicate(&at, key);
            }
            errs.each(&at, key, names::qualified_name(key));
        }
    }
}

/// Fields of a driver that a gate turns on.
const GATED: [(&str, Gate); 4] = [
    ("seLinuxMount", Gate::SELinuxMountReadWriteOncePod),
    ("nodeAllocatableUpdatePeriodSeconds", Gate::MutableCSINodeAllocatableCount),
    ("serviceAccountTokenInSecrets", Gate::CSIServiceAccountTokenSecrets),
    ("preventPodSchedulingIfMissing", Gate::VolumeLimitScaling),
];

fn drop_gated(c: &Ctx<'_>, e: &mut Edit<'_>, old: Option<View<'_>>) {
    let Some(mut spec) = e.at("spec") else { return };
    for (field, gate) in GATED {
        if !c.gates.enabled(gate) && !old.is_some_and(|o| o.st("spec").has(field)) {
            spec.remove(field);
        }
    }
    if c.gates.enabled(Gate::VolumeLimitScaling) {
        spec.default("preventPodSchedulingIfMissing", false);
    }
}

pub(super) const CSI_DRIVER: Rules = Rules {
    group: GROUP,
    resource: "csidrivers",
    columns: columns::storage::CSI_DRIVER,
    unconditional_update: false,
    prepare_create: |c, s| drop_gated(c, &mut Edit::new(c.schema, s), None),
    prepare_update: |c, n, o| {
        drop_gated(c, &mut Edit::new(c.schema, n), Some(View::new(c.schema, o)));
        bump_spec(c, n, o);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), false, name_subdomain);
            csi_driver(e, v.st("spec"), c);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let (n, o) = (n.st("spec"), o.st("spec"));
            csi_driver(e, n, c);
            let at = Path::root("spec");
            if !same(n.get("attachRequired"), o.get("attachRequired")) {
                e.invalid(&at.field("attachedRequired"), n.get("attachRequired"), IMMUTABLE);
            }
            immutable(e, &at, n, o, "volumeLifecycleModes");
        })
    },
    warnings: |c, n, old| {
        let spec = View::new(c.schema, n).st("spec");
        let changed = old.is_none_or(|o| {
            !same(View::new(c.schema, o).st("spec").get("tokenRequests"), spec.get("tokenRequests"))
        });
        if c.gates.enabled(Gate::CSIServiceAccountTokenSecrets)
            && changed
            && spec.len("tokenRequests") > 0
            && !spec.has("serviceAccountTokenInSecrets")
        {
            return vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".into()];
        }
        Vec::new()
    },
    ..CLUSTER
};

fn csi_driver(errs: &mut Errors, spec: View<'_>, c: &Ctx<'_>) {
    let at = Path::root("spec");
    for (field, path) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.has(field) {
            errs.required(&at.field(path), "");
        }
    }
    if let Some(p) = spec.opt_str("fsGroupPolicy") {
        errs.one_of(&at.field("fsGroupPolicy"), p, &["File", "None", "ReadWriteOnceWithFSType"]);
    }
    token_requests(errs, &at.field("tokenRequests"), spec);
    for m in spec.strs("volumeLifecycleModes") {
        errs.one_of(&at.field("volumeLifecycleModes"), m, &["Persistent", "Ephemeral"]);
    }
    if !spec.has("seLinuxMount") && c.gates.enabled(Gate::SELinuxMountReadWriteOncePod) {
        errs.required(&at.field("seLinuxMount"), "");
    }
    if let Some(n) = spec.opt_int("nodeAllocatableUpdatePeriodSeconds").filter(|n| *n < 10) {
        errs.invalid(
            &at.field("nodeAllocatableUpdatePeriodSeconds"),
            n,
            "must be greater than or equal to 10 seconds",
        );
    }
    if let Some(b) = spec.opt_bool("serviceAccountTokenInSecrets")
        && spec.len("tokenRequests") == 0
    {
        errs.invalid(
            &at.field("serviceAccountTokenInSecrets"),
            b,
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        );
    }
    if !spec.has("preventPodSchedulingIfMissing") && c.gates.enabled(Gate::VolumeLimitScaling) {
        errs.required(&at.field("preventPodSchedulingIfMissing"), "");
    }
}

fn token_requests(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, r) in spec.items("tokenRequests").enumerate() {
        let at = at.index(i);
        let audience = r.str("audience");
        if seen.contains(&audience) {
            errs.duplicate(&at.field("audience"), audience);
            continue;
        }
        seen.insert(audience);
        let Some(n) = r.opt_int("expirationSeconds") else { continue };
        let at = at.field("expirationSeconds");
        if n < MIN_TOKEN {
            errs.invalid(&at, n, "may not specify a duration less than 10 minutes");
        }
        if n > MAX_TOKEN {
            errs.invalid(&at, n, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

pub(super) const CAPACITY: Rules = Rules {
    group: GROUP,
    resource: "csistoragecapacities",
    unconditional_update: false,
    validate: |c, s| check(c, s, |e, v| capacity(e, v, false)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            let mut before = Errors::new();
            label_selector(&mut before, &Path::root(""), o.opt("nodeTopology"), SelectorOptions::default());
            capacity(e, n, !before.is_empty());
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let at = Path::root("");
            immutable(e, &at, n, o, "nodeTopology");
            immutable(e, &at, n, o, "storageClassName");
        })
    },
    warnings: |c, n, _| {
        let mut out = Vec::new();
        let at = Path::root("nodeTopology");
        let Some(s) = View::new(c.schema, n).opt("nodeTopology") else { return out };
        super::pod::warnings::node_term(&mut out, &at, s, false);
        let at = at.field("matchLabels");
        for (label, _) in s.texts("matchLabels") {
            if let Some(why) = node_label(label) {
                out.push(format!("{}: {why}", at.field(label)));
            }
        }
        out
    },
    ..NAMESPACED
};

fn capacity(errs: &mut Errors, v: View<'_>, invalid_values: bool) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    label_selector(
        errs,
        &Path::root("nodeTopology"),
        v.opt("nodeTopology"),
        SelectorOptions { invalid_values },
    );
    let class = v.str("storageClassName");
    errs.each(&Path::root("storageClassName"), class, name_subdomain(class, false));
    if let Some(q) = v.get("capacity").map(Node::as_str).filter(|q| nano(q) < 0) {
        errs.invalid(&Path::root("capacity"), q, NEGATIVE);
    }
}
