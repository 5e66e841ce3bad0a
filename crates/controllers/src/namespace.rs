//! Namespace controller: empties a namespace that is being deleted, then lets it go.
//!
//! Pods go first, so that nothing runs on without the policies and accounts around it. The namespace's conditions show
//! the progress (upstream: `pkg/controller/namespace/deletion`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Api, Cached, Change, Client, Informer, Key, ListParams, PartialObject, RateLimit, resource_of};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Time};
use serde::Deserialize;

use crate::common::{conditions, deleting, pods, retry};
use crate::config::Config;
use crate::discovery::{Served, discover};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

const FINALIZER: &str = "kubernetes";
/// The time for which content with finalizers is expected to stay, in seconds.
const FINALIZER_ESTIMATE: i64 = 15;

/// Whether a namespace is not being deleted.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    !deleting(&namespace.metadata)
        && namespace.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Terminating")
}

/// Makes a controller that keeps one object in each namespace look at a namespace that comes or changes, and at that
/// of an object that changes or goes.
pub(crate) fn follow_one_of_each<T: Cached>(
    wiring: &Wiring<Key>,
    namespaces: &Informer<Namespace>,
    objects: &Informer<T>,
) {
    wiring.follow(namespaces, false);
    let queue = wiring.queue();
    objects.handle(move |change| {
        if !matches!(change, Change::Added(_)) {
            queue.add(Key::new("", change.object().namespace()));
        }
    });
}

/// The namespace controller.
pub(crate) struct Namespaces {
    client: Client,
    clock: Clock,
    /// The wait before the deletion of content, see [`crate::Config`].
    delay: Duration,
    namespaces: Informer<Namespace>,
    pods: Informer<PodView>,
}

impl Controller for Namespaces {
    const NAME: &'static str = "namespace-controller";
    const ALIASES: &'static [&'static str] = &["namespace"];
    const ACCOUNT: &'static str = "namespace-controller";
    const QUEUE: &'static str = "namespace";
    const RATE: RateLimit = RateLimit { limit: Duration::from_mins(1), ..RateLimit::UPSTREAM };
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.namespaces
    }

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            client: host.client(),
            clock: host.clock(),
            delay: host.config().namespace_delay,
            namespaces: host.informer(),
            pods: pods::informer(host.factory()),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, delay) = (wiring.queue(), self.delay);
        self.namespaces.handle(move |change| {
            let namespace = change.object();
            if !matches!(change, Change::Deleted(_)) && deleting(&namespace.metadata) {
                queue.add_after(namespace.key(), delay.max(Duration::from_millis(1)));
            }
        });
        // The cache shows the last Pod's end, so that it need not be guessed.
        let (queue, c) = (wiring.queue(), self.clone());
        self.pods.handle(move |change| {
            if let Change::Deleted(pod) = change {
                let namespace = pod.namespace();
                if c.namespaces.get("", namespace).is_some_and(|n| deleting(&n.metadata))
                    && c.pods.list_namespace(namespace).is_empty()
                {
                    // Even then an API server that has not seen the end may let another Pod in.
                    queue.add_after(Key::new("", namespace), c.delay);
                }
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        if self.namespaces.get_key(&key).is_none() {
            return Ok(Next::Done);
        }
        let deleter = Deleter { client: self.client.clone(), clock: self.clock };
        deleter.delete(&key.name).await.map(Next::at)
    }
}

client::from_json!(Ending);

/// The fields of a Pod that decide how long it may take to end. A Pod that is odd elsewhere holds up no namespace.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ending {
    spec: EndingSpec,
    status: EndingStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EndingSpec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndingStatus {
    phase: String,
}

struct Deleter {
    client: Client,
    clock: Clock,
}

/// The rest of one resource's objects in a namespace.
#[derive(Debug, Default)]
struct Left {
    /// Seconds until it should be gone; 0 for no estimate.
    estimate: i64,
    count: usize,
    finalizers: BTreeMap<String, usize>,
    /// The reason for which more stays than should.
    error: Option<String>,
}

/// The findings of one pass over a namespace.
#[derive(Debug, Default)]
struct Pass {
    discovery_failure: Option<String>,
    content_errors: Vec<String>,
    left: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    estimate: i64,
}

impl Pass {
    fn take(&mut self, served: &Served, left: Result<Left, Status>) {
        let left = left.unwrap_or_else(|e| Left { error: Some(e.to_string()), ..Left::default() });
        self.content_errors.extend(left.error);
        self.estimate = self.estimate.max(left.estimate);
        if left.count > 0 {
            self.left.insert(format!("{}.{}", served.resource.plural, served.resource.group), left.count);
            for (finalizer, count) in left.finalizers {
                *self.finalizers.entry(finalizer).or_default() += count;
            }
        }
    }

    fn failed(&self) -> Option<Status> {
        let mut errors: Vec<&str> = self.discovery_failure.iter().map(String::as_str).collect();
        errors.extend(self.content_errors.iter().map(String::as_str));
        (!errors.is_empty()).then(|| retry(errors.join(", ")))
    }
}

impl Deleter {
    /// Makes one pass; returns the time to wait before the next one if content remains.
    async fn delete(&self, name: &str) -> Result<Option<Duration>, Status> {
        let api = self.client.api::<Namespace>("");
        let mut namespace = match api.get(name).await {
            Err(e) if e.is_not_found() => return Ok(None),
            other => other?,
        };
        let Some(deleted_at) = namespace.metadata.deletion_timestamp.clone() else { return Ok(None) };
        if namespace.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Terminating") {
            namespace.status.get_or_insert_default().phase = Some("Terminating".to_owned());
            namespace = match api.update_status(&namespace).await {
                Err(e) if e.is_not_found() => return Ok(None),
                other => other?,
            };
        }
        let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.clone()).unwrap_or_default();
        if finalizers.is_empty() {
            return Ok(None);
        }
        let pass = self.empty(name, deleted_at.0).await;
        let status = namespace.status.get_or_insert_default();
        if let Some(conditions) = conditions(status.conditions.as_deref(), &pass, self.clock.now()) {
            status.conditions = Some(conditions);
            match api.update_status(&namespace).await {
                Ok(updated) => namespace = updated,
                Err(error) => tracing::debug!(namespace = name, %error, "unable to update the conditions"),
            }
        }
        if let Some(error) = pass.failed() {
            return Err(error);
        }
        if pass.estimate > 0 || !pass.left.is_empty() {
            return Ok(Some(Duration::from_secs(u64::try_from(pass.estimate / 2 + 1).unwrap_or(1))));
        }
        self.finalize(&api, namespace).await.map(|()| None)
    }

    async fn empty(&self, namespace: &str, deleted_at: Timestamp) -> Pass {
        let mut pass = Pass::default();
        let found = match discover(&self.client).await {
            Ok(found) => found,
            Err(error) => {
                pass.discovery_failure = Some(error.to_string());
                return pass;
            }
        };
        if !found.failed.is_empty() {
            let each: Vec<String> = found.failed.iter().map(|(gv, e)| format!("{gv}: {e}")).collect();
            pass.discovery_failure = Some(format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server \
                 APIs: {}",
                each.len(),
                each.join(", ")
            ));
        }
        let is_pods = |s: &Served| s.resource.plural == "pods" && s.resource.group.is_empty();
        let (pods, others): (Vec<_>, Vec<_>) =
            found.resources.into_iter().filter(|s| s.namespaced && s.can("delete")).partition(is_pods);
        for served in &pods {
            let grace = self.grace_of_pods(namespace, deleted_at).await;
            let left = match grace {
                Ok(grace) => self.delete_all(served, namespace, grace).await,
                Err(e) => Err(e),
            };
            pass.take(served, left);
        }
        // Policies and accounts go after the last Pod, however long that takes.
        //
        // DIFFERENCE: upstream's conditions say meanwhile that all content is removed.
        if !pass.left.is_empty() {
            return pass;
        }
        for served in &others {
            pass.take(served, self.delete_all(served, namespace, 0).await);
        }
        pass
    }

    /// Returns the longest grace period of the namespace's Pods, unless it should have passed already.
    async fn grace_of_pods(&self, namespace: &str, deleted_at: Timestamp) -> Result<i64, Status> {
        let api = self.client.resource::<Ending>(resource_of::<Pod>(), namespace);
        let all = api.list(&ListParams::default()).await?;
        let alive = all.items.iter().filter(|p| !matches!(p.status.phase.as_str(), "Succeeded" | "Failed"));
        let longest = alive.filter_map(|p| p.spec.termination_grace_period_seconds).max().unwrap_or(0);
        let passed = self.clock.now().duration_since(deleted_at);
        Ok(if passed >= SignedDuration::from_secs(longest) { 0 } else { longest })
    }

    /// Deletes a resource's objects in a namespace; returns the rest that stays for now.
    async fn delete_all(&self, served: &Served, namespace: &str, estimate: i64) -> Result<Left, Status> {
        let api: Api<PartialObject> = self.client.resource(served.resource.clone(), namespace);
        let gone = |e: &Status| e.is_not_found() || e.code == 405;
        if served.can("list") {
            match api.list(&ListParams { limit: 1, ..ListParams::default() }).await {
                Ok(list) if list.items.is_empty() => return Ok(Left::default()),
                Err(e) if gone(&e) => return Ok(Left::default()),
                other => drop(other?),
            }
        }
        let background =
            DeleteOptions { propagation_policy: Some("Background".to_owned()), ..DeleteOptions::default() };
        let mut one_by_one = !served.can("deletecollection");
        if !one_by_one {
            match api.delete_collection(Some(&background), &ListParams::default()).await {
                Ok(()) => {}
                Err(e) if gone(&e) => one_by_one = true,
                Err(e) => return Err(e),
            }
        }
        if !served.can("list") {
            return Ok(Left { estimate, ..Left::default() });
        }
        if one_by_one {
            for object in api.list(&ListParams::default()).await?.items {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                match api.delete(name, Some(&background)).await {
                    Err(e) if !gone(&e) => return Err(e),
                    _ => {}
                }
            }
        }
        let remaining = api.list(&ListParams::default()).await?.items;
        if remaining.is_empty() {
            return Ok(Left::default());
        }
        let mut left = Left { estimate, count: remaining.len(), ..Left::default() };
        for finalizer in remaining.iter().flat_map(|o| o.metadata.finalizers.iter().flatten()) {
            *left.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if left.estimate == 0 {
            if left.finalizers.is_empty() {
                left.error = Some(format!(
                    "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
                    served.resource.group, served.resource.version, served.resource.plural
                ));
            } else {
                left.estimate = FINALIZER_ESTIMATE;
            }
        }
        Ok(left)
    }

    async fn finalize(&self, api: &Api<Namespace>, mut namespace: Namespace) -> Result<(), Status> {
        if let Some(finalizers) = namespace.spec.get_or_insert_default().finalizers.as_mut() {
            finalizers.retain(|f| f != FINALIZER);
        }
        let name = namespace.metadata.name.clone().unwrap_or_default();
        match api.put::<_, Namespace>(&name, "finalize", &namespace).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }
}

/// Makes the conditions after a pass; `None` if they stay as they are.
fn conditions(
    old: Option<&[NamespaceCondition]>,
    pass: &Pass,
    now: Timestamp,
) -> Option<Vec<NamespaceCondition>> {
    let listed = |counts: &BTreeMap<String, usize>, text: &str| {
        let each: Vec<String> =
            counts.iter().map(|(what, n)| format!("{what} {text} {n} resource instances")).collect();
        each.join(", ")
    };
    let mut errors = pass.content_errors.clone();
    errors.sort();
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            pass.discovery_failure.clone().map(|message| ("DiscoveryFailed", message)),
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            (!errors.is_empty()).then(|| {
                let text = format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    errors.len(),
                    errors.join(", ")
                );
                ("ContentDeletionFailed", text)
            }),
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            (!pass.left.is_empty()).then(|| {
                (
                    "SomeResourcesRemain",
                    format!("Some resources are remaining: {}", listed(&pass.left, "has")),
                )
            }),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            (!pass.finalizers.is_empty()).then(|| {
                let each = listed(&pass.finalizers, "in");
                (
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {each}"),
                )
            }),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ];
    let mut all = old.unwrap_or_default().to_vec();
    let mut changed = false;
    for (kind, failure, fine) in wanted {
        let (status, reason, message) = match failure {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", fine.0, fine.1.to_owned()),
        };
        let wanted = NamespaceCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match all.iter_mut().find(|c| c.type_ == kind) {
            None => all.push(wanted),
            Some(c)
                if (&c.status, &c.reason, &c.message)
                    == (&wanted.status, &wanted.reason, &wanted.message) =>
            {
                continue;
            }
            Some(c) => {
                *c = conditions::after(c, wanted);
            }
        }
        changed = true;
    }
    changed.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_follow_a_pass() {
        let (t0, t1) = (Timestamp::from_second(100).unwrap(), Timestamp::from_second(200).unwrap());
        let mut pass = Pass {
            left: [("pods.".to_owned(), 2), ("widgets.example.com".to_owned(), 1)].into(),
            finalizers: [("example.com/hold".to_owned(), 1)].into(),
            ..Pass::default()
        };
        let first = conditions(None, &pass, t0).unwrap();
        let find = |all: &[NamespaceCondition], kind: &str| {
            let c = all.iter().find(|c| c.type_ == kind).unwrap().clone();
            (c.status, c.message.unwrap(), c.last_transition_time.unwrap().0)
        };
        assert_eq!(first.len(), 5);
        assert_eq!(
            find(&first, "NamespaceContentRemaining"),
            (
                "True".into(),
                "Some resources are remaining: pods. has 2 resource instances, widgets.example.com has 1 \
                 resource instances"
                    .into(),
                t0
            )
        );
        assert_eq!(
            find(&first, "NamespaceFinalizersRemaining").1,
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
        assert_eq!(conditions(Some(&first), &pass, t1), None);
        pass.left.remove("pods.");
        let second = conditions(Some(&first), &pass, t1).unwrap();
        assert_eq!(find(&second, "NamespaceContentRemaining").2, t0, "the status did not change");
        let last = conditions(Some(&second), &Pass::default(), t1).unwrap();
        assert_eq!(
            find(&last, "NamespaceContentRemaining"),
            ("False".into(), "All content successfully removed".into(), t1)
        );
    }

    /// The conditions that are not `False`, with their reasons and messages.
    fn failing(conditions: &[NamespaceCondition]) -> Vec<[&str; 3]> {
        let all = conditions.iter().filter(|c| c.status == "True");
        all.map(|c| [c.type_.as_str(), c.reason.as_deref().unwrap_or(""), c.message.as_deref().unwrap_or("")])
            .collect()
    }

    /// 3 of upstream's 5 cases of `TestUpdateConditions`; in the two others group versions cannot be parsed, and those that
    /// are discovered here are never parsed.
    #[test]
    fn conditions_that_are_there() {
        const ALL: [&str; 5] = [
            "NamespaceDeletionDiscoveryFailure",
            "NamespaceDeletionGroupVersionParsingFailure",
            "NamespaceDeletionContentFailure",
            "NamespaceContentRemaining",
            "NamespaceFinalizersRemaining",
        ];
        let check = |before: &[&str], want: &[&str], failing_still: usize| {
            let old: Vec<_> = before
                .iter()
                .map(|kind| NamespaceCondition {
                    type_: (*kind).to_owned(),
                    status: "True".to_owned(),
                    ..NamespaceCondition::default()
                })
                .collect();
            let got = conditions(Some(&old), &Pass::default(), Timestamp::UNIX_EPOCH).unwrap();
            let kinds: Vec<&str> = got.iter().map(|c| c.type_.as_str()).collect();
            assert_eq!((kinds.as_slice(), failing(&got).len()), (want, failing_still), "{before:?}");
        };
        check(&["unknown"], &[&["unknown"][..], &ALL[..]].concat(), 1);
        check(&ALL[..1], &ALL, 0);
        let swapped = [ALL[1], ALL[0], ALL[2], ALL[3], ALL[4]];
        check(&swapped[..2], &swapped, 0);
    }

    /// Upstream's 4 cases of `TestProcessContentTotals`.
    #[test]
    fn totals() {
        let check = |left: &[(&str, usize)], finalizers: &[(&str, usize)], want: &[[&str; 3]]| {
            let counts = |all: &[(&str, usize)]| all.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
            let pass = Pass { left: counts(left), finalizers: counts(finalizers), ..Pass::default() };
            let got = conditions(None, &pass, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(failing(&got), want);
        };
        let left = [("daemonsets.apps.k8s.io", 5), ("deployments.apps.k8s.io", 5)];
        let finalizers = [("service-catalog", 6), ("kubedb", 5)];
        let remain = [
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            "Some resources are remaining: daemonsets.apps.k8s.io has 5 resource instances, deployments.apps.k8s.io has 5 resource instances",
        ];
        let held = [
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: kubedb in 5 resource instances, service-catalog in 6 resource instances",
        ];
        check(&[], &[], &[]);
        check(&left, &[], &[remain]);
        check(&[], &finalizers, &[held]);
        check(&left, &finalizers, &[remain, held]);
    }
}
