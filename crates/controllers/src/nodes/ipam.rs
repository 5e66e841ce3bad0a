//! Node IPAM: gives every node a block of the cluster's Pod network (upstream: `range_allocator.go`).

use std::collections::HashMap;
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Patch, Recorder};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use super::cidr_set::{CidrSet, RangeError};
use crate::common::{deleting, retry, within};
use crate::host::{Controller, Host, Next, Shared, Wiring};
use objects::Cidr;

/// The ranges from which nodes get blocks, one of each family, and the nodes' blocks.
#[derive(Debug, Clone)]
pub(crate) struct Ranges {
    sets: Vec<CidrSet>,
    /// The present or planned blocks of each node, by its name.
    nodes: HashMap<String, Vec<Cidr>>,
}

impl Ranges {
    /// Parses a list as `--cluster-cidr` has it, with the sizes of a node's block for IPv4 and IPv6, and the ranges of
    /// the Services' addresses, which are kept out.
    pub(crate) fn parse(
        list: &str,
        prefix_v4: u32,
        prefix_v6: u32,
        services: &[String],
    ) -> Result<Self, RangeError> {
        let mut sets: Vec<CidrSet> = Vec::new();
        let texts: Vec<&str> = list.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
        if texts.len() > 2 {
            let why = format!("len of clusters is:{} > more than max allowed of 2", texts.len());
            return Err(RangeError::Unusable(why));
        }
        for text in texts {
            let whole: Cidr = text.parse()?;
            if sets.iter().any(|s| s.whole().is_v6() == whole.is_v6()) {
                let why = "len of ClusterCIDRs==2 and they are not configured as dual stack (at least one from each IPFamily";
                return Err(RangeError::Unusable(why.to_owned()));
            }
            sets.push(CidrSet::new(whole, if whole.is_v6() { prefix_v6 } else { prefix_v4 })?);
        }
        for service in services {
            let service: Cidr = service.parse()?;
            for set in &mut sets {
                set.occupy(service);
                if set.is_full() {
                    let why = format!("the service network {service} leaves nothing of {}", set.whole());
                    return Err(RangeError::Unusable(why));
                }
            }
        }
        Ok(Self { sets, nodes: HashMap::new() })
    }

    /// Notes the blocks of a node.
    fn occupy(&mut self, node: &str, blocks: Vec<Cidr>) {
        if self.nodes.get(node) == Some(&blocks) {
            return;
        }
        self.release(node);
        // Each set takes any order of the families, and blocks that are larger than its own.
        for set in &mut self.sets {
            for block in &blocks {
                set.occupy(*block);
            }
        }
        self.nodes.insert(node.to_owned(), blocks);
    }

    /// Frees the blocks of a node that is gone.
    fn release(&mut self, node: &str) {
        for block in self.nodes.remove(node).unwrap_or_default() {
            self.sets.iter_mut().for_each(|set| set.release(block));
        }
    }

    /// Gives a node a block of each range; `None` if one range is used up. A node that was given blocks once gets the
    /// same again: the first write may have succeeded.
    fn allocate(&mut self, node: &str) -> Option<Vec<Cidr>> {
        if let Some(known) = self.nodes.get(node) {
            return Some(known.clone());
        }
        let got: Vec<Cidr> = self.sets.iter_mut().filter_map(CidrSet::allocate).collect();
        if got.len() < self.sets.len() {
            for block in got {
                self.sets.iter_mut().for_each(|set| set.release(block));
            }
            return None;
        }
        self.nodes.insert(node.to_owned(), got.clone());
        Some(got)
    }
}

/// Returns the blocks of a node.
fn blocks(node: &Node) -> Vec<Cidr> {
    let spec = node.spec.as_ref();
    let all = spec.and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
    all.iter().filter_map(|text| text.parse().ok()).collect()
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The controller that gives nodes their blocks.
pub(crate) struct Ipam {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    ranges: Mutex<Ranges>,
}

impl Controller for Ipam {
    const NAME: &'static str = "node-ipam-controller";
    const ALIASES: &'static [&'static str] = &["nodeipam"];
    const ACCOUNT: &'static str = "node-controller";
    const QUEUE: &'static str = "cidrallocator_node";
    const WORKERS: usize = 8;
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            client: host.client(),
            recorder: host.recorder("cidrAllocator"),
            nodes: host.informer(),
            ranges: Mutex::new(host.ranges().clone()),
        }
    }

    fn wanted(shared: &Shared) -> bool {
        !shared.ranges.sets.is_empty()
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
        match within(self.client.api::<Node>("").patch(&key.name, &Patch::Strategic(patch))).await {
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

#[cfg(test)]
mod tests {
    use client::Verb;
    use serde_json::from_value;
    use tokio::time::sleep;

    use super::*;
    use crate::fake::{Cluster, Fault};
    use std::time::Duration;

    fn parse(list: &str) -> Ranges {
        Ranges::parse(list, 24, 64, &[]).unwrap()
    }

    fn cidrs(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn both_families_or_none() {
        let mut r = parse("10.0.0.0/23,fd00::/63");
        r.occupy("n", cidrs(&["10.0.0.0/24", "fd00::/64"]));
        let got = r.allocate("a").unwrap();
        assert_eq!(got, cidrs(&["10.0.1.0/24", "fd00:0:0:1::/64"]));
        assert_eq!(r.allocate("a"), Some(got), "the blocks that it was to have");
        assert_eq!(r.allocate("b"), None);
        r.occupy("n", cidrs(&["fd00::/64"]));
        assert_eq!(r.allocate("b"), None, "the other family is used up");
        r.release("a");
        assert!(r.allocate("b").is_some());
    }

    #[test]
    fn blocks_of_nodes_that_differ_from_ours() {
        // The blocks of nodes, in order, and all blocks that other nodes get then.
        let check = |has: &[&[&str]], want: &[&str]| {
            let mut r = parse("10.0.0.0/22");
            for (i, blocks) in has.iter().enumerate() {
                r.occupy(&format!("has-{i}"), cidrs(blocks));
            }
            let mut others = 0..;
            let got = std::iter::from_fn(|| r.allocate(&format!("n{}", others.next()?)));
            assert_eq!(got.flatten().collect::<Vec<_>>(), cidrs(want), "{has:?}");
        };
        check(&[&["10.0.0.0/23"]], &["10.0.2.0/24", "10.0.3.0/24"]);
        check(&[&["10.0.1.64/26"], &["10.0.2.0/24"]], &["10.0.0.0/24", "10.0.3.0/24"]);
        check(&[&["fd00::/64", "10.0.0.0/24"]], &["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"]);
        check(&[&["10.0.0.0/8"]], &[]);
        let mut r = parse("10.0.0.0/23");
        r.occupy("a", cidrs(&["10.0.0.0/23"]));
        r.occupy("b", cidrs(&["10.0.1.0/24"]));
        r.release("a");
        assert_eq!(r.allocate("c"), Some(cidrs(&["10.0.0.0/24"])));
        assert_eq!(r.allocate("d"), None, "the other is still b's");
    }

    #[test]
    fn bad_ranges() {
        let check = |list: &str, services: &[&str], want: Result<Option<&str>, &str>| {
            let services: Vec<String> = services.iter().map(|s| (*s).to_owned()).collect();
            let got = Ranges::parse(list, 24, 64, &services);
            match (got, want) {
                (Ok(mut r), Ok(first)) => {
                    let first = first.map(|f| cidrs(&[f])).unwrap_or_default();
                    assert_eq!(r.allocate("a"), Some(first), "{list} {services:?}");
                }
                (got, want) => {
                    let got = got.map(drop).unwrap_err().to_string();
                    assert!(got.starts_with(want.unwrap_err()), "{got}");
                }
            }
        };
        check("", &["10.96.0.0/16"], Ok(None));
        check("10.0.0.0/16", &["10.96.0.0/16", "fd00::/108"], Ok(Some("10.0.0.0/24")));
        check("10.0.0.0/16", &["10.0.0.0/20"], Ok(Some("10.0.16.0/24")));
        check("10.0.0.0/16", &["10.0.0.0/16"], Err("the service network 10.0.0.0/16 leaves nothing"));
        check("10.0.0.0/16", &["10.0.0.0/12"], Err("the service network"));
        check("10.0.0.0", &[], Err("invalid CIDR address: 10.0.0.0"));
        check("10.0.0.0/28", &[], Err("10.0.0.0/28 is smaller than a node's /24"));
        check("10.0.0.0/8,x", &[], Err("invalid CIDR address: x"));
        check("10.0.0.0/8,10.1.0.0/16", &[], Err("len of ClusterCIDRs==2 and they are not"));
        check("10.0.0.0/8,fd00::/48,11.0.0.0/8", &[], Err("len of clusters is:3"));
    }

    fn node(cluster: &Cluster, name: &str) {
        cluster.fake.put::<Node>(&from_value(json!({"metadata": {"name": name}})).unwrap());
    }

    fn has(cluster: &Cluster, name: &str) -> Vec<Cidr> {
        blocks(&cluster.fake.get("", name).unwrap())
    }

    /// The first write of each node fails in a way that leaves its success open.
    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_gives_no_block_twice() {
        type Make = fn(Status) -> Fault;
        let refused: Make = Fault::Refuse;
        let lost: Make = Fault::Lose;
        for (fault, hangs) in [(refused, false), (lost, false), (refused, true)] {
            let cluster = Cluster::new();
            let mut shared = cluster.shared();
            shared.ranges = parse("10.0.0.0/21");
            cluster.run_with::<Ipam>(&shared);
            cluster.follow().await;
            let failed = Mutex::new(std::collections::HashSet::new());
            cluster.fake.fail(move |call| {
                let first = call.verb == Verb::StrategicPatch && failed.lock().insert(call.name.clone());
                let error = Status::failure(504, "Timeout", "the request may have been done");
                first.then(|| if hangs { Fault::Hang } else { fault(error) })
            });
            let names: Vec<String> = (0..8).map(|i| format!("n{i}")).collect();
            for name in &names {
                node(&cluster, name);
            }
            sleep(Duration::from_mins(2)).await;
            let mut all: Vec<String> =
                names.iter().flat_map(|n| has(&cluster, n)).map(|c| c.to_string()).collect();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 8, "each has its own, and none is lost: {all:?}");
            // The block of a node that goes is given to the next node.
            cluster.fake.take::<Node>("", "n3");
            node(&cluster, "late");
            sleep(Duration::from_mins(2)).await;
            assert_eq!(has(&cluster, "late").len(), 1);
        }
    }
}
