//! Containers' environment, and `$(VAR)` references in it and in commands.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use client::Informer;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod, Service};

use super::downward::{Facts, FieldError};
use super::spec;
use crate::config::Config;
use crate::objects::{NotThere, Objects};
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

/// A command with the values that its container's own variables are given as such: probes know no others, and one that comes
/// from elsewhere is empty for them.
pub(crate) fn static_command(command: &[String], env: &[EnvVar]) -> Vec<String> {
    let value = |name: &str| {
        let found = env.iter().rev().find(|var| var.name == name)?;
        Some(found.value.as_deref().unwrap_or_default())
    };
    command.iter().map(|word| expand(word, value)).collect()
}

/// Variables of a Service, as upstream and once Docker links named them.
fn service_variables(service: &Service, env: &mut Env) {
    let Some(spec) = &service.spec else { return };
    let (Some(host), Some(name)) = (&spec.cluster_ip, &service.metadata.name) else { return };
    let ports = spec.ports.as_deref().unwrap_or_default();
    if !has_address(service) {
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

/// Whether Pods reach a Service by an address of its own.
fn has_address(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    !address.is_empty() && address != "None"
}

/// The sources of environments.
pub(crate) struct Sources {
    services: Informer<Service>,
    objects: Arc<Objects>,
    /// Where Pods' directories are.
    pods: PathBuf,
}

impl Sources {
    /// The Services, and the ConfigMaps and Secrets that Pods refer to.
    pub(crate) fn new(config: &Config, services: Informer<Service>, objects: Arc<Objects>) -> Self {
        Self { services, objects, pods: config.pods_dir() }
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

    /// The variables of the API server's Service, and of those in the Pod's namespace if the Pod wants them. One of the same
    /// name there takes the place of the API server's.
    fn services_of(&self, pod: &Pod) -> Env {
        const API: &str = "kubernetes";
        let mut all = Vec::new();
        if spec::spec(pod).enable_service_links.unwrap_or(true) {
            all = self.services.list_namespace(spec::namespace(pod));
            all.retain(|service| has_address(service));
        }
        if !all.iter().any(|service| service.metadata.name.as_deref() == Some(API)) {
            all.extend(self.services.get("default", API));
        }
        let mut env = Env::default();
        for service in &all {
            service_variables(service, &mut env);
        }
        env
    }

    /// Adds the variables of `envFrom`.
    async fn add_sources(&self, pod: &Pod, container: &Container, env: &mut Env) -> Result<(), EnvError> {
        let namespace = spec::namespace(pod);
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
                env.set(format!("{}{key}", from.prefix.as_deref().unwrap_or_default()), value);
            }
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
            let name = resource.container_name.as_deref().filter(|n| !n.is_empty() && *n != container.name);
            let other = match name {
                Some(name) => Some(
                    spec::find_container(pod, name).ok_or_else(|| FieldError::Container(name.to_owned()))?,
                ),
                None => None,
            };
            let of = other.as_ref().unwrap_or(container);
            return Ok(Some(facts.resource(of, &resource.resource, divisor)?));
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
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's 40 cases of `doExpansionTest`.
    #[test]
    fn references_expand_as_upstream_has_them() {
        let lookup = |name: &str| match name {
            "VAR_A" => Some("A"),
            "VAR_B" => Some("B"),
            "VAR_C" => Some("C"),
            "VAR_REF" => Some("$(VAR_A)"),
            "VAR_EMPTY" => Some(""),
            _ => None,
        };
        for (input, want) in [
            ("$(VAR_A)", "A"),
            ("$(VAR_A)-$(VAR_A)", "A-A"),
            ("$(VAR_A)-1", "A-1"),
            ("___$(VAR_B)___", "___B___"),
            ("___$(VAR_C)", "___C"),
            ("$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C"),
            ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
            ("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            ("foo\\$(VAR_C)bar", "foo\\Cbar"),
            ("foo\\\\$(VAR_C)bar", "foo\\\\Cbar"),
            ("foo\\\\\\\\$(VAR_A)bar", "foo\\\\\\\\Abar"),
            ("$(VAR_A$(VAR_B))", "$(VAR_A$(VAR_B))"),
            ("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("foo$(VAR_Awhoops!", "foo$(VAR_Awhoops!"),
            ("f00__(VAR_A)__", "f00__(VAR_A)__"),
            ("$?_boo_$!", "$?_boo_$!"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_DNE)", "$(VAR_DNE)"),
            ("$$$$$$(BIG_MONEY)", "$$$(BIG_MONEY)"),
            ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
            ("$$$$$$$(GOOD_ODDS)", "$$$$(GOOD_ODDS)"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$VAR_A)", "$VAR_A)"),
            ("${VAR_A}", "${VAR_A}"),
            ("$(VAR_B)_______$(A", "B_______$(A"),
            ("$(VAR_C)_______$(", "C_______$("),
            ("$(VAR_A)foobarzab$", "Afoobarzab$"),
            ("foo-\\$(VAR_A", "foo-\\$(VAR_A"),
            ("--$($($($($--", "--$($($($($--"),
            ("$($($($($--foo$(", "$($($($($--foo$("),
            ("foo0--$($($($(", "foo0--$($($($("),
            ("$(foo$$var)", "$(foo$$var)"),
            ("\n", "\n"),
            ("$£FOO", "$£FOO"),
            ("prefix-$€-suffix", "prefix-$€-suffix"),
            ("$中文", "$中文"),
        ] {
            assert_eq!(expand(input, lookup), want, "{input}");
        }
    }

    /// Upstream's 3 cases of `TestExpandContainerCommandOnlyStatic`, the command of a probe in `TestProbe`, and variables that
    /// come from elsewhere or stand twice.
    #[test]
    fn commands_of_probes() {
        let check = |command: &[&str], env: Value, expected: &[&str]| {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let env: Vec<EnvVar> = serde_json::from_value(env).unwrap();
            assert_eq!(static_command(&command, &env), expected);
        };
        let foo = json!({"name": "FOO", "value": "foo-value"});
        check(&[], json!([]), &[]);
        let both = json!([foo, {"name": "BAR", "value": "bar-value"}]);
        check(&["echo", "$(FOO)", "$(BAR)"], both, &["echo", "foo-value", "bar-value"]);
        check(&["echo", "$(FOO)", "$(MISSING)"], json!([foo]), &["echo", "foo-value", "$(MISSING)"]);
        let script = json!([{"name": "A", "value": "script"}]);
        check(&["/bin/bash", "-c", "some $(A) $(B)"], script, &["/bin/bash", "-c", "some script $(B)"]);
        let elsewhere = json!([foo, {"name": "FOO", "value": "last"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
        check(&["$(FOO)", "<$(IP)>"], elsewhere, &["last", "<>"]);
    }

    /// Upstream's 4 cases of `TestExpandCommandAndArgs`.
    #[test]
    fn commands() {
        let check = |command: &[&str], args: &[&str], env: &[(&str, &str)], expected: (&[&str], &[&str])| {
            let mut vars = Env::default();
            for (name, value) in env {
                vars.set(*name, *value);
            }
            let list = |of: &[&str]| Some(of.iter().map(|a| (*a).to_owned()).collect());
            let container = Container { command: list(command), args: list(args), ..Container::default() };
            let (command, args) = super::command(&container, &vars);
            assert_eq!(
                (&command.iter().map(String::as_str).collect::<Vec<_>>()[..], args),
                (expected.0, list(expected.1).unwrap())
            );
        };
        check(&[], &[], &[], (&[], &[]));
        let env = [("VAR_TEST", "zoo"), ("VAR_TEST2", "boo"), ("VAR_TEST3", "roo")];
        check(&["foo", "$(VAR_TEST)", "$(VAR_TEST2)"], &[], &env, (&["foo", "zoo", "boo"], &[]));
        check(&[], &["zap", "$(VAR_TEST)", "$(VAR_TEST2)"], &env, (&[], &["zap", "zoo", "boo"]));
        check(
            &["$(VAR_TEST2)--$(VAR_TEST)", "foo", "$(VAR_TEST3)"],
            &["foo", "$(VAR_TEST)", "$(VAR_TEST2)"],
            &env,
            (&["boo--zoo", "foo", "roo"], &["foo", "zoo", "boo"]),
        );
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

    /// Upstream's `TestFromServices`: 52 variables of seven Services.
    #[test]
    fn services_become_variables() {
        let mut env = Env::default();
        for (name, address, ports) in [
            ("foo-bar", "1.2.3.4", json!([{"port": 8080, "protocol": "TCP"}])),
            (
                "abc-123",
                "5.6.7.8",
                json!([{"name": "u-d-p", "port": 8081, "protocol": "UDP"}, {"name": "t-c-p", "port": 8081, "protocol": "TCP"}]),
            ),
            (
                "q-u-u-x",
                "9.8.7.6",
                json!([{"port": 8082, "protocol": "TCP"}, {"name": "8083", "port": 8083, "protocol": "TCP"}]),
            ),
            ("svrc-clusterip-none", "None", json!([{"port": 8082, "protocol": "TCP"}])),
            ("svrc-clusterip-empty", "", json!([{"port": 8082, "protocol": "TCP"}])),
            (
                "super-ipv6",
                "2001:DB8::",
                json!([{"name": "u-d-p", "port": 8084, "protocol": "UDP"}, {"name": "t-c-p", "port": 8084, "protocol": "TCP"}]),
            ),
            ("sctp-1", "1.2.3.4", json!([{"port": 777, "protocol": "SCTP"}])),
        ] {
            let service = json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": ports}});
            service_variables(&serde_json::from_value(service).unwrap(), &mut env);
        }
        let expected = [
            ("FOO_BAR_SERVICE_HOST", "1.2.3.4"),
            ("FOO_BAR_SERVICE_PORT", "8080"),
            ("FOO_BAR_PORT", "tcp://1.2.3.4:8080"),
            ("FOO_BAR_PORT_8080_TCP", "tcp://1.2.3.4:8080"),
            ("FOO_BAR_PORT_8080_TCP_PROTO", "tcp"),
            ("FOO_BAR_PORT_8080_TCP_PORT", "8080"),
            ("FOO_BAR_PORT_8080_TCP_ADDR", "1.2.3.4"),
            ("ABC_123_SERVICE_HOST", "5.6.7.8"),
            ("ABC_123_SERVICE_PORT", "8081"),
            ("ABC_123_SERVICE_PORT_U_D_P", "8081"),
            ("ABC_123_SERVICE_PORT_T_C_P", "8081"),
            ("ABC_123_PORT", "udp://5.6.7.8:8081"),
            ("ABC_123_PORT_8081_UDP", "udp://5.6.7.8:8081"),
            ("ABC_123_PORT_8081_UDP_PROTO", "udp"),
            ("ABC_123_PORT_8081_UDP_PORT", "8081"),
            ("ABC_123_PORT_8081_UDP_ADDR", "5.6.7.8"),
            ("ABC_123_PORT_8081_TCP", "tcp://5.6.7.8:8081"),
            ("ABC_123_PORT_8081_TCP_PROTO", "tcp"),
            ("ABC_123_PORT_8081_TCP_PORT", "8081"),
            ("ABC_123_PORT_8081_TCP_ADDR", "5.6.7.8"),
            ("Q_U_U_X_SERVICE_HOST", "9.8.7.6"),
            ("Q_U_U_X_SERVICE_PORT", "8082"),
            ("Q_U_U_X_SERVICE_PORT_8083", "8083"),
            ("Q_U_U_X_PORT", "tcp://9.8.7.6:8082"),
            ("Q_U_U_X_PORT_8082_TCP", "tcp://9.8.7.6:8082"),
            ("Q_U_U_X_PORT_8082_TCP_PROTO", "tcp"),
            ("Q_U_U_X_PORT_8082_TCP_PORT", "8082"),
            ("Q_U_U_X_PORT_8082_TCP_ADDR", "9.8.7.6"),
            ("Q_U_U_X_PORT_8083_TCP", "tcp://9.8.7.6:8083"),
            ("Q_U_U_X_PORT_8083_TCP_PROTO", "tcp"),
            ("Q_U_U_X_PORT_8083_TCP_PORT", "8083"),
            ("Q_U_U_X_PORT_8083_TCP_ADDR", "9.8.7.6"),
            ("SUPER_IPV6_SERVICE_HOST", "2001:DB8::"),
            ("SUPER_IPV6_SERVICE_PORT", "8084"),
            ("SUPER_IPV6_SERVICE_PORT_U_D_P", "8084"),
            ("SUPER_IPV6_SERVICE_PORT_T_C_P", "8084"),
            ("SUPER_IPV6_PORT", "udp://[2001:DB8::]:8084"),
            ("SUPER_IPV6_PORT_8084_UDP", "udp://[2001:DB8::]:8084"),
            ("SUPER_IPV6_PORT_8084_UDP_PROTO", "udp"),
            ("SUPER_IPV6_PORT_8084_UDP_PORT", "8084"),
            ("SUPER_IPV6_PORT_8084_UDP_ADDR", "2001:DB8::"),
            ("SUPER_IPV6_PORT_8084_TCP", "tcp://[2001:DB8::]:8084"),
            ("SUPER_IPV6_PORT_8084_TCP_PROTO", "tcp"),
            ("SUPER_IPV6_PORT_8084_TCP_PORT", "8084"),
            ("SUPER_IPV6_PORT_8084_TCP_ADDR", "2001:DB8::"),
            ("SCTP_1_SERVICE_HOST", "1.2.3.4"),
            ("SCTP_1_SERVICE_PORT", "777"),
            ("SCTP_1_PORT", "sctp://1.2.3.4:777"),
            ("SCTP_1_PORT_777_SCTP", "sctp://1.2.3.4:777"),
            ("SCTP_1_PORT_777_SCTP_PROTO", "sctp"),
            ("SCTP_1_PORT_777_SCTP_PORT", "777"),
            ("SCTP_1_PORT_777_SCTP_ADDR", "1.2.3.4"),
        ];
        let got: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(got, expected);
    }
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod upstream_tests;
