//! The metrics as data.

use super::{Kind, Metric};

/// Prometheus' default bounds.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Of work on storage.
const STORAGE: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// From the first sight of a Pod to its containers.
const STARTS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Of pulls.
const PULLS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
/// Of resizes, in milliseconds.
const RESIZES: &[f64] = &[
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 30000.0, 60000.0, 120_000.0,
    300_000.0, 600_000.0,
];
/// Of writes of a status.
const STATUS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Numbers of containers.
const CONTAINERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// Of calls to the runtime: each bound two and a half times the one before.
const OPERATIONS: &[f64] = &[
    0.005,
    0.0125,
    0.03125,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];
/// Of lives of certificates: from a minute to four years.
const LIVES: &[f64] = &[
    60.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

macro_rules! metrics {
    ($($id:ident: $kind:ident $(($bounds:ident))? $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub(crate) static $id: Metric =
                Metric { name: $name, kind: Kind::$kind $(($bounds))?, labels: &[$($label),*], help: $help };
        )*
        /// All of them.
        pub(super) static ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    CSI_OPERATIONS_SECONDS: Histogram(STORAGE) "csi_operations_seconds" ["driver_name", "grpc_status_code", "method_name", "migrated"]
        "[ALPHA] Container Storage Interface operation duration with gRPC error code status total";
    ACTIVE_PODS: Gauge "kubelet_active_pods" ["static"]
        "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.";
    ADMISSION_REJECTIONS_TOTAL: Counter "kubelet_admission_rejections_total" ["reason"]
        "[ALPHA] Cumulative number pod admission rejections by the Kubelet.";
    CERTIFICATE_MANAGER_CLIENT_EXPIRATION_RENEW_ERRORS: Counter "kubelet_certificate_manager_client_expiration_renew_errors" []
        "[ALPHA] Counter of certificate renewal errors.";
    CERTIFICATE_MANAGER_CLIENT_TTL_SECONDS: Gauge "kubelet_certificate_manager_client_ttl_seconds" []
        "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.";
    CERTIFICATE_MANAGER_SERVER_ROTATION_SECONDS: Histogram(LIVES) "kubelet_certificate_manager_server_rotation_seconds" []
        "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.";
    CERTIFICATE_MANAGER_SERVER_TTL_SECONDS: Gauge "kubelet_certificate_manager_server_ttl_seconds" []
        "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.";
    CGROUP_MANAGER_DURATION_SECONDS: Histogram(SECONDS) "kubelet_cgroup_manager_duration_seconds" ["operation_type"]
        "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.";
    CGROUP_VERSION: Gauge "kubelet_cgroup_version" []
        "[ALPHA] cgroup version on the hosts.";
    CONTAINER_LOG_FILESYSTEM_USED_BYTES: Gauge "kubelet_container_log_filesystem_used_bytes" ["container", "namespace", "pod", "uid"]
        "[ALPHA] Bytes used by the container's logs on the filesystem.";
    CONTAINER_REQUESTED_RESIZES_TOTAL: Counter "kubelet_container_requested_resizes_total" ["operation", "requirement", "resource"]
        "[ALPHA] Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.";
    CONTAINERS_PER_POD_COUNT: Histogram(CONTAINERS) "kubelet_containers_per_pod_count" []
        "[ALPHA] The number of containers per pod.";
    CREDENTIAL_PROVIDER_CONFIG_INFO: Gauge "kubelet_credential_provider_config_info" ["hash"]
        "[ALPHA] Information about the last applied credential provider configuration with hash as label";
    CREDENTIAL_PROVIDER_PLUGIN_DURATION: Histogram(SECONDS) "kubelet_credential_provider_plugin_duration" ["plugin_name"]
        "[ALPHA] Duration of execution in seconds for credential provider plugin";
    CREDENTIAL_PROVIDER_PLUGIN_ERRORS_TOTAL: Counter "kubelet_credential_provider_plugin_errors_total" ["plugin_name"]
        "[ALPHA] Number of errors from credential provider plugin";
    DESIRED_PODS: Gauge "kubelet_desired_pods" ["static"]
        "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.";
    EVENTED_PLEG_CONNECTION_ERROR_COUNT: Counter "kubelet_evented_pleg_connection_error_count" []
        "[ALPHA] The number of errors encountered during the establishment of streaming connection with the CRI runtime.";
    EVENTED_PLEG_CONNECTION_LATENCY_SECONDS: Histogram(SECONDS) "kubelet_evented_pleg_connection_latency_seconds" []
        "[ALPHA] The latency of streaming connection with the CRI runtime, measured in seconds.";
    EVENTED_PLEG_CONNECTION_SUCCESS_COUNT: Counter "kubelet_evented_pleg_connection_success_count" []
        "[ALPHA] The number of times a streaming client was obtained to receive CRI Events.";
    EVICTION_STATS_AGE_SECONDS: Histogram(SECONDS) "kubelet_eviction_stats_age_seconds" ["eviction_signal"]
        "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal";
    EVICTIONS: Counter "kubelet_evictions" ["eviction_signal"]
        "[ALPHA] Cumulative number of pod evictions by eviction signal";
    FIRST_NETWORK_POD_START_SLI_DURATION_SECONDS: Gauge "kubelet_first_network_pod_start_sli_duration_seconds" []
        "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch";
    GRACEFUL_SHUTDOWN_END_TIME_SECONDS: Gauge "kubelet_graceful_shutdown_end_time_seconds" []
        "[ALPHA] Last graceful shutdown end time since unix epoch in seconds";
    GRACEFUL_SHUTDOWN_START_TIME_SECONDS: Gauge "kubelet_graceful_shutdown_start_time_seconds" []
        "[ALPHA] Last graceful shutdown start time since unix epoch in seconds";
    HTTP_INFLIGHT_REQUESTS: Gauge "kubelet_http_inflight_requests" ["long_running", "method", "path", "server_type"]
        "[ALPHA] Number of the inflight http requests";
    HTTP_REQUESTS_DURATION_SECONDS: Histogram(SECONDS) "kubelet_http_requests_duration_seconds" ["long_running", "method", "path", "server_type"]
        "[ALPHA] Duration in seconds to serve http requests";
    HTTP_REQUESTS_TOTAL: Counter "kubelet_http_requests_total" ["long_running", "method", "path", "server_type"]
        "[ALPHA] Number of the http requests received since the server started";
    IMAGE_GARBAGE_COLLECTED_TOTAL: Counter "kubelet_image_garbage_collected_total" ["reason"]
        "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.";
    IMAGE_MANAGER_ENSURE_IMAGE_REQUESTS_TOTAL: Counter "kubelet_image_manager_ensure_image_requests_total" ["present_locally", "pull_policy", "pull_required"]
        "[ALPHA] Number of ensure-image requests processed by the kubelet.";
    IMAGE_PULL_DURATION_SECONDS: Histogram(PULLS) "kubelet_image_pull_duration_seconds" ["image_size_in_bytes"]
        "[ALPHA] Duration in seconds to pull an image.";
    IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL: Counter "kubelet_image_volume_mounted_errors_total" []
        "[BETA] Number of failed image volume mounts.";
    IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL: Counter "kubelet_image_volume_mounted_succeed_total" []
        "[BETA] Number of successful image volume mounts.";
    IMAGE_VOLUME_REQUESTED_TOTAL: Counter "kubelet_image_volume_requested_total" []
        "[BETA] Number of requested image volumes.";
    IMAGEMANAGER_IMAGE_MUSTPULL_CHECKS_TOTAL: Counter "kubelet_imagemanager_image_mustpull_checks_total" ["result"]
        "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image";
    IMAGEMANAGER_ONDISK_PULLEDRECORDS: Gauge "kubelet_imagemanager_ondisk_pulledrecords" []
        "[ALPHA] Number of ImagePulledRecords stored on disk.";
    IMAGEMANAGER_ONDISK_PULLINTENTS: Gauge "kubelet_imagemanager_ondisk_pullintents" []
        "[ALPHA] Number of ImagePullIntents stored on disk.";
    LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL: Counter "kubelet_lifecycle_handler_http_fallbacks_total" []
        "[ALPHA] The number of times lifecycle handlers successfully fell back to http from https.";
    MANAGED_EPHEMERAL_CONTAINERS: Gauge "kubelet_managed_ephemeral_containers" []
        "[ALPHA] Current number of ephemeral containers in pods managed by this kubelet.";
    METRICS_PROVIDER: Gauge "kubelet_metrics_provider" ["provider"]
        "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'";
    MIRROR_PODS: Gauge "kubelet_mirror_pods" []
        "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)";
    NODE_NAME: Gauge "kubelet_node_name" ["node"]
        "[ALPHA] The node's name. The count is always 1.";
    NODE_STARTUP_DURATION_SECONDS: Gauge "kubelet_node_startup_duration_seconds" []
        "[ALPHA] Duration in seconds of node startup in total.";
    NODE_STARTUP_POST_REGISTRATION_DURATION_SECONDS: Gauge "kubelet_node_startup_post_registration_duration_seconds" []
        "[ALPHA] Duration in seconds of node startup after registration.";
    NODE_STARTUP_PRE_KUBELET_DURATION_SECONDS: Gauge "kubelet_node_startup_pre_kubelet_duration_seconds" []
        "[ALPHA] Duration in seconds of node startup before kubelet starts.";
    NODE_STARTUP_PRE_REGISTRATION_DURATION_SECONDS: Gauge "kubelet_node_startup_pre_registration_duration_seconds" []
        "[ALPHA] Duration in seconds of node startup before registration.";
    NODE_STARTUP_REGISTRATION_DURATION_SECONDS: Gauge "kubelet_node_startup_registration_duration_seconds" []
        "[ALPHA] Duration in seconds of node startup during registration.";
    ORPHAN_POD_CLEANED_VOLUMES: Gauge "kubelet_orphan_pod_cleaned_volumes" []
        "[ALPHA] The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.";
    ORPHAN_POD_CLEANED_VOLUMES_ERRORS: Gauge "kubelet_orphan_pod_cleaned_volumes_errors" []
        "[ALPHA] The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.";
    ORPHANED_RUNTIME_PODS_TOTAL: Counter "kubelet_orphaned_runtime_pods_total" []
        "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.";
    PLEG_LAST_SEEN_SECONDS: Gauge "kubelet_pleg_last_seen_seconds" []
        "[ALPHA] Timestamp in seconds when PLEG was last seen active.";
    PLEG_POD_RELIST_DURATION_SECONDS: Histogram(SECONDS) "kubelet_pleg_pod_relist_duration_seconds" []
        "[ALPHA] Duration in seconds for relisting a single pod in PLEG.";
    PLEG_RELIST_DURATION_SECONDS: Histogram(SECONDS) "kubelet_pleg_relist_duration_seconds" []
        "[ALPHA] Duration in seconds for relisting pods in PLEG.";
    PLEG_RELIST_INTERVAL_SECONDS: Histogram(SECONDS) "kubelet_pleg_relist_interval_seconds" []
        "[ALPHA] Interval in seconds between relisting in PLEG.";
    POD_DEFERRED_ACCEPTED_RESIZES_TOTAL: Counter "kubelet_pod_deferred_accepted_resizes_total" ["retry_trigger"]
        "[ALPHA] Cumulative number of resizes that were accepted after being deferred.";
    POD_IN_PROGRESS_RESIZES: Gauge "kubelet_pod_in_progress_resizes" []
        "[ALPHA] Number of in-progress resizes for pods.";
    POD_INFEASIBLE_RESIZES_TOTAL: Counter "kubelet_pod_infeasible_resizes_total" ["reason_detail"]
        "[ALPHA] Number of infeasible resizes for pods.";
    POD_PENDING_RESIZES: Gauge "kubelet_pod_pending_resizes" ["reason"]
        "[ALPHA] Number of pending resizes for pods.";
    POD_RESIZE_DURATION_MILLISECONDS: Histogram(RESIZES) "kubelet_pod_resize_duration_milliseconds" ["success"]
        "[ALPHA] Duration in milliseconds to actuate a pod resize";
    POD_START_DURATION_SECONDS: Histogram(STARTS) "kubelet_pod_start_duration_seconds" []
        "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run";
    POD_START_SLI_DURATION_SECONDS: Histogram(STARTS) "kubelet_pod_start_sli_duration_seconds" []
        "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch";
    POD_START_TOTAL_DURATION_SECONDS: Histogram(STARTS) "kubelet_pod_start_total_duration_seconds" []
        "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch";
    POD_STATUS_SYNC_DURATION_SECONDS: Histogram(STATUS) "kubelet_pod_status_sync_duration_seconds" []
        "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.";
    POD_WORKER_DURATION_SECONDS: Histogram(SECONDS) "kubelet_pod_worker_duration_seconds" ["operation_type"]
        "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync";
    POD_WORKER_START_DURATION_SECONDS: Histogram(SECONDS) "kubelet_pod_worker_start_duration_seconds" []
        "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.";
    PODCERTIFICATE_STATES: Gauge "kubelet_podcertificate_states" ["signer_name", "state"]
        "[ALPHA] Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.";
    PREEMPTIONS: Counter "kubelet_preemptions" ["preemption_signal"]
        "[ALPHA] Cumulative number of pod preemptions by preemption resource";
    RESTARTED_PODS_TOTAL: Counter "kubelet_restarted_pods_total" ["static"]
        "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)";
    RUN_PODSANDBOX_DURATION_SECONDS: Histogram(SECONDS) "kubelet_run_podsandbox_duration_seconds" ["runtime_handler"]
        "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.";
    RUN_PODSANDBOX_ERRORS_TOTAL: Counter "kubelet_run_podsandbox_errors_total" ["runtime_handler"]
        "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.";
    RUNNING_CONTAINERS: Gauge "kubelet_running_containers" ["container_state"]
        "[ALPHA] Number of containers currently running";
    RUNNING_PODS: Gauge "kubelet_running_pods" []
        "[ALPHA] Number of pods that have a running pod sandbox";
    RUNTIME_OPERATIONS_DURATION_SECONDS: Histogram(OPERATIONS) "kubelet_runtime_operations_duration_seconds" ["operation_type"]
        "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.";
    RUNTIME_OPERATIONS_ERRORS_TOTAL: Counter "kubelet_runtime_operations_errors_total" ["operation_type"]
        "[ALPHA] Cumulative number of runtime operation errors by operation type.";
    RUNTIME_OPERATIONS_TOTAL: Counter "kubelet_runtime_operations_total" ["operation_type"]
        "[ALPHA] Cumulative number of runtime operations by operation type.";
    SERVER_EXPIRATION_RENEW_ERRORS: Counter "kubelet_server_expiration_renew_errors" []
        "[ALPHA] Counter of certificate renewal errors.";
    SLEEP_ACTION_TERMINATED_EARLY_TOTAL: Counter "kubelet_sleep_action_terminated_early_total" []
        "[ALPHA] The number of times lifecycle sleep handler got terminated before it finishes";
    STARTED_CONTAINERS_ERRORS_TOTAL: Counter "kubelet_started_containers_errors_total" ["code", "container_type"]
        "[ALPHA] Cumulative number of errors when starting containers";
    STARTED_CONTAINERS_TOTAL: Counter "kubelet_started_containers_total" ["container_type"]
        "[ALPHA] Cumulative number of containers started";
    STARTED_PODS_ERRORS_TOTAL: Counter "kubelet_started_pods_errors_total" []
        "[ALPHA] Cumulative number of errors when starting pods";
    STARTED_PODS_TOTAL: Counter "kubelet_started_pods_total" []
        "[ALPHA] Cumulative number of pods started";
    STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL: Counter "kubelet_started_user_namespaced_pods_errors_total" []
        "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.";
    STARTED_USER_NAMESPACED_PODS_TOTAL: Counter "kubelet_started_user_namespaced_pods_total" []
        "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.";
    TERMINATED_CONTAINERS_TOTAL: Counter "kubelet_terminated_containers_total" ["container_type", "exit_code", "reason"]
        "[ALPHA] Cumulative number of container terminations.";
    VOLUME_METRIC_COLLECTION_DURATION_SECONDS: Histogram(SECONDS) "kubelet_volume_metric_collection_duration_seconds" ["metric_source"]
        "[ALPHA] Duration in seconds to calculate volume stats";
    VOLUME_STATS_AVAILABLE_BYTES: Gauge "kubelet_volume_stats_available_bytes" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Number of available bytes in the volume";
    VOLUME_STATS_CAPACITY_BYTES: Gauge "kubelet_volume_stats_capacity_bytes" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Capacity in bytes of the volume";
    VOLUME_STATS_HEALTH_STATUS_ABNORMAL: Gauge "kubelet_volume_stats_health_status_abnormal" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy";
    VOLUME_STATS_INODES: Gauge "kubelet_volume_stats_inodes" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Maximum number of inodes in the volume";
    VOLUME_STATS_INODES_FREE: Gauge "kubelet_volume_stats_inodes_free" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Number of free inodes in the volume";
    VOLUME_STATS_INODES_USED: Gauge "kubelet_volume_stats_inodes_used" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Number of used inodes in the volume";
    VOLUME_STATS_USED_BYTES: Gauge "kubelet_volume_stats_used_bytes" ["namespace", "persistentvolumeclaim"]
        "[ALPHA] Number of used bytes in the volume";
    WEBSOCKET_STREAMING_REQUESTS_TOTAL: Counter "kubelet_websocket_streaming_requests_total" ["subresource"]
        "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.";
    WORKING_PODS: Gauge "kubelet_working_pods" ["config", "lifecycle", "static"]
        "[ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.";
    PLUGIN_MANAGER_TOTAL_PLUGINS: Gauge "plugin_manager_total_plugins" ["socket_path", "state"]
        "[ALPHA] Number of plugins in Plugin Manager";
    STORAGE_OPERATION_DURATION_SECONDS: Histogram(STORAGE) "storage_operation_duration_seconds" ["migrated", "operation_name", "status", "volume_plugin"]
        "[ALPHA] Storage operation duration";
    VOLUME_MANAGER_SELINUX_CONTAINER_ERRORS_TOTAL: Gauge "volume_manager_selinux_container_errors_total" ["access_mode"]
        "[ALPHA] Number of errors when kubelet cannot compute SELinux context for a container. Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent the actual nr. of containers.";
    VOLUME_MANAGER_SELINUX_CONTAINER_WARNINGS_TOTAL: Gauge "volume_manager_selinux_container_warnings_total" ["access_mode"]
        "[ALPHA] Number of errors when kubelet cannot compute SELinux context for a container that are ignored. They will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes.";
    VOLUME_MANAGER_SELINUX_POD_CONTEXT_MISMATCH_ERRORS_TOTAL: Gauge "volume_manager_selinux_pod_context_mismatch_errors_total" ["access_mode"]
        "[ALPHA] Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume. Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent the actual nr. of Pods.";
    VOLUME_MANAGER_SELINUX_POD_CONTEXT_MISMATCH_WARNINGS_TOTAL: Gauge "volume_manager_selinux_pod_context_mismatch_warnings_total" ["access_mode"]
        "[ALPHA] Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume. They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes.";
    VOLUME_MANAGER_SELINUX_VOLUME_CONTEXT_MISMATCH_ERRORS_TOTAL: Gauge "volume_manager_selinux_volume_context_mismatch_errors_total" ["access_mode", "volume_plugin"]
        "[ALPHA] Number of errors when a Pod uses a volume that is already mounted with a different SELinux context than the Pod needs. Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent the actual nr. of Pods.";
    VOLUME_MANAGER_SELINUX_VOLUME_CONTEXT_MISMATCH_WARNINGS_TOTAL: Gauge "volume_manager_selinux_volume_context_mismatch_warnings_total" ["access_mode", "volume_plugin"]
        "[ALPHA] Number of errors when a Pod uses a volume that is already mounted with a different SELinux context than the Pod needs. They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes.";
    VOLUME_MANAGER_SELINUX_VOLUMES_ADMITTED_TOTAL: Gauge "volume_manager_selinux_volumes_admitted_total" ["access_mode", "volume_plugin"]
        "[ALPHA] Number of volumes whose SELinux context was fine and will be mounted with mount -o context option.";
    VOLUME_MANAGER_TOTAL_VOLUMES: Gauge "volume_manager_total_volumes" ["plugin_name", "state"]
        "[ALPHA] Number of volumes in Volume Manager";
}
