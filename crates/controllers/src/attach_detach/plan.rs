//! The decision about one volume: where it is attached, and from where it is detached; pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a node that does not answer may use a volume that nobody wants there; upstream's.
pub(super) const FORCE_AFTER: Duration = Duration::from_mins(6);

/// A Pod: its namespace and name.
pub(super) type PodName = (String, String);

/// A VolumeAttachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attachment {
    /// Whether it is being deleted.
    pub(super) deleting: bool,
    /// Whether it is known to be there: one that was just made may not be.
    pub(super) seen: bool,
}

/// A node with a volume that nobody wants there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Holder {
    /// Whether it is Ready.
    pub(super) ready: bool,
    /// Whether somebody says that it is off.
    pub(super) out_of_service: bool,
    /// Whether its kubelet says that the volume is used.
    pub(super) in_use: bool,
    /// How long nobody has wanted the volume there.
    pub(super) since: Duration,
}

/// Why a volume is taken from a node that may still use it; upstream's labels of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Forced {
    /// The node does not answer.
    Timeout,
    /// Somebody says that it is off.
    OutOfService,
}

impl Forced {
    /// The label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::OutOfService => "out-of-service",
        }
    }
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The volume is attached to a node.
    Attach(String),
    /// It is detached from a node.
    Detach(String, Option<Forced>),
    /// It is looked at again after this time, for a node uses it.
    Wait(String, Duration),
    /// A Pod is told that the volume is elsewhere.
    Refuse(String, PodName, String),
}

/// A volume, as it is and as it is wanted.
#[derive(Debug, Default)]
pub(super) struct Volume {
    /// Whether several nodes may have it.
    pub(super) shared: bool,
    /// The nodes where Pods want it, with those.
    pub(super) wanted: BTreeMap<String, BTreeSet<PodName>>,
    /// The nodes that have it.
    pub(super) attached: BTreeMap<String, Attachment>,
}

/// Whether several nodes may have a volume of these access modes; upstream's rule.
pub(super) fn is_shared(modes: &[String]) -> bool {
    modes.is_empty() || modes.iter().any(|m| m == "ReadWriteMany" || m == "ReadOnlyMany")
}

impl Step {
    /// The node that it is about.
    pub(super) fn node(&self) -> &str {
        let (Self::Attach(node) | Self::Detach(node, _) | Self::Wait(node, _) | Self::Refuse(node, ..)) =
            self;
        node
    }
}

impl Volume {
    /// The next steps. `holder` tells of a node that has the volume; `force`: whether a node that is not Ready loses it in
    /// the end.
    pub(super) fn plan(&self, holder: impl Fn(&str) -> Holder, force: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        // While a node gives the volume back, the others wait without being told; upstream's rule.
        let mut returns = false;
        for (node, attachment) in &self.attached {
            if attachment.deleting {
                returns = true;
            } else if !self.wanted.contains_key(node) {
                let step = holder(node).detach(node, force);
                returns |= matches!(step, Step::Detach(..));
                steps.push(step);
            }
        }
        for (node, pods) in &self.wanted {
            match self.attached.get(node) {
                Some(Attachment { seen: true, .. }) => {}
                // Whether it is there is not known: it can be made again.
                Some(_) => steps.push(Step::Attach(node.clone())),
                None if self.shared => steps.push(Step::Attach(node.clone())),
                None if self.attached.is_empty() => {
                    steps.push(Step::Attach(node.clone()));
                    // The others are told once it is there.
                    break;
                }
                None if returns => {}
                None => {
                    let others = self.attached.keys().filter_map(|n| self.wanted.get(n)).flatten();
                    let others: Vec<&PodName> = others.collect();
                    let told =
                        pods.iter().map(|p| Step::Refuse(node.clone(), p.clone(), elsewhere(p, &others)));
                    steps.extend(told);
                }
            }
        }
        steps
    }
}

impl Holder {
    /// The step by which a node loses a volume that nobody wants there.
    pub(super) fn detach(self, node: &str, force: bool) -> Step {
        let late = self.since >= FORCE_AFTER && force && !self.ready;
        let forced = match self.out_of_service {
            _ if late => Some(Forced::Timeout),
            true => Some(Forced::OutOfService),
            false => None,
        };
        if forced.is_some() || !self.in_use {
            return Step::Detach(node.to_owned(), forced);
        }
        // A change of the Node is seen; only time must be waited for.
        let left = FORCE_AFTER.saturating_sub(self.since);
        Step::Wait(node.to_owned(), if left.is_zero() { FORCE_AFTER } else { left })
    }
}

/// Upstream's text for a Pod whose volume other Pods have.
fn elsewhere(pod: &PodName, others: &[&PodName]) -> String {
    let same: Vec<&str> = others.iter().filter(|o| o.0 == pod.0).map(|o| o.1.as_str()).collect();
    let apart = others.len() - same.len();
    match (same.is_empty(), apart) {
        (true, 0) => {
            "Volume is already exclusively attached to one node and can't be attached to another".into()
        }
        (true, n) => format!("Volume is already used by {n} pod(s) in different namespaces"),
        (false, 0) => format!("Volume is already used by pod(s) {}", same.join(", ")),
        (false, n) => {
            format!(
                "Volume is already used by pod(s) {} and {n} pod(s) in different namespaces",
                same.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(shared: bool, wanted: &[(&str, &[&str])], attached: &[(&str, &str)]) -> Volume {
        let pod = |name: &&str| match name.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None => ("n".to_owned(), (*name).to_owned()),
        };
        let attachment = |how: &str| Attachment { deleting: how == "deleting", seen: how != "unseen" };
        Volume {
            shared,
            wanted: wanted.iter().map(|(n, p)| ((*n).to_owned(), p.iter().map(pod).collect())).collect(),
            attached: attached.iter().map(|(n, how)| ((*n).to_owned(), attachment(how))).collect(),
        }
    }

    fn refuse(node: &str, pod: &str, text: &str) -> Step {
        Step::Refuse(node.into(), ("n".into(), pod.into()), text.into())
    }

    #[test]
    fn attachments() {
        let check = |v: Volume, expected: &[Step]| {
            // A node whose name begins with `u` uses the volume.
            let holder = |n: &str| Holder { ready: true, in_use: n.starts_with('u'), ..Holder::default() };
            assert_eq!(v.plan(holder, true), expected, "{v:?}");
        };
        let attach = |n: &str| Step::Attach(n.into());
        let detach = |n: &str| Step::Detach(n.into(), None);
        let (p, q): (&[&str], &[&str]) = (&["p"], &["q"]);
        check(volume(false, &[], &[]), &[]);
        check(volume(false, &[("a", p)], &[]), &[attach("a")]);
        check(volume(false, &[("a", p)], &[("a", "")]), &[]);
        check(volume(false, &[("a", p)], &[("a", "deleting")]), &[]);
        check(volume(false, &[("a", p)], &[("a", "unseen")]), &[attach("a")]);
        check(volume(false, &[], &[("a", "")]), &[detach("a")]);
        check(volume(false, &[], &[("a", "unseen")]), &[detach("a")]);
        check(volume(false, &[], &[("a", "deleting")]), &[]);
        check(volume(false, &[], &[("u", "")]), &[Step::Wait("u".into(), FORCE_AFTER)]);
        check(volume(true, &[("a", p), ("b", q)], &[]), &[attach("a"), attach("b")]);
        check(volume(false, &[("a", p), ("b", q)], &[]), &[attach("a")]);
        let by = "Volume is already used by pod(s) p";
        check(volume(false, &[("a", p), ("b", q)], &[("a", "")]), &[refuse("b", "q", by)]);
        check(
            volume(false, &[("a", p), ("b", q)], &[("b", "unseen")]),
            &[refuse("a", "p", "Volume is already used by pod(s) q"), attach("b")],
        );
        let other = "Volume is already used by 1 pod(s) in different namespaces";
        check(volume(false, &[("a", &["m/p"]), ("b", q)], &[("a", "")]), &[refuse("b", "q", other)]);
        let both = "Volume is already used by pod(s) p and 1 pod(s) in different namespaces";
        check(volume(false, &[("a", &["m/p", "p"]), ("b", q)], &[("a", "")]), &[refuse("b", "q", both)]);
        // It is given back, or it is not.
        check(volume(false, &[("b", q)], &[("a", "deleting")]), &[]);
        check(volume(false, &[("b", q)], &[("a", "")]), &[detach("a")]);
        let stays = "Volume is already exclusively attached to one node and can't be attached to another";
        let wait = Step::Wait("u".into(), FORCE_AFTER);
        check(volume(false, &[("b", q)], &[("u", "")]), &[wait, refuse("b", "q", stays)]);
        check(volume(true, &[("b", q)], &[("a", "deleting")]), &[attach("b")]);
    }

    #[test]
    fn volumes_in_use() {
        let seconds = Duration::from_secs;
        let check = |ready, out_of_service, in_use, since, force, expected: Step| {
            let holder = Holder { ready, out_of_service, in_use, since: seconds(since) };
            assert_eq!(holder.detach("a", force), expected, "{holder:?} {force}");
        };
        let detach = |why| Step::Detach("a".into(), why);
        let wait = |time| Step::Wait("a".into(), seconds(time));
        check(true, false, false, 0, true, detach(None));
        check(false, false, false, 0, true, detach(None));
        check(true, false, true, 0, true, wait(360));
        check(false, false, true, 100, true, wait(260));
        check(false, false, true, 360, true, detach(Some(Forced::Timeout)));
        check(true, false, true, 360, true, wait(360));
        check(false, false, true, 360, false, wait(360));
        check(false, true, true, 0, true, detach(Some(Forced::OutOfService)));
        check(true, true, true, 0, false, detach(Some(Forced::OutOfService)));
        check(false, true, true, 360, true, detach(Some(Forced::Timeout)));
        check(false, true, true, 360, false, detach(Some(Forced::OutOfService)));
    }

    #[test]
    fn modes() {
        let check = |modes: &[&str], expected: bool| {
            let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
            assert_eq!(is_shared(&modes), expected, "{modes:?}");
        };
        // Upstream's cases of `TestIsMultiAttachAllowed`.
        check(&[], true);
        check(&["ReadWriteOnce"], false);
        check(&["ReadWriteOncePod"], false);
        check(&["ReadOnlyMany"], true);
        check(&["ReadWriteMany"], true);
        check(&["ReadWriteOnce", "ReadOnlyMany"], true);
        check(&["ReadWriteOnce", "ReadWriteMany"], true);
    }

    /// 12 of upstream's 16 cases of `reconciler_test.go`: `Test_Run_Positive_DoNothing`, `Test_Run_Positive_OneDesiredVolumeAttach`,
    /// `Test_Run_Positive_OneDesiredVolumeAttachThenDetachWithUnmountedVolume`,
    /// `Test_Run_Positive_OneDesiredVolumeAttachThenDetachWithMountedVolume`,
    /// `Test_Run_OneVolumeAttachAndDetachMultipleNodesWithReadWriteMany`,
    /// `Test_Run_OneVolumeAttachAndDetachMultipleNodesWithReadWriteOnce`,
    /// `Test_Run_OneVolumeAttachAndDetachUncertainNodesWithReadWriteOnce`,
    /// `Test_Run_OneVolumeAttachAndDetachTimeoutNodesWithReadWriteOnce`,
    /// `Test_Run_OneVolumeDetachOnOutOfServiceTaintedNode`, `Test_Run_OneVolumeDetachOnNoOutOfServiceTaintedNode`,
    /// `Test_Run_OneVolumeDetachOnUnhealthyNode` and
    /// `Test_Run_OneVolumeDetachOnUnhealthyNodeWithForceDetachOnUnmountDisabled`: the access modes, and stages, each with the
    /// nodes that want the volume, those that have it, what is known of these, and the nodes to which it is attached and
    /// from which it is detached, with the reason if it is taken by force. In three others requests fail, which the simulation
    /// has; the last is below.
    ///
    /// DIFFERENCE: upstream keeps in mind where a volume may be that it could not attach for certain; here a
    /// VolumeAttachment says so.
    #[test]
    fn upstreams_runs() {
        type Stage<'a> = (
            &'a [&'a str],
            &'a [(&'a str, &'a str)],
            Holder,
            bool,
            &'a [&'a str],
            &'a [(&'a str, Option<Forced>)],
        );
        let check = |modes: &[&str], stages: &[Stage<'_>]| {
            let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
            for (wanted, attached, holder, force, attach, detach) in stages {
                let wanted: Vec<(&str, &[&str])> =
                    wanted.iter().map(|n| (*n, std::slice::from_ref(n))).collect();
                let steps = volume(is_shared(&modes), &wanted, attached).plan(|_| *holder, *force);
                let attached: Vec<&str> =
                    steps.iter().filter(|s| matches!(s, Step::Attach(_))).map(Step::node).collect();
                assert_eq!(attached, *attach, "{wanted:?}");
                let detached: Vec<_> = steps
                    .iter()
                    .filter_map(|s| {
                        if let Step::Detach(node, why) = s { Some((node.as_str(), *why)) } else { None }
                    })
                    .collect();
                assert_eq!(detached, *detach, "{wanted:?}");
            }
        };
        let (once, many) = (&["ReadWriteOnce"][..], &["ReadWriteMany"][..]);
        let free = Holder { ready: true, ..Holder::default() };
        let used = Holder { in_use: true, ..free };
        let dead = Holder { ready: false, since: FORCE_AFTER, ..used };
        let off = Holder { ready: false, out_of_service: true, ..used };
        let (n1, n2): (&[&str], &[&str]) = (&["n1"], &["n2"]);
        let one = &[("n1", "")][..];
        check(once, &[(&[], &[], free, true, &[], &[])]);
        let attach: Stage<'_> = (n1, &[], free, true, n1, &[]);
        check(once, &[attach, (n1, one, free, true, &[], &[])]);
        check(once, &[attach, (&[], one, free, true, &[], &[("n1", None)])]);
        check(
            once,
            &[
                attach,
                (&[], one, used, true, &[], &[]),
                (&[], one, dead, true, &[], &[("n1", Some(Forced::Timeout))]),
            ],
        );
        let both = &[("n1", ""), ("n2", "")][..];
        check(
            many,
            &[
                (&["n1", "n2"], &[], free, true, &["n1", "n2"], &[]),
                (n2, both, free, true, &[], &[("n1", None)]),
                (&[], &[("n2", "")], free, true, &[], &[("n2", None)]),
            ],
        );
        check(
            once,
            &[
                (&["n1", "n2"], &[], free, true, n1, &[]),
                (&["n1", "n2"], one, used, true, &[], &[]),
                (n2, one, free, true, &[], &[("n1", None)]),
                (n2, &[], free, true, n2, &[]),
            ],
        );
        // The answer to an attachment is lost; the Pod goes, and another one comes elsewhere.
        let unseen = &[("n1", "unseen")][..];
        check(
            once,
            &[
                (n1, unseen, free, true, n1, &[]),
                (&[], unseen, free, true, &[], &[("n1", None)]),
                (n2, unseen, free, true, &[], &[("n1", None)]),
                (n2, &[], free, true, n2, &[]),
            ],
        );
        // A node is off, or only does not answer.
        check(once, &[(n2, one, off, true, &[], &[("n1", Some(Forced::OutOfService))])]);
        check(once, &[(n2, one, Holder { out_of_service: false, ..off }, true, &[], &[])]);
        check(once, &[(n2, one, dead, true, &[], &[("n1", Some(Forced::Timeout))])]);
        check(once, &[(n2, one, dead, false, &[], &[])]);
    }

    /// Upstream's 4 cases of `Test_ReportMultiAttachError`: nodes that have the volume, with their Pods, and what the Pod on
    /// `node1`, which waits for it, is told.
    #[test]
    fn what_waiting_pods_are_told() {
        let check = |others: &[(&str, &str)], want: &str| {
            let mut wanted: Vec<(&str, Vec<&str>)> = vec![("node1", vec!["ns1/pod1"])];
            wanted.extend(others.iter().map(|(node, pod)| (*node, vec![*pod])));
            let wanted: Vec<(&str, &[&str])> = wanted.iter().map(|(n, p)| (*n, p.as_slice())).collect();
            let mut attached: Vec<(&str, &str)> = others.iter().map(|(node, _)| (*node, "")).collect();
            if attached.is_empty() {
                attached.push(("node9", ""));
            }
            let used = |_: &str| Holder { ready: true, in_use: true, ..Holder::default() };
            let steps = volume(false, &wanted, &attached).plan(used, true);
            let told: Vec<_> = steps
                .iter()
                .filter_map(|s| {
                    if let Step::Refuse(node, _, text) = s {
                        Some((node.as_str(), text.as_str()))
                    } else {
                        None
                    }
                })
                .collect();
            assert_eq!(told, [("node1", want)], "{others:?}");
        };
        check(&[], "Volume is already exclusively attached to one node and can't be attached to another");
        check(&[("node2", "ns1/pod2")], "Volume is already used by pod(s) pod2");
        check(&[("node2", "ns2/pod2")], "Volume is already used by 1 pod(s) in different namespaces");
        check(
            &[("node2", "ns2/pod2"), ("node3", "ns1/pod3")],
            "Volume is already used by pod(s) pod3 and 1 pod(s) in different namespaces",
        );
    }
}
