//! `io.k8s.api.rbac.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { AggregationRule aggregation_rule 655 {
    0 CLUSTER_ROLE_SELECTORS cluster_role_selectors: ListView<'a, meta_v1::LabelSelector<'a>>;
} }

view! { ClusterRole cluster_role 656 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 RULES rules: ListView<'a, PolicyRule<'a>>;
    4 AGGREGATION_RULE aggregation_rule: Option<AggregationRule<'a>>;
} }

view! { ClusterRoleBinding cluster_role_binding 657 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SUBJECTS subjects: ListView<'a, Subject<'a>>;
    4 ROLE_REF role_ref: RoleRef<'a>;
} }

view! { ClusterRoleBindingList cluster_role_binding_list 658 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ClusterRoleBinding<'a>>;
} }

view! { ClusterRoleList cluster_role_list 659 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ClusterRole<'a>>;
} }

view! { PolicyRule policy_rule 660 {
    0 VERBS verbs: ListView<'a, &'a str>;
    1 API_GROUPS api_groups: ListView<'a, &'a str>;
    2 RESOURCES resources: ListView<'a, &'a str>;
    3 RESOURCE_NAMES resource_names: ListView<'a, &'a str>;
    4 NON_RESOURCE_URLS non_resource_urls: ListView<'a, &'a str>;
} }

view! { Role role 661 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 RULES rules: ListView<'a, PolicyRule<'a>>;
} }

view! { RoleBinding role_binding 662 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SUBJECTS subjects: ListView<'a, Subject<'a>>;
    4 ROLE_REF role_ref: RoleRef<'a>;
} }

view! { RoleBindingList role_binding_list 663 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, RoleBinding<'a>>;
} }

view! { RoleList role_list 664 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Role<'a>>;
} }

view! { RoleRef role_ref 665 {
    0 API_GROUP api_group: &'a str;
    1 KIND kind: &'a str;
    2 NAME name: &'a str;
} }

view! { Subject subject 666 {
    0 KIND kind: &'a str;
    1 API_GROUP api_group: &'a str;
    2 NAME name: &'a str;
    3 NAMESPACE namespace: &'a str;
} }
