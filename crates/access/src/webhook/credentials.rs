//! The credentials that the server shows to webhooks: the users of a kubeconfig, chosen by the webhook's host (upstream:
//! `apiserver/pkg/util/webhook/authentication.go`).

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::Certificate;
use http::HeaderValue;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::Value;

use super::address::Target;

/// Why the credentials cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct CredentialsError {
    file: PathBuf,
    why: String,
}

/// The credentials for webhooks; none by default.
#[derive(Default)]
pub struct Credentials {
    users: HashMap<String, User>,
    /// The user of the current context.
    default: Option<String>,
    /// The directory of the file, which those that it names are relative to.
    dir: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    current_context: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    user: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: PathBuf,
    client_certificate_data: String,
    client_key: PathBuf,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: PathBuf,
    username: String,
    password: String,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl Credentials {
    /// Reads the users of a kubeconfig file.
    pub fn from_kubeconfig(file: &Path) -> Result<Self, CredentialsError> {
        let failed = |why: String| CredentialsError { file: file.to_owned(), why };
        let text = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
        let tree = api::yaml::parse(&text).map_err(|e| failed(e.to_string()))?;
        let mut json = Vec::new();
        api::codec::json::encode_any(&tree, &mut json);
        let config: Kubeconfig = serde_json::from_slice(&json).map_err(|e| failed(e.to_string()))?;
        for NamedUser { name, user } in &config.users {
            // DIFFERENCE: upstream executes programs for credentials, and acts as other users.
            let unknown = ["exec", "auth-provider", "act-as", "as", "as-uid", "as-groups", "as-user-extra"];
            if let Some(field) = unknown.iter().find(|f| user.others.contains_key(**f)) {
                return Err(failed(format!("user {name:?}: {field} is not supported for webhooks")));
            }
        }
        let current = config.contexts.into_iter().find(|c| c.name == config.current_context);
        Ok(Self {
            users: config.users.into_iter().map(|u| (u.name, u.user)).collect(),
            default: current.map(|c| c.context.user).filter(|user| !user.is_empty()),
            dir: file.parent().unwrap_or(Path::new("")).to_owned(),
        })
    }

    /// The user for a webhook: the one that is named like its host and port, or by a star and the end of that; for the
    /// usual port also without it; then `*`, then that of the current context.
    fn user(&self, target: &Target<'_>) -> Option<&User> {
        if self.users.is_empty() {
            return None;
        }
        let named = |target: &str| {
            let steps: Vec<&str> = target.split('.').collect();
            let starred = (1..steps.len()).map(|i| format!("*.{}", steps[i..].join(".")));
            std::iter::once(target.to_owned()).chain(starred).find_map(|name| self.users.get(&name))
        };
        let host = target.host.as_str();
        named(&target.host_port())
            .or_else(|| if target.port == 443 { named(host) } else { None })
            .or_else(|| self.users.get("*"))
            .or_else(|| self.users.get(self.default.as_ref()?))
    }

    fn material(&self, data: &str, file: &Path) -> Result<Option<Vec<u8>>, String> {
        if !data.is_empty() {
            return STANDARD.decode(data.trim()).map(Some).map_err(|e| e.to_string());
        }
        if file.as_os_str().is_empty() {
            return Ok(None);
        }
        let file = self.dir.join(file);
        std::fs::read(&file).map(Some).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// The client certificate for a webhook.
    pub(super) fn certificate(&self, target: &Target<'_>) -> Result<Option<Certificate>, String> {
        let Some(user) = self.user(target) else { return Ok(None) };
        let chain = self.material(&user.client_certificate_data, &user.client_certificate)?;
        let key = self.material(&user.client_key_data, &user.client_key)?;
        let (Some(chain), Some(key)) = (chain, key) else { return Ok(None) };
        let chain =
            CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| e.to_string())?;
        Certificate::new(chain, key).map(Some).map_err(|e| e.to_string())
    }

    /// The `Authorization` for a webhook.
    pub(super) async fn bearer(&self, target: &Target<'_>) -> Result<Option<HeaderValue>, String> {
        let Some(user) = self.user(target) else { return Ok(None) };
        let text = if !user.token.is_empty() {
            format!("Bearer {}", user.token)
        } else if !user.token_file.as_os_str().is_empty() {
            // It may be renewed.
            let file = self.dir.join(&user.token_file);
            let token =
                tokio::fs::read_to_string(&file).await.map_err(|e| format!("{}: {e}", file.display()))?;
            format!("Bearer {}", token.trim())
        } else if !user.username.is_empty() || !user.password.is_empty() {
            format!("Basic {}", STANDARD.encode(format!("{}:{}", user.username, user.password)))
        } else {
            return Ok(None);
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| "invalid bearer token".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
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
            let bearer = credentials.bearer(&config.target().unwrap()).await.unwrap();
            let bearer = bearer.as_ref().map_or("", |b| b.to_str().unwrap().trim_start_matches("Bearer "));
            assert_eq!(bearer, expected, "{url}");
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

    #[test]
    fn programs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, "users: [{name: a, user: {exec: {command: x}}}]").unwrap();
        let why = Credentials::from_kubeconfig(&file).err().unwrap().to_string();
        assert!(why.contains("exec is not supported"), "{why}");
    }
}
