//! Kubeconfig files: their form and what must hold of them (upstream: client-go's `tools/clientcmd`).

mod check;

use std::collections::{BTreeMap, HashSet};
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use api::Node;
use api::go::quote;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::json::or_default;
use crate::material::ConfigError;

/// The name of the extension of a cluster that a credential plugin is given.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// A kubeconfig. The files that it names are absolute, or relative to the working directory, once it was read from a file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kubeconfig {
    /// The clusters by their names, in the file's order.
    #[serde(deserialize_with = "or_default")]
    pub clusters: Vec<NamedCluster>,
    /// The users by their names, in the file's order.
    #[serde(deserialize_with = "or_default")]
    pub users: Vec<NamedUser>,
    /// The contexts by their names, in the file's order.
    #[serde(deserialize_with = "or_default")]
    pub contexts: Vec<NamedContext>,
    /// The name of the context that counts where nothing names another; "" for none.
    #[serde(deserialize_with = "or_default")]
    pub current_context: String,
}

/// A cluster with its name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NamedCluster {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The cluster.
    #[serde(deserialize_with = "or_default")]
    pub cluster: Cluster,
}

/// A user with its name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NamedUser {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The user.
    #[serde(deserialize_with = "or_default")]
    pub user: User,
}

/// A context with its name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NamedContext {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The context.
    #[serde(deserialize_with = "or_default")]
    pub context: Context,
}

/// The way to a cluster's API server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Cluster {
    /// Its URL.
    #[serde(deserialize_with = "or_default")]
    pub server: String,
    /// The name to verify its certificate for, if it is not the URL's host.
    #[serde(deserialize_with = "or_default")]
    pub tls_server_name: String,
    /// Whether any certificate is taken.
    #[serde(deserialize_with = "or_default")]
    pub insecure_skip_tls_verify: bool,
    /// A file with the authorities of its certificate.
    #[serde(deserialize_with = "or_default")]
    pub certificate_authority: PathBuf,
    /// The authorities themselves, PEM; they go before the file.
    #[serde(deserialize_with = "base64")]
    pub certificate_authority_data: Vec<u8>,
    /// The URL of the proxy to it, "" for the environment's.
    #[serde(deserialize_with = "or_default")]
    pub proxy_url: String,
    /// Whether answers shall not be compressed. They never are, since no request asks for it; plugins are told.
    #[serde(deserialize_with = "or_default")]
    pub disable_compression: bool,
    /// Further settings, those of credential plugins among them.
    #[serde(deserialize_with = "or_default")]
    pub extensions: Vec<Extension>,
}

/// A further setting.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Extension {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The setting itself.
    pub extension: Value,
}

/// The credentials of a user.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct User {
    /// A file with a client certificate.
    #[serde(deserialize_with = "or_default")]
    pub client_certificate: PathBuf,
    /// The certificate itself, PEM; it goes before the file.
    #[serde(deserialize_with = "base64")]
    pub client_certificate_data: Vec<u8>,
    /// A file with the certificate's key.
    #[serde(deserialize_with = "or_default")]
    pub client_key: PathBuf,
    /// The key itself, PEM; it goes before the file.
    #[serde(deserialize_with = "base64")]
    pub client_key_data: Vec<u8>,
    /// A bearer token.
    #[serde(deserialize_with = "or_default")]
    pub token: String,
    /// A file with a bearer token, which may be renewed.
    #[serde(rename = "tokenFile", deserialize_with = "or_default")]
    pub token_file: PathBuf,
    /// The user to act as.
    #[serde(rename = "as", deserialize_with = "or_default")]
    pub impersonate: String,
    /// The uid to act with.
    #[serde(rename = "as-uid", deserialize_with = "or_default")]
    pub impersonate_uid: String,
    /// The groups to act with.
    #[serde(rename = "as-groups", deserialize_with = "or_default")]
    pub impersonate_groups: Vec<String>,
    /// The further attributes to act with.
    #[serde(rename = "as-user-extra", deserialize_with = "or_default")]
    pub impersonate_extra: BTreeMap<String, Option<Vec<String>>>,
    /// A user for basic authentication.
    #[serde(deserialize_with = "or_default")]
    pub username: String,
    /// The password of that user.
    #[serde(deserialize_with = "or_default")]
    pub password: String,
    /// A kind of credentials that client-go supports no more; its presence is an error.
    pub auth_provider: Option<Value>,
    /// A program that gives credentials.
    pub exec: Option<Exec>,
}

impl std::fmt::Debug for User {
    /// Without the credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

/// A program that gives credentials (upstream: `ExecConfig`).
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exec {
    /// The program.
    #[serde(deserialize_with = "or_default")]
    pub command: String,
    /// Its arguments.
    #[serde(deserialize_with = "or_default")]
    pub args: Vec<String>,
    /// The variables that its environment has besides this process's.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<Variable>,
    /// The version of the documents that are exchanged with it.
    #[serde(deserialize_with = "or_default")]
    pub api_version: String,
    /// The advice for those who do not have the program.
    #[serde(deserialize_with = "or_default")]
    pub install_hint: String,
    /// Whether it is told which cluster it is asked for.
    #[serde(deserialize_with = "or_default")]
    pub provide_cluster_info: bool,
    /// Whether it may ask who sits at the terminal: `Never`, `IfAvailable` or `Always`.
    #[serde(deserialize_with = "or_default")]
    pub interactive_mode: String,
}

/// A variable of an environment.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The value.
    #[serde(deserialize_with = "or_default")]
    pub value: String,
}

/// A user of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The name of the cluster.
    #[serde(deserialize_with = "or_default")]
    pub cluster: String,
    /// The name of the user.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// The namespace where nothing names another; "" for `default`.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
}

/// Bytes as Go's JSON has them: base64, in which line ends do not count.
fn base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text: String = or_default(from)?;
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

impl Kubeconfig {
    /// Reads a kubeconfig file.
    ///
    /// # Errors
    /// It cannot be read, or is no kubeconfig.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = crate::material::read(path)?;
        let mut config = Self::parse(&text, path)?;
        config.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    /// Reads the text of a kubeconfig, which errors call by `name`.
    ///
    /// # Errors
    /// It is no kubeconfig.
    pub fn parse(text: &[u8], name: &Path) -> Result<Self, ConfigError> {
        let wrong = |reason: String| ConfigError::Parse { path: name.to_owned(), reason };
        let tree = api::yaml::parse(text).map_err(|e| wrong(e.to_string()))?;
        if !matches!(tree, Node::Map(_) | Node::Null) {
            let form = api::go::json_word(&tree);
            return Err(wrong(format!("json: cannot unmarshal {form} into Go value of type v1.Config")));
        }
        let mut json = Vec::new();
        api::codec::json::encode_any(&tree, &mut json);
        let config: Option<Self> = serde_json::from_slice(&json).map_err(|e| wrong(e.to_string()))?;
        let mut config = config.unwrap_or_default();
        unique("NamedCluster", config.clusters.iter().map(|c| &c.name)).map_err(wrong)?;
        unique("NamedAuthInfo", config.users.iter().map(|u| &u.name)).map_err(wrong)?;
        unique("NamedContext", config.contexts.iter().map(|c| &c.name)).map_err(wrong)?;
        for exec in config.users.iter_mut().filter_map(|u| u.user.exec.as_mut()) {
            // Later versions have to say it.
            let old = ["client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1alpha1"];
            if exec.interactive_mode.is_empty() && old.contains(&exec.api_version.as_str()) {
                "IfAvailable".clone_into(&mut exec.interactive_mode);
            }
        }
        Ok(config)
    }

    /// Makes files that are named relative to the kubeconfig's directory relative to the working directory. A command
    /// that is a mere name is looked for in `$PATH`.
    fn resolve(&mut self, dir: &Path) {
        let at = |file: &mut PathBuf| {
            if !file.as_os_str().is_empty() {
                *file = dir.join(&*file);
            }
        };
        self.clusters.iter_mut().for_each(|c| at(&mut c.cluster.certificate_authority));
        for NamedUser { user, .. } in &mut self.users {
            at(&mut user.client_certificate);
            at(&mut user.client_key);
            at(&mut user.token_file);
            if let Some(exec) = user.exec.as_mut().filter(|e| e.command.contains(MAIN_SEPARATOR)) {
                exec.command = dir.join(&exec.command).to_string_lossy().into_owned();
            }
        }
    }

    /// The cluster of a name.
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|c| c.name == name).map(|c| &c.cluster)
    }
    /// The user of a name.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|u| u.name == name).map(|u| &u.user)
    }
    /// The context of a name.
    pub fn context(&self, name: &str) -> Option<&Context> {
        self.contexts.iter().find(|c| c.name == name).map(|c| &c.context)
    }
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("error converting *[]{kind}: duplicate name {} in list", quote(name)));
        }
    }
    Ok(())
}

impl Cluster {
    /// The part of it that is for credential plugins alone.
    pub(crate) fn plugin_config(&self) -> Option<&Value> {
        self.extensions.iter().find(|e| e.name == EXEC_EXTENSION).map(|e| &e.extension)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Kubeconfig, String> {
        Kubeconfig::parse(text.as_bytes(), Path::new("config")).map_err(|e| e.to_string())
    }

    #[test]
    fn forms() {
        // As kubectl writes it.
        let text = "users:\n- name: a\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1beta1\n      args: null\n      command: bin/x\n      env: null\n      interactiveMode: null\n      provideClusterInfo: false\n";
        let config = parse(text).unwrap();
        let exec = config.user("a").unwrap().exec.clone().unwrap();
        assert_eq!((exec.interactive_mode.as_str(), exec.args.len()), ("IfAvailable", 0));
        let v1 = parse(&text.replace("v1beta1", "v1")).unwrap();
        assert_eq!(v1.user("a").unwrap().exec.as_ref().unwrap().interactive_mode, "");
        assert_eq!(parse("").unwrap(), Kubeconfig::default());
        assert_eq!(
            parse("clusters: null\nusers: null\ncontexts: [{name: a, context: null}]\ncurrent-context: null")
                .unwrap()
                .contexts
                .len(),
            1
        );
        let twice = parse("users: [{name: a}, {name: a}]").unwrap_err();
        assert!(twice.contains("duplicate name \"a\" in list"), "{twice}");
        assert!(parse("users: [{name: a, user: {client-key-data: '%'}}]").is_err());
        assert!(parse("users: [{name: a, user: {token: 7}}]").is_err());
        assert!(parse("[]").is_err());
    }

    /// As people write it by hand: JSON with tabs and a comma too many, which YAML allows.
    #[test]
    fn flow_style() {
        let text = "{\n\t\"users\": [{\n\t\t\"name\":  \"a\",\n\t\t\"user\": {\"token\": \"t\",}\n\t},]\n}";
        assert_eq!(parse(text).unwrap().user("a").unwrap().token, "t");
    }

    #[test]
    fn files_are_beside_it() {
        let mut config = parse("clusters: [{name: c, cluster: {certificate-authority: ca}}]\nusers: [{name: a, user: {tokenFile: /t, client-key: k, exec: {command: bin/x}}}, {name: b, user: {exec: {command: x}}}]").unwrap();
        config.resolve(Path::new("/dir"));
        assert_eq!(config.cluster("c").unwrap().certificate_authority, Path::new("/dir/ca"));
        let a = config.user("a").unwrap();
        assert_eq!((a.token_file.as_path(), a.client_key.as_path()), (Path::new("/t"), Path::new("/dir/k")));
        assert_eq!(a.client_certificate, Path::new(""));
        let command = |name: &str| config.user(name).unwrap().exec.as_ref().unwrap().command.clone();
        assert_eq!((command("a").as_str(), command("b").as_str()), ("/dir/bin/x", "x"));
    }
}
