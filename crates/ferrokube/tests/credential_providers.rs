//! Image credential providers: programs that a kubelet asks for what a registry wants.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::registry::{Access, Registry};
use testkit::{Cluster, Image, eventually};

use crate::kubelet_alone::{NODE, flags, kill, node_is_ready, start};
use crate::resource_managers::on_the_built_in_runtime;

/// A registry on the loopback of the cluster's host.
fn registry(cluster: &Cluster) -> Result<Registry> {
    cluster.host().inside()?.within(Registry::start)
}

/// A provider: it keeps what it is asked, and answers with the user and the password of its environment.
const PROVIDER: &str = r#"#!/bin/sh
read -r request
printf '%s\n' "$request" >> "$ASKED"
printf '{"kind":"CredentialProviderResponse","apiVersion":"%s","cacheKeyType":"Registry","cacheDuration":"1h","auth":{"%s":{"username":"robot","password":"%s"}}}' "$1" "$REGISTRY" "$PASSWORD"
"#;

struct Files<'a> {
    cluster: &'a Cluster,
    registry: &'a Registry,
}

impl Files<'_> {
    fn path(&self, name: &str) -> String {
        self.cluster.host().path(name).display().to_string()
    }

    /// Configures one provider with further fields, and names it to a kubelet.
    fn flags(&self, asked: &str, more: &Value) -> Result<Vec<String>> {
        let host = self.cluster.host();
        std::fs::create_dir_all(host.path("programs"))?;
        std::fs::create_dir_all(host.path("providers"))?;
        let program = host.path("programs/give");
        std::fs::write(&program, PROVIDER)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let version = "credentialprovider.kubelet.k8s.io/v1";
        let mut provider = json!({
            "name": "give", "matchImages": [format!("127.*.*.1:{}", self.port()?)], "defaultCacheDuration": "0s",
            "apiVersion": version, "args": [version], "env": [
                {"name": "ASKED", "value": self.path(asked)}, {"name": "REGISTRY", "value": self.registry.host()},
                {"name": "PASSWORD", "value": "secret"}],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            provider[key] = value.clone();
        }
        let file = json!({"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers": [provider]});
        std::fs::write(host.path("providers/one.json"), file.to_string())?;
        let mut flags = flags(self.cluster)?;
        flags.push(format!("--image-credential-provider-config={}", self.path("providers")));
        flags.push(format!("--image-credential-provider-bin-dir={}", self.path("programs")));
        Ok(flags)
    }

    fn port(&self) -> Result<String> {
        let host = self.registry.host();
        Ok(host.rsplit_once(':').context("no port")?.1.to_owned())
    }

    /// The requests that the provider got so far.
    fn asked(&self, name: &str) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.cluster.host().path(name)).unwrap_or_default();
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Runs a Pod of an image, as an account.
    fn pod(&self, name: &str, image: &str, account: &str) -> Result<()> {
        let image = format!("{}/{image}", self.registry.host());
        self.cluster.apply(&format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {NODE}
  hostNetwork: true
  serviceAccountName: {account}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: main, image: \"{image}\", command: [sleep, \"1000000\"]}}
"
        ))?;
        Ok(())
    }

    fn runs(&self, name: &str) -> Result<()> {
        eventually(&format!("{name} runs"), || {
            Ok((self.cluster.get("pod", name)?["status"]["phase"] == "Running").then_some(()))
        })
    }

    fn is_refused(&self, name: &str) -> Result<()> {
        eventually(&format!("{name} gets no image"), || {
            let status = self.cluster.get("pod", name)?["status"]["containerStatuses"][0].clone();
            let reason = status["state"]["waiting"]["reason"].as_str().unwrap_or_default().to_owned();
            Ok(matches!(reason.as_str(), "ErrImagePull" | "ImagePullBackOff").then_some(()))
        })
    }

    /// Whether the kubelet's records of images have some words.
    fn recorded(&self, words: &[&str]) -> Result<()> {
        let dir = self.cluster.host().path("kubelet/image_manager/pulled");
        eventually("the record of the pull", || {
            let mut all = std::fs::read_dir(&dir)?.flatten();
            Ok(all
                .any(|entry| {
                    let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                    words.iter().all(|word| text.contains(word))
                })
                .then_some(()))
        })
    }
}

fn the_node_has_a_file(files: &Files<'_>) -> Result<()> {
    let auths = json!({"auths": {files.registry.host(): {"username": "robot", "password": "secret"}}});
    let root = files.cluster.host().path("kubelet");
    std::fs::create_dir_all(&root)?;
    std::fs::write(root.join("config.json"), auths.to_string())?;
    let kubelet = start(files.cluster, &flags(files.cluster)?)?;
    eventually("the node is Ready", || node_is_ready(files.cluster))?;
    files.pod("zero", "team/zero:1", "default")?;
    files.runs("zero")?;
    files.recorded(&["team/zero", "\"nodePodsAccessible\":true"])?;
    std::fs::remove_file(root.join("config.json"))?;
    kill(kubelet)
}

fn the_node_has_credentials(files: &Files<'_>) -> Result<()> {
    let flags = files.flags("asked", &json!({}))?;
    let kubelet = start(files.cluster, &flags)?;
    eventually("the node is Ready", || node_is_ready(files.cluster))?;
    files.pod("one", "team/app:1", "default")?;
    files.runs("one")?;
    files.recorded(&["team/app", "\"nodePodsAccessible\":true"])?;
    let asked = files.asked("asked")?;
    let image = format!("{}/team/app", files.registry.host());
    ensure!(
        asked
            == [
                json!({"kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "image": image})
            ],
        "{asked:?}"
    );
    // The answer is kept for the registry.
    files.pod("two", "team/other:1", "default")?;
    files.runs("two")?;
    ensure!(files.asked("asked")?.len() == 1);
    let metrics = format!("/api/v1/nodes/{NODE}/proxy/metrics");
    let page = files.cluster.kubectl(&["get", "--raw", &metrics])?;
    for line in [
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"give\"} 1",
        "kubelet_credential_provider_config_info{hash=\"sha256:",
    ] {
        ensure!(page.contains(line), "{line}");
    }
    kill(kubelet)
}

/// An audience that nodes may ask tokens for, of any account.
const AUDIENCE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: registry-audience}
rules: [{verbs: [request-serviceaccounts-token-audience], apiGroups: [\"\"], resources: [registry]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: registry-audience}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: registry-audience}
subjects: [{kind: Group, name: system:nodes, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, annotations: {registry/role: puller}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger}
";

fn accounts_have_credentials(files: &Files<'_>) -> Result<()> {
    files.cluster.apply(AUDIENCE)?;
    let flags = files.flags(
        "asked-with-tokens",
        &json!({"tokenAttributes": {
            "serviceAccountTokenAudience": "registry", "cacheType": "ServiceAccount", "requireServiceAccount": true,
            "requiredServiceAccountAnnotationKeys": ["registry/role"]}}),
    )?;
    let kubelet = start(files.cluster, &flags)?;
    eventually("the node is Ready", || node_is_ready(files.cluster))?;
    files.pod("account", "team/third:1", "robot")?;
    files.runs("account")?;
    let uid = files.cluster.get("serviceaccount", "robot")?["metadata"]["uid"].clone();
    files.recorded(&["team/third", "kubernetesServiceAccounts", uid.as_str().context("no uid")?])?;
    let asked = files.asked("asked-with-tokens")?;
    let token = asked[0]["serviceAccountToken"].as_str().unwrap_or_default();
    ensure!(token.split('.').count() == 3, "{asked:?}");
    ensure!(asked[0]["serviceAccountAnnotations"] == json!({"registry/role": "puller"}), "{asked:?}");
    // The image is there, and it is the account's.
    files.pod("same", "team/third:1", "robot")?;
    files.runs("same")?;
    files.pod("strange", "team/third:1", "stranger")?;
    files.is_refused("strange")?;
    ensure!(files.asked("asked-with-tokens")?.len() == 1, "the annotation is required");
    kill(kubelet)?;

    // Without the feature there are no tokens.
    let mut flags = flags;
    flags.push("--feature-gates=KubeletServiceAccountTokenForCredentialProviders=false".to_owned());
    let mut kubelet = start(files.cluster, &flags)?;
    ensure!(!kubelet.wait()?.success(), "it started");
    let log = files.cluster.host().log("kubelet");
    let why = "tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders";
    ensure!(log.contains(why), "{log}");
    Ok(())
}

#[test]
fn providers_give_credentials_to_nodes_and_accounts() -> Result<()> {
    on_the_built_in_runtime("providers", |cluster| {
        let registry = registry(cluster)?;
        for name in ["team/zero", "team/app", "team/other", "team/third"] {
            registry.push_image(&Image::busybox("unused")?, name, "1")?;
        }
        registry.access(Access::Basic("robot".into(), "secret".into()));
        let files = Files { cluster, registry: &registry };
        the_node_has_a_file(&files)?;
        the_node_has_credentials(&files)?;
        accounts_have_credentials(&files)
    })
}
