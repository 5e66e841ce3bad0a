//! The command line.

mod behaviour;
mod component;
mod connections;
mod controllers;
mod election;
mod fields;
mod https;
mod images;
mod logging;
mod metrics;
mod node;
mod security;
mod server;
mod serving;
mod times;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use self::values::duration;

pub(crate) use self::component::{Component, Scheduler};
pub(crate) use self::controllers::{ControllerManager, Signing};
pub(crate) use self::election::Electing;
pub(crate) use self::images::{CgroupDriver, CriRuntime, Image, PodNetwork, StoreOf};
pub(crate) use self::logging::Logging;
pub(crate) use self::node::{Agent, Hosted, KubeProxy, Kubelet, Network, Node, ProxyFields};
pub(crate) use self::server::{
    Api, ApiServer, ClusterOf, Migrate, Server, Snapshot, SnapshotRestore, SnapshotSave, Storage, Up,
};
pub(crate) use self::serving::Serving;

/// Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "ferrokube",
    version,
    about = "Kubernetes in one binary",
    disable_help_subcommand = true,
    propagate_version = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster on this machine, in the foreground
    Up(Up),
    /// Run a control plane without a node, in the foreground
    Server(Server),
    /// Run a node of a cluster whose control plane runs elsewhere, in the foreground
    Agent(Agent),
    /// Manage the tokens with which nodes join
    #[command(subcommand)]
    Token(Token),
    /// Run the API server with its store alone
    #[command(name = "kube-apiserver")]
    ApiServer(ApiServer),
    /// Run the controllers alone
    #[command(name = "kube-controller-manager")]
    ControllerManager(ControllerManager),
    /// Run the scheduler alone
    #[command(name = "kube-scheduler")]
    Scheduler(Scheduler),
    /// Run a node's agent alone
    Kubelet(Kubelet),
    /// Run the built-in container runtime alone, for another kubelet or crictl
    #[command(name = "cri-runtime")]
    CriRuntime(CriRuntime),
    /// Work on the images of the built-in container runtime
    #[command(subcommand)]
    Image(Image),
    /// Run a node's Service proxy alone
    #[command(name = "kube-proxy")]
    KubeProxy(KubeProxy),
    /// Save the store of a running cluster to a file, restore it, or look at such a file
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Move a cluster's objects to another kind of store
    #[command(subcommand)]
    Storage(Storage),
    /// Remove everything a cluster made on this machine: containers, mounts, network, cgroups, data
    Down(Down),
}

/// The work on tokens.
#[derive(Debug, Subcommand, Clone)]
pub(crate) enum Token {
    /// Make a token, and print the command with which a node joins
    Create(TokenCreate),
    /// List the tokens
    List(ClusterOf),
    /// Delete tokens: who has one cannot join with it any more
    Delete {
        /// The tokens, or their ids
        #[arg(required = true)]
        tokens: Vec<String>,
        #[command(flatten)]
        at: ClusterOf,
    },
}

/// The token to make.
#[derive(Debug, Args, Clone)]
pub(crate) struct TokenCreate {
    /// The token, of the form "[a-z0-9]{6}.[a-z0-9]{16}" [default: a random one]
    pub(crate) token: Option<String>,
    /// Time after which it is deleted, as `24h`; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "24h0m0s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Its uses, separated by commas
    #[arg(long, value_name = "USAGES", default_value = "signing,authentication", value_delimiter = ',')]
    pub(crate) usages: Vec<String>,
    /// The groups of who authenticates with it, separated by commas
    #[arg(long, value_name = "GROUPS", default_value = client::bootstrap::NODE_GROUP, value_delimiter = ',')]
    pub(crate) groups: Vec<String>,
    /// A description of its use
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) description: String,
    /// Whether to print the whole command with which a node joins, and not the token alone
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) print_join_command: bool,
    /// Parts of the node that run besides the kubelet on the nodes that join (network, proxy, dns, policy, balancer): for
    /// a control plane that is not FerroKube's, where their accounts get their rights now
    #[arg(long, value_name = "PARTS")]
    pub(crate) node_parts: Option<String>,
    #[command(flatten)]
    pub(crate) at: ClusterOf,
}

/// The cluster to remove.
#[derive(Debug, Args, Clone)]
pub(crate) struct Down {
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
}
