//! `io.k8s.api.coordination.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { Lease lease 270 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: LeaseSpec<'a>;
} }

view! { LeaseList lease_list 271 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Lease<'a>>;
} }

view! { LeaseSpec lease_spec 272 {
    0 HOLDER_IDENTITY holder_identity: Option<&'a str>;
    1 LEASE_DURATION_SECONDS lease_duration_seconds: Option<i64>;
    2 ACQUIRE_TIME acquire_time: Option<&'a str>;
    3 RENEW_TIME renew_time: Option<&'a str>;
    4 LEASE_TRANSITIONS lease_transitions: Option<i64>;
    5 STRATEGY strategy: Option<&'a str>;
    6 PREFERRED_HOLDER preferred_holder: Option<&'a str>;
} }
