//! `io.k8s.api.core.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { AWSElasticBlockStoreVolumeSource aws_elastic_block_store_volume_source 282 {
    0 VOLUME_ID volume_id: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 PARTITION partition: i64;
    3 READ_ONLY read_only: bool;
} }

view! { Affinity affinity 283 {
    0 NODE_AFFINITY node_affinity: Option<NodeAffinity<'a>>;
    1 POD_AFFINITY pod_affinity: Option<PodAffinity<'a>>;
    2 POD_ANTI_AFFINITY pod_anti_affinity: Option<PodAntiAffinity<'a>>;
} }

view! { AppArmorProfile app_armor_profile 284 {
    0 TYPE type_: &'a str;
    1 LOCALHOST_PROFILE localhost_profile: Option<&'a str>;
} }

view! { AttachedVolume attached_volume 285 {
    0 NAME name: &'a str;
    1 DEVICE_PATH device_path: &'a str;
} }

view! { AzureDiskVolumeSource azure_disk_volume_source 286 {
    0 DISK_NAME disk_name: &'a str;
    1 DISK_URI disk_uri: &'a str;
    2 CACHING_MODE caching_mode: Option<&'a str>;
    3 FS_TYPE fs_type: Option<&'a str>;
    4 READ_ONLY read_only: Option<bool>;
    5 KIND kind: Option<&'a str>;
} }

view! { AzureFilePersistentVolumeSource azure_file_persistent_volume_source 287 {
    0 SECRET_NAME secret_name: &'a str;
    1 SHARE_NAME share_name: &'a str;
    2 READ_ONLY read_only: bool;
    3 SECRET_NAMESPACE secret_namespace: Option<&'a str>;
} }

view! { AzureFileVolumeSource azure_file_volume_source 288 {
    0 SECRET_NAME secret_name: &'a str;
    1 SHARE_NAME share_name: &'a str;
    2 READ_ONLY read_only: bool;
} }

view! { Binding binding 289 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 TARGET target: ObjectReference<'a>;
} }

view! { CSIPersistentVolumeSource csi_persistent_volume_source 290 {
    0 DRIVER driver: &'a str;
    1 VOLUME_HANDLE volume_handle: &'a str;
    2 READ_ONLY read_only: bool;
    3 FS_TYPE fs_type: &'a str;
    4 VOLUME_ATTRIBUTES volume_attributes: MapView<'a, &'a str>;
    5 CONTROLLER_PUBLISH_SECRET_REF controller_publish_secret_ref: Option<SecretReference<'a>>;
    6 NODE_STAGE_SECRET_REF node_stage_secret_ref: Option<SecretReference<'a>>;
    7 NODE_PUBLISH_SECRET_REF node_publish_secret_ref: Option<SecretReference<'a>>;
    8 CONTROLLER_EXPAND_SECRET_REF controller_expand_secret_ref: Option<SecretReference<'a>>;
    9 NODE_EXPAND_SECRET_REF node_expand_secret_ref: Option<SecretReference<'a>>;
} }

view! { CSIVolumeSource csi_volume_source 291 {
    0 DRIVER driver: &'a str;
    1 READ_ONLY read_only: Option<bool>;
    2 FS_TYPE fs_type: Option<&'a str>;
    3 VOLUME_ATTRIBUTES volume_attributes: MapView<'a, &'a str>;
    4 NODE_PUBLISH_SECRET_REF node_publish_secret_ref: Option<LocalObjectReference<'a>>;
} }

view! { Capabilities capabilities 292 {
    0 ADD add: ListView<'a, &'a str>;
    1 DROP drop: ListView<'a, &'a str>;
} }

view! { CephFSPersistentVolumeSource ceph_fs_persistent_volume_source 293 {
    0 MONITORS monitors: ListView<'a, &'a str>;
    1 PATH path: &'a str;
    2 USER user: &'a str;
    3 SECRET_FILE secret_file: &'a str;
    4 SECRET_REF secret_ref: Option<SecretReference<'a>>;
    5 READ_ONLY read_only: bool;
} }

view! { CephFSVolumeSource ceph_fs_volume_source 294 {
    0 MONITORS monitors: ListView<'a, &'a str>;
    1 PATH path: &'a str;
    2 USER user: &'a str;
    3 SECRET_FILE secret_file: &'a str;
    4 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
    5 READ_ONLY read_only: bool;
} }

view! { CinderPersistentVolumeSource cinder_persistent_volume_source 295 {
    0 VOLUME_ID volume_id: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 READ_ONLY read_only: bool;
    3 SECRET_REF secret_ref: Option<SecretReference<'a>>;
} }

view! { CinderVolumeSource cinder_volume_source 296 {
    0 VOLUME_ID volume_id: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 READ_ONLY read_only: bool;
    3 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
} }

view! { ClientIPConfig client_ip_config 297 {
    0 TIMEOUT_SECONDS timeout_seconds: Option<i64>;
} }

view! { ClusterTrustBundleProjection cluster_trust_bundle_projection 298 {
    0 NAME name: Option<&'a str>;
    1 SIGNER_NAME signer_name: Option<&'a str>;
    2 LABEL_SELECTOR label_selector: Option<meta_v1::LabelSelector<'a>>;
    3 OPTIONAL optional: Option<bool>;
    4 PATH path: &'a str;
} }

view! { ComponentCondition component_condition 299 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 MESSAGE message: &'a str;
    3 ERROR error: &'a str;
} }

view! { ComponentStatus component_status 300 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 CONDITIONS conditions: ListView<'a, ComponentCondition<'a>>;
} }

view! { ComponentStatusList component_status_list 301 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ComponentStatus<'a>>;
} }

view! { ConfigMap config_map 302 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 IMMUTABLE immutable: Option<bool>;
    4 DATA data: MapView<'a, &'a str>;
    5 BINARY_DATA binary_data: MapView<'a, &'a str>;
} }

view! { ConfigMapEnvSource config_map_env_source 303 {
    0 NAME name: &'a str;
    1 OPTIONAL optional: Option<bool>;
} }

view! { ConfigMapKeySelector config_map_key_selector 304 {
    0 NAME name: &'a str;
    1 KEY key: &'a str;
    2 OPTIONAL optional: Option<bool>;
} }

view! { ConfigMapList config_map_list 305 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ConfigMap<'a>>;
} }

view! { ConfigMapNodeConfigSource config_map_node_config_source 306 {
    0 NAMESPACE namespace: &'a str;
    1 NAME name: &'a str;
    2 UID uid: &'a str;
    3 RESOURCE_VERSION resource_version: &'a str;
    4 KUBELET_CONFIG_KEY kubelet_config_key: &'a str;
} }

view! { ConfigMapProjection config_map_projection 307 {
    0 NAME name: &'a str;
    1 ITEMS items: ListView<'a, KeyToPath<'a>>;
    2 OPTIONAL optional: Option<bool>;
} }

view! { ConfigMapVolumeSource config_map_volume_source 308 {
    0 NAME name: &'a str;
    1 ITEMS items: ListView<'a, KeyToPath<'a>>;
    2 DEFAULT_MODE default_mode: Option<i64>;
    3 OPTIONAL optional: Option<bool>;
} }

view! { Container container 309 {
    0 NAME name: &'a str;
    1 IMAGE image: &'a str;
    2 COMMAND command: ListView<'a, &'a str>;
    3 ARGS args: ListView<'a, &'a str>;
    4 WORKING_DIR working_dir: &'a str;
    5 PORTS ports: ListView<'a, ContainerPort<'a>>;
    6 ENV_FROM env_from: ListView<'a, EnvFromSource<'a>>;
    7 ENV env: ListView<'a, EnvVar<'a>>;
    8 RESOURCES resources: ResourceRequirements<'a>;
    9 RESIZE_POLICY resize_policy: ListView<'a, ContainerResizePolicy<'a>>;
    10 RESTART_POLICY restart_policy: Option<&'a str>;
    11 RESTART_POLICY_RULES restart_policy_rules: ListView<'a, ContainerRestartRule<'a>>;
    12 VOLUME_MOUNTS volume_mounts: ListView<'a, VolumeMount<'a>>;
    13 VOLUME_DEVICES volume_devices: ListView<'a, VolumeDevice<'a>>;
    14 LIVENESS_PROBE liveness_probe: Option<Probe<'a>>;
    15 READINESS_PROBE readiness_probe: Option<Probe<'a>>;
    16 STARTUP_PROBE startup_probe: Option<Probe<'a>>;
    17 LIFECYCLE lifecycle: Option<Lifecycle<'a>>;
    18 TERMINATION_MESSAGE_PATH termination_message_path: &'a str;
    19 TERMINATION_MESSAGE_POLICY termination_message_policy: &'a str;
    20 IMAGE_PULL_POLICY image_pull_policy: &'a str;
    21 SECURITY_CONTEXT security_context: Option<SecurityContext<'a>>;
    22 STDIN stdin: bool;
    23 STDIN_ONCE stdin_once: bool;
    24 TTY tty: bool;
} }

view! { ContainerExtendedResourceRequest container_extended_resource_request 310 {
    0 CONTAINER_NAME container_name: &'a str;
    1 RESOURCE_NAME resource_name: &'a str;
    2 REQUEST_NAME request_name: &'a str;
} }

view! { ContainerImage container_image 311 {
    0 NAMES names: ListView<'a, &'a str>;
    1 SIZE_BYTES size_bytes: i64;
} }

view! { ContainerPort container_port 312 {
    0 NAME name: &'a str;
    1 HOST_PORT host_port: i64;
    2 CONTAINER_PORT container_port: i64;
    3 PROTOCOL protocol: &'a str;
    4 HOST_IP host_ip: &'a str;
} }

view! { ContainerResizePolicy container_resize_policy 313 {
    0 RESOURCE_NAME resource_name: &'a str;
    1 RESTART_POLICY restart_policy: &'a str;
} }

view! { ContainerRestartRule container_restart_rule 314 {
    0 ACTION action: &'a str;
    1 EXIT_CODES exit_codes: Option<ContainerRestartRuleOnExitCodes<'a>>;
} }

view! { ContainerRestartRuleOnExitCodes container_restart_rule_on_exit_codes 315 {
    0 OPERATOR operator: &'a str;
    1 VALUES values: ListView<'a, i64>;
} }

view! { ContainerState container_state 316 {
    0 WAITING waiting: Option<ContainerStateWaiting<'a>>;
    1 RUNNING running: Option<ContainerStateRunning<'a>>;
    2 TERMINATED terminated: Option<ContainerStateTerminated<'a>>;
} }

view! { ContainerStateRunning container_state_running 317 {
    0 STARTED_AT started_at: &'a str;
} }

view! { ContainerStateTerminated container_state_terminated 318 {
    0 EXIT_CODE exit_code: i64;
    1 SIGNAL signal: i64;
    2 REASON reason: &'a str;
    3 MESSAGE message: &'a str;
    4 STARTED_AT started_at: &'a str;
    5 FINISHED_AT finished_at: &'a str;
    6 CONTAINER_ID container_id: &'a str;
} }

view! { ContainerStateWaiting container_state_waiting 319 {
    0 REASON reason: &'a str;
    1 MESSAGE message: &'a str;
} }

view! { ContainerStatus container_status 320 {
    0 NAME name: &'a str;
    1 STATE state: ContainerState<'a>;
    2 LAST_STATE last_state: ContainerState<'a>;
    3 READY ready: bool;
    4 RESTART_COUNT restart_count: i64;
    5 IMAGE image: &'a str;
    6 IMAGE_ID image_id: &'a str;
    7 CONTAINER_ID container_id: &'a str;
    8 STARTED started: Option<bool>;
    9 ALLOCATED_RESOURCES allocated_resources: MapView<'a, &'a str>;
    10 RESOURCES resources: Option<ResourceRequirements<'a>>;
    11 VOLUME_MOUNTS volume_mounts: ListView<'a, VolumeMountStatus<'a>>;
    12 USER user: Option<ContainerUser<'a>>;
    13 ALLOCATED_RESOURCES_STATUS allocated_resources_status: ListView<'a, ResourceStatus<'a>>;
    14 STOP_SIGNAL stop_signal: Option<&'a str>;
} }

view! { ContainerUser container_user 321 {
    0 LINUX linux: Option<LinuxContainerUser<'a>>;
} }

view! { DaemonEndpoint daemon_endpoint 322 {
    0 PORT port: i64;
} }

view! { DownwardAPIProjection downward_api_projection 323 {
    0 ITEMS items: ListView<'a, DownwardAPIVolumeFile<'a>>;
} }

view! { DownwardAPIVolumeFile downward_api_volume_file 324 {
    0 PATH path: &'a str;
    1 FIELD_REF field_ref: Option<ObjectFieldSelector<'a>>;
    2 RESOURCE_FIELD_REF resource_field_ref: Option<ResourceFieldSelector<'a>>;
    3 MODE mode: Option<i64>;
} }

view! { DownwardAPIVolumeSource downward_api_volume_source 325 {
    0 ITEMS items: ListView<'a, DownwardAPIVolumeFile<'a>>;
    1 DEFAULT_MODE default_mode: Option<i64>;
} }

view! { EmptyDirVolumeSource empty_dir_volume_source 326 {
    0 MEDIUM medium: &'a str;
    1 SIZE_LIMIT size_limit: Option<&'a str>;
} }

view! { EndpointAddress endpoint_address 327 {
    0 IP ip: &'a str;
    1 HOSTNAME hostname: &'a str;
    2 NODE_NAME node_name: Option<&'a str>;
    3 TARGET_REF target_ref: Option<ObjectReference<'a>>;
} }

view! { EndpointPort endpoint_port 328 {
    0 NAME name: &'a str;
    1 PORT port: i64;
    2 PROTOCOL protocol: &'a str;
    3 APP_PROTOCOL app_protocol: Option<&'a str>;
} }

view! { EndpointSubset endpoint_subset 329 {
    0 ADDRESSES addresses: ListView<'a, EndpointAddress<'a>>;
    1 NOT_READY_ADDRESSES not_ready_addresses: ListView<'a, EndpointAddress<'a>>;
    2 PORTS ports: ListView<'a, EndpointPort<'a>>;
} }

view! { Endpoints endpoints 330 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SUBSETS subsets: ListView<'a, EndpointSubset<'a>>;
} }

view! { EndpointsList endpoints_list 331 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Endpoints<'a>>;
} }

view! { EnvFromSource env_from_source 332 {
    0 PREFIX prefix: &'a str;
    1 CONFIG_MAP_REF config_map_ref: Option<ConfigMapEnvSource<'a>>;
    2 SECRET_REF secret_ref: Option<SecretEnvSource<'a>>;
} }

view! { EnvVar env_var 333 {
    0 NAME name: &'a str;
    1 VALUE value: &'a str;
    2 VALUE_FROM value_from: Option<EnvVarSource<'a>>;
} }

view! { EnvVarSource env_var_source 334 {
    0 FIELD_REF field_ref: Option<ObjectFieldSelector<'a>>;
    1 RESOURCE_FIELD_REF resource_field_ref: Option<ResourceFieldSelector<'a>>;
    2 CONFIG_MAP_KEY_REF config_map_key_ref: Option<ConfigMapKeySelector<'a>>;
    3 SECRET_KEY_REF secret_key_ref: Option<SecretKeySelector<'a>>;
    4 FILE_KEY_REF file_key_ref: Option<FileKeySelector<'a>>;
} }

view! { EphemeralContainer ephemeral_container 335 {
    0 NAME name: &'a str;
    1 IMAGE image: &'a str;
    2 COMMAND command: ListView<'a, &'a str>;
    3 ARGS args: ListView<'a, &'a str>;
    4 WORKING_DIR working_dir: &'a str;
    5 PORTS ports: ListView<'a, ContainerPort<'a>>;
    6 ENV_FROM env_from: ListView<'a, EnvFromSource<'a>>;
    7 ENV env: ListView<'a, EnvVar<'a>>;
    8 RESOURCES resources: ResourceRequirements<'a>;
    9 RESIZE_POLICY resize_policy: ListView<'a, ContainerResizePolicy<'a>>;
    10 RESTART_POLICY restart_policy: Option<&'a str>;
    11 RESTART_POLICY_RULES restart_policy_rules: ListView<'a, ContainerRestartRule<'a>>;
    12 VOLUME_MOUNTS volume_mounts: ListView<'a, VolumeMount<'a>>;
    13 VOLUME_DEVICES volume_devices: ListView<'a, VolumeDevice<'a>>;
    14 LIVENESS_PROBE liveness_probe: Option<Probe<'a>>;
    15 READINESS_PROBE readiness_probe: Option<Probe<'a>>;
    16 STARTUP_PROBE startup_probe: Option<Probe<'a>>;
    17 LIFECYCLE lifecycle: Option<Lifecycle<'a>>;
    18 TERMINATION_MESSAGE_PATH termination_message_path: &'a str;
    19 TERMINATION_MESSAGE_POLICY termination_message_policy: &'a str;
    20 IMAGE_PULL_POLICY image_pull_policy: &'a str;
    21 SECURITY_CONTEXT security_context: Option<SecurityContext<'a>>;
    22 STDIN stdin: bool;
    23 STDIN_ONCE stdin_once: bool;
    24 TTY tty: bool;
    25 TARGET_CONTAINER_NAME target_container_name: &'a str;
} }

view! { EphemeralVolumeSource ephemeral_volume_source 336 {
    0 VOLUME_CLAIM_TEMPLATE volume_claim_template: Option<PersistentVolumeClaimTemplate<'a>>;
} }

view! { Event event 337 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 INVOLVED_OBJECT involved_object: ObjectReference<'a>;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
    6 SOURCE source: EventSource<'a>;
    7 FIRST_TIMESTAMP first_timestamp: &'a str;
    8 LAST_TIMESTAMP last_timestamp: &'a str;
    9 COUNT count: i64;
    10 TYPE type_: &'a str;
    11 EVENT_TIME event_time: &'a str;
    12 SERIES series: Option<EventSeries<'a>>;
    13 ACTION action: &'a str;
    14 RELATED related: Option<ObjectReference<'a>>;
    15 REPORTING_COMPONENT reporting_component: &'a str;
    16 REPORTING_INSTANCE reporting_instance: &'a str;
} }

view! { EventList event_list 338 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Event<'a>>;
} }

view! { EventSeries event_series 339 {
    0 COUNT count: i64;
    1 LAST_OBSERVED_TIME last_observed_time: &'a str;
} }

view! { EventSource event_source 340 {
    0 COMPONENT component: &'a str;
    1 HOST host: &'a str;
} }

view! { ExecAction exec_action 341 {
    0 COMMAND command: ListView<'a, &'a str>;
} }

view! { FCVolumeSource fc_volume_source 342 {
    0 TARGET_WWNS target_wwns: ListView<'a, &'a str>;
    1 LUN lun: Option<i64>;
    2 FS_TYPE fs_type: &'a str;
    3 READ_ONLY read_only: bool;
    4 WWIDS wwids: ListView<'a, &'a str>;
} }

view! { FileKeySelector file_key_selector 343 {
    0 VOLUME_NAME volume_name: &'a str;
    1 PATH path: &'a str;
    2 KEY key: &'a str;
    3 OPTIONAL optional: Option<bool>;
} }

view! { FlexPersistentVolumeSource flex_persistent_volume_source 344 {
    0 DRIVER driver: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 SECRET_REF secret_ref: Option<SecretReference<'a>>;
    3 READ_ONLY read_only: bool;
    4 OPTIONS options: MapView<'a, &'a str>;
} }

view! { FlexVolumeSource flex_volume_source 345 {
    0 DRIVER driver: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
    3 READ_ONLY read_only: bool;
    4 OPTIONS options: MapView<'a, &'a str>;
} }

view! { FlockerVolumeSource flocker_volume_source 346 {
    0 DATASET_NAME dataset_name: &'a str;
    1 DATASET_UUID dataset_uuid: &'a str;
} }

view! { GCEPersistentDiskVolumeSource gce_persistent_disk_volume_source 347 {
    0 PD_NAME pd_name: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 PARTITION partition: i64;
    3 READ_ONLY read_only: bool;
} }

view! { GRPCAction grpc_action 348 {
    0 PORT port: i64;
    1 SERVICE service: Option<&'a str>;
} }

view! { GitRepoVolumeSource git_repo_volume_source 349 {
    0 REPOSITORY repository: &'a str;
    1 REVISION revision: &'a str;
    2 DIRECTORY directory: &'a str;
} }

view! { GlusterfsPersistentVolumeSource glusterfs_persistent_volume_source 350 {
    0 ENDPOINTS endpoints: &'a str;
    1 PATH path: &'a str;
    2 READ_ONLY read_only: bool;
    3 ENDPOINTS_NAMESPACE endpoints_namespace: Option<&'a str>;
} }

view! { GlusterfsVolumeSource glusterfs_volume_source 351 {
    0 ENDPOINTS endpoints: &'a str;
    1 PATH path: &'a str;
    2 READ_ONLY read_only: bool;
} }

view! { HTTPGetAction http_get_action 352 {
    0 PATH path: &'a str;
    1 PORT port: IntOrStr<'a>;
    2 HOST host: &'a str;
    3 SCHEME scheme: &'a str;
    4 HTTP_HEADERS http_headers: ListView<'a, HTTPHeader<'a>>;
} }

view! { HTTPHeader http_header 353 {
    0 NAME name: &'a str;
    1 VALUE value: &'a str;
} }

view! { HostAlias host_alias 354 {
    0 IP ip: &'a str;
    1 HOSTNAMES hostnames: ListView<'a, &'a str>;
} }

view! { HostIP host_ip 355 {
    0 IP ip: &'a str;
} }

view! { HostPathVolumeSource host_path_volume_source 356 {
    0 PATH path: &'a str;
    1 TYPE type_: Option<&'a str>;
} }

view! { ISCSIPersistentVolumeSource iscsi_persistent_volume_source 357 {
    0 TARGET_PORTAL target_portal: &'a str;
    1 IQN iqn: &'a str;
    2 LUN lun: i64;
    3 ISCSI_INTERFACE iscsi_interface: &'a str;
    4 FS_TYPE fs_type: &'a str;
    5 READ_ONLY read_only: bool;
    6 PORTALS portals: ListView<'a, &'a str>;
    7 CHAP_AUTH_DISCOVERY chap_auth_discovery: bool;
    8 CHAP_AUTH_SESSION chap_auth_session: bool;
    9 SECRET_REF secret_ref: Option<SecretReference<'a>>;
    10 INITIATOR_NAME initiator_name: Option<&'a str>;
} }

view! { ISCSIVolumeSource iscsi_volume_source 358 {
    0 TARGET_PORTAL target_portal: &'a str;
    1 IQN iqn: &'a str;
    2 LUN lun: i64;
    3 ISCSI_INTERFACE iscsi_interface: &'a str;
    4 FS_TYPE fs_type: &'a str;
    5 READ_ONLY read_only: bool;
    6 PORTALS portals: ListView<'a, &'a str>;
    7 CHAP_AUTH_DISCOVERY chap_auth_discovery: bool;
    8 CHAP_AUTH_SESSION chap_auth_session: bool;
    9 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
    10 INITIATOR_NAME initiator_name: Option<&'a str>;
} }

view! { ImageVolumeSource image_volume_source 359 {
    0 REFERENCE reference: &'a str;
    1 PULL_POLICY pull_policy: &'a str;
} }

view! { ImageVolumeStatus image_volume_status 360 {
    0 IMAGE_REF image_ref: &'a str;
} }

view! { KeyToPath key_to_path 361 {
    0 KEY key: &'a str;
    1 PATH path: &'a str;
    2 MODE mode: Option<i64>;
} }

view! { Lifecycle lifecycle 362 {
    0 POST_START post_start: Option<LifecycleHandler<'a>>;
    1 PRE_STOP pre_stop: Option<LifecycleHandler<'a>>;
    2 STOP_SIGNAL stop_signal: Option<&'a str>;
} }

view! { LifecycleHandler lifecycle_handler 363 {
    0 EXEC exec: Option<ExecAction<'a>>;
    1 HTTP_GET http_get: Option<HTTPGetAction<'a>>;
    2 TCP_SOCKET tcp_socket: Option<TCPSocketAction<'a>>;
    3 SLEEP sleep: Option<SleepAction<'a>>;
} }

view! { LimitRange limit_range 364 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: LimitRangeSpec<'a>;
} }

view! { LimitRangeItem limit_range_item 365 {
    0 TYPE type_: &'a str;
    1 MAX max: MapView<'a, &'a str>;
    2 MIN min: MapView<'a, &'a str>;
    3 DEFAULT default: MapView<'a, &'a str>;
    4 DEFAULT_REQUEST default_request: MapView<'a, &'a str>;
    5 MAX_LIMIT_REQUEST_RATIO max_limit_request_ratio: MapView<'a, &'a str>;
} }

view! { LimitRangeList limit_range_list 366 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, LimitRange<'a>>;
} }

view! { LimitRangeSpec limit_range_spec 367 {
    0 LIMITS limits: ListView<'a, LimitRangeItem<'a>>;
} }

view! { LinuxContainerUser linux_container_user 368 {
    0 UID uid: i64;
    1 GID gid: i64;
    2 SUPPLEMENTAL_GROUPS supplemental_groups: ListView<'a, i64>;
} }

view! { LoadBalancerIngress load_balancer_ingress 369 {
    0 IP ip: &'a str;
    1 HOSTNAME hostname: &'a str;
    2 IP_MODE ip_mode: Option<&'a str>;
    3 PORTS ports: ListView<'a, PortStatus<'a>>;
} }

view! { LoadBalancerStatus load_balancer_status 370 {
    0 INGRESS ingress: ListView<'a, LoadBalancerIngress<'a>>;
} }

view! { LocalObjectReference local_object_reference 371 {
    0 NAME name: &'a str;
} }

view! { LocalVolumeSource local_volume_source 372 {
    0 PATH path: &'a str;
    1 FS_TYPE fs_type: Option<&'a str>;
} }

view! { ModifyVolumeStatus modify_volume_status 373 {
    0 TARGET_VOLUME_ATTRIBUTES_CLASS_NAME target_volume_attributes_class_name: &'a str;
    1 STATUS status: &'a str;
} }

view! { NFSVolumeSource nfs_volume_source 374 {
    0 SERVER server: &'a str;
    1 PATH path: &'a str;
    2 READ_ONLY read_only: bool;
} }

view! { Namespace namespace 375 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: NamespaceSpec<'a>;
    4 STATUS status: NamespaceStatus<'a>;
} }

view! { NamespaceCondition namespace_condition 376 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { NamespaceList namespace_list 377 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Namespace<'a>>;
} }

view! { NamespaceSpec namespace_spec 378 {
    0 FINALIZERS finalizers: ListView<'a, &'a str>;
} }

view! { NamespaceStatus namespace_status 379 {
    0 PHASE phase: &'a str;
    1 CONDITIONS conditions: ListView<'a, NamespaceCondition<'a>>;
} }

view! { Node node 380 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: NodeSpec<'a>;
    4 STATUS status: NodeStatus<'a>;
} }

view! { NodeAddress node_address 381 {
    0 TYPE type_: &'a str;
    1 ADDRESS address: &'a str;
} }

view! { NodeAffinity node_affinity 382 {
    0 REQUIRED_DURING_SCHEDULING_IGNORED_DURING_EXECUTION required_during_scheduling_ignored_during_execution: Option<NodeSelector<'a>>;
    1 PREFERRED_DURING_SCHEDULING_IGNORED_DURING_EXECUTION preferred_during_scheduling_ignored_during_execution: ListView<'a, PreferredSchedulingTerm<'a>>;
} }

view! { NodeAllocatableResourceClaimStatus node_allocatable_resource_claim_status 383 {
    0 RESOURCE_CLAIM_NAME resource_claim_name: &'a str;
    1 CONTAINERS containers: ListView<'a, &'a str>;
    2 RESOURCES resources: MapView<'a, &'a str>;
} }

view! { NodeCondition node_condition 384 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_HEARTBEAT_TIME last_heartbeat_time: &'a str;
    3 LAST_TRANSITION_TIME last_transition_time: &'a str;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
} }

view! { NodeConfigSource node_config_source 385 {
    0 CONFIG_MAP config_map: Option<ConfigMapNodeConfigSource<'a>>;
} }

view! { NodeConfigStatus node_config_status 386 {
    0 ASSIGNED assigned: Option<NodeConfigSource<'a>>;
    1 ACTIVE active: Option<NodeConfigSource<'a>>;
    2 LAST_KNOWN_GOOD last_known_good: Option<NodeConfigSource<'a>>;
    3 ERROR error: &'a str;
} }

view! { NodeDaemonEndpoints node_daemon_endpoints 387 {
    0 KUBELET_ENDPOINT kubelet_endpoint: DaemonEndpoint<'a>;
} }

view! { NodeFeatures node_features 388 {
    0 SUPPLEMENTAL_GROUPS_POLICY supplemental_groups_policy: Option<bool>;
} }

view! { NodeList node_list 389 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Node<'a>>;
} }

view! { NodeProxyOptions node_proxy_options 390 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 PATH path: &'a str;
} }

view! { NodeRuntimeHandler node_runtime_handler 391 {
    0 NAME name: &'a str;
    1 FEATURES features: Option<NodeRuntimeHandlerFeatures<'a>>;
} }

view! { NodeRuntimeHandlerFeatures node_runtime_handler_features 392 {
    0 RECURSIVE_READ_ONLY_MOUNTS recursive_read_only_mounts: Option<bool>;
    1 USER_NAMESPACES user_namespaces: Option<bool>;
} }

view! { NodeSelector node_selector 393 {
    0 NODE_SELECTOR_TERMS node_selector_terms: ListView<'a, NodeSelectorTerm<'a>>;
} }

view! { NodeSelectorRequirement node_selector_requirement 394 {
    0 KEY key: &'a str;
    1 OPERATOR operator: &'a str;
    2 VALUES values: ListView<'a, &'a str>;
} }

view! { NodeSelectorTerm node_selector_term 395 {
    0 MATCH_EXPRESSIONS match_expressions: ListView<'a, NodeSelectorRequirement<'a>>;
    1 MATCH_FIELDS match_fields: ListView<'a, NodeSelectorRequirement<'a>>;
} }

view! { NodeSpec node_spec 396 {
    0 POD_CIDR pod_cidr: &'a str;
    1 POD_CIDRS pod_cidrs: ListView<'a, &'a str>;
    2 PROVIDER_ID provider_id: &'a str;
    3 UNSCHEDULABLE unschedulable: bool;
    4 TAINTS taints: ListView<'a, Taint<'a>>;
    5 CONFIG_SOURCE config_source: Option<NodeConfigSource<'a>>;
    6 EXTERNAL_ID external_id: &'a str;
} }

view! { NodeStatus node_status 397 {
    0 CAPACITY capacity: MapView<'a, &'a str>;
    1 ALLOCATABLE allocatable: MapView<'a, &'a str>;
    2 PHASE phase: &'a str;
    3 CONDITIONS conditions: ListView<'a, NodeCondition<'a>>;
    4 ADDRESSES addresses: ListView<'a, NodeAddress<'a>>;
    5 DAEMON_ENDPOINTS daemon_endpoints: NodeDaemonEndpoints<'a>;
    6 NODE_INFO node_info: NodeSystemInfo<'a>;
    7 IMAGES images: ListView<'a, ContainerImage<'a>>;
    8 VOLUMES_IN_USE volumes_in_use: ListView<'a, &'a str>;
    9 VOLUMES_ATTACHED volumes_attached: ListView<'a, AttachedVolume<'a>>;
    10 CONFIG config: Option<NodeConfigStatus<'a>>;
    11 RUNTIME_HANDLERS runtime_handlers: ListView<'a, NodeRuntimeHandler<'a>>;
    12 FEATURES features: Option<NodeFeatures<'a>>;
    13 DECLARED_FEATURES declared_features: ListView<'a, &'a str>;
} }

view! { NodeSwapStatus node_swap_status 398 {
    0 CAPACITY capacity: Option<i64>;
} }

view! { NodeSystemInfo node_system_info 399 {
    0 MACHINE_ID machine_id: &'a str;
    1 SYSTEM_UUID system_uuid: &'a str;
    2 BOOT_ID boot_id: &'a str;
    3 KERNEL_VERSION kernel_version: &'a str;
    4 OS_IMAGE os_image: &'a str;
    5 CONTAINER_RUNTIME_VERSION container_runtime_version: &'a str;
    6 KUBELET_VERSION kubelet_version: &'a str;
    7 KUBE_PROXY_VERSION kube_proxy_version: &'a str;
    8 OPERATING_SYSTEM operating_system: &'a str;
    9 ARCHITECTURE architecture: &'a str;
    10 SWAP swap: Option<NodeSwapStatus<'a>>;
} }

view! { ObjectFieldSelector object_field_selector 400 {
    0 API_VERSION api_version: &'a str;
    1 FIELD_PATH field_path: &'a str;
} }

view! { ObjectReference object_reference 401 {
    0 KIND kind: &'a str;
    1 NAMESPACE namespace: &'a str;
    2 NAME name: &'a str;
    3 UID uid: &'a str;
    4 API_VERSION api_version: &'a str;
    5 RESOURCE_VERSION resource_version: &'a str;
    6 FIELD_PATH field_path: &'a str;
} }

view! { PersistentVolume persistent_volume 402 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PersistentVolumeSpec<'a>;
    4 STATUS status: PersistentVolumeStatus<'a>;
} }

view! { PersistentVolumeClaim persistent_volume_claim 403 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PersistentVolumeClaimSpec<'a>;
    4 STATUS status: PersistentVolumeClaimStatus<'a>;
} }

view! { PersistentVolumeClaimCondition persistent_volume_claim_condition 404 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_PROBE_TIME last_probe_time: &'a str;
    3 LAST_TRANSITION_TIME last_transition_time: &'a str;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
} }

view! { PersistentVolumeClaimList persistent_volume_claim_list 405 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PersistentVolumeClaim<'a>>;
} }

view! { PersistentVolumeClaimSpec persistent_volume_claim_spec 406 {
    0 ACCESS_MODES access_modes: ListView<'a, &'a str>;
    1 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    2 RESOURCES resources: VolumeResourceRequirements<'a>;
    3 VOLUME_NAME volume_name: &'a str;
    4 STORAGE_CLASS_NAME storage_class_name: Option<&'a str>;
    5 VOLUME_MODE volume_mode: Option<&'a str>;
    6 DATA_SOURCE data_source: Option<TypedLocalObjectReference<'a>>;
    7 DATA_SOURCE_REF data_source_ref: Option<TypedObjectReference<'a>>;
    8 VOLUME_ATTRIBUTES_CLASS_NAME volume_attributes_class_name: Option<&'a str>;
} }

view! { PersistentVolumeClaimStatus persistent_volume_claim_status 407 {
    0 PHASE phase: &'a str;
    1 ACCESS_MODES access_modes: ListView<'a, &'a str>;
    2 CAPACITY capacity: MapView<'a, &'a str>;
    3 CONDITIONS conditions: ListView<'a, PersistentVolumeClaimCondition<'a>>;
    4 ALLOCATED_RESOURCES allocated_resources: MapView<'a, &'a str>;
    5 ALLOCATED_RESOURCE_STATUSES allocated_resource_statuses: MapView<'a, &'a str>;
    6 CURRENT_VOLUME_ATTRIBUTES_CLASS_NAME current_volume_attributes_class_name: Option<&'a str>;
    7 MODIFY_VOLUME_STATUS modify_volume_status: Option<ModifyVolumeStatus<'a>>;
} }

view! { PersistentVolumeClaimTemplate persistent_volume_claim_template 408 {
    0 METADATA metadata: meta_v1::ObjectMeta<'a>;
    1 SPEC spec: PersistentVolumeClaimSpec<'a>;
} }

view! { PersistentVolumeClaimVolumeSource persistent_volume_claim_volume_source 409 {
    0 CLAIM_NAME claim_name: &'a str;
    1 READ_ONLY read_only: bool;
} }

view! { PersistentVolumeList persistent_volume_list 410 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PersistentVolume<'a>>;
} }

view! { PersistentVolumeSpec persistent_volume_spec 411 {
    0 CAPACITY capacity: MapView<'a, &'a str>;
    1 GCE_PERSISTENT_DISK gce_persistent_disk: Option<GCEPersistentDiskVolumeSource<'a>>;
    2 AWS_ELASTIC_BLOCK_STORE aws_elastic_block_store: Option<AWSElasticBlockStoreVolumeSource<'a>>;
    3 HOST_PATH host_path: Option<HostPathVolumeSource<'a>>;
    4 GLUSTERFS glusterfs: Option<GlusterfsPersistentVolumeSource<'a>>;
    5 NFS nfs: Option<NFSVolumeSource<'a>>;
    6 RBD rbd: Option<RBDPersistentVolumeSource<'a>>;
    7 ISCSI iscsi: Option<ISCSIPersistentVolumeSource<'a>>;
    8 CINDER cinder: Option<CinderPersistentVolumeSource<'a>>;
    9 CEPHFS cephfs: Option<CephFSPersistentVolumeSource<'a>>;
    10 FC fc: Option<FCVolumeSource<'a>>;
    11 FLOCKER flocker: Option<FlockerVolumeSource<'a>>;
    12 FLEX_VOLUME flex_volume: Option<FlexPersistentVolumeSource<'a>>;
    13 AZURE_FILE azure_file: Option<AzureFilePersistentVolumeSource<'a>>;
    14 VSPHERE_VOLUME vsphere_volume: Option<VsphereVirtualDiskVolumeSource<'a>>;
    15 QUOBYTE quobyte: Option<QuobyteVolumeSource<'a>>;
    16 AZURE_DISK azure_disk: Option<AzureDiskVolumeSource<'a>>;
    17 PHOTON_PERSISTENT_DISK photon_persistent_disk: Option<PhotonPersistentDiskVolumeSource<'a>>;
    18 PORTWORX_VOLUME portworx_volume: Option<PortworxVolumeSource<'a>>;
    19 SCALE_IO scale_io: Option<ScaleIOPersistentVolumeSource<'a>>;
    20 LOCAL local: Option<LocalVolumeSource<'a>>;
    21 STORAGEOS storageos: Option<StorageOSPersistentVolumeSource<'a>>;
    22 CSI csi: Option<CSIPersistentVolumeSource<'a>>;
    23 ACCESS_MODES access_modes: ListView<'a, &'a str>;
    24 CLAIM_REF claim_ref: Option<ObjectReference<'a>>;
    25 PERSISTENT_VOLUME_RECLAIM_POLICY persistent_volume_reclaim_policy: &'a str;
    26 STORAGE_CLASS_NAME storage_class_name: &'a str;
    27 MOUNT_OPTIONS mount_options: ListView<'a, &'a str>;
    28 VOLUME_MODE volume_mode: Option<&'a str>;
    29 NODE_AFFINITY node_affinity: Option<VolumeNodeAffinity<'a>>;
    30 VOLUME_ATTRIBUTES_CLASS_NAME volume_attributes_class_name: Option<&'a str>;
} }

view! { PersistentVolumeStatus persistent_volume_status 412 {
    0 PHASE phase: &'a str;
    1 MESSAGE message: &'a str;
    2 REASON reason: &'a str;
    3 LAST_PHASE_TRANSITION_TIME last_phase_transition_time: Option<&'a str>;
} }

view! { PhotonPersistentDiskVolumeSource photon_persistent_disk_volume_source 413 {
    0 PD_ID pd_id: &'a str;
    1 FS_TYPE fs_type: &'a str;
} }

view! { Pod pod 414 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PodSpec<'a>;
    4 STATUS status: PodStatus<'a>;
} }

view! { PodAffinity pod_affinity 415 {
    0 REQUIRED_DURING_SCHEDULING_IGNORED_DURING_EXECUTION required_during_scheduling_ignored_during_execution: ListView<'a, PodAffinityTerm<'a>>;
    1 PREFERRED_DURING_SCHEDULING_IGNORED_DURING_EXECUTION preferred_during_scheduling_ignored_during_execution: ListView<'a, WeightedPodAffinityTerm<'a>>;
} }

view! { PodAffinityTerm pod_affinity_term 416 {
    0 LABEL_SELECTOR label_selector: Option<meta_v1::LabelSelector<'a>>;
    1 NAMESPACES namespaces: ListView<'a, &'a str>;
    2 TOPOLOGY_KEY topology_key: &'a str;
    3 NAMESPACE_SELECTOR namespace_selector: Option<meta_v1::LabelSelector<'a>>;
    4 MATCH_LABEL_KEYS match_label_keys: ListView<'a, &'a str>;
    5 MISMATCH_LABEL_KEYS mismatch_label_keys: ListView<'a, &'a str>;
} }

view! { PodAntiAffinity pod_anti_affinity 417 {
    0 REQUIRED_DURING_SCHEDULING_IGNORED_DURING_EXECUTION required_during_scheduling_ignored_during_execution: ListView<'a, PodAffinityTerm<'a>>;
    1 PREFERRED_DURING_SCHEDULING_IGNORED_DURING_EXECUTION preferred_during_scheduling_ignored_during_execution: ListView<'a, WeightedPodAffinityTerm<'a>>;
} }

view! { PodAttachOptions pod_attach_options 418 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 STDIN stdin: bool;
    3 STDOUT stdout: bool;
    4 STDERR stderr: bool;
    5 TTY tty: bool;
    6 CONTAINER container: &'a str;
} }

view! { PodCertificateProjection pod_certificate_projection 419 {
    0 SIGNER_NAME signer_name: &'a str;
    1 KEY_TYPE key_type: &'a str;
    2 MAX_EXPIRATION_SECONDS max_expiration_seconds: Option<i64>;
    3 CREDENTIAL_BUNDLE_PATH credential_bundle_path: &'a str;
    4 KEY_PATH key_path: &'a str;
    5 CERTIFICATE_CHAIN_PATH certificate_chain_path: &'a str;
    6 USER_ANNOTATIONS user_annotations: MapView<'a, &'a str>;
} }

view! { PodCondition pod_condition 420 {
    0 TYPE type_: &'a str;
    1 OBSERVED_GENERATION observed_generation: i64;
    2 STATUS status: &'a str;
    3 LAST_PROBE_TIME last_probe_time: &'a str;
    4 LAST_TRANSITION_TIME last_transition_time: &'a str;
    5 REASON reason: &'a str;
    6 MESSAGE message: &'a str;
} }

view! { PodDNSConfig pod_dns_config 421 {
    0 NAMESERVERS nameservers: ListView<'a, &'a str>;
    1 SEARCHES searches: ListView<'a, &'a str>;
    2 OPTIONS options: ListView<'a, PodDNSConfigOption<'a>>;
} }

view! { PodDNSConfigOption pod_dns_config_option 422 {
    0 NAME name: &'a str;
    1 VALUE value: Option<&'a str>;
} }

view! { PodExecOptions pod_exec_options 423 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 STDIN stdin: bool;
    3 STDOUT stdout: bool;
    4 STDERR stderr: bool;
    5 TTY tty: bool;
    6 CONTAINER container: &'a str;
    7 COMMAND command: ListView<'a, &'a str>;
} }

view! { PodExtendedResourceClaimStatus pod_extended_resource_claim_status 424 {
    0 REQUEST_MAPPINGS request_mappings: ListView<'a, ContainerExtendedResourceRequest<'a>>;
    1 RESOURCE_CLAIM_NAME resource_claim_name: &'a str;
} }

view! { PodIP pod_ip 425 {
    0 IP ip: &'a str;
} }

view! { PodList pod_list 426 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Pod<'a>>;
} }

view! { PodLogOptions pod_log_options 427 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 CONTAINER container: &'a str;
    3 FOLLOW follow: bool;
    4 PREVIOUS previous: bool;
    5 SINCE_SECONDS since_seconds: Option<i64>;
    6 SINCE_TIME since_time: Option<&'a str>;
    7 TIMESTAMPS timestamps: bool;
    8 TAIL_LINES tail_lines: Option<i64>;
    9 LIMIT_BYTES limit_bytes: Option<i64>;
    10 INSECURE_SKIP_TLS_VERIFY_BACKEND insecure_skip_tls_verify_backend: bool;
    11 STREAM stream: Option<&'a str>;
} }

view! { PodOS pod_os 428 {
    0 NAME name: &'a str;
} }

view! { PodPortForwardOptions pod_port_forward_options 429 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 PORTS ports: ListView<'a, i64>;
} }

view! { PodProxyOptions pod_proxy_options 430 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 PATH path: &'a str;
} }

view! { PodReadinessGate pod_readiness_gate 431 {
    0 CONDITION_TYPE condition_type: &'a str;
} }

view! { PodResourceClaim pod_resource_claim 432 {
    0 NAME name: &'a str;
    1 RESOURCE_CLAIM_NAME resource_claim_name: Option<&'a str>;
    2 RESOURCE_CLAIM_TEMPLATE_NAME resource_claim_template_name: Option<&'a str>;
} }

view! { PodResourceClaimStatus pod_resource_claim_status 433 {
    0 NAME name: &'a str;
    1 RESOURCE_CLAIM_NAME resource_claim_name: Option<&'a str>;
} }

view! { PodSchedulingGate pod_scheduling_gate 434 {
    0 NAME name: &'a str;
} }

view! { PodSchedulingGroup pod_scheduling_group 435 {
    0 POD_GROUP_NAME pod_group_name: Option<&'a str>;
} }

view! { PodSecurityContext pod_security_context 436 {
    0 SE_LINUX_OPTIONS se_linux_options: Option<SELinuxOptions<'a>>;
    1 WINDOWS_OPTIONS windows_options: Option<WindowsSecurityContextOptions<'a>>;
    2 RUN_AS_USER run_as_user: Option<i64>;
    3 RUN_AS_GROUP run_as_group: Option<i64>;
    4 RUN_AS_NON_ROOT run_as_non_root: Option<bool>;
    5 SUPPLEMENTAL_GROUPS supplemental_groups: ListView<'a, i64>;
    6 SUPPLEMENTAL_GROUPS_POLICY supplemental_groups_policy: Option<&'a str>;
    7 FS_GROUP fs_group: Option<i64>;
    8 SYSCTLS sysctls: ListView<'a, Sysctl<'a>>;
    9 FS_GROUP_CHANGE_POLICY fs_group_change_policy: Option<&'a str>;
    10 SECCOMP_PROFILE seccomp_profile: Option<SeccompProfile<'a>>;
    11 APP_ARMOR_PROFILE app_armor_profile: Option<AppArmorProfile<'a>>;
    12 SE_LINUX_CHANGE_POLICY se_linux_change_policy: Option<&'a str>;
} }

view! { PodSpec pod_spec 437 {
    0 VOLUMES volumes: ListView<'a, Volume<'a>>;
    1 INIT_CONTAINERS init_containers: ListView<'a, Container<'a>>;
    2 CONTAINERS containers: ListView<'a, Container<'a>>;
    3 EPHEMERAL_CONTAINERS ephemeral_containers: ListView<'a, EphemeralContainer<'a>>;
    4 RESTART_POLICY restart_policy: &'a str;
    5 TERMINATION_GRACE_PERIOD_SECONDS termination_grace_period_seconds: Option<i64>;
    6 ACTIVE_DEADLINE_SECONDS active_deadline_seconds: Option<i64>;
    7 DNS_POLICY dns_policy: &'a str;
    8 NODE_SELECTOR node_selector: MapView<'a, &'a str>;
    9 SERVICE_ACCOUNT_NAME service_account_name: &'a str;
    10 SERVICE_ACCOUNT service_account: &'a str;
    11 AUTOMOUNT_SERVICE_ACCOUNT_TOKEN automount_service_account_token: Option<bool>;
    12 NODE_NAME node_name: &'a str;
    13 HOST_NETWORK host_network: bool;
    14 HOST_PID host_pid: bool;
    15 HOST_IPC host_ipc: bool;
    16 SHARE_PROCESS_NAMESPACE share_process_namespace: Option<bool>;
    17 SECURITY_CONTEXT security_context: Option<PodSecurityContext<'a>>;
    18 IMAGE_PULL_SECRETS image_pull_secrets: ListView<'a, LocalObjectReference<'a>>;
    19 HOSTNAME hostname: &'a str;
    20 SUBDOMAIN subdomain: &'a str;
    21 AFFINITY affinity: Option<Affinity<'a>>;
    22 SCHEDULER_NAME scheduler_name: &'a str;
    23 TOLERATIONS tolerations: ListView<'a, Toleration<'a>>;
    24 HOST_ALIASES host_aliases: ListView<'a, HostAlias<'a>>;
    25 PRIORITY_CLASS_NAME priority_class_name: &'a str;
    26 PRIORITY priority: Option<i64>;
    27 DNS_CONFIG dns_config: Option<PodDNSConfig<'a>>;
    28 READINESS_GATES readiness_gates: ListView<'a, PodReadinessGate<'a>>;
    29 RUNTIME_CLASS_NAME runtime_class_name: Option<&'a str>;
    30 ENABLE_SERVICE_LINKS enable_service_links: Option<bool>;
    31 PREEMPTION_POLICY preemption_policy: Option<&'a str>;
    32 OVERHEAD overhead: MapView<'a, &'a str>;
    33 TOPOLOGY_SPREAD_CONSTRAINTS topology_spread_constraints: ListView<'a, TopologySpreadConstraint<'a>>;
    34 SET_HOSTNAME_AS_FQDN set_hostname_as_fqdn: Option<bool>;
    35 OS os: Option<PodOS<'a>>;
    36 HOST_USERS host_users: Option<bool>;
    37 SCHEDULING_GATES scheduling_gates: ListView<'a, PodSchedulingGate<'a>>;
    38 RESOURCE_CLAIMS resource_claims: ListView<'a, PodResourceClaim<'a>>;
    39 RESOURCES resources: Option<ResourceRequirements<'a>>;
    40 HOSTNAME_OVERRIDE hostname_override: Option<&'a str>;
    41 SCHEDULING_GROUP scheduling_group: Option<PodSchedulingGroup<'a>>;
} }

view! { PodStatus pod_status 438 {
    0 OBSERVED_GENERATION observed_generation: i64;
    1 PHASE phase: &'a str;
    2 CONDITIONS conditions: ListView<'a, PodCondition<'a>>;
    3 MESSAGE message: &'a str;
    4 REASON reason: &'a str;
    5 NOMINATED_NODE_NAME nominated_node_name: &'a str;
    6 HOST_IP host_ip: &'a str;
    7 HOST_IPS host_ips: ListView<'a, HostIP<'a>>;
    8 POD_IP pod_ip: &'a str;
    9 POD_IPS pod_ips: ListView<'a, PodIP<'a>>;
    10 START_TIME start_time: Option<&'a str>;
    11 INIT_CONTAINER_STATUSES init_container_statuses: ListView<'a, ContainerStatus<'a>>;
    12 CONTAINER_STATUSES container_statuses: ListView<'a, ContainerStatus<'a>>;
    13 QOS_CLASS qos_class: &'a str;
    14 EPHEMERAL_CONTAINER_STATUSES ephemeral_container_statuses: ListView<'a, ContainerStatus<'a>>;
    15 RESIZE resize: &'a str;
    16 RESOURCE_CLAIM_STATUSES resource_claim_statuses: ListView<'a, PodResourceClaimStatus<'a>>;
    17 EXTENDED_RESOURCE_CLAIM_STATUS extended_resource_claim_status: Option<PodExtendedResourceClaimStatus<'a>>;
    18 ALLOCATED_RESOURCES allocated_resources: MapView<'a, &'a str>;
    19 RESOURCES resources: Option<ResourceRequirements<'a>>;
    20 NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUSES node_allocatable_resource_claim_statuses: ListView<'a, NodeAllocatableResourceClaimStatus<'a>>;
} }

view! { PodStatusResult pod_status_result 439 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 STATUS status: PodStatus<'a>;
} }

view! { PodTemplate pod_template 440 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 TEMPLATE template: PodTemplateSpec<'a>;
} }

view! { PodTemplateList pod_template_list 441 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PodTemplate<'a>>;
} }

view! { PodTemplateSpec pod_template_spec 442 {
    0 METADATA metadata: meta_v1::ObjectMeta<'a>;
    1 SPEC spec: PodSpec<'a>;
} }

view! { PortStatus port_status 443 {
    0 PORT port: i64;
    1 PROTOCOL protocol: &'a str;
    2 ERROR error: Option<&'a str>;
} }

view! { PortworxVolumeSource portworx_volume_source 444 {
    0 VOLUME_ID volume_id: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 READ_ONLY read_only: bool;
} }

view! { PreferredSchedulingTerm preferred_scheduling_term 445 {
    0 WEIGHT weight: i64;
    1 PREFERENCE preference: NodeSelectorTerm<'a>;
} }

view! { Probe probe 446 {
    0 EXEC exec: Option<ExecAction<'a>>;
    1 HTTP_GET http_get: Option<HTTPGetAction<'a>>;
    2 TCP_SOCKET tcp_socket: Option<TCPSocketAction<'a>>;
    3 GRPC grpc: Option<GRPCAction<'a>>;
    4 INITIAL_DELAY_SECONDS initial_delay_seconds: i64;
    5 TIMEOUT_SECONDS timeout_seconds: i64;
    6 PERIOD_SECONDS period_seconds: i64;
    7 SUCCESS_THRESHOLD success_threshold: i64;
    8 FAILURE_THRESHOLD failure_threshold: i64;
    9 TERMINATION_GRACE_PERIOD_SECONDS termination_grace_period_seconds: Option<i64>;
} }

view! { ProjectedVolumeSource projected_volume_source 447 {
    0 SOURCES sources: ListView<'a, VolumeProjection<'a>>;
    1 DEFAULT_MODE default_mode: Option<i64>;
} }

view! { QuobyteVolumeSource quobyte_volume_source 448 {
    0 REGISTRY registry: &'a str;
    1 VOLUME volume: &'a str;
    2 READ_ONLY read_only: bool;
    3 USER user: &'a str;
    4 GROUP group: &'a str;
    5 TENANT tenant: &'a str;
} }

view! { RBDPersistentVolumeSource rbd_persistent_volume_source 449 {
    0 MONITORS monitors: ListView<'a, &'a str>;
    1 IMAGE image: &'a str;
    2 FS_TYPE fs_type: &'a str;
    3 POOL pool: &'a str;
    4 USER user: &'a str;
    5 KEYRING keyring: &'a str;
    6 SECRET_REF secret_ref: Option<SecretReference<'a>>;
    7 READ_ONLY read_only: bool;
} }

view! { RBDVolumeSource rbd_volume_source 450 {
    0 MONITORS monitors: ListView<'a, &'a str>;
    1 IMAGE image: &'a str;
    2 FS_TYPE fs_type: &'a str;
    3 POOL pool: &'a str;
    4 USER user: &'a str;
    5 KEYRING keyring: &'a str;
    6 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
    7 READ_ONLY read_only: bool;
} }

view! { RangeAllocation range_allocation 451 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 RANGE range: &'a str;
    4 DATA data: &'a str;
} }

view! { ReplicationController replication_controller 452 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ReplicationControllerSpec<'a>;
    4 STATUS status: ReplicationControllerStatus<'a>;
} }

view! { ReplicationControllerCondition replication_controller_condition 453 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { ReplicationControllerList replication_controller_list 454 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ReplicationController<'a>>;
} }

view! { ReplicationControllerSpec replication_controller_spec 455 {
    0 REPLICAS replicas: Option<i64>;
    1 MIN_READY_SECONDS min_ready_seconds: i64;
    2 SELECTOR selector: MapView<'a, &'a str>;
    3 TEMPLATE template: Option<PodTemplateSpec<'a>>;
} }

view! { ReplicationControllerStatus replication_controller_status 456 {
    0 REPLICAS replicas: i64;
    1 FULLY_LABELED_REPLICAS fully_labeled_replicas: i64;
    2 READY_REPLICAS ready_replicas: i64;
    3 AVAILABLE_REPLICAS available_replicas: i64;
    4 OBSERVED_GENERATION observed_generation: i64;
    5 CONDITIONS conditions: ListView<'a, ReplicationControllerCondition<'a>>;
} }

view! { ResourceClaim resource_claim 457 {
    0 NAME name: &'a str;
    1 REQUEST request: &'a str;
} }

view! { ResourceFieldSelector resource_field_selector 458 {
    0 CONTAINER_NAME container_name: &'a str;
    1 RESOURCE resource: &'a str;
    2 DIVISOR divisor: &'a str;
} }

view! { ResourceHealth resource_health 459 {
    0 RESOURCE_ID resource_id: &'a str;
    1 HEALTH health: &'a str;
    2 MESSAGE message: Option<&'a str>;
} }

view! { ResourceQuota resource_quota 460 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ResourceQuotaSpec<'a>;
    4 STATUS status: ResourceQuotaStatus<'a>;
} }

view! { ResourceQuotaList resource_quota_list 461 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ResourceQuota<'a>>;
} }

view! { ResourceQuotaSpec resource_quota_spec 462 {
    0 HARD hard: MapView<'a, &'a str>;
    1 SCOPES scopes: ListView<'a, &'a str>;
    2 SCOPE_SELECTOR scope_selector: Option<ScopeSelector<'a>>;
} }

view! { ResourceQuotaStatus resource_quota_status 463 {
    0 HARD hard: MapView<'a, &'a str>;
    1 USED used: MapView<'a, &'a str>;
} }

view! { ResourceRequirements resource_requirements 464 {
    0 LIMITS limits: MapView<'a, &'a str>;
    1 REQUESTS requests: MapView<'a, &'a str>;
    2 CLAIMS claims: ListView<'a, ResourceClaim<'a>>;
} }

view! { ResourceStatus resource_status 465 {
    0 NAME name: &'a str;
    1 RESOURCES resources: ListView<'a, ResourceHealth<'a>>;
} }

view! { SELinuxOptions se_linux_options 466 {
    0 USER user: &'a str;
    1 ROLE role: &'a str;
    2 TYPE type_: &'a str;
    3 LEVEL level: &'a str;
} }

view! { ScaleIOPersistentVolumeSource scale_io_persistent_volume_source 467 {
    0 GATEWAY gateway: &'a str;
    1 SYSTEM system: &'a str;
    2 SECRET_REF secret_ref: Option<SecretReference<'a>>;
    3 SSL_ENABLED ssl_enabled: bool;
    4 PROTECTION_DOMAIN protection_domain: &'a str;
    5 STORAGE_POOL storage_pool: &'a str;
    6 STORAGE_MODE storage_mode: &'a str;
    7 VOLUME_NAME volume_name: &'a str;
    8 FS_TYPE fs_type: &'a str;
    9 READ_ONLY read_only: bool;
} }

view! { ScaleIOVolumeSource scale_io_volume_source 468 {
    0 GATEWAY gateway: &'a str;
    1 SYSTEM system: &'a str;
    2 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
    3 SSL_ENABLED ssl_enabled: bool;
    4 PROTECTION_DOMAIN protection_domain: &'a str;
    5 STORAGE_POOL storage_pool: &'a str;
    6 STORAGE_MODE storage_mode: &'a str;
    7 VOLUME_NAME volume_name: &'a str;
    8 FS_TYPE fs_type: &'a str;
    9 READ_ONLY read_only: bool;
} }

view! { ScopeSelector scope_selector 469 {
    0 MATCH_EXPRESSIONS match_expressions: ListView<'a, ScopedResourceSelectorRequirement<'a>>;
} }

view! { ScopedResourceSelectorRequirement scoped_resource_selector_requirement 470 {
    0 SCOPE_NAME scope_name: &'a str;
    1 OPERATOR operator: &'a str;
    2 VALUES values: ListView<'a, &'a str>;
} }

view! { SeccompProfile seccomp_profile 471 {
    0 TYPE type_: &'a str;
    1 LOCALHOST_PROFILE localhost_profile: Option<&'a str>;
} }

view! { Secret secret 472 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 IMMUTABLE immutable: Option<bool>;
    4 DATA data: MapView<'a, &'a str>;
    5 STRING_DATA string_data: MapView<'a, &'a str>;
    6 TYPE type_: &'a str;
} }

view! { SecretEnvSource secret_env_source 473 {
    0 NAME name: &'a str;
    1 OPTIONAL optional: Option<bool>;
} }

view! { SecretKeySelector secret_key_selector 474 {
    0 NAME name: &'a str;
    1 KEY key: &'a str;
    2 OPTIONAL optional: Option<bool>;
} }

view! { SecretList secret_list 475 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Secret<'a>>;
} }

view! { SecretProjection secret_projection 476 {
    0 NAME name: &'a str;
    1 ITEMS items: ListView<'a, KeyToPath<'a>>;
    2 OPTIONAL optional: Option<bool>;
} }

view! { SecretReference secret_reference 477 {
    0 NAME name: &'a str;
    1 NAMESPACE namespace: &'a str;
} }

view! { SecretVolumeSource secret_volume_source 478 {
    0 SECRET_NAME secret_name: &'a str;
    1 ITEMS items: ListView<'a, KeyToPath<'a>>;
    2 DEFAULT_MODE default_mode: Option<i64>;
    3 OPTIONAL optional: Option<bool>;
} }

view! { SecurityContext security_context 479 {
    0 CAPABILITIES capabilities: Option<Capabilities<'a>>;
    1 PRIVILEGED privileged: Option<bool>;
    2 SE_LINUX_OPTIONS se_linux_options: Option<SELinuxOptions<'a>>;
    3 WINDOWS_OPTIONS windows_options: Option<WindowsSecurityContextOptions<'a>>;
    4 RUN_AS_USER run_as_user: Option<i64>;
    5 RUN_AS_GROUP run_as_group: Option<i64>;
    6 RUN_AS_NON_ROOT run_as_non_root: Option<bool>;
    7 READ_ONLY_ROOT_FILESYSTEM read_only_root_filesystem: Option<bool>;
    8 ALLOW_PRIVILEGE_ESCALATION allow_privilege_escalation: Option<bool>;
    9 PROC_MOUNT proc_mount: Option<&'a str>;
    10 SECCOMP_PROFILE seccomp_profile: Option<SeccompProfile<'a>>;
    11 APP_ARMOR_PROFILE app_armor_profile: Option<AppArmorProfile<'a>>;
} }

view! { SerializedReference serialized_reference 480 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 REFERENCE reference: ObjectReference<'a>;
} }

view! { Service service 481 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ServiceSpec<'a>;
    4 STATUS status: ServiceStatus<'a>;
} }

view! { ServiceAccount service_account 482 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SECRETS secrets: ListView<'a, ObjectReference<'a>>;
    4 IMAGE_PULL_SECRETS image_pull_secrets: ListView<'a, LocalObjectReference<'a>>;
    5 AUTOMOUNT_SERVICE_ACCOUNT_TOKEN automount_service_account_token: Option<bool>;
} }

view! { ServiceAccountList service_account_list 483 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ServiceAccount<'a>>;
} }

view! { ServiceAccountTokenProjection service_account_token_projection 484 {
    0 AUDIENCE audience: &'a str;
    1 EXPIRATION_SECONDS expiration_seconds: Option<i64>;
    2 PATH path: &'a str;
} }

view! { ServiceList service_list 485 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Service<'a>>;
} }

view! { ServicePort service_port 486 {
    0 NAME name: &'a str;
    1 PROTOCOL protocol: &'a str;
    2 APP_PROTOCOL app_protocol: Option<&'a str>;
    3 PORT port: i64;
    4 TARGET_PORT target_port: IntOrStr<'a>;
    5 NODE_PORT node_port: i64;
} }

view! { ServiceProxyOptions service_proxy_options 487 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 PATH path: &'a str;
} }

view! { ServiceSpec service_spec 488 {
    0 PORTS ports: ListView<'a, ServicePort<'a>>;
    1 SELECTOR selector: MapView<'a, &'a str>;
    2 CLUSTER_IP cluster_ip: &'a str;
    3 CLUSTER_IPS cluster_ips: ListView<'a, &'a str>;
    4 TYPE type_: &'a str;
    5 EXTERNAL_IPS external_ips: ListView<'a, &'a str>;
    6 SESSION_AFFINITY session_affinity: &'a str;
    7 LOAD_BALANCER_IP load_balancer_ip: &'a str;
    8 LOAD_BALANCER_SOURCE_RANGES load_balancer_source_ranges: ListView<'a, &'a str>;
    9 EXTERNAL_NAME external_name: &'a str;
    10 EXTERNAL_TRAFFIC_POLICY external_traffic_policy: &'a str;
    11 HEALTH_CHECK_NODE_PORT health_check_node_port: i64;
    12 PUBLISH_NOT_READY_ADDRESSES publish_not_ready_addresses: bool;
    13 SESSION_AFFINITY_CONFIG session_affinity_config: Option<SessionAffinityConfig<'a>>;
    14 IP_FAMILIES ip_families: ListView<'a, &'a str>;
    15 IP_FAMILY_POLICY ip_family_policy: Option<&'a str>;
    16 ALLOCATE_LOAD_BALANCER_NODE_PORTS allocate_load_balancer_node_ports: Option<bool>;
    17 LOAD_BALANCER_CLASS load_balancer_class: Option<&'a str>;
    18 INTERNAL_TRAFFIC_POLICY internal_traffic_policy: Option<&'a str>;
    19 TRAFFIC_DISTRIBUTION traffic_distribution: Option<&'a str>;
} }

view! { ServiceStatus service_status 489 {
    0 LOAD_BALANCER load_balancer: LoadBalancerStatus<'a>;
    1 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
} }

view! { SessionAffinityConfig session_affinity_config 490 {
    0 CLIENT_IP client_ip: Option<ClientIPConfig<'a>>;
} }

view! { SleepAction sleep_action 491 {
    0 SECONDS seconds: i64;
} }

view! { StorageOSPersistentVolumeSource storage_os_persistent_volume_source 492 {
    0 VOLUME_NAME volume_name: &'a str;
    1 VOLUME_NAMESPACE volume_namespace: &'a str;
    2 FS_TYPE fs_type: &'a str;
    3 READ_ONLY read_only: bool;
    4 SECRET_REF secret_ref: Option<ObjectReference<'a>>;
} }

view! { StorageOSVolumeSource storage_os_volume_source 493 {
    0 VOLUME_NAME volume_name: &'a str;
    1 VOLUME_NAMESPACE volume_namespace: &'a str;
    2 FS_TYPE fs_type: &'a str;
    3 READ_ONLY read_only: bool;
    4 SECRET_REF secret_ref: Option<LocalObjectReference<'a>>;
} }

view! { Sysctl sysctl 494 {
    0 NAME name: &'a str;
    1 VALUE value: &'a str;
} }

view! { TCPSocketAction tcp_socket_action 495 {
    0 PORT port: IntOrStr<'a>;
    1 HOST host: &'a str;
} }

view! { Taint taint 496 {
    0 KEY key: &'a str;
    1 VALUE value: &'a str;
    2 EFFECT effect: &'a str;
    3 TIME_ADDED time_added: Option<&'a str>;
} }

view! { Toleration toleration 497 {
    0 KEY key: &'a str;
    1 OPERATOR operator: &'a str;
    2 VALUE value: &'a str;
    3 EFFECT effect: &'a str;
    4 TOLERATION_SECONDS toleration_seconds: Option<i64>;
} }

view! { TopologySelectorLabelRequirement topology_selector_label_requirement 498 {
    0 KEY key: &'a str;
    1 VALUES values: ListView<'a, &'a str>;
} }

view! { TopologySelectorTerm topology_selector_term 499 {
    0 MATCH_LABEL_EXPRESSIONS match_label_expressions: ListView<'a, TopologySelectorLabelRequirement<'a>>;
} }

view! { TopologySpreadConstraint topology_spread_constraint 500 {
    0 MAX_SKEW max_skew: i64;
    1 TOPOLOGY_KEY topology_key: &'a str;
    2 WHEN_UNSATISFIABLE when_unsatisfiable: &'a str;
    3 LABEL_SELECTOR label_selector: Option<meta_v1::LabelSelector<'a>>;
    4 MIN_DOMAINS min_domains: Option<i64>;
    5 NODE_AFFINITY_POLICY node_affinity_policy: Option<&'a str>;
    6 NODE_TAINTS_POLICY node_taints_policy: Option<&'a str>;
    7 MATCH_LABEL_KEYS match_label_keys: ListView<'a, &'a str>;
} }

view! { TypedLocalObjectReference typed_local_object_reference 501 {
    0 API_GROUP api_group: Option<&'a str>;
    1 KIND kind: &'a str;
    2 NAME name: &'a str;
} }

view! { TypedObjectReference typed_object_reference 502 {
    0 API_GROUP api_group: Option<&'a str>;
    1 KIND kind: &'a str;
    2 NAME name: &'a str;
    3 NAMESPACE namespace: Option<&'a str>;
} }

view! { Volume volume 503 {
    0 NAME name: &'a str;
    1 HOST_PATH host_path: Option<HostPathVolumeSource<'a>>;
    2 EMPTY_DIR empty_dir: Option<EmptyDirVolumeSource<'a>>;
    3 GCE_PERSISTENT_DISK gce_persistent_disk: Option<GCEPersistentDiskVolumeSource<'a>>;
    4 AWS_ELASTIC_BLOCK_STORE aws_elastic_block_store: Option<AWSElasticBlockStoreVolumeSource<'a>>;
    5 GIT_REPO git_repo: Option<GitRepoVolumeSource<'a>>;
    6 SECRET secret: Option<SecretVolumeSource<'a>>;
    7 NFS nfs: Option<NFSVolumeSource<'a>>;
    8 ISCSI iscsi: Option<ISCSIVolumeSource<'a>>;
    9 GLUSTERFS glusterfs: Option<GlusterfsVolumeSource<'a>>;
    10 PERSISTENT_VOLUME_CLAIM persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource<'a>>;
    11 RBD rbd: Option<RBDVolumeSource<'a>>;
    12 FLEX_VOLUME flex_volume: Option<FlexVolumeSource<'a>>;
    13 CINDER cinder: Option<CinderVolumeSource<'a>>;
    14 CEPHFS cephfs: Option<CephFSVolumeSource<'a>>;
    15 FLOCKER flocker: Option<FlockerVolumeSource<'a>>;
    16 DOWNWARD_API downward_api: Option<DownwardAPIVolumeSource<'a>>;
    17 FC fc: Option<FCVolumeSource<'a>>;
    18 AZURE_FILE azure_file: Option<AzureFileVolumeSource<'a>>;
    19 CONFIG_MAP config_map: Option<ConfigMapVolumeSource<'a>>;
    20 VSPHERE_VOLUME vsphere_volume: Option<VsphereVirtualDiskVolumeSource<'a>>;
    21 QUOBYTE quobyte: Option<QuobyteVolumeSource<'a>>;
    22 AZURE_DISK azure_disk: Option<AzureDiskVolumeSource<'a>>;
    23 PHOTON_PERSISTENT_DISK photon_persistent_disk: Option<PhotonPersistentDiskVolumeSource<'a>>;
    24 PROJECTED projected: Option<ProjectedVolumeSource<'a>>;
    25 PORTWORX_VOLUME portworx_volume: Option<PortworxVolumeSource<'a>>;
    26 SCALE_IO scale_io: Option<ScaleIOVolumeSource<'a>>;
    27 STORAGEOS storageos: Option<StorageOSVolumeSource<'a>>;
    28 CSI csi: Option<CSIVolumeSource<'a>>;
    29 EPHEMERAL ephemeral: Option<EphemeralVolumeSource<'a>>;
    30 IMAGE image: Option<ImageVolumeSource<'a>>;
} }

view! { VolumeDevice volume_device 504 {
    0 NAME name: &'a str;
    1 DEVICE_PATH device_path: &'a str;
} }

view! { VolumeMount volume_mount 505 {
    0 NAME name: &'a str;
    1 READ_ONLY read_only: bool;
    2 RECURSIVE_READ_ONLY recursive_read_only: Option<&'a str>;
    3 MOUNT_PATH mount_path: &'a str;
    4 SUB_PATH sub_path: &'a str;
    5 MOUNT_PROPAGATION mount_propagation: Option<&'a str>;
    6 SUB_PATH_EXPR sub_path_expr: &'a str;
} }

view! { VolumeMountStatus volume_mount_status 506 {
    0 NAME name: &'a str;
    1 MOUNT_PATH mount_path: &'a str;
    2 READ_ONLY read_only: bool;
    3 RECURSIVE_READ_ONLY recursive_read_only: Option<&'a str>;
    4 VOLUME_STATUS volume_status: Option<VolumeStatus<'a>>;
} }

view! { VolumeNodeAffinity volume_node_affinity 507 {
    0 REQUIRED required: Option<NodeSelector<'a>>;
} }

view! { VolumeProjection volume_projection 508 {
    0 SECRET secret: Option<SecretProjection<'a>>;
    1 DOWNWARD_API downward_api: Option<DownwardAPIProjection<'a>>;
    2 CONFIG_MAP config_map: Option<ConfigMapProjection<'a>>;
    3 SERVICE_ACCOUNT_TOKEN service_account_token: Option<ServiceAccountTokenProjection<'a>>;
    4 CLUSTER_TRUST_BUNDLE cluster_trust_bundle: Option<ClusterTrustBundleProjection<'a>>;
    5 POD_CERTIFICATE pod_certificate: Option<PodCertificateProjection<'a>>;
} }

view! { VolumeResourceRequirements volume_resource_requirements 509 {
    0 LIMITS limits: MapView<'a, &'a str>;
    1 REQUESTS requests: MapView<'a, &'a str>;
} }

view! { VolumeStatus volume_status 510 {
    0 IMAGE image: Option<ImageVolumeStatus<'a>>;
} }

view! { VsphereVirtualDiskVolumeSource vsphere_virtual_disk_volume_source 511 {
    0 VOLUME_PATH volume_path: &'a str;
    1 FS_TYPE fs_type: &'a str;
    2 STORAGE_POLICY_NAME storage_policy_name: &'a str;
    3 STORAGE_POLICY_ID storage_policy_id: &'a str;
} }

view! { WeightedPodAffinityTerm weighted_pod_affinity_term 512 {
    0 WEIGHT weight: i64;
    1 POD_AFFINITY_TERM pod_affinity_term: PodAffinityTerm<'a>;
} }

view! { WindowsSecurityContextOptions windows_security_context_options 513 {
    0 GMSA_CREDENTIAL_SPEC_NAME gmsa_credential_spec_name: Option<&'a str>;
    1 GMSA_CREDENTIAL_SPEC gmsa_credential_spec: Option<&'a str>;
    2 RUN_AS_USER_NAME run_as_user_name: Option<&'a str>;
    3 HOST_PROCESS host_process: Option<bool>;
} }
