//! Pods leave nodes with taints: upstream's cases (`taint_eviction_test.go`).

use std::time::Duration;

use anyhow::Result;
use client::Patch;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{bare, condition, pod};

/// Something that happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The node comes, or has these taints, by number.
    Node(&'static [usize]),
    /// A Pod comes: its name, whether it has a node, and the taints that it tolerates, each with seconds (less than none:
    /// for ever).
    Pod(&'static str, bool, &'static [(usize, i64)]),
    /// A Pod gets a node.
    Bind(&'static str),
    /// A Pod tolerates its first taint for so many seconds.
    Tolerate(&'static str, i64),
    /// A Pod goes.
    Gone(&'static str),
    /// The node goes.
    NoNode,
    /// The controller starts.
    Start,
    /// Nothing, for so many milliseconds.
    Pass(u64),
}
use Step::{Bind, Gone, NoNode, Pass, Start, Tolerate};

fn toleration((n, seconds): (usize, i64)) -> Value {
    let mut all = json!({"key": format!("testTaint{n}"), "value": format!("test{n}"), "effect": "NoExecute"});
    if seconds >= 0 {
        all["tolerationSeconds"] = json!(seconds);
    }
    all
}

async fn step(cluster: &Cluster, step: Step) -> Result<()> {
    let pods = cluster.admin().api::<Pod>("default");
    match step {
        Step::Node(taints) => {
            let taint = |n: &usize| json!({"key": format!("testTaint{n}"), "value": format!("test{n}"), "effect": "NoExecute"});
            let taints: Vec<_> = taints.iter().map(taint).collect();
            cluster.put::<Node>(&json!({"metadata": {"name": "node1"}, "spec": {"taints": taints}})).await?;
        }
        Step::Pod(name, bound, tolerations) => {
            let tolerations: Vec<_> = tolerations.iter().map(|t| toleration(*t)).collect();
            let node = bound.then_some("node1");
            let more = json!({"spec": {"nodeName": node, "tolerations": tolerations}});
            cluster.create::<Pod>(&pod(name, more)).await?;
        }
        Bind(name) => {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": "node1"}});
            pods.post::<Value, Value>(name, "binding", &binding).await?;
        }
        Tolerate(name, seconds) => {
            let all = cluster.get::<Pod>("default", name).await?.unwrap_or_default().spec.unwrap_or_default();
            let mut all = json!(all.tolerations);
            all[0]["tolerationSeconds"] = json!(seconds);
            pods.patch(name, &Patch::Merge(json!({"spec": {"tolerations": all}}))).await?;
        }
        Gone(name) => cluster.take::<Pod>("default", name).await?,
        NoNode => cluster.take::<Node>("", "node1").await?,
        Start => drop(cluster.controllers(&["taint-eviction-controller"])?),
        Pass(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
    }
    Ok(())
}

/// Carries out the steps, and gives the controller some time; the Pods that stay then.
async fn run(steps: &[Step]) -> Result<Cluster> {
    let cluster = bare().await?;
    for one in steps {
        step(&cluster, *one).await?;
    }
    sleep(Duration::from_millis(500)).await;
    Ok(cluster)
}

/// The Pods that are not deleted. Those that are have a condition that says why.
async fn staying(cluster: &Cluster) -> Result<Vec<String>> {
    let (gone, left): (Vec<Pod>, Vec<Pod>) = cluster
        .list::<Pod>("default")
        .await?
        .into_iter()
        .partition(|p| p.metadata.deletion_timestamp.is_some());
    for pod in &gone {
        let said = condition(pod, "DisruptionTarget");
        let want =
            ("True", Some("DeletionByTaintManager"), Some("Taint manager: deleting due to NoExecute taint"));
        let got = said.map(|c| (c.status.as_str(), c.reason.as_deref(), c.message.as_deref()));
        assert_eq!(got, Some(want));
    }
    assert!(left.iter().all(|p| condition(p, "DisruptionTarget").is_none()));
    Ok(left.into_iter().filter_map(|p| p.metadata.name).collect())
}

async fn check(name: &str, steps: &[Step], want: &[&str]) -> Result<()> {
    let cluster = run(steps).await?;
    assert_eq!(staying(&cluster).await?, want, "{name}");
    cluster.stop().await;
    Ok(())
}

const TAINTED: Step = Step::Node(&[1]);
const CLEAN: Step = Step::Node(&[]);

fn plain(bound: bool) -> Step {
    Step::Pod("pod1", bound, &[])
}

/// Upstream's 6 cases of `TestCreatePod`, and the one of `TestDeletePod`.
#[tokio::test(start_paused = true)]
async fn pods_that_come() -> Result<()> {
    let stays: &[&str] = &["pod1"];
    check("not scheduled", &[CLEAN, Start, plain(false)], stays).await?;
    check("on an untainted node", &[CLEAN, Start, plain(true)], stays).await?;
    check("on a tainted node", &[TAINTED, Start, plain(true)], &[]).await?;
    let tolerating = |t: &'static [(usize, i64)]| [TAINTED, Start, Step::Pod("pod1", true, t)];
    check("finite toleration", &tolerating(&[(1, 100)]), stays).await?;
    check("infinite toleration", &tolerating(&[(1, -1)]), stays).await?;
    check("another toleration", &tolerating(&[(2, -1)]), &[]).await?;
    check(
        "a Pod goes",
        &[TAINTED, Step::Pod("pod1", true, &[(1, 1)]), Start, Pass(100), Gone("pod1"), Pass(2000)],
        &[],
    )
    .await
}

/// 3 of upstream's 4 cases of `TestUpdatePod`; in the other a toleration is taken away, which no API server allows. Pods of
/// which the node's worker does not know yet: its 4 cases of `TestEventualConsistency`.
#[tokio::test(start_paused = true)]
async fn pods_that_change() -> Result<()> {
    check("scheduled", &[TAINTED, Start, plain(false), Bind("pod1")], &[]).await?;
    let tolerating = Step::Pod("pod1", false, &[(1, -1)]);
    check("scheduled, tolerating", &[TAINTED, Start, tolerating, Bind("pod1")], &["pod1"]).await?;
    let short = Step::Pod("pod1", true, &[(1, 1)]);
    check("a longer toleration", &[TAINTED, short, Start, Pass(200), Tolerate("pod1", 100), Pass(1000)], &[])
        .await?;
    let later: &[(usize, i64)] = &[(1, 100)];
    check(
        "existing",
        &[CLEAN, plain(true), Step::Pod("pod2", false, &[]), Start, TAINTED, Pass(100), Bind("pod2")],
        &[],
    )
    .await?;
    let waits = Step::Pod("pod2", false, later);
    check(
        "existing, tolerating",
        &[CLEAN, plain(true), waits, Start, TAINTED, Pass(100), Bind("pod2")],
        &["pod2"],
    )
    .await?;
    let new = |t| [CLEAN, plain(true), Start, TAINTED, Pass(100), Step::Pod("pod2", true, t)];
    check("new", &new(&[]), &[]).await?;
    check("new, tolerating", &new(later), &["pod2"]).await
}

/// Upstream's 3 cases of `TestCreateNode`, and the one of `TestDeleteNode`: the Pods of a node that is gone are another
/// controller's.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_and_go() -> Result<()> {
    check("a node", &[plain(true), Start, CLEAN], &["pod1"]).await?;
    check("a tainted node", &[plain(true), Start, TAINTED], &[]).await?;
    let tolerating = Step::Pod("pod1", true, &[(1, -1)]);
    check("a tolerating Pod", &[tolerating, Start, TAINTED], &["pod1"]).await?;
    let short = Step::Pod("pod1", true, &[(1, 1)]);
    check("the node goes", &[TAINTED, short, Start, Pass(100), NoNode, Pass(2000)], &["pod1"]).await
}

/// Upstream's 5 cases of `TestUpdateNode`, and its cases of `TestUpdateNodeWithMultipleTaints` and of
/// `TestUpdateNodeWithMultiplePods`.
#[tokio::test(start_paused = true)]
async fn nodes_that_change() -> Result<()> {
    let of = |t| Step::Pod("pod1", true, t);
    let added = |t, taints| [CLEAN, of(t), Start, Pass(100), Step::Node(taints)];
    check("a taint", &added(&[], &[1]), &[]).await?;
    check("a tolerated taint", &added(&[(1, 100)], &[1]), &["pod1"]).await?;
    check("one of two is tolerated", &added(&[(1, 100)], &[1, 2]), &[]).await?;
    check(
        "the taint is taken away",
        &[TAINTED, of(&[(1, 1)]), Start, Pass(100), CLEAN, Pass(1500)],
        &["pod1"],
    )
    .await?;
    let both = [&added(&[(1, 1), (2, 100)], &[1, 2])[..], &[Pass(1000)]].concat();
    check("the first toleration ends", &both, &[]).await?;
    // One taint is tolerated for ever, the other for a minute.
    let lasting = of(&[(1, -1), (2, 60)]);
    let minute = Pass(70_000);
    check("none", &[CLEAN, lasting, Start, minute], &["pod1"]).await?;
    check("for ever", &[CLEAN, lasting, Start, TAINTED, minute], &["pod1"]).await?;
    let two = Step::Node(&[1, 2]);
    check("for a minute", &[CLEAN, lasting, Start, two, Pass(50_000)], &["pod1"]).await?;
    check("the minute is over", &[CLEAN, lasting, Start, two, minute], &[]).await?;
    check("for ever again", &[CLEAN, lasting, Start, two, Pass(50_000), TAINTED, minute], &["pod1"]).await?;
    let three =
        [CLEAN, plain(true), Step::Pod("pod2", true, &[(1, 1)]), Step::Pod("pod3", true, &[(1, -1)]), Start];
    let then = |steps: &[Step]| [&three[..], &[Pass(100)], steps].concat();
    check("at once", &then(&[TAINTED]), &["pod2", "pod3"]).await?;
    check("each in its time", &then(&[TAINTED, Pass(1000)]), &["pod3"]).await?;
    check("all", &then(&[two]), &[]).await
}

/// Upstream's 2 cases of `TestPodDeletionEvent`.
#[tokio::test(start_paused = true)]
async fn evictions_are_told() -> Result<()> {
    let short = Step::Pod("test", true, &[(1, 1)]);
    for (steps, want) in [
        ([TAINTED, short, Start, Pass(2000)], "Marking for deletion Pod default/test"),
        ([TAINTED, short, Start, Pass(100)], "Cancelling deletion of Pod default/test"),
    ] {
        let cluster = run(&steps).await?;
        step(&cluster, CLEAN).await?;
        sleep(Duration::from_secs(5)).await;
        let events = cluster.list::<Event>("default").await?;
        let told = events.iter().filter(|e| e.reason.as_deref() == Some("TaintManagerEviction"));
        let told: Vec<_> = told.map(|e| (e.type_.as_deref(), e.message.as_deref(), e.count)).collect();
        assert_eq!(told, [(Some("Normal"), Some(want), Some(1))]);
        cluster.stop().await;
    }
    Ok(())
}
