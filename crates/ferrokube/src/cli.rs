//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "ferrokube", version, about = "Kubernetes in one binary", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a control plane without a node, in the foreground
    Server(Server),
    /// Run the API server with its store alone
    #[command(name = "kube-apiserver")]
    ApiServer(ApiServer),
}

/// What a control plane can be told.
#[derive(Debug, Args, Clone)]
pub(crate) struct Server {
    /// Where the cluster keeps everything
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
    /// Port of the API server
    #[arg(long, value_name = "N", default_value_t = 6443)]
    pub(crate) port: u16,
    /// Address the API server listens on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Write the administrator's kubeconfig here [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Addresses of Pods; each node gets a /24 of it
    #[arg(long, value_name = "CIDR", default_value = "10.244.0.0/16")]
    pub(crate) cluster_cidr: String,
    /// Addresses of Services
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16")]
    pub(crate) service_cidr: String,
    /// Admission plugins to turn on besides the default ones, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<String>,
}

/// The API server alone, with upstream's flag names.
#[derive(Debug, Args, Clone)]
pub(crate) struct ApiServer {
    /// Where the store and the certificates are
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ferrokube")]
    pub(crate) data_dir: PathBuf,
    /// Port
    #[arg(long, value_name = "N", default_value_t = 6443)]
    pub(crate) secure_port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Addresses of Services
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16")]
    pub(crate) service_cluster_ip_range: String,
    /// Write the administrator's kubeconfig here [default: DATA_DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Admission plugins to turn on besides the default ones, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<String>,
}
