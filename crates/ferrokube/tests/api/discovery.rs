//! The documents that a client reads before it asks for objects.

use serde_json::{Value, json};
use testkit::Server;

use crate::api::server;

/// The flags for the kinds that are not served by default.
const OPT_IN: &str = "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true,GenericWorkload=true,GangScheduling=true,\
    WorkloadAwarePreemption=true,StorageVersionMigrator=true,CoordinatedLeaderElection=true,\
    DRADeviceTaintRules=true,DRAResourcePoolStatus=true";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[test]
fn groups_and_resources() {
    let s = server();
    let versions = s.get("/api").send().unwrap().json().unwrap();
    assert_eq!((&versions["kind"], &versions["versions"][0]), (&"APIVersions".into(), &"v1".into()));
    let groups = s.get("/apis").send().unwrap().json().unwrap();
    let apps = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "apps").unwrap();
    assert_eq!(apps["preferredVersion"]["groupVersion"], "apps/v1");
    let autoscaling = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "autoscaling");
    let versions = autoscaling.unwrap()["versions"].as_array().unwrap();
    assert_eq!(versions.iter().map(|v| v["version"].as_str().unwrap()).collect::<Vec<_>>(), ["v2", "v1"]);
    let list = s.get("/apis/apps/v1").send().unwrap().json().unwrap();
    let find = |name: &str| list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap();
    let deployments = find("deployments");
    assert_eq!(deployments["shortNames"][0], "deploy");
    assert_eq!(deployments["categories"][0], "all");
    assert_eq!(deployments["singularName"], "deployment");
    assert!(!deployments["storageVersionHash"].as_str().unwrap().is_empty());
    let scale = find("deployments/scale");
    assert_eq!((&scale["group"], &scale["version"]), (&"autoscaling".into(), &"v1".into()));
    s.get("/apis/nothing.example").send().unwrap().expect(404).unwrap();
    s.get("/apis/apps/v7").send().unwrap().expect(404).unwrap();
}

#[test]
fn in_one_request_and_never_twice() {
    let s = server();
    for path in ["/api", "/apis"] {
        let answer = s.get(path).accept(AGGREGATED).send().unwrap().expect(200).unwrap();
        assert_eq!(answer.header("content-type"), AGGREGATED);
        assert_eq!(answer.header("vary"), "Accept");
        let list = answer.json().unwrap();
        assert_eq!(list["kind"], "APIGroupDiscoveryList");
        assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
        let etag = answer.header("etag");
        assert!(!etag.is_empty());
        let again = s.get(path).accept(AGGREGATED).header("If-None-Match", etag).send().unwrap();
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
    // A client that knows only the older form gets it.
    let both = format!("{AGGREGATED},application/json");
    assert_eq!(s.get("/apis").accept(&both).send().unwrap().header("content-type"), AGGREGATED);
    assert_eq!(s.get("/apis").send().unwrap().json().unwrap()["kind"], "APIGroupList");
    let beta = AGGREGATED.replace("v=v2;", "v=v2beta1;");
    s.get("/apis").accept(&beta).send().unwrap().expect(406).unwrap();
}

#[test]
fn version_and_health() {
    let s = server();
    let version = s.anonymous("GET", "/version").send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!((&version["major"], &version["minor"]), (&"1".into(), &"36".into()));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.36."), "{version}");
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = s.anonymous("GET", path).send().unwrap().expect(200).unwrap();
        assert_eq!(
            (answer.text().as_str(), answer.header("content-type")),
            ("ok", "text/plain; charset=utf-8")
        );
        let verbose = s.anonymous("GET", &format!("{path}?verbose")).send().unwrap().text();
        assert!(verbose.contains("[+]ping ok\n") && verbose.contains("[+]etcd ok\n"), "{verbose}");
        assert!(verbose.ends_with(&format!("{} check passed\n", &path[1..])), "{verbose}");
        assert_eq!(s.get(&format!("{path}/ping")).send().unwrap().text(), "ok");
        let without = s.anonymous("GET", &format!("{path}?verbose&exclude=etcd")).send().unwrap().text();
        assert!(without.contains("[+]etcd excluded: ok\n"), "{without}");
    }
    s.get("/livez/nothing").send().unwrap().expect(404).unwrap();
    s.anonymous("GET", "/api/v1/pods").send().unwrap().expect(403).unwrap();
    s.anonymous("GET", "/metrics").send().unwrap().expect(403).unwrap();
}

#[test]
fn metrics_have_upstreams_names() {
    let s = server();
    s.get("/api/v1/pods").send().unwrap().expect(200).unwrap();
    s.get("/api/v1/pods/none").send().unwrap().expect(404).unwrap();
    let mut watch = s.get("/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").stream().unwrap();
    watch.line().unwrap();
    let metrics = s.get("/metrics").send().unwrap().expect(200).unwrap().text();
    let has = |name: &str, labels: &[&str]| {
        metrics.lines().any(|l| l.starts_with(name) && labels.iter().all(|label| l.contains(label)))
    };
    let list = [r#"code="200""#, r#"group="""#, r#"resource="pods""#, r#"scope="cluster""#, r#"verb="LIST""#];
    assert!(has("apiserver_request_total{", &list), "{metrics}");
    assert!(has("apiserver_longrunning_requests{", &[list[2], r#"verb="WATCH""#]), "{metrics}");
    for want in [
        "# TYPE apiserver_request_duration_seconds histogram",
        "# TYPE apiserver_current_inflight_requests gauge",
        "# TYPE apiserver_storage_objects gauge",
        "# TYPE etcd_request_duration_seconds histogram",
        "# TYPE apiserver_watch_events_total counter",
        "# TYPE apiserver_storage_size_bytes gauge",
        "# TYPE kubernetes_build_info gauge",
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE process_open_fds gauge",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        assert!(metrics.contains(want), "{want}\n{metrics}");
    }
}

fn definitions(s: &Server) -> Value {
    s.get("/openapi/v2").send().unwrap().expect(200).unwrap().json().unwrap()
}

#[test]
fn openapi_v2() {
    let s = server();
    let document = definitions(&s);
    assert_eq!(document["swagger"], "2.0");
    let pod = &document["definitions"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
    assert!(!pod["description"].as_str().unwrap().is_empty());
    let containers = &document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    // kubectl looks for these parameters before it sends them.
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().unwrap().iter();
    // Parameters that many operations have in common stand once, and are referred to.
    let name = |p: &Value| match p["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
        Some(at) => document.pointer(at).unwrap()["name"].clone(),
        None => p["name"].clone(),
    };
    let names = parameters.map(name).collect::<Vec<_>>();
    for wanted in ["dryRun", "fieldManager", "fieldValidation", "force"] {
        assert!(names.contains(&wanted.into()), "{wanted}: {patch}");
    }
    assert_eq!(patch["x-kubernetes-action"], "patch");
    // The names of shared parameters are made from their content.
    let shared = document["parameters"].as_object().unwrap();
    for name in
        ["body-2Y1dVQaQ", "limit-1NfNmdNH", "namespace-vgWSWtn3", "fieldManager-7c6nTn1T", "tty-s0flW37O"]
    {
        assert!(shared.contains_key(name), "{name}: {:?}", shared.keys().collect::<Vec<_>>());
    }
    let of = |definition: &str, field: &str| {
        let definition = &document["definitions"][definition];
        let field = &definition["properties"][field]["description"];
        [&definition["description"], field].map(|d| d.as_str().unwrap().to_owned())
    };
    assert_eq!(
        of("io.k8s.api.core.v1.ConfigMapList", "items"),
        [
            "ConfigMapList is a resource containing a list of ConfigMap objects.",
            "Items is the list of ConfigMaps."
        ]
    );
    let [_, policy] = of("io.k8s.api.core.v1.PodSpec", "restartPolicy");
    assert!(policy.contains("Possible enum values:\n - `\"Always\"`"), "{policy}");
    let proto = s.get("/openapi/v2").accept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    let proto = proto.send().unwrap().expect(200).unwrap();
    assert_eq!(proto.header("content-type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert!(proto.body.starts_with(b"\x0a\x032.0"), "swagger is the first field");
    let etag = proto.header("etag").to_owned();
    let again = s.get("/openapi/v2").accept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    again.header("If-None-Match", &etag).send().unwrap().expect(304).unwrap();
    s.get("/openapi/v2").accept("text/html").send().unwrap().expect(406).unwrap();
}

#[test]
fn openapi_v3() {
    let s = server();
    let index = s.get("/openapi/v3").send().unwrap().expect(200).unwrap().json().unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(url.starts_with("/openapi/v3/apis/apps/v1?hash="), "{url}");
    let answer = s.get(url).send().unwrap().expect(200).unwrap();
    // A document that is named by its hash never changes.
    assert_eq!(answer.header("cache-control"), "public, immutable");
    assert!(!answer.header("expires").is_empty());
    let document = answer.json().unwrap();
    assert_eq!(document["openapi"], "3.0.0");
    let schema = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["group"], "apps");
    for accept in ["spec.v3@v1.0", "spec.v3.v1.0"] {
        let accept = format!("application/com.github.proto-openapi.{accept}+protobuf");
        let proto = s.get(url).accept(&accept).send().unwrap().expect(200).unwrap();
        let media = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
        assert_eq!(proto.header("content-type"), media);
        assert_eq!(proto.header("etag"), answer.header("etag"));
        assert!(proto.body.starts_with(b"\x0a\x053.0.0"), "openapi is the first field");
    }
    s.get(url).accept("text/html").send().unwrap().expect(406).unwrap();
    let etag = answer.header("etag").to_owned();
    let plain = s.get("/openapi/v3/apis/apps/v1").header("If-None-Match", &etag).send().unwrap();
    assert_eq!(plain.status, 304);
    // Another hash leads to the right one.
    let moved = s.get("/openapi/v3/apis/apps/v1?hash=OLD").send().unwrap().expect(301).unwrap();
    assert_eq!(moved.header("location"), url);
}

#[test]
fn kubectl_explains() {
    let s = server();
    let text = s.kubectl(&["explain", "deployment.spec.strategy.rollingUpdate.maxSurge"]).unwrap();
    assert!(
        text.contains("KIND:       Deployment") && text.contains("FIELD: maxSurge <IntOrString>"),
        "{text}"
    );
    let text = s.kubectl(&["explain", "pods", "--recursive", "--output", "plaintext-openapiv2"]).unwrap();
    assert!(text.contains("   spec\t<Object>"), "{text}");
    assert!(s.kubectl(&["explain", "pods.spec.nothing"]).is_err());
}

#[test]
fn kubectl_explains_every_kind() {
    let s = Server::start(&["--runtime-config=api/all=true", OPT_IN]).unwrap();
    let all = s.kubectl(&["api-resources", "--no-headers"]).unwrap();
    let all: Vec<(&str, &str)> = all
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[0], words[words.len() - 3])
        })
        .collect();
    assert!(all.len() > 70, "{all:?}");
    // Each check starts a kubectl: several run side by side.
    std::thread::scope(|scope| {
        for part in all.chunks(all.len().div_ceil(4)) {
            let s = &s;
            scope.spawn(move || {
                for (resource, version) in part {
                    let version = format!("--api-version={version}");
                    let text = s.kubectl(&["explain", "--recursive", &version, resource]).unwrap();
                    let description = text.split("DESCRIPTION:").nth(1).and_then(|t| t.trim().lines().next());
                    let said = description.is_some_and(|d| !d.trim().is_empty() && d.trim() != "<empty>");
                    assert!(said && text.contains("FIELDS:"), "{resource} {version}: {text}");
                }
            });
        }
    });
}

#[test]
fn kinds_that_are_off_by_default() {
    let s = Server::start(&["--runtime-config=api/all=true", OPT_IN]).unwrap();
    s.kubectl(&["create", "namespace", "a"]).unwrap();
    let post = |path: &str, object: &Value| s.request("POST", path).json(object).send().unwrap();
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    });
    let groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/a/podgroups";
    let made = post(groups, &group).expect(201).unwrap().json().unwrap();
    assert_eq!(made["metadata"]["finalizers"][0], "scheduling.k8s.io/podgroup-protection");
    assert_eq!((&made["spec"]["disruptionMode"], &made["spec"]["priority"]), (&"Pod".into(), &0.into()));
    let candidate = json!({
        "apiVersion": "coordination.k8s.io/v1beta1",
        "kind": "LeaseCandidate",
        "metadata": {"name": "c"},
        "spec": {"leaseName": "l", "binaryVersion": "1.35", "strategy": "OldestEmulationVersion"},
    });
    let answer = post("/apis/coordination.k8s.io/v1beta1/namespaces/a/leasecandidates", &candidate);
    assert!(
        answer.header("warning").contains("LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+")
    );
    let refused = answer.expect(422).unwrap().json().unwrap();
    let causes = refused["details"]["causes"].as_array().unwrap().iter().map(|c| c["field"].clone());
    assert_eq!(causes.collect::<Vec<_>>(), ["spec.binaryVersion", "spec.emulationVersion"]);
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": "b"},
        "spec": {"trustBundle": ""},
    });
    let refused = post("/apis/certificates.k8s.io/v1beta1/clustertrustbundles", &bundle).expect(422).unwrap();
    assert!(refused.text().contains("at least one trust anchor must be provided"));
    let plain = server();
    plain.get(groups).send().unwrap().expect(404).unwrap();
}

#[test]
fn an_api_is_there_when_it_was_asked_for() {
    let s = Server::start(&["--runtime-config=resource.k8s.io/v1beta1=true,apps/v1=false"]).unwrap();
    s.get("/apis/resource.k8s.io/v1beta1/deviceclasses").send().unwrap().expect(200).unwrap();
    s.get("/apis/apps/v1/deployments").send().unwrap().expect(404).unwrap();
    let s = server();
    s.get("/apis/resource.k8s.io/v1beta1/deviceclasses").send().unwrap().expect(404).unwrap();
}
