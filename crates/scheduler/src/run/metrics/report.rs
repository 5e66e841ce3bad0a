//! The metrics as text.

use std::sync::atomic::Ordering;

use component::metrics::Page;

use super::{Inner, MANY, Metrics, TASKS};
use crate::framework::times::{Code, Point};

/// The queues of Pods, in the order of [`Queue::counts`](crate::queue::Queue::counts).
pub(super) const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

/// The call that the scheduler makes after a decision, in upstream's words.
const PATCH: &str = "pod_status_patch";

impl Metrics {
    /// Writes them down.
    pub(in crate::run) fn report(&self, page: &mut Page) {
        let name = "scheduler_goroutines";
        page.metric(name, "gauge", "Number of running goroutines split by the work they do such as binding.");
        for (task, n) in TASKS.iter().zip(&*self.running) {
            page.value(name, &[("operation", task)], n.load(Ordering::Relaxed) as f64);
        }
        let inner = self.lock();
        inner.report_turns(page);
        inner.report_queue(page);
        inner.report_points(page);
        inner.report_groups(page);
        inner.report_tasks(page);
        inner.report_state(page);
    }
}

impl Inner {
    fn report_turns(&self, page: &mut Page) {
        const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
        const DURATION: &str = "scheduler_scheduling_attempt_duration_seconds";
        const WAITED: &str = "scheduler_pod_scheduling_sli_duration_seconds";
        page.metric(ATTEMPTS, "counter", "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.");
        page.metric(
            DURATION,
            "histogram",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
        );
        for (profile, of) in &self.profiles {
            for (result, (turns, took)) in &of.attempts {
                let labels = [("profile", profile.as_str()), ("result", result.name())];
                page.value(ATTEMPTS, &labels, *turns as f64);
                page.histogram(DURATION, &labels, took);
            }
        }
        let name = "scheduler_scheduling_algorithm_duration_seconds";
        page.metric(name, "histogram", "Scheduling algorithm latency in seconds").histogram(
            name,
            &[],
            &self.algorithm,
        );
        let name = "scheduler_pod_scheduling_attempts";
        page.metric(name, "histogram", "Number of attempts to successfully schedule a pod.").histogram(
            name,
            &[],
            &self.tries,
        );
        page.metric(WAITED, "histogram", "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.");
        for (tries, waited) in &self.waited {
            let tries = if *tries == MANY { format!("{MANY}+") } else { tries.to_string() };
            page.histogram(WAITED, &[("attempts", &tries)], waited);
        }
    }

    fn report_queue(&self, page: &mut Page) {
        const EVENTS: &str = "scheduler_event_handling_duration_seconds";
        let name = "scheduler_pod_scheduled_after_flush_total";
        page.metric(name, "counter", "Number of pods that were successfully scheduled after being flushed from unschedulablePods due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.");
        page.value(name, &[], self.flushed as f64);
        page.metric(EVENTS, "histogram", "Event handling latency in seconds.");
        for (event, took) in &self.events {
            page.histogram(EVENTS, &[("event", event)], took);
        }
    }

    fn report_groups(&self, page: &mut Page) {
        const ATTEMPTS: &str = "scheduler_podgroup_schedule_attempts_total";
        const DURATION: &str = "scheduler_podgroup_scheduling_attempt_duration_seconds";
        page.metric(ATTEMPTS, "counter", "Number of attempts to schedule pod group, by the result. 'unschedulable' means a pod group could not be scheduled, while 'error' means an internal scheduler problem.");
        page.metric(
            DURATION,
            "histogram",
            "Pod group scheduling attempt latency in seconds (scheduling algorithm + binding)",
        );
        for ((profile, result), (turns, took)) in &self.groups {
            let labels = [("profile", profile.as_str()), ("result", *result)];
            page.value(ATTEMPTS, &labels, *turns as f64);
            page.histogram(DURATION, &labels, took);
        }
        let name = "scheduler_podgroup_scheduling_algorithm_duration_seconds";
        page.metric(name, "histogram", "Pod group scheduling algorithm latency in seconds");
        page.histogram(name, &[], &self.group_algorithm);
    }

    fn report_points(&self, page: &mut Page) {
        const POINT: &str = "scheduler_framework_extension_point_duration_seconds";
        const PLUGIN: &str = "scheduler_plugin_execution_duration_seconds";
        const ASKED: &str = "scheduler_plugin_evaluation_total";
        page.metric(POINT, "histogram", "Latency for running all plugins of a specific extension point.");
        page.metric(ASKED, "counter", "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).");
        for (profile, of) in &self.profiles {
            for (point, codes) in Point::ALL.iter().zip(&of.points) {
                for (code, took) in Code::ALL.iter().zip(codes) {
                    let Some(took) = took else { continue };
                    let labels =
                        [("extension_point", point.name()), ("profile", profile), ("status", code.name())];
                    page.histogram(POINT, &labels, took);
                }
            }
            for ((point, names), counts) in Point::ALL.iter().zip(&of.names).zip(&of.asked) {
                for (plugin, n) in names.iter().zip(counts) {
                    let labels =
                        [("extension_point", point.name()), ("plugin", plugin), ("profile", profile)];
                    page.value(ASKED, &labels, *n as f64);
                }
            }
        }
        page.metric(PLUGIN, "histogram", "Duration for running a plugin at a specific extension point.");
        for ((plugin, point, code), took) in &self.plugins {
            let labels = [("extension_point", point.name()), ("plugin", plugin), ("status", code.name())];
            page.histogram(PLUGIN, &labels, took);
        }
    }

    fn report_tasks(&self, page: &mut Page) {
        const PERMIT: &str = "scheduler_permit_wait_duration_seconds";
        const EVICTIONS: &str = "scheduler_preemption_goroutines_execution_total";
        const EVICTED: &str = "scheduler_preemption_goroutines_duration_seconds";
        const CALLS: &str = "scheduler_async_api_call_execution_total";
        const CALLED: &str = "scheduler_async_api_call_execution_duration_seconds";
        let name = "scheduler_preemption_victims";
        page.metric(name, "histogram", "Number of selected preemption victims").histogram(
            name,
            &[],
            &self.victims,
        );
        let name = "scheduler_preemption_attempts_total";
        page.metric(name, "counter", "Total preemption attempts in the cluster till now");
        page.value(name, &[], self.preemptions as f64);
        page.metric(EVICTIONS, "counter", "Number of preemption goroutines executed.");
        page.metric(EVICTED, "histogram", "Duration in seconds for running goroutines for the preemption.");
        for (result, (n, took)) in &self.evictions {
            page.value(EVICTIONS, &[("result", result)], *n as f64);
            page.histogram(EVICTED, &[("result", result)], took);
        }
        page.metric(PERMIT, "histogram", "Duration of waiting on permit.");
        for (result, waited) in &self.permits {
            page.histogram(PERMIT, &[("result", result)], waited);
        }
        page.metric(CALLS, "counter", "Total number of API calls executed by the async dispatcher.");
        page.metric(
            CALLED,
            "histogram",
            "Duration in seconds for executing API call in the async dispatcher.",
        );
        for (result, (n, took)) in &self.patches {
            let labels = [("call_type", PATCH), ("result", *result)];
            page.value(CALLS, &labels, *n as f64);
            page.histogram(CALLED, &labels, took);
        }
        let name = "scheduler_pending_async_api_calls";
        page.metric(name, "gauge", "Number of API calls currently pending in the async queue.");
        page.value(name, &[("call_type", PATCH)], self.pending_patches as f64);
    }

    fn report_state(&self, page: &mut Page) {
        let name = "scheduler_pending_pods";
        page.metric(name, "gauge", "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.");
        for (queue, pods) in QUEUES.iter().zip(self.pending) {
            page.value(name, &[("queue", queue)], pods as f64);
        }
        let name = "scheduler_cache_size";
        page.metric(name, "gauge", "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.");
        for (what, count) in ["nodes", "pods", "assumed_pods"].iter().zip(self.cached) {
            page.value(name, &[("type", what)], count as f64);
        }
        let name = "scheduler_unschedulable_pods";
        page.metric(name, "gauge", "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.");
        for ((plugin, profile), pods) in &self.refused {
            page.value(name, &[("plugin", plugin), ("profile", profile)], *pods as f64);
        }
    }
}
