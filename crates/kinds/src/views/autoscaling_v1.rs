//! `io.k8s.api.autoscaling.v1`

use super::meta_v1;
use crate::view::prelude::*;

view! { CrossVersionObjectReference cross_version_object_reference 201 {
    0 KIND kind: &'a str;
    1 NAME name: &'a str;
    2 API_VERSION api_version: &'a str;
} }

view! { HorizontalPodAutoscaler horizontal_pod_autoscaler 202 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: HorizontalPodAutoscalerSpec<'a>;
    4 STATUS status: HorizontalPodAutoscalerStatus<'a>;
} }

view! { HorizontalPodAutoscalerList horizontal_pod_autoscaler_list 203 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, HorizontalPodAutoscaler<'a>>;
} }

view! { HorizontalPodAutoscalerSpec horizontal_pod_autoscaler_spec 204 {
    0 SCALE_TARGET_REF scale_target_ref: CrossVersionObjectReference<'a>;
    1 MIN_REPLICAS min_replicas: Option<i64>;
    2 MAX_REPLICAS max_replicas: i64;
    3 TARGET_CPU_UTILIZATION_PERCENTAGE target_cpu_utilization_percentage: Option<i64>;
} }

view! { HorizontalPodAutoscalerStatus horizontal_pod_autoscaler_status 205 {
    0 OBSERVED_GENERATION observed_generation: Option<i64>;
    1 LAST_SCALE_TIME last_scale_time: Option<&'a str>;
    2 CURRENT_REPLICAS current_replicas: i64;
    3 DESIRED_REPLICAS desired_replicas: i64;
    4 CURRENT_CPU_UTILIZATION_PERCENTAGE current_cpu_utilization_percentage: Option<i64>;
} }

view! { Scale scale 206 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: ScaleSpec<'a>;
    4 STATUS status: ScaleStatus<'a>;
} }

view! { ScaleSpec scale_spec 207 {
    0 REPLICAS replicas: i64;
} }

view! { ScaleStatus scale_status 208 {
    0 REPLICAS replicas: i64;
    1 SELECTOR selector: &'a str;
} }
