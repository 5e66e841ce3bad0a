//! Figures of cgroups, without any.

use oci_spec::runtime::LinuxResources;
use serde_json::{Value, json};

use super::devices::{self, Rule};
use super::{Cgroups, Hierarchy, Layout, layout, v1, v2};

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
    assert_eq!(layout(&hybrid), Some(Layout::V1(expected)));
    let unified = line("/sys/fs/cgroup", "cgroup2", "rw,nsdelegate");
    assert_eq!(layout(&unified), Some(Layout::V2("/sys/fs/cgroup".into())));
    assert_eq!(layout(&line("/sys", "sysfs", "rw")), None);
    let cgroups = Cgroups(std::sync::Arc::new(Layout::V2("/sys/fs/cgroup".into())));
    for odd in ["", "/", "/a/../b", "a\nb", "./a"] {
        assert!(cgroups.group(odd).is_err(), "{odd:?}");
    }
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
