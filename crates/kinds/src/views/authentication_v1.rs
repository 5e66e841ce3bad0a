//! `io.k8s.api.authentication.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { BoundObjectReference bound_object_reference 176 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 NAME name: &'a str;
    3 UID uid: &'a str;
} }

view! { SelfSubjectReview self_subject_review 177 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 STATUS status: SelfSubjectReviewStatus<'a>;
} }

view! { SelfSubjectReviewStatus self_subject_review_status 178 {
    0 USER_INFO user_info: UserInfo<'a>;
} }

view! { TokenRequest token_request 179 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: TokenRequestSpec<'a>;
    4 STATUS status: TokenRequestStatus<'a>;
} }

view! { TokenRequestSpec token_request_spec 180 {
    0 AUDIENCES audiences: ListView<'a, &'a str>;
    1 EXPIRATION_SECONDS expiration_seconds: Option<i64>;
    2 BOUND_OBJECT_REF bound_object_ref: Option<BoundObjectReference<'a>>;
} }

view! { TokenRequestStatus token_request_status 181 {
    0 TOKEN token: &'a str;
    1 EXPIRATION_TIMESTAMP expiration_timestamp: &'a str;
} }

view! { TokenReview token_review 182 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: TokenReviewSpec<'a>;
    4 STATUS status: TokenReviewStatus<'a>;
} }

view! { TokenReviewSpec token_review_spec 183 {
    0 TOKEN token: &'a str;
    1 AUDIENCES audiences: ListView<'a, &'a str>;
} }

view! { TokenReviewStatus token_review_status 184 {
    0 AUTHENTICATED authenticated: bool;
    1 USER user: UserInfo<'a>;
    2 AUDIENCES audiences: ListView<'a, &'a str>;
    3 ERROR error: &'a str;
} }

view! { UserInfo user_info 185 {
    0 USERNAME username: &'a str;
    1 UID uid: &'a str;
    2 GROUPS groups: ListView<'a, &'a str>;
    3 EXTRA extra: MapView<'a, ListView<'a, &'a str>>;
} }
