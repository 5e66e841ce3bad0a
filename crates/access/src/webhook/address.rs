//! Where a webhook is.

use std::time::Duration;

use base64::Engine;
use serde::Deserialize;

/// The `clientConfig` of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Where it is.
    pub address: Address,
    /// The PEM of the authorities that may have signed its certificate; those of the system, if it is empty.
    pub ca_bundle: Vec<u8>,
}

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// At a URL.
    Url(String),
    /// Behind a Service of the cluster.
    Service {
        /// The namespace of the Service.
        namespace: String,
        /// The name of the Service.
        name: String,
        /// The port of the Service.
        port: u16,
        /// The path of the URL, or "".
        path: String,
    },
}

/// `clientConfig` on the wire.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    url: Option<String>,
    service: Option<WireService>,
    ca_bundle: Option<String>,
}

#[derive(Deserialize)]
struct WireService {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    path: Option<String>,
    port: Option<u16>,
}

/// The port of a Service where nothing says another.
const HTTPS: u16 = 443;

impl<'de> Deserialize<'de> for ClientConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(from)?;
        let bundle = base64::engine::general_purpose::STANDARD.decode(wire.ca_bundle.unwrap_or_default());
        let mut ca_bundle = bundle.map_err(serde::de::Error::custom)?;
        // As upstream: a bundle of nothing but white space is none.
        if ca_bundle.trim_ascii().is_empty() {
            ca_bundle.clear();
        }
        let address = match wire.service {
            Some(service) => Address::Service {
                namespace: service.namespace,
                name: service.name,
                port: service.port.filter(|port| *port > 0).unwrap_or(HTTPS),
                path: service.path.unwrap_or_default(),
            },
            None => Address::Url(wire.url.unwrap_or_default()),
        };
        Ok(Self { address, ca_bundle })
    }
}

/// The parts of a webhook's URL.
pub(super) struct Target<'a> {
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether the URL names the port.
    explicit_port: bool,
    path: String,
    /// The namespace and the name of the Service.
    pub(super) service: Option<(&'a str, &'a str)>,
}

impl ClientConfig {
    pub(super) fn target(&self) -> Result<Target<'_>, String> {
        match &self.address {
            Address::Service { namespace, name, port, path } => Ok(Target {
                host: format!("{name}.{namespace}.svc"),
                port: *port,
                explicit_port: true,
                path: clean(path),
                service: Some((namespace, name)),
            }),
            Address::Url(url) if url.is_empty() => {
                Err("webhook configuration must have either service or URL".into())
            }
            Address::Url(url) => {
                let uri: http::Uri = url.parse().map_err(|e| format!("Unparsable URL: {e}"))?;
                if uri.scheme_str() != Some("https") {
                    return Err(format!(
                        "unsupported protocol scheme {:?}",
                        uri.scheme_str().unwrap_or_default()
                    ));
                }
                let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                Ok(Target {
                    host,
                    port: uri.port_u16().unwrap_or(HTTPS),
                    explicit_port: uri.port_u16().is_some(),
                    path: clean(uri.path()),
                    service: None,
                })
            }
        }
    }
}

impl ClientConfig {
    /// The name of the host; empty if it has none.
    pub fn host(&self) -> String {
        self.target().map(|target| target.host).unwrap_or_default()
    }
}

/// A path as Go's `path.Join` leaves it, with a slash before it.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl Target<'_> {
    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
    /// The host, with the port if the URL names it.
    pub(super) fn authority(&self) -> String {
        if self.explicit_port { self.host_port() } else { self.bracketed() }
    }
    /// `host:port`
    pub(super) fn host_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }
    /// Whether it is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
    /// The URL of a call that has so much time, in whole seconds.
    pub(super) fn url(&self, timeout: Duration) -> String {
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let time =
            if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) };
        format!("https://{}{}?timeout={time}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn urls() {
        let check = |config: Value, seconds: u64, expected: Result<&str, &str>| {
            let config: ClientConfig = serde_json::from_value(config).unwrap();
            let url = config.target().map(|t| t.url(Duration::from_secs(seconds)));
            assert_eq!(url.as_deref().map_err(String::as_str), expected);
        };
        let service = json!({"namespace": "ns", "name": "hook"});
        check(json!({ "service": service }), 10, Ok("https://hook.ns.svc:443/?timeout=10s"));
        let service = json!({"namespace": "ns", "name": "hook", "path": "/a//b/", "port": 8443});
        check(json!({ "service": service }), 60, Ok("https://hook.ns.svc:8443/a/b?timeout=1m0s"));
        check(json!({"url": "https://h.example/x"}), 1, Ok("https://h.example/x?timeout=1s"));
        check(json!({"url": "https://[::1]:9/x/../y"}), 1, Ok("https://[::1]:9/y?timeout=1s"));
        check(json!({}), 1, Err("webhook configuration must have either service or URL"));
        check(json!({"url": "http://h"}), 1, Err("unsupported protocol scheme \"http\""));
    }

    #[test]
    fn bundles() {
        let check = |bundle: Value, expected: &[u8]| {
            let config: ClientConfig =
                serde_json::from_value(json!({"url": "https://h", "caBundle": bundle})).unwrap();
            assert_eq!(config.ca_bundle, expected);
        };
        check(Value::Null, b"");
        check(json!("IAo="), b"");
        check(json!("YQ=="), b"a");
    }

    #[test]
    fn loopback() {
        let check = |url: &str, expected: bool| {
            let config = ClientConfig { address: Address::Url(url.into()), ca_bundle: Vec::new() };
            assert_eq!(config.target().unwrap().is_loopback(), expected, "{url}");
        };
        for url in
            ["https://localhost", "https://127.1.2.3:1", "https://[::1]:1", "https://[::ffff:127.0.0.1]"]
        {
            check(url, true);
        }
        check("https://10.0.0.1", false);
        check("https://localhost.example", false);
    }
}
