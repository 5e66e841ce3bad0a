//! Many writers against a quota: no more passes than it allows, and no less.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::{Api, Client, Config, ListParams, Remote};
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use serde_json::{Value, json};
use testkit::{Etcd, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const WRITERS: usize = 64;
const LIMIT: usize = 100;
const NAME: &str = "maps";
/// The name under which the writers' objects count; nobody else makes any.
const COUNT: &str = "count/configmaps";

fn client(server: &Server) -> Result<Client> {
    let remote = Remote::new(Config::from_kubeconfig(&server.path("kubeconfig"), None)?)?;
    Ok(Client::new(Arc::new(remote), "test"))
}

fn quota(limit: usize) -> Result<ResourceQuota> {
    let quota = json!({"metadata": {"name": NAME, "namespace": "busy"},
        "spec": {"hard": {COUNT: limit.to_string()}}});
    Ok(serde_json::from_value(quota)?)
}

/// Makes ConfigMaps until the quota refuses one; returns the number of those that were made.
async fn write(api: Api<ConfigMap>, prefix: String) -> Result<usize> {
    let mut made = 0;
    for n in 0.. {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("{prefix}-{n}"));
        match api.create(&object).await {
            Ok(_) => made += 1,
            Err(e) if e.message.contains("exceeded quota") => break,
            // Another server has reserved meanwhile.
            Err(e) if e.is_conflict() => {}
            Err(e) => return Err(e).with_context(|| format!("{prefix}-{n}")),
        }
    }
    Ok(made)
}

/// Lets writers work on servers until they are refused; returns the number of objects that were made.
async fn writers(clients: &[Client], round: &str) -> Result<usize> {
    let mut all = JoinSet::new();
    for n in 0..WRITERS {
        let client = &clients[n % clients.len()];
        all.spawn(write(client.api("busy"), format!("{round}{n}")));
    }
    let mut made = 0;
    while let Some(one) = all.join_next().await {
        made += one??;
    }
    Ok(made)
}

async fn objects(client: &Client) -> Result<Vec<String>> {
    let all = client.api::<ConfigMap>("busy").list(&ListParams::default()).await?.items;
    Ok(all.into_iter().filter_map(|o| o.metadata.name).collect())
}

async fn used(client: &Client) -> Result<Value> {
    let quota = client.api::<ResourceQuota>("busy").get(NAME).await?;
    Ok(json!(quota.status.and_then(|s| s.used)))
}

/// Waits until so much is used.
async fn until_used(client: &Client, count: usize) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(30);
    let want = json!({COUNT: count.to_string()});
    loop {
        let used = used(client).await?;
        if used == want {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{used} is used, not {want}");
        sleep(Duration::from_millis(20)).await; // the pace of looking
    }
}

async fn namespace(client: &Client) -> Result<()> {
    let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
    namespace.metadata.name = Some("busy".to_owned());
    client.api("").create(&namespace).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_on_one_server() -> Result<()> {
    let server = Server::start_as("server", &[])?;
    let clients = [client(&server)?];
    let [client] = &clients;
    namespace(client).await?;
    // The controllers publish the authority in every namespace.
    let published = async {
        while objects(client).await?.is_empty() {
            sleep(Duration::from_millis(20)).await; // the pace of looking
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(30), published).await??;
    client.api("busy").create(&quota(LIMIT + 1)?).await?;
    until_used(client, 1).await?;
    ensure!(writers(&clients, "a").await? == LIMIT, "{:?}", used(client).await?);
    ensure!(objects(client).await?.len() == LIMIT + 1);
    // Objects that go make room.
    let api = client.api::<ConfigMap>("busy");
    for name in objects(client).await?.iter().filter(|name| name.starts_with('a')).take(10) {
        api.delete(name, None).await?;
    }
    until_used(client, LIMIT + 1 - 10).await?;
    ensure!(writers(&clients, "b").await? == 10);
    ensure!(objects(client).await?.len() == LIMIT + 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_on_two_servers() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let servers = format!("--etcd-servers={}", etcd.urls().join(","));
    let (a, b) = (Server::start(&[&servers])?, Server::start(&[&servers])?);
    let clients = [client(&a)?, client(&b)?];
    namespace(&clients[0]).await?;
    // There are no controllers: the quota begins with nothing used.
    let api = clients[0].api::<ResourceQuota>("busy");
    let mut made = api.create(&quota(LIMIT)?).await?;
    made.status = serde_json::from_value(json!({"hard": {COUNT: LIMIT.to_string()}, "used": {COUNT: "0"}}))?;
    api.update_status(&made).await?;
    until_used(&clients[1], 0).await?;
    let made = writers(&clients, "w").await?;
    ensure!(made == LIMIT, "{made} were made");
    ensure!(objects(&clients[1]).await?.len() == LIMIT);
    until_used(&clients[0], LIMIT).await?;
    until_used(&clients[1], LIMIT).await
}
