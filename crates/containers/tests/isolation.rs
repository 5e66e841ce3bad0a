//! The view from a container: namespaces, mounts, devices, hidden paths; and roots that try to get out.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ferrokube_containers::{IdMappings, Network, PidMode, Private};
use serde_json::json;

use crate::support::{Place, make_root, spec, until, wait};

fn own(namespace: &str) -> String {
    fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap().to_str().unwrap().to_owned()
}

const SHOW: &[&str] = &[
    "sh",
    "-c",
    "for n in net ipc uts pid mnt user cgroup; do readlink /proc/self/ns/$n; done; hostname; echo $$",
];

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_the_sandboxs() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let (_, first) = place.run(&sandbox, place.container("a", SHOW)).await;
    let (_, second) = place.run(&sandbox, place.container("b", SHOW)).await;
    let (first, second): (Vec<&str>, Vec<&str>) = (first.lines().collect(), second.lines().collect());
    for (i, name) in ["net", "ipc", "uts"].iter().enumerate() {
        assert_eq!(first[i], second[i], "{name}");
        assert_ne!(first[i], own(name), "{name}");
    }
    // An inode may be given again once the first container is gone.
    assert_ne!(first[3], own("pid"));
    assert_ne!(first[4], own("mnt"));
    assert_eq!(first[5], own("user"));
    assert_eq!((first[7], first[8]), ("pod", "1"));
    assert_eq!(fs::read_link(sandbox.netns()).unwrap().to_str().unwrap(), first[0]);
    let (_, links) = place
        .run(&sandbox, place.container("c", &["sh", "-c", "ip -o link; cat /proc/net/route | wc -l"]))
        .await;
    assert!(links.contains("lo: <LOOPBACK,UP,LOWER_UP>") && links.ends_with("\n1\n"), "{links}");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_of_the_hosts_namespaces_has_them() {
    let place = Place::new();
    let mut spec = place.sandbox("host");
    (spec.network, spec.ipc, spec.uts, spec.pid) =
        (Network::Host, Private::Host, Private::Host, PidMode::Host);
    let sandbox = place.sandboxes.start(spec).await.unwrap();
    let (_, output) = place.run(&sandbox, place.container("a", SHOW)).await;
    let lines: Vec<&str> = output.lines().collect();
    for (i, name) in ["net", "ipc", "uts", "pid"].iter().enumerate() {
        assert_eq!(lines[i], own(name), "{name}");
    }
    assert_ne!(lines[4], own("mnt"));
    // A process that its parent left behind ends with the container.
    let script = "setsid sleep 10000 & echo $!; exit 0";
    let container = sandbox.create(place.container("b", &["sh", "-c", script])).await.unwrap();
    container.start().await.unwrap();
    assert_eq!(wait(&container).await.code, 0);
    assert!(container.processes().is_empty());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_network_namespace_is_joined() {
    let place = Place::new();
    let first = place.start("first").await;
    let mut spec = place.sandbox("second");
    spec.network = Network::Path(first.netns());
    let second = place.sandboxes.start(spec).await.unwrap();
    assert_eq!(fs::read_link(first.netns()).unwrap(), fs::read_link(second.netns()).unwrap());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_process_namespace_has_a_first_process_without_rights() {
    let place = Place::new();
    let mut spec = place.sandbox("shared");
    spec.pid = PidMode::Shared;
    let sandbox = place.sandboxes.start(spec).await.unwrap();
    let sleeper = sandbox.create(place.container("sleeper", &["sleep", "5000"])).await.unwrap();
    sleeper.start().await.unwrap();
    let script = "ps -o pid,args; echo $$; grep CapEff /proc/1/status; ls /proc/1/root/ 2>&1 | wc -l; \
        (sleep 0.01 & ) ; readlink /proc/self/ns/pid";
    let (code, output) = place.run(&sandbox, place.container("seer", &["sh", "-c", script])).await;
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("sleep 5000"), "{output}");
    assert!(output.contains("1 ferrokube-shim"), "{output}");
    assert!(output.contains("CapEff:\t0000000000000000"), "{output}");
    // The end of one container does not end the other.
    assert_eq!(sleeper.state(), ferrokube_containers::State::Running);
    sandbox.stop().await.unwrap();
    assert_eq!(wait(&sleeper).await.code, 137);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_a_containers_process_namespace() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let target = sandbox.create(place.container("target", &["sleep", "4321"])).await.unwrap();
    target.start().await.unwrap();
    let mut debugger = place.container("debugger", &["ps", "-o", "pid,args"]);
    debugger.pid_target = Some("target".to_owned());
    let (_, output) = place.run(&sandbox, debugger).await;
    assert!(output.contains("1 sleep 4321"), "{output}");
    let mut lost = place.container("lost", &["true"]);
    lost.pid_target = Some("nosuch".to_owned());
    assert!(sandbox.create(lost).await.unwrap_err().is_not_found());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_namespace_maps_root() {
    let place = Place::new();
    let maps =
        || serde_json::from_value(json!([{"containerID": 0, "hostID": 200_000, "size": 65_536}])).unwrap();
    for pid in [PidMode::PerContainer, PidMode::Shared] {
        let id = format!("user-{pid:?}");
        let mut sandbox = place.sandbox(&id);
        sandbox.user = Some(IdMappings { uids: maps(), gids: maps() });
        sandbox.pid = pid;
        sandbox.sysctls.insert("net.ipv4.ip_unprivileged_port_start".to_owned(), "77".to_owned());
        let sandbox = place.sandboxes.start(sandbox).await.unwrap();
        // A root whose owners are those of the namespace, as an idmapped one's are.
        let root = place.directory.path().join(&id);
        make_root(&root);
        chown_all(&root, 200_000);
        let script = "id -u; cat /proc/self/uid_map | tr -s ' '; touch /file && stat -c %u /file; \
            cat /proc/sys/net/ipv4/ip_unprivileged_port_start; mount -t tmpfs x /tmp; echo $?; \
            echo null > /dev/null && stat -c %t:%T /dev/null; readlink /proc/self/ns/user; df /dev/shm >/dev/null; hostname";
        let mut container = place.container(&format!("c-{pid:?}"), &["sh", "-c", script]);
        container.root = ferrokube_containers::Root::Path(root.clone());
        let name = container.id.clone();
        let created = sandbox.create(container).await.unwrap();
        created.start().await.unwrap();
        let exit = wait(&created).await;
        let output = place.output(&name);
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(&lines[..3], ["0", " 0 200000 65536", "0"], "{output}");
        assert_eq!(lines[3], "77");
        assert!(output.contains("\n1:3\n"), "{output}");
        assert_ne!(*lines.iter().find(|l| l.starts_with("user:")).unwrap(), own("user"));
        assert_eq!(exit.code, 0, "{output}");
        assert_eq!(
            fs::metadata(root.join("file")).map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap(),
            200_000
        );
        // A further process is in the same namespace.
        let mut sleeper = place.container("sleeper", &["sleep", "1000"]);
        sleeper.root = ferrokube_containers::Root::Path(root);
        let sleeper = sandbox.create(sleeper).await.unwrap();
        sleeper.start().await.unwrap();
        let (code, text) = crate::streams::exec(
            &sleeper,
            &["sh", "-c", "id -u; readlink /proc/self/ns/user; cat /proc/self/uid_map"],
        )
        .await;
        assert_eq!(code, 0);
        assert!(text.contains("200000") && !text.contains(&own("user")), "{text}");
        place.sandboxes.remove(&id).await.unwrap();
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owners_of_a_mount_are_mapped() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let volume = place.directory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("file"), "").unwrap();
    let maps = json!([{"containerID": 0, "hostID": 5000, "size": 1000}]);
    let script = &["sh", "-c", "stat -c %u:%g /v/file; touch /v/new; echo $?"];
    let mut container = place.container("c", script);
    container.spec = spec(script, |s| {
        s["process"]["user"] = json!({"uid": 5000, "gid": 5000});
        let mount = json!({"destination": "/v", "type": "bind", "source": volume, "options": ["rbind", "idmap"], "uidMappings": maps, "gidMappings": maps});
        s["mounts"].as_array_mut().unwrap().push(mount);
    });
    let (_, output) = place.run(&sandbox, container).await;
    assert_eq!(output, "5000:5000\n0\n");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(volume.join("new")).unwrap()), 0);
    place.end().await;
}

fn chown_all(path: &Path, to: u32) {
    std::os::unix::fs::lchown(path, Some(to), Some(to)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            chown_all(&entry.unwrap().path(), to);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_and_read_only_paths_and_devices() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let script = "cat /proc/timer_list | wc -c; ls /sys/firmware | wc -l; \
        (echo 1 > /proc/sys/kernel/printk) 2>&1 | grep -c 'Read-only'; (echo b > /proc/irq/default_smp_affinity) 2>&1 | grep -c 'Read-only'; \
        for d in null zero full random urandom tty; do stat -c '%t:%T %a' /dev/$d; done; \
        for l in fd stdin ptmx core; do readlink /dev/$l; done; \
        mknod /tmp/mem c 1 1 && cat /tmp/mem 2>&1 | head -c 0; head -c 1 /tmp/mem >/dev/null 2>/tmp/e; grep -c 'not permitted' /tmp/e; rm /tmp/mem";
    let (_, output) = place.run(&sandbox, place.container("c", &["sh", "-c", script])).await;
    let expected = "0\n0\n1\n1\n1:3 666\n1:5 666\n1:7 666\n1:8 666\n1:9 666\n5:0 666\n\
        /proc/self/fd\n/proc/self/fd/0\npts/ptmx\n/proc/kcore\n1\n";
    assert_eq!(output, expected);
    // A device of the description, and its permission.
    let script = &["sh", "-c", "stat -c '%t:%T %a %u' /dev/mine; head -c 3 /dev/mine | wc -c"];
    let mut container = place.container("d", script);
    container.spec = spec(script, |s| {
        s["linux"]["devices"] = json!([{"path": "/dev/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 7, "gid": 8}]);
        s["linux"]["resources"]["devices"] = json!([
            {"allow": false, "access": "rwm"},
            {"allow": true, "type": "c", "major": 1, "minor": 5, "access": "rwm"}
        ]);
    });
    let (_, output) = place.run(&sandbox, container).await;
    assert_eq!(output, "1:5 640 7\n3\n");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_are_the_descriptions() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let volume = place.directory.path().join("volume");
    fs::create_dir_all(volume.join("below")).unwrap();
    fs::write(volume.join("file"), "content\n").unwrap();
    let source = volume.to_str().unwrap();
    let file = volume.join("file");
    let script = "cat /volume/file; (touch /volume/x) 2>&1 | grep -c Read-only; touch /writable/y; echo $?; \
        cat /etc/one/file; df -m /small | awk 'NR==2 {print $2}'; stat -c %a /small; \
        grep ' /volume ' /proc/self/mountinfo | grep -c -E 'nosuid.*nodev.*noexec|nodev.*nosuid'; (touch /nofile) 2>&1 | grep -c Read-only";
    let args = &["sh", "-c", script];
    let mut container = place.container("c", args);
    container.spec = spec(args, |s| {
        s["root"]["readonly"] = json!(true);
        let mounts = s["mounts"].as_array_mut().unwrap();
        mounts.push(json!({"destination": "/volume", "type": "bind", "source": source, "options": ["rbind", "ro", "nosuid", "nodev", "noexec"]}));
        mounts.push(
            json!({"destination": "/writable", "type": "bind", "source": source, "options": ["rbind", "rw"]}),
        );
        mounts.push(
            json!({"destination": "/etc/one/file", "type": "bind", "source": file, "options": ["bind"]}),
        );
        mounts.push(json!({"destination": "/small", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m", "mode=1770"]}));
    });
    let (_, output) = place.run(&sandbox, container).await;
    assert_eq!(output, "content\n1\n0\ncontent\n1\n1770\n1\n1\n");
    assert!(volume.join("y").exists());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_spread_as_they_are_told() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    // A shared mount of the test's own, in this thread's namespace of mounts, which is the host's.
    let shared = place.directory.path().join("shared");
    fs::create_dir_all(shared.join("late")).unwrap();
    fs::create_dir_all(shared.join("back")).unwrap();
    let run = |args: &[&str]| {
        assert!(std::process::Command::new(args[0]).args(&args[1..]).status().unwrap().success());
    };
    let at = shared.to_str().unwrap();
    run(&["mount", "--bind", at, at]);
    run(&["mount", "--make-shared", at]);
    let make = |id: &str, how: &str, script: &str| {
        let mut container = place.container(id, &["sh", "-c", script]);
        container.spec = spec(&["sh", "-c", script], |s| {
            s["mounts"]
                .as_array_mut()
                .unwrap()
                .push(json!({"destination": "/v", "type": "bind", "source": at, "options": ["rbind", how]}));
            s["process"]["capabilities"]["bounding"].as_array_mut().unwrap().push(json!("CAP_SYS_ADMIN"));
            s["process"]["capabilities"]["effective"].as_array_mut().unwrap().push(json!("CAP_SYS_ADMIN"));
            s["process"]["capabilities"]["permitted"].as_array_mut().unwrap().push(json!("CAP_SYS_ADMIN"));
        });
        container
    };
    let wait_for = "echo ready; while ! test -e /v/go; do sleep 0.02; done; ls /v/late";
    let mut containers = Vec::new();
    for (id, how, script) in [
        ("private", "rprivate", wait_for.to_owned()),
        ("slave", "rslave", wait_for.to_owned()),
        ("both", "rshared", format!("mount -t tmpfs x /v/back && touch /v/back/inside; {wait_for}")),
    ] {
        let container = sandbox.create(make(id, how, &script)).await.unwrap();
        container.start().await.unwrap();
        until("the container", || place.output(id).contains("ready")).await;
        containers.push((id, container));
    }
    let inside = shared.join("back/inside").exists();
    run(&["mount", "-t", "tmpfs", "x", &format!("{at}/late")]);
    fs::write(shared.join("late/seen"), "").unwrap();
    fs::write(shared.join("go"), "").unwrap();
    for (_, container) in &containers {
        wait(container).await;
    }
    let outputs: Vec<String> = containers.iter().map(|(id, _)| place.output(id)).collect();
    drop(containers);
    run(&["umount", "-l", &format!("{at}/late")]);
    run(&["umount", "-l", &format!("{at}/back")]);
    run(&["umount", "-l", at]);
    assert!(inside, "what a container mounts is seen on the host");
    assert_eq!(outputs, ["ready\n", "ready\nseen\n", "ready\nseen\n"]);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_may_hold_files_that_keep_namespaces_of_mounts() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let volume = place.directory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let run = |args: &[&str]| {
        assert!(std::process::Command::new(args[0]).args(&args[1..]).status().unwrap().success());
    };
    let at = volume.to_str().unwrap();
    // Namespaces are kept only where mounts are private.
    run(&["mount", "-t", "tmpfs", "x", at]);
    run(&["mount", "--make-private", at]);
    fs::create_dir(volume.join("below")).unwrap();
    run(&["mount", "-t", "tmpfs", "x", &format!("{at}/below")]);
    fs::write(volume.join("below/file"), "content\n").unwrap();
    let kept = volume.join("kept");
    fs::write(&kept, "").unwrap();
    run(&["unshare", &format!("--mount={}", kept.display()), "true"]);
    let mut container = place.container("c", &[]);
    container.spec = spec(&["sh", "-c", "cat /volume/below/file; ls /volume"], |s| {
        let mount =
            json!({"destination": "/volume", "type": "bind", "source": at, "options": ["rbind", "rslave"]});
        s["mounts"].as_array_mut().unwrap().push(mount);
    });
    let created = sandbox.create(container).await;
    let ended = match &created {
        Ok(container) => {
            container.start().await.unwrap();
            wait(container).await;
            Ok(place.output("c"))
        }
        Err(error) => Err(error.to_string()),
    };
    drop(created);
    run(&["umount", &format!("{at}/kept")]);
    run(&["umount", "-l", &format!("{at}/below")]);
    run(&["umount", "-l", at]);
    assert_eq!(ended, Ok("content\nbelow\nkept\n".to_owned()));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_parameters_are_the_sandboxs() {
    let place = Place::new();
    let mut spec = place.sandbox("one");
    spec.sysctls.insert("net.ipv4.ping_group_range".to_owned(), "0 100".to_owned());
    spec.sysctls.insert("kernel.shm_rmid_forced".to_owned(), "1".to_owned());
    let sandbox = place.sandboxes.start(spec).await.unwrap();
    let script = &["cat", "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/kernel/shm_rmid_forced"];
    let (_, output) = place.run(&sandbox, place.container("c", script)).await;
    assert_eq!(output, "0\t100\n1\n");
    let mut bad = place.sandbox("bad");
    bad.sysctls.insert("net.no.such".to_owned(), "1".to_owned());
    let error = place.sandboxes.start(bad).await.unwrap_err();
    assert_eq!(error.to_string(), "write sysctl key net.no.such: no such file or directory");
    assert!(place.sandboxes.get("bad").is_none());
    assert_eq!(place.sandboxes.recorded().unwrap(), ["one"]);
    place.end().await;
}

/// Roots that lead mounts elsewhere: nothing of the host is touched, and nothing of it is seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_malicious_root_leads_nowhere() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let outside = place.directory.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::set_permissions(&outside, PermissionsExt::from_mode(0o755)).unwrap();
    let volume = place.directory.path().join("volume");
    fs::write(&volume, "volume\n").unwrap();
    let check = async |name: &str, prepare: &dyn Fn(&Path), expected: Result<&str, &str>| {
        let root = place.directory.path().join(format!("root-{name}"));
        make_root(&root);
        prepare(&root);
        let script = &["sh", "-c", "cat /etc/hosts; ls /outside 2>/dev/null; cat /proc/self/comm"];
        let mut container = place.container(name, script);
        container.root = ferrokube_containers::Root::Path(root);
        container.spec = spec(script, |s| {
            s["mounts"].as_array_mut().unwrap().push(
                json!({"destination": "/etc/hosts", "type": "bind", "source": volume, "options": ["rbind"]}),
            );
        });
        let got = match sandbox.create(container).await {
            Ok(container) => container.start().await.map_err(|e| e.to_string()).map(|()| container),
            Err(e) => Err(e.to_string()),
        };
        let got = match got {
            Ok(container) => {
                wait(&container).await;
                Ok(place.output(name))
            }
            Err(e) => Err(e),
        };
        assert_eq!(got.as_deref().map_err(String::as_str), expected, "{name}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
    };
    let replace = |path: std::path::PathBuf, to: &str| {
        let _ = fs::remove_dir(&path);
        symlink(to, path).unwrap();
    };
    let symlinked = |at: &str| {
        format!(
            "error mounting {:?} to rootfs at {at:?}: too many levels of symbolic links",
            at.trim_start_matches('/').replace("sys", "sysfs")
        )
    };
    let target = outside.to_str().unwrap().to_owned();
    check("proc", &|root| replace(root.join("proc"), "/tmp"), Err(&symlinked("/proc"))).await;
    check("sys", &|root| replace(root.join("sys"), "/proc"), Err(&symlinked("/sys"))).await;
    check(
        "hosts",
        &|root| replace(root.join("etc/hosts"), "../../../etc/hosts-of-root"),
        Ok("volume\ncat\n"),
    )
    .await;
    check(
        "absolute",
        &|root| replace(root.join("etc/hosts"), &format!("{target}/made")),
        Ok("volume\ncat\n"),
    )
    .await;
    let at_dev = "error mounting \"tmpfs\" to rootfs at \"/dev\": too many levels of symbolic links";
    check("dev", &|root| replace(root.join("dev"), "/"), Err(at_dev)).await;
    check(
        "loop",
        &|root| replace(root.join("etc/hosts"), "/etc/hosts"),
        Err(&format!(
            "error mounting {:?} to rootfs at \"/etc/hosts\": too many levels of symbolic links",
            volume.to_str().unwrap()
        )),
    )
    .await;
    check(
        "magic",
        &|root| replace(root.join("etc/hosts"), "/proc/self/fd/5/x"),
        Err(&format!(
            "error mounting {:?} to rootfs at \"/etc/hosts\": too many levels of symbolic links",
            volume.to_str().unwrap()
        )),
    )
    .await;
    check(
        "cwd",
        &|root| {
            fs::remove_dir(root.join("tmp")).unwrap();
            replace(root.join("tmp"), "/proc/self/fd/3");
        },
        Ok("volume\ncat\n"),
    )
    .await;
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_directory_cannot_be_a_descriptor() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    for fd in 0..12 {
        let mut container = place.container("c", &["pwd"]);
        container.spec = spec(&["pwd"], |s| s["process"]["cwd"] = json!(format!("/proc/self/fd/{fd}")));
        let error = sandbox.create(container).await.unwrap_err().to_string();
        assert!(error.starts_with("chdir to cwd (\"/proc/self/fd/"), "{error}");
    }
    place.end().await;
}
