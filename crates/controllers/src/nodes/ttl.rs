//! TTL controller: how long kubelets may keep what they read, by the size of the cluster (upstream:
//! `pkg/controller/ttl`).

use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, Informer, Key, Patch, resource_of};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, nodes};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// The sizes of clusters: the fewest nodes, the most, and the time in seconds. They overlap, so that one node more or
/// less does not change every Node.
const SIZES: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// The size of the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    nodes: usize,
    /// The place in [`SIZES`].
    step: usize,
}

impl Size {
    fn add(&mut self) {
        self.nodes += 1;
        if self.nodes > SIZES[self.step].1 {
            self.step += 1;
        }
    }
    fn remove(&mut self) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes < SIZES[self.step].0 {
            self.step -= 1;
        }
    }
    fn seconds(self) -> u32 {
        SIZES[self.step].2
    }
}

/// The controller.
pub(crate) struct Ttl {
    client: Client,
    nodes: Informer<NodeView>,
    size: Mutex<Size>,
}

impl Controller for Ttl {
    const NAME: &'static str = "ttl-controller";
    const ALIASES: &'static [&'static str] = &["ttl"];
    const ACCOUNT: &'static str = "ttl-controller";
    const QUEUE: &'static str = "ttlcontroller";
    const WORKERS: usize = 5;
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        Self { client: host.client(), nodes: nodes(host.factory()), size: Mutex::default() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.nodes.handle(move |change| {
            let seconds = {
                let mut size = c.size.lock();
                match change {
                    Change::Added(_) => size.add(),
                    Change::Deleted(_) => size.remove(),
                    Change::Updated { .. } => {}
                }
                size.seconds()
            };
            // After a change of the size each node is written with its next change, as upstream does it: not all at
            // once.
            let node = change.object();
            if !matches!(change, Change::Deleted(_)) && plan(node, seconds).is_some() {
                queue.add(node.key());
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let seconds = self.size.lock().seconds();
        let Some(patch) = self.nodes.get_key(&key).and_then(|node| plan(&node, seconds)) else {
            return Ok(Next::Done);
        };
        let api = self.client.resource::<NodeView>(resource_of::<Node>(), "");
        match api.patch(&key.name, &Patch::Strategic(patch)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Next::Done),
        }
    }
}

/// The patch by which a node gets the time, unless it has it.
fn plan(node: &NodeView, seconds: u32) -> Option<serde_json::Value> {
    let current = node.metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION));
    if current.and_then(|text| text.parse().ok()) == Some(seconds) {
        return None;
    }
    Some(json!({"metadata": {"annotations": {ANNOTATION: seconds.to_string()}}}))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Upstream's 7 cases of `TestPatchNode` and 6 of `TestUpdateNodeIfNeeded`.
    #[test]
    fn patches() {
        let check = |annotations: Value, seconds: u32, want: bool| {
            let node = json!({"metadata": {"name": "name", "annotations": annotations}});
            let patch = plan(&serde_json::from_value(node).unwrap(), seconds);
            let wanted = json!({"metadata": {"annotations": {ANNOTATION: seconds.to_string()}}});
            assert_eq!(patch, want.then_some(wanted), "{annotations} {seconds}");
        };
        check(json!(null), 0, true);
        check(json!(null), 10, true);
        check(json!({}), 10, true);
        check(json!({ANNOTATION: "0"}), 10, true);
        check(json!({ANNOTATION: "0", "a": "b"}), 10, true);
        check(json!({ANNOTATION: "10", "a": "b"}), 10, false);
        check(json!(null), 15, true);
        check(json!(null), 30, true);
        check(json!({ANNOTATION: "0"}), 60, true);
        check(json!({ANNOTATION: "60"}), 60, false);
        check(json!({ANNOTATION: "60"}), 30, true);
        check(json!({ANNOTATION: "sixty"}), 60, true);
    }

    /// Upstream's 9 cases of `TestDesiredTTL`.
    #[test]
    fn sizes() {
        let check = |add: bool, nodes: usize, step: usize, want: u32| {
            let mut size = Size { nodes, step };
            if add {
                size.add();
            } else {
                size.remove();
            }
            assert_eq!(size.seconds(), want, "{add} {nodes} {step}");
        };
        check(true, 0, 0, 0);
        check(true, 99, 0, 0);
        check(true, 100, 0, 15);
        check(false, 101, 1, 15);
        check(false, 91, 1, 15);
        check(true, 91, 1, 15);
        check(false, 90, 1, 0);
        check(false, 1800, 4, 60);
        check(false, 10_000, 4, 300);
    }

    #[test]
    fn a_cluster_grows_and_shrinks() {
        let mut size = Size::default();
        let mut seen = vec![0];
        let mut note = |size: Size| {
            if seen.last() != Some(&size.seconds()) {
                seen.push(size.seconds());
            }
        };
        for _ in 0..5000 {
            size.add();
            note(size);
        }
        for _ in 0..6000 {
            size.remove();
            note(size);
        }
        assert_eq!((size, seen), (Size::default(), vec![0, 15, 30, 60, 300, 60, 30, 15, 0]));
    }
}
