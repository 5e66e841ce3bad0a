//! Attacks that other runtimes have suffered, by the numbers under which they were published (SECURITY.md has all).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ferrokube_containers::{ContainerSpec, IdMappings, Network};
use serde_json::json;

use crate::streams::exec;
use crate::support::{Place, spec, wait};

/// CVE-2019-5736: a container that has the runtime's own program executed inside overwrites it.
#[tokio::test(flavor = "multi_thread")]
async fn the_shims_program_cannot_be_written() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    // It tries every program that it can see, while further processes are made.
    let script = "while :; do for p in /proc/[0-9]*/exe; do (echo overwritten > $p) 2>/dev/null && echo written; done; done";
    let container = sandbox.create(place.container("c", &["sh", "-c", script])).await.unwrap();
    container.start().await.unwrap();
    for _ in 0..20 {
        // The shim's program executes itself here: without its set-up it ends.
        let (code, output) = exec(&container, &["/proc/self/exe"]).await;
        assert!(code != 0 && output.is_empty(), "{code} {output}");
    }
    let (code, output) = exec(&container, &["echo", "whole"]).await;
    assert_eq!((code, output.as_str()), (0, "whole\n"));
    container.kill(9).await.unwrap();
    wait(&container).await;
    assert_eq!(place.output("c"), "");
    let (code, output) = place.run(&sandbox, place.container("next", &["echo", "whole"])).await;
    assert_eq!((code, output.as_str()), (0, "whole\n"));
    place.end().await;
}

/// CVE-2020-15257: a container in the host's network finds a shim's socket by its abstract name.
#[tokio::test(flavor = "multi_thread")]
async fn no_socket_has_an_abstract_name() {
    let place = Place::new();
    let mut host = place.sandbox("one");
    host.network = Network::Host;
    let sandbox = place.sandboxes.start(host).await.unwrap();
    let (code, output) = place.run(&sandbox, place.container("c", &["cat", "/proc/net/unix"])).await;
    assert_eq!(code, 0);
    assert!(
        !output.lines().any(|l| l.contains(" @") && (l.contains("shim") || l.contains("ferrokube"))),
        "{output}"
    );
    place.end().await;
}

/// CVE-2021-41103, CVE-2024-25621: users of the machine enter the directories of containers.
#[tokio::test(flavor = "multi_thread")]
async fn directories_are_the_runtimes_alone() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox.create(place.container("c", &["sleep", "1000"])).await.unwrap();
    let pods = place.directory.path().join("pods");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&pods), mode(&pods.join("one"))), (0o700, 0o700));
    assert_eq!(mode(&pods.join("one/containers/c.json")), 0o600);
    container.delete().await.unwrap();
    place.end().await;
}

/// CVE-2024-40635: a user whose number is taken for "as it is" stays root.
#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_a_user_stays_root() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    for user in [
        json!({"uid": u32::MAX, "gid": 0}),
        json!({"uid": 0, "gid": u32::MAX}),
        json!({"uid": 1, "gid": 1, "additionalGids": [u32::MAX]}),
    ] {
        let mut container = place.container("c", &["id"]);
        container.spec = spec(&["id"], |s| s["process"]["user"] = user.clone());
        let error = sandbox.create(container).await.unwrap_err().to_string();
        assert_eq!(error, "4294967295 is no id of a user or group");
    }
    place.end().await;
}

/// CVE-2025-31133: what hides a path is not the image's `/dev/null`. CVE-2025-52881: nor are labels and kernel
/// parameters written to files that the image chose.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_paths_are_hidden_by_the_hosts_null() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let root = place.root();
    fs::write(root.join("bait"), "untouched\n").unwrap();
    let script = "stat -c %t:%T /proc/keys; cat /bait; echo x > /proc/keys; cat /bait";
    let mut container: ContainerSpec = place.container("c", &["sh", "-c", script]);
    container.spec = spec(&["sh", "-c", script], |s| {
        // The image's directory of devices is the container's, and its null device is a link.
        s["mounts"].as_array_mut().unwrap().retain(|m| m["destination"] != "/dev");
        s["mounts"]
            .as_array_mut()
            .unwrap()
            .retain(|m| !m["destination"].as_str().unwrap().starts_with("/dev/"));
        s["linux"]["sysctl"] = json!({"net.ipv4.ip_unprivileged_port_start": "77"});
        s["linux"]["devices"] = json!([]);
    });
    std::os::unix::fs::symlink("/bait", root.join("dev/null")).unwrap();
    let (code, output) = match sandbox.create(container).await {
        Ok(created) => {
            created.start().await.unwrap();
            let exit = wait(&created).await;
            (exit.code, place.output("c"))
        }
        // A link in the place of a device is refused.
        Err(e) => {
            assert!(e.to_string().contains("/dev/null"), "{e}");
            (0, "1:3\nuntouched\nuntouched\n".to_owned())
        }
    };
    assert_eq!((code, output.as_str()), (0, "1:3\nuntouched\nuntouched\n"));
    assert_eq!(fs::read_to_string(root.join("bait")).unwrap(), "untouched\n");
    place.end().await;
}

/// CVE-2025-47291: containers with users of their own escape the Pod's cgroup, and with it its limits.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_namespace_changes_no_cgroup() {
    let place = Place::new();
    let maps =
        || serde_json::from_value(json!([{"containerID": 0, "hostID": 200_000, "size": 65_536}])).unwrap();
    let mut users = place.sandbox("one");
    users.user = Some(IdMappings { uids: maps(), gids: maps() });
    let sandbox = place.sandboxes.start(users).await.unwrap();
    let container = sandbox.create(place.container("c", &["sleep", "1000"])).await.unwrap();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).unwrap();
    let below = format!("{}/c", place.cgroup);
    let memory = groups.lines().find(|l| l.contains(":memory:") || l.starts_with("0::/ferrokube")).unwrap();
    assert!(memory.ends_with(&below), "{groups}");
    place.end().await;
}
