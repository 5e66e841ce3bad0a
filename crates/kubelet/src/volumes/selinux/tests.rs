use component::metrics::Page;
use serde_json::{Value, json};

use super::*;
use crate::metrics::Metrics;

const BASE: &str = "system_u:object_r:container_file_t:s0";
const FULL: &str = "system_u:object_r:container_file_t:s0:c1,c2";

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine with SELinux.
pub(crate) fn machine(root: &Path) {
    put(root, ENFORCE, "1");
    put(root, "etc/selinux/targeted/contexts/lxc_contexts", &format!("file = \"{BASE}\"\n"));
}

#[test]
fn labels_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "etc/selinux/config", "# words\nSELINUX=enforcing\nSELINUXTYPE=own\n");
    put(
        dir.path(),
        "etc/selinux/own/contexts/lxc_contexts",
        "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n",
    );
    assert_eq!(read(dir.path()), Policy::default(), "it is off");
    put(dir.path(), ENFORCE, "1");
    assert_eq!(read(dir.path()), Policy { enabled: true, files: Some(BASE.into()) });
    put(dir.path(), "etc/selinux/config", "SELINUXTYPE=../own\n");
    assert_eq!(read(dir.path()), Policy { enabled: true, files: None });
}

fn policy() -> Policy {
    Policy { enabled: true, files: Some(BASE.into()) }
}

#[test]
fn labels_that_pods_ask_for() {
    let check = |pod: Value, more: Value, expected: Result<Option<&str>, &str>| {
        let mut spec = more.clone();
        spec["securityContext"] = pod;
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let got = asked(&pod, "v", &policy()).map_err(|error| error.to_string());
        let got = got.as_ref().map(Option::as_deref).map_err(String::as_str);
        assert_eq!(got, expected, "{spec}");
        assert_eq!(asked(&pod, "v", &Policy { enabled: true, files: None }), Ok(None));
    };
    let mounts = || json!([{"name": "v", "mountPath": "/v"}]);
    let plain = || json!({"name": "c", "volumeMounts": mounts()});
    let own = |options: Value| json!({"name": "d", "volumeMounts": mounts(), "securityContext": {"seLinuxOptions": options}});
    let of_pod = |level: &str| json!({"seLinuxOptions": {"level": level}});
    let all = |containers: Value| json!({"containers": containers});
    check(json!({}), all(json!([plain()])), Ok(None));
    check(of_pod("s0:c1,c2"), all(json!([plain(), plain()])), Ok(Some(FULL)));
    check(of_pod("s0:c1,c2"), all(json!([{"name": "e"}])), Ok(None));
    let device = json!({"name": "e", "volumeDevices": [{"name": "v", "devicePath": "/v"}]});
    check(of_pod("s0:c1,c2"), all(json!([device])), Ok(None));
    check(json!({}), all(json!([own(json!({"level": "s0:c1,c2", "type": "spc_t"}))])), Ok(Some(FULL)));
    let mine = Ok(Some("me:object_r:container_file_t:s0"));
    check(json!({}), all(json!([own(json!({"level": "s0", "user": "me"}))])), mine);
    check(json!({}), all(json!([own(json!({"type": "container_t"}))])), Ok(None));
    let several = format!("multiple SELinux labels found: {FULL},system_u:object_r:container_file_t:s0:c3");
    let other = || own(json!({"level": "s0:c3"}));
    check(of_pod("s0:c1,c2"), all(json!([plain(), other()])), Err(&several));
    for kind in ["initContainers", "ephemeralContainers"] {
        check(of_pod("s0:c1,c2"), json!({"containers": [plain()], kind: [other()]}), Err(&several));
    }
    for level in ["s0\",suid,x=\"", "s0 ", "s0\\", "s0\n", "é"] {
        let label = api::go::quote(&format!("system_u:object_r:container_file_t:{level}"));
        let expected = format!("invalid SELinux label {label}");
        check(of_pod(level), all(json!([plain()])), Err(&expected));
    }
    let user = json!({"level": "s0", "user": "\",suid,x=\""});
    let odd = api::go::quote("\",suid,x=\":object_r:container_file_t:s0");
    check(json!({}), all(json!([own(user)])), Err(&format!("invalid SELinux label {odd}")));
}

/// A Pod whose container mounts the volume `v`; no options, or a level with or without the other parts.
fn pod(uid: &str, options: Option<&str>, policy: Option<&str>) -> Pod {
    let options = match options {
        None => Value::Null,
        Some("partial") => json!({"level": "s0:c1,c2"}),
        Some(level) => {
            json!({"user": "system_u", "role": "object_r", "type": "container_t", "level": level})
        }
    };
    let context = json!({"seLinuxOptions": options, "seLinuxChangePolicy": policy});
    let container = json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let spec = json!({"containers": [container], "securityContext": context});
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec})).unwrap()
}

fn wearers(all: bool, metrics: &Metrics) -> Wearers<u8> {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    Wearers::new(&Labels::new(dir.path(), all, metrics))
}

fn traits(modes: &[String], mountable: bool) -> Traits<'_> {
    Traits { name: "basicPV", plugin: "basic", modes: Some(modes), mountable }
}

/// Upstream's cases of `Test_AddPodToVolume_SELinuxSinglePod`, and those of `TestCheckVolumeSELinux` with one Pod. The gates
/// `SELinuxMountReadWriteOncePod` and `SELinuxChangePolicy` cannot be switched off any more.
#[test]
fn labels_of_volumes() {
    let check =
        |mode: &str, all: bool, options: Option<&str>, policy: Option<&str>, expected: Option<&str>| {
            let of = |mountable: bool| {
                let (wearers, modes) = (wearers(all, &Metrics::default()), [mode.to_owned()]);
                wearers.enter(1, (&pod("a", options, policy), "v"), &traits(&modes, mountable)).unwrap()
            };
            assert_eq!(of(true).as_deref(), expected, "{mode} {all} {options:?} {policy:?}");
            assert_eq!(of(false), None, "its plugin does not");
        };
    let (full, recursive, mount) = (Some("s0:c1,c2"), Some("Recursive"), Some("MountOption"));
    check("ReadWriteOncePod", false, full, None, Some(FULL));
    check("ReadWriteOncePod", false, Some("partial"), None, Some(FULL));
    check("ReadWriteOncePod", false, None, None, None);
    check("ReadWriteMany", false, full, None, None);
    check("ReadWriteMany", false, full, recursive, None);
    check("ReadWriteMany", false, full, mount, None);
    check("ReadWriteOncePod", false, full, recursive, None);
    check("ReadWriteOncePod", false, full, mount, Some(FULL));
    check("ReadWriteMany", true, full, None, Some(FULL));
    check("ReadWriteMany", true, full, recursive, None);
    check("ReadWriteMany", true, full, mount, Some(FULL));
    check("ReadWriteOncePod", true, full, recursive, None);
    check("ReadWriteOncePod", true, full, mount, Some(FULL));
    let (off, modes) = (tempfile::tempdir().unwrap(), ["ReadWriteOncePod".to_owned()]);
    let wearers = Wearers::new(&Labels::new(off.path(), true, &Metrics::default()));
    assert_eq!(wearers.enter(1, (&pod("a", full, None), "v"), &traits(&modes, true)), Ok(None));
    assert!(!wearers.enabled(), "nothing happens where SELinux is off");
}

/// Upstream's cases of `Test_AddPodToVolume_SELinux_MultiplePods`, and those of `TestCheckVolumeSELinux` with two Pods.
#[test]
fn pods_that_share_a_volume() {
    type Asks<'a> = (&'a str, Option<&'a str>);
    let check =
        |mode: &str, all: bool, first: Asks<'_>, second: Asks<'_>, failed: bool, label: Option<&str>| {
            let (wearers, modes) = (wearers(all, &Metrics::default()), [mode.to_owned()]);
            let of = traits(&modes, true);
            let enter =
                |uid: &str, asks: Asks<'_>| wearers.enter(1, (&pod(uid, Some(asks.0), asks.1), "v"), &of);
            let what = format!("{mode} {all} {first:?} {second:?}");
            assert_eq!(enter("a", first).unwrap().as_deref(), label, "{what}");
            let got = enter("b", second);
            assert_eq!(got.is_err(), failed, "{what}: {got:?}");
            if !failed {
                assert_eq!(got.unwrap().as_deref(), label, "{what}");
            }
            assert_eq!(enter("a", first).unwrap().as_deref(), label, "the first one keeps it: {what}");
        };
    let (same, other) = ("s0:c1,c2", "s0:c98,c99");
    let (recursive, mount) = (Some("Recursive"), Some("MountOption"));
    let (once, many) = ("ReadWriteOncePod", "ReadWriteMany");
    check(once, false, (same, None), (same, None), false, Some(FULL));
    check(once, false, (same, None), (other, None), true, Some(FULL));
    check(many, false, (same, None), (same, None), false, None);
    check(once, false, (same, recursive), (same, recursive), false, None);
    check(once, false, (same, recursive), (same, None), true, None);
    check(many, false, (same, recursive), (same, recursive), false, None);
    check(many, false, (same, mount), (same, mount), false, None);
    check(many, false, (same, mount), (same, recursive), false, None);
    check(many, false, (same, recursive), (other, recursive), false, None);
    check(many, false, (same, mount), (other, mount), false, None);
    check(once, true, (same, None), (same, None), false, Some(FULL));
    check(once, true, (same, recursive), (same, recursive), false, None);
    check(once, true, (same, recursive), (same, None), true, None);
    check(many, true, (same, recursive), (same, recursive), false, None);
    check(many, true, (same, mount), (same, mount), false, Some(FULL));
    check(many, true, (same, None), (same, mount), false, Some(FULL));
    check(many, true, (same, mount), (same, recursive), true, Some(FULL));
    check(many, true, (same, recursive), (other, recursive), false, None);
    check(many, true, (same, mount), (other, mount), true, Some(FULL));
}

#[test]
fn a_label_is_free_when_its_pods_have_left() {
    let metrics = Metrics::default();
    let (wearers, modes) =
        (wearers(true, &metrics), ["ReadWriteOnce".to_owned(), "ReadWriteMany".to_owned()]);
    let enter = |wearers: &Wearers<u8>, uid: &str, level: &str, mountable: bool| {
        wearers.enter(1, (&pod(uid, Some(level), None), "v"), &traits(&modes, mountable))
    };
    let other = "system_u:object_r:container_file_t:s0:c3";
    for uid in ["a", "b"] {
        enter(&wearers, uid, "s0:c1,c2", true).unwrap();
    }
    let why = format!("conflicting SELinux labels of volume basicPV: \"{FULL}\" and \"{other}\"");
    assert_eq!(enter(&wearers, "c", "s0:c3", true), Err(why.clone()));
    wearers.leave("a");
    assert_eq!(enter(&wearers, "c", "s0:c3", true), Err(why));
    wearers.leave("b");
    assert_eq!(enter(&wearers, "c", "s0:c3", true), Ok(Some(other.to_owned())));
    let several = |recursive: Option<&str>| {
        let mut pod = serde_json::to_value(pod("d", Some("s0:c3"), recursive)).unwrap();
        let mut guest = pod["spec"]["containers"][0].clone();
        guest["securityContext"] = json!({"seLinuxOptions": {"level": "s0:c4"}});
        pod["spec"]["containers"].as_array_mut().unwrap().push(guest);
        serde_json::from_value::<Pod>(pod).unwrap()
    };
    // Upstream looks for this before it looks at anything else.
    for (recursive, mountable) in [(None, true), (Some("Recursive"), true), (None, false)] {
        let of = traits(&modes, mountable);
        let got = wearers.enter(2, (&several(recursive), "v"), &of).unwrap_err();
        assert!(got.starts_with("multiple SELinux labels found: "), "{got}");
    }
    let inline = Traits { modes: None, ..traits(&modes, true) };
    assert_eq!(wearers.enter(3, (&several(None), "v"), &inline), Ok(None));
    assert!(enter(&wearers, "e", "s0\"", true).unwrap_err().starts_with("invalid SELinux label"));
    let mut page = Page::default();
    metrics.write(&mut page);
    for line in [
        "volumes_admitted_total{access_mode=\"RWX\",volume_plugin=\"basic\"} 2",
        "volume_context_mismatch_errors_total{access_mode=\"RWX\",volume_plugin=\"basic\"} 2",
        "pod_context_mismatch_errors_total{access_mode=\"RWX\"} 3",
        "pod_context_mismatch_warnings_total{access_mode=\"inline\"} 1",
        "container_errors_total{access_mode=\"RWX\"} 1",
    ] {
        let line = format!("volume_manager_selinux_{line}");
        assert!(page.text().lines().any(|l| l == line), "{line}\n{}", page.text());
    }
}

/// Upstream's cases of `TestVolumeSupportsSELinuxMount`, and more.
#[test]
fn access_modes() {
    let check = |modes: Option<&[&str]>, expected: [bool; 2], short: &str| {
        let modes: Option<Vec<String>> = modes.map(|all| all.iter().map(ToString::to_string).collect());
        let traits = Traits { modes: modes.as_deref(), ..traits(&[], true) };
        let got = [false, true].map(|all| {
            let (wearers, label) = (wearers(all, &Metrics::default()), Some("s0:c1,c2"));
            wearers.enter(1, (&pod("a", label, None), "v"), &traits).unwrap().is_some()
        });
        assert_eq!(got, expected, "{modes:?}");
        let metrics = Metrics::default();
        wearers(true, &metrics).enter(1, (&pod("a", Some("s0"), None), "v"), &traits).unwrap();
        let mut page = Page::default();
        metrics.write(&mut page);
        assert!(page.text().contains(&format!("admitted_total{{access_mode=\"{short}\"")), "{short}");
    };
    check(Some(&["ReadWriteOncePod"]), [true, true], "RWOP");
    check(Some(&["ReadWriteOnce"]), [false, true], "RWO");
    check(Some(&["ReadWriteOncePod", "ReadWriteOnce"]), [false, true], "RWO");
    check(Some(&["ReadWriteOnce", "ReadOnlyMany"]), [false, true], "ROX");
    check(Some(&["ReadWriteMany"]), [false, true], "RWX");
    check(Some(&[]), [false, true], "");
    check(None, [false, false], "inline");
}

#[test]
fn labels_of_mounts() {
    assert_eq!(option(FULL), "context=\"system_u:object_r:container_file_t:s0:c1,c2\"");
    assert_eq!(of_mount(&format!("rw,{},noatime", option(FULL))).as_deref(), Some(FULL));
    assert_eq!(of_mount("rw,context=a:b:c:s0,noatime").as_deref(), Some("a:b:c:s0"));
    let others = "rw,fscontext=\"a:b:c:s0:c1,context=x\",defcontext=d";
    assert_eq!(of_mount(others), None);
    assert_eq!(of_mount(&format!("{others},{}", option(FULL))).as_deref(), Some(FULL));
    // Upstream's cases of `TestGetSELinuxMountContext`.
    let upstream = "rw,context=\"system_u:object_r:container_file_t:s0:c314,c894\"";
    assert_eq!(of_mount(upstream).as_deref(), Some("system_u:object_r:container_file_t:s0:c314,c894"));
    assert_eq!(of_mount("rw,seclabel,data=ordered"), None);
    for none in ["", "rw,seclabel", "rw,x=\"context=a"] {
        assert_eq!(of_mount(none), None, "{none}");
    }
}

/// Upstream's cases of `TestGetSELinuxSupport`, and more.
#[test]
fn file_systems_with_labels() {
    let table = b"62 0 253:0 / / rw,relatime shared:1 - ext4 /dev/mapper/ssd-root rw,seclabel,data=ordered\n\
        78 62 0:41 / /tmp rw,nosuid,nodev shared:30 - tmpfs tmpfs rw,seclabel\n\
        83 63 0:44 / /var/lib/bar rw,relatime - tmpfs tmpfs rw\n\
        227 62 253:0 /var/lib/docker/devicemapper /var/lib/docker/devicemapper rw,relatime - ext4 /dev/mapper/ssd-root rw,seclabel,data=ordered\n\
        150 23 1:58 / /media/nfs_vol rw,relatime shared:89 - nfs4 172.18.4.223:/srv/nfs rw,vers=4.0,sec=sys,addr=172.18.4.223\n\
        151 62 0:45 / /a\\040b rw,seclabel - tmpfs tmpfs rw\n\
        152 62 8:0 / /labelled rw - ext4 /dev/sda rw,context=\"system_u:object_r:container_file_t:s0:c314,c894\"\n";
    let check = |path: &str, expected: bool| {
        assert_eq!(takes_labels(table, Path::new(path)), expected, "{path}");
    };
    check("/", true);
    check("/tmp/a", true);
    check("/var/lib/bar", false);
    check("/var/lib/bars", true);
    check("/media/nfs_vol", false);
    check("/a b/c", true);
    check("/labelled/c", false);
    check("relative", false);
    assert!(!takes_labels(b"", Path::new("/")));
}
