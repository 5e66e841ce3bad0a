//! `io.k8s.api.authorization.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { FieldSelectorAttributes field_selector_attributes 186 {
    0 RAW_SELECTOR raw_selector: &'a str;
    1 REQUIREMENTS requirements: ListView<'a, meta_v1::FieldSelectorRequirement<'a>>;
} }

view! { LabelSelectorAttributes label_selector_attributes 187 {
    0 RAW_SELECTOR raw_selector: &'a str;
    1 REQUIREMENTS requirements: ListView<'a, meta_v1::LabelSelectorRequirement<'a>>;
} }

view! { LocalSubjectAccessReview local_subject_access_review 188 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: SubjectAccessReviewSpec<'a>;
    4 STATUS status: SubjectAccessReviewStatus<'a>;
} }

view! { NonResourceAttributes non_resource_attributes 189 {
    0 PATH path: &'a str;
    1 VERB verb: &'a str;
} }

view! { NonResourceRule non_resource_rule 190 {
    0 VERBS verbs: ListView<'a, &'a str>;
    1 NON_RESOURCE_URLS non_resource_urls: ListView<'a, &'a str>;
} }

view! { ResourceAttributes resource_attributes 191 {
    0 NAMESPACE namespace: &'a str;
    1 VERB verb: &'a str;
    2 GROUP group: &'a str;
    3 VERSION version: &'a str;
    4 RESOURCE resource: &'a str;
    5 SUBRESOURCE subresource: &'a str;
    6 NAME name: &'a str;
    7 FIELD_SELECTOR field_selector: Option<FieldSelectorAttributes<'a>>;
    8 LABEL_SELECTOR label_selector: Option<LabelSelectorAttributes<'a>>;
} }

view! { ResourceRule resource_rule 192 {
    0 VERBS verbs: ListView<'a, &'a str>;
    1 API_GROUPS api_groups: ListView<'a, &'a str>;
    2 RESOURCES resources: ListView<'a, &'a str>;
    3 RESOURCE_NAMES resource_names: ListView<'a, &'a str>;
} }

view! { SelfSubjectAccessReview self_subject_access_review 193 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: SelfSubjectAccessReviewSpec<'a>;
    4 STATUS status: SubjectAccessReviewStatus<'a>;
} }

view! { SelfSubjectAccessReviewSpec self_subject_access_review_spec 194 {
    0 RESOURCE_ATTRIBUTES resource_attributes: Option<ResourceAttributes<'a>>;
    1 NON_RESOURCE_ATTRIBUTES non_resource_attributes: Option<NonResourceAttributes<'a>>;
} }

view! { SelfSubjectRulesReview self_subject_rules_review 195 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: SelfSubjectRulesReviewSpec<'a>;
    4 STATUS status: SubjectRulesReviewStatus<'a>;
} }

view! { SelfSubjectRulesReviewSpec self_subject_rules_review_spec 196 {
    0 NAMESPACE namespace: &'a str;
} }

view! { SubjectAccessReview subject_access_review 197 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: SubjectAccessReviewSpec<'a>;
    4 STATUS status: SubjectAccessReviewStatus<'a>;
} }

view! { SubjectAccessReviewSpec subject_access_review_spec 198 {
    0 RESOURCE_ATTRIBUTES resource_attributes: Option<ResourceAttributes<'a>>;
    1 NON_RESOURCE_ATTRIBUTES non_resource_attributes: Option<NonResourceAttributes<'a>>;
    2 USER user: &'a str;
    3 GROUPS groups: ListView<'a, &'a str>;
    4 EXTRA extra: MapView<'a, ListView<'a, &'a str>>;
    5 UID uid: &'a str;
} }

view! { SubjectAccessReviewStatus subject_access_review_status 199 {
    0 ALLOWED allowed: bool;
    1 DENIED denied: bool;
    2 REASON reason: &'a str;
    3 EVALUATION_ERROR evaluation_error: &'a str;
} }

view! { SubjectRulesReviewStatus subject_rules_review_status 200 {
    0 RESOURCE_RULES resource_rules: ListView<'a, ResourceRule<'a>>;
    1 NON_RESOURCE_RULES non_resource_rules: ListView<'a, NonResourceRule<'a>>;
    2 INCOMPLETE incomplete: bool;
    3 EVALUATION_ERROR evaluation_error: &'a str;
} }
