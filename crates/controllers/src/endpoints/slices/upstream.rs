//! Upstream's cases of `staging/src/k8s.io/endpointslice` about Pods and their endpoints.

use client::Cached;
use serde_json::{Value, json};

use super::*;
use crate::views::tests::view;

/// The Service `foo` of upstream's tests.
fn service(more: Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "foo", "namespace": "test", "uid": "test-foo"},
        "spec": {"ports": [{"name": "foo", "port": 80, "targetPort": 80, "protocol": "TCP"}],
            "selector": {"foo": "bar"}, "ipFamilies": ["IPv4"]},
    });
    for part in ["metadata", "spec"] {
        for (key, value) in more[part].as_object().into_iter().flatten() {
            service[part][key] = value.clone();
        }
    }
    serde_json::from_value(service).unwrap()
}

/// The Pod of upstream's `newPod`.
fn pod(n: usize, ready: bool, terminating: bool, more: &Value) -> Arc<PodView> {
    let ip = format!("1.2.3.{}", 4 + n);
    let mut pod = json!({
        "metadata": {"namespace": "test", "name": format!("pod{n}"), "uid": "", "labels": {"foo": "bar"}},
        "spec": {"containers": [{"name": "container-1"}], "nodeName": "node-1"},
        "status": {"podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    });
    if terminating {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    for part in ["metadata", "spec", "status"] {
        for (key, value) in more[part].as_object().into_iter().flatten() {
            pod[part][key] = value.clone();
        }
    }
    Arc::new(view(&pod))
}

fn node(zone: Option<&str>) -> Arc<NodeView> {
    let labels =
        zone.map_or(json!({}), |zone| json!({ZONE: zone, "topology.kubernetes.io/region": "us-central1"}));
    let node = json!({"metadata": {"name": "node-1", "labels": labels}});
    Arc::new(NodeView::decode(node.to_string().as_bytes()).unwrap())
}

/// The slices of a Service for some Pods, of one address type.
fn slices(
    service: &Service,
    kind: &'static str,
    pods: &[Arc<PodView>],
    zone: Option<&str>,
) -> Vec<EndpointSlice> {
    let spec = service.spec.as_ref().unwrap();
    let wanted = wanted(service, spec, kind, pods, |_| Some(node(zone)));
    Template::new(service, spec, kind, 100).lay_out(wanted, &[]).create
}

const ZONE_A: Option<&str> = Some("us-central1-a");

/// Upstream's cases of `TestPodToEndpoint`: a Service, a Pod, the zone of its node, and the endpoint beside its node and
/// its Pod.
#[test]
fn endpoints_of_pods() {
    let check = |publishes: bool, pod: &Arc<PodView>, zone: Option<&str>, want: Value| {
        let service = service(json!({"spec": {"publishNotReadyAddresses": publishes}}));
        let made = slices(&service, "IPv4", std::slice::from_ref(pod), zone);
        let mut all = json!({"addresses": ["1.2.3.5"], "nodeName": "node-1", "zone": zone,
            "targetRef": {"kind": "Pod", "namespace": "test", "name": "pod1", "uid": ""}});
        for (key, value) in want.as_object().unwrap() {
            all[key] = value.clone();
        }
        let want: Endpoint = serde_json::from_value(all).unwrap();
        assert_eq!(made[0].endpoints, Some(vec![want]));
    };
    let conditions = |ready: bool, serving: bool, terminating: bool| json!({"conditions": {"ready": ready, "serving": serving, "terminating": terminating}});
    let none = json!({});
    let ready = pod(1, true, false, &none);
    check(false, &ready, None, conditions(true, true, false));
    check(true, &ready, None, conditions(true, true, false));
    check(false, &pod(1, false, false, &none), None, conditions(false, false, false));
    check(true, &pod(1, false, false, &none), None, conditions(true, false, false));
    check(false, &ready, ZONE_A, conditions(true, true, false));
    let two = json!({"status": {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1234::5678:0000:0000:9abc:def0"}]}});
    let mut first = conditions(true, true, false);
    first["addresses"] = json!(["1.2.3.4"]);
    check(false, &pod(1, true, false, &two), ZONE_A, first);
    let mut named = conditions(true, true, false);
    named["hostname"] = "example-hostname".into();
    let host = json!({"spec": {"hostname": "example-hostname", "subdomain": "foo"}});
    check(false, &pod(1, true, false, &host), ZONE_A, named);
    check(false, &pod(1, true, true, &none), None, conditions(false, true, true));
    check(false, &pod(1, false, true, &none), None, conditions(false, false, true));
}

/// Upstream's 6 cases of `TestSyncService`: the Service's family, Pods with their addresses, whether they are ready and
/// going, and the endpoints: ready, serving, terminating, and the address.
#[test]
fn slices_of_a_service() {
    type Of<'a> = (&'a [&'a str], bool, bool);
    type Made<'a> = ([bool; 3], &'a str);
    let check = |family: &'static str, pods: &[Of<'_>], want: &[Made<'_>]| {
        let port = |name: &str, port: i32, protocol: &str| json!({"name": name, "targetPort": port, "port": port, "protocol": protocol});
        let ports = [port("tcp", 80, "TCP"), port("udp", 161, "UDP"), port("sctp", 3456, "SCTP")];
        let service = service(json!({"spec": {"ipFamilies": [family], "ports": ports}}));
        let pod = |(i, (ips, ready, going)): (usize, &Of<'_>)| {
            let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
            pod(i, *ready, *going, &json!({"status": {"podIP": ips[0]["ip"], "podIPs": ips}}))
        };
        let pods: Vec<_> = pods.iter().enumerate().map(pod).collect();
        let made = slices(&service, family, &pods, None);
        assert_eq!(made.len(), 1);
        let endpoints = made[0].endpoints.iter().flatten().map(|e| {
            let c = e.conditions.clone().unwrap();
            ([c.ready, c.serving, c.terminating].map(Option::unwrap), e.addresses[0].as_str())
        });
        let mut endpoints: Vec<Made<'_>> = endpoints.collect();
        endpoints.sort_by_key(|e| e.1.to_owned());
        assert_eq!(endpoints, want, "{family} {pods:?}");
        let mut ports: Vec<_> = made[0].ports.iter().flatten().map(|p| p.port.unwrap()).collect();
        ports.sort_unstable();
        assert_eq!(ports, [80, 161, 3456]);
    };
    let (a, b) = (&["10.0.0.1"][..], &["10.0.0.2"][..]);
    let both = &["10.0.0.2", "fd08::5678:0000:0000:9abc:def0"][..];
    let good = [true, true, false];
    check("IPv4", &[(a, true, false), (both, true, false)], &[(good, a[0]), (good, b[0])]);
    check("IPv6", &[(a, true, false), (both, true, false)], &[(good, "fd08::5678:0:0:9abc:def0")]);
    check("IPv4", &[(a, true, false), (b, true, true)], &[(good, a[0]), ([false, true, true], b[0])]);
    check("IPv4", &[(a, true, false), (b, false, true)], &[(good, a[0]), ([false, false, true], b[0])]);
    check("IPv4", &[(a, true, false), (a, false, false)], &[(good, a[0]), ([false; 3], a[0])]);
    check("IPv4", &[(a, true, false), (a, true, false)], &[(good, a[0]), (good, a[0])]);
}

/// Upstream's cases of `TestReconcile1Pod`: a Service, the addresses of each type, and the labels beside those of the
/// controller.
#[test]
fn slices_of_a_pod() {
    let (v4, v6) = ("1.2.3.4", "1234::5678:0:0:9abc:def0");
    let one = pod(
        1,
        true,
        false,
        &json!({"status": {"podIPs": [{"ip": v4}, {"ip": "1234::5678:0000:0000:9abc:def0"}]},
            "spec": {"hostname": "example-hostname"}}),
    );
    let check = |more: Value, want: &[(&'static str, &str)], labels: Value| {
        let service = service(more.clone());
        let types = address_types(service.spec.as_ref().unwrap());
        assert_eq!(types, want.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), "{more}");
        for (kind, address) in want {
            let made = slices(&service, kind, std::slice::from_ref(&one), ZONE_A);
            assert_eq!(made.len(), 1);
            let all = made[0].endpoints.as_ref().unwrap();
            assert_eq!(all[0].addresses, [*address], "{more}");
            assert_eq!((all.len(), all[0].zone.as_deref(), &all[0].hostname), (1, ZONE_A, &None));
            let mut want = labels.clone();
            want[super::super::owned::SERVICE] = "foo".into();
            want[super::super::owned::MANAGED_BY] = CONTROLLER.into();
            assert_eq!(json!(made[0].metadata.labels), want, "{more}");
        }
    };
    let headless = || json!({super::super::HEADLESS: ""});
    let families = |all: Value| json!({"spec": {"ipFamilies": all}});
    check(families(json!(null)), &[("IPv4", v4), ("IPv6", v6)], headless());
    check(json!({}), &[("IPv4", v4)], headless());
    check(json!({"spec": {"clusterIP": "1.1.1.1"}}), &[("IPv4", v4)], json!({}));
    let mut labels = headless();
    labels["foo"] = "bar".into();
    check(json!({"metadata": {"labels": {"foo": "bar"}}}), &[("IPv4", v4)], labels);
    let bad = json!({super::super::owned::SERVICE: "bad", super::super::owned::MANAGED_BY: "actor",
        super::super::HEADLESS: "invalid"});
    check(json!({"metadata": {"labels": bad}}), &[("IPv4", v4)], headless());
    check(families(json!(["IPv6"])), &[("IPv6", v6)], headless());
    let address = json!({"spec": {"clusterIP": "1234::5678:0000:0000:9abc:def1", "ipFamilies": ["IPv6"]}});
    check(address, &[("IPv6", v6)], json!({}));
    check(families(json!(["IPv6", "IPv4"])), &[("IPv6", v6), ("IPv4", v4)], headless());
}

/// Upstream's cases of `TestGetEndpointPorts`.
#[test]
fn ports_of_pods() {
    let check = |service: Value, spec: Value, want: Value| {
        let service = self::service(json!({"spec": {"ports": service}}));
        let pod = view(&json!({"metadata": {"name": "p"}, "spec": spec}));
        let want: Vec<EndpointPort> = serde_json::from_value(want).unwrap();
        assert_eq!(ports(service.spec.as_ref().unwrap(), &pod), want);
    };
    let port = |name: &str, port: i32, target: Value, protocol: Option<&str>| json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP", "appProtocol": protocol});
    let made = |name: &str, port: i32, protocol: Option<&str>| json!({"name": name, "port": port, "protocol": "TCP", "appProtocol": protocol});
    let container = |ports: &[(&str, i32)]| {
        let port = |(name, n): &(&str, i32)| json!({"name": name, "containerPort": n, "protocol": "TCP"});
        json!({"name": "c", "ports": ports.iter().map(port).collect::<Vec<_>>()})
    };
    let sidecar = |ports: &[(&str, i32)]| {
        let mut container = container(ports);
        container["restartPolicy"] = "Always".into();
        container
    };
    let own = Some("example.com/custom-protocol");
    check(
        json!([port("http", 80, json!(80), own)]),
        json!({"containers": [container(&[])]}),
        json!([made("http", 80, own)]),
    );
    let https = Some("https");
    check(
        json!([port("http", 80, json!(80), None), port("https", 443, json!("https"), https)]),
        json!({"containers": [container(&[("https", 443)])]}),
        json!([made("http", 80, None), made("https", 443, https)]),
    );
    check(
        json!([port("http-sidecar", 8080, json!(8080), None), port("http", 8090, json!("http"), None)]),
        json!({"initContainers": [sidecar(&[("http-sidecar", 8080)])], "containers": [container(&[("http", 8090)])]}),
        json!([made("http-sidecar", 8080, None), made("http", 8090, None)]),
    );
    check(
        json!([port("http", 80, json!("http"), None)]),
        json!({"initContainers": [sidecar(&[("http", 8080)])], "containers": [container(&[("http", 8090)])]}),
        json!([made("http", 8090, None)]),
    );
}

/// Upstream's cases of `TestSupportedServiceAddressType`.
#[test]
fn address_types_of_services() {
    let check = |spec: Value, want: &[&str]| {
        let parsed: ServiceSpec = serde_json::from_value(spec.clone()).unwrap();
        let mut got = address_types(&parsed);
        got.sort_unstable();
        assert_eq!(got, want, "{spec}");
    };
    let both = &["IPv4", "IPv6"];
    check(json!({"clusterIP": "10.0.0.10"}), &["IPv4"]);
    check(json!({"clusterIP": "2000::1"}), &["IPv6"]);
    check(json!({"ipFamilies": ["IPv4"]}), &["IPv4"]);
    check(json!({"ipFamilies": ["IPv6"]}), &["IPv6"]);
    check(json!({"ipFamilies": ["IPv4", "IPv6"]}), both);
    check(json!({"ipFamilies": ["IPv6", "IPv4"]}), both);
    for selector in [json!(null), json!({"foo": "bar"})] {
        check(json!({"clusterIP": "None", "selector": selector}), both);
        check(json!({"clusterIP": "None", "selector": selector, "ipFamilies": ["IPv4", "IPv6"]}), both);
    }
}

/// Upstream's cases of `TestReconcile1EndpointSlicePublishNotReadyAddresses`, `TestReconcileManyPods` and
/// `TestReconcileEndpointSlicesNamedPorts`: the number of Pods of which each third one is not ready, how many ports of
/// the name they have, the sizes of the slices, and the number of ready endpoints.
#[test]
fn slices_of_many_pods() {
    let check = |publishes: bool, count: usize, ports: usize, want: &[usize], ready: usize| {
        let target = if ports > 1 { json!("http") } else { json!(80) };
        let service = service(json!({"spec": {"publishNotReadyAddresses": publishes,
            "ports": [{"port": 80, "targetPort": target, "protocol": "TCP"}]}}));
        let all = |i: usize| {
            let port = json!([{"name": "http", "containerPort": 8080 + i % ports, "protocol": "TCP"}]);
            pod(
                i,
                !i.is_multiple_of(3),
                false,
                &json!({"spec": {"containers": [{"name": "c", "ports": port}]},
                "status": {"podIPs": [{"ip": format!("10.0.{}.{}", i / 250, i % 250)}]}}),
            )
        };
        let made = slices(&service, "IPv4", &(0..count).map(all).collect::<Vec<_>>(), None);
        let sizes: Vec<usize> = made.iter().map(|s| s.endpoints.as_ref().unwrap().len()).collect();
        assert_eq!(sizes, want);
        assert_eq!(hints::ready_in(made.iter()), ready);
        let first = if ports > 1 { 8080 } else { 80 };
        for (i, slice) in made.iter().enumerate() {
            let port = &slice.ports.as_ref().unwrap()[0];
            let n = if ports > 1 { first + i32::try_from(i).unwrap() } else { first };
            assert_eq!((port.name.as_deref(), port.port), (Some(""), Some(n)));
        }
    };
    check(true, 50, 1, &[50], 50);
    check(false, 250, 1, &[100, 100, 50], 166);
    check(false, 300, 5, &[60; 5], 200);
}
