//! Registries that authenticate, redirect, mirror, fail and lie.

use std::fs;
use std::path::Path;
use std::time::Duration;

use images::{Credentials, PullError};
use serde_json::json;
use tar::EntryType;
use testkit::Authority;
use testkit::registry::{Access, Fault, Registry, digest};

use super::{Tar, Test, noise, nothing, push};

fn user(name: &str, password: &str) -> Credentials {
    Credentials { username: name.to_owned(), password: password.to_owned(), ..Credentials::default() }
}

/// The name of an error's kind.
fn kind(result: Result<images::Pulled, PullError>) -> &'static str {
    match result {
        Ok(_) => "pulled",
        Err(PullError::NotFound(_)) => "not found",
        Err(PullError::Unauthorized { .. }) => "unauthorized",
        Err(PullError::Unavailable { .. }) => "unavailable",
        Err(PullError::Invalid { .. }) => "invalid",
        Err(PullError::TooLarge { .. }) => "too large",
        Err(PullError::NoSpace { .. }) => "no space",
        Err(PullError::Settings { .. }) => "settings",
        Err(PullError::Reference { .. }) => "reference",
        Err(PullError::Store(_)) => "store",
    }
}

fn small() -> testkit::registry::Layer {
    Tar::new().file("a", "1").gzip()
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_every_kind() {
    let registry = Registry::start().unwrap();
    let name = push(&registry, "app", &[small()]);
    let refresh = Credentials { identity_token: "refresh".to_owned(), ..Credentials::default() };
    let bearer = |t: &str| Credentials { registry_token: t.to_owned(), ..Credentials::default() };
    let auth = Credentials { auth: "dTpwdw==".to_owned(), ..Credentials::default() };
    let other = Credentials { server_address: "other.test".to_owned(), ..user("u", "pw") };
    let basic = Access::Basic("u".to_owned(), "pw".to_owned());
    let token_for = Access::TokenFor("u".to_owned(), "pw".to_owned());
    let cases = [
        (Access::Open, user("", ""), "pulled"),
        (basic.clone(), user("u", "pw"), "pulled"),
        (basic.clone(), auth.clone(), "pulled"),
        (basic.clone(), user("u", "wrong"), "unauthorized"),
        (basic.clone(), user("", ""), "unauthorized"),
        (basic.clone(), other, "unauthorized"),
        (Access::Token, user("", ""), "pulled"),
        (Access::Token, user("u", "pw"), "pulled"),
        (token_for.clone(), user("u", "pw"), "pulled"),
        (token_for.clone(), auth, "pulled"),
        (token_for.clone(), refresh, "pulled"),
        (token_for.clone(), user("u", "wrong"), "unauthorized"),
        (token_for.clone(), user("", ""), "unauthorized"),
        (token_for.clone(), bearer("t1"), "pulled"),
        (token_for, bearer("nonsense"), "unauthorized"),
    ];
    for (access, credentials, expected) in cases {
        let test = Test::new().await;
        registry.access(access.clone());
        let result = test.images.pull(&name, &credentials).await;
        let shown = format!("{result:?}");
        assert_eq!(kind(result), expected, "{access:?} {credentials:?}: {shown}");
        assert!(!shown.contains("pw"), "an error tells a password: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_kept_and_renewed() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    registry.access(Access::Token);
    let one = push(&registry, "one", &[small(), Tar::new().file("b", "2").gzip()]);
    test.images.pull(&one, &user("", "")).await.unwrap();
    test.images.pull(&one, &user("", "")).await.unwrap();
    let tokens = || registry.asked().iter().filter(|a| a.path.starts_with("/token")).count();
    assert_eq!(tokens(), 1);
    registry.expire();
    let two = push(&registry, "one", &[Tar::new().file("c", "3").gzip()]);
    test.images.pull(&two, &user("", "")).await.unwrap();
    assert_eq!(tokens(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_do_not_follow_a_redirect() {
    let (registry, elsewhere) = (Registry::start().unwrap(), Registry::start().unwrap());
    for access in [Access::Basic("u".into(), "pw".into()), Access::TokenFor("u".into(), "pw".into())] {
        let test = Test::new().await;
        registry.access(access);
        registry.heal();
        let layer = small();
        let name = push(&registry, "app", std::slice::from_ref(&layer));
        elsewhere.put_blob(layer.bytes.clone());
        registry.fault(&digest(&layer.bytes), None, Fault::Redirect(elsewhere.url()));
        test.images.pull(&name, &user("u", "pw")).await.unwrap();
    }
    let asked = elsewhere.asked();
    assert_eq!(asked.len(), 2);
    for question in asked {
        assert_eq!(question.header("authorization"), None);
        assert!(question.path.contains("/blobs/"));
    }
    // Around in circles.
    let test = Test::new().await;
    registry.heal();
    registry.access(Access::Open);
    registry.fault("/blobs/", None, Fault::Redirect(registry.url()));
    let name = push(&registry, "app", &[small()]);
    assert_eq!(kind(test.images.pull(&name, &user("", "")).await), "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_downloads_go_on_where_they_were() {
    let data = noise(900_000, 3);
    let layer = Tar::new().entry(EntryType::Regular, "big", "", 0o644, &data).layer();
    let blob = digest(&layer.bytes);
    let cases = [
        vec![(Some(3), Fault::Break(200_000))],
        vec![(Some(1), Fault::Break(200_000)), (Some(1), Fault::NoRanges)],
        vec![(Some(2), Fault::Code(503, vec![]))],
        vec![(Some(1), Fault::Code(429, vec!["Retry-After: 0".to_owned()]))],
        vec![(Some(1), Fault::Break(1)), (Some(1), Fault::Code(500, vec![]))],
    ];
    for faults in cases {
        let registry = Registry::start().unwrap();
        let test = Test::new().await;
        let name = push(&registry, "app", std::slice::from_ref(&layer));
        for (times, fault) in &faults {
            registry.fault(&blob, *times, fault.clone());
        }
        test.images.pull(&name, &user("", "")).await.unwrap();
        assert_eq!(fs::read(test.mounted("c1", &name).path("big")).unwrap(), data, "{faults:?}");
        assert!(registry.asked().iter().filter(|a| a.path.contains(&blob)).count() > 1, "{faults:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_lies_gets_an_error_and_leaves_nothing() {
    let big = Tar::new().entry(EntryType::Regular, "big", "", 0o644, &noise(300_000, 4)).gzip();
    let blob = digest(&big.bytes);
    let cases = [
        ("/manifests/", Fault::Corrupt, "invalid"),
        ("/manifests/", Fault::Endless, "invalid"),
        ("/manifests/", Fault::Code(404, vec![]), "not found"),
        ("/manifests/", Fault::Code(403, vec![]), "unauthorized"),
        ("/manifests/", Fault::Code(401, vec![]), "unauthorized"),
        ("/manifests/", Fault::Code(400, vec![]), "invalid"),
        ("/manifests/", Fault::Code(503, vec![]), "unavailable"),
        ("/manifests/", Fault::Break(10), "unavailable"),
        ("/manifests/", Fault::Redirect("file:///etc".to_owned()), "unavailable"),
        (&*blob, Fault::Corrupt, "invalid"),
        (&*blob, Fault::Endless, "invalid"),
        (&*blob, Fault::Code(404, vec![]), "not found"),
        (&*blob, Fault::Break(0), "unavailable"),
        ("/blobs/", Fault::Corrupt, "invalid"),
        ("/blobs/", Fault::Endless, "invalid"),
    ];
    for (part, fault, expected) in cases {
        let registry = Registry::start().unwrap();
        let test = Test::with(|s| s.limits.attempts = 2).await;
        let name = push(&registry, "app", std::slice::from_ref(&big));
        registry.fault(part, None, fault.clone());
        let result = test.images.pull(&name, &user("", "")).await;
        let shown = format!("{result:?}");
        assert_eq!(kind(result), expected, "{part} {fault:?}: {shown}");
        assert!(test.images.list().is_empty());
        let test = test.reopen().await;
        assert!(test.names("layers").is_empty(), "{part} {fault:?}");
        if matches!(fault, Fault::Corrupt) {
            let rest = test.names("ingest");
            assert!(!rest.iter().any(|n| n.contains("part")), "{part} {fault:?}: {rest:?}");
        }
        // The registry is honest again.
        registry.heal();
        test.images.pull(&name, &user("", "")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_are_none() {
    let registry = Registry::start().unwrap();
    let test = Test::new().await;
    let oci = "application/vnd.oci.image.manifest.v1+json";
    let put = |tag: &str, media_type: &str, manifest: serde_json::Value| {
        registry.put_manifest("test/bad", tag, media_type, manifest.to_string().into_bytes());
    };
    let config = registry.put_blob(
        json!({"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}})
            .to_string()
            .into_bytes(),
    );
    let entry =
        |media: &str, digest: &str, size: usize| json!({"mediaType": media, "digest": digest, "size": size});
    let image = "application/vnd.oci.image.config.v1+json";
    let layer = entry("application/vnd.oci.image.layer.v1.tar", &config, 1);
    let many: Vec<_> = (0..10_000).map(|_| layer.clone()).collect();
    put("schema1", "application/vnd.docker.distribution.manifest.v1+prettyjws", json!({"schemaVersion": 1}));
    put("many", oci, json!({"config": entry(image, &config, 79), "layers": many}));
    put("count", oci, json!({"config": entry(image, &config, 79), "layers": [layer]}));
    put("huge", oci, json!({"config": entry(image, &config, 1 << 40), "layers": []}));
    put("long", oci, json!({"config": entry(image, &config, 10), "layers": []}));
    put("self", "application/vnd.oci.image.index.v1+json", json!({"manifests": [entry(oci, &config, 79)]}));
    registry.put_manifest("test/bad", "text", oci, b"<html>".to_vec());
    registry.put_manifest("test/bad", "big", oci, vec![b' '; 100 << 20]);
    let wrong = small();
    let mut lying = wrong.clone();
    lying.diff_id = digest(b"something else");
    registry.push("test/bad", "diff", &nothing(), &[lying]);
    let junk = testkit::registry::Layer::plain(noise(100_000, 5));
    registry.push("test/bad", "junk", &nothing(), &[junk]);
    for (tag, expected) in [
        ("schema1", "invalid"),
        ("many", "too large"),
        ("count", "invalid"),
        ("huge", "too large"),
        ("long", "invalid"),
        ("self", "invalid"),
        ("text", "invalid"),
        ("big", "invalid"),
        ("diff", "invalid"),
        ("junk", "invalid"),
        ("none", "not found"),
    ] {
        let name = format!("{}/test/bad:{tag}", registry.host());
        let result = test.images.pull(&name, &user("", "")).await;
        let shown = format!("{result:?}");
        assert_eq!(kind(result), expected, "{tag}: {shown}");
    }
    for bad in ["", "A b", "UPPER", "x@sha256:1"] {
        assert_eq!(kind(test.images.pull(bad, &user("", "")).await), "reference", "{bad}");
    }
    assert!(test.images.list().is_empty());
    let test = test.reopen().await;
    assert!(test.names("layers").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_registry_is_given_up() {
    let registry = Registry::start().unwrap();
    let test = Test::with(|s| {
        s.limits.silence = Duration::from_millis(200);
        s.limits.attempts = 2;
    })
    .await;
    let layer = Tar::new().entry(EntryType::Regular, "big", "", 0o644, &noise(100_000, 6)).layer();
    let name = push(&registry, "app", std::slice::from_ref(&layer));
    registry.fault(&digest(&layer.bytes), None, Fault::Stall(5));
    assert_eq!(kind(test.images.pull(&name, &user("", "")).await), "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_a_pull_and_a_bomb() {
    let registry = Registry::start().unwrap();
    // The reserve is larger than what any disk has free.
    let test = Test::with(|s| s.limits.reserve_percent = 99).await;
    let bomb = Tar::new().entry(EntryType::Regular, "big", "", 0o644, &vec![7; 20 << 20]).gzip();
    assert!(bomb.bytes.len() < 1 << 20);
    let name = push(&registry, "bomb", &[bomb]);
    assert_eq!(kind(test.images.pull(&name, &user("", "")).await), "no space");
    let test = test.reopen().await;
    assert!(test.names("layers").is_empty());
    let rest = test.names("ingest");
    assert!(rest.iter().all(|n| !n.starts_with("unpack")), "{rest:?}");
}

/// Writes a registry's `hosts.toml`.
fn hosts(test: &Test, domain: &str, text: &str) {
    let directory = test.directory.path().join("registries").join(domain);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("hosts.toml"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_come_first() {
    let (server, mirror) = (Registry::start().unwrap(), Registry::start().unwrap());
    let test = Test::new().await;
    let layer = small();
    for registry in [&server, &mirror] {
        push(registry, "app", std::slice::from_ref(&layer));
    }
    let text = |capabilities: &str, extra: &str| {
        format!(
            "server = \"{}\"\n[host.\"{}\"]\ncapabilities = [{capabilities}]\n{extra}",
            server.url(),
            mirror.url()
        )
    };
    let header = format!("[host.\"{}\".header]\nx-test = \"yes\"\n", mirror.url());
    hosts(&test, "registry.test", &text("\"pull\", \"resolve\"", &header));
    let name = "registry.test/test/app:1";
    test.images.pull(name, &user("", "")).await.unwrap();
    assert!(server.asked().is_empty());
    for question in mirror.asked() {
        assert!(question.path.ends_with("?ns=registry.test"), "{}", question.path);
        assert_eq!(question.header("x-test"), Some("yes"));
    }
    test.images.remove(name).await.unwrap();

    // A mirror that only has content: the server says which.
    hosts(&test, "registry.test", &text("\"pull\"", ""));
    test.images.pull(name, &user("", "")).await.unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].method, "HEAD");
    test.images.remove(name).await.unwrap();

    // A mirror that does not have it, or is not there.
    for fault in [Fault::Code(404, vec![]), Fault::Code(500, vec![]), Fault::Break(0)] {
        mirror.fault("/v2/", None, fault);
        let before = server.asked().len();
        test.images.pull(name, &user("", "")).await.unwrap();
        assert!(server.asked().len() > before);
        test.images.remove(name).await.unwrap();
        mirror.heal();
    }
    hosts(&test, "registry.test", "server = 1");
    assert_eq!(kind(test.images.pull(name, &user("", "")).await), "settings");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified() {
    let test = Test::new().await;
    let directory = test.directory.path();
    let authority = Authority::new("test").unwrap();
    let (certificate, key) =
        authority.issue(("registry", ""), &["127.0.0.1"], (directory, "server")).unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    let registry = Registry::start_tls(&certificate, &key).unwrap();
    push(&registry, "app", &[small()]);
    let name = "registry.test/test/app:1";
    let server = registry.url();
    let nobody = Credentials::default();
    let pulled = |text: String| {
        hosts(&test, "registry.test", &text);
        test.images.pull(name, &nobody)
    };
    let ca = directory.join("ca.pem");
    assert_eq!(kind(pulled(format!("server = \"{server}\"\nca = \"{}\"", ca.display())).await), "pulled");
    assert_eq!(kind(pulled(format!("server = \"{server}\"\nskip_verify = true")).await), "pulled");
    // Another authority does not vouch for it.
    let other = directory.join("other.pem");
    fs::write(&other, Authority::new("other").unwrap().pem()).unwrap();
    let refused = pulled(format!("server = \"{server}\"\nca = \"{}\"", other.display())).await;
    assert!(format!("{refused:?}").contains("certificate"), "{refused:?}");
    assert_eq!(kind(refused), "unavailable");
    assert_eq!(kind(pulled(format!("server = \"{server}\"\nca = \"/nowhere\"")).await), "unavailable");
    // On this machine itself, TLS needs no authority.
    let local = push(&registry, "app", &[small()]);
    assert_eq!(kind(test.images.pull(&local, &Credentials::default()).await), "pulled");
    assert!(Path::new("/proc").exists());
}
