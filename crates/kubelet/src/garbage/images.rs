//! Images that nobody uses: removed when the disk of images fills, or when they are old; upstream's rules.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::EventType;
use cri::runtime as pb;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::policy::ImagePolicy as Policy;
use crate::images::{self, ImageManager};
use crate::metrics::{self, Metrics};
use crate::pods::spec;
use crate::pods::workers::Workers;
use crate::recorder::{self, PodRecorder};
use crate::runtime::{CallError, Runtime, unless_gone};
use crate::stats::collect::Collector;

/// How often the disk of images is looked at; upstream's.
const PERIOD: Duration = Duration::from_mins(5);

/// The memory of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    first_seen: Instant,
    last_used: Option<Instant>,
    size: u64,
    pinned: bool,
}

/// An image of a runtime that may keep those of each of its handlers apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    id: String,
    /// The handler that it was pulled for; "" for all, or where handlers do not count.
    handler: String,
}

impl Key {
    fn new(id: &str, handler: &str) -> Self {
        Self { id: id.to_owned(), handler: handler.to_owned() }
    }
}

/// As upstream writes it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        if self.handler.is_empty() { Ok(()) } else { write!(f, ",{}", self.handler) }
    }
}

/// The images that are there.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<Key, Record>);

/// An image that nobody uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unused {
    key: Key,
    record: Record,
}

/// Whether the handlers that images are for count; upstream's gate `RuntimeClassInImageCriApi`.
#[derive(Debug, Clone, Copy)]
struct ByHandler(bool);

impl ByHandler {
    /// The handler of an image, as the runtime told it.
    fn of(self, spec: Option<&pb::ImageSpec>) -> &str {
        spec.filter(|_| self.0).map_or("", |spec| &spec.runtime_handler)
    }

    /// The key of an image.
    fn key(self, image: &pb::Image) -> Key {
        Key::new(&image.id, self.of(image.spec.as_ref()))
    }

    /// The images that containers use, and those that Pods name, for whichever handler.
    fn used(self, images: &[pb::Image], containers: &[pb::Container], wanted: &[String]) -> HashSet<Key> {
        let of_container = |c: &pb::Container| {
            let (handler, spec) =
                (self.of(c.image.as_ref()), c.image.as_ref().map_or("", |spec| &spec.image));
            [&c.image_id, &c.image_ref, spec].map(|name| Key::new(name, handler))
        };
        let mut used: HashSet<Key> =
            containers.iter().flat_map(of_container).filter(|key| !key.id.is_empty()).collect();
        let named = |image: &&pb::Image| {
            let handler = self.of(image.spec.as_ref());
            let mut names = image.repo_tags.iter().chain(&image.repo_digests);
            names.any(|name| {
                used.contains(&Key::new(name, handler))
                    || wanted.iter().any(|wanted| images::is_named(name, wanted))
            })
        };
        let by_name: Vec<Key> = images.iter().filter(named).map(|image| self.key(image)).collect();
        used.extend(by_name);
        used
    }
}

impl Known {
    /// Takes the images of this moment, and those that are in use.
    fn look(&mut self, images: &[pb::Image], by: ByHandler, used: &HashSet<Key>, now: Instant) {
        let mut there = HashSet::new();
        for image in images {
            let key = by.key(image);
            let fresh = || Record { first_seen: now, last_used: None, size: 0, pinned: false };
            let record = self.0.entry(key.clone()).or_insert_with(fresh);
            if used.contains(&key) {
                record.last_used = Some(now);
            }
            (record.size, record.pinned) = (image.size, image.pinned);
            there.insert(key);
        }
        self.0.retain(|key, _| there.contains(key));
    }

    /// Those that nobody uses or has pinned, in the order in which they go: the one that was not used for longest.
    fn unused(&self, used: &HashSet<Key>) -> Vec<Unused> {
        let free = self.0.iter().filter(|(key, record)| !used.contains(*key) && !record.pinned);
        let mut all: Vec<Unused> =
            free.map(|(key, record)| Unused { key: key.clone(), record: *record }).collect();
        all.sort_by(|a, b| {
            let key = |u: &Unused| (u.record.last_used, u.record.first_seen);
            key(a).cmp(&key(b)).then_with(|| a.key.cmp(&b.key))
        });
        all
    }
}

impl Unused {
    /// Whether it may go to make room.
    fn is_old_enough(&self, policy: &Policy, now: Instant) -> bool {
        now.saturating_duration_since(self.record.first_seen) >= policy.min_age
    }

    /// Whether it goes although there is room. Nobody's time is known that was before the kubelet `began`.
    fn is_too_old(&self, policy: &Policy, now: Instant, began: Instant) -> bool {
        let unused = |at: Instant| now.saturating_duration_since(at) > policy.max_age;
        !policy.max_age.is_zero() && unused(began) && self.record.last_used.is_none_or(unused)
    }
}

/// Why there is not enough room.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GcError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {errors}"
    )]
    Removal { wanted: u64, freed: u64, errors: String },
    #[error("invalid capacity 0 on image filesystem")]
    NoCapacity,
    #[error("the image filesystem is not known")]
    NoFilesystem,
    #[error(
        "Insufficient free disk space on the node's image filesystem ({used}% of {} used). Failed to free sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
        size(*capacity)
    )]
    NotEnough { used: u8, capacity: u64, freed: u64 },
}

/// A size for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Removes images.
pub(crate) struct ImageCollector {
    pub(crate) node: String,
    pub(crate) policy: Policy,
    /// Whether the runtime may keep the images of each of its handlers apart.
    pub(crate) by_handler: bool,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: PodRecorder,
    pub(crate) collector: Arc<Collector>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) images: Arc<ImageManager>,
    pub(crate) metrics: Metrics,
    pub(crate) known: Mutex<Known>,
}

/// The images that a Pod names.
fn references(pod: &Pod) -> Vec<String> {
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod)).map(|c| c.image.clone());
    let ephemeral = spec::spec(pod).ephemeral_containers.iter().flatten().map(|c| c.image.clone());
    let volumes = spec::spec(pod).volumes.iter().flatten().filter_map(|v| v.image.as_ref());
    all.chain(ephemeral).chain(volumes.map(|image| image.reference.clone())).flatten().collect()
}

impl ImageCollector {
    /// Looks at the disk again and again.
    pub(crate) async fn keep(&self) {
        let began = Instant::now();
        let mut failed = false;
        loop {
            let outcome = if self.policy.is_off() {
                // The times of use are noted for when memory or disks run short.
                self.look(&mut *self.known.lock().await).await.map(drop)
            } else {
                self.collect(began).await
            };
            if let Err(error) = &outcome {
                // Once may be because nothing was measured yet; upstream's rule.
                if failed {
                    tracing::warn!(%error, "image garbage collection failed");
                    self.tell("ImageGCFailed", error.to_string());
                } else {
                    tracing::debug!(%error, "image garbage collection failed");
                }
            }
            failed = outcome.is_err();
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn tell(&self, reason: &str, message: String) {
        self.recorder.0.event_about(recorder::node(&self.node), EventType::Warning, reason, message);
    }

    /// Removes what is too old, and what must go for want of room.
    async fn collect(&self, began: Instant) -> Result<(), GcError> {
        let mut known = self.known.lock().await;
        let unused = self.look(&mut known).await?;
        let now = Instant::now();
        let (old, rest): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|image| image.is_too_old(&self.policy, now, began));
        self.remove(&mut known, &old, u64::MAX, "age").await?;
        let fs = self.collector.room().imagefs.ok_or(GcError::NoFilesystem)?;
        if fs.capacity == 0 {
            self.tell("InvalidDiskCapacity", GcError::NoCapacity.to_string());
            return Err(GcError::NoCapacity);
        }
        let Some((wanted, used)) = self.policy.wanted_room(fs.capacity, fs.available) else { return Ok(()) };
        tracing::info!(used, wanted, "the disk of images fills, unused images are removed");
        let ready: Vec<Unused> =
            rest.into_iter().filter(|image| image.is_old_enough(&self.policy, now)).collect();
        let freed = self.remove(&mut known, &ready, wanted, "space").await?;
        if freed < wanted {
            let error = GcError::NotEnough { used, capacity: fs.capacity, freed };
            self.tell("FreeDiskSpaceFailed", error.to_string());
            return Err(error);
        }
        Ok(())
    }

    /// Removes all that nobody uses and that is old enough.
    pub(crate) async fn remove_unused(&self) -> Result<(), GcError> {
        let mut known = self.known.lock().await;
        let mut unused = self.look(&mut known).await?;
        let now = Instant::now();
        unused.retain(|image| image.is_old_enough(&self.policy, now));
        self.remove(&mut known, &unused, u64::MAX, "space").await.map(drop)
    }

    /// Asks which images there are, and answers those that nobody uses. Several kubelets may share a runtime: everybody's
    /// containers count.
    async fn look(&self, known: &mut Known) -> Result<Vec<Unused>, GcError> {
        let service = self.runtime.service();
        // A container that comes meanwhile has an image that was there before.
        let listed = self.runtime.images().list_images(pb::ListImagesRequest { filter: None }).await;
        let images = listed.map_err(CallError::from)?.into_inner().images;
        let containers = service.list_containers(pb::ListContainersRequest::default()).await;
        let containers = containers.map_err(CallError::from)?.into_inner().containers;
        // Those that Pods mount, and those of containers that are about to start.
        let wanted: Vec<String> = self.workers.active_pods().iter().flat_map(|pod| references(pod)).collect();
        let by = ByHandler(self.by_handler);
        let used = by.used(&images, &containers, &wanted);
        known.look(&images, by, &used, Instant::now());
        let mut unused = known.unused(&used);
        if self.by_handler {
            unused.retain(|image| {
                let nameless = image.key.id.is_empty();
                if nameless {
                    self.tell(
                        "InvalidImageID",
                        format!("ImageID is not valid, skipping, image: {}", image.key),
                    );
                }
                !nameless
            });
        }
        Ok(unused)
    }

    /// Removes images in turn until so many bytes are free; answers how many are.
    async fn remove(
        &self,
        known: &mut Known,
        images: &[Unused],
        wanted: u64,
        reason: &str,
    ) -> Result<u64, GcError> {
        let (mut freed, mut errors) = (0_u64, Vec::new());
        for Unused { key, record } in images {
            if freed >= wanted {
                break;
            }
            // DIFFERENCE: upstream does not tell the runtime the handler, so one that keeps images of handlers apart removes
            // another.
            let image = pb::ImageSpec {
                image: key.id.clone(),
                runtime_handler: key.handler.clone(),
                ..pb::ImageSpec::default()
            };
            let request = pb::RemoveImageRequest { image: Some(image) };
            tracing::info!(image = %key, size = record.size, reason, "an image is removed");
            match unless_gone(self.runtime.images().remove_image(request).await) {
                Ok(()) => {
                    known.0.remove(key);
                    freed = freed.saturating_add(record.size);
                    self.metrics.count(&metrics::IMAGE_GARBAGE_COLLECTED_TOTAL, &[reason]);
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        if !images.is_empty() {
            self.images.forget_removed().await;
        }
        if errors.is_empty() {
            return Ok(freed);
        }
        Err(GcError::Removal { wanted, freed, errors: format!("[{}]", errors.join(", ")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of upstream's tests about images, each a number with the size of its image.
    struct Case {
        known: Known,
        policy: Policy,
        now: Instant,
    }

    fn keys(ids: &[u32]) -> HashSet<Key> {
        ids.iter().map(|id| Key::new(&id.to_string(), "")).collect()
    }

    impl Case {
        fn new(min_age: u64) -> Self {
            let policy = Policy::new(90, 80, Duration::from_secs(min_age), Duration::ZERO).unwrap();
            Self { known: Known::default(), policy, now: Instant::now() }
        }
        fn look(&mut self, images: &[(u32, u64, bool)], used: &[u32]) {
            let image = |(id, size, pinned): &(u32, u64, bool)| pb::Image {
                id: id.to_string(),
                size: *size,
                pinned: *pinned,
                ..pb::Image::default()
            };
            let images: Vec<_> = images.iter().map(image).collect();
            self.known.look(&images, ByHandler(false), &keys(used), self.now);
        }
        fn after(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
        /// Those that go to make room, in order.
        fn check(&self, used: &[u32], expected: &[u32]) {
            let unused = self.known.unused(&keys(used));
            let ready = unused.iter().filter(|image| image.is_old_enough(&self.policy, self.now));
            let ids: Vec<u32> = ready.map(|image| image.key.id.parse().unwrap()).collect();
            assert_eq!(ids, expected);
        }
    }

    /// Upstream's 21 cases of `image_gc_manager_test.go` but for those of its fake runtime's errors, and the one about
    /// handlers, which has a test of its own.
    #[test]
    fn the_image_that_was_not_used_for_longest_goes_first() {
        // In use, or pinned.
        let mut case = Case::new(0);
        case.look(&[(0, 1024, false), (1, 2048, false)], &[1]);
        case.check(&[1], &[0]);
        case.look(&[(0, 1024, true), (1, 2048, false)], &[]);
        case.check(&[], &[1]);
        case.look(&[(0, 1024, true), (1, 2048, true)], &[]);
        case.check(&[], &[]);
        case.look(&[(0, 1024, false), (1, 2048, false)], &[]);
        assert_eq!(case.known.unused(&HashSet::new()).len(), 2, "not pinned any more");
        // Removed by somebody else.
        case.look(&[], &[]);
        assert!(case.known.0.is_empty());
        // Least recently used.
        let mut case = Case::new(0);
        let both = [(0, 1024, false), (1, 2048, false)];
        case.look(&both, &[0, 1]);
        case.after(1);
        case.look(&both, &[1]);
        case.after(1);
        case.check(&[], &[0, 1]);
        // Used at the same time: the one that was seen first.
        let mut case = Case::new(0);
        case.look(&[(9, 1024, false)], &[9]);
        case.after(1);
        case.look(&[(9, 1024, false), (1, 2048, false)], &[9, 1]);
        case.after(1);
        case.check(&[], &[9, 1]);
        // One that was never used goes before those that were.
        case.look(&[(9, 1024, false), (1, 2048, false), (2, 1, false)], &[9, 1]);
        case.check(&[], &[2, 9, 1]);
        // Not old enough.
        let mut case = Case::new(60);
        case.look(&both, &[1]);
        case.check(&[1], &[]);
        case.after(60);
        case.check(&[1], &[0]);
    }

    /// Upstream's case of `TestDetectImagesInitialDetectWithRuntimeHandlerInImageCriAPIFeatureGate`; then one image for two
    /// handlers, of which one is used.
    #[test]
    fn images_of_handlers_are_apart_where_the_gate_is_on() {
        let spec = |image: &str, handler: &str| {
            Some(pb::ImageSpec {
                image: image.to_owned(),
                runtime_handler: handler.to_owned(),
                ..pb::ImageSpec::default()
            })
        };
        let image = |id: &str, handler: &str| pb::Image {
            id: id.to_owned(),
            repo_tags: vec![format!("name-{id}:1")],
            spec: spec("", handler),
            ..pb::Image::default()
        };
        let container = |id: &str, name: &str, handler: &str| pb::Container {
            image_id: id.to_owned(),
            image: spec(name, handler),
            ..pb::Container::default()
        };
        // The images that are not used, as they are removed.
        let check =
            |on: bool, images: &[pb::Image], used: &[pb::Container], wanted: &[&str], expected: &[&str]| {
                let (by, mut known) = (ByHandler(on), Known::default());
                let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
                let used = by.used(images, used, &wanted);
                known.look(images, by, &used, Instant::now());
                let unused: Vec<String> =
                    known.unused(&used).iter().map(|unused| unused.key.to_string()).collect();
                assert_eq!(unused, expected, "{on}");
                known.0.len()
            };
        let all = [image("0", "h"), image("1", "h"), image("2", "")];
        let used = [container("1", "", "h"), container("2", "name-2:1", "")];
        assert_eq!(check(true, &all, &used, &[], &["0,h"]), 3);
        assert_eq!(check(false, &all, &used, &[], &["0"]), 3);
        let both = [image("1", "h"), image("1", "")];
        assert_eq!(check(true, &both, &[container("1", "", "h")], &[], &["1"]), 2);
        assert_eq!(check(true, &both, &[container("1", "", "")], &[], &["1,h"]), 2);
        assert_eq!(check(false, &both, &[container("1", "", "")], &[], &[]), 1);
        // A container names its image as its handler knows it; a Pod that is about to start may want any.
        assert_eq!(check(true, &both, &[container("", "name-1:1", "h")], &[], &["1"]), 2);
        assert_eq!(check(true, &both, &[], &["name-1:1"], &[]), 2);
        assert_eq!(check(true, &both, &[], &[], &["1", "1,h"]), 2);
    }

    #[test]
    fn images_that_nobody_used_for_long_go_with_room_left() {
        let began = Instant::now();
        let max = |seconds| Policy { max_age: Duration::from_secs(seconds), ..Policy::default() };
        let check = |policy: Policy, last_used: Option<u64>, now: u64, expected: bool| {
            let at = |seconds| began + Duration::from_secs(seconds);
            let record = Record { first_seen: began, last_used: last_used.map(at), size: 1, pinned: false };
            let image = Unused { key: Key::new("1", ""), record };
            assert_eq!(image.is_too_old(&policy, at(now), began), expected, "{last_used:?} {now}");
        };
        check(max(60), Some(0), 60, false);
        check(max(60), Some(0), 61, true);
        check(max(60), Some(30), 61, false);
        check(max(60), Some(30), 91, true);
        check(max(60), None, 60, false);
        check(max(60), None, 61, true);
        check(max(0), Some(0), 1 << 30, false);
        check(max(0), None, 1 << 30, false);
    }

    #[test]
    fn how_much_is_to_be_freed() {
        let policy = Policy::new(90, 80, Duration::ZERO, Duration::ZERO).unwrap();
        let check = |capacity, available, expected: Option<(u64, u8)>| {
            assert_eq!(policy.wanted_room(capacity, available), expected, "{available} of {capacity}");
        };
        check(1000, 600, None);
        check(1000, 110, None);
        // Whole percents, as upstream counts: 10.1 % free are 90 % used.
        check(1000, 101, Some((99, 90)));
        check(1000, 100, Some((100, 90)));
        check(1000, 50, Some((150, 95)));
        check(1000, 2000, None);
        check(u64::MAX, u64::MAX / 2, None);
        let error = GcError::NotEnough { used: 95, capacity: 10 << 30, freed: 524_288_000 };
        assert_eq!(
            error.to_string(),
            "Insufficient free disk space on the node's image filesystem (95% of 10.0 GiB used). Failed to free sufficient space by deleting unused images (freed 524288000 bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
        );
        for (bytes, text) in
            [(1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (1 << 50, "1024.0 TiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn policies() {
        let check = |high, low, expected: Option<&str>| {
            let made = Policy::new(high, low, Duration::ZERO, Duration::ZERO);
            assert_eq!(made.err().map(|e| e.to_string()).as_deref(), expected);
        };
        check(2, 1, None);
        check(-1, 0, Some("invalid HighThresholdPercent -1, must be in range [0-100]"));
        check(101, 0, Some("invalid HighThresholdPercent 101, must be in range [0-100]"));
        check(0, -1, Some("invalid LowThresholdPercent -1, must be in range [0-100]"));
        check(0, 101, Some("invalid LowThresholdPercent 101, must be in range [0-100]"));
        check(1, 2, Some("LowThresholdPercent 2 can not be higher than HighThresholdPercent 1"));
        assert!(Policy::new(100, 80, Duration::ZERO, Duration::ZERO).unwrap().is_off());
        assert!(!Policy::new(100, 80, Duration::ZERO, Duration::from_secs(1)).unwrap().is_off());
    }
}
