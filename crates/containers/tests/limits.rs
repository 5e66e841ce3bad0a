//! Limits that bite: memory, tasks, processors, system calls.

use std::fs;
use std::path::PathBuf;

use ferrokube_containers::Event;
use serde_json::{Value, json};

use crate::streams::exec;
use crate::support::{LONG, Place, spec, until, wait};

/// A file of a container's cgroup in one of the hierarchies.
fn file(place: &Place, id: &str, controller: &str, v1: &str, v2: &str) -> PathBuf {
    let below = format!("{}/{id}", place.cgroup.trim_start_matches('/'));
    let v1 = PathBuf::from("/sys/fs/cgroup").join(controller).join(&below).join(v1);
    if v1.exists() { v1 } else { PathBuf::from("/sys/fs/cgroup").join(below).join(v2) }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_out_is_told_exactly() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let mut events = place.sandboxes.events();
    let args = &["sh", "-c", "head -c 200000000 /dev/zero | tail; echo survived"];
    let make = |id: &str, limit: i64| {
        let mut container = place.container(id, args);
        container.spec = spec(args, |s| {
            s["process"]["args"] =
                json!(["sh", "-c", "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo survived ${#x}"]);
            s["linux"]["resources"]["memory"] = json!({"limit": limit, "swap": limit});
        });
        container
    };
    let container = sandbox.create(make("small", 20 << 20)).await.unwrap();
    container.start().await.unwrap();
    let exit = wait(&container).await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (137, Some(9), true));
    let mut seen = (false, false);
    while seen != (true, true) {
        match tokio::time::timeout(LONG, events.recv()).await.unwrap().unwrap() {
            Event::Oom { container, .. } => seen.0 |= container == "small",
            Event::Exited { exit, .. } => seen.1 |= exit.oom_killed,
            Event::Lost { .. } => unreachable!("the sandbox is there"),
        }
    }
    // The first process is still there when another one asks for memory: that is ended, too.
    assert!(container.stats().oom_kills >= Some(1), "{:?}", container.stats());
    let error = sandbox.create(make("tiny", 4096)).await.unwrap_err();
    assert_eq!(error.to_string(), "container init was OOM-killed (memory limit too low?)");
    let container = sandbox.create(make("large", 900 << 20)).await.unwrap();
    container.start().await.unwrap();
    let exit = wait(&container).await;
    assert_eq!((exit.code, exit.oom_killed), (0, false));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_limits_and_are_updated() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let mut container = place.container("c", &["sleep", "1000"]);
    container.spec = spec(&["sleep", "1000"], |s| {
        let r = &mut s["linux"]["resources"];
        r["cpu"] = json!({"shares": 512, "quota": 20000, "period": 100_000, "cpus": "0"});
        r["memory"] = json!({"limit": 64 << 20});
        r["pids"] = json!({"limit": 10});
    });
    let container = sandbox.create(container).await.unwrap();
    container.start().await.unwrap();
    let read = |controller, v1, v2| {
        fs::read_to_string(file(&place, "c", controller, v1, v2)).unwrap().trim().to_owned()
    };
    let cpu = read("cpu", "cpu.cfs_quota_us", "cpu.max");
    assert!(cpu == "20000" || cpu == "20000 100000", "{cpu}");
    assert_eq!(read("cpuset", "cpuset.cpus", "cpuset.cpus"), "0");
    let (_, processors) = exec(&container, &["nproc"]).await;
    assert_eq!(processors, "1\n");
    // The eleventh task is refused.
    let (code, output) = exec(
        &container,
        &["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 100 >/dev/null 2>&1 & done; echo all"],
    )
    .await;
    assert!(code != 0 && output.contains("can't fork"), "{code} {output}");
    let stats = container.stats();
    assert_eq!((stats.pids_limit, stats.memory_limit), (Some(10), Some(64 << 20)));
    assert!(
        stats.pids.unwrap() >= 1 && stats.memory_usage.unwrap() > 0 && stats.cpu_usage.unwrap() > 0,
        "{stats:?}"
    );
    assert!(stats.memory_working_set.unwrap() <= stats.memory_usage.unwrap());
    let update = |value: Value| serde_json::from_value(value).unwrap();
    container.update(&update(json!({"memory": {"limit": 128 << 20, "swap": 128 << 20}, "cpu": {"quota": 50000, "period": 100_000}}))).await.unwrap();
    assert_eq!(container.stats().memory_limit, Some(128 << 20));
    container.update(&update(json!({"memory": {"limit": 32 << 20, "swap": 32 << 20}}))).await.unwrap();
    assert_eq!(container.stats().memory_limit, Some(32 << 20));
    place.end().await;
}

/// A program with the number of a call that busybox can make, and what becomes of it.
async fn call(place: &Place, seccomp: Value, nnp: bool, script: &str) -> (i32, Option<i32>, String) {
    let sandbox = place.start("one").await;
    let args = &["sh", "-c", script];
    let mut container = place.container("c", args);
    container.spec = spec(args, |s| {
        s["linux"]["seccomp"] = seccomp;
        s["process"]["noNewPrivileges"] = json!(nnp);
    });
    let _ = fs::remove_file(place.log("c"));
    let created = sandbox.create(container).await.unwrap();
    created.start().await.unwrap();
    let exit = wait(&created).await;
    place.sandboxes.remove("one").await.unwrap();
    (exit.code, exit.signal, place.output("c"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_seccomp_action_acts() {
    let place = Place::new();
    let profile = |action: &str, errno: Option<u32>| {
        let mut rule = json!({"names": ["mkdir", "mkdirat"], "action": action});
        if let Some(errno) = errno {
            rule["errnoRet"] = json!(errno);
        }
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})
    };
    let script = "mkdir /tmp/x; echo code $?; grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status";
    for nnp in [false, true] {
        let lines = format!("NoNewPrivs:\t{}\nSeccomp:\t2\n", u8::from(nnp));
        let check = async |action: &str, errno: Option<u32>, expected: &str| {
            let (code, signal, output) = call(&place, profile(action, errno), nnp, script).await;
            assert_eq!((code, signal), (0, None), "{action}: {output}");
            assert!(output.contains(expected) && output.ends_with(&lines), "{action}: {output}");
        };
        check("SCMP_ACT_ERRNO", None, "Operation not permitted\ncode 1").await;
        check("SCMP_ACT_ERRNO", Some(28), "No space left on device\ncode 1").await;
        check("SCMP_ACT_KILL_PROCESS", None, "Bad system call\ncode 159").await;
        check("SCMP_ACT_KILL_THREAD", None, "Bad system call\ncode 159").await;
        check("SCMP_ACT_KILL", None, "Bad system call\ncode 159").await;
        check("SCMP_ACT_TRAP", None, "Bad system call\ncode 159").await;
        // Without a tracer the call does not exist.
        check("SCMP_ACT_TRACE", Some(1), "Function not implemented\ncode 1").await;
        check("SCMP_ACT_LOG", None, "code 0").await;
        fs::remove_dir(place.root().join("tmp/x")).unwrap();
    }
    // A filter that allows what is named alone; the program itself needs some.
    let allowed = json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "syscalls": [{
        "names": ["execve", "read", "write", "writev", "close", "fstat", "mmap", "mprotect", "munmap", "brk", "rt_sigaction",
            "rt_sigprocmask", "ioctl", "access", "faccessat2", "exit", "exit_group", "arch_prctl", "set_tid_address",
            "set_robust_list", "rseq", "prlimit64", "readlinkat", "readlink", "getrandom", "prctl", "getuid", "geteuid",
            "getgid", "getegid", "getppid", "getpid", "getcwd", "newfstatat", "stat", "fcntl", "dup2", "dup3", "sendmsg", "recvmsg",
            "close_range", "setgroups", "setresgid", "setresuid", "capset", "umask", "openat2", "openat", "fchdir", "lseek", "uname", "poll", "rt_sigreturn", "sigaltstack"],
        "action": "SCMP_ACT_ALLOW"
    }]});
    let (code, _, output) =
        call(&place, allowed, true, "echo before; cd /tmp 2>/dev/null || echo refused").await;
    assert_eq!((code, output.as_str()), (0, "before\nrefused\n"));
    let notify = json!({"defaultAction": "SCMP_ACT_NOTIFY"});
    let sandbox = place.start("two").await;
    let mut container = place.container("n", &["true"]);
    container.spec = spec(&["true"], |s| s["linux"]["seccomp"] = notify);
    let error = sandbox.create(container).await.unwrap_err().to_string();
    assert_eq!(error, "the seccomp action SCMP_ACT_NOTIFY is not supported");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_process_has_the_filter_and_the_cgroup() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let mut container = place.container("c", &["sleep", "1000"]);
    container.spec = spec(&["sleep", "1000"], |s| {
        s["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]});
    });
    let container = sandbox.create(container).await.unwrap();
    container.start().await.unwrap();
    let (code, output) = exec(&container, &["mkdir", "/tmp/x"]).await;
    assert!(code == 1 && output.contains("No space left"), "{code} {output}");
    let (_, cgroups) = exec(&container, &["cat", "/proc/self/cgroup"]).await;
    let own = format!("{}/c", place.cgroup);
    let hierarchies = cgroups.lines().filter(|l| !l.starts_with("0::/") || !l.ends_with(":/"));
    for line in hierarchies {
        assert!(line.ends_with(&own), "{cgroups}");
    }
    until("one process", || container.processes().len() == 1).await;
    place.end().await;
}

/// Version 2 lets no process into a cgroup that gives controllers to others below it.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_gives_controllers_away_takes_further_processes() {
    let place = Place::new();
    let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let sandbox = place.start("one").await;
    let give = "cd /sys/fs/cgroup; if [ -e cgroup.controllers ]; then mkdir init && echo 1 >init/cgroup.procs \\
        && echo +memory +pids >cgroup.subtree_control || exit 1; fi; echo given; exec sleep 1000";
    let args = &["sh", "-c", give];
    let mut container = place.container("c", args);
    container.spec = spec(args, |s| {
        s["process"]["args"] = json!(args);
        for mount in s["mounts"].as_array_mut().unwrap() {
            if mount["type"] == "cgroup" {
                mount["options"] = json!(["nosuid", "noexec", "nodev", "relatime", "rw"]);
            }
        }
    });
    let container = sandbox.create(container).await.unwrap();
    container.start().await.unwrap();
    until("the container has given", || place.output("c") == "given\n").await;
    let (code, output) = exec(&container, &["cat", "/proc/self/cgroup"]).await;
    assert_eq!(code, 0, "{output}");
    let own = if unified { format!("{}/c/init", place.cgroup) } else { format!("{}/c", place.cgroup) };
    assert!(output.lines().any(|line| line.ends_with(&own)), "{output}");
    place.end().await;
}
