//! Rules of a pod's volumes.

use std::collections::{HashMap, HashSet};

use api::field::{Errors, Path, Raw};
use api::go::quote;
use api::names;
use api::quantity::nano;
use api::view::View;

use super::options::Options;
use super::paths::{local_descending, local_non_reserved};
use super::volume_sources::{
    ISCSI_LENGTH, aws_disk_source, azure_disk, cinder, csi_driver_name, fc, flex, flocker, gce_disk_source,
    host_path_source, iscsi, monitors, nfs, quobyte, rbd, required, storage_os,
};
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

fn empty_dir(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    if v.opt_str("sizeLimit").is_some_and(|q| nano(q) < 0) {
        errs.forbidden(&at.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn host_path(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    host_path_source(errs, at, v);
}

fn git_repo(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    required(errs, at, v, &["repository"]);
    local_descending(errs, &at.field("directory"), v.str("directory"));
}

fn gce_disk(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    gce_disk_source(errs, at, v);
}

fn aws_disk(errs: &mut Errors, at: &Path<'_>, v: View<'_>, _: &Options<'_>) {
    aws_disk_source(errs, at, v);
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
