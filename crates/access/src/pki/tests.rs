use std::fs;
use std::os::unix::fs::PermissionsExt;

use jiff::SignedDuration;

use super::*;

fn config() -> PkiConfig {
    PkiConfig {
        hostname: "machine".into(),
        addresses: vec![IpAddr::from([192, 0, 2, 7])],
        names: vec![],
        service_address: Some(IpAddr::from([10, 96, 0, 1])),
        cluster_domain: "cluster.local".into(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
    }
}

fn subjects(pem: &Credential) -> (String, String, Vec<String>) {
    let der = pem.certificate();
    let (_, c) = x509_parser::parse_x509_certificate(&der).unwrap();
    let san = c.subject_alternative_name().unwrap();
    (
        c.subject().to_string(),
        c.issuer().to_string(),
        san.map(|s| s.value.general_names.iter().map(|n| n.to_string()).collect()).unwrap_or_default(),
    )
}

#[test]
fn files_are_private_and_reused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let first = Pki::ensure(&data, &config()).unwrap();
    for entry in fs::read_dir(data.join("pki")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
    }
    assert_eq!(fs::metadata(data.join("pki")).unwrap().permissions().mode() & 0o777, 0o700);
    let second = Pki::ensure(&data, &config()).unwrap();
    assert_eq!(first.ca.certificate_pem, second.ca.certificate_pem);
    assert_eq!(first.apiserver.certificate_pem, second.apiserver.certificate_pem);
    assert_eq!(first.service_account_key_pem, second.service_account_key_pem);
}

#[test]
fn subjects_and_names() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::ensure(dir.path(), &config()).unwrap();
    assert_eq!(subjects(&pki.admin).0, "O=system:masters, CN=kubernetes-admin");
    assert_eq!(subjects(&pki.scheduler).0, "CN=system:kube-scheduler");
    let (_, issuer, names) = subjects(&pki.apiserver);
    assert_eq!(issuer, "CN=kubernetes");
    for want in ["kubernetes.default.svc.cluster.local", "localhost", "machine"] {
        assert!(names.contains(&format!("DNSName({want})")), "{want} in {names:?}");
    }
    assert_eq!(names.iter().filter(|n| n.starts_with("IPAddress")).count(), 4, "{names:?}");
    assert_eq!(subjects(&pki.front_proxy_client).1, "CN=front-proxy-ca");
}

#[test]
fn who_calls_kubelets_is_no_superuser() {
    let dir = tempfile::tempdir().unwrap();
    let first = Pki::ensure(dir.path(), &config()).unwrap();
    let stem = "apiserver-kubelet-client";
    assert_eq!(subjects(&first.apiserver_kubelet_client).0, "CN=kube-apiserver-kubelet-client");
    // The certificate of older versions.
    let older = Profile::client("kube-apiserver-kubelet-client", Some("system:masters"));
    let old = first.ca.ensure_leaf(&dir.path().join("pki"), stem, &older, config().now).unwrap();
    assert_eq!(subjects(&old).0, "O=system:masters, CN=kube-apiserver-kubelet-client");
    let again = Pki::ensure(dir.path(), &config()).unwrap();
    assert_eq!(subjects(&again.apiserver_kubelet_client).0, "CN=kube-apiserver-kubelet-client");
    let kept = fs::read_to_string(dir.path().join("pki").join(stem).with_extension("crt")).unwrap();
    assert_eq!(kept, again.apiserver_kubelet_client.certificate_pem);
}

/// A change since the first start, and whether each of the two certificates is new.
#[test]
fn renewal() {
    type Change = fn(&mut PkiConfig);
    let cases: [(&str, Change, bool, bool); 5] = [
        ("nothing changed", |_| {}, false, false),
        ("an address came", |c| c.addresses.push(IpAddr::from([192, 0, 2, 8])), true, false),
        ("a year less 91 days passed", |c| c.now += SignedDuration::from_hours(24 * 273), false, false),
        ("a year less 89 days passed", |c| c.now += SignedDuration::from_hours(24 * 277), true, true),
        ("the clock went back", |c| c.now -= SignedDuration::from_hours(1), true, true),
    ];
    for (what, change, apiserver, admin) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config();
        let old = Pki::ensure(dir.path(), &config).unwrap();
        change(&mut config);
        let new = Pki::ensure(dir.path(), &config).unwrap();
        assert_eq!(old.ca.certificate_pem, new.ca.certificate_pem, "{what}");
        assert_eq!(old.apiserver.certificate_pem != new.apiserver.certificate_pem, apiserver, "{what}");
        assert_eq!(old.admin.certificate_pem != new.admin.certificate_pem, admin, "{what}");
    }
}

#[test]
fn an_authority_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    Pki::ensure(dir.path(), &config()).unwrap();
    let ca = dir.path().join("pki/ca.crt");
    fs::write(&ca, "nonsense").unwrap();
    assert!(matches!(Pki::ensure(dir.path(), &config()), Err(PkiError::Unusable { .. })));
    assert_eq!(fs::read_to_string(&ca).unwrap(), "nonsense");
}

#[test]
fn a_key_of_another_certificate_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let old = Pki::ensure(dir.path(), &config()).unwrap();
    fs::copy(dir.path().join("pki/scheduler.key"), dir.path().join("pki/admin.key")).unwrap();
    let new = Pki::ensure(dir.path(), &config()).unwrap();
    assert_ne!(old.admin.certificate_pem, new.admin.certificate_pem);
    assert_eq!(old.scheduler.certificate_pem, new.scheduler.certificate_pem);
}

#[test]
fn kubeconfig_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::ensure(dir.path(), &config()).unwrap();
    let path = dir.path().join("sub/admin.conf");
    write_kubeconfig(
        &path,
        "https://127.0.0.1:6443",
        &pki.ca.certificate_pem,
        "kubernetes-admin",
        &pki.admin,
    )
    .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let read: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(read["current-context"], "kubernetes-admin@kubernetes");
}

/// The pin is that of `openssl x509 -pubkey | openssl pkey -pubin -outform der | sha256sum`.
#[test]
fn pins_are_hashes_of_public_keys() {
    use sha2::{Digest, Sha256};
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let ca = Authority::generate("kubernetes", now).unwrap();
    let key = rcgen::KeyPair::from_pem(&ca.key_pem).unwrap();
    let key = rcgen::PublicKeyData::subject_public_key_info(&key);
    let expected = format!("sha256:{:x}", Sha256::digest(key));
    assert_eq!(public_key_hash(&ca.certificate()), Some(expected));
    assert_eq!(public_key_hash(b"junk"), None);
}
