//! Identities: accounts and their tokens, what every namespace has, roles made of others, certificates.

use std::sync::Arc;
use std::time::Duration;

use access::pki::{Pki, PkiConfig};
use anyhow::{Context, Result, ensure};
use client::Patch;
use controllers::certificates::{Authority, Signers};
use ferrokube_simulation::Cluster;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};

use super::{Stage, disturbed_with};
use crate::certificates::KUBELET;
use crate::common::{MINUTE, Signer};

/// Waits until a Secret has a token of the account that there is, and the namespace its authorities.
async fn until_whole(stage: &Stage<'_>) -> Result<()> {
    stage
        .until("the Secret has a token", async |cluster| {
            let account = cluster.get::<ServiceAccount>("team", "robot").await?.unwrap_or_default();
            let uid = account.metadata.uid.unwrap_or_default();
            let secret = cluster.get::<Secret>("team", "s").await?.unwrap_or_default();
            let data = secret.data.unwrap_or_default();
            let token = data.get("token").map(|t| String::from_utf8_lossy(&t.0).into_owned());
            let default = cluster.get::<ServiceAccount>("team", "default").await?;
            let authorities = cluster.get::<ConfigMap>("team", "kube-root-ca.crt").await?;
            let known =
                authorities.and_then(|m| m.data).is_some_and(|d| d["ca.crt"].starts_with("-----BEGIN"));
            Ok(token == Some(format!("team/robot/{uid}/s")) && default.is_some() && known)
        })
        .await
}

/// Accounts and their tokens: each is made once, mended, and goes with its account.
#[tokio::test(start_paused = true)]
async fn an_account_and_its_token() -> Result<()> {
    let controllers = [
        "serviceaccount-controller",
        "serviceaccount-token-controller",
        "root-ca-certificate-publisher-controller",
        "namespace-controller",
    ];
    let set = |c: &mut controllers::Config| c.token_signer = Some(Arc::new(Signer));
    disturbed_with(&controllers, &set, async |stage| {
        let cluster = stage.cluster;
        let admin = cluster.admin();
        let (accounts, secrets) = (admin.api::<ServiceAccount>("team"), admin.api::<Secret>("team"));
        cluster.create::<Namespace>(&json!({"metadata": {"name": "team"}})).await?;
        let account = json!({"metadata": {"name": "robot", "namespace": "team"}});
        let made = cluster.create::<ServiceAccount>(&account).await?;
        let secret = json!({"metadata": {"name": "s", "namespace": "team",
            "annotations": {"kubernetes.io/service-account.name": "robot"}},
            "type": "kubernetes.io/service-account-token"});
        stage
            .until("it has a Secret", async |cluster| {
                // One that comes before the controller knows the account goes again.
                let there = cluster.get::<Secret>("team", "s").await?;
                match there {
                    Some(s) => Ok(s.data.is_some_and(|d| d.contains_key("token"))),
                    None => cluster.create::<Secret>(&secret).await.map(|_| false),
                }
            })
            .await?;
        until_whole(stage).await?;
        // All of it is made anew.
        secrets.patch("s", &Patch::Merge(json!({"data": {"token": null, "ca.crt": "eA=="}}))).await?;
        cluster.take::<ConfigMap>("team", "kube-root-ca.crt").await?;
        cluster.take::<ServiceAccount>("team", "default").await?;
        until_whole(stage).await?;
        stage.pass(MINUTE).await?;
        until_whole(stage).await?;
        accounts.delete("robot", None).await?;
        stage
            .until("the Secret goes with its account", async |cluster| {
                Ok(cluster.get::<Secret>("team", "s").await?.is_none())
            })
            .await?;
        ensure!(made.metadata.uid.is_some());
        admin.api::<Namespace>("").delete("team", None).await?;
        stage
            .until("the namespace is gone", async |cluster| {
                Ok(cluster.get::<Namespace>("", "team").await?.is_none())
            })
            .await?;
        let left = (cluster.list::<ServiceAccount>("team").await?, cluster.list::<ConfigMap>("team").await?);
        ensure!(left.0.is_empty() && left.1.is_empty(), "{left:?}");
        Ok(Value::Null)
    })
    .await
}

/// A role that is made of others has their rules, each once.
#[tokio::test(start_paused = true)]
async fn a_role_of_others() -> Result<()> {
    disturbed_with(&["clusterrole-aggregation-controller"], &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let selector = json!({"matchLabels": {"part": "yes"}});
        let whole =
            json!({"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": [selector]}});
        cluster.create::<ClusterRole>(&whole).await?;
        for name in ["a", "b"] {
            let rule = |verb: &str| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]});
            let meta = json!({"name": name, "labels": {"part": "yes"}});
            cluster
                .create::<ClusterRole>(&json!({"metadata": meta, "rules": [rule(name), rule("get")]}))
                .await?;
        }
        let verbs = async |cluster: &Cluster| {
            let role = cluster.get::<ClusterRole>("", "whole").await?.unwrap_or_default();
            anyhow::Ok(role.rules.into_iter().flatten().flat_map(|r| r.verbs).collect::<Vec<_>>())
        };
        let until = async |wanted: &[&str]| {
            stage
                .until(&format!("it has {wanted:?}"), async |cluster| Ok(verbs(cluster).await? == wanted))
                .await
        };
        until(&["a", "get", "b"]).await?;
        let away = Patch::Merge(json!({"metadata": {"labels": {"part": "no"}}}));
        cluster.admin().api::<ClusterRole>("").patch("a", &away).await?;
        until(&["b", "get"]).await?;
        cluster.take::<ClusterRole>("", "b").await?;
        until(&[]).await?;
        Ok(Value::Null)
    })
    .await
}

fn authority() -> Result<Authority> {
    let dir = tempfile::tempdir()?;
    let config = PkiConfig {
        hostname: "signer".into(),
        addresses: Vec::new(),
        names: Vec::new(),
        service_address: None,
        cluster_domain: "cluster.local".into(),
        now: "2026-01-01T00:00:00Z".parse()?,
    };
    let ca = Pki::ensure(dir.path(), &config)?.ca;
    Authority::parse(ca.certificate_pem.as_bytes(), ca.key_pem.as_bytes()).context("an authority")
}

/// A kubelet's request is approved once, signed once, and goes in time.
#[tokio::test(start_paused = true)]
async fn a_request_for_a_certificate() -> Result<()> {
    let controllers = [
        "certificatesigningrequest-approving-controller",
        "certificatesigningrequest-signing-controller",
        "certificatesigningrequest-cleaner-controller",
    ];
    let signers = Signers::all(&authority()?);
    disturbed_with(&controllers, &|c| c.signers = signers.clone(), async |stage| {
        let cluster = stage.cluster;
        // The administrator may have a kubelet's certificate.
        let request = json!({"metadata": {"name": "r"}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
            "request": ByteString(KUBELET.as_bytes().to_vec())}});
        cluster.create::<CertificateSigningRequest>(&request).await?;
        let mut seen = Vec::new();
        let status = async |cluster: &Cluster| {
            let request = cluster.get::<CertificateSigningRequest>("", "r").await?;
            anyhow::Ok(request.context("it goes too early")?.status.unwrap_or_default())
        };
        stage
            .until("it is signed", async |cluster| {
                seen.extend(status(cluster).await?.certificate);
                Ok(!seen.is_empty())
            })
            .await?;
        stage.pass(10 * MINUTE).await?;
        let end = status(cluster).await?;
        ensure!(end.certificate.as_ref() == seen.first(), "it is signed twice");
        let conditions: Vec<Value> =
            end.conditions.iter().flatten().map(|c| json!([c.type_, c.reason, c.message])).collect();
        // It stays for an hour, and the cleaner looks once an hour.
        let since = cluster.clock().now();
        for half_hours in 1..=4 {
            let until = SignedDuration::from_mins(30 * half_hours);
            stage
                .until_every(Duration::from_secs(20), "time passes", async |cluster| {
                    Ok(cluster.clock().now().duration_since(since) > until)
                })
                .await?;
            let there = cluster.get::<CertificateSigningRequest>("", "r").await?.is_some();
            ensure!(there || half_hours > 1, "it goes too early");
            ensure!(!there || half_hours < 4, "it stays");
        }
        Ok(json!(conditions))
    })
    .await
}
