//! Which objects of the API a pod names.

use api::view::View;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

fn any_container(spec: &View<'_>, test: impl Fn(&View<'_>) -> bool) -> bool {
    CONTAINERS.iter().any(|list| spec.items(list).any(|c| test(&c)))
}

/// Whether it names a secret.
pub(super) fn secret(spec: &View<'_>) -> bool {
    let named = |v: &View<'_>, field: &str| v.opt(field).is_some_and(|r| !r.str("name").is_empty());
    spec.items("imagePullSecrets").any(|s| !s.str("name").is_empty())
        || any_container(spec, |c| {
            c.items("env").any(|e| named(&e.st("valueFrom"), "secretKeyRef"))
                || c.items("envFrom").any(|e| named(&e, "secretRef"))
        })
        || spec.items("volumes").any(|v| {
            v.has("secret")
                || !v.st("azureFile").str("secretName").is_empty()
                || v.st("projected").items("sources").any(|s| s.has("secret"))
                || ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"]
                    .iter()
                    .any(|source| v.st(source).opt("secretRef").is_some_and(|r| !r.str("name").is_empty()))
                || v.st("csi").opt("nodePublishSecretRef").is_some_and(|r| !r.str("name").is_empty())
        })
}

fn config_map(spec: &View<'_>) -> bool {
    any_container(spec, |c| {
        c.items("env").any(|e| e.st("valueFrom").has("configMapKeyRef"))
            || c.items("envFrom").any(|e| e.has("configMapRef"))
    }) || spec
        .items("volumes")
        .any(|v| v.has("configMap") || v.st("projected").items("sources").any(|s| s.has("configMap")))
}

/// A reference that a pod without an API server could not have; upstream's name of it.
pub(super) fn any(spec: &View<'_>) -> Option<&'static str> {
    if !spec.str("serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    if secret(spec) {
        return Some("secrets");
    }
    if config_map(spec) {
        return Some("configmaps");
    }
    if spec.len("resourceClaims") > 0 {
        return Some("resourceclaims");
    }
    for volume in spec.items("volumes") {
        let sources = [
            ("csi", "csidrivers (via CSI volumes)"),
            ("glusterfs", "endpoints (via glusterFS volumes)"),
            ("persistentVolumeClaim", "persistentvolumeclaims"),
            ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
            ("azureFile", "secrets (via azureFile volumes)"),
        ];
        if let Some((_, name)) = sources.iter().find(|(field, _)| volume.has(field)) {
            return Some(name);
        }
        for source in volume.st("projected").items("sources") {
            let projections = [
                ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
                ("clusterTrustBundle", "clustertrustbundles"),
                ("podCertificate", "podcertificates"),
            ];
            if let Some((_, name)) = projections.iter().find(|(field, _)| source.has(field)) {
                return Some(name);
            }
        }
    }
    None
}
