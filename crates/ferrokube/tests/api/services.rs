//! Addresses and ports of Services: none is given twice.

use std::collections::HashSet;

use serde_json::{Value, json};
use testkit::Server;

use crate::api::server;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})
}

fn taken(s: &Server) -> (Vec<String>, Vec<i64>) {
    let list = s.get(SERVICES).send().unwrap().json().unwrap();
    let items = list["items"].as_array().unwrap().iter().filter(|i| i["metadata"]["name"] != "kubernetes");
    let mut found = (Vec::new(), Vec::new());
    for item in items {
        found.0.push(item["spec"]["clusterIP"].as_str().unwrap().to_owned());
        found.1.extend(
            item["spec"]["ports"].as_array().unwrap().iter().map(|p| p["nodePort"].as_i64().unwrap()),
        );
    }
    found
}

fn no_doubles(s: &Server, services: usize) {
    let (addresses, ports) = taken(s);
    assert_eq!((addresses.len(), ports.len()), (services, 2 * services));
    assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), services);
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 2 * services);
    assert!(ports.iter().all(|p| (30_000..=32_767).contains(p)));
    // Every address has its IPAddress, and there are no others.
    let objects = s.get("/apis/networking.k8s.io/v1/ipaddresses").send().unwrap().json().unwrap();
    let objects = crate::api::names(&objects).into_iter().map(str::to_owned).collect::<HashSet<_>>();
    let mut expected = addresses.into_iter().collect::<HashSet<_>>();
    let own = s.get(&format!("{SERVICES}/kubernetes")).send().unwrap().json().unwrap();
    expected.insert(own["spec"]["clusterIP"].as_str().unwrap().to_owned());
    assert_eq!(objects, expected);
}

#[test]
fn many_at_once_and_after_a_crash() {
    let mut s = server();
    let create = |s: &Server, part: usize| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for i in 0..8 {
                        s.create(SERVICES, &service(&format!("s{part}-{thread}-{i}"))).unwrap();
                    }
                });
            }
        });
    };
    create(&s, 0);
    no_doubles(&s, 64);
    s.restart().unwrap();
    create(&s, 1);
    no_doubles(&s, 128);
    for i in 0..8 {
        s.request("DELETE", &format!("{SERVICES}/s0-{i}-0")).send().unwrap().expect(200).unwrap();
    }
    no_doubles(&s, 120);
}

#[test]
fn asked_for_and_kept() {
    let s = server();
    let mut fixed = service("a");
    fixed["spec"]["clusterIP"] = "10.96.7.7".into();
    fixed["spec"]["ports"][0]["nodePort"] = 30_777.into();
    let made = s.create(SERVICES, &fixed).unwrap();
    assert_eq!(made["spec"]["clusterIPs"], json!(["10.96.7.7"]));
    let refused = |service: &Value, expected: &str| {
        let answer = s.request("POST", SERVICES).json(service).send().unwrap().expect(422).unwrap();
        let text = answer.json().unwrap()["message"].as_str().unwrap().to_owned();
        assert!(text.contains(expected), "{text}");
    };
    fixed["metadata"]["name"] = "b".into();
    refused(
        &fixed,
        "spec.clusterIPs: Invalid value: [\"10.96.7.7\"]: failed to allocate IP 10.96.7.7: provided IP is already allocated",
    );
    fixed["spec"]["clusterIP"] = "10.96.7.8".into();
    refused(&fixed, "spec.ports[0].nodePort: Invalid value: 30777: provided port is already allocated");
    fixed["spec"]["ports"][0]["nodePort"] = 80.into();
    refused(&fixed, "provided port is not in the valid range. The range of valid ports is 30000-32767");
    fixed["spec"]["clusterIP"] = "192.0.2.1".into();
    refused(&fixed, "failed to allocate IP 192.0.2.1: the provided network does not match the current range");
    // The address of a refused Service is free again.
    fixed["spec"]["clusterIP"] = "10.96.7.8".into();
    fixed["spec"]["ports"][0]["nodePort"] = 30_778.into();
    s.create(SERVICES, &fixed).unwrap();
    let change = json!({"spec": {"clusterIP": "10.96.7.9", "clusterIPs": ["10.96.7.9"]}});
    let kept = s.patch(&format!("{SERVICES}/a"), "merge", &change).send().unwrap().expect(422).unwrap();
    assert!(kept.text().contains("may not change once set"), "{}", kept.text());
    let internal = json!({"spec": {"type": "ClusterIP"}});
    let after = s
        .patch(&format!("{SERVICES}/a"), "merge", &internal)
        .send()
        .unwrap()
        .expect(200)
        .unwrap()
        .json()
        .unwrap();
    assert!(after["spec"]["ports"][0].get("nodePort").is_none(), "ports that are not needed go");
    let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}});
    assert_eq!(s.create(SERVICES, &headless).unwrap()["spec"]["clusterIPs"], json!(["None"]));
}

#[test]
fn of_both_families() {
    let s = Server::start(&["--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112"]).unwrap();
    let both = json!({"metadata": {"name": "b"}, "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}});
    let made = s.create(SERVICES, &both).unwrap();
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let addresses = made["spec"]["clusterIPs"].as_array().unwrap();
    assert!(
        addresses[0].as_str().unwrap().starts_with("10.96.")
            && addresses[1].as_str().unwrap().starts_with("fd00:96::")
    );
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let after = s
        .patch(&format!("{SERVICES}/b"), "merge", &single)
        .send()
        .unwrap()
        .expect(200)
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(after["spec"]["clusterIPs"], json!([addresses[0]]));
    let objects = s.get("/apis/networking.k8s.io/v1/ipaddresses").send().unwrap().json().unwrap();
    assert!(
        !crate::api::names(&objects).contains(&addresses[1].as_str().unwrap()),
        "the other one is free again"
    );
    let ranges = s.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").send().unwrap().json().unwrap();
    assert_eq!(ranges["spec"]["cidrs"], json!(["10.96.0.0/16", "fd00:96::/112"]));
}

#[test]
fn ranges_grow() {
    let s = Server::start(&["--service-cluster-ip-range=10.96.0.0/29"]).unwrap();
    let one = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let mut made = 0;
    let full = loop {
        let answer = s.request("POST", SERVICES).json(&one(&format!("s{made}"))).send().unwrap();
        if answer.status != 201 {
            break answer;
        }
        made += 1;
    };
    assert_eq!((made, full.status), (5, 500), "{}", full.text());
    assert!(full.text().contains("range is full"), "{}", full.text());
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    s.create("/apis/networking.k8s.io/v1/servicecidrs", &more).unwrap();
    let next = testkit::eventually("the new range", || Ok(s.create(SERVICES, &one("next")).ok())).unwrap();
    assert!(next["spec"]["clusterIP"].as_str().unwrap().starts_with("10.97.0."), "{next}");
}

#[test]
fn a_range_in_use_stays() {
    let s = Server::start_as("server", &[]).unwrap();
    let path = "/apis/networking.k8s.io/v1/servicecidrs";
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    s.create(path, &more).unwrap();
    let one = format!("{path}/more");
    let said = |status: &str| {
        testkit::eventually(status, || {
            let cidr = s.get(&one).send()?.expect(200)?.json()?;
            let ready = cidr["status"]["conditions"][0].clone();
            let held = cidr["metadata"]["finalizers"] == json!(["networking.k8s.io/service-cidr-finalizer"]);
            Ok((ready["status"] == status && held).then_some(ready))
        })
        .unwrap()
    };
    assert_eq!(said("True")["message"], "Kubernetes Service CIDR is ready");
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.97.0.9", "ports": [{"port": 80}]}});
    s.create(SERVICES, &service).unwrap();
    s.request("DELETE", &one).send().unwrap().expect(200).unwrap();
    assert_eq!(said("False")["reason"], "Terminating");
    let late =
        json!({"metadata": {"name": "t"}, "spec": {"clusterIP": "10.97.0.10", "ports": [{"port": 80}]}});
    s.request("POST", SERVICES).json(&late).send().unwrap().expect(422).unwrap();
    s.request("DELETE", &format!("{SERVICES}/s")).send().unwrap().expect(200).unwrap();
    testkit::eventually("its end", || Ok((s.get(&one).send()?.status == 404).then_some(()))).unwrap();
}
