//! The volumes that this node uses and those that are attached to it, as its Node says; upstream's protocol between kubelet
//! and controller: a volume is used only after the Node says that it is in use, and detached only after it does not.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeStatus;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::node::NodeView;

/// How long a volume's attachment is waited for; upstream's `podAttachAndMountTimeout`.
const PATIENCE: Duration = Duration::from_secs(123);

/// The volumes in use, by the names that nodes tell them by.
pub(crate) struct InUse {
    names: Mutex<BTreeSet<String>>,
    /// Told when they change.
    pub(crate) changed: Notify,
    /// Counts states of the Node that were seen.
    seen: watch::Sender<u64>,
}

impl Default for InUse {
    fn default() -> Self {
        Self { names: Mutex::default(), changed: Notify::new(), seen: watch::Sender::new(0) }
    }
}

impl InUse {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<String> {
        self.names.lock().iter().cloned().collect()
    }

    /// Notes that one is used.
    pub(super) fn add(&self, name: &str) {
        if self.names.lock().insert(name.to_owned()) {
            self.changed.notify_one();
        }
    }

    /// Notes that one is not used any more.
    pub(super) fn remove(&self, name: &str) {
        if self.names.lock().remove(name) {
            self.changed.notify_one();
        }
    }

    /// Another state of the Node was seen.
    pub(crate) fn node_seen(&self) {
        self.seen.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits until the Node says that a volume is in use and attached. Answers whether it does.
    pub(super) async fn attached(&self, node: &NodeView, name: &str) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.seen.subscribe();
        loop {
            seen.mark_unchanged();
            let status = node.registered().and_then(|n| n.status.clone());
            if status.is_some_and(|s| is_attached(&s, name)) {
                return true;
            }
            if !matches!(timeout_at(deadline, seen.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
    }
}

/// Whether a Node says that a volume is in use and attached.
fn is_attached(status: &NodeStatus, name: &str) -> bool {
    status.volumes_in_use.iter().flatten().any(|v| v == name)
        && status.volumes_attached.iter().flatten().any(|v| v.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn both_sides_must_have_spoken() {
        let check = |status: Value, expected: bool| {
            assert_eq!(is_attached(&serde_json::from_value(status).unwrap(), "v"), expected);
        };
        check(json!({}), false);
        check(json!({"volumesInUse": ["v"]}), false);
        let attached = json!([{"name": "v", "devicePath": ""}]);
        check(json!({"volumesAttached": attached}), false);
        check(json!({"volumesAttached": attached, "volumesInUse": ["w"]}), false);
        check(json!({"volumesAttached": attached, "volumesInUse": ["v"]}), true);
    }
}
