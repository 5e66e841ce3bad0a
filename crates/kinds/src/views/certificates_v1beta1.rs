//! `io.k8s.api.certificates.v1beta1`

use super::meta_v1;
use crate::view::prelude::*;

view! { CertificateSigningRequest certificate_signing_request 258 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: CertificateSigningRequestSpec<'a>;
    4 STATUS status: CertificateSigningRequestStatus<'a>;
} }

view! { CertificateSigningRequestCondition certificate_signing_request_condition 259 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 REASON reason: &'a str;
    3 MESSAGE message: &'a str;
    4 LAST_UPDATE_TIME last_update_time: &'a str;
    5 LAST_TRANSITION_TIME last_transition_time: &'a str;
} }

view! { CertificateSigningRequestList certificate_signing_request_list 260 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CertificateSigningRequest<'a>>;
} }

view! { CertificateSigningRequestSpec certificate_signing_request_spec 261 {
    0 REQUEST request: &'a str;
    1 SIGNER_NAME signer_name: Option<&'a str>;
    2 EXPIRATION_SECONDS expiration_seconds: Option<i64>;
    3 USAGES usages: ListView<'a, &'a str>;
    4 USERNAME username: &'a str;
    5 UID uid: &'a str;
    6 GROUPS groups: ListView<'a, &'a str>;
    7 EXTRA extra: MapView<'a, ListView<'a, &'a str>>;
} }

view! { CertificateSigningRequestStatus certificate_signing_request_status 262 {
    0 CONDITIONS conditions: ListView<'a, CertificateSigningRequestCondition<'a>>;
    1 CERTIFICATE certificate: &'a str;
} }

view! { ClusterTrustBundle cluster_trust_bundle 263 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ClusterTrustBundleSpec<'a>;
} }

view! { ClusterTrustBundleList cluster_trust_bundle_list 264 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ClusterTrustBundle<'a>>;
} }

view! { ClusterTrustBundleSpec cluster_trust_bundle_spec 265 {
    0 SIGNER_NAME signer_name: &'a str;
    1 TRUST_BUNDLE trust_bundle: &'a str;
} }

view! { PodCertificateRequest pod_certificate_request 266 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PodCertificateRequestSpec<'a>;
    4 STATUS status: PodCertificateRequestStatus<'a>;
} }

view! { PodCertificateRequestList pod_certificate_request_list 267 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PodCertificateRequest<'a>>;
} }

view! { PodCertificateRequestSpec pod_certificate_request_spec 268 {
    0 SIGNER_NAME signer_name: &'a str;
    1 POD_NAME pod_name: &'a str;
    2 POD_UID pod_uid: &'a str;
    3 SERVICE_ACCOUNT_NAME service_account_name: &'a str;
    4 SERVICE_ACCOUNT_UID service_account_uid: &'a str;
    5 NODE_NAME node_name: &'a str;
    6 NODE_UID node_uid: &'a str;
    7 MAX_EXPIRATION_SECONDS max_expiration_seconds: Option<i64>;
    8 PKIX_PUBLIC_KEY pkix_public_key: &'a str;
    9 PROOF_OF_POSSESSION proof_of_possession: &'a str;
    10 STUB_PKCS10_REQUEST stub_pkcs10_request: &'a str;
    11 UNVERIFIED_USER_ANNOTATIONS unverified_user_annotations: MapView<'a, &'a str>;
} }

view! { PodCertificateRequestStatus pod_certificate_request_status 269 {
    0 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
    1 CERTIFICATE_CHAIN certificate_chain: &'a str;
    2 NOT_BEFORE not_before: Option<&'a str>;
    3 BEGIN_REFRESH_AT begin_refresh_at: Option<&'a str>;
    4 NOT_AFTER not_after: Option<&'a str>;
} }
