//! Upstream's cases of `endpoints_controller_test.go`.

use serde_json::{Value, json};

use super::*;
use crate::views::tests::view;

/// The Pod of upstream's `testPod`: its number, the number of its ports, and whether it is ready.
fn pod(id: usize, ports: usize, ready: bool) -> Arc<PodView> {
    let port = |j: usize| json!({"name": format!("port{j}"), "containerPort": 8080 + j});
    let ports: Vec<Value> = (0..ports).map(port).collect();
    let ip = format!("1.2.{}.{}", 3 + (4 + id) / 256, (4 + id) % 256);
    Arc::new(view(&json!({
        "metadata": {"name": format!("pod{id}"), "namespace": "ns", "labels": {"foo": "bar"}},
        "spec": {"containers": [{"name": "c", "ports": ports}]},
        "status": {"podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    })))
}

fn service(spec: &Value, labels: &Value) -> Service {
    let value = json!({"metadata": {"name": "foo", "namespace": "ns", "labels": labels}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

/// The Endpoints after a sync.
fn after(action: Action, current: Option<&Endpoints>) -> Endpoints {
    match action {
        Action::Nothing => current.unwrap().clone(),
        Action::Create(made) => made,
        Action::Update(changed) => changed,
    }
}

/// Subsets in short: `address,other? name:port/protocol+…`.
fn shown(endpoints: &Endpoints) -> Vec<String> {
    let ips = |all: &Option<Vec<EndpointAddress>>, sign: &str| -> Vec<String> {
        all.iter().flatten().map(|a| format!("{}{sign}", a.ip)).collect()
    };
    let subset = |s: &EndpointSubset| {
        let port = |p: &EndpointPort| {
            let name = p.name.as_deref().unwrap_or_default();
            format!("{name}:{}/{}", p.port, p.protocol.as_deref().unwrap())
        };
        let mut ports: Vec<String> = s.ports.iter().flatten().map(port).collect();
        // DIFFERENCE: upstream sorts ports by a hash, here by name, number and protocol.
        ports.sort();
        let addresses = [ips(&s.addresses, ""), ips(&s.not_ready_addresses, "?")].concat();
        format!("{} {}", addresses.join(","), ports.join("+"))
    };
    endpoints.subsets.iter().flatten().map(subset).collect()
}

fn count(endpoints: &Endpoints) -> (usize, usize) {
    let of = |side: fn(&EndpointSubset) -> &Option<Vec<EndpointAddress>>| {
        endpoints.subsets.iter().flatten().map(|s| side(s).as_ref().map_or(0, Vec::len)).sum()
    };
    (of(|s| &s.addresses), of(|s| &s.not_ready_addresses))
}

/// Endpoints that are there already, with the labels of the controller.
///
/// DIFFERENCE: some of upstream's lack the label of headless Services, which upstream leaves out of account: their
/// Services have no address, as the server lets none be. Here the label is mended.
fn ours(subsets: &Value) -> Option<Value> {
    Some(json!({"labels": {MANAGED_BY.0: MANAGED_BY.1, HEADLESS: ""}, "subsets": subsets}))
}

/// Upstream's cases of `TestSyncEndpointsExistingNilSubsets`, `TestSyncEndpointsExistingEmptySubsets`,
/// `TestSyncEndpointsWithPodResourceVersionUpdateOnly`, `TestSyncEndpointsNewNoSubsets`,
/// `TestSyncEndpointsProtocolTCP`, `TestSyncEndpointsProtocolUDP`, `TestSyncEndpointsProtocolSCTP`,
/// `TestSyncEndpointsProtocolMultiProtocolSamePort`, `TestSyncEndpointsHeadlessServiceLabel`,
/// `TestSyncEndpointsItemsEmptySelectorSelectsAll`, `TestSyncEndpointsItemsEmptySelectorSelectsAllNotReady`,
/// `TestSyncEndpointsItemsEmptySelectorSelectsAllMixed`, `TestSyncEndpointsItemsPreexisting`,
/// `TestSyncEndpointsItemsPreexistingIdentical`, `TestSyncEndpointsItemsPreexistingIdenticalUnsorted`,
/// `TestSyncEndpointsItems`, `TestSyncEndpointsItemsWithLabels`, `TestSyncEndpointsItemsPreexistingLabelsChange`,
/// `TestSyncEndpointsHeadlessService` and `TestSyncEndpointsHeadlessWithoutPort`: a Service's ports and labels, its
/// Pods, the Endpoints that there are, and the subsets that are written, if anything is.
#[test]
fn syncs() {
    let check = |ports: Value,
                 labels: Value,
                 pods: &[Arc<PodView>],
                 current: Option<Value>,
                 want: Option<&[&str]>| {
        let service =
            service(&json!({"selector": {}, "ports": ports.clone(), "ipFamilies": ["IPv4"]}), &labels);
        let current: Option<Endpoints> = current.map(|c| {
            let meta =
                json!({"name": "foo", "namespace": "ns", "resourceVersion": "1", "labels": c["labels"]});
            serde_json::from_value(json!({"metadata": meta, "subsets": c["subsets"]})).unwrap()
        });
        let action = plan(&service, service.spec.as_ref().unwrap(), pods, current.as_ref());
        let said = format!("{ports} {labels} {current:?}");
        assert_eq!(action == Action::Nothing, want.is_none(), "{said}");
        assert_eq!(matches!(action, Action::Create(_)), current.is_none(), "{said}");
        let Some(want) = want else { return };
        let made = after(action, current.as_ref());
        assert_eq!(shown(&made), want, "{said}");
        let mut all = labels;
        all[MANAGED_BY.0] = MANAGED_BY.1.into();
        all[HEADLESS] = "".into();
        assert_eq!(json!(made.metadata.labels), all, "{said}");
    };
    let port = |protocol: &str| json!([{"port": 80, "targetPort": 8080, "protocol": protocol}]);
    let tcp = || port("TCP");
    let address = |i: usize, version: &str| {
        json!({"ip": format!("1.2.3.{}", 4 + i), "nodeName": "", "targetRef": {"kind": "Pod",
            "name": format!("pod{i}"), "namespace": "ns", "resourceVersion": version}})
    };
    let told = [json!({"port": 8080, "protocol": "TCP"})];
    let foreign = |labels: Value| {
        Some(json!({"labels": labels, "subsets": [{"addresses": [{"ip": "6.7.8.9", "nodeName": ""}],
            "ports": [{"port": 1000, "protocol": "TCP"}]}]}))
    };
    let one = [pod(0, 1, true)];
    let bare = || json!([{"port": 80}]);
    // Nothing changes.
    check(bare(), json!({}), &[], ours(&json!(null)), None);
    check(bare(), json!({}), &[], ours(&json!([])), None);
    let both = [pod(0, 1, true), pod(1, 1, false)];
    let versions =
        json!([{"addresses": [address(0, "1")], "notReadyAddresses": [address(1, "2")], "ports": told}]);
    check(tcp(), json!({}), &both, ours(&versions), None);
    check(tcp(), json!({}), &one, ours(&json!([{"addresses": [address(0, "")], "ports": told}])), None);
    let unsorted = json!([{"addresses": [address(1, ""), address(0, "")], "ports": told}]);
    check(tcp(), json!({}), &[pod(0, 1, true), pod(1, 1, true)], ours(&unsorted), None);
    // There are none yet.
    check(bare(), json!({}), &[], None, Some(&[]));
    // Protocols.
    for protocol in ["TCP", "UDP", "SCTP"] {
        let want = format!("1.2.3.4 :8080/{protocol}");
        check(port(protocol), json!({}), &one, foreign(json!({})), Some(&[&want]));
    }
    let two = json!([{"port": 80, "targetPort": 8080, "protocol": "TCP"},
        {"port": 80, "targetPort": 8080, "protocol": "UDP"}]);
    let none = || Some(json!({"labels": {}, "subsets": []}));
    check(two, json!({}), &one, none(), Some(&["1.2.3.4 :8080/TCP+:8080/UDP"]));
    // Ready Pods and others.
    check(tcp(), json!({}), &one, none(), Some(&["1.2.3.4 :8080/TCP"]));
    check(tcp(), json!({}), &[pod(0, 1, false)], none(), Some(&["1.2.3.4? :8080/TCP"]));
    check(tcp(), json!({}), &both, none(), Some(&["1.2.3.4,1.2.3.5? :8080/TCP"]));
    // Endpoints that say something else.
    let managed = json!({MANAGED_BY.0: MANAGED_BY.1});
    check(tcp(), json!({}), &one, foreign(managed), Some(&["1.2.3.4 :8080/TCP"]));
    check(tcp(), json!({"baz": "blah"}), &one, foreign(json!({"foo": "bar"})), Some(&["1.2.3.4 :8080/TCP"]));
    // Several Pods and ports.
    let named = || {
        json!([{"name": "port0", "port": 80, "protocol": "TCP", "targetPort": 8080},
            {"name": "port1", "port": 88, "protocol": "TCP", "targetPort": 8088}])
    };
    let three = [pod(0, 2, true), pod(1, 2, true), pod(2, 2, true)];
    let want: &[&str] = &["1.2.3.4,1.2.3.5,1.2.3.6 port0:8080/TCP+port1:8088/TCP"];
    check(named(), json!({}), &three, None, Some(want));
    check(named(), json!({"foo": "bar"}), &three, None, Some(want));
    // No ports.
    check(json!([]), json!({"a": "b"}), &one, foreign(json!({})), Some(&["1.2.3.4 "]));
    check(json!(null), json!({}), &one, None, Some(&["1.2.3.4 "]));
}

/// Upstream's cases of `TestSyncEndpointsItemsPreserveNoSelector` and `TestSyncServiceExternalNameType`.
#[test]
fn services_without_endpoints() {
    let check = |spec: Value, want: bool| {
        let service = service(&spec, &json!({}));
        assert_eq!(selecting(&service).is_some(), want, "{spec}");
    };
    let (selector, ports) = (json!({"foo": "bar"}), json!([{"port": 80}]));
    check(json!({"ports": ports}), false);
    check(json!({"type": "ExternalName", "selector": selector, "ports": ports}), false);
    check(json!({"type": "ExternalName", "ports": ports}), false);
    check(json!({"type": "ExternalName", "selector": selector}), false);
    check(json!({"type": "ExternalName"}), false);
    check(json!({"type": "ClusterIP", "selector": selector}), true);
    check(json!({"type": "ClusterIP", "selector": {}}), true);
}

/// Upstream's cases of `TestSyncEndpointsItemsExcludeNotReadyPodsWithRestartPolicyNeverAndPhaseFailed`,
/// `TestSyncEndpointsItemsExcludeNotReadyPodsWithRestartPolicyNeverAndPhaseSucceeded`,
/// `TestSyncEndpointsItemsExcludeNotReadyPodsWithRestartPolicyOnFailureAndPhaseSucceeded`, `TestSyncServiceAddresses`
/// and `TestShouldPodBeInEndpoints`: a Pod's phase, whether it is ready and goes, whether the Service tells of Pods
/// that are not ready, and the numbers of addresses that are ready and not.
#[test]
fn pods_that_count() {
    let with = |status: Value, goes: bool, publishes: bool| {
        let mut pod = json!({"metadata": {"name": "fakepod", "namespace": "ns", "labels": {"foo": "bar"}},
            "spec": {"containers": []}, "status": status});
        if goes {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let spec = json!({"selector": {"foo": "bar"}, "publishNotReadyAddresses": publishes, "type": "ClusterIP",
            "clusterIP": "1.1.1.1", "ports": [{"port": 80}], "ipFamilies": ["IPv4"]});
        let service = service(&spec, &json!({}));
        let pods = [Arc::new(view(&pod))];
        count(&after(plan(&service, service.spec.as_ref().unwrap(), &pods, None), None))
    };
    let check = |phase: &str, ready: bool, goes: bool, publishes: bool, want: (usize, usize)| {
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let status = json!({"phase": phase, "podIPs": [{"ip": "10.1.1.1"}], "conditions": [condition]});
        assert_eq!(with(status, goes, publishes), want, "{phase} {ready} {goes} {publishes}");
    };
    for phase in ["Running", "Unknown", "Pending"] {
        check(phase, true, false, false, (1, 0));
        check(phase, true, true, false, (0, 0));
        check(phase, false, false, false, (0, 1));
        check(phase, false, false, true, (1, 0));
        check(phase, false, true, true, (1, 0));
    }
    for phase in ["Failed", "Succeeded"] {
        check(phase, false, false, false, (0, 0));
        check(phase, false, false, true, (0, 0));
    }
    let addresses = |phase: &str, ips: Value, goes: bool, publishes: bool, want: usize| {
        let (ready, others) = with(json!({"phase": phase, "podIPs": ips}), goes, publishes);
        assert_eq!(ready + others, want, "{phase} {ips} {goes}");
    };
    addresses("Running", json!([]), false, false, 0);
    addresses(
        "Running",
        json!([{"ip": "1.2.3.4"}, {"ip": "1234::5678:0000:0000:9abc:def0"}]),
        false,
        false,
        1,
    );
    addresses("Running", json!([{"ip": "1.2.3.4"}]), true, false, 0);
    addresses("Running", json!([{"ip": "1.2.3.4"}]), true, true, 1);
}

/// The address that a Service's Endpoints have of a Pod with these addresses.
fn address_of(service: &Value, ips: &[&str]) -> Option<String> {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    let pod = view(&json!({"metadata": {"name": "pod0", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "node-1", "containers": []}, "status": {"podIPs": ips}}));
    let mut spec = service.clone();
    spec["ports"] = json!([{"port": 80}]);
    spec["publishNotReadyAddresses"] = true.into();
    let service = self::service(&spec, &json!({}));
    let (subsets, _) = subsets(&service, service.spec.as_ref().unwrap(), &[Arc::new(pod)]);
    let address = subsets.first()?.addresses.as_ref()?.first()?.clone();
    assert_eq!(address.node_name.as_deref(), Some("node-1"));
    let pod = json!({"kind": "Pod", "namespace": "ns", "name": "pod0", "uid": "u"});
    assert_eq!(json!(address.target_ref), pod);
    Some(address.ip)
}

/// Upstream's cases of `TestPodToEndpointAddressForService`: the families of a Service and of a Pod, whose first address
/// has a leading zero.
#[test]
fn addresses_of_a_family() {
    let (v4, v6, bad4, bad6) = ("1.2.3.4", "2000::4", "01.2.3.4", "02000::4");
    let check = |cluster_ip: &str, family: &str, pod: &[&str], want: Option<&str>| {
        let service = json!({"clusterIP": cluster_ip, "ipFamilies": [family]});
        assert_eq!(address_of(&service, pod).as_deref(), want, "{service} {pod:?}");
    };
    for cluster_ip in ["10.0.0.1", "None"] {
        check(cluster_ip, "IPv4", &[bad4], Some(v4));
        check(cluster_ip, "IPv4", &[bad4, v6], Some(v4));
        check(cluster_ip, "IPv4", &[bad6, v4], Some(v4));
    }
    for cluster_ip in ["3000::1", "None"] {
        check(cluster_ip, "IPv6", &[bad4, v6], Some(v6));
        check(cluster_ip, "IPv6", &[bad6], Some(v6));
    }
    check("3000::1", "IPv6", &[bad4], None);
}

/// Upstream's cases of `TestPodToEndpointAddressForServiceEmptyIPFamilies`.
#[test]
fn services_without_a_family() {
    let check = |cluster_ip: &str, pod: &str, want: Option<&str>| {
        let service = json!({ "clusterIP": cluster_ip });
        assert_eq!(address_of(&service, &[pod]).as_deref(), want, "{service} {pod}");
    };
    check("10.0.0.1", "10.244.0.1", Some("10.244.0.1"));
    check("fd00::1", "fd00::10", Some("fd00::10"));
    check("10.0.0.1", "fd00::10", None);
    check("None", "10.244.0.1", Some("10.244.0.1"));
    check("None", "fd00::10", Some("fd00::10"));
}

/// Upstream's cases of `TestSyncServiceOverCapacity`: the annotation that there is, the numbers of Pods that are ready
/// and not, of addresses that are ready and not, and whether the annotation is there then.
#[test]
fn capacity() {
    let check = |annotation: Option<&str>,
                 existing: usize,
                 pods: (usize, usize),
                 want: (usize, usize),
                 over: bool| {
        let spec = json!({"selector": {"foo": "bar"}, "ports": [{"port": 80}], "ipFamilies": ["IPv4"]});
        let service = service(&spec, &json!({}));
        let spec = service.spec.as_ref().unwrap();
        let pods: Vec<_> = (0..pods.0 + pods.1).map(|i| pod(i, 1, i < pods.0)).collect();
        let mut current = after(plan(&service, spec, &pods[..existing], None), None);
        current.metadata.annotations =
            annotation.map(|text| [(OVER_CAPACITY.to_owned(), text.to_owned())].into());
        let made = after(plan(&service, spec, &pods, Some(&current)), Some(&current));
        assert_eq!(count(&made), want, "{annotation:?} {existing}");
        let told = made.metadata.annotations.unwrap_or_default();
        assert_eq!(told.get(OVER_CAPACITY).map(String::as_str), over.then_some("truncated"));
    };
    check(None, 0, (0, 0), (0, 0), false);
    check(None, CAPACITY - 1, (CAPACITY - 3, 4), (CAPACITY - 3, 3), true);
    check(None, CAPACITY - 1, (CAPACITY, 10), (CAPACITY, 0), true);
    check(Some("truncated"), CAPACITY - 1, (CAPACITY - 1, 0), (CAPACITY - 1, 0), false);
    check(Some("warning"), CAPACITY, (CAPACITY, 0), (CAPACITY, 0), false);
    check(Some("warning"), CAPACITY + 1, (CAPACITY + 1, 0), (CAPACITY, 0), true);
    check(Some("truncated"), CAPACITY, (CAPACITY, 0), (CAPACITY, 0), false);
    check(Some("invalid"), CAPACITY + 1, (CAPACITY + 1, 0), (CAPACITY, 0), true);
}

/// Upstream's cases of `TestTruncateEndpoints`: the numbers of addresses of subsets that are ready and not, before and
/// after.
#[test]
fn shares_of_the_capacity() {
    let check = |before: [&[usize]; 2], after: [&[usize]; 2]| {
        let zip = |[ready, others]: [&[usize]; 2]| -> Vec<[usize; 2]> {
            ready.iter().zip(others).map(|(a, b)| [*a, *b]).collect()
        };
        let (before, after) = (zip(before), zip(after));
        assert_eq!(kept(&before).unwrap_or_else(|| before.clone()), after, "{before:?}");
        assert_eq!(kept(&before).is_some(), before != after);
    };
    check([&[], &[]], [&[], &[]]);
    let fits: &[usize] = &[50, 100, 100, 100, 100];
    check([fits, fits], [fits, fits]);
    let full: &[usize] = &[100; 5];
    check([full, full], [full, full]);
    let ready: &[usize] = &[90, 110, 50, 10, 20];
    check([ready, &[101, 200, 200, 201, 298]], [ready, &[73, 144, 144, 145, 214]]);
    check([&[205, 400, 402, 400, 693], &[100, 200, 200, 200, 300]], [&[98, 191, 192, 191, 328], &[0; 5]]);
}

/// Upstream's cases of `TestEndpointPortFromServicePort`.
#[test]
fn application_protocols() {
    for protocol in [None, Some("http")] {
        let spec = json!({"selector": {}, "ports": [{"name": "test", "port": 80, "appProtocol": protocol}]});
        let service = service(&spec, &json!({}));
        let (subsets, _) = subsets(&service, service.spec.as_ref().unwrap(), &[pod(0, 1, true)]);
        assert_eq!(subsets[0].ports.as_ref().unwrap()[0].app_protocol.as_deref(), protocol);
    }
}

/// Upstream's cases of `TestEndpointSubsetsEqualIgnoreResourceVersion`.
#[test]
fn subsets_that_say_the_same() {
    let subset = |n: usize, change: &dyn Fn(&mut Value)| {
        let address = |i: usize, namespace: &str| {
            json!({"ip": format!("{n}.{n}.{n}.{i}"), "targetRef": {"kind": "Pod", "name": format!("pod{n}-{i}"),
                "namespace": namespace, "resourceVersion": (2 * n + i).to_string()}})
        };
        let mut subset = json!({"addresses": [address(1, "ns")], "notReadyAddresses": [address(2, "ns2")],
            "ports": [{"port": 8080 + n, "protocol": "TCP"}]});
        change(&mut subset);
        subset
    };
    let as_is = |_: &mut Value| {};
    let check = |second: Value, want: bool| {
        let parse =
            |v: Value| serde_json::from_value::<Endpoints>(json!({"metadata": {}, "subsets": v})).unwrap();
        let first = json!([subset(1, &as_is), subset(2, &as_is)]);
        assert_eq!(says_the_same(&parse(first), &parse(second.clone())), want, "{second}");
    };
    let version = |text: &'static str| {
        move |s: &mut Value| s["addresses"][0]["targetRef"]["resourceVersion"] = text.into()
    };
    check(json!([subset(1, &as_is)]), false);
    check(json!([subset(1, &|s| s["addresses"][0]["ip"] = "1.1.1.10".into()), subset(2, &as_is)]), false);
    check(
        json!([subset(1, &as_is), subset(2, &|s| s["notReadyAddresses"][0]["ip"] = "2.2.2.10".into())]),
        false,
    );
    check(json!([subset(1, &as_is), subset(2, &version("100"))]), true);
    check(json!([subset(1, &as_is), subset(2, &version(""))]), true);
    check(json!([subset(1, &as_is), subset(1, &|s| s["ports"][0]["port"] = 8082.into())]), false);
}

/// Upstream's case of `TestSyncEndpointsAddDeletePorts`: Pods with ports of their own come, and a port goes.
#[test]
fn ports_come_and_go() {
    let pod = |n: usize| {
        Arc::new(view(&json!({
            "metadata": {"name": format!("pod{n}"), "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "ports": [{"name": format!("svc{n}"), "containerPort": 99 + n}]}]},
            "status": {"podIPs": [{"ip": format!("10.1.1.{n}")}], "conditions": [{"type": "Ready", "status": "True"}]},
        })))
    };
    let port =
        |n: usize| json!({"name": format!("portname{n}"), "port": 79 + n, "targetPort": format!("svc{n}")});
    let mut current = None;
    let mut check = |ports: &[usize], pods: &[usize], want: &[&str]| {
        let ports: Vec<Value> = ports.iter().map(|n| port(*n)).collect();
        let spec = json!({"selector": {"foo": "bar"}, "clusterIP": "1.1.1.1", "ports": ports, "ipFamilies": ["IPv4"]});
        let service = service(&spec, &json!({}));
        let pods: Vec<_> = pods.iter().map(|n| pod(*n)).collect();
        let action = plan(&service, service.spec.as_ref().unwrap(), &pods, current.as_ref());
        let made = after(action, current.as_ref());
        assert_eq!(shown(&made), want);
        current = Some(made);
    };
    let (first, second) = ("10.1.1.1 portname1:100/TCP", "10.1.1.2 portname2:101/TCP");
    check(&[1], &[1], &[first]);
    check(&[1, 2], &[1, 2], &[first, second]);
    // DIFFERENCE: the order of subsets in upstream's test is that of a hash, so that it looks at the first one alone.
    check(&[2], &[1, 2], &[second]);
}
