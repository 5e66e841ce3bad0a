//! `io.k8s.api.certificates.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { CertificateSigningRequest certificate_signing_request 250 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: CertificateSigningRequestSpec<'a>;
    4 STATUS status: CertificateSigningRequestStatus<'a>;
} }

view! { CertificateSigningRequestCondition certificate_signing_request_condition 251 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 REASON reason: &'a str;
    3 MESSAGE message: &'a str;
    4 LAST_UPDATE_TIME last_update_time: &'a str;
    5 LAST_TRANSITION_TIME last_transition_time: &'a str;
} }

view! { CertificateSigningRequestList certificate_signing_request_list 252 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CertificateSigningRequest<'a>>;
} }

view! { CertificateSigningRequestSpec certificate_signing_request_spec 253 {
    0 REQUEST request: &'a str;
    1 SIGNER_NAME signer_name: &'a str;
    2 EXPIRATION_SECONDS expiration_seconds: Option<i64>;
    3 USAGES usages: ListView<'a, &'a str>;
    4 USERNAME username: &'a str;
    5 UID uid: &'a str;
    6 GROUPS groups: ListView<'a, &'a str>;
    7 EXTRA extra: MapView<'a, ListView<'a, &'a str>>;
} }

view! { CertificateSigningRequestStatus certificate_signing_request_status 254 {
    0 CONDITIONS conditions: ListView<'a, CertificateSigningRequestCondition<'a>>;
    1 CERTIFICATE certificate: &'a str;
} }
