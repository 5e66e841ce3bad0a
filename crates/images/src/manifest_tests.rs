use serde_json::json;

use super::*;

const HEX: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

fn descriptor(media_type: &str) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{HEX}"), "size": 7})
}

fn check(media_type: &str, document: &Value, expected: &str) {
    let read = parse(media_type, document.to_string().as_bytes());
    let shown = match read {
        Ok(Document::Index(list)) => format!("index of {}", list.len()),
        Ok(Document::Manifest(m)) => format!("manifest of {}", m.layers.len()),
        Err(e) => e.to_string(),
    };
    assert!(shown.contains(expected), "{document}: {shown}");
}

#[test]
fn documents_are_told_apart() {
    let manifest =
        json!({"schemaVersion": 2, "config": descriptor(OCI_CONFIGURATION), "layers": [descriptor("x")]});
    check(OCI_MANIFEST, &manifest, "manifest of 1");
    check("application/vnd.oci.image.manifest.v1+json; charset=utf-8", &manifest, "manifest of 1");
    check("", &manifest, "manifest of 1");
    check("application/json", &manifest, "manifest of 1");
    let mut named = manifest.clone();
    named["mediaType"] = DOCKER_MANIFEST.into();
    check("text/plain", &named, "manifest of 1");
    check(OCI_MANIFEST, &named, "but says that it is");
    check(OCI_INDEX, &named, "but says that it is");
    let index =
        json!({"schemaVersion": 2, "manifests": [descriptor(OCI_MANIFEST), descriptor(OCI_MANIFEST)]});
    check(OCI_INDEX, &index, "index of 2");
    check("", &index, "index of 2");
    check(OCI_MANIFEST, &index, "it has no configuration");
    check(OCI_INDEX, &json!({"schemaVersion": 2, "manifests": null}), "index of 0");
    check(
        OCI_MANIFEST,
        &json!({"config": descriptor("x"), "layers": null, "annotations": null}),
        "manifest of 0",
    );
    let mut both = manifest.clone();
    both["manifests"] = json!([descriptor(OCI_MANIFEST)]);
    check("", &both, "it has manifests, and a configuration");
}

#[test]
fn bad_documents_are_refused() {
    check("", &json!({"schemaVersion": 1, "fsLayers": [], "history": []}), "schema 1");
    check("application/vnd.docker.distribution.manifest.v1+prettyjws", &json!({}), "schema 1");
    check("", &json!({}), "it has no configuration");
    check("", &json!([]), "invalid");
    check("", &json!({"config": {"digest": "sha256:00", "size": 1}}), "is no digest");
    check("", &json!({"config": {"digest": format!("md5:{HEX}"), "size": 1}}), "is no digest");
    check("", &json!({"config": {"digest": format!("sha256:{HEX}"), "size": -1}}), "invalid");
    let layers: Vec<Value> = (0..10_000).map(|_| descriptor("x")).collect();
    check("", &json!({"config": descriptor("x"), "layers": layers}), "10000 layers");
    assert!(parse("", &vec![b' '; 5 << 20]).is_err());
    assert!(parse("", "[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn layers_are_archives_or_files() {
    let content = |media_type: &str, annotations: Value| {
        let mut value = descriptor(media_type);
        value["annotations"] = annotations;
        serde_json::from_value::<Descriptor>(value).unwrap().content()
    };
    for archive in [
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        assert_eq!(content(archive, Value::Null), Content::Archive, "{archive}");
    }
    let encrypted = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
    assert_eq!(content(encrypted, Value::Null), Content::Encrypted);
    let title = json!({"org.opencontainers.image.title": "model.bin"});
    assert_eq!(content("application/octet-stream", title), Content::File("model.bin".into()));
    assert_eq!(content("text/plain", Value::Null), Content::File(String::new()));
    let packed = json!({"io.deis.oras.content.unpack": "true", "org.opencontainers.image.title": "d"});
    assert_eq!(content("application/x-tar", packed), Content::Archive);
}

#[test]
fn an_index_is_chosen_from_by_platform() {
    let entry = |platform: Value| {
        let mut value = descriptor(OCI_MANIFEST);
        value["platform"] = platform;
        serde_json::from_value::<Descriptor>(value).unwrap()
    };
    let of =
        |os: &str, arch: &str, variant: &str| json!({"os": os, "architecture": arch, "variant": variant});
    let index = [
        entry(of("unknown", "unknown", "")),
        entry(of("windows", "amd64", "")),
        entry(of("linux", "386", "")),
        entry(of("linux", "amd64", "")),
        entry(of("linux", "arm64", "v8")),
        entry(of("linux", "arm", "v7")),
        entry(Value::Null),
    ];
    let check = |os: &str, arch: &str, expected: &[usize]| {
        let found = candidates(&Platform::new(os, arch, ""), &index);
        let places: Vec<usize> =
            found.iter().map(|d| index.iter().position(|i| std::ptr::eq(i, *d)).unwrap()).collect();
        assert_eq!(places, expected, "{os}/{arch}");
    };
    check("linux", "amd64", &[3]);
    check("linux", "386", &[2]);
    check("linux", "arm64", &[4]);
    check("linux", "arm", &[5]);
    check("linux", "s390x", &[6]);
}

#[test]
fn configurations_as_builders_write_them() {
    let good = json!({
        "architecture": "amd64", "os": "linux", "created": null,
        "config": {
            "User": "1000:100", "Env": ["A=b"], "Entrypoint": null, "Cmd": ["sh"], "Volumes": {"/data": {}},
            "ExposedPorts": null, "WorkingDir": "/w", "Labels": null, "StopSignal": "SIGINT", "OnBuild": null,
            "Healthcheck": {"Test": ["NONE"]}, "ArgsEscaped": true,
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{HEX}")]},
        "history": [{"created": "2024-01-01T00:00:00Z", "created_by": "x", "empty_layer": true}],
    });
    let read = configuration(good.to_string().as_bytes(), 1).unwrap();
    let config = read.config().as_ref().unwrap();
    assert_eq!(config.user().as_deref(), Some("1000:100"));
    assert_eq!(config.volumes().as_deref(), Some(&["/data".to_owned()][..]));
    assert_eq!(config.stop_signal().as_deref(), Some("SIGINT"));
    assert!(configuration(good.to_string().as_bytes(), 2).is_err());
    assert!(configuration(b"{}", 0).is_ok());
    assert!(configuration(b"[]", 0).is_err());
    assert!(configuration(br#"{"rootfs": {"diff_ids": ["x"]}}"#, 1).is_err());
    assert!(configuration(br#"{"rootfs": 1}"#, 0).is_err());
}
