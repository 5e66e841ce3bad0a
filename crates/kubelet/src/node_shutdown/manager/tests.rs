use client::Recorder;
use k8s_openapi::api::core::v1::{Event, Pod};

use parking_lot::Mutex;
use serde_json::json;
use systemd::BusError;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::plan::two_periods;
use super::*;
use crate::pods::spec::SYSTEM_CRITICAL;

/// The questions to a login manager, and its answers.
#[derive(Default)]
struct State {
    delay: u64,
    /// The delay after its settings were overridden.
    after: u64,
    preparing: bool,
    log: Vec<String>,
    locks: usize,
    signals: Option<mpsc::UnboundedSender<bool>>,
}

#[derive(Clone, Default)]
struct Machine(Arc<Mutex<State>>);

struct Fake {
    machine: Machine,
    signals: mpsc::UnboundedReceiver<bool>,
    heard: Option<bool>,
}

/// A lock that is counted while it is held.
struct Lock(Machine);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.0.lock().locks -= 1;
    }
}

impl Machine {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().log.push(what.into());
    }

    fn signal(&self, down: bool) {
        let mut state = self.0.lock();
        state.preparing = down;
        if let Some(signals) = &state.signals {
            signals.send(down).unwrap();
        }
    }

    /// Ends its connection.
    fn hang_up(&self) {
        self.0.lock().signals = None;
    }
}

impl Dial for Machine {
    type Logind = Fake;

    async fn dial(&self) -> Result<Fake, LogindError> {
        self.note("dial");
        let (sender, signals) = mpsc::unbounded_channel();
        self.0.lock().signals = Some(sender);
        Ok(Fake { machine: self.clone(), signals, heard: None })
    }
}

impl Logind for Fake {
    type Lock = Lock;

    async fn subscribe(&mut self) -> Result<(), LogindError> {
        self.machine.note("subscribe");
        Ok(())
    }

    async fn inhibit_delay(&mut self) -> Result<Duration, LogindError> {
        let state = self.machine.0.lock();
        let overridden = state.log.iter().any(|what| what.starts_with("override"));
        Ok(Duration::from_secs(if overridden { state.after } else { state.delay }))
    }

    async fn override_delay(&mut self, delay: Duration) -> Result<(), LogindError> {
        self.machine.note(format!("override {}", delay.as_secs()));
        Ok(())
    }

    async fn reload(&mut self) -> Result<(), LogindError> {
        self.machine.note("reload");
        Ok(())
    }

    async fn inhibit(&mut self) -> Result<Lock, LogindError> {
        self.machine.note("inhibit");
        self.machine.0.lock().locks += 1;
        Ok(Lock(self.machine.clone()))
    }

    async fn preparing(&mut self) -> Result<bool, LogindError> {
        Ok(self.machine.0.lock().preparing)
    }

    async fn wait(&mut self) -> Result<(), LogindError> {
        match self.signals.recv().await {
            Some(down) => {
                self.heard = Some(down);
                Ok(())
            }
            None => Err(LogindError::Bus(BusError::Flooded)),
        }
    }

    async fn take(&mut self) -> Result<Option<bool>, LogindError> {
        Ok(self.heard.take())
    }
}

/// A node whose Pods end when a test says so.
struct Node {
    machine: Machine,
    workers: Arc<Workers>,
    going_down: Arc<GoingDown>,
    metrics: Metrics,
    events: mpsc::Receiver<Event>,
    dir: tempfile::TempDir,
    task: Option<JoinHandle<()>>,
}

impl Node {
    fn new(delay: u64, after: u64) -> (Self, PodRecorder) {
        let (recorder, events) = Recorder::channel("kubelet", Clock::system());
        let machine = Machine::default();
        machine.0.lock().delay = delay;
        machine.0.lock().after = after;
        let node = Self {
            machine,
            workers: Arc::default(),
            going_down: Arc::default(),
            metrics: Metrics::default(),
            events,
            dir: tempfile::tempdir().unwrap(),
            task: None,
        };
        (node, PodRecorder(recorder))
    }

    fn shutdown(&self, recorder: PodRecorder, periods: &[GracePeriod]) -> NodeShutdown {
        let given = Given {
            clock: Clock::system(),
            node: "n".into(),
            workers: self.workers.clone(),
            recorder,
            metrics: self.metrics.clone(),
            going_down: self.going_down.clone(),
        };
        NodeShutdown::new(given, periods, self.dir.path()).unwrap()
    }

    /// One that follows its login manager.
    fn start(delay: u64, periods: &[GracePeriod]) -> Self {
        let (mut node, recorder) = Self::new(delay, delay);
        let (shutdown, machine) = (node.shutdown(recorder, periods), node.machine.clone());
        node.task = Some(tokio::spawn(async move { shutdown.keep(&machine).await }));
        node
    }

    fn pod(&self, name: &str, priority: i32, grace: Option<i64>) -> Arc<Worker> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"containers": [], "priority": priority, "terminationGracePeriodSeconds": grace}}))
        .unwrap();
        let worker = Worker::new(Arc::new(pod));
        self.workers.put(&worker);
        worker
    }

    /// Lets everything happen that needs no time.
    async fn settle(&self) {
        sleep(Duration::from_millis(1)).await;
    }

    fn events(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            all.push(format!("{} {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
        }
        all
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Upstream's `TestManager`: which delay is asked for, and which grace each Pod has.
#[tokio::test(start_paused = true)]
async fn pods_have_the_graces_of_upstreams_cases() {
    type Case<'a> =
        (&'a [(&'a str, i32, Option<i64>)], (u64, u64), (u64, u64), bool, Result<&'a [i64], &'a str>);
    let (normal, critical) = (("normal", 0, None), ("critical", SYSTEM_CRITICAL, None));
    let (short, critical_short) = (("short", 0, Some(2)), ("critical-short", SYSTEM_CRITICAL, Some(2)));
    let long = ("long", 0, Some(1000));
    let both: &[_] = &[normal, critical];
    let unchanged = "node shutdown manager was timed out after 5 attempts waiting for logind InhibitDelayMaxSec to update to";
    let five = format!("{unchanged} 30s (ShutdownGracePeriod), current value is 5s");
    let zero = format!("{unchanged} 5s (ShutdownGracePeriod), current value is 0s");
    let cases: [Case<'_>; 8] = [
        (both, (30, 10), (40, 40), false, Ok(&[20, 10])),
        (&[normal, critical, short, critical_short], (30, 10), (40, 40), false, Ok(&[20, 10, 2, 2])),
        (
            &[normal, critical, short, critical_short, long],
            (30, 10),
            (40, 40),
            false,
            Ok(&[20, 10, 2, 2, 20]),
        ),
        (both, (30, 0), (40, 40), false, Ok(&[30, 0])),
        (both, (30, 10), (5, 30), true, Ok(&[20, 10])),
        (both, (30, 10), (5, 5), true, Err(&five)),
        (both, (5, 5), (0, 0), true, Err(&zero)),
        (both, (5, 5), (5, 5), false, Ok(&[0, 5])),
    ];
    for (pods, (total, critical), (delay, after), overridden, expected) in cases {
        let (node, recorder) = Node::new(delay, after);
        let periods = two_periods(Duration::from_secs(total), Duration::from_secs(critical));
        let shutdown = node.shutdown(recorder, &periods);
        let workers: Vec<_> =
            pods.iter().map(|(name, priority, grace)| node.pod(name, *priority, *grace)).collect();
        let mut logind = node.machine.dial().await.unwrap();
        let begun = shutdown.begin(&mut logind).await;
        let log = node.machine.0.lock().log.clone();
        assert_eq!(log.contains(&format!("override {total}")), overridden, "{log:?}");
        assert_eq!(log.contains(&"reload".to_owned()), overridden, "{log:?}");
        match (begun, expected) {
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
            (Ok(lock), Ok(expected)) => {
                assert!(!node.going_down.is() && node.machine.0.lock().locks == 1);
                for worker in &workers {
                    // These end as soon as they are told to.
                    let worker = worker.clone();
                    tokio::spawn(async move {
                        let _ = worker.grace.subscribe().wait_for(Option::is_some).await;
                        worker.clean();
                    });
                }
                assert!(!shutdown.shut_down(&mut logind, lock).await.unwrap());
                let graces: Vec<_> = workers.iter().map(|w| (*w.grace.borrow()).unwrap()).collect();
                // A worker never has less than a second, whatever it is told.
                let expected: Vec<_> = expected.iter().map(|grace| (*grace).max(1)).collect();
                assert_eq!(graces, expected);
                assert!(node.going_down.is() && node.machine.0.lock().locks == 0);
                let failed = workers[0].state.lock().failed.clone().unwrap();
                assert_eq!((failed.reason.as_str(), failed.message.as_str()), (REASON, MESSAGE));
                assert_eq!(failed.disruption.as_deref(), Some(MESSAGE));
            }
            (got, _) => panic!("{pods:?}: {:?}", got.err()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn groups_end_one_after_the_other_and_the_machine_waits() {
    let periods = two_periods(Duration::from_secs(30), Duration::from_secs(10));
    let mut node = Node::start(40, &periods);
    let (normal, critical) = (node.pod("normal", 0, None), node.pod("critical", SYSTEM_CRITICAL, None));
    node.settle().await;
    assert_eq!(node.machine.0.lock().log, ["dial", "subscribe", "inhibit"]);
    node.machine.signal(true);
    node.settle().await;
    assert!(node.going_down.is());
    assert!(!normal.to_run() && critical.to_run());
    sleep(Duration::from_millis(19_990)).await;
    assert!(critical.to_run(), "the first group has its 20 s");
    sleep(Duration::from_millis(20)).await;
    assert!(!critical.to_run() && node.machine.0.lock().locks == 1);
    critical.clean();
    node.settle().await;
    assert_eq!(node.machine.0.lock().locks, 0, "nobody is waited for any more");
    assert_eq!(node.events(), ["Shutdown Shutdown manager detected shutdown event"]);
    let mut page = component::metrics::Page::default();
    node.metrics.write(&mut page);
    let text = page.text();
    assert!(
        !text.contains("shutdown_start_time_seconds 0\n") && !text.contains("shutdown_end_time_seconds 0\n")
    );
    assert!(node.dir.path().join("graceful_node_shutdown_state").exists());
}

#[tokio::test(start_paused = true)]
async fn a_group_without_pods_takes_no_time() {
    let all: Vec<_> =
        [(1, 10), (2, 20), (3, 30)].map(|(priority, seconds)| GracePeriod { priority, seconds }).into();
    let node = Node::start(100, &all);
    let last = node.pod("last", 3, None);
    node.settle().await;
    node.machine.signal(true);
    node.settle().await;
    assert!(!last.to_run());
    sleep(Duration::from_millis(29_990)).await;
    assert_eq!(node.machine.0.lock().locks, 1);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(node.machine.0.lock().locks, 0, "its volumes were waited for as long as it has");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_spares_the_rest() {
    let periods = two_periods(Duration::from_secs(30), Duration::from_secs(10));
    let mut node = Node::start(40, &periods);
    let (normal, critical) = (node.pod("normal", 0, None), node.pod("critical", SYSTEM_CRITICAL, None));
    node.settle().await;
    node.machine.signal(true);
    sleep(Duration::from_secs(5)).await;
    node.machine.signal(false);
    sleep(Duration::from_mins(1)).await;
    assert!(!normal.to_run() && critical.to_run() && !node.going_down.is());
    assert_eq!(node.machine.0.lock().locks, 1, "the next shutdown waits again");
    // One that is called off after the Pods have ended.
    critical.clean();
    normal.clean();
    node.machine.signal(true);
    node.settle().await;
    assert!(node.going_down.is() && node.machine.0.lock().locks == 0);
    node.machine.signal(false);
    node.settle().await;
    assert!(!node.going_down.is() && node.machine.0.lock().locks == 1);
    let (on, off) = (
        "Shutdown Shutdown manager detected shutdown event",
        "Shutdown Shutdown manager detected shutdown cancellation",
    );
    assert_eq!(node.events(), [on, off, on, off]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_anew() {
    let periods = two_periods(Duration::from_secs(30), Duration::from_secs(10));
    let node = Node::start(40, &periods);
    let normal = node.pod("normal", 0, None);
    for dials in 1..=3 {
        node.settle().await;
        let seen = || {
            let state = node.machine.0.lock();
            (state.log.iter().filter(|what| *what == "dial").count(), state.locks)
        };
        assert_eq!(seen(), (dials, 1));
        node.machine.hang_up();
        sleep(Duration::from_secs(3)).await;
    }
    // The machine goes down while nobody listens.
    node.machine.0.lock().preparing = true;
    node.machine.hang_up();
    sleep(Duration::from_secs(3)).await;
    assert!(node.going_down.is() && !normal.to_run());
    node.machine.0.lock().preparing = false;
    node.machine.hang_up();
    sleep(Duration::from_mins(2)).await;
    assert!(!node.going_down.is() && node.machine.0.lock().locks == 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_while_pods_end_costs_them_nothing() {
    let periods = two_periods(Duration::from_secs(30), Duration::from_secs(10));
    let node = Node::start(40, &periods);
    let critical = node.pod("critical", SYSTEM_CRITICAL, None);
    node.pod("normal", 0, None);
    node.settle().await;
    node.machine.signal(true);
    node.settle().await;
    node.machine.hang_up();
    sleep(Duration::from_secs(21)).await;
    assert!(!critical.to_run() && node.machine.0.lock().locks == 1);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(node.machine.0.lock().locks, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_in_its_grace_is_told_of() {
    let mut node = Node::start(100, &two_periods(Duration::from_mins(1), Duration::ZERO));
    node.pod("short", 0, Some(2));
    node.settle().await;
    node.machine.signal(true);
    sleep(Duration::from_secs(11)).await;
    let exceeded =
        "ExceededGracePeriod Container runtime did not kill the pod within specified grace period.";
    assert!(node.events().iter().any(|event| event == exceeded));
}

#[test]
fn without_periods_nothing_is_waited_for() {
    let (node, recorder) = Node::new(0, 0);
    let given = Given {
        clock: Clock::system(),
        node: "n".into(),
        workers: node.workers.clone(),
        recorder,
        metrics: node.metrics.clone(),
        going_down: node.going_down.clone(),
    };
    assert!(
        NodeShutdown::new(given, &two_periods(Duration::ZERO, Duration::ZERO), node.dir.path()).is_none()
    );
}
