use std::sync::mpsc;

use super::fake::{Answer, Called, Fake};
use super::*;

/// The time after which a call is given up, where nothing answers.
const SOON: Duration = Duration::from_millis(50);
const SCOPE: Scope<'_> = Scope {
    unit: "cri-containerd-c.scope",
    slice: "kubepods-podx.slice",
    description: "container c",
    process: 7,
    unified: true,
};

/// A systemd that answers so, and the way to it.
fn systemd(
    patience: Duration,
    answer: impl Fn(&Called) -> Answer + Send + Sync + 'static,
) -> (tempfile::TempDir, Fake, Units) {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(dir.path(), answer);
    let units = Units::at(fake.socket.clone(), patience);
    (dir, fake, units)
}

/// The calls as text.
fn shown(fake: &Fake) -> Vec<String> {
    let one = |called: Called| {
        let properties = called.properties.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{} {}{}", called.method, called.unit, properties.collect::<String>())
    };
    fake.calls().into_iter().map(one).collect()
}

#[test]
fn slices_are_in_slices() {
    let check = |unit: &str, expected: Option<&str>| assert_eq!(above(unit).as_deref(), expected);
    check("kubepods.slice", None);
    check("kubepods-burstable-podx.slice", Some("kubepods-burstable.slice"));
    check("kubepods-x.scope", None);
}

/// The cases of runc's `systemdVersionAtoi`.
#[test]
fn versions_are_numbers() {
    let check = |text: &str, expected: u32| assert_eq!(version(text), expected, "{text}");
    check("\"v245.4-1.fc32\"", 245);
    check("v245-1.fc32", 245);
    check("245-1.fc32", 245);
    check("\"245.4-1.fc32\"", 245);
    check("241-1", 241);
    check("", 0);
    check("x", 0);
}

#[test]
fn units_are_started_changed_and_stopped() {
    let (_dir, fake, units) = systemd(PATIENCE, |_| Answer::Done);
    assert_eq!((units.version().unwrap(), units.version().unwrap()), (252, 252));
    units.start_slice("a-b.slice").unwrap();
    let limits = [
        ("TasksMax", Value::Number(5)),
        ("MemoryMax", Value::Number(u64::MAX)),
        ("AllowedCPUs", Value::Bytes(vec![3, 1])),
        (
            "DeviceAllow",
            Value::Pairs(vec![("char-*".into(), "m".into()), ("/dev/char/1:3".into(), "rwm".into())]),
        ),
    ];
    units.start_scope(&SCOPE, &limits).unwrap();
    units.start_scope(&Scope { unified: false, ..SCOPE }, &[]).unwrap();
    units.set(SCOPE.unit, &limits[..1]).unwrap();
    units.stop(SCOPE.unit).unwrap();
    let counted = |io: &str| {
        format!(
            " MemoryAccounting=true CPUAccounting=true {io}Accounting=true TasksAccounting=true DefaultDependencies=false"
        )
    };
    let scope = "StartTransientUnit cri-containerd-c.scope Description=container c Slice=kubepods-podx.slice Delegate=true PIDs=7";
    let expected = [
        format!(
            "StartTransientUnit a-b.slice Description=libcontainer container a-b Wants=a.slice{}",
            counted("IO")
        ),
        format!(
            "{scope}{} TasksMax=5 MemoryMax=infinity AllowedCPUs=3,1 DeviceAllow=char-* m,/dev/char/1:3 rwm",
            counted("IO")
        ),
        format!("{scope}{}", counted("BlockIO")),
        "SetUnitProperties cri-containerd-c.scope TasksMax=5".to_owned(),
        "StopUnit cri-containerd-c.scope".to_owned(),
        "ResetFailedUnit cri-containerd-c.scope".to_owned(),
    ];
    assert_eq!(shown(&fake), expected);
}

#[test]
fn a_unit_that_is_there_or_gone() {
    let (_dir, fake, units) = systemd(PATIENCE, |called| match &*called.method {
        "StartTransientUnit" => Answer::Error(EXISTS),
        "SetUnitProperties" => Answer::Error("org.freedesktop.DBus.Error.InvalidArgs"),
        _ => Answer::Error(UNKNOWN),
    });
    // A slice may be there; a scope that is may be one that failed, and is asked for once more.
    units.start_slice("a.slice").unwrap();
    let error = units.start_scope(&SCOPE, &[]).unwrap_err().to_string();
    assert_eq!(error, format!("systemd: {EXISTS}: no"));
    units.stop(SCOPE.unit).unwrap();
    let error = units.set(SCOPE.unit, &[]).unwrap_err().to_string();
    assert_eq!(error, "systemd: org.freedesktop.DBus.Error.InvalidArgs: no");
    let methods: Vec<String> = fake.calls().into_iter().map(|called| called.method).collect();
    let (start, reset) = ("StartTransientUnit", "ResetFailedUnit");
    assert_eq!(methods, [start, start, reset, start, "StopUnit", reset, "SetUnitProperties"]);
}

#[test]
fn a_job_that_fails_is_told() {
    let (_dir, fake, units) = systemd(PATIENCE, |called| {
        if called.method == "StartTransientUnit" { Answer::Job("failed") } else { Answer::Done }
    });
    let error = units.start_scope(&SCOPE, &[]).unwrap_err().to_string();
    assert_eq!(error, "systemd: the job of cri-containerd-c.scope ended as failed");
    assert_eq!(fake.calls().last().unwrap().method, "ResetFailedUnit");
}

/// A call that is not answered ends, and holds up nobody else.
#[test]
fn a_systemd_that_does_not_answer() {
    let (_dir, fake, units) = systemd(SOON, |called| match &*called.unit {
        "silent.scope" => Answer::Silence,
        "rude.scope" => Answer::HangUp,
        _ => Answer::Done,
    });
    let error = units.set("silent.scope", &[]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().starts_with("systemd does not answer in 0 s"), "{error}");
    let error = units.set("rude.scope", &[]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    units.set("a.scope", &[]).unwrap();
    assert_eq!(fake.calls().len(), 3);
    assert_eq!(fake.calls()[0].property("TasksMax"), None);
    let none = Units::at("/nowhere/bus".into(), SOON);
    assert_eq!(none.set("a.scope", &[]).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn one_that_waits_holds_up_no_other() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (told, began) = mpsc::channel();
    let told = Mutex::new(told);
    let (_dir, _fake, units) = systemd(PATIENCE, move |called| {
        if called.unit == "slow.scope" {
            told.lock().send(()).unwrap();
            wait.lock().recv().unwrap();
        }
        Answer::Done
    });
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| units.set("slow.scope", &[]));
        began.recv().unwrap();
        units.start_scope(&SCOPE, &[]).unwrap();
        go.send(()).unwrap();
        slow.join().unwrap().unwrap();
    });
    let pool = units.pool.lock();
    assert_eq!((pool.used, pool.kept.len()), (0, 2));
}

/// The bus was started anew meanwhile: a connection that it ended is not used.
#[test]
fn a_connection_that_ended_is_not_used() {
    let (_dir, _fake, units) = systemd(PATIENCE, |_| Answer::Done);
    let (own, other) = UnixStream::pair().unwrap();
    drop(other);
    let bus = Bus { stream: BufReader::new(own), serial: 0, until: (Instant::now(), PATIENCE) };
    assert!(!bus.is_alive());
    units.pool.lock().kept.push(bus);
    units.set("a.scope", &[]).unwrap();
    assert!(units.pool.lock().kept.iter().all(Bus::is_alive));
}
