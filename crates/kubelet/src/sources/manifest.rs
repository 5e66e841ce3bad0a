//! Static Pods, made of manifests; upstream's rules.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration, Volume};
use sha2::{Digest, Sha256};

use crate::pods::labels;

/// The largest manifest that is read.
pub(super) const MAX_MANIFEST: u64 = 10 << 20;

/// Reads manifests by the API's rules. The kubelet itself does not know them.
pub trait Manifests: Send + Sync {
    /// The Pods in a manifest (a Pod, or a list of Pods, in JSON or YAML) with the defaults of their fields.
    ///
    /// # Errors
    /// It holds none, or something that cannot be read.
    fn read(&self, manifest: &[u8]) -> Result<Vec<Pod>, ManifestError>;
    /// Checks a Pod as the API server checks one that is created.
    ///
    /// # Errors
    /// The Pod is not valid.
    fn check(&self, pod: &Pod) -> Result<(), ManifestError>;
}

/// Why a manifest makes no Pod.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The manifest cannot be read.
    #[error("couldn't parse as pod({0}), please check config file")]
    Unreadable(String),
    /// The Pod is not valid.
    #[error("invalid pod: {0}")]
    Invalid(String),
    /// The Pod needs something that only the API has.
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
}

/// Where static Pods come from.
#[derive(Clone)]
pub struct Statics {
    /// Reads manifests.
    pub manifests: Arc<dyn Manifests>,
    /// A file, or a directory of files; upstream's `staticPodPath`.
    pub path: Option<PathBuf>,
    /// How often the files are read although nothing was heard of a change; upstream's `fileCheckFrequency`.
    pub file_period: Duration,
    /// A URL; upstream's `staticPodURL`.
    pub url: Option<String>,
    /// The headers of requests for it; upstream's `staticPodURLHeader`.
    pub headers: Vec<(String, String)>,
    /// How often it is asked; upstream's `httpCheckFrequency`.
    pub url_period: Duration,
}

impl std::fmt::Debug for Statics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may be secret.
        f.debug_struct("Statics").field("path", &self.path).field("url", &self.url).finish_non_exhaustive()
    }
}

/// A place that manifests come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A file's path.
    File(&'a str),
    /// A URL.
    Url(&'a str),
}

impl Origin<'_> {
    /// The name of the source.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Url(_) => "http",
        }
    }
}

/// The static Pods of a manifest.
///
/// # Errors
/// One of them is not valid: then there are none.
pub(crate) fn pods(
    manifests: &dyn Manifests,
    manifest: &[u8],
    origin: Origin<'_>,
    node: &str,
) -> Result<Vec<Pod>, ManifestError> {
    let settled = |pod: Pod| {
        if pod.metadata.name.as_deref().unwrap_or_default().is_empty() {
            return Err(ManifestError::Invalid("name is needed for the pod".into()));
        }
        let pod = settle(pod, origin, node);
        manifests.check(&pod)?;
        match pod.spec.as_ref().and_then(reference) {
            Some(what) => Err(ManifestError::Reference(what)),
            None => Ok(pod),
        }
    };
    manifests.read(manifest)?.into_iter().map(settled).collect()
}

/// Makes a Pod of this node out of one in a manifest: its uid is the hash of both.
fn settle(mut pod: Pod, origin: Origin<'_>, node: &str) -> Pod {
    let meta = &mut pod.metadata;
    if meta.uid.as_deref().unwrap_or_default().is_empty() {
        // Typed objects always encode, and always alike.
        let mut hash = Sha256::new_with_prefix(serde_json::to_vec(&(&*meta, &pod.spec)).unwrap_or_default());
        match origin {
            Origin::File(path) => hash.update(format!("host:{node}file:{path}")),
            Origin::Url(url) => hash.update(format!("url:{url}")),
        }
        let mut hex = String::new();
        for byte in hash.finalize().iter().take(16) {
            let _ = write!(hex, "{byte:02x}");
        }
        meta.uid = Some(hex);
    }
    let name = meta.name.as_deref().unwrap_or_default();
    meta.name = Some(format!("{name}-{}", node.to_lowercase()));
    if meta.namespace.as_deref().unwrap_or_default().is_empty() {
        meta.namespace = Some("default".into());
    }
    let uid = meta.uid.clone().unwrap_or_default();
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(labels::CONFIG_HASH.into(), uid);
    annotations.insert(labels::CONFIG_SOURCE.into(), origin.source().into());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    if matches!(origin, Origin::File(_)) {
        // They stay when the node has problems.
        let everything = Toleration {
            operator: Some("Exists".into()),
            effect: Some("NoExecute".into()),
            ..Toleration::default()
        };
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.contains(&everything) {
            tolerations.push(everything);
        }
    }
    pod.status = None;
    pod.status.get_or_insert_default().phase = Some("Pending".into());
    pod
}

/// When this kubelet saw the Pod first.
pub(crate) fn seen(pod: &mut Pod, at: jiff::Timestamp) {
    let annotations: &mut BTreeMap<String, String> = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::CONFIG_SEEN.into(), at.to_string());
}

/// The objects of the API that a Pod needs, which it may not: upstream's names.
fn reference(spec: &PodSpec) -> Option<&'static str> {
    let named = |name: &Option<String>| name.as_ref().is_some_and(|n| !n.is_empty());
    if named(&spec.service_account_name) {
        return Some("serviceaccounts");
    }
    let mut containers: Vec<Container> = spec.containers.clone();
    containers.extend(spec.init_containers.clone().unwrap_or_default());
    let mut env: Vec<_> = containers.iter().flat_map(|c| c.env.iter().flatten()).collect();
    let mut env_from: Vec<_> = containers.iter().flat_map(|c| c.env_from.iter().flatten()).collect();
    for c in spec.ephemeral_containers.iter().flatten() {
        env.extend(c.env.iter().flatten());
        env_from.extend(c.env_from.iter().flatten());
    }
    let from = |pick: fn(&k8s_openapi::api::core::v1::EnvVarSource) -> bool| {
        env.iter().filter_map(|e| e.value_from.as_ref()).any(pick)
    };
    let pulled = spec.image_pull_secrets.iter().flatten().any(|s| !s.name.is_empty());
    if pulled || from(|v| v.secret_key_ref.is_some()) || env_from.iter().any(|e| e.secret_ref.is_some()) {
        return Some("secrets");
    }
    if from(|v| v.config_map_key_ref.is_some()) || env_from.iter().any(|e| e.config_map_ref.is_some()) {
        return Some("configmaps");
    }
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return Some("resourceclaims");
    }
    spec.volumes.iter().flatten().find_map(of_volume)
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    if volume.config_map.is_some() {
        return Some("configmaps (via configmap volumes)");
    }
    if volume.secret.is_some() {
        return Some("secrets (via secret volumes)");
    }
    if volume.csi.is_some() {
        return Some("csidrivers (via CSI volumes)");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints (via glusterFS volumes)");
    }
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims (via ephemeral volumes)");
    }
    if volume.azure_file.is_some() {
        return Some("secrets (via azureFile volumes)");
    }
    volume.projected.iter().flat_map(|p| p.sources.iter().flatten()).find_map(|source| {
        if source.config_map.is_some() {
            Some("configmaps (via projected volumes)")
        } else if source.secret.is_some() {
            Some("secrets (via projected volumes)")
        } else if source.service_account_token.is_some() {
            Some("serviceaccounts (via projected volumes)")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else if source.pod_certificate.is_some() {
            Some("podcertificates")
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct Plain;

    impl Manifests for Plain {
        fn read(&self, manifest: &[u8]) -> Result<Vec<Pod>, ManifestError> {
            let pod = serde_json::from_slice(manifest);
            Ok(vec![pod.map_err(|e| ManifestError::Unreadable(e.to_string()))?])
        }
        fn check(&self, pod: &Pod) -> Result<(), ManifestError> {
            let none = pod.spec.as_ref().is_none_or(|s| s.containers.is_empty());
            if none { Err(ManifestError::Invalid("no containers".into())) } else { Ok(()) }
        }
    }

    fn read(value: &Value, origin: Origin<'_>, node: &str) -> Result<Pod, String> {
        pods(&Plain, value.to_string().as_bytes(), origin, node)
            .map(|mut all| all.remove(0))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_the_node() {
        let manifest = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c"}]}});
        let file = Origin::File("/etc/m/web.yaml");
        let pod = read(&manifest, file, "Node-A").unwrap();
        let meta = &pod.metadata;
        assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("web-node-a"), Some("default")));
        let (uid, annotations) = (meta.uid.clone().unwrap(), meta.annotations.clone().unwrap());
        assert_eq!((uid.len(), &annotations[labels::CONFIG_HASH]), (32, &uid));
        assert_eq!(annotations[labels::CONFIG_SOURCE], "file");
        let spec = pod.spec.clone().unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("Node-A"));
        assert_eq!(spec.tolerations.unwrap()[0].effect.as_deref(), Some("NoExecute"));
        assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
        // The uid is that of the content, the place and the node.
        let uid_of = |value: &Value, origin, node| read(value, origin, node).unwrap().metadata.uid.unwrap();
        assert_eq!(uid_of(&manifest, file, "Node-A"), uid);
        let mut other = manifest.clone();
        other["spec"]["containers"][0]["image"] = json!("i");
        for different in [
            uid_of(&other, file, "Node-A"),
            uid_of(&manifest, Origin::File("/b"), "Node-A"),
            uid_of(&manifest, file, "b"),
            uid_of(&manifest, Origin::Url("http://h"), "Node-A"),
        ] {
            assert_ne!(different, uid);
        }
        let mut own = manifest.clone();
        own["metadata"]["uid"] = json!("mine");
        assert_eq!(uid_of(&own, file, "n"), "mine");
        let by_url = read(&manifest, Origin::Url("http://h"), "n").unwrap();
        assert_eq!(by_url.metadata.annotations.unwrap()[labels::CONFIG_SOURCE], "http");
        assert_eq!(by_url.spec.unwrap().tolerations, None);
    }

    #[test]
    fn what_needs_the_api_is_refused() {
        let check = |spec: Value, expected: Option<&str>| {
            let mut value = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
            for (key, field) in spec.as_object().unwrap() {
                value["spec"][key] = field.clone();
            }
            let got = read(&value, Origin::File("/f"), "n").err();
            let expected = expected.map(|what| format!("static pods may not reference {what}"));
            assert_eq!(got, expected, "{spec}");
        };
        let env =
            |from: Value| json!({"containers": [{"name": "c", "env": [{"name": "e", "valueFrom": from}]}]});
        let volume = |source: Value| {
            let mut volume = json!({"name": "v"});
            for (key, field) in source.as_object().unwrap() {
                volume[key] = field.clone();
            }
            json!({"volumes": [volume]})
        };
        let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
        check(json!({}), None);
        check(json!({"serviceAccountName": "a"}), Some("serviceaccounts"));
        check(env(json!({"secretKeyRef": {"name": "s", "key": "k"}})), Some("secrets"));
        check(env(json!({"configMapKeyRef": {"name": "s", "key": "k"}})), Some("configmaps"));
        check(env(json!({"fieldRef": {"fieldPath": "metadata.name"}})), None);
        check(json!({"imagePullSecrets": [{"name": "s"}]}), Some("secrets"));
        check(json!({"resourceClaims": [{"name": "r"}]}), Some("resourceclaims"));
        for free in [
            json!({"emptyDir": {}}),
            json!({"hostPath": {"path": "/"}}),
            json!({"downwardAPI": {}}),
            json!({"image": {"reference": "i"}}),
            json!({"nfs": {"server": "s", "path": "/"}}),
        ] {
            check(volume(free), None);
        }
        check(volume(json!({"configMap": {"name": "x"}})), Some("configmaps (via configmap volumes)"));
        check(volume(json!({"secret": {"secretName": "x"}})), Some("secrets (via secret volumes)"));
        check(volume(json!({"csi": {"driver": "d"}})), Some("csidrivers (via CSI volumes)"));
        check(volume(json!({"persistentVolumeClaim": {"claimName": "x"}})), Some("persistentvolumeclaims"));
        check(volume(json!({"ephemeral": {}})), Some("persistentvolumeclaims (via ephemeral volumes)"));
        check(projected(json!({"downwardAPI": {}})), None);
        check(projected(json!({"secret": {"name": "s"}})), Some("secrets (via projected volumes)"));
        check(
            projected(json!({"serviceAccountToken": {"path": "t"}})),
            Some("serviceaccounts (via projected volumes)"),
        );
        check(projected(json!({"clusterTrustBundle": {"path": "t"}})), Some("clustertrustbundles"));
        let certificate = json!({"podCertificate": {"signerName": "e.com/s", "keyType": "ED25519"}});
        check(projected(certificate), Some("podcertificates"));
    }

    #[test]
    fn nonsense_is_no_pod() {
        let check = |value: Value, expected: &str| {
            let got = read(&value, Origin::File("/f"), "n").unwrap_err();
            assert!(got.starts_with(expected), "{got}");
        };
        check(json!([]), "couldn't parse as pod(");
        check(json!({"spec": {"containers": [{"name": "c"}]}}), "invalid pod: name is needed for the pod");
        check(json!({"metadata": {"name": "p"}}), "invalid pod: no containers");
    }
}
