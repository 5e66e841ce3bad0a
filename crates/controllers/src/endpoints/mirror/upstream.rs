//! Upstream's cases of `pkg/controller/endpointslicemirroring`.

use serde_json::{Value, json};

use super::*;

/// Endpoints `test-ep`, with these members of their metadata.
fn endpoints(meta: &Value, subsets: &Value) -> Endpoints {
    let mut all = json!({"name": "test-ep", "namespace": "test", "uid": "u"});
    for (key, value) in meta.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": all, "subsets": subsets})).unwrap()
}

fn address(ip: &str, n: usize, node: Option<usize>) -> Value {
    json!({"ip": ip, "hostname": format!("pod-{n}"), "nodeName": node.map(|n| format!("node-{n}"))})
}

/// The Endpoints' subset of the one port that most of upstream's cases have.
fn http(addresses: &[Value]) -> Value {
    json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "addresses": addresses})
}

/// A subset of two ports, from this one on.
fn two_ports(ports: [i32; 2], addresses: &[Value], others: &[Value]) -> Value {
    json!({
        "ports": [{"name": "http", "port": ports[0], "protocol": "TCP"},
            {"name": "https", "port": ports[1], "protocol": "UDP"}],
        "addresses": addresses, "notReadyAddresses": others,
    })
}

/// A slice that is there already.
fn existing(meta: &Value, ports: &Value, endpoints: &Value) -> Arc<EndpointSlice> {
    let mut all = json!({
        "name": "test-ep-1", "namespace": "test", "labels": {SERVICE: "test-ep", MANAGED_BY: CONTROLLER},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Endpoints", "name": "test-ep", "uid": "u",
            "controller": true, "blockOwnerDeletion": true}],
    });
    for (key, value) in meta.as_object().unwrap() {
        all[key] = value.clone();
    }
    let slice = json!({"metadata": all, "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
    Arc::new(serde_json::from_value(slice).unwrap())
}

/// The outcome of a sync: slices that are created, updated and deleted; endpoints that come, change and go, and that
/// there are; addresses that are left out.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Outcome {
    created: usize,
    updated: usize,
    deleted: usize,
    added: usize,
    changed: usize,
    removed: usize,
    endpoints: usize,
    skipped: usize,
}

fn made(created: usize, endpoints: usize) -> Outcome {
    Outcome { created, added: endpoints, endpoints, ..Outcome::default() }
}

fn check_limited(meta: Value, subsets: Value, slices: &[Arc<EndpointSlice>], limit: usize, want: &Outcome) {
    let endpoints = endpoints(&meta, &subsets);
    let (plan, left_out) = plan(&endpoints, slices, limit);
    let (figures, changed) = figures(slices, &plan);
    let got = Outcome {
        created: plan.create.len(),
        updated: plan.update.len(),
        deleted: plan.delete.len(),
        added: figures.added,
        changed,
        removed: figures.removed,
        endpoints: figures.endpoints,
        skipped: left_out.invalid + left_out.over,
    };
    assert_eq!(got, *want, "{subsets}");
    for slice in plan.create.iter().chain(&plan.update) {
        let mut labels = meta.get("labels").cloned().unwrap_or(json!({}));
        labels[SERVICE] = "test-ep".into();
        labels[MANAGED_BY] = CONTROLLER.into();
        assert_eq!(json!(slice.metadata.labels), labels);
        let mut annotations = meta.get("annotations").cloned().unwrap_or(json!({}));
        annotations.as_object_mut().unwrap().retain(|key, _| !NOT_MIRRORED.contains(&key.as_str()));
        assert_eq!(json!(slice.metadata.annotations.clone().unwrap_or_default()), annotations);
        assert!(slice.endpoints.as_ref().is_none_or(|all| all.len() <= limit));
    }
}

fn check(meta: Value, subsets: Value, slices: &[Arc<EndpointSlice>], want: Outcome) {
    check_limited(meta, subsets, slices, 1000, &want);
}

const NONE: &[Arc<EndpointSlice>] = &[];

/// 16 of upstream's 28 cases of `TestReconcile`: those without slices that are there before.
#[test]
fn new_slices() {
    let none = || json!({});
    check(none(), json!([]), NONE, made(0, 0));
    check(none(), json!([http(&[])]), NONE, made(0, 0));
    let (a, b) = (address("10.0.0.1", 1, Some(1)), address("10.0.0.2", 2, Some(1)));
    check(none(), json!([http(std::slice::from_ref(&a))]), NONE, made(1, 1));
    let https = |address: &Value| json!({"ports": [{"name": "https", "port": 443, "protocol": "TCP"}], "addresses": [address]});
    check(none(), json!([http(std::slice::from_ref(&a)), https(&b)]), NONE, made(2, 2));
    check(none(), json!([http(std::slice::from_ref(&a)), https(&a)]), NONE, made(1, 1));
    check(none(), json!([http(std::slice::from_ref(&a)), http(&[b])]), NONE, made(1, 2));
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    check(going, json!([http(&[a])]), NONE, made(0, 0));

    let pair = [address("10.0.0.1", 1, Some(1)), address("10.0.0.2", 2, Some(2))];
    let three: Vec<Value> = (1..4).map(|n| address(&format!("10.0.1.{n}"), 10 + n, Some(n))).collect();
    let ports = [80, 443];
    check(none(), json!([two_ports(ports, &pair, &[])]), NONE, made(1, 2));
    check(none(), json!([two_ports(ports, &[], &pair)]), NONE, made(1, 2));
    let ready = [address("10.1.1.1", 11, Some(1)), address("10.1.1.2", 12, Some(2))];
    check(none(), json!([two_ports(ports, &ready, &pair)]), NONE, made(1, 4));
    let two = |first: &[Value], second: &[Value]| {
        json!([two_ports(ports, first, &[]), two_ports([3000, 3001], second, &[])])
    };
    check(none(), two(&pair, &three), NONE, made(2, 5));
    let v6 = |n: usize| format!("2001:db8:{n}{n}{n}{n}:3333:4444:5555:6666:7777");
    let mixed = [address(&v6(2), 1, Some(1)), pair[1].clone()];
    let also = [three[0].clone(), three[1].clone(), address(&v6(3), 13, Some(3))];
    check(none(), two(&mixed, &also), NONE, made(4, 5));
    let all =
        |from: usize, to: usize| -> Vec<Value> { (from..to).map(|n| address(&v6(n), n, Some(1))).collect() };
    check(none(), two(&all(1, 3), &all(3, 6)), NONE, made(2, 5));
    // Texts that are no addresses.
    let bad = |n: usize| address(&format!("this-is-not-an-ip{n}"), n, Some(n));
    let some = two(&[all(1, 2)[0].clone(), bad(2)], &[bad(11), all(4, 5)[0].clone(), all(5, 6)[0].clone()]);
    check(none(), some, NONE, Outcome { skipped: 2, ..made(2, 3) });
    let no = two(&[bad(1), bad(12)], &[bad(11), bad(12), bad(3)]);
    check(none(), no, NONE, Outcome { skipped: 5, ..made(0, 0) });
    // Too many addresses.
    check_limited(none(), two(&pair, &three), NONE, 2, &Outcome { skipped: 1, ..made(2, 4) });
}

/// 9 of upstream's 28 cases of `TestReconcile`: those about owners, labels and annotations.
#[test]
fn metadata_is_mirrored() {
    let one = || json!([http(&[address("10.0.0.1", 1, None)])]);
    let applied = "{\"apiVersion\":\"v1\",\"kind\":\"Endpoints\",\"subsets\":[]}";
    let check_all = |annotations: Value| check(json!({"annotations": annotations}), one(), NONE, made(1, 1));
    check_all(json!({}));
    check_all(json!({NOT_MIRRORED[1]: applied}));
    check_all(json!({NOT_MIRRORED[1]: ""}));
    check_all(json!({NOT_MIRRORED[1]: applied, "foo": "bar"}));
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let there = json!([{"addresses": ["10.0.0.1"], "hostname": "pod-1", "conditions": {"ready": true}}]);
    let again = |meta: Value, slice: Value, updated: usize| {
        let slices = [existing(&slice, &ports, &there)];
        check(meta, one(), &slices, Outcome { updated, endpoints: 1, ..Outcome::default() });
    };
    again(json!({}), json!({}), 0);
    let other = json!([{"apiVersion": "v1", "kind": "Endpoints", "name": "test-ep", "uid": "another"}]);
    again(json!({}), json!({"ownerReferences": other}), 1);
    again(json!({}), json!({"annotations": {"foo": "bar"}}), 1);
    again(json!({"labels": {"foo": "bar"}}), json!({"annotations": {"foo": "bar"}}), 1);
    again(json!({}), json!({"annotations": {NOT_MIRRORED[1]: applied}}), 1);
    // DIFFERENCE: upstream leaves a slice without any owner as it is; here it gets its owner, so that it goes with it.
    again(json!({}), json!({"ownerReferences": null}), 1);
}

/// The last 3 of upstream's 28 cases of `TestReconcile`: slices are there before.
#[test]
fn slices_that_are_there() {
    let pair = [address("10.0.0.1", 1, Some(1)), address("10.0.0.2", 2, Some(2))];
    let three: Vec<Value> = (1..4).map(|n| address(&format!("10.0.1.{n}"), 10 + n, Some(n))).collect();
    let subsets = || json!([two_ports([80, 443], &pair, &[]), two_ports([3000, 3001], &three, &[])]);
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "https", "port": 443, "protocol": "UDP"}]);
    let with = |endpoints: Value, want: Outcome| {
        check(json!({}), subsets(), &[existing(&json!({}), &ports, &endpoints)], want);
    };
    let both = Outcome { created: 1, updated: 1, endpoints: 5, ..Outcome::default() };
    with(json!(null), Outcome { added: 5, ..both });
    let some = json!([{"addresses": ["10.0.0.2"], "hostname": "pod-2"},
        {"addresses": ["10.0.0.1", "10.0.0.3"], "hostname": "pod-1"}]);
    with(some, Outcome { added: 4, changed: 1, removed: 1, ..both });
    let same = |n: usize| {
        json!({"addresses": [format!("10.0.0.{n}")], "hostname": format!("pod-{n}"), "nodeName": format!("node-{n}"),
            "conditions": {"ready": true}})
    };
    with(json!([same(1), same(2)]), Outcome { added: 3, ..made(1, 5) });
}

/// 4 of upstream's 9 cases of `TestSyncEndpoints`: those about addresses. The simulation has the others, which need the
/// caches.
#[test]
fn many_addresses() {
    let subset = |count: usize| {
        let ip = |i: usize| json!({"ip": format!("10.0.{}.{}", i / 255, i % 255)});
        json!([{"ports": [{"port": 80}], "addresses": (0..count).map(ip).collect::<Vec<_>>()}])
    };
    check(json!({}), subset(0), NONE, made(0, 0));
    check(json!({}), subset(1000), NONE, made(1, 1000));
    check(json!({}), subset(1001), NONE, Outcome { skipped: 1, ..made(1, 1000) });
    let old = existing(&json!({}), &json!([]), &json!([]));
    check(json!({}), subset(0), &[old], Outcome { deleted: 1, ..Outcome::default() });
}

/// Upstream's 4 cases of `TestShouldMirror`, and one more.
#[test]
fn what_is_mirrored() {
    let check = |meta: Value, want: bool| {
        assert_eq!(is_mirrored(&endpoints(&meta, &json!([]))), want, "{meta}");
    };
    check(json!({}), true);
    check(json!({"labels": {SKIP: "true"}}), false);
    check(json!({"labels": {SKIP: "false"}}), true);
    check(json!({"labels": {SKIP: "invalid"}}), true);
    check(json!({"annotations": {LEADER: ""}}), false);
}

/// Upstream's 7 cases of `TestRecycleSlices`: the addresses that are wanted, each of a port of its own, the slices of other
/// ports that are there (`=` names a port), and the names of those that take over, that go, and the number of new ones.
#[test]
fn slices_take_over() {
    let check = |wanted: &[&str], there: &[&str], updated: &[&str], deleted: &[&str], created: usize| {
        let subset =
            |(i, ip): (usize, &&str)| json!({"ports": [{"port": 80 + i}], "addresses": [{"ip": ip}]});
        let subsets: Vec<Value> = wanted.iter().enumerate().map(subset).collect();
        let slice = |(i, name): (usize, &&str)| {
            let port = name.split_once('=').map_or(9000 + i, |(_, port)| port.parse().unwrap());
            let mut slice = (*existing(&json!({"name": name}), &json!([{"port": port}]), &json!([]))).clone();
            if name.ends_with("v6") {
                slice.address_type = "IPv6".to_owned();
            }
            Arc::new(slice)
        };
        let slices: Vec<_> = there.iter().enumerate().map(slice).collect();
        let (plan, _) = plan(&endpoints(&json!({}), &json!(subsets)), &slices, 1000);
        let name = |s: &EndpointSlice| s.metadata.name.clone().unwrap();
        let mut names: Vec<String> = plan.update.iter().map(name).collect();
        names.sort();
        assert_eq!(names, updated, "{wanted:?}");
        assert_eq!(plan.delete.iter().map(|s| name(s)).collect::<Vec<_>>(), deleted, "{wanted:?}");
        assert_eq!(plan.create.len(), created, "{wanted:?}");
    };
    let v6 = "2001:db8:1111:3333:4444:5555:6666:7777";
    check(&[], &[], &[], &[], 0);
    check(&["10.1.2.3"], &["bar"], &["bar"], &[], 0);
    check(&["10.1.2.3", "10.3.4.5"], &["bar=80", "foo"], &["bar=80", "foo"], &[], 0);
    check(&["10.1.2.3", "10.3.4.5"], &["bar"], &["bar"], &[], 1);
    check(&["10.1.2.3"], &["bar1", "bar2"], &["bar1"], &["bar2"], 0);
    check(&["10.1.2.3", v6], &["bar-v4", "bar-v6"], &["bar-v4", "bar-v6"], &[], 0);
    check(&["10.1.2.3"], &["bar-v6"], &[], &["bar-v6"], 1);
}

/// Upstream's 5 cases of `TestNewEndpointSlice`.
#[test]
fn a_new_slice() {
    let check = |meta: Value, labels: Value, annotations: Value| {
        let made = slice(&endpoints(&meta, &json!([])), "IPv4", Vec::new(), Vec::new());
        let mut all = labels;
        all[SERVICE] = "test-ep".into();
        all[MANAGED_BY] = CONTROLLER.into();
        let m = &made.metadata;
        assert_eq!(json!(m.labels), all, "{meta}");
        assert_eq!(json!(m.annotations.clone().unwrap_or_default()), annotations, "{meta}");
        assert_eq!((m.generate_name.as_deref(), m.namespace.as_deref()), (Some("test-ep-"), Some("test")));
        let owner = &m.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Endpoints", "test-ep"));
        assert_eq!((made.address_type.as_str(), made.endpoints), ("IPv4", Some(Vec::new())));
    };
    check(json!({}), json!({}), json!({}));
    check(json!({"annotations": {"foo": "bar"}}), json!({}), json!({"foo": "bar"}));
    check(json!({"labels": {"foo": "bar"}}), json!({"foo": "bar"}), json!({}));
    let both = json!({"labels": {"foo": "bar"}, "annotations": {"foo2": "bar2"}});
    check(both, json!({"foo": "bar"}), json!({"foo2": "bar2"}));
    let trigger = json!({"labels": {"foo": "bar"}, "annotations": {"foo2": "bar2", NOT_MIRRORED[0]: "date"}});
    check(trigger, json!({"foo": "bar"}), json!({"foo2": "bar2"}));
}

/// Upstream's case of `TestAddressToEndpoint`.
#[test]
fn an_address() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "foo"});
    let address = json!({"ip": "10.1.2.3", "hostname": "foo", "nodeName": "node-abc", "targetRef": pod});
    let (plan, _) = plan(&endpoints(&json!({}), &json!([{"addresses": [address]}])), NONE, 1000);
    assert_eq!(plan.create[0].address_type, "IPv4");
    let want = json!([{"addresses": ["10.1.2.3"], "hostname": "foo", "nodeName": "node-abc", "targetRef": pod,
        "conditions": {"ready": true}}]);
    assert_eq!(json!(plan.create[0].endpoints), want);
}
