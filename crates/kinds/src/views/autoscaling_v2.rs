//! `io.k8s.api.autoscaling.v2`

use super::meta_v1;
use crate::view::prelude::*;

view! { ContainerResourceMetricSource container_resource_metric_source 209 {
    0 NAME name: &'a str;
    1 TARGET target: MetricTarget<'a>;
    2 CONTAINER container: &'a str;
} }

view! { ContainerResourceMetricStatus container_resource_metric_status 210 {
    0 NAME name: &'a str;
    1 CURRENT current: MetricValueStatus<'a>;
    2 CONTAINER container: &'a str;
} }

view! { CrossVersionObjectReference cross_version_object_reference 211 {
    0 KIND kind: &'a str;
    1 NAME name: &'a str;
    2 API_VERSION api_version: &'a str;
} }

view! { ExternalMetricSource external_metric_source 212 {
    0 METRIC metric: MetricIdentifier<'a>;
    1 TARGET target: MetricTarget<'a>;
} }

view! { ExternalMetricStatus external_metric_status 213 {
    0 METRIC metric: MetricIdentifier<'a>;
    1 CURRENT current: MetricValueStatus<'a>;
} }

view! { HPAScalingPolicy hpa_scaling_policy 214 {
    0 TYPE type_: &'a str;
    1 VALUE value: i64;
    2 PERIOD_SECONDS period_seconds: i64;
} }

view! { HPAScalingRules hpa_scaling_rules 215 {
    0 STABILIZATION_WINDOW_SECONDS stabilization_window_seconds: Option<i64>;
    1 SELECT_POLICY select_policy: Option<&'a str>;
    2 POLICIES policies: ListView<'a, HPAScalingPolicy<'a>>;
    3 TOLERANCE tolerance: Option<&'a str>;
} }

view! { HorizontalPodAutoscaler horizontal_pod_autoscaler 216 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: HorizontalPodAutoscalerSpec<'a>;
    4 STATUS status: HorizontalPodAutoscalerStatus<'a>;
} }

view! { HorizontalPodAutoscalerBehavior horizontal_pod_autoscaler_behavior 217 {
    0 SCALE_UP scale_up: Option<HPAScalingRules<'a>>;
    1 SCALE_DOWN scale_down: Option<HPAScalingRules<'a>>;
} }

view! { HorizontalPodAutoscalerCondition horizontal_pod_autoscaler_condition 218 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_TRANSITION_TIME last_transition_time: &'a str;
    3 REASON reason: &'a str;
    4 MESSAGE message: &'a str;
} }

view! { HorizontalPodAutoscalerList horizontal_pod_autoscaler_list 219 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, HorizontalPodAutoscaler<'a>>;
} }

view! { HorizontalPodAutoscalerSpec horizontal_pod_autoscaler_spec 220 {
    0 SCALE_TARGET_REF scale_target_ref: CrossVersionObjectReference<'a>;
    1 MIN_REPLICAS min_replicas: Option<i64>;
    2 MAX_REPLICAS max_replicas: i64;
    3 METRICS metrics: ListView<'a, MetricSpec<'a>>;
    4 BEHAVIOR behavior: Option<HorizontalPodAutoscalerBehavior<'a>>;
} }

view! { HorizontalPodAutoscalerStatus horizontal_pod_autoscaler_status 221 {
    0 OBSERVED_GENERATION observed_generation: Option<i64>;
    1 LAST_SCALE_TIME last_scale_time: Option<&'a str>;
    2 CURRENT_REPLICAS current_replicas: i64;
    3 DESIRED_REPLICAS desired_replicas: i64;
    4 CURRENT_METRICS current_metrics: ListView<'a, MetricStatus<'a>>;
    5 CONDITIONS conditions: ListView<'a, HorizontalPodAutoscalerCondition<'a>>;
} }

view! { MetricIdentifier metric_identifier 222 {
    0 NAME name: &'a str;
    1 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
} }

view! { MetricSpec metric_spec 223 {
    0 TYPE type_: &'a str;
    1 OBJECT object: Option<ObjectMetricSource<'a>>;
    2 PODS pods: Option<PodsMetricSource<'a>>;
    3 RESOURCE resource: Option<ResourceMetricSource<'a>>;
    4 CONTAINER_RESOURCE container_resource: Option<ContainerResourceMetricSource<'a>>;
    5 EXTERNAL external: Option<ExternalMetricSource<'a>>;
} }

view! { MetricStatus metric_status 224 {
    0 TYPE type_: &'a str;
    1 OBJECT object: Option<ObjectMetricStatus<'a>>;
    2 PODS pods: Option<PodsMetricStatus<'a>>;
    3 RESOURCE resource: Option<ResourceMetricStatus<'a>>;
    4 CONTAINER_RESOURCE container_resource: Option<ContainerResourceMetricStatus<'a>>;
    5 EXTERNAL external: Option<ExternalMetricStatus<'a>>;
} }

view! { MetricTarget metric_target 225 {
    0 TYPE type_: &'a str;
    1 VALUE value: Option<&'a str>;
    2 AVERAGE_VALUE average_value: Option<&'a str>;
    3 AVERAGE_UTILIZATION average_utilization: Option<i64>;
} }

view! { MetricValueStatus metric_value_status 226 {
    0 VALUE value: Option<&'a str>;
    1 AVERAGE_VALUE average_value: Option<&'a str>;
    2 AVERAGE_UTILIZATION average_utilization: Option<i64>;
} }

view! { ObjectMetricSource object_metric_source 227 {
    0 DESCRIBED_OBJECT described_object: CrossVersionObjectReference<'a>;
    1 TARGET target: MetricTarget<'a>;
    2 METRIC metric: MetricIdentifier<'a>;
} }

view! { ObjectMetricStatus object_metric_status 228 {
    0 METRIC metric: MetricIdentifier<'a>;
    1 CURRENT current: MetricValueStatus<'a>;
    2 DESCRIBED_OBJECT described_object: CrossVersionObjectReference<'a>;
} }

view! { PodsMetricSource pods_metric_source 229 {
    0 METRIC metric: MetricIdentifier<'a>;
    1 TARGET target: MetricTarget<'a>;
} }

view! { PodsMetricStatus pods_metric_status 230 {
    0 METRIC metric: MetricIdentifier<'a>;
    1 CURRENT current: MetricValueStatus<'a>;
} }

view! { ResourceMetricSource resource_metric_source 231 {
    0 NAME name: &'a str;
    1 TARGET target: MetricTarget<'a>;
} }

view! { ResourceMetricStatus resource_metric_status 232 {
    0 NAME name: &'a str;
    1 CURRENT current: MetricValueStatus<'a>;
} }
