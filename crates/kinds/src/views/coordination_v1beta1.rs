//! `io.k8s.api.coordination.v1beta1`

use super::meta_v1;
use crate::view::prelude::*;

view! { Lease lease 276 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: LeaseSpec<'a>;
} }

view! { LeaseCandidate lease_candidate 277 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: LeaseCandidateSpec<'a>;
} }

view! { LeaseCandidateList lease_candidate_list 278 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, LeaseCandidate<'a>>;
} }

view! { LeaseCandidateSpec lease_candidate_spec 279 {
    0 LEASE_NAME lease_name: &'a str;
    1 PING_TIME ping_time: Option<&'a str>;
    2 RENEW_TIME renew_time: Option<&'a str>;
    3 BINARY_VERSION binary_version: &'a str;
    4 EMULATION_VERSION emulation_version: &'a str;
    5 STRATEGY strategy: &'a str;
} }

view! { LeaseList lease_list 280 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Lease<'a>>;
} }

view! { LeaseSpec lease_spec 281 {
    0 HOLDER_IDENTITY holder_identity: Option<&'a str>;
    1 LEASE_DURATION_SECONDS lease_duration_seconds: Option<i64>;
    2 ACQUIRE_TIME acquire_time: Option<&'a str>;
    3 RENEW_TIME renew_time: Option<&'a str>;
    4 LEASE_TRANSITIONS lease_transitions: Option<i64>;
    5 STRATEGY strategy: Option<&'a str>;
    6 PREFERRED_HOLDER preferred_holder: Option<&'a str>;
} }
