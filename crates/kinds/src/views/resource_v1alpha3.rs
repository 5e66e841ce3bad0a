//! `io.k8s.api.resource.v1alpha3`

use super::meta_v1;
use crate::view::prelude::*;

view! { DeviceTaint device_taint 710 {
    0 KEY key: &'a str;
    1 VALUE value: &'a str;
    2 EFFECT effect: &'a str;
    3 TIME_ADDED time_added: Option<&'a str>;
} }

view! { DeviceTaintRule device_taint_rule 711 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: DeviceTaintRuleSpec<'a>;
    4 STATUS status: DeviceTaintRuleStatus<'a>;
} }

view! { DeviceTaintRuleList device_taint_rule_list 712 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, DeviceTaintRule<'a>>;
} }

view! { DeviceTaintRuleSpec device_taint_rule_spec 713 {
    0 DEVICE_SELECTOR device_selector: Option<DeviceTaintSelector<'a>>;
    1 TAINT taint: DeviceTaint<'a>;
} }

view! { DeviceTaintRuleStatus device_taint_rule_status 714 {
    0 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
} }

view! { DeviceTaintSelector device_taint_selector 715 {
    0 DRIVER driver: Option<&'a str>;
    1 POOL pool: Option<&'a str>;
    2 DEVICE device: Option<&'a str>;
} }

view! { PoolStatus pool_status 716 {
    0 DRIVER driver: &'a str;
    1 POOL_NAME pool_name: &'a str;
    2 GENERATION generation: i64;
    3 RESOURCE_SLICE_COUNT resource_slice_count: Option<i64>;
    4 TOTAL_DEVICES total_devices: Option<i64>;
    5 ALLOCATED_DEVICES allocated_devices: Option<i64>;
    6 AVAILABLE_DEVICES available_devices: Option<i64>;
    7 UNAVAILABLE_DEVICES unavailable_devices: Option<i64>;
    8 NODE_NAME node_name: Option<&'a str>;
    9 VALIDATION_ERROR validation_error: Option<&'a str>;
} }

view! { ResourcePoolStatusRequest resource_pool_status_request 717 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ResourcePoolStatusRequestSpec<'a>;
    4 STATUS status: Option<ResourcePoolStatusRequestStatus<'a>>;
} }

view! { ResourcePoolStatusRequestList resource_pool_status_request_list 718 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ResourcePoolStatusRequest<'a>>;
} }

view! { ResourcePoolStatusRequestSpec resource_pool_status_request_spec 719 {
    0 DRIVER driver: &'a str;
    1 POOL_NAME pool_name: Option<&'a str>;
    2 LIMIT limit: Option<i64>;
} }

view! { ResourcePoolStatusRequestStatus resource_pool_status_request_status 720 {
    0 POOL_COUNT pool_count: Option<i64>;
    1 POOLS pools: ListView<'a, PoolStatus<'a>>;
    2 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
} }
