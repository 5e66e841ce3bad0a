//! Plans, as the shim would read them.

use oci_spec::runtime::Spec;
use serde_json::{Value, json};

use super::{CgroupView, Context, Hierarchy, Label, Plan, Source, container, exec};
use crate::shim::wire::{STEP_HEADER, step};

/// The operations of a plan, read as the shim reads them.
fn operations(plan: &Plan) -> Vec<u16> {
    let mut out = Vec::new();
    let mut rest = &plan.bytes[..];
    while !rest.is_empty() {
        let (head, after) = rest.split_at(STEP_HEADER);
        out.push(u16::from_le_bytes([head[0], head[1]]));
        let len = u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
        assert_eq!(len % 4, 0, "fields are aligned");
        rest = &after[len..];
    }
    assert_eq!(out.len(), plan.labels.len());
    out
}

fn spec(change: impl FnOnce(&mut Value)) -> Spec {
    let mut value = json!({
        "ociVersion": "1.2.0",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["a"], "cwd": "/"},
        "root": {"path": "rootfs", "readonly": false},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc", "options": []}],
        "linux": {"maskedPaths": ["/proc/kcore"], "readonlyPaths": ["/proc/sys"]},
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn place(operations: &[u16], wanted: u16) -> usize {
    operations.iter().position(|o| *o == wanted).unwrap_or_else(|| panic!("{wanted} in {operations:?}"))
}

#[test]
fn steps_come_in_a_safe_order() {
    let context = Context { join: 2, user: true, ..Context::default() };
    let described = spec(|s| {
        s["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ERRNO"});
        s["process"]["apparmorProfile"] = json!("p");
        s["process"]["selinuxLabel"] = json!("l");
    });
    let plan = container(&described, &context).unwrap();
    let operations = operations(&plan);
    let before = |first: u16, second: u16| {
        assert!(place(&operations, first) < place(&operations, second), "{first} {second} in {operations:?}");
    };
    // Labels are written by the host's /proc, before anything of the image is there.
    before(step::HIDE, step::WRITE);
    before(step::WRITE, step::ATTACH_ROOT);
    before(step::JOIN, step::SETNS);
    before(step::SETNS, step::UNSHARE);
    before(step::UNSHARE, step::MAKE_FS);
    before(step::MAKE_FS, step::ATTACH_ROOT);
    before(step::ATTACH_ROOT, step::MOUNT_MADE);
    before(step::MOUNT_MADE, step::MASK);
    before(step::MASK, step::BOUNDING);
    // Without no_new_privs the filter needs the rights that go afterwards.
    before(step::SECCOMP, step::BOUNDING);
    before(step::CAPS, step::LOOK);
    before(step::WAIT, step::EXEC);
    assert_eq!(plan.sources.iter().filter(|s| matches!(s, Source::Cgroup(_))).count(), 2);
    let described = spec(|s| {
        s["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ERRNO"});
        s["process"]["noNewPrivileges"] = json!(true);
    });
    let operations = self::operations(&container(&described, &context).unwrap());
    assert!(place(&operations, step::WAIT) < place(&operations, step::SECCOMP));
    let operations =
        self::operations(&exec(&described, described.process().as_ref().unwrap(), &context).unwrap());
    assert!(!operations.contains(&step::WAIT) && !operations.contains(&step::ATTACH_ROOT));
    assert_eq!(operations.last(), Some(&step::EXEC));
}

#[test]
fn mounts_that_make_no_sense_are_refused() {
    let check = |mount: Value, expected: &str| {
        let described = spec(|s| s["mounts"].as_array_mut().unwrap().push(mount));
        assert_eq!(container(&described, &Context::default()).unwrap_err().to_string(), expected);
    };
    check(json!({"destination": "/", "type": "tmpfs"}), "nothing can be mounted at the root of a container");
    check(
        json!({"destination": "/x/../..", "type": "tmpfs"}),
        "nothing can be mounted at the root of a container",
    );
    check(json!({"destination": "/x"}), "the mount at /x has no type");
    check(json!({"destination": "/x", "type": "bind"}), "the mount at /x has no source");
    check(
        json!({"destination": "/x/../proc/self/attr", "type": "bind", "source": "/y"}),
        "\"/proc/self/attr\" cannot be mounted because it is inside /proc",
    );
    check(
        json!({"destination": "/proc", "type": "tmpfs"}),
        "\"/proc\" cannot be mounted because it is inside /proc",
    );
    check(
        json!({"destination": "/x", "type": "bind", "source": "/y", "uidMappings": []}),
        "the mount at /x has mappings of users or groups alone",
    );
    check(
        json!({"destination": "/x", "type": "tmpfs", "options": ["tmpcopyup"]}),
        "the mount at /x has the option \"tmpcopyup\", which is not supported",
    );
    let lxcfs = spec(|s| {
        s["mounts"]
            .as_array_mut()
            .unwrap()
            .push(json!({"destination": "/proc/meminfo", "type": "bind", "source": "/y"}));
    });
    assert!(container(&lxcfs, &Context::default()).is_ok());
}

#[test]
fn cgroups_that_a_container_sees_are_its_own() {
    let mount = json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro", "nosuid"]});
    let described = spec(|s| s["mounts"].as_array_mut().unwrap().push(mount));
    let hierarchy = |name: &str, option: Option<&str>| Hierarchy {
        name: name.to_owned(),
        option: option.map(str::to_owned),
        path: format!("/sys/fs/cgroup/{name}/c").into(),
    };
    let v1 = vec![hierarchy("memory", Some("memory")), hierarchy("cpu,cpuacct", Some("cpu,cpuacct"))];
    let context = Context { cgroups: CgroupView { namespace: false, hierarchies: v1 }, ..Context::default() };
    let plan = container(&described, &context).unwrap();
    let bound: Vec<String> = plan
        .sources
        .iter()
        .filter_map(|s| if let Source::Bind(b) = s { Some(b.path.display().to_string()) } else { None })
        .collect();
    assert_eq!(bound, ["/sys/fs/cgroup/memory/c", "/sys/fs/cgroup/cpu,cpuacct/c"]);
    let v2 = vec![hierarchy("", None)];
    let context = Context { cgroups: CgroupView { namespace: true, hierarchies: v2 }, ..Context::default() };
    let plan = container(&described, &context).unwrap();
    assert!(!plan.sources.iter().any(|s| matches!(s, Source::Bind(_))));
}

#[test]
fn failures_are_told_as_runc_tells_them() {
    let mut plan = Plan::default();
    plan.step(step::LOOK, 0, super::fields(), Label::Look("x".to_owned()));
    plan.step(step::LOOK, 0, super::fields(), Label::Look("/x".to_owned()));
    plan.push(step::EXEC, 0, super::fields(), "exec /x");
    let told = |place, errno| plan.failure(place, errno).to_string();
    assert_eq!(told(0, 2), "exec: \"x\": executable file not found in $PATH");
    assert_eq!(told(0, 13), "exec: \"x\": executable file not found in $PATH");
    assert_eq!(told(1, 2), "exec: \"/x\": stat /x: no such file or directory");
    assert_eq!(told(1, 13), "exec: \"/x\": permission denied");
    assert_eq!(told(2, 8), "exec /x: exec format error");
    assert_eq!(told(u32::MAX, 104), "prepare a process: connection reset by peer");
}
