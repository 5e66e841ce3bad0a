//! Hints of `spec.trafficDistribution`: each ready endpoint is for its own zone, or its own node too (upstream:
//! `trafficdist/trafficdist.go`).

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone};

use super::layout::Layout;

/// Whether an endpoint is known to be ready.
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|c| c.ready == Some(true))
}

/// Gives each ready endpoint its hints: its zone, and with `nodes` its node. The hints of others stay.
pub(super) fn keep_close(layout: &mut Layout, nodes: bool) {
    let hints = |e: &Endpoint| if is_ready(e) { close(e, nodes) } else { e.hints.clone() };
    give(layout, &hints);
}

/// Takes all hints.
pub(super) fn remove(layout: &mut Layout) {
    give(layout, &|_| None);
}

fn give(layout: &mut Layout, hints: &dyn Fn(&Endpoint) -> Option<EndpointHints>) {
    layout.touch(|slice| slice.endpoints.iter().flatten().any(|e| e.hints != hints(e)));
    for endpoint in layout.written().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        endpoint.hints = hints(endpoint);
    }
}

fn close(endpoint: &Endpoint, nodes: bool) -> Option<EndpointHints> {
    let zone = endpoint.zone.clone().map(|name| vec![ForZone { name }]);
    let node = endpoint.node_name.clone().filter(|_| nodes).map(|name| vec![ForNode { name }]);
    (zone.is_some() || node.is_some()).then_some(EndpointHints { for_zones: zone, for_nodes: node })
}

/// Makes the hint of one zone.
pub(super) fn of_zone(zone: &str) -> EndpointHints {
    EndpointHints { for_zones: Some(vec![ForZone { name: zone.to_owned() }]), for_nodes: None }
}

/// Returns the number of ready endpoints of slices.
pub(super) fn ready_in<'s>(slices: impl Iterator<Item = &'s EndpointSlice>) -> usize {
    slices.flat_map(|s| s.endpoints.iter().flatten()).filter(|e| is_ready(e)).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde_json::{Value, json};

    fn slice(endpoints: &Value) -> EndpointSlice {
        serde_json::from_value(
            json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": endpoints}),
        )
        .unwrap()
    }

    /// An endpoint: its zone, its node, whether it is ready, and its hints.
    type Case<'a> = (Option<&'a str>, Option<&'a str>, bool, Value);

    fn endpoint((zone, node, ready, hints): &Case<'_>) -> Value {
        json!({"addresses": ["10.0.0.1"], "zone": zone, "nodeName": node, "conditions": {"ready": ready}, "hints": hints})
    }

    /// Upstream's cases of `TestReconcileHints`: what is new or written anyway always gets its hints; an unchanged
    /// slice is written only if hints are missing or wrong.
    #[test]
    fn cases() {
        let zone = |z: &str| json!({"forZones": [{"name": z}]});
        let both = |z: &str, n: &str| json!({"forZones": [{"name": z}], "forNodes": [{"name": n}]});
        let node = |n: &str| json!({"forNodes": [{"name": n}]});
        let check = |nodes: bool, before: &[Case<'_>], expected: Vec<Value>| {
            let given = json!(before.iter().map(endpoint).collect::<Vec<_>>());
            let hints = |s: &EndpointSlice| -> Vec<Value> {
                s.endpoints.iter().flatten().map(|e| serde_json::to_value(&e.hints).unwrap()).collect()
            };
            let mut new = Layout { create: vec![slice(&given)], ..Layout::default() };
            keep_close(&mut new, nodes);
            assert_eq!(hints(&new.create[0]), expected, "{given}");
            let mut old = Layout { unchanged: vec![Arc::new(slice(&given))], ..Layout::default() };
            keep_close(&mut old, nodes);
            let differs = before.iter().zip(&expected).any(|(b, e)| b.3 != *e);
            assert_eq!(
                (old.update.len(), old.unchanged.len()),
                (usize::from(differs), usize::from(!differs)),
                "{given}"
            );
            if let Some(written) = old.update.first() {
                assert_eq!(hints(written), expected, "{given}");
            }
        };
        let none = Value::Null;
        let a = |hints: &Value| (Some("a"), Some("n"), true, hints.clone());
        check(false, &[a(&none)], vec![zone("a")]);
        check(true, &[a(&none)], vec![both("a", "n")]);
        // An unready endpoint gets none, and one without a zone none of a zone.
        check(false, &[(Some("a"), Some("n"), false, none.clone())], vec![none.clone()]);
        check(false, &[(None, Some("n"), true, none.clone())], vec![none.clone()]);
        check(true, &[(None, Some("n"), true, none.clone())], vec![node("n")]);
        check(true, &[(Some("a"), None, true, none.clone())], vec![zone("a")]);
        // Hints that are right, wrong, too many, or of another setting.
        check(false, &[a(&zone("a"))], vec![zone("a")]);
        check(false, &[a(&zone("b"))], vec![zone("a")]);
        check(false, &[a(&json!({"forZones": [{"name": "a"}, {"name": "b"}]}))], vec![zone("a")]);
        check(false, &[a(&both("a", "n"))], vec![zone("a")]);
        check(true, &[a(&zone("a"))], vec![both("a", "n")]);
        check(true, &[a(&both("a", "m"))], vec![both("a", "n")]);
        check(false, &[(None, Some("n"), true, zone("a"))], vec![none.clone()]);
        check(
            false,
            &[a(&zone("a")), (Some("b"), Some("m"), true, none.clone())],
            vec![zone("a"), zone("b")],
        );
    }

    #[test]
    fn hints_that_go() {
        let with = json!([{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}]}}]);
        let without = json!([{"addresses": ["10.0.0.1"]}]);
        let mut layout = Layout {
            create: vec![slice(&with)],
            update: vec![slice(&with)],
            unchanged: vec![Arc::new(slice(&with)), Arc::new(slice(&without))],
            ..Layout::default()
        };
        remove(&mut layout);
        assert_eq!((layout.create.len(), layout.update.len(), layout.unchanged.len()), (1, 2, 1));
        assert!(layout.written().all(|s| s.endpoints.iter().flatten().all(|e| e.hints.is_none())));
    }
}
