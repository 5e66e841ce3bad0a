//! Node IPAM: gives every node a block of the cluster's Pod network (upstream: `range_allocator.go`).

use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Patch, Recorder, resource_of};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use super::ranges::Ranges;
use crate::common::{deleting, retry, within};
use crate::host::{Controller, Host, Next, Shared, Wiring};
use crate::views::{NodeView, nodes};
use objects::Cidr;

/// Returns the blocks of a node.
fn blocks(node: &NodeView) -> Vec<Cidr> {
    let spec = node.spec.as_ref();
    let all = spec.and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
    all.iter().filter_map(|text| text.parse().ok()).collect()
}

fn name(node: &NodeView) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The controller that gives nodes their blocks.
pub(crate) struct Ipam {
    client: Client,
    recorder: Recorder,
    nodes: Informer<NodeView>,
    ranges: Arc<Mutex<Ranges>>,
}

impl Controller for Ipam {
    const NAME: &'static str = "node-ipam-controller";
    const ALIASES: &'static [&'static str] = &["nodeipam"];
    const ACCOUNT: &'static str = "node-controller";
    const QUEUE: &'static str = "cidrallocator_node";
    const WORKERS: usize = 8;
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let ranges = Arc::new(Mutex::new(host.ranges().clone()));
        let told = ranges.clone();
        host.metrics().register("node-ipam-controller/figures", move |page| told.lock().report(page));
        Self {
            client: host.client(),
            recorder: host.recorder("cidrAllocator"),
            nodes: nodes(host.factory()),
            ranges,
        }
    }

    fn wanted(shared: &Shared) -> bool {
        !shared.ranges.is_empty()
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        // The nodes' blocks are known before the first block is given: the workers start when all nodes are seen.
        self.nodes.handle(move |change| {
            let node = change.object();
            let blocks = blocks(node);
            match change {
                Change::Deleted(_) => c.ranges.lock().release(name(node)),
                Change::Updated { old, new } if old.metadata.uid != new.metadata.uid && blocks.is_empty() => {
                    c.ranges.lock().release(name(node));
                    queue.add(node.key());
                }
                _ if blocks.is_empty() => queue.add(node.key()),
                _ => c.ranges.lock().occupy(name(node), blocks),
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let allocated = {
            let mut ranges = self.ranges.lock();
            // The cache is asked under the lock: if the node is still known here, its end is handled later, and gives
            // back the blocks that it gets now.
            let node = self.nodes.get_key(&key);
            let Some(node) = node.filter(|n| blocks(n).is_empty() && !deleting(&n.metadata)) else {
                return Ok(Next::Done);
            };
            (ranges.allocate(name(&node)), node)
        };
        let (Some(got), node) = allocated else {
            super::record_status(&self.recorder, &allocated.1, "CIDRNotAvailable");
            return Err(retry(
                "failed to allocate cidr from cluster cidr: CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range",
            ));
        };
        let texts: Vec<String> = got.iter().map(Cidr::to_string).collect();
        // The uid keeps the block from a node that was made anew under the name. The API server keeps a block that
        // another client wrote: it never changes.
        let patch = json!({
            "metadata": {"uid": node.metadata.uid},
            "spec": {"podCIDR": texts.first(), "podCIDRs": texts},
        });
        match within(
            self.client
                .resource::<NodeView>(resource_of::<Node>(), "")
                .patch(&key.name, &Patch::Strategic(patch)),
        )
        .await
        {
            Ok(_) => Ok(Next::Done),
            Err(e) if e.is_not_found() => Ok(Next::Done),
            Err(e) => {
                // The block stays this node's: the write may have succeeded all the same.
                let text = format!("Node {} status is now: CIDRAssignmentFailed", key.name);
                let about = super::reference(&node);
                self.recorder.event_about(about, EventType::Normal, "CIDRAssignmentFailed", text);
                Err(e)
            }
        }
    }
}
