//! `io.k8s.kube-aggregator.pkg.apis.apiregistration.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { APIService api_service 134 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: APIServiceSpec<'a>;
    4 STATUS status: APIServiceStatus<'a>;
} }

view! { APIServiceCondition api_service_condition 135 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { APIServiceList api_service_list 136 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, APIService<'a>>;
} }

view! { APIServiceSpec api_service_spec 137 {
    0 SERVICE service: Option<ServiceReference<'a>>;
    1 GROUP group: &'a str;
    2 VERSION version: &'a str;
    3 INSECURE_SKIP_TLS_VERIFY insecure_skip_tls_verify: bool;
    4 CA_BUNDLE ca_bundle: &'a str;
    5 GROUP_PRIORITY_MINIMUM group_priority_minimum: i64;
    6 VERSION_PRIORITY version_priority: i64;
} }

view! { APIServiceStatus api_service_status 138 {
    0 CONDITIONS conditions: ListView<'a, APIServiceCondition<'a>>;
} }

view! { ServiceReference service_reference 139 {
    0 NAMESPACE namespace: &'a str;
    1 NAME name: &'a str;
    2 PORT port: Option<i64>;
} }
