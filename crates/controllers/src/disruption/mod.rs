//! Disruption controller: writes into each PodDisruptionBudget how many of its Pods may be evicted now (upstream:
//! `pkg/controller/disruption`). The API server counts evictions down from that.

mod count;
mod owners;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::go::quote;
use client::{Cached, Change, Client, EventType, Informer, Key, Patch, Queue, Recorder, resource_of};
use component::Clock;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::pods;
use crate::common::printed::printed;
use crate::common::terms::Terms;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;
use objects::labels::CompactLabels;
use objects::{Selector, SelectorError};
use owners::{Owners, Scales, failure};

/// The time after which a Pod whose disruption was announced is said to stay.
const STALE: Duration = Duration::from_mins(2);
/// The longest part of an object that an Event repeats, in bytes.
const SHOWN: usize = 1024;
/// The number of selectors after which other tasks may run.
const PAUSE: usize = 16;

/// Labels whose budgets must be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Touched {
    /// The labels of a Pod.
    Pod(Key),
    /// The labels that a Pod of this namespace had.
    Labels(String, CompactLabels),
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => key.fmt(f),
            Self::Labels(namespace, labels) => write!(f, "{namespace} {labels:?}"),
        }
    }
}

/// The selectors of a namespace's budgets, by the budgets' names.
type Selectors = BTreeMap<String, Arc<Result<Selector, SelectorError>>>;

/// The Disruption controller.
pub(crate) struct Disruption {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<PodView>,
    owners: Owners,
    /// The labels of changed Pods. A worker tries the selectors, not the task that tells all controllers of Pods.
    touched: Queue<Touched>,
    /// The Pods whose disruption was announced.
    going: Queue<Key>,
    selectors: Mutex<HashMap<String, Selectors>>,
    /// The times at which evictions were allowed, by budget and Pod.
    allowed: Terms<(Key, String)>,
    /// The times since which disruptions of Pods are announced.
    said: Terms<Key>,
}

impl Controller for Disruption {
    const NAME: &'static str = "disruption-controller";
    const ALIASES: &'static [&'static str] = &["disruption"];
    const ACCOUNT: &'static str = "disruption-controller";
    const QUEUE: &'static str = "disruption";
    const WORKERS: usize = 5;
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            recorder: host.recorder("controllermanager"),
            owners: Owners::new(host.client(), host.factory()),
            client: host.client(),
            clock: host.clock(),
            budgets: host.informer(),
            pods: pods::informer(host.factory()),
            touched: host.queue("disruption_pods"),
            going: host.queue("stale_pod_disruption"),
            selectors: Mutex::default(),
            allowed: Terms::default(),
            said: Terms::default(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), self.clone());
        self.budgets.handle(move |change| {
            c.budget_changed(change);
            queue.add(change.object().key());
        });
        let c = self.clone();
        self.pods.handle(move |change| c.pod_changed(change));
        let (queue, c) = (wiring.queue(), self.clone());
        wiring.work(&self.touched, "disruption-pods", 1, move |touched| {
            let (queue, c) = (queue.clone(), c.clone());
            async move {
                for budget in c.matching(touched).await {
                    queue.add(budget);
                }
                Ok(Next::Done)
            }
        });
        let c = self.clone();
        wiring.work(&self.going, "stale-pod-disruption", 1, move |key| {
            let c = c.clone();
            async move { c.sync_stale(key).await }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(budget) = self.budgets.get_key(&key) else {
            self.allowed.retain(|(of, _)| *of != key);
            return Ok(Next::Done);
        };
        let error = match self.count(&key, &budget).await {
            Ok(recheck) => return Ok(Next::at(recheck)),
            Err(error) => error,
        };
        if error.is_conflict() {
            return Err(error);
        }
        tracing::warn!(budget = %key, %error, "unable to count what a budget allows; it allows nothing");
        if let Some(status) = count::failed(&budget, &error.message, self.clock.now()) {
            self.write(&budget, status).await?;
        }
        // DIFFERENCE: upstream's waits until the budget or its Pods change, even if the cause was a request that would
        // succeed now.
        Err(error)
    }
}

impl Disruption {
    fn budget_changed(&self, change: &Change<PodDisruptionBudget>) {
        let budget = change.object();
        let mut all = self.selectors.lock();
        if matches!(change, Change::Deleted(_)) {
            if let Some(of_namespace) = all.get_mut(budget.namespace()) {
                of_namespace.remove(budget.name());
                if of_namespace.is_empty() {
                    all.remove(budget.namespace());
                }
            }
        } else {
            let selector = Selector::new(budget.spec.as_ref().and_then(|s| s.selector.as_ref()));
            let of_namespace = all.entry(budget.namespace().to_owned()).or_default();
            of_namespace.insert(budget.name().to_owned(), Arc::new(selector));
        }
    }

    fn pod_changed(&self, change: &Change<PodView>) {
        let pod = change.object();
        let touch = |touched: Touched| {
            if self.selectors.lock().contains_key(pod.namespace()) {
                self.touched.add(touched);
            }
        };
        let labels = |p: &PodView| touch(Touched::Labels(p.namespace().to_owned(), p.labels.clone()));
        match change {
            Change::Deleted(_) => {
                labels(pod);
                return self.said.forget(&pod.key());
            }
            // The budget that the Pod leaves has one Pod less.
            Change::Updated { old, new } if old.labels != new.labels => labels(old),
            _ => {}
        }
        touch(Touched::Pod(pod.key()));
        match self.stale_for(pod) {
            Some(passed) => self.going.add_after(pod.key(), STALE.saturating_sub(passed)),
            None => self.said.forget(&pod.key()),
        }
    }

    fn stale_for(&self, pod: &PodView) -> Option<Duration> {
        count::stale(pod, |since| self.said.passed(pod.key(), since, self.clock))
    }

    /// Finds the budgets that select labels.
    ///
    /// DIFFERENCE: of several budgets of one Pod upstream's looks at the first alone, and the counts of the others are
    /// those of some earlier time.
    async fn matching(&self, touched: Touched) -> Vec<Key> {
        let (namespace, labels, pod) = match touched {
            Touched::Labels(namespace, labels) => (namespace, labels, None),
            Touched::Pod(key) => {
                let Some(pod) = self.pods.get_key(&key) else { return Vec::new() };
                (key.namespace.to_string(), pod.labels.clone(), Some(pod))
            }
        };
        let selectors: Vec<_> = match self.selectors.lock().get(&namespace) {
            None => return Vec::new(),
            Some(all) => all.iter().map(|(name, s)| (name.clone(), s.clone())).collect(),
        };
        let mut found = Vec::new();
        for (i, (name, selector)) in selectors.into_iter().enumerate() {
            if i % PAUSE == PAUSE - 1 {
                tokio::task::yield_now().await;
            }
            if selector.as_ref().as_ref().is_ok_and(|s| s.matches_by(|key| labels.get(key))) {
                found.push(name);
            }
        }
        if let (Some(pod), [first, _, ..]) = (pod, found.as_slice()) {
            let text = format!(
                "Pod {}/{} matches multiple PodDisruptionBudgets.  Chose {} arbitrarily.",
                quote(pod.namespace()),
                quote(pod.name()),
                quote(first)
            );
            self.recorder.event_about(
                pod.reference(),
                EventType::Warning,
                "MultiplePodDisruptionBudgets",
                text,
            );
        }
        found.iter().map(|name| Key::new(&namespace, name)).collect()
    }

    /// Counts a budget's Pods, and writes its status; returns the time after which that changes by itself.
    async fn count(&self, key: &Key, budget: &PodDisruptionBudget) -> Result<Option<Duration>, Status> {
        let matching = self.pods_of(budget).map_err(|why| {
            let text = format!("Failed to get pods: {why}");
            self.recorder.event(budget, EventType::Warning, "NoPods", clipped(text));
            failure(why.to_string())
        })?;
        if matching.is_empty() {
            self.recorder.event(budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let counted = self.expected(budget, &matching).await.map_err(|error| {
            let text = format!("Failed to calculate the number of expected pods: {error}");
            self.recorder.event(budget, EventType::Warning, "CalculateExpectedPodCountFailed", clipped(text));
            error
        })?;
        let noted = budget.status.as_ref().and_then(|s| s.disrupted_pods.as_ref());
        let passed = |pod: &str, at| self.allowed.passed((key.clone(), pod.to_owned()), at, self.clock);
        let disrupted = count::disrupted(&matching, noted, passed);
        self.allowed.retain(|(of, pod)| of != key || disrupted.pods.contains_key(pod));
        for pod in &disrupted.kept {
            // DIFFERENCE: upstream's text has the namespace in the place of the name.
            let text = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            self.recorder.event_about(pod.reference(), EventType::Warning, "NotDeleted", text);
        }
        let healthy = count::healthy(&matching, &disrupted);
        let status = count::status(budget, counted, healthy, disrupted.pods, self.clock.now());
        if let Some(status) = status {
            self.write(budget, status).await?;
        }
        // The next look comes after the time is over, not just before.
        Ok(disrupted.recheck.map(|left| left + Duration::from_millis(1)))
    }

    /// Returns the Pods that a budget selects.
    fn pods_of(&self, budget: &PodDisruptionBudget) -> Result<Vec<Arc<PodView>>, SelectorError> {
        let Some(selector) = budget.spec.as_ref().and_then(|s| s.selector.as_ref()) else {
            return Ok(Vec::new());
        };
        let selector = Selector::new(Some(selector))?;
        let mut all = self.pods.list_namespace(budget.namespace());
        all.retain(|p| p.is_selected_by(&selector));
        Ok(all)
    }

    async fn expected(
        &self,
        budget: &PodDisruptionBudget,
        matching: &[Arc<PodView>],
    ) -> Result<count::Counts, Status> {
        let spec = budget.spec.clone().unwrap_or_default();
        let scales =
            if count::needs_scale(&spec) { self.owners.scales(matching).await? } else { Scales::default() };
        let counts = count::counts(&spec, matching.len(), scales.expected).map_err(failure)?;
        if scales.unmanaged {
            let text = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                clipped(printed(spec.selector.as_ref()))
            );
            self.recorder.event(budget, EventType::Warning, "UnmanagedPods", text);
        }
        Ok(counts)
    }

    async fn write(
        &self,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), Status> {
        let written = PodDisruptionBudget { status: Some(status), ..budget.clone() };
        let api = self.client.api::<PodDisruptionBudget>(budget.namespace());
        match api.update_status(&written).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    /// Writes into a Pod's status that it stays.
    async fn sync_stale(&self, key: Key) -> Result<Next, Status> {
        let Some(pod) = self.pods.get_key(&key) else { return Ok(Next::Done) };
        let Some(passed) = self.stale_for(&pod) else { return Ok(Next::Done) };
        if passed < STALE {
            return Ok(Next::After(STALE.saturating_sub(passed)));
        }
        let patch = json!({
            "metadata": {"uid": pod.uid(), "resourceVersion": pod.meta.resource_version.as_str()},
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
                "lastTransitionTime": Time(self.clock.now()), "observedGeneration": pod.generation,
            }]},
        });
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), &key.namespace);
        match api.patch_status(&key.name, &Patch::Strategic(patch)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Next::Done),
        }
    }
}

/// DIFFERENCE: an Event repeats only the beginning of a text that users may write at any length.
fn clipped(mut text: String) -> String {
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
