//! `io.k8s.api.apiserverinternal.v1alpha1`

use super::meta_v1;
use crate::view::prelude::*;

view! { ServerStorageVersion server_storage_version 140 {
    0 API_SERVER_ID api_server_id: &'a str;
    1 ENCODING_VERSION encoding_version: &'a str;
    2 DECODABLE_VERSIONS decodable_versions: ListView<'a, &'a str>;
    3 SERVED_VERSIONS served_versions: ListView<'a, &'a str>;
} }

view! { StorageVersion storage_version 141 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: StorageVersionSpec<'a>;
    4 STATUS status: StorageVersionStatus<'a>;
} }

view! { StorageVersionCondition storage_version_condition 142 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 OBSERVED_GENERATION observed_generation: i64;
    3 LAST_TRANSITION_TIME last_transition_time: &'a str;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
} }

view! { StorageVersionList storage_version_list 143 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, StorageVersion<'a>>;
} }

view! { StorageVersionSpec storage_version_spec 144 {
} }

view! { StorageVersionStatus storage_version_status 145 {
    0 STORAGE_VERSIONS storage_versions: ListView<'a, ServerStorageVersion<'a>>;
    1 COMMON_ENCODING_VERSION common_encoding_version: Option<&'a str>;
    2 CONDITIONS conditions: ListView<'a, StorageVersionCondition<'a>>;
} }
