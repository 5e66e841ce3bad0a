//! `io.k8s.api.scheduling.v1alpha2`

use super::meta_v1;
use crate::view::prelude::*;

view! { BasicSchedulingPolicy basic_scheduling_policy 814 {
} }

view! { GangSchedulingPolicy gang_scheduling_policy 815 {
    0 MIN_COUNT min_count: i64;
} }

view! { PodGroup pod_group 816 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PodGroupSpec<'a>;
    4 STATUS status: PodGroupStatus<'a>;
} }

view! { PodGroupList pod_group_list 817 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PodGroup<'a>>;
} }

view! { PodGroupResourceClaim pod_group_resource_claim 818 {
    0 NAME name: &'a str;
    1 RESOURCE_CLAIM_NAME resource_claim_name: Option<&'a str>;
    2 RESOURCE_CLAIM_TEMPLATE_NAME resource_claim_template_name: Option<&'a str>;
} }

view! { PodGroupResourceClaimStatus pod_group_resource_claim_status 819 {
    0 NAME name: &'a str;
    1 RESOURCE_CLAIM_NAME resource_claim_name: Option<&'a str>;
} }

view! { PodGroupSchedulingConstraints pod_group_scheduling_constraints 820 {
    0 TOPOLOGY topology: ListView<'a, TopologyConstraint<'a>>;
} }

view! { PodGroupSchedulingPolicy pod_group_scheduling_policy 821 {
    0 BASIC basic: Option<BasicSchedulingPolicy<'a>>;
    1 GANG gang: Option<GangSchedulingPolicy<'a>>;
} }

view! { PodGroupSpec pod_group_spec 822 {
    0 POD_GROUP_TEMPLATE_REF pod_group_template_ref: Option<PodGroupTemplateReference<'a>>;
    1 SCHEDULING_POLICY scheduling_policy: PodGroupSchedulingPolicy<'a>;
    2 SCHEDULING_CONSTRAINTS scheduling_constraints: Option<PodGroupSchedulingConstraints<'a>>;
    3 RESOURCE_CLAIMS resource_claims: ListView<'a, PodGroupResourceClaim<'a>>;
    4 DISRUPTION_MODE disruption_mode: Option<&'a str>;
    5 PRIORITY_CLASS_NAME priority_class_name: &'a str;
    6 PRIORITY priority: Option<i64>;
} }

view! { PodGroupStatus pod_group_status 823 {
    0 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
    1 RESOURCE_CLAIM_STATUSES resource_claim_statuses: ListView<'a, PodGroupResourceClaimStatus<'a>>;
} }

view! { PodGroupTemplate pod_group_template 824 {
    0 NAME name: &'a str;
    1 SCHEDULING_POLICY scheduling_policy: PodGroupSchedulingPolicy<'a>;
    2 SCHEDULING_CONSTRAINTS scheduling_constraints: Option<PodGroupSchedulingConstraints<'a>>;
    3 RESOURCE_CLAIMS resource_claims: ListView<'a, PodGroupResourceClaim<'a>>;
    4 DISRUPTION_MODE disruption_mode: Option<&'a str>;
    5 PRIORITY_CLASS_NAME priority_class_name: &'a str;
    6 PRIORITY priority: Option<i64>;
} }

view! { PodGroupTemplateReference pod_group_template_reference 825 {
    0 WORKLOAD workload: Option<WorkloadPodGroupTemplateReference<'a>>;
} }

view! { TopologyConstraint topology_constraint 826 {
    0 KEY key: &'a str;
} }

view! { TypedLocalObjectReference typed_local_object_reference 827 {
    0 API_GROUP api_group: &'a str;
    1 KIND kind: &'a str;
    2 NAME name: &'a str;
} }

view! { Workload workload 828 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: WorkloadSpec<'a>;
} }

view! { WorkloadList workload_list 829 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Workload<'a>>;
} }

view! { WorkloadPodGroupTemplateReference workload_pod_group_template_reference 830 {
    0 WORKLOAD_NAME workload_name: &'a str;
    1 POD_GROUP_TEMPLATE_NAME pod_group_template_name: &'a str;
} }

view! { WorkloadSpec workload_spec 831 {
    0 CONTROLLER_REF controller_ref: Option<TypedLocalObjectReference<'a>>;
    1 POD_GROUP_TEMPLATES pod_group_templates: ListView<'a, PodGroupTemplate<'a>>;
} }
