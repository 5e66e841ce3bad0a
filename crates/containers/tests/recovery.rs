//! The runtime ends and comes back.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use component::Shutdown;
use ferrokube_containers::{Cgroups, Error, Sandboxes, Settings, State};

use crate::support::{LONG, Place, until, wait};

/// A second runtime over the same directory.
fn again(place: &Place) -> (Sandboxes, Shutdown) {
    let shutdown = Shutdown::new();
    let settings =
        Settings { state: place.directory.path().join("pods"), cgroups: Cgroups::detect().unwrap() };
    (Sandboxes::open(settings, &shutdown).unwrap(), shutdown)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_comes_back_to_the_exact_state() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let make = async |id: &str, script: &str| {
        sandbox.create(place.container(id, &["sh", "-c", script])).await.unwrap()
    };
    make("created", "exit 1").await;
    let running = make("running", "while ! test -e /tmp/stop; do sleep 0.02; done; exit 21").await;
    let ended = make("ended", "exit 22").await;
    let meanwhile = make("meanwhile", "while ! test -e /tmp/meanwhile; do sleep 0.02; done; exit 23").await;
    for container in [&running, &ended, &meanwhile] {
        container.start().await.unwrap();
    }
    wait(&ended).await;
    let pid = running.pid();
    // The first runtime is gone: nobody hears of the end that comes now.
    place.shutdown.stop();
    fs::write(place.root().join("tmp/meanwhile"), "").unwrap();
    let record = place.directory.path().join("pods/one/exits");
    until("the exit record", || fs::read_dir(&record).unwrap().count() >= 2).await;
    let (sandboxes, shutdown) = again(&place);
    let adopted = sandboxes.adopt("one").await.unwrap();
    assert!(adopted.alive());
    assert_eq!(adopted.spec(), sandbox.spec());
    let get = |id: &str| adopted.container(id).unwrap();
    assert_eq!(get("created").state(), State::Created);
    assert_eq!(get("running").state(), State::Running);
    assert_eq!(get("running").pid(), pid);
    assert_eq!(wait(&get("ended")).await.code, 22);
    assert_eq!(wait(&get("meanwhile")).await.code, 23);
    let (_, text) = crate::streams::exec(&get("running"), &["cat", "/proc/1/comm"]).await;
    assert_eq!(text, "sh\n");
    get("created").start().await.unwrap();
    assert_eq!(wait(&get("created")).await.code, 1);
    fs::write(place.root().join("tmp/stop"), "").unwrap();
    assert_eq!(wait(&get("running")).await.code, 21);
    sandboxes.remove("one").await.unwrap();
    assert!(sandboxes.recorded().unwrap().is_empty());
    shutdown.stop();
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_is_killed_takes_its_containers_along() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox.create(place.container("c", &["sleep", "1000"])).await.unwrap();
    container.start().await.unwrap();
    let shim = rustix::process::Pid::from_raw(sandbox.shim_pid()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    assert_eq!(wait(&container).await.code, 255);
    assert!(!sandbox.alive() && container.processes().is_empty());
    let error = sandbox.create(place.container("d", &["true"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the shim of sandbox \"one\" is gone");
    place.end().await;
}

/// The runtime of a child process, which is killed at some moment: starts a sandbox, containers and further processes.
/// It is this test, run again with a directory in the environment.
#[tokio::test(flavor = "multi_thread")]
async fn runtime_that_is_killed() {
    let Ok(directory) = std::env::var("FERROKUBE_CONTAINERS_VICTIM") else { return };
    let shutdown = Shutdown::new();
    let settings =
        Settings { state: Path::new(&directory).join("pods"), cgroups: Cgroups::detect().unwrap() };
    let sandboxes = Sandboxes::open(settings, &shutdown).unwrap();
    let place = Place::at(Path::new(&directory), sandboxes);
    for round in 0.. {
        let sandbox = place.sandboxes.start(place.sandbox(&format!("s{round}"))).await.unwrap();
        for number in 0..3 {
            let id = format!("c{round}-{number}");
            let script = format!("exit {}", 40 + number);
            let args: [&str; 3] = ["sh", "-c", if number == 0 { "sleep 1000" } else { &script }];
            let container = sandbox.create(place.container(&id, &args)).await.unwrap();
            container.start().await.unwrap();
            if number == 0 {
                crate::streams::exec(&container, &["true"]).await;
            } else {
                wait(&container).await;
            }
        }
        place.sandboxes.remove(sandbox.id()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_may_be_killed_at_any_moment() {
    let kills: u32 = std::env::var("FERROKUBE_KILLS").ok().and_then(|k| k.parse().ok()).unwrap_or(12);
    let place = Place::new();
    for kill in 0..kills {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "recovery::runtime_that_is_killed"])
            .env("FERROKUBE_CONTAINERS_VICTIM", place.directory.path())
            .env("FERROKUBE_CONTAINERS_CGROUP", &place.cgroup)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pods = place.directory.path().join("pods");
        until("the first sandbox", || fs::read_dir(&pods).is_ok_and(|mut d| d.next().is_some())).await;
        // Moments are spread over a round, which takes some 50 ms on an idle machine.
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(kill * 7 % 60))).await;
        victim.kill().unwrap();
        victim.wait().unwrap();
        let (sandboxes, shutdown) = again(&place);
        for (id, adopted) in sandboxes.adopt_all().await.unwrap() {
            let Ok(sandbox) = adopted else {
                sandboxes.remove(&id).await.unwrap();
                continue;
            };
            for container in sandbox.containers() {
                let number: i32 = container.id().rsplit('-').next().unwrap().parse().unwrap();
                match container.state() {
                    State::Created => container.start().await.unwrap(),
                    // Its end may have been asked for before the kill: then it ends meanwhile, and so does the other.
                    State::Running if number == 0 => {
                        let spec = crate::streams::exec_spec(&["true"]);
                        match container.exec(spec).await {
                            Ok(exec) => assert!([0, 137].contains(&crate::streams::ended(exec).await.0)),
                            Err(error) => {
                                assert!(matches!(error, Error::State { .. }), "{error}");
                                wait(&container).await;
                            }
                        }
                    }
                    _ => {}
                }
                if number == 0 {
                    // Its end may have been asked for before the kill.
                    let _ = container.kill(9).await;
                }
                let expected = if number == 0 { 137 } else { 40 + number };
                assert_eq!(wait(&container).await.code, expected, "{}", container.id());
            }
            sandboxes.remove(&id).await.unwrap();
        }
        assert!(sandboxes.recorded().unwrap().is_empty());
        shutdown.stop();
        let left = processes_below(place.directory.path());
        assert!(left.is_empty(), "{left:?} are left");
    }
    place.end().await;
}

/// The processes that have a root or files below a directory.
fn processes_below(directory: &Path) -> Vec<String> {
    let mut out = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        let fds = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        if fds.filter_map(|f| fs::read_link(f.path()).ok()).any(|f| f.starts_with(directory)) {
            out.push(format!(
                "{pid} {}",
                fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim()
            ));
        }
    }
    out
}

fn counts(place: &Place) -> [usize; 4] {
    let own = fs::read_dir("/proc/self/fd").unwrap().count();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|l| l.contains(place.directory.path().to_str().unwrap())).count();
    // The one hierarchy of version 2, or those of version 1 below it.
    let top = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(top).unwrap().flatten().map(|hierarchy| hierarchy.path());
    let cgroups = below
        .chain([top.to_owned()])
        .filter_map(|h| fs::read_dir(h.join(place.cgroup.trim_start_matches('/'))).ok())
        .map(|d| d.flatten().filter(|e| e.file_type().unwrap().is_dir()).count())
        .sum();
    [own, mounts, cgroups, processes_below(place.directory.path()).len()]
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_containers_and_sandboxes() {
    // Other tests of this process open and close descriptors, too: the counting is done in a process of its own.
    if std::env::var_os("FERROKUBE_CONTAINERS_COUNT").is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "recovery::nothing_is_left_of_containers_and_sandboxes"]);
        assert!(alone.env("FERROKUBE_CONTAINERS_COUNT", "1").status().unwrap().success());
        return;
    }
    let place = Place::new();
    let round = async || {
        let sandbox = place.start("one").await;
        let sleeper = sandbox.create(place.container("s", &["sleep", "1000"])).await.unwrap();
        sleeper.start().await.unwrap();
        crate::streams::exec(&sleeper, &["true"]).await;
        let attached = sleeper.attach(true).await.unwrap();
        place.run(&sandbox, place.container("c", &["true"])).await;
        assert!(sandbox.create(place.container("n", &["nosuch"])).await.is_err());
        drop(attached);
        let netns = sandbox.open_netns().unwrap();
        assert!(rustix::fs::fstat(netns.as_fd()).is_ok());
        place.sandboxes.remove("one").await.unwrap();
    };
    round().await;
    let before = counts(&place);
    for _ in 0..10 {
        round().await;
    }
    // Tasks of the last round end by themselves. Those of the first may have been counted before their end, so less than
    // then is right; what each of ten rounds left would be more.
    let mut now = counts(&place);
    let end = tokio::time::Instant::now() + LONG;
    while now.iter().zip(&before).any(|(now, before)| now > before) {
        assert!(tokio::time::Instant::now() < end, "{now:?} are left, {before:?} were after the first round");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        now = counts(&place);
    }
    place.end().await;
}
