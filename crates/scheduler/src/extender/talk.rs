//! The answers of extenders in a turn, and the next question to them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Extender, MAX_PRIORITY, NAME};
use crate::cache::Cache;
use crate::framework::points::{Candidate, MAX_SCORE};
use crate::framework::verdict::{Rejection, Verdicts};
use crate::pod::PodInfo;

/// A question to extenders.
#[derive(Debug, Clone)]
pub enum Question {
    /// Which of these nodes can take the Pod?
    Filter {
        /// The extender's number.
        extender: usize,
        /// The names of the nodes.
        nodes: Vec<String>,
    },
    /// How good are these nodes? All extenders that score are asked.
    Prioritize {
        /// The names of the nodes.
        nodes: Vec<String>,
    },
    /// On which nodes can room be made?
    Preempt {
        /// The extender's number.
        extender: usize,
        /// Where it can be made as far as anybody knows.
        candidates: Vec<Candidate>,
    },
}

/// The answer to a question.
#[derive(Debug, Clone)]
pub enum Answer {
    /// To [`Question::Filter`].
    Filtered(Result<Filtered, String>),
    /// To [`Question::Prioritize`]: the sum of the weighted scores of each node, in the extenders' range.
    Prioritized(BTreeMap<String, i64>),
    /// To [`Question::Preempt`].
    Preempted(Result<Vec<Candidate>, String>),
}

/// The nodes that an extender wants, and why it does not want others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filtered {
    /// The nodes that can take the Pod.
    pub nodes: Vec<String>,
    /// The nodes that cannot.
    pub failed: BTreeMap<String, String>,
    /// Those that could not either if Pods were evicted; they come before those above.
    pub unresolvable: BTreeMap<String, String>,
}

/// Why the turn cannot go on.
#[derive(Debug)]
pub enum Interrupted {
    /// Somebody has to be asked.
    Ask(Question),
    /// An extender that is needed has failed.
    Failed(String),
}

/// The questions and answers of a Pod's turn.
#[derive(Debug, Default)]
pub struct Talk {
    extenders: Arc<[Extender]>,
    filtered: HashMap<(usize, Vec<String>), Result<Filtered, String>>,
    scores: HashMap<Vec<String>, BTreeMap<String, i64>>,
    /// The candidates of the first question about preemption: the next turn finds none anew, since it begins to look
    /// somewhere else.
    candidates: Option<Vec<Candidate>>,
    preempted: HashMap<usize, Result<Vec<Candidate>, String>>,
}

impl Talk {
    /// Nothing is said yet.
    pub fn new(extenders: Arc<[Extender]>) -> Self {
        Self { extenders, ..Self::default() }
    }

    /// The extenders.
    pub fn extenders(&self) -> &[Extender] {
        &self.extenders
    }

    /// Notes an answer.
    pub fn note(&mut self, question: Question, answer: Answer) {
        match (question, answer) {
            (Question::Filter { extender, nodes }, Answer::Filtered(said)) => {
                self.filtered.insert((extender, nodes), said);
            }
            (Question::Prioritize { nodes }, Answer::Prioritized(said)) => {
                self.scores.insert(nodes, said);
            }
            (Question::Preempt { extender, candidates }, Answer::Preempted(said)) => {
                self.candidates.get_or_insert(candidates);
                self.preempted.insert(extender, said);
            }
            // Nobody answers another question than the one that was asked.
            _ => {}
        }
    }

    fn asked(&self, pod: &PodInfo, verb: impl Fn(&Extender) -> bool) -> Vec<(usize, &Extender)> {
        self.extenders.iter().enumerate().filter(|(_, e)| verb(e) && e.concerns(pod)).collect()
    }

    /// The nodes that all extenders want, of those that fit; the verdicts on the others are written down.
    ///
    /// # Errors
    /// If somebody has to be asked, or an extender that is needed has failed.
    pub fn filter(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        mut nodes: Vec<usize>,
        verdicts: &mut Verdicts,
    ) -> Result<Vec<usize>, Interrupted> {
        for (i, extender) in self.asked(pod, |e| !e.config.filter_verb.is_empty()) {
            if nodes.is_empty() {
                break;
            }
            let names: Vec<String> =
                nodes.iter().filter_map(|n| cluster.nodes().get(*n)).map(|n| n.name().to_owned()).collect();
            let said = match self.filtered.get(&(i, names.clone())) {
                None => return Err(Interrupted::Ask(Question::Filter { extender: i, nodes: names })),
                Some(Ok(said)) => said,
                Some(Err(_)) if extender.is_ignorable() => continue,
                Some(Err(why)) => return Err(Interrupted::Failed(why.clone())),
            };
            let wanted: BTreeSet<&str> = said.nodes.iter().map(String::as_str).collect();
            let name = |i: &usize| cluster.nodes().get(*i).map(|n| n.name()).unwrap_or_default();
            for node in nodes.iter().filter(|n| !wanted.contains(name(n))) {
                verdicts.set(*node, Err(said.refusal(name(node))));
            }
            nodes.retain(|n| wanted.contains(name(n)));
        }
        Ok(nodes)
    }

    /// Adds the extenders' scores to those of nodes.
    ///
    /// # Errors
    /// If somebody has to be asked.
    pub fn prioritize(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        nodes: &[usize],
        scores: &mut [i64],
    ) -> Result<(), Interrupted> {
        if self.asked(pod, |e| !e.config.prioritize_verb.is_empty()).is_empty() {
            return Ok(());
        }
        let named = nodes.iter().filter_map(|n| cluster.nodes().get(*n)).map(|n| n.name().to_owned());
        let names: Vec<String> = named.collect();
        let Some(said) = self.scores.get(&names) else {
            return Err(Interrupted::Ask(Question::Prioritize { nodes: names }));
        };
        for (name, score) in names.iter().zip(scores) {
            let more = said.get(name).copied().unwrap_or(0);
            *score = score.saturating_add(more.saturating_mul(MAX_SCORE / MAX_PRIORITY));
        }
        Ok(())
    }

    /// The candidates of an earlier try of this turn.
    pub fn candidates(&self) -> Option<&[Candidate]> {
        self.candidates.as_deref()
    }

    /// The candidates that all extenders with a say in preemption agree to.
    ///
    /// # Errors
    /// If somebody has to be asked, or an extender that is needed has failed.
    pub fn preempt(
        &self,
        pod: &PodInfo,
        mut candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Interrupted> {
        for (i, extender) in self.asked(pod, |e| !e.config.preempt_verb.is_empty()) {
            if candidates.is_empty() {
                break;
            }
            let said = match self.preempted.get(&i) {
                None => return Err(Interrupted::Ask(Question::Preempt { extender: i, candidates })),
                Some(Ok(said)) => said,
                Some(Err(_)) if extender.is_ignorable() => continue,
                Some(Err(why)) => return Err(Interrupted::Failed(why.clone())),
            };
            let without = said.iter().find(|c| c.victims.is_empty());
            if let Some(node) = without.filter(|_| !extender.is_ignorable()).map(|c| api::go::quote(&c.node))
            {
                return Err(Interrupted::Failed(format!("expected at least one victim pod on node {node}")));
            }
            candidates = said.iter().filter(|c| !c.victims.is_empty()).cloned().collect();
        }
        Ok(candidates)
    }
}

impl Filtered {
    /// Why a node is not wanted.
    fn refusal(&self, node: &str) -> Rejection {
        if let Some(why) = self.unresolvable.get(node) {
            return Rejection::lasting(NAME, why.clone());
        }
        match self.failed.get(node) {
            Some(why) => Rejection::new(NAME, why.clone()),
            // It says nothing about the node.
            None => Rejection { plugin: NAME, reasons: Vec::new(), unresolvable: true, failed: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::extenders::Extender as Config;

    fn extenders(all: &[Config]) -> Arc<[Extender]> {
        let with_url = |c: &Config| Config { url_prefix: "http://a".into(), ..c.clone() };
        all.iter().map(|c| Extender::new(&with_url(c)).unwrap()).collect()
    }

    fn cluster() -> Cache {
        let mut cache = Cache::default();
        for name in ["a", "b", "c"] {
            let node = json!({"metadata": {"name": name}});
            cache.set_node(Arc::new(serde_json::from_value(node).unwrap()));
        }
        cache
    }

    fn pod(requests: serde_json::Value) -> PodInfo {
        let containers = json!([{"name": "c", "resources": {"limits": requests}}]);
        let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}});
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    fn filters(ignorable: bool) -> Config {
        Config { filter_verb: "filter".into(), ignorable, ..Config::default() }
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn nodes_are_asked_about_in_turn() {
        let (cluster, pod) = (cluster(), pod(json!({})));
        let mut talk = Talk::new(extenders(&[filters(true), filters(false)]));
        let mut verdicts = Verdicts::all(3);
        let step =
            |talk: &Talk, verdicts: &mut Verdicts| talk.filter(&pod, &cluster, vec![0, 1, 2], verdicts);
        let ask = |said: Result<Vec<usize>, Interrupted>| match said {
            Err(Interrupted::Ask(Question::Filter { extender, nodes })) => (extender, nodes),
            other => panic!("{other:?}"),
        };
        assert_eq!(ask(step(&talk, &mut verdicts)), (0, names(&["a", "b", "c"])));
        let question = |extender: usize, all: &[&str]| Question::Filter { extender, nodes: names(all) };
        let said = |nodes: &[&str], failed: &[(&str, &str)], lasting: &[(&str, &str)]| {
            let map = |all: &[(&str, &str)]| {
                all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
            };
            let said = Filtered { nodes: names(nodes), failed: map(failed), unresolvable: map(lasting) };
            Answer::Filtered(Ok(said))
        };
        talk.note(question(0, &["a", "b", "c"]), Answer::Filtered(Err("down".into())));
        assert_eq!(ask(step(&talk, &mut verdicts)), (1, names(&["a", "b", "c"])), "the first is ignorable");
        let answer = said(&["c"], &[("a", "no"), ("b", "no")], &[("b", "never")]);
        talk.note(question(1, &["a", "b", "c"]), answer);
        assert_eq!(step(&talk, &mut verdicts).unwrap(), [2]);
        assert_eq!(verdicts.of(0), Some(&Rejection::new(NAME, "no")));
        assert_eq!(verdicts.of(1), Some(&Rejection::lasting(NAME, "never")));
        let mut talk = Talk::new(extenders(&[filters(false)]));
        talk.note(question(0, &["a", "b", "c"]), Answer::Filtered(Err("down".into())));
        assert!(matches!(step(&talk, &mut verdicts), Err(Interrupted::Failed(why)) if why == "down"));
    }

    #[test]
    fn scores_are_weighted_and_scaled() {
        let (cluster, pod) = (cluster(), pod(json!({})));
        let scorer = Config { prioritize_verb: "prioritize".into(), weight: 2, ..Config::default() };
        let mut talk = Talk::new(extenders(&[scorer]));
        let mut scores = [5, 6, 7];
        let said = talk.prioritize(&pod, &cluster, &[0, 1, 2], &mut scores);
        let Err(Interrupted::Ask(question)) = said else { panic!("{said:?}") };
        talk.note(question, Answer::Prioritized(BTreeMap::from([("b".to_owned(), 20), ("x".to_owned(), 9)])));
        talk.prioritize(&pod, &cluster, &[0, 1, 2], &mut scores).unwrap();
        assert_eq!(scores, [5, 206, 7]);
    }

    #[test]
    fn who_is_concerned() {
        let managed =
            serde_json::from_value(json!([{"name": "a.com/b", "ignoredByScheduler": true}])).unwrap();
        let all = extenders(&[Config { managed_resources: managed, ..filters(false) }, filters(false)]);
        let concerned = |pod: &PodInfo| all.iter().map(|e| e.concerns(pod)).collect::<Vec<_>>();
        assert_eq!(concerned(&pod(json!({}))), [false, true]);
        assert_eq!(concerned(&pod(json!({"a.com/b": "1"}))), [true, true]);
        assert!(all[0].hidden().eq(["a.com/b"]) && all[1].hidden().next().is_none());
    }

    #[test]
    fn preemption_needs_victims() {
        let pod = pod(json!({}));
        let candidate = |node: &str, victims: usize| Candidate {
            node: node.to_owned(),
            victims: vec![self::pod(json!({})); victims],
            violations: 0,
        };
        let preempts = |ignorable| Config { preempt_verb: "preempt".into(), ignorable, ..Config::default() };
        let check =
            |ignorable: bool, said: Result<Vec<Candidate>, String>, expected: Result<&[&str], &str>| {
                let mut talk = Talk::new(extenders(&[preempts(ignorable)]));
                let all = vec![candidate("a", 1), candidate("b", 1)];
                let asked = talk.preempt(&pod, all.clone());
                let Err(Interrupted::Ask(question)) = asked else { panic!("{asked:?}") };
                talk.note(question, Answer::Preempted(said));
                assert_eq!(talk.candidates().map(<[_]>::len), Some(2));
                match talk.preempt(&pod, all) {
                    Ok(left) => {
                        let left: Vec<&str> = left.iter().map(|c| c.node.as_str()).collect();
                        assert_eq!(Ok(left.as_slice()), expected);
                    }
                    Err(Interrupted::Failed(why)) => assert_eq!(Err(why.as_str()), expected),
                    Err(other) => panic!("{other:?}"),
                }
            };
        check(false, Ok(vec![candidate("b", 1)]), Ok(&["b"]));
        check(false, Ok(vec![candidate("b", 0)]), Err("expected at least one victim pod on node \"b\""));
        check(true, Ok(vec![candidate("b", 0)]), Ok(&[]));
        check(false, Err("down".into()), Err("down"));
        check(true, Err("down".into()), Ok(&["a", "b"]));
    }
}
