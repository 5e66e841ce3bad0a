//! Pods that take more of the node's disks than they may.

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::pods::spec;
use crate::stats::PodStats;

/// A limit that a Pod is above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// The kind of limit, as metrics name it.
    pub(crate) signal: &'static str,
    /// Upstream's message.
    pub(crate) message: String,
}

const DISK: &str = "ephemeral-storage";

/// The kinds of limits that Pods have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kinds {
    /// None at all.
    None,
    /// Of volumes alone, which are measured without the runtime.
    Volumes,
    /// Also of containers, of whose layers only the runtime knows.
    Containers,
}

/// The kinds of limits that any of the Pods has.
pub(crate) fn kinds(pods: impl Iterator<Item = std::sync::Arc<Pod>>) -> Kinds {
    let of = |pod: &Pod| {
        let mut all = spec::containers(pod).iter().chain(spec::init_containers(pod));
        let sized = |v: &k8s_openapi::api::core::v1::Volume| {
            v.empty_dir.as_ref().is_some_and(|e| e.size_limit.is_some())
        };
        if all.any(|c| limit(c).is_some()) {
            Kinds::Containers
        } else if spec::spec(pod).volumes.iter().flatten().any(sized) {
            Kinds::Volumes
        } else {
            Kinds::None
        }
    };
    pods.map(|pod| of(&pod)).max().unwrap_or(Kinds::None)
}

fn limit(container: &Container) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    Quantity::parse(&limits.get(DISK)?.0).ok()
}

fn is_above(used: u64, limit: &Quantity) -> bool {
    Quantity::from_bytes(i64::try_from(used).unwrap_or(i64::MAX)) > *limit
}

/// The first limit that a Pod is above: of a volume, of all its containers together, of one of them. Layers count for
/// the last only where they lie with logs: `dedicated_images` is false.
pub(crate) fn exceeded(pod: &Pod, stats: &PodStats, dedicated_images: bool) -> Option<Exceeded> {
    of_volumes(pod, stats)
        .or_else(|| of_pod(pod, stats))
        .or_else(|| of_containers(pod, stats, dedicated_images))
}

fn of_volumes(pod: &Pod, stats: &PodStats) -> Option<Exceeded> {
    spec::spec(pod).volumes.iter().flatten().find_map(|volume| {
        let size = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let size = Quantity::parse(&size.0).ok().filter(|size| size.sign() > 0)?;
        let used = stats.volumes.iter().find(|v| v.name == volume.name)?.taken.bytes;
        let (name, text) = (&volume.name, size.to_string());
        is_above(used, &size).then(|| Exceeded {
            signal: "emptydirfs.limit",
            message: format!("Usage of EmptyDir volume {name:?} exceeds the limit {text:?}. "),
        })
    })
}

fn of_pod(pod: &Pod, stats: &PodStats) -> Option<Exceeded> {
    let mut all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let first = all.find_map(limit)?;
    let total = objects::resources::pod_limits(pod).get(DISK);
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    // In the way in which the limits are written.
    let binary = first.to_string().ends_with('i');
    let total = if binary { Quantity::from_bytes(total) } else { Quantity::from_value(total) };
    is_above(stats.ephemeral_storage().bytes, &total).then(|| Exceeded {
        signal: "ephemeralpodfs.limit",
        message: format!("Pod ephemeral local storage usage exceeds the total limit of containers {total}. "),
    })
}

fn of_containers(pod: &Pod, stats: &PodStats, dedicated_images: bool) -> Option<Exceeded> {
    stats.containers.iter().find_map(|found| {
        let container = spec::containers(pod).iter().find(|c| c.name == found.name)?;
        let limit = limit(container).filter(|limit| !limit.is_zero())?;
        let layer = found.layer.filter(|_| !dedicated_images).map_or(0, |layer| layer.bytes);
        let used = found.logs.map_or(0, |logs| logs.bytes).saturating_add(layer);
        let (name, text) = (&found.name, limit.to_string());
        is_above(used, &limit).then(|| Exceeded {
            signal: "ephemeralcontainerfs.limit",
            message: format!("Container {name} exceeded its local ephemeral storage limit {text:?}. "),
        })
    })
}
