//! Pods of all kinds come and go: nothing stays on the machine, and memory does not grow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::{Api, Client, ListParams};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use serde_json::json;
use testkit::{Network, eventually};

use super::{account, client, container, holdings, node, number, phase, pod, until, with_grace};

/// The rounds of a run that has no time to fill.
const ROUNDS: usize = 3;
/// The fewest rounds that tell whether memory grows.
const MANY_ROUNDS: usize = 12;
/// Requests at once.
const AT_ONCE: usize = 16;

/// A Pod of one of the kinds, and all of them in turn.
fn of_kind(number: usize) -> Result<Pod> {
    let name = format!("p{number}");
    let waits = "while :; do sleep 1; done";
    match number % 6 {
        0 => pod(&name, &format!("trap 'exit 0' TERM; {waits}"), &json!({}), &json!({})),
        1 => {
            let init = json!([{"name": "i", "image": super::IMAGE, "command": ["true"]}]);
            pod(&name, "exit 0", &json!({"restartPolicy": "Never", "initContainers": init}), &json!({}))
        }
        2 => {
            let volumes = json!([
                {"name": "memory", "emptyDir": {"medium": "Memory"}}, {"name": "map", "configMap": {"name": "map"}},
                {"name": "secret", "secret": {"secretName": "secret"}}, {"name": "disk", "emptyDir": {}}]);
            let mounts = json!([
                {"name": "memory", "mountPath": "/memory"}, {"name": "map", "mountPath": "/map"},
                {"name": "secret", "mountPath": "/secret/key", "subPath": "key"}, {"name": "disk", "mountPath": "/disk"}]);
            let script = format!("cat /map/key /secret/key > /disk/read || exit 1; {waits}");
            pod(&name, &script, &json!({"volumes": volumes}), &json!({"volumeMounts": mounts}))
        }
        3 => {
            let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
            let hooks = json!({"preStop": {"exec": {"command": ["true"]}}});
            pod(&name, waits, &json!({}), &json!({"livenessProbe": probe, "lifecycle": hooks}))
        }
        4 => pod(&name, "echo it fails; exit 3", &json!({"restartPolicy": "OnFailure"}), &json!({})),
        _ => {
            let sidecar = json!([{"name": "s", "image": super::IMAGE, "restartPolicy": "Always",
                "command": ["sh", "-c", waits]}]);
            pod(&name, waits, &json!({"initContainers": sidecar}), &json!({}))
        }
    }
}

/// Whether a Pod has come as far as its kind does.
fn has_come(pod: &Pod) -> bool {
    let restarted = container(pod).is_some_and(|status| status.restart_count > 0);
    let number = super::name(pod).strip_prefix('p').and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
    match number % 6 {
        1 => phase(pod) == "Succeeded",
        4 => restarted,
        _ => phase(pod) == "Running" && container(pod).is_some_and(|status| status.ready),
    }
}

/// Makes so many Pods, sees all of them come, and removes them.
async fn round(client: &Client, count: usize) -> Result<()> {
    let pods: Api<Pod> = client.api("default");
    let all: Vec<Pod> = (0..count).map(of_kind).collect::<Result<_>>()?;
    let create = |pod| {
        let pods = &pods;
        async move { pods.create(&pod).await }
    };
    stream::iter(all.into_iter().map(create))
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    until("all Pods", async || {
        let listed = pods.list(&ListParams::default()).await?.items;
        let missing: Vec<_> = listed.iter().filter(|p| !has_come(p)).map(super::name).collect();
        ensure!(missing.is_empty(), "{missing:?}");
        Ok(listed.len() == count)
    })
    .await?;
    pods.delete_collection(Some(&with_grace(1)), &ListParams::default()).await?;
    until("no Pod", async || Ok(pods.list(&ListParams::default()).await?.items.is_empty())).await?;
    // Else an hour's events would be the growth of memory.
    let events: Api<Event> = client.api("default");
    Ok(events.delete_collection(None, &ListParams::default()).await?)
}

/// The things that Pods of some kinds mount.
async fn sources(client: &Client) -> Result<()> {
    account(client).await?;
    let maps: Api<ConfigMap> = client.api("default");
    maps.create(&serde_json::from_value(json!({"metadata": {"name": "map"}, "data": {"key": "a"}}))?).await?;
    let secrets: Api<Secret> = client.api("default");
    let secret = json!({"metadata": {"name": "secret"}, "stringData": {"key": "b"}});
    secrets.create(&serde_json::from_value(secret)?).await?;
    Ok(())
}

/// The anonymous memory of a process, in KiB.
fn memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Memory is flat: a tenth of change and some MiB are the allocator's, whatever comes and goes.
fn is_flat(rounds: &[u64]) -> Result<()> {
    let third = rounds.len() / 3;
    let (first, last) = (median(&rounds[..third]), median(&rounds[rounds.len() - third..]));
    ensure!(last <= first + first / 10 + 4096, "from {first} to {last} KiB: {rounds:?}");
    Ok(())
}

#[test]
fn pods_come_and_go_and_leave_nothing() -> Result<()> {
    let count = number("FERROKUBE_PODS").map_or(Ok(24), usize::try_from)?;
    let time = number("FERROKUBE_POD_SECONDS").map(Duration::from_secs);
    let cluster = node("churn")?;
    let network: Network = cluster.host().inside()?;
    let (kubeconfig, pid) = (cluster.kubeconfig(), cluster.pid()?);
    let one = || network.run(|| async { round(&client(&kubeconfig)?, count).await });
    network.run(|| async { sources(&client(&kubeconfig)?).await })?;
    // The first round makes all that stays for good: links, tables, pools.
    one()?;
    let before = holdings::without_pods(&cluster)?;
    let files = holdings::open_files(&cluster)?;
    let (began, mut used) = (Instant::now(), Vec::new());
    while time.map_or(used.len() < ROUNDS, |time| began.elapsed() < time) {
        one()?;
        used.push(memory(pid)?);
    }
    let pods = used.len() * count;
    eprintln!(
        "{pods} Pods in {:.0} s; memory after each round, KiB: {used:?}",
        began.elapsed().as_secs_f64()
    );
    holdings::are_again(&cluster, &before)?;
    eventually("no more open files than before", || {
        let now = holdings::open_files(&cluster)?;
        let more: Vec<_> =
            now.iter().filter(|(name, count)| **count > files.get(*name).map_or(0, |n| *n)).collect();
        ensure!(more.is_empty(), "{more:?}, before {files:?}");
        Ok(Some(()))
    })?;
    if used.len() >= MANY_ROUNDS { is_flat(&used) } else { Ok(()) }
}

#[test]
fn growing_memory_is_seen() {
    let grows: Vec<u64> = (0..30).map(|round| 40_000 + round * 1000).collect();
    assert!(is_flat(&grows).is_err());
    let swings: Vec<u64> = (0..30).map(|round| 40_000 + round % 4 * 1000).collect();
    is_flat(&swings).unwrap();
}
