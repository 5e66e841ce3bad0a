//! `io.k8s.api.storagemigration.v1beta1`

use super::meta_v1;
use crate::view::prelude::*;

view! { StorageVersionMigration storage_version_migration 874 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: StorageVersionMigrationSpec<'a>;
    4 STATUS status: StorageVersionMigrationStatus<'a>;
} }

view! { StorageVersionMigrationList storage_version_migration_list 875 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, StorageVersionMigration<'a>>;
} }

view! { StorageVersionMigrationSpec storage_version_migration_spec 876 {
    0 RESOURCE resource: meta_v1::GroupResource<'a>;
} }

view! { StorageVersionMigrationStatus storage_version_migration_status 877 {
    0 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
    1 RESOURCE_VERSION resource_version: &'a str;
} }
