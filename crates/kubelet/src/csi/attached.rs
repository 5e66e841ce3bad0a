//! The volumes that this node uses and those that are attached to it, as its Node says; upstream's protocol between kubelet
//! and controller: a volume is used only after the Node says that it is in use, and detached only after it does not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::{Change, Informer};
use k8s_openapi::api::core::v1::NodeStatus;
use k8s_openapi::api::storage::v1::CSIDriver;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::volume::{Rules, unique_name};
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
    pub(crate) fn add(&self, name: &str) {
        if self.names.lock().insert(name.to_owned()) {
            self.changed.notify_one();
        }
    }

    /// Notes that one is not used any more.
    pub(crate) fn remove(&self, name: &str) {
        if self.names.lock().remove(name) {
            self.changed.notify_one();
        }
    }

    /// Notes that none of those is used any more whose names begin like this.
    fn remove_all(&self, prefix: &str) {
        let mut names = self.names.lock();
        let before = names.len();
        names.retain(|name| !name.starts_with(prefix));
        if names.len() != before {
            self.changed.notify_one();
        }
    }

    /// Follows the drivers' rules: volumes of a driver that is not to attach them any more are not told of, so that the
    /// controller removes their attachments.
    ///
    /// DIFFERENCE: upstream's kubelet leaves those that are mounted until their Pods end or it starts again, and volumes are
    /// mounted here before a driver could be changed.
    pub(super) fn follow(this: &Arc<Self>, rules: &Informer<CSIDriver>) {
        let this = this.clone();
        rules.handle(move |change| {
            if let Change::Added(driver) | Change::Updated { new: driver, .. } = change
                && !Rules::of(Some(&driver.spec)).attach
            {
                let name = driver.metadata.name.as_deref().unwrap_or_default();
                this.remove_all(&unique_name(name, ""));
            }
        });
    }

    /// Another state of the Node was seen.
    pub(crate) fn node_seen(&self) {
        self.seen.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits until the Node says that a volume is in use and attached. Answers the path of its device, which the Node need
    /// not tell; none if the volume was not attached in time.
    pub(crate) async fn attached(&self, node: &NodeView, name: &str) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.seen.subscribe();
        loop {
            seen.mark_unchanged();
            let status = node.registered().and_then(|n| n.status.clone());
            if let Some(device) = status.and_then(|s| attached_at(&s, name)) {
                return Some(device);
            }
            if !matches!(timeout_at(deadline, seen.changed()).await, Ok(Ok(()))) {
                return None;
            }
        }
    }
}

/// The path of a volume's device, if the Node says that the volume is in use and attached.
fn attached_at(status: &NodeStatus, name: &str) -> Option<String> {
    let used = status.volumes_in_use.iter().flatten().any(|v| v == name);
    let attached = status.volumes_attached.iter().flatten().find(|v| v.name == name);
    attached.filter(|_| used).map(|v| v.device_path.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn volumes_of_a_driver_are_forgotten_together() {
        let in_use = InUse::default();
        for (driver, handle) in [("d", "a"), ("d.io", "a"), ("d", "b^c"), ("e", "d^a")] {
            in_use.add(&unique_name(driver, handle));
        }
        in_use.remove_all(&unique_name("d", ""));
        assert_eq!(in_use.all(), ["kubernetes.io/csi/d.io^a", "kubernetes.io/csi/e^d^a"]);
    }

    #[test]
    fn both_sides_must_have_spoken() {
        let check = |status: Value, expected: Option<&str>| {
            let found = attached_at(&serde_json::from_value(status).unwrap(), "v");
            assert_eq!(found.as_deref(), expected);
        };
        check(json!({}), None);
        check(json!({"volumesInUse": ["v"]}), None);
        let attached = json!([{"name": "v", "devicePath": "/dev/x"}]);
        check(json!({"volumesAttached": attached}), None);
        check(json!({"volumesAttached": attached, "volumesInUse": ["w"]}), None);
        check(json!({"volumesAttached": attached, "volumesInUse": ["v"]}), Some("/dev/x"));
    }
}
