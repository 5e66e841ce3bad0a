//! A node of a cluster whose control plane runs elsewhere: `ferrokube agent`.
//!
//! The machine recognises the cluster ([`discovery`]), asks for the node's client certificate with a bootstrap token, and
//! from then on is that node. All its certificates lie in `DATA_DIR/pki` and are exchanged in time ([`kept`]). The
//! node's other parts are users of their own, whose certificates the node asks for (`controllers::certificates` has the
//! rules): neither has the node's rights.

mod beside;
mod discovery;
mod join;
mod kept;
mod request;
mod sentences;
mod serving;
mod settings;
mod store;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use client::{Backoff, Client, Clients, Remote};
use component::{Clock, Shutdown};
use kubelet::server::Offer;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

pub(crate) use self::beside::Beside;
pub(crate) use self::join::{Files, Joined, Own, Way, join};
use self::kept::{Kept, Server};
use self::request::Wanted;
pub(crate) use self::serving::Serving;
use self::store::Store;
use crate::built_in::NodeRuntime;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::joining::{BALANCER_USER, DNS_USER, POLICY_USER};
use crate::neighbours::Held;
use crate::say::{say, say_ready};
use crate::seat::Seat;
use crate::{alone, cli, kube_proxy, machine, neighbours, node};

/// The time after which it is looked whether the machine's address is another; upstream's kubelet looks as often.
const LOOK: Duration = Duration::from_secs(10);
/// The time within which a node that has moved may fail to join, and tries again.
const SETTLED: Duration = Duration::from_mins(5);
/// The pauses before a node that has moved joins again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Runs a node until a signal stops it; its containers run on.
pub(crate) async fn run(flags: &cli::Agent) -> Result<()> {
    let started = Instant::now();
    let name = machine::node_name(flags.node.node_name.as_deref())?;
    let way = Way::of(flags)?;
    let other = node::check_runtime(&flags.node).await?;
    let bind = machine::anywhere();
    let mut addresses = node::addresses(&flags.node, bind)?;
    let dir = DataDir::open(&flags.data_dir)?;
    node::check_port(&flags.node, bind)?;
    dir.kubelet_root(flags.node.root_dir.as_deref())?;
    let runtime = Box::pin(node::start_runtime(&flags.node, other, &dir, &Shutdown::new())).await?;
    let ended = Box::pin(stay(flags, &name, &way, &runtime, (bind, &mut addresses), &dir, started)).await;
    runtime.stop().await;
    ended
}

/// Is the cluster's node until a signal stops it, also when the machine's address changes.
async fn stay(
    flags: &cli::Agent,
    name: &str,
    way: &Way,
    runtime: &NodeRuntime,
    (bind, addresses): (IpAddr, &mut Vec<IpAddr>),
    dir: &DataDir,
    started: Instant,
) -> Result<()> {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut moved_at: Option<Instant> = None;
    loop {
        let shutdown = Shutdown::new();
        let (mut held, mut moved) = (None, None);
        let start = Start { name, way, runtime, bind, addresses: addresses.clone(), started };
        let working = async {
            // A node that has moved may not reach the API server at once.
            if moved_at.is_some() {
                tokio::time::sleep(backoff.delay()).await;
            }
            tokio::select! {
                ended = Box::pin(serve(flags, start, dir, &mut held, &shutdown)) => ended,
                to = moves(&flags.node, bind, addresses) => {
                    moved = Some(to);
                    Ok(())
                }
            }
        };
        let result = alone::until_signal(Box::pin(working), &shutdown).await;
        match (moved, result) {
            (Some(to), _) => {
                let shown: Vec<String> = to.iter().map(ToString::to_string).collect();
                say(&format!(
                    "this machine's address is now {}; the node starts again with it",
                    shown.join(", ")
                ));
                backoff.reset();
                moved_at = Some(Instant::now());
                *addresses = to;
            }
            (None, Err(error)) if moved_at.is_some_and(|at| at.elapsed() < SETTLED) => {
                eprintln!("ferrokube: {error:#}; tried again");
            }
            (None, result) => {
                say("stopping; containers go on running");
                return result;
            }
        }
    }
}

/// Resolves with the node's addresses once they are others. Those that somebody chose stay.
async fn moves(flags: &cli::Node, bind: IpAddr, from: &[IpAddr]) -> Vec<IpAddr> {
    if !flags.node_ip.is_empty() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        // A machine that reaches nobody for a while keeps its address.
        if let Ok(now) = node::addresses(flags, bind)
            && now != from
            && now.iter().all(|address| !address.is_loopback())
        {
            return now;
        }
    }
}

/// The facts about this machine, before the cluster is known.
struct Start<'a> {
    name: &'a str,
    way: &'a Way,
    runtime: &'a NodeRuntime,
    /// The address on which the kubelet listens unless told otherwise.
    bind: IpAddr,
    addresses: Vec<IpAddr>,
    started: Instant,
}

/// Joins the cluster and works as its node, until the node can't go on. Its claim on the machine is left in `held`.
async fn serve(
    flags: &cli::Agent,
    start: Start<'_>,
    dir: &DataDir,
    held: &mut Option<Held>,
    shutdown: &Shutdown,
) -> Result<()> {
    let Start { name, way, runtime, bind, addresses, started } = start;
    let clock = Clock::system();
    let pki = dir.path().join("pki");
    std::fs::create_dir_all(&pki).with_context(|| format!("cannot make {}", pki.display()))?;
    let kubeconfig = dir.path().join(join::KUBECONFIG);
    let files = Files { pki: &pki, kubeconfig: &kubeconfig };
    let Joined { config, own } = join::join(way, &files, name, clock).await?;
    let at = Server::of(&config);
    let remote = Remote::new(config).context("the API server cannot be asked")?;
    let client = Client::new(Arc::new(remote.clone()), "kubelet");
    let settings = settings::read(&client, flags).await?;
    let claim = node::claim(
        &flags.node,
        dir,
        &settings.cluster_cidr,
        &settings.service_cidrs,
        settings.parts.network,
    );
    *held = Some(neighbours::claim(&dir.id(), &claim)?);
    say(&format!("joined {} as node {name}: {}", at.url(), runtime.name));

    let store = |file: &'static str| Store::new(&pki, file);
    let failure = Failure::default();
    let keep = |kept: Kept| {
        let (keeping, stop, client) = (kept.clone(), shutdown.clone(), client.clone());
        let next = kept.load()?;
        shutdown.spawn(async move { keeping.keep(next, client, None, stop).await });
        anyhow::Ok(kept)
    };
    let kept = own.as_ref().map(join::Own::place);
    if let Some(own) = own {
        own.keep(client.clone(), failure.clone(), shutdown);
    }
    let serving = Serving::new(name, &addresses, &pki, clock);
    serving.keep(client.clone(), shutdown)?;
    let mut there = Vec::new();
    let mut account = |user: &str, file: &'static str| {
        let kept = Kept::new(Wanted::account(user), store(file), clock).tried_at(at.clone());
        let kept = keep(kept)?;
        there.push(kept.there());
        anyhow::Ok(Remote::new(at.with(kept.place))?)
    };
    let parts = settings.parts;
    let mut ways = HashMap::new();
    for (wanted, user, file) in [
        (parts.network || parts.proxy, kube_proxy::USER, "kube-proxy-client"),
        (parts.dns, DNS_USER, "dns-client"),
        (parts.network && parts.policy, POLICY_USER, "policy-client"),
        (parts.balancer, BALANCER_USER, "balancer-client"),
    ] {
        if wanted {
            ways.insert(user.to_owned(), account(user, file)?);
        }
    }

    let seat = Seat {
        name: name.to_owned(),
        addresses,
        dir,
        clients: by_user(remote, ways),
        admin: None,
        kubeconfig,
        bind,
        cluster_cidr: settings.cluster_cidr,
        service_cidrs: settings.service_cidrs,
        cluster_dns: settings.cluster_dns,
        tls: serving.tls(&authorities(at.authorities())?, &Offer::default())?,
        certificates: kubelet::config::Certificates { client: kept, server: Some(serving.place()) },
        parts,
        features: settings.features,
        pod_network: runtime.network.clone(),
        nodes_of_machine: flags.hosted.as_ref().map_or(1, |hosted| hosted.host_nodes.max(1)),
        clock,
        shutdown: shutdown.clone(),
        failure: failure.clone(),
    };
    node::start_kubelet(&flags.node, &seat)?;
    let (stop, asking, name) = (shutdown.clone(), client.clone(), name.to_owned());
    shutdown.spawn(async move {
        if stop.run(node::ready(&asking, &name, &stop)).await.is_some() {
            say_ready(&format!("ready in {:.2} s", started.elapsed().as_secs_f64()));
        }
    });
    // Their certificates are approved once the kubelet has made the Node.
    futures::future::join_all(there).await;
    node::start_parts(&flags.node, &seat)?;
    Err(failure.wait().await)
}

/// Clients by user name: each part of the node has its own way to the API server, and all others that of the node.
fn by_user(
    node: Remote,
    ways: HashMap<String, Remote>,
) -> Arc<dyn Fn(&'static str) -> Clients + Send + Sync> {
    let ways = Arc::new(ways);
    Arc::new(move |agent| {
        let (node, ways) = (node.clone(), ways.clone());
        Clients::new(move |user| Client::new(Arc::new(ways.get(user).unwrap_or(&node).clone()), agent))
    })
}

/// The authorities whose clients are served.
fn authorities(known: &[CertificateDer<'static>]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in known {
        roots.add(authority.clone())?;
    }
    Ok(roots)
}
