//! Tests of the whole monitor against an API server in memory, on paused time.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::from_value;
use tokio::time::sleep;

use super::super::taints::{NO_EXECUTE, UNREACHABLE, has};
use super::*;
use crate::fake::{Cluster, Fault};

async fn started() -> Cluster {
    let cluster = Cluster::new();
    cluster.run::<Lifecycle>();
    cluster.follow().await;
    cluster
}

fn node(cluster: &Cluster, name: &str) {
    let node = json!({
        "metadata": {"name": name, "creationTimestamp": Time(cluster.clock.now())},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": Time(cluster.clock.now())}]},
    });
    cluster.fake.put::<Node>(&from_value(node).unwrap());
}

fn renew(cluster: &Cluster, name: &str) {
    let lease = json!({
        "metadata": {"name": name, "namespace": LEASES}, "spec": {"renewTime": MicroTime(cluster.clock.now())},
    });
    cluster.fake.put::<Lease>(&from_value(lease).unwrap());
}

/// Returns the readiness of each node, and whether its Pods go.
fn states(cluster: &Cluster) -> Vec<(String, bool)> {
    let nodes = cluster.fake.list::<Node>();
    nodes.iter().map(|n| (readiness(n).to_owned(), has(n, (UNREACHABLE, NO_EXECUTE)))).collect()
}

fn healthy(count: usize) -> Vec<(String, bool)> {
    vec![("True".to_owned(), false); count]
}

/// NTP, an operator or the resume of a machine sets the clock: every node stays as it is.
#[tokio::test(start_paused = true)]
async fn the_time_of_day_is_set() {
    let cluster = started().await;
    let names = ["a", "b", "c"];
    for name in names {
        node(&cluster, name);
    }
    for hours in [0, 1, -1, -1, 1, 24, -48] {
        cluster.clock.step(SignedDuration::from_hours(hours));
        for _ in 0..7 {
            for name in names {
                renew(&cluster, name);
            }
            sleep(Duration::from_secs(10)).await;
            assert_eq!(states(&cluster), healthy(3), "{hours}");
        }
    }
    let writes = cluster.fake.writes();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn silent_nodes_are_told_and_come_back() {
    let cluster = started().await;
    let names = ["a", "b", "c"];
    for name in names {
        node(&cluster, name);
    }
    let pod = json!({
        "metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "a", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    cluster.fake.put::<Pod>(&from_value(pod).unwrap());
    for _ in 0..7 {
        for name in ["b", "c"] {
            renew(&cluster, name);
        }
        sleep(Duration::from_secs(10)).await;
    }
    let mut want = healthy(3);
    want[0] = ("Unknown".to_owned(), true);
    assert_eq!(states(&cluster), want);
    assert!(
        objects::pod::condition(&cluster.fake.get("default", "p").unwrap(), "Ready").unwrap().status
            == "False"
    );
    assert!(cluster.fake.reasons().contains(&"NodeNotReady".to_owned()));
    node(&cluster, "a");
    renew(&cluster, "a");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(states(&cluster), healthy(3));
}

/// Requests about one node are never answered: the other nodes' Events, taints and Pods are handled all the same.
#[tokio::test(start_paused = true)]
async fn one_slow_node_holds_up_no_other() {
    let cluster = started().await;
    let names: Vec<String> = (0..40).map(|i| format!("n{i:02}")).collect();
    for name in &names {
        node(&cluster, name);
    }
    cluster.fake.fail(|call| (call.name == "n00" && call.resource.plural == "nodes").then_some(Fault::Hang));
    let silent = 12;
    for _ in 0..7 {
        for name in &names[silent..] {
            renew(&cluster, name);
        }
        sleep(Duration::from_secs(10)).await;
    }
    let told = |cluster: &Cluster| states(cluster).iter().filter(|s| s.0 == "Unknown").count();
    assert_eq!(told(&cluster), silent - 1);
    for name in &names {
        renew(&cluster, name);
        node(&cluster, name);
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!(states(&cluster), healthy(40));
    // Once the server answers again, the wanted changes are made.
    for _ in 0..7 {
        for name in &names[1..] {
            renew(&cluster, name);
        }
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(told(&cluster), 0);
    cluster.fake.fail(|_| None);
    for _ in 0..10 {
        for name in &names[1..] {
            renew(&cluster, name);
        }
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(states(&cluster)[0], ("Unknown".to_owned(), true));
    assert_eq!(told(&cluster), 1);
}
