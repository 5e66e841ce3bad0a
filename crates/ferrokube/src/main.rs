//! FerroKube: Kubernetes in one binary. The command line, and the wiring of components.

mod agent;
mod alone;
mod archives;
mod built_in;
mod callers;
mod cert_dir;
mod certificate_files;
mod changes;
mod cli;
mod cluster_dns;
mod control_plane;
mod cri_runtime;
mod data_dir;
mod down;
mod endpoints;
mod failure;
mod flags;
mod flex_drivers;
mod footprint;
mod hosts;
mod image;
mod introduce;
mod joining;
mod kube_proxy;
mod load_balancers;
mod logging;
mod machine;
mod manager_settings;
mod marks;
mod migrate;
mod neighbours;
mod network_policy;
mod node;
mod node_agent;
mod openapi;
mod part_settings;
mod private;
mod say;
mod seat;
mod signing;
mod snapshot;
mod token;
mod until;
mod version_flag;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::FeatureGates;
use clap::{CommandFactory, FromArgMatches};
use component::logging::Levels;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use agent::Beside;
use cli::{Cli, Command};
use control_plane::{ControlPlane, Settings, user_of};
use data_dir::DataDir;
use logging::LoggingConfiguration;
use say::{fail, say, say_ready, took, warn};
use seat::{Identity, NodeParts};
use until::until_stopped;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The size of a thread's stack. Objects may nest as deeply as `api::depth` says, and the code that handles them
/// recurses. That needs up to 5 MiB (YAML) in unoptimized builds, more than a thread has by default; a test of
/// `api::depth` holds it below the half. Only used parts of a stack cost memory.
const STACK: usize = 16 << 20;

/// The time for which tasks that nothing waits for may still run at the end.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// The time within which the kubelet's serving certificate is signed in a cluster that is called ready.
const SIGNED: Duration = Duration::from_secs(5);

/// The levels that `FERROKUBE_LOG` names (`info`, `warn,ferrokube_kubelet=debug`); warnings otherwise.
fn log_levels() -> Levels {
    if let Ok(text) = std::env::var("FERROKUBE_LOG") {
        match text.parse() {
            Ok(levels) => return levels,
            Err(error) => eprintln!("ferrokube: FERROKUBE_LOG={text:?} is ignored: {error}"),
        }
    }
    Levels::default()
}

/// Gives the log the settings of a component that has no file for them.
fn log(command: &Command) -> Result<()> {
    let (flags, gates) = match command {
        Command::ApiServer(flags) => (&flags.logging, &flags.api.feature_gates),
        Command::ControllerManager(flags) => (&flags.logging, &flags.feature_gates),
        Command::Scheduler(flags) => (&flags.logging, &flags.feature_gates),
        _ => return Ok(()),
    };
    let gates = FeatureGates::parse(gates.iter().map(String::as_str)).context("invalid --feature-gates")?;
    logging::apply(LoggingConfiguration::default(), flags, gates)
}

fn main() -> ExitCode {
    // A runtime waits for each of its plugin's calls: nothing comes before.
    if let Some(code) = network::plugin::run() {
        return code;
    }
    // Huge pages make an idle process half as large again and no request cheaper. A kernel that can't turn them off
    // only costs that memory.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    raise_descriptors();
    component::logging::start(log_levels());
    let line = match flags::read(std::env::args_os()) {
        Ok(line) => line,
        Err(e) => {
            eprintln!("ferrokube: {}", say::whole(&e));
            return ExitCode::FAILURE;
        }
    };
    if let Some(question) = line.version {
        say(&question.answer());
        return ExitCode::SUCCESS;
    }
    let matches = Cli::command().get_matches_from(line.arguments);
    let command = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli.command,
        Err(e) => e.format(&mut Cli::command()).exit(),
    };
    let told = Told { warnings: line.warnings, flags: flags::values(&matches, line.others) };
    if let Err(e) = log(&command) {
        fail(&e);
        return ExitCode::FAILURE;
    }
    // A file may give these the log's settings; they tell their warnings then.
    if !matches!(command, Command::Kubelet(_) | Command::KubeProxy(_)) {
        for warning in &told.warnings {
            warn(warning);
        }
    }
    // A process changes its namespaces only before it has threads.
    if let Command::Agent(cli::Agent { hosted: Some(hosted), .. }) = &command
        && let Err(e) = hosts::enter(&hosted.host_namespaces)
    {
        eprintln!("ferrokube: {}", say::whole(&e));
        return ExitCode::FAILURE;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_stack_size(STACK).max_blocking_threads(blocking_threads());
    let runtime = match runtime.build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("ferrokube: cannot start threads: {e}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(run(command, told));
    // Tasks that still run may hang; nothing waits for them.
    runtime.shutdown_timeout(LAST_TASKS);
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            fail(&e);
            ExitCode::FAILURE
        }
    };
    component::logging::flush();
    code
}

/// The most threads for work that blocks, such as mounts and cgroups. Many Pods that start at once would have a thread
/// each otherwise, and each keeps some 2 MiB of freed memory for as long as more Pods come. Those that wait for others
/// of them are few: downloads, of which the store of images limits the number, and the packet filter's writers.
fn blocking_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors * 16).clamp(64, 512)
}

/// Raises the soft limit of open files to the hard one: each connection is a file, and the soft limit is there for
/// programs that use select(2).
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // A limit that is as large as it can be stays so, and a process that may not raise it goes on with the present one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The command line, for the commands that tell of it.
struct Told {
    /// A sentence for each flag that has no effect.
    warnings: Vec<String>,
    /// All flags with their values.
    flags: BTreeMap<String, String>,
}

/// Does a command.
async fn run(command: Command, told: Told) -> Result<()> {
    let started = Instant::now();
    match command {
        Command::Down(down) => down::run(&down).await,
        Command::Snapshot(command) => snapshot::run(&command).await,
        Command::Agent(flags) => match &flags.hosted {
            Some(hosted) => hosts::member::run(&flags, hosted).await,
            None => agent::run(&flags).await,
        },
        Command::CriRuntime(flags) => cri_runtime::run(&flags).await,
        Command::Image(command) => image::run(&command).await,
        Command::Token(command) => token::run(&command).await,
        Command::Storage(command) => migrate::run(&command).await,
        Command::ApiServer(flags) => {
            let settings = Settings::of_api_server(&flags, &told.flags)?;
            let plane = ControlPlane::start(DataDir::open(&flags.data_dir())?, settings).await?;
            say_ready(&format!("API server: {} (ready in {})", plane.url(), took(started)));
            until_stopped(plane, None, "stopping").await
        }
        Command::ControllerManager(flags) => alone::controller_manager(&flags, told.flags).await,
        Command::Scheduler(flags) => alone::scheduler(&flags, told.flags).await,
        Command::Kubelet(flags) => node_agent::run(&flags, &told.warnings).await,
        Command::KubeProxy(flags) => kube_proxy::run(&flags, told.flags, &told.warnings).await,
        Command::Server(flags) => {
            let settings = Settings::of_server(&flags, &told.flags)?;
            let dns = cluster_dns::dns_of(&flags.service_cidr)?;
            let plane = ControlPlane::start(DataDir::open(&flags.data_dir)?, settings).await?;
            plane.start_components()?;
            let parts = NodeParts {
                network: true,
                proxy: true,
                dns: !flags.disable_dns,
                policy: true,
                balancer: load_balancers::are_announced(&flags),
            };
            joining::introduce(&plane, parts);
            network_policy::announce(&plane);
            if parts.balancer {
                load_balancers::announce(&plane);
            }
            if !flags.disable_dns {
                cluster_dns::announce(dns, &plane);
            }
            say(&format!("control plane: {} (ready in {})", plane.url(), took(started)));
            say_ready(&format!("kubeconfig: {}", plane.kubeconfig().display()));
            until_stopped(plane, None, "stopping").await
        }
        Command::Up(flags) => match flags.hosts.nodes {
            Some(count) => hosts::up(&flags, &told.flags, count, started).await,
            None => Box::pin(up(&flags, &told.flags, started)).await,
        },
    }
}

/// Runs a control plane with a node.
async fn up(flags: &cli::Up, told: &BTreeMap<String, String>, started: Instant) -> Result<()> {
    let server = &flags.server;
    let settings = Settings::of_server(server, told)?;
    let name = machine::node_name(flags.node.node_name.as_deref())?;
    let runtime = node::check_runtime(&flags.node).await?;
    let addresses = node::addresses(&flags.node, server.bind_address)?;
    let identity = Identity { name: name.clone(), addresses };
    let dir = DataDir::open(&server.data_dir)?;
    if hosts::present(&dir) > 0 {
        let shown = dir.path().display();
        bail!(
            "the cluster of {shown} has several nodes on this machine: start it with --nodes, or remove it with `ferrokube down --data-dir {shown}`"
        );
    }
    node::check_port(&flags.node, server.bind_address)?;
    dir.kubelet_root(flags.node.root_dir.as_deref())?;
    let parts = node::parts(flags);
    let claim = node::claim(&flags.node, &dir, &server.cluster_cidr, &server.service_cidr, parts.network);
    let _held = neighbours::claim(&dir.id(), &claim)?;
    let process = component::Shutdown::new();
    let runtime = Box::pin(node::start_runtime(&flags.node, runtime, &dir, &process)).await?;
    let plane = ControlPlane::start(dir, settings).await?;
    say(&format!("control plane: {}", plane.url()));
    plane.start_components()?;
    let certificates = Beside {
        name: &identity.name,
        addresses: &identity.addresses,
        dir: plane.dir(),
        url: plane.url(),
        authority: plane.pki().ca.certificate(),
        node: plane.client_as(user_of(&format!("system:node:{name}")), "kubelet"),
        admin: plane.admin(),
        clock: plane.clock(),
    };
    let (serving, client) = certificates.keep(plane.shutdown())?;
    let tls = serving.tls(&plane.roots()?, &kubelet::server::Offer::default())?;
    let mut seat = plane.seat(server.bind_address, identity, parts, tls);
    seat.certificates = kubelet::config::Certificates { client: Some(client), server: Some(serving.place()) };
    seat.pod_network = runtime.network.clone();
    seat.cluster_dns = flags.node.cluster_dns;
    plane.kubelet_at(node::start_kubelet(&flags.node, &seat)?);
    node::start_parts(&flags.node, &seat)?;
    joining::introduce(&plane, parts);
    say(&format!("node {name}: {}", runtime.name));
    say(&format!("kubeconfig: {}", plane.kubeconfig().display()));
    let (admin, stop) = (plane.admin(), plane.shutdown().clone());
    let served = serving.there();
    plane.shutdown().spawn(async move {
        let ready = async {
            node::ready(&admin, &name, &stop).await;
            // The cluster's controllers sign it at once; where somebody else signs, nobody knows when.
            let _ = tokio::time::timeout(SIGNED, served).await;
        };
        if stop.run(ready).await.is_some() {
            say_ready(&format!("ready in {}", took(started)));
        }
    });
    drop(seat);
    let ended = until_stopped(plane, None, "stopping; containers go on running").await;
    // The kubelet has ended; the runtime goes last.
    runtime.stop().await;
    ended
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Each component has upstream's port unless told otherwise.
    #[test]
    fn ports_of_components() {
        let port = |arguments: &[&str]| match Cli::parse_from(["ferrokube"].iter().chain(arguments)).command {
            Command::ControllerManager(flags) => flags.component.secure_port,
            Command::Scheduler(flags) => flags.component.secure_port,
            _ => 0,
        };
        assert_eq!(port(&["kube-controller-manager", "--kubeconfig=k"]), 10257);
        assert_eq!(port(&["kube-scheduler", "--kubeconfig=k"]), 10259);
        assert_eq!(port(&["kube-scheduler", "--kubeconfig=k", "--secure-port=0"]), 0);
    }

    /// A panic that nobody sees would leave a cluster that only looks alive.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_part_that_panics_ends_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let arguments = ["ferrokube", "server", "--bind-address=127.0.0.1", "--port=0", "--data-dir"];
        let arguments = arguments.map(Into::into).into_iter().chain([data.into_os_string()]);
        let Command::Server(flags) = Cli::parse_from(arguments).command else { panic!("another command") };
        let dir = DataDir::open(&flags.data_dir).unwrap();
        let plane =
            ControlPlane::start(dir, Settings::of_server(&flags, &BTreeMap::new()).unwrap()).await.unwrap();
        let part = plane.shutdown().child();
        part.spawn(async { panic!("the part is gone") });
        let why = until_stopped(plane, None, "").await.unwrap_err().to_string();
        assert!(why.contains("main.rs:") && why.contains("the part is gone"), "{why}");
    }
}
