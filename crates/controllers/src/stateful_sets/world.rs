//! A StatefulSet with its Pods, claims and revisions, of which the plan is carried out in memory, with the drivers and
//! the invariants of upstream's tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::claims::Owners;
use super::identity::{self, Revision};
use super::plan::{Phase, Plan, Step, plan};
use super::snapshot::{Snapshot, is_running_and_ready, references, revision_of};
use super::{set, status};
use crate::common::revisions::{self, Present};
use crate::views::PodView;
use crate::views::tests::view;

/// The time of the tests' objects.
pub(super) const NOW: i64 = 1_000_000;

/// The way in which Pods come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Monotonic,
    Burst,
}

/// A request that fails: the kind of step, and how many of them succeed before.
pub(super) type Failure = (&'static str, usize);

pub(super) struct World {
    pub(super) set: StatefulSet,
    pub(super) pods: BTreeMap<i64, Value>,
    pub(super) claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    pub(super) counts_unavailable: bool,
    /// The request that fails next, or the write of the status (`status`).
    pub(super) failure: Option<Failure>,
    /// The steps that were taken, in their short form.
    pub(super) log: Vec<String>,
    made: usize,
    random: u64,
}

impl World {
    pub(super) fn new(set: StatefulSet) -> Self {
        Self {
            set,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            revisions: Vec::new(),
            counts_unavailable: false,
            failure: None,
            log: Vec::new(),
            made: 0,
            random: 1,
        }
    }

    pub(super) fn of(mut set: StatefulSet, mode: Mode) -> Self {
        if mode == Mode::Burst {
            set.spec.as_mut().unwrap().pod_management_policy = Some("Parallel".to_owned());
        }
        Self::new(set)
    }

    pub(super) fn scale(&mut self, replicas: i32) {
        self.set.spec.as_mut().unwrap().replicas = Some(replicas);
    }

    pub(super) fn set_image(&mut self, image: &str) {
        let template = &mut self.set.spec.as_mut().unwrap().template;
        template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
        *self.set.metadata.generation.as_mut().unwrap() += 1;
    }

    pub(super) fn status(&self) -> StatefulSetStatus {
        self.set.status.clone().unwrap_or_default()
    }

    pub(super) fn view(&self, ordinal: i64) -> PodView {
        view(&self.pods[&ordinal])
    }

    pub(super) fn images(&self) -> Vec<String> {
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        self.pods.values().map(image).collect()
    }

    pub(super) fn set_phase(&mut self, ordinal: i64, phase: &str) {
        self.pods.get_mut(&ordinal).unwrap()["status"] = json!({"phase": phase});
    }

    /// Lets a Pod run and be ready since some seconds ago.
    pub(super) fn set_ready(&mut self, ordinal: i64, seconds: i64) {
        let since = Timestamp::from_second(NOW - seconds).unwrap().to_string();
        let condition = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        self.pods.get_mut(&ordinal).unwrap()["status"] = json!({"phase": "Running", "conditions": condition});
    }

    /// Lets a Pod's deletion begin.
    pub(super) fn terminate(&mut self, ordinal: i64) {
        self.pods.get_mut(&ordinal).unwrap()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }

    /// Returns the revisions, as the controller finds or makes them.
    fn history(&mut self) -> (Revision, Revision, i32) {
        let template = self.set.spec.clone().unwrap().template;
        let data = revisions::data_of(&template).unwrap();
        let update = match revisions::find(&self.revisions, &data) {
            Present::Newest(found) => found,
            Present::Again(found, number) => {
                let again = Arc::new(ControllerRevision { revision: number, ..(*found).clone() });
                self.revisions.retain(|r| r.metadata.name != found.metadata.name);
                self.revisions.push(again.clone());
                again
            }
            Present::New(number) => {
                let hash = revisions::hash(&data, Some(0));
                let new = revisions::new(&self.set, &template, data, number, (revisions::HASH, hash));
                self.revisions.push(Arc::new(new));
                self.revisions.last().unwrap().clone()
            }
        };
        let told = self.status().current_revision;
        let of = |r: &ControllerRevision| Revision {
            name: set::name(&r.metadata).to_owned(),
            template: revisions::template_of(r).unwrap(),
        };
        let current = self.revisions.iter().find(|r| r.metadata.name == told).unwrap_or(&update);
        (of(current), of(&update), 0)
    }

    /// Plans without doing anything.
    pub(super) fn plan(&mut self) -> Plan {
        self.ask(|snapshot| plan(snapshot).unwrap())
    }

    /// Asks something of the set as a plan sees it.
    pub(super) fn ask<T>(&mut self, ask: impl FnOnce(&Snapshot<'_>) -> T) -> T {
        let (current, update, collisions) = self.history();
        let claim = |name: &str| self.claims.get(name).cloned();
        ask(&Snapshot {
            set: &self.set,
            pods: self.pods.iter().map(|(ordinal, pod)| (*ordinal, Arc::new(view(pod)))).collect(),
            claim: &claim,
            current,
            update,
            collisions,
            counts_unavailable: self.counts_unavailable,
            now: Timestamp::from_second(NOW).unwrap(),
        })
    }

    /// One sync; whether all of it succeeded.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        let plan = self.plan();
        let mut status = plan.status;
        let mut result = Ok(());
        for Phase { steps, at_once } in plan.phases {
            for step in &steps {
                let done = self.take(step);
                if let (Step::Update(pod), Ok(())) = (step, &done)
                    && Some(revision_of(pod)) == status.current_revision.as_deref()
                {
                    *status.current_replicas.as_mut().unwrap() -= 1;
                }
                result = result.and(done);
                if result.is_err() && !at_once {
                    break;
                }
            }
            if result.is_err() {
                break;
            }
        }
        status::complete(&self.set, &mut status);
        if status::differs(&self.set, &status) {
            let written = self.fails("status");
            if written.is_ok() {
                self.set.status = Some(status);
            }
            result = result.and(written);
        }
        let limit = set::history_limit(&self.set);
        let told = self.status();
        let used = |name: &str| {
            told.current_revision.as_deref() == Some(name)
                || told.update_revision.as_deref() == Some(name)
                || self.pods.values().any(|p| revision_of(&view(p)) == name)
        };
        if let Some(limit) = limit {
            let doomed = revisions::surplus(&self.revisions, limit, used);
            self.revisions.retain(|r| !doomed.contains(r));
        }
        result
    }

    fn fails(&mut self, what: &'static str) -> Result<(), Failure> {
        match &mut self.failure {
            Some((failing, 0)) if *failing == what => Err(self.failure.take().unwrap()),
            Some((failing, left)) if *failing == what => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Create(ordinal, pod) => {
                self.log.push(format!("create {ordinal}"));
                let name = set::name(&pod.metadata).to_owned();
                self.make_claims(*ordinal, &name, "");
                self.own_claims(*ordinal, &name, "");
                self.fails("create")?;
                let mut value = serde_json::to_value(pod).unwrap();
                self.made += 1;
                value["metadata"]["uid"] = format!("{name}-{}", self.made).into();
                value["status"] = json!({"phase": "Pending"});
                assert!(self.pods.insert(*ordinal, value).is_none(), "{name} is there already");
            }
            Step::Delete(pod) | Step::Update(pod) => {
                let ordinal = identity::ordinal(&self.set, pod.name()).unwrap();
                self.log.push(format!("delete {ordinal}"));
                self.fails("delete")?;
                self.pods.remove(&ordinal).unwrap();
            }
            Step::MakeClaims(ordinal, pod) => {
                self.make_claims(*ordinal, pod.name(), pod.uid());
                self.own_claims(*ordinal, pod.name(), pod.uid());
            }
            Step::OwnClaims(ordinal, pod) => self.own_claims(*ordinal, pod.name(), pod.uid()),
            Step::Mend(ordinal, pod) => {
                self.log.push(format!("mend {ordinal}"));
                self.fails("mend")?;
                self.make_claims(*ordinal, pod.name(), pod.uid());
                self.own_claims(*ordinal, pod.name(), pod.uid());
                let value = self.pods.get_mut(ordinal).unwrap();
                for (key, label) in identity::labels(pod.name(), *ordinal) {
                    value["metadata"]["labels"][key] = label.into();
                }
                let volumes = value["spec"]["volumes"].take();
                let volumes = serde_json::from_value::<Option<Vec<_>>>(volumes).unwrap().unwrap_or_default();
                value["spec"]["volumes"] = json!(identity::volumes(&self.set, *ordinal, &volumes));
            }
        }
        Ok(())
    }

    fn owners<'a>(set: &'a StatefulSet, ordinal: i64, pod: &'a str, uid: &'a str) -> Owners<'a> {
        Owners { set, pod, uid, wanted: set::ordinals(set).contains(&ordinal) }
    }

    fn make_claims(&mut self, ordinal: i64, pod: &str, uid: &str) {
        for mut claim in identity::claims(&self.set, ordinal) {
            let name = set::name(&claim.metadata).to_owned();
            let refs = Self::owners(&self.set, ordinal, pod, uid).correct(&[]);
            claim.metadata.owner_references = Some(refs);
            self.claims.entry(name).or_insert_with(|| Arc::new(claim));
        }
    }

    fn own_claims(&mut self, ordinal: i64, pod: &str, uid: &str) {
        let owners = Self::owners(&self.set, ordinal, pod, uid);
        for claim in identity::claims(&self.set, ordinal) {
            let Some(known) = self.claims.get_mut(set::name(&claim.metadata)) else { continue };
            if !owners.are_right(references(known)) {
                let refs = owners.correct(references(known));
                Arc::make_mut(known).metadata.owner_references = Some(refs);
            }
        }
    }

    /// Lets the garbage collector take the claims whose Pods are gone.
    pub(super) fn collect_claims(&mut self) {
        let uids: Vec<String> =
            self.pods.values().map(|p| p["metadata"]["uid"].as_str().unwrap().to_owned()).collect();
        let lives = |claim: &PersistentVolumeClaim| {
            references(claim).iter().all(|r| r.kind != "Pod" || uids.contains(&r.uid))
        };
        self.claims.retain(|_, claim| lives(claim));
    }

    fn random_pod(&mut self) -> Option<i64> {
        let count = u64::try_from(self.pods.len()).unwrap();
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = (self.random >> 33).checked_rem(count)?;
        self.pods.keys().nth(usize::try_from(chosen).unwrap()).copied()
    }

    /// Lets one of the Pods get on with its life.
    fn advance(&mut self) {
        let Some(ordinal) = self.random_pod() else { return };
        match self.view(ordinal).phase.as_str() {
            "Pending" => self.set_phase(ordinal, "Running"),
            "Running" => self.set_ready(ordinal, 1),
            _ => {}
        }
    }

    /// Lets Pods get on, and syncs after each, until the set is as `done` wants it.
    fn drive(&mut self, check: impl Fn(&Self), done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        for _ in 0..5_000 {
            if done(self) {
                check(self);
                return Ok(());
            }
            self.advance();
            self.sync()?;
            check(self);
        }
        panic!("it does not get on: {:?} {:?}", self.status(), self.log);
    }

    pub(super) fn scale_up(&mut self, mode: Mode) -> Result<(), Failure> {
        let enough = |w: &Self| i64::from(w.status().ready_replicas.unwrap_or(0)) >= set::replicas(&w.set);
        self.drive(|w| w.holds(mode), enough)
    }

    /// Syncs, with Pods that take their time to go, until none is too many.
    pub(super) fn scale_down(&mut self, mode: Mode) -> Result<(), Failure> {
        while i64::from(self.status().replicas) > set::replicas(&self.set) {
            let before: Vec<i64> = self.pods.keys().copied().collect();
            let dying = self.pods.clone();
            self.sync()?;
            let gone: Vec<i64> = before.into_iter().filter(|o| !self.pods.contains_key(o)).collect();
            if mode == Mode::Monotonic {
                assert!(gone.len() <= 1, "{gone:?}");
            }
            for ordinal in &gone {
                self.pods.insert(*ordinal, dying[ordinal].clone());
                self.terminate(*ordinal);
            }
            let log = self.log.len();
            self.sync()?;
            assert_eq!(self.log.len(), log, "nothing is done while Pods go");
            self.pods.retain(|ordinal, _| !gone.contains(ordinal));
            self.sync()?;
            self.holds(mode);
        }
        self.collect_claims();
        self.holds(mode);
        Ok(())
    }

    pub(super) fn update(&mut self) -> Result<(), Failure> {
        self.sync()?;
        self.drive(Self::update_holds, Self::is_updated)
    }

    fn is_updated(&self) -> bool {
        let status = self.status();
        let all = set::replicas(&self.set);
        let revision = |pod: &Value| revision_of(&view(pod)).to_owned();
        if i64::try_from(self.pods.len()) != Ok(all) || i64::from(status.ready_replicas.unwrap()) != all {
            return false;
        }
        match set::partition(&self.set).unwrap_or(0) {
            _ if set::is_on_delete(&self.set) => true,
            0 => {
                i64::from(status.current_replicas.unwrap()) >= all
                    && self.pods.values().all(|p| Some(revision(p)) == status.current_revision)
            }
            partition => {
                let above = self.pods.range(set::start(&self.set) + partition..);
                above.into_iter().all(|(_, p)| Some(revision(p)) == status.update_revision)
            }
        }
    }

    /// Checks upstream's `assertMonotonicInvariants` and `assertBurstInvariants`.
    pub(super) fn holds(&self, mode: Mode) {
        let mut before: Option<(i64, bool)> = None;
        for (ordinal, pod) in self.pods.iter().map(|(ordinal, pod)| (*ordinal, view(pod))) {
            let ready = is_running_and_ready(&pod);
            if mode == Mode::Monotonic {
                let first = set::start(&self.set);
                assert_eq!(ordinal, before.map_or(first, |(last, _)| last + 1), "the order");
                assert!(!ready || before.is_none_or(|(_, ready)| ready), "a successor of {ordinal}");
            }
            before = Some((ordinal, ready));
            assert!(identity::has_identity(&pod) && identity::has_storage(&self.set, ordinal, &pod));
            let owners = Self::owners(&self.set, ordinal, pod.name(), pod.uid());
            for claim in identity::claims(&self.set, ordinal) {
                let claim = self.claims.get(set::name(&claim.metadata)).expect("a claim");
                assert!(!ready || owners.are_right(references(claim)), "{ordinal} {:?}", references(claim));
            }
        }
    }

    /// Checks upstream's `assertUpdateInvariants`.
    fn update_holds(&self) {
        self.holds(Mode::Burst);
        if set::is_on_delete(&self.set) {
            return;
        }
        let status = self.status();
        let revision = |pod: &Value| Some(revision_of(&view(pod)).to_owned());
        let count = |n: Option<i32>| usize::try_from(n.unwrap_or(0)).unwrap();
        for pod in self.pods.values().take(count(status.current_replicas)) {
            assert_eq!(revision(pod), status.current_revision, "{:?}", self.log);
        }
        for pod in self.pods.values().rev().take(count(status.updated_replicas)) {
            assert_eq!(revision(pod), status.update_revision, "{:?}", self.log);
        }
    }
}
