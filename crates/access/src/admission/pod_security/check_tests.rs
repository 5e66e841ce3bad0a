//! Each check on pods of upstream's own tests, and all of them on pods that break one rule at a time.

use api::view::View;
use api::{Gvk, Schema};
use serde_json::{Value, json};

use super::checks::{CHECKS, evaluate};
use super::pod::{Pod, Violation};
use super::policy::{Level, LevelVersion, Version};
use crate::admission::tests::parse;

fn with_pod<T>(pod: &Value, ask: impl FnOnce(&Pod<'_>) -> T) -> T {
    let tree = parse(&Gvk::new("", "v1", "Pod"), pod);
    ask(&Pod::of(View::new(Schema::builtin(), &tree)))
}

/// Runs a check of a minor version on a pod; `want` is its reason and its detail, `None` if the pod passes.
fn check_pod(id: &str, minor: i64, pod: &Value, want: Option<(&'static str, &str)>) {
    let judge = CHECKS.iter().find(|c| c.id == id).and_then(|c| c.at(minor)).unwrap();
    let want = want.map(|(reason, detail)| Violation { reason, detail: detail.into() });
    assert_eq!(with_pod(pod, judge), want, "{id} of v1.{minor}: {pod}");
}

fn check(id: &str, minor: i64, spec: Value, want: Option<(&'static str, &str)>) {
    check_pod(id, minor, &json!({ "spec": spec }), want);
}

/// Makes a list of containers from their fields by name.
fn containers(of: Value) -> Value {
    let Value::Object(of) = of else { panic!("{of}") };
    let mut all = Vec::new();
    for (name, mut container) in of {
        container["name"] = name.into();
        all.push(container);
    }
    all.into()
}

/// Makes a list of containers from their security contexts by name.
fn contexts(of: Value) -> Value {
    let Value::Object(of) = of else { panic!("{of}") };
    containers(of.into_iter().map(|(name, context)| (name, json!({ "securityContext": context }))).collect())
}

#[test]
fn allow_privilege_escalation() {
    const ID: &str = "allowPrivilegeEscalation";
    let field = |v: Value| json!({ "allowPrivilegeEscalation": v });
    let several = contexts(json!({ "a": null, "b": {}, "c": field(true.into()), "d": field(false.into()) }));
    let want = "containers \"a\", \"b\", \"c\" must set securityContext.allowPrivilegeEscalation=false";
    let one = contexts(json!({ "a": null }));
    let on = |os: &str| json!({ "os": { "name": os }, "containers": one });
    let of_one = "container \"a\" must set securityContext.allowPrivilegeEscalation=false";
    for minor in [8, 25] {
        check(ID, minor, json!({ "containers": several }), Some(("allowPrivilegeEscalation != false", want)));
        check(ID, minor, on("linux"), Some(("allowPrivilegeEscalation != false", of_one)));
    }
    check(ID, 24, on("windows"), Some(("allowPrivilegeEscalation != false", of_one)));
    check(ID, 25, on("windows"), None);
}

#[test]
fn app_armor() {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let check = |pod: Value, want: Option<(&'static str, &str)>| check_pod("appArmorProfile", 0, &pod, want);
    let profile = |kind: &str| json!({ "appArmorProfile": { "type": kind } });
    let annotated =
        |key: &str, value: &str| json!({ "metadata": { "annotations": { "env": "dev", key: value } } });
    check(annotated(&format!("{PREFIX}test"), "runtime/default"), None);
    check(annotated(&format!("{PREFIX}test"), "localhost/sec-profile01"), None);
    check(annotated("x", "y"), None);
    check(json!({}), None);
    check(json!({ "spec": { "securityContext": profile("RuntimeDefault") } }), None);
    check(json!({ "spec": { "containers": contexts(json!({ "foo": profile("Localhost") })) } }), None);
    let one = "forbidden AppArmor profile";
    check(
        json!({ "spec": { "securityContext": profile("Unconfined") } }),
        Some((one, "pod must not set AppArmor profile type to \"Unconfined\"")),
    );
    let unconfined = contexts(json!({ "bar": profile("Unconfined") }));
    let plain = contexts(json!({ "foo": null }));
    let default = profile("RuntimeDefault");
    for spec in [
        json!({ "securityContext": default, "containers": unconfined }),
        json!({ "securityContext": default, "containers": plain, "initContainers": unconfined }),
        json!({ "containers": plain, "ephemeralContainers": unconfined }),
    ] {
        let want = "container \"bar\" must not set AppArmor profile type to \"Unconfined\"";
        check(json!({ "spec": spec }), Some((one, want)));
    }
    let mut annotations = serde_json::Map::new();
    for (name, value) in [
        ("", "bogus"),
        ("a", ""),
        ("b", "runtime/default"),
        ("c", "localhost/"),
        ("d", "localhost/foo"),
        ("e", "unconfined"),
        ("f", "unknown"),
    ] {
        annotations.insert(format!("{PREFIX}{name}"), value.into());
    }
    let listed = format!("\"{PREFIX}=\"bogus\"\", \"{PREFIX}e=\"unconfined\"\", \"{PREFIX}f=\"unknown\"\"");
    let many = "forbidden AppArmor profiles";
    check(
        json!({ "metadata": { "annotations": annotations } }),
        Some((many, &format!("annotations must not set AppArmor profile type to {listed}"))),
    );
    let spec = json!({ "securityContext": profile("Unconfined"), "containers": contexts(json!({ "a": profile("x") })) });
    check(
        json!({ "metadata": { "annotations": { format!("{PREFIX}a"): "u" } }, "spec": spec }),
        Some((
            many,
            &format!(
                "pod and container \"a\" and annotation must not set AppArmor profile type to \"Unconfined\", \"x\", \"{PREFIX}a=\"u\"\""
            ),
        )),
    );
}

#[test]
fn capabilities() {
    let caps = |add: &[&str], drop: &[&str]| json!({ "capabilities": { "add": add, "drop": drop } });
    let adding = contexts(json!({ "a": caps(&["FOO", "BAR"], &[]), "b": caps(&["BAR", "BAZ"], &[]) }));
    check(
        "capabilities_baseline",
        0,
        json!({ "containers": adding }),
        Some((
            "non-default capabilities",
            "containers \"a\", \"b\" must not include \"BAR\", \"BAZ\", \"FOO\" in securityContext.capabilities.add",
        )),
    );
    const ID: &str = "capabilities_restricted";
    let reason = "unrestricted capabilities";
    let several = contexts(json!({
        "a": caps(&["FOO", "BAR"], &[]),
        "b": caps(&["BAR", "BAZ"], &[]),
        "c": caps(&["NET_BIND_SERVICE", "CHOWN"], &["ALL", "FOO"]),
    }));
    let want = "containers \"a\", \"b\" must set securityContext.capabilities.drop=[\"ALL\"]; containers \"a\", \"b\", \"c\" must not include \"BAR\", \"BAZ\", \"CHOWN\", \"FOO\" in securityContext.capabilities.add";
    let on = |os: &str| json!({ "os": { "name": os }, "containers": contexts(json!({ "a": null })) });
    let of_one = "container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]";
    for minor in [22, 25] {
        check(ID, minor, json!({ "containers": several }), Some((reason, want)));
        check(ID, minor, on("linux"), Some((reason, of_one)));
    }
    check(ID, 24, on("windows"), Some((reason, of_one)));
    check(ID, 25, on("windows"), None);
}

#[test]
fn the_host() {
    check(
        "hostNamespaces",
        0,
        json!({ "hostNetwork": true, "hostIPC": true, "hostPID": true }),
        Some(("host namespaces", "hostNetwork=true, hostPID=true, hostIPC=true")),
    );
    check(
        "hostPathVolumes",
        0,
        json!({ "volumes": [
            { "name": "a", "hostPath": { "path": "" } }, { "name": "b", "hostPath": { "path": "" } },
            { "name": "c", "emptyDir": {} },
        ] }),
        Some(("hostPath volumes", "volumes \"a\", \"b\"")),
    );
    let ports = |ports: &[i64]| json!({ "ports": ports.iter().map(|p| json!({ "containerPort": 1, "hostPort": p })).collect::<Vec<_>>() });
    check(
        "hostPorts",
        0,
        json!({ "containers": containers(json!({ "a": ports(&[0]), "b": ports(&[0, 20]) })) }),
        Some(("hostPort", "container \"b\" uses hostPort 20")),
    );
    let several = json!({ "a": ports(&[0]), "b": ports(&[0, 10, 20]), "c": ports(&[0, 10, 30]) });
    check(
        "hostPorts",
        0,
        json!({ "containers": containers(several) }),
        Some(("hostPort", "containers \"b\", \"c\" use hostPorts 10, 20, 30")),
    );
    check(
        "windowsHostProcess",
        0,
        json!({
            "securityContext": { "windowsOptions": { "hostProcess": true } },
            "containers": contexts(json!({
                "a": null, "b": {}, "c": { "windowsOptions": {} },
                "d": { "windowsOptions": { "hostProcess": false } },
                "e": { "windowsOptions": { "hostProcess": true } },
                "f": { "windowsOptions": { "hostProcess": true } },
            })),
        }),
        Some((
            "hostProcess",
            "pod and containers \"e\", \"f\" must not set securityContext.windowsOptions.hostProcess=true",
        )),
    );
    let privileged = |v: bool| json!({ "privileged": v });
    check(
        "privileged",
        0,
        json!({ "containers": contexts(json!({
            "a": null, "b": {}, "c": privileged(false), "d": privileged(true), "e": privileged(true),
        })) }),
        Some(("privileged", "containers \"d\", \"e\" must not set securityContext.privileged=true")),
    );
}

#[test]
fn hosts_of_probes_and_handlers() {
    let check = |of: Value, want: &str| {
        let want = (!want.is_empty()).then_some(("probe or lifecycle host", want));
        check("hostProbesAndHostLifecycle", 34, json!({ "containers": containers(of) }), want);
    };
    let http = |host: &str| json!({ "httpGet": { "host": host, "port": 1 } });
    let tcp = |host: &str| json!({ "tcpSocket": { "host": host, "port": 1 } });
    check(
        json!({ "a": { "livenessProbe": http(""), "readinessProbe": tcp(""), "lifecycle": { "postStart": http("") } } }),
        "",
    );
    check(
        json!({ "a": { "livenessProbe": http("127.0.0.1"), "readinessProbe": tcp("::1"), "startupProbe": http("localhost") } }),
        "container \"a\" uses probe or lifecycle hosts \"127.0.0.1\", \"::1\", \"localhost\"",
    );
    for container in [
        json!({ "livenessProbe": http("h") }),
        json!({ "readinessProbe": tcp("h") }),
        json!({ "startupProbe": http("h") }),
        json!({ "lifecycle": { "postStart": tcp("h") } }),
        json!({ "lifecycle": { "preStop": http("h") } }),
    ] {
        check(json!({ "a": container }), "container \"a\" uses probe or lifecycle host \"h\"");
    }
    check(
        json!({
            "invalid1": { "livenessProbe": http("a.com") },
            "invalid2": { "lifecycle": { "preStop": tcp("b.com") }, "startupProbe": http("a.com") },
            "valid": {},
        }),
        "containers \"invalid1\", \"invalid2\" use probe or lifecycle hosts \"a.com\", \"b.com\"",
    );
    let init = json!({ "initContainers": containers(json!({ "init": { "livenessProbe": http("h") } })) });
    let want = "container \"init\" uses probe or lifecycle host \"h\"";
    self::check("hostProbesAndHostLifecycle", 34, init, Some(("probe or lifecycle host", want)));
}

#[test]
fn proc_mount() {
    let of = |kind: &str| json!({ "procMount": kind });
    let all =
        contexts(json!({ "a": null, "b": {}, "c": of("Default"), "d": of("Unmasked"), "e": of("other") }));
    let spec = |host_users: bool| json!({ "hostUsers": host_users, "containers": all });
    let want = (
        "procMount",
        "containers \"d\", \"e\" must not set securityContext.procMount to \"Unmasked\", \"other\"",
    );
    check("procMount", 34, spec(false), Some(want));
    check("procMount", 35, spec(true), Some(want));
    check("procMount", 35, spec(false), None);
    check("procMount_restricted", 35, spec(false), Some(want));
}

#[test]
fn restricted_volumes() {
    let allowed = "emptyDir secret persistentVolumeClaim downwardAPI configMap projected csi ephemeral image"
        .split(' ');
    let forbidden = "hostPath gcePersistentDisk awsElasticBlockStore gitRepo nfs iscsi glusterfs rbd flexVolume cinder cephfs flocker fc azureFile vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO storageos".split(' ');
    let named = |prefix: &'static str| move |(i, source): (usize, &str)| json!({ "name": format!("{prefix}{}", i + 1), source: {} });
    let mut volumes: Vec<Value> = allowed.enumerate().map(named("a")).collect();
    volumes.extend(forbidden.enumerate().map(named("b")));
    volumes.push(json!({ "name": "c1" }));
    check(
        "restrictedVolumes",
        0,
        json!({ "volumes": volumes }),
        Some((
            "restricted volume types",
            "volumes \"b1\", \"b2\", \"b3\", \"b4\", \"b5\", \"b6\", \"b7\", \"b8\", \"b9\", \"b10\", \"b11\", \"b12\", \"b13\", \"b14\", \"b15\", \"b16\", \"b17\", \"b18\", \"b19\", \"b20\", \"b21\", \"c1\" use restricted volume types \"awsElasticBlockStore\", \"azureDisk\", \"azureFile\", \"cephfs\", \"cinder\", \"fc\", \"flexVolume\", \"flocker\", \"gcePersistentDisk\", \"gitRepo\", \"glusterfs\", \"hostPath\", \"iscsi\", \"nfs\", \"photonPersistentDisk\", \"portworxVolume\", \"quobyte\", \"rbd\", \"scaleIO\", \"storageos\", \"unknown\", \"vsphereVolume\"",
        )),
    );
}

#[test]
fn users() {
    const NON_ROOT: &str = "runAsNonRoot != true";
    let of = |v: bool| json!({ "runAsNonRoot": v });
    let none = contexts(json!({ "a": null }));
    let cases = [
        (json!({ "containers": none }), "pod or container \"a\" must set securityContext.runAsNonRoot=true"),
        (
            json!({ "securityContext": of(false), "containers": none }),
            "pod must not set securityContext.runAsNonRoot=false",
        ),
        (
            json!({ "securityContext": of(true), "containers": contexts(json!({
                "a": null, "b": {}, "c": of(false), "d": of(false), "e": of(true), "f": of(true),
            })) }),
            "containers \"c\", \"d\" must not set securityContext.runAsNonRoot=false",
        ),
        (
            json!({ "containers": contexts(json!({ "a": null, "b": {}, "d": of(true), "e": of(true) })) }),
            "pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true",
        ),
    ];
    for (mut spec, want) in cases {
        check("runAsNonRoot", 35, spec.clone(), Some((NON_ROOT, want)));
        spec["hostUsers"] = false.into();
        check("runAsNonRoot", 34, spec.clone(), Some((NON_ROOT, want)));
        check("runAsNonRoot", 35, spec, None);
    }
    let of = |v: i64| json!({ "runAsUser": v });
    let cases = [
        (json!({ "securityContext": of(0), "containers": none }), "pod must not set runAsUser=0"),
        (json!({ "securityContext": of(1000), "containers": none }), ""),
        (json!({ "securityContext": {}, "containers": none }), ""),
        (
            json!({ "securityContext": of(1000), "containers": contexts(json!({
                "a": null, "b": {}, "c": of(0), "d": of(0), "e": of(1), "f": of(1),
            })) }),
            "containers \"c\", \"d\" must not set runAsUser=0",
        ),
        (json!({ "containers": contexts(json!({ "c": of(1), "d": of(2), "e": of(3), "f": of(4) })) }), ""),
    ];
    for (mut spec, want) in cases {
        let want = (!want.is_empty()).then_some(("runAsUser=0", want));
        check("runAsUser", 35, spec.clone(), want);
        spec["hostUsers"] = false.into();
        check("runAsUser", 34, spec.clone(), want);
        check("runAsUser", 35, spec, None);
    }
}

#[test]
fn se_linux() {
    let of = |kind: &str, user: &str, role: &str| json!({ "seLinuxOptions": { "type": kind, "user": user, "role": role } });
    let good = json!({
        "a": of("container_t", "", ""), "b": of("container_init_t", "", ""), "c": of("container_kvm_t", "", ""),
        "d": of("container_engine_t", "", ""),
    });
    let mut all = good.clone();
    for (name, context) in [("e", of("bar", "", "")), ("f", of("", "bar", "")), ("g", of("", "", "baz"))] {
        all[name] = context;
    }
    let bad_pod = of("foo", "bar", "baz");
    let cases = [
        (
            json!({ "securityContext": bad_pod, "containers": contexts(all.clone()) }),
            "pod and containers \"e\", \"f\", \"g\" set forbidden securityContext.seLinuxOptions: types \"bar\", \"foo\"; user may not be set; role may not be set",
        ),
        (
            json!({ "securityContext": bad_pod, "containers": contexts(good.clone()) }),
            "pod set forbidden securityContext.seLinuxOptions: type \"foo\"; user may not be set; role may not be set",
        ),
        (
            json!({ "securityContext": { "seLinuxOptions": {} }, "containers": contexts(all) }),
            "containers \"e\", \"f\", \"g\" set forbidden securityContext.seLinuxOptions: type \"bar\"; user may not be set; role may not be set",
        ),
        (
            json!({ "securityContext": of("bad", "", "") }),
            "pod set forbidden securityContext.seLinuxOptions: type \"bad\"",
        ),
        (
            json!({ "securityContext": of("", "bad", "") }),
            "pod set forbidden securityContext.seLinuxOptions: user may not be set",
        ),
        (
            json!({ "securityContext": of("", "", "bad") }),
            "pod set forbidden securityContext.seLinuxOptions: role may not be set",
        ),
    ];
    for (spec, want) in cases {
        check("seLinuxOptions", 31, spec, Some(("seLinuxOptions", want)));
    }
    check("seLinuxOptions", 31, json!({ "containers": contexts(good.clone()) }), None);
    let want = "container \"d\" set forbidden securityContext.seLinuxOptions: type \"container_engine_t\"";
    check("seLinuxOptions", 30, json!({ "containers": contexts(good) }), Some(("seLinuxOptions", want)));
}

#[test]
fn seccomp() {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    const BASELINE: &str = "seccompProfile_baseline";
    const RESTRICTED: &str = "seccompProfile_restricted";
    const REASON: &str = "seccompProfile";
    let (a, b) = (format!("{CONTAINER}a"), format!("{CONTAINER}b"));
    let of_containers = format!("{a}=\"unconfined\", {b}=\"unknown\"");
    let of_pod = format!("{POD}=\"unconfined\"");
    let spec = json!({ "containers": contexts(json!({ "a": null, "b": null, "c": null })) });
    let cases = [
        (json!({ POD: "unconfined" }), format!("forbidden annotation {of_pod}")),
        (json!({ &a: "unconfined", &b: "unknown" }), format!("forbidden annotations {of_containers}")),
        (
            json!({ POD: "unconfined", &a: "unconfined", &b: "unknown" }),
            format!("forbidden annotations {of_containers}, {of_pod}"),
        ),
    ];
    for (annotations, want) in cases {
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        check_pod(BASELINE, 18, &pod, Some((REASON, &want)));
        check_pod(BASELINE, 19, &pod, None);
    }
    let of = |kind: &str| json!({ "seccompProfile": { "type": kind } });
    let (bad, good) = (of("Unconfined"), of("RuntimeDefault"));
    let some = json!({ "a": null, "b": {}, "c": bad, "d": bad, "e": good, "f": good });
    let one = contexts(json!({ "a": null }));
    let both = [
        (
            json!({ "securityContext": bad, "containers": one }),
            "pod must not set securityContext.seccompProfile.type to \"Unconfined\"",
        ),
        (
            json!({ "securityContext": good, "containers": contexts(some.clone()) }),
            "containers \"c\", \"d\" must not set securityContext.seccompProfile.type to \"Unconfined\"",
        ),
        (
            json!({ "securityContext": bad, "containers": contexts(some) }),
            "pod and containers \"c\", \"d\" must not set securityContext.seccompProfile.type to \"Unconfined\"",
        ),
    ];
    for (spec, want) in both {
        check(BASELINE, 19, spec.clone(), Some((REASON, want)));
        check(RESTRICTED, 19, spec.clone(), Some((REASON, want)));
        check(RESTRICTED, 25, spec, Some((REASON, want)));
    }
    let lacking = [
        (
            json!({ "containers": one }),
            "pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        ),
        (
            json!({ "containers": contexts(json!({ "a": null, "b": {}, "d": good, "e": good })) }),
            "pod or containers \"a\", \"b\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        ),
    ];
    for (mut spec, want) in lacking {
        check(BASELINE, 19, spec.clone(), None);
        check(RESTRICTED, 19, spec.clone(), Some((REASON, want)));
        check(RESTRICTED, 25, spec.clone(), Some((REASON, want)));
        spec["os"]["name"] = "linux".into();
        check(RESTRICTED, 25, spec.clone(), Some((REASON, want)));
        spec["os"]["name"] = "windows".into();
        check(RESTRICTED, 24, spec.clone(), Some((REASON, want)));
        check(RESTRICTED, 25, spec, None);
    }
}

#[test]
fn sysctls() {
    let set = |names: &[&str]| {
        let all: Vec<Value> = names.iter().map(|name| json!({ "name": name, "value": "1" })).collect();
        json!({ "securityContext": { "sysctls": all } })
    };
    let since = [
        (0, "kernel.shm_rmid_forced"),
        (0, "net.ipv4.ip_local_port_range"),
        (0, "net.ipv4.tcp_syncookies"),
        (0, "net.ipv4.ping_group_range"),
        (0, "net.ipv4.ip_unprivileged_port_start"),
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_keepalive_time"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (29, "net.ipv4.tcp_keepalive_intvl"),
        (29, "net.ipv4.tcp_keepalive_probes"),
        (32, "net.ipv4.tcp_rmem"),
        (32, "net.ipv4.tcp_wmem"),
    ];
    for minor in [0, 26, 27, 28, 29, 31, 32] {
        check("sysctls", minor, set(&["a", "b"]), Some(("forbidden sysctls", "a, b")));
        for (first, name) in since {
            check("sysctls", minor, set(&[name]), (minor < first).then_some(("forbidden sysctls", name)));
        }
    }
}

/// A pod that has just the fields for which a level asks as of a minor version.
fn minimal(level: Level, minor: i64) -> Value {
    let container = |name: &str| json!({ "name": name, "image": "pause" });
    let mut pod = json!({ "spec": { "initContainers": [container("i")], "containers": [container("c")] } });
    if level == Level::Restricted {
        pod["spec"]["securityContext"]["runAsNonRoot"] = true.into();
        if minor >= 19 {
            pod["spec"]["securityContext"]["seccompProfile"]["type"] = "RuntimeDefault".into();
        }
        for list in ["initContainers", "containers"] {
            let context = &mut pod["spec"][list][0]["securityContext"];
            if minor >= 8 {
                context["allowPrivilegeEscalation"] = false.into();
            }
            if minor >= 22 {
                context["capabilities"]["drop"] = json!(["ALL"]);
            }
        }
    }
    pod
}

fn violations(level: Level, minor: i64, pod: &Value) -> String {
    let of = LevelVersion { level, version: Version::Minor(minor) };
    with_pod(pod, |pod| evaluate(of, pod).reasons())
}

/// Sets one value of a pod, at its JSON pointer.
fn set(mut pod: Value, at: &str, to: &Value) -> Value {
    let mut place = &mut pod;
    for step in at.split('/') {
        place = match step.parse::<usize>() {
            Ok(i) => &mut place[i],
            Err(_) => &mut place[step],
        };
    }
    *place = to.clone();
    pod
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn one_rule_broken_at_a_time() {
    use Level::{Baseline, Restricted};
    // A JSON pointer and its value, the reasons of the lower and of the higher level, and the first version with these.
    let rows: &[(&str, Value, &str, &str, i64)] = &[
        ("spec/hostPID", json!(true), "host namespaces", "host namespaces", 0),
        (
            "spec/volumes",
            json!([{ "name": "v", "hostPath": { "path": "/" } }]),
            "hostPath volumes",
            "restricted volume types",
            0,
        ),
        (
            "spec/volumes",
            json!([{ "name": "v", "nfs": { "path": "/", "server": "s" } }]),
            "",
            "restricted volume types",
            0,
        ),
        ("spec/volumes", json!([{ "name": "v", "image": { "reference": "r" } }]), "", "", 0),
        (
            "spec/containers/0/ports",
            json!([{ "containerPort": 1, "hostPort": 1 }]),
            "hostPort",
            "hostPort",
            0,
        ),
        (
            "spec/initContainers/0/ports",
            json!([{ "containerPort": 1, "hostPort": 1 }]),
            "hostPort",
            "hostPort",
            0,
        ),
        (
            "spec/containers/0/livenessProbe",
            json!({ "tcpSocket": { "host": "h", "port": 1 } }),
            "probe or lifecycle host",
            "probe or lifecycle host",
            34,
        ),
        ("spec/containers/0/securityContext/privileged", json!(true), "privileged", "privileged", 0),
        ("spec/initContainers/0/securityContext/procMount", json!("Unmasked"), "procMount", "procMount", 0),
        (
            "spec/securityContext/seLinuxOptions",
            json!({ "user": "u" }),
            "seLinuxOptions",
            "seLinuxOptions",
            0,
        ),
        (
            "spec/securityContext/appArmorProfile",
            json!({ "type": "Unconfined" }),
            "forbidden AppArmor profile",
            "forbidden AppArmor profile",
            0,
        ),
        (
            "spec/containers/0/securityContext/seccompProfile",
            json!({ "type": "Unconfined" }),
            "seccompProfile",
            "seccompProfile",
            19,
        ),
        (
            "spec/securityContext/sysctls",
            json!([{ "name": "a", "value": "" }]),
            "forbidden sysctls",
            "forbidden sysctls",
            0,
        ),
        (
            "spec/securityContext/windowsOptions",
            json!({ "hostProcess": true }),
            "hostProcess",
            "hostProcess",
            0,
        ),
        (
            "spec/containers/0/securityContext/capabilities",
            json!({ "add": ["NET_RAW"], "drop": ["ALL"] }),
            "non-default capabilities",
            "unrestricted capabilities",
            22,
        ),
        (
            "spec/containers/0/securityContext/capabilities",
            json!({ "add": ["CHOWN"], "drop": ["ALL"] }),
            "",
            "unrestricted capabilities",
            22,
        ),
        (
            "spec/containers/0/securityContext/capabilities",
            json!({ "add": ["NET_BIND_SERVICE"] }),
            "",
            "unrestricted capabilities",
            22,
        ),
        (
            "spec/containers/0/securityContext/allowPrivilegeEscalation",
            json!(true),
            "",
            "allowPrivilegeEscalation != false",
            8,
        ),
        ("spec/securityContext/runAsNonRoot", json!(false), "", "runAsNonRoot != true", 0),
        ("spec/containers/0/securityContext/runAsNonRoot", json!(false), "", "runAsNonRoot != true", 0),
        ("spec/containers/0/securityContext/runAsUser", json!(0), "", "runAsUser=0", 23),
        ("spec/os", json!({ "name": "windows" }), "", "", 0),
        ("spec/hostUsers", json!(false), "", "", 0),
    ];
    for minor in 0..=36 {
        for level in [Baseline, Restricted] {
            assert_eq!(violations(level, minor, &minimal(level, minor)), "", "{level:?} v1.{minor}");
        }
        for (at, to, baseline, restricted, since) in rows {
            for (level, want) in [(Baseline, *baseline), (Restricted, *restricted)] {
                // Before that version, the higher level has the baseline's check of capabilities.
                let early = if *since == 22 { *baseline } else { "" };
                let want = if minor < *since { early } else { want };
                let pod = set(minimal(level, minor), at, to);
                assert_eq!(violations(level, minor, &pod), want, "{level:?} v1.{minor}: {pod}");
            }
        }
    }
}
