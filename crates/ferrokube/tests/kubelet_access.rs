//! A kubelet that serves whom its settings say, and the flags of its process.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use testkit::{Cluster, Host, eventually};

use crate::kubelet_alone::{ADDRESS, IMAGE, NODE, cgroup, flags, kill, node_is_ready, start};
use crate::resource_managers::on_the_built_in_runtime;

/// The status code and the body of a request at the kubelet.
fn ask(cluster: &Cluster, path: &str, more: &[&str]) -> Result<(String, String)> {
    let mut curl: Command = cluster.host().command("curl");
    let url = format!("https://{ADDRESS}:10250{path}");
    let out = curl.args(["-qsk", "-w", "\n%{http_code}"]).args(more).arg(url).output()?;
    let text = String::from_utf8(out.stdout)?;
    let (body, code) = text.rsplit_once('\n').context("no answer")?;
    Ok((code.to_owned(), body.to_owned()))
}

fn check(cluster: &Cluster, path: &str, more: &[&str], want: (&str, &str)) -> Result<()> {
    let (code, body) = ask(cluster, path, more)?;
    ensure!(code == want.0 && body.contains(want.1), "{path} {more:?}: {code} {body}");
    Ok(())
}

/// Waits until a kubelet that was just started answers.
fn answers(cluster: &Cluster) -> Result<()> {
    eventually("the kubelet answers", || Ok((ask(cluster, "/healthz", &[])?.0 != "000").then_some(())))?;
    eventually("the node is Ready", || node_is_ready(cluster).map(|node| node.map(drop)))
}

const BAD_TOKEN: [&str; 2] = ["-H", "Authorization: Bearer nobodys"];

fn serves_whom_it_should(cluster: &Cluster) -> Result<()> {
    let own = flags(cluster)?;
    let with = |more: &[&str]| -> Vec<String> {
        own.iter().cloned().chain(more.iter().map(|flag| (*flag).to_owned())).collect()
    };
    // Strangers have a name, which may do nothing before somebody lets it.
    let kubelet =
        start(cluster, &with(&["--anonymous-auth", "--authorization-webhook-cache-unauthorized-ttl=1s"]))?;
    answers(cluster)?;
    let forbidden =
        ("403", "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])");
    check(cluster, "/pods", &[], forbidden)?;
    check(cluster, "/pods", &BAD_TOKEN, ("401", "Unauthorized"))?;
    cluster.apply(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: strangers}
rules: [{verbs: [get], apiGroups: [\"\"], resources: [nodes/pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: strangers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: strangers}
subjects: [{kind: Group, name: system:unauthenticated, apiGroup: rbac.authorization.k8s.io}]
",
    )?;
    eventually("strangers may read Pods", || Ok((ask(cluster, "/pods", &[])?.0 == "200").then_some(())))?;
    check(cluster, "/metrics", &[], ("403", "Forbidden"))?;
    kill(kubelet)?;

    // Those who are known may do everything, and a token that is not read is none.
    let kubelet = start(cluster, &with(&["--authorization-mode=AlwaysAllow"]))?;
    answers(cluster)?;
    check(cluster, "/pods", &[], ("401", "Unauthorized"))?;
    kill(kubelet)?;
    let open =
        ["--authorization-mode=AlwaysAllow", "--anonymous-auth", "--authentication-token-webhook=false"];
    let kubelet = start(cluster, &with(&open))?;
    answers(cluster)?;
    check(cluster, "/metrics", &[], ("200", "kubelet_node_name"))?;
    check(cluster, "/pods", &BAD_TOKEN, ("200", "PodList"))?;
    let settings = "\"authorization\":{\"mode\":\"AlwaysAllow\"";
    check(cluster, "/configz", &[], ("200", settings))?;
    kill(kubelet)
}

fn has_flags_of_its_process(cluster: &Cluster) -> Result<()> {
    let host = cluster.host();
    let file = |name: &str| host.path(name).display().to_string();
    std::fs::write(host.path("machine-id"), "0123456789abcdef\n")?;
    std::fs::write(host.path("boot-id"), "feedface\n")?;
    let mut all = flags(cluster)?;
    all.extend([
        "--authorization-mode=AlwaysAllow".to_owned(),
        "--anonymous-auth".to_owned(),
        format!("--machine-id-file=/no/such,{}", file("machine-id")),
        format!("--boot-id-file={}", file("boot-id")),
        "--experimental-allocatable-ignore-eviction".to_owned(),
        format!("--lock-file={}", file("lock")),
        "--exit-on-lock-contention".to_owned(),
        "--feature-gates=MemoryQoS=true".to_owned(),
    ]);
    let mut first = start(cluster, &all)?;
    answers(cluster)?;
    let status = eventually("the node tells its identities", || {
        let status = cluster.get("node", NODE)?["status"].clone();
        let info = &status["nodeInfo"];
        let told = info["machineID"] == "0123456789abcdef" && info["bootID"] == "feedface";
        Ok(told.then_some(status))
    })?;
    ensure!(status["capacity"]["memory"] == status["allocatable"]["memory"], "{status}");
    let on = "kubernetes_feature_enabled{name=\"MemoryQoS\",stage=\"ALPHA\"} 1";
    check(cluster, "/metrics", &[], ("200", on))?;

    let (put, said) = (["-X", "PUT", "-d", "4"], "successfully set klog.logging.verbosity to 4\n");
    let shown = |text: &str| -> Result<bool> {
        let log = std::fs::read_to_string(host.path("kubelet.log"))?;
        Ok(log.contains(text))
    };
    check(cluster, "/debug/flags/v", &["-X", "GET"], ("406", "unsupported http method\n"))?;
    check(cluster, "/debug/flags/v", &["-X", "PUT", "-d", "much"], ("400", "invalid syntax"))?;
    check(cluster, "/debug/flags/v", &put, ("200", said))?;

    // Another kubelet that wants the lock ends the first one, and gets it.
    let second = start(cluster, &all)?;
    ensure!(first.wait()?.success(), "the first one failed");
    ensure!(shown("somebody else opened or removed --lock-file")?, "it was not told at verbosity 4");
    eventually("the second one answers", || {
        let pid = Host::pid_of(&second)?;
        let open = ask(cluster, "/healthz", &[])?.0 == "200";
        Ok((pid > 0 && open).then_some(()))
    })?;
    kill(second)?;

    let settings = "enableDebugFlagsHandler: false\n";
    let path = host.path("kubelet.yaml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text + settings)?;
    let kubelet = start(cluster, &all)?;
    // Nothing but the answer tells this kubelet from the one before, whose Node is Ready still.
    eventually("the new kubelet answers", || {
        Ok((ask(cluster, "/debug/flags/v", &put)?.0 == "405").then_some(()))
    })?;
    check(cluster, "/debug/flags/v", &put, ("405", "flags endpoint is disabled."))?;
    kill(kubelet)
}

fn makes_no_cgroups(cluster: &Cluster) -> Result<()> {
    let mut all = flags(cluster)?;
    all.extend(["--cgroups-per-qos=false".to_owned(), "--enforce-node-allocatable=".to_owned()]);
    let kubelet = start(cluster, &all)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    cluster.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: plain}}
spec:
  nodeName: {NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: main, image: {IMAGE}, command: [sleep, \"1000000\"]}}
"
    ))?;
    eventually("the Pod runs", || {
        Ok((cluster.get("pod", "plain")?["status"]["phase"] == "Running").then_some(()))
    })?;
    let below = format!("*/{}/kubepods*", cgroup());
    let find = ["/sys/fs/cgroup", "-type", "d", "-path", &below];
    let found = String::from_utf8(Command::new("find").args(find).output()?.stdout)?;
    ensure!(found.is_empty(), "{found}");
    cluster.kubectl(&["delete", "pod", "plain", "--wait=true"])?;
    kill(kubelet)
}

fn reads_config_maps(cluster: &Cluster) -> Result<()> {
    let map = |word: &str| {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: words}}, data: {{word: {word}}}}}"
        ))
    };
    map("first")?;
    let all = flags(cluster)?;
    let path = cluster.host().path("kubelet.yaml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text + "configMapAndSecretChangeDetectionStrategy: Get\nsyncFrequency: 1s\n")?;
    let kubelet = start(cluster, &all)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    cluster.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: reader}}
spec:
  nodeName: {NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, \"1000000\"]
    volumeMounts: [{{name: words, mountPath: /words}}]
  volumes:
  - {{name: words, configMap: {{name: words}}}}
"
    ))?;
    let says = |word: &str| {
        eventually(&format!("the Pod reads {word}"), || {
            let text = cluster.kubectl(&["exec", "reader", "--", "cat", "/words/word"]);
            Ok((text.unwrap_or_default() == word).then_some(()))
        })
    };
    says("first")?;
    map("second")?;
    says("second")?;
    cluster.kubectl(&["delete", "pod", "reader", "--wait=true"])?;
    kill(kubelet)
}

#[test]
fn a_kubelet_serves_whom_its_settings_say() -> Result<()> {
    on_the_built_in_runtime("access", serves_whom_it_should)
}

#[test]
fn a_kubelet_has_the_flags_of_its_process() -> Result<()> {
    on_the_built_in_runtime("process", |cluster| {
        makes_no_cgroups(cluster)?;
        reads_config_maps(cluster)?;
        has_flags_of_its_process(cluster)
    })
}
