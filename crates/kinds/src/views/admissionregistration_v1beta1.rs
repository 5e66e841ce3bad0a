//! `io.k8s.api.admissionregistration.v1beta1`

use super::admissionregistration_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { ApplyConfiguration apply_configuration 67 {
    0 EXPRESSION expression: &'a str;
} }

view! { AuditAnnotation audit_annotation 68 {
    0 KEY key: &'a str;
    1 VALUE_EXPRESSION value_expression: &'a str;
} }

view! { ExpressionWarning expression_warning 69 {
    0 FIELD_REF field_ref: &'a str;
    1 WARNING warning: &'a str;
} }

view! { JSONPatch json_patch 70 {
    0 EXPRESSION expression: &'a str;
} }

view! { MatchCondition match_condition 71 {
    0 NAME name: &'a str;
    1 EXPRESSION expression: &'a str;
} }

view! { MatchResources match_resources 72 {
    0 NAMESPACE_SELECTOR namespace_selector: Option<meta_v1::LabelSelector<'a>>;
    1 OBJECT_SELECTOR object_selector: Option<meta_v1::LabelSelector<'a>>;
    2 RESOURCE_RULES resource_rules: ListView<'a, NamedRuleWithOperations<'a>>;
    3 EXCLUDE_RESOURCE_RULES exclude_resource_rules: ListView<'a, NamedRuleWithOperations<'a>>;
    4 MATCH_POLICY match_policy: Option<&'a str>;
} }

view! { MutatingAdmissionPolicy mutating_admission_policy 73 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: MutatingAdmissionPolicySpec<'a>;
} }

view! { MutatingAdmissionPolicyBinding mutating_admission_policy_binding 74 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: MutatingAdmissionPolicyBindingSpec<'a>;
} }

view! { MutatingAdmissionPolicyBindingList mutating_admission_policy_binding_list 75 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, MutatingAdmissionPolicyBinding<'a>>;
} }

view! { MutatingAdmissionPolicyBindingSpec mutating_admission_policy_binding_spec 76 {
    0 POLICY_NAME policy_name: &'a str;
    1 PARAM_REF param_ref: Option<ParamRef<'a>>;
    2 MATCH_RESOURCES match_resources: Option<MatchResources<'a>>;
} }

view! { MutatingAdmissionPolicyList mutating_admission_policy_list 77 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, MutatingAdmissionPolicy<'a>>;
} }

view! { MutatingAdmissionPolicySpec mutating_admission_policy_spec 78 {
    0 PARAM_KIND param_kind: Option<ParamKind<'a>>;
    1 MATCH_CONSTRAINTS match_constraints: Option<MatchResources<'a>>;
    2 VARIABLES variables: ListView<'a, Variable<'a>>;
    3 MUTATIONS mutations: ListView<'a, Mutation<'a>>;
    4 FAILURE_POLICY failure_policy: Option<&'a str>;
    5 MATCH_CONDITIONS match_conditions: ListView<'a, MatchCondition<'a>>;
    6 REINVOCATION_POLICY reinvocation_policy: &'a str;
} }

view! { MutatingWebhook mutating_webhook 79 {
    0 NAME name: &'a str;
    1 CLIENT_CONFIG client_config: WebhookClientConfig<'a>;
    2 RULES rules: ListView<'a, admissionregistration_v1::RuleWithOperations<'a>>;
    3 FAILURE_POLICY failure_policy: Option<&'a str>;
    4 MATCH_POLICY match_policy: Option<&'a str>;
    5 NAMESPACE_SELECTOR namespace_selector: Option<meta_v1::LabelSelector<'a>>;
    6 OBJECT_SELECTOR object_selector: Option<meta_v1::LabelSelector<'a>>;
    7 SIDE_EFFECTS side_effects: Option<&'a str>;
    8 TIMEOUT_SECONDS timeout_seconds: Option<i64>;
    9 ADMISSION_REVIEW_VERSIONS admission_review_versions: ListView<'a, &'a str>;
    10 REINVOCATION_POLICY reinvocation_policy: Option<&'a str>;
    11 MATCH_CONDITIONS match_conditions: ListView<'a, MatchCondition<'a>>;
} }

view! { MutatingWebhookConfiguration mutating_webhook_configuration 80 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 WEBHOOKS webhooks: ListView<'a, MutatingWebhook<'a>>;
} }

view! { MutatingWebhookConfigurationList mutating_webhook_configuration_list 81 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, MutatingWebhookConfiguration<'a>>;
} }

view! { Mutation mutation 82 {
    0 PATCH_TYPE patch_type: &'a str;
    1 APPLY_CONFIGURATION apply_configuration: Option<ApplyConfiguration<'a>>;
    2 JSON_PATCH json_patch: Option<JSONPatch<'a>>;
} }

view! { NamedRuleWithOperations named_rule_with_operations 83 {
    0 RESOURCE_NAMES resource_names: ListView<'a, &'a str>;
    1 OPERATIONS operations: ListView<'a, &'a str>;
    2 API_GROUPS api_groups: ListView<'a, &'a str>;
    3 API_VERSIONS api_versions: ListView<'a, &'a str>;
    4 RESOURCES resources: ListView<'a, &'a str>;
    5 SCOPE scope: Option<&'a str>;
} }

view! { ParamKind param_kind 84 {
    0 API_VERSION api_version: &'a str;
    1 KIND kind: &'a str;
} }

view! { ParamRef param_ref 85 {
    0 NAME name: &'a str;
    1 NAMESPACE namespace: &'a str;
    2 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    3 PARAMETER_NOT_FOUND_ACTION parameter_not_found_action: Option<&'a str>;
} }

view! { ServiceReference service_reference 86 {
    0 NAMESPACE namespace: &'a str;
    1 NAME name: &'a str;
    2 PATH path: Option<&'a str>;
    3 PORT port: Option<i64>;
} }

view! { TypeChecking type_checking 87 {
    0 EXPRESSION_WARNINGS expression_warnings: ListView<'a, ExpressionWarning<'a>>;
} }

view! { ValidatingAdmissionPolicy validating_admission_policy 88 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ValidatingAdmissionPolicySpec<'a>;
    4 STATUS status: ValidatingAdmissionPolicyStatus<'a>;
} }

view! { ValidatingAdmissionPolicyBinding validating_admission_policy_binding 89 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ValidatingAdmissionPolicyBindingSpec<'a>;
} }

view! { ValidatingAdmissionPolicyBindingList validating_admission_policy_binding_list 90 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ValidatingAdmissionPolicyBinding<'a>>;
} }

view! { ValidatingAdmissionPolicyBindingSpec validating_admission_policy_binding_spec 91 {
    0 POLICY_NAME policy_name: &'a str;
    1 PARAM_REF param_ref: Option<ParamRef<'a>>;
    2 MATCH_RESOURCES match_resources: Option<MatchResources<'a>>;
    3 VALIDATION_ACTIONS validation_actions: ListView<'a, &'a str>;
} }

view! { ValidatingAdmissionPolicyList validating_admission_policy_list 92 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ValidatingAdmissionPolicy<'a>>;
} }

view! { ValidatingAdmissionPolicySpec validating_admission_policy_spec 93 {
    0 PARAM_KIND param_kind: Option<ParamKind<'a>>;
    1 MATCH_CONSTRAINTS match_constraints: Option<MatchResources<'a>>;
    2 VALIDATIONS validations: ListView<'a, Validation<'a>>;
    3 FAILURE_POLICY failure_policy: Option<&'a str>;
    4 AUDIT_ANNOTATIONS audit_annotations: ListView<'a, AuditAnnotation<'a>>;
    5 MATCH_CONDITIONS match_conditions: ListView<'a, MatchCondition<'a>>;
    6 VARIABLES variables: ListView<'a, Variable<'a>>;
} }

view! { ValidatingAdmissionPolicyStatus validating_admission_policy_status 94 {
    0 OBSERVED_GENERATION observed_generation: i64;
    1 TYPE_CHECKING type_checking: Option<TypeChecking<'a>>;
    2 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
} }

view! { ValidatingWebhook validating_webhook 95 {
    0 NAME name: &'a str;
    1 CLIENT_CONFIG client_config: WebhookClientConfig<'a>;
    2 RULES rules: ListView<'a, admissionregistration_v1::RuleWithOperations<'a>>;
    3 FAILURE_POLICY failure_policy: Option<&'a str>;
    4 MATCH_POLICY match_policy: Option<&'a str>;
    5 NAMESPACE_SELECTOR namespace_selector: Option<meta_v1::LabelSelector<'a>>;
    6 OBJECT_SELECTOR object_selector: Option<meta_v1::LabelSelector<'a>>;
    7 SIDE_EFFECTS side_effects: Option<&'a str>;
    8 TIMEOUT_SECONDS timeout_seconds: Option<i64>;
    9 ADMISSION_REVIEW_VERSIONS admission_review_versions: ListView<'a, &'a str>;
    10 MATCH_CONDITIONS match_conditions: ListView<'a, MatchCondition<'a>>;
} }

view! { ValidatingWebhookConfiguration validating_webhook_configuration 96 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 WEBHOOKS webhooks: ListView<'a, ValidatingWebhook<'a>>;
} }

view! { ValidatingWebhookConfigurationList validating_webhook_configuration_list 97 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ValidatingWebhookConfiguration<'a>>;
} }

view! { Validation validation 98 {
    0 EXPRESSION expression: &'a str;
    1 MESSAGE message: &'a str;
    2 REASON reason: Option<&'a str>;
    3 MESSAGE_EXPRESSION message_expression: &'a str;
} }

view! { Variable variable 99 {
    0 NAME name: &'a str;
    1 EXPRESSION expression: &'a str;
} }

view! { WebhookClientConfig webhook_client_config 100 {
    0 URL url: Option<&'a str>;
    1 SERVICE service: Option<ServiceReference<'a>>;
    2 CA_BUNDLE ca_bundle: &'a str;
} }
