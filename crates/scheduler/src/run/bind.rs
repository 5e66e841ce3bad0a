//! From the choice of a node to the binding: things are held for the Pod, and a task of its own binds it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use client::EventType;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::metrics::{Result as Turn, Task};
use super::pods::{panicked, scheduler_of};
use super::way::{Bound, Failure, go};
use super::{Input, Scheduler};
use crate::events::Happening;
use crate::framework::place::{Gone, Place};
use crate::framework::points::{Binding, Permission};
use crate::framework::profile::Profile;
use crate::framework::state::State;
use crate::framework::times::{Code, Point, Times, sampled};
use crate::framework::verdict::Rejection;
use crate::framework::waiting::Permitted;
use crate::pod::PodInfo;
use crate::queue::{Entry, Mark};

/// The code of the answer of a Permit plugin.
fn permission(answer: &Result<Permission, Rejection>) -> Code {
    match answer {
        Ok(Permission::Wait(_)) => Code::Wait,
        other => Code::of_result(other),
    }
}

/// The answers of Permit plugins.
#[derive(Default)]
pub(super) struct Permits {
    /// The plugins that want to wait, and how long at most.
    pub(super) waits: BTreeMap<&'static str, Duration>,
    /// Other Pods that a plugin allows now, by uid.
    others: Vec<(&'static str, Arc<str>)>,
}

impl Scheduler {
    /// Takes what the Pod needs on the node, and binds it in a task of its own.
    pub(super) fn bind(&mut self, entry: Entry, mark: Mark, node: String, permit: OwnedSemaphorePermit) {
        let mut carried = State::default();
        let mut times = Times::default();
        times.begin(sampled());
        let permitted = match self.hold(&entry, &node, &mut carried, &mut times) {
            Ok(permitted) => permitted,
            Err(failure) => {
                self.metrics.took(scheduler_of(&entry.info), &times);
                self.bound(Bound { entry, mark, node, carried, result: Err(failure) }, Instant::now());
                return;
            }
        };
        let (client, tx, profiles) = (self.client.clone(), self.tx.clone(), self.profiles.clone());
        let (extenders, metrics) = (self.extenders.clone(), self.metrics.clone());
        let recorder = self.recorders.get(scheduler_of(&entry.info)).cloned();
        let written = self.writes.last(entry.info.uid());
        let mut gone = Gone::default();
        if permitted.is_some() || !carried.is_empty() {
            // It may be a long way.
            let (tell, told) = Gone::new();
            self.ways.insert(entry.info.shared_uid(), tell);
            gone = told;
        }
        let (place, carried) = (Place::new(self.permits.clone(), permit), Arc::new(carried));
        let (stop, running) = (self.shutdown.clone(), self.metrics.runs(Task::Binding));
        self.aside(async move {
            let _running = running;
            // A condition that says it can't be placed must not arrive after it was.
            let _written = match &written {
                Some(lock) => Some(lock.lock().await),
                None => None,
            };
            let pod = entry.info.clone();
            // In a task of its own, so that a plugin that panics costs its Pod alone.
            let way = tokio::spawn({
                let (pod, node, carried) = (pod.clone(), node.clone(), carried.clone());
                async move {
                    let Some(profile) = profiles.get(scheduler_of(&pod)) else {
                        return Err(Failure::Failed { why: "its profile is gone".to_owned(), gone: false });
                    };
                    let binding = Binding {
                        pod: &pod,
                        node: &node,
                        carried: &carried,
                        profile: &profile.name,
                        recorder: recorder.as_ref(),
                        client: &client,
                        place: &place,
                        gone: &gone,
                    };
                    let way = go(profile, &binding, permitted, &extenders, (&metrics, times));
                    let ends = || Failure::Failed { why: "the scheduler ends".to_owned(), gone: false };
                    stop.run(Box::pin(way)).await.unwrap_or_else(|| Err(ends()))
                }
            });
            let result = way.await.unwrap_or_else(|e| {
                let why = match e.try_into_panic() {
                    Ok(panic) => panicked(&pod, &*panic),
                    Err(e) => e.to_string(),
                };
                Err(Failure::Failed { why, gone: false })
            });
            // That task has ended, so nobody else has the notes.
            let carried = Arc::try_unwrap(carried).unwrap_or_default();
            let _ = tx.send(Input::Bound(Box::new(Bound { entry, mark, node, carried, result })));
        });
    }

    /// Asks the Reserve and Permit plugins. A Pod for which a plugin wants to wait waits from now on.
    fn hold(
        &self,
        entry: &Entry,
        node: &str,
        carried: &mut State,
        times: &mut Times,
    ) -> Result<Option<Permitted>, Failure> {
        let Permits { waits, others } = self.ask(&entry.info, node, carried, times)?;
        for (plugin, uid) in &others {
            self.waiting.allow(uid, plugin);
        }
        Ok(self.waiting.add(entry.info.uid(), &waits, Instant::now()))
    }

    /// Asks the Reserve and Permit plugins; what is reserved is held from now on.
    pub(super) fn ask(
        &self,
        pod: &PodInfo,
        node: &str,
        carried: &mut State,
        times: &mut Times,
    ) -> Result<Permits, Failure> {
        let (Some(profile), Some(info)) = (self.profiles.get(scheduler_of(pod)), self.cache.node(node))
        else {
            return Ok(Permits::default());
        };
        let mut concerned = profile.reserve.iter().filter(|at| at.plugin.concerns(pod)).peekable();
        if concerned.peek().is_none() && profile.permit.is_empty() {
            return Ok(Permits::default());
        }
        let asked = || {
            let held = concerned.try_for_each(|at| {
                let ask = || at.plugin.reserve(pod, &self.cache, info, carried);
                times.plugin(Point::Reserve, at.name, Code::of_result, ask)
            });
            times.ended(Point::Reserve, Code::of_result(&held));
            held?;
            let mut permits = Permits::default();
            let permitted = profile.permit.iter().try_for_each(|at| {
                let ask = || at.plugin.permit(pod, &self.cache, node, carried);
                match times.plugin(Point::Permit, at.name, permission, ask)? {
                    Permission::Granted => {}
                    Permission::GrantedWith(uids) => {
                        permits.others.extend(uids.into_iter().map(|uid| (at.name, uid)));
                    }
                    Permission::Wait(time) => drop(permits.waits.insert(at.name, time)),
                }
                Ok(())
            });
            let code = if permits.waits.is_empty() { Code::of_result(&permitted) } else { Code::Wait };
            times.ended(Point::Permit, code);
            permitted.map(|()| permits)
        };
        match catch_unwind(AssertUnwindSafe(asked)) {
            Ok(answer) => answer.map_err(Failure::Refused),
            Err(panic) => Err(Failure::Failed { why: panicked(pod, &*panic), gone: false }),
        }
    }

    /// Gives back what is held for a Pod.
    pub(super) fn give_back(&self, profile: &Profile, pod: &PodInfo, node: &str, carried: &mut State) {
        let mut times = Times::default();
        times.begin(sampled());
        let given_back = || {
            for at in profile.reserve.iter().rev().filter(|at| at.plugin.concerns(pod)) {
                let ask = || at.plugin.unreserve(pod, node, carried);
                times.plugin(Point::Unreserve, at.name, |()| Code::Success, ask);
            }
            times.ended(Point::Unreserve, Code::Success);
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(given_back)) {
            panicked(pod, &*panic);
        }
        self.metrics.took(&profile.name, &times);
    }

    /// A binding ended. If it failed, all that was held is given back, and the Pod goes back into the queue as it is now,
    /// unless it is gone or has a node.
    pub(super) fn bound(&mut self, bound: Bound, now: Instant) {
        let Bound { mut entry, mark, node, mut carried, result } = bound;
        self.waiting.remove(entry.info.uid());
        self.ways.remove(entry.info.uid());
        let Err(failure) = result else {
            let (namespace, name) = (entry.info.namespace(), entry.info.name());
            self.metrics.ended(scheduler_of(&entry.info), Turn::Scheduled, entry.tried.elapsed());
            self.metrics.bound(
                entry.attempts,
                entry.flushed,
                entry.first_tried.unwrap_or(entry.tried).elapsed(),
            );
            let message = format!("Successfully assigned {namespace}/{name} to {node}");
            self.event(&entry.info, EventType::Normal, "Scheduled", message);
            return;
        };
        if let Some(profile) = self.profiles.get(scheduler_of(&entry.info)) {
            self.give_back(profile, &entry.info, &node, &mut carried);
            let errands = profile.reserve.iter().filter(|at| at.plugin.concerns(&entry.info));
            for errand in errands.filter_map(|at| at.plugin.afterwards(&entry.info, &carried)) {
                self.send(errand, None);
            }
        }
        let freed = self.cache.forget(entry.info.uid());
        let was = entry.info.clone();
        if let Some(info) = self.current(&entry.info) {
            entry.info = info;
            match failure {
                Failure::Refused(rejection) => self.turned_away(entry, &mark, rejection),
                Failure::Failed { gone: true, .. } => {}
                Failure::Failed { why, .. } => self.errored(entry, &why),
            }
        }
        if freed {
            // Room was held for it meanwhile: others that wait may fit now.
            self.happened(&Happening::left(&was), Some(was.uid()), now);
        }
    }
}
