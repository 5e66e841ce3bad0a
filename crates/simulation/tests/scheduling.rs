//! The scheduler's loop where the server refuses, is slow, or changes its mind meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};
use api::Status;
use client::{Call, Patch, Resource, Verb};
use ferrokube_simulation::{Cluster, Fault, Gate, Rule};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{bare, eventually, merge};

/// Longer than any back-off and any wait.
const LONG: Duration = Duration::from_mins(6);

struct Run(Cluster);

/// Which requests are meant.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Bind,
    Status,
    Delete,
}

impl Asked {
    fn rule(self, fault: Fault, pod: &str) -> Rule {
        let rule = Rule::new(fault).resource("pods").name(pod);
        match self {
            Self::Bind => rule.subresource("binding"),
            Self::Status => rule.subresource("status"),
            Self::Delete => rule.verb(Verb::Delete),
        }
    }
    fn is(self, call: &Call, pod: &str) -> bool {
        let right = match self {
            Self::Bind => call.subresource == "binding",
            Self::Status => call.subresource == "status",
            Self::Delete => call.verb == Verb::Delete,
        };
        right && call.resource.plural == "pods" && call.name == pod
    }
}

/// A Pod that asks for two CPUs. Its class gives it its priority.
fn pod(name: &str, priority: u32, more: Value) -> Value {
    // New nodes are tainted until they are ready.
    let tolerates =
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "tolerations": [tolerates],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
        },
    });
    if priority > 0 {
        pod["spec"]["priorityClassName"] = json!(format!("class-{priority}"));
    }
    merge(&mut pod, &more);
    pod
}

fn node(cpu: &str, taints: Value) -> Value {
    let room = json!({"cpu": cpu, "pods": "9"});
    json!({
        "metadata": {"name": "n"}, "spec": {"taints": taints},
        "status": {"allocatable": room, "capacity": room},
    })
}

impl Run {
    /// Starts the scheduler in a cluster with these nodes and Pods.
    async fn with(nodes: &[Value], pods: &[Value]) -> Result<Self> {
        let run = Self::prepared(nodes, pods).await?;
        run.schedule().await?;
        Ok(run)
    }

    /// A cluster with these nodes and Pods, whose scheduler does not run yet.
    async fn prepared(nodes: &[Value], pods: &[Value]) -> Result<Self> {
        let cluster = bare().await?;
        let classes = Resource {
            group: "scheduling.k8s.io".into(),
            version: "v1".into(),
            plural: "priorityclasses".into(),
        };
        for priority in [1, 5, 9] {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": format!("class-{priority}")}, "value": priority,
            });
            let classes = cluster.admin().resource::<Value>(classes.clone(), "");
            classes.post::<Value, Value>("", "", &class).await?;
        }
        for node in nodes {
            cluster.put::<Node>(node).await?;
        }
        for pod in pods {
            cluster.put::<Pod>(pod).await?;
        }
        Ok(Self(cluster))
    }

    async fn schedule(&self) -> Result<()> {
        self.0.faults().record();
        self.0.scheduler();
        self.watches("pods", 1).await
    }

    async fn watches(&self, plural: &str, count: usize) -> Result<()> {
        eventually("watches", LONG, async || {
            let seen = self.0.faults().seen();
            Ok(seen.iter().filter(|c| c.verb == Verb::Watch && c.resource.plural == plural).count() >= count)
        })
        .await
    }

    async fn put_pod(&self, pod: &Value) -> Result<()> {
        self.0.put::<Pod>(pod).await.map(drop)
    }
    async fn put_node(&self, node: &Value) -> Result<()> {
        self.0.put::<Node>(node).await.map(drop)
    }
    async fn take(&self, pod: &str) -> Result<()> {
        self.0.take::<Pod>("default", pod).await
    }

    /// Holds the next such request.
    fn hold(&self, what: Asked, pod: &str) -> Gate {
        self.0.faults().hold(|fault| what.rule(fault, pod))
    }
    /// The bodies of such requests so far.
    fn asked(&self, what: Asked, pod: &str) -> Vec<String> {
        let seen = self.0.faults().seen();
        let asked = seen.iter().filter(|c| what.is(c, pod));
        asked.map(|c| String::from_utf8_lossy(&c.body).into_owned()).collect()
    }
    /// Waits for so many of these requests; the body of the last of them.
    async fn asks(&self, what: Asked, pod: &str, count: usize) -> Result<String> {
        eventually(&format!("{count} times {what:?} {pod}"), 4 * LONG, async || {
            Ok(self.asked(what, pod).len() >= count)
        })
        .await?;
        self.asked(what, pod).into_iter().nth(count - 1).context("it came")
    }
    /// Waits until a Pod has a node.
    async fn bound(&self, pod: &str) -> Result<()> {
        eventually(&format!("{pod} is bound"), 4 * LONG, async || {
            let found = self.0.get::<Pod>("default", pod).await?;
            Ok(found.and_then(|p| p.spec?.node_name).is_some())
        })
        .await
    }
}

fn down() -> Result<(), Status> {
    Err(Status::failure(500, "InternalError", "down"))
}

#[tokio::test(start_paused = true)]
async fn a_failed_binding_puts_back_the_pod_as_it_is_now() -> Result<()> {
    let run = Run::with(&[node("4", json!([]))], &[]).await?;
    let answer = run.hold(Asked::Bind, "p");
    run.put_pod(&pod("p", 0, json!({}))).await?;
    run.asks(Asked::Bind, "p", 1).await?;
    // Meanwhile the Pod learns to tolerate what nobody tolerated before.
    let now = run.0.get::<Pod>("default", "p").await?.and_then(|p| p.spec).context("the Pod")?;
    let mut tolerations = json!(now.tolerations);
    tolerations.as_array_mut().context("tolerations")?.push(json!({"key": "t", "operator": "Exists"}));
    let patch = Patch::Merge(json!({"spec": {"tolerations": tolerations}}));
    run.0.admin().api::<Pod>("default").patch("p", &patch).await?;
    run.put_node(&node("4", json!([{"key": "t", "effect": "NoSchedule"}]))).await?;
    sleep(Duration::from_secs(1)).await;
    answer.open(down());
    let said = run.asks(Asked::Status, "p", 1).await?;
    assert!(said.contains("running Bind plugin \\\"DefaultBinder\\\": down"), "{said}");
    assert!(said.contains("SchedulerError"), "{said}");
    run.bound("p").await?;
    assert_eq!(run.asked(Asked::Bind, "p").len(), 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_meanwhile_does_not_come_back() -> Result<()> {
    let run = Run::with(&[node("4", json!([]))], &[]).await?;
    let answer = run.hold(Asked::Bind, "p");
    run.put_pod(&pod("p", 0, json!({}))).await?;
    run.asks(Asked::Bind, "p", 1).await?;
    run.take("p").await?;
    sleep(Duration::from_secs(1)).await;
    answer.open(down());
    sleep(LONG).await;
    assert_eq!((run.asked(Asked::Bind, "p").len(), run.asked(Asked::Status, "p").len()), (1, 0));
    // The room that was held for it is free.
    let all = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]);
    run.put_pod(&pod("q", 0, json!({"spec": {"containers": all}}))).await?;
    run.bound("q").await
}

#[tokio::test(start_paused = true)]
async fn an_older_reason_does_not_take_the_place_of_a_newer_one() -> Result<()> {
    let run = Run::with(&[], &[pod("p", 0, json!({}))]).await?;
    run.asks(Asked::Status, "p", 1).await?;
    let first = run.hold(Asked::Status, "p");
    run.put_node(&node("1", json!([]))).await?;
    let said = run.asks(Asked::Status, "p", 2).await?;
    assert!(said.contains("Insufficient cpu"), "{said}");
    let taint = json!([{"key": "t", "effect": "NoSchedule"}]);
    run.put_node(&node("1", taint.clone())).await?;
    run.put_node(&node("3", taint)).await?;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(run.asked(Asked::Status, "p").len(), 2, "the newer one waits");
    first.open(Ok(()));
    let said = run.asks(Asked::Status, "p", 3).await?;
    assert!(said.contains("untolerated taint"), "{said}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reason_is_not_written_after_the_binding() -> Result<()> {
    let run = Run::with(&[node("1", json!([]))], &[]).await?;
    let first = run.hold(Asked::Status, "p");
    run.put_pod(&pod("p", 0, json!({}))).await?;
    run.asks(Asked::Status, "p", 1).await?;
    run.put_node(&node("4", json!([]))).await?;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(run.asked(Asked::Bind, "p").len(), 0, "its condition is on its way");
    first.open(Ok(()));
    run.bound("p").await?;
    assert_eq!(run.asked(Asked::Status, "p").len(), 1);
    Ok(())
}

fn on_node() -> Value {
    json!({"spec": {"nodeName": "n"}})
}

fn nominated() -> Value {
    json!({"status": {"nominatedNodeName": "n"}})
}

#[tokio::test(start_paused = true)]
async fn nominations_are_read_at_the_start() -> Result<()> {
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
    let mut victim = on_node();
    victim["status"] = json!({ "conditions": [target] });
    let pods = [pod("victim", 1, victim), pod("high", 9, nominated())];
    let run = Run::prepared(&[node("2", json!([]))], &pods).await?;
    run.0.admin().api::<Pod>("default").delete("victim", None).await?;
    run.schedule().await?;
    let said = run.asks(Asked::Status, "high", 1).await?;
    assert!(said.contains("not eligible due to a terminating pod on the nominated node"), "{said}");
    // The room is free, and the one it was made for backs off still: nobody else may have it.
    run.take("victim").await?;
    run.put_pod(&pod("low", 0, json!({}))).await?;
    run.bound("high").await?;
    assert_eq!(run.asked(Asked::Bind, "low").len(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_nomination_that_no_longer_holds_is_cleared() -> Result<()> {
    let run = Run::with(&[node("1", json!([]))], &[pod("high", 9, nominated())]).await?;
    let said = run.asks(Asked::Status, "high", 1).await?;
    assert!(said.contains(r#""nominatedNodeName":null"#), "{said}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_more_important_preemptor_takes_the_nomination_over() -> Result<()> {
    let mut waiting = nominated();
    waiting["spec"] = json!({"schedulingGates": [{"name": "g"}]});
    let pods = [pod("victim", 1, on_node()), pod("mid", 5, waiting)];
    let run = Run::with(&[node("2", json!([]))], &pods).await?;
    run.put_pod(&pod("high", 9, json!({}))).await?;
    let said = run.asks(Asked::Status, "high", 1).await?;
    assert!(said.contains(r#""nominatedNodeName":"n""#), "{said}");
    let said = run.asks(Asked::Status, "mid", 1).await?;
    assert!(said.contains(r#""status":{"nominatedNodeName":null}"#), "{said}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_can_not_be_deleted_makes_the_preemptor_look_anew() -> Result<()> {
    let run = Run::with(&[node("2", json!([]))], &[pod("victim", 1, on_node())]).await?;
    let first = run.hold(Asked::Delete, "victim");
    run.put_pod(&pod("high", 9, json!({}))).await?;
    run.asks(Asked::Delete, "victim", 1).await?;
    let said = run.asked(Asked::Status, "victim").into_iter().next().context("it is marked before")?;
    assert!(said.contains("DisruptionTarget") && said.contains("PreemptionByScheduler"), "{said}");
    run.put_node(&node("2", json!([{"key": "t", "effect": "PreferNoSchedule"}]))).await?;
    sleep(Duration::from_secs(30)).await;
    let tries = run.asked(Asked::Delete, "victim").len();
    assert_eq!(tries, 1, "it is not tried while its victims are being deleted");
    first.open(down());
    run.asks(Asked::Delete, "victim", 2).await?;
    run.take("victim").await?;
    run.bound("high").await
}

/// A preemptor that is tried before its victim is seen to go would make room once more, on another node if there is one.
#[tokio::test(start_paused = true)]
async fn a_victim_is_waited_for_until_it_is_seen_to_go() -> Result<()> {
    let run = Run::with(&[node("2", json!([]))], &[pod("victim", 1, on_node())]).await?;
    let first = run.hold(Asked::Delete, "victim");
    run.put_pod(&pod("high", 9, json!({}))).await?;
    run.asks(Asked::Delete, "victim", 1).await?;
    run.0.faults().hold_events("pods");
    first.open(Ok(()));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(run.asked(Asked::Delete, "victim").len(), 1);
    run.0.faults().let_events_come("pods");
    run.take("victim").await?;
    run.bound("high").await
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_can_not_be_marked_is_not_deleted() -> Result<()> {
    let run = Run::with(&[node("2", json!([]))], &[pod("victim", 1, on_node())]).await?;
    let mark = run.hold(Asked::Status, "victim");
    run.put_pod(&pod("high", 9, json!({}))).await?;
    run.asks(Asked::Status, "victim", 1).await?;
    mark.open(down());
    run.asks(Asked::Delete, "victim", 1).await?;
    assert_eq!(run.asked(Asked::Status, "victim").len(), 2, "only after it was marked");
    Ok(())
}

/// The informer reads the state anew, and finds another Pod of the name.
#[tokio::test(start_paused = true)]
async fn a_pod_made_anew_is_another_one() -> Result<()> {
    let run = Run::with(&[node("2", json!([]))], &[pod("p", 0, on_node())]).await?;
    sleep(Duration::from_secs(1)).await;
    let again = run.0.faults().hold(|fault| Rule::new(fault).resource("pods").verb(Verb::Watch));
    run.0.faults().end_watches("pods");
    run.watches("pods", 2).await?;
    run.take("p").await?;
    run.put_pod(&pod("p", 0, json!({}))).await?;
    again.open(Err(Status::failure(410, "Expired", "too old")));
    // The one before has left its room.
    run.bound("p").await
}

/// A Pod that the server would not let in any more is in the first state.
#[tokio::test(start_paused = true)]
async fn an_error_costs_one_pod_its_turn() -> Result<()> {
    let cluster = bare().await?;
    cluster.put::<Node>(&node("4", json!([]))).await?;
    let plain = cluster.put::<Pod>(&pod("plain", 0, json!({}))).await?;
    let revision = plain.metadata.resource_version.clone();
    let mut odd = pod("odd", 0, json!({"metadata": {"uid": "odd", "resourceVersion": "1"}}));
    odd["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"{{.bad.}}": "v"}},
    }]);
    odd["spec"]["priority"] = json!(9);
    let list = json!({"metadata": {"resourceVersion": revision}, "items": [odd, plain]});
    let no_list = Fault::Refuse(Status::failure(422, "Invalid", "sendInitialEvents is forbidden"));
    cluster.faults().add(Rule::new(no_list).resource("pods").verb(Verb::Watch).times(1));
    cluster.faults().add(Rule::new(Fault::Answer(list)).resource("pods").verb(Verb::List).times(1));
    cluster.faults().record();
    cluster.scheduler();
    let run = Run(cluster);
    run.bound("plain").await?;
    let said = run.asks(Asked::Status, "odd", 1).await?;
    assert!(said.contains("SchedulerError"), "{said}");
    assert!(said.contains("obtaining pod's hard topology spread constraints: key: Invalid value"), "{said}");
    assert_eq!(run.asked(Asked::Bind, "odd").len(), 0);
    Ok(())
}
