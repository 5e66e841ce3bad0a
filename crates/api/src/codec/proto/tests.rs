use super::*;
use crate::codec::json;
use crate::schema::Gvk;

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
