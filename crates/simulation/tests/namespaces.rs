//! Namespaces: how they go, and what each of them has.

use anyhow::{Context, Result};
use api::Status;
use client::{Patch, Verb};
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, bare, eventually, pod, started};

const CONTROLLER: &str = "namespace-controller";

/// Makes the namespace `team`.
async fn team(cluster: &Cluster, spec: Value) -> Result<()> {
    cluster.create::<Namespace>(&json!({"metadata": {"name": "team"}, "spec": spec})).await.map(drop)
}

async fn map(cluster: &Cluster, name: &str) -> Result<()> {
    cluster
        .create::<ConfigMap>(&json!({"metadata": {"name": name, "namespace": "team"}, "data": {"a": "b"}}))
        .await
        .map(drop)
}

async fn remove(cluster: &Cluster) -> Result<()> {
    Ok(cluster.admin().api::<Namespace>("").delete("team", None).await?)
}

async fn is_gone(cluster: &Cluster) -> Result<()> {
    eventually("the namespace is gone", 5 * MINUTE, async || {
        Ok(cluster.get::<Namespace>("", "team").await?.is_none())
    })
    .await
}

/// The conditions of the namespace that are true, with their reasons and messages.
async fn failing(cluster: &Cluster) -> Result<Vec<[String; 3]>> {
    let namespace = cluster.get::<Namespace>("", "team").await?.context("no namespace")?;
    let all = namespace.status.and_then(|s| s.conditions).unwrap_or_default().into_iter();
    let text = |t: Option<String>| t.unwrap_or_default();
    Ok(all
        .filter(|c| c.status == "True")
        .map(|c| [c.type_.clone(), text(c.reason), text(c.message)])
        .collect())
}

/// A Pod whose node does not end it keeps all that is around it, for however long its time is over.
#[tokio::test(start_paused = true)]
async fn nothing_goes_before_the_last_pod() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    team(&cluster, json!({})).await?;
    let meta = json!({"name": "default", "namespace": "team"});
    cluster.create::<ServiceAccount>(&json!({ "metadata": meta })).await?;
    let policy = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    cluster.create::<NetworkPolicy>(&json!({"metadata": meta, "spec": policy})).await?;
    let more = json!({"metadata": {"namespace": "team"},
        "spec": {"nodeName": "silent", "terminationGracePeriodSeconds": 1}});
    cluster.create::<Pod>(&pod("p", more)).await?;
    remove(&cluster).await?;
    for _ in 0..5 {
        sleep(2 * MINUTE).await;
        assert_eq!(cluster.list::<NetworkPolicy>("team").await?.len(), 1);
        assert_eq!(cluster.list::<ServiceAccount>("team").await?.len(), 1);
    }
    let want = [
        [
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed",
            "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: team for gvr: /v1, Resource=pods",
        ],
        [
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            "Some resources are remaining: pods. has 1 resource instances",
        ],
    ];
    assert_eq!(failing(&cluster).await?, want);
    cluster.take::<Pod>("team", "p").await?;
    is_gone(&cluster).await?;
    assert!(cluster.list::<NetworkPolicy>("team").await?.is_empty());
    Ok(())
}

/// 2 of the 4 scenarios of upstream's `TestSyncNamespaceThatIsTerminatingV1`, and more of the second: a namespace goes, and
/// one stays while its content is not known. In the two others the namespace has no finalizer, and goes at once here.
/// `TestSyncNamespaceThatIsActive`: nothing is written to one that is not deleted.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_discovered_keeps_the_namespace() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    team(&cluster, json!({})).await?;
    map(&cluster, "a").await?;
    sleep(MINUTE).await;
    assert_eq!(cluster.faults().controller_writes(), 0);
    remove(&cluster).await?;
    is_gone(&cluster).await?;
    assert!(cluster.list::<ConfigMap>("team").await?.is_empty());

    let failed = "NamespaceDeletionDiscoveryFailure";
    let some = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: apps/v1: test error";
    for (path, message, left) in [("/apis", "test error", 1), ("/apis/apps/v1", some, 0)] {
        team(&cluster, json!({})).await?;
        map(&cluster, "a").await?;
        let error = Status::failure(500, "InternalError", "test error");
        cluster.faults().add(Rule::new(Fault::Refuse(error)).path(path));
        remove(&cluster).await?;
        sleep(2 * MINUTE).await;
        assert_eq!(failing(&cluster).await?, [[failed, "DiscoveryFailed", message]], "{path}");
        assert_eq!(cluster.list::<ConfigMap>("team").await?.len(), left, "{path}");
        cluster.faults().clear();
        is_gone(&cluster).await?;
    }
    Ok(())
}

/// Upstream's cases of `TestFinalizeNamespaceFunc`, `TestFinalized` and `TestRetryOnConflictError`: another finalizer than
/// the controller's own stays, and a conflict is tried again.
#[tokio::test(start_paused = true)]
async fn finalizers_of_others_stay() -> Result<()> {
    let cluster = started(&[CONTROLLER]).await?;
    team(&cluster, json!({"finalizers": ["kubernetes", "example.com/other"]})).await?;
    map(&cluster, "a").await?;
    let conflict = || Fault::Refuse(Status::conflict("", "namespaces", "team", "changed"));
    for subresource in ["status", "finalize"] {
        cluster.faults().add(Rule::new(conflict()).resource("namespaces").subresource(subresource).times(1));
    }
    remove(&cluster).await?;
    let left = async || -> Result<Vec<String>> {
        let namespace = cluster.get::<Namespace>("", "team").await?.context("no namespace")?;
        Ok(namespace.spec.and_then(|s| s.finalizers).unwrap_or_default())
    };
    eventually("its own is gone", MINUTE, async || Ok(left().await? == ["example.com/other"])).await?;
    assert!(cluster.list::<ConfigMap>("team").await?.is_empty());
    cluster.faults().record();
    sleep(5 * MINUTE).await;
    let seen = cluster.faults().seen();
    assert!(seen.iter().all(|c| c.verb != Verb::Update), "the rest is not its business: {seen:?}");
    assert_eq!(left().await?, ["example.com/other"]);
    Ok(())
}

/// Upstream's case of `TestDeleteEncounters404`, with an object that is there, and with one that cannot be listed: what the
/// server says it does not have is deleted one by one, or is none.
#[tokio::test(start_paused = true)]
async fn resources_that_are_not_there() -> Result<()> {
    for (verb, left) in [(Verb::DeleteCollection, 0), (Verb::List, 1)] {
        let cluster = started(&[CONTROLLER]).await?;
        team(&cluster, json!({})).await?;
        map(&cluster, "a").await?;
        let missing = Status::not_found("", "configmaps", "");
        cluster.faults().add(Rule::new(Fault::Refuse(missing)).resource("configmaps").verb(verb));
        remove(&cluster).await?;
        is_gone(&cluster).await?;
        assert_eq!(cluster.list::<ConfigMap>("team").await?.len(), left, "{verb:?}");
    }
    Ok(())
}

/// The object of a controller that keeps one in each namespace is made; it is made again if it is deleted, and not where
/// the namespace is going; others are nobody's business.
async fn keeps_one<T: client::KubeObject>(controller: &str, name: &str, data: Option<Value>) -> Result<()> {
    let cluster = bare().await?;
    let plural = T::URL_PATH_SEGMENT;
    let changes = async || -> Result<usize> {
        sleep(MINUTE).await;
        let seen = cluster.faults().seen();
        let of_team = seen.iter().filter(|c| c.resource.plural == plural && c.namespace == "team");
        Ok(of_team.filter(|c| !matches!(c.verb, Verb::Get | Verb::List | Verb::Watch)).count())
    };
    let check = async |what: &str, want: usize| -> Result<()> {
        assert_eq!(changes().await?, want, "{controller}: {what}");
        cluster.faults().record();
        Ok(())
    };
    let is_there = async || Ok::<_, anyhow::Error>(cluster.get::<T>("team", name).await?.is_some());
    cluster.faults().record();
    team(&cluster, json!({"finalizers": ["kubernetes", "example.com/stay"]})).await?;
    cluster.controllers(&[controller])?;
    check("a namespace that is there", 1).await?;
    assert!(is_there().await?);
    let other = json!({"metadata": {"name": "other", "namespace": "team"}});
    cluster.create::<T>(&other).await?;
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    cluster.admin().api::<T>("team").patch("other", &labelled).await?;
    check("another object changes", 0).await?;
    cluster.take::<T>("team", "other").await?;
    check("another object is deleted", 0).await?;
    cluster.admin().api::<Namespace>("").patch("team", &labelled).await?;
    check("a namespace that has it changes", 0).await?;
    cluster.take::<T>("team", name).await?;
    check("it is deleted", 1).await?;
    assert!(is_there().await?);
    if let Some(data) = data {
        cluster.admin().api::<T>("team").patch(name, &Patch::Merge(json!({ "data": data }))).await?;
        check("it is changed", 1).await?;
    }
    remove(&cluster).await?;
    check("a namespace is going", 0).await?;
    cluster.take::<T>("team", name).await?;
    check("it is deleted in a namespace that is going", 0).await?;
    assert!(!is_there().await?);
    cluster.admin().api::<Namespace>("").patch("team", &labelled).await?;
    check("a namespace that is going changes", 0).await
}

/// Upstream's cases of `TestServiceAccountCreation`, as far as they are about the account `default`: there is no other one
/// that can be asked for.
#[tokio::test(start_paused = true)]
async fn accounts_of_namespaces() -> Result<()> {
    keeps_one::<ServiceAccount>("serviceaccount-controller", "default", None).await
}

/// The 7 cases of upstream's `TestConfigMapCreation`.
#[tokio::test(start_paused = true)]
async fn root_certificates_of_namespaces() -> Result<()> {
    let data = json!({"test": "test"});
    keeps_one::<ConfigMap>("root-ca-certificate-publisher-controller", "kube-root-ca.crt", Some(data)).await
}
