//! `io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { ConversionRequest conversion_request 111 {
    0 UID uid: &'a str;
    1 DESIRED_API_VERSION desired_api_version: &'a str;
    2 OBJECTS objects: ListView<'a, Option<&'a Tree>>;
} }

view! { ConversionResponse conversion_response 112 {
    0 UID uid: &'a str;
    1 CONVERTED_OBJECTS converted_objects: ListView<'a, Option<&'a Tree>>;
    2 RESULT result: meta_v1::Status<'a>;
} }

view! { ConversionReview conversion_review 113 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 REQUEST request: Option<ConversionRequest<'a>>;
    3 RESPONSE response: Option<ConversionResponse<'a>>;
} }

view! { CustomResourceColumnDefinition custom_resource_column_definition 114 {
    0 NAME name: &'a str;
    1 TYPE type_: &'a str;
    2 FORMAT format: &'a str;
    3 DESCRIPTION description: &'a str;
    4 PRIORITY priority: i64;
    5 JSON_PATH json_path: &'a str;
} }

view! { CustomResourceConversion custom_resource_conversion 115 {
    0 STRATEGY strategy: &'a str;
    1 WEBHOOK webhook: Option<WebhookConversion<'a>>;
} }

view! { CustomResourceDefinition custom_resource_definition 116 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: CustomResourceDefinitionSpec<'a>;
    4 STATUS status: CustomResourceDefinitionStatus<'a>;
} }

view! { CustomResourceDefinitionCondition custom_resource_definition_condition 117 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
    5 OBSERVED_GENERATION observed_generation: i64;
} }

view! { CustomResourceDefinitionList custom_resource_definition_list 118 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CustomResourceDefinition<'a>>;
} }

view! { CustomResourceDefinitionNames custom_resource_definition_names 119 {
    0 PLURAL plural: &'a str;
    1 SINGULAR singular: &'a str;
    2 SHORT_NAMES short_names: ListView<'a, &'a str>;
    3 KIND kind: &'a str;
    4 LIST_KIND list_kind: &'a str;
    5 CATEGORIES categories: ListView<'a, &'a str>;
} }

view! { CustomResourceDefinitionSpec custom_resource_definition_spec 120 {
    0 GROUP group: &'a str;
    1 NAMES names: CustomResourceDefinitionNames<'a>;
    2 SCOPE scope: &'a str;
    3 VERSIONS versions: ListView<'a, CustomResourceDefinitionVersion<'a>>;
    4 CONVERSION conversion: Option<CustomResourceConversion<'a>>;
    5 PRESERVE_UNKNOWN_FIELDS preserve_unknown_fields: bool;
} }

view! { CustomResourceDefinitionStatus custom_resource_definition_status 121 {
    0 CONDITIONS conditions: ListView<'a, CustomResourceDefinitionCondition<'a>>;
    1 ACCEPTED_NAMES accepted_names: CustomResourceDefinitionNames<'a>;
    2 STORED_VERSIONS stored_versions: ListView<'a, &'a str>;
    3 OBSERVED_GENERATION observed_generation: i64;
} }

view! { CustomResourceDefinitionVersion custom_resource_definition_version 122 {
    0 NAME name: &'a str;
    1 SERVED served: bool;
    2 STORAGE storage: bool;
    3 DEPRECATED deprecated: bool;
    4 DEPRECATION_WARNING deprecation_warning: Option<&'a str>;
    5 SCHEMA schema: Option<CustomResourceValidation<'a>>;
    6 SUBRESOURCES subresources: Option<CustomResourceSubresources<'a>>;
    7 ADDITIONAL_PRINTER_COLUMNS additional_printer_columns: ListView<'a, CustomResourceColumnDefinition<'a>>;
    8 SELECTABLE_FIELDS selectable_fields: ListView<'a, SelectableField<'a>>;
} }

view! { CustomResourceSubresourceScale custom_resource_subresource_scale 123 {
    0 SPEC_REPLICAS_PATH spec_replicas_path: &'a str;
    1 STATUS_REPLICAS_PATH status_replicas_path: &'a str;
    2 LABEL_SELECTOR_PATH label_selector_path: Option<&'a str>;
} }

view! { CustomResourceSubresourceStatus custom_resource_subresource_status 124 {
} }

view! { CustomResourceSubresources custom_resource_subresources 125 {
    0 STATUS status: Option<CustomResourceSubresourceStatus<'a>>;
    1 SCALE scale: Option<CustomResourceSubresourceScale<'a>>;
} }

view! { CustomResourceValidation custom_resource_validation 126 {
    0 OPEN_APIV3_SCHEMA open_apiv3_schema: Option<JSONSchemaProps<'a>>;
} }

view! { ExternalDocumentation external_documentation 127 {
    0 DESCRIPTION description: &'a str;
    1 URL url: &'a str;
} }

view! { JSONSchemaProps json_schema_props 128 {
    0 ID_ id: &'a str;
    1 SCHEMA schema: &'a str;
    2 REF ref_: Option<&'a str>;
    3 DESCRIPTION description: &'a str;
    4 TYPE type_: &'a str;
    5 FORMAT format: &'a str;
    6 TITLE title: &'a str;
    7 DEFAULT default: Option<&'a Tree>;
    8 MAXIMUM maximum: Option<f64>;
    9 EXCLUSIVE_MAXIMUM exclusive_maximum: bool;
    10 MINIMUM minimum: Option<f64>;
    11 EXCLUSIVE_MINIMUM exclusive_minimum: bool;
    12 MAX_LENGTH max_length: Option<i64>;
    13 MIN_LENGTH min_length: Option<i64>;
    14 PATTERN pattern: &'a str;
    15 MAX_ITEMS max_items: Option<i64>;
    16 MIN_ITEMS min_items: Option<i64>;
    17 UNIQUE_ITEMS unique_items: bool;
    18 MULTIPLE_OF multiple_of: Option<f64>;
    19 ENUM enum_: ListView<'a, Option<&'a Tree>>;
    20 MAX_PROPERTIES max_properties: Option<i64>;
    21 MIN_PROPERTIES min_properties: Option<i64>;
    22 REQUIRED required: ListView<'a, &'a str>;
    23 ITEMS items: Option<&'a Tree>;
    24 ALL_OF all_of: ListView<'a, JSONSchemaProps<'a>>;
    25 ONE_OF one_of: ListView<'a, JSONSchemaProps<'a>>;
    26 ANY_OF any_of: ListView<'a, JSONSchemaProps<'a>>;
    27 NOT not: Option<JSONSchemaProps<'a>>;
    28 PROPERTIES properties: MapView<'a, JSONSchemaProps<'a>>;
    29 ADDITIONAL_PROPERTIES additional_properties: Option<&'a Tree>;
    30 PATTERN_PROPERTIES pattern_properties: MapView<'a, JSONSchemaProps<'a>>;
    31 DEPENDENCIES dependencies: MapView<'a, Option<&'a Tree>>;
    32 ADDITIONAL_ITEMS additional_items: Option<&'a Tree>;
    33 DEFINITIONS definitions: MapView<'a, JSONSchemaProps<'a>>;
    34 EXTERNAL_DOCS external_docs: Option<ExternalDocumentation<'a>>;
    35 EXAMPLE example: Option<&'a Tree>;
    36 NULLABLE nullable: bool;
    37 X_KUBERNETES_PRESERVE_UNKNOWN_FIELDS x_kubernetes_preserve_unknown_fields: Option<bool>;
    38 X_KUBERNETES_EMBEDDED_RESOURCE x_kubernetes_embedded_resource: bool;
    39 X_KUBERNETES_INT_OR_STRING x_kubernetes_int_or_string: bool;
    40 X_KUBERNETES_LIST_MAP_KEYS x_kubernetes_list_map_keys: ListView<'a, &'a str>;
    41 X_KUBERNETES_LIST_TYPE x_kubernetes_list_type: Option<&'a str>;
    42 X_KUBERNETES_MAP_TYPE x_kubernetes_map_type: Option<&'a str>;
    43 X_KUBERNETES_VALIDATIONS x_kubernetes_validations: ListView<'a, ValidationRule<'a>>;
} }

view! { SelectableField selectable_field 129 {
    0 JSON_PATH json_path: &'a str;
} }

view! { ServiceReference service_reference 130 {
    0 NAMESPACE namespace: &'a str;
    1 NAME name: &'a str;
    2 PATH path: Option<&'a str>;
    3 PORT port: Option<i64>;
} }

view! { ValidationRule validation_rule 131 {
    0 RULE rule: &'a str;
    1 MESSAGE message: &'a str;
    2 MESSAGE_EXPRESSION message_expression: &'a str;
    3 REASON reason: Option<&'a str>;
    4 FIELD_PATH field_path: &'a str;
    5 OPTIONAL_OLD_SELF optional_old_self: Option<bool>;
} }

view! { WebhookClientConfig webhook_client_config 132 {
    0 URL url: Option<&'a str>;
    1 SERVICE service: Option<ServiceReference<'a>>;
    2 CA_BUNDLE ca_bundle: &'a str;
} }

view! { WebhookConversion webhook_conversion 133 {
    0 CLIENT_CONFIG client_config: Option<WebhookClientConfig<'a>>;
    1 CONVERSION_REVIEW_VERSIONS conversion_review_versions: ListView<'a, &'a str>;
} }
