//! Static Pods, made of manifests; upstream's rules.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use sha2::{Digest, Sha256};

use super::references;
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
    /// Whether a Pod may need objects of the API, of which it hears nothing; upstream's gate `PreventStaticPodAPIReferences`
    /// forbids that.
    fn may_refer(&self) -> bool {
        false
    }
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
    /// The Pod needs something that no static Pod can have.
    #[error("static pods may not use {0}")]
    Use(&'static str),
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
        let mut pod = settle(pod, origin, node);
        manifests.check(&pod)?;
        let spec = pod.spec.get_or_insert_default();
        if manifests.may_refer() {
            if references::has_trust_bundle(spec) {
                return Err(ManifestError::Use("ClusterTrustBundle projected volume sources"));
            }
            if references::has_claims(spec) {
                return Err(ManifestError::Use("ResourceClaims"));
            }
        } else if let Some(what) = references::of(spec) {
            return Err(ManifestError::Reference(what));
        }
        Ok(pod)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct Plain {
        may_refer: bool,
    }

    impl Manifests for Plain {
        fn read(&self, manifest: &[u8]) -> Result<Vec<Pod>, ManifestError> {
            let pod = serde_json::from_slice(manifest);
            Ok(vec![pod.map_err(|e| ManifestError::Unreadable(e.to_string()))?])
        }
        fn check(&self, pod: &Pod) -> Result<(), ManifestError> {
            let none = pod.spec.as_ref().is_none_or(|s| s.containers.is_empty());
            if none { Err(ManifestError::Invalid("no containers".into())) } else { Ok(()) }
        }
        fn may_refer(&self) -> bool {
            self.may_refer
        }
    }

    fn read_by(manifests: &Plain, value: &Value, origin: Origin<'_>, node: &str) -> Result<Pod, String> {
        pods(manifests, value.to_string().as_bytes(), origin, node)
            .map(|mut all| all.remove(0))
            .map_err(|e| e.to_string())
    }

    fn read(value: &Value, origin: Origin<'_>, node: &str) -> Result<Pod, String> {
        read_by(&Plain { may_refer: false }, value, origin, node)
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
        // Upstream's cases (`TestStaticPodNameGenerate`).
        for node in ["node1", "Node1", "NODE1"] {
            let named = json!({"metadata": {"name": "static-pod1"}, "spec": {"containers": [{"name": "c"}]}});
            let name = read(&named, file, node).unwrap().metadata.name;
            assert_eq!(name.as_deref(), Some("static-pod1-node1"), "{node}");
        }
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
        let check = |manifests: &Plain, spec: Value, expected: Option<&str>| {
            let mut value = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
            for (key, field) in spec.as_object().unwrap() {
                value["spec"][key] = field.clone();
            }
            let got = read_by(manifests, &value, Origin::File("/f"), "n").err();
            assert_eq!(got.as_deref(), expected, "{spec}");
        };
        let (strict, lax) = (&Plain { may_refer: false }, &Plain { may_refer: true });
        let account = json!({"serviceAccountName": "a"});
        let claims = json!({"resourceClaims": [{"name": "r"}]});
        let bundle = json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}, "name": "v"});
        let bundle = json!({"volumes": [bundle]});
        check(strict, json!({}), None);
        check(strict, account.clone(), Some("static pods may not reference serviceaccounts"));
        check(strict, claims.clone(), Some("static pods may not reference resourceclaims"));
        check(strict, bundle.clone(), Some("static pods may not reference clustertrustbundles"));
        check(lax, account, None);
        check(lax, claims, Some("static pods may not use ResourceClaims"));
        let refused = "static pods may not use ClusterTrustBundle projected volume sources";
        check(lax, bundle, Some(refused));
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
