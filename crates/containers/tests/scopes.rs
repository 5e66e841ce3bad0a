//! Cgroups that systemd makes. There need not be one: another program does to the kernel's cgroups, at its bus, what systemd
//! does.

#[expect(dead_code, reason = "its own crate tells it more")]
#[path = "../../systemd/src/units/fake.rs"]
mod fake;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use component::Shutdown;
use ferrokube_containers::{Cgroups, PidMode, Sandboxes, Settings};
use serde_json::{Value, json};
use systemd::Units;

use self::fake::{Answer, Called, Fake};
use crate::streams::exec;
use crate::support::{LONG, Place, spec, until, wait};

/// The hierarchies of which systemd itself makes the cgroups of its units: its own, version 2, and some controllers.
const OF_SYSTEMD: [&str; 6] = ["systemd", "unified", "memory", "cpu", "cpu,cpuacct", "pids"];

/// The directories of hierarchies: one in version 2.
fn hierarchies(all: &[&str]) -> Vec<PathBuf> {
    let mount = Path::new("/sys/fs/cgroup");
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_owned()];
    }
    let there = all.iter().map(|name| mount.join(name));
    there.filter(|at| at.is_dir() && !at.is_symlink()).collect()
}

/// The part of systemd that makes cgroups.
fn act(called: &Called, slice: &str) -> Answer {
    let own = hierarchies(&OF_SYSTEMD);
    let dirs = own.iter().map(|root| root.join(slice).join(&called.unit));
    match &*called.method {
        "StartTransientUnit" => {
            for dir in dirs {
                fs::create_dir_all(&dir).unwrap();
                let process = called.property("PIDs").unwrap();
                if fs::write(dir.join("cgroup.procs"), process).is_err() {
                    return Answer::Job("failed");
                }
            }
        }
        "StopUnit" => dirs.for_each(|dir| drop(fs::remove_dir(dir))),
        _ => {}
    }
    Answer::Done
}

/// A place whose cgroups are in a slice, and the systemd behind it.
struct Scopes {
    place: Place,
    fake: Fake,
    slice: String,
}

impl Scopes {
    fn new(patience: Duration, act: impl Fn(&Called, &str) -> Answer + Send + Sync + 'static) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let slice = format!("ferrokubetest{}x{count}.slice", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let of_fake = slice.clone();
        let fake = Fake::start(dir.path(), move |called| act(called, &of_fake));
        let place = Place::with(dir, detect(&fake, patience));
        Self { place, fake, slice }
    }

    /// A cgroup as a runtime's caller names it.
    fn cgroup(&self, id: &str) -> Option<String> {
        Some(format!("{}:test:{id}", self.slice))
    }

    fn container(&self, id: &str, args: &[&str], resources: Value) -> ferrokube_containers::ContainerSpec {
        let mut container = self.place.container(id, args);
        container.cgroup = self.cgroup(id);
        container.spec = spec(args, |s| {
            if let (Some(all), Some(more)) = (s["linux"]["resources"].as_object_mut(), resources.as_object())
            {
                all.extend(more.clone());
            }
        });
        container
    }

    async fn sandbox(
        &self,
        id: &str,
        pid: PidMode,
    ) -> ferrokube_containers::Result<ferrokube_containers::Sandbox> {
        let mut sandbox = self.place.sandbox(id);
        sandbox.cgroup = self.cgroup(id);
        sandbox.pid = pid;
        self.place.sandboxes.start(sandbox).await
    }

    /// The scopes that are there in any hierarchy.
    fn left(&self) -> Vec<PathBuf> {
        let all: Vec<PathBuf> = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|e| e.path()).collect();
        let below = all.into_iter().chain([PathBuf::from("/sys/fs/cgroup")]).map(|at| at.join(&self.slice));
        let entries = below.filter_map(|slice| fs::read_dir(slice).ok()).flatten().flatten();
        entries.map(|e| e.path()).filter(|at| at.is_dir()).collect()
    }

    async fn end(self) {
        let slice = self.slice.clone();
        self.place.end().await;
        crate::support::remove_cgroup(&slice);
    }
}

fn detect(fake: &Fake, patience: Duration) -> Cgroups {
    Cgroups::detect_with(Units::at(fake.socket.clone(), patience)).unwrap()
}

/// Checks that a process is in its scope in every hierarchy that there is.
fn check_place(list: &str, own: &str) {
    let lines: Vec<&str> = list.lines().collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with(own)), "not in {own}:\n{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_holds_its_processes_and_limits() {
    let scopes = Scopes::new(LONG, act);
    let sandbox = scopes.sandbox("one", PidMode::Shared).await.unwrap();
    let of = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = |id: &str| format!("/{}/test-{id}.scope", scopes.slice);
    check_place(&of(sandbox.shim_pid()), &own("one"));
    let limits = json!({"memory": {"limit": 64 << 20}, "cpu": {"shares": 512, "quota": 12_345, "period": 100_000},
        "pids": {"limit": 20}});
    // The program's first deed tells where it is: it is never anywhere else.
    let args = &["sh", "-c", "cat /proc/self/cgroup; echo told; sleep 1000"];
    let container = sandbox.create(scopes.container("c", args, limits)).await.unwrap();
    check_place(&of(container.pid()), &own("c"));
    container.start().await.unwrap();
    let words = || scopes.place.output("c");
    until("the program's words", || words().ends_with("told\n")).await;
    check_place(words().trim_end_matches("told\n"), &own("c"));
    let (_, further) = exec(&container, &["sleep", "0"]).await;
    assert_eq!(further, "");
    let (_, further) = exec(&container, &["cat", "/proc/self/cgroup"]).await;
    check_place(&further, &own("c"));
    let stats = container.stats();
    assert_eq!((stats.memory_limit, stats.pids_limit), (Some(64 << 20), Some(20)));
    let changed = json!({"memory": {"limit": 128 << 20}, "pids": {"limit": 30}});
    container.update(&serde_json::from_value(changed).unwrap()).await.unwrap();
    let stats = container.stats();
    assert_eq!((stats.memory_limit, stats.pids_limit), (Some(128 << 20), Some(30)));
    let calls = scopes.fake.calls();
    let found = |method: &str, unit: &str| {
        let found = calls.iter().find(|c| c.method == method && c.unit == unit);
        found.unwrap_or_else(|| panic!("no {method} of {unit} in {calls:?}")).clone()
    };
    let started = found("StartTransientUnit", "test-c.scope");
    let check = |called: &Called, name: &str, expected: &str| {
        assert_eq!(called.property(name), Some(expected), "{name} in {called:?}");
    };
    check(&started, "Slice", &scopes.slice);
    check(&started, "Delegate", "true");
    check(&started, "DefaultDependencies", "false");
    check(&started, "PIDs", &container.pid().to_string());
    check(&started, "CPUQuotaPerSecUSec", "130000");
    check(&started, "TasksMax", "20");
    let memory = if started.property("MemoryMax").is_some() { "MemoryMax" } else { "MemoryLimit" };
    check(&started, memory, &(64 << 20).to_string());
    check(&found("SetUnitProperties", "test-c.scope"), memory, &(128 << 20).to_string());
    check(&found("StartTransientUnit", "test-one.scope"), "PIDs", &sandbox.shim_pid().to_string());
    container.kill(9).await.unwrap();
    wait(&container).await;
    sandbox.delete("c").await.unwrap();
    scopes.place.sandboxes.remove("one").await.unwrap();
    assert!(scopes.left().is_empty(), "{:?}", scopes.left());
    let stopped: Vec<Called> =
        scopes.fake.calls().into_iter().filter(|called| called.method == "StopUnit").collect();
    assert_eq!(stopped.len(), 2, "{stopped:?}");
    scopes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_comes_back_to_scopes() {
    let scopes = Scopes::new(LONG, act);
    let sandbox = scopes.sandbox("one", PidMode::PerContainer).await.unwrap();
    let container = sandbox.create(scopes.container("c", &["sleep", "1000"], json!({}))).await.unwrap();
    container.start().await.unwrap();
    scopes.place.shutdown.stop();
    let state = scopes.place.directory.path().join("pods");
    let shutdown = Shutdown::new();
    let settings = Settings { state, cgroups: detect(&scopes.fake, LONG) };
    let again = Sandboxes::open(settings, &shutdown).unwrap();
    let adopted = again.adopt("one").await.unwrap().container("c").unwrap();
    let changed = json!({"pids": {"limit": 30}});
    adopted.update(&serde_json::from_value(changed).unwrap()).await.unwrap();
    assert_eq!(adopted.stats().pids_limit, Some(30));
    again.remove("one").await.unwrap();
    assert!(scopes.left().is_empty(), "{:?}", scopes.left());
    shutdown.stop();
    scopes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_systemd_that_refuses_or_is_silent_leaves_nothing() {
    let silent = Arc::new(AtomicBool::new(false));
    let told = silent.clone();
    let scopes = Scopes::new(Duration::from_secs(3), move |called, slice| match &*called.method {
        "StartTransientUnit" if called.unit == "test-refused.scope" => {
            Answer::Error("org.freedesktop.DBus.Error.InvalidArgs")
        }
        "StartTransientUnit" if called.unit == "test-failed.scope" => Answer::Job("failed"),
        "StartTransientUnit" if told.load(Ordering::Relaxed) => Answer::Silence,
        _ => act(called, slice),
    });
    let fails = async |id: &str, expected: &str| {
        let error = scopes.sandbox(id, PidMode::PerContainer).await.unwrap_err().to_string();
        assert_eq!(error, format!("cannot start the unit test-{id}.scope: {expected}"));
        assert!(scopes.place.sandboxes.recorded().unwrap().is_empty() && scopes.left().is_empty());
    };
    fails("refused", "systemd: org.freedesktop.DBus.Error.InvalidArgs: no").await;
    fails("failed", "systemd: the job of test-failed.scope ended as failed").await;
    let sandbox = scopes.sandbox("one", PidMode::PerContainer).await.unwrap();
    silent.store(true, Ordering::Relaxed);
    let late = "systemd does not answer in 3 s: see what it waits for by \"systemctl list-jobs\"";
    let error = sandbox.create(scopes.container("c", &["sleep", "1000"], json!({}))).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot start the unit test-c.scope: {late}"));
    assert!(sandbox.containers().is_empty());
    // Others go on, and so does this one when systemd does.
    let other = scopes.place.start("other").await;
    assert!(other.alive());
    silent.store(false, Ordering::Relaxed);
    let container = sandbox.create(scopes.container("c", &["true"], json!({}))).await.unwrap();
    container.start().await.unwrap();
    assert_eq!(wait(&container).await.code, 0);
    let mut odd = scopes.place.sandbox("odd");
    odd.cgroup = Some("x.slice:test".to_owned());
    let error = scopes.place.sandboxes.start(odd).await.unwrap_err().to_string();
    assert!(error.starts_with("expected cgroupsPath to be of format \"slice:prefix:name\""), "{error}");
    scopes.end().await;
}
