//! The metrics of attached volumes; upstream's.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use compact_str::CompactString as Text;
use component::metrics::Page;

use super::names::{Handle, PREFIX};
use super::node::is_managed;
use super::{AttachDetach, is_attached};
use crate::views::PodView;

const FORCED: &str = "attach_detach_controller_attachdetach_controller_forced_detaches";
const TOTAL: &str = "attachdetach_controller_total_volumes";
const IN_USE: &str = "storage_count_attachable_volumes_in_use";

/// Numbers by two labels.
type Counts<'a> = BTreeMap<(&'a str, String), u64>;

/// The name of a driver among the plugins of volumes.
fn plugin(driver: &str) -> String {
    format!("{}:{driver}", PREFIX.trim_end_matches('/'))
}

/// The drivers of volumes with the nodes of the Pods that use them, once for each Pod.
type Uses = Vec<(Text, Vec<String>)>;

/// Writes numbers, each with its two labels.
fn write(page: &mut Page, (name, help): (&str, &str), labels: [&str; 2], counts: &Counts<'_>) {
    page.metric(name, "gauge", help);
    for ((first, second), count) in counts {
        page.value(name, &[(labels[0], first), (labels[1], second)], *count as f64);
    }
}

impl AttachDetach {
    /// All volumes of drivers that are known, and who uses them.
    fn uses(&self) -> Uses {
        let nodes = |pods: Vec<Arc<PodView>>| pods.iter().map(|pod| pod.node.to_string()).collect();
        let mut all: Uses = Vec::new();
        for volume in self.volumes.list() {
            all.extend(Handle::of(&volume).map(|of| (of.driver, nodes(self.users(&volume)))));
        }
        let mut seen = HashSet::new();
        for pod in self.pods.list().iter().filter(|pod| !pod.migrated().is_empty()) {
            for volume in pod.migrated() {
                let Some(of) = Handle::of(volume) else { continue };
                let key = of.unique_name();
                if seen.insert(key.clone()) {
                    all.push((of.driver, nodes(self.users_of(&key, volume))));
                }
            }
        }
        all
    }

    /// Writes the page.
    pub(super) fn report(&self, page: &mut Page) {
        page.metric(
            FORCED,
            "counter",
            "[ALPHA] Number of times the A/D Controller performed a forced detach",
        );
        for (why, count) in self.forced.lock().iter() {
            page.value(FORCED, &[("reason", why.label())], *count as f64);
        }
        let (mut states, mut by_node) = (Counts::new(), BTreeMap::<(String, String), u64>::new());
        for (driver, mut nodes) in self.uses() {
            let driver = driver.as_str();
            let attached = self.drivers.get("", driver).is_none_or(|d| d.spec.attach_required != Some(false));
            for node in &nodes {
                *by_node.entry((node.clone(), plugin(driver))).or_default() += 1;
            }
            nodes.sort();
            nodes.dedup();
            nodes.retain(|node| attached && self.nodes.get("", node).is_some_and(|n| is_managed(&n)));
            if !nodes.is_empty() {
                *states.entry(("desired_state_of_world", plugin(driver))).or_default() += nodes.len() as u64;
            }
        }
        for attachment in self.attachments.list().iter().filter(|a| is_attached(a)) {
            *states.entry(("actual_state_of_world", plugin(&attachment.spec.attacher))).or_default() += 1;
        }
        let total = (TOTAL, "[ALPHA] Number of volumes in A/D Controller");
        write(page, total, ["state", "plugin_name"], &states);
        let by_node: Counts<'_> =
            by_node.iter().map(|((node, plugin), n)| ((node.as_str(), plugin.clone()), *n)).collect();
        write(
            page,
            (IN_USE, "[ALPHA] Measure number of volumes in use"),
            ["node", "volume_plugin"],
            &by_node,
        );
    }
}
