//! Kubeconfig files.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::files::{self, Keep};
use super::{Credential, PkiError};

/// Makes a kubeconfig with one context and all credentials inside. It is JSON, which every reader of YAML takes.
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str, credential: &Credential) -> String {
    let context = format!("{user}@kubernetes");
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "kubernetes",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca_pem) },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(&credential.certificate_pem),
                "client-key-data": STANDARD.encode(&credential.key_pem),
            },
        }],
        "contexts": [{ "name": context, "context": { "cluster": "kubernetes", "user": user } }],
        "current-context": context,
    });
    format!("{config:#}\n")
}

/// Writes [`kubeconfig`] to a file, 0600.
pub fn write_kubeconfig(
    path: &Path,
    server: &str,
    ca_pem: &str,
    user: &str,
    credential: &Credential,
) -> Result<(), PkiError> {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        files::ensure_dir(dir)?;
    }
    files::write(path, &kubeconfig(server, ca_pem, user, credential), Keep::Loosely)
}
