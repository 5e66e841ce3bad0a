//! The host of controllers: what one of them lacks, or is stuck at, does not concern the others.

use std::time::Duration;

use anyhow::Result;
use api::Status;
use client::Verb;
use ferrokube_simulation::{Cluster, Fault, Rule};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{MINUTE, eventually, said, started};

async fn namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.create::<Namespace>(&json!({"metadata": {"name": name}})).await.map(drop)
}

async fn has_account(cluster: &Cluster, namespace: &str) -> Result<bool> {
    Ok(cluster.get::<ServiceAccount>(namespace, "default").await?.is_some())
}

/// A resource that cannot be read (it is off, or forbidden) holds up the controllers that need it, and no others.
#[tokio::test(start_paused = true)]
async fn one_resource_that_is_off_holds_up_those_alone_who_need_it() -> Result<()> {
    let cluster = Cluster::start().await?;
    let off = || Fault::Refuse(Status::no_such_resource());
    for plural in ["servicecidrs", "configmaps"] {
        cluster.faults().add(Rule::new(off()).resource(plural).verb(Verb::Watch));
        cluster.faults().add(Rule::new(off()).resource(plural).verb(Verb::List));
    }
    let running = cluster.controllers(&["*"])?;
    namespace(&cluster, "n").await?;
    eventually("the namespace has its account", MINUTE, async || has_account(&cluster, "n").await).await?;
    sleep(10 * MINUTE).await;
    let authorities = async || cluster.get::<ConfigMap>("n", "kube-root-ca.crt").await;
    assert!(authorities().await?.is_none(), "its controller does not know the ConfigMaps");
    let page = running.metrics.page().text();
    for metric in [
        r#"running_managed_controllers{manager="kube-controller-manager",name="service-cidr-controller"} 1"#,
        r#"workqueue_work_duration_seconds_count{name="serviceaccount"}"#,
        r#"workqueue_depth{name="deployment"} 0"#,
    ] {
        assert!(page.contains(metric), "{metric} is not in\n{page}");
    }
    cluster.faults().clear();
    eventually("now it does", MINUTE, async || Ok(authorities().await?.is_some())).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stuck_is_told() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.faults().add(Rule::new(Fault::Hang).resource("serviceaccounts").verb(Verb::Create));
    let running = cluster.controllers(&["serviceaccount-controller"])?;
    namespace(&cluster, "n").await?;
    sleep(MINUTE).await;
    assert!(running.health.answers().iter().all(|(_, answer)| answer.is_ok()));
    sleep(30 * MINUTE).await;
    let answers = running.health.answers();
    let stuck = Err("a worker has been at one key for too long".to_owned());
    assert!(answers.iter().any(|(name, answer)| *name == "serviceaccount-controller" && *answer == stuck));
    let page = running.metrics.page().text();
    assert!(
        page.contains("workqueue_longest_running_processor_seconds{name=\"serviceaccount\"} 18"),
        "{page}"
    );
    Ok(())
}

/// A look that fails is made again, with more and more time between.
#[tokio::test(start_paused = true)]
async fn looks_that_fail_are_made_again() -> Result<()> {
    let cluster = Cluster::start().await?;
    let down = Fault::Refuse(Status::failure(503, "ServiceUnavailable", "down"));
    cluster.faults().add(Rule::new(down).resource("serviceaccounts").verb(Verb::Create).times(7));
    let running = cluster.controllers(&["serviceaccount-controller"])?;
    namespace(&cluster, "n").await?;
    eventually("the account is made", MINUTE, async || has_account(&cluster, "n").await).await?;
    let page = running.metrics.page().text();
    let retries = page.lines().find(|l| l.starts_with("workqueue_retries_total")).unwrap_or_default();
    assert!(!retries.is_empty() && !retries.ends_with(" 0"), "{retries}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_those_that_are_chosen_run() -> Result<()> {
    let cluster = Cluster::start().await?;
    let running = cluster.controllers(&["*", "-serviceaccount"])?;
    namespace(&cluster, "n").await?;
    eventually("the authorities are published", MINUTE, async || {
        Ok(cluster.get::<ConfigMap>("n", "kube-root-ca.crt").await?.is_some())
    })
    .await?;
    assert!(!has_account(&cluster, "n").await?);
    let page = running.metrics.page().text();
    assert!(
        page.contains("name=\"namespace-controller\"} 1")
            && !page.contains("name=\"serviceaccount-controller"),
        "{page}"
    );
    Ok(())
}

/// Objects that an informer cannot decode are counted in the metrics.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_told() -> Result<()> {
    let cluster = Cluster::start().await?;
    let no_list = Fault::Refuse(Status::failure(422, "Invalid", "sendInitialEvents is forbidden"));
    let odd = json!({"metadata": {"name": "kube-root-ca.crt", "namespace": "n", "resourceVersion": "1"}, "data": 7});
    let odd = json!({ "items": [odd] });
    cluster.faults().add(Rule::new(no_list).resource("configmaps").verb(Verb::Watch).times(1));
    cluster.faults().add(Rule::new(Fault::Answer(odd)).resource("configmaps").verb(Verb::List));
    let running = cluster.controllers(&["root-ca-certificate-publisher-controller"])?;
    namespace(&cluster, "n").await?;
    eventually("others are seen", MINUTE, async || {
        Ok(cluster.get::<ConfigMap>("n", "kube-root-ca.crt").await?.is_some())
    })
    .await?;
    let page = running.metrics.page().text();
    let metric = r#"ferrokube_informer_undecoded_total{group="",resource="configmaps",type="ConfigMap""#;
    assert!(page.contains(metric), "{page}");
    Ok(())
}

/// The Events about the Pods that a controller makes and deletes, and about those that it cannot.
#[tokio::test(start_paused = true)]
async fn events_tell_of_each_pod() -> Result<()> {
    let cluster = started(&["replicaset-controller"]).await?;
    let sized = |replicas: u32| {
        let labels = json!({"a": "b"});
        json!({
            "metadata": {"name": "rs", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
        })
    };
    let pods = async || -> Result<usize> { Ok(cluster.list::<Pod>("default").await?.len()) };
    cluster.put::<ReplicaSet>(&sized(1)).await?;
    said(&cluster, "SuccessfulCreate").await?;
    cluster.put::<ReplicaSet>(&sized(0)).await?;
    said(&cluster, "SuccessfulDelete").await?;
    eventually("it is gone", MINUTE, async || Ok(pods().await? == 0)).await?;
    let quota = || Fault::Refuse(Status::failure(403, "Forbidden", "quota"));
    cluster.faults().add(Rule::new(quota()).resource("pods").verb(Verb::Create).times(1));
    cluster.put::<ReplicaSet>(&sized(1)).await?;
    said(&cluster, "FailedCreate").await?;
    eventually("it is made all the same", MINUTE, async || Ok(pods().await? == 1)).await?;
    cluster.faults().add(Rule::new(quota()).resource("pods").verb(Verb::Delete).times(1));
    cluster.put::<ReplicaSet>(&sized(0)).await?;
    said(&cluster, "FailedDelete").await?;
    eventually("it goes all the same", MINUTE, async || Ok(pods().await? == 0)).await
}

/// With several API servers, nothing is deleted in a namespace before all have seen its end, even if its last Pod goes
/// meanwhile; with one, the content is deleted at once.
#[tokio::test(start_paused = true)]
async fn other_servers_get_time_to_see_the_end() -> Result<()> {
    for (delay, first) in [(Duration::ZERO, 0), (controllers::SEVERAL_SERVERS, 5)] {
        let cluster = Cluster::start().await?;
        cluster.controllers_with(&["namespace-controller"], |c| c.namespace_delay = delay)?;
        namespace(&cluster, "n").await?;
        let account = json!({"metadata": {"name": "default", "namespace": "n"}});
        cluster.create::<ServiceAccount>(&account).await?;
        cluster.create::<Pod>(&json!({
            "metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
        .await?;
        sleep(MINUTE).await;
        cluster.faults().record();
        cluster.admin().api::<Namespace>("").delete("n", None).await?;
        for second in 0..8 {
            sleep(Duration::from_millis(500)).await;
            let asked = cluster.faults().seen().iter().any(|c| c.verb == Verb::DeleteCollection);
            assert_eq!(asked, second >= first, "{delay:?} {second}");
            if second == 2 && first > 0 {
                cluster.take::<Pod>("n", "p").await?;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

/// The controllers, the garbage collector among them, share what they read: each resource has one watch.
#[tokio::test(start_paused = true)]
async fn each_resource_has_one_watch() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.faults().record();
    cluster.controllers(&["*"])?;
    sleep(2 * MINUTE).await;
    let seen = cluster.faults().seen();
    let watches = |plural: &str| {
        let all = seen.iter().filter(|c| c.verb == Verb::Watch && c.resource.plural == plural);
        // Those of one object or label are other ones; what goes on after a state is the same watch.
        let whole = all.filter(|c| !c.query.iter().any(|q| q.0.ends_with("Selector")));
        whole.filter(|c| c.query.iter().any(|q| q.0 == "sendInitialEvents")).count()
    };
    // The garbage collector wants the metadata of all of these, and of the last three nobody wants more.
    for plural in ["pods", "nodes", "replicasets", "deployments", "services", "secrets", "jobs", "ingresses"]
    {
        assert_eq!(watches(plural), 1, "{plural}");
    }
    Ok(())
}
