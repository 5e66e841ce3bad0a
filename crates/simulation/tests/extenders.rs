//! Extenders, asked over real HTTP. Sockets know no simulated time, so these tests run in real time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Error, Result};
use client::Verb;
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler::config::read;
use scheduler::run::Settings;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{bare, condition, eventually, merge, pod};

/// As long as it takes on a slow machine.
const LONG: Duration = Duration::from_mins(2);

/// The questions that an extender got: the last part of the path, and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// The answer to a question, and its code.
type Answer = fn(&str, &Value) -> (u16, Value);

/// Reads one request: its path and its body; `None` at the end of the connection.
async fn request(stream: &mut TcpStream) -> Result<Option<(String, Value)>> {
    let mut read = Vec::new();
    loop {
        let mut some = [0; 4096];
        let n = stream.read(&mut some).await?;
        if n == 0 {
            return Ok(None);
        }
        read.extend_from_slice(some.get(..n).unwrap_or_default());
        let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let (head, body) = read.split_at(end + 4);
        let head = std::str::from_utf8(head)?.to_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
        if body.len() < length.context("a length")?.trim().parse()? {
            continue;
        }
        let path = head.split(' ').nth(1).context("a path")?;
        let verb = path.rsplit('/').next().context("a verb")?.to_owned();
        return Ok(Some((verb, serde_json::from_slice(body)?)));
    }
}

async fn serve(mut stream: TcpStream, asked: Asked, answer: Answer) -> Result<()> {
    while let Some((verb, body)) = request(&mut stream).await? {
        let (code, said) = answer(&verb, &body);
        if let Ok(mut asked) = asked.lock() {
            asked.push((verb, body));
        }
        let said = said.to_string();
        let head = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n", said.len());
        stream.write_all(format!("{head}{said}").as_bytes()).await?;
    }
    Ok(())
}

struct Run {
    cluster: Cluster,
    asked: Asked,
}

impl Run {
    /// Three nodes of two CPUs, and a scheduler with an extender of this configuration that answers like this.
    async fn start(config: Value, answer: Answer) -> Result<Self> {
        let cluster = bare().await?;
        for name in ["a", "b", "c"] {
            let room = json!({"cpu": "2", "pods": "9"});
            let status = json!({"allocatable": room, "capacity": room});
            cluster.put::<Node>(&json!({"metadata": {"name": name}, "status": status})).await?;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut extender = json!({"urlPrefix": format!("http://{}/extender", listener.local_addr()?)});
        merge(&mut extender, &config);
        let asked = Asked::default();
        let told = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let told = told.clone();
                tokio::spawn(async move { serve(stream, told, answer).await });
            }
        });
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "extenders": [extender],
        });
        let config = read::parse(config.to_string().as_bytes()).map_err(Error::msg)?;
        let plugins = scheduler::plugins::registry().map_err(Error::msg)?;
        cluster.faults().record();
        cluster.scheduler_with(Settings::new(&config, &plugins).map_err(Error::msg)?);
        Ok(Self { cluster, asked })
    }

    async fn pod(&self, name: &str, more: Value) -> Result<()> {
        let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
        let mut whole = pod(name, json!({"spec": {"tolerations": tolerations}}));
        merge(&mut whole, &more);
        self.cluster.put::<Pod>(&whole).await.map(drop)
    }

    fn asked(&self, verb: &str) -> Vec<Value> {
        let all = self.asked.lock().map(|all| all.clone()).unwrap_or_default();
        all.into_iter().filter(|(v, _)| v == verb).map(|(_, body)| body).collect()
    }

    async fn bound(&self, name: &str) -> Result<String> {
        let mut node = None;
        eventually(&format!("{name} has a node"), LONG, async || {
            let pod = self.cluster.get::<Pod>("default", name).await?;
            node = pod.and_then(|p| p.spec?.node_name);
            Ok(node.is_some())
        })
        .await?;
        node.context("a node")
    }

    async fn says(&self, name: &str, reason: &str, part: &str) -> Result<()> {
        eventually(&format!("{name}: {part}"), LONG, async || {
            let pod = self.cluster.get::<Pod>("default", name).await?;
            Ok(pod.as_ref().and_then(|p| condition(p, "PodScheduled")).is_some_and(|c| {
                c.reason.as_deref() == Some(reason) && c.message.as_deref().is_some_and(|m| m.contains(part))
            }))
        })
        .await
    }
}

#[tokio::test]
async fn nodes_are_filtered_and_scored_by_name() -> Result<()> {
    let config = json!({"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 100, "nodeCacheCapable": true});
    let run = Run::start(config, |verb, _| {
        let answer = match verb {
            "filter" => json!({"NodeNames": ["b", "c"], "FailedNodes": {"a": "not this one"}}),
            _ => json!([{"Host": "b", "Score": 1}, {"Host": "c", "Score": 10}]),
        };
        (200, answer)
    })
    .await?;
    run.pod("p", json!({})).await?;
    assert_eq!(run.bound("p").await?, "c");
    let filter = run.asked("filter");
    let mut names: Vec<&str> =
        filter[0]["NodeNames"].as_array().context("names")?.iter().filter_map(Value::as_str).collect();
    names.sort_unstable();
    assert_eq!((names, &filter[0]["Nodes"]), (vec!["a", "b", "c"], &Value::Null));
    assert_eq!(filter[0]["Pod"]["metadata"]["name"], "p");
    assert_eq!(run.asked("prioritize").len(), 1);
    Ok(())
}

#[tokio::test]
async fn nodes_are_filtered_whole() -> Result<()> {
    // Go's decoder takes field names in any case, and so do we.
    let run = Run::start(json!({"filterVerb": "filter"}), |_, question| {
        let nodes = question["Nodes"]["items"].as_array().cloned().unwrap_or_default();
        let only: Vec<Value> = nodes.into_iter().filter(|n| n["metadata"]["name"] == "b").collect();
        (200, json!({"nodes": {"items": only}, "failedNodes": {"a": "no"}}))
    })
    .await?;
    run.pod("p", json!({})).await?;
    assert_eq!(run.bound("p").await?, "b");
    assert_eq!(run.asked("filter")[0]["NodeNames"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn refusals_are_told() -> Result<()> {
    let run = Run::start(json!({"filterVerb": "filter", "nodeCacheCapable": true}), |_, _| {
        let failed = json!({"a": "no room", "b": "no room"});
        (200, json!({"NodeNames": [], "FailedNodes": failed, "FailedAndUnresolvableNodes": {"c": "never"}}))
    })
    .await?;
    run.pod("p", json!({})).await?;
    run.says("p", "Unschedulable", "0/3 nodes are available: 1 never, 2 no room.").await
}

#[tokio::test]
async fn an_extender_that_fails_is_needed_or_not() -> Result<()> {
    let down: Answer = |_, _| (500, json!({}));
    let run = Run::start(json!({"filterVerb": "filter"}), down).await?;
    run.pod("p", json!({})).await?;
    run.says("p", "SchedulerError", "failed filter with extender at URL http://127.0.0.1:").await?;
    let run = Run::start(json!({"filterVerb": "filter", "ignorable": true}), down).await?;
    run.pod("p", json!({})).await?;
    run.bound("p").await?;
    let run = Run::start(json!({"filterVerb": "filter"}), |_, _| (200, json!({"Error": "broken"}))).await?;
    run.pod("p", json!({})).await?;
    run.says("p", "SchedulerError", "broken").await
}

#[tokio::test]
async fn an_extender_binds_the_pods_that_want_its_resources() -> Result<()> {
    let managed = json!([{"name": "example.com/foo", "ignoredByScheduler": true}]);
    let config = json!({"bindVerb": "bind", "filterVerb": "filter", "nodeCacheCapable": true, "managedResources": managed});
    let run = Run::start(config, |verb, question| {
        if verb == "bind" { (200, json!({})) } else { (200, json!({"NodeNames": question["NodeNames"]})) }
    })
    .await?;
    // No node has the resource, and the scheduler does not look.
    let wants = json!({"requests": {"example.com/foo": "1"}, "limits": {"example.com/foo": "1"}});
    let containers = json!([{"name": "c", "image": "i", "resources": wants}]);
    run.pod("p", json!({"spec": {"containers": containers}})).await?;
    eventually("it is to bind the Pod", LONG, async || Ok(!run.asked("bind").is_empty())).await?;
    let asked = run.asked("bind");
    let made = run.cluster.get::<Pod>("default", "p").await?.context("the Pod")?;
    assert_eq!((&asked[0]["PodName"], &asked[0]["PodNamespace"]), (&json!("p"), &json!("default")));
    assert_eq!(asked[0]["PodUID"], json!(made.metadata.uid));
    assert!(["a", "b", "c"].contains(&asked[0]["Node"].as_str().context("a node")?));
    run.pod("plain", json!({})).await?;
    run.bound("plain").await?;
    let seen = run.cluster.faults().seen();
    let bound: Vec<&str> = seen
        .iter()
        .filter(|c| c.verb == Verb::Create && c.subresource == "binding")
        .map(|c| &*c.name)
        .collect();
    assert_eq!((bound, run.asked("filter").len()), (vec!["plain"], 1));
    Ok(())
}

/// Room could be made anywhere; the extender wants it on one node.
#[tokio::test]
async fn an_extender_chooses_among_victims() -> Result<()> {
    let run = Run::start(json!({"preemptVerb": "preempt"}), |_, question| {
        let victims = &question["NodeNameToVictims"]["b"];
        let pods = victims["Pods"].as_array().cloned().unwrap_or_default();
        let named: Vec<Value> = pods.iter().map(|p| json!({"UID": p["metadata"]["uid"]})).collect();
        (200, json!({"NodeNameToMetaVictims": {"b": {"Pods": named, "NumPDBViolations": 0}}}))
    })
    .await?;
    let classes = client::Resource {
        group: "scheduling.k8s.io".into(),
        version: "v1".into(),
        plural: "priorityclasses".into(),
    };
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9,
    });
    run.cluster.admin().resource::<Value>(classes, "").post::<Value, Value>("", "", &class).await?;
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]);
    for node in ["a", "b", "c"] {
        let spec = json!({"containers": containers, "nodeName": node});
        run.pod(&format!("on-{node}"), json!({"spec": spec})).await?;
    }
    run.pod("high", json!({"spec": {"containers": containers, "priorityClassName": "high"}})).await?;
    eventually("the victim goes", LONG, async || {
        let victim = run.cluster.get::<Pod>("default", "on-b").await?;
        Ok(victim.is_none_or(|v| v.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    for node in ["a", "c"] {
        let other = run.cluster.get::<Pod>("default", &format!("on-{node}")).await?.context("it stays")?;
        assert!(other.metadata.deletion_timestamp.is_none());
    }
    assert!(run.asked("preempt")[0]["Pod"]["metadata"]["name"] == "high");
    Ok(())
}
