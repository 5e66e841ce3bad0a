use super::*;
use crate::codec::json;
use crate::schema::Gvk;

/// The golden files of `k8s.io/api`, the directory `testdata/HEAD`.
fn golden() -> Option<std::path::PathBuf> {
    std::env::var_os("K8S_API_TESTDATA").map(Into::into)
}

#[test]
fn a_pod_round_trips() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    let text = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"b":"1","a":"2"},"creationTimestamp":"2024-01-02T03:04:05Z"},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"100m"}},"livenessProbe":{"httpGet":{"port":"web"}}}],"terminationGracePeriodSeconds":0,"hostNetwork":true},"status":{}}"#;
    let decoded = json::decode(schema, root, text).unwrap();
    let body = encode(schema, "v1", "Pod", &decoded.tree);
    let back = decode(schema, root, &body).unwrap();
    assert_eq!(back.kind, "Pod");
    assert_eq!(back.api_version, "v1");
    let mut want = Vec::new();
    json::encode(schema, &decoded.tree, &mut want);
    let mut got = Vec::new();
    json::encode(schema, &back.tree, &mut got);
    assert_eq!(String::from_utf8(got).unwrap(), String::from_utf8(want).unwrap());
}

#[test]
fn garbage_is_refused() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    assert!(decode(schema, root, b"{}").is_err());
    let mut seed = fastrand_like(7);
    for _ in 0..2000 {
        let mut body = MAGIC.to_vec();
        let len = seed() as usize % 200;
        let raw: Vec<u8> = (0..len).map(|_| seed() as u8).collect();
        put_bytes(2, &raw, &mut body);
        let _ = decode(schema, root, &body); // no panic, no hang
    }
}

/// A small generator, so that a failure can be repeated.
fn fastrand_like(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// Upstream's golden files: each `.pb` decodes to its `.json`, and encodes back byte for byte.
#[test]
fn golden_files() {
    let Some(dir) = golden() else {
        assert!(std::env::var_os("CI").is_none(), "K8S_API_TESTDATA must name the golden files");
        return;
    };
    let schema = Schema::builtin();
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "pb") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let body = std::fs::read(&path).unwrap();
        let envelope = open(&body).unwrap();
        let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", &envelope.api_version));
        let Some(root) = schema.kind(&Gvk::new(group, version, &envelope.kind)) else { continue };
        let text = std::fs::read(path.with_extension("json")).unwrap();
        let from_json = json::decode(schema, root, &text).unwrap().tree;
        let from_pb = decode(schema, root, &body).unwrap().tree;
        checked += 1;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        json::encode(schema, &from_json, &mut a);
        json::encode(schema, &from_pb, &mut b);
        if a != b {
            wrong.push(format!("{name}: protobuf decodes to something else than JSON"));
        } else if encode(schema, &envelope.api_version, &envelope.kind, &from_json) != body {
            wrong.push(format!("{name}: encodes to other bytes"));
        }
    }
    assert!(checked > 100, "only {checked} golden files");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
}
