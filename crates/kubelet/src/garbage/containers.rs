//! Containers and sandboxes that have ended and that newer ones have replaced; upstream's rules.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use component::Clock;
use cri::runtime as pb;

use super::policy::ContainerPolicy as Policy;
use crate::config::Config;
use crate::listing::Listing;
use crate::pods::kill::{Killer, RemoveError};
use crate::pods::labels;
use crate::pods::worker::Phase;
use crate::pods::workers::Workers;
use crate::runtime::{CallError, Runtime, unless_gone};

/// A container that can go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dead {
    uid: String,
    id: String,
    created_at: i64,
    /// Whether the runtime does not know if it runs.
    unknown: bool,
}

/// The oldest of `all`, but for the newest `keep`; those stay in `all`.
fn surplus(all: &mut Vec<Dead>, keep: usize) -> Vec<Dead> {
    all.sort_by_key(|c| std::cmp::Reverse(c.created_at));
    all.split_off(keep.min(all.len()))
}

/// The containers that can go at `now` (nanoseconds since 1970). `gone`: of a Pod of that uid nothing is kept.
pub(crate) fn containers(
    all: &[pb::Container],
    policy: Policy,
    now: i64,
    gone: impl Fn(&str) -> bool,
) -> Vec<Dead> {
    let newest = now.saturating_sub(i64::try_from(policy.min_age.as_nanos()).unwrap_or(i64::MAX));
    let mut units: BTreeMap<(&str, &str), Vec<Dead>> = BTreeMap::new();
    for c in all.iter().filter(|c| c.state() != pb::ContainerState::ContainerRunning) {
        if c.created_at > newest {
            continue;
        }
        let label = |key: &str| c.labels.get(key).map_or("", String::as_str);
        let uid = label(labels::POD_UID);
        units.entry((uid, label(labels::CONTAINER_NAME))).or_default().push(Dead {
            uid: uid.to_owned(),
            id: c.id.clone(),
            created_at: c.created_at,
            unknown: c.state() == pb::ContainerState::ContainerUnknown,
        });
    }
    let mut dead = Vec::new();
    units.retain(|(uid, _), unit| {
        let all = gone(uid);
        if all {
            dead.append(unit);
        }
        !all
    });
    if let Ok(keep) = usize::try_from(policy.max_per_pod_container) {
        dead.extend(units.values_mut().flat_map(|unit| surplus(unit, keep)));
    }
    if let Ok(most) = usize::try_from(policy.max_containers) {
        let count = |units: &BTreeMap<_, Vec<Dead>>| units.values().map(Vec::len).sum::<usize>();
        if count(&units) > most {
            let each = (most / units.len().max(1)).max(1);
            dead.extend(units.values_mut().flat_map(|unit| surplus(unit, each)));
        }
        if count(&units) > most {
            let mut left: Vec<Dead> = units.into_values().flatten().collect();
            dead.extend(surplus(&mut left, most));
        }
    }
    dead
}

/// The sandboxes that can go, each with its Pod: neither ready nor in use by a container but those in `removed`, and not
/// the newest of a Pod of which something is kept.
pub(crate) fn sandboxes(
    all: &[pb::PodSandbox],
    containers: &[pb::Container],
    removed: &HashSet<&str>,
    gone: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let used: HashSet<&str> = containers
        .iter()
        .filter(|c| !removed.contains(c.id.as_str()))
        .map(|c| c.pod_sandbox_id.as_str())
        .collect();
    let mut by_pod: BTreeMap<&str, Vec<&pb::PodSandbox>> = BTreeMap::new();
    for s in all {
        by_pod.entry(s.metadata.as_ref().map_or("", |m| &m.uid)).or_default().push(s);
    }
    let mut dead = Vec::new();
    for (uid, mut all) in by_pod {
        all.sort_by_key(|s| std::cmp::Reverse(s.created_at));
        let keep = usize::from(!gone(uid));
        let idle = |s: &&pb::PodSandbox| {
            s.state() != pb::PodSandboxState::SandboxReady && !used.contains(s.id.as_str())
        };
        dead.extend(all.into_iter().skip(keep).filter(idle).map(|s| (uid.to_owned(), s.id.clone())));
    }
    dead
}

/// Why a container or a sandbox that can go is still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GarbageError {
    #[error(transparent)]
    Container(#[from] RemoveError),
    #[error(transparent)]
    Sandbox(CallError),
}

/// Removes what can go.
pub(crate) struct ContainerCollector {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    pub(crate) killer: Killer,
    pub(crate) workers: Arc<Workers>,
}

impl ContainerCollector {
    /// Removes what can go of a listing; with `unused` everything of Pods that have ended, logs among it. Answers what
    /// went wrong.
    pub(crate) async fn collect(&self, listing: &Listing, unused: bool) -> Vec<GarbageError> {
        let ended = |uid: &str| {
            unused && self.workers.get(uid).is_some_and(|worker| worker.phase() == Phase::Terminated)
        };
        let now = i64::try_from(self.clock.now().as_nanosecond()).unwrap_or(i64::MAX);
        let dead = containers(&listing.containers, self.config.container_gc, now, ended);
        let mut errors = Vec::new();
        for c in &dead {
            errors.extend(self.remove(c).await.err().map(GarbageError::Container));
        }
        let removed = dead.iter().map(|c| c.id.as_str()).collect();
        for (uid, id) in sandboxes(&listing.sandboxes, &listing.containers, &removed, ended) {
            errors.extend(self.killer.remove_sandbox(&uid, &id).await.err().map(GarbageError::Sandbox));
        }
        errors
    }

    async fn remove(&self, c: &Dead) -> Result<(), RemoveError> {
        if c.unknown {
            // It may run.
            let request = pb::StopContainerRequest { container_id: c.id.clone(), timeout: 0 };
            unless_gone(self.runtime.of(&c.uid).stop_container(request).await)?;
        }
        let observed = self.workers.get(&c.uid).map(|w| w.state.lock().observed.clone());
        let status = observed.as_ref().and_then(|o| o.containers.iter().find(|known| known.id == c.id));
        match status {
            Some(status) => self.killer.remove_with_log(&c.uid, status).await,
            None => self.killer.remove_container(&c.uid, &c.id).await.map_err(RemoveError::Call),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const READY: bool = true;
    const NOT_READY: bool = false;

    /// A minute and more after everything that was made at 0 to 9.
    const NOW: i64 = 7_200_000_000_000;

    fn container(uid: &str, name: &str, created_at: i64, state: pb::ContainerState) -> pb::Container {
        let labels = [(labels::POD_UID, uid), (labels::CONTAINER_NAME, name)];
        pb::Container {
            pod_sandbox_id: format!("{uid}-0"),
            state: state.into(),
            created_at,
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..pb::Container::default()
        }
    }

    /// Containers of (Pod, name, time of creation); the indexes of those that stay.
    fn check(policy: Policy, gone: &[&str], all: &[(&str, &str, i64)], stay: &[usize]) {
        let (running, exited) = (pb::ContainerState::ContainerRunning, pb::ContainerState::ContainerExited);
        let made = all.iter().enumerate().map(|(id, (uid, name, at))| {
            let state = if name.starts_with("running-") { running } else { exited };
            pb::Container { id: id.to_string(), ..container(uid, name, *at, state) }
        });
        let made: Vec<_> = made.collect();
        let dead = containers(&made, policy, NOW, |uid| gone.contains(&uid));
        let dead: HashSet<String> = dead.into_iter().map(|c| c.id).collect();
        let left: Vec<usize> = (0..all.len()).filter(|id| !dead.contains(&id.to_string())).collect();
        assert_eq!(left, stay, "{all:?}");
    }

    /// Upstream's 13 cases of `TestContainerGC`. DIFFERENCE: there, a Pod that is gone keeps its containers until they are
    /// old enough, and until all sources are known; here its worker removes them before they are looked at.
    #[test]
    fn the_newest_containers_are_kept() {
        let policy = |age, max_per_pod_container, max_containers| Policy {
            min_age: Duration::from_secs(age),
            max_per_pod_container,
            max_containers,
        };
        let usual = policy(3600, 2, 6);
        check(policy(60, 1, 0), &[], &[("foo", "bar", 0)], &[]);
        let five: Vec<_> = (0..5).rev().map(|at| ("foo", "bar", at)).collect();
        check(policy(60, -1, 4), &[], &five, &[0, 1, 2, 3]);
        check(policy(60, -1, -1), &[], &five[2..], &[0, 1, 2]);
        check(usual, &[], &[("foo", "bar", NOW); 3], &[0, 1, 2]);
        check(usual, &[], &five[2..], &[0, 1]);
        let runs = [("foo", "bar", 2), ("foo", "bar", 1), ("foo", "running-bar", 0)];
        check(usual, &[], &runs, &[0, 1, 2]);
        check(usual, &[], &five[3..], &[0, 1]);
        let of = |pods: &[&'static str], times: &[i64]| -> Vec<(&'static str, &'static str, i64)> {
            pods.iter().flat_map(|pod| times.iter().map(move |at| (*pod, "bar", *at))).collect()
        };
        check(usual, &[], &of(&["foo", "foo1", "foo2"], &[2, 1, 0]), &[0, 1, 3, 4, 6, 7]);
        check(usual, &[], &of(&["foo", "foo1", "foo2", "foo3", "foo4"], &[1, 0]), &[0, 2, 4, 6, 8]);
        let mut oldest = of(&["foo", "foo1"], &[2, 1]);
        let single = [("foo2", 1), ("foo3", 0), ("foo4", 1), ("foo5", 0), ("foo6", 2), ("foo7", 1)];
        oldest.extend(single.map(|(pod, at)| (pod, "bar", at)));
        check(usual, &[], &oldest, &[0, 2, 4, 6, 8, 9]);
        let mut ended = of(&["foo", "foo1"], &[2, 1]);
        ended.extend([("running", "bar2", 1), ("foo3", "running-bar3", 0)]);
        check(usual, &["foo", "foo1", "foo3"], &ended, &[4, 5]);
        let deleted =
            [("foo", "bar", 1), ("foo", "bar", 0), ("deleted", "bar1", NOW), ("deleted", "bar1", 1)];
        check(usual, &["deleted"], &deleted, &[0, 1, 2]);
        let unknown = container("u", "c", 0, pb::ContainerState::ContainerUnknown);
        assert!(containers(&[unknown], policy(0, 0, -1), NOW, |_| false)[0].unknown);
    }

    /// Sandboxes of (Pod, attempt, whether it is ready), made in the order of their attempts; the containers' sandboxes;
    /// the indexes of those that stay.
    fn check_sandboxes(
        all: &[(&str, u32, bool)],
        used: &[(&str, u32)],
        gone: &[&str],
        removed: bool,
        stay: &[usize],
    ) {
        let made = all.iter().map(|(uid, attempt, ready)| pb::PodSandbox {
            id: format!("{uid}-{attempt}"),
            metadata: Some(pb::PodSandboxMetadata {
                uid: (*uid).to_owned(),
                attempt: *attempt,
                ..pb::PodSandboxMetadata::default()
            }),
            state: i32::from(!ready),
            created_at: i64::from(*attempt),
            ..pb::PodSandbox::default()
        });
        let users = used.iter().map(|(uid, attempt)| pb::Container {
            id: "c".into(),
            pod_sandbox_id: format!("{uid}-{attempt}"),
            ..container(uid, "c", 0, pb::ContainerState::ContainerExited)
        });
        let (made, users): (Vec<_>, Vec<_>) = (made.collect(), users.collect());
        let removed: HashSet<&str> = removed.then_some("c").into_iter().collect();
        let dead = sandboxes(&made, &users, &removed, |uid| gone.contains(&uid));
        let left: Vec<usize> =
            (0..all.len()).filter(|i| !dead.iter().any(|(_, id)| *id == made[*i].id)).collect();
        assert_eq!(left, stay, "{all:?}");
    }

    /// Upstream's 8 cases of `TestSandboxGC`, and one of a container that goes with its sandbox.
    #[test]
    fn the_newest_sandbox_is_kept() {
        let check = check_sandboxes;
        check(&[("deleted", 0, NOT_READY)], &[], &["deleted"], false, &[]);
        check(&[("deleted", 0, READY)], &[], &["deleted"], false, &[0]);
        check(&[("1", 0, READY), ("2", 0, NOT_READY)], &[], &[], false, &[0, 1]);
        let two = [("1", 1, NOT_READY), ("1", 0, NOT_READY)];
        check(&two, &[], &[], false, &[0]);
        check(&two, &[("1", 0)], &[], false, &[0, 1]);
        check(&[("1", 0, READY), ("2", 0, NOT_READY)], &[], &["1", "2"], false, &[0]);
        check(&[("1", 0, NOT_READY)], &[("1", 0)], &[], false, &[0]);
        let many = [
            ("1", 1, READY),
            ("1", 0, NOT_READY),
            ("2", 1, NOT_READY),
            ("2", 0, NOT_READY),
            ("deleted", 0, NOT_READY),
        ];
        check(&many, &[("2", 1)], &["deleted"], false, &[0, 2]);
        check(&two, &[("1", 0)], &[], true, &[0]);
    }
}
