//! Nodes that join a control plane over the network, with real containerd.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};
use testkit::{Cluster, Host, Hosts, Image, Options, Signal, binary, eventually};

/// The address of the node on the control plane's host.
const ADDRESS: &str = "192.0.2.11";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: test.local/app:1, command: [sh, -c, "echo started; exec sleep 1000000"]}
"#;

/// A control plane with a runtime beside it.
fn control_plane(name: &str) -> Result<Cluster> {
    let images = vec![Image::busybox("test.local/app:1")?];
    let options = Options { control_plane_only: true, runtime: true, images, ..Options::default() };
    let cluster = Cluster::start(name, options)?;
    cluster.host().run("ip", &["address", "add", &format!("{ADDRESS}/24"), "dev", "eth0"])?;
    Ok(cluster)
}

fn ferrokube(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let kubeconfig = cluster.kubeconfig().display().to_string();
    cluster.host().run(&binary().to_string_lossy(), &[args, &["--kubeconfig", &kubeconfig]].concat())
}

/// The flags of an agent on the host, whose data are in a directory of this name.
fn flags(cluster: &Cluster, dir: &str) -> Vec<String> {
    let host = cluster.host();
    let path = |name: &str| host.path(name).display().to_string();
    vec![
        format!("--data-dir={}", path(dir)),
        format!("--container-runtime-endpoint={}", cluster.socket().display()),
        format!("--cni-conf-dir={}", path("cni")),
        format!("--cni-bin-dir={}", path("cni-bin")),
        format!("--node-ip={ADDRESS}"),
        "--node-name=joined".to_owned(),
        "--eviction-hard=memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".to_owned(),
    ]
}

fn start(cluster: &Cluster, log: &str, args: &[String]) -> Result<Child> {
    let mut command = cluster.host().command(binary());
    command.arg("agent").args(args);
    cluster.host().spawn(log, &mut command)
}

fn stop(mut child: Child) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(Host::pid_of(&child)?)?).context("no process has this id")?;
    kill_process(pid, Signal::TERM)?;
    child.wait()?;
    Ok(())
}

fn is_ready(cluster: &Cluster) -> Result<Option<()>> {
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    Ok((cluster.kubectl(&["get", "node", "joined", "-o", path])? == "True").then_some(()))
}

fn wait_ready(cluster: &Cluster, log: &str) -> Result<()> {
    eventually("the joined node", || is_ready(cluster)).with_context(|| cluster.host().log(log))
}

/// The users of the certificate requests that were signed.
fn signed(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let all: Value = serde_json::from_str(&cluster.kubectl(&["get", "csr", "-o", "json"])?)?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let items = all["items"].as_array().cloned().unwrap_or_default();
    let mut users: Vec<_> = items
        .iter()
        .filter(|csr| csr["status"]["certificate"].is_string())
        .map(|csr| (text(&csr["spec"]["signerName"]), text(&csr["spec"]["username"])))
        .collect();
    users.sort();
    Ok(users)
}

/// The node of `ferrokube up` has its certificates as any other node, and its parts are users of their own.
#[test]
fn the_node_beside_its_control_plane_joins_as_others_do() -> Result<()> {
    let flags = ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"];
    let flags = flags.map(str::to_owned).to_vec();
    let mut cluster = Cluster::start("beside", Options { flags, ..Options::default() })?;
    let name = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"])?;
    let node = format!("system:node:{name}");
    let expected = vec![
        ("kubernetes.io/kube-apiserver-client-kubelet".to_owned(), node.clone()),
        ("kubernetes.io/kubelet-serving".to_owned(), node.clone()),
    ];
    eventually("both certificates", || Ok((signed(&cluster)? == expected).then_some(())))
        .with_context(|| cluster.report())?;
    // The API server verifies the kubelet's certificate.
    let health = format!("/api/v1/nodes/{name}/proxy/healthz");
    ensure!(cluster.kubectl(&["get", "--raw", &health])? == "ok");
    // The node's own kubeconfig has its rights and no others.
    let own = cluster.data_dir().join("kubelet.kubeconfig").display().to_string();
    let as_node = |args: &[&str]| cluster.kubectl(&[args, &["--kubeconfig", &own]].concat());
    let me = eventually("the node's kubeconfig", || Ok(as_node(&["auth", "whoami", "-o", "json"]).ok()))?;
    let me: Value = serde_json::from_str(&me)?;
    ensure!(me["status"]["userInfo"]["username"] == node, "{me}");
    ensure!(as_node(&["get", "node", &name, "-o", "name"])?.trim() == format!("node/{name}"));
    ensure!(as_node(&["get", "secrets", "-A"]).is_err(), "a node reads nobody's secrets");
    // No account of a Pod stands for a part of the node.
    let accounts = cluster.kubectl(&["get", "serviceaccounts", "-n", "kube-system", "-o", "name"])?;
    ensure!(!accounts.contains("coredns") && !accounts.contains("ferrokube"), "{accounts}");
    let bindings = cluster.kubectl(&["get", "clusterrolebindings", "-o", "wide"])?;
    for user in ["system:node-dns", "system:node-policy"] {
        ensure!(bindings.contains(user), "{user}: {bindings}");
    }

    // A restart takes the same certificates; those of earlier versions go.
    let pki = cluster.data_dir().join("pki");
    let current = |file: &str| std::fs::read(pki.join(format!("{file}-current.pem")));
    let before = (current("kubelet-client")?, current("kubelet-server")?);
    cluster.stop_ferrokube(Signal::TERM)?;
    std::fs::write(pki.join("kubelet.key"), "old")?;
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    ensure!(cluster.kubectl(&["get", "--raw", &health])? == "ok");
    ensure!((current("kubelet-client")?, current("kubelet-server")?) == before);
    ensure!(signed(&cluster)? == expected, "{:?}", signed(&cluster)?);
    ensure!(!pki.join("kubelet.key").exists());

    // A certificate that is lost is asked for again.
    cluster.stop_ferrokube(Signal::KILL)?;
    std::fs::remove_file(pki.join("kubelet-server-current.pem"))?;
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    eventually("another certificate", || Ok((signed(&cluster)?.len() == 3).then_some(())))?;
    eventually("the kubelet", || Ok(cluster.kubectl(&["get", "--raw", &health]).ok()))?;
    Ok(())
}

#[test]
fn a_node_joins_with_a_token_and_comes_back_without_it() -> Result<()> {
    let cluster = control_plane("agent")?;
    let printed = ferrokube(&cluster, &["token", "create", "--description", "for a test"])?;
    let words: Vec<String> = printed.split_whitespace().map(str::to_owned).collect();
    ensure!(
        words[..3] == ["ferrokube", "agent", "--server"] && words[3] == "https://192.0.2.10:6443",
        "{printed}"
    );
    let token = words[5].clone();
    let list = ferrokube(&cluster, &["token", "list"])?;
    ensure!(
        list.contains(&token) && list.contains("authentication,signing") && list.contains("for a test"),
        "{list}"
    );

    let agent = start(&cluster, "agent", &[&words[2..], &flags(&cluster, "node")].concat())?;
    wait_ready(&cluster, "agent")?;
    cluster.apply(POD)?;
    cluster
        .kubectl(&["wait", "--for=condition=Ready", "pod", "app", "--timeout=60s"])
        .with_context(|| cluster.report())?;
    // The API server verifies the kubelet's certificate.
    eventually("the log of a Pod on the node", || {
        Ok((cluster.kubectl(&["logs", "app"])? == "started\n").then_some(()))
    })
    .with_context(|| cluster.host().log("agent"))?;
    let id = token.split('.').next().unwrap_or_default().to_owned();
    let node = "system:node:joined".to_owned();
    let client = "kubernetes.io/kube-apiserver-client".to_owned();
    let expected = vec![
        // The proxy, DNS, and network policies.
        (client.clone(), node.clone()),
        (client.clone(), node.clone()),
        (client.clone(), node.clone()),
        (format!("{client}-kubelet"), format!("system:bootstrap:{id}")),
        ("kubernetes.io/kubelet-serving".to_owned(), node),
    ];
    ensure!(signed(&cluster)? == expected, "{:?}", signed(&cluster)?);

    // Started again without the token, it is the same node with the same certificates.
    stop(agent)?;
    ferrokube(&cluster, &["token", "delete", &token])?;
    let agent = start(&cluster, "again", &flags(&cluster, "node"))?;
    eventually("the node says so", || Ok(cluster.host().log("again").contains("ready in").then_some(())))
        .with_context(|| cluster.host().log("again"))?;
    ensure!(signed(&cluster)? == expected, "{:?}", signed(&cluster)?);
    stop(agent)?;

    // The token is nobody's way in any more.
    let mut other = start(&cluster, "revoked", &[&words[2..], &flags(&cluster, "other")].concat())?;
    ensure!(!other.wait()?.success());
    let told = cluster.host().log("revoked");
    ensure!(
        told.contains(&format!("token id \"{id}\" is invalid for this cluster or it has expired")),
        "{told}"
    );
    Ok(())
}

#[test]
fn a_node_joins_with_a_bootstrap_kubeconfig() -> Result<()> {
    let cluster = control_plane("kubeconfig")?;
    let token = ferrokube(&cluster, &["token", "create", "--print-join-command=false"])?;
    let mut kubeconfig: Value =
        serde_json::from_str(&cluster.kubectl(&["config", "view", "--raw", "-o", "json"])?)?;
    kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    let file = cluster.host().path("bootstrap.kubeconfig");
    std::fs::write(&file, kubeconfig.to_string())?;
    let mut args = flags(&cluster, "node");
    args.push(format!("--bootstrap-kubeconfig={}", file.display()));
    let agent = start(&cluster, "agent", &args)?;
    wait_ready(&cluster, "agent")?;
    stop(agent)
}

#[test]
fn a_foreign_cluster_is_refused_in_one_sentence() -> Result<()> {
    let cluster = control_plane("foreign")?;
    let printed = ferrokube(&cluster, &["token", "create"])?;
    let words: Vec<String> = printed.split_whitespace().map(str::to_owned).collect();
    let check = |log: &str, change: &dyn Fn(&mut Vec<String>), expected: &str| -> Result<()> {
        let mut args = words[2..].to_vec();
        change(&mut args);
        args.extend(flags(&cluster, log));
        let mut agent = start(&cluster, log, &args)?;
        ensure!(!agent.wait()?.success());
        let told = cluster.host().log(log);
        ensure!(told.contains(expected), "{told}");
        ensure!(told.lines().filter(|line| line.contains("ferrokube:")).count() == 1, "{told}");
        Ok(())
    };
    let pin = format!("sha256:{}", "00".repeat(32));
    check("hash", &|args| args[5].clone_from(&pin), "the server belongs to another cluster")?;
    check("form", &|args| "abc".clone_into(&mut args[3]), "the bootstrap token was not of the form")?;
    check("secret", &|args| args[3].replace_range(7.., "0000000000000000"), "can't trust this API Server")?;
    Ok(())
}

/// Two Pods that serve their node's name.
const PAIR: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NODE}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "mkdir /www && echo NODE > /www/index.html && echo started && exec busybox httpd -f -p 80 -h /www"]
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
"#;

/// A cluster with a node on the first host, and the second host's node in it, with a Pod on each.
fn pair(mut hosts: Hosts) -> Result<(Hosts, Cluster, Cluster)> {
    let image = Image::busybox("test.local/app:1")?;
    let mut machines = hosts.take().into_iter();
    let (first, second) = machines.next().zip(machines.next()).context("two hosts")?;
    let mut options = Options { images: vec![image.clone()], ..Options::default() };
    options
        .flags
        .push("--eviction-hard=memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".to_owned());
    let cluster = Cluster::start_on(first, options)?;
    let mut joined = Cluster::runtime_on(second, vec![image])?;
    joined.join(&ferrokube(&cluster, &["token", "create"])?)?;
    for node in ["one", "two"] {
        eventually("the node has its account", || cluster.apply(&PAIR.replace("NODE", node)).map(Some))?;
    }
    let waited = ["wait", "--for=condition=Ready", "pod", "one", "two", "--timeout=90s"];
    cluster
        .kubectl(&waited)
        .with_context(|| format!("{}\n{}", cluster.report(), joined.host().log("ferrokube")))?;
    Ok((hosts, cluster, joined))
}

/// Each Pod gets the other's page.
fn reach_each_other(cluster: &Cluster) -> Result<()> {
    for (from, to) in [("one", "two"), ("two", "one")] {
        let address = cluster.get("pod", to)?["status"]["podIP"].as_str().unwrap_or_default().to_owned();
        let url = format!("http://{address}/");
        let get = ["exec", from, "--", "busybox", "timeout", "3", "busybox", "wget", "-qO-", &url];
        eventually("Pods of two hosts reach each other", || {
            Ok((cluster.kubectl(&get)?.trim() == to).then_some(()))
        })?;
    }
    Ok(())
}

#[test]
fn pods_of_hosts_behind_a_router_reach_each_other() -> Result<()> {
    let (hosts, cluster, joined) = pair(Hosts::routed(&["one", "two"])?)?;
    reach_each_other(&cluster)?;
    let tunnel = joined.host().run("ip", &["-d", "-br", "link", "show", "type", "vxlan"])?;
    ensure!(tunnel.contains("fk-"), "{tunnel}");
    let routes = hosts.middle().run("ip", &["route"])?;
    ensure!(!routes.contains("10.244."), "the router knows nothing of Pods: {routes}");
    Ok(())
}

#[test]
fn a_node_that_moves_goes_on_with_its_new_address() -> Result<()> {
    let (_hosts, cluster, joined) = pair(Hosts::on_one_link(&["one", "two"])?)?;
    reach_each_other(&cluster)?;
    let vxlan = joined.host().run("ip", &["-br", "link", "show", "type", "vxlan"])?;
    ensure!(vxlan.is_empty(), "nodes of one link need no tunnel: {vxlan}");
    let ip = |args: &[&str]| joined.host().run("ip", args);
    ip(&["address", "delete", "192.0.2.11/24", "dev", "eth0"])?;
    ip(&["address", "add", "192.0.2.77/24", "dev", "eth0"])?;
    ip(&["route", "replace", "default", "via", "192.0.2.1"])?;
    let address = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    let log = || joined.host().log("ferrokube");
    eventually("the Node has the new address", || {
        Ok((cluster.kubectl(&["get", "node", "two", "-o", address])? == "192.0.2.77").then_some(()))
    })
    .with_context(log)?;
    // The API server verifies the kubelet's certificate for this address.
    eventually("the log of a Pod on the node", || {
        Ok((cluster.kubectl(&["logs", "two"])? == "started\n").then_some(()))
    })
    .with_context(log)?;
    reach_each_other(&cluster)
}
