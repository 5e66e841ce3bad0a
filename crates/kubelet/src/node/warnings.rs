//! A kubelet's warnings at its start, in Events about its Node.

use std::path::Path;

use client::Recorder;
use client::events::EventType;

use crate::config::Config;
use crate::enforcement::is_unified;
use crate::{cgroups, recorder, volumes, work};

/// Warns of what this machine lacks.
pub(super) async fn tell(config: &Config, recorder: &Recorder) {
    let swaps = config.node.machine().swap > 0;
    let root = config.root_dir.clone();
    let in_memory = !swaps || work::blocking(move || volumes::keeps_from_swap(&root)).await.unwrap_or(true);
    for (reason, message) in of(is_unified(Path::new(cgroups::MOUNT)), in_memory) {
        let node = recorder::node(&config.node_name);
        recorder.event_about(node, EventType::Warning, reason, message);
    }
}

/// Reasons and messages of Events; `in_memory`: volumes in memory stay there.
fn of(unified: bool, in_memory: bool) -> Vec<(&'static str, &'static str)> {
    let cgroup_v1 = (
        "CgroupV1",
        "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1",
    );
    let on_disk = (
        "PossibleMemoryBackedVolumesOnDisk",
        "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.",
    );
    [(!unified, cgroup_v1), (!in_memory, on_disk)]
        .into_iter()
        .filter_map(|(is, warning)| is.then_some(warning))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_warned_of_what_it_lacks() {
        let reasons = |unified, in_memory| -> Vec<&str> {
            of(unified, in_memory).into_iter().map(|(reason, _)| reason).collect()
        };
        assert!(reasons(true, true).is_empty());
        assert_eq!(reasons(false, true), ["CgroupV1"]);
        assert_eq!(reasons(true, false), ["PossibleMemoryBackedVolumesOnDisk"]);
        assert_eq!(reasons(false, false), ["CgroupV1", "PossibleMemoryBackedVolumesOnDisk"]);
    }
}
