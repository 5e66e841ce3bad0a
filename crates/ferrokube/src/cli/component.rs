//! The flags that components alone have.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::logging::Logging;
use super::values::duration;

/// The flags of every component that runs alone, by upstream's names.
#[derive(Debug, Args, Clone)]
pub(crate) struct Component {
    /// Kubeconfig with the API server's address and the component's credentials
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Address on which health and metrics are served
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Port on which health and metrics are served; 0 to serve nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) secure_port: u16,
    /// The authorities of the client certificates that this endpoint accepts
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Whether to work only when elected among several
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,
}

/// The flags of the controllers alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10257")))]
pub(crate) struct ControllerManager {
    #[command(flatten)]
    pub(crate) component: Component,
    /// Controllers to run, separated by commas: `*` for all that run by default, `NAME` for one, `-NAME` for all but
    /// one
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) controllers: Vec<String>,
    /// Addresses of Pods, of which each node gets a part [default: nodes get none]
    #[arg(long, value_name = "CIDR", default_value = "", hide_default_value = true)]
    pub(crate) cluster_cidr: String,
    /// Addresses of Services, which nodes do not get
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) service_cluster_ip_range: Vec<String>,
    /// The authorities by which Pods verify the API server [default: those of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// The key that signs the tokens of ServiceAccounts in Secrets, PEM: RSA or ECDSA [default: no Secret gets one]
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_private_key_file: Option<PathBuf>,
    /// How long a token in a Secret that older versions made may be unused before it becomes invalid, and as long after
    /// that goes
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration)]
    pub(crate) legacy_service_account_token_clean_up_period: Duration,
    /// Features to turn on or off, as `A=true,B=false`; `AllAlpha` and `AllBeta` stand for those of a stage
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
    /// Whether each controller works as its own service account
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) use_service_account_credentials: bool,
    #[command(flatten)]
    pub(crate) endpoints: Endpoints,
    #[command(flatten)]
    pub(crate) workers: Workers,
    #[command(flatten)]
    pub(crate) autoscaling: Autoscaling,
    #[command(flatten)]
    pub(crate) signing: Signing,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

/// The flags that say how much controllers do at a time.
#[derive(Debug, Args, Clone)]
pub(crate) struct Workers {
    /// How many DaemonSets are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_daemonset_syncs: u16,
    /// How many StatefulSets are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_statefulset_syncs: u16,
    /// How many Jobs are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_job_syncs: u16,
    /// How many CronJobs are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_cron_job_syncs: u16,
    /// How many Pods' ephemeral volumes are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_ephemeralvolume_syncs: u16,
    /// Whether volumes are made for claims that find none
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_dynamic_provisioning: bool,
    /// Whether a node that is not Ready keeps the volumes that nobody wants there for as long as it says it uses them;
    /// it loses them after six minutes otherwise
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) disable_force_detach_on_timeout: bool,
    /// How many ResourceQuotas are counted at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_resource_quota_syncs: u16,
    /// After what time all ResourceQuotas are counted again; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) resource_quota_sync_period: Duration,
    /// How many ServiceAccounts and their Secrets are looked at at a time for tokens
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_serviceaccount_token_syncs: u16,
    /// How many ended Jobs are removed at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_ttl_after_finished_syncs: u16,
}

impl Workers {
    /// Puts the flags into the controllers' configuration.
    pub(crate) fn configure(&self, config: &mut controllers::Config) {
        config.workers.daemon_sets = self.concurrent_daemonset_syncs.into();
        config.workers.stateful_sets = self.concurrent_statefulset_syncs.into();
        config.workers.jobs = self.concurrent_job_syncs.into();
        config.workers.cron_jobs = self.concurrent_cron_job_syncs.into();
        config.workers.ephemeral_volumes = self.concurrent_ephemeralvolume_syncs.into();
        config.dynamic_provisioning = self.enable_dynamic_provisioning;
        config.force_detach = !self.disable_force_detach_on_timeout;
        config.workers.resource_quotas = self.concurrent_resource_quota_syncs.into();
        config.resource_quota_sync_period = self.resource_quota_sync_period;
        config.workers.account_tokens = self.concurrent_serviceaccount_token_syncs.into();
        config.workers.ttl_after_finished = self.concurrent_ttl_after_finished_syncs.into();
    }
}

/// The flags of the controller of autoscalers.
#[derive(Debug, Args, Clone)]
pub(crate) struct Autoscaling {
    /// How many HorizontalPodAutoscalers are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_horizontal_pod_autoscaler_syncs: u16,
    /// How long after one look at a HorizontalPodAutoscaler the next one comes
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) horizontal_pod_autoscaler_sync_period: Duration,
    /// How far back an autoscaler looks: it does not go below what it recommended in this time
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// How far the ratio of a metric to its target must be from 1 before an autoscaler scales
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1)]
    pub(crate) horizontal_pod_autoscaler_tolerance: f64,
    /// How long after a Pod's start its use of the processor may be left out
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// How long after a Pod's start a change of its readiness counts as the first
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

impl Autoscaling {
    /// Puts the flags into the controllers' configuration.
    pub(crate) fn configure(&self, config: &mut controllers::Config) {
        config.workers.pod_autoscalers = self.concurrent_horizontal_pod_autoscaler_syncs.into();
        config.autoscaling = controllers::Autoscaling {
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            tolerance: self.horizontal_pod_autoscaler_tolerance,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
        };
    }
}

/// The flags of the controllers of endpoints.
#[derive(Debug, Args, Clone)]
pub(crate) struct Endpoints {
    /// How many Services' Endpoints are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_endpoint_syncs: u16,
    /// How long the Endpoints of a Service wait for further changes of its Pods
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) endpoint_updates_batch_period: Duration,
    /// How many Services' EndpointSlices are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) concurrent_service_endpoint_syncs: u16,
    /// How long the EndpointSlices of a Service wait for further changes of its Pods
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) endpointslice_updates_batch_period: Duration,
    /// How many endpoints an EndpointSlice has at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) max_endpoints_per_slice: u16,
    /// How many Endpoints are mirrored to EndpointSlices at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) mirroring_concurrent_service_endpoint_syncs: u16,
    /// How long the mirroring of Endpoints waits for further changes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) mirroring_endpointslice_updates_batch_period: Duration,
    /// How many addresses of a subset of Endpoints are mirrored at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) mirroring_max_endpoints_per_subset: u16,
}

impl Endpoints {
    /// Puts the flags into the controllers' configuration.
    pub(crate) fn configure(&self, config: &mut controllers::Config) {
        config.endpoints.workers = self.concurrent_endpoint_syncs.into();
        config.endpoints.batch = self.endpoint_updates_batch_period;
        config.slices = controllers::EndpointSettings {
            limit: self.max_endpoints_per_slice.into(),
            workers: self.concurrent_service_endpoint_syncs.into(),
            batch: self.endpointslice_updates_batch_period,
        };
        config.mirroring = controllers::EndpointSettings {
            limit: self.mirroring_max_endpoints_per_subset.into(),
            workers: self.mirroring_concurrent_service_endpoint_syncs.into(),
            batch: self.mirroring_endpointslice_updates_batch_period,
        };
    }
}

/// The flags of the signers of certificates, by upstream's names.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct Signing {
    /// Certificate of the authority that signs certificates [default: none are signed]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_key_file: Option<PathBuf>,
    /// Longest life of a certificate
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration)]
    pub(crate) cluster_signing_duration: Duration,
    /// Certificate of the authority for kubernetes.io/kubelet-serving alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// Certificate of the authority for kubernetes.io/kube-apiserver-client-kubelet alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// Certificate of the authority for kubernetes.io/kube-apiserver-client alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// Certificate of the authority for kubernetes.io/legacy-unknown alone
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

/// The flags of the scheduler alone.
#[derive(Debug, Args, Clone)]
#[command(mut_arg("secure_port", |port| port.default_value("10259")))]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) component: Component,
    /// Upstream's KubeSchedulerConfiguration: profiles, plugins and their arguments; its kubeconfig comes before
    /// --kubeconfig, and either may say that there is no election
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Features to turn on or off, as `A=true,B=false`; `AllAlpha` and `AllBeta` stand for those of a stage
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub(crate) feature_gates: Vec<String>,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
