//! `io.k8s.api.resource.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { AllocatedDeviceStatus allocated_device_status 667 {
    0 DRIVER driver: &'a str;
    1 POOL pool: &'a str;
    2 DEVICE device: &'a str;
    3 SHARE_ID share_id: Option<&'a str>;
    4 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
    5 DATA data: Option<&'a Tree>;
    6 NETWORK_DATA network_data: Option<NetworkDeviceData<'a>>;
} }

view! { AllocationResult allocation_result 668 {
    0 DEVICES devices: DeviceAllocationResult<'a>;
    1 NODE_SELECTOR node_selector: Option<core_v1::NodeSelector<'a>>;
    2 ALLOCATION_TIMESTAMP allocation_timestamp: Option<&'a str>;
} }

view! { CELDeviceSelector cel_device_selector 669 {
    0 EXPRESSION expression: &'a str;
} }

view! { CapacityRequestPolicy capacity_request_policy 670 {
    0 DEFAULT default: Option<&'a str>;
    1 VALID_VALUES valid_values: ListView<'a, &'a str>;
    2 VALID_RANGE valid_range: Option<CapacityRequestPolicyRange<'a>>;
} }

view! { CapacityRequestPolicyRange capacity_request_policy_range 671 {
    0 MIN min: Option<&'a str>;
    1 MAX max: Option<&'a str>;
    2 STEP step: Option<&'a str>;
} }

view! { CapacityRequirements capacity_requirements 672 {
    0 REQUESTS requests: MapView<'a, &'a str>;
} }

view! { Counter counter 673 {
    0 VALUE value: &'a str;
} }

view! { CounterSet counter_set 674 {
    0 NAME name: &'a str;
    1 COUNTERS counters: MapView<'a, Counter<'a>>;
} }

view! { Device device 675 {
    0 NAME name: &'a str;
    1 ATTRIBUTES attributes: MapView<'a, DeviceAttribute<'a>>;
    2 CAPACITY capacity: MapView<'a, DeviceCapacity<'a>>;
    3 CONSUMES_COUNTERS consumes_counters: ListView<'a, DeviceCounterConsumption<'a>>;
    4 NODE_NAME node_name: Option<&'a str>;
    5 NODE_SELECTOR node_selector: Option<core_v1::NodeSelector<'a>>;
    6 ALL_NODES all_nodes: Option<bool>;
    7 TAINTS taints: ListView<'a, DeviceTaint<'a>>;
    8 BINDS_TO_NODE binds_to_node: Option<bool>;
    9 BINDING_CONDITIONS binding_conditions: ListView<'a, &'a str>;
    10 BINDING_FAILURE_CONDITIONS binding_failure_conditions: ListView<'a, &'a str>;
    11 ALLOW_MULTIPLE_ALLOCATIONS allow_multiple_allocations: Option<bool>;
    12 NODE_ALLOCATABLE_RESOURCE_MAPPINGS node_allocatable_resource_mappings: MapView<'a, NodeAllocatableResourceMapping<'a>>;
} }

view! { DeviceAllocationConfiguration device_allocation_configuration 676 {
    0 SOURCE source: &'a str;
    1 REQUESTS requests: ListView<'a, &'a str>;
    2 OPAQUE opaque: Option<OpaqueDeviceConfiguration<'a>>;
} }

view! { DeviceAllocationResult device_allocation_result 677 {
    0 RESULTS results: ListView<'a, DeviceRequestAllocationResult<'a>>;
    1 CONFIG config: ListView<'a, DeviceAllocationConfiguration<'a>>;
} }

view! { DeviceAttribute device_attribute 678 {
    0 INT int: Option<i64>;
    1 BOOL bool: Option<bool>;
    2 STRING string: Option<&'a str>;
    3 VERSION version: Option<&'a str>;
    4 INTS ints: ListView<'a, i64>;
    5 BOOLS bools: ListView<'a, bool>;
    6 STRINGS strings: ListView<'a, &'a str>;
    7 VERSIONS versions: ListView<'a, &'a str>;
} }

view! { DeviceCapacity device_capacity 679 {
    0 VALUE value: &'a str;
    1 REQUEST_POLICY request_policy: Option<CapacityRequestPolicy<'a>>;
} }

view! { DeviceClaim device_claim 680 {
    0 REQUESTS requests: ListView<'a, DeviceRequest<'a>>;
    1 CONSTRAINTS constraints: ListView<'a, DeviceConstraint<'a>>;
    2 CONFIG config: ListView<'a, DeviceClaimConfiguration<'a>>;
} }

view! { DeviceClaimConfiguration device_claim_configuration 681 {
    0 REQUESTS requests: ListView<'a, &'a str>;
    1 OPAQUE opaque: Option<OpaqueDeviceConfiguration<'a>>;
} }

view! { DeviceClass device_class 682 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: DeviceClassSpec<'a>;
} }

view! { DeviceClassConfiguration device_class_configuration 683 {
    0 OPAQUE opaque: Option<OpaqueDeviceConfiguration<'a>>;
} }

view! { DeviceClassList device_class_list 684 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, DeviceClass<'a>>;
} }

view! { DeviceClassSpec device_class_spec 685 {
    0 SELECTORS selectors: ListView<'a, DeviceSelector<'a>>;
    1 CONFIG config: ListView<'a, DeviceClassConfiguration<'a>>;
    2 EXTENDED_RESOURCE_NAME extended_resource_name: Option<&'a str>;
} }

view! { DeviceConstraint device_constraint 686 {
    0 REQUESTS requests: ListView<'a, &'a str>;
    1 MATCH_ATTRIBUTE match_attribute: Option<&'a str>;
    2 DISTINCT_ATTRIBUTE distinct_attribute: Option<&'a str>;
} }

view! { DeviceCounterConsumption device_counter_consumption 687 {
    0 COUNTER_SET counter_set: &'a str;
    1 COUNTERS counters: MapView<'a, Counter<'a>>;
} }

view! { DeviceRequest device_request 688 {
    0 NAME name: &'a str;
    1 EXACTLY exactly: Option<ExactDeviceRequest<'a>>;
    2 FIRST_AVAILABLE first_available: ListView<'a, DeviceSubRequest<'a>>;
} }

view! { DeviceRequestAllocationResult device_request_allocation_result 689 {
    0 REQUEST request: &'a str;
    1 DRIVER driver: &'a str;
    2 POOL pool: &'a str;
    3 DEVICE device: &'a str;
    4 ADMIN_ACCESS admin_access: Option<bool>;
    5 TOLERATIONS tolerations: ListView<'a, DeviceToleration<'a>>;
    6 BINDING_CONDITIONS binding_conditions: ListView<'a, &'a str>;
    7 BINDING_FAILURE_CONDITIONS binding_failure_conditions: ListView<'a, &'a str>;
    8 SHARE_ID share_id: Option<&'a str>;
    9 CONSUMED_CAPACITY consumed_capacity: MapView<'a, &'a str>;
} }

view! { DeviceSelector device_selector 690 {
    0 CEL cel: Option<CELDeviceSelector<'a>>;
} }

view! { DeviceSubRequest device_sub_request 691 {
    0 NAME name: &'a str;
    1 DEVICE_CLASS_NAME device_class_name: &'a str;
    2 SELECTORS selectors: ListView<'a, DeviceSelector<'a>>;
    3 ALLOCATION_MODE allocation_mode: &'a str;
    4 COUNT count: i64;
    5 TOLERATIONS tolerations: ListView<'a, DeviceToleration<'a>>;
    6 CAPACITY capacity: Option<CapacityRequirements<'a>>;
} }

view! { DeviceTaint device_taint 692 {
    0 KEY key: &'a str;
    1 VALUE value: &'a str;
    2 EFFECT effect: &'a str;
    3 TIME_ADDED time_added: Option<&'a str>;
} }

view! { DeviceToleration device_toleration 693 {
    0 KEY key: &'a str;
    1 OPERATOR operator: &'a str;
    2 VALUE value: &'a str;
    3 EFFECT effect: &'a str;
    4 TOLERATION_SECONDS toleration_seconds: Option<i64>;
} }

view! { ExactDeviceRequest exact_device_request 694 {
    0 DEVICE_CLASS_NAME device_class_name: &'a str;
    1 SELECTORS selectors: ListView<'a, DeviceSelector<'a>>;
    2 ALLOCATION_MODE allocation_mode: &'a str;
    3 COUNT count: i64;
    4 ADMIN_ACCESS admin_access: Option<bool>;
    5 TOLERATIONS tolerations: ListView<'a, DeviceToleration<'a>>;
    6 CAPACITY capacity: Option<CapacityRequirements<'a>>;
} }

view! { NetworkDeviceData network_device_data 695 {
    0 INTERFACE_NAME interface_name: &'a str;
    1 IPS ips: ListView<'a, &'a str>;
    2 HARDWARE_ADDRESS hardware_address: &'a str;
} }

view! { NodeAllocatableResourceMapping node_allocatable_resource_mapping 696 {
    0 CAPACITY_KEY capacity_key: Option<&'a str>;
    1 ALLOCATION_MULTIPLIER allocation_multiplier: Option<&'a str>;
} }

view! { OpaqueDeviceConfiguration opaque_device_configuration 697 {
    0 DRIVER driver: &'a str;
    1 PARAMETERS parameters: Option<&'a Tree>;
} }

view! { ResourceClaim resource_claim 698 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ResourceClaimSpec<'a>;
    4 STATUS status: ResourceClaimStatus<'a>;
} }

view! { ResourceClaimConsumerReference resource_claim_consumer_reference 699 {
    0 API_GROUP api_group: &'a str;
    1 RESOURCE resource: &'a str;
    2 NAME name: &'a str;
    3 UID uid: &'a str;
} }

view! { ResourceClaimList resource_claim_list 700 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ResourceClaim<'a>>;
} }

view! { ResourceClaimSpec resource_claim_spec 701 {
    0 DEVICES devices: DeviceClaim<'a>;
} }

view! { ResourceClaimStatus resource_claim_status 702 {
    0 ALLOCATION allocation: Option<AllocationResult<'a>>;
    1 RESERVED_FOR reserved_for: ListView<'a, ResourceClaimConsumerReference<'a>>;
    2 DEVICES devices: ListView<'a, AllocatedDeviceStatus<'a>>;
} }

view! { ResourceClaimTemplate resource_claim_template 703 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ResourceClaimTemplateSpec<'a>;
} }

view! { ResourceClaimTemplateList resource_claim_template_list 704 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ResourceClaimTemplate<'a>>;
} }

view! { ResourceClaimTemplateSpec resource_claim_template_spec 705 {
    0 METADATA metadata: meta_v1::ObjectMeta<'a>;
    1 SPEC spec: ResourceClaimSpec<'a>;
} }

view! { ResourcePool resource_pool 706 {
    0 NAME name: &'a str;
    1 GENERATION generation: i64;
    2 RESOURCE_SLICE_COUNT resource_slice_count: i64;
} }

view! { ResourceSlice resource_slice 707 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ResourceSliceSpec<'a>;
} }

view! { ResourceSliceList resource_slice_list 708 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ResourceSlice<'a>>;
} }

view! { ResourceSliceSpec resource_slice_spec 709 {
    0 DRIVER driver: &'a str;
    1 POOL pool: ResourcePool<'a>;
    2 NODE_NAME node_name: Option<&'a str>;
    3 NODE_SELECTOR node_selector: Option<core_v1::NodeSelector<'a>>;
    4 ALL_NODES all_nodes: Option<bool>;
    5 DEVICES devices: ListView<'a, Device<'a>>;
    6 PER_DEVICE_NODE_SELECTION per_device_node_selection: Option<bool>;
    7 SHARED_COUNTERS shared_counters: ListView<'a, CounterSet<'a>>;
} }
