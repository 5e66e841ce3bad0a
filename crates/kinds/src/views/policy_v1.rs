//! `io.k8s.api.policy.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { Eviction eviction 650 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 DELETE_OPTIONS delete_options: Option<meta_v1::DeleteOptions<'a>>;
} }

view! { PodDisruptionBudget pod_disruption_budget 651 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: PodDisruptionBudgetSpec<'a>;
    4 STATUS status: PodDisruptionBudgetStatus<'a>;
} }

view! { PodDisruptionBudgetList pod_disruption_budget_list 652 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, PodDisruptionBudget<'a>>;
} }

view! { PodDisruptionBudgetSpec pod_disruption_budget_spec 653 {
    0 MIN_AVAILABLE min_available: Option<IntOrStr<'a>>;
    1 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    2 MAX_UNAVAILABLE max_unavailable: Option<IntOrStr<'a>>;
    3 UNHEALTHY_POD_EVICTION_POLICY unhealthy_pod_eviction_policy: Option<&'a str>;
} }

view! { PodDisruptionBudgetStatus pod_disruption_budget_status 654 {
    0 OBSERVED_GENERATION observed_generation: i64;
    1 DISRUPTED_PODS disrupted_pods: MapView<'a, &'a str>;
    2 DISRUPTIONS_ALLOWED disruptions_allowed: i64;
    3 CURRENT_HEALTHY current_healthy: i64;
    4 DESIRED_HEALTHY desired_healthy: i64;
    5 EXPECTED_PODS expected_pods: i64;
    6 CONDITIONS conditions: ListView<'a, meta_v1::Condition<'a>>;
} }
