use super::*;
use client::Cached;
use serde_json::{Value, json};

const INSUFFICIENT: &str =
    "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";

/// Slices by the zones of their endpoints: `a b` is one with two; `!` stands before one that is not ready, and `-` for
/// one without a zone.
fn slices(texts: &[&str]) -> Vec<EndpointSlice> {
    let endpoint = |text: &str| {
        let zone = text.trim_start_matches('!');
        json!({"addresses": ["10.1.2.3"], "zone": (zone != "-").then_some(zone),
            "conditions": {"ready": !text.starts_with('!')}})
    };
    let slice = |text: &&str| {
        let endpoints: Vec<Value> = text.split_whitespace().map(endpoint).collect();
        let slice = json!({"metadata": {}, "addressType": "IPv4", "endpoints": endpoints});
        serde_json::from_value(slice).unwrap()
    };
    texts.iter().map(slice).collect()
}

fn hints(slices: &[EndpointSlice]) -> Vec<String> {
    let zone = |e: &k8s_openapi::api::discovery::v1::Endpoint| {
        let zones = e.hints.as_ref().and_then(|h| h.for_zones.as_ref());
        zones.map_or("-".to_owned(), |z| z[0].name.clone())
    };
    let text = |s: &EndpointSlice| s.endpoints.iter().flatten().map(zone).collect::<Vec<_>>().join(" ");
    slices.iter().map(text).collect()
}

fn of(shares: &[(&str, f64)]) -> Option<Shares> {
    Some(shares.iter().map(|(zone, share)| ((*zone).to_owned(), *share)).collect())
        .filter(|s: &Shares| !s.is_empty())
}

/// Upstream's cases of `TestAddHints`.
#[test]
fn added() {
    let check =
        |shares: &[(&str, f64)], create: &[&str], update: &[&str], expected: Result<&[&str], &str>| {
            let mut zones = Zones { shares: of(shares), ..Zones::default() };
            let mut layout = Layout { create: slices(create), update: slices(update), ..Layout::default() };
            let key = Key::new("ns", "svc");
            let said = zones.hint(&key, "IPv4", &mut layout);
            let got: Vec<String> = [hints(&layout.create), hints(&layout.update)].concat();
            match expected {
                Ok(expected) => {
                    assert_eq!(got, expected);
                    assert_eq!(said, [Said::enabled("IPv4")]);
                    assert!(zones.hint(&key, "IPv4", &mut layout).is_empty(), "it is told once");
                    assert!(zones.unhint(&key, "IPv4").is_some() && zones.services.is_empty());
                }
                Err(why) => {
                    assert!(got.iter().all(|s| s.split(' ').all(|h| h == "-" || h.is_empty())), "{got:?}");
                    assert_eq!(said, [Said::disabled(why, "IPv4")]);
                    assert_eq!(zones.unhint(&key, "IPv4"), None);
                }
            }
        };
    check(&[], &[], &[], Err(INSUFFICIENT));
    check(&[], &["a"], &[], Err(INSUFFICIENT));
    let three = [("a", 0.3), ("b", 0.4), ("c", 0.3)];
    check(&three, &["a b"], &[], Err("Insufficient number of endpoints (2 endpoints, 3 zones)"));
    let two = [("a", 0.45), ("b", 0.55)];
    check(&two, &["a b"], &[], Ok(&["a b"]));
    check(&two, &["a b !b !b"], &[], Ok(&["a b - -"]));
    check(&two, &["a -"], &[], Err("One or more endpoints do not have a zone specified"));
    let three = [("a", 0.35), ("b", 0.35), ("c", 0.30)];
    check(&three, &["a b", "c c a"], &["a a", "b c a"], Ok(&["b b", "c c a", "a a", "b c a"]));
    let uneven = [("a", 0.9), ("b", 0.1)];
    let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (2 endpoints, 2 zones)";
    check(&uneven, &["a b"], &[], Err(why));
}

/// Slices that need no change keep their hints, and count.
#[test]
fn unchanged_slices() {
    let mut first = Layout { create: slices(&["a a b b"]), ..Layout::default() };
    let shares = of(&[("a", 0.5), ("b", 0.5)]);
    let counts = assign(&mut first, shares.as_ref()).unwrap();
    assert_eq!(counts.values().collect::<Vec<_>>(), [&2, &2]);
    let kept = std::sync::Arc::new(first.create.remove(0));
    let mut second = Layout { unchanged: vec![kept.clone()], create: slices(&["a b"]), ..Layout::default() };
    assert_eq!(assign(&mut second, shares.as_ref()).unwrap().values().sum::<usize>(), 6);
    assert_eq!((second.unchanged.len(), second.update.len()), (1, 0));
    // A zone that needs none any more, and too many of a zone.
    let other = of(&[("a", 0.5), ("c", 0.5)]);
    let mut third = Layout { unchanged: vec![kept.clone()], ..Layout::default() };
    assign(&mut third, other.as_ref()).unwrap();
    assert_eq!((third.unchanged.len(), third.update.len()), (0, 1));
    let shifted = of(&[("a", 0.75), ("b", 0.25)]);
    let mut fourth = Layout { unchanged: vec![kept], ..Layout::default() };
    assign(&mut fourth, shifted.as_ref()).unwrap();
    assert_eq!(hints(&fourth.update), ["a a a b"]);
}

/// Upstream's cases of `TestSetNodes`: zone, CPU, readiness, and whether it is of the control plane.
#[test]
fn shares_of_nodes() {
    let check = |nodes: &[(&str, &str, bool, bool)], expected: &[(&str, f64)]| {
        let node = |(zone, cpu, ready, control): &(&str, &str, bool, bool)| {
            let mut labels = json!({});
            if !zone.is_empty() {
                labels[ZONE] = json!(zone);
            }
            if *control {
                labels[EXCLUDED[0]] = json!("");
            }
            let node = json!({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"cpu": cpu, "memory": "7"},
                "conditions": [{"type": "Ready", "status": if *ready { "True" } else { "False" }}]}});
            NodeView::decode(node.to_string().as_bytes()).unwrap()
        };
        let nodes: Vec<NodeView> = nodes.iter().map(node).collect();
        assert_eq!(shares(nodes.iter()), of(expected), "{nodes:?}");
    };
    let one = |zone| (zone, "1000m", true, false);
    check(&[], &[]);
    check(&[one("a")], &[]);
    check(&[one("a"), one("a")], &[]);
    check(&[one("a"), one("b")], &[("a", 0.5), ("b", 0.5)]);
    check(&[("a", "1", false, false), one("b")], &[]);
    check(&[one("a"), ("b", "1", true, true)], &[]);
    check(&[one("a"), one("b"), ("b", "1", false, false)], &[("a", 0.5), ("b", 0.5)]);
    check(&[one("a"), one("b"), ("b", "1", true, true)], &[("a", 0.5), ("b", 0.5)]);
    check(&[one("a"), one("b"), one("")], &[]);
    check(&[one("a"), one("b"), ("b", "0", true, false)], &[]);
    check(
        &[
            one("a"),
            one("a"),
            one("a"),
            ("a", "2", true, false),
            ("b", "3", true, false),
            ("b", "1500m", true, false),
            ("c", "500m", true, false),
        ],
        &[("a", 0.5), ("b", 0.45), ("c", 0.05)],
    );
}

/// Upstream's cases of `Test_getGivingAndReceivingZones`.
#[test]
fn giving_and_receiving() {
    type Given<'a> = &'a [(&'a str, usize)];
    let check = |desired: &[(&str, f64)], has: Given<'_>, giving: Given<'_>, receiving: Given<'_>| {
        let counts = |c: Given<'_>| -> Counts { c.iter().map(|(z, n)| ((*z).to_owned(), *n)).collect() };
        let allocation = |(zone, desired): &(&str, f64)| {
            ((*zone).to_owned(), Allocation { maximum: 0, desired: *desired })
        };
        let allocations = desired.iter().map(allocation).collect();
        assert_eq!(
            moves(&allocations, &counts(has)),
            (counts(giving), counts(receiving)),
            "{desired:?} {has:?}"
        );
    };
    check(&[], &[], &[], &[]);
    check(&[("a", 1.2), ("b", 1.1), ("c", 1.0)], &[("a", 1), ("b", 1), ("c", 1)], &[], &[]);
    check(&[("a", 5.1), ("b", 5.1), ("c", 5.8)], &[("a", 16)], &[("a", 10)], &[("b", 5), ("c", 5)]);
    let three = [("a", 5.0), ("b", 5.6), ("c", 5.4)];
    check(&three, &[("a", 16)], &[("a", 11)], &[("b", 6), ("c", 5)]);
    check(&three, &[("b", 8), ("c", 8)], &[("b", 2), ("c", 3)], &[("a", 5)]);
    check(&[("a", 5.0), ("b", 5.0), ("c", 5.0)], &[("a", 6), ("b", 6), ("c", 6)], &[], &[]);
    check(&[("a", -5.0), ("b", -5.0), ("c", -5.0)], &[("a", 6), ("b", 6), ("c", 6)], &[], &[]);
}

/// Upstream's cases of `Test_serviceOverloaded`, and that nodes' changes find such Services.
#[test]
fn overloaded() {
    let check = |counts: &[(&str, usize)], shares: &[(&str, f64)], expected: bool| {
        let counts: Counts = counts.iter().map(|(z, n)| ((*z).to_owned(), *n)).collect();
        assert_eq!(is_overloaded(&counts, &of(shares).unwrap_or_default()), expected, "{counts:?}");
    };
    check(&[], &[], false);
    check(&[("a", 1)], &[], true);
    check(&[("a", 1), ("b", 1)], &[("a", 0.5), ("b", 0.5)], false);
    check(&[("a", 5), ("b", 5)], &[("a", 0.6), ("b", 0.4)], false);
    check(&[("a", 4), ("b", 6)], &[("a", 0.6), ("b", 0.4)], true);
    check(&[("a", 2)], &[("a", 0.5), ("b", 0.5)], true);
    let mut zones = Zones { shares: of(&[("a", 0.5), ("b", 0.5)]), ..Zones::default() };
    let key = Key::new("ns", "svc");
    zones.hint(&key, "IPv4", &mut Layout { create: slices(&["a b"]), ..Layout::default() });
    assert_eq!(zones.set_nodes(std::iter::empty()), vec![key.clone()]);
    zones.forget(&key);
    assert!(zones.set_nodes(std::iter::empty()).is_empty());
}

/// The older annotation counts more.
#[test]
fn annotations() {
    let check = |annotations: Value, expected: bool| {
        let service = json!({"metadata": {"annotations": annotations}});
        assert_eq!(asked(&serde_json::from_value(service).unwrap()), expected, "{annotations}");
    };
    check(Value::Null, false);
    check(json!({ANNOTATIONS[1]: "Auto"}), true);
    check(json!({ANNOTATIONS[1]: "auto"}), true);
    check(json!({ANNOTATIONS[1]: "AUTO"}), false);
    check(json!({ANNOTATIONS[0]: "auto"}), true);
    check(json!({ANNOTATIONS[0]: "disabled", ANNOTATIONS[1]: "Auto"}), false);
}
