//! A kubelet in a process of its own, beside a control plane, with real containerd.

use std::net::IpAddr;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{DnType, SanType};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{Cluster, Host, Image, Options, binary, eventually};

use crate::certificates::{admin, issue, kubeconfig};

pub(crate) const IMAGE: &str = "test.local/app:1";
pub(crate) const NODE: &str = "alone";
/// The address of a test host.
pub(crate) const ADDRESS: &str = "192.0.2.10";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: test.local/app:1, command: [sh, -c, "echo started; exec sleep 1000000"]}
"#;

/// Settings as upstream's file has them; the disk of the test machine does not matter.
pub(crate) fn settings(cluster: &Cluster) -> String {
    let (ca, logs) = (cluster.data_dir().join("pki/ca.crt"), cluster.host().path("pod-logs"));
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{x509: {{clientCAFile: {}}}, anonymous: {{enabled: false}}}}
authorization: {{mode: Webhook}}
podLogsDir: {}
maxPods: 17
kubeAPIQPS: 50
failCgroupV1: false
failSwapOn: false
healthzPort: 0
evictionHard: {{memory.available: 10Mi, nodefs.available: 1%, imagefs.available: 1%}}
",
        ca.display(),
        logs.display()
    )
}

/// The cgroup of the kubelet's Pods, which is the machine's and not the host's.
pub(crate) fn cgroup() -> String {
    format!("ferrokube-alone-{}", std::process::id())
}

/// Ends a cluster with all processes of its host, and takes the cgroups that a kubelet beside it made.
pub(crate) fn end(cluster: Cluster) -> Result<()> {
    drop(cluster);
    let below = format!("*/{}*", cgroup());
    let find = |and: &[&str]| {
        let args = [&["/sys/fs/cgroup", "-depth", "-type", "d", "-path", &below], and].concat();
        Command::new("find").args(args).output()
    };
    eventually("the cgroups of a kubelet are gone", || {
        find(&["-exec", "rmdir", "{}", "+"])?;
        Ok(find(&[])?.stdout.is_empty().then_some(()))
    })
}

/// Runs a test of kubelets beside a control plane, and takes what they leave; a failure shows what they said.
pub(crate) fn on_a_control_plane(test: impl FnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let cluster = control_plane()?;
    let result =
        test(&cluster).with_context(|| format!("{}\n{}", cluster.host().log("kubelet"), cluster.report()));
    result.and(end(cluster))
}

/// The flags of a kubelet, and the files that they name.
pub(crate) fn flags(cluster: &Cluster) -> Result<Vec<String>> {
    let host = cluster.host();
    let node = format!("system:node:{NODE}");
    let kubeconfig = kubeconfig(
        cluster,
        "node",
        &[(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, &node)],
    )?;
    std::fs::write(host.path("kubelet.yaml"), settings(cluster))?;
    let san = SanType::IpAddress(ADDRESS.parse::<IpAddr>()?);
    let (crt, key) = issue(cluster, "serving", &[(DnType::CommonName, &node)], vec![san])?;
    let path = |name: &str| host.path(name).display().to_string();
    Ok(vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", path("kubelet.yaml")),
        format!("--hostname-override={NODE}"),
        format!("--root-dir={}", path("kubelet")),
        format!("--container-runtime-endpoint=unix://{}", cluster.socket().display()),
        format!("--cgroup-root=/{}", cgroup()),
        format!("--tls-cert-file={}", crt.display()),
        format!("--tls-private-key-file={}", key.display()),
        "--node-labels=place=here".to_owned(),
    ])
}

/// Starts a kubelet by a link of its name.
pub(crate) fn start(cluster: &Cluster, flags: &[String]) -> Result<Child> {
    let host = cluster.host();
    let link = host.path("kubelet-link/kubelet");
    if !link.exists() {
        std::fs::create_dir_all(host.path("kubelet-link"))?;
        std::os::unix::fs::symlink(binary(), &link)?;
    }
    host.spawn("kubelet", host.command(link).args(flags))
}

/// Kills a kubelet, which is the child of the child.
pub(crate) fn kill(mut kubelet: Child) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(Host::pid_of(&kubelet)?)?).context("no process has this id")?;
    kill_process(pid, Signal::KILL)?;
    kubelet.wait()?;
    Ok(())
}

pub(crate) fn node_is_ready(cluster: &Cluster) -> Result<Option<Value>> {
    let node = cluster.get("node", NODE)?;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    Ok(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True").then_some(node))
}

/// The status of the container, once it runs.
fn running(cluster: &Cluster) -> Result<Option<Value>> {
    let status = cluster.get("pod", "app")?["status"]["containerStatuses"][0].clone();
    Ok(status["state"]["running"].is_object().then_some(status))
}

/// The status code and the body of a GET at the kubelet.
fn get(cluster: &Cluster, path: &str, credentials: &[&str]) -> Result<(String, String)> {
    let mut curl: Command = cluster.host().command("curl");
    let url = format!("https://{ADDRESS}:10250{path}");
    let out = curl.args(["-qsk", "-w", "\n%{http_code}"]).args(credentials).arg(url).output()?;
    let text = String::from_utf8(out.stdout)?;
    let (body, code) = text.rsplit_once('\n').context("no answer")?;
    Ok((code.to_owned(), body.to_owned()))
}

fn endpoints(cluster: &Cluster) -> Result<()> {
    let config = admin(cluster)?;
    for (file, field) in [("admin.crt", "client-certificate-data"), ("admin.key", "client-key-data")] {
        let data = config["users"][0]["user"][field].as_str().context("no credentials")?;
        std::fs::write(cluster.host().path(file), BASE64_STANDARD.decode(data)?)?;
    }
    let (crt, key) = (cluster.host().path("admin.crt"), cluster.host().path("admin.key"));
    let (crt, key) = (crt.display().to_string(), key.display().to_string());
    let admin = ["--cert", &crt, "--key", &key];
    for (path, text) in [
        ("/healthz", "ok"),
        ("/metrics", "process_cpu_seconds_total"),
        ("/configz", "\"maxPods\":17"),
        ("/statusz", "kubelet statusz"),
        ("/flagz", "\nhostname-override=alone\n"),
    ] {
        ensure!(get(cluster, path, &[])?.0 == "401", "{path} to nobody");
        let (code, body) = get(cluster, path, &admin)?;
        ensure!(code == "200" && body.contains(text), "{path}: {code} {body}");
    }
    Ok(())
}

fn runs_and_is_adopted(cluster: &Cluster) -> Result<()> {
    let flags = flags(cluster)?;
    let mut kubelet = start(cluster, &flags)?;
    let node = eventually("the node is Ready", || node_is_ready(cluster))?;
    ensure!(
        node["status"]["capacity"]["pods"] == "17" && node["metadata"]["labels"]["place"] == "here",
        "{node}"
    );
    cluster.apply(POD)?;
    let before = eventually("the Pod runs", || running(cluster))?;
    eventually("its log", || Ok((cluster.kubectl(&["logs", "app"])? == "started\n").then_some(())))?;
    endpoints(cluster)?;

    let pid = Pid::from_raw(i32::try_from(Host::pid_of(&kubelet)?)?).context("no process has this id")?;
    kill_process(pid, Signal::KILL)?;
    kubelet.wait()?;
    ensure!(cluster.kubectl(&["logs", "app"]).is_err(), "nobody answers for the node");
    let mut kubelet = start(cluster, &flags)?;
    eventually("the new kubelet answers", || {
        Ok((cluster.kubectl(&["exec", "app", "--", "echo", "there"])? == "there\n").then_some(()))
    })?;
    eventually("the node is Ready again", || node_is_ready(cluster))?;
    let after = running(cluster)?.context("the container runs on")?;
    ensure!(
        (&after["containerID"], &after["restartCount"], &after["state"])
            == (&before["containerID"], &before["restartCount"], &before["state"]),
        "{before} {after}"
    );
    cluster.kubectl(&["delete", "pod", "app", "--wait=true"])?;
    let log = cluster.host().log("kubelet");
    ensure!(log.contains("kubeAPIQPS has no effect here: the API server says when it is busy"), "{log}");
    kubelet.kill()?;
    kubelet.wait()?;
    Ok(())
}

/// A control plane with a runtime beside it, whose Pods have a network of somebody else's.
pub(crate) fn control_plane() -> Result<Cluster> {
    let options = Options {
        images: vec![Image::busybox(IMAGE)?],
        control_plane_only: true,
        runtime: true,
        ..Options::default()
    };
    let cluster = Cluster::start("alone", options)?;
    let network = json!({"cniVersion": "1.0.0", "name": "test", "plugins": [{
        "type": "bridge", "bridge": "test0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.250.0.0/24"}]]}}]});
    std::fs::write(cluster.host().path("cni/10-test.conflist"), network.to_string())?;
    Ok(cluster)
}

/// Starts a kubelet that has credentials to join with, and starts it again without them.
fn joins_and_comes_back(cluster: &Cluster) -> Result<()> {
    let (admin_config, path) = (admin(cluster)?, cluster.kubeconfig().display().to_string());
    let token = |args: &[&str]| {
        let own = ["token", args[0], "--kubeconfig", &path];
        cluster.host().run(&binary().to_string_lossy(), &[&own, &args[1..]].concat())
    };
    let created = token(&["create", "--print-join-command=false"])?;
    let mut bootstrap = admin_config.clone();
    bootstrap["users"][0]["user"] = json!({"token": created.trim()});
    let file = |name: &str| cluster.host().path(name);
    std::fs::write(file("bootstrap.kubeconfig"), bootstrap.to_string())?;
    let mut flags = flags(cluster)?;
    flags[0] = format!("--kubeconfig={}", file("joined.kubeconfig").display());
    flags.push(format!("--bootstrap-kubeconfig={}", file("bootstrap.kubeconfig").display()));
    flags.push(format!("--cert-dir={}", file("pki").display()));
    let kubelet = start(cluster, &flags)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    let signed = || cluster.kubectl(&["get", "csr", "-o", "jsonpath={.items[*].spec.signerName}"]);
    ensure!(signed()? == "kubernetes.io/kube-apiserver-client-kubelet", "{}", signed()?);
    let written = std::fs::read_to_string(file("joined.kubeconfig"))?;
    ensure!(written.contains("pki/kubelet-client-current.pem"), "{written}");
    kill(kubelet)?;

    token(&["delete", created.trim()])?;
    cluster.kubectl(&["delete", "node", NODE])?;
    let kubelet = start(cluster, &flags)?;
    eventually("the node is back", || node_is_ready(cluster))?;
    ensure!(signed()? == "kubernetes.io/kube-apiserver-client-kubelet", "{}", signed()?);
    kill(kubelet)?;

    // The cluster signs the serving certificate too, once, whoever starts again.
    flags.retain(|flag| !flag.starts_with("--tls-"));
    flags.push("--rotate-server-certificates".to_owned());
    let authority = admin_config["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
    let ca = file("ca.crt");
    std::fs::write(&ca, BASE64_STANDARD.decode(authority.context("no authority")?)?)?;
    let (ca, url) = (ca.display().to_string(), format!("https://{ADDRESS}:10250/healthz"));
    for first in [true, false] {
        let kubelet = start(cluster, &flags)?;
        if first {
            // The node has the API server's address, so its request is left to an administrator.
            eventually("the request is approved", || {
                let all = cluster.kubectl(&["get", "csr", "-o", "json"])?;
                let all: Value = serde_json::from_str(&all)?;
                let serving = |csr: &&Value| csr["spec"]["signerName"] == "kubernetes.io/kubelet-serving";
                let name = all["items"].as_array().into_iter().flatten().find(serving);
                let Some(name) = name.and_then(|csr| csr["metadata"]["name"].as_str()) else {
                    return Ok(None);
                };
                cluster.kubectl(&["certificate", "approve", name]).map(Some)
            })?;
        }
        eventually("a certificate of the cluster's", || {
            let out = cluster.host().command("curl").args(["-qsS", "--cacert", &ca, &url]).output()?;
            ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            Ok(Some(()))
        })?;
        let requests = signed()?;
        ensure!(requests.matches("kubernetes.io/kubelet-serving").count() == 1, "{requests}");
        kill(kubelet)?;
    }
    Ok(())
}

#[test]
fn a_kubelet_alone_gets_its_certificate_with_a_bootstrap_kubeconfig() -> Result<()> {
    on_a_control_plane(joins_and_comes_back)
}

#[test]
fn a_kubelet_alone_runs_pods_and_adopts_them() -> Result<()> {
    on_a_control_plane(runs_and_is_adopted)
}

#[test]
fn settings_that_cannot_be_had_are_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("kubelet.yaml");
    let refuse = |fields: &str, flags: &[&str], why: &str| {
        let text =
            format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}\n");
        std::fs::write(&file, text)?;
        let mut command = Command::new(binary());
        command.args(["kubelet", "--kubeconfig=/nowhere"]).arg("--config").arg(&file).args(flags);
        let out = command.output()?;
        let text = String::from_utf8(out.stderr)?;
        ensure!(!out.status.success() && text.contains(why), "{fields} {flags:?}: {text}");
        Ok(())
    };
    refuse("tracing: {endpoint: 'a:1'}", &[], "traces are not there yet; leave it out")?;
    refuse("maxPodz: 1", &[], "strict decoding error: unknown field \"maxPodz\"")?;
    refuse("", &["--no-such-flag"], "unexpected argument '--no-such-flag'")?;
    let v1 = "--fail-cgroupv1=false";
    let once = "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set";
    refuse("", &["--runonce", v1], once)?;
    refuse("", &["--cgroups-per-qos=false", v1], "must be set to true when \"pods\" contained in")?;
    refuse("", &["--exit-on-lock-contention", v1], "no lock file specified")?;
    refuse("evictionHard: {memory: 1Gi}", &[v1], "unsupported eviction signal memory")?;
    refuse("", &[v1, "--eviction-soft=memory.available<1Gi"], "grace period must be specified")?;
    refuse("kubeReserved: {gpu: '1'}\nfailCgroupV1: false", &[], "cannot reserve \"gpu\" resource")?;
    let v1_file = "failCgroupV1: false\nfailSwapOn: false\n";
    let refuse_valid = |fields: &str, why: &str| refuse(&format!("{v1_file}{fields}"), &[], why);
    refuse_valid("featureGates: {NoSuch: true}", "unrecognized feature gate: NoSuch")?;
    let locked = "cannot set feature gate NodeSwap to false, feature is locked to true";
    refuse_valid("featureGates: {NodeSwap: false}", locked)?;
    let swap =
        "memorySwap.swapBehavior \"UnlimitedSwap\" must be one of: \"\", \"LimitedSwap\" or \"NoSwap\"";
    refuse_valid("memorySwap: {swapBehavior: UnlimitedSwap}", swap)?;
    let times = "shutdownGracePeriodCriticalPods {10s} must be <= shutdownGracePeriod {5s}";
    refuse_valid("shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 10s", times)?;
    let cgroup = "kubeReservedCgroup (--kube-reserved-cgroup) must be specified when";
    refuse_valid("enforceNodeAllocatable: [kube-reserved]", cgroup)?;
    let both =
        "error: [invalid configuration: maxPods (--max-pods) -1 must not be a negative number, invalid";
    refuse_valid("maxPods: -1\noomScoreAdj: 2000", both)?;
    let rootless = "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not";
    refuse_valid("systemCgroups: /system", rootless)?;
    refuse_valid("logging: {format: xml}", "logging.format: Invalid value: \"xml\": Unsupported log format")?;
    let ids = "userNamespaces.idsPerPod must be a multiple of 65536";
    refuse_valid("userNamespaces: {idsPerPod: 65537}", ids)?;
    refuse_valid("tlsMinVersion: SSL", "unknown tls version \"SSL\"")?;
    refuse("", &[v1, "--tls-cipher-suites=NONE"], "Cipher suite NONE not supported or doesn't exist")?;
    refuse("", &[v1, "--feature-gates=A"], "missing bool value for A")?;
    let open = ["--fail-swap-on=false", v1];
    refuse("authorization: {mode: RBAC}", &open, "unknown authorization mode RBAC")?;
    refuse("authentication: {webhook: {enabled: false}}", &open, "no authentication method configured")?;
    let programs = [&open[..], &["--image-credential-provider-bin-dir=/no/such"]].concat();
    refuse("", &programs, "plugin binary directory /no/such did not exist")?;
    let file_alone = [&open[..], &["--image-credential-provider-bin-dir=/"]].concat();
    refuse("", &file_alone, "credential provider config path is empty")?;
    refuse("", &["--cloud-provider=acme", "--fail-cgroupv1=false"], "unknown cloud provider \"acme\"")?;
    refuse("failCgroupV1: false", &["--fail-swap-on=false"], "--kubeconfig /nowhere cannot be used")
}
