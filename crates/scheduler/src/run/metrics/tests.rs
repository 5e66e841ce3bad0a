use component::metrics::Page;

use super::*;
use crate::framework::verdict::Rejection;

fn metrics() -> Metrics {
    Metrics::new(&BTreeMap::from([("p".to_owned(), crate::plugins::tests::profile())]))
}

fn page(metrics: &Metrics) -> String {
    let mut page = Page::default();
    metrics.report(&mut page);
    page.text()
}

#[test]
fn a_page() {
    let metrics = metrics();
    let second = Duration::from_secs(1);
    metrics.decided(second);
    metrics.ended("p", Result::Scheduled, second);
    metrics.ended("p", Result::Scheduled, second);
    metrics.ended("p", Result::Error, second);
    metrics.ended("of nobody", Result::Error, second);
    metrics.bound(20, true, second);
    metrics.bound(1, false, second);
    metrics.handled(Events::NODE_LABELS | Events::NODE_TAINTS, second);
    metrics.handled(Events::NONE, second);
    metrics.preempted(Some(3));
    metrics.preempted(None);
    metrics.evicted(true, second);
    metrics.evicted(false, second);
    metrics.patched(true, second);
    metrics.permitted("allowed", second);
    metrics.sizes([1, 2, 3, 4], [5, 6, 7], 8);
    metrics.refused(&["Fit", "Taint"], "p", true);
    metrics.refused(&["Fit"], "p", true);
    metrics.refused(&["Taint"], "p", false);
    let running = metrics.runs(Task::Binding);
    drop(metrics.runs(Task::Prioritizing));
    let text = page(&metrics);
    for line in [
        "scheduler_schedule_attempts_total{profile=\"p\",result=\"scheduled\"} 2",
        "scheduler_schedule_attempts_total{profile=\"p\",result=\"error\"} 1",
        "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"p\",result=\"scheduled\",le=\"1.024\"} 2",
        "scheduler_scheduling_algorithm_duration_seconds_count 1",
        "scheduler_pod_scheduling_attempts_sum 21",
        "scheduler_pod_scheduled_after_flush_total 1",
        "scheduler_event_handling_duration_seconds_sum{event=\"NodeUpdateNodeLabel\"} 1",
        "scheduler_event_handling_duration_seconds_sum{event=\"NodeUpdateNodeTaint\"} 1",
        "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
        "scheduler_preemption_attempts_total 2",
        "scheduler_preemption_victims_sum 3",
        "scheduler_preemption_goroutines_execution_total{result=\"error\"} 1",
        "scheduler_preemption_goroutines_duration_seconds_sum{result=\"success\"} 1",
        "scheduler_async_api_call_execution_total{call_type=\"pod_status_patch\",result=\"success\"} 1",
        "scheduler_async_api_call_execution_duration_seconds_sum{call_type=\"pod_status_patch\",result=\"success\"} 1",
        "scheduler_pending_async_api_calls{call_type=\"pod_status_patch\"} 8",
        "scheduler_permit_wait_duration_seconds_count{result=\"allowed\"} 1",
        "scheduler_pending_pods{queue=\"gated\"} 4",
        "scheduler_cache_size{type=\"assumed_pods\"} 7",
        "scheduler_unschedulable_pods{plugin=\"Fit\",profile=\"p\"} 2",
        "scheduler_unschedulable_pods{plugin=\"Taint\",profile=\"p\"} 0",
        "scheduler_goroutines{operation=\"binding\"} 1",
        "scheduler_goroutines{operation=\"prioritizing_extender\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    drop(running);
    assert!(page(&metrics).contains("scheduler_goroutines{operation=\"binding\"} 0\n"));
}

#[test]
fn the_time_of_points_and_plugins() {
    let (metrics, mut times) = (metrics(), Times::default());
    times.begin(true);
    times.count(Point::Filter, 1);
    let refused =
        times.plugin(Point::Permit, "Third", Code::of_result, || Err::<(), _>(Rejection::new("Third", "no")));
    times.ended(Point::Permit, Code::of_result(&refused));
    metrics.took("p", &times);
    metrics.took("p", &times);
    metrics.took("of nobody", &times);
    let text = page(&metrics);
    for line in [
        "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Permit\",profile=\"p\",status=\"Unschedulable\"} 2",
        "scheduler_plugin_execution_duration_seconds_count{extension_point=\"Permit\",plugin=\"Third\",status=\"Unschedulable\"} 2",
        "scheduler_plugin_evaluation_total{extension_point=\"Filter\",plugin=\"NodeName\",profile=\"p\"} 2",
        "scheduler_plugin_evaluation_total{extension_point=\"Score\",plugin=\"NodeAffinity\",profile=\"p\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

/// Upstream's metrics with their types.
const UPSTREAM: &[(&str, &str)] = &[
    ("scheduler_async_api_call_execution_duration_seconds", "histogram"),
    ("scheduler_async_api_call_execution_total", "counter"),
    ("scheduler_batch_attempts_total", "counter"),
    ("scheduler_batch_cache_flushed_total", "counter"),
    ("scheduler_cache_size", "gauge"),
    ("scheduler_dra_bindingconditions_allocations_total", "counter"),
    ("scheduler_dra_bindingconditions_wait_duration_seconds", "histogram"),
    ("scheduler_event_handling_duration_seconds", "histogram"),
    ("scheduler_framework_extension_point_duration_seconds", "histogram"),
    ("scheduler_get_node_hint_duration_seconds", "histogram"),
    ("scheduler_goroutines", "gauge"),
    ("scheduler_inflight_events", "gauge"),
    ("scheduler_pending_async_api_calls", "gauge"),
    ("scheduler_pending_pods", "gauge"),
    ("scheduler_permit_wait_duration_seconds", "histogram"),
    ("scheduler_plugin_evaluation_total", "counter"),
    ("scheduler_plugin_execution_duration_seconds", "histogram"),
    ("scheduler_pod_scheduled_after_flush_total", "counter"),
    ("scheduler_pod_scheduling_attempts", "histogram"),
    ("scheduler_pod_scheduling_sli_duration_seconds", "histogram"),
    ("scheduler_podgroup_schedule_attempts_total", "counter"),
    ("scheduler_podgroup_scheduling_algorithm_duration_seconds", "histogram"),
    ("scheduler_podgroup_scheduling_attempt_duration_seconds", "histogram"),
    ("scheduler_preemption_attempts_total", "counter"),
    ("scheduler_preemption_goroutines_duration_seconds", "histogram"),
    ("scheduler_preemption_goroutines_execution_total", "counter"),
    ("scheduler_preemption_victims", "histogram"),
    ("scheduler_queue_incoming_pods_total", "counter"),
    ("scheduler_queueing_hint_execution_duration_seconds", "histogram"),
    ("scheduler_resourceclaim_creates_total", "counter"),
    ("scheduler_schedule_attempts_total", "counter"),
    ("scheduler_scheduling_algorithm_duration_seconds", "histogram"),
    ("scheduler_scheduling_attempt_duration_seconds", "histogram"),
    ("scheduler_store_schedule_results_duration_seconds", "histogram"),
    ("scheduler_unschedulable_pods", "gauge"),
    ("scheduler_volume_binder_cache_requests_total", "counter"),
    ("scheduler_volume_scheduling_stage_error_total", "counter"),
];

/// Those of them that have no meaning here, and why.
const MEANINGLESS: &[(&str, &str)] = &[
    (
        "scheduler_batch_attempts_total",
        "Pods that are alike share what is kept, and there are no hints of nodes",
    ),
    ("scheduler_batch_cache_flushed_total", "the same"),
    ("scheduler_get_node_hint_duration_seconds", "the same"),
    ("scheduler_store_schedule_results_duration_seconds", "the same"),
    (
        "scheduler_volume_binder_cache_requests_total",
        "upstream's binder has no cache any more, and counts nothing",
    ),
];

#[test]
fn all_of_upstreams_metrics_are_there() {
    let mut page = Page::default();
    metrics().report(&mut page);
    crate::queue::Counts::default().report(&mut page);
    crate::storage::Storage::default().report(&mut page);
    crate::inventory::Devices::default().report(&mut page);
    let text = page.text();
    for (name, kind) in UPSTREAM {
        let header = format!("# TYPE {name} {kind}");
        let there = text.lines().any(|l| l == header);
        let meaningless = MEANINGLESS.iter().any(|(n, why)| n == name && !why.is_empty());
        assert_eq!(there, !meaningless, "{name}");
    }
    let ours = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next());
    let others: Vec<&str> = ours.filter(|n| !UPSTREAM.iter().any(|(name, _)| name == n)).collect();
    assert!(others.is_empty(), "{others:?}");
}
