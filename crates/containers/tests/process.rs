//! Processes: exit codes, signals, errors of programs, limits, users, capabilities.

use std::os::unix::fs::PermissionsExt;

use ferrokube_containers::{Error, State};
use serde_json::json;

use crate::support::{Place, spec, until, wait};

#[tokio::test(flavor = "multi_thread")]
async fn a_process_runs_and_its_end_is_known() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let spec = place.container("c", &["sh", "-c", "echo hello; echo oops >&2; exit 3"]);
    let container = sandbox.create(spec).await.unwrap();
    assert_eq!(container.state(), State::Created);
    container.start().await.unwrap();
    let exit = wait(&container).await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (3, None, false));
    assert_eq!(container.state(), State::Exited(exit));
    let log = std::fs::read_to_string(place.log("c")).unwrap();
    assert!(log.contains(" stdout F hello\n") && log.contains(" stderr F oops\n"), "{log}");
    sandbox.delete("c").await.unwrap();
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_end_a_process_or_are_its_own() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    // The first process of a namespace ends by a signal only if it says so.
    let script = "trap 'echo term; exit 7' TERM; echo ready; while true; do sleep 0.05; done";
    let container = sandbox.create(place.container("trap", &["sh", "-c", script])).await.unwrap();
    container.start().await.unwrap();
    until("the trap", || place.output("trap").contains("ready")).await;
    container.kill(15).await.unwrap();
    let exit = wait(&container).await;
    assert_eq!((exit.code, exit.signal), (7, None));
    let container = sandbox.create(place.container("kill", &["sleep", "1000"])).await.unwrap();
    container.start().await.unwrap();
    container.kill(9).await.unwrap();
    let exit = wait(&container).await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (137, Some(9), false));
    assert!(container.kill(9).await.unwrap_err().to_string().contains("it has ended"));
    assert!(container.start().await.unwrap_err().to_string().contains("it has ended"));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_programs_are_runcs() {
    let place = Place::new();
    std::fs::write(place.root().join("bin/text"), "nonsense\n").unwrap();
    std::fs::set_permissions(place.root().join("bin/text"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(place.root().join("bin/noint"), "#!/no/such\n").unwrap();
    std::fs::set_permissions(place.root().join("bin/noint"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(place.root().join("bin/data"), "nonsense\n").unwrap();
    let sandbox = place.start("one").await;
    let check = async |args: &[&str], expected: &str| {
        let error = match sandbox.create(place.container("c", args)).await {
            Ok(container) => {
                let error = container.start().await.unwrap_err();
                assert_eq!(wait(&container).await.code, 128);
                sandbox.delete("c").await.unwrap();
                error
            }
            Err(e) => e,
        };
        assert!(matches!(error, Error::Step { .. } | Error::Invalid(_)), "{error:?}");
        assert_eq!(error.to_string(), expected);
    };
    check(&["nosuch"], "exec: \"nosuch\": executable file not found in $PATH").await;
    check(&["/no/such"], "exec: \"/no/such\": stat /no/such: no such file or directory").await;
    check(&["/bin/data"], "exec: \"/bin/data\": permission denied").await;
    check(&["/etc"], "exec: \"/etc\": is a directory").await;
    check(&[], "args must not be empty").await;
    check(&["a\0b"], "the argument or variable \"a\\0b\" has a NUL byte").await;
    assert!(sandbox.containers().is_empty());
    // The kernel refuses these only once the container is started: its output says why it ended.
    let executed = async |args: &[&str], env: Option<String>, expected: &str| {
        let mut container = place.container("c", args);
        container.spec = spec(args, |s| {
            if let Some(env) = &env {
                s["process"]["env"] = json!([env, "PATH=/bin"]);
            }
        });
        let (code, output) = place.run(&sandbox, container).await;
        assert_eq!((code, output.trim_end()), (255, expected));
    };
    executed(&["text"], None, "exec /bin/text: exec format error").await;
    executed(&["noint"], None, "exec /bin/noint: no such file or directory").await;
    let big = format!("A={}", "x".repeat(1 << 20));
    executed(&["true"], Some(big), "exec /bin/true: argument list too long").await;
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_description_of_nonsense_is_refused() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let checks: [(&str, serde_json::Value, &str); 4] = [
        ("/process/cwd", json!("relative"), "Cwd must be an absolute path: relative"),
        (
            "/mounts",
            json!([{"destination": "/proc/self", "type": "tmpfs", "source": "tmpfs"}]),
            "\"/proc/self\" cannot be mounted because it is inside /proc",
        ),
        (
            "/mounts",
            json!([{"destination": "/x", "type": "bind", "source": "/no/such"}]),
            "cannot bind \"/no/such\": no such file or directory",
        ),
        (
            "/mounts",
            json!([{"destination": "/x", "type": "nosuch", "source": "x"}]),
            "error mounting \"x\" to rootfs at \"/x\": no such device",
        ),
    ];
    for (at, value, expected) in checks {
        let mut container = place.container("c", &["true"]);
        container.spec = spec(&["true"], |s| *s.pointer_mut(at).unwrap_or(&mut json!(null)) = value.clone());
        let error = match sandbox.create(container).await {
            Ok(container) => container.start().await.unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(error.to_string(), expected, "{at}");
        if let Some(container) = sandbox.container("c") {
            wait(&container).await;
            sandbox.delete("c").await.unwrap();
        }
    }
    for id in ["", ".", "..", "a/b", "a\0", &"x".repeat(129)] {
        assert!(sandbox.create(place.container(id, &["true"])).await.is_err(), "{id:?}");
    }
    let twice = sandbox.create(place.container("twice", &["true"])).await;
    assert!(twice.is_ok());
    let again = sandbox.create(place.container("twice", &["true"])).await.unwrap_err();
    assert_eq!(again.to_string(), "container \"twice\" exists already");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_groups_and_the_working_directory() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let mut container =
        place.container("c", &["sh", "-c", "id -u; id -g; id -G; pwd; umask; echo out > /dev/stdout"]);
    container.spec = spec(&["sh", "-c", "id -u; id -g; id -G; pwd; umask; echo out > /dev/stdout"], |s| {
        s["process"]["user"] = json!({"uid": 1000, "gid": 1001, "additionalGids": [5, 2000], "umask": 0o27});
        s["process"]["cwd"] = json!("/made/for/it");
        s["process"]["capabilities"] = json!({});
    });
    let (code, output) = place.run(&sandbox, container).await;
    assert_eq!((code, output.as_str()), (0, "1000\n1001\n1001 5 2000\n/made/for/it\n0027\nout\n"));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_capability_set_is_the_descriptions() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let script = &["grep", "-E", "^(Cap|NoNewPrivs|Seccomp:)", "/proc/self/status"];
    let check = async |user: u32, caps: serde_json::Value, nnp: bool, expected: [u64; 5]| {
        let mut container = place.container("c", script);
        container.spec = spec(script, |s| {
            s["process"]["user"] = json!({"uid": user, "gid": user});
            s["process"]["capabilities"] = caps.clone();
            s["process"]["noNewPrivileges"] = json!(nnp);
        });
        let (code, output) = place.run(&sandbox, container).await;
        let [inheritable, permitted, effective, bounding, ambient] = expected;
        let lines = format!(
            "CapInh:\t{inheritable:016x}\nCapPrm:\t{permitted:016x}\nCapEff:\t{effective:016x}\n\
             CapBnd:\t{bounding:016x}\nCapAmb:\t{ambient:016x}\nNoNewPrivs:\t{}\nSeccomp:\t0\n",
            u8::from(nnp)
        );
        assert_eq!((code, output), (0, lines), "{caps}");
    };
    let chown = 1;
    let net = 1 << 10;
    // Root executes with all that the bounding set leaves.
    let both = json!(["CAP_CHOWN", "CAP_NET_BIND_SERVICE"]);
    let one = json!(["CAP_NET_BIND_SERVICE"]);
    check(
        0,
        json!({"bounding": both, "effective": both, "permitted": both}),
        false,
        [0, chown | net, chown | net, chown | net, 0],
    )
    .await;
    check(0, json!({}), true, [0; 5]).await;
    // Another user keeps what is ambient.
    let all =
        json!({"bounding": both, "effective": one, "permitted": one, "inheritable": one, "ambient": one});
    check(1000, all, true, [net, net, net, chown | net, net]).await;
    check(
        1000,
        json!({"bounding": both, "effective": both, "permitted": both}),
        false,
        [0, 0, 0, chown | net, 0],
    )
    .await;
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_process_hold() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let script = &[
        "sh",
        "-c",
        "ulimit -n; ulimit -Hn; ulimit -c; grep oom /proc/self/status; cat /proc/self/oom_score_adj",
    ];
    let mut container = place.container("c", script);
    container.spec = spec(script, |s| {
        s["process"]["rlimits"] = json!([
            {"type": "RLIMIT_NOFILE", "soft": 77, "hard": 99},
            {"type": "RLIMIT_CORE", "soft": 0, "hard": 0}
        ]);
        s["process"]["oomScoreAdj"] = json!(500);
    });
    let (code, output) = place.run(&sandbox, container).await;
    assert_eq!((code, output.as_str()), (0, "77\n99\n0\n500\n"));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_descriptor_of_the_runtime_reaches_a_container() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    // The third one is that of the directory that `ls` reads.
    let script = "ls /proc/self/fd; ls -l /proc/self/fd/ 2>/dev/null | grep -v -E 'pipe|null|/proc/' | grep -c -- '->'; readlink /proc/1/exe";
    let (_, output) = place.run(&sandbox, place.container("c", &["sh", "-c", script])).await;
    assert_eq!(output, "0\n1\n2\n3\n0\n/bin/busybox\n");
    place.end().await;
}
