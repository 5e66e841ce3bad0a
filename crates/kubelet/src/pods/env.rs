//! Containers' environment, and `$(VAR)` references in it and in commands.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use client::Informer;
use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod, Service};

use super::downward::{Facts, FieldError};
use super::spec;
use crate::config::Config;
use crate::objects::{NotThere, Objects};
use crate::recorder::PodRecorder;
use crate::volumes::env_file::{self, EnvFileError};

/// Why an environment cannot be made; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvError {
    #[error(transparent)]
    Object(#[from] NotThere),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error(transparent)]
    File(#[from] EnvFileError),
}

impl EnvError {
    fn no_key(kind: &'static str, namespace: &str, name: &str, key: &str) -> Self {
        let (namespace, name, key) = (namespace.to_owned(), name.to_owned(), key.to_owned());
        Self::NoKey { kind, namespace, name, key }
    }
}

/// Variables in their order; a name stands once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Env {
    pairs: Vec<(String, String)>,
    /// Where each name stands.
    places: HashMap<String, usize>,
}

impl Env {
    /// Sets a variable, in the place it has already.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        if let Some((_, v)) = self.places.get(&name).and_then(|at| self.pairs.get_mut(*at)) {
            *v = value;
        } else {
            self.places.insert(name.clone(), self.pairs.len());
            self.pairs.push((name, value));
        }
    }
    /// A variable's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.get(*self.places.get(name)?).map(|(_, v)| v.as_str())
    }
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.pairs.iter()
    }
}

/// Replaces `$(NAME)` by its value. `$$` stands for one `$`; what is not found stays as it is.
pub(crate) fn expand<'a>(input: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            if let Some(value) = lookup(name) {
                out.push_str(value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// Variables of a Service, as upstream and once Docker links named them.
fn service_variables(service: &Service, env: &mut Env) {
    let Some(spec) = &service.spec else { return };
    let (Some(host), Some(name)) = (&spec.cluster_ip, &service.metadata.name) else { return };
    let ports = spec.ports.as_deref().unwrap_or_default();
    if host.is_empty() || host == "None" {
        return;
    }
    let upper = |s: &str| s.to_uppercase().replace('-', "_");
    let name = upper(name);
    let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    env.set(format!("{name}_SERVICE_HOST"), host);
    for (i, port) in ports.iter().enumerate() {
        if i == 0 {
            env.set(format!("{name}_SERVICE_PORT"), port.port.to_string());
        }
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            env.set(format!("{name}_SERVICE_PORT_{}", upper(port_name)), port.port.to_string());
        }
    }
    for (i, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{bracketed}:{}", protocol.to_lowercase(), port.port);
        if i == 0 {
            env.set(format!("{name}_PORT"), &url);
        }
        let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
        env.set(&prefix, url);
        env.set(format!("{prefix}_PROTO"), protocol.to_lowercase());
        env.set(format!("{prefix}_PORT"), port.port.to_string());
        env.set(format!("{prefix}_ADDR"), host);
    }
}

/// A name that may stand in a process' environment: printable ASCII without `=`.
fn valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// The sources of environments.
pub(crate) struct Sources {
    services: Informer<Service>,
    objects: Arc<Objects>,
    recorder: PodRecorder,
    /// Where Pods' directories are.
    pods: PathBuf,
}

impl Sources {
    /// The Services, and the ConfigMaps and Secrets that Pods refer to.
    pub(crate) fn new(
        config: &Config,
        services: Informer<Service>,
        objects: Arc<Objects>,
        recorder: PodRecorder,
    ) -> Self {
        Self { services, objects, recorder, pods: config.pods_dir() }
    }

    /// The environment of a container.
    ///
    /// # Errors
    /// The text that upstream puts into the event, if something referred to is missing.
    pub(crate) async fn environment(
        &self,
        facts: &Facts<'_>,
        container: &Container,
    ) -> Result<Env, EnvError> {
        let services = self.services_of(facts.pod);
        let mut env = Env::default();
        self.add_sources(facts.pod, container, &mut env).await?;
        for var in container.env.iter().flatten() {
            let value = if let Some(text) = var.value.as_deref().filter(|t| !t.is_empty()) {
                Some(expand(text, |name| env.get(name).or_else(|| services.get(name))))
            } else if let Some(source) = &var.value_from {
                self.value(facts, container, source).await?
            } else {
                Some(String::new())
            };
            if let Some(value) = value {
                env.set(&var.name, value);
            }
        }
        for (name, value) in services.pairs {
            if env.get(&name).is_none() {
                env.set(name, value);
            }
        }
        Ok(env)
    }

    /// The variables of the API server's Service, and of those in the Pod's namespace if the Pod wants them.
    fn services_of(&self, pod: &Pod) -> Env {
        let mut env = Env::default();
        if let Some(kubernetes) = self.services.get("default", "kubernetes") {
            service_variables(&kubernetes, &mut env);
        }
        if spec::spec(pod).enable_service_links.unwrap_or(true) {
            for service in self.services.list_namespace(spec::namespace(pod)) {
                service_variables(&service, &mut env);
            }
        }
        env
    }

    /// Adds the variables of `envFrom`. An Event names the keys that cannot be variables.
    async fn add_sources(&self, pod: &Pod, container: &Container, env: &mut Env) -> Result<(), EnvError> {
        let namespace = spec::namespace(pod);
        let mut invalid = Vec::new();
        for from in container.env_from.iter().flatten() {
            let mut pairs: BTreeMap<String, String> = BTreeMap::new();
            if let Some(reference) = &from.config_map_ref {
                let found = self.objects.config_map(namespace, &reference.name).await;
                let Some(map) = unless_optional(found, reference.optional)? else { continue };
                pairs.extend(map.data.clone().unwrap_or_default());
            } else if let Some(reference) = &from.secret_ref {
                let found = self.objects.secret(namespace, &reference.name).await;
                let Some(secret) = unless_optional(found, reference.optional)? else { continue };
                let data = secret.data.iter().flatten();
                pairs.extend(data.map(|(k, v)| (k.clone(), String::from_utf8_lossy(&v.0).into_owned())));
            }
            for (key, value) in pairs {
                let name = format!("{}{key}", from.prefix.as_deref().unwrap_or_default());
                if valid_name(&name) {
                    env.set(name, value);
                } else {
                    invalid.push(name);
                }
            }
        }
        if !invalid.is_empty() {
            self.recorder.pod(
                pod,
                "Warning",
                "InvalidEnvironmentVariableNames",
                format!(
                    "Keys [{}] were skipped since they are considered invalid environment variable names.",
                    invalid.join(", ")
                ),
            );
        }
        Ok(())
    }

    /// The value of a variable from its source; none if the source is optional and not there.
    async fn value(
        &self,
        facts: &Facts<'_>,
        container: &Container,
        source: &EnvVarSource,
    ) -> Result<Option<String>, EnvError> {
        let pod = facts.pod;
        let namespace = spec::namespace(pod);
        if let Some(field) = &source.field_ref {
            return Ok(Some(facts.field(&field.field_path)?));
        }
        if let Some(resource) = &source.resource_field_ref {
            let divisor = resource.divisor.as_ref().map(|d| d.0.as_str());
            let other = resource
                .container_name
                .as_deref()
                .filter(|n| !n.is_empty() && *n != container.name)
                .and_then(|n| spec::find_container(pod, n));
            let container = other.as_ref().unwrap_or(container);
            return Ok(Some(facts.resource(container, &resource.resource, divisor)?));
        }
        if let Some(key) = &source.config_map_key_ref {
            let found = self.objects.config_map(namespace, &key.name).await;
            let Some(map) = unless_optional(found, key.optional)? else { return Ok(None) };
            let value = map.data.as_ref().and_then(|d| d.get(&key.key)).cloned();
            return value_or(value, key.optional, || {
                EnvError::no_key("ConfigMap", namespace, &key.name, &key.key)
            });
        }
        if let Some(key) = &source.secret_key_ref {
            let found = self.objects.secret(namespace, &key.name).await;
            let Some(secret) = unless_optional(found, key.optional)? else { return Ok(None) };
            let value = secret.data.as_ref().and_then(|d| d.get(&key.key));
            let value = value.map(|v| String::from_utf8_lossy(&v.0).into_owned());
            return value_or(value, key.optional, || {
                EnvError::no_key("Secret", namespace, &key.name, &key.key)
            });
        }
        if let Some(file) = &source.file_key_ref {
            return Ok(env_file::value(&self.pods.join(spec::uid(pod)), pod, file).await?);
        }
        Ok(Some(String::new()))
    }
}

/// The object; none if it is not there and need not be.
fn unless_optional<T>(found: Result<T, NotThere>, optional: Option<bool>) -> Result<Option<T>, NotThere> {
    match found {
        Err(NotThere::Missing(_)) if optional == Some(true) => Ok(None),
        found => found.map(Some),
    }
}

/// The value, which may be missing if it is optional.
fn value_or(
    value: Option<String>,
    optional: Option<bool>,
    missing: impl FnOnce() -> EnvError,
) -> Result<Option<String>, EnvError> {
    if value.is_none() && optional != Some(true) { Err(missing()) } else { Ok(value) }
}

/// Command and arguments with their references replaced.
pub(crate) fn command(container: &Container, env: &Env) -> (Vec<String>, Vec<String>) {
    let all =
        |list: &Option<Vec<String>>| list.iter().flatten().map(|a| expand(a, |name| env.get(name))).collect();
    (all(&container.command), all(&container.args))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_expand_as_upstream_has_them() {
        let lookup = |name: &str| match name {
            "VAR_A" => Some("A"),
            "VAR_B" => Some("B"),
            "VAR_REF" => Some("$(VAR_A)"),
            "VAR_EMPTY" => Some(""),
            _ => None,
        };
        for (input, want) in [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("$(VAR_A)$(VAR_B)", "AB"),
            ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
            ("$$$(VAR_A)", "$A"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_DNE)", "$(VAR_DNE)"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("$(VAR_A", "$(VAR_A"),
            ("$", "$"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("foo\\$(VAR_A)bar", "foo\\Abar"),
            ("$?_boo_$!", "$?_boo_$!"),
            ("$()", "$()"),
        ] {
            assert_eq!(expand(input, lookup), want, "{input}");
        }
    }

    #[test]
    fn a_name_stands_once_in_its_first_place() {
        let mut env = Env::default();
        for n in 0..50_000 {
            env.set(format!("V{n}"), "1");
            env.set("V0", n.to_string());
        }
        assert_eq!((env.iter().count(), env.get("V0"), env.get("V50000")), (50_000, Some("49999"), None));
        assert_eq!(env.iter().next().unwrap().0, "V0");
    }

    #[test]
    fn services_become_variables() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "foo-bar", "namespace": "n"},
            "spec": {"clusterIP": "1.2.3.4", "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}]}
        }))
        .unwrap();
        let mut env = Env::default();
        service_variables(&service, &mut env);
        for (name, want) in [
            ("FOO_BAR_SERVICE_HOST", "1.2.3.4"),
            ("FOO_BAR_SERVICE_PORT", "8080"),
            ("FOO_BAR_SERVICE_PORT_P", "8080"),
            ("FOO_BAR_PORT", "tcp://1.2.3.4:8080"),
            ("FOO_BAR_PORT_8080_TCP", "tcp://1.2.3.4:8080"),
            ("FOO_BAR_PORT_8080_TCP_PROTO", "tcp"),
            ("FOO_BAR_PORT_8080_TCP_PORT", "8080"),
            ("FOO_BAR_PORT_8080_TCP_ADDR", "1.2.3.4"),
        ] {
            assert_eq!(env.get(name), Some(want), "{name}");
        }
    }
}
