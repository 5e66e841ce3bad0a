//! PersistentVolumes.

use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::names::{self, name_subdomain};
use api::quantity::{nano, value};
use api::view::{Edit, View};
use api::{Gate, Node, Struct, Text};

use super::persistent_volume_claim::access_modes;
use crate::columns;
use crate::strategies::generic::{CLUSTER, check, check_update, keep_status};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::scheduling::node_selector;
use crate::strategies::pod::volume_sources::{self, ISCSI_LENGTH, required};
use crate::strategies::pod::{paths, warnings};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::meta::has_invalid_value;
use crate::validation::print;

pub(crate) const PERSISTENT_VOLUME: Rules = Rules {
    resource: "persistentvolumes",
    columns: columns::core::PERSISTENT_VOLUME,
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        let mut e = Edit::new(c.schema, s);
        e.remove("status");
        if let Some(mut st) = e.make("status") {
            st.set("phase", "Pending");
            st.set("lastPhaseTransitionTime", c.now);
        }
    },
    prepare_update: keep_status,
    validate: |c, s| check(c, s, |e, v| volume(e, v, None)),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, o| volume_update(e, n, o, c)),
    warnings: |c, n, _| volume_warnings(View::new(c.schema, n)),
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: |c, n, o| {
            let mut e = Edit::new(c.schema, n);
            e.copy("spec", o);
            let old = View::new(c.schema, o).st("status");
            if let Some(mut s) = e.make("status") {
                const SINCE: &str = "lastPhaseTransitionTime";
                let moved = s.view().str("phase") != old.str("phase");
                let given = s.view().get(SINCE).cloned();
                if moved && (given.is_none() || given.as_ref() == old.get(SINCE)) {
                    s.set(SINCE, c.now);
                } else if !moved && given.is_none() {
                    s.put(SINCE, old.get(SINCE).cloned());
                }
            }
        },
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| core_meta_update(e, n.st("metadata"), o.st("metadata")))
        },
    }],
    ..CLUSTER
};

const MORE: &str = "may not specify more than 1 volume type";

type Check = fn(&mut Errors, &Path<'_>, View<'_>);

/// The sources in upstream's order: field, name in paths, name in the error about a second one, check.
const SOURCES: &[(&str, &str, &str, Check)] = &[
    ("hostPath", "hostPath", "hostPath", volume_sources::host_path_source),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk", volume_sources::gce_disk_source),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", volume_sources::aws_disk_source),
    ("glusterfs", "glusterfs", "glusterfs", glusterfs),
    ("flocker", "flocker", "flocker", volume_sources::flocker),
    ("nfs", "nfs", "nfs", volume_sources::nfs),
    ("rbd", "rbd", "rbd", volume_sources::rbd),
    ("quobyte", "quobyte", "quobyte", volume_sources::quobyte),
    ("cephfs", "cephfs", "cephFS", volume_sources::monitors),
    ("iscsi", "iscsi", "iscsi", |e, p, v| volume_sources::iscsi(e, p, v, true)),
    ("cinder", "cinder", "cinder", |e, p, v| volume_sources::cinder(e, p, v, true)),
    ("fc", "fc", "fc", volume_sources::fc),
    ("flexVolume", "flexVolume", "flexVolume", volume_sources::flex),
    ("azureFile", "azureFile", "azureFile", azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", |e, p, v| required(e, p, v, &["volumePath"])),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", |e, p, v| {
        required(e, p, v, &["pdID"]);
    }),
    ("portworxVolume", "portworxVolume", "portworxVolume", |e, p, v| required(e, p, v, &["volumeID"])),
    ("azureDisk", "azureDisk", "azureDisk", volume_sources::azure_disk),
    ("scaleIO", "scaleIO", "scaleIO", |e, p, v| required(e, p, v, &["gateway", "system", "volumeName"])),
    ("local", "local", "local", local),
    ("storageos", "storageos", "storageos", |e, p, v| volume_sources::storage_os(e, p, v, true)),
    ("csi", "csi", "csi", csi),
];

fn glusterfs(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["endpoints", "path"]);
    if let Some(ns) = v.opt_str("endpointsNamespace") {
        let at = at.field("endpointsNamespace");
        if ns.is_empty() {
            errs.invalid(&at, ns, "if the endpointnamespace is set, it must be a valid namespace name");
        } else {
            errs.each(&at, ns, names::name_label(ns, false));
        }
    }
}

fn azure_file(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["secretName", "shareName"]);
    if v.opt_str("secretNamespace") == Some("") {
        errs.required(&at.field("secretNamespace"), "");
    }
}

fn local(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    if v.str("path").is_empty() {
        errs.required(&at.field("path"), "");
    } else {
        paths::no_backsteps(errs, &at.field("path"), v.str("path"));
    }
}

fn csi(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    volume_sources::csi_driver_name(errs, &at.field("driver"), v.str("driver"));
    required(errs, at, v, &["volumeHandle"]);
    for f in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(s) = v.opt(f) else { continue };
        let at = at.field(f);
        let (name, ns) = (s.str("name"), s.str("namespace"));
        if name.is_empty() {
            errs.required(&at.field("name"), "");
        } else {
            errs.each(&at.field("name"), name, names::dns1123_subdomain(name));
        }
        if ns.is_empty() {
            errs.required(&at.field("namespace"), "");
        } else {
            errs.each(&at.field("namespace"), ns, names::dns1123_label(ns));
        }
    }
}

fn required_affinity(v: View<'_>) -> View<'_> {
    v.st("spec").st("nodeAffinity").st("required")
}

fn volume(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    if spec.len("accessModes") == 0 {
        errs.required(&at.field("accessModes"), "");
    }
    access_modes(errs, &at, spec);
    let capacity_at = at.field("capacity");
    let capacity = spec.map("capacity");
    if spec.len("capacity") == 0 {
        errs.required(&capacity_at, "");
    }
    if capacity.is_none_or(|c| c.get("storage").is_none() || c.len() > 1) {
        errs.not_supported(&capacity_at, Raw(print::field(spec, "capacity")), &["storage"]);
    }
    for (k, q) in spec.texts("capacity") {
        let at = capacity_at.key(k);
        let value = value(q);
        if value < 0 {
            errs.invalid(&at, value, "must be a valid resource quantity");
        }
        if nano(q) <= 0 {
            errs.invalid(&at, q, "must be greater than zero");
        }
    }
    let policy = spec.str("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        errs.one_of(&at.field("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    }
    if let Some(a) = spec.opt("nodeAffinity") {
        let at = at.field("nodeAffinity");
        match a.opt("required") {
            None => errs.required(&at.field("required"), "must specify required node constraints"),
            Some(r) => {
                let keep = old.is_some_and(|o| {
                    required_affinity(o).items("nodeSelectorTerms").any(|t| has_invalid_value(Some(t)))
                });
                node_selector(errs, &at.field("required"), r, keep);
            }
        }
    }
    sources(errs, &at, spec, v.st("metadata").str("name"));
    let class = spec.str("storageClassName");
    if !class.is_empty() {
        errs.each(&at.field("storageClassName"), class, name_subdomain(class, false));
    }
    if let Some(m) = spec.opt_str("volumeMode") {
        errs.one_of(&at.field("volumeMode"), m, &["Block", "Filesystem"]);
    }
    attributes_class(errs, &at, spec);
}

fn attributes_class(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    if let Some(class) = spec.opt_str("volumeAttributesClassName") {
        let at_class = at.field("volumeAttributesClassName");
        if class.is_empty() {
            errs.required(&at_class, "an empty string is disallowed");
        } else {
            errs.each(&at_class, class, name_subdomain(class, false));
        }
        if !spec.has("csi") {
            errs.required(&at.field("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

/// Checks the spec of a volume that stands in a VolumeAttachment: a CSI volume, and little else.
pub(crate) fn inline_volume(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    const NOT_HERE: &str = "may not be specified in the context of inline volumes";
    if spec.has("claimRef") {
        errs.forbidden(&at.field("claimRef"), NOT_HERE);
    }
    if spec.len("capacity") > 0 {
        errs.forbidden(&at.field("capacity"), NOT_HERE);
    }
    if !spec.has("csi") {
        errs.required(&at.field("csi"), "has to be specified in the context of inline volumes");
    }
    if spec.len("accessModes") == 0 {
        errs.required(&at.field("accessModes"), "");
    }
    access_modes(errs, at, spec);
    if !matches!(spec.str("persistentVolumeReclaimPolicy"), "" | "Retain") {
        errs.forbidden(
            &at.field("persistentVolumeReclaimPolicy"),
            "may only be Retain in the context of inline volumes",
        );
    }
    if spec.has("nodeAffinity") {
        errs.forbidden(&at.field("nodeAffinity"), NOT_HERE);
    }
    sources(errs, at, spec, "");
    if !spec.str("storageClassName").is_empty() {
        errs.forbidden(&at.field("storageClassName"), NOT_HERE);
    }
    if spec.opt_str("volumeMode").is_some_and(|m| m != "Filesystem") {
        errs.forbidden(
            &at.field("volumeMode"),
            "may not specify volumeMode other than Filesystem in the context of inline volumes",
        );
    }
}

fn sources(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, name: &str) {
    let mut count = 0;
    for (field, path, second, check) in SOURCES {
        let Some(s) = spec.opt(field) else { continue };
        // Upstream does not refuse a flexVolume beside another source.
        if count > 0 && *field != "flexVolume" {
            errs.forbidden(&at.field(second), MORE);
            continue;
        }
        count += 1;
        let at_source = at.field(path);
        if *field == "iscsi" {
            let portal = s.str("targetPortal");
            if portal.is_empty() {
                errs.required(&at_source.field("targetPortal"), "");
            }
            if s.has("initiatorName") && name.len() + 1 + portal.len() > 64 {
                errs.invalid(&at_source.field("targetportal"), portal, ISCSI_LENGTH);
            }
            let before = errs.len();
            check(errs, &at_source, s);
            if portal.is_empty() && before < errs.0.len() {
                // The name was reported above, before the length.
                errs.0.remove(before);
            }
        } else {
            check(errs, &at_source, s);
        }
        if *field == "local" && !spec.has("nodeAffinity") {
            errs.required(&at.field("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if count == 0 {
        errs.required(at, "must specify a volume type");
    }
    let root = spec.opt("hostPath").is_some_and(|h| {
        let p = h.str("path");
        p.starts_with('/') && p.split('/').all(|s| s.is_empty() || s == "." || s == "..")
    });
    if root && spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        errs.forbidden(
            &at.field("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
}

fn volume_update(errs: &mut Errors, n: View<'_>, o: View<'_>, c: &Ctx<'_>) {
    // Upstream checks the volume itself twice on an update, and reports what it finds twice.
    volume(errs, n, Some(o));
    volume(errs, n, Some(o));
    let (ns, os) = (n.st("spec"), o.st("spec"));
    let Some(old_spec) = os.raw() else { return };
    let mut new_spec = ns.raw().cloned().unwrap_or_else(|| Struct::new(old_spec.id));
    if os.has("csi")
        && !os.st("csi").has("controllerExpandSecretRef")
        && let Some(mut csi) = Edit::new(n.schema, &mut new_spec).at("csi")
    {
        csi.remove("controllerExpandSecretRef");
    }
    let is_source = |s: &Struct| -> Vec<(api::FieldNo, Node)> {
        let ty = n.schema.st(s.id);
        s.iter()
            .filter(|(no, _)| SOURCES.iter().any(|(f, ..)| ty.at(*no).json == *f))
            .map(|(no, v)| (no, v.clone()))
            .collect()
    };
    if is_source(&new_spec) != is_source(old_spec) {
        let shown = |s: &Struct| print::selected(n.schema, s, "core.v1.PersistentVolumeSource");
        errs.forbidden(
            &Path::root("spec.persistentvolumesource"),
            format!(
                "spec.persistentvolumesource is immutable after creation\n{}",
                print::diff_json(&shown(old_spec), &shown(&new_spec))
            ),
        );
    }
    immutable(errs, &Path::root(""), ns, os, "volumeMode");
    if os.has("nodeAffinity") && !c.gates.enabled(Gate::MutablePVNodeAffinity) && !same_but_labels(ns, os) {
        errs.invalid(
            &Path::root("nodeAffinity"),
            Raw(print::field(ns, "nodeAffinity")),
            format!("{IMMUTABLE}, except for updating from beta label to GA"),
        );
    }
    if os.has("volumeAttributesClassName") && !ns.has("volumeAttributesClassName") {
        errs.forbidden(
            &Path::root("spec.volumeAttributesClassName"),
            "update from non-nil value to nil is forbidden",
        );
    }
}

/// Whether the required node affinity is the same, except that beta labels became stable ones.
fn same_but_labels(new: View<'_>, old: View<'_>) -> bool {
    let terms = |v: View<'_>| v.st("nodeAffinity").st("required").list("nodeSelectorTerms").to_vec();
    let present = |v: View<'_>| (v.has("nodeAffinity"), v.st("nodeAffinity").has("required"));
    let (mut a, mut b) = (terms(new), terms(old));
    if present(new) != present(old) || a.len() != b.len() {
        return false;
    }
    for (a, b) in a.iter_mut().zip(&mut b) {
        let (Some(a), Some(b)) = (a.as_struct_mut(), b.as_struct_mut()) else { return false };
        for list in ["matchExpressions", "matchFields"] {
            let (mut a, mut b) = (Edit::new(new.schema, a), Edit::new(new.schema, b));
            for (mut a, b) in a.items(list).zip(b.items(list)) {
                let (to, from) = (Text::from(a.view().str("key")), b.view().str("key"));
                // Upstream looks the old label up in a table, where others have the stable label "".
                let stable = BETA_LABELS.iter().find(|l| l.0 == from).map_or("", |l| l.1);
                if from != to && stable == to {
                    let from = Text::from(from);
                    a.set("key", from);
                }
            }
        }
    }
    a == b
}

/// Beta labels of nodes, with the stable ones that replace them.
const BETA_LABELS: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

fn volume_warnings(v: View<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let spec = v.st("spec");
    let notes = Path::root("metadata.annotations");
    for (key, what) in [
        (
            "volume.beta.kubernetes.io/storage-class",
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        (
            "volume.beta.kubernetes.io/mount-options",
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ] {
        if v.st("metadata").map("annotations").is_some_and(|a| a.get(key).is_some()) {
            out.push(format!("{}: {what}", notes.key(key)));
        }
    }
    if spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        out.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".into());
    }
    let terms = Path::root("spec.nodeAffinity.required.nodeSelectorTerms");
    for (i, t) in required_affinity(v).items("nodeSelectorTerms").enumerate() {
        warnings::node_term(&mut out, &terms.index(i), t, false);
    }
    for (f, shown, what) in [
        ("cephfs", "cephfs", "v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "v1.28, non-functional in v1.31+"),
    ] {
        if spec.has(f) {
            out.push(format!("spec.{shown}: deprecated in {what}"));
        }
    }
    out
}
