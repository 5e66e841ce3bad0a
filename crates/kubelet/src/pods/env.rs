//! Containers' environment, and `$(VAR)` references in it and in commands.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use client::Informer;
use k8s_openapi::api::core::v1::{Container, Service};

use super::downward::Facts;
use super::spec;
use crate::config::Config;
use crate::objects::{NotThere, Objects};
use crate::recorder::PodRecorder;

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

/// What environments are made from.
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
    pub(crate) async fn environment(&self, facts: &Facts<'_>, container: &Container) -> Result<Env, String> {
        let pod = facts.pod;
        let namespace = spec::namespace(pod);
        let mut services = Env::default();
        if let Some(kubernetes) = self.services.get("default", "kubernetes") {
            service_variables(&kubernetes, &mut services);
        }
        if spec::spec(pod).enable_service_links.unwrap_or(true) {
            for service in self.services.list_namespace(namespace) {
                service_variables(&service, &mut services);
            }
        }

        let mut env = Env::default();
        let mut invalid = Vec::new();
        for from in container.env_from.iter().flatten() {
            let mut pairs: BTreeMap<String, String> = BTreeMap::new();
            if let Some(reference) = &from.config_map_ref {
                match self.objects.config_map(namespace, &reference.name).await {
                    Ok(map) => pairs.extend(map.data.clone().unwrap_or_default()),
                    Err(NotThere::Missing(_)) if reference.optional == Some(true) => continue,
                    Err(error) => return Err(error.to_string()),
                }
            } else if let Some(reference) = &from.secret_ref {
                match self.objects.secret(namespace, &reference.name).await {
                    Ok(secret) => pairs.extend(
                        secret
                            .data
                            .iter()
                            .flatten()
                            .map(|(k, v)| (k.clone(), String::from_utf8_lossy(&v.0).into_owned())),
                    ),
                    Err(NotThere::Missing(_)) if reference.optional == Some(true) => continue,
                    Err(error) => return Err(error.to_string()),
                }
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

        for var in container.env.iter().flatten() {
            let value = if let Some(text) = var.value.as_deref().filter(|t| !t.is_empty()) {
                expand(text, |name| env.get(name).or_else(|| services.get(name)))
            } else if let Some(source) = &var.value_from {
                if let Some(field) = &source.field_ref {
                    facts.field(&field.field_path)?
                } else if let Some(resource) = &source.resource_field_ref {
                    let divisor = resource.divisor.as_ref().map(|d| d.0.as_str());
                    let other = resource
                        .container_name
                        .as_deref()
                        .filter(|n| !n.is_empty() && *n != container.name)
                        .and_then(|n| spec::find_container(pod, n));
                    facts.resource(other.as_ref().unwrap_or(container), &resource.resource, divisor)?
                } else if let Some(key) = &source.config_map_key_ref {
                    let optional = key.optional == Some(true);
                    let map = match self.objects.config_map(namespace, &key.name).await {
                        Ok(map) => map,
                        Err(NotThere::Missing(_)) if optional => continue,
                        Err(error) => return Err(error.to_string()),
                    };
                    match map.data.as_ref().and_then(|d| d.get(&key.key)) {
                        Some(value) => value.clone(),
                        None if optional => continue,
                        None => {
                            return Err(format!(
                                "couldn't find key {} in ConfigMap {namespace}/{}",
                                key.key, key.name
                            ));
                        }
                    }
                } else if let Some(key) = &source.secret_key_ref {
                    let optional = key.optional == Some(true);
                    let secret = match self.objects.secret(namespace, &key.name).await {
                        Ok(secret) => secret,
                        Err(NotThere::Missing(_)) if optional => continue,
                        Err(error) => return Err(error.to_string()),
                    };
                    match secret.data.as_ref().and_then(|d| d.get(&key.key)) {
                        Some(value) => String::from_utf8_lossy(&value.0).into_owned(),
                        None if optional => continue,
                        None => {
                            return Err(format!(
                                "couldn't find key {} in Secret {namespace}/{}",
                                key.key, key.name
                            ));
                        }
                    }
                } else if let Some(file) = &source.file_key_ref {
                    match crate::volumes::env_file::value(&self.pods.join(spec::uid(pod)), pod, file).await? {
                        Some(value) => value,
                        None => continue,
                    }
                } else {
                    String::new()
                }
            } else {
                String::new()
            };
            env.set(&var.name, value);
        }
        for (name, value) in services.pairs {
            if env.get(&name).is_none() {
                env.set(name, value);
            }
        }
        Ok(env)
    }
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
