//! Manifests of static Pods, read and checked by the rules by which the API server reads and checks a Pod.

use std::sync::Arc;

use api::codec::json;
use api::schema::Gvk;
use api::{FeatureGates, Gate, Schema, Struct};
use k8s_openapi::api::core::v1::Pod;
use kinds::defaults::Defaults;
use kinds::strategy::{Ctx, Strategy};
use kubelet::sources::{ManifestError, Manifests};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A list of Pods.
#[derive(Deserialize)]
struct Items {
    items: Vec<Pod>,
}

/// The rules of Pods.
pub(crate) struct Rules {
    schema: &'static Schema,
    defaults: Defaults,
    strategy: Arc<dyn Strategy>,
    gates: FeatureGates,
}

impl Rules {
    /// Those of this version, with these features.
    pub(crate) fn new(gates: FeatureGates) -> Self {
        let schema = Schema::builtin();
        Self {
            schema,
            defaults: Defaults::new(schema),
            strategy: kinds::strategies::strategy("", "pods"),
            gates,
        }
    }

    /// The tree of a manifest of a kind, with the defaults of its fields.
    fn tree(&self, kind: &str, manifest: &[u8]) -> Result<Struct, String> {
        let root = self.schema.kind(&Gvk::new("", "v1", kind)).ok_or("there is no such kind")?;
        let node = api::yaml::parse(manifest).map_err(|e| e.to_string())?;
        let decoded = json::root_from_any(self.schema, root, node).map_err(|e| e.to_string())?;
        if decoded.api_version != "v1" || decoded.kind != kind {
            return Err(format!(
                "no kind {:?} is registered for version {:?} that makes a Pod",
                decoded.kind.as_str(),
                decoded.api_version.as_str()
            ));
        }
        let mut tree = decoded.tree;
        self.defaults.apply(self.schema, &mut tree);
        Ok(tree)
    }

    fn typed<T: DeserializeOwned>(&self, tree: &Struct) -> Result<T, String> {
        let mut bytes = Vec::new();
        json::encode(self.schema, tree, &mut bytes);
        serde_json::from_slice(&bytes).map_err(|e| e.to_string())
    }

    fn pods(&self, manifest: &[u8]) -> Result<Vec<Pod>, String> {
        let single = self.tree("Pod", manifest);
        let why = match single.and_then(|tree| self.typed(&tree)) {
            Ok(pod) => return Ok(vec![pod]),
            Err(why) => why,
        };
        let list = self.tree("PodList", manifest).and_then(|tree| self.typed::<Items>(&tree));
        list.map(|list| list.items).map_err(|_| why)
    }

    fn errors(&self, pod: &Pod) -> Result<Vec<String>, String> {
        let bytes = serde_json::to_vec(pod).map_err(|e| e.to_string())?;
        let mut tree = self.tree("Pod", &bytes)?;
        let ctx = Ctx { schema: self.schema, now: "", gates: self.gates, privileged: true, warn: &drop };
        self.strategy.prepare_create(&ctx, &mut tree);
        let mut errors = self.strategy.validate(&ctx, &tree);
        if errors.is_empty() {
            errors = kinds::validation::meta::common_create(self.schema, &tree, true);
        }
        Ok(errors.iter().map(ToString::to_string).collect())
    }
}

impl Manifests for Rules {
    fn read(&self, manifest: &[u8]) -> Result<Vec<Pod>, ManifestError> {
        self.pods(manifest).map_err(ManifestError::Unreadable)
    }

    fn check(&self, pod: &Pod) -> Result<(), ManifestError> {
        let errors = self.errors(pod).map_err(ManifestError::Unreadable)?;
        if errors.is_empty() { Ok(()) } else { Err(ManifestError::Invalid(errors.join(", "))) }
    }

    fn may_refer(&self) -> bool {
        !self.gates.enabled(Gate::PreventStaticPodAPIReferences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_have_the_rules_of_the_api() {
        let rules = Rules::new(FeatureGates::default());
        assert!(!rules.may_refer());
        let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\n\
                    spec:\n  containers:\n  - {name: c, image: i}\n";
        let pods = rules.read(yaml.as_bytes()).unwrap();
        let spec = pods[0].spec.clone().unwrap();
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
        rules.check(&pods[0]).unwrap();
        let list =
            format!("apiVersion: v1\nkind: PodList\nitems:\n- {}", yaml.trim_end().replace('\n', "\n  "));
        assert_eq!(rules.read(list.as_bytes()).unwrap().len(), 1, "{list}");
        let wrong = |text: &str| match rules.read(text.as_bytes()) {
            Ok(pods) => rules.check(&pods[0]).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(wrong(&yaml.replace("name: c", "name: C_")).contains("spec.containers[0].name"));
        assert!(wrong(&yaml.replace("image: i", "image: \"\"")).contains("spec.containers[0].image"));
        assert!(wrong("apiVersion: v1\nkind: Service\n").starts_with("couldn't parse as pod("));
        assert!(wrong("{").starts_with("couldn't parse as pod("));
        assert!(wrong("").starts_with("couldn't parse as pod("));
        assert!(wrong(&"[".repeat(1 << 20)).starts_with("couldn't parse as pod("));
    }

    /// Upstream's cases (`TestExtractInvalidPods`), each beside the Pod that it would be without its fault.
    #[test]
    fn pods_that_are_none() {
        let rules = Rules::new(FeatureGates::default());
        let check = |version: &str, container: &str, volumes: &str| -> Result<(), String> {
            let names = volumes.split_whitespace();
            let volumes: Vec<_> =
                names.map(|name| serde_json::json!({"name": name, "emptyDir": {}})).collect();
            let manifest = serde_json::json!({
                "apiVersion": version,
                "kind": "Pod",
                "metadata": {"name": "foo", "namespace": "mynamespace", "uid": "111"},
                "spec": {
                    "containers": [{"name": container, "image": "foo", "restartPolicy": "Always"}],
                    "volumes": volumes,
                },
            });
            let pods = rules.read(manifest.to_string().as_bytes()).map_err(|e| e.to_string())?;
            rules.check(&pods[0]).map_err(|e| e.to_string())
        };
        assert_eq!(check("v1", "1", "one two"), Ok(()));
        for (version, container, volumes, told) in [
            ("", "1", "", "couldn't parse as pod("),
            ("v1betta2", "1", "", "couldn't parse as pod("),
            ("v1", "1", "_INVALID_", "spec.volumes[0].name"),
            ("v1", "1", "repeated repeated", "spec.volumes[1].name"),
            ("v1", "", "", "spec.containers[0].name"),
            ("v1", "_INVALID_", "", "spec.containers[0].name"),
        ] {
            let error = check(version, container, volumes).unwrap_err();
            assert!(error.contains(told), "{version} {container} {volumes:?}: {error}");
        }
    }
}
