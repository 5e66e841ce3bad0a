use std::sync::Arc;

use api::{Gvk, Schema};
use serde_json::{Value, json};

use super::existing::Limits;
use super::policy::{Level, LevelVersion, Version};
use super::*;
use crate::Notes;
use crate::RequestInfo;
use crate::UserInfo;
use crate::admission::OperationOptions;
use crate::admission::tests::parse;
use crate::testing::{Alone, Fake, object};

const PREFIX: &str = "pod-security.kubernetes.io/";

/// Makes labels from a short form such as `enforce=baseline warn-version=v1.20`.
fn labels(short: &str) -> Value {
    let pairs = short.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (format!("{PREFIX}{name}"), Value::from(value))).collect()
}

fn level(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap_or((text, "latest"));
    LevelVersion { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() }
}

#[test]
fn versions() {
    for (text, minor) in [("v1.0", 0), ("v1.1", 1), ("v1.20", 20), ("v1.10000", 10000)] {
        assert_eq!(Version::parse(text), Ok(Version::Minor(minor)));
    }
    assert_eq!(Version::parse("latest"), Ok(Version::Latest));
    for text in
        ["foo", "", "v2.0", "v1", "1.1", "v1.", "v1.01", "v1.+1", "v1.99999999999999999999", "latest "]
    {
        assert!(Version::parse(text).is_err(), "{text}");
    }
    assert!(Version::Minor(9) < Version::Minor(10) && Version::Minor(i64::MAX) < Version::Latest);
}

#[test]
fn policies_of_labels() {
    let check = |short: &str, want: [&str; 3], errors: usize| {
        let labels = labels(short);
        let (policy, found) = Policy::of(|name| labels[name].as_str(), Policy::PRIVILEGED);
        let got = Mode::ALL.map(|mode| policy.at(mode));
        assert_eq!((got, found.len()), (want.map(level), errors), "{short}");
    };
    // The levels of enforce, audit and warn.
    check("", ["privileged", "privileged", "privileged"], 0);
    check("enforce=baseline", ["baseline", "privileged", "baseline"], 0);
    check("warn=restricted", ["privileged", "privileged", "restricted"], 0);
    check("audit=baseline", ["privileged", "baseline", "privileged"], 0);
    check("enforce=baseline warn=restricted", ["baseline", "privileged", "restricted"], 0);
    check("enforce=baseline enforce-version=v1.22", ["baseline:v1.22", "privileged", "baseline:v1.22"], 0);
    check(
        "enforce=baseline enforce-version=v1.22 warn-version=latest",
        ["baseline:v1.22", "privileged", "baseline"],
        0,
    );
    check("enforce=baseline warn-version=v1.23", ["baseline", "privileged", "baseline:v1.23"], 0);
    check(
        "enforce=baseline enforce-version=v1.20 warn=restricted warn-version=v1.21 audit=restricted audit-version=v1.22",
        ["baseline:v1.20", "restricted:v1.22", "restricted:v1.21"],
        0,
    );
    check("enforce=baseline warn=privileged", ["baseline", "privileged", "privileged"], 0);
    check("enforce=baseline warn=foo", ["baseline", "privileged", "privileged"], 1);
    check("enforce=foo", ["restricted", "privileged", "privileged"], 1);
    check("enforce=foo audit=foo audit-version=1", ["restricted", "privileged", "privileged"], 3);
}

#[test]
fn warnings_of_exempt_namespaces() {
    let baseline = {
        let baseline = level("baseline:v1.23");
        Policy { enforce: baseline, audit: baseline, warn: baseline }
    };
    let check = |short: &str, defaults: Policy, want: &str| {
        let mut labels = labels(short);
        labels["other"] = "label".into();
        let label = |name: &str| labels[name].as_str();
        let (policy, _) = Policy::of(label, defaults);
        let want = (!want.is_empty()).then(|| {
            format!("namespace \"a\" is exempt from Pod Security, and the policy ({want}) will be ignored")
        });
        assert_eq!(policy.exempt_warning("a", label, &defaults), want, "{short}");
    };
    let none = Policy::PRIVILEGED;
    check("", none, "");
    check("enforce=privileged enforce-version=v1.24 warn-version=v1.25", none, "");
    check("enforce=baseline", none, "enforce=baseline:latest");
    check("warn=baseline", none, "warn=baseline:latest");
    check("audit=restricted", none, "audit=restricted:latest");
    check(
        "enforce=restricted enforce-version=v1.0 audit=restricted warn=baseline",
        none,
        "enforce=restricted:v1.0, audit=restricted:latest, warn=baseline:latest",
    );
    check("", baseline, "");
    check("warn-version=latest", baseline, "warn=baseline:latest");
}

/// The plugin with a configuration, and its environment with stored objects.
struct World {
    plugin: PodSecurity,
    env: Env,
}

fn world_of(configuration: &str, objects: &[(ResourceName, Value)]) -> World {
    let fake = Fake::default();
    for (resource, object) in objects {
        fake.put(*resource, object.clone());
    }
    let document = format!(
        "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n{configuration}\n"
    );
    let env = Env::of(fake);
    World { plugin: PodSecurity::new(Some(document.as_bytes())).unwrap(), env }
}

/// A request by its parts.
struct Ask<'a> {
    user: &'a str,
    /// `Deployment.apps/deployments/scale`
    path: &'a str,
    namespace: &'a str,
    name: &'a str,
    old: Option<&'a Value>,
}

/// Asks the plugin; returns its verdict, and the warnings for the client.
async fn ask(world: &World, ask: Ask<'_>, object: &Value) -> (Option<Verdict>, Vec<String>) {
    let (kind, resource) = ask.path.split_once('/').unwrap();
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let kind = Gvk::new(group, "v1", kind);
    let (tree, old) = (parse(&kind, object), ask.old.map(|old| parse(&kind, old)));
    let notes = Notes::default();
    let request = AdmissionRequest {
        user: &Arc::new(UserInfo { name: ask.user.into(), ..UserInfo::default() }),
        info: &RequestInfo { group: group.into(), ..RequestInfo::default() },
        operation: if old.is_some() { Operation::Update } else { Operation::Create },
        kind: &kind,
        request_kind: &kind,
        versions: &Alone,
        resource,
        subresource,
        namespace: ask.namespace,
        name: ask.name,
        old: old.as_ref(),
        dry_run: false,
        options: OperationOptions::default(),
        notes: &notes,
    };
    let verdict = world.plugin.judge(&world.env, &request, Some(&tree));
    if let Some(warning) = verdict.as_ref().and_then(|v| v.warning.as_ref()) {
        request.warn(warning);
    }
    if verdict.as_ref().is_some_and(|v| v.refusal.is_none())
        && let Some(look) = world.plugin.validate_waiting(&world.env, &request, Some(&tree))
    {
        look.await.unwrap();
    }
    (verdict, notes.take_warnings())
}

fn pod_in(namespace: &str, name: &str, spec: Value) -> (ResourceName, Value) {
    (PODS, json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec }))
}

#[tokio::test(start_paused = true)]
async fn labels_of_namespaces() {
    let namespace = |short: &str| json!({ "metadata": { "name": "test", "labels": labels(short) } });
    let none = &[][..];
    let exempt = "exemptions: {namespaces: [test]}";
    let existing = [
        pod_in("test", "a", json!({ "hostPID": true })),
        pod_in("test", "b", json!({ "hostPID": true, "runtimeClassName": "vm" })),
        pod_in("test", "c", json!({ "hostPID": true, "runtimeClassName": "other" })),
        pod_in(
            "test",
            "d",
            json!({ "hostIPC": true, "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] }),
        ),
        pod_in("test", "e", json!({})),
        pod_in("elsewhere", "f", json!({ "hostPID": true })),
    ];
    let head = |level: &str| {
        format!("existing pods in namespace \"test\" violate the new PodSecurity enforce level \"{level}\"")
    };
    let latest = [
        head("baseline:latest"),
        "a (and 2 other pods): host namespaces".into(),
        "d: host namespaces, hostPath volumes".into(),
    ];
    let check =
        async |configuration: &str, new: &str, old: Option<&str>, refusal: &str, warnings: &[String]| {
            let (new_object, old_object) = (namespace(new), old.map(namespace));
            let request = Ask {
                user: "eve",
                path: "Namespace/namespaces",
                namespace: "test",
                name: "test",
                old: old_object.as_ref(),
            };
            let (verdict, got) = ask(&world_of(configuration, &existing), request, &new_object).await;
            let refused = verdict.unwrap().refusal.map(|s| (s.code, s.message)).unwrap_or_default();
            let want = if refusal.is_empty() {
                String::new()
            } else {
                format!("Namespace \"test\" is invalid: {refusal}")
            };
            assert_eq!(refused, (if refusal.is_empty() { 0 } else { 422 }, want), "{old:?} to {new}");
            assert_eq!(got, warnings, "{old:?} to {new}");
        };
    let bad_level = "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"unknown\": must be one of privileged, baseline, restricted";
    let bad_version = "metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"unknown\": must be \"latest\" or \"v1.x\"";
    // New namespaces.
    check("", "enforce=privileged enforce-version=v1.0", None, "", none).await;
    check("", "enforce=baseline", None, "", none).await;
    check("", "enforce=restricted", None, "", none).await;
    let ignored = |policy: &str| {
        vec![format!(
            "namespace \"test\" is exempt from Pod Security, and the policy ({policy}) will be ignored"
        )]
    };
    check(exempt, "enforce=restricted", None, "", &ignored("enforce=restricted:latest")).await;
    check("", "enforce=unknown", None, bad_level, none).await;
    check("", "enforce=privileged enforce-version=unknown", None, bad_version, none).await;
    // Updates that tighten nothing.
    let old = "enforce=restricted enforce-version=v1.0";
    for (new, old) in [
        (old, old),
        ("enforce=unknown", "enforce=unknown"),
        ("enforce=baseline enforce-version=unknown", "enforce=baseline enforce-version=unknown"),
        ("enforce=baseline enforce-version=v1.0", old),
        ("enforce=baseline enforce-version=latest", "enforce=restricted enforce-version=latest"),
        ("enforce=baseline", "enforce=restricted"),
        ("enforce=privileged", old),
        ("", old),
        ("warn=restricted audit=restricted", ""),
    ] {
        check("", new, Some(old), "", none).await;
    }
    // Labels that are wrong now and were not before.
    check("", "enforce=unknown", Some(old), bad_level, none).await;
    check("", "enforce=privileged enforce-version=unknown", Some(old), bad_version, none).await;
    check(
        "",
        "enforce=unknown enforce-version=unknown",
        Some("enforce=unknown"),
        &format!("[{bad_level}, {bad_version}]"),
        none,
    )
    .await;
    // Violations of existing pods.
    check("", "enforce=baseline", Some(""), "", &latest).await;
    let mut other = latest.clone();
    other[0] = head("baseline:v1.0");
    check("", "enforce=baseline enforce-version=v1.0", Some("enforce=baseline"), "", &other).await;
    check("defaults: {enforce: baseline}", "", Some("enforce=privileged"), "", &latest).await;
    let mut fewer = latest.clone();
    fewer[1] = "a (and 1 other pod): host namespaces".into();
    check("exemptions: {runtimeClasses: [vm]}", "enforce=baseline", Some(""), "", &fewer).await;
    let asked = "enforce=restricted enforce-version=v1.0 audit=restricted warn=baseline";
    let policy = "enforce=restricted:v1.0, audit=restricted:latest, warn=baseline:latest";
    check(exempt, asked, Some(""), "", &ignored(policy)).await;
    check(exempt, asked, Some(asked), "", none).await;
}

#[tokio::test(start_paused = true)]
async fn existing_pods_up_to_a_limit() {
    let pod = |name: &str, reasons: &[&str], controller: &str, class: &str| {
        let mut pod = json!({ "metadata": { "namespace": "test", "name": name }, "spec": {} });
        for field in reasons {
            pod["spec"][field] = match *field {
                "hostPID" => true.into(),
                "volumes" => json!([{ "name": "v", "hostPath": { "path": "/" } }]),
                field => panic!("{field}"),
            };
        }
        if !controller.is_empty() {
            pod["metadata"]["ownerReferences"] = json!([{ "uid": controller, "controller": true }]);
        }
        if !class.is_empty() {
            pod["spec"]["runtimeClassName"] = class.into();
        }
        Arc::new(object(pod))
    };
    let check = async |pods: Vec<Arc<api::Object>>, limits: Limits, want: &[&str]| {
        let pods = existing::prioritize(pods, &["vm".to_owned()]);
        let got = existing::warnings(Schema::builtin(), "test", pods, level("baseline"), limits).await;
        assert_eq!(got, want);
    };
    let four = Limits { pods: 4, ..Limits::DEFAULT };
    let head =
        "existing pods in namespace \"test\" violate the new PodSecurity enforce level \"baseline:latest\"";
    check(vec![], four, &[]).await;
    let five = || ["p1", "p2", "p3", "p4", "p5"].map(|name| pod(name, &["hostPID"], "", "")).to_vec();
    let some = "new PodSecurity enforce level only checked against the first 4 of 5 existing pods";
    check(five(), four, &[some, head, "p1 (and 3 other pods): host namespaces"]).await;
    check(five(), Limits::DEFAULT, &[head, "p1 (and 4 other pods): host namespaces"]).await;
    let at_once = Limits { time: std::time::Duration::ZERO, ..Limits::DEFAULT };
    let one = "new PodSecurity enforce level only checked against the first 1 of 5 existing pods";
    check(five(), at_once, &[one, head, "p1: host namespaces"]).await;
    // Exempt pods do not count, and one of each controller comes before the second of any.
    let both: &[&str] = &["hostPID", "volumes"];
    let mut pods: Vec<_> = (0..4).map(|i| pod(&format!("exempt{i}"), &["hostPID"], "", "vm")).collect();
    pods.extend((0..4).map(|i| pod(&format!("first{i}"), &["hostPID"], "1", "")));
    pods.extend((0..4).map(|i| pod(&format!("second{i}"), &["volumes"], "2", "")));
    pods.push(pod("alone0", both, "", "other"));
    pods.push(pod("alone1", &[], "", ""));
    pods.push(pod("alone2", &["volumes"], "", ""));
    let some = "new PodSecurity enforce level only checked against the first 4 of 11 existing pods";
    let want = [
        some,
        head,
        "alone0: host namespaces, hostPath volumes",
        "first0: host namespaces",
        "second0: hostPath volumes",
    ];
    check(pods, four, &want).await;
}

/// The counts, each in short: `deny/enforce/restricted`, `exempt`, `error`.
fn counted(world: &World) -> Vec<String> {
    let in_short = |line: &String| {
        let values: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        match line.split('{').next() {
            Some("pod_security_evaluations_total") => values[..3].join("/"),
            Some("pod_security_exemptions_total") => "exempt".into(),
            _ => "error".into(),
        }
    };
    let mut all: Vec<String> = world.plugin.metrics.counted().iter().map(in_short).collect();
    all.sort();
    all
}

/// A pod as it is sent.
struct Sent {
    namespace: &'static str,
    user: &'static str,
    subresource: &'static str,
    pod: Value,
    old: Option<Value>,
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn pods_and_templates() {
    let namespaces = [
        ("exempt", "enforce=restricted warn=restricted audit=restricted"),
        ("implicit", ""),
        ("privileged", "enforce=privileged warn=privileged audit=privileged"),
        ("baseline", "enforce=baseline warn=baseline audit=baseline"),
        ("baseline-warn", "warn=baseline"),
        ("baseline-audit", "audit=baseline"),
        ("restricted", "enforce=restricted warn=restricted audit=restricted"),
        ("invalid", "enforce=not-a-level"),
    ];
    let namespaces = namespaces
        .map(|(name, short)| (NAMESPACES, json!({ "metadata": { "name": name, "labels": labels(short) } })));
    let configuration = "exemptions: {namespaces: [exempt], usernames: [root], runtimeClasses: [vm]}";
    let pod = |context: Value| json!({ "metadata": { "name": "x" }, "spec": { "containers": [{ "name": "c", "image": "i", "securityContext": context }] } });
    let baseline = pod(json!({}));
    let restricted = pod(json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" },
        "capabilities": { "drop": ["ALL"] },
    }));
    let privileged = pod(json!({ "privileged": true }));
    let with = |pod: &Value, field: &str, value: Value| {
        let mut pod = pod.clone();
        pod["spec"][field] = value;
        pod
    };
    let image = |pod: &Value, image: &str| {
        let mut pod = pod.clone();
        pod["spec"]["containers"][0]["image"] = image.into();
        pod
    };
    let debug = json!([{ "name": "debug", "image": "i", "securityContext": { "privileged": true } }]);
    let classed = with(&privileged, "runtimeClassName", "vm".into());
    let tolerant = with(&privileged, "tolerations", json!([{ "operator": "Exists" }]));
    let debugged = with(&restricted, "ephemeralContainers", debug);
    let sent = |namespace, pod: &Value| Sent {
        namespace,
        user: "eve",
        subresource: "",
        pod: pod.clone(),
        old: None,
    };
    let update =
        |namespace, pod: &Value, old: &Value| Sent { old: Some(old.clone()), ..sent(namespace, pod) };
    // The outcome for a pod: the refusal's reason or `ok`, the annotations, and the counts; then the same for a
    // Deployment of it, with `warned` where it brings a warning.
    let cases = [
        (Sent { subresource: "status", ..sent("restricted", &privileged) }, "-", "-"),
        (sent("exempt", &privileged), "ok exempt | exempt", "ok exempt | exempt"),
        (
            Sent { user: "root", ..sent("restricted", &privileged) },
            "ok exempt | exempt",
            "ok exempt | exempt",
        ),
        (sent("restricted", &classed), "ok exempt | exempt", "ok exempt | exempt"),
        (sent("missing", &restricted), "InternalError error | error", "ok error | error"),
        (sent("implicit", &privileged), "ok enforce-policy | allow/enforce/privileged", "ok | "),
        (sent("privileged", &privileged), "ok enforce-policy | allow/enforce/privileged", "ok | "),
        (
            update("restricted", &tolerant, &privileged),
            "ok | ",
            "ok warned audit-violations | deny/audit/restricted deny/warn/restricted",
        ),
        (
            update("restricted", &image(&privileged, "j"), &privileged),
            "Forbidden enforce-policy audit-violations | deny/audit/restricted deny/enforce/restricted",
            "ok warned audit-violations | deny/audit/restricted deny/warn/restricted",
        ),
        (
            update("restricted", &image(&restricted, "j"), &restricted),
            "ok enforce-policy | allow/enforce/restricted",
            "ok | ",
        ),
        (
            Sent { subresource: "ephemeralcontainers", ..update("restricted", &debugged, &restricted) },
            "Forbidden enforce-policy audit-violations | deny/audit/restricted deny/enforce/restricted",
            "-",
        ),
        (Sent { subresource: "resize", ..update("restricted", &privileged, &privileged) }, "ok | ", "-"),
        (
            sent("invalid", &baseline),
            "Forbidden enforce-policy error | deny/enforce/restricted error",
            "ok error | error",
        ),
        (
            sent("restricted", &privileged),
            "Forbidden enforce-policy audit-violations | deny/audit/restricted deny/enforce/restricted",
            "ok warned audit-violations | deny/audit/restricted deny/warn/restricted",
        ),
        (sent("baseline", &baseline), "ok enforce-policy | allow/enforce/baseline", "ok | "),
        (
            sent("baseline-warn", &privileged),
            "ok warned enforce-policy | allow/enforce/privileged deny/warn/baseline",
            "ok warned | deny/warn/baseline",
        ),
        (
            sent("baseline-audit", &privileged),
            "ok enforce-policy audit-violations | allow/enforce/privileged deny/audit/baseline",
            "ok audit-violations | deny/audit/baseline",
        ),
    ];
    let outcome = |verdict: Option<Verdict>, world: &World| {
        let Some(Verdict { refusal, warning, notes }) = verdict else { return "-".to_owned() };
        let noted = [
            ("warned", warning.is_some()),
            ("exempt", notes.exempt.is_some()),
            ("enforce-policy", notes.enforce_policy.is_some()),
            ("audit-violations", notes.audit_violations.is_some()),
            ("error", notes.error.is_some()),
        ];
        let mut words = vec![refusal.map_or("ok".to_owned(), |status| status.reason)];
        words.extend(noted.into_iter().filter(|n| n.1).map(|n| n.0.to_owned()));
        format!("{} | {}", words.join(" "), counted(world).join(" "))
    };
    for (sent, as_pod, as_deployment) in cases {
        let Sent { namespace, user, subresource, pod, old } = sent;
        let deployment = |pod: &Value| json!({ "metadata": { "name": "x" }, "spec": { "template": pod } });
        let sub = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let path = format!("Pod/pods{sub}");
        let request = Ask { user, path: &path, namespace, name: "x", old: old.as_ref() };
        let of = world_of(configuration, &namespaces);
        assert_eq!(outcome(ask(&of, request, &pod).await.0, &of), as_pod, "{namespace}: {pod}");
        let path = format!("Deployment.apps/deployments{sub}");
        let old = old.as_ref().map(deployment);
        let request = Ask { user, path: &path, namespace, name: "x", old: old.as_ref() };
        let of = world_of(configuration, &namespaces);
        let object =
            if subresource == "ephemeralcontainers" { deployment(&restricted) } else { deployment(&pod) };
        assert_eq!(outcome(ask(&of, request, &object).await.0, &of), as_deployment, "{namespace}: {object}");
    }
}

#[tokio::test]
async fn where_templates_are() {
    let namespace = json!({ "metadata": { "name": "a", "labels": labels("warn=baseline audit=baseline") } });
    let world = world_of("", &[(NAMESPACES, namespace)]);
    let template = json!({ "spec": { "hostPID": true, "containers": [{ "name": "c", "image": "i" }] } });
    let spec = json!({ "spec": { "template": template } });
    let check = async |path: &str, object: &Value, warned: bool| {
        let request = Ask { user: "eve", path, namespace: "a", name: "x", old: None };
        let want = "would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)".to_owned();
        let (verdict, warnings) = ask(&world, request, object).await;
        assert_eq!(warnings, if warned { vec![want.clone()] } else { vec![] }, "{path}");
        let noted = verdict.and_then(|v| v.notes.audit_violations);
        assert_eq!(noted, warned.then_some(want), "{path}");
    };
    check("Pod/pods", &template, true).await;
    check("PodTemplate/podtemplates", &json!({ "template": template }), true).await;
    check("ReplicationController/replicationcontrollers", &spec, true).await;
    check("ReplicationController/replicationcontrollers", &json!({ "spec": {} }), false).await;
    check("ReplicaSet.apps/replicasets", &spec, true).await;
    check("Deployment.apps/deployments", &spec, true).await;
    check("Deployment.apps/deployments", &json!({ "spec": {} }), false).await;
    check("Deployment.apps/deployments/status", &spec, false).await;
    check("StatefulSet.apps/statefulsets", &spec, true).await;
    check("DaemonSet.apps/daemonsets", &spec, true).await;
    check("Job.batch/jobs", &spec, true).await;
    check("CronJob.batch/cronjobs", &json!({ "spec": { "jobTemplate": spec } }), true).await;
    check("Service/services", &json!({ "spec": {} }), false).await;
}

#[tokio::test]
async fn what_is_said_and_counted() {
    let namespace = |name: &str, short: &str| {
        (NAMESPACES, json!({ "metadata": { "name": name, "labels": labels(short) } }))
    };
    let world = world_of(
        "",
        &[
            namespace("a", "enforce=restricted"),
            namespace("b", "enforce=baseline enforce-version=v1.36"),
            namespace("c", "enforce=baseline enforce-version=v1.37"),
        ],
    );
    let pod = json!({ "metadata": { "name": "x" }, "spec": { "hostPID": true, "containers": [{ "name": "c", "image": "i" }] } });
    for (namespace, name) in [("a", "x"), ("b", ""), ("c", "x")] {
        let request = Ask { user: "eve", path: "Pod/pods", namespace, name, old: None };
        let refusal = ask(&world, request, &pod).await.0.unwrap().refusal.unwrap();
        let details = refusal.details.unwrap();
        assert_eq!((refusal.code, details.kind.as_str(), details.name.as_str()), (403, "pods", name));
        let want = match namespace {
            "a" => {
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": host namespaces (hostPID=true), allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
            }
            "b" => {
                "pods is forbidden: violates PodSecurity \"baseline:v1.36\": host namespaces (hostPID=true)"
            }
            _ => {
                "pods \"x\" is forbidden: violates PodSecurity \"baseline:v1.37\": host namespaces (hostPID=true)"
            }
        };
        assert_eq!(refusal.message, want);
    }
    let mut counted = world.plugin.metrics.counted();
    counted.sort();
    let line = |level: &str, version: &str| {
        format!(
            "pod_security_evaluations_total{{decision=\"deny\",mode=\"enforce\",policy_level=\"{level}\",policy_version=\"{version}\",request_operation=\"create\",resource=\"pod\",subresource=\"\"}} 1"
        )
    };
    assert_eq!(
        counted,
        [line("baseline", "future"), line("baseline", "v1.36"), line("restricted", "latest")]
    );
}
