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
    // Upstream's cases of `Test_hintsEnabled`.
    check(json!({"topology-hints": "enabled"}), false);
    for name in ANNOTATIONS {
        check(json!({name: "enabled"}), false);
        check(json!({name: "aUto"}), false);
        check(json!({name: "auto"}), true);
        check(json!({name: "Auto"}), true);
        check(json!({name: "disabled"}), false);
    }
    check(json!({ANNOTATIONS[1]: "disabled", ANNOTATIONS[0]: "auto"}), true);
    check(json!({ANNOTATIONS[1]: "auto", ANNOTATIONS[0]: "disabled"}), false);
}

fn numbers(all: &[(&str, usize)]) -> Counts {
    all.iter().map(|(zone, n)| ((*zone).to_owned(), *n)).collect()
}

/// Upstream's cases of `Test_redistributeHints`: endpoints of the zone `a`, the numbers that zones give and receive, and
/// the endpoints for each zone then.
#[test]
fn redistributed() {
    type Given<'a> = &'a [(&'a str, usize)];
    let check = |endpoints: &str, giving: Given<'_>, receiving: Given<'_>, want: Given<'_>| {
        let mut layout = Layout { create: slices(&[endpoints]), ..Layout::default() };
        let mut counts = Counts::new();
        for endpoint in layout.written().flat_map(|s| s.endpoints.iter_mut().flatten()) {
            endpoint.hints = endpoint.zone.as_deref().map(of_zone);
            *counts.entry(endpoint.zone.clone().unwrap()).or_default() += 1;
        }
        redistribute(&mut layout, numbers(giving), numbers(receiving), &mut counts);
        counts.retain(|_, n| *n > 0);
        assert_eq!(counts, numbers(want), "{endpoints}");
        let mut told = Counts::new();
        for zone in hints(&layout.create).iter().flat_map(|s| s.split_whitespace()) {
            *told.entry(zone.to_owned()).or_default() += 1;
        }
        assert_eq!(told, numbers(want), "{endpoints}");
    };
    check("", &[], &[], &[]);
    check("a", &[("a", 1)], &[("b", 1)], &[("b", 1)]);
    check("a a a", &[("a", 2)], &[("b", 1), ("c", 1)], &[("a", 1), ("b", 1), ("c", 1)]);
}

/// Upstream's cases of `Test_getHintsByZone`: endpoints with their hints (none: `-`; not ready: `!`), the hints of other
/// slices, the most of each zone, and the hints that may stay.
#[test]
fn hints_that_may_stay() {
    type Given<'a> = &'a [(&'a str, usize)];
    let check = |endpoints: &[(&str, Value)], others: Given<'_>, most: Given<'_>, want: Option<Given<'_>>| {
        let all: Vec<Value> = endpoints
            .iter()
            .map(|(ready, hints)| {
                let conditions = match *ready {
                    "yes" => json!({"ready": true}),
                    "no" => json!({"ready": false}),
                    _ => json!({}),
                };
                json!({"addresses": ["10.1.2.3"], "zone": "a", "conditions": conditions, "hints": hints})
            })
            .collect();
        let slice = json!({"metadata": {}, "addressType": "IPv4", "endpoints": all});
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        let allocation = |(zone, maximum): &(&str, usize)| {
            ((*zone).to_owned(), Allocation { maximum: *maximum, desired: 0.0 })
        };
        let allocations = most.iter().map(allocation).collect();
        let got = counts_of(&slice, &numbers(others), &allocations);
        assert_eq!(got, want.map(numbers), "{endpoints:?}");
    };
    let of = |zone: &str| json!({"forZones": [{"name": zone}]});
    let (a, three) = (("yes", of("a")), [("a", 3)]);
    check(&[], &[], &[], Some(&[]));
    check(std::slice::from_ref(&a), &[("a", 1)], &three, Some(&[("a", 1)]));
    check(&[a.clone(), ("no", of("a")), ("", of("a"))], &[("a", 1)], &three, Some(&[("a", 1)]));
    check(
        &[a.clone(), ("yes", of("b")), ("yes", of("b"))],
        &[("a", 1), ("b", 1), ("c", 1)],
        &[("a", 3), ("b", 3), ("c", 3)],
        Some(&[("a", 1), ("b", 2)]),
    );
    check(&[("yes", of("non-existent"))], &[("a", 1), ("b", 1), ("c", 1)], &three, None);
    check(&[("yes", Value::Null)], &[], &three, None);
    check(&[("yes", json!({"forZones": []}))], &[], &three, None);
    check(&[a.clone(), a], &[("a", 1)], &[("a", 2)], None);
}

/// Upstream's cases of `Test_getTotalReadyEndpoints`: the numbers of ready and other endpoints of slices that are
/// created, updated and left.
#[test]
fn ready_endpoints() {
    type Sizes<'a> = &'a [(usize, usize)];
    let check = |create: Sizes<'_>, update: Sizes<'_>, unchanged: Sizes<'_>, want: usize| {
        let of = |sizes: Sizes<'_>| {
            let text =
                |(ready, others): &(usize, usize)| ["a ".repeat(*ready), "!a ".repeat(*others)].concat();
            let texts: Vec<String> = sizes.iter().map(text).collect();
            slices(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let unchanged = of(unchanged).into_iter().map(std::sync::Arc::new).collect();
        let layout = Layout { create: of(create), update: of(update), unchanged, ..Layout::default() };
        assert_eq!(ready_in(layout.all()), want);
    };
    check(&[], &[], &[], 0);
    check(&[(0, 0)], &[], &[], 0);
    check(&[(15, 0), (8, 0)], &[], &[], 23);
    check(&[(15, 0), (8, 0)], &[(2, 0)], &[(100, 0), (90, 0)], 215);
    check(&[(15, 3), (5, 4)], &[(3, 8)], &[(98, 2), (90, 6)], 211);
}

/// Upstream's cases of `TestReconcileTopology`: slices that are there, the endpoints for each of three zones of the same
/// size, those of them that are in another, and the writes. The rows without hints are left out: then nothing is asked here.
#[test]
fn slices_that_are_there() {
    let check = |there: &[&str], want: &[(&str, usize)], elsewhere: usize, writes: usize| {
        let unchanged = slices(there).into_iter().map(std::sync::Arc::new).collect();
        let mut layout = Layout { unchanged, ..Layout::default() };
        let third = 1.0 / 3.0;
        let mut zones = Zones { shares: of(&[("a", third), ("b", third), ("c", third)]), ..Zones::default() };
        zones.hint(&Key::new("ns", "svc"), "IPv4", &mut layout);
        let (mut told, mut moved) = (Counts::new(), 0);
        for endpoint in layout.all().flat_map(|s| s.endpoints.iter().flatten()) {
            let Some(zones) = endpoint.hints.as_ref().and_then(|h| h.for_zones.as_ref()) else { continue };
            *told.entry(zones[0].name.clone()).or_default() += 1;
            moved += usize::from(endpoint.zone.as_ref() != Some(&zones[0].name));
        }
        assert_eq!((told, moved, layout.update.len()), (numbers(want), elsewhere, writes), "{there:?}");
    };
    let even = [("a", 1), ("b", 1), ("c", 1)];
    check(&["c c c"], &even, 2, 1);
    check(&["a a c c"], &[], 0, 0);
    check(&["a a c c", "a a b b b"], &[("a", 3), ("b", 3), ("c", 3)], 1, 2);
}
