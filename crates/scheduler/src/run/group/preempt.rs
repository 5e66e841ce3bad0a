//! Room for a whole group: the Pods and groups that have to go for it (upstream's `runWorkloadAwarePreemption`).

use std::collections::HashMap;
use std::sync::Arc;

use api::go::quote;

use super::super::Scheduler;
use super::super::pods::scheduler_of;
use super::super::preemptor::Preemptor;
use super::Outcome;
use crate::cache::Lifted;
use crate::plugins::pod_group_preemption::{Fit, Room, Victim, priority, select, victims};
use crate::plugins::preemption::NAME;
use crate::pod::PodInfo;

/// A simulation in the scheduler's own cluster.
struct Trial<'a> {
    scheduler: &'a mut Scheduler,
    pods: &'a [PodInfo],
    lifted: HashMap<Arc<str>, Lifted>,
}

impl Room for Trial<'_> {
    fn take(&mut self, victim: &Victim) {
        for pod in &victim.pods {
            if let Some(lifted) = self.scheduler.cache.lift(pod.uid()) {
                self.lifted.insert(pod.shared_uid(), lifted);
            }
        }
    }
    fn put_back(&mut self, victim: &Victim) {
        for pod in &victim.pods {
            if let Some(lifted) = self.lifted.remove(pod.uid()) {
                self.scheduler.cache.put_back(lifted);
            }
        }
    }
    async fn fits(&mut self) -> Fit {
        // There may be many tries.
        if self.scheduler.shutdown.run(tokio::task::yield_now()).await.is_none() {
            return Fit::Error("the scheduler ends".to_owned());
        }
        match self.scheduler.try_all(self.pods, true).await.outcome {
            Outcome::Scheduled => Fit::Yes,
            Outcome::Refused { why, .. } => Fit::No(why),
            Outcome::Error(why) => Fit::Error(why),
        }
    }
}

impl Scheduler {
    /// Looks for less important Pods and groups without which the group fits, and has them go.
    ///
    /// # Errors
    /// If there are none, in upstream's words, or there can be no decision.
    pub(super) async fn make_room(&mut self, pods: &[PodInfo]) -> Result<(), Fit> {
        let no = |why: &str| Err(Fit::No(why.to_owned()));
        let Some(one) = pods.first() else { return no("the group has no pods") };
        if !self.profiles.get(scheduler_of(one)).is_some_and(|profile| profile.has(NAME)) {
            return no("default preemption plugin is not registered, workload aware preemption is disabled");
        }
        let Some(group) = self.cache.groups().of(one) else {
            let missing =
                format!("podgroup.scheduling.k8s.io {} not found", quote(one.group().unwrap_or_default()));
            return Err(Fit::Error(format!("failed to get pod group object: {missing}")));
        };
        let constraints = group.spec.scheduling_constraints.as_ref().and_then(|c| c.topology.as_ref());
        if constraints.is_some_and(|all| !all.is_empty()) {
            return no(
                "workload aware preemption is not supported for pod groups with scheduling constraints",
            );
        }
        let (candidates, budgets) = (victims(&self.cache), self.budgets.list());
        let mut trial = Trial { scheduler: self, pods, lifted: HashMap::new() };
        let chosen = Box::pin(select((pods, priority(&group)), candidates, &budgets, &mut trial)).await;
        for lifted in std::mem::take(&mut trial.lifted).into_values() {
            self.cache.put_back(lifted);
        }
        let gone: Vec<PodInfo> = chosen?.into_iter().flat_map(|victim| victim.pods).collect();
        if gone.iter().any(|pod| !pod.leaving) {
            self.metrics.victims(gone.len());
            let uid = group.metadata.uid.clone().unwrap_or_default();
            self.evict(&gone, Preemptor::group(uid, one));
        }
        Ok(())
    }
}
