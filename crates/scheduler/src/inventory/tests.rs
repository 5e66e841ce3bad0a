use serde_json::{Value, json};

use super::*;
use crate::devices::DeviceId;

fn claim(version: &str, device: Option<&str>) -> ResourceClaim {
    let mut claim = json!({"metadata": {"namespace": "n", "name": "c", "uid": "u", "resourceVersion": version}, "spec": {}});
    if let Some(device) = device {
        claim["status"] = json!({"allocation": allocated(device)});
    }
    serde_json::from_value(claim).unwrap()
}

fn allocated(device: &str) -> Value {
    json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": device}]}})
}

fn devices(store: &Devices) -> usize {
    store.read().allocated().len()
}

#[test]
fn a_claim_is_assumed_until_something_newer_is_shown() {
    let store = Devices::default();
    let show = |claim: ResourceClaim| drop(store.take(&News::Claim(Change::Added(Arc::new(claim)))));
    let assume = |claim: ResourceClaim| store.write().assume(claim);
    assert_eq!(assume(claim("1", None)), Err(NotAssumed::Unknown));
    show(claim("2", None));
    assert_eq!(devices(&store), 0);
    assert_eq!(assume(claim("1", Some("a"))), Err(NotAssumed::Outdated));
    assert_eq!(assume(claim("4", Some("a"))), Ok(()));
    assert_eq!(devices(&store), 1);
    // The write of the finalizer, which came before.
    show(claim("3", None));
    assert_eq!(devices(&store), 1, "that is older");
    store.write().restore("n", "c");
    assert_eq!(devices(&store), 0);
    show(claim("4", Some("a")));
    show(claim("5", None));
    assert_eq!(devices(&store), 0);
}

#[test]
fn devices_in_flight_are_allocated() {
    let store = Devices::default();
    let shown = Arc::new(claim("1", None));
    store.take(&News::Claim(Change::Added(shown.clone())));
    let allocation = || serde_json::from_value::<AllocationResult>(allocated("a")).unwrap();
    store.write().set_pending("u", allocation());
    assert!(store.read().pending("u").is_some());
    assert_eq!(devices(&store), 1);
    // They are written: at no time are they free.
    let mut known = store.write();
    known.assume(claim("2", Some("a"))).unwrap();
    assert!(known.end_pending("u") && !known.end_pending("u"));
    drop(known);
    assert_eq!(devices(&store), 1);
    store.take(&News::Claim(Change::Deleted(shown)));
    assert_eq!(devices(&store), 0);
    store.write().set_pending("v", allocation());
    store.write().end_pending("v");
    assert_eq!(devices(&store), 0);
}

#[test]
fn classes_of_extended_resources() {
    let store = Devices::default();
    let class = |name: &str, resource: &str, created: &str| -> Arc<DeviceClass> {
        let meta = json!({"name": name, "creationTimestamp": created});
        let spec = json!({"extendedResourceName": (!resource.is_empty()).then_some(resource)});
        Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap())
    };
    let of = |resource: &str| store.read().class_of(resource).and_then(|c| c.metadata.name.clone());
    let take = |change| drop(store.take(&News::Class(change)));
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    take(Change::Added(class("a", "x/y", old)));
    assert_eq!(of("x/y").as_deref(), Some("a"));
    assert_eq!(of("deviceclass.resource.kubernetes.io/a").as_deref(), Some("a"));
    assert_eq!(of("deviceclass.resource.kubernetes.io/b"), None);
    take(Change::Added(class("c", "x/y", new)));
    take(Change::Added(class("b", "x/y", new)));
    assert_eq!(of("x/y").as_deref(), Some("b"), "the newest, and the first by name");
    take(Change::Deleted(class("b", "x/y", new)));
    take(Change::Updated { old: class("c", "x/y", new), new: class("c", "", new) });
    assert_eq!(of("x/y").as_deref(), Some("a"));
}

#[test]
fn rules_taint_devices() {
    let store = Devices::default();
    store.begin(Clock::system(), true, true);
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "devices": [{"name": "a"}, {"name": "b"}],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
    store.take(&News::Slice(Change::Added(Arc::new(serde_json::from_value(slice).unwrap()))));
    let rule = |device: &str| -> Arc<DeviceTaintRule> {
        let spec =
            json!({"deviceSelector": {"device": device}, "taint": {"key": "k", "effect": "NoSchedule"}});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec})).unwrap())
    };
    let tainted = || -> Vec<bool> {
        let known = store.read();
        let devices = known.slices["s"].read.object.spec.devices.clone().unwrap();
        devices.iter().map(|d| d.taints.is_some()).collect()
    };
    assert_eq!(tainted(), [false, false]);
    let stock = || store.ready().snapshot().unwrap().clone();
    let first = stock();
    store.take(&News::Rule(Change::Added(rule("a"))));
    assert_eq!(tainted(), [true, false]);
    assert!(!first.has_slices_of(&stock()) && stock().has_slices_of(&stock()));
    store.take(&News::Rule(Change::Updated { old: rule("a"), new: rule("b") }));
    assert_eq!(tainted(), [false, true]);
    store.take(&News::Rule(Change::Deleted(rule("b"))));
    assert_eq!(tainted(), [false, false]);
}

#[test]
fn meanings() {
    let check = |news: News, events: Events| assert_eq!(meaning(&news).kinds, events, "{news:?}");
    let claim = || Arc::new(claim("1", None));
    check(News::Claim(Change::Added(claim())), Events::DEVICE_CLAIM_ADDED);
    check(News::Claim(Change::Updated { old: claim(), new: claim() }), Events::DEVICE_CLAIM_CHANGED);
    check(News::Claim(Change::Deleted(claim())), Events::DEVICE_CLAIM_DELETED);
    check(News::Rule(Change::Deleted(Arc::default())), Events::SLICE_CHANGED);
}

#[test]
fn shares_are_counted() {
    let share = |amount: &str, id: &str| -> AllocationResult {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "a", "shareID": id, "consumedCapacity": {"m": amount}});
        serde_json::from_value(json!({"devices": {"results": [result]}})).unwrap()
    };
    let mut all = Allocated::default();
    all.count(&share("1Gi", "1"), true, true, |_, _| {});
    all.count(&share("2Gi", "2"), true, true, |_, _| {});
    assert_eq!(all.len(), 1);
    all.count(&share("1Gi", "1"), true, false, |_, _| {});
    all.count(&share("2Gi", "2"), true, false, |_, _| {});
    assert!(all.is_empty());
    // Without parts, a share is its device.
    all.count(&share("1Gi", "1"), false, true, |_, _| {});
    assert!(format!("{all:?}").contains(&format!("{:?}", DeviceId::new("d", "p", "a"))));
}
