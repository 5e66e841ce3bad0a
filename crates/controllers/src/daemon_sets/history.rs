//! The revisions of a DaemonSet's template.

use std::collections::HashSet;
use std::sync::Arc;

use api::Status;
use client::{Api, Client, Patch, resource_of};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::common::retry;
use crate::common::revisions::{self, POD_REVISION, Revisions};
use crate::views::PodView;

/// The revisions of a set.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The hash of the present template.
    pub(super) hash: String,
    /// The revisions of earlier templates, sorted.
    pub(super) old: Vec<Arc<ControllerRevision>>,
}

/// Returns the hash that a revision gives its Pods.
fn hash_of(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    labels.and_then(|l| l.get(POD_REVISION)).map_or("", String::as_str)
}

fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// Brings a set's history up to date (upstream's `constructHistory`): the present template has one revision, with the
/// greatest number.
///
/// # Errors
/// The server's.
pub(super) async fn present(
    client: &Client,
    revisions: &Revisions,
    set: &DaemonSet,
    all: Vec<Arc<ControllerRevision>>,
    pods: &[Arc<PodView>],
) -> Result<History, Status> {
    let template = set.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default();
    let data = revisions::data_of(&template)?;
    let (mut current, mut old) = (Vec::new(), Vec::new());
    for mut revision in all {
        if hash_of(&revision).is_empty() {
            // Older versions did not label revisions.
            let labelled = revisions.write(&revision, |r| {
                let label = name(r).to_owned();
                r.metadata.labels.get_or_insert_default().insert(POD_REVISION.to_owned(), label);
            });
            revision = Arc::new(labelled.await?);
        }
        if revisions::holds(&revision, &data) { current.push(revision) } else { old.push(revision) }
    }
    let number = old.iter().map(|r| r.revision).max().unwrap_or(0).saturating_add(1);
    // They are sorted, so the last one has the greatest number.
    let Some(newest) = current.pop() else {
        let made = create(client, revisions, set, data, number).await?;
        return Ok(History { hash: hash_of(&made).to_owned(), old });
    };
    let hash = hash_of(&newest).to_owned();
    if !current.is_empty() {
        relabel(client, set, pods, &hash).await?;
        revisions.delete(&current).await?;
    }
    if newest.revision < number {
        revisions.renumber(&newest, number).await?;
    }
    Ok(History { hash, old })
}

/// Gives Pods of several revisions of one template the hash of the one that is kept.
async fn relabel(client: &Client, set: &DaemonSet, pods: &[Arc<PodView>], hash: &str) -> Result<(), Status> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let api = client.resource::<PodView>(resource_of::<Pod>(), namespace);
    for pod in pods.iter().filter(|p| p.labels.get(POD_REVISION) != Some(hash)) {
        let patch = json!({"metadata": {"labels": {POD_REVISION: hash}}});
        api.patch(pod.name(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Makes the revision of the present template. If its name is that of another template, the set counts the collision,
/// and gets another hash the next time.
///
/// DIFFERENCE: upstream's hash is that of the template as Go prints it; here, that of the revision's bytes, as it is for
/// StatefulSets. Revisions that upstream made keep their hashes, since templates are compared.
async fn create(
    client: &Client,
    revisions: &Revisions,
    set: &DaemonSet,
    data: Value,
    number: i64,
) -> Result<ControllerRevision, Status> {
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    let template = set.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default();
    let hash = revisions::hash(&data, collisions);
    let new = revisions::new(set, &template, data.clone(), number, (POD_REVISION, hash));
    let refused = match revisions.create_as_it_is(&new).await {
        Err(e) if e.is_already_exists() => e,
        answer => return answer,
    };
    let there = revisions.get(&set.metadata, name(&new)).await?;
    if revisions::holds(&there, &data) {
        return Ok(there);
    }
    let api: Api<DaemonSet> = client.api(set.metadata.namespace.as_deref().unwrap_or_default());
    let mut fresh = api.get(set.metadata.name.as_deref().unwrap_or_default()).await?;
    let counted = fresh.status.as_ref().and_then(|s| s.collision_count);
    if counted != collisions {
        return Err(retry("the collisions of a DaemonSet's revisions are counted already"));
    }
    fresh.status.get_or_insert_default().collision_count = Some(counted.unwrap_or(0).saturating_add(1));
    api.update_status(&fresh).await?;
    Err(refused)
}

/// Returns the oldest revisions beyond the limit, but none that Pods have. Those count all the same.
pub(super) fn surplus(
    old: &[Arc<ControllerRevision>],
    limit: i32,
    pods: &[Arc<PodView>],
) -> Vec<Arc<ControllerRevision>> {
    let used: HashSet<&str> = pods.iter().filter_map(|p| p.labels.get(POD_REVISION)).collect();
    let doomed =
        usize::try_from(i64::try_from(old.len()).unwrap_or(i64::MAX) - i64::from(limit)).unwrap_or(0);
    old.iter().filter(|r| !used.contains(hash_of(r))).take(doomed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;

    #[test]
    fn what_is_left_of_histories() {
        let revision = |n: i64| -> Arc<ControllerRevision> {
            let labels = json!({POD_REVISION: n.to_string()});
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"name": format!("r-{n}"), "labels": labels}, "revision": n}),
                )
                .unwrap(),
            )
        };
        let all: Vec<_> = (1..=4).map(revision).collect();
        let check = |limit: i32, used: &[&str], want: &[i64]| {
            let pod = |hash: &&str| Arc::new(view(&json!({"metadata": {"labels": {POD_REVISION: hash}}})));
            let pods: Vec<_> = used.iter().map(pod).collect();
            let got: Vec<_> = surplus(&all, limit, &pods).iter().map(|r| r.revision).collect();
            assert_eq!(got, want, "{limit} {used:?}");
        };
        check(10, &[], &[]);
        check(2, &[], &[1, 2]);
        check(2, &["1"], &[2, 3]);
        check(0, &["1", "3"], &[2, 4]);
        check(3, &["1", "2", "3", "4"], &[]);
    }
}
