//! Warns of Pods that use a volume with different SELinux labels: on one node only one of them could (upstream:
//! `pkg/controller/volume/selinuxwarning`). It says so in Events and in a metric, and writes nothing else; it runs only
//! where `--controllers` names it.
//!
//! Each Pod counts, wherever it runs or waits. [`uses`] has what it compares.

mod labels;
mod uses;
mod volumes;
mod wearer;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, EventType, Index, Informer, Key, Queue, Recorder, Selection, resource_of};
use component::Registry;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use objects::volumes::volume_name;
use parking_lot::Mutex;

use crate::common::pods::claim_key;
use crate::host::{Controller, Host, Next, Wiring};
use uses::{Use, Uses};
use volumes::{Known, known};
use wearer::{Mount, Source, Wearer};

const MOUNT: &str = "MountOption";
const RECURSIVE: &str = "Recursive";
const METRIC: &str = "selinux_warning_controller_selinux_volume_conflict";

/// The controller.
pub(crate) struct SelinuxWarnings {
    recorder: Recorder,
    pods: Informer<Wearer>,
    by_claim: Index<Wearer>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    drivers: Informer<CSIDriver>,
    queue: Queue<Key>,
    uses: Arc<Mutex<Uses>>,
}

impl Controller for SelinuxWarnings {
    const NAME: &'static str = "selinux-warning-controller";
    const ACCOUNT: &'static str = "selinux-warning-controller";
    const QUEUE: &'static str = "selinux_warning";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        let pods = host.select::<Wearer>(resource_of::<Pod>(), Selection::default());
        let by_claim = pods.index("labelled-claim", |pod| {
            pod.claims().map(|name| claim_key(pod.namespace(), name).into()).collect()
        });
        let uses = Arc::default();
        report(host.metrics(), &uses);
        Self {
            recorder: host.recorder("selinux_warning"),
            pods,
            by_claim,
            claims: host.informer(),
            volumes: host.informer(),
            drivers: host.informer(),
            queue: host.main_queue(),
            uses,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let queue = wiring.queue();
        self.pods.handle(move |change| {
            let same = matches!(change, Change::Updated { old, new }
                if old.uid() == new.uid() && old.ended == new.ended && old.mounts == new.mounts);
            if !same {
                queue.add(change.object().key());
            }
        });
        let c = self.clone();
        self.claims.handle(move |change| {
            let state =
                |claim: &PersistentVolumeClaim| (bound_to(claim).map(str::to_owned), claim.uid().to_owned());
            let same = matches!(change, Change::Updated { old, new } if state(old) == state(new));
            if !same {
                c.look_at_users(change.object().namespace(), change.object().name());
            }
        });
        let c = self.clone();
        self.volumes.handle(move |change| {
            let volume = change.object();
            let same = matches!(change, Change::Updated { old, new } if claim_of(old) == claim_of(new));
            if let Some((namespace, name, _)) = claim_of(volume).filter(|_| !same) {
                c.look_at_users(namespace, name);
            }
        });
        let c = self.clone();
        self.drivers.handle(move |change| {
            let same =
                matches!(change, Change::Updated { old, new } if labels_mounts(old) == labels_mounts(new));
            if !same {
                let pods = c.uses.lock().pods_of(change.object().name());
                for pod in pods {
                    c.queue.add(pod);
                }
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let pod = self.pods.get_key(&key).filter(|pod| !pod.ended);
        let used = pod.as_ref().map(|pod| self.used(pod)).unwrap_or_default();
        let names: BTreeSet<String> = used.iter().map(|(volume, _)| volume.name.clone()).collect();
        let mut found = Vec::new();
        {
            let mut uses = self.uses.lock();
            uses.retain(&key, &names);
            for (volume, how) in used {
                found.extend(uses.add(&volume.name, &volume.driver, &key, how));
            }
        }
        for conflict in found {
            // A Pod that is gone need not be told.
            if let Some(told) = self.pods.get_key(&conflict.pod) {
                let (reason, message) = (conflict.property.reason(), conflict.message());
                self.recorder.event_about(told.reference(), EventType::Normal, reason, message);
            }
        }
        Ok(Next::Done)
    }
}

/// Whether a driver's volumes are labelled as they are mounted.
fn labels_mounts(driver: &CSIDriver) -> bool {
    driver.spec.se_linux_mount == Some(true)
}

/// The volume of a claim that is bound.
fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    Some(volume_name(claim)).filter(|name| bound && !name.is_empty())
}

/// The namespace, name and uid of the claim that a volume is bound to.
fn claim_of(volume: &PersistentVolume) -> Option<(&str, &str, &str)> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let uid = claim.uid.as_deref().filter(|uid| !uid.is_empty())?;
    Some((claim.namespace.as_deref()?, claim.name.as_deref()?, uid))
}

/// The way in which a Pod uses a volume. `label` is that of the containers that mount it, `mountable`: whether the volume
/// may be labelled as it is mounted. A volume that is labelled file by file has no label of its own.
fn how(label: Option<&String>, policy: Option<&str>, mountable: bool) -> Use {
    let label = label.filter(|_| mountable && policy != Some(RECURSIVE)).cloned().unwrap_or_default();
    let policy = if mountable && !label.is_empty() { policy.unwrap_or(MOUNT) } else { RECURSIVE };
    Use { label, policy: policy.to_owned() }
}

impl SelinuxWarnings {
    /// Looks at the Pods that use a claim.
    fn look_at_users(&self, namespace: &str, claim: &str) {
        self.by_claim.get(&claim_key(namespace, claim)).iter().for_each(|pod| self.queue.add(pod.key()));
    }

    /// The volumes that a Pod uses, as far as they are known, and how. Says if its own containers do not agree.
    fn used(&self, pod: &Wearer) -> Vec<(Known, Use)> {
        let mut all = Vec::new();
        for mount in &pod.mounts {
            let Some(volume) = self.volume(pod.namespace(), mount) else { continue };
            if mount.labels.len() > 1 {
                let text = format!(
                    "Volume {:?} is mounted twice with different SELinux labels inside this pod",
                    mount.name
                );
                let reason = "MultipleSELinuxLabels";
                self.recorder.event_about(pod.reference(), EventType::Warning, reason, text);
                continue;
            }
            // Devices without a driver are always labelled as they are mounted.
            let mountable = volume.driver.is_empty()
                || self.drivers.get("", &volume.driver).is_some_and(|driver| labels_mounts(&driver));
            let how = how(mount.labels.first(), pod.policy.as_deref(), mountable);
            all.push((volume, how));
        }
        all
    }

    /// The volume that is mounted, once it is known. A missing part leads to another look when it comes.
    fn volume(&self, namespace: &str, mount: &Mount) -> Option<Known> {
        let claim = match &mount.source {
            Source::Known(known) => return Some(known.clone()),
            Source::Claim(name) => self.claims.get(namespace, name)?,
        };
        let volume = self.volumes.get("", bound_to(&claim)?)?;
        let (.., uid) = claim_of(&volume)?;
        known(&volume).filter(|_| uid == claim.uid())
    }
}

/// Upstream's metric of the Pods that cannot use a volume together.
fn report(registry: &Registry, uses: &Arc<Mutex<Uses>>) {
    let uses = uses.clone();
    registry.register(SelinuxWarnings::NAME, move |page| {
        page.metric(METRIC, "gauge", "[ALPHA] Conflict between two Pods using the same volume");
        for c in uses.lock().conflicts() {
            let labels = [
                ("property", c.property.name()),
                ("pod1_namespace", c.pod.namespace.as_str()),
                ("pod1_name", c.pod.name.as_str()),
                ("pod1_value", c.value.as_str()),
                ("pod2_namespace", c.other.namespace.as_str()),
                ("pod2_name", c.other.name.as_str()),
                ("pod2_value", c.other_value.as_str()),
            ];
            page.value(METRIC, &labels, 1.0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's rules in `syncVolume` and `GetMountSELinuxLabel`, with its cases of `TestSELinuxWarningController_Sync`.
    #[test]
    fn ways_of_use() {
        let check = |label: &str, policy: Option<&str>, mountable: bool, want: (&str, &str)| {
            let label = Some(label.to_owned()).filter(|l| !l.is_empty());
            let got = how(label.as_ref(), policy, mountable);
            assert_eq!((got.label.as_str(), got.policy.as_str()), want, "{policy:?} {mountable}");
        };
        let level = ":::s0:c1,c2";
        check(level, None, true, (level, MOUNT));
        check(level, Some(MOUNT), true, (level, MOUNT));
        check(level, Some(RECURSIVE), true, ("", RECURSIVE));
        check("", Some(MOUNT), true, ("", RECURSIVE));
        check("", None, true, ("", RECURSIVE));
        check(level, None, false, ("", RECURSIVE));
        check(level, Some(MOUNT), false, ("", RECURSIVE));
    }
}
