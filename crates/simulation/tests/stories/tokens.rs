//! Credentials that come and go: bootstrap tokens, tokens of older clusters, nodes' certificates, bundles of authorities.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::{FeatureGates, Status};
use apiserver::served::RuntimeConfig;
use client::bootstrap::{Token, is_signed};
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, PodCertificateRequest};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{disturbed, disturbed_where, disturbed_with};
use crate::certificates::KUBELET;
use crate::common::{MINUTE, bare, bare_with, eventually, pod};

const PUBLISHER: &str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
const SYSTEM: &str = "kube-system";
const PUBLIC: &str = "kube-public";
const INFO: &str = "cluster-info";

/// A bootstrap token that signs, for so many seconds.
fn token(cluster: &Cluster, token: &Token, seconds: Option<i64>) -> Value {
    let at = seconds.map(|s| (cluster.clock().now() + SignedDuration::from_secs(s)).to_string());
    json!({
        "metadata": {"name": token.secret_name(), "namespace": SYSTEM},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": token.id(), "token-secret": token.secret(),
            "usage-bootstrap-signing": "true", "expiration": at.unwrap_or_default()},
    })
}

/// The ConfigMap by which machines join is signed with each token, as long as the token lasts.
#[tokio::test(start_paused = true)]
async fn tokens_of_machines_that_join() -> Result<()> {
    let controllers = ["bootstrap-signer-controller", "token-cleaner-controller"];
    disturbed(&controllers, async |stage| {
        let cluster = stage.cluster;
        let [short, long]: [Token; 2] =
            ["aaaaaa.0123456789abcdef".parse()?, "bbbbbb.0123456789abcdef".parse()?];
        cluster.create::<Secret>(&token(cluster, &long, None)).await?;
        let map = json!({"metadata": {"name": INFO, "namespace": PUBLIC},
            "data": {"kubeconfig": "first", "other": "kept"}});
        cluster.create::<ConfigMap>(&map).await?;
        cluster.create::<Secret>(&token(cluster, &short, Some(180))).await?;
        let until = async |content: &str, by: &[&Token]| {
            stage
                .until(&format!("{content} has {} signatures", by.len()), async |cluster| {
                    let map = cluster.get::<ConfigMap>(PUBLIC, INFO).await?.unwrap_or_default();
                    let data = map.data.unwrap_or_default();
                    ensure!(data.get("other").is_some_and(|o| o == "kept"), "{data:?}");
                    let signed = |token: &&Token| {
                        let signature = data.get(&format!("jws-kubeconfig-{}", token.id()));
                        signature.is_some_and(|s| is_signed(s, content, token))
                    };
                    Ok(data.len() == 2 + by.len() && by.iter().all(signed))
                })
                .await
        };
        until("first", &[&short, &long]).await?;
        let second = Patch::Merge(json!({"data": {"kubeconfig": "second"}}));
        cluster.admin().api::<ConfigMap>(PUBLIC).patch(INFO, &second).await?;
        until("second", &[&short, &long]).await?;
        until("second", &[&long]).await?;
        let left = async |cluster: &Cluster| {
            let all = cluster.list::<Secret>(SYSTEM).await?.into_iter();
            anyhow::Ok(all.filter_map(|s| s.metadata.name).collect::<Vec<_>>())
        };
        stage.until("one goes", async |cluster| Ok(left(cluster).await? == [long.secret_name()])).await?;
        cluster.take::<ConfigMap>(PUBLIC, INFO).await?;
        cluster.create::<ConfigMap>(&map).await?;
        until("first", &[&long]).await?;
        cluster.take::<Secret>(SYSTEM, &long.secret_name()).await?;
        until("first", &[]).await?;
        Ok(Value::Null)
    })
    .await
}

/// A token whose time somebody makes longer stays, though the cleaner has not seen it.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_to_last_longer() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers(&["token-cleaner-controller"])?;
    let of: Token = "aaaaaa.0123456789abcdef".parse()?;
    cluster.create::<Secret>(&token(&cluster, &of, Some(60))).await?;
    tokio::time::sleep(Duration::from_secs(30)).await; // the time in which it is seen, in simulated time
    cluster.faults().hold_events("secrets");
    let longer = json!({"stringData": token(&cluster, &of, Some(600))["stringData"]});
    cluster.admin().api::<Secret>(SYSTEM).patch(&of.secret_name(), &Patch::Merge(longer)).await?;
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    let there =
        async || Ok::<_, anyhow::Error>(cluster.get::<Secret>(SYSTEM, &of.secret_name()).await?.is_some());
    ensure!(there().await?, "its time is not over");
    cluster.faults().let_events_come("secrets");
    tokio::time::sleep(5 * MINUTE).await; // what must not happen has this long, in simulated time
    ensure!(there().await?, "its time is not over");
    tokio::time::sleep(5 * MINUTE).await; // its time, in simulated time
    ensure!(!there().await?, "its time is over");
    cluster.stop().await;
    Ok(())
}

/// A token that an older controller made becomes invalid after a year, and goes after another; one that a Pod mounts, and
/// one that is a user's own, stay.
#[tokio::test(start_paused = true)]
async fn tokens_of_older_clusters() -> Result<()> {
    const INVALID: &str = "kubernetes.io/legacy-token-invalid-since";
    disturbed(&["legacy-serviceaccount-token-cleaner-controller"], async |stage| {
        let cluster = stage.cluster;
        let names = ["left", "mounted"];
        let mentions = names.map(|name| json!({ "name": name }));
        let account = json!({"metadata": {"name": "robot", "namespace": "default"}, "secrets": mentions});
        let uid = cluster.create::<ServiceAccount>(&account).await?.metadata.uid;
        for name in ["left", "mounted", "own"] {
            let annotations = json!({"kubernetes.io/service-account.name": "robot",
                "kubernetes.io/service-account.uid": uid});
            let secret = json!({"metadata": {"name": name, "namespace": "default", "annotations": annotations},
                "type": "kubernetes.io/service-account-token"});
            cluster.create::<Secret>(&secret).await?;
        }
        let volume = json!({"name": "v", "secret": {"secretName": "mounted"}});
        cluster.create::<Pod>(&pod("p", json!({"spec": {"volumes": [volume]}}))).await?;
        let state = async |cluster: &Cluster| {
            let all = cluster.list::<Secret>("default").await?.into_iter().map(|s| s.metadata);
            let mark = |m: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
                m.labels.as_ref().and_then(|l| l.get(INVALID).cloned())
            };
            anyhow::Ok(all.map(|m| (mark(&m), m.name.unwrap_or_default())).collect::<Vec<_>>())
        };
        let is = |left: Option<Option<&str>>| {
            let mut all: Vec<(Option<String>, String)> =
                left.into_iter().map(|mark| (mark.map(str::to_owned), "left".to_owned())).collect();
            all.extend(["mounted", "own"].map(|name| (None, name.to_owned())));
            all
        };
        stage.pass(MINUTE).await?;
        ensure!(state(cluster).await? == is(Some(None)), "{:?}", state(cluster).await?);
        // The cleaner looks once a day, and when it begins.
        for (mark, days) in [(Some(Some("2027-01-03")), 367), (None, 367)] {
            cluster.clock().step(SignedDuration::from_hours(24 * days));
            stage.again()?;
            stage
                .until(&format!("it is {mark:?}"), async |cluster| Ok(state(cluster).await? == is(mark)))
                .await?;
        }
        stage.pass(MINUTE).await?;
        ensure!(state(cluster).await? == is(None), "{:?}", state(cluster).await?);
        Ok(Value::Null)
    })
    .await
}

/// The authorities are published once, and older bundles go.
#[tokio::test(start_paused = true)]
async fn bundles_of_authorities() -> Result<()> {
    disturbed_where(&["ClusterTrustBundle=true"], &[PUBLISHER], &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let is_whole = |b: &ClusterTrustBundle| b.spec.trust_bundle.starts_with("-----BEGIN CERTIFICATE");
        let until = async |what: &str| {
            stage
                .until(what, async |cluster| {
                    let all = cluster.list::<ClusterTrustBundle>("").await?;
                    Ok(all.len() == 1 && all.iter().all(is_whole))
                })
                .await
        };
        until("they are published").await?;
        let all = cluster.list::<ClusterTrustBundle>("").await?;
        let (name, spec) = (all[0].metadata.name.clone().unwrap_or_default(), all[0].spec.clone());
        let old = json!({"metadata": {"name": "kubernetes.io:kube-apiserver-serving:old"}, "spec": spec});
        let bundles = cluster.admin().api::<ClusterTrustBundle>("");
        cluster.create::<ClusterTrustBundle>(&old).await?;
        until("an older one goes").await?;
        bundles.delete(&name, None).await?;
        cluster.create::<ClusterTrustBundle>(&old).await?;
        stage
            .until("the new one replaces the old one", async |cluster| {
                let all = cluster.list::<ClusterTrustBundle>("").await?;
                let names: Vec<_> = all.iter().filter_map(|b| b.metadata.name.as_deref()).collect();
                Ok(names == [name.as_str()])
            })
            .await?;
        stage.pass(MINUTE).await?;
        until("it stays").await?;
        Ok(Value::Null)
    })
    .await
}

/// An older bundle stays until the new one is there.
#[tokio::test(start_paused = true)]
async fn a_bundle_that_cannot_be_replaced_yet() -> Result<()> {
    let gates = FeatureGates::parse(["ClusterTrustBundle=true"])?;
    let served = RuntimeConfig::parse(["api/all=true"])?;
    let cluster = bare_with(|c| (c.gates, c.runtime_config) = (gates, served)).await?;
    let shown = async |cluster: &Cluster| {
        let all = cluster.list::<ClusterTrustBundle>("").await?.into_iter();
        anyhow::Ok(all.filter_map(|b| b.metadata.name).collect::<Vec<_>>())
    };
    let stop = cluster.shutdown().child();
    cluster.controllers_until(&stop, &[PUBLISHER], |c| c.gates = gates)?;
    eventually("it is published", MINUTE, async || Ok(shown(&cluster).await?.len() == 1)).await?;
    stop.stop();
    let name = shown(&cluster).await?.remove(0);
    let api = cluster.admin().api::<ClusterTrustBundle>("");
    let spec = api.get(&name).await?.spec;
    let old = json!({"metadata": {"name": "kubernetes.io:kube-apiserver-serving:old"}, "spec": spec});
    cluster.create::<ClusterTrustBundle>(&old).await?;
    api.delete(&name, None).await?;
    let down = Fault::Refuse(Status::internal("API server down"));
    let rule = Rule::new(down).resource("clustertrustbundles").verb(Verb::Create);
    cluster.faults().add(rule);
    cluster.controllers_with(&[PUBLISHER], |c| c.gates = gates)?;
    tokio::time::sleep(MINUTE).await; // what must not happen has this long, in simulated time
    ensure!(shown(&cluster).await? == ["kubernetes.io:kube-apiserver-serving:old"], "nothing is published");
    cluster.faults().clear();
    eventually("it is replaced", 20 * MINUTE, async || Ok(shown(&cluster).await? == [name.clone()])).await?;
    cluster.stop().await;
    Ok(())
}

/// A request for a certificate with which `node-0` serves at its address.
const SERVING: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBEDCBuAIBADA0MRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxGzAZBgNVBAMMEnN5
c3RlbTpub2RlOm5vZGUtMDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPH+Fg3B
pmz4fih57esWOoJC7xDxPDn2mMZMMskYzgVUMEfUOxI0dWYoHTKixCAbU4wUDd0d
Z0XPGbp7xovoEEegIjAgBgkqhkiG9w0BCQ4xEzARMA8GA1UdEQQIMAaHBAqAAAAw
CgYIKoZIzj0EAwIDRwAwRAIgD03pfAJ8Ej2MEooXSYU1FM5EsZUPKQrWXZx87kPG
GBYCIGbQjz/XSo4tkHfuV0Bsrd5jrgnkqrsUyizwzB1E0NIl
-----END CERTIFICATE REQUEST-----
";

/// Gives the approver of nodes' certificates its rights, which a cluster with nodes that join gives it.
async fn may_approve(cluster: &Cluster) -> Result<()> {
    let name = "node-certificate-approver";
    let rule = |verbs: &[&str], resource: &str| json!({"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs});
    let requests = "certificatesigningrequests";
    let rules = json!([
        rule(&["get", "list", "watch"], requests),
        rule(&["update"], "certificatesigningrequests/approval"),
        rule(&["approve"], "signers"),
    ]);
    cluster.create::<ClusterRole>(&json!({"metadata": {"name": name}, "rules": rules})).await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let subject = json!({"kind": "ServiceAccount", "namespace": SYSTEM, "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
    cluster.create::<ClusterRoleBinding>(&binding).await.map(drop)
}

/// A node's request for a certificate with which it serves is approved once, when the node tells that it has the address.
#[tokio::test(start_paused = true)]
async fn certificates_with_which_nodes_serve() -> Result<()> {
    let set = |c: &mut controllers::Config| c.node_certificates = true;
    disturbed_with(&["node-certificate-approving-controller"], &set, async |stage| {
        let cluster = stage.cluster;
        may_approve(cluster).await?;
        let nodes = cluster.admin().api::<Node>("");
        let addresses = nodes.get("node-0").await?.status.and_then(|s| s.addresses);
        let tell = async |all: &Value| -> Result<()> {
            let patch = Patch::Merge(json!({"status": {"addresses": all}}));
            nodes.patch_status("node-0", &patch).await?;
            Ok(())
        };
        tell(&json!([])).await?;
        let request = CertificateSigningRequest {
            metadata: serde_json::from_value(json!({"name": "r"}))?,
            spec: serde_json::from_value(json!({"signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
                "request": ByteString(SERVING.as_bytes().to_vec())}))?,
            status: None,
        };
        let asks = cluster.clients().of("system:node:node-0");
        asks.api::<CertificateSigningRequest>("").create(&request).await?;
        let said = async |cluster: &Cluster| {
            let request = cluster.get::<CertificateSigningRequest>("", "r").await?.unwrap_or_default();
            let all = request.status.and_then(|s| s.conditions).unwrap_or_default().into_iter();
            anyhow::Ok(all.map(|c| (c.type_, c.reason, c.message)).collect::<Vec<_>>())
        };
        stage.pass(MINUTE).await?;
        ensure!(said(cluster).await?.is_empty(), "the node does not have the address");
        tell(&json!(addresses)).await?;
        stage.until("it is approved", async |cluster| Ok(!said(cluster).await?.is_empty())).await?;
        stage.pass(MINUTE).await?;
        Ok(json!(said(cluster).await?))
    })
    .await
}

/// A Pod's request for a certificate goes a quarter of an hour later, whether it was answered or not.
#[tokio::test(start_paused = true)]
async fn requests_of_pods() -> Result<()> {
    let controllers = ["podcertificaterequest-cleaner-controller"];
    let features = ["PodCertificateRequest=true"];
    disturbed_where(&features, &controllers, &|_| {}, async |stage| {
        let cluster = stage.cluster;
        let body: String = KUBELET.lines().filter(|line| !line.starts_with('-')).collect();
        for name in ["a", "b"] {
            let spec = json!({"signerName": "example.com/foo", "podName": "p", "podUID": "p",
                "serviceAccountName": "default", "serviceAccountUID": "s", "nodeName": "node-0", "nodeUID": "n",
                "maxExpirationSeconds": 86400, "stubPKCS10Request": body});
            let request = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
            cluster.create::<PodCertificateRequest>(&request).await?;
        }
        let since = Instant::now();
        // Minutes pass: a look every 100 ms would be most of the work.
        stage
            .until_every(Duration::from_secs(10), "both go", async |cluster| {
                let left = cluster.list::<PodCertificateRequest>("default").await?.len();
                ensure!(left == 2 || since.elapsed() > 14 * MINUTE, "it goes after {:?}", since.elapsed());
                Ok(left == 0)
            })
            .await?;
        Ok(Value::Null)
    })
    .await
}
