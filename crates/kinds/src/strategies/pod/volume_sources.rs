//! Sources that volumes of pods and PersistentVolumes have in common.

use api::field::{Errors, Path, Plain};
use api::names;
use api::view::View;

use super::paths::no_backsteps;

pub(crate) const ISCSI_LENGTH: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

/// Checks strings that must not be empty.
pub(crate) fn required(errs: &mut Errors, at: &Path<'_>, v: View<'_>, fields: &[&str]) {
    for f in fields {
        if v.str(f).is_empty() {
            errs.required(&at.field(f), "");
        }
    }
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

fn partition(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let p = v.int("partition");
    if !(0..=255).contains(&p) {
        errs.invalid(&at.field("partition"), p, names::range(1, 255));
    }
}

/// Checks a GCE disk of a pod or a PersistentVolume.
pub(crate) fn gce_disk_source(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["pdName"]);
    partition(errs, at, v);
}

/// Checks an AWS disk of a pod or a PersistentVolume.
pub(crate) fn aws_disk_source(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    required(errs, at, v, &["volumeID"]);
    partition(errs, at, v);
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
