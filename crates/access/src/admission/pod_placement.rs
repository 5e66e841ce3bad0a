//! LimitPodHardAntiAffinityTopology and PodNodeSelector: the places at which Pods may be or may keep others away.

use std::collections::BTreeMap;

use api::view::{Edit, View};
use api::{Status, Struct};
use serde::Deserialize;
use serde_json::Value;

use super::plugin::{Env, Plugin};
use super::{AdmissionConfig, AdmissionRequest, Operation};
use crate::reader::read;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Lets Pods keep others away from their own node alone.
#[derive(Default)]
pub(super) struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "pods") {
            return Ok(());
        }
        let pod = env.view(object);
        let apart = pod.st("spec").st("affinity").st("podAntiAffinity");
        let terms = apart.items("requiredDuringSchedulingIgnoredDuringExecution");
        match terms.map(|term| term.str("topologyKey")).find(|key| *key != HOSTNAME) {
            None => Ok(()),
            Some(key) => {
                let why = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                );
                Err(Status::forbidden("", "pods", pod.st("metadata").str("name"), why))
            }
        }
    }
}

type Labels = BTreeMap<String, String>;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT: &str = "clusterDefaultNodeSelector";

/// Lets the Pods of a namespace run on its nodes alone.
pub(super) struct PodNodeSelector {
    /// Selectors by namespace, and the default.
    selectors: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

impl PodNodeSelector {
    /// Makes the plugin from its configuration, a document without kind.
    pub(super) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        let selectors = config.of("PodNodeSelector").map(selectors).transpose()?;
        Ok(Box::new(Self { selectors: selectors.unwrap_or_default() }))
    }

    /// The labels that the nodes of a namespace's Pods must have.
    fn of_namespace(&self, env: &Env, name: &str) -> Result<Labels, Status> {
        let Some(object) = env.reader.get(("", "namespaces"), "", name) else {
            return Err(Status::internal(format_args!("namespace {name} does not exist")));
        };
        let namespace: Namespace = read(&object).unwrap_or_default();
        let default = || self.selectors.get(DEFAULT).map(String::as_str).unwrap_or_default();
        let selector = namespace.metadata.annotations.get(ANNOTATION).map_or_else(default, String::as_str);
        labels(selector).map_err(failed)
    }
}

/// Upstream's error without a reason.
fn failed(why: String) -> Status {
    Status::failure(500, "", why)
}

fn selectors(text: &[u8]) -> Result<BTreeMap<String, String>, String> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Document {
        pod_node_selector_plugin_config: BTreeMap<String, Value>,
    }
    let failed = |why: String| format!("couldn't init admission plugin \"PodNodeSelector\": {why}");
    let tree = api::yaml::parse(text).map_err(|e| failed(e.to_string()))?;
    let mut json = Vec::new();
    api::codec::json::encode_any(&tree, &mut json);
    let document: Document = serde_json::from_slice(&json).map_err(|e| failed(e.to_string()))?;
    let selector = |(name, value): (String, Value)| match value {
        Value::String(selector) => Ok((name, selector)),
        Value::Null => Ok((name, String::new())),
        other => Err(failed(format!("the selector of {name:?} is no string: {other}"))),
    };
    document.pod_node_selector_plugin_config.into_iter().map(selector).collect()
}

/// Reads a selector of the form `key=value,key=value`.
fn labels(selector: &str) -> Result<Labels, String> {
    if selector.is_empty() {
        return Ok(Labels::new());
    }
    let pair = |pair: &str| {
        let parts: Vec<&str> = pair.split('=').collect();
        let [key, value] = parts[..] else {
            return Err(format!("invalid selector: [{}]", parts.join(" ")));
        };
        let (key, value) = (key.trim(), value.trim());
        let bad_key = api::names::qualified_name(key);
        if !bad_key.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", bad_key.join("; ")));
        }
        let bad_value = api::names::label_value(value);
        if !bad_value.is_empty() {
            return Err(format!("<nil>: Invalid value: {value:?}: {}", bad_value.join("; ")));
        }
        Ok((key.to_owned(), value.to_owned()))
    };
    selector.split(',').map(pair).collect()
}

fn chosen(pod: &View<'_>) -> Labels {
    let spec = pod.st("spec");
    spec.texts("nodeSelector").map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl PodNodeSelector {
    fn check(&self, env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> Result<Labels, Status> {
        let pod = env.view(object);
        let forbidden = |why: &str| Status::forbidden("", "pods", pod.st("metadata").str("name"), why);
        let mut own = chosen(&pod);
        let wanted = self.of_namespace(env, request.namespace)?;
        if wanted.iter().any(|(key, value)| own.get(key).is_some_and(|has| has != value)) {
            return Err(forbidden(
                "pod node label selector conflicts with its namespace node label selector",
            ));
        }
        own.extend(wanted);
        let allowed = self.selectors.get(request.namespace).map(String::as_str).unwrap_or_default();
        let allowed = labels(allowed).map_err(failed)?;
        if !allowed.is_empty() && own.iter().any(|(key, value)| allowed.get(key) != Some(value)) {
            return Err(forbidden("pod node label selector labels conflict with its namespace whitelist"));
        }
        Ok(own)
    }
}

fn is_pod_create(request: &AdmissionRequest<'_>) -> bool {
    request.operation == Operation::Create && request.is("", "pods")
}

impl Plugin for PodNodeSelector {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !is_pod_create(request) {
            return Ok(());
        }
        let all = self.check(env, request, object)?;
        if !all.is_empty()
            && let Some(mut spec) = Edit::new(env.schema, object).make("spec")
            && let Some(selector) = spec.make_map("nodeSelector")
        {
            for (key, value) in all {
                selector.insert(key, value);
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|_| is_pod_create(request)) else { return Ok(()) };
        self.check(env, request, object).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's forms of a selector.
    #[test]
    fn selectors_of_labels() {
        let check = |text: &str, want: Result<&[(&str, &str)], &str>| {
            let want = want.map(|all| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
            assert_eq!(labels(text), want.map_err(str::to_owned), "{text}");
        };
        check("", Ok(&[]));
        check("a=b", Ok(&[("a", "b")]));
        check(" a = b , c=", Ok(&[("a", "b"), ("c", "")]));
        check("a", Err("invalid selector: [a]"));
        check("a=b=c", Err("invalid selector: [a b c]"));
        assert!(labels("-=b").is_err() && labels("a=-").is_err());
    }

    #[test]
    fn documents() {
        let text = b"podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: a=b\n  ns: c=d\n";
        let want = [(DEFAULT, "a=b"), ("ns", "c=d")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(selectors(text), Ok(want.into()));
        assert_eq!(selectors(b"{}"), Ok(BTreeMap::new()));
        assert!(selectors(b"podNodeSelectorPluginConfig: {ns: [1]}").is_err());
    }
}
