use serde_json::json;

use super::*;
use crate::enforcement::{Enforcement, MemoryQos};

/// A directory that looks like the machine's hierarchy: every file that is written is there.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(unified: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if unified {
            std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids hugetlb").unwrap();
        } else {
            for controller in ["cpu", "memory", "pids", "hugetlb"] {
                std::fs::create_dir(dir.path().join(controller)).unwrap();
            }
        }
        Self(dir)
    }

    fn cgroups(&self, limits: Limits) -> Cgroups {
        let unified = is_unified(self.0.path());
        let limits = Limits { unified, page_sizes: vec![2 << 20], ..limits };
        Cgroups::at(self.0.path().to_owned(), "/", CgroupDriver::Cgroupfs, limits)
    }

    fn make(&self, dir: &str, files: &[&str]) {
        let dir = self.0.path().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        for file in files {
            std::fs::write(dir.join(file), "").unwrap();
        }
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.path().join(file)).unwrap_or_else(|_| "-".to_owned())
    }
}

fn pod(class: &str, memory: &str, hugepages: &str) -> Arc<Pod> {
    let resources = json!({"requests": {"cpu": "1", "memory": memory, "hugepages-2Mi": hugepages}, "limits": {"cpu": "2"}});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"qosClass": class}}))
    .unwrap();
    Arc::new(pod)
}

fn all_pods() -> PodCgroup {
    PodCgroup {
        shares: 2048,
        memory: Some(1 << 30),
        pids: Some(999),
        hugepages: [(2 << 20, 4 << 20)].into(),
        ..PodCgroup::default()
    }
}

#[test]
fn all_pods_have_what_the_node_gives_in_v1() {
    let fixture = Fixture::new(false);
    fixture.make("hugetlb/kubepods/burstable/podu", &["hugetlb.2MB.limit_in_bytes"]);
    fixture.make("hugetlb/kubepods", &["hugetlb.2MB.limit_in_bytes"]);
    fixture.make("hugetlb/kubepods/burstable", &["hugetlb.2MB.limit_in_bytes"]);
    let by = Enforcement { cpu_period: Some(20_000), pod_pids_limit: Some(7), ..Enforcement::default() };
    let cgroups = fixture.cgroups(Limits { by, ..Limits::default() });
    cgroups.ensure_root(2000).unwrap();
    assert_eq!(fixture.read("cpu/kubepods/cpu.shares"), "2048");
    assert_eq!(fixture.read("cpu/kubepods/besteffort/cpu.shares"), "2");
    assert_eq!(
        fixture.read("hugetlb/kubepods/burstable/hugetlb.2MB.limit_in_bytes"),
        (1_u64 << 62).to_string()
    );
    cgroups.limit_pods(&all_pods()).unwrap();
    assert_eq!(fixture.read("memory/kubepods/memory.limit_in_bytes"), "1073741824");
    assert_eq!(fixture.read("pids/kubepods/pids.max"), "999");
    assert_eq!(fixture.read("hugetlb/kubepods/hugetlb.2MB.limit_in_bytes"), "4194304");
    fixture.make("cpu/kubepods/burstable/podu", &["cpu.cfs_quota_us"]);
    cgroups.ensure(&pod("Burstable", "1Gi", "2Mi"), false).unwrap();
    let of_pod = |file: &str| {
        let (controller, _) = file.split_once('.').unwrap();
        fixture.read(&format!("{controller}/kubepods/burstable/podu/{file}"))
    };
    assert_eq!((of_pod("cpu.shares"), of_pod("cpu.cfs_quota_us")), ("1024".into(), "40000".into()));
    assert_eq!((of_pod("cpu.cfs_period_us"), of_pod("pids.max")), ("20000".into(), "7".into()));
    assert_eq!(of_pod("hugetlb.2MB.limit_in_bytes"), "2097152");
    assert_eq!(cgroups.name_of_pods(), "[\"kubepods\"]");
}

#[test]
fn all_pods_have_what_the_node_gives_in_v2() {
    let fixture = Fixture::new(true);
    let qos = MemoryQos { throttling: 0.9, reserves: true };
    let by = Enforcement { memory_qos: Some(qos), cpu_period: None, ..Enforcement::default() };
    let cgroups = fixture.cgroups(Limits { by, ..Limits::default() });
    cgroups.ensure_root(2000).unwrap();
    fixture.make("kubepods", &["hugetlb.2MB.max"]);
    cgroups.limit_pods(&all_pods()).unwrap();
    let of_pods = |file: &str| fixture.read(&format!("kubepods/{file}"));
    assert_eq!((of_pods("memory.max"), of_pods("pids.max")), ("1073741824".into(), "999".into()));
    assert_eq!((of_pods("hugetlb.2MB.max"), of_pods("cpu.weight")), ("4194304".into(), "79".into()));
    cgroups.ensure(&pod("Burstable", "1Gi", "2Mi"), false).unwrap();
    let of_pod = |file: &str| fixture.read(&format!("kubepods/burstable/podu/{file}"));
    assert_eq!((of_pod("memory.low"), of_pod("cpu.max")), ("1073741824".into(), "max 100000".into()));
    cgroups.balance(&[pod("Burstable", "1Gi", "0"), pod("Guaranteed", "2Gi", "0")]);
    assert_eq!(of_pods("memory.min"), (3_i64 << 30).to_string());
    assert_eq!(of_pods("burstable/memory.low"), (1_i64 << 30).to_string());
    assert_eq!(cgroups.kept_memory(), Some((2 << 30, 1 << 30)));
}

/// The cases of upstream's `setMemoryReserve`.
#[test]
fn memory_is_kept_for_the_classes() {
    let check = |asked: (i64, i64), percent: i64, expected: (i64, i64)| {
        assert_eq!(of_classes(1000, asked, percent), expected, "{asked:?} {percent}");
    };
    check((100, 200), 0, (1000, 1000));
    check((100, 200), 50, (950, 850));
    check((100, 200), 100, (900, 700));
    let fixture = Fixture::new(false);
    let by = Enforcement { reserved_for_classes: Some(50), ..Enforcement::default() };
    let cgroups = fixture.cgroups(Limits { by, allocatable: 8 << 30, ..Limits::default() });
    cgroups.ensure_root(2000).unwrap();
    cgroups.balance(&[pod("Burstable", "2Gi", "0"), pod("Guaranteed", "2Gi", "0")]);
    let limit = |class: &str| fixture.read(&format!("memory/kubepods/{class}/memory.limit_in_bytes"));
    assert_eq!(
        (limit("burstable"), limit("besteffort")),
        ((7_i64 << 30).to_string(), (6_i64 << 30).to_string())
    );
}

#[test]
fn a_part_of_the_node_is_kept_for_others() {
    let whole = Reservation { shares: Some(512), memory: Some(1 << 20), pids: Some(9) };
    let fixture = Fixture::new(false);
    let cgroups = fixture.cgroups(Limits::default());
    let error = cgroups.reserve("/system.slice", &whole).unwrap_err().to_string();
    assert!(error.starts_with("cgroup [\"system.slice\"] has some missing paths: "), "{error}");
    assert!(cgroups.reserve("/", &whole).is_err());
    for controller in ["cpu", "memory", "pids", "hugetlb"] {
        fixture.make(&format!("{controller}/a.slice/a-b.slice"), &[]);
    }
    cgroups.reserve("/a-b.slice", &whole).unwrap();
    assert_eq!(fixture.read("cpu/a.slice/a-b.slice/cpu.shares"), "512");
    assert_eq!(fixture.read("memory/a.slice/a-b.slice/memory.limit_in_bytes"), "1048576");
    assert_eq!(fixture.read("pids/a.slice/a-b.slice/pids.max"), "9");
    let fixture = Fixture::new(true);
    let by = Enforcement { memory_qos: Some(MemoryQos::default()), ..Enforcement::default() };
    let cgroups = fixture.cgroups(Limits { by, ..Limits::default() });
    fixture.make("kube", &[]);
    cgroups.reserve("/kube", &Reservation { shares: Some(1024), ..Reservation::default() }).unwrap();
    assert_eq!((fixture.read("kube/cpu.weight"), fixture.read("kube/memory.max")), ("39".into(), "-".into()));
    cgroups.reserve("/kube", &whole).unwrap();
    assert_eq!(fixture.read("kube/memory.max"), "1048576");
    assert_eq!(fixture.read("kube/memory.min"), "1048576");
    assert_eq!(slices("user-1.slice"), ["user.slice", "user-1.slice"]);
}

/// The names of upstream's slices, and of the directories that systemd gives them; here nobody is asked for them.
#[test]
fn slices_have_upstreams_names() {
    let fixture = Fixture::new(true);
    let limits = Limits { unified: true, ..Limits::default() };
    let cgroups =
        |root: &str| Cgroups::at(fixture.0.path().to_owned(), root, CgroupDriver::Systemd, limits.clone());
    let mut one = (*pod("Burstable", "1Gi", "0")).clone();
    one.metadata.uid = Some("12-ab".to_owned());
    let own = cgroups("/");
    assert_eq!(own.parent(&one), "kubepods-burstable-pod12_ab.slice");
    let path = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice";
    assert_eq!(own.path(&one), format!("/{path}"));
    own.ensure(&one, false).unwrap();
    assert_eq!(fixture.read(&format!("{path}/memory.max")), "max");
    assert!(own.exists(&one));
    assert_eq!(own.pods(), BTreeSet::from(["12-ab".to_owned()]));
    assert_eq!(cgroups("/a/b-c").parent(&one), "a-b_c-kubepods-burstable-pod12_ab.slice");
}
