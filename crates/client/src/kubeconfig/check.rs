//! The faults of a kubeconfig, in client-go's words (`tools/clientcmd/validation.go`).

use std::fs::File;
use std::path::Path;

use api::go::quote;

use super::{Cluster, Context, Exec, Kubeconfig, User};
use crate::proxy;

impl Kubeconfig {
    /// Finds what keeps a context from being used: all of it, as one text. "" is the current context.
    ///
    /// # Errors
    /// The faults.
    pub fn confirm_usable(&self, context: &str) -> Result<(), String> {
        if *self == Self::default() {
            return Err("invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable".into());
        }
        let name = if context.is_empty() { &self.current_context } else { context };
        if name.is_empty() {
            return Err("no context chosen".into());
        }
        let mut faults = Vec::new();
        if let Some(context) = self.context(name) {
            self.check_context(name, context, &mut faults);
            let user = self.user(&context.user);
            user.unwrap_or(&User::default()).check(&context.user, &mut faults);
            let cluster = self.cluster(&context.cluster);
            cluster.unwrap_or(&Cluster::default()).check(&context.cluster, &mut faults);
        } else {
            faults.push(format!("context was not found for specified context: {name}"));
        }
        // As upstream's aggregated errors: each once.
        let mut told: Vec<String> = Vec::new();
        for fault in faults {
            if !told.contains(&fault) {
                told.push(fault);
            }
        }
        match &told[..] {
            [] => Ok(()),
            [one] => Err(format!("invalid configuration: {one}")),
            more => Err(format!("invalid configuration: [{}]", more.join(", "))),
        }
    }

    fn check_context(&self, name: &str, context: &Context, faults: &mut Vec<String>) {
        let Context { cluster, user, namespace } = context;
        if user.is_empty() {
            faults.push(format!("user was not specified for context {}", quote(name)));
        } else if self.user(user).is_none() {
            faults.push(format!("user {} was not found for context {}", quote(user), quote(name)));
        }
        if cluster.is_empty() {
            faults.push(format!("cluster was not specified for context {}", quote(name)));
        } else if self.cluster(cluster).is_none() {
            faults.push(format!("cluster {} was not found for context {}", quote(cluster), quote(name)));
        }
        if !namespace.is_empty() && !is_label(namespace) {
            faults.push(format!(
                "namespace {} for context {} does not conform to the kubernetes DNS_LABEL rules",
                quote(namespace),
                quote(name)
            ));
        }
    }
}

/// Whether a text is a label as DNS has it (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The fault of a file that cannot be opened.
fn opened(file: &Path, what: &str, name: &str, faults: &mut Vec<String>) {
    if !file.as_os_str().is_empty()
        && let Err(error) = File::open(file)
    {
        let shown = file.display();
        let why = crate::material::file_error(file, &error);
        faults.push(format!("unable to read {what} {shown} for {name} due to {why}"));
    }
}

impl Cluster {
    fn check(&self, name: &str, faults: &mut Vec<String>) {
        if *self == Self::default() {
            faults.push("cluster has no server defined".into());
            return;
        }
        if self.server.is_empty() && name.is_empty() {
            faults.push("default cluster has no server defined".into());
        } else if self.server.is_empty() {
            faults.push(format!("no server found for cluster {}", quote(name)));
        }
        if !self.proxy_url.is_empty()
            && let Err(why) = proxy::Proxy::parse(&self.proxy_url)
        {
            let (url, name) = (quote(&self.proxy_url), quote(name));
            faults.push(format!("invalid 'proxy-url' {url} for cluster {name}: {why}"));
        }
        if !self.certificate_authority.as_os_str().is_empty() && !self.certificate_authority_data.is_empty() {
            faults.push(format!(
                "certificate-authority-data and certificate-authority are both specified for {name}. certificate-authority-data will override."
            ));
        }
        opened(&self.certificate_authority, "certificate-authority", name, faults);
    }
}

impl User {
    fn check(&self, name: &str, faults: &mut Vec<String>) {
        let [certificate, key] =
            [&self.client_certificate, &self.client_key].map(|f| !f.as_os_str().is_empty());
        let [certificate_data, key_data] =
            [&self.client_certificate_data, &self.client_key_data].map(|d| !d.is_empty());
        if certificate || certificate_data {
            if certificate && certificate_data {
                faults.push(format!(
                    "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
                ));
            }
            if key && key_data {
                faults.push(format!(
                    "client-key-data and client-key are both specified for {name}; client-key-data will override"
                ));
            }
            if !key && !key_data {
                faults.push(format!(
                    "client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
                ));
            }
            opened(&self.client_certificate, "client-cert", name, faults);
            opened(&self.client_key, "client-key", name, faults);
        }
        if let Some(exec) = &self.exec {
            exec.check(name, self.auth_provider.is_some(), faults);
        }
        if !self.token.is_empty() && (!self.username.is_empty() || !self.password.is_empty()) {
            faults.push(format!(
                "more than one authentication method found for {name}; found [token basicAuth], only one is allowed"
            ));
        }
        let more = !self.impersonate_uid.is_empty()
            || !self.impersonate_groups.is_empty()
            || !self.impersonate_extra.is_empty();
        if more && self.impersonate.is_empty() {
            faults.push(format!(
                "requesting uid, groups or user-extra for {name} without impersonating a user"
            ));
        }
    }
}

impl Exec {
    fn check(&self, name: &str, other_provider: bool, faults: &mut Vec<String>) {
        let mut fault = |text: String| faults.push(text);
        if other_provider {
            fault(format!("authProvider cannot be provided in combination with an exec plugin for {name}"));
        }
        if self.command.is_empty() {
            fault(format!("command must be specified for {name} to use exec authentication plugin"));
        }
        if self.api_version.is_empty() {
            fault(format!("apiVersion must be specified for {name} to use exec authentication plugin"));
        }
        if self.env.iter().any(|v| v.name.is_empty()) {
            fault(format!(
                "env variable name must be specified for {name} to use exec authentication plugin"
            ));
        }
        match self.interactive_mode.as_str() {
            "Never" | "IfAvailable" | "Always" => {}
            "" => {
                fault(format!(
                    "interactiveMode must be specified for {name} to use exec authentication plugin"
                ));
            }
            other => fault(format!("invalid interactiveMode for {name}: {}", quote(other))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases (`validation_test.go`): a cluster, a user, and the beginnings of faults.
    #[test]
    fn faults() {
        let check = |cluster: &str, user: &str, expected: &[&str]| {
            let text = format!(
                "clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: user, user: {user}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: user}}}}]\ncurrent-context: x\n"
            );
            let config = Kubeconfig::parse(text.as_bytes(), Path::new("config")).unwrap();
            let found = config.confirm_usable("").err().unwrap_or_default();
            assert_eq!(found.is_empty(), expected.is_empty(), "{cluster} {user}: {found}");
            assert!(expected.iter().all(|e| found.contains(e)), "{cluster} {user}: {found}");
        };
        let ok = "{server: anything}";
        let exec = |fields: &str| format!("{{exec: {{command: /bin/example, {fields}}}}}");
        let version = "apiVersion: clientauthentication.k8s.io/v1alpha1";
        let file = std::env::current_exe().unwrap();
        let file = file.display();
        check(ok, "{token: here}", &[]);
        check(ok, "{}", &[]);
        check("{}", "{}", &["invalid configuration: cluster has no server defined"]);
        check("{proxy-url: 'http://a'}", "{}", &["no server found for cluster \"c\""]);
        check(
            "{server: a, proxy-url: 'ftp://a'}",
            "{}",
            &[
                "invalid 'proxy-url' \"ftp://a\" for cluster \"c\": unsupported scheme \"ftp\", must be http, https, or socks5",
            ],
        );
        check(
            "{server: a, certificate-authority: missing}",
            "{}",
            &[
                "unable to read certificate-authority missing for c due to open missing: no such file or directory",
            ],
        );
        check(&format!("{{server: a, certificate-authority: {file}}}"), "{}", &[]);
        check(ok, "{token: t, username: u}", &["more than one authentication method", "[token basicAuth]"]);
        check(
            ok,
            "{client-certificate: missing, client-key: missing}",
            &["[unable to read client-cert missing for user", ", unable to read client-key"],
        );
        check(
            ok,
            &format!(
                "{{client-certificate: {file}, client-certificate-data: YQ==, client-key: {file}, client-key-data: YQ==}}"
            ),
            &[
                "client-cert-data and client-cert are both specified",
                "client-key-data and client-key are both specified",
            ],
        );
        check(ok, &format!("{{client-certificate: {file}, client-key: {file}}}"), &[]);
        check(
            ok,
            "{client-certificate-data: YQ==}",
            &["client-key-data or client-key must be specified for user"],
        );
        check(
            ok,
            &exec(&format!("{version}, env: [{{name: foo, value: ''}}], interactiveMode: IfAvailable")),
            &[],
        );
        check(ok, &exec("interactiveMode: Never"), &["apiVersion must be specified for user"]);
        check(ok, &exec(version), &["interactiveMode must be specified for user"]);
        check(
            ok,
            &exec(&format!("{version}, interactiveMode: invalid")),
            &["invalid interactiveMode for user: \"invalid\""],
        );
        check(
            ok,
            &exec(&format!("{version}, env: [{{value: a}}]")),
            &["env variable name must be specified"],
        );
        check(ok, "{exec: {}}", &["command must be specified for user"]);
        check(
            ok,
            "{exec: {command: a}, auth-provider: {name: oidc}}",
            &["authProvider cannot be provided in combination with an exec plugin for user"],
        );
        check(ok, "{as: user}", &[]);
        check(
            ok,
            "{as: user, as-uid: abc123, as-groups: [g-1, g-2], as-user-extra: {key: [val1, val2]}}",
            &[],
        );
        for alone in ["as-uid: abc123", "as-groups: [g]", "as-user-extra: {key: [v]}"] {
            let told = "requesting uid, groups or user-extra for user without impersonating a user";
            check(ok, &format!("{{{alone}}}"), &[told]);
        }
    }

    #[test]
    fn contexts() {
        let check = |text: &str, context: &str, expected: &str| {
            let config = Kubeconfig::parse(text.as_bytes(), Path::new("config")).unwrap();
            assert_eq!(config.confirm_usable(context).err().unwrap_or_default(), expected);
        };
        let none = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable";
        check("", "", none);
        check("", "not-here", none);
        let rest = "clusters: [{name: c, cluster: {server: a}}]\nusers: [{name: u, user: {token: t}}]\n";
        check(rest, "", "no context chosen");
        check(rest, "x", "invalid configuration: context was not found for specified context: x");
        let of = |context: &str| format!("{rest}contexts: [{{name: x, context: {context}}}]");
        check(&of("{cluster: c, user: u}"), "x", "");
        check(
            &of("{cluster: c, user: garbage}"),
            "x",
            "invalid configuration: user \"garbage\" was not found for context \"x\"",
        );
        check(
            &of("{cluster: garbage, user: u}"),
            "x",
            "invalid configuration: [cluster \"garbage\" was not found for context \"x\", cluster has no server defined]",
        );
        check(
            &of("{}"),
            "x",
            "invalid configuration: [user was not specified for context \"x\", cluster was not specified for context \"x\", cluster has no server defined]",
        );
        check(
            &of("{cluster: c, user: u, namespace: A.b}"),
            "x",
            "invalid configuration: namespace \"A.b\" for context \"x\" does not conform to the kubernetes DNS_LABEL rules",
        );
    }
}
