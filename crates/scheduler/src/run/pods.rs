//! Pods in their turn: the scheduler that one names, and a plugin that panics about one.

use std::any::Any;

use crate::config::defaults::SCHEDULER_NAME;
use crate::pod::PodView;

/// The scheduler that a Pod names.
pub(super) fn scheduler_of(pod: &PodView) -> &str {
    let name = pod.spec().and_then(|s| s.scheduler_name.as_deref());
    name.filter(|n| !n.is_empty()).unwrap_or(SCHEDULER_NAME)
}

/// The words of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

/// Says that a plugin panicked.
pub(super) fn panicked(pod: &PodView, panic: &(dyn Any + Send)) -> String {
    let (name, namespace, text) = (pod.name(), pod.namespace(), panic_text(panic));
    tracing::error!(pod = name, namespace, panic = text, "a scheduling cycle panicked");
    format!("the scheduling cycle panicked: {text}")
}
