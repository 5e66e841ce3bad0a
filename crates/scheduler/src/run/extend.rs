//! Decisions in which others have a say: extenders, and those who own Pods.

use client::{Factory, Selection, resource_of};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use tokio::sync::mpsc::UnboundedSender;

use crate::cycle::{Decision, Part, Step};
use crate::extender::{Question, Talk};
use crate::owners::Kind;
use crate::pod::PodInfo;

use super::metrics::Task;
use super::{Input, Scheduler, follow};

impl Scheduler {
    /// Follows Services and controllers.
    pub(super) fn follow_owners(factory: &Factory, tx: &UnboundedSender<Input>) {
        let all = Selection::default;
        let services = factory.select(resource_of::<Service>(), all());
        follow(&services, tx, |c| Input::Owner(Kind::Service, c));
        let controllers = factory.select(resource_of::<ReplicationController>(), all());
        follow(&controllers, tx, |c| Input::Owner(Kind::ReplicationController, c));
        let sets = factory.select(resource_of::<ReplicaSet>(), all());
        follow(&sets, tx, |c| Input::Owner(Kind::ReplicaSet, c));
        let stateful = factory.select(resource_of::<StatefulSet>(), all());
        follow(&stateful, tx, |c| Input::Owner(Kind::StatefulSet, c));
    }

    /// Decides about a Pod. Meanwhile nothing else is decided and no news is taken in, as upstream has it, so that each
    /// try of the turn sees the same cluster.
    pub(super) async fn decide(&mut self, info: &PodInfo, part: Part<'_>) -> Decision {
        let mut talk = Talk::new(self.extenders.clone());
        loop {
            match self.step(info, &talk, part) {
                Step::Decided(decision) => return decision,
                Step::Ask(question) => {
                    let asked = match question {
                        Question::Prioritize { .. } => talk.extenders().len(),
                        _ => 0,
                    };
                    let _running: Vec<_> =
                        (0..asked).map(|_| self.metrics.runs(Task::Prioritizing)).collect();
                    let asked = Box::pin(talk.ask(&question, info, &self.cache, &self.client));
                    let Some(answer) = self.shutdown.run(asked).await else {
                        return Decision::Error("the scheduler ends".to_owned());
                    };
                    talk.note(question, answer);
                }
            }
        }
    }
}
