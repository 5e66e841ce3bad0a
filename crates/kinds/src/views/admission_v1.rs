//! `io.k8s.api.admission.v1`

use super::authentication_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { AdmissionRequest admission_request 0 {
    0 UID uid: &'a str;
    1 KIND kind: meta_v1::GroupVersionKind<'a>;
    2 RESOURCE resource: meta_v1::GroupVersionResource<'a>;
    3 SUB_RESOURCE sub_resource: &'a str;
    4 REQUEST_KIND request_kind: Option<meta_v1::GroupVersionKind<'a>>;
    5 REQUEST_RESOURCE request_resource: Option<meta_v1::GroupVersionResource<'a>>;
    6 REQUEST_SUB_RESOURCE request_sub_resource: &'a str;
    7 NAME name: &'a str;
    8 NAMESPACE namespace: &'a str;
    9 OPERATION operation: &'a str;
    10 USER_INFO user_info: authentication_v1::UserInfo<'a>;
    11 OBJECT object: Option<&'a Tree>;
    12 OLD_OBJECT old_object: Option<&'a Tree>;
    13 DRY_RUN dry_run: Option<bool>;
    14 OPTIONS options: Option<&'a Tree>;
} }

view! { AdmissionResponse admission_response 1 {
    0 UID uid: &'a str;
    1 ALLOWED allowed: bool;
    2 STATUS status: Option<meta_v1::Status<'a>>;
    3 PATCH patch: &'a str;
    4 PATCH_TYPE patch_type: Option<&'a str>;
    5 AUDIT_ANNOTATIONS audit_annotations: MapView<'a, &'a str>;
    6 WARNINGS warnings: ListView<'a, &'a str>;
} }

view! { AdmissionReview admission_review 2 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 REQUEST request: Option<AdmissionRequest<'a>>;
    3 RESPONSE response: Option<AdmissionResponse<'a>>;
} }
