//! The choice between a port's backends by traffic policies and topology (upstream: `CategorizeEndpoints` in
//! `pkg/proxy/topology.go`).

use super::Backend;

/// The traffic policies of a Service's port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policies {
    /// Whether traffic from inside the cluster stays on its node.
    pub internal_local: bool,
    /// Whether traffic from outside stays on the node that it came to.
    pub external_local: bool,
    /// Whether the port can be reached from outside: by a node port, an external address or a load balancer.
    pub external: bool,
}

impl Policies {
    /// Whether some traffic may go to any node. Even if that from outside stays where it came, Pods that send to an
    /// address from outside take the short way.
    pub fn uses_cluster(self) -> bool {
        !self.internal_local || self.external
    }
    /// Whether some traffic stays on its node.
    pub fn uses_local(self) -> bool {
        self.internal_local || self.external_local && self.external
    }
}

/// The node from which traffic comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Viewpoint<'a> {
    /// Its name.
    pub node: &'a str,
    /// Its zone (label `topology.kubernetes.io/zone`), "" if it has none.
    pub zone: &'a str,
}

impl Viewpoint<'_> {
    /// Whether a backend is on the node.
    pub fn is_local(self, backend: &Backend) -> bool {
        !self.node.is_empty() && backend.node == self.node
    }
}

/// The backends of a port for traffic of each policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice<'b> {
    /// For traffic that may go anywhere; `None` if there is no such traffic.
    pub cluster: Option<Vec<&'b Backend>>,
    /// For traffic that stays on its node; `None` if there is no such traffic.
    pub local: Option<Vec<&'b Backend>>,
    /// All of both, each once.
    pub reachable: Vec<&'b Backend>,
    /// Whether there are usable backends anywhere: traffic that finds none here is dropped then, and refused otherwise.
    pub any: bool,
}

/// The backends that traffic is kept to, as the hints of all ready backends agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    Anywhere,
    SameZone,
    SameNode,
}

/// Returns the backends that take new connections; if there are none, those that serve while they go.
pub fn usable(backends: &[Backend]) -> Vec<&Backend> {
    usable_of(backends, |_| true)
}

fn usable_of(backends: &[Backend], among: impl Fn(&Backend) -> bool) -> Vec<&Backend> {
    let ready: Vec<_> = backends.iter().filter(|b| b.ready && among(b)).collect();
    if ready.is_empty() {
        backends.iter().filter(|b| b.serving && b.terminating && among(b)).collect()
    } else {
        ready
    }
}

/// Chooses between the backends of a port, as traffic from a node finds them.
pub fn choose<'b>(backends: &'b [Backend], policies: Policies, from: Viewpoint<'_>) -> Choice<'b> {
    let topology = topology(backends, from);
    let cluster = policies.uses_cluster().then(|| {
        // Hints count only where a ready backend has the right one, so that only backends that go are left over if
        // there is none.
        usable_of(backends, |b| {
            !b.ready
                || match topology {
                    Topology::Anywhere => true,
                    Topology::SameZone => has(&b.zones, from.zone),
                    Topology::SameNode => has(&b.nodes, from.node),
                }
        })
    });
    let local = policies.uses_local().then(|| usable_of(backends, |b| from.is_local(b)));
    let any = if local.is_some() {
        backends.iter().any(|b| b.ready || b.serving && b.terminating)
    } else {
        cluster.as_ref().is_some_and(|c| !c.is_empty())
    };
    let chosen = |list: &Option<Vec<&Backend>>, backend: &Backend| {
        list.iter().flatten().any(|b| (b.address, b.port) == (backend.address, backend.port))
    };
    let mut reachable = cluster.clone().unwrap_or_default();
    reachable.extend(local.iter().flatten().filter(|b| !chosen(&cluster, b)));
    Choice { cluster, local, reachable, any }
}

fn has(names: &[compact_str::CompactString], name: &str) -> bool {
    names.iter().any(|n| n == name)
}

/// Reads the hints: they count if every ready backend has one of a kind, and one of them is for this node or zone.
fn topology(backends: &[Backend], from: Viewpoint<'_>) -> Topology {
    let ready = || backends.iter().filter(|b| b.ready);
    if ready().all(|b| !b.nodes.is_empty()) && ready().any(|b| has(&b.nodes, from.node)) {
        Topology::SameNode
    } else if ready().all(|b| !b.zones.is_empty()) && ready().any(|b| has(&b.zones, from.zone)) {
        Topology::SameZone
    } else {
        Topology::Anywhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "node-1";
    const CLUSTER: Policies = Policies { internal_local: false, external_local: false, external: false };
    const INTERNAL: Policies = Policies { internal_local: true, ..CLUSTER };

    /// A backend `ADDRESS FLAGS…`: `r` ready, `s` serving, `t` terminating, `l` on this node, `z=A,B` hints of zones,
    /// `n=A,B` of nodes.
    fn backend(text: &str) -> Backend {
        let mut words = text.split(' ');
        let address = words.next().unwrap().parse().unwrap();
        let mut backend = Backend {
            address,
            port: 80,
            node: "other".into(),
            ready: false,
            serving: false,
            terminating: false,
            zones: Box::default(),
            nodes: Box::default(),
        };
        for word in words {
            match word.split_once('=') {
                Some(("z", zones)) => backend.zones = zones.split(',').map(Into::into).collect(),
                Some(("n", nodes)) => backend.nodes = nodes.split(',').map(Into::into).collect(),
                Some(other) => panic!("{other:?}"),
                None => {
                    for flag in word.chars() {
                        match flag {
                            'r' => backend.ready = true,
                            's' => backend.serving = true,
                            't' => backend.terminating = true,
                            'l' => backend.node = ME.into(),
                            other => panic!("{other}"),
                        }
                    }
                }
            }
        }
        backend
    }

    struct Case<'a> {
        what: &'a str,
        zone: &'a str,
        policies: Policies,
        backends: &'a [&'a str],
        cluster: Option<&'a [&'a str]>,
        local: Option<&'a [&'a str]>,
        any: bool,
    }

    fn check(case: &Case<'_>) {
        let backends: Vec<Backend> = case.backends.iter().map(|b| backend(b)).collect();
        let from = Viewpoint { node: ME, zone: case.zone };
        let got = choose(&backends, case.policies, from);
        let names = |list: &[&Backend]| -> Vec<String> {
            let mut names: Vec<_> = list.iter().map(|b| b.address.to_string()).collect();
            names.sort();
            names
        };
        let wanted = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(got.cluster.as_deref().map(names), case.cluster.map(wanted), "{}", case.what);
        assert_eq!(got.local.as_deref().map(names), case.local.map(wanted), "{}", case.what);
        let mut all = [case.cluster.unwrap_or_default(), case.local.unwrap_or_default()].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(names(&got.reachable), wanted(&all), "{}", case.what);
        assert_eq!(got.any, case.any, "{}", case.what);
    }

    fn of_zone(what: &str, zone: &str, backends: &[&str], cluster: &[&str]) {
        check(&Case {
            what,
            zone,
            policies: CLUSTER,
            backends,
            cluster: Some(cluster),
            local: None,
            any: true,
        });
    }

    /// The cases of upstream's `TestCategorizeEndpoints` about topology. The one with the gate
    /// `PreferSameTrafficDistribution` off has no place: the gate is locked.
    #[test]
    fn topology_of_upstream() {
        let four = ["10.1.2.3 r z=a", "10.1.2.4 r z=b", "10.1.2.5 r z=c", "10.1.2.6 r z=a"];
        of_zone("all have hints, and there are some for the zone", "a", &four, &["10.1.2.3", "10.1.2.6"]);
        let one = ["10.1.2.3 r z=a"];
        of_zone("the node has no zone", "", &one, &["10.1.2.3"]);
        of_zone("node in different zone, no endpoint filtering", "b", &one, &["10.1.2.3"]);
        of_zone(
            "unready endpoint",
            "a",
            &["10.1.2.3 r z=a", "10.1.2.4 r z=b", "10.1.2.5 r z=c", "10.1.2.6 z=a"],
            &["10.1.2.3"],
        );
        of_zone(
            "only unready endpoints in same zone (should not filter)",
            "a",
            &["10.1.2.3 z=a", "10.1.2.4 r z=b", "10.1.2.5 r z=c", "10.1.2.6 z=a"],
            &["10.1.2.4", "10.1.2.5"],
        );
        of_zone(
            "missing hints, no filtering applied",
            "a",
            &["10.1.2.3 r z=a", "10.1.2.4 r z=b", "10.1.2.5 r", "10.1.2.6 r z=a"],
            &["10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"],
        );
        of_zone(
            "multiple hints per endpoint",
            "c",
            &["10.1.2.3 r z=a,b,c", "10.1.2.4 r z=b,c", "10.1.2.5 r z=b,d", "10.1.2.6 r z=c"],
            &["10.1.2.3", "10.1.2.4", "10.1.2.6"],
        );
        let hinted = |node: &str| {
            [
                format!("10.1.2.3 r z=a n={node}"),
                "10.1.2.4 r z=b n=node-2".to_owned(),
                "10.1.2.5 r z=c n=node-3".to_owned(),
                "10.1.2.6 r z=a n=node-4".to_owned(),
            ]
        };
        of_zone("PreferSameNode available", "a", &hinted(ME).each_ref().map(String::as_str), &["10.1.2.3"]);
        let mut unhinted = hinted(ME);
        unhinted[1] = "10.1.2.4 r".to_owned();
        of_zone(
            "PreferSameNode ignored if some endpoints unhinted",
            "a",
            &unhinted.each_ref().map(String::as_str),
            &["10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"],
        );
        of_zone(
            "PreferSameNode falls back to PreferSameZone if no endpoint for node",
            "a",
            &hinted("node-0").each_ref().map(String::as_str),
            &["10.1.2.3", "10.1.2.6"],
        );
    }

    /// The cases of upstream's `TestCategorizeEndpoints` about policies. DIFFERENCE: without any endpoint upstream
    /// gives no lists at all, and here the lists that the policies want are empty.
    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn policies_of_upstream() {
        let e_local = Policies { external_local: true, external: true, ..CLUSTER };
        let i_local = Policies { internal_local: true, external: true, ..CLUSTER };
        let both = Policies { external_local: true, ..i_local };
        let case = |what, policies, backends: &[&str], cluster, local, any| {
            check(&Case { what, zone: "a", policies, backends, cluster, local, any });
        };
        let zoned = ["10.1.2.3 rl z=a", "10.1.2.4 rl z=b", "10.1.2.5 r z=c", "10.1.2.6 r z=a"];
        let (near, here) = (&["10.1.2.3", "10.1.2.6"][..], &["10.1.2.3", "10.1.2.4"][..]);
        case(
            "externalTrafficPolicy: Local, topology ignored for Local",
            e_local,
            &zoned,
            Some(near),
            Some(here),
            true,
        );
        case(
            "internalTrafficPolicy: Local, topology ignored for Local",
            i_local,
            &zoned,
            Some(near),
            Some(here),
            true,
        );
        case(
            "conflicting topology and localness require merging",
            e_local,
            &["10.0.0.0 rl z=a", "10.0.0.1 rl z=b", "10.0.0.2 r z=a", "10.0.0.3 r z=b"],
            Some(&["10.0.0.0", "10.0.0.2"]),
            Some(&["10.0.0.0", "10.0.0.1"]),
            true,
        );
        let (none, zero, one, two) =
            (&[][..], &["10.0.0.0"][..], &["10.0.0.1"][..], &["10.0.0.0", "10.0.0.1"][..]);
        case("iTP: Local, with empty endpoints", INTERNAL, &[], None, Some(none), false);
        let remote = ["10.0.0.0 r", "10.0.0.1 r"];
        case("iTP: Local, but all endpoints are remote", INTERNAL, &remote, None, Some(none), true);
        case(
            "iTP: Local, all endpoints are local",
            INTERNAL,
            &["10.0.0.0 rl", "10.0.0.1 rl"],
            None,
            Some(two),
            true,
        );
        let mixed = ["10.0.0.0 rl", "10.0.0.1 r"];
        case("iTP: Local, some endpoints are local", INTERNAL, &mixed, None, Some(zero), true);
        case("Cluster, endpoints not Ready", CLUSTER, &["10.0.0.0", "10.0.0.1"], Some(none), None, false);
        case(
            "Cluster, some endpoints are Ready",
            CLUSTER,
            &["10.0.0.0", "10.0.0.1 r"],
            Some(one),
            None,
            true,
        );
        case(
            "Cluster, all are terminating",
            CLUSTER,
            &["10.0.0.0 stl", "10.0.0.1 st"],
            Some(two),
            None,
            true,
        );
        case("iTP: Local, eTP: Cluster", i_local, &mixed, Some(two), Some(zero), true);
        case("iTP: Cluster, eTP: Local", e_local, &mixed, Some(two), Some(zero), true);
        case("iTP: Local, eTP: Local", both, &mixed, Some(two), Some(zero), true);
        case("iTP: Local, eTP: Local, all remote", both, &remote, Some(two), Some(none), true);
        let going = ["10.0.0.0 st", "10.0.0.1 st"];
        case("iTP: Local, eTP: Local, all remote and terminating", both, &going, Some(two), Some(none), true);
        case(
            "iTP: Cluster, eTP: Local, with terminating endpoints",
            e_local,
            &["10.0.0.0 r", "10.0.0.1 l", "10.0.0.2 stl", "10.0.0.3 st"],
            Some(zero),
            Some(&["10.0.0.2"]),
            true,
        );
        let inside = Policies { external_local: true, ..CLUSTER };
        let one_here = ["10.0.0.0 r", "10.0.0.1 rl"];
        case("eTP ignored if not externally accessible", inside, &one_here, Some(two), None, true);
        case("no cluster endpoints for iTP:Local internal-only", INTERNAL, &one_here, None, Some(one), true);
        case("empty endpoints when no service endpoints exist", CLUSTER, &[], Some(none), None, false);
        case(
            "single endpoint not ready, not serving, not terminating",
            CLUSTER,
            &["10.0.0.0"],
            Some(none),
            None,
            false,
        );
    }

    #[test]
    fn any_node_will_do() {
        let backends = ["10.0.0.0", "10.0.0.1 st", "10.0.0.2 rs z=a"].map(backend);
        assert_eq!(usable(&backends).len(), 1);
        assert_eq!(usable(&backends[..2]), [&backends[1]]);
        assert!(usable(&backends[..1]).is_empty());
        let nowhere = choose(&backends, INTERNAL, Viewpoint::default());
        assert_eq!((nowhere.local, nowhere.any), (Some(vec![]), true), "an unknown node has no backends");
    }
}
