use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::devices::tests::put;
use super::super::host::tests::host;
use super::*;

pub(in super::super) const TARGET: &str = "iqn.2014-12.com.example:test.tgt00";
pub(in super::super) const PORTAL: &str = "192.0.2.1:3260";

/// A program in the place of `iscsiadm`: it notes its calls, and makes and removes what the kernel and udev would. The
/// portals' sessions have the hosts 1, 2 and so on, by the last number of their addresses; the LUN 1 is the device.
pub(in super::super) fn iscsiadm(dir: &Path, device: &str) -> String {
    let (root, calls) = (dir.join("root"), dir.join("calls"));
    let name = device.rsplit('/').next().unwrap();
    format!(
        r#"echo "$*" >> {calls}
R={root}
N=${{4%:*}}; N=${{N##*.}}
H=$R/sys/class/iscsi_host/host$N; S=$H/device/session$N; C=$S/connection$N:0/iscsi_connection/connection$N:0
W=$R/dev/disk/by-path/ip-$4-iscsi-$6-lun-1
case "$*" in
*"-o show"*) printf 'iface.iscsi_ifacename = default\niface.ipaddress = <empty>\niface.transport_name = tcp\niface.initiatorname = <empty>\n' ;;
*--login*)
  mkdir -p $S/iscsi_session/session$N $C $S/target$N:0:0/$N:0:0:1/block/{name} $R/sys/class/scsi_host/host$N $R/dev/disk/by-path
  echo $6 > $S/iscsi_session/session$N/targetname
  echo ${{4%:*}} > $C/address; echo ${{4##*:}} > $C/port
  echo ${{4%:*}} > $C/persistent_address; echo ${{4##*:}} > $C/persistent_port
  : > $R/sys/class/scsi_host/host$N/scan
  ln -sfn {device} $W ;;
*--logout*) test -d $H || exit 21; rm -r $H $W ;;
esac"#,
        calls = calls.display(),
        root = root.display(),
    )
}

/// The calls since the last look.
pub(in super::super) fn calls(dir: &Path) -> Vec<String> {
    let path = dir.join("calls");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(&path);
    text.lines().map(str::to_owned).collect()
}

fn source(more: Value) -> Iscsi {
    let mut source =
        json!({"targetPortal": "192.0.2.1", "iqn": TARGET, "lun": 1, "iscsiInterface": "default"});
    for (key, value) in more.as_object().into_iter().flatten() {
        source[key] = value.clone();
    }
    Iscsi::inline("pv0001", &serde_json::from_value(source).unwrap(), "n")
}

const SHOWN: &str = "# BEGIN RECORD 2.0-873\niface.iscsi_ifacename = default\niface.transport_name = TRANSPORT\niface.initiatorname = <empty>\niface.mtu = 0\n# END RECORD";

/// Upstream's cases of `TestExtractTransportname`.
#[test]
fn transports() {
    let check = |named: &str, expected: &str| {
        assert_eq!(transport(&SHOWN.replace("TRANSPORT", named)).as_deref(), Some(expected));
    };
    check("tcp", "tcp");
    check("cxgb4i", "cxgb4i");
    check("<empty>", "tcp");
    assert_eq!(transport("iface.iscsi_ifacename = default\niface.initiatorname = <empty>\n"), None);
}

/// Upstream's cases of `TestParseIscsiadmShow`.
#[test]
fn settings_of_interfaces() {
    let check = |shown: &str, expected: &[(&str, &str)]| {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(settings(shown).unwrap(), expected);
    };
    check(&SHOWN.replace("TRANSPORT", "tcp"), &[("iface.transport_name", "tcp"), ("iface.mtu", "0")]);
    check(&SHOWN.replace("TRANSPORT", "cxgb4i"), &[("iface.transport_name", "cxgb4i"), ("iface.mtu", "0")]);
    check(&SHOWN.replace("TRANSPORT", "<empty>"), &[("iface.mtu", "0")]);
    assert!(settings("iface.iscsi_ifacename=error").is_err());
    assert!(settings("iface.iscsi_ifacename + error").is_err());
}

/// Upstream's cases of `TestExtractPortalAndIqn`, `TestExtractIface` and `TestExtractDeviceAndPrefix`.
#[test]
fn names_of_directories() {
    let check = |dir: &str, expected: Option<(&str, &str, &str)>| {
        let found = Record::of_dir("iface-default", dir);
        let found = found.as_ref().map(|r| (r.portals[0].as_str(), r.iqn.as_str(), r.lun.as_str()));
        assert_eq!(found, expected, "{dir}");
    };
    let iqn = "iqn.2014-12.com.example:test.tgt00";
    check(&format!("127.0.0.1:3260-{iqn}-lun-0"), Some(("127.0.0.1:3260", iqn, "0")));
    let eui = "eui.02004567A425678D";
    check(&format!("127.0.0.1:3260-{eui}-lun-0"), Some(("127.0.0.1:3260", eui, "0")));
    let six = "[2001:db8:0:f101::1]:3260";
    check(&format!("{six}-{iqn}-lun-12"), Some((six, iqn, "12")));
    check(&format!("127.0.0.1:3260-{iqn}"), None);
    check(&format!("127.0.0.1:3260-{iqn}-lun-x"), None);
    check("127.0.0.1:3260-test-lun-0", None);
    assert_eq!(Record::of_dir("default", &format!("127.0.0.1:3260-{iqn}-lun-0")), None);
    assert_eq!(Record::of_dir("iface-a", "p:1-iqn.x-lun-0").unwrap().iface, "a");
}

/// Upstream's cases of `TestRemoveDuplicate`, and of portals in iscsi_test.go.
#[test]
fn portals() {
    let check = |portals: &[&str], expected: &[&str]| {
        assert_eq!(source(json!({"portals": portals})).record.portals, expected);
    };
    check(&[], &[PORTAL]);
    check(&["192.0.2.1:3260", "192.0.2.100", "192.0.2.100:3260"], &[PORTAL, "192.0.2.100:3260"]);
    check(&["192.0.2.2:3261"], &[PORTAL, "192.0.2.2:3261"]);
}

#[test]
fn secrets() {
    assert_eq!(source(json!({"secretRef": {"name": "s"}})).secret(), None, "nobody asks for it");
    let wanted = source(json!({"secretRef": {"name": "s"}, "chapAuthSession": true}));
    assert_eq!(wanted.secret(), Some(&("n".into(), "s".into())));
    let persistent = |secret: Value| {
        let source = json!({"targetPortal": "p", "iqn": "iqn.x", "lun": 0, "chapAuthDiscovery": true, "secretRef": secret});
        Iscsi::persistent("pv", &serde_json::from_value(source).unwrap(), "of-claim").secret().cloned()
    };
    assert_eq!(persistent(json!({"name": "s"})), Some(("of-claim".into(), "s".into())));
    assert_eq!(persistent(json!({"name": "s", "namespace": "m"})), Some(("m".into(), "s".into())));
}

#[test]
fn records_are_upstreams() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Record::load(dir.path()), None);
    let record = source(json!({"initiatorName": "iqn.x:me"})).record;
    record.save(dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
    let expected = r#"{"VolName":"pv0001","Portals":["192.0.2.1:3260"],"Iqn":"iqn.2014-12.com.example:test.tgt00","Lun":"1","InitIface":"default","Iface":"192.0.2.1:3260:pv0001","InitiatorName":"iqn.x:me"}"#;
    assert_eq!(text.trim_end(), expected);
    assert_eq!(Record::load(dir.path()), Some(record.clone()));
    // As upstream's kubelet writes it.
    let theirs = expected.replace('}', r#","MetricsProvider":null}"#);
    fs::write(dir.path().join(FILE), theirs).unwrap();
    assert_eq!(Record::load(dir.path()), Some(record));
    fs::write(dir.path().join(FILE), "{").unwrap();
    assert_eq!(Record::load(dir.path()), None);
}

/// Upstream's cases of `TestGetVolCount`.
#[test]
fn volumes_of_targets() {
    let dir = tempfile::tempdir().unwrap();
    let target = "iqn.2003-01.io.k8s:e2e.volume-1";
    for path in [
        "iface-127.0.0.1:3260:pv1/127.0.0.1:3260-iqn.2003-01.io.k8s:e2e.volume-1-lun-3",
        "iface-127.0.0.1:3260:pv2/127.0.0.1:3260-iqn.2003-01.io.k8s:e2e.volume-1-lun-2",
        "iface-127.0.0.1:3260:pv2/192.168.0.1:3260-iqn.2003-01.io.k8s:e2e.volume-1-lun-1",
        "volumeDevices/iface-127.0.0.1:3260/192.168.0.2:3260-iqn.2003-01.io.k8s:e2e.volume-1-lun-4",
        "volumeDevices/iface-127.0.0.1:3260/192.168.0.3:3260-iqn.2003-01.io.k8s:e2e.volume-1-lun-5",
    ] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    let check = |below: &str, portal: &str, iqn: &str, expected: usize| {
        assert_eq!(
            volumes_of(&dir.path().join(below), portal, iqn).unwrap(),
            expected,
            "{below} {portal} {iqn}"
        );
    };
    check("", "192.168.0.2:3260", target, 0);
    check("", "127.0.0.1:3260", "iqn.2003-01.io.k8s:e2e.volume-3", 0);
    check("", "192.168.0.1:3260", target, 1);
    check("", "127.0.0.1:3260", target, 2);
    check("volumeDevices", "192.168.0.2:3260", target, 1);
    check("none", "127.0.0.1:3260", "iqn.2003-01.io.k8s:e2e.unknown", 0);
    check("", "127.0.0.1:3260", "iqn.2003-01.io.k8s:e2e.volume", 0);
}

/// Upstream's cases of `TestWaitForPathToExist`: the names of the ways to devices.
#[test]
fn ways_to_devices() {
    let check = |portal: &str, transport: &str, prefix: &str, suffix: &str| {
        let found = source(json!({})).record.device(portal, transport);
        assert_eq!(found, (prefix.to_owned(), suffix.to_owned()));
    };
    let way = format!("ip-127.0.0.1:3260-iscsi-{TARGET}-lun-1");
    check("127.0.0.1:3260", "tcp", &way, "");
    check("127.0.0.1:3260", "cxgb4i", "pci-", &format!("-{way}"));
    check("[fd00::1]:3260", "tcp", &format!("ip-fd00::1:3260-iscsi-{TARGET}-lun-1"), "");
}

#[tokio::test]
async fn a_target_is_logged_in_to_as_upstream_does() {
    let dir = tempfile::tempdir().unwrap();
    let script = iscsiadm(dir.path(), "../../sda");
    let host = host(dir.path(), &[("iscsiadm", &script)]);
    put(&host, "/dev/sda", "");
    let way = host.at(&format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-{TARGET}-lun-1"));
    let of = source(json!({"chapAuthDiscovery": true, "chapAuthSession": true}));
    let secret: Texts = [
        ("discovery.sendtargets.auth.username", "u"),
        ("discovery.sendtargets.auth.password", "p"),
        ("discovery.sendtargets.auth.username_in", ""),
        ("node.session.auth.password", "q"),
        ("other", "x"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    assert_eq!(of.attach(&host, &secret).await.unwrap(), way);
    assert_eq!(fs::read_to_string(host.at("/sys/class/scsi_host/host1/scan")).unwrap(), "0 0 1");
    let discovery = format!("-m discoverydb -t sendtargets -p {PORTAL} -I default");
    let node = format!("-m node -p {PORTAL} -T {TARGET} -I default");
    let expected = [
        "-m iface -I default -o show".to_owned(),
        format!("{discovery} -o new"),
        format!("{discovery} -o update -n discovery.sendtargets.auth.authmethod -v CHAP"),
        format!("{discovery} -o update -n discovery.sendtargets.auth.username -v u"),
        format!("{discovery} -o update -n discovery.sendtargets.auth.password -v p"),
        format!("{discovery} --discover"),
        format!("{node} -o update -n node.session.scan -v manual"),
        format!("{node} -o update -n node.session.auth.authmethod -v CHAP"),
        format!("{node} -o update -n node.session.auth.password -v q"),
        format!("{node} --login"),
        format!("-m node -p {PORTAL} -T {TARGET} -o update -n node.startup -v manual"),
    ];
    assert_eq!(calls(dir.path()), expected);
    // A node that is logged in looks for the LUN only.
    assert_eq!(of.attach(&host, &secret).await.unwrap(), way);
    assert_eq!(calls(dir.path()), ["-m iface -I default -o show"]);
    put(&host, "/sys/block/sda/device/delete", "");
    of.record.forget_devices(&host).await.unwrap();
    assert_eq!(fs::read_to_string(host.at("/sys/block/sda/device/delete")).unwrap(), "1");
    of.record.log_out(&host).await.unwrap();
    let logout = |what: &str| format!("-m node -p {PORTAL} -T {TARGET} {what} -I default");
    assert_eq!(calls(dir.path()), [logout("--logout"), logout("-o delete")]);
    assert!(host.portals(TARGET).unwrap().is_empty());
    // A session that is gone is as good as ended.
    of.record.log_out(&host).await.unwrap();
}

/// Upstream's cases of `TestClonedIface`, `TestClonedIfaceShowError` and `TestClonedIfaceUpdateError`.
#[tokio::test]
async fn an_initiator_has_an_interface_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let script = iscsiadm(dir.path(), "../../sda");
    let host = host(dir.path(), &[("iscsiadm", &script)]);
    let record = source(json!({"initiatorName": "iqn.x:me"})).record;
    let shown = "iface.ipaddress = <empty>\niface.transport_name = tcp\niface.initiatorname = <empty>\n";
    record.clone_interface(&host, shown).await.unwrap();
    let iface = format!("-m iface -I {PORTAL}:pv0001");
    let mut expected = vec![
        format!("{iface} -o new"),
        format!("{iface} -o update -n iface.initiatorname -v iqn.x:me"),
        format!("{iface} -o update -n iface.transport_name -v tcp"),
    ];
    assert_eq!(calls(dir.path()), expected);
    let same = Record { init_iface: record.iface.clone(), ..record.clone() };
    assert!(matches!(same.clone_interface(&host, shown).await, Err(IscsiError::SameInterface(_))));
    let script = format!("{script}\ncase \"$*\" in *transport_name*) exit 1;; *\"-o new\"*) exit 15;; esac");
    let host = super::super::host::tests::host(dir.path(), &[("iscsiadm", &script)]);
    assert!(record.clone_interface(&host, shown).await.is_err());
    expected.push(format!("{iface} -o delete"));
    assert_eq!(calls(dir.path()), expected);
    let script = format!("{script}\ncase \"$*\" in *show*) echo test error; exit 1;; esac");
    let host = super::super::host::tests::host(dir.path(), &[("iscsiadm", &script)]);
    let told = source(json!({"initiatorName": "iqn.x:me"})).attach(&host, &Texts::new()).await;
    let told = told.unwrap_err().to_string();
    assert!(
        told.starts_with("iscsi: could not read iface default error: ") && told.ends_with("(exit status 1)"),
        "{told}"
    );
}

#[tokio::test]
async fn several_portals_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let script = iscsiadm(dir.path(), "../../sda");
    let host = host(
        dir.path(),
        &[
            ("iscsiadm", &script),
            ("multipath", &format!("echo multipath \"$@\" >> {}/calls", dir.path().display())),
        ],
    );
    put(&host, "/dev/sda", "");
    put(&host, "/dev/dm-3", "");
    put(&host, "/sys/block/dm-3/slaves/sda", "");
    let of = source(json!({"portals": ["192.0.2.2"]}));
    assert_eq!(of.attach(&host, &Texts::new()).await.unwrap(), host.at("/dev/dm-3"));
    assert_eq!(host.portals(TARGET).unwrap().len(), 2);
    calls(dir.path());
    of.record.forget_devices(&host).await.unwrap();
    assert_eq!(calls(dir.path()), [format!("multipath -f {}", host.at("/dev/dm-3").display())]);
}

#[tokio::test]
async fn a_target_that_does_not_answer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "{}\ncase \"$*\" in *--discover*) echo cannot connect; exit 4;; esac",
        iscsiadm(dir.path(), "x")
    );
    let host = host(dir.path(), &[("iscsiadm", &script)]);
    let told = source(json!({})).attach(&host, &Texts::new()).await.unwrap_err().to_string();
    let expected = "failed to get any path for iscsi disk, last err seen:\niscsi: failed to sendtargets to portal 192.0.2.1:3260 output: cannot connect (exit status 4)";
    assert_eq!(told, expected);
    assert_eq!(
        calls(dir.path()).last().unwrap(),
        &format!("-m discoverydb -t sendtargets -p {PORTAL} -I default -o delete")
    );
    let none = Host { path: vec![dir.path().join("none")], ..host };
    let told = source(json!({})).attach(&none, &Texts::new()).await.unwrap_err().to_string();
    assert!(told.contains("exec: \"iscsiadm\": executable file not found in $PATH"), "{told}");
    // Nobody can have logged in.
    source(json!({})).record.log_out(&none).await.unwrap();
}
