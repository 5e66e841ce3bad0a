//! Rules of a pod's volumes.

use std::collections::{HashMap, HashSet};

use api::field::{Errors, Path, Plain, Raw};
use api::go::quote;
use api::names;
use api::quantity::nano;
use api::view::View;

use super::options::Options;
use super::paths::{local_descending, local_non_reserved, no_backsteps};
use crate::strategies::certificates::{signer_name, trust_bundle};
use crate::strategies::core::persistent_volume_claim::{ClaimOptions, claim_spec};
use crate::validation::meta;
use crate::validation::print;

pub(crate) const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The volumes without errors by name.
pub(super) type Volumes<'a> = HashMap<&'a str, View<'a>>;

/// Checks all volumes; `pod_name` is the pod's, "" in a template.
pub(super) fn check<'a>(
    errs: &mut Errors,
    at: &Path<'_>,
    spec: View<'a>,
    meta: Option<View<'_>>,
    o: &Options<'_>,
) -> Volumes<'a> {
    let pod_name = meta.map_or("", |m| m.str("name"));
    let created: HashSet<String> = if pod_name.is_empty() {
        HashSet::new()
    } else {
        spec.items("volumes")
            .filter(|v| v.has("ephemeral"))
            .map(|v| format!("{pod_name}-{}", v.str("name")))
            .collect()
    };
    let mut good: Volumes<'a> = HashMap::new();
    for (i, v) in spec.items("volumes").enumerate() {
        let at = at.index(i);
        let before = errs.len();
        let name = v.str("name");
        source(errs, &at, v, name, pod_name, o);
        let name_at = at.field("name");
        if name.is_empty() {
            errs.required(&name_at, "");
        } else {
            errs.each(&name_at, name, names::dns1123_label(name));
        }
        if good.contains_key(name) {
            errs.duplicate(&name_at, name);
        }
        if errs.len() == before {
            good.insert(name, v);
        }
        if let Some(p) = v.opt("persistentVolumeClaim") {
            let claim = p.str("claimName");
            if created.contains(claim) {
                let at = at.field("persistentVolumeClaim");
                errs.invalid(
                    &at.field("claimName"),
                    claim,
                    "must not reference a PVC that gets created for an ephemeral volume",
                );
            }
        }
    }
    good
}

type Check = fn(&mut Errors, &Path<'_>, View<'_>, &Options<'_>);

/// The sources in upstream's order: field, name in paths, check.
const SOURCES: &[(&str, &str, Check)] = &[
    ("emptyDir", "emptyDir", empty_dir),
    ("hostPath", "hostPath", host_path),
    ("gitRepo", "gitRepo", git_repo),
    ("gcePersistentDisk", "persistentDisk", gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", aws_disk),
    ("secret", "secret", secret),
    ("nfs", "nfs", |e, p, v, _| nfs(e, p, v)),
    ("iscsi", "iscsi", |e, p, v, _| iscsi(e, p, v, false)),
    ("glusterfs", "glusterfs", |e, p, v, _| required(e, p, v, &["endpoints", "path"])),
    ("flocker", "flocker", |e, p, v, _| flocker(e, p, v)),
    ("persistentVolumeClaim", "persistentVolumeClaim", |e, p, v, _| required(e, p, v, &["claimName"])),
    ("rbd", "rbd", |e, p, v, _| rbd(e, p, v)),
    ("cinder", "cinder", |e, p, v, _| cinder(e, p, v, false)),
    ("cephfs", "cephfs", |e, p, v, _| monitors(e, p, v)),
    ("quobyte", "quobyte", |e, p, v, _| quobyte(e, p, v)),
    ("downwardAPI", "downwardAPI", downward_api),
    ("fc", "fc", |e, p, v, _| fc(e, p, v)),
    ("flexVolume", "flexVolume", |e, p, v, _| flex(e, p, v)),
    ("configMap", "configMap", config_map),
    ("azureFile", "azureFile", |e, p, v, _| required(e, p, v, &["secretName", "shareName"])),
    ("vsphereVolume", "vsphereVolume", |e, p, v, _| required(e, p, v, &["volumePath"])),
    ("photonPersistentDisk", "photonPersistentDisk", |e, p, v, _| required(e, p, v, &["pdID"])),
    ("portworxVolume", "portworxVolume", |e, p, v, _| required(e, p, v, &["volumeID"])),
    ("azureDisk", "azureDisk", |e, p, v, _| azure_disk(e, p, v)),
    ("storageos", "storageos", |e, p, v, _| storage_os(e, p, v, false)),
    ("projected", "projected", projected),
    ("scaleIO", "scaleIO", |e, p, v, _| required(e, p, v, &["gateway", "system", "volumeName"])),
    ("csi", "csi", csi),
    ("ephemeral", "ephemeral", ephemeral),
    ("image", "image", image),
];

fn source(errs: &mut Errors, at: &Path<'_>, v: View<'_>, name: &str, pod_name: &str, o: &Options<'_>) {
    let mut count = 0;
    for (field, path, check) in SOURCES {
        let Some(s) = v.opt(field) else { continue };
        if count > 0 {
            let path = match *field {
                "gcePersistentDisk" => "gcePersistentDisk",
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                _ => path,
            };
            errs.forbidden(&at.field(path), "may not specify more than 1 volume type");
        } else {
            check(errs, &at.field(path), s, o);
        }
        if *field == "iscsi" && s.has("initiatorName") && name.len() + 1 + s.str("targetPortal").len() > 64 {
            errs.invalid(&at.field("name"), name, ISCSI_LENGTH);
        }
        if *field == "ephemeral" && count == 0 && !pod_name.is_empty() && !name.is_empty() {
            let claim = format!("{pod_name}-{name}");
            for msg in names::name_subdomain(&claim, false) {
                errs.invalid(&at.field("name"), name, format!("PVC name {}: {msg}", quote(&claim)));
            }
        }
        count += 1;
    }
    if count == 0 {
        errs.required(at, "must specify a volume type");
    }
}

pub(crate) const ISCSI_LENGTH: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

/// Checks strings that must not be empty.
pub(crate) fn required(errs: &mut Errors, at: &Path<'_>, v: View<'_>, fields: &[&str]) {
    for f in fields {
        if v.str(f).is_empty() {
            errs.required(&at.field(f), "");
        }
    }
}

fn empty_dir(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    if v.opt_str("sizeLimit").is_some_and(|q| nano(q) < 0) {
        errs.forbidden(&at.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn host_path(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    host_path_source(errs, at, v);
}

/// Checks a hostPath of a pod or a PersistentVolume.
pub(crate) fn host_path_source(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    if v.str("path").is_empty() {
        errs.required(&at.field("path"), "");
        return;
    }
    no_backsteps(errs, &at.field("path"), v.str("path"));
    if let Some(t) = v.opt_str("type") {
        errs.one_of(
            &at.field("type"),
            t,
            &[
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ],
        );
    }
}

fn git_repo(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    required(errs, at, v, &["repository"]);
    local_descending(errs, &at.field("directory"), v.str("directory"));
}

fn partition(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let p = v.int("partition");
    if !(0..=255).contains(&p) {
        errs.invalid(&at.field("partition"), p, names::range(1, 255));
    }
}

fn gce_disk(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    gce_disk_source(errs, at, v);
}
/// Checks a GCE disk of a pod or a PersistentVolume.
pub(crate) fn gce_disk_source(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["pdName"]);
    partition(errs, at, v);
}

fn aws_disk(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    aws_disk_source(errs, at, v);
}
/// Checks an AWS disk of a pod or a PersistentVolume.
pub(crate) fn aws_disk_source(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["volumeID"]);
    partition(errs, at, v);
}

fn mode(errs: &mut Errors, at: &Path<'_>, m: Option<i64>) {
    if let Some(m) = m
        && !(0..=0o777).contains(&m)
    {
        errs.invalid(at, m, MODE);
    }
}

fn secret(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    required(errs, at, v, &["secretName"]);
    mode(errs, &at.field("defaultMode"), v.opt_int("defaultMode"));
    items(errs, at, v);
}

fn config_map(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    required(errs, at, v, &["name"]);
    mode(errs, &at.field("defaultMode"), v.opt_int("defaultMode"));
    items(errs, at, v);
}

fn items(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let at = at.field("items");
    for (i, kp) in v.items("items").enumerate() {
        key_to_path(errs, &at.index(i), kp);
    }
}

fn key_to_path(errs: &mut Errors, at: &Path<'_>, kp: View<'_>) {
    required(errs, at, kp, &["key", "path"]);
    local_non_reserved(errs, &at.field("path"), kp.str("path"));
    mode(errs, &at.field("mode"), kp.opt_int("mode"));
}

/// Checks an NFS source of a pod or a PersistentVolume.
pub(crate) fn nfs(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["server", "path"]);
    if !v.str("path").starts_with('/') {
        errs.invalid(&at.field("path"), v.str("path"), "must be an absolute path");
    }
}

/// Whether an iSCSI name is well formed, by its prefix; `None` for another prefix.
fn iscsi_form(s: &str) -> Option<bool> {
    let alnum = |s: &str, extra: &[char]| {
        !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(&c))
    };
    let counted =
        |s: &str, n: usize| s.chars().count() == n + 4 && alnum(&s.chars().skip(4).collect::<String>(), &[]);
    if s.starts_with("iqn") {
        let date = |d: &str| {
            let b = d.as_bytes();
            b.len() == 7
                && b.iter().enumerate().all(|(i, c)| if i == 4 { *c == b'-' } else { c.is_ascii_digit() })
        };
        Some(s.strip_prefix("iqn.").and_then(|r| r.split_once('.')).is_some_and(|(d, rest)| {
            date(d)
                && rest.split_once(':').is_some_and(|(authority, name)| {
                    alnum(authority, &['-', '.'])
                        && !name.is_empty()
                        && !name.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\x0c'])
                })
        }))
    } else if s.starts_with("eui") {
        Some(counted(s, 16))
    } else if s.starts_with("naa") {
        Some(counted(s, 32))
    } else {
        None
    }
}

/// Checks an iSCSI source of a pod or (`pv`) a PersistentVolume.
pub(crate) fn iscsi(errs: &mut Errors, at: &Path<'_>, v: View<'_>, pv: bool) {
    let prefix_text =
        if pv { "must be valid format" } else { "must be valid format starting with iqn, eui, or naa" };
    required(errs, at, v, &["targetPortal"]);
    let check = |errs: &mut Errors, at: &Path<'_>, s: &str| match iscsi_form(s) {
        None => errs.invalid(at, s, prefix_text),
        Some(false) => errs.invalid(at, s, "must be valid format"),
        Some(true) => {}
    };
    if v.str("iqn").is_empty() {
        errs.required(&at.field("iqn"), "");
    } else {
        check(errs, &at.field("iqn"), v.str("iqn"));
    }
    let lun = v.int("lun");
    if !(0..=255).contains(&lun) {
        errs.invalid(&at.field("lun"), lun, names::range(0, 255));
    }
    if (v.bool("chapAuthDiscovery") || v.bool("chapAuthSession")) && !v.has("secretRef") {
        errs.required(&at.field("secretRef"), "");
    }
    if pv && v.opt("secretRef").is_some_and(|s| s.str("name").is_empty()) {
        errs.required(&at.field("secretRef.name"), "");
    }
    if let Some(i) = v.opt_str("initiatorName") {
        check(errs, &at.field("initiatorname"), i);
    }
}

/// Checks a Flocker source of a pod or a PersistentVolume.
pub(crate) fn flocker(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let (name, uuid) = (v.str("datasetName"), v.str("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errs.required(at, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errs.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errs.invalid(&at.field("datasetName"), name, "must not contain '/'");
    }
}

/// Checks Ceph monitors of a pod or a PersistentVolume.
pub(crate) fn monitors(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    if v.len("monitors") == 0 {
        errs.required(&at.field("monitors"), "");
    }
}

/// Checks an RBD source of a pod or a PersistentVolume.
pub(crate) fn rbd(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    monitors(errs, at, v);
    required(errs, at, v, &["image"]);
}

/// Checks a Cinder source of a pod or (`pv`) a PersistentVolume.
pub(crate) fn cinder(errs: &mut Errors, at: &Path<'_>, v: View<'_>, pv: bool) {
    required(errs, at, v, &["volumeID"]);
    secret_ref(errs, at, v, pv);
}

fn secret_ref(errs: &mut Errors, at: &Path<'_>, v: View<'_>, pv: bool) {
    if let Some(s) = v.opt("secretRef") {
        if s.str("name").is_empty() {
            errs.required(&at.field("secretRef.name"), "");
        }
        if pv && s.str("namespace").is_empty() {
            errs.required(&at.field("secretRef.namespace"), "");
        }
    }
}

/// Checks a Quobyte source of a pod or a PersistentVolume.
pub(crate) fn quobyte(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    const PAIR: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = v.str("registry");
    if registry.is_empty() {
        errs.required(&at.field("registry"), PAIR);
    } else if v.str("tenant").len() >= 65 {
        errs.required(&at.field("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for pair in registry.split(',') {
            let good = match pair.strip_prefix('[') {
                Some(rest) => {
                    rest.split_once(']').is_some_and(|(_, p)| p.starts_with(':') && !p[1..].contains(':'))
                }
                None => pair.matches(':').count() == 1 && !pair.contains(['[', ']']),
            };
            if !good {
                errs.invalid(&at.field("registry"), registry, PAIR);
            }
        }
    }
    required(errs, at, v, &["volume"]);
}

/// Checks a Fibre Channel source of a pod or a PersistentVolume.
pub(crate) fn fc(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let (targets, wwids) = (v.len("targetWWNs"), v.len("wwids"));
    if targets == 0 && wwids == 0 {
        errs.required(&at.field("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if targets > 0 && wwids > 0 {
        errs.invalid(
            &at.field("targetWWNs"),
            v.get("targetWWNs"),
            "targetWWNs and wwids can not be specified simultaneously",
        );
    }
    if targets > 0 {
        match v.opt_int("lun") {
            None => errs.required(&at.field("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) if !(0..=255).contains(&lun) => {
                errs.invalid(&at.field("lun"), lun, names::range(0, 255));
            }
            Some(_) => {}
        }
    }
}

/// Checks a flexVolume of a pod or a PersistentVolume.
pub(crate) fn flex(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["driver"]);
    let options = at.field("options");
    for (k, _) in v.texts("options") {
        let domain = format!(".{}", k.split_once('/').map_or(k, |(d, _)| d).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            errs.invalid(&options.key(k), k, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

/// Checks an Azure disk of a pod or a PersistentVolume.
pub(crate) fn azure_disk(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["diskName", "diskURI"]);
    if let Some(m) = v.opt_str("cachingMode") {
        errs.one_of(&at.field("cachingMode"), m, &["None", "ReadOnly", "ReadWrite"]);
    }
    let Some(kind) = v.opt_str("kind") else { return };
    errs.one_of(&at.field("kind"), kind, &["Dedicated", "Managed", "Shared"]);
    let uri = v.str("diskURI");
    if kind == "Managed" && !uri.starts_with("/subscriptions/") {
        errs.not_supported(
            &at.field("diskURI"),
            Plain(uri),
            &["/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"],
        );
    }
    if kind != "Managed" && !uri.starts_with("https://") {
        errs.not_supported(
            &at.field("diskURI"),
            Plain(uri),
            &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
        );
    }
}

/// Checks a StorageOS source of a pod or (`pv`) a PersistentVolume.
pub(crate) fn storage_os(errs: &mut Errors, at: &Path<'_>, v: View<'_>, pv: bool) {
    let (name, ns) = (v.str("volumeName"), v.str("volumeNamespace"));
    if name.is_empty() {
        errs.required(&at.field("volumeName"), "");
    } else {
        errs.each(&at.field("volumeName"), name, names::dns1123_label(name));
    }
    if !ns.is_empty() {
        errs.each(&at.field("volumeNamespace"), ns, names::dns1123_label(ns));
    }
    secret_ref(errs, at, v, pv);
}

/// Checks the name of a CSI driver.
pub(crate) fn csi_driver_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
        return;
    }
    if name.len() > 63 {
        errs.too_long(at, 63);
    }
    errs.each(at, name, names::dns1123_subdomain(&name.to_lowercase()));
}

fn csi(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    csi_driver_name(errs, &at.field("driver"), v.str("driver"));
    if let Some(s) = v.opt("nodePublishSecretRef") {
        let name = s.str("name");
        if name.is_empty() {
            errs.required(&at.field("nodePublishSecretRef.name"), "");
        } else {
            errs.each(&at.field("name"), name, names::name_subdomain(name, false));
        }
    }
}

fn ephemeral(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    let at = at.field("volumeClaimTemplate");
    let Some(t) = v.opt("volumeClaimTemplate") else {
        errs.required(&at, "");
        return;
    };
    template_meta(errs, &at.field("metadata"), t.st("metadata"));
    claim_spec(errs, &at.field("spec"), t.st("spec"), ClaimOptions::default());
}

/// Checks the metadata of a template that becomes an object's: labels and annotations alone.
pub(crate) fn template_meta(errs: &mut Errors, at: &Path<'_>, m: View<'_>) {
    meta::annotations(errs, &at.field("annotations"), m);
    meta::labels(errs, &at.field("labels"), m, "labels");
    if let Some(s) = m.raw() {
        let ty = m.schema.st(s.id);
        for no in s.written() {
            let name = ty.at(no).json.as_str();
            if name != "labels" && name != "annotations" {
                // Upstream makes the path from the Go name.
                let name = if name == "uid" { "uID" } else { name };
                errs.forbidden(&at.field(name), "cannot be set");
            }
        }
    }
}

fn image(errs: &mut Errors, at: &Path<'_>, v: View<'_>, o: &Options<'_>) {
    if o.is_pod && v.str("reference").is_empty() {
        errs.required(&at.field("reference"), "");
    }
    super::references::pull_policy(errs, &at.field("pullPolicy"), v.str("pullPolicy"));
}

const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

fn downward_file(errs: &mut Errors, at: &Path<'_>, f: View<'_>) {
    required(errs, at, f, &["path"]);
    local_non_reserved(errs, &at.field("path"), f.str("path"));
    if let Some(r) = f.opt("fieldRef") {
        super::references::field_ref(errs, &at.field("fieldRef"), r, FILE_FIELDS);
        if f.has("resourceFieldRef") {
            errs.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if let Some(r) = f.opt("resourceFieldRef") {
        super::references::resource_field_ref(errs, &at.field("resourceFieldRef"), r, true);
    } else {
        errs.required(at, "one of fieldRef and resourceFieldRef is required");
    }
    mode(errs, &at.field("mode"), f.opt_int("mode"));
}

fn downward_api(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    mode(errs, &at.field("defaultMode"), v.opt_int("defaultMode"));
    for f in v.items("items") {
        downward_file(errs, at, f);
    }
}

const DUPLICATE: &str = "conflicting duplicate paths";

fn projected(errs: &mut Errors, at: &Path<'_>, v: View<'_>, o: &Options<'_>) {
    mode(errs, &at.field("defaultMode"), v.opt_int("defaultMode"));
    let sources = at.field("sources");
    let mut paths: HashSet<&str> = HashSet::new();
    for (i, s) in v.items("sources").enumerate() {
        let src = sources.index(i);
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let Some(x) = s.opt(kind) else { continue };
            count += 1;
            let at_kind = src.field(kind);
            required(errs, &at_kind, x, &["name"]);
            let at_items = at_kind.field("items");
            for (j, kp) in x.items("items").enumerate() {
                key_to_path(errs, &at_items.index(j), kp);
                take(errs, at, &mut paths, kp.str("path"), x.str("name"));
            }
        }
        if let Some(d) = s.opt("downwardAPI") {
            count += 1;
            let at_kind = src.field("downwardAPI");
            for f in d.items("items") {
                downward_file(errs, &at_kind, f);
                take(errs, at, &mut paths, f.str("path"), f.str("path"));
            }
        }
        if let Some(t) = s.opt("serviceAccountToken") {
            count += 1;
            token(errs, at, &src.field("serviceAccountToken"), t, o);
        }
        if let Some(b) = s.opt("clusterTrustBundle") {
            count += 1;
            projected_bundle(errs, &src.field("clusterTrustBundle"), b);
            let path = b.str("path");
            if !paths.insert(path) {
                errs.invalid(at, path, DUPLICATE);
            }
        }
        if let Some(p) = s.opt("podCertificate") {
            count += 1;
            let at_kind = src.field("podCertificate");
            crate::strategies::certificates::projected(errs, &at_kind, p);
            let mut any = false;
            for f in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
                let path = p.str(f);
                if !path.is_empty() {
                    any = true;
                    local_non_reserved(errs, &at_kind.field(f), path);
                    take(errs, at, &mut paths, path, path);
                }
            }
            if !any {
                errs.required(
                    &at_kind,
                    "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
                );
            }
        }
        if count > 1 {
            errs.forbidden(&src, "may not specify more than 1 volume type per source");
        }
    }
}

fn take<'a>(errs: &mut Errors, at: &Path<'_>, paths: &mut HashSet<&'a str>, path: &'a str, value: &str) {
    if path.is_empty() {
        return;
    }
    if !paths.insert(path) {
        errs.invalid(at, value, DUPLICATE);
    }
}

fn token(errs: &mut Errors, volume: &Path<'_>, at: &Path<'_>, t: View<'_>, o: &Options<'_>) {
    let seconds = t.int("expirationSeconds");
    if seconds < 600 {
        errs.invalid(
            &at.field("expirationSeconds"),
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > 1 << 32 {
        errs.invalid(
            &at.field("expirationSeconds"),
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if t.str("path").is_empty() {
        errs.required(&volume.field("path"), "");
    } else if !o.non_local_token_path {
        local_non_reserved(errs, &volume.field("path"), t.str("path"));
    }
}

fn projected_bundle(errs: &mut Errors, at: &Path<'_>, b: View<'_>) {
    match (b.opt_str("name"), b.opt_str("signerName")) {
        (Some(_), Some(_)) => {
            let all = b.raw().map(|s| print::internal(b.schema, s)).unwrap_or_default();
            errs.invalid(at, Raw(all), "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errs.required(&at.field("name"), "must be a valid object name");
            }
            let signer = name.rsplit_once(':').map_or_else(String::new, |(s, _)| s.replace(':', "/"));
            for msg in trust_bundle::name(&signer, name, false) {
                errs.invalid(&at.field("name"), name, format!("not a valid clustertrustbundlename: {msg}"));
            }
            if let Some(s) = b.opt("labelSelector") {
                let all = s.raw().map(|s| print::internal(b.schema, s)).unwrap_or_default();
                errs.invalid(
                    &at.field("labelSelector"),
                    Raw(all),
                    "labelSelector must be unset if name is specified",
                );
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errs.required(&at.field("signerName"), "must be a valid signer name");
            }
            signer_name(errs, &at.field("signerName"), signer);
            meta::label_selector(
                errs,
                &at.field("labelSelector"),
                b.opt("labelSelector"),
                meta::SelectorOptions::default(),
            );
        }
        (None, None) => errs.required(at, "either name or signerName must be specified"),
    }
    required(errs, at, b, &["path"]);
    local_non_reserved(errs, &at.field("path"), b.str("path"));
}

#[cfg(test)]
mod tests {
    use super::iscsi_form;

    #[test]
    fn iscsi_names() {
        for (s, want) in [
            ("iqn.2015-02.example.com:test", Some(true)),
            ("iqn.2015-02.example.com:test:instance1", Some(true)),
            ("iqn.2013-02.com.example:dc1:a b", Some(false)),
            ("iqn.20-02.example.com:test", Some(false)),
            ("eui.0123456789ABCDEF", Some(true)),
            ("eui.0123456789ABCDEFGH", Some(false)),
            ("naa.62004567BA64678D0123456789ABCDEF", Some(true)),
            ("naa.6200", Some(false)),
            ("other", None),
        ] {
            assert_eq!(iscsi_form(s), want, "{s}");
        }
    }
}
