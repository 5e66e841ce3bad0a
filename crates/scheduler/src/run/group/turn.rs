//! A try of a group's Pods, one after the other (upstream's `podGroupSchedulingDefaultAlgorithm`).

use super::super::Scheduler;
use super::super::pods::scheduler_of;
use super::super::way::Failure;
use super::{End, Outcome, Tried};
use crate::cache::Lifted;
use crate::cycle::{Decision, FitError, Help, Part};
use crate::framework::state::State;
use crate::framework::times::{Times, sampled};
use crate::framework::verdict::{Rejection, Verdicts};
use crate::plugins::gang_scheduling;
use crate::pod::PodInfo;

const PERMIT: &str = "one or more plugins asked to wait and no plugin rejected pod";

/// A Pod that is taken to be on a node for the rest of the try.
struct Assumed {
    pod: PodInfo,
    node: String,
    carried: State,
    victims: Vec<Lifted>,
    /// The node that it waited for.
    nominated: Option<String>,
}

impl Scheduler {
    /// Looks for nodes for all of them; everything is afterwards as it was.
    pub(super) async fn try_in(&mut self, pods: &[PodInfo], part: Part<'_>) -> Tried {
        let (mut assumed, mut ends) = (Vec::new(), Vec::with_capacity(pods.len()));
        for pod in pods {
            let end = match self.decide(pod, part).await {
                Decision::Node(node) => match self.assume_member(pod, &node, &[], &mut assumed) {
                    Ok(waits) => End::Node { node, waits },
                    Err(end) => end,
                },
                Decision::Unschedulable(error, Help::Room(candidate)) => {
                    match self.assume_member(pod, &candidate.node, &candidate.victims, &mut assumed) {
                        Ok(waits) => End::Room { error, candidate, waits },
                        Err(end) => end,
                    }
                }
                Decision::Unschedulable(error, help) => End::Refused(error, help),
                Decision::Error(why) => End::Error(why),
            };
            let over = matches!(end, End::Error(_));
            ends.push(end);
            if over {
                break;
            }
        }
        for one in assumed.into_iter().rev() {
            self.undo(one);
        }
        let outcome = Outcome::of(&ends);
        Tried { ends, outcome }
    }

    /// Takes a Pod to be on a node, and its victims to be gone; says why plugins would let it wait there.
    fn assume_member(
        &mut self,
        pod: &PodInfo,
        node: &str,
        victims: &[PodInfo],
        assumed: &mut Vec<Assumed>,
    ) -> Result<String, End> {
        let victims = victims.iter().filter_map(|victim| self.cache.lift(victim.uid())).collect();
        self.cache.assume(pod.clone(), node);
        let nominated = self.nominated.node_of(pod.uid()).map(str::to_owned);
        self.nominated.remove(pod.uid());
        let (mut carried, mut times) = (State::default(), Times::default());
        times.begin(sampled());
        let answer = self.ask(pod, node, &mut carried, &mut times);
        self.metrics.took(scheduler_of(pod), &times);
        let this = Assumed { pod: pod.clone(), node: node.to_owned(), carried, victims, nominated };
        match answer {
            Ok(permits) => {
                assumed.push(this);
                let gang = permits.waits.contains_key(gang_scheduling::NAME);
                let reasons = [gang_scheduling::WAITS, PERMIT];
                let from = usize::from(!gang);
                Ok(if permits.waits.is_empty() { String::new() } else { reasons[from..].join(", ") })
            }
            Err(failure) => {
                self.undo(this);
                Err(match failure {
                    Failure::Refused(rejection) if rejection.failed => {
                        End::Error(rejection.reasons.join(", "))
                    }
                    Failure::Refused(rejection) => End::Refused(Box::new(one(rejection)), Help::Clear),
                    Failure::Failed { why, .. } => End::Error(why),
                })
            }
        }
    }

    /// Takes all that back.
    fn undo(&mut self, Assumed { pod, node, mut carried, victims, nominated }: Assumed) {
        if let Some(profile) = self.profiles.get(scheduler_of(&pod)) {
            self.give_back(profile, &pod, &node, &mut carried);
        }
        self.cache.forget(pod.uid());
        for victim in victims {
            self.cache.put_back(victim);
        }
        if let Some(node) = nominated {
            self.nominated.set(pod, &node);
        }
    }
}

/// The error of a Pod that the plugins do not want on the node that was chosen.
fn one(rejection: Rejection) -> FitError {
    let mut verdicts = Verdicts::all(1);
    verdicts.set(0, Err(rejection));
    FitError { nodes: 1, verdicts, ..FitError::default() }
}
