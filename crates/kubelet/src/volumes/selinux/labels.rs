//! The labels with which volumes are to be mounted, by the Pods that are to have them; upstream's desired state
//! (`pkg/kubelet/volumemanager/cache/desired_state_of_world.go`).

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use objects::volumes::READ_WRITE_ONCE_POD;
use parking_lot::Mutex;

use super::{LabelError, Policy, asked, is_recursive, read};
use crate::metrics::{self, Metric, Metrics};

/// A volume as far as its label depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits<'a> {
    /// The name of the PersistentVolume, or of the Pod's volume.
    pub(crate) name: &'a str,
    /// Its plugin, as metrics name it.
    pub(crate) plugin: &'a str,
    /// The access modes of the PersistentVolume; none for a volume that a Pod names itself.
    pub(crate) modes: Option<&'a [String]>,
    /// Whether its plugin mounts with a label.
    pub(crate) mountable: bool,
}

impl Traits<'_> {
    /// Whether volumes with these access modes are mounted with a label. `all`: upstream's gate `SELinuxMount`, without
    /// which only volumes for a single Pod are.
    fn is_for(&self, all: bool) -> bool {
        self.modes.is_some_and(|modes| all || modes == [READ_WRITE_ONCE_POD])
    }

    /// The widest access mode, as metrics name it.
    fn access_mode(&self) -> &'static str {
        const MODES: [(&str, &str); 4] = [
            ("ReadWriteMany", "RWX"),
            ("ReadOnlyMany", "ROX"),
            ("ReadWriteOnce", "RWO"),
            (READ_WRITE_ONCE_POD, "RWOP"),
        ];
        let Some(modes) = self.modes else { return "inline" };
        let has = |(mode, _): &&(&str, &str)| modes.iter().any(|m| m == mode);
        MODES.iter().find(has).map_or("", |(_, short)| short)
    }
}

/// The node's SELinux, and what its kubelet does with it.
#[derive(Debug)]
pub(crate) struct Labels {
    policy: Policy,
    /// Whether volumes for several Pods are mounted with labels, too; upstream's gate `SELinuxMount`.
    all: bool,
    metrics: Metrics,
}

/// A Pod's wish for a volume.
struct Asked {
    /// The label; empty for none.
    label: String,
    /// Whether Pods that share the volume must agree on it.
    shared: bool,
}

impl Labels {
    /// Looks at the SELinux of a machine below its root directory.
    pub(crate) fn new(root: &Path, all: bool, metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self { policy: read(root), all, metrics: metrics.clone() })
    }

    /// Whether SELinux is on.
    pub(crate) fn enabled(&self) -> bool {
        self.policy.enabled
    }

    /// Looks at a Pod's volume whose plugin mounts with no label.
    ///
    /// # Errors
    /// Its containers ask for several labels, though it is for one Pod; upstream's text.
    pub(crate) fn look(&self, pod: &Pod, volume: &str, traits: &Traits<'_>) -> Result<(), String> {
        self.asked(pod, volume, traits).map(drop)
    }

    /// The label that a Pod asks for, whatever the access modes.
    fn asked(&self, pod: &Pod, volume: &str, traits: &Traits<'_>) -> Result<Asked, String> {
        if !self.policy.enabled {
            return Ok(Asked { label: String::new(), shared: false });
        }
        let label = match asked(pod, volume, &self.policy) {
            Ok(label) => label.filter(|_| traits.mountable && !is_recursive(pod)),
            Err(error) => {
                let (warned, failed, shared) = match error {
                    LabelError::Invalid(_) => (
                        &metrics::VOLUME_MANAGER_SELINUX_CONTAINER_WARNINGS_TOTAL,
                        &metrics::VOLUME_MANAGER_SELINUX_CONTAINER_ERRORS_TOTAL,
                        traits.mountable,
                    ),
                    LabelError::Several(_) => (
                        &metrics::VOLUME_MANAGER_SELINUX_POD_CONTEXT_MISMATCH_WARNINGS_TOTAL,
                        &metrics::VOLUME_MANAGER_SELINUX_POD_CONTEXT_MISMATCH_ERRORS_TOTAL,
                        false,
                    ),
                };
                self.judge(error.to_string(), traits, (warned, failed), &[traits.access_mode()])?;
                return Ok(Asked { label: String::new(), shared });
            }
        };
        Ok(Asked { label: label.unwrap_or_default(), shared: traits.mountable })
    }

    /// Counts something wrong: an error where the volume's access modes are those of labels, or else a warning.
    fn judge(
        &self,
        why: String,
        traits: &Traits<'_>,
        (warned, failed): (&'static Metric, &'static Metric),
        labels: &[&str],
    ) -> Result<(), String> {
        if traits.is_for(self.all) {
            self.metrics.count(failed, labels);
            return Err(why);
        }
        tracing::debug!(volume = traits.name, why, "the SELinux labels of a volume would not fit");
        self.metrics.count(warned, labels);
        Ok(())
    }
}

/// The label of a volume, and the Pods that are to have it so.
#[derive(Debug)]
struct Worn {
    /// The label that its first Pod asks for; empty for none.
    asked: String,
    /// The label with which it is to be mounted; none where its access modes are not those of labels.
    mounted: Option<String>,
    pods: BTreeSet<String>,
}

/// The labels of volumes that Pods are to have. Nothing is kept of a volume that no Pod is to have.
#[derive(Debug)]
pub(crate) struct Wearers<K> {
    labels: Arc<Labels>,
    all: Mutex<HashMap<K, Worn>>,
}

impl<K: Hash + Eq> Wearers<K> {
    /// None yet.
    pub(crate) fn new(labels: &Arc<Labels>) -> Self {
        Self { labels: labels.clone(), all: Mutex::default() }
    }

    /// Whether SELinux is on.
    pub(crate) fn enabled(&self) -> bool {
        self.labels.enabled()
    }

    /// Notes that a Pod is to have a volume, which it calls `name`. Answers the label with which the volume is to be
    /// mounted; none without one.
    ///
    /// # Errors
    /// The Pod cannot have it beside the others, or not at all; upstream's text.
    pub(crate) fn enter(
        &self,
        volume: K,
        (pod, name): (&Pod, &str),
        traits: &Traits<'_>,
    ) -> Result<Option<String>, String> {
        let labels = &self.labels;
        if !labels.policy.enabled {
            return Ok(None);
        }
        let Asked { label, shared } = labels.asked(pod, name, traits)?;
        let uid = crate::pods::spec::uid(pod);
        let of_metrics = [traits.access_mode(), traits.plugin];
        let mut all = self.all.lock();
        let worn = all.entry(volume).or_insert_with(|| {
            if !label.is_empty() {
                labels.metrics.count(&metrics::VOLUME_MANAGER_SELINUX_VOLUMES_ADMITTED_TOTAL, &of_metrics);
            }
            let mounted = Some(label.clone()).filter(|label| !label.is_empty() && traits.is_for(labels.all));
            Worn { asked: label.clone(), mounted, pods: BTreeSet::new() }
        });
        if !worn.pods.contains(uid) && shared && label != worn.asked {
            let quoted = [&worn.asked, &label].map(|label| api::go::quote(label));
            let why = format!(
                "conflicting SELinux labels of volume {}: {} and {}",
                traits.name, quoted[0], quoted[1]
            );
            let counted = (
                &metrics::VOLUME_MANAGER_SELINUX_VOLUME_CONTEXT_MISMATCH_WARNINGS_TOTAL,
                &metrics::VOLUME_MANAGER_SELINUX_VOLUME_CONTEXT_MISMATCH_ERRORS_TOTAL,
            );
            labels.judge(why, traits, counted, &of_metrics)?;
        }
        worn.pods.insert(uid.to_owned());
        Ok(worn.mounted.clone())
    }

    /// Forgets that a Pod is to have volumes.
    pub(crate) fn leave(&self, uid: &str) {
        self.all.lock().retain(|_, worn| {
            worn.pods.remove(uid);
            !worn.pods.is_empty()
        });
    }
}
