//! `kill -9` on a node, its control plane and its runtime in one, at random moments while Pods come and go: every
//! container is adopted, none starts anew, no exit code is lost, and nothing stays of Pods that were removed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use client::{Api, ListParams};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testkit::{Cluster, Numbers, Signal};

use super::{account, client, container, holdings, name, node, number, phase, pod, until, with_grace};

/// The clients that make and remove Pods all the time.
const CLIENTS: u64 = 4;
/// Pods that stay.
const STAY: usize = 5;
/// Pods whose container ends again and again.
const AGAIN: &str = "again";
const CODE_OF_AGAIN: i32 = 7;

/// The things that all clients share.
struct Shared {
    kubeconfig: PathBuf,
    over: AtomicBool,
    /// Pods whose end was seen.
    ends: AtomicU64,
}

/// The end of a Pod's container: its code, and that it never began anew.
fn ended(pod: &Pod, code: i32) -> Result<()> {
    let status = container(pod).context("no status")?;
    let end =
        status.state.as_ref().and_then(|state| state.terminated.as_ref()).context("it has not ended")?;
    ensure!(end.exit_code == code, "{} should end with {code}: {status:?}", name(pod));
    ensure!(status.restart_count == 0, "{} began anew: {status:?}", name(pod));
    let expected = if code == 0 { "Succeeded" } else { "Failed" };
    ensure!(phase(pod) == expected, "{}: {:?}", name(pod), pod.status);
    Ok(())
}

/// Makes Pods, one after the other, and sees each to its end and away.
async fn lives(shared: &Shared, number: u64) -> Result<()> {
    let pods: Api<Pod> = client(&shared.kubeconfig)?.api("default");
    for round in 0_i32.. {
        if shared.over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (called, code) = (format!("p{number}-{round}"), round % 4);
        let script = format!("sleep 0.{}; exit {code}", round % 7);
        let volumes =
            json!({"restartPolicy": "Never", "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]});
        let of_container = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        let wanted = pod(&called, &script, &volumes, &of_container)?;
        until("the Pod is made", async || match pods.create(&wanted).await {
            Ok(_) => Ok(true),
            // The answer to an earlier request was lost.
            Err(status) if status.reason == "AlreadyExists" => Ok(true),
            Err(status) => Err(status.into()),
        })
        .await?;
        let mut wrong = None;
        until("the Pod's end", async || {
            let found = pods.get(&called).await?;
            if matches!(phase(&found), "Succeeded" | "Failed") {
                wrong = ended(&found, code).err();
                return Ok(true);
            }
            bail!("{:?}", found.status)
        })
        .await
        .context(called.clone())?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        shared.ends.fetch_add(1, Ordering::Relaxed);
        remove(&pods, &called, i64::from(round % 3)).await?;
    }
    Ok(())
}

/// Removes a Pod, and waits until it is gone.
async fn remove(pods: &Api<Pod>, called: &str, grace: i64) -> Result<()> {
    until("the Pod goes", async || match pods.delete(called, Some(&with_grace(grace))).await {
        Err(status) if status.code == 404 => Ok(true),
        Ok(()) => Ok(false),
        Err(status) => Err(status.into()),
    })
    .await
    .with_context(|| called.to_owned())
}

/// The facts that must not change about the Pods that stay: container, start, address; and the number of starts.
type Staying = BTreeMap<String, (String, String, i32)>;

async fn staying(pods: &Api<Pod>) -> Result<Staying> {
    let mut all = Staying::new();
    for pod in pods.list(&ListParams::default()).await?.items {
        if !name(&pod).starts_with("stay") {
            continue;
        }
        let status = container(&pod).context("no status")?;
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let since = running.and_then(|r| r.started_at.as_ref()).with_context(|| format!("{status:?}"))?;
        let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone()).context("no address")?;
        let id = status.container_id.clone().unwrap_or_default();
        all.insert(name(&pod).to_owned(), (id, format!("{} {address}", since.0), status.restart_count));
    }
    Ok(all)
}

/// Makes the Pods that live through all kills.
async fn make(kubeconfig: &std::path::Path) -> Result<Staying> {
    let client = client(kubeconfig)?;
    account(&client).await?;
    let pods: Api<Pod> = client.api("default");
    for number in 0..STAY {
        let script = "while :; do sleep 0.2; done";
        pods.create(&pod(&format!("stay{number}"), script, &json!({}), &json!({}))?).await?;
    }
    let script = format!("sleep 1; exit {CODE_OF_AGAIN}");
    pods.create(&pod(AGAIN, &script, &json!({}), &json!({}))?).await?;
    let mut found = Staying::new();
    until("the Pods that stay", async || {
        found = staying(&pods).await?;
        Ok(found.len() == STAY)
    })
    .await?;
    Ok(found)
}

/// Looks at the Pods that live through all kills, once the node is Ready again; `starts` are those of the one that ends
/// again and again.
async fn look(kubeconfig: &std::path::Path, before: &Staying, starts: &mut i32) -> Result<()> {
    let pods: Api<Pod> = client(kubeconfig)?.api("default");
    let now = staying(&pods).await?;
    ensure!(now == *before, "{before:?}\nthen {now:?}");
    let again = pods.get(AGAIN).await?;
    let status = container(&again).context("no status")?;
    ensure!(status.restart_count >= *starts, "{starts} starts, then {status:?}");
    *starts = status.restart_count;
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    ensure!(last.is_none_or(|end| end.exit_code == CODE_OF_AGAIN), "{status:?}");
    Ok(())
}

/// Kills the node and starts it again, and waits until its API server answers.
fn kill(cluster: &mut Cluster) -> Result<()> {
    cluster.stop_ferrokube(Signal::KILL)?;
    cluster.start_ferrokube()?;
    let kubeconfig = cluster.kubeconfig();
    cluster.host().inside()?.run(|| async {
        let pods: Api<Pod> = client(&kubeconfig)?.api("default");
        until("the API server", async || Ok(pods.get(AGAIN).await.map(|_| true)?)).await
    })
}

/// Kills the node at random moments, and looks after each whether all is as it was.
fn kills(
    cluster: &mut Cluster,
    shared: &Shared,
    before: &Staying,
    (kills, clients): (u64, &[JoinHandle<Result<()>>]),
) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let seed = number("FERROKUBE_NODE_KILL_SEED").unwrap_or(u64::from(now.subsec_nanos()) | 1);
    eprintln!("FERROKUBE_NODE_KILL_SEED={seed}");
    let (mut numbers, mut starts) = (Numbers::new(seed), 0);
    for at in 0..kills {
        std::thread::sleep(Duration::from_millis(numbers.below(1200)));
        kill(cluster).with_context(|| format!("kill {at}"))?;
        let network = cluster.host().inside()?;
        network
            .run(|| look(&shared.kubeconfig, before, &mut starts))
            .with_context(|| format!("after kill {at}"))?;
        // Its own error tells more.
        if clients.iter().any(JoinHandle::is_finished) {
            bail!("a client ended after kill {at}");
        }
    }
    Ok(())
}

#[test]
fn a_node_that_is_killed_at_any_moment_loses_and_leaves_nothing() -> Result<()> {
    let times = number("FERROKUBE_NODE_KILLS").unwrap_or(10);
    let mut cluster = node("killed")?;
    let network = cluster.host().inside()?;
    let kubeconfig = cluster.kubeconfig();
    // One Pod makes all that stays for good: links and tables.
    network.run(|| async {
        let client = client(&kubeconfig)?;
        account(&client).await?;
        let pods: Api<Pod> = client.api("default");
        pods.create(&pod(AGAIN, "exit 0", &json!({}), &json!({}))?).await?;
        until("a first Pod", async || Ok(container(&pods.get(AGAIN).await?).is_some())).await?;
        remove(&pods, AGAIN, 0).await
    })?;
    let had = holdings::without_pods(&cluster)?;
    let before = network.run(|| make(&kubeconfig))?;
    let over = AtomicBool::new(false);
    let shared = Arc::new(Shared { kubeconfig: kubeconfig.clone(), over, ends: AtomicU64::new(0) });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (shared, network) = (Arc::clone(&shared), cluster.host().inside()?);
            Ok(std::thread::spawn(move || network.run(|| lives(&shared, number))))
        })
        .collect::<Result<_>>()?;
    let killed = kills(&mut cluster, &shared, &before, (times, &clients));
    // Each client sees the Pod to its end that it has.
    shared.over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().ok().context("a client panicked")??;
    }
    killed?;
    cluster.wait_ready()?;
    network.run(|| async {
        let pods: Api<Pod> = client(&kubeconfig)?.api("default");
        for called in before.keys().map(String::as_str).chain([AGAIN]) {
            remove(&pods, called, 0).await?;
        }
        Ok(())
    })?;
    holdings::are_again(&cluster, &had)?;
    eprintln!("{} Pods were seen to their end over {times} kills", shared.ends.load(Ordering::Relaxed));
    Ok(())
}
