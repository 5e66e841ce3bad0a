//! The extension points of v1.36 as traits. A plugin implements those that it needs and lists them in a
//! [`Plugin`](crate::framework::plugin::Plugin).
//!
//! In the order in which a Pod meets them:
//!
//! | point | when | asked |
//! |---|---|---|
//! | [`PreEnqueue`] | before a Pod may wait for its turn | at each change of the Pod |
//! | [`QueueSort`] | while it waits | – |
//! | [`PreFilter`] | at the beginning of its cycle | once |
//! | [`Filter`] | then | for all nodes at once; for one node in simulations |
//! | [`PostFilter`] | if no node fits | once |
//! | [`PreScore`], [`Score`] | if several fit | for all of them at once |
//! | [`Reserve`] | once a node is chosen; taken back if anything later fails | once |
//! | [`Permit`] | then; it may let the Pod wait | once |
//! | [`PreBind`], [`Bind`], [`PostBind`] | in a task of the Pod's own | once |
//!
//! The turn of a group, with the gate TopologyAwareWorkloadScheduling, has two more: [`PlacementGenerate`] at its
//! beginning, and [`PlacementScore`] if the group fits several placements. In between its Pods meet the points above as
//! far as `Permit`, once for each placement, and all of it is taken back.
//!
//! Up to `Reserve` and `Permit`, plugins are called by the one task that owns the cluster's state: they must neither
//! wait nor change anything outside. A plugin that panics there costs its Pod the turn, and nothing else.
//!
//! # Answers that are kept
//! Pods that are alike get like answers. A plugin whose answer is a function of the Pod's
//! [signature](crate::pod::PodView::signature) and of one node says so (`keeps`); it is then asked about a node only
//! after that node has changed. Notes of `PreFilter` and `PreScore` that `keeps` speaks for are kept as well; the plugin
//! hears of every Pod that came or went since (`count`), as it does in the simulations of preemption. Nodes that come,
//! go, or change in anything but what they offer end all that is kept. By default nothing is.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Recorder};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tokio::time::Instant;

use crate::cache::{Cache, NodeInfo};
use crate::framework::place::{Gone, Place};
use crate::framework::placement::{Assignments, GroupCycle, Placement};
use crate::framework::state::State;
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::groups::Groups;
use crate::inventory::Devices;
use crate::nominated::Nominated;
use crate::pod::PodInfo;

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The best score that a plugin may give a node or a placement, after normalization (upstream's `MaxScore`).
pub const MAX_SCORE: i64 = 100;

/// One Pod's turn.
#[derive(Debug)]
pub struct Cycle<'a> {
    /// The Pod.
    pub pod: &'a PodInfo,
    /// The cluster, which does not change during the turn.
    pub cluster: &'a Cache,
    /// The notes of plugins.
    pub state: State,
}

/// A Pod that comes to a node, or leaves it: really, or in a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// The Pod that moves.
    pub other: &'a PodInfo,
    /// The node; in a simulation the cluster still shows it as it was.
    pub node: &'a NodeInfo,
    /// 1 if it comes, -1 if it leaves.
    pub by: i64,
}

/// The things that decide whether a Pod may wait for its turn.
#[derive(Debug, Clone, Default)]
pub struct Prospects {
    /// Claims on devices.
    pub devices: Devices,
    /// PodGroups.
    pub groups: Groups,
}

/// Decides whether a Pod may wait for its turn at all.
pub trait PreEnqueue: Send + Sync {
    /// Refuses a Pod that must be held back. It is asked again when the Pod changes, or a claim on devices,
    /// or when others join its group.
    ///
    /// # Errors
    /// The refusal.
    fn pre_enqueue(&self, pod: &PodInfo, prospects: &Prospects) -> Result<(), Rejection>;
}

/// A Pod that waits for its turn.
#[derive(Debug, Clone, Copy)]
pub struct Queued<'a> {
    /// The Pod.
    pub pod: &'a PodInfo,
    /// When it came into the queue.
    pub since: Instant,
}

/// The order in which Pods have their turn. All profiles have the same.
pub trait QueueSort: Send + Sync {
    /// `Less` if `a` is first.
    fn compare(&self, a: Queued<'_>, b: Queued<'_>) -> Ordering;
}

/// The answer of a [`PreFilter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prefiltered {
    /// The nodes are to be looked at.
    All,
    /// Only nodes of these names are.
    Only(BTreeSet<String>),
    /// The plugin has nothing to say about the Pod: its `Filter` is not asked (upstream's `Skip`).
    Skip,
}

/// Looks at the cluster once for a Pod.
pub trait PreFilter: Send + Sync {
    /// Works out what [`Filter`] needs, and writes it down in `cycle.state`.
    ///
    /// # Errors
    /// If no node can take the Pod, or there can be no decision.
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop>;
    /// Corrects the notes: a Pod moves. All else that they say of the cluster must stay as it is.
    fn count(&self, _cycle: &mut Cycle<'_>, _change: Move<'_>) {}
    /// The turn is over, and the notes are not kept: those that cost something go.
    fn forget(&self, _state: &mut State) {}
    /// Whether the notes and the answer may be kept for Pods with the same signature.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        false
    }
}

/// Decides which nodes can take a Pod.
pub trait Filter: Send + Sync {
    /// Judges one node.
    ///
    /// # Errors
    /// The refusal.
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection>;
    /// Judges all nodes that nobody has refused before. A plugin that has columns of figures answers from those.
    fn filter_all(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
        for (i, node) in cycle.cluster.nodes().iter().enumerate() {
            if verdicts.fits(i)
                && let Err(rejection) = self.filter(cycle, node)
            {
                verdicts.set(i, Err(rejection));
            }
        }
    }
    /// Whether the verdict is a function of the Pod's signature and the node. If the plugin has a `PreFilter`, that must
    /// keep its answer, too.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        false
    }
}

/// The filters of a profile, for simulations.
pub trait Simulation {
    /// Judges a node that may be other than the cluster shows it, with and without the Pods that wait for it.
    ///
    /// # Errors
    /// The first refusal.
    fn fits(&self, cycle: &mut Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection>;
    /// Tells every `PreFilter` that a Pod moves.
    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>);
}

/// The surroundings of a cycle that found no node.
pub struct Failed<'a> {
    /// The refusal that came before any node was looked at.
    pub stopped: Option<&'a Rejection>,
    /// The refusal of each node.
    pub verdicts: &'a Verdicts,
    /// The filters.
    pub simulation: &'a dyn Simulation,
    /// The Pods that wait for room.
    pub nominated: &'a Nominated,
    /// The disruption budgets.
    pub budgets: &'a [Arc<PodDisruptionBudget>],
    /// Others who have a say in preemption.
    pub consent: &'a dyn Consent,
}

/// The say of others in preemption.
pub trait Consent {
    /// The candidates of an earlier try of the same turn, in whose place no others are looked for.
    fn candidates(&self) -> Option<&[Candidate]>;
    /// The candidates to which all agree.
    ///
    /// # Errors
    /// If somebody does not answer who must, or has to be asked first; then the turn is taken again.
    fn agreed(&self, pod: &PodInfo, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Dissent>;
}

/// Why there is no consent.
#[derive(Debug, Clone)]
pub enum Dissent {
    /// Somebody has to be asked about these candidates.
    Asks(Vec<Candidate>),
    /// Somebody does not answer who must.
    Failed(String),
}

/// A node on which room can be made.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// The Pods that have to go, the most important first.
    pub victims: Vec<PodInfo>,
    /// How many of them a disruption budget would have kept.
    pub violations: usize,
}

/// The answer of a [`PostFilter`].
#[derive(Debug, Clone)]
pub enum PostFiltered {
    /// Room is to be made.
    Room(Candidate),
    /// It cannot help. The Pod goes on waiting for the node that it waits for.
    Keep(String),
    /// It cannot help, and no node is to be kept for the Pod.
    Clear(String),
    /// It has nothing to say about a nomination.
    Other(String),
    /// Others have to be asked about these candidates first.
    Asks(Vec<Candidate>),
    /// Something is to be written that may help the Pod later.
    Does(Errand, String),
}

/// Something that is to be written outside of a decision.
#[derive(Clone)]
pub struct Errand(Arc<dyn Fn(Client) -> Later<'static, Result<(), Status>> + Send + Sync>);

impl Errand {
    /// An errand.
    pub fn new(does: impl Fn(Client) -> Later<'static, Result<(), Status>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(does))
    }
    /// Does it.
    pub fn run(&self, client: Client) -> Later<'static, Result<(), Status>> {
        (self.0)(client)
    }
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errand")
    }
}

/// Looks for a way to make a Pod schedulable.
pub trait PostFilter: Send + Sync {
    /// Says what is to be done about it, or why nothing can be. `cycle.state` must be left as it was.
    fn post_filter(&self, cycle: &mut Cycle<'_>, failed: &Failed<'_>) -> PostFiltered;
}

/// Looks at the nodes that can take a Pod, before they are scored.
pub trait PreScore: Send + Sync {
    /// Works out what [`Score`] needs, and writes it down in `cycle.state`. `false`: there is nothing to score, and `Score`
    /// is not asked (upstream's `Skip`). If `kept`, the notes are those of an earlier cycle, which `count` has corrected.
    ///
    /// # Errors
    /// The reason for which there can be no decision.
    fn pre_score(&self, cycle: &mut Cycle<'_>, feasible: &[usize], kept: bool) -> Result<bool, String>;
    /// Corrects the notes: a Pod moves.
    fn count(&self, _cycle: &mut Cycle<'_>, _change: Move<'_>) {}
    /// Whether the notes may be kept for Pods with the same signature.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        false
    }
}

/// Says how good a node is for a Pod.
pub trait Score: Send + Sync {
    /// The score of one node.
    ///
    /// # Errors
    /// The reason for which there can be no decision.
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String>;
    /// The scores of nodes, by index.
    ///
    /// # Errors
    /// The reason for which there can be no decision.
    fn score_all(&self, cycle: &Cycle<'_>, nodes: &[usize]) -> Result<Vec<i64>, String> {
        let all = cycle.cluster.nodes();
        nodes.iter().filter_map(|i| all.get(*i)).map(|node| self.score(cycle, node)).collect()
    }
    /// Brings the scores of the nodes into the range from 0 to [`MAX_SCORE`].
    fn normalize(&self, _cycle: &Cycle<'_>, _nodes: &[usize], _scores: &mut [i64]) {}
    /// Whether [`Score::normalize`] does anything for this Pod. If not, a score that is kept costs no look at each node.
    fn normalizes(&self, _pod: &PodInfo) -> bool {
        true
    }
    /// Whether the score, before it is normalized, is a function of the Pod's signature and the node.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        false
    }
}

/// Holds things for a Pod on its node.
pub trait Reserve: Send + Sync {
    /// Whether there may be anything to hold for a Pod. If not, the plugin is not asked.
    fn concerns(&self, _pod: &PodInfo) -> bool {
        true
    }
    /// Takes what the Pod needs on a node that all filters found good. Notes for later points go into `carried`, which
    /// goes with the Pod.
    ///
    /// # Errors
    /// The refusal; all that was taken is given back.
    fn reserve(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        node: &NodeInfo,
        carried: &mut State,
    ) -> Result<(), Rejection>;
    /// Gives back what was taken, also if `reserve` was not asked or failed.
    fn unreserve(&self, pod: &PodInfo, node: &str, carried: &mut State);
    /// This is what is to be written once it is given back.
    fn afterwards(&self, _pod: &PodInfo, _carried: &State) -> Option<Errand> {
        None
    }
}

/// The answer of a [`Permit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// The Pod may be bound.
    Granted,
    /// So it may, and so may those that wait for this plugin, by uid.
    GrantedWith(Vec<Arc<str>>),
    /// It waits, at most so long, until the plugin allows it ([`Waiting`](crate::framework::waiting::Waiting)).
    Wait(Duration),
}

/// Lets Pods be bound now, later or not.
pub trait Permit: Send + Sync {
    /// Answers for a Pod that holds all that it needs on a node.
    ///
    /// # Errors
    /// The refusal.
    fn permit(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        node: &str,
        carried: &mut State,
    ) -> Result<Permission, Rejection>;
}

/// A Pod on its way to a node, in a task of its own.
pub struct Binding<'a> {
    /// The Pod.
    pub pod: &'a PodInfo,
    /// The node.
    pub node: &'a str,
    /// The notes since `Reserve`.
    pub carried: &'a State,
    /// The name of the Pod's profile.
    pub profile: &'a str,
    /// Records events in the name of the Pod's scheduler.
    pub recorder: Option<&'a Recorder>,
    /// The scheduler's client.
    pub client: &'a Client,
    /// Its place among the bindings, to be given up during a wait that may be long.
    pub place: &'a Place,
    /// Whether it is gone; whoever waits should end then.
    pub gone: &'a Gone,
}

/// Why a Pod was not bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbound {
    /// The node does not do after all; the Pod looks for another.
    Refused(Rejection),
    /// It did not work; the Pod is tried again.
    Failed(Status),
}

/// Prepares what a Pod needs on its node.
pub trait PreBind: Send + Sync {
    /// Whether there is anything to do for the Pod (upstream's `PreBindPreFlight`).
    fn concerns(&self, pod: &PodInfo, node: &str, carried: &State) -> bool;
    /// Does it.
    fn pre_bind<'a>(&'a self, binding: &'a Binding<'a>) -> Later<'a, Result<(), Unbound>>;
}

/// Binds a Pod to its node.
pub trait Bind: Send + Sync {
    /// Binds the Pod; `false` leaves it to the next plugin.
    fn bind<'a>(&'a self, binding: &'a Binding<'a>) -> Later<'a, Result<bool, Unbound>>;
}

/// Hears of Pods that were bound.
pub trait PostBind: Send + Sync {
    /// A Pod was bound.
    fn post_bind(&self, binding: &Binding<'_>);
}

/// Says in which parts of the cluster a group is tried. A profile has one such plugin at most.
pub trait PlacementGenerate: Send + Sync {
    /// The placements, in the order in which they are tried; they may overlap. Without any the group is unschedulable.
    ///
    /// # Errors
    /// If the group cannot be placed, or there can be no decision.
    fn generate(&self, cycle: &mut GroupCycle<'_>, parent: &Placement) -> Result<Vec<Placement>, Rejection>;
}

/// Says how good a placement is in which enough of a group fits.
pub trait PlacementScore: Send + Sync {
    /// The score of a placement. The cluster is as before the group's turn: no Pod of it is on the node that it would get.
    ///
    /// # Errors
    /// The reason for which there can be no decision.
    fn score(&self, cycle: &GroupCycle<'_>, of: &Assignments<'_>) -> Result<i64, String>;
    /// Brings the scores of all placements into the range from 0 to [`MAX_SCORE`].
    ///
    /// # Errors
    /// The reason for which there can be no decision.
    fn normalize(&self, _cycle: &GroupCycle<'_>, _scores: &mut [i64]) -> Result<(), String> {
        Ok(())
    }
    /// Whether [`PlacementScore::normalize`] does anything.
    fn normalizes(&self) -> bool {
        false
    }
}
