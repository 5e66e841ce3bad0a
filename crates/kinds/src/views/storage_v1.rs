//! `io.k8s.api.storage.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { CSIDriver csi_driver 832 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: CSIDriverSpec<'a>;
} }

view! { CSIDriverList csi_driver_list 833 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CSIDriver<'a>>;
} }

view! { CSIDriverSpec csi_driver_spec 834 {
    0 ATTACH_REQUIRED attach_required: Option<bool>;
    1 POD_INFO_ON_MOUNT pod_info_on_mount: Option<bool>;
    2 VOLUME_LIFECYCLE_MODES volume_lifecycle_modes: ListView<'a, &'a str>;
    3 STORAGE_CAPACITY storage_capacity: Option<bool>;
    4 FS_GROUP_POLICY fs_group_policy: Option<&'a str>;
    5 TOKEN_REQUESTS token_requests: ListView<'a, TokenRequest<'a>>;
    6 REQUIRES_REPUBLISH requires_republish: Option<bool>;
    7 SE_LINUX_MOUNT se_linux_mount: Option<bool>;
    8 NODE_ALLOCATABLE_UPDATE_PERIOD_SECONDS node_allocatable_update_period_seconds: Option<i64>;
    9 SERVICE_ACCOUNT_TOKEN_IN_SECRETS service_account_token_in_secrets: Option<bool>;
    10 PREVENT_POD_SCHEDULING_IF_MISSING prevent_pod_scheduling_if_missing: Option<bool>;
} }

view! { CSINode csi_node 835 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: CSINodeSpec<'a>;
} }

view! { CSINodeDriver csi_node_driver 836 {
    0 NAME name: &'a str;
    1 NODE_ID node_id: &'a str;
    2 TOPOLOGY_KEYS topology_keys: ListView<'a, &'a str>;
    3 ALLOCATABLE allocatable: Option<VolumeNodeResources<'a>>;
} }

view! { CSINodeList csi_node_list 837 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CSINode<'a>>;
} }

view! { CSINodeSpec csi_node_spec 838 {
    0 DRIVERS drivers: ListView<'a, CSINodeDriver<'a>>;
} }

view! { CSIStorageCapacity csi_storage_capacity 839 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 NODE_TOPOLOGY node_topology: Option<meta_v1::LabelSelector<'a>>;
    4 STORAGE_CLASS_NAME storage_class_name: &'a str;
    5 CAPACITY capacity: Option<&'a str>;
    6 MAXIMUM_VOLUME_SIZE maximum_volume_size: Option<&'a str>;
} }

view! { CSIStorageCapacityList csi_storage_capacity_list 840 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CSIStorageCapacity<'a>>;
} }

view! { StorageClass storage_class 841 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 PROVISIONER provisioner: &'a str;
    4 PARAMETERS parameters: MapView<'a, &'a str>;
    5 RECLAIM_POLICY reclaim_policy: Option<&'a str>;
    6 MOUNT_OPTIONS mount_options: ListView<'a, &'a str>;
    7 ALLOW_VOLUME_EXPANSION allow_volume_expansion: Option<bool>;
    8 VOLUME_BINDING_MODE volume_binding_mode: Option<&'a str>;
    9 ALLOWED_TOPOLOGIES allowed_topologies: ListView<'a, core_v1::TopologySelectorTerm<'a>>;
} }

view! { StorageClassList storage_class_list 842 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, StorageClass<'a>>;
} }

view! { TokenRequest token_request 843 {
    0 AUDIENCE audience: &'a str;
    1 EXPIRATION_SECONDS expiration_seconds: Option<i64>;
} }

view! { VolumeAttachment volume_attachment 844 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: VolumeAttachmentSpec<'a>;
    4 STATUS status: VolumeAttachmentStatus<'a>;
} }

view! { VolumeAttachmentList volume_attachment_list 845 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, VolumeAttachment<'a>>;
} }

view! { VolumeAttachmentSource volume_attachment_source 846 {
    0 PERSISTENT_VOLUME_NAME persistent_volume_name: Option<&'a str>;
    1 INLINE_VOLUME_SPEC inline_volume_spec: Option<core_v1::PersistentVolumeSpec<'a>>;
} }

view! { VolumeAttachmentSpec volume_attachment_spec 847 {
    0 ATTACHER attacher: &'a str;
    1 SOURCE source: VolumeAttachmentSource<'a>;
    2 NODE_NAME node_name: &'a str;
} }

view! { VolumeAttachmentStatus volume_attachment_status 848 {
    0 ATTACHED attached: bool;
    1 ATTACHMENT_METADATA attachment_metadata: MapView<'a, &'a str>;
    2 ATTACH_ERROR attach_error: Option<VolumeError<'a>>;
    3 DETACH_ERROR detach_error: Option<VolumeError<'a>>;
} }

view! { VolumeAttributesClass volume_attributes_class 849 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 DRIVER_NAME driver_name: &'a str;
    4 PARAMETERS parameters: MapView<'a, &'a str>;
} }

view! { VolumeAttributesClassList volume_attributes_class_list 850 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, VolumeAttributesClass<'a>>;
} }

view! { VolumeError volume_error 851 {
    0 TIME time: &'a str;
    1 MESSAGE message: &'a str;
    2 ERROR_CODE error_code: Option<i64>;
} }

view! { VolumeNodeResources volume_node_resources 852 {
    0 COUNT count: Option<i64>;
} }
