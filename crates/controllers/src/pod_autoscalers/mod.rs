//! Scales targets by what is measured of them (upstream: `pkg/controller/podautoscaler`).
//!
//! An autoscaler is looked at once in a period: its target's scale is read, the APIs of metrics are asked, `calculator`
//! says what each metric asks for, `limits` how fast the size may change, and `plan` puts the status together. Pods are
//! followed only while there are autoscalers.

mod calculator;
mod limits;
mod plan;
mod pods;
mod report;
mod source;
mod targets;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::go::quote;
use api::selector::labels::Selector;
use api::{FeatureGates, Status};
use client::{Cached, Change, Client, Informer, Key, Recorder, Resource, Selection, reference, resource_of};
use component::{Clock, Shutdown};
use futures::future::join_all;
use jiff::SignedDuration;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricSpec};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use self::calculator::Calculator;
use self::limits::{GROWTH, History, Usual};
use self::plan::{Begin, Look, Measured, Moment, Rescale};
use self::pods::MeasuredPod;
use self::report::{Action, Fault, Report};
use self::source::Source;
use self::targets::{Proposal, Unable};
use crate::config::{Autoscaling, Config};
use crate::discovery::find_scaled;
use crate::host::{Controller, Host, Next, Wiring};

/// How often a write of a scale is tried again after a conflict; upstream's.
const TRIES: usize = 5;

/// The Pods, while there are autoscalers.
struct Followed {
    pods: Informer<MeasuredPod>,
    end: Shutdown,
}

/// The controller of HorizontalPodAutoscalers.
pub(crate) struct PodAutoscalers {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    settings: Autoscaling,
    gates: FeatureGates,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    source: Source,
    shutdown: Shutdown,
    followed: Mutex<Option<Followed>>,
    histories: Mutex<HashMap<Key, History>>,
    /// The selectors of the targets, by namespace and autoscaler.
    selectors: Mutex<HashMap<String, BTreeMap<String, Selector>>>,
    report: Arc<Report>,
}

impl Controller for PodAutoscalers {
    const NAME: &'static str = "horizontal-pod-autoscaler-controller";
    const ALIASES: &'static [&'static str] = &["horizontalpodautoscaling"];
    const ACCOUNT: &'static str = "horizontal-pod-autoscaler";
    const QUEUE: &'static str = "horizontalpodautoscaler";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.pod_autoscalers
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let report = Arc::new(Report::default());
        let autoscalers: Informer<HorizontalPodAutoscaler> = host.informer();
        let (told, known) = (Arc::clone(&report), autoscalers.clone());
        host.metrics().register(Self::NAME, move |page| told.write(page, known.len()));
        Self {
            client: host.client(),
            clock: host.clock(),
            recorder: host.recorder("horizontal-pod-autoscaler"),
            settings: host.config().autoscaling,
            gates: host.config().gates,
            autoscalers,
            source: Source { client: host.client() },
            shutdown: host.shutdown(),
            followed: Mutex::default(),
            histories: Mutex::default(),
            selectors: Mutex::default(),
            report,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let (queue, c) = (wiring.queue(), Arc::clone(self));
        self.autoscalers.handle(move |change| {
            let key = change.object().key();
            if matches!(change, Change::Deleted(_)) {
                queue.add(key);
            } else {
                c.follow();
                queue.add_after(key, c.settings.sync_period);
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(autoscaler) = self.autoscalers.get_key(&key) else {
            self.forget(&key);
            return Ok(Next::Done);
        };
        let started = self.clock.monotonic();
        let (action, result) = self.look_at(&key, &autoscaler).await;
        let fault = match &result {
            Ok(()) => Fault::None,
            Err(Failed { is_spec: true, .. }) => Fault::Spec,
            Err(_) => Fault::Internal,
        };
        self.report.looked(action, fault, started.elapsed());
        if let Err(Failed { why, .. }) = result {
            tracing::warn!(autoscaler = %key, why, "an autoscaler could not do all of its work");
        }
        // A failure waits for the next period, too: metrics are no newer before.
        Ok(Next::After(self.settings.sync_period))
    }
}

/// Why a look at an autoscaler failed.
struct Failed {
    why: String,
    /// Whether the autoscaler itself is wrong.
    is_spec: bool,
}

fn failed(why: impl Into<String>) -> Failed {
    Failed { why: why.into(), is_spec: false }
}

/// A target: its resource and its scale.
struct Target {
    resource: Resource,
    scale: Scale,
}

impl Target {
    fn wanted(&self) -> i32 {
        self.scale.spec.as_ref().and_then(|s| s.replicas).unwrap_or(0)
    }
    fn present(&self) -> i32 {
        self.scale.status.as_ref().map_or(0, |s| s.replicas)
    }
    fn selector(&self) -> &str {
        self.scale.status.as_ref().and_then(|s| s.selector.as_deref()).unwrap_or_default()
    }
}

impl PodAutoscalers {
    /// Follows Pods from now on.
    fn follow(&self) -> Informer<MeasuredPod> {
        let mut followed = self.followed.lock();
        let followed = followed.get_or_insert_with(|| {
            let pods = Informer::of(&self.client, resource_of::<Pod>(), Selection::default());
            let end = self.shutdown.child();
            pods.start(&end);
            Followed { pods, end }
        });
        followed.pods.clone()
    }

    /// Forgets an autoscaler that is gone, and the Pods with the last one.
    fn forget(&self, key: &Key) {
        self.histories.lock().remove(key);
        self.report.forget(key);
        let mut selectors = self.selectors.lock();
        if let Some(of) = selectors.get_mut(key.namespace.as_str()) {
            of.remove(key.name.as_str());
            if of.is_empty() {
                selectors.remove(key.namespace.as_str());
            }
        }
        drop(selectors);
        let mut followed = self.followed.lock();
        if self.autoscalers.is_empty()
            && let Some(followed) = followed.take()
        {
            followed.end.stop();
        }
    }

    async fn look_at(&self, key: &Key, autoscaler: &HorizontalPodAutoscaler) -> (Action, Result<(), Failed>) {
        let moment = Moment { now: self.clock.now(), at: self.clock.monotonic() };
        let mut look = Look::new(autoscaler, self.gates, moment);
        let (action, done) = self.decide(key, &mut look).await;
        for (kind, reason, message) in look.events.drain(..) {
            self.recorder.event(autoscaler, kind, reason, message);
        }
        if let Some(status) = look.changed()
            && let Err(why) = self.write_status(autoscaler, status.clone()).await
        {
            return (action, done.and(Err(why)));
        }
        (action, done)
    }

    /// Decides about an autoscaler, and scales its target.
    async fn decide(&self, key: &Key, look: &mut Look<'_>) -> (Action, Result<(), Failed>) {
        let to = &look.hpa.spec.scale_target_ref;
        let about = format!("{}/{}/{}", to.kind, key.namespace, to.name);
        let target = match self.target(look.hpa, &key.namespace).await {
            Ok(target) => target,
            Err(NoTarget { why, is_spec }) => {
                look.no_scale(&why);
                let why = if is_spec {
                    format!("invalid API version in scale target reference: {why}")
                } else {
                    format!("failed to query scale subresource for {about}: {why}")
                };
                return (Action::None, Err(Failed { why, is_spec }));
            }
        };
        let current = target.wanted();
        let at = look.moment.at;
        self.histories.lock().entry(key.clone()).or_default().begin(current, at);
        let (rescale, statuses, error) = match look.begin(current) {
            Begin::Disabled => (None, Vec::new(), None),
            Begin::Scale(to, reason) => (Some(Rescale { to, reason }), Vec::new(), None),
            Begin::Measure => {
                let (measured, is_spec) = self.measure(key, look, &target).await;
                if measured.replicas.is_none() {
                    let error = measured.error.unwrap_or_default();
                    look.unmeasured(current, measured.statuses, &error);
                    let why = format!(
                        "failed to compute desired number of replicas based on listed metrics for {about}: {error}"
                    );
                    return (Action::None, Err(Failed { why, is_spec }));
                }
                let usual = Usual { window: self.settings.downscale_stabilization, growth: GROWTH };
                let mut histories = self.histories.lock();
                let history = histories.entry(key.clone()).or_default();
                let rescale = look.limited(current, &measured, history, usual);
                (rescale, measured.statuses, measured.error)
            }
        };
        let Some(rescale) = rescale else {
            look.kept(current, statuses);
            self.report.desired(key, current);
            return (Action::None, error.map_or(Ok(()), |why| Err(failed(why))));
        };
        if let Err(why) = self.rescale(key, look.hpa, target, rescale.to).await {
            look.not_rescaled(current, &rescale, statuses, &why.message);
            return (Action::None, Err(failed(format!("failed to rescale {about}: {why}"))));
        }
        look.rescaled(current, &rescale, statuses);
        let behavior = look.hpa.spec.behavior.as_ref();
        let mut histories = self.histories.lock();
        histories.entry(key.clone()).or_default().changed(behavior, current, rescale.to, at);
        drop(histories);
        self.report.desired(key, rescale.to);
        (Action::between(current, rescale.to), error.map_or(Ok(()), |why| Err(failed(why))))
    }

    /// Asks for all metrics of an autoscaler, at once, and puts together what they ask for; whether the first wrong one
    /// is the autoscaler's own fault.
    async fn measure(&self, key: &Key, look: &mut Look<'_>, target: &Target) -> (Measured, bool) {
        let informer = self.follow();
        informer.synced().await;
        let pods = match self.selected(key, target.selector(), &informer) {
            Ok(pods) => pods,
            Err((reason, why)) => return (look.bad_selector(reason, &why), false),
        };
        let seconds = |d: Duration| SignedDuration::try_from(d).unwrap_or(SignedDuration::MAX);
        let calculator = Calculator {
            pods: &pods,
            now: look.moment.now,
            tolerances: plan::tolerances(look.hpa, self.settings.tolerance, self.gates),
            cpu_initialization: seconds(self.settings.cpu_initialization_period),
            initial_readiness: seconds(self.settings.initial_readiness_delay),
            wanted: target.wanted(),
            present: target.present(),
        };
        let current = look.hpa.status.as_ref().and_then(|s| s.current_replicas).unwrap_or(0);
        let specs = look.hpa.spec.metrics.iter().flatten();
        let made = join_all(specs.map(|spec| async {
            let started = self.clock.monotonic();
            let made = self.proposal(spec, &key.namespace, target.selector(), &calculator).await;
            let (action, fault) = match &made {
                Ok(proposal) => (Action::between(current, proposal.replicas), Fault::None),
                Err(unable) if unable.is_spec => (Action::None, Fault::Spec),
                Err(_) => (Action::None, Fault::Internal),
            };
            self.report.measured(action, fault, &spec.type_, started.elapsed());
            made
        }));
        let made = made.await;
        let is_spec = made.iter().find_map(|m| m.as_ref().err()).is_some_and(|unable| unable.is_spec);
        (look.measured(target.wanted(), made), is_spec)
    }

    async fn proposal(
        &self,
        spec: &MetricSpec,
        namespace: &str,
        selector: &str,
        calculator: &Calculator<'_>,
    ) -> Result<Proposal, Unable> {
        let question = targets::question(spec)?;
        let answer = self.source.ask(&question, namespace, selector).await;
        let answer = answer.map_err(|why| targets::unanswered(spec, namespace, &why))?;
        targets::proposal(spec, answer, calculator)
    }

    /// The Pods that a target's selector selects, if no other autoscaler's does. The error is the reason and the message.
    fn selected(
        &self,
        key: &Key,
        text: &str,
        informer: &Informer<MeasuredPod>,
    ) -> Result<Vec<Arc<MeasuredPod>>, (&'static str, String)> {
        if text.is_empty() {
            return Err(("SelectorRequired", "selector is required".to_owned()));
        }
        let selector = Selector::parse(text).map_err(|why| {
            let text =
                format!("couldn't convert selector into a corresponding internal selector object: {why}");
            ("InvalidSelector", text)
        })?;
        let mut pods = informer.list_namespace(&key.namespace);
        pods.retain(|pod| selector.matches(|label| pod.labels.get(label)));
        let mut selectors = self.selectors.lock();
        let of_namespace = selectors.entry(key.namespace.to_string()).or_default();
        of_namespace.insert(key.name.to_string(), selector);
        let others = of_namespace
            .iter()
            .filter(|(_, other)| pods.iter().any(|pod| other.matches(|label| pod.labels.get(label))));
        let names: Vec<String> = others.map(|(name, _)| format!("{{{name} {}}}", key.namespace)).collect();
        if names.len() > 1 {
            let names = names.join(" ");
            let why = format!("pods by selector {text} are controlled by multiple HPAs: [{names}]");
            return Err(("AmbiguousSelector", why));
        }
        Ok(pods)
    }

    /// Reads the scale of an autoscaler's target.
    async fn target(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        namespace: &str,
    ) -> Result<Target, NoTarget> {
        let to = &autoscaler.spec.scale_target_ref;
        let api_version = to.api_version.as_deref().unwrap_or_default();
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, version)) if version.contains('/') => {
                let why = format!("unexpected GroupVersion string: {api_version}");
                return Err(NoTarget { why, is_spec: true });
            }
            Some(both) => both,
        };
        let found = find_scaled(&self.client, group, version, &to.kind).await?;
        let Some(found) = found else {
            let why = format!("no matches for kind {} in group {}", quote(&to.kind), quote(group));
            return Err(no_target(&why));
        };
        let resource = found.resource;
        if !found.has_scale {
            let Resource { group, version, plural } = &resource;
            let why = format!(
                "could not find scale subresource for {group}/{version}, Resource={plural} in discovery information"
            );
            return Err(no_target(&why));
        }
        let api = self.client.resource::<Scale>(resource.clone(), namespace);
        let scale = api.get_subresource(&to.name, "scale").await?;
        Ok(Target { resource, scale })
    }

    /// Gives a target another size; over a conflict it is tried again with what is there then.
    async fn rescale(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        target: Target,
        to: i32,
    ) -> Result<(), Status> {
        let name = autoscaler.spec.scale_target_ref.name.as_str();
        let api = self.client.resource::<Scale>(target.resource, &key.namespace);
        let (uid, mut scale) = (target.scale.metadata.uid.clone(), target.scale);
        for left in (0..TRIES).rev() {
            scale.spec.get_or_insert_default().replicas = Some(to);
            let Err(error) = api.put::<Scale, Scale>(name, "scale", &scale).await else { return Ok(()) };
            if !error.is_conflict() || left == 0 {
                return Err(error);
            }
            let fresh: Scale = api.get_subresource(name, "scale").await?;
            // Another object of this name was not looked at.
            if fresh.metadata.uid != uid {
                return Err(error);
            }
            scale = fresh;
        }
        Ok(())
    }

    async fn write_status(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        status: HorizontalPodAutoscalerStatus,
    ) -> Result<(), Failed> {
        let changed = HorizontalPodAutoscaler { status: Some(status), ..autoscaler.clone() };
        let api = self.client.api::<HorizontalPodAutoscaler>(autoscaler.namespace());
        let Err(error) = api.update_status(&changed).await else { return Ok(()) };
        if error.is_not_found() {
            return Ok(());
        }
        let about = reference(autoscaler);
        let (kind, text) = (client::EventType::Warning, error.message.clone());
        self.recorder.event_about(about, kind, "FailedUpdateStatus", text);
        Err(failed(format!("failed to update status for {}: {error}", autoscaler.name())))
    }
}

/// Why a target has no scale.
struct NoTarget {
    why: String,
    /// Whether the autoscaler itself is wrong.
    is_spec: bool,
}

fn no_target(why: &str) -> NoTarget {
    NoTarget { why: why.to_owned(), is_spec: false }
}

impl From<Status> for NoTarget {
    fn from(error: Status) -> Self {
        no_target(&error.message)
    }
}
