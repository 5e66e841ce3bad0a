//! A node of a cluster whose control plane runs elsewhere: `ferrokube agent`.
//!
//! The machine recognises the cluster ([`discovery`]), asks for the node's client certificate with a bootstrap token, and
//! from then on is that node. All its certificates lie in `DATA_DIR/pki` and are exchanged in time ([`kept`]). The
//! node's other parts are users of their own, whose certificates the node asks for (`controllers::certificates` has the
//! rules): neither has the node's rights.

mod discovery;
mod join;
mod kept;
mod request;
mod sentences;
mod settings;
mod store;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use client::{Certificate, Client, Clients, Config, Remote};
use component::{Clock, Shutdown};

use self::join::{Joined, Way};
use self::kept::Kept;
use self::request::Wanted;
use self::store::Store;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::joining::{BALANCER_USER, DNS_USER, POLICY_USER};
use crate::neighbours::Held;
use crate::say::say;
use crate::seat::Seat;
use crate::{alone, cli, kube_proxy, load_balancers, machine, neighbours, network_policy, node};

/// Runs a node until a signal stops it; its containers run on.
pub(crate) async fn run(flags: &cli::Agent) -> Result<()> {
    let started = Instant::now();
    let name = machine::node_name(flags.node.node_name.as_deref())?;
    let way = Way::of(flags)?;
    let runtime = node::check_runtime(&flags.node).await?;
    let bind = machine::anywhere();
    let addresses = node::addresses(&flags.node, bind)?;
    let dir = DataDir::open(&flags.data_dir)?;
    node::check_port(&flags.node, bind)?;
    let shutdown = Shutdown::new();
    let mut held = None;
    let start = Start { name, way, runtime, bind, addresses, started };
    let working = serve(flags, start, &dir, &mut held, &shutdown);
    let result = alone::until_signal(Box::pin(working), &shutdown).await;
    say("stopping; containers go on running");
    result
}

/// The facts about this machine, before the cluster is known.
struct Start {
    name: String,
    way: Way,
    /// The runtime's name and version.
    runtime: String,
    /// The address on which the kubelet listens unless told otherwise.
    bind: IpAddr,
    addresses: Vec<IpAddr>,
    started: Instant,
}

/// Joins the cluster and works as its node, until the node can't go on. Its claim on the machine is left in `held`.
async fn serve(
    flags: &cli::Agent,
    start: Start,
    dir: &DataDir,
    held: &mut Option<Held>,
    shutdown: &Shutdown,
) -> Result<()> {
    let Start { name, way, runtime, bind, addresses, started } = start;
    let clock = Clock::system();
    let pki = dir.path().join("pki");
    std::fs::create_dir_all(&pki).with_context(|| format!("cannot make {}", pki.display()))?;
    let Joined { config, own } = join::join(&way, dir.path(), &name, clock).await?;
    let server = config.server.clone();
    let roots = config.authorities.clone();
    let remote = Remote::new(config).context("the API server cannot be asked")?;
    let client = Client::new(Arc::new(remote.clone()), "kubelet");
    let settings = settings::read(&client, flags).await?;
    let claim = node::claim(&flags.node, dir, &settings.cluster_cidr, &settings.service_cidrs);
    *held = Some(neighbours::claim(dir, &claim)?);
    say(&format!("joined {server} as node {name}: {runtime}"));

    let store = |file: &'static str| Store::new(&pki, file);
    let keep = |wanted: Wanted, store: Store| {
        let kept = Kept::new(wanted, store, clock);
        let (keeping, stop, client) = (kept.clone(), shutdown.clone(), client.clone());
        let next = kept.load()?;
        shutdown.spawn(async move { keeping.keep(next, client, stop).await });
        anyhow::Ok(kept)
    };
    if let Some((kept, next)) = own {
        let (stop, client) = (shutdown.clone(), client.clone());
        shutdown.spawn(async move { kept.keep(Some(next), client, stop).await });
    }
    let serving = keep(Wanted::node_serving(&name, &addresses), store("kubelet-server"))?;
    let mut there = Vec::new();
    let mut account = |user: &str, file: &'static str| {
        let kept = keep(Wanted::account(user), store(file))?;
        there.push(kept.there());
        let config = Config { server: server.clone(), authorities: roots.clone(), ..Config::default() };
        anyhow::Ok(Remote::new(config.with_identity(kept.place))?)
    };
    let parts = settings.parts;
    let mut ways = HashMap::new();
    for (wanted, user, certified, file) in [
        (parts.network || parts.proxy, kube_proxy::USER.to_owned(), kube_proxy::USER, "kube-proxy-client"),
        (parts.dns, dns::USER.to_owned(), DNS_USER, "dns-client"),
        (parts.network && parts.policy, network_policy::USER.to_owned(), POLICY_USER, "policy-client"),
        (parts.balancer, load_balancers::user(), BALANCER_USER, "balancer-client"),
    ] {
        if wanted {
            ways.insert(user, account(certified, file)?);
        }
    }

    let failure = Failure::default();
    let seat = Seat {
        name: name.clone(),
        addresses,
        dir,
        clients: by_user(remote, ways),
        admin: None,
        kubeconfig: dir.path().join(join::KUBECONFIG),
        bind,
        cluster_cidr: settings.cluster_cidr,
        service_cidrs: settings.service_cidrs,
        tls: tls(&roots, &serving.place)?,
        parts,
        nodes_of_machine: flags.hosted.as_ref().map_or(1, |hosted| hosted.host_nodes.max(1)),
        clock,
        shutdown: shutdown.clone(),
        failure: failure.clone(),
    };
    node::start_kubelet(&flags.node, &seat)?;
    let (stop, asking) = (shutdown.clone(), client.clone());
    shutdown.spawn(async move {
        if stop.run(node::ready(&asking, &name, &stop)).await.is_some() {
            say(&format!("ready in {:.2} s", started.elapsed().as_secs_f64()));
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

/// The TLS of the kubelet's server, with a certificate that comes later and changes.
fn tls(
    authorities: &[rustls_pki_types::CertificateDer<'static>],
    serving: &Certificate,
) -> Result<rustls::ServerConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    let (chain, key) = serving::tls::self_signed(vec!["localhost".to_owned()])?;
    let mut config = kubelet::server::tls(chain, key, roots)?;
    config.cert_resolver = Arc::new(serving.clone());
    Ok(config)
}
