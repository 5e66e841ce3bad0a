//! The verdicts of plugins on a node, or on all of them.

use std::borrow::Cow;

use crate::framework::placement::Within;

/// The reason of a refusal, in upstream's words. Most are constants, so that a refusal allocates little.
pub type Reason = Cow<'static, str>;

/// Why a node cannot take a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that refused.
    pub plugin: &'static str,
    /// Its reasons.
    pub reasons: Vec<Reason>,
    /// Whether evicting other Pods could not change it (upstream's `UnschedulableAndUnresolvable`).
    pub unresolvable: bool,
    /// Whether it is no refusal: there can be no decision about the Pod, which is tried again (upstream's `Error`).
    pub failed: bool,
}

impl Rejection {
    /// A refusal that evicting Pods may lift.
    pub fn new(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Self { plugin, reasons: vec![reason.into()], unresolvable: false, failed: false }
    }
    /// A refusal that evicting Pods cannot lift.
    pub fn lasting(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Self { plugin, reasons: vec![reason.into()], unresolvable: true, failed: false }
    }
    /// No refusal, but the reason for which there can be no decision.
    pub fn failure(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Self { plugin, reasons: vec![reason.into()], unresolvable: true, failed: true }
    }
}

/// Why no node needs to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// None can take the Pod.
    Rejected(Rejection),
    /// The Pod's wishes cannot be understood: no decision, but an error, after which it is tried again.
    Error(String),
}

impl Stop {
    /// Refuses all nodes for one reason, whichever Pods are evicted.
    pub fn rejected(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Self::Rejected(Rejection::lasting(plugin, reason))
    }
}

/// The verdicts on all nodes: a number for each node, and each different refusal once. Text is made only of what is
/// reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// By the node's index: 0 if the node can take the Pod, [`OUTSIDE`], else 1 more than the index of its refusal.
    codes: Vec<u32>,
    kinds: Vec<Rejection>,
    /// How many nodes are not looked at.
    outside: usize,
}

/// The code of a node that is not looked at.
const OUTSIDE: u32 = u32::MAX;

impl Verdicts {
    /// Every one of so many nodes can take the Pod.
    pub fn all(nodes: usize) -> Self {
        Self { codes: vec![0; nodes], ..Self::default() }
    }
    /// Leaves out all other nodes: they have no verdict, and none is given to them.
    pub fn look_only(&mut self, within: &Within) {
        for (i, code) in self.codes.iter_mut().enumerate() {
            if *code != OUTSIDE && !within.contains(i) {
                *code = OUTSIDE;
                self.outside += 1;
            }
        }
    }
    /// How many nodes are looked at.
    pub fn looked_at(&self) -> usize {
        self.codes.len() - self.outside
    }
    /// Whether evicting Pods from a node cannot help: it is not looked at, or its refusal says so.
    pub fn is_lost(&self, node: usize) -> bool {
        self.codes.get(node) == Some(&OUTSIDE) || self.of(node).is_some_and(|r| r.unresolvable)
    }
    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.codes.len()
    }
    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }
    /// Whether nobody has refused the node.
    pub fn fits(&self, node: usize) -> bool {
        self.codes.get(node) == Some(&0)
    }
    /// The nodes that nobody has refused.
    pub fn fitting(&self) -> impl Iterator<Item = usize> {
        self.codes.iter().enumerate().filter(|(_, code)| **code == 0).map(|(i, _)| i)
    }
    /// The same, as a list.
    pub fn all_fitting(&self) -> Vec<usize> {
        if self.are_clear() {
            return (0..self.codes.len()).collect();
        }
        let mut nodes = Vec::with_capacity(self.looked_at());
        nodes.extend(self.fitting());
        nodes
    }
    /// Whether all nodes are looked at and nobody has ever refused one.
    fn are_clear(&self) -> bool {
        self.outside == 0 && self.kinds.is_empty()
    }
    /// The refusal of a node.
    pub fn of(&self, node: usize) -> Option<&Rejection> {
        self.kinds.get((*self.codes.get(node)? as usize).checked_sub(1)?)
    }
    /// Refuses a node, or takes its refusal back.
    pub fn set(&mut self, node: usize, verdict: Result<(), Rejection>) {
        let code = match verdict {
            Ok(()) => 0,
            Err(rejection) => self.kind(rejection),
        };
        if let Some(place) = self.codes.get_mut(node).filter(|code| **code != OUTSIDE) {
            *place = code;
        }
    }
    /// The code of a refusal: the number by which nodes are marked with it.
    pub fn kind(&mut self, rejection: Rejection) -> u32 {
        let found = self.kinds.iter().position(|k| *k == rejection);
        let at = found.unwrap_or_else(|| {
            self.kinds.push(rejection);
            self.kinds.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
    /// Refuses each node that fits still and of which this is not true.
    pub fn refuse_unless(&mut self, rejection: &Rejection, mut good: impl FnMut(usize) -> bool) {
        let mut code = 0;
        for i in 0..self.codes.len() {
            if self.codes[i] == 0 && !good(i) {
                if code == 0 {
                    code = self.kind(rejection.clone());
                }
                self.codes[i] = code;
            }
        }
    }
    /// Takes over the refusals of other verdicts, for nodes that nobody has refused before.
    pub fn take_in(&mut self, other: &Self) {
        if other.kinds.is_empty() {
            return;
        }
        let mut codes = vec![0; other.kinds.len() + 1];
        for (mine, theirs) in self.codes.iter_mut().zip(&other.codes) {
            if *mine == 0 && *theirs != 0 && *theirs != OUTSIDE {
                let known = &mut codes[*theirs as usize];
                if *known == 0 {
                    let rejection = &other.kinds[*theirs as usize - 1];
                    let at = self.kinds.iter().position(|k| k == rejection).unwrap_or_else(|| {
                        self.kinds.push(rejection.clone());
                        self.kinds.len() - 1
                    });
                    *known = u32::try_from(at + 1).unwrap_or(u32::MAX);
                }
                *mine = *known;
            }
        }
    }
    /// The refusal that is none, but says that there can be no decision.
    pub fn failure(&self) -> Option<&Rejection> {
        if self.kinds.iter().any(|r| r.failed) {
            self.counts().map(|(r, _)| r).find(|r| r.failed)
        } else {
            None
        }
    }
    /// Each refusal with the number of its nodes.
    pub fn counts(&self) -> impl Iterator<Item = (&Rejection, usize)> {
        let mut counts = vec![0; self.kinds.len() + 1];
        if !self.kinds.is_empty() {
            for code in self.codes.iter().filter(|code| **code != OUTSIDE) {
                counts[*code as usize] += 1;
            }
        }
        self.kinds.iter().zip(counts.into_iter().skip(1)).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::placement::Placement;

    #[test]
    fn the_first_refusal_counts() {
        let (cpu, taint) =
            (Rejection::new("Fit", "Insufficient cpu"), Rejection::lasting("Taint", "tainted"));
        let mut first = Verdicts::all(4);
        first.refuse_unless(&cpu, |i| i != 1);
        let mut second = Verdicts::all(4);
        second.refuse_unless(&taint, |i| i > 1);
        second.set(3, Err(cpu.clone()));
        first.take_in(&second);
        let of = |v: &Verdicts| (0..4).map(|i| v.of(i).map(|r| r.plugin)).collect::<Vec<_>>();
        assert_eq!(of(&first), [Some("Taint"), Some("Fit"), None, Some("Fit")]);
        assert!(first.fitting().eq([2]) && first.fits(2) && !first.fits(4));
        assert!(first.counts().eq([(&cpu, 2), (&taint, 1)]));
        first.set(1, Ok(()));
        assert!(first.fits(1));
    }

    #[test]
    fn nodes_outside_have_no_verdict() {
        let placement = Placement { name: "p".into(), nodes: vec![1, 3] };
        let within = Within::new(&placement, 4).unwrap().unwrap();
        let (cpu, taint) = (Rejection::new("Fit", "cpu"), Rejection::lasting("Taint", "tainted"));
        let mut all = Verdicts::all(4);
        all.set(0, Err(cpu.clone()));
        all.look_only(&within);
        all.look_only(&within);
        let mut other = Verdicts::all(4);
        other.refuse_unless(&cpu, |i| i == 3);
        other.set(1, Err(taint.clone()));
        all.take_in(&other);
        all.set(2, Ok(()));
        assert!(all.counts().eq([(&taint, 1)]), "{all:?}");
        assert_eq!((all.len(), all.looked_at()), (4, 2));
        assert_eq!(
            [0, 1, 2, 3].map(|i| (all.fits(i), all.is_lost(i), all.of(i).is_some())),
            [(false, true, false), (false, true, true), (false, true, false), (true, false, false)]
        );
        assert!(all.fitting().eq([3]));
    }
}
