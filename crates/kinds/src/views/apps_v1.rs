//! `io.k8s.api.apps.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { ControllerRevision controller_revision 146 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 DATA data: Option<&'a Tree>;
    4 REVISION revision: i64;
} }

view! { ControllerRevisionList controller_revision_list 147 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ControllerRevision<'a>>;
} }

view! { DaemonSet daemon_set 148 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: DaemonSetSpec<'a>;
    4 STATUS status: DaemonSetStatus<'a>;
} }

view! { DaemonSetCondition daemon_set_condition 149 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { DaemonSetList daemon_set_list 150 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, DaemonSet<'a>>;
} }

view! { DaemonSetSpec daemon_set_spec 151 {
    0 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    1 TEMPLATE template: core_v1::PodTemplateSpec<'a>;
    2 UPDATE_STRATEGY update_strategy: DaemonSetUpdateStrategy<'a>;
    3 MIN_READY_SECONDS min_ready_seconds: i64;
    4 REVISION_HISTORY_LIMIT revision_history_limit: Option<i64>;
} }

view! { DaemonSetStatus daemon_set_status 152 {
    0 CURRENT_NUMBER_SCHEDULED current_number_scheduled: i64;
    1 NUMBER_MISSCHEDULED number_misscheduled: i64;
    2 DESIRED_NUMBER_SCHEDULED desired_number_scheduled: i64;
    3 NUMBER_READY number_ready: i64;
    4 OBSERVED_GENERATION observed_generation: i64;
    5 UPDATED_NUMBER_SCHEDULED updated_number_scheduled: i64;
    6 NUMBER_AVAILABLE number_available: i64;
    7 NUMBER_UNAVAILABLE number_unavailable: i64;
    8 COLLISION_COUNT collision_count: Option<i64>;
    9 CONDITIONS conditions: ListView<'a, DaemonSetCondition<'a>>;
} }

view! { DaemonSetUpdateStrategy daemon_set_update_strategy 153 {
    0 TYPE type_: &'a str;
    1 ROLLING_UPDATE rolling_update: Option<RollingUpdateDaemonSet<'a>>;
} }

view! { Deployment deployment 154 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: DeploymentSpec<'a>;
    4 STATUS status: DeploymentStatus<'a>;
} }

view! { DeploymentCondition deployment_condition 155 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_UPDATE_TIME last_update_time: &'a str;
    3 LAST_TRANSITION_TIME last_transition_time: &'a str;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
} }

view! { DeploymentList deployment_list 156 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Deployment<'a>>;
} }

view! { DeploymentSpec deployment_spec 157 {
    0 REPLICAS replicas: Option<i64>;
    1 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    2 TEMPLATE template: core_v1::PodTemplateSpec<'a>;
    3 STRATEGY strategy: DeploymentStrategy<'a>;
    4 MIN_READY_SECONDS min_ready_seconds: i64;
    5 REVISION_HISTORY_LIMIT revision_history_limit: Option<i64>;
    6 PAUSED paused: bool;
    7 PROGRESS_DEADLINE_SECONDS progress_deadline_seconds: Option<i64>;
} }

view! { DeploymentStatus deployment_status 158 {
    0 OBSERVED_GENERATION observed_generation: i64;
    1 REPLICAS replicas: i64;
    2 UPDATED_REPLICAS updated_replicas: i64;
    3 READY_REPLICAS ready_replicas: i64;
    4 AVAILABLE_REPLICAS available_replicas: i64;
    5 UNAVAILABLE_REPLICAS unavailable_replicas: i64;
    6 TERMINATING_REPLICAS terminating_replicas: Option<i64>;
    7 CONDITIONS conditions: ListView<'a, DeploymentCondition<'a>>;
    8 COLLISION_COUNT collision_count: Option<i64>;
} }

view! { DeploymentStrategy deployment_strategy 159 {
    0 TYPE type_: &'a str;
    1 ROLLING_UPDATE rolling_update: Option<RollingUpdateDeployment<'a>>;
} }

view! { ReplicaSet replica_set 160 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ReplicaSetSpec<'a>;
    4 STATUS status: ReplicaSetStatus<'a>;
} }

view! { ReplicaSetCondition replica_set_condition 161 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { ReplicaSetList replica_set_list 162 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, ReplicaSet<'a>>;
} }

view! { ReplicaSetSpec replica_set_spec 163 {
    0 REPLICAS replicas: Option<i64>;
    1 MIN_READY_SECONDS min_ready_seconds: i64;
    2 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    3 TEMPLATE template: core_v1::PodTemplateSpec<'a>;
} }

view! { ReplicaSetStatus replica_set_status 164 {
    0 REPLICAS replicas: i64;
    1 FULLY_LABELED_REPLICAS fully_labeled_replicas: i64;
    2 READY_REPLICAS ready_replicas: i64;
    3 AVAILABLE_REPLICAS available_replicas: i64;
    4 TERMINATING_REPLICAS terminating_replicas: Option<i64>;
    5 OBSERVED_GENERATION observed_generation: i64;
    6 CONDITIONS conditions: ListView<'a, ReplicaSetCondition<'a>>;
} }

view! { RollingUpdateDaemonSet rolling_update_daemon_set 165 {
    0 MAX_UNAVAILABLE max_unavailable: Option<IntOrStr<'a>>;
    1 MAX_SURGE max_surge: Option<IntOrStr<'a>>;
} }

view! { RollingUpdateDeployment rolling_update_deployment 166 {
    0 MAX_UNAVAILABLE max_unavailable: Option<IntOrStr<'a>>;
    1 MAX_SURGE max_surge: Option<IntOrStr<'a>>;
} }

view! { RollingUpdateStatefulSetStrategy rolling_update_stateful_set_strategy 167 {
    0 PARTITION partition: Option<i64>;
    1 MAX_UNAVAILABLE max_unavailable: Option<IntOrStr<'a>>;
} }

view! { StatefulSet stateful_set 168 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: StatefulSetSpec<'a>;
    4 STATUS status: StatefulSetStatus<'a>;
} }

view! { StatefulSetCondition stateful_set_condition 169 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { StatefulSetList stateful_set_list 170 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, StatefulSet<'a>>;
} }

view! { StatefulSetOrdinals stateful_set_ordinals 171 {
    0 START start: i64;
} }

view! { StatefulSetPersistentVolumeClaimRetentionPolicy stateful_set_persistent_volume_claim_retention_policy 172 {
    0 WHEN_DELETED when_deleted: &'a str;
    1 WHEN_SCALED when_scaled: &'a str;
} }

view! { StatefulSetSpec stateful_set_spec 173 {
    0 REPLICAS replicas: Option<i64>;
    1 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    2 TEMPLATE template: core_v1::PodTemplateSpec<'a>;
    3 VOLUME_CLAIM_TEMPLATES volume_claim_templates: ListView<'a, core_v1::PersistentVolumeClaim<'a>>;
    4 SERVICE_NAME service_name: &'a str;
    5 POD_MANAGEMENT_POLICY pod_management_policy: &'a str;
    6 UPDATE_STRATEGY update_strategy: StatefulSetUpdateStrategy<'a>;
    7 REVISION_HISTORY_LIMIT revision_history_limit: Option<i64>;
    8 MIN_READY_SECONDS min_ready_seconds: i64;
    9 PERSISTENT_VOLUME_CLAIM_RETENTION_POLICY persistent_volume_claim_retention_policy: Option<StatefulSetPersistentVolumeClaimRetentionPolicy<'a>>;
    10 ORDINALS ordinals: Option<StatefulSetOrdinals<'a>>;
} }

view! { StatefulSetStatus stateful_set_status 174 {
    0 OBSERVED_GENERATION observed_generation: i64;
    1 REPLICAS replicas: i64;
    2 READY_REPLICAS ready_replicas: i64;
    3 CURRENT_REPLICAS current_replicas: i64;
    4 UPDATED_REPLICAS updated_replicas: i64;
    5 CURRENT_REVISION current_revision: &'a str;
    6 UPDATE_REVISION update_revision: &'a str;
    7 COLLISION_COUNT collision_count: Option<i64>;
    8 CONDITIONS conditions: ListView<'a, StatefulSetCondition<'a>>;
    9 AVAILABLE_REPLICAS available_replicas: i64;
} }

view! { StatefulSetUpdateStrategy stateful_set_update_strategy 175 {
    0 TYPE type_: &'a str;
    1 ROLLING_UPDATE rolling_update: Option<RollingUpdateStatefulSetStrategy<'a>>;
} }
