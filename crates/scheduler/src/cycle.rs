//! One Pod's turn: filter, score, choose; if nothing fits, say what can be done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::cache::{Cache, NodeInfo};
use crate::extender::{Interrupted, Question, Talk};
use crate::framework::placement::Within;
use crate::framework::points::{
    Candidate, Consent, Cycle, Dissent, Errand, Failed, Move, PostFiltered, Prefiltered, Simulation,
};
use crate::framework::profile::Profile;
use crate::framework::times::{Code, Point};
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::kept::{Keeper, Kept};
use crate::nominated::Nominated;
use crate::pod::PodInfo;

/// Why no node can take a Pod.
#[derive(Debug, Clone, Default)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: usize,
    /// The refusal that came before any node was looked at.
    pub stopped: Option<Rejection>,
    /// Each node's refusal.
    pub verdicts: Verdicts,
    /// The answers of the PostFilter plugins.
    pub post_filter: String,
    /// This is what they want to be written.
    pub errands: Vec<Errand>,
}

impl FitError {
    /// The plugins that refused, each once.
    pub fn plugins(&self) -> BTreeSet<&'static str> {
        self.verdicts.counts().map(|(r, _)| r).chain(&self.stopped).map(|r| r.plugin).collect()
    }
}

impl std::fmt::Display for FitError {
    /// Upstream's sentence: the count of nodes, then each reason with its count, sorted as text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if let Some(stopped) = &self.stopped {
            write!(f, " {}.", stopped.reasons.join(", "))?;
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        for (rejection, n) in self.verdicts.counts() {
            for reason in &rejection.reasons {
                *counts.entry(reason).or_default() += n;
            }
        }
        let mut parts: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        parts.sort();
        if !parts.is_empty() {
            write!(f, " {}.", parts.join(", "))?;
        }
        if !self.post_filter.is_empty() {
            write!(f, " {}", self.post_filter)?;
        }
        Ok(())
    }
}

/// The decision of a turn.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The Pod goes to this node.
    Node(String),
    /// No node can take it.
    Unschedulable(Box<FitError>, Help),
    /// There is no decision; the Pod is tried again.
    Error(String),
}

/// The help for a Pod that no node can take.
#[derive(Debug, Clone)]
pub enum Help {
    /// Room is made on a node.
    Room(Candidate),
    /// Nothing; the Pod goes on waiting for the node that it waits for.
    Keep,
    /// Nothing; no node is kept for it.
    Clear,
}

/// The surroundings of a decision.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The plugins.
    pub profile: &'a Profile,
    /// The cluster.
    pub cluster: &'a Cache,
    /// The Pods that wait for room.
    pub nominated: &'a Nominated,
    /// The disruption budgets.
    pub budgets: &'a [Arc<PodDisruptionBudget>],
    /// The part that the turn has in that of a group.
    pub part: Part<'a>,
}

/// The part that a Pod's turn has in that of a group; that of a Pod alone is the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part<'a> {
    /// The nodes that are looked at; all, if it does not say.
    pub within: Option<&'a Within>,
    /// Nothing is to be found out about a Pod that no node can take.
    pub only_looks: bool,
}

/// The end of a try of a turn.
#[derive(Debug)]
pub enum Step {
    /// It is decided.
    Decided(Decision),
    /// An extender has to be asked; then the turn is taken again.
    Ask(Question),
}

/// Decides about a Pod where no extender has a say. `keeper` has what is known of Pods that are alike; `pick` breaks ties
/// among `n` equals.
pub fn decide(
    pod: &PodInfo,
    around: Around<'_>,
    keeper: &mut Keeper,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Decision {
    match decide_with(pod, around, &Talk::default(), keeper, pick) {
        Step::Decided(decision) => decision,
        Step::Ask(_) => Decision::Error("there is no extender to be asked".to_owned()),
    }
}

/// Decides about a Pod by what extenders have said.
pub fn decide_with(
    pod: &PodInfo,
    around: Around<'_>,
    talk: &Talk,
    keeper: &mut Keeper,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Step {
    if around.cluster.nodes().is_empty() || around.part.within.is_some_and(|w| w.count() == 0) {
        return Step::Decided(Decision::Unschedulable(Box::default(), Help::Keep));
    }
    let place = keeper.place();
    // Taken out, so that a plugin that panics leaves nothing half done behind.
    let (mut kept, mut cycle) = keeper.begin(pod, around.profile, around.cluster);
    let turn = Turn {
        around,
        talk,
        skipped: BTreeSet::new(),
        filters: (0..around.profile.filter.len()).collect(),
        counting: (0..around.profile.pre_filter.len()).collect(),
    };
    let step = match turn.take(&mut cycle, &mut kept, keeper, pick) {
        Ok(decision) => Step::Decided(decision),
        Err(Interrupted::Failed(why)) => Step::Decided(Decision::Error(why)),
        Err(Interrupted::Ask(question)) => {
            // The next try looks at the same nodes.
            keeper.set_place(place);
            Step::Ask(question)
        }
    };
    for at in around.profile.pre_filter.iter().filter(|at| !at.plugin.keeps(pod)) {
        at.plugin.forget(&mut cycle.state);
    }
    keeper.end(cycle, kept);
    step
}

/// A turn under way: the filters that have nothing to say are known.
struct Turn<'a> {
    around: Around<'a>,
    talk: &'a Talk,
    skipped: BTreeSet<&'static str>,
    /// The places of the Filter plugins that are not skipped, and of such PreFilter plugins.
    filters: Vec<usize>,
    counting: Vec<usize>,
}

/// The only nodes that are to be looked at, and the plugins that say so.
struct Only {
    plugins: Vec<&'static str>,
    names: BTreeSet<String>,
}

impl Turn<'_> {
    fn take(
        mut self,
        cycle: &mut Cycle<'_>,
        kept: &mut Kept,
        keeper: &mut Keeper,
        pick: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Decision, Interrupted> {
        let (pod, cluster) = (cycle.pod, cycle.cluster);
        let within = self.around.part.within;
        let nodes = within.map_or(cluster.nodes().len(), Within::count);
        let mut error = FitError { nodes, ..FitError::default() };
        let only = self.pre_filter(cycle, kept);
        kept.times.ended(Point::PreFilter, only.as_ref().map_or_else(Code::of_stop, |_| Code::Success));
        let only = match only {
            Ok(only) => only,
            Err(Stop::Error(why)) => return Ok(Decision::Error(why)),
            Err(Stop::Rejected(rejection)) => {
                error.stopped = Some(rejection);
                return self.help(cycle, kept, error);
            }
        };
        // The node where room was made for it is likely the only one.
        if let Some(node) = self.around.nominated.node_of(pod.uid()).and_then(|n| cluster.node(n))
            && only.as_ref().is_none_or(|o| o.names.contains(node.name()))
            && within.is_none_or(|w| w.contains(node.index))
            && {
                let fits = self.fits(cycle, node);
                kept.times.ended(Point::Filter, Code::Success);
                fits.is_ok()
            }
            && !self.talk.filter(pod, cluster, vec![node.index], &mut Verdicts::default())?.is_empty()
        {
            return Ok(Decision::Node(node.name().to_owned()));
        }
        kept.times.pass();
        let mut verdicts = self.filter(cycle, kept, only.as_ref());
        let failed = verdicts.failure();
        kept.times.ended(Point::Filter, failed.map_or(Code::Success, Code::of));
        if let Some(failed) = failed {
            let why = failed.reasons.join(", ");
            return Ok(Decision::Error(format!("running {:?} filter plugin: {why}", failed.plugin)));
        }
        let feasible = keeper.enough(&verdicts, self.around.profile.percentage);
        let feasible = self.talk.filter(pod, cluster, feasible, &mut verdicts)?;
        let chosen = match feasible.as_slice() {
            [] => {
                error.verdicts = verdicts;
                return self.help(cycle, kept, error);
            }
            [only] => *only,
            many => match kept.score(cycle, self.around.profile, many) {
                Ok(mut scores) => {
                    self.talk.prioritize(pod, cluster, many, &mut scores)?;
                    many[best(&scores, pick)]
                }
                Err(why) => return Ok(Decision::Error(why)),
            },
        };
        Ok(Decision::Node(cluster.nodes()[chosen].name().to_owned()))
    }

    /// Asks the PreFilter plugins.
    fn pre_filter(&mut self, cycle: &mut Cycle<'_>, kept: &mut Kept) -> Result<Option<Only>, Stop> {
        let mut only: Option<Only> = None;
        for (i, at) in self.around.profile.pre_filter.iter().enumerate() {
            let answer = kept.pre_filter(i, cycle, at).map_err(|stop| match stop {
                Stop::Error(e) => Stop::Error(format!("running PreFilter plugin {:?}: {e}", at.name)),
                rejected @ Stop::Rejected(_) => rejected,
            })?;
            match answer {
                Prefiltered::All => {}
                Prefiltered::Skip => {
                    self.skipped.insert(at.name);
                    let profile = self.around.profile;
                    self.filters.retain(|i| profile.filter[*i].name != at.name);
                    self.counting.retain(|i| profile.pre_filter[*i].name != at.name);
                }
                Prefiltered::Only(names) => {
                    let before = only.take();
                    let names = before.as_ref().map_or(names.clone(), |b| &b.names & &names);
                    let mut plugins = before.map(|b| b.plugins).unwrap_or_default();
                    plugins.push(at.name);
                    if names.is_empty() {
                        let plugins = plugins.join(" ");
                        let why = format!("node(s) didn't satisfy plugin(s) [{plugins}] simultaneously");
                        return Err(Stop::rejected(at.name, why));
                    }
                    only = Some(Only { plugins, names });
                }
            }
        }
        Ok(only)
    }

    /// The verdicts on all nodes.
    fn filter(&self, cycle: &mut Cycle<'_>, kept: &mut Kept, only: Option<&Only>) -> Verdicts {
        let nodes = cycle.cluster.nodes();
        let mut verdicts = Verdicts::all(nodes.len());
        if let Some(within) = self.around.part.within {
            verdicts.look_only(within);
        }
        if let Some(Only { plugins, names }) = only {
            let named: BTreeSet<usize> =
                names.iter().filter_map(|n| cycle.cluster.node(n)).map(|n| n.index).collect();
            let why = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
            let plugin = plugins.first().copied().unwrap_or_default();
            verdicts.refuse_unless(&Rejection::lasting(plugin, why), |i| named.contains(&i));
        }
        let excluded: Vec<usize> = match only {
            Some(_) => (0..nodes.len()).filter(|i| !verdicts.fits(*i)).collect(),
            None => Vec::new(),
        };
        kept.filter(cycle, self.around.profile, &self.skipped, &mut verdicts);
        for name in self.around.nominated.nodes() {
            if let Some(node) = cycle.cluster.node(name)
                && self.around.part.within.is_none_or(|w| w.contains(node.index))
                && excluded.binary_search(&node.index).is_err()
                && self.rivals(cycle.pod, node).next().is_some()
            {
                let verdict = self.fits(cycle, node);
                verdicts.set(node.index, verdict);
            }
        }
        verdicts
    }

    /// The Pods that wait for a node and are not less important.
    fn rivals<'n>(&'n self, pod: &'n PodInfo, node: &'n NodeInfo) -> impl Iterator<Item = &'n PodInfo> {
        let waiting = self.around.nominated.on(node.name());
        waiting.filter(move |p| {
            p.uid() != pod.uid() && p.priority() >= pod.priority() && !node.pods.contains_key(p.uid())
        })
    }

    fn one(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let mut asked = self.filters.iter().filter_map(|i| self.around.profile.filter.get(*i));
        asked.try_for_each(|at| at.plugin.filter(cycle, node))
    }

    /// Asks the PostFilter plugins, until one can help.
    fn help(&self, cycle: &mut Cycle<'_>, kept: &mut Kept, error: FitError) -> Result<Decision, Interrupted> {
        if self.around.profile.post_filter.is_empty() || self.around.part.only_looks {
            return Ok(Decision::Unschedulable(Box::new(error), Help::Keep));
        }
        kept.times.pass();
        let decision = self.post_filter(cycle, kept, error);
        let code = match &decision {
            Ok(Decision::Unschedulable(_, Help::Room(_))) => Code::Success,
            Ok(Decision::Error(_)) | Err(Interrupted::Failed(_)) => Code::Error,
            _ => Code::Unschedulable,
        };
        kept.times.ended(Point::PostFilter, code);
        decision
    }

    fn post_filter(
        &self,
        cycle: &mut Cycle<'_>,
        kept: &mut Kept,
        mut error: FitError,
    ) -> Result<Decision, Interrupted> {
        let mut help = Help::Keep;
        let mut said = Vec::new();
        for at in &self.around.profile.post_filter {
            let failed = Failed {
                stopped: error.stopped.as_ref(),
                verdicts: &error.verdicts,
                simulation: self,
                nominated: self.around.nominated,
                budgets: self.around.budgets,
                consent: self,
            };
            let ask = || at.plugin.post_filter(cycle, &failed);
            match kept.times.plugin(Point::PostFilter, at.name, post_filtered, ask) {
                PostFiltered::Room(candidate) => {
                    return Ok(Decision::Unschedulable(Box::new(error), Help::Room(candidate)));
                }
                PostFiltered::Asks(candidates) => {
                    return match self.talk.preempt(cycle.pod, candidates) {
                        Err(interrupted) => Err(interrupted),
                        Ok(_) => Ok(Decision::Error(format!("{} asks what is known", at.name))),
                    };
                }
                PostFiltered::Clear(why) => {
                    help = Help::Clear;
                    said.push(why);
                }
                PostFiltered::Keep(why) | PostFiltered::Other(why) => said.push(why),
                PostFiltered::Does(errand, why) => {
                    error.errands.push(errand);
                    said.push(why);
                }
            }
        }
        error.post_filter = said.join(", ");
        Ok(Decision::Unschedulable(Box::new(error), help))
    }
}

impl Consent for Turn<'_> {
    fn candidates(&self) -> Option<&[Candidate]> {
        self.talk.candidates()
    }
    fn agreed(&self, pod: &PodInfo, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Dissent> {
        // The question is about those with which it began.
        let all = candidates.clone();
        self.talk.preempt(pod, candidates).map_err(|interrupted| match interrupted {
            Interrupted::Ask(_) => Dissent::Asks(all),
            Interrupted::Failed(why) => Dissent::Failed(why),
        })
    }
}

impl Simulation for Turn<'_> {
    /// Filters with the preemptors that wait for this node counted in, if they are as important, and then without
    /// them, since they may end up elsewhere (upstream's `RunFilterPluginsWithNominatedPods`).
    fn fits(&self, cycle: &mut Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let waiting: Vec<&PodInfo> = self.rivals(cycle.pod, node).collect();
        if !waiting.is_empty() {
            let mut with = node.clone();
            for other in &waiting {
                with.add((*other).clone());
                self.count(cycle, Move { other, node, by: 1 });
            }
            let result = self.one(cycle, &with);
            for other in &waiting {
                self.count(cycle, Move { other, node, by: -1 });
            }
            result?;
        }
        self.one(cycle, node)
    }

    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>) {
        let asked = self.counting.iter().filter_map(|i| self.around.profile.pre_filter.get(*i));
        asked.for_each(|at| at.plugin.count(cycle, change));
    }
}

/// The code of the answer of a PostFilter plugin.
fn post_filtered(answer: &PostFiltered) -> Code {
    if matches!(answer, PostFiltered::Room(_)) { Code::Success } else { Code::Unschedulable }
}

/// The index of one of the best scores.
fn best(scores: &[i64], pick: &mut dyn FnMut(usize) -> usize) -> usize {
    let (mut most, mut ties) = (i64::MIN, 0);
    for score in scores {
        if *score > most {
            (most, ties) = (*score, 1);
        } else if *score == most {
            ties += 1;
        }
    }
    let nth = pick(ties).min(ties.saturating_sub(1));
    scores.iter().enumerate().filter(|(_, s)| **s == most).nth(nth).map_or(0, |(i, _)| i)
}
