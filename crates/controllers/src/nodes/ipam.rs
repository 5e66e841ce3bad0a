//! Node IPAM: gives every node a block of the cluster's Pod network (upstream: `range_allocator.go`).

use std::sync::Arc;

use api::Status;
use client::{Change, Client, Factory, Key, Patch, Queue, Recorder};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

pub use crate::common::cidr::CidrError;
use crate::common::cidr::{Cidr, CidrSet};
use crate::common::{deleting, retry};

/// The blocks that nodes get, one of each family.
#[derive(Debug)]
pub(crate) struct Ranges(Vec<CidrSet>);

impl Ranges {
    /// Of a list as `--cluster-cidr` has it, with the sizes of a node's block for IPv4 and IPv6.
    pub(crate) fn parse(list: &str, prefix_v4: u32, prefix_v6: u32) -> Result<Self, CidrError> {
        let mut sets = Vec::new();
        for text in list.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let prefix = if text.contains(':') { prefix_v6 } else { prefix_v4 };
            let set = CidrSet::new(text.parse()?, prefix);
            sets.push(set.ok_or_else(|| CidrError(format!("{text} is smaller than a node's /{prefix}")))?);
        }
        Ok(Self(sets))
    }

    fn occupy(&mut self, node: &Node) {
        for (set, block) in self.0.iter_mut().zip(blocks(node)) {
            set.occupy(block);
        }
    }

    fn release(&mut self, node: &Node) {
        for (set, block) in self.0.iter_mut().zip(blocks(node)) {
            set.release(block);
        }
    }

    /// A block of each range, or none if one range is used up.
    fn allocate(&mut self) -> Option<Vec<Cidr>> {
        let mut got = Vec::with_capacity(self.0.len());
        for set in &mut self.0 {
            if let Some(block) = set.allocate() {
                got.push(block);
            } else {
                for (set, block) in self.0.iter_mut().zip(got) {
                    set.release(block);
                }
                return None;
            }
        }
        Some(got)
    }

    fn give_back(&mut self, blocks: Vec<Cidr>) {
        for (set, block) in self.0.iter_mut().zip(blocks) {
            set.release(block);
        }
    }
}

/// The blocks that a node has.
fn blocks(node: &Node) -> Vec<Cidr> {
    let spec = node.spec.as_ref();
    let all = spec.and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
    all.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Starts it.
pub(crate) fn start(client: Client, clock: Clock, ranges: Ranges, factory: &Factory, shutdown: &Shutdown) {
    if ranges.0.is_empty() {
        return;
    }
    let recorder = Recorder::start(client.clone(), "cidrAllocator", "", clock, shutdown);
    let nodes = factory.informer::<Node>();
    let ranges = Arc::new(Mutex::new(ranges));
    let queue = Queue::<Key>::default();
    let (enqueue, known) = (queue.clone(), ranges.clone());
    // What the nodes have is known before the first block is given: the workers start when all are seen.
    nodes.handle(move |change| match change {
        Change::Deleted(node) => known.lock().release(node),
        change if blocks(change.object()).is_empty() => enqueue.add(client::Cached::key(&**change.object())),
        change => known.lock().occupy(change.object()),
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("node-ipam", 1, shutdown, move |key| {
            let node = nodes.get_key(&key);
            let (client, ranges, recorder) = (client.clone(), ranges.clone(), recorder.clone());
            async move {
                match node.filter(|n| blocks(n).is_empty() && !deleting(&n.metadata)) {
                    Some(node) => assign(&client, &ranges, &recorder, &node).await,
                    None => Ok(()),
                }
            }
        });
    });
}

async fn assign(
    client: &Client,
    ranges: &Mutex<Ranges>,
    recorder: &Recorder,
    node: &Node,
) -> Result<(), Status> {
    let Some(got) = ranges.lock().allocate() else {
        super::record_status(recorder, node, "CIDRNotAvailable");
        return Err(retry(
            "failed to allocate cidr from cluster cidr: CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range",
        ));
    };
    let texts: Vec<String> = got.iter().map(Cidr::to_string).collect();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    // The uid keeps the block from a node that was made anew under the name, the version from one
    // that got a block from elsewhere.
    let patch = json!({
        "metadata": {"uid": node.metadata.uid},
        "spec": {"podCIDR": texts.first(), "podCIDRs": texts},
    });
    let result = client.api::<Node>("").patch(name, &Patch::Strategic(patch)).await;
    if let Err(e) = result {
        ranges.lock().give_back(got);
        return if e.is_not_found() { Ok(()) } else { Err(e) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cidrs: &[&str]) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": cidrs}})).unwrap()
    }

    #[test]
    fn both_families_or_none() {
        let mut r = Ranges::parse("10.0.0.0/23,fd00::/63", 24, 64).unwrap();
        r.occupy(&node(&["10.0.0.0/24", "fd00::/64"]));
        let got = r.allocate().unwrap();
        assert_eq!(got.iter().map(Cidr::to_string).collect::<Vec<_>>(), ["10.0.1.0/24", "fd00:0:0:1::/64"]);
        assert_eq!(r.allocate(), None);
        r.release(&node(&["10.0.0.0/24"]));
        assert_eq!(r.allocate(), None, "the other family is used up");
        r.give_back(got);
        assert!(r.allocate().is_some());
    }

    #[test]
    fn bad_ranges() {
        for bad in ["10.0.0.0", "10.0.0.0/28", "10.0.0.0/8,x"] {
            assert!(Ranges::parse(bad, 24, 64).is_err(), "{bad}");
        }
        assert!(Ranges::parse("", 24, 64).unwrap().0.is_empty());
    }
}
