//! The documents that are exchanged with credential plugins: `ExecCredential` of the group
//! `client.authentication.k8s.io` (upstream: client-go's `plugin/pkg/client/auth/exec`).

use api::go::quote;
use api::{Map, Node};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubeconfig::{Cluster, Exec};

/// The versions that are spoken.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1"];
/// The place in upstream's code where the kinds of these documents are registered, which its errors name.
const SCHEME: &str = "k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go:64";
const KIND: &str = "ExecCredential";

/// Refuses a version that nobody speaks.
pub(super) fn check_version(exec: &Exec) -> Result<(), String> {
    if VERSIONS.contains(&exec.api_version.as_str()) {
        return Ok(());
    }
    Err(format!("exec plugin: invalid apiVersion {}", quote(&exec.api_version)))
}

/// Whether a plugin may ask who sits at the terminal.
pub(super) fn interactive(mode: &str, is_terminal: bool) -> Result<bool, String> {
    let wrong = |why: String| Err(format!("exec plugin cannot support interactive mode: {why}"));
    match mode {
        "Never" => Ok(false),
        "IfAvailable" => Ok(is_terminal),
        "Always" if is_terminal => Ok(true),
        "Always" => wrong("standard input is not a terminal".to_owned()),
        other => wrong(format!("unknown interactiveMode: {}", quote(other))),
    }
}

impl Cluster {
    /// The cluster as plugins are told of it; `authorities` is PEM.
    pub fn for_plugins(&self, authorities: &[u8]) -> Value {
        told(self, authorities)
    }
}

fn told(cluster: &Cluster, authorities: &[u8]) -> Value {
    let mut told = json!({"server": cluster.server});
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            told[key] = value;
        }
    };
    let text = |text: &str| Some(Value::from(text)).filter(|_| !text.is_empty());
    put("tls-server-name", text(&cluster.tls_server_name));
    put("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify.then_some(true.into()));
    put("certificate-authority-data", text(&STANDARD.encode(authorities)));
    put("proxy-url", text(&cluster.proxy_url));
    put("disable-compression", cluster.disable_compression.then_some(true.into()));
    // As Go's encoder leaves a raw value that is not there.
    put("config", Some(cluster.plugin_config().cloned().unwrap_or_default()));
    told
}

/// The document that a plugin finds in its environment.
pub(super) fn question(exec: &Exec, cluster: Option<&Value>, interactive: bool) -> String {
    let mut spec = json!({"interactive": interactive});
    if let Some(cluster) = cluster {
        spec["cluster"] = cluster.clone();
    }
    json!({"kind": KIND, "apiVersion": exec.api_version, "spec": spec}).to_string()
}

/// The credentials that a plugin gives.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// A bearer token, or "".
    pub(super) token: String,
    /// A client certificate and its key, PEM.
    pub(super) certificate: Option<(String, String)>,
    /// Their end; none if they have no end that is known.
    pub(super) end: Option<Timestamp>,
}

impl std::fmt::Debug for Answer {
    /// Without the credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("end", &self.end).finish_non_exhaustive()
    }
}

/// Reads a plugin's output, JSON or YAML, which should be of a version.
pub(super) fn answer(output: &[u8], version: &str) -> Result<Answer, String> {
    let wrong = |why: String| format!("decoding stdout: {why}");
    let document = read(output).map_err(wrong)?;
    let text = |map: &Map, key: &str| map.get(key).map_or("", Node::as_str).to_owned();
    let (kind, found) = (text(&document, "kind"), text(&document, "apiVersion"));
    // DIFFERENCE: upstream shows the whole output, which may hold a token, to those who wait for a webhook.
    if kind.is_empty() {
        return Err(wrong("Object 'Kind' is missing".to_owned()));
    }
    if found.is_empty() {
        return Err(wrong("Object 'apiVersion' is missing".to_owned()));
    }
    if kind != KIND || !VERSIONS.contains(&found.as_str()) {
        let (kind, found) = (quote(&kind), quote(&found));
        let scheme = quote(SCHEME);
        return Err(wrong(format!("no kind {kind} is registered for version {found} in scheme {scheme}")));
    }
    let status = document.get("status").filter(|s| !matches!(s, Node::Null));
    let mut given = Answer::default();
    if let Some(status) = status {
        given = fields(status).map_err(|field| {
            wrong(format!("json: cannot unmarshal into Go struct field ExecCredentialStatus.status.{field}"))
        })?;
    }
    if found != version {
        return Err(format!(
            "exec plugin is configured to use API version {version}, plugin returned version {found}"
        ));
    }
    if status.is_none() {
        return Err("exec plugin didn't return a status field".into());
    }
    match &given.certificate {
        None if given.token.is_empty() => Err("exec plugin didn't return a token or cert/key pair".into()),
        Some((certificate, key)) if certificate.is_empty() != key.is_empty() => {
            Err("exec plugin returned only certificate or key, not both".into())
        }
        _ => Ok(given),
    }
}

fn read(output: &[u8]) -> Result<Map, String> {
    let parsed = api::codec::json::decode_any(output).map_err(|e| e.to_string());
    let parsed = parsed.or_else(|why| api::yaml::parse(output).map_err(|_| why));
    match parsed {
        Ok(Node::Map(map)) => Ok(map),
        Ok(_) => Err("couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }".into()),
        Err(why) => Err(format!("couldn't get version/kind; json parse error: {why}")),
    }
}

/// The fields of a status; an error names the one that has another form.
fn fields(status: &Node) -> Result<Answer, String> {
    let map = status.as_map().ok_or_else(String::new)?;
    let text = |key: &str| match map.get(key) {
        None | Some(Node::Null) => Ok(String::new()),
        Some(Node::Str(text)) => Ok(text.to_string()),
        Some(_) => Err(key.to_owned()),
    };
    let (certificate, key) = (text("clientCertificateData")?, text("clientKeyData")?);
    let end = text("expirationTimestamp")?;
    let end = if end.is_empty() {
        None
    } else {
        Some(api::time::parse_time(&end).map_err(|_| "expirationTimestamp".to_owned())?)
    };
    let certificate = (!certificate.is_empty() || !key.is_empty()).then_some((certificate, key));
    Ok(Answer { token: text("token")?, certificate, end })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kubeconfig::Kubeconfig;

    const V1: &str = "client.authentication.k8s.io/v1";
    const BETA: &str = "client.authentication.k8s.io/v1beta1";

    /// Upstream's cases (`TestRefreshCreds`).
    #[test]
    fn answers() {
        let check = |version: &str, output: &str, expected: Result<(&str, bool, &str), &str>| {
            let got = answer(output.as_bytes(), version);
            match (got, expected) {
                (Ok(got), Ok((token, certificate, end))) => {
                    let shown = got.end.map(|t| t.to_string()).unwrap_or_default();
                    let got = (got.token.as_str(), got.certificate.is_some(), shown.as_str());
                    assert_eq!(got, (token, certificate, end), "{output}");
                }
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{output}: {got}"),
                (got, expected) => panic!("{output}: {got:?}, not {expected:?}"),
            }
        };
        let of = |version: &str, rest: &str| {
            format!("{{\"kind\": \"ExecCredential\", \"apiVersion\": \"{version}\"{rest}}}")
        };
        let status = |fields: &str| format!(", \"status\": {{{fields}}}");
        for version in [V1, BETA] {
            let token = of(version, &status("\"token\": \"foo-bar\""));
            check(version, &token, Ok(("foo-bar", false, "")));
            let both = "\"clientKeyData\": \"k\", \"clientCertificateData\": \"c\"";
            check(version, &of(version, &status(both)), Ok(("", true, "")));
            let timed = "\"token\": \"foo-bar\", \"expirationTimestamp\": \"2006-01-02T15:04:05Z\"";
            check(version, &of(version, &status(timed)), Ok(("foo-bar", false, "2006-01-02T15:04:05Z")));
            for half in ["\"clientCertificateData\": \"c\"", "\"clientKeyData\": \"k\""] {
                let told = "exec plugin returned only certificate or key, not both";
                check(version, &of(version, &status(half)), Err(told));
            }
            check(version, &of(version, ""), Err("exec plugin didn't return a status field"));
            check(version, &of(version, ", \"status\": null"), Err("didn't return a status field"));
            let none = "exec plugin didn't return a token or cert/key pair";
            check(version, &of(version, &status("")), Err(none));
            let yaml = format!("kind: ExecCredential\napiVersion: {version}\nstatus: {{token: foo-bar}}\n");
            check(version, &yaml, Ok(("foo-bar", false, "")));
        }
        let other = of(BETA, &status("\"token\": \"a\""));
        check(
            V1,
            &other,
            Err(
                "exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned version client.authentication.k8s.io/v1beta1",
            ),
        );
        let no_version = "{\"kind\": \"ExecCredential\", \"status\": {\"token\": \"foo-bar\"}}";
        check(BETA, no_version, Err("decoding stdout: Object 'apiVersion' is missing"));
        check(BETA, "{}", Err("decoding stdout: Object 'Kind' is missing"));
        check(BETA, "garbage", Err("decoding stdout: couldn't get version/kind; json parse error: "));
        check(BETA, "", Err("decoding stdout: "));
        check(
            BETA,
            "{\"kind\": \"Pod\", \"apiVersion\": \"v1\"}",
            Err(
                "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go:64\"",
            ),
        );
        check(BETA, &of(BETA, &status("\"token\": 7")), Err("ExecCredentialStatus.status.token"));
        let late = "\"token\": \"a\", \"expirationTimestamp\": \"soon\"";
        check(BETA, &of(BETA, &status(late)), Err("status.expirationTimestamp"));
    }

    #[test]
    fn modes() {
        let check = |mode: &str, is_terminal: bool, expected: Result<bool, &str>| {
            let got = interactive(mode, is_terminal);
            let got = got.as_ref().map(|i| *i).map_err(String::as_str);
            assert_eq!(got, expected, "{mode} {is_terminal}");
        };
        for is_terminal in [true, false] {
            check("Never", is_terminal, Ok(false));
            check("IfAvailable", is_terminal, Ok(is_terminal));
        }
        check("Always", true, Ok(true));
        check(
            "Always",
            false,
            Err("exec plugin cannot support interactive mode: standard input is not a terminal"),
        );
        check("", true, Err("exec plugin cannot support interactive mode: unknown interactiveMode: \"\""));
    }

    #[test]
    fn questions() {
        let check = |cluster: &str, provide: bool, expected: Value| {
            let text = format!("clusters: [{{name: c, cluster: {cluster}}}]");
            let config = Kubeconfig::parse(text.as_bytes(), Path::new("c")).unwrap();
            let cluster = told(config.cluster("c").unwrap(), b"baz");
            let exec = Exec { api_version: BETA.into(), ..Exec::default() };
            let asked = question(&exec, provide.then_some(&cluster), false);
            let mut expected = json!({"kind": "ExecCredential", "apiVersion": BETA, "spec": expected});
            expected["spec"]["interactive"] = false.into();
            assert_eq!(serde_json::from_str::<Value>(&asked).unwrap(), expected);
        };
        let audience =
            json!({"apiVersion": "group/v1", "kind": "PluginConfig", "spec": {"audience": "snorlax"}});
        let cluster = format!(
            "{{server: foo, tls-server-name: bar, extensions: [{{name: other, extension: 1}}, {{name: client.authentication.k8s.io/exec, extension: {audience}}}]}}"
        );
        let told = json!({"server": "foo", "tls-server-name": "bar", "certificate-authority-data": "YmF6", "config": audience});
        check(&cluster, true, json!({"cluster": told}));
        check(&cluster, false, json!({}));
        let all =
            "{server: foo, insecure-skip-tls-verify: true, proxy-url: 'http://p', disable-compression: true}";
        let told = json!({
            "server": "foo", "insecure-skip-tls-verify": true, "certificate-authority-data": "YmF6",
            "proxy-url": "http://p", "disable-compression": true, "config": null,
        });
        check(all, true, json!({"cluster": told}));
        let odd = Exec { api_version: "v1".into(), ..Exec::default() };
        assert_eq!(check_version(&odd).unwrap_err(), "exec plugin: invalid apiVersion \"v1\"");
    }
}
