//! `io.k8s.api.discovery.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { Endpoint endpoint 514 {
    0 ADDRESSES addresses: ListView<'a, &'a str>;
    1 CONDITIONS conditions: EndpointConditions<'a>;
    2 HOSTNAME hostname: Option<&'a str>;
    3 TARGET_REF target_ref: Option<core_v1::ObjectReference<'a>>;
    4 DEPRECATED_TOPOLOGY deprecated_topology: MapView<'a, &'a str>;
    5 NODE_NAME node_name: Option<&'a str>;
    6 ZONE zone: Option<&'a str>;
    7 HINTS hints: Option<EndpointHints<'a>>;
} }

view! { EndpointConditions endpoint_conditions 515 {
    0 READY ready: Option<bool>;
    1 SERVING serving: Option<bool>;
    2 TERMINATING terminating: Option<bool>;
} }

view! { EndpointHints endpoint_hints 516 {
    0 FOR_ZONES for_zones: ListView<'a, ForZone<'a>>;
    1 FOR_NODES for_nodes: ListView<'a, ForNode<'a>>;
} }

view! { EndpointPort endpoint_port 517 {
    0 NAME name: Option<&'a str>;
    1 PROTOCOL protocol: Option<&'a str>;
    2 PORT port: Option<i64>;
    3 APP_PROTOCOL app_protocol: Option<&'a str>;
} }

view! { EndpointSlice endpoint_slice 518 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 ADDRESS_TYPE address_type: &'a str;
    4 ENDPOINTS endpoints: ListView<'a, Endpoint<'a>>;
    5 PORTS ports: ListView<'a, EndpointPort<'a>>;
} }

view! { EndpointSliceList endpoint_slice_list 519 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, EndpointSlice<'a>>;
} }

view! { ForNode for_node 520 {
    0 NAME name: &'a str;
} }

view! { ForZone for_zone 521 {
    0 NAME name: &'a str;
} }
