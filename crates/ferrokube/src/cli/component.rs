//! The flags that components alone have in common, and those of the scheduler.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::election::Electing;
use super::logging::Logging;
use super::metrics::Metrics;
use super::serving::Serving;
use super::values::duration;

/// The flags of every component that runs alone, by upstream's names.
#[derive(Debug, Args, Clone)]
pub(crate) struct Component {
    /// Kubeconfig with the API server's address and the component's credentials [default: those of the Pod in which the
    /// component runs]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The API server's address, in place of the kubeconfig's
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    pub(crate) master: String,
    /// Address on which health and metrics are served
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Port on which health and metrics are served; 0 to serve nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) secure_port: u16,
    #[command(flatten)]
    pub(crate) serving: Serving,
    #[command(flatten)]
    pub(crate) electing: Electing,
    #[command(flatten)]
    pub(crate) metrics: Metrics,
}

/// The flags of the scheduler alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10259")))]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) component: Component,
    /// Upstream's KubeSchedulerConfiguration: profiles, plugins and their arguments; its kubeconfig comes before
    /// --kubeconfig, and the flags of the election count more than it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Write the whole configuration to this file, and end
    #[arg(long, value_name = "FILE")]
    pub(crate) write_config_to: Option<PathBuf>,
    /// How long a Pod that found no place waits for a change that could help, before it is tried again all the same
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration)]
    pub(crate) pod_max_in_unschedulable_pods_duration: Duration,
    /// Features to turn on or off, as `A=true,B=false`; `AllAlpha` and `AllBeta` stand for those of a stage
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
