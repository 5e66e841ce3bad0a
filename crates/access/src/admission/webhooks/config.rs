//! The plugins' own configuration: `WebhookAdmissionConfiguration`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::admission::config::{Unknown, document, strict};
use crate::webhook::Credentials;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    kube_config_file: PathBuf,
    #[serde(default)]
    static_manifests_dir: String,
    #[serde(flatten)]
    unknown: Unknown,
}

/// The kinds of the configuration, with their versions.
const KINDS: [(&str, &str); 2] = [
    ("WebhookAdmissionConfiguration", "apiserver.config.k8s.io/v1"),
    ("WebhookAdmission", "apiserver.config.k8s.io/v1alpha1"),
];

/// The credentials that a plugin's configuration names.
pub(super) fn credentials(text: Option<&[u8]>) -> Result<Credentials, String> {
    let Some(text) = text else { return Ok(Credentials::default()) };
    let mut read = KINDS.iter().map(|(kind, version)| document::<Document>(text, kind, &[version]));
    let first = read.next().unwrap_or_else(|| Err(String::new()));
    // A fault is told of the newer kind.
    let config = first.or_else(|why| read.find_map(Result::ok).ok_or(why))?;
    strict(&config.unknown.into_keys().collect::<Vec<_>>())?;
    if !config.static_manifests_dir.is_empty() {
        return Err(format!(
            "static webhook manifests dir {:?} configured but ManifestBasedAdmissionControlConfig feature gate is not enabled",
            config.static_manifests_dir
        ));
    }
    let file = config.kube_config_file;
    if file.as_os_str().is_empty() {
        return Ok(Credentials::default());
    }
    if !file.is_absolute() {
        let file = api::go::quote(&file.to_string_lossy());
        return Err(format!("kubeConfigFile: Invalid value: {file}: must be an absolute file path"));
    }
    Credentials::from_kubeconfig(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations() {
        let check = |text: &str, expected: Result<(), &str>| {
            let got = credentials(Some(text.as_bytes())).map(drop);
            match (got, expected) {
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
                (got, expected) => {
                    assert_eq!(got.is_ok(), expected.is_ok(), "{got:?}");
                }
            }
        };
        let v1 = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n";
        let old = "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: WebhookAdmission\n";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, "users: []").unwrap();
        for head in [v1, old] {
            check(head, Ok(()));
            check(&format!("{head}kubeConfigFile: {}\n", file.display()), Ok(()));
            check(&format!("{head}kubeConfigFile: config\n"), Err("must be an absolute file path"));
            check(
                &format!("{head}kubeConfigFile: /gone/away\n"),
                Err("stat /gone/away: no such file or directory"),
            );
            check(&format!("{head}more: 1\n"), Err("unknown field \"more\""));
            check(&format!("{head}staticManifestsDir: /a\n"), Err("is not enabled"));
        }
        check("apiVersion: v1\nkind: Config\n", Err("no kind \"Config\" is registered for version \"v1\""));
    }
}
