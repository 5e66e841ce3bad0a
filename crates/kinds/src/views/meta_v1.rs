//! `io.k8s.apimachinery.pkg.apis.meta.v1`

use crate::view::prelude::*;

view! { APIGroup api_group 548 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 NAME name: &'a str;
    3 VERSIONS versions: ListView<'a, GroupVersionForDiscovery<'a>>;
    4 PREFERRED_VERSION preferred_version: GroupVersionForDiscovery<'a>;
    5 SERVER_ADDRESS_BY_CLIENT_CIDRS server_address_by_client_cidrs: ListView<'a, ServerAddressByClientCIDR<'a>>;
} }

view! { APIGroupList api_group_list 549 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 GROUPS groups: ListView<'a, APIGroup<'a>>;
} }

view! { APIResource api_resource 550 {
    0 NAME name: &'a str;
    1 SINGULAR_NAME singular_name: &'a str;
    2 NAMESPACED namespaced: bool;
    3 GROUP group: &'a str;
    4 VERSION version: &'a str;
    5 KIND kind: &'a str;
    6 VERBS verbs: ListView<'a, &'a str>;
    7 SHORT_NAMES short_names: ListView<'a, &'a str>;
    8 CATEGORIES categories: ListView<'a, &'a str>;
    9 STORAGE_VERSION_HASH storage_version_hash: &'a str;
} }

view! { APIResourceList api_resource_list 551 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 GROUP_VERSION group_version: &'a str;
    3 RESOURCES resources: ListView<'a, APIResource<'a>>;
} }

view! { APIVersions api_versions 552 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 VERSIONS versions: ListView<'a, &'a str>;
    3 SERVER_ADDRESS_BY_CLIENT_CIDRS server_address_by_client_cidrs: ListView<'a, ServerAddressByClientCIDR<'a>>;
} }

view! { ApplyOptions apply_options 553 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 DRY_RUN dry_run: ListView<'a, &'a str>;
    3 FORCE force: bool;
    4 FIELD_MANAGER field_manager: &'a str;
} }

view! { Condition condition 554 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 OBSERVED_GENERATION observed_generation: i64;
    3 LAST_TRANSITION_TIME last_transition_time: &'a str;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
} }

view! { CreateOptions create_options 555 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 DRY_RUN dry_run: ListView<'a, &'a str>;
    3 FIELD_MANAGER field_manager: &'a str;
    4 FIELD_VALIDATION field_validation: &'a str;
} }

view! { DeleteOptions delete_options 556 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 GRACE_PERIOD_SECONDS grace_period_seconds: Option<i64>;
    3 PRECONDITIONS preconditions: Option<Preconditions<'a>>;
    4 ORPHAN_DEPENDENTS orphan_dependents: Option<bool>;
    5 PROPAGATION_POLICY propagation_policy: Option<&'a str>;
    6 DRY_RUN dry_run: ListView<'a, &'a str>;
    7 IGNORE_STORE_READ_ERROR_WITH_CLUSTER_BREAKING_POTENTIAL ignore_store_read_error_with_cluster_breaking_potential: Option<bool>;
} }

view! { FieldSelectorRequirement field_selector_requirement 557 {
    0 KEY key: &'a str;
    1 OPERATOR operator: &'a str;
    2 VALUES values: ListView<'a, &'a str>;
} }

view! { GetOptions get_options 558 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 RESOURCE_VERSION resource_version: &'a str;
} }

view! { GroupResource group_resource 559 {
    0 GROUP group: &'a str;
    1 RESOURCE resource: &'a str;
} }

view! { GroupVersionForDiscovery group_version_for_discovery 560 {
    0 GROUP_VERSION group_version: &'a str;
    1 VERSION version: &'a str;
} }

view! { GroupVersionKind group_version_kind 561 {
    0 GROUP group: &'a str;
    1 VERSION version: &'a str;
    2 KIND kind: &'a str;
} }

view! { GroupVersionResource group_version_resource 562 {
    0 GROUP group: &'a str;
    1 VERSION version: &'a str;
    2 RESOURCE resource: &'a str;
} }

view! { LabelSelector label_selector 563 {
    0 MATCH_LABELS match_labels: MapView<'a, &'a str>;
    1 MATCH_EXPRESSIONS match_expressions: ListView<'a, LabelSelectorRequirement<'a>>;
} }

view! { LabelSelectorRequirement label_selector_requirement 564 {
    0 KEY key: &'a str;
    1 OPERATOR operator: &'a str;
    2 VALUES values: ListView<'a, &'a str>;
} }

view! { List list 565 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: ListMeta<'a>;
    3 ITEMS items: ListView<'a, Option<&'a Tree>>;
} }

view! { ListMeta list_meta 566 {
    0 SELF_LINK self_link: &'a str;
    1 RESOURCE_VERSION resource_version: &'a str;
    2 CONTINUE continue_: &'a str;
    3 REMAINING_ITEM_COUNT remaining_item_count: Option<i64>;
    4 SHARD_INFO shard_info: Option<ShardInfo<'a>>;
} }

view! { ListOptions list_options 567 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 LABEL_SELECTOR label_selector: &'a str;
    3 FIELD_SELECTOR field_selector: &'a str;
    4 WATCH watch: bool;
    5 ALLOW_WATCH_BOOKMARKS allow_watch_bookmarks: bool;
    6 RESOURCE_VERSION resource_version: &'a str;
    7 RESOURCE_VERSION_MATCH resource_version_match: &'a str;
    8 TIMEOUT_SECONDS timeout_seconds: Option<i64>;
    9 LIMIT limit: i64;
    10 CONTINUE continue_: &'a str;
    11 SEND_INITIAL_EVENTS send_initial_events: Option<bool>;
    12 SHARD_SELECTOR shard_selector: &'a str;
} }

view! { ManagedFieldsEntry managed_fields_entry 568 {
    0 MANAGER manager: &'a str;
    1 OPERATION operation: &'a str;
    2 API_VERSION api_version: &'a str;
    3 TIME time: Option<&'a str>;
    4 FIELDS_TYPE fields_type: &'a str;
    5 FIELDS_V1 fields_v1: Option<&'a Tree>;
    6 SUBRESOURCE subresource: &'a str;
} }

view! { ObjectMeta object_meta 569 {
    0 NAME name: &'a str;
    1 GENERATE_NAME generate_name: &'a str;
    2 NAMESPACE namespace: &'a str;
    3 SELF_LINK self_link: &'a str;
    4 UID uid: &'a str;
    5 RESOURCE_VERSION resource_version: &'a str;
    6 GENERATION generation: i64;
    7 CREATION_TIMESTAMP creation_timestamp: &'a str;
    8 DELETION_TIMESTAMP deletion_timestamp: Option<&'a str>;
    9 DELETION_GRACE_PERIOD_SECONDS deletion_grace_period_seconds: Option<i64>;
    10 LABELS labels: MapView<'a, &'a str>;
    11 ANNOTATIONS annotations: MapView<'a, &'a str>;
    12 OWNER_REFERENCES owner_references: ListView<'a, OwnerReference<'a>>;
    13 FINALIZERS finalizers: ListView<'a, &'a str>;
    14 MANAGED_FIELDS managed_fields: ListView<'a, ManagedFieldsEntry<'a>>;
} }

view! { OwnerReference owner_reference 570 {
    0 API_VERSION api_version: &'a str;
    1 KIND kind: &'a str;
    2 NAME name: &'a str;
    3 UID uid: &'a str;
    4 CONTROLLER controller: Option<bool>;
    5 BLOCK_OWNER_DELETION block_owner_deletion: Option<bool>;
} }

view! { PartialObjectMetadata partial_object_metadata 571 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: ObjectMeta<'a>;
} }

view! { PartialObjectMetadataList partial_object_metadata_list 572 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: ListMeta<'a>;
    3 ITEMS items: ListView<'a, PartialObjectMetadata<'a>>;
} }

view! { PatchOptions patch_options 574 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 DRY_RUN dry_run: ListView<'a, &'a str>;
    3 FORCE force: Option<bool>;
    4 FIELD_MANAGER field_manager: &'a str;
    5 FIELD_VALIDATION field_validation: &'a str;
} }

view! { Preconditions preconditions 575 {
    0 UID uid: Option<&'a str>;
    1 RESOURCE_VERSION resource_version: Option<&'a str>;
} }

view! { ServerAddressByClientCIDR server_address_by_client_cidr 576 {
    0 CLIENT_CIDR client_cidr: &'a str;
    1 SERVER_ADDRESS server_address: &'a str;
} }

view! { ShardInfo shard_info 577 {
    0 SELECTOR selector: &'a str;
} }

view! { Status status 578 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: ListMeta<'a>;
    3 STATUS status: &'a str;
    4 MESSAGE message: &'a str;
    5 REASON reason: &'a str;
    6 DETAILS details: Option<StatusDetails<'a>>;
    7 CODE code: i64;
} }

view! { StatusCause status_cause 579 {
    0 REASON reason: &'a str;
    1 MESSAGE message: &'a str;
    2 FIELD field: &'a str;
} }

view! { StatusDetails status_details 580 {
    0 NAME name: &'a str;
    1 GROUP group: &'a str;
    2 KIND kind: &'a str;
    3 UID uid: &'a str;
    4 CAUSES causes: ListView<'a, StatusCause<'a>>;
    5 RETRY_AFTER_SECONDS retry_after_seconds: i64;
} }

view! { Table table 581 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: ListMeta<'a>;
    3 COLUMN_DEFINITIONS column_definitions: ListView<'a, TableColumnDefinition<'a>>;
    4 ROWS rows: ListView<'a, TableRow<'a>>;
} }

view! { TableColumnDefinition table_column_definition 582 {
    0 NAME name: &'a str;
    1 TYPE type_: &'a str;
    2 FORMAT format: &'a str;
    3 DESCRIPTION description: &'a str;
    4 PRIORITY priority: i64;
} }

view! { TableOptions table_options 583 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 INCLUDE_OBJECT include_object: &'a str;
} }

view! { TableRow table_row 584 {
    0 CELLS cells: ListView<'a, Option<&'a Tree>>;
    1 CONDITIONS conditions: ListView<'a, TableRowCondition<'a>>;
    2 OBJECT object: Option<&'a Tree>;
} }

view! { TableRowCondition table_row_condition 585 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 REASON reason: &'a str;
    3 MESSAGE message: &'a str;
} }

view! { UpdateOptions update_options 586 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 DRY_RUN dry_run: ListView<'a, &'a str>;
    3 FIELD_MANAGER field_manager: &'a str;
    4 FIELD_VALIDATION field_validation: &'a str;
} }
