//! The credentials that the server shows to webhooks: the users of a kubeconfig, chosen by the webhook's host (upstream:
//! `apiserver/pkg/util/webhook/authentication.go`).

use std::io::ErrorKind;
use std::path::Path;

use client::kubeconfig::{Cluster, User};
use client::{Caller, ConfigError, Kubeconfig, Plugins};

use super::address::Target;

/// The credentials for webhooks; none by default.
#[derive(Default)]
pub struct Credentials {
    file: Kubeconfig,
    programs: Plugins,
}

impl Credentials {
    /// Reads the users of a kubeconfig file.
    ///
    /// # Errors
    /// It cannot be read, or is no kubeconfig.
    pub fn from_kubeconfig(file: &Path) -> Result<Self, String> {
        let read = Kubeconfig::read(file).map_err(|error| match &error {
            // Upstream looks whether it is there before it opens it.
            ConfigError::Read { source, .. } if source.kind() == ErrorKind::NotFound => {
                format!("stat {}: no such file or directory", file.display())
            }
            other => other.told(),
        });
        Ok(Self { file: read?, programs: Plugins::default() })
    }

    /// The user for a webhook: the one that is named like its host and port, or by a star and the end of that; for the
    /// usual port also without it; then `*`, then that of the current context.
    fn user(&self, target: &Target<'_>) -> Option<&User> {
        let file = &self.file;
        if file.users.is_empty() {
            return None;
        }
        let named = |target: &str| {
            let steps: Vec<&str> = target.split('.').collect();
            let starred = (1..steps.len()).map(|i| format!("*.{}", steps[i..].join(".")));
            std::iter::once(target.to_owned()).chain(starred).find_map(|name| file.user(&name))
        };
        let host = target.host.as_str();
        named(&target.host_port())
            .or_else(|| if target.port == 443 { named(host) } else { None })
            .or_else(|| file.user("*"))
            .or_else(|| file.user(&file.context(&file.current_context)?.user))
    }

    /// The credentials for a webhook whose certificate authorities of this bundle sign.
    pub(super) fn of(&self, target: &Target<'_>, ca_bundle: &[u8]) -> Result<Caller, String> {
        let Some(user) = self.user(target) else { return Ok(Caller::default()) };
        let program = || {
            let Some(exec) = &user.exec else { return Ok(None) };
            let told = Cluster {
                server: format!("https://{}", target.authority()),
                // As upstream, which names it for a Service alone.
                tls_server_name: target.service.map(|_| target.host.clone()).unwrap_or_default(),
                ..Cluster::default()
            };
            self.programs.of(exec, Some(told.for_plugins(ca_bundle))).map(Some)
        };
        Caller::of(user, program).map_err(|e| e.told())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Address, ClientConfig};
    use super::*;

    /// The user of each webhook; upstream's `TestAuthenticationDetection`.
    #[tokio::test]
    async fn users() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let check = async |users: &[&str], current: &str, url: &str, expected: &str| {
            let users: Vec<String> =
                users.iter().map(|u| format!("{{name: '{u}', user: {{token: '{u}'}}}}")).collect();
            let text = format!(
                "users: [{}]\ncontexts: [{{name: c, context: {{user: '{current}'}}}}]\ncurrent-context: c\n",
                users.join(", ")
            );
            std::fs::write(&file, text).unwrap();
            let credentials = Credentials::from_kubeconfig(&file).unwrap();
            let config = ClientConfig { address: Address::Url(url.into()), ca_bundle: Vec::new() };
            let caller = credentials.of(&config.target().unwrap(), b"").unwrap();
            let mut headers = http::HeaderMap::new();
            caller.prepare().await.unwrap().write(&mut headers);
            let bearer = headers.get("authorization").map_or("", |b| b.to_str().unwrap());
            assert_eq!(bearer.trim_start_matches("Bearer "), expected, "{url}");
        };
        check(&[], "", "https://foo.com", "").await;
        check(&["foo.com"], "", "https://foo.com", "foo.com").await;
        check(&["foo.com"], "", "https://foo.com:8443", "").await;
        check(&["foo.com:8443"], "", "https://foo.com:8443", "foo.com:8443").await;
        check(&["foo.com:443", "foo.com"], "", "https://foo.com", "foo.com:443").await;
        check(&["*.com", "*"], "", "https://foo.com", "*.com").await;
        check(&["*.bar.com", "*.com"], "", "https://foo.bar.com", "*.bar.com").await;
        check(&["*", "other"], "other", "https://foo.com", "*").await;
        check(&["other"], "other", "https://foo.com", "other").await;
    }
}
