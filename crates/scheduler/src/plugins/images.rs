//! ImageLocality: nodes that have a Pod's images, the more and the larger the better.

use std::sync::Arc;

use crate::cache::NodeInfo;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, MAX_SCORE, Score};
use crate::pod::PodInfo;

/// The plugin's name.
pub const NAME: &str = "ImageLocality";

/// Fewer bytes than these count for nothing.
const MIN: i64 = 23 * 1024 * 1024;
/// More bytes than these, for each container, count for no more.
const MAX_PER_CONTAINER: i64 = 1000 * 1024 * 1024;

struct Images;

impl Score for Images {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        let Some(spec) = cycle.pod.spec() else { return Ok(0) };
        if node.images.is_empty() {
            return Ok(0);
        }
        let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
        let names = containers().filter_map(|c| c.image.as_deref()).chain(volumes);
        let nodes = cycle.cluster.nodes().len().max(1) as f64;
        let sum: i64 = names
            .map(|image| {
                let name = if image.rfind(':') <= image.rfind('/') {
                    format!("{image}:latest")
                } else {
                    image.to_owned()
                };
                let Some(size) = node.images.get(&name) else { return 0 };
                // An image that few nodes have draws fewer Pods to them.
                (*size as f64 * cycle.cluster.nodes_with_image(&name) as f64 / nodes) as i64
            })
            .fold(0, i64::saturating_add);
        let max = MAX_PER_CONTAINER * containers().count().max(1) as i64;
        Ok(MAX_SCORE * (sum.clamp(MIN, max) - MIN) / (max - MIN))
    }
    fn normalizes(&self, _pod: &PodInfo) -> bool {
        false
    }
    /// Images end an epoch, and so do nodes that come and go.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

pub(super) fn image_locality() -> Plugin {
    Plugin::new(NAME, Points { score: Some(Arc::new(Images)), ..Points::default() })
}
