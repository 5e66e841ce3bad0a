use serde_json::json;

use super::*;

fn pod(uid: &str) -> PodInfo {
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": uid}});
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let spec =
        json!({"containers": [container], "volumes": [claim], "schedulingGroup": {"podGroupName": "g"}});
    let pod = json!({"metadata": {"name": uid, "uid": uid, "namespace": "d"}, "spec": spec});
    PodInfo::new(serde_json::from_value(pod).unwrap())
}

/// A simulation without some Pods leaves the cache as it was.
#[test]
fn pods_are_lifted_and_put_back() {
    let mut cache = Cache::default();
    cache.set_node(Arc::new(serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap()));
    cache.set_pod(pod("bound"), "n");
    cache.assume(pod("assumed"), "n");
    cache.set_pod(pod("elsewhere"), "unknown");
    let state = |cache: &Cache| {
        let node = &cache.nodes()[0];
        let mut uids: Vec<String> = node.pods.keys().map(ToString::to_string).collect();
        uids.sort();
        let used = ["bound", "assumed"].map(|name| cache.is_claim_used("d", name));
        let placed = cache.groups().members(&pod("bound"), crate::groups::Members::count_placed);
        (uids, node.requested.milli_cpu, used, placed, cache.is_assumed("assumed"), cache.sizes())
    };
    let (before, epoch, told) = (state(&cache), cache.epoch(), cache.told());
    assert_eq!((before.1, before.3), (2000, 3));
    let lifted: Vec<Lifted> = ["bound", "assumed"].iter().filter_map(|uid| cache.lift(uid)).collect();
    assert_eq!(lifted.len(), 2);
    assert!(cache.lift("bound").is_none() && cache.lift("elsewhere").is_none() && cache.lift("no").is_none());
    let without = state(&cache);
    assert_eq!((without.0.len(), without.1, without.2), (0, 0, [false, false]));
    assert_eq!(
        (without.3, without.4, without.5),
        (before.3, before.4, before.5),
        "they still have their node"
    );
    for one in lifted {
        cache.put_back(one);
    }
    assert_eq!(state(&cache), before);
    assert_eq!((cache.epoch(), cache.told()), (epoch, told + 4));
    assert!(cache.forget("assumed") && !cache.forget("bound"));
}
