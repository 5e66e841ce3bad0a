//! `io.k8s.api.flowcontrol.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { ExemptPriorityLevelConfiguration exempt_priority_level_configuration 525 {
    0 NOMINAL_CONCURRENCY_SHARES nominal_concurrency_shares: Option<i64>;
    1 LENDABLE_PERCENT lendable_percent: Option<i64>;
} }

view! { FlowDistinguisherMethod flow_distinguisher_method 526 {
    0 TYPE type_: &'a str;
} }

view! { FlowSchema flow_schema 527 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: FlowSchemaSpec<'a>;
    4 STATUS status: FlowSchemaStatus<'a>;
} }

view! { FlowSchemaCondition flow_schema_condition 528 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { FlowSchemaList flow_schema_list 529 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, FlowSchema<'a>>;
} }

view! { FlowSchemaSpec flow_schema_spec 530 {
    0 PRIORITY_LEVEL_CONFIGURATION priority_level_configuration: PriorityLevelConfigurationReference<'a>;
    1 MATCHING_PRECEDENCE matching_precedence: i64;
    2 DISTINGUISHER_METHOD distinguisher_method: Option<FlowDistinguisherMethod<'a>>;
    3 RULES rules: ListView<'a, PolicyRulesWithSubjects<'a>>;
} }

view! { FlowSchemaStatus flow_schema_status 531 {
    0 CONDITIONS conditions: ListView<'a, FlowSchemaCondition<'a>>;
} }

view! { GroupSubject group_subject 532 {
    0 NAME name: &'a str;
} }

view! { LimitResponse limit_response 533 {
    0 TYPE type_: &'a str;
    1 QUEUING queuing: Option<QueuingConfiguration<'a>>;
} }

view! { LimitedPriorityLevelConfiguration limited_priority_level_configuration 534 {
    0 NOMINAL_CONCURRENCY_SHARES nominal_concurrency_shares: Option<i64>;
    1 LIMIT_RESPONSE limit_response: LimitResponse<'a>;
    2 LENDABLE_PERCENT lendable_percent: Option<i64>;
    3 BORROWING_LIMIT_PERCENT borrowing_limit_percent: Option<i64>;
} }

view! { NonResourcePolicyRule non_resource_policy_rule 535 {
    0 VERBS verbs: ListView<'a, &'a str>;
    1 NON_RESOURCE_URLS non_resource_urls: ListView<'a, &'a str>;
} }

view! { PolicyRulesWithSubjects policy_rules_with_subjects 536 {
    0 SUBJECTS subjects: ListView<'a, Subject<'a>>;
    1 RESOURCE_RULES resource_rules: ListView<'a, ResourcePolicyRule<'a>>;
    2 NON_RESOURCE_RULES non_resource_rules: ListView<'a, NonResourcePolicyRule<'a>>;
} }

view! { PriorityLevelConfiguration priority_level_configuration 537 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PriorityLevelConfigurationSpec<'a>;
    4 STATUS status: PriorityLevelConfigurationStatus<'a>;
} }

view! { PriorityLevelConfigurationCondition priority_level_configuration_condition 538 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { PriorityLevelConfigurationList priority_level_configuration_list 539 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PriorityLevelConfiguration<'a>>;
} }

view! { PriorityLevelConfigurationReference priority_level_configuration_reference 540 {
    0 NAME name: &'a str;
} }

view! { PriorityLevelConfigurationSpec priority_level_configuration_spec 541 {
    0 TYPE type_: &'a str;
    1 LIMITED limited: Option<LimitedPriorityLevelConfiguration<'a>>;
    2 EXEMPT exempt: Option<ExemptPriorityLevelConfiguration<'a>>;
} }

view! { PriorityLevelConfigurationStatus priority_level_configuration_status 542 {
    0 CONDITIONS conditions: ListView<'a, PriorityLevelConfigurationCondition<'a>>;
} }

view! { QueuingConfiguration queuing_configuration 543 {
    0 QUEUES queues: i64;
    1 HAND_SIZE hand_size: i64;
    2 QUEUE_LENGTH_LIMIT queue_length_limit: i64;
} }

view! { ResourcePolicyRule resource_policy_rule 544 {
    0 VERBS verbs: ListView<'a, &'a str>;
    1 API_GROUPS api_groups: ListView<'a, &'a str>;
    2 RESOURCES resources: ListView<'a, &'a str>;
    3 CLUSTER_SCOPE cluster_scope: bool;
    4 NAMESPACES namespaces: ListView<'a, &'a str>;
} }

view! { ServiceAccountSubject service_account_subject 545 {
    0 NAMESPACE namespace: &'a str;
    1 NAME name: &'a str;
} }

view! { Subject subject 546 {
    0 KIND kind: &'a str;
    1 USER user: Option<UserSubject<'a>>;
    2 GROUP group: Option<GroupSubject<'a>>;
    3 SERVICE_ACCOUNT service_account: Option<ServiceAccountSubject<'a>>;
} }

view! { UserSubject user_subject 547 {
    0 NAME name: &'a str;
} }
