//! The kubelet: strangers at its server, and Pods that attack the node or other Pods.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Image, Options, eventually};

const IMAGE: &str = "test.local/hostile:1";

/// A cluster on loopback only, with the means to call its kubelet as the administrator.
struct Kubelet {
    cluster: Cluster,
    port: i64,
}

impl Kubelet {
    fn start() -> Result<Self> {
        let flags = ["--bind-address", "127.0.0.1", "--eviction-hard", "memory.available<10Mi"];
        let cluster = Cluster::start(
            "hostile-kubelet",
            Options {
                images: vec![Image::busybox(IMAGE)?],
                flags: flags.map(str::to_owned).into(),
                ..Options::default()
            },
        )?;
        let node = cluster.get("node", "hostile-kubelet")?;
        let port =
            node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_i64().context("no port")?;
        let config: Value =
            serde_json::from_str(&cluster.kubectl(&["config", "view", "--raw", "-o", "json"])?)?;
        let user = &config["users"][0]["user"];
        for (field, file) in [("client-certificate-data", "admin.crt"), ("client-key-data", "admin.key")] {
            let data = user[field].as_str().context("no credentials")?;
            let path = cluster.host().path(file);
            cluster.host().run("sh", &["-c", &format!("echo {data} | base64 -d > {}", path.display())])?;
        }
        Ok(Self { cluster, port })
    }

    /// Runs curl with these flags; returns its output. Each `@/path` among them becomes a URL of the kubelet.
    fn curl(&self, flags: &[&str]) -> Result<String> {
        let urls = flags.iter().map(|flag| match flag.strip_prefix('@') {
            Some(path) => format!("https://127.0.0.1:{}{path}", self.port),
            None => (*flag).to_owned(),
        });
        let all: Vec<String> =
            ["-sk", "--max-time", "20"].map(str::to_owned).into_iter().chain(urls).collect();
        self.cluster.host().run("curl", &all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn as_admin(&self, flags: &[&str]) -> Result<String> {
        let (cert, key) = (self.cluster.host().path("admin.crt"), self.cluster.host().path("admin.key"));
        let (cert, key) = (cert.to_string_lossy(), key.to_string_lossy());
        self.curl(&[&["--cert", &cert, "--key", &key][..], flags].concat())
    }

    fn container(&self, pod: &str) -> Result<Value> {
        Ok(self.cluster.get("pod", pod)?["status"]["containerStatuses"][0].clone())
    }
}

#[test]
fn a_kubelet_under_attack_serves_and_keeps_to_itself() -> Result<()> {
    let k = Kubelet::start()?;
    listens_where_it_is_told(&k)?;
    answers_to_head_have_no_body(&k)?;
    strangers_are_sent_away(&k)?;
    silent_connections_do_not_take_all_places(&k)?;
    files_of_pods_do_not_lead_to_the_node(&k)
}

#[test]
fn odd_pods_and_lost_config_maps_cost_nobody_else() -> Result<()> {
    let k = Kubelet::start()?;
    containers_are_tended_without_their_config_map(&k)?;
    odd_pods_cost_themselves(&k)
}

/// `--bind-address 127.0.0.1` holds for the kubelet, too, and logs go on; only DNS is elsewhere.
fn listens_where_it_is_told(k: &Kubelet) -> Result<()> {
    let listening = k.cluster.host().run("ss", &["-Hltnp"])?;
    let ours: Vec<&str> = listening.lines().filter(|l| l.contains("ferrokube")).collect();
    ensure!(ours.len() >= 2, "{listening}");
    // DNS has an address of its own, by which Pods reach it.
    let told = |line: &&str| line.contains(" 127.0.0.1:") || line.contains(" 10.96.0.10:");
    ensure!(ours.iter().all(told), "{listening}");
    k.cluster.kubectl(&["run", "said", "--image", IMAGE, "--restart=Never", "--", "echo", "said"])?;
    eventually("logs", || Ok((k.cluster.kubectl(&["logs", "said"])?.trim() == "said").then_some(())))
}

fn answers_to_head_have_no_body(k: &Kubelet) -> Result<()> {
    for (path, code) in [
        ("@/metrics", 200),
        ("@/metrics/cadvisor", 200),
        ("@/healthz", 200),
        ("@/configz", 200),
        ("@/pods", 405),
        ("@/logs/", 405),
        ("@/exec/a/b/c", 405),
        ("@/none", 404),
    ] {
        for version in ["--http2", "--http1.1"] {
            let got =
                k.as_admin(&[version, "-I", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", path]);
            let got = got.with_context(|| format!("HEAD {path} {version}"))?;
            ensure!(got == format!("{code} 0"), "HEAD {path} {version}: {got}");
        }
    }
    let verbose = k.as_admin(&["@/healthz?verbose"])?;
    ensure!(verbose.contains("[+]syncloop ok\n") && verbose.ends_with("healthz check passed\n"), "{verbose}");
    let running: Value = serde_json::from_str(&k.as_admin(&["@/configz"])?)?;
    ensure!(running["kubeletconfig"]["address"] == "127.0.0.1", "{running}");
    Ok(())
}

fn strangers_are_sent_away(k: &Kubelet) -> Result<()> {
    let shown = ["-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n"];
    for credentials in [&[][..], &["-H", "Authorization: Bearer nonsense"][..]] {
        // The second request, half a second later, needs a connection of its own.
        for version in ["--http2", "--http1.1"] {
            let often = [version, "--rate", "120/m"];
            let got =
                k.curl(&[credentials, &often, &["@/metrics"], &shown, &["@/pods"], &shown[..2]].concat())?;
            ensure!(got == "401 1\n401 1\n", "{version} {got}");
        }
    }
    let large = format!("X-Large: {}", "x".repeat(100_000));
    let many = ["-H", large.as_str()].repeat(12);
    // Either the answer comes, or the connection was cut off before all headers were taken.
    let got = k.curl(&[&many[..], &["--http1.1", "@/metrics"], &shown].concat());
    ensure!(got.as_ref().map_or(true, |got| got.starts_with("431 ")), "{got:?}");
    ensure!(k.as_admin(&["@/healthz"])? == "ok");
    Ok(())
}

/// Many silent connections: others are served, and a client's own streams go on.
fn silent_connections_do_not_take_all_places(k: &Kubelet) -> Result<()> {
    let script = format!(
        "for i in $(seq 300); do exec {{f}}<>/dev/tcp/127.0.0.1/{}; done; echo open; exec sleep 600",
        k.port
    );
    let mut silent =
        k.cluster.host().spawn("silent", k.cluster.host().command("bash").args(["-c", &script]))?;
    eventually("silent connections", || Ok(k.cluster.host().log("silent").contains("open").then_some(())))?;
    let got = k.as_admin(&["--interface", "127.0.0.2", "@/healthz"])?;
    ensure!(got == "ok", "{got}");
    // The connections are closed in time, and their places are free again.
    eventually("places", || Ok((k.as_admin(&["@/healthz"])? == "ok").then_some(())))?;
    silent.kill()?;
    silent.wait()?;
    Ok(())
}

/// A file that an init container leaves in a volume is read there or not at all, and does not block the kubelet.
fn files_of_pods_do_not_lead_to_the_node(k: &Kubelet) -> Result<()> {
    let pod = |name: &str, prepare: &str| {
        format!(
            r#"---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {{name: prepare, image: {IMAGE}, command: [sh, -c, "{prepare}"], volumeMounts: [{{name: v, mountPath: /v}}]}}
  containers:
  - name: c
    image: {IMAGE}
    command: [sh, -c, "echo $STOLEN; exec sleep 1000"]
    env: [{{name: STOLEN, valueFrom: {{fileKeyRef: {{volumeName: v, path: env, key: A}}}}}}]
  volumes: [{{name: v, emptyDir: {{}}}}]
"#
        )
    };
    let secret = k.cluster.host().path("secret");
    fs::write(&secret, "A='stolen'\n")?;
    let bad = [
        ("link-out", format!("ln -s {} /v/env", secret.display())),
        ("link-up", format!("ln -s ../../../../../../../../../../..{} /v/env", secret.display())),
        ("pipe", "mkfifo /v/env".to_owned()),
        ("sparse", "truncate -s 10G /v/env".to_owned()),
        ("directory", "mkdir /v/env".to_owned()),
    ];
    let all: String = bad.iter().map(|(name, prepare)| pod(name, prepare)).collect();
    k.cluster.apply(&(all + &pod("honest", r"echo A=\\'mine\\' > /v/file; ln -s /file /v/env")))?;
    for (name, _) in &bad {
        eventually(name, || {
            let waits = k.container(name)?["state"]["waiting"].clone();
            Ok((waits["reason"] == "CreateContainerConfigError"
                && waits["message"] == "couldn't parse env file")
                .then_some(()))
        })?;
    }
    eventually("honest", || Ok((k.cluster.kubectl(&["logs", "honest"])?.trim() == "mine").then_some(())))
}

/// Containers are tended also after a ConfigMap or Secret of their Pod is gone.
fn containers_are_tended_without_their_config_map(k: &Kubelet) -> Result<()> {
    k.cluster.apply(&format!(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: gone}}
data: {{a: "1"}}
---
apiVersion: v1
kind: Secret
metadata: {{name: gone}}
stringData: {{b: "2"}}
---
apiVersion: v1
kind: Pod
metadata: {{name: tended}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: {IMAGE}
    command: [sh, -c, "echo $(cat /a/a /b/b); while [ ! -e /v/end ]; do sleep 0.2; done; rm /v/end"]
    volumeMounts: [{{name: a, mountPath: /a}}, {{name: b, mountPath: /b}}, {{name: v, mountPath: /v}}]
  volumes:
  - {{name: a, configMap: {{name: gone}}}}
  - {{name: b, secret: {{secretName: gone}}}}
  - {{name: v, emptyDir: {{}}}}
"#
    ))?;
    eventually("a container", || Ok((!k.container("tended")?["state"]["running"].is_null()).then_some(())))?;
    k.cluster.kubectl(&["delete", "configmap/gone", "secret/gone"])?;
    eventually("an event that says so", || {
        let events =
            k.cluster.kubectl(&["get", "events", "--field-selector", "reason=FailedMount", "-o", "name"])?;
        Ok((!events.is_empty()).then_some(()))
    })?;
    k.cluster.kubectl(&["exec", "tended", "--", "touch", "/v/end"])?;
    eventually("a restart", || {
        let c = k.container("tended")?;
        Ok((c["restartCount"] == 1 && !c["state"]["running"].is_null()).then_some(()))
    })?;
    eventually("its files", || Ok((k.cluster.kubectl(&["logs", "tended"])?.trim() == "12").then_some(())))
}

/// Pods that cannot run do not disturb others.
fn odd_pods_cost_themselves(k: &Kubelet) -> Result<()> {
    let mut inits = String::new();
    for n in 0..300 {
        let _ = writeln!(inits, "  - {{name: i{n}, image: {IMAGE}, command: [sleep, \"1000\"]}}");
    }
    let mut env = String::new();
    for n in 0..5_000 {
        let _ = writeln!(env, "    - {{name: V{n}, value: $(V{})}}", (n + 4_999) % 5_000);
    }
    k.cluster.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: many-inits}}
spec:
  initContainers:
{inits}
  containers: [{{name: c, image: {IMAGE}, command: [sleep, "1000"]}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: many-variables}}
spec:
  containers:
  - name: c
    image: {IMAGE}
    command: [sleep, "1000"]
    env:
{env}
---
apiVersion: v1
kind: Pod
metadata: {{name: bad-subpath}}
spec:
  initContainers:
  - {{name: i, image: {IMAGE}, command: [ln, -s, /etc, /v/out], volumeMounts: [{{name: v, mountPath: /v}}]}}
  containers:
  - name: c
    image: {IMAGE}
    command: [sleep, "1000"]
    volumeMounts: [{{name: v, mountPath: /v, subPath: out}}]
  volumes: [{{name: v, emptyDir: {{}}}}]
"#
    ))?;
    k.cluster.kubectl(&["run", "after", "--image", IMAGE, "--restart=Never", "--", "echo", "after"])?;
    eventually("the Pod after them", || {
        Ok((k.cluster.kubectl(&["logs", "after"])?.trim() == "after").then_some(()))
    })?;
    eventually("5,000 variables", || {
        Ok((!k.container("many-variables")?["state"]["running"].is_null()).then_some(()))
    })?;
    eventually("a refused subPath", || {
        let message = k.container("bad-subpath")?["state"]["waiting"]["message"].clone();
        Ok(message.as_str().is_some_and(|m| m.starts_with("failed to prepare subPath")).then_some(()))
    })
}
