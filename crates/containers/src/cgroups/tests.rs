//! Figures of cgroups, without any.

use oci_spec::runtime::LinuxResources;
use serde_json::{Value, json};

use super::devices::{self, Rule};
use super::{Cgroups, Hierarchy, Layout, Mounted, layout, scope, v1, v2};

fn resources(value: Value) -> LinuxResources {
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_way_in_which_cgroups_are_mounted() {
    let line = |at: &str, kind: &str, options: &str| {
        format!("30 25 0:26 / {at} rw,relatime shared:9 - {kind} {kind} {options}\n")
    };
    let hybrid = line("/sys/fs/cgroup/memory", "cgroup", "rw,memory")
        + &line("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
        + &line("/sys/fs/cgroup/systemd", "cgroup", "rw,xattr,name=systemd")
        + &line("/sys/fs/cgroup/unified", "cgroup2", "rw,nsdelegate");
    let hierarchy = |controllers: &[&str], root: &str| Hierarchy {
        controllers: controllers.iter().map(|c| (*c).to_owned()).collect(),
        root: root.into(),
    };
    let expected = vec![
        hierarchy(&["memory"], "/sys/fs/cgroup/memory"),
        hierarchy(&["cpu", "cpuacct"], "/sys/fs/cgroup/cpu,cpuacct"),
        hierarchy(&["name=systemd"], "/sys/fs/cgroup/systemd"),
    ];
    assert_eq!(layout(&hybrid), Some((Layout::V1(expected), Some("/sys/fs/cgroup/unified".into()))));
    let unified = line("/sys/fs/cgroup", "cgroup2", "rw,nsdelegate");
    assert_eq!(layout(&unified), Some((Layout::V2("/sys/fs/cgroup".into()), None)));
    assert_eq!(layout(&line("/sys", "sysfs", "rw")), None);
    let cgroups = cgroups(Layout::V2("/sys/fs/cgroup".into()), None);
    for odd in [
        "",
        "/",
        "/a/../b",
        "a\nb",
        "./a",
        "a:b",
        "a.slice:b:c:d",
        "a.service:b:c",
        "a.slice::c",
        "a.slice:b/c:d",
    ] {
        assert!(cgroups.group(odd).is_err(), "{odd:?}");
    }
}

fn cgroups(layout: Layout, hybrid: Option<&str>) -> Cgroups {
    let (hybrid, units) = (hybrid.map(Into::into), systemd::Units::default());
    Cgroups(std::sync::Arc::new(Mounted { layout, hybrid, units }))
}

/// The directories of a scope, and the files that its first process joins.
#[test]
fn scopes_are_in_slices() {
    let hierarchy = |controller: &str, root: &str| Hierarchy {
        controllers: vec![controller.to_owned()],
        root: root.into(),
    };
    let hybrid = vec![hierarchy("memory", "/m"), hierarchy("hugetlb", "/h"), hierarchy("name=systemd", "/s")];
    let check = |layout: Layout, beside: Option<&str>, place: &str, expected: &[&str], joins: usize| {
        let group = cgroups(layout, beside).group(place).unwrap();
        let found: Vec<String> = group.directories().iter().map(|(_, d)| d.display().to_string()).collect();
        assert_eq!(
            (found, group.joins_of_first()),
            (expected.iter().map(ToString::to_string).collect(), joins)
        );
    };
    let place = "kubepods-podx.slice:cri-containerd:c";
    let path = |root: &str| format!("{root}/kubepods.slice/kubepods-podx.slice/cri-containerd-c.scope");
    let (m, h, s, u) = (path("/m"), path("/h"), path("/s"), path("/u"));
    check(Layout::V1(hybrid.clone()), Some("/u"), place, &[&m, &h, &s, &u], 2);
    check(Layout::V1(hybrid.clone()), None, place, &[&m, &h, &s], 2);
    check(Layout::V2("/u".into()), None, place, &[&u], 0);
    check(Layout::V2("/u".into()), None, "-.slice:a:b", &["/u/a-b.scope"], 0);
    check(Layout::V1(hybrid), Some("/u"), "/k/c", &["/m/k/c", "/h/k/c", "/s/k/c"], 3);
    check(Layout::V2("/u".into()), None, "k/c", &["/u/k/c"], 1);
    // Words that people look for, because runc says them.
    let error = cgroups(Layout::V2("/u".into()), None).group("a:b").unwrap_err().to_string();
    assert_eq!(
        error,
        "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got \"a:b\" instead"
    );
    let error = cgroups(Layout::V2("/u".into()), None).group("a--b.slice:b:c").unwrap_err().to_string();
    assert_eq!(error, "invalid slice name: a--b.slice");
}

fn shown(writes: Vec<super::write::Write>) -> Vec<String> {
    writes.into_iter().map(|w| format!("{} {}", w.file, w.value)).collect()
}

#[test]
fn limits_are_files() {
    let all = resources(json!({
        "cpu": {"shares": 1024, "quota": 50000, "period": 100_000, "cpus": "0-1", "mems": "0"},
        "memory": {"limit": 1000, "swap": 1500, "reservation": 500},
        "pids": {"limit": 7},
        "hugepageLimits": [{"pageSize": "2MB", "limit": 4}]
    }));
    let expected = [
        "cpu.shares 1024",
        "cpu.cfs_period_us 100000",
        "cpu.cfs_quota_us 50000",
        "cpuset.cpus 0-1",
        "cpuset.mems 0",
        "memory.limit_in_bytes 1000",
        "memory.memsw.limit_in_bytes 1500",
        "memory.soft_limit_in_bytes 500",
        "pids.max 7",
        "hugetlb.2MB.limit_in_bytes 4",
    ];
    assert_eq!(shown(v1::writes(&all).unwrap()), expected);
    let expected = [
        "cpu.weight 100",
        "cpu.max 50000 100000",
        "cpuset.cpus 0-1",
        "cpuset.mems 0",
        "memory.swap.max 500",
        "memory.max 1000",
        "memory.low 500",
        "pids.max 7",
        "hugetlb.2MB.max 4",
    ];
    assert_eq!(shown(v2::writes(&all).unwrap()), expected);
    let none =
        resources(json!({"cpu": {"quota": -1}, "memory": {"limit": -1, "swap": -1}, "pids": {"limit": -1}}));
    assert_eq!(
        shown(v1::writes(&none).unwrap()),
        ["cpu.cfs_quota_us -1", "memory.limit_in_bytes -1", "memory.memsw.limit_in_bytes -1", "pids.max max"]
    );
    assert_eq!(
        shown(v2::writes(&none).unwrap()),
        ["cpu.max max 100000", "memory.swap.max max", "memory.max max", "pids.max max"]
    );
    let unified = resources(json!({"unified": {"memory.high": "5", "memory.min": "2"}}));
    assert_eq!(shown(v2::writes(&unified).unwrap()), ["memory.high 5", "memory.min 2"]);
    assert!(v1::writes(&unified).is_err());
    assert!(v2::writes(&resources(json!({"unified": {"../x.y": "5"}}))).is_err());
}

#[test]
fn shares_are_weights() {
    for (shares, weight) in [(0, 0), (1, 1), (2, 1), (1024, 100), (262_144, 10_000), (1 << 40, 10_000)] {
        assert_eq!(v2::weight(shares), weight, "{shares}");
    }
    let weights: Vec<u64> = (2..5000).map(v2::weight).collect();
    assert!(weights.is_sorted());
}

/// The kernel's machine for device programs, in small.
fn run(program: &[u64], kind: u32, access: u32, major: u32, minor: u32) -> bool {
    let mut r = [0u32; 7];
    let context = [kind | access << 16, major, minor];
    let mut at = 0;
    loop {
        let i = program[at];
        at += 1;
        let (code, dst, src) = (i as u8, (i >> 8 & 15) as usize, (i >> 12 & 15) as usize);
        let (offset, value) = ((i >> 16) as i16, (i >> 32) as u32);
        match code {
            0x61 => r[dst] = context[offset as usize / 4],
            0xb4 => r[dst] = value,
            0xbc => r[dst] = r[src],
            0x54 => r[dst] &= value,
            0x74 => r[dst] >>= value,
            0x56 if r[dst] != value => at += offset as usize,
            0x5e if r[dst] != r[src] => at += offset as usize,
            0x56 | 0x5e => {}
            0x95 => return r[0] == 1,
            odd => panic!("an operation {odd:#x}"),
        }
    }
}

#[test]
fn a_device_program_means_its_rules() {
    let own = json!([
        {"allow": false, "access": "rwm"},
        {"allow": true, "type": "c", "major": 10, "access": "r"},
        {"allow": true, "type": "b", "major": 8, "minor": 1, "access": "rw"},
        {"allow": false, "type": "c", "major": 10, "minor": 200, "access": "rwm"},
    ]);
    let own: Vec<oci_spec::runtime::LinuxDeviceCgroup> = serde_json::from_value(own).unwrap();
    let rules: Vec<Rule> = devices::rules(&own);
    let program = devices::program(&rules);
    for (kind, number) in [('b', 1), ('c', 2)] {
        for major in [1, 5, 8, 10, 136, 250] {
            for minor in [0, 1, 3, 5, 200] {
                for (access, bit) in [('m', 1), ('r', 2), ('w', 4)] {
                    let expected = devices::allowed(&rules, kind, major, minor, access);
                    assert_eq!(
                        run(&program, number, bit, major, minor),
                        expected,
                        "{kind} {major}:{minor} {access}"
                    );
                }
            }
        }
    }
    // Both at once need one rule that has both.
    assert!(run(&program, 1, 2 | 4, 8, 1));
    assert!(!run(&program, 2, 2 | 4, 10, 1));
}

#[test]
fn a_device_program_is_taken_by_the_kernel() {
    let own: Vec<oci_spec::runtime::LinuxDeviceCgroup> =
        serde_json::from_value(json!([{"allow": false, "access": "rwm"}])).unwrap();
    let program = devices::program(&devices::rules(&own));
    crate::raw::load_device_program(&program).unwrap();
}

/// A hybrid machine's version 2 has no controllers, and device programs all the same.
#[test]
fn a_device_program_refuses_devices() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let Some(root) = mounts.lines().find(|l| l.contains(" - cgroup2 ")).and_then(|l| l.split(' ').nth(4))
    else {
        return;
    };
    let cgroup = std::path::Path::new(root).join(format!("ferrokube-test-devices-{}", std::process::id()));
    std::fs::create_dir(&cgroup).unwrap();
    let own = json!([{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 1, "minor": 11, "access": "w"}]);
    let own: Vec<oci_spec::runtime::LinuxDeviceCgroup> = serde_json::from_value(own).unwrap();
    // Twice: the second one takes the place of the first.
    let loaded = [devices::load(&cgroup, &own), devices::load(&cgroup, &own)];
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().display();
    let script = format!(
        "echo $$ > {}/cgroup.procs && mknod {at}/mem c 1 1 && mknod {at}/kmsg c 1 11 && head -c 1 /dev/zero >/dev/null \
         && echo zero; head -c 1 {at}/mem >/dev/null || echo mem; head -c 0 {at}/kmsg || echo read; echo -n > {at}/kmsg && echo write",
        cgroup.display()
    );
    let out = std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    std::fs::remove_dir(&cgroup).unwrap();
    assert!(loaded.iter().all(Result::is_ok), "{loaded:?}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "zero\nmem\nread\nwrite\n", "{out:?}");
}

#[test]
fn a_further_process_is_beside_the_first() {
    let check =
        |list: &str, expected: Option<&str>| assert_eq!(super::below("pods/a", list), expected, "{list}");
    check("0::/pods/a/init.scope\n", Some("pods/a/init.scope"));
    check("1:name=systemd:/pods/a/x\n0::/pods/a/b/c\n", Some("pods/a/b/c"));
    check("0::/pods/a\n", None);
    check("0::/pods/ab/c\n", None);
    check("0::/../x\n", None);
    check("0::/pods/a/x (deleted)\n", None);
    check("1:cpu:/pods/a/x\n", None);
}

#[test]
fn pressure_is_read() {
    let text = "some avg10=1.25 avg60=0.50 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.01 avg300=10.00 total=7\n";
    let read = crate::spec::Pressure::parse(text);
    assert_eq!((read.some, read.full), ([125, 50, 0, 12345], [0, 1, 1000, 7]));
}

/// Properties as text, with the files beside them.
fn of_scope(writes: Vec<super::write::Write>, version: u32) -> (Vec<String>, Vec<String>) {
    let writes = scope::rounded(writes);
    let properties = scope::properties(&writes, version).unwrap();
    (properties.into_iter().map(property).collect(), shown(writes))
}

fn property((name, value): systemd::Property<'_>) -> String {
    use systemd::{INFINITY, Value};
    match value {
        Value::Number(INFINITY) => format!("{name}=infinity"),
        Value::Number(number) => format!("{name}={number}"),
        Value::Text(text) => format!("{name}={text}"),
        Value::Bytes(bytes) => format!("{name}={bytes:?}"),
        Value::Pairs(pairs) => {
            let pairs: Vec<String> = pairs.into_iter().map(|(one, other)| format!("{one} {other}")).collect();
            format!("{name}={}", pairs.join(", "))
        }
        other => panic!("{other:?}"),
    }
}

/// The cases of runc's systemd driver: what it sets as a property, and which file has another value for it.
#[test]
fn limits_of_scopes_are_properties() {
    let check_v1 = |limits: Value, version: u32, expected: &[&str]| {
        let writes = v1::writes(&resources(limits.clone())).unwrap();
        assert_eq!(of_scope(writes, version).0, expected, "{limits}");
    };
    let check = |limits: Value, version: u32, expected: &[&str]| {
        let writes = v2::writes(&resources(limits.clone())).unwrap();
        assert_eq!(of_scope(writes, version).0, expected, "{limits}");
    };
    let all = json!({
        "cpu": {"shares": 1024, "quota": 50000, "period": 100_000, "cpus": "0-1,9", "mems": "0"},
        "memory": {"limit": 1000, "swap": 1500, "reservation": 500},
        "pids": {"limit": 7},
        "hugepageLimits": [{"pageSize": "2MB", "limit": 4}]
    });
    let quota = ["CPUQuotaPeriodUSec=100000", "CPUQuotaPerSecUSec=500000"];
    check_v1(
        all.clone(),
        252,
        &[&["CPUShares=1024"][..], &quota, &["MemoryLimit=1000", "TasksMax=7"]].concat(),
    );
    let sets = ["AllowedCPUs=[3, 2]", "AllowedMemoryNodes=[1]"];
    let memory = ["MemorySwapMax=500", "MemoryMax=1000", "MemoryLow=500", "TasksMax=7"];
    check(all.clone(), 252, &[&["CPUWeight=100"][..], &quota, &sets, &memory].concat());
    check(all.clone(), 243, &[&["CPUWeight=100"][..], &quota, &memory].concat());
    check(all, 241, &[&["CPUWeight=100"][..], &quota[1..], &memory].concat());
    let none = json!({"cpu": {"quota": -1}, "memory": {"limit": -1, "swap": -1}, "pids": {"limit": -1}});
    let no_quota = "CPUQuotaPerSecUSec=infinity";
    check_v1(
        none.clone(),
        252,
        &["CPUQuotaPeriodUSec=100000", no_quota, "MemoryLimit=infinity", "TasksMax=infinity"],
    );
    let no_memory = ["MemorySwapMax=infinity", "MemoryMax=infinity", "TasksMax=infinity"];
    check(none, 252, &[&["CPUQuotaPeriodUSec=100000", no_quota][..], &no_memory].concat());
    // Nothing is swapped.
    check(json!({"memory": {"limit": 9, "swap": 9}}), 252, &["MemorySwapMax=0", "MemoryMax=9"]);
    // A period alone.
    let period = json!({"cpu": {"period": 50000}});
    check_v1(period.clone(), 252, &["CPUQuotaPeriodUSec=50000", no_quota]);
    check(period, 252, &["CPUQuotaPeriodUSec=50000", no_quota]);
    check_v1(json!({"cpu": {"shares": 1}}), 252, &["CPUShares=2"]);
    // Processes that run only when no others do.
    let idle = json!({"cpu": {"shares": 1024, "idle": 1}});
    check(idle.clone(), 252, &["CPUWeight=0"]);
    check(idle, 251, &["CPUWeight=100"]);
    check(json!({"cpu": {"shares": 1024, "idle": 0}}), 252, &["CPUWeight=100"]);
    let unified = |file: &str, value: &str| json!({"unified": {file: value}});
    check(unified("cpu.max", "max"), 252, &["CPUQuotaPeriodUSec=100000", no_quota]);
    check(unified("cpu.max", " 10000  "), 252, &["CPUQuotaPeriodUSec=100000", "CPUQuotaPerSecUSec=100000"]);
    check(unified("cpu.max", "20000 40000"), 252, &["CPUQuotaPeriodUSec=40000", "CPUQuotaPerSecUSec=500000"]);
    check(unified("cpu.weight", "77"), 252, &["CPUWeight=77"]);
    check(unified("cpu.idle", "1"), 252, &["CPUWeight=0"]);
    check(unified("cpuset.cpus", "1"), 252, &["AllowedCPUs=[2]"]);
    check(unified("memory.high", "5"), 252, &["MemoryHigh=5"]);
    check(unified("memory.min", "5"), 252, &["MemoryMin=5"]);
    check(unified("memory.swap.max", "max"), 252, &["MemorySwapMax=infinity"]);
    check(unified("pids.max", "0"), 252, &["TasksMax=1"]);
    check(unified("io.weight", "default 50"), 252, &["IOWeight=50"]);
    check(unified("memory.oom.group", "1"), 252, &[]);
    let fails = |file: &str, value: &str| {
        let writes = v2::writes(&resources(unified(file, value))).unwrap();
        scope::properties(&scope::rounded(writes), 252).unwrap_err().to_string()
    };
    assert_eq!(fails("memory.max", "much"), "\"much\" is no limit that memory.max can have");
    assert_eq!(fails("cpu.max", "a b"), "\"a b\" is no limit that cpu.max can have");
    assert_eq!(fails("cpuset.cpus", "3-1"), "cpuset.cpus=\"3-1\": invalid range: 3-1");
}

/// systemd takes whole hundredths of a processor, and the files say the same.
#[test]
fn quotas_of_scopes_are_rounded_up() {
    let check = |quota: i64, period: u64, expected: &str| {
        let limits = resources(json!({"cpu": {"quota": quota, "period": period}}));
        let (_, v1) = of_scope(v1::writes(&limits).unwrap(), 252);
        let (_, v2) = of_scope(v2::writes(&limits).unwrap(), 252);
        let expected = [format!("cpu.cfs_period_us {period}"), format!("cpu.cfs_quota_us {expected}")];
        assert_eq!(v1, expected);
        assert_eq!(v2, [format!("cpu.max {} {period}", &expected[1]["cpu.cfs_quota_us ".len()..])]);
    };
    check(50_000, 100_000, "50000");
    check(12_345, 100_000, "13000");
    check(1000, 100_000, "1000");
    check(1001, 100_000, "2000");
    check(10_001, 50_000, "10500");
    check(499_000, 50_000, "499000");
}

#[test]
fn devices_of_scopes_are_properties() {
    let check = |own: Value, expected: &[&str]| {
        let own: Vec<oci_spec::runtime::LinuxDeviceCgroup> = serde_json::from_value(own.clone()).unwrap();
        let found: Vec<String> = scope::devices(&devices::rules(&own)).into_iter().map(property).collect();
        assert_eq!(found, expected);
    };
    let always = "char-* m, block-* m, /dev/char/1:3 rwm, /dev/char/1:5 rwm, /dev/char/1:7 rwm, /dev/char/1:8 rwm, \
        /dev/char/1:9 rwm, /dev/char/5:0 rwm, /dev/char/5:1 rwm, /dev/char/5:2 rwm, char-136 rwm";
    let nothing = json!({"allow": false, "access": "rwm"});
    check(json!([nothing]), &["DevicePolicy=strict", &format!("DeviceAllow={always}")]);
    let own = json!([nothing, {"allow": true, "type": "b", "major": 8, "minor": 1, "access": "rw"},
        {"allow": true, "type": "c", "major": 10, "minor": 7, "access": "rw"},
        {"allow": false, "type": "c", "major": 10, "minor": 7, "access": "w"}]);
    check(
        own,
        &["DevicePolicy=strict", &format!("DeviceAllow=/dev/block/8:1 rw, /dev/char/10:7 r, {always}")],
    );
    // A privileged container has all.
    check(json!([nothing, {"allow": true, "access": "rwm"}]), &["DevicePolicy=auto", "DeviceAllow="]);
}
