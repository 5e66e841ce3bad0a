//! The cluster's DNS on this node: the objects by which clients know it, its address on this machine, and the server.
//!
//! Each node answers for itself: the Service's address is one of the machine's own, so that a Pod's question goes no
//! further than its node and needs no rule of a proxy. The Service `kube-dns` is there for clients that look for it; its
//! label `service.kubernetes.io/service-proxy-name` tells every Service proxy to leave it alone.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use api::Status;
use client::{Backoff, Client, ListParams};
use component::Shutdown;
use dns::{Name, ResolvConf, Upstreams};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use netlink::{Address, Routing};
use objects::Cidr;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::introduce::create;
use crate::joining::dns_account;
use crate::seat::Seat;

/// The domain of the cluster.
const DOMAIN: &str = "cluster.local";
/// The namespace of the Service.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The name of the Service, upstream's.
pub(crate) const SERVICE: &str = "kube-dns";
/// The label that Service proxies obey, and our value.
const PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";
const PROXY: &str = "ferrokube-dns";
/// CoreDNS' ports of `/health`, `/ready` and `/metrics`.
const HEALTH_PORT: u16 = 8080;
const READY_PORT: u16 = 8181;
const METRICS_PORT: u16 = 9153;

/// The place of the cluster's DNS address in the Services' range, as elsewhere.
const ADDRESS: u32 = 10;

/// The addresses of the cluster's DNS, by the ranges of Services.
pub(crate) fn dns_of(service_cidrs: &[String]) -> Result<Vec<IpAddr>> {
    service_cidrs.iter().map(|range| address_in(range)).collect()
}

/// The address of the cluster's DNS in a range of Services.
pub(crate) fn address_in(range: &str) -> Result<IpAddr> {
    let address = range.parse::<Cidr>().ok().and_then(|range| range.nth(ADDRESS));
    address.with_context(|| format!("{range:?} is no range of addresses, such as 10.96.0.0/16"))
}

/// The settings.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Its addresses, one of each family of Services at most; the first is that of the default family.
    pub(crate) addresses: Vec<IpAddr>,
    /// The blocks of the cluster's own addresses.
    pub(crate) blocks: Vec<Cidr>,
    /// The file that names the servers for other names.
    pub(crate) resolv_conf: PathBuf,
}

/// Starts the server once the API server has the objects. A reason not to is told; the node goes on without.
pub(crate) fn start(settings: Settings, seat: &Seat<'_>) {
    let (admin, clients) = (seat.admin.clone(), (seat.clients)("dns"));
    let (clock, shutdown) = (seat.clock, seat.shutdown.clone());
    seat.shutdown.spawn(async move {
        let begin = async {
            match &admin {
                Some(admin) => introduce(admin, &settings.addresses, &shutdown).await?,
                // The control plane made the objects, or leaves the Service to another server.
                None => find(&clients.of(dns::USER), &settings.addresses, &shutdown).await?,
            }
            let given = settings.addresses.clone();
            tokio::task::spawn_blocking(move || give_addresses(&given)).await??;
            let config = config(&settings)?;
            dns::run(config, &clients, clock, &shutdown).await.map_err(anyhow::Error::from)
        };
        match shutdown.run(begin).await {
            // It answers until the shutdown that it was given.
            Some(Ok(server)) => {
                shutdown.wait().await;
                drop(server);
            }
            Some(Err(error)) => tracing::error!("the cluster's DNS does not run on this node: {error:#}"),
            None => {}
        }
    });
}

/// Makes the Service and the account for the nodes of a control plane that has no node itself.
pub(crate) fn announce(addresses: Vec<IpAddr>, plane: &ControlPlane) {
    let (admin, shutdown) = (plane.admin(), plane.shutdown().clone());
    plane.shutdown().spawn(async move {
        if let Some(Err(error)) = shutdown.run(introduce(&admin, &addresses, &shutdown)).await {
            tracing::error!("the cluster's DNS has no Service: {error:#}");
        }
    });
}

/// Makes the Service and the account on a control plane that is not FerroKube's; the ranges of Services' addresses there.
/// Fails if another server has the Service.
pub(crate) async fn account(admin: &Client) -> Result<Vec<String>> {
    let told = |status: Status| anyhow!("{}", status.message);
    // Upstream's object of the flag `--service-cluster-ip-range`.
    let ranges = admin.api::<ServiceCIDR>("").get("kubernetes").await.map_err(told)?;
    let ranges = ranges.spec.map(|spec| spec.cidrs.unwrap_or_default()).unwrap_or_default();
    match introduce_once(admin, &dns_of(&ranges)?).await {
        Ok(()) => Ok(ranges),
        Err(Refusal::Final(why)) => bail!("{why}; leave dns out of the parts"),
        Err(Refusal::Status(status)) => Err(told(status)),
    }
}

/// Waits until the Service is there. Fails if another server has it.
async fn find(client: &Client, addresses: &[IpAddr], shutdown: &Shutdown) -> Result<()> {
    let params = ListParams { field_selector: format!("metadata.name={SERVICE}"), ..ListParams::default() };
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        match client.api::<Service>(NAMESPACE).list(&params).await {
            Ok(list) => {
                if let Some(found) = list.items.first() {
                    return match judge(found, addresses) {
                        Ok(()) => Ok(()),
                        Err(why) => bail!(why),
                    };
                }
            }
            Err(status) => tracing::debug!(%status, "the Service of the cluster's DNS"),
        }
        if shutdown.run(tokio::time::sleep(backoff.delay())).await.is_none() {
            bail!("the cluster stops");
        }
    }
}

fn config(settings: &Settings) -> Result<dns::Config> {
    let page = |port| settings.addresses.first().map(|address| SocketAddr::new(*address, port));
    let listen = settings.addresses.iter().map(|address| SocketAddr::new(*address, 53)).collect();
    let domain: Name = DOMAIN.parse().ok().context("the cluster's domain")?;
    Ok(dns::Config {
        reverse: settings.blocks.clone(),
        nameservers: settings.addresses.clone(),
        upstreams: Upstreams::ResolvConf(ResolvConf::at(&settings.resolv_conf)),
        health: page(HEALTH_PORT),
        ready: page(READY_PORT),
        metrics: page(METRICS_PORT),
        ..dns::Config::new(listen, domain)
    })
}

/// Makes the Service and the account with its rights unless they are there. Fails if another server has the Service.
async fn introduce(admin: &Client, addresses: &[IpAddr], shutdown: &Shutdown) -> Result<()> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        match introduce_once(admin, addresses).await {
            Ok(()) => return Ok(()),
            Err(Refusal::Final(why)) => bail!(why),
            Err(Refusal::Status(status)) => tracing::debug!(%status, "the objects of the cluster's DNS"),
        }
        if shutdown.run(tokio::time::sleep(backoff.delay())).await.is_none() {
            bail!("the cluster stops");
        }
    }
}

/// A reason for which the objects are not there.
enum Refusal {
    /// It may pass.
    Status(Status),
    /// It does not pass by itself.
    Final(String),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

async fn introduce_once(admin: &Client, addresses: &[IpAddr]) -> Result<(), Refusal> {
    dns_account(admin).await?;
    let found = match admin.api::<Service>(NAMESPACE).get(SERVICE).await {
        // An address is taken before a name is found to be taken, so it is not tried.
        Err(status) if status.code == 404 => {
            return create::<Service>(admin, NAMESPACE, service(addresses)).await.map_err(|status| match status {
                status if status.code == 422 => Refusal::Final(format!(
                    "Service {SERVICE} cannot have the address {}: {}; --cluster-dns names another server",
                    shown(addresses),
                    status.message
                )),
                other => other.into(),
            });
        }
        found => found?,
    };
    judge(&found, addresses).map_err(Refusal::Final)
}

/// Checks that the Service is ours, and has the addresses.
fn judge(found: &Service, addresses: &[IpAddr]) -> Result<(), String> {
    let labels = found.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(PROXY_LABEL)).is_none_or(|proxy| proxy != PROXY) {
        return Err(format!("Service {NAMESPACE}/{SERVICE} belongs to another server"));
    }
    let has = found.spec.as_ref().and_then(|spec| spec.cluster_ips.as_deref()).unwrap_or_default();
    if addresses.iter().any(|address| !has.contains(&address.to_string())) {
        return Err(format!(
            "Service {NAMESPACE}/{SERVICE} has the address {}, not {}: delete it and start again",
            has.join(", "),
            shown(addresses)
        ));
    }
    Ok(())
}

fn labels() -> Value {
    json!({"k8s-app": SERVICE, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS", PROXY_LABEL: PROXY})
}

fn service(addresses: &[IpAddr]) -> Value {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let families: Vec<&str> = addresses.iter().map(|a| if a.is_ipv4() { "IPv4" } else { "IPv6" }).collect();
    let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port, "targetPort": port});
    json!({
        "metadata": {
            "name": SERVICE,
            "namespace": NAMESPACE,
            "labels": labels(),
            "annotations": {"prometheus.io/port": METRICS_PORT.to_string(), "prometheus.io/scrape": "true"},
        },
        "spec": {
            "clusterIP": texts.first(),
            "clusterIPs": texts,
            "ipFamilies": families,
            "ipFamilyPolicy": if addresses.len() > 1 { "RequireDualStack" } else { "SingleStack" },
            "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53), port("metrics", "TCP", METRICS_PORT)],
        },
    })
}

fn shown(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn whole_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Gives this machine the addresses, on its loopback interface.
fn give_addresses(addresses: &[IpAddr]) -> Result<()> {
    let mut routing = Routing::open()?;
    let loopback = routing.link("lo")?.context("this machine has no loopback interface")?;
    for address in addresses {
        let prefix = whole_prefix(*address);
        routing.add_address(&Address { link: loopback.index, address: *address, prefix })?;
    }
    Ok(())
}

/// Takes the addresses from this machine; those that it does not have are no error.
pub(crate) fn take_addresses(addresses: &[IpAddr]) -> Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let mut routing = Routing::open()?;
    let Some(loopback) = routing.link("lo")? else { return Ok(()) };
    for address in addresses {
        let prefix = whole_prefix(*address);
        routing.delete_address(&Address { link: loopback.index, address: *address, prefix })?;
    }
    Ok(())
}
