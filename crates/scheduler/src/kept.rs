//! Knowledge of Pods that are alike: the notes, verdicts and scores of earlier turns.
//!
//! Most Pods of a cluster come in hundreds that differ in nothing but their names. The first of them costs a look at
//! every node; each further one costs a look at the nodes that have changed since, and a walk over columns of numbers.

use std::collections::{BTreeSet, HashMap};

use objects::Selector;

use crate::cache::Cache;
use crate::framework::points::{Cycle, MAX_SCORE, Move, PreFilter, Prefiltered, Score};
use crate::framework::profile::{At, Profile};
use crate::framework::state::State;
use crate::framework::times::{Code, Point, Times, sampled};
use crate::framework::verdict::{Stop, Verdicts};
use crate::pod::PodInfo;

/// How many sorts of Pods are remembered; each takes some 20 bytes a node.
const SORTS: usize = 32;

/// The knowledge of each sort of Pods, for one profile.
#[derive(Debug, Default)]
pub struct Keeper {
    sorts: HashMap<Box<str>, Kept>,
    turns: u64,
    /// Where the next turn begins to look, if not all nodes are looked at, so that all are used evenly.
    start: usize,
    times: Times,
}

/// The knowledge of one sort.
#[derive(Debug, Default)]
pub struct Kept {
    epoch: u64,
    /// The version of the Pod's namespace of [`Owners`](crate::owners::Owners), and the selectors there.
    owners: (u64, Vec<Selector>),
    told: u64,
    used: u64,
    state: State,
    /// By PreFilter plugin.
    answers: Vec<Option<Prefiltered>>,
    /// One for each run of Filter plugins whose verdicts are kept.
    verdicts: Vec<Verdicts>,
    /// Whether there are notes, by PreScore plugin.
    noted: Vec<bool>,
    /// By Score plugin, for each node: the scores that are not in the sum, before they are normalized.
    scores: Vec<Option<Vec<i64>>>,
    sum: Option<Sum>,
    /// By Score plugin, whether a score was out of range for some node. It is an error only if that node is feasible.
    wild: Vec<bool>,
    /// The time that this turn takes; nothing of it is kept.
    pub times: Times,
}

/// The weighted sum of the scores that need no normalizing: a change of a node changes it for this node alone.
#[derive(Debug)]
struct Sum {
    /// The places of the Score plugins.
    of: Vec<usize>,
    /// For each node.
    nodes: Vec<i64>,
}

impl Sum {
    /// The sum for one node; `None` if a plugin fails or its score is out of range.
    fn of_node(&self, cycle: &Cycle<'_>, profile: &Profile, node: usize) -> Option<i64> {
        let node = &cycle.cluster.nodes()[node];
        self.of.iter().try_fold(0, |sum, i| {
            let at = &profile.score[*i];
            let score = at.plugin.score(cycle, node).ok().filter(in_range)?;
            Some(sum + at.weight * score)
        })
    }
}

fn in_range(score: &i64) -> bool {
    (0..=MAX_SCORE).contains(score)
}

/// The entries of a column for some nodes.
fn entries(column: &[i64], nodes: &[usize]) -> Vec<i64> {
    // Mostly it is all of them, in their order; an extender may have named them in another one.
    if nodes.iter().copied().eq(0..column.len()) {
        return column.to_vec();
    }
    nodes.iter().map(|i| column[*i]).collect()
}

impl Keeper {
    /// Begins a turn with what is known.
    pub fn begin<'a>(
        &mut self,
        pod: &'a PodInfo,
        profile: &Profile,
        cluster: &'a Cache,
    ) -> (Kept, Cycle<'a>) {
        self.turns += 1;
        let mut times = std::mem::take(&mut self.times);
        times.begin(sampled());
        let known = pod.sort().and_then(|s| self.sorts.remove(s));
        if let Some(mut kept) =
            known.filter(|k| k.epoch == cluster.epoch()).and_then(|k| k.owned(pod, cluster))
        {
            let mut cycle = Cycle { pod, cluster, state: std::mem::take(&mut kept.state) };
            if kept.catch_up(&mut cycle, profile) {
                times.ended(Point::Filter, Code::Success);
                kept.times = times;
                return (kept, cycle);
            }
        }
        let kept = Kept {
            epoch: cluster.epoch(),
            owners: owners(pod, cluster),
            told: cluster.told(),
            answers: profile.pre_filter.iter().map(|_| None).collect(),
            noted: vec![false; profile.pre_score.len()],
            scores: profile.score.iter().map(|_| None).collect(),
            wild: vec![false; profile.score.len()],
            times,
            ..Kept::default()
        };
        (kept, Cycle { pod, cluster, state: State::default() })
    }

    /// Ends a turn: what is known is kept for the next Pod of the sort.
    pub fn end(&mut self, cycle: Cycle<'_>, mut kept: Kept) {
        self.times = std::mem::take(&mut kept.times);
        let Some(sort) = cycle.pod.sort() else { return };
        if self.sorts.len() >= SORTS
            && let Some(oldest) = self.sorts.iter().min_by_key(|(_, k)| k.used).map(|(s, _)| s.clone())
        {
            self.sorts.remove(&oldest);
        }
        kept.used = self.turns;
        kept.state = cycle.state;
        self.sorts.insert(sort.into(), kept);
    }

    /// The time that the last turn took.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Where the next turn begins to look.
    pub fn place(&self) -> usize {
        self.start
    }
    /// Begins to look there next.
    pub fn set_place(&mut self, start: usize) {
        self.start = start;
    }

    /// The nodes that fit, or enough of them.
    pub fn enough(&mut self, verdicts: &Verdicts, percentage: i32) -> Vec<usize> {
        let (nodes, wanted) = (verdicts.len(), enough(verdicts.looked_at(), percentage));
        if wanted >= verdicts.looked_at() {
            return verdicts.all_fitting();
        }
        let (mut feasible, mut looked) = (Vec::with_capacity(wanted), 0);
        while looked < nodes && feasible.len() < wanted {
            let node = (self.start + looked) % nodes;
            if verdicts.fits(node) {
                feasible.push(node);
            }
            looked += 1;
        }
        self.start = (self.start + looked) % nodes;
        feasible
    }
}

/// How many nodes that fit are enough, of `nodes` (upstream's `numFeasibleNodesToFind`).
fn enough(nodes: usize, percentage: i32) -> usize {
    const FEWEST: usize = 100;
    match usize::try_from(percentage) {
        Ok(percent @ 1..=99) if nodes >= FEWEST => (nodes * percent / 100).max(FEWEST),
        _ => nodes,
    }
}

/// The version of a Pod's namespace, and the selectors by which its like are told.
fn owners(pod: &PodInfo, cluster: &Cache) -> (u64, Vec<Selector>) {
    (cluster.owners().version(pod.namespace()), cluster.owners().selectors_of(pod))
}

impl Kept {
    /// The same, unless the Pod's like are told by other selectors now.
    fn owned(mut self, pod: &PodInfo, cluster: &Cache) -> Option<Self> {
        if self.owners.0 != cluster.owners().version(pod.namespace()) {
            let now = owners(pod, cluster);
            if now.1 != self.owners.1 {
                return None;
            }
            self.owners = now;
        }
        Some(self)
    }

    /// Takes in the changes since the last turn; `false` if they are not known any more.
    fn catch_up(&mut self, cycle: &mut Cycle<'_>, profile: &Profile) -> bool {
        let cluster = cycle.cluster;
        let Some(changes) = cluster.changes(self.told) else { return false };
        let mut dirty = BTreeSet::new();
        for change in changes {
            dirty.insert(change.node);
            let (Some((other, by)), Some(node)) = (&change.pod, cluster.nodes().get(change.node)) else {
                continue;
            };
            let change = Move { other, node, by: *by };
            for (at, answer) in profile.pre_filter.iter().zip(&self.answers) {
                if answer.is_some() {
                    at.plugin.count(cycle, change);
                }
            }
            for (at, noted) in profile.pre_score.iter().zip(&self.noted) {
                if *noted {
                    at.plugin.count(cycle, change);
                }
            }
        }
        self.told = cluster.told();
        let skipped = self.skipped(profile);
        let runs = runs(profile, cycle.pod);
        for (run, verdicts) in runs.iter().filter(|r| r.2).zip(&mut self.verdicts) {
            let asked = || profile.filter[run.0..run.1].iter().filter(|at| !skipped.contains(at.name));
            for i in &dirty {
                let verdict = asked().try_for_each(|at| at.plugin.filter(cycle, &cluster.nodes()[*i]));
                verdicts.set(*i, verdict);
            }
        }
        for (at, scores) in profile.score.iter().zip(&mut self.scores) {
            let Some(column) = scores else { continue };
            let fresh = dirty.iter().map(|i| at.plugin.score(cycle, &cluster.nodes()[*i]).map(|s| (*i, s)));
            match fresh.collect::<Result<Vec<_>, _>>() {
                Ok(fresh) => fresh.into_iter().for_each(|(i, score)| column[i] = score),
                // It is asked again, and says so, if it comes to that.
                Err(_) => *scores = None,
            }
        }
        if let Some(sum) = &mut self.sum {
            let fresh = dirty.iter().map(|i| sum.of_node(cycle, profile, *i).map(|s| (*i, s)));
            match fresh.collect::<Option<Vec<_>>>() {
                Some(fresh) => fresh.into_iter().for_each(|(i, s)| sum.nodes[i] = s),
                None => self.sum = None,
            }
        }
        true
    }

    fn skipped(&self, profile: &Profile) -> BTreeSet<&'static str> {
        let answers = profile.pre_filter.iter().zip(&self.answers);
        answers.filter(|(_, a)| **a == Some(Prefiltered::Skip)).map(|(at, _)| at.name).collect()
    }

    /// Asks a PreFilter plugin, unless its answer is known.
    pub fn pre_filter(
        &mut self,
        i: usize,
        cycle: &mut Cycle<'_>,
        at: &At<dyn PreFilter>,
    ) -> Result<Prefiltered, Stop> {
        self.times.count(Point::PreFilter, i);
        if let Some(Some(answer)) = self.answers.get(i) {
            return Ok(answer.clone());
        }
        let plugin = &at.plugin;
        let answer =
            self.times.plugin(Point::PreFilter, at.name, prefiltered, || plugin.pre_filter(cycle))?;
        if plugin.keeps(cycle.pod)
            && let Some(place) = self.answers.get_mut(i)
        {
            *place = Some(answer.clone());
        }
        Ok(answer)
    }

    /// Asks the Filter plugins about all nodes that nobody has refused.
    pub fn filter(
        &mut self,
        cycle: &Cycle<'_>,
        profile: &Profile,
        skipped: &BTreeSet<&'static str>,
        verdicts: &mut Verdicts,
    ) {
        let mut known = 0;
        for (from, to, keeps) in runs(profile, cycle.pod) {
            let run = profile.filter.iter().enumerate().take(to).skip(from);
            let asked = run.filter(|(_, at)| !skipped.contains(at.name));
            let ask = |verdicts: &mut Verdicts, times: &mut Times| {
                for (i, at) in asked.clone() {
                    times.count(Point::Filter, i);
                    let ask = || at.plugin.filter_all(cycle, verdicts);
                    times.plugin(Point::Filter, at.name, |()| Code::Success, ask);
                }
            };
            if !keeps {
                ask(verdicts, &mut self.times);
                continue;
            }
            if self.verdicts.len() == known {
                let mut fresh = Verdicts::all(cycle.cluster.nodes().len());
                ask(&mut fresh, &mut self.times);
                self.verdicts.push(fresh);
            } else {
                asked.for_each(|(i, _)| self.times.count(Point::Filter, i));
            }
            verdicts.take_in(&self.verdicts[known]);
            known += 1;
        }
    }

    /// The weighted sum of every score, for each of the feasible nodes. An error is one of the Pod: it is tried again.
    pub fn score(
        &mut self,
        cycle: &mut Cycle<'_>,
        profile: &Profile,
        feasible: &[usize],
    ) -> Result<Vec<i64>, String> {
        let mut skipped = BTreeSet::new();
        let times = &mut self.times;
        times.pass();
        for (i, (at, noted)) in profile.pre_score.iter().zip(&mut self.noted).enumerate() {
            times.count(Point::PreScore, i);
            let ask = || at.plugin.pre_score(cycle, feasible, *noted);
            let asked = times.plugin(Point::PreScore, at.name, prescored, ask).map_err(|e| {
                times.ended(Point::PreScore, Code::Error);
                format!("running PreScore plugin {:?}: {e}", at.name)
            })?;
            if !asked {
                skipped.insert(at.name);
            }
            *noted = at.plugin.keeps(cycle.pod);
        }
        times.ended(Point::PreScore, Code::Success);
        let total = self.scored(cycle, profile, feasible, &skipped);
        self.times.ended(Point::Score, Code::of_try(&total));
        total
    }

    /// The weighted sum of the scores that are not skipped.
    fn scored(
        &mut self,
        cycle: &Cycle<'_>,
        profile: &Profile,
        feasible: &[usize],
        skipped: &BTreeSet<&'static str>,
    ) -> Result<Vec<i64>, String> {
        self.sum_up(cycle, profile, skipped)?;
        let Self { times, scores, sum: Some(sum), .. } = self else { return Ok(vec![0; feasible.len()]) };
        let mut total = entries(&sum.nodes, feasible);
        for (i, (at, column)) in profile.score.iter().zip(scores).enumerate() {
            if skipped.contains(at.name) {
                continue;
            }
            times.count(Point::Score, i);
            if sum.of.contains(&i) {
                continue;
            }
            let mut scores = if at.plugin.keeps(cycle.pod) {
                let known = if let Some(known) = column {
                    known
                } else {
                    column.insert(ask(times, cycle, at, &all_nodes(cycle))?)
                };
                entries(known, feasible)
            } else {
                ask(times, cycle, at, feasible)?
            };
            let normalize = || at.plugin.normalize(cycle, feasible, &mut scores);
            times.plugin(Point::ScoreExtensionNormalize, at.name, |()| Code::Success, normalize);
            if let Some(wrong) = scores.iter().find(|s| !in_range(s)) {
                return Err(format!(
                    "applying score defaultWeights on Score plugins: plugin {:?} returns an invalid score {wrong}, it should in the range of [0, {MAX_SCORE}] after normalizing",
                    at.name
                ));
            }
            for (t, s) in total.iter_mut().zip(scores) {
                *t += at.weight * s;
            }
        }
        Ok(total)
    }

    /// Makes the sum, unless it is known: of the plugins that are not skipped, whose scores are kept and need no
    /// normalizing.
    fn sum_up(
        &mut self,
        cycle: &Cycle<'_>,
        profile: &Profile,
        skipped: &BTreeSet<&'static str>,
    ) -> Result<(), String> {
        let can = |at: &At<dyn Score>| {
            !skipped.contains(at.name) && at.plugin.keeps(cycle.pod) && !at.plugin.normalizes(cycle.pod)
        };
        let at = profile.score.iter().zip(&self.wild).enumerate();
        let of: Vec<usize> = at.filter(|(_, (at, wild))| !**wild && can(at)).map(|(i, _)| i).collect();
        if self.sum.as_ref().is_some_and(|sum| sum.of == of) {
            return Ok(());
        }
        let all = all_nodes(cycle);
        let mut sum = Sum { of: Vec::with_capacity(of.len()), nodes: vec![0; all.len()] };
        for i in of {
            let at = &profile.score[i];
            let scores = ask(&mut self.times, cycle, at, &all)?;
            if scores.iter().all(in_range) {
                sum.nodes.iter_mut().zip(scores).for_each(|(sum, s)| *sum += at.weight * s);
                sum.of.push(i);
            } else {
                self.scores[i] = Some(scores);
                self.wild[i] = true;
            }
        }
        self.sum = Some(sum);
        Ok(())
    }
}

fn all_nodes(cycle: &Cycle<'_>) -> Vec<usize> {
    (0..cycle.cluster.nodes().len()).collect()
}

/// Asks a Score plugin about nodes.
fn ask(
    times: &mut Times,
    cycle: &Cycle<'_>,
    at: &At<dyn Score>,
    nodes: &[usize],
) -> Result<Vec<i64>, String> {
    let scores = times.plugin(Point::Score, at.name, Code::of_try, || at.plugin.score_all(cycle, nodes));
    scores.map_err(|e| format!("running Score plugins: plugin {:?} failed with: {e}", at.name))
}

/// The code of the answer of a PreFilter plugin.
fn prefiltered(answer: &Result<Prefiltered, Stop>) -> Code {
    match answer {
        Ok(Prefiltered::Skip) => Code::Skip,
        Ok(_) => Code::Success,
        Err(stop) => Code::of_stop(stop),
    }
}

/// The code of the answer of a PreScore plugin.
fn prescored(answer: &Result<bool, String>) -> Code {
    match answer {
        Ok(true) => Code::Success,
        Ok(false) => Code::Skip,
        Err(_) => Code::Error,
    }
}

/// The Filter plugins in runs: from, to, and whether the verdicts of these are kept.
fn runs(profile: &Profile, pod: &PodInfo) -> Vec<(usize, usize, bool)> {
    let mut runs: Vec<(usize, usize, bool)> = Vec::new();
    for (i, at) in profile.filter.iter().enumerate() {
        let keeps = at.plugin.keeps(pod);
        match runs.last_mut() {
            Some((_, to, k)) if *k == keeps => *to = i + 1,
            _ => runs.push((i, i + 1, keeps)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_unless_configured() {
        for (nodes, percentage, expected) in
            [(10, 0, 10), (99, 10, 99), (5000, 0, 5000), (5000, 100, 5000), (1000, 5, 100), (5000, 30, 1500)]
        {
            assert_eq!(enough(nodes, percentage), expected, "{nodes} nodes, {percentage} %");
        }
    }

    #[test]
    fn entries_follow_the_nodes() {
        let check = |nodes: &[usize], expected: &[i64]| assert_eq!(entries(&[10, 11, 12], nodes), expected);
        check(&[0, 1, 2], &[10, 11, 12]);
        check(&[2, 0, 1], &[12, 10, 11]);
        check(&[1, 1, 1], &[11, 11, 11]);
        check(&[2], &[12]);
        check(&[], &[]);
    }

    #[test]
    fn all_nodes_have_their_turn() {
        let (mut keeper, mut verdicts) = (Keeper::default(), Verdicts::all(300));
        verdicts.set(299, Err(crate::framework::verdict::Rejection::new("P", "no")));
        let first = keeper.enough(&verdicts, 50);
        assert_eq!((first.first(), first.last(), first.len()), (Some(&0), Some(&149), 150));
        let second = keeper.enough(&verdicts, 50);
        assert_eq!((second.first(), second.last(), second.len()), (Some(&150), Some(&0), 150));
    }
}
