//! Namespaces whose labels limit the security settings of their Pods.

use serde_json::{Value, json};
use testkit::Server;

use crate::api::pod;

const NAMESPACES: &str = "/api/v1/namespaces";

/// A server on which Pods need no ServiceAccount, which would come later than its namespace.
fn server(flags: &[&str]) -> Server {
    Server::start(&[&["--disable-admission-plugins=ServiceAccount", "--allow-privileged"], flags].concat())
        .unwrap()
}

fn pods(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/pods")
}

fn with(mut pod: Value, field: &str, value: Value) -> Value {
    pod["spec"][field] = value;
    pod
}

/// The texts of an answer's Warning headers.
fn warnings(answer: &testkit::Answer) -> Vec<String> {
    let texts = answer.all("warning").map(|text| text.strip_prefix("299 - \"").unwrap());
    texts.map(|text| text.strip_suffix('"').unwrap().replace("\\\"", "\"")).collect()
}

/// The standard error of `kubectl`.
fn told(s: &Server, args: &[&str]) -> String {
    String::from_utf8(s.kubectl_command(args).output().unwrap().stderr).unwrap()
}

const LACKING: &str = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

#[test]
fn labels_warn_and_refuse() {
    let s = server(&[]);
    s.kubectl(&["create", "namespace", "a"]).unwrap();
    for name in ["x", "y"] {
        s.create(&pods("a"), &with(pod(name), "hostPID", true.into())).unwrap();
    }
    s.create(&pods("a"), &pod("z")).unwrap();
    // A stricter label is answered with warnings about the present Pods.
    let enforce = "pod-security.kubernetes.io/enforce";
    let said = told(&s, &["label", "namespace", "a", &format!("{enforce}=baseline")]);
    assert_eq!(
        said,
        "Warning: existing pods in namespace \"a\" violate the new PodSecurity enforce level \"baseline:latest\"\n\
         Warning: x (and 1 other pod): host namespaces\n"
    );
    let said = told(&s, &["label", "--overwrite", "namespace", "a", &format!("{enforce}=strict")]);
    assert_eq!(
        said,
        "The Namespace \"a\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted\n"
    );
    // A present Pod stays and may change, but for its images; a new one must keep to the level.
    s.kubectl(&["label", "pod", "--namespace=a", "x", "k=v"]).unwrap();
    let refused = "violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    let image = json!({"spec": {"containers": [{"name": "c", "image": "j"}]}});
    let answer =
        s.patch(&format!("{}/x", pods("a")), "strategic-merge", &image).send().unwrap().expect(403).unwrap();
    assert_eq!(answer.json().unwrap()["message"], format!("pods \"x\" is forbidden: {refused}"));
    let new = with(pod("new"), "hostPID", true.into());
    let answer = s.request("POST", &pods("a")).json(&new).send().unwrap().expect(403).unwrap();
    assert_eq!(answer.json().unwrap()["message"], format!("pods \"new\" is forbidden: {refused}"));
    assert_eq!(answer.json().unwrap()["details"], json!({"name": "new", "kind": "pods"}));
    s.patch(&format!("{}/z", pods("a")), "strategic-merge", &image).send().unwrap().expect(200).unwrap();
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i", "securityContext": {"privileged": true}}]}});
    let answer =
        s.patch(&format!("{}/z/ephemeralcontainers", pods("a")), "strategic-merge", &debug).send().unwrap();
    assert!(answer.expect(403).unwrap().text().contains("privileged (container \\\"d\\\" must not set"));
    // Templates only cause warnings, as do Pods that violate the level of warnings.
    s.kubectl(&["label", "namespace", "a", "pod-security.kubernetes.io/warn=restricted"]).unwrap();
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": pod("d")["spec"]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template}});
    let would = format!("would violate PodSecurity \"restricted:latest\": {LACKING}");
    for (path, object) in [("/apis/apps/v1/namespaces/a/deployments", &deployment), (&pods("a"), &pod("p"))] {
        let answer = s.request("POST", path).json(object).send().unwrap().expect(201).unwrap();
        assert_eq!(warnings(&answer), [would.as_str()], "{path}");
    }
    let metrics = s.get("/metrics").send().unwrap().text();
    for (labels, count) in [
        (
            "decision=\"deny\",mode=\"enforce\",policy_level=\"baseline\",policy_version=\"latest\",request_operation=\"create\",resource=\"pod\",subresource=\"\"",
            1,
        ),
        (
            "decision=\"deny\",mode=\"enforce\",policy_level=\"baseline\",policy_version=\"latest\",request_operation=\"update\",resource=\"pod\",subresource=\"ephemeralcontainers\"",
            1,
        ),
        (
            "decision=\"deny\",mode=\"warn\",policy_level=\"restricted\",policy_version=\"latest\",request_operation=\"create\",resource=\"controller\",subresource=\"\"",
            1,
        ),
        (
            "decision=\"allow\",mode=\"enforce\",policy_level=\"privileged\",policy_version=\"latest\",request_operation=\"create\",resource=\"pod\",subresource=\"\"",
            3,
        ),
    ] {
        assert!(
            metrics.contains(&format!("pod_security_evaluations_total{{{labels}}} {count}\n")),
            "{labels}"
        );
    }
}

#[test]
fn many_violations_fit_into_headers() {
    let s = server(&[]);
    s.kubectl(&["create", "namespace", "a"]).unwrap();
    // Each Pod violates something else, and none has a short name.
    for i in 1..32 {
        let mut object = with(pod("p"), "hostPID", (i & 1 > 0).into());
        object["metadata"] = json!({"name": format!("{}{i:02}", "n".repeat(250))});
        let container = &mut object["spec"]["containers"][0];
        if i & 2 > 0 {
            container["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        }
        if i & 4 > 0 {
            container["securityContext"]["capabilities"]["add"] = json!(["NET_RAW"]);
        }
        if i & 8 > 0 {
            container["securityContext"]["privileged"] = true.into();
        }
        if i & 16 > 0 {
            object["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": "/"}}]);
        }
        s.create(&pods("a"), &object).unwrap();
    }
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let answer = s.patch(&format!("{NAMESPACES}/a"), "merge", &labels).send().unwrap().expect(200).unwrap();
    let warnings = warnings(&answer);
    assert!(warnings[1..].iter().all(|text| text.len() == 256), "{warnings:?}");
    assert_eq!(warnings.len(), 17);
}

#[test]
fn configured() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let configuration = |defaults: Value| {
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": "PodSecurity", "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1",
                "kind": "PodSecurityConfiguration",
                "defaults": defaults,
                "exemptions": {"namespaces": ["free"], "usernames": ["root"], "runtimeClasses": ["vm"]},
            }}],
        })
    };
    std::fs::write(file.path(), configuration(json!({"enforce": "baseline"})).to_string()).unwrap();
    let flag = format!("--admission-control-config-file={}", file.path().display());
    let s = server(&[&flag]);
    let strict =
        json!({"metadata": {"name": "free", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let answer = s.request("POST", NAMESPACES).json(&strict).send().unwrap().expect(201).unwrap();
    let ignored = "namespace \"free\" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored";
    assert_eq!(warnings(&answer), [ignored]);
    s.create("/apis/node.k8s.io/v1/runtimeclasses", &json!({"metadata": {"name": "vm"}, "handler": "vm"}))
        .unwrap();
    let bad = with(pod("p"), "hostPID", true.into());
    s.create(&pods("free"), &bad).unwrap();
    s.create(&pods("default"), &with(bad.clone(), "runtimeClassName", "vm".into())).unwrap();
    let post = || s.request("POST", &pods("default")).json(&with(bad.clone(), "hostIPC", true.into()));
    let root = post().header("Impersonate-User", "root").header("Impersonate-Group", "system:masters");
    assert!(root.send().unwrap().text().contains("already exists"), "admission lets it pass");
    post().send().unwrap().expect(403).unwrap();
    // A configuration that cannot be read is refused at the start.
    std::fs::write(file.path(), configuration(json!({"enforce": "strict"})).to_string()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let port = testkit::free_port().unwrap();
    let refused = Server::command("kube-apiserver", port, dir.path(), &[flag]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains(
            "PodSecurity configuration error: enforce: must be one of privileged, baseline, restricted"
        ),
        "{said}"
    );
}
