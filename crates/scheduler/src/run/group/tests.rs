use std::sync::Arc;

use serde_json::json;

use super::placements::scores;
use super::*;
use crate::cache::Cache;
use crate::config::document::Profile as Document;
use crate::framework::placement::{Assignments, GroupCycle, Placement};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::PlacementScore;
use crate::framework::profile::Profile;
use crate::framework::state::State;
use crate::framework::times::{Point, Times};

/// The part of a Pod in upstream's table.
#[derive(Clone, Copy)]
enum Part {
    /// It fits; the plugins permit it, or want to wait.
    Fits(bool),
    /// It fits if others go; the plugins permit it then, or want to wait.
    Room(bool),
    Refused,
    Error(&'static str),
}

impl Part {
    fn end(self) -> End {
        let waits = |permitted: bool| if permitted { String::new() } else { "waits".to_owned() };
        match self {
            Self::Fits(permitted) => End::Node { node: "node1".into(), waits: waits(permitted) },
            Self::Room(permitted) => End::Room {
                error: Box::default(),
                candidate: Candidate { node: "node1".into(), victims: Vec::new(), violations: 0 },
                waits: waits(permitted),
            },
            Self::Refused => End::Refused(Box::default(), Help::Clear),
            Self::Error(why) => End::Error(why.into()),
        }
    }
}

fn refused(why: &str, waits: bool) -> Outcome {
    Outcome::Refused { why: why.into(), waits, lasting: false }
}

/// `fates` has a letter for each of three Pods: bound, preempting or failed.
fn check(outcome: &Outcome, parts: &[Part], fates: &str, condition: [&str; 3]) {
    let mut ends = parts.iter().map(|part| part.end());
    let got: String = (0..3)
        .map(|_| match Fate::of(outcome, ends.next()) {
            Fate::Bound(node) if node == "node1" => 'b',
            Fate::Failed(_, Help::Room(_)) => 'p',
            Fate::HeldBack(_, Nominate::Node(node)) if !node.is_empty() => 'p',
            _ => 'f',
        })
        .collect();
    assert_eq!((got.as_str(), outcome.condition()), (fates, condition), "{outcome:?}");
}

/// The first 13 cases of upstream's `TestSubmitPodGroupAlgorithmResult`; in the others a group was scheduled before.
#[test]
fn upstreams_results() {
    use Part::{Error, Fits, Refused, Room};
    let scheduled = ["True", "Scheduled", ""];
    let unschedulable = |why| ["False", "Unschedulable", why];
    let all = Outcome::Scheduled;
    check(&all, &[Fits(true); 3], "bbb", scheduled);
    let why = "not enough capacity for the gang";
    check(&refused(why, false), &[Fits(false); 3], "fff", unschedulable(why));
    check(&all, &[Fits(true), Fits(true), Fits(false)], "bbb", scheduled);
    check(&all, &[Fits(false), Refused, Fits(true)], "bfb", scheduled);
    let why = "waiting for preemption to complete";
    check(&refused(why, true), &[Room(true); 3], "ppp", unschedulable(why));
    check(&refused("not feasible", false), &[Room(false); 3], "fff", unschedulable("not feasible"));
    check(&refused(why, true), &[Room(false), Fits(false), Fits(true)], "ppp", unschedulable(why));
    check(&refused(why, true), &[Room(true), Refused, Fits(true)], "pfp", unschedulable(why));
    let why = "0/3 nodes are available: insufficient cpu";
    check(&refused(why, false), &[Refused; 3], "fff", unschedulable(why));
    check(&refused("node affinity mismatch", false), &[], "fff", unschedulable("node affinity mismatch"));
    let why = "plugin returned error";
    let error = |why: &str| Outcome::Error(why.into());
    check(&error(why), &[Fits(true), Error(why)], "fff", ["False", "SchedulerError", why]);
    let why = "internal failure";
    check(&error(why), &[Room(true), Error(why)], "fff", ["False", "SchedulerError", why]);
}

/// The Pods of a group and the group itself say why they wait, in upstream's words.
#[test]
fn reasons() {
    let held = |outcome: &Outcome, end: Option<End>| match Fate::of(outcome, end) {
        Fate::HeldBack(why, nominate) => (why, nominate),
        other => panic!("another fate: {other:?}"),
    };
    let [none, node] = ["", "node1"].map(|node| Nominate::Node(node.into()));
    let outcome = Outcome::of(&[Part::Fits(false).end(), Part::Refused.end()]);
    assert_eq!(outcome, refused("pod group is unschedulable", false));
    let why = "pod group is unschedulable, waits".to_owned();
    assert_eq!(held(&outcome, Some(Part::Fits(false).end())), (why.clone(), none.clone()));
    assert_eq!(held(&outcome, Some(Part::Room(false).end())), (why, none));
    let why = "pod group is unschedulable, pod group is waiting for preemption to complete";
    let outcome = Outcome::of(&[Part::Room(false).end(), Part::Fits(true).end()]);
    assert_eq!(outcome, refused(why, true));
    assert_eq!(held(&outcome, Some(Part::Fits(true).end())), (why.to_owned(), node));
    assert_eq!(held(&outcome, None), (why.to_owned(), Nominate::Keep));
    let outcome = Outcome::of(&[Part::Fits(true).end(), Part::Error("x").end()]);
    assert_eq!(outcome, Outcome::Error("failed to schedule other pod from a pod group: x".into()));
    assert_eq!(Outcome::of(&[Part::Fits(true).end(), Part::Refused.end()]), Outcome::Scheduled);
}

/// The answers of preemption for the whole group (upstream's `podGroupCycle`).
#[test]
fn room_for_a_group() {
    let before = || refused("pod group is unschedulable", false);
    assert_eq!(before().after(Ok(())), refused("pod group is unschedulable", true));
    let more = "pod group is unschedulable, not enough resources";
    assert_eq!(before().after(Err(Fit::No("not enough resources".into()))), refused(more, false));
    assert_eq!(before().after(Err(Fit::Error("x".into()))), Outcome::Error("x".into()));
    let names = [Outcome::Scheduled, refused("", true), refused("", false), Outcome::Error(String::new())];
    let expected = ["scheduled", "waiting_on_preemption", "unschedulable", "error"];
    assert_eq!(names.each_ref().map(Outcome::name), expected);
    let lasting = Outcome::rejected(&Rejection::lasting("P", "never"));
    assert_eq!(lasting, Outcome::Refused { why: "never".into(), waits: false, lasting: true });
    assert_eq!(Outcome::rejected(&Rejection::failure("P", "x")), Outcome::Error("x".into()));
}

/// A plugin with a score for each placement, or an error.
struct Fixed(Vec<(&'static str, Result<i64, &'static str>)>);

impl PlacementScore for Fixed {
    fn score(&self, _cycle: &GroupCycle<'_>, of: &Assignments<'_>) -> Result<i64, String> {
        let found = self.0.iter().find(|(name, _)| *name == of.placement.name);
        found.map_or(Ok(0), |(_, score)| score.map_err(str::to_owned))
    }
}

/// The sums of two plugins' scores, with the weights 1 and 2.
fn scored(of: [Fixed; 2]) -> Result<Vec<i64>, String> {
    let mut registry = crate::plugins::registry().unwrap();
    for (name, fixed) in ["FakeScorePlugin[0]", "FakeScorePlugin[1]"].into_iter().zip(of) {
        let plugin = Arc::new(fixed);
        let make = move |_: &_| {
            let points = Points { placement_score: Some(plugin.clone()), ..Points::default() };
            Ok(Plugin::new(name, points))
        };
        registry.add(name, make).unwrap();
    }
    let weighted =
        json!([{"name": "FakeScorePlugin[0]", "weight": 1}, {"name": "FakeScorePlugin[1]", "weight": 2}]);
    let config = json!({"plugins": {
        "queueSort": {"enabled": [{"name": "PrioritySort"}]}, "bind": {"enabled": [{"name": "DefaultBinder"}]},
        "placementScore": {"enabled": weighted},
    }});
    let config: Document = serde_json::from_value(config).unwrap();
    let profile = Profile::new(&config, 0, &registry).unwrap();
    let cluster = Cache::default();
    let cycle = GroupCycle { pods: &[], group: None, cluster: &cluster, state: State::default() };
    let placements =
        ["placement1", "placement2"].map(|name| Placement { name: name.into(), nodes: Vec::new() });
    let assigned = placements.each_ref().map(|placement| Assignments { placement, proposed: &[] });
    let mut times = Times::default();
    times.begin(true);
    let scores = scores(&profile, &cycle, &assigned, &mut times);
    assert!(times.plugins().iter().all(|(_, point, ..)| *point == Point::PlacementScore));
    scores
}

/// The two cases of upstream's `TestPodGroupSchedulingPlacementAlgorithm_Scoring`, and its plugin that fails.
#[test]
fn upstreams_scores() {
    let fixed = |one, two| Fixed(vec![("placement1", Ok(one)), ("placement2", Ok(two))]);
    assert_eq!(scored([fixed(50, 75), fixed(25, 10)]), Ok(vec![100, 95]));
    assert_eq!(scored([fixed(75, 50), fixed(10, 25)]), Ok(vec![95, 100]));
    let failing = Fixed(vec![("placement1", Ok(1)), ("placement2", Err("error for test"))]);
    assert_eq!(
        scored([failing, fixed(0, 0)]).unwrap_err(),
        "running PlacementScore plugins: plugin \"FakeScorePlugin[0]\" failed with: error for test"
    );
    assert_eq!(
        scored([fixed(0, 101), fixed(0, 0)]).unwrap_err(),
        "applying score defaultWeights on PlacementScore plugins: plugin \"FakeScorePlugin[0]\" returns an invalid score 101, it should in the range of [0, 100] after normalizing"
    );
}
