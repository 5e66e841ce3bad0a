//! A NetworkPolicy as it is meant: what its defaults are, and its rules in a normal form; pure.

use std::sync::Arc;

use compact_str::CompactString as Text;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use objects::backends::Family;
use objects::{Cidr, Selector};

use crate::ranges::{join, without};
use crate::views::protocol;

/// The way of packets, as a Pod sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Ingress, Direction::Egress];
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A label selector with a text that is the same for all that mean the same in the same way.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    text: Arc<str>,
    selector: Arc<Selector>,
    /// A label that all selected objects have.
    anchor: Option<(Text, Text)>,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for Wanted {}
impl std::hash::Hash for Wanted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Wanted {
    pub(crate) fn new(of: &LabelSelector) -> Self {
        let mut terms: Vec<(&str, &str, Vec<&str>)> = Vec::new();
        for (key, value) in of.match_labels.iter().flatten() {
            terms.push((key, "In", vec![value]));
        }
        for term in of.match_expressions.iter().flatten() {
            let mut values: Vec<&str> = term.values.iter().flatten().map(String::as_str).collect();
            values.sort_unstable();
            values.dedup();
            terms.push((&term.key, &term.operator, values));
        }
        terms.sort_unstable();
        terms.dedup();
        let anchor = terms.iter().find_map(|(key, operator, values)| match values[..] {
            [value] if *operator == "In" => Some((Text::from(*key), Text::from(value))),
            _ => None,
        });
        // A list of texts is always written.
        let text = serde_json::to_string(&terms).unwrap_or_default();
        Self { text: text.into(), selector: Arc::new(Selector::or_nothing(of)), anchor }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
    pub(crate) fn selector(&self) -> &Selector {
        &self.selector
    }
    pub(crate) fn anchor(&self) -> Option<&(Text, Text)> {
        self.anchor.as_ref()
    }
}

/// The namespaces in which Pods are selected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    Namespace(Text),
    Namespaces(Wanted),
}

/// A choice of Pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Selection {
    pub(crate) scope: Scope,
    pub(crate) pods: Wanted,
}

/// Ranges of addresses of one family, apart from each other and in order.
pub(crate) type Ranges = Arc<[(u128, u128)]>;

/// Addresses of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Blocks([Ranges; 2]);

impl Blocks {
    pub(crate) fn of(&self, family: Family) -> &Ranges {
        &self.0[usize::from(family == Family::V6)]
    }

    fn new(all: &[&IPBlock]) -> Self {
        let of = |v6: bool| {
            let mut ranges = Vec::new();
            for block in all {
                let Ok(cidr) = block.cidr.parse::<Cidr>() else { continue };
                if cidr.is_v6() != v6 {
                    continue;
                }
                let except = block.except.iter().flatten().filter_map(|text| text.parse::<Cidr>().ok());
                let except = except.filter(|e| e.is_v6() == v6).map(|e| (e.first(), e.last()));
                ranges.extend(without((cidr.first(), cidr.last()), except.collect()));
            }
            join(ranges).into()
        };
        Self([of(false), of(true)])
    }
}

/// Ports of protocols.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ports {
    /// Protocol, first and last port; apart from each other and in order.
    pub(crate) numbers: Vec<(u8, u16, u16)>,
    /// Protocol and name.
    pub(crate) names: Vec<(u8, Text)>,
}

impl Ports {
    fn new(all: &[NetworkPolicyPort]) -> Self {
        let mut numbers: Vec<(u8, (u16, u16))> = Vec::new();
        let mut names = Vec::new();
        for one in all {
            let Some(protocol) = protocol(one.protocol.as_deref()) else { continue };
            match &one.port {
                None => numbers.push((protocol, (0, u16::MAX))),
                Some(IntOrString::Int(first)) => {
                    let last = one.end_port.unwrap_or(*first);
                    if let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(last)) {
                        numbers.push((protocol, (first, last)));
                    }
                }
                Some(IntOrString::String(name)) => names.push((protocol, Text::from(name.as_str()))),
            }
        }
        names.sort_unstable();
        names.dedup();
        let mut protocols: Vec<u8> = numbers.iter().map(|(protocol, _)| *protocol).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let of = |wanted: u8| {
            let all =
                numbers.iter().filter(move |(protocol, _)| *protocol == wanted).map(|(_, range)| *range);
            join(all.collect()).into_iter().map(move |(first, last)| (wanted, first, last))
        };
        Self { numbers: protocols.into_iter().flat_map(of).collect(), names }
    }

    fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.names.is_empty()
    }
}

/// Peers of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    pub(crate) selections: Vec<Selection>,
    pub(crate) blocks: Blocks,
}

/// Traffic that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// None for everybody.
    pub(crate) peers: Option<Peers>,
    /// None for all protocols and ports.
    pub(crate) ports: Option<Arc<Ports>>,
}

/// A NetworkPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The Pods for which it holds.
    pub(crate) subject: Selection,
    /// Ingress and egress: none if it does not isolate Pods in that direction.
    rules: [Option<Vec<Rule>>; 2],
}

impl Policy {
    /// The rules of a direction; none if the policy does not isolate Pods in it.
    pub(crate) fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        self.rules[usize::from(direction == Direction::Egress)].as_deref()
    }

    pub(crate) fn new(of: &NetworkPolicy) -> Self {
        let namespace = Text::from(of.metadata.namespace.as_deref().unwrap_or_default());
        let empty = NetworkPolicySpec::default();
        let spec = of.spec.as_ref().unwrap_or(&empty);
        let all_pods = LabelSelector::default();
        let subject = Selection {
            scope: Scope::Namespace(namespace.clone()),
            pods: Wanted::new(spec.pod_selector.as_ref().unwrap_or(&all_pods)),
        };
        let types = spec.policy_types.as_deref().unwrap_or_default();
        let has = |kind: &str| types.iter().any(|t| t == kind);
        let (ingress, egress) = (spec.ingress.as_deref(), spec.egress.as_deref());
        let by_default = types.is_empty();
        let ingress = (has("Ingress") || by_default).then(|| {
            let rules = ingress.unwrap_or_default().iter();
            rules.filter_map(|r| rule(&namespace, r.from.as_deref(), r.ports.as_deref())).collect()
        });
        let egress =
            (has("Egress") || (by_default && egress.is_some_and(|all| !all.is_empty()))).then(|| {
                let rules = egress.unwrap_or_default().iter();
                rules.filter_map(|r| rule(&namespace, r.to.as_deref(), r.ports.as_deref())).collect()
            });
        Self { subject, rules: [ingress, egress] }
    }
}

/// A rule; none if it allows nothing.
fn rule(
    namespace: &Text,
    peers: Option<&[NetworkPolicyPeer]>,
    ports: Option<&[NetworkPolicyPort]>,
) -> Option<Rule> {
    let peers = peers.filter(|all| !all.is_empty()).map(|all| {
        let mut selections = Vec::new();
        for peer in all {
            let scope = match &peer.namespace_selector {
                Some(namespaces) => Scope::Namespaces(Wanted::new(namespaces)),
                None => Scope::Namespace(namespace.clone()),
            };
            let pods = match (&peer.pod_selector, &peer.namespace_selector) {
                (Some(pods), _) => Wanted::new(pods),
                (None, Some(_)) => Wanted::new(&LabelSelector::default()),
                (None, None) => continue,
            };
            let one = Selection { scope, pods };
            if !selections.contains(&one) {
                selections.push(one);
            }
        }
        let blocks: Vec<&IPBlock> = all.iter().filter_map(|peer| peer.ip_block.as_ref()).collect();
        Peers { selections, blocks: Blocks::new(&blocks) }
    });
    let ports = ports.filter(|all| !all.is_empty()).map(|all| Arc::new(Ports::new(all)));
    if ports.as_ref().is_some_and(|ports| ports.is_empty()) {
        return None;
    }
    Some(Rule { peers, ports })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(spec: Value) -> Policy {
        let object = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": spec});
        Policy::new(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn directions() {
        let check = |spec: Value, ingress: Option<usize>, egress: Option<usize>| {
            let policy = policy(spec.clone());
            let count = |direction| policy.rules(direction).map(<[Rule]>::len);
            assert_eq!((count(Direction::Ingress), count(Direction::Egress)), (ingress, egress), "{spec}");
        };
        check(json!({"podSelector": {}}), Some(0), None);
        check(json!({"podSelector": {}, "ingress": [{}]}), Some(1), None);
        check(json!({"podSelector": {}, "egress": []}), Some(0), None);
        check(json!({"podSelector": {}, "egress": [{}]}), Some(0), Some(1));
        check(json!({"podSelector": {}, "policyTypes": ["Egress"]}), None, Some(0));
        check(json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}), None, Some(0));
        check(json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}), Some(0), Some(0));
        check(json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{}]}), Some(0), None);
        check(json!({"ingress": [{"ports": [{"protocol": "ICMP"}]}]}), Some(0), None);
    }

    #[test]
    fn ports() {
        let check = |ports: Value, numbers: &[(u8, u16, u16)], names: &[(u8, &str)]| {
            let policy = policy(json!({"podSelector": {}, "ingress": [{"ports": ports}]}));
            let found = policy.rules(Direction::Ingress).unwrap()[0].ports.clone().unwrap();
            let found_names: Vec<_> = found.names.iter().map(|(p, n)| (*p, n.as_str())).collect();
            assert_eq!((&found.numbers[..], &found_names[..]), (numbers, names), "{ports}");
        };
        check(json!([{"port": 80}]), &[(6, 80, 80)], &[]);
        check(
            json!([{"port": 80}, {"port": 81}, {"port": 80, "protocol": "UDP"}]),
            &[(6, 80, 81), (17, 80, 80)],
            &[],
        );
        check(json!([{"port": 80, "endPort": 90, "protocol": "SCTP"}]), &[(132, 80, 90)], &[]);
        check(json!([{"protocol": "UDP"}, {"protocol": "UDP", "port": 5}]), &[(17, 0, 65535)], &[]);
        check(
            json!([{"port": "http"}, {"port": "dns", "protocol": "UDP"}]),
            &[],
            &[(6, "http"), (17, "dns")],
        );
    }

    #[test]
    fn selectors_that_mean_the_same_are_one() {
        let wanted = |value: Value| Wanted::new(&serde_json::from_value(value).unwrap());
        let plain = wanted(json!({"matchLabels": {"a": "1", "b": "2"}}));
        let term = |key: &str, values: Value| json!({"key": key, "operator": "In", "values": values});
        let other =
            wanted(json!({"matchExpressions": [term("b", json!(["2"])), term("a", json!(["1", "1"]))]}));
        assert_eq!((&plain, plain.anchor()), (&other, Some(&("a".into(), "1".into()))));
        assert_ne!(plain, wanted(json!({"matchLabels": {"a": "1"}})));
        assert_ne!(plain, wanted(json!({"matchExpressions": [term("a", json!(["1", "2"]))]})));
        assert_eq!(wanted(json!({"matchExpressions": [term("a", json!(["1", "2"]))]})).anchor(), None);
        assert!(wanted(json!({})).selector().is_everything());
    }

    #[test]
    fn blocks_without_exceptions() {
        let blocks = |value: Value| {
            let all: Vec<IPBlock> = serde_json::from_value(value).unwrap();
            Blocks::new(&all.iter().collect::<Vec<_>>())
        };
        let found = blocks(json!([
            {"cidr": "10.0.0.0/30", "except": ["10.0.0.1/32"]}, {"cidr": "10.0.0.4/32"}, {"cidr": "fd00::/127"}, {"cidr": "x"},
        ]));
        let base = 10 << 24;
        assert_eq!(found.of(Family::V4)[..], [(base, base), (base + 2, base + 4)]);
        assert_eq!(found.of(Family::V6).len(), 1);
        // What one block leaves out another may have.
        let both = json!([{"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}, {"cidr": "10.0.0.0/8"}]);
        assert_eq!(blocks(both).of(Family::V4)[..], [(0, u128::from(u32::MAX))]);
    }
}
