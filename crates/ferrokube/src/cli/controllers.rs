//! The flags of the controllers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args};
use kubelet::config::VOLUME_PLUGIN_DIR;

use super::component::Component;
use super::logging::Logging;
use super::values::{duration, some_time};

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
    /// How long each controller waits before it begins, and as long again at most, by chance
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) controller_start_interval: Duration,
    /// How long the controllers may take to end; 0s for any time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) controller_shutdown_timeout: Duration,
    /// Whether objects are removed whose owners are gone; as the API server's flag says
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_garbage_collector: bool,
    /// Where drivers of FlexVolumes are, which attach volumes to nodes
    #[arg(long, value_name = "DIR", default_value = VOLUME_PLUGIN_DIR)]
    pub(crate) flex_volume_plugin_dir: PathBuf,
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
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) use_service_account_credentials: bool,
    #[command(flatten)]
    pub(crate) nodes: Nodes,
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

/// The sizes of the nodes' parts of the Pods' addresses.
#[derive(Debug, Args, Clone)]
pub(crate) struct Masks {
    /// The prefix of a node's part, where Pods have addresses of one family [default: 24, 64 for IPv6]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub(crate) node_cidr_mask_size: i32,
    /// The prefix of a node's part of IPv4 addresses [default: 24]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub(crate) node_cidr_mask_size_ipv4: i32,
    /// The prefix of a node's part of IPv6 addresses [default: 64]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub(crate) node_cidr_mask_size_ipv6: i32,
}

impl Masks {
    /// The sizes, zero where nobody named one.
    pub(crate) fn sizes(&self) -> controllers::MaskSizes {
        controllers::MaskSizes {
            only: self.node_cidr_mask_size,
            v4: self.node_cidr_mask_size_ipv4,
            v6: self.node_cidr_mask_size_ipv6,
        }
    }
}

/// The flags of the controllers of nodes.
#[derive(Debug, Args, Clone)]
pub(crate) struct Nodes {
    /// How often the health of all nodes is looked at
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = some_time)]
    pub(crate) node_monitor_period: Duration,
    /// How long a node may be silent before it counts as unhealthy: several times as long as kubelets report in
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration)]
    pub(crate) node_monitor_grace_period: Duration,
    /// How long a node may be silent that has never posted its status
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration)]
    pub(crate) node_startup_grace_period: Duration,
    /// How many unhealthy nodes of a zone lose their Pods a second
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1)]
    pub(crate) node_eviction_rate: f64,
    /// How many do in a large zone in which many are unhealthy
    #[arg(long, value_name = "NUMBER", default_value_t = 0.01)]
    pub(crate) secondary_node_eviction_rate: f64,
    /// How many nodes a zone has at most that is not large: no Pods are evicted there when many nodes are unhealthy
    #[arg(long, value_name = "N", default_value_t = 50, allow_negative_numbers = true)]
    pub(crate) large_cluster_size_threshold: i32,
    /// The share of unhealthy nodes from which a zone has many, if they are three
    #[arg(long, value_name = "NUMBER", default_value_t = 0.55)]
    pub(crate) unhealthy_zone_threshold: f64,
    /// Whether each node gets a part of --cluster-cidr
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) allocate_node_cidrs: bool,
    /// The way in which nodes get their parts: RangeAllocator; the others need a cloud in this process
    #[arg(long, value_name = "TYPE", default_value = "RangeAllocator")]
    pub(crate) cidr_allocator_type: String,
    /// Addresses of Pods, of which each node gets a part with --allocate-node-cidrs: a block, or one of each family
    #[arg(long, value_name = "CIDR", default_value = "", hide_default_value = true)]
    pub(crate) cluster_cidr: String,
    /// Addresses of Services, which nodes do not get
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) service_cluster_ip_range: Vec<String>,
    #[command(flatten)]
    pub(crate) masks: Masks,
    /// How many ended Pods are kept; 0 or less for all
    #[arg(long, value_name = "N", default_value_t = 12500, allow_negative_numbers = true)]
    pub(crate) terminated_pod_gc_threshold: i32,
}

impl Nodes {
    /// Puts the flags into the controllers' configuration.
    ///
    /// # Errors
    /// The flags do not fit together, by upstream's rules.
    pub(crate) fn configure(&self, config: &mut controllers::Config) -> Result<()> {
        if !["", "RangeAllocator"].contains(&self.cidr_allocator_type.as_str()) {
            bail!(
                "built-in cloud providers are disabled. The ipam {} is not available",
                self.cidr_allocator_type
            );
        }
        if self.service_cluster_ip_range.len() > 2 {
            bail!("--service-cluster-ip-range can not contain more than two entries");
        }
        config.node_monitor = controllers::NodeMonitor {
            period: self.node_monitor_period,
            grace: self.node_monitor_grace_period,
            startup_grace: self.node_startup_grace_period,
            rates: controllers::EvictionRates {
                normal: self.node_eviction_rate,
                secondary: self.secondary_node_eviction_rate,
                large: usize::try_from(self.large_cluster_size_threshold).unwrap_or(0),
                unhealthy: self.unhealthy_zone_threshold,
            },
        };
        config.terminated_pods = usize::try_from(self.terminated_pod_gc_threshold).unwrap_or(0);
        config.service_cidrs.clone_from(&self.service_cluster_ip_range);
        if self.allocate_node_cidrs {
            self.allocate(config).context("nodes cannot get their parts of --cluster-cidr")?;
        }
        Ok(())
    }

    fn allocate(&self, config: &mut controllers::Config) -> Result<()> {
        if self.cluster_cidr.trim().is_empty() {
            bail!("Must specify --cluster-cidr if --allocate-node-cidrs is set");
        }
        (config.node_prefix_v4, config.node_prefix_v6) =
            controllers::node_prefixes(&self.cluster_cidr, self.masks.sizes())?;
        config.cluster_cidr.clone_from(&self.cluster_cidr);
        Ok(())
    }
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
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_dynamic_provisioning: bool,
    /// Whether a node that is not Ready keeps the volumes that nobody wants there for as long as it says it uses them;
    /// it loses them after six minutes otherwise
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
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
    /// How many Deployments are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_deployment_syncs: u16,
    /// How many ReplicaSets are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_replicaset_syncs: u16,
    /// How many ReplicationControllers are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_rc_syncs: u16,
    /// How many namespaces are removed at a time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_namespace_syncs: u16,
    /// How many objects without owners are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_gc_syncs: u16,
    /// How many ResourceClaims are made or removed at a time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_resourceclaim_syncs: u16,
    /// How many Pods with tainted devices, and rules about them, are looked at at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_device_taint_eviction_syncs: u16,
    /// How many ValidatingAdmissionPolicies are checked at a time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_validating_admission_policy_status_syncs: u16,
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
        config.workers.deployments = self.concurrent_deployment_syncs.into();
        config.workers.replica_sets = self.concurrent_replicaset_syncs.into();
        config.workers.replication_controllers = self.concurrent_rc_syncs.into();
        config.workers.namespaces = self.concurrent_namespace_syncs.into();
        config.workers.garbage = self.concurrent_gc_syncs.into();
        config.workers.resource_claims = self.concurrent_resourceclaim_syncs.into();
        config.workers.device_taints = self.concurrent_device_taint_eviction_syncs.into();
        config.workers.policies = self.concurrent_validating_admission_policy_status_syncs.into();
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
