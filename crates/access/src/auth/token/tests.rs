use serde_json::json;

use super::*;
use crate::testing::Fake;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// An issuer whose tokens are still taken.
const OLDER: &str = "https://older.example";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn cluster() -> Arc<Fake> {
    let fake = Fake::default();
    let meta = |namespace: &str, name: &str, uid: &str| json!({ "metadata": { "namespace": namespace, "name": name, "uid": uid } });
    fake.put(("", "serviceaccounts"), meta("a", "robot", "u1"));
    fake.put(("", "pods"), meta("a", "p", "u2"));
    fake.put(("", "nodes"), meta("", "n", "u3"));
    Arc::new(fake)
}

fn service(reader: Arc<Fake>) -> TokenService {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    TokenService::new(
        &[ISSUER, OLDER],
        vec![ISSUER.into()],
        SigningKey::from_pem(&key).unwrap(),
        vec![],
        reader,
    )
}

fn named(name: &str, uid: &str) -> Ref {
    Ref { name: name.into(), uid: uid.into() }
}

fn claims(bound: Bound, audiences: &[&str]) -> Claims {
    let audiences = audiences.iter().map(|a| Text::from(*a)).collect();
    Claims::new(ISSUER, "a", named("robot", "u1"), bound, audiences, now(), 600, None)
}

#[test]
fn round_trip() {
    let service = service(cluster());
    let claims = claims(Bound::Pod(named("p", "u2"), Some(named("n", "u3"))), &[ISSUER]);
    let token = service.sign(&claims).unwrap();
    let who = service.authenticate(&token, &[], now(), &Notes::default()).unwrap().unwrap();
    assert_eq!(who.user.name, "system:serviceaccount:a:robot");
    assert_eq!(who.user.uid, "u1");
    assert_eq!(
        who.user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]
    );
    let extra: Vec<(&str, &str)> = who.user.extra.iter().map(|(k, v)| (k.as_str(), v[0].as_str())).collect();
    let jti = format!("JTI={}", claims.jti);
    assert_eq!(
        extra,
        [
            ("authentication.kubernetes.io/credential-id", jti.as_str()),
            ("authentication.kubernetes.io/node-name", "n"),
            ("authentication.kubernetes.io/node-uid", "u3"),
            ("authentication.kubernetes.io/pod-name", "p"),
            ("authentication.kubernetes.io/pod-uid", "u2"),
        ]
    );
    let payload = token.split('.').nth(1).unwrap();
    let payload: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    assert_eq!(
        payload,
        json!({
            "aud": [ISSUER], "exp": 1_767_226_200, "iat": 1_767_225_600, "nbf": 1_767_225_600,
            "iss": ISSUER, "jti": claims.jti, "sub": "system:serviceaccount:a:robot",
            "kubernetes.io": {
                "namespace": "a",
                "node": { "name": "n", "uid": "u3" },
                "pod": { "name": "p", "uid": "u2" },
                "serviceaccount": { "name": "robot", "uid": "u1" },
            },
        })
    );
}

#[test]
fn what_does_not_hold() {
    let cluster = cluster();
    let service = service(cluster.clone());
    let late = now() + jiff::SignedDuration::from_secs(661);
    let early = now() - jiff::SignedDuration::from_secs(61);
    let deleted = "service account token has been invalidated";
    let cases = [
        (claims(Bound::No, &[ISSUER]), now(), Ok(())),
        (claims(Bound::No, &[]), now(), Ok(())),
        (claims(Bound::No, &[ISSUER]), late, Err("service account token has expired".to_owned())),
        (claims(Bound::No, &[ISSUER]), early, Err("service account token is not valid yet".into())),
        (
            claims(Bound::No, &["vault"]),
            now(),
            Err(format!("token audiences [\"vault\"] is invalid for the target audiences [\"{ISSUER}\"]")),
        ),
        (claims(Bound::Pod(named("gone", "u2"), None), &[ISSUER]), now(), Err(deleted.into())),
        (
            claims(Bound::Pod(named("p", "u9"), None), &[ISSUER]),
            now(),
            Err("Pod UID (u2) does not match service account pod ref claim (u9)".into()),
        ),
        (claims(Bound::Node(named("n", "u3")), &[ISSUER]), now(), Ok(())),
        (claims(Bound::Node(named("m", "u3")), &[ISSUER]), now(), Err(deleted.into())),
        (claims(Bound::Secret(named("s", "u4")), &[ISSUER]), now(), Err(deleted.into())),
    ];
    for (claims, now, want) in cases {
        let token = service.sign(&claims).unwrap();
        // Twice: the second time the signature is in the cache.
        for _ in 0..2 {
            let got = service
                .authenticate(&token, &[], now, &Notes::default())
                .map(|a| assert!(a.is_some()))
                .map_err(|e| e.0);
            assert_eq!(got, want, "{claims:?}");
        }
    }
    let token = service.sign(&claims(Bound::No, &[ISSUER])).unwrap();
    cluster.remove(("", "serviceaccounts"), "a", "robot");
    assert!(service.authenticate(&token, &[], now(), &Notes::default()).is_err());
}

#[test]
fn a_pod_that_ends_keeps_its_token_until_it_should_be_gone() {
    let cluster = cluster();
    let service = service(cluster.clone());
    let token = service.sign(&claims(Bound::Pod(named("p", "u2"), None), &[ISSUER])).unwrap();
    let ends = |at: &str| json!({ "metadata": { "namespace": "a", "name": "p", "uid": "u2", "deletionTimestamp": at } });
    cluster.put(("", "pods"), ends("2026-01-01T00:00:30Z"));
    assert!(service.authenticate(&token, &[], now(), &Notes::default()).is_ok());
    cluster.put(("", "pods"), ends("2025-12-31T23:58:59Z"));
    assert!(service.authenticate(&token, &[], now(), &Notes::default()).is_err());
}

#[test]
fn foreign_and_forged() {
    let (ours, theirs) = (service(cluster()), service(cluster()));
    let token = theirs.sign(&claims(Bound::No, &[ISSUER])).unwrap();
    assert!(ours.authenticate(&token, &[], now(), &Notes::default()).is_err());
    let mut forged = ours.sign(&claims(Bound::No, &[ISSUER])).unwrap();
    let last = if forged.pop() == Some('A') { 'Q' } else { 'A' };
    forged.push(last);
    assert!(ours.authenticate(&forged, &[], now(), &Notes::default()).is_err());
    for nonsense in ["", "a", "a.b.c", "....", "e30.e30.e30"] {
        assert!(ours.authenticate(nonsense, &[], now(), &Notes::default()).unwrap().is_none(), "{nonsense}");
    }
    // The algorithm of the header must be the key's.
    let token = ours.sign(&claims(Bound::No, &[ISSUER])).unwrap();
    let (_, rest) = token.split_once('.').unwrap();
    let none = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
    assert!(ours.authenticate(&none, &[], now(), &Notes::default()).is_err());
}

/// The Secret of a token, with these labels.
fn secret_of(token: &str, labels: &Value) -> Value {
    let data = base64::engine::general_purpose::STANDARD.encode(token);
    let metadata = json!({ "namespace": "a", "name": "s", "uid": "u5", "labels": labels });
    json!({ "metadata": metadata, "data": { "token": data } })
}

#[test]
fn tokens_of_secrets() {
    let cluster = cluster();
    let service = service(cluster.clone());
    let token = legacy(&service.signer, "a", "robot", "u1", "s").unwrap();
    assert!(service.authenticate(&token, &[], now(), &Notes::default()).is_err());
    cluster.put(("", "secrets"), secret_of(&token, &json!({})));
    let who = service.authenticate(&token, &[], now(), &Notes::default()).unwrap().unwrap();
    assert_eq!(who.user.name, "system:serviceaccount:a:robot");
    cluster.put(("", "secrets"), secret_of("x", &json!({})));
    assert!(service.authenticate(&token, &[], now(), &Notes::default()).is_err());
}

/// The use of a Secret's token, in this order: the labels of the Secret, whether its account names it, the day that is
/// handed over, the annotation, whether there is a warning, and the error.
#[test]
fn uses_of_tokens_in_secrets() {
    const INVALID: &str = "has been marked invalid. Use tokens from the TokenRequest API";
    let check = |labels: Value,
                 named: bool,
                 day: Option<&str>,
                 annotation: (&str, &str),
                 error: Option<&str>| {
        let cluster = cluster();
        let service = service(cluster.clone());
        let token = legacy(&service.signer, "a", "robot", "u1", "s").unwrap();
        cluster.put(("", "secrets"), secret_of(&token, &labels));
        let secrets = if named { json!([{ "name": "s" }]) } else { json!([]) };
        let meta = json!({ "namespace": "a", "name": "robot", "uid": "u1" });
        cluster.put(("", "serviceaccounts"), json!({ "metadata": meta, "secrets": secrets }));
        let notes = Notes::default();
        // Twice: what waits to be written is not handed over again.
        for _ in 0..2 {
            match (service.authenticate(&token, &[], now(), &notes), error) {
                (Ok(Some(_)), None) => {}
                (Err(e), Some(why)) => assert!(e.0.contains(why), "{e}"),
                (got, _) => panic!("{got:?}"),
            }
        }
        let subject = ("authentication.k8s.io/legacy-token", "system:serviceaccount:a:robot");
        let all = notes.annotations();
        let all: Vec<_> = all.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            all,
            [subject, (&*format!("authentication.k8s.io/legacy-token-{}", annotation.0), annotation.1)]
        );
        assert_eq!(notes.take_warnings().len(), usize::from(named && error.is_none()));
        let mut used = service.uses().take().unwrap();
        assert_eq!(used.try_recv().ok().map(|u| (u.name, u.day)), day.map(|d| ("s".into(), d.to_owned())));
        assert!(used.try_recv().is_err());
        assert_eq!(service.uses().counts().legacy.load(std::sync::atomic::Ordering::Relaxed), 2);
    };
    let today = Some("2026-01-01");
    check(json!({}), false, today, ("manual-secret", "s"), None);
    check(json!({}), true, today, ("autogenerated-secret", "s"), None);
    check(json!({ LAST_USED: "2025-12-31" }), false, today, ("manual-secret", "s"), None);
    check(json!({ LAST_USED: "2026-01-01" }), false, None, ("manual-secret", "s"), None);
    check(json!({ LAST_USED: "2026-01-02" }), false, None, ("manual-secret", "s"), None);
    let since = json!({ "kubernetes.io/legacy-token-invalid-since": "2025-06-01" });
    check(since, true, today, ("invalidated", "s/a"), Some(INVALID));
}

#[test]
fn stale_tokens() {
    let service = service(cluster());
    let check = |later: i64, want: Option<&str>| {
        let claims =
            Claims::new(ISSUER, "a", named("robot", "u1"), Bound::No, vec![], now(), 3600, Some(600));
        let (token, notes) = (service.sign(&claims).unwrap(), Notes::default());
        let then = now() + jiff::SignedDuration::from_secs(later);
        assert!(service.authenticate(&token, &[ISSUER.into()], then, &notes).unwrap().is_some());
        let all = notes.annotations();
        let stale = all.iter().find(|(k, _)| k == "authentication.k8s.io/stale-token");
        assert_eq!(stale.map(|(_, v)| v.as_str()), want);
    };
    check(0, None);
    check(600, None);
    check(607, Some("subject: system:serviceaccount:a:robot, seconds after warning threshold: 7"));
    let count = |number: &std::sync::atomic::AtomicU64| number.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((count(&service.uses().counts().valid), count(&service.uses().counts().stale)), (2, 1));
}

#[test]
fn issuers() {
    let service = service(cluster());
    assert_eq!(service.issuer(), ISSUER);
    let of = |issuer: &str| Claims { iss: issuer.to_owned(), ..claims(Bound::No, &[ISSUER]) };
    let check = |issuer: &str, expected: bool| {
        let token = service.sign(&of(issuer)).unwrap();
        assert_eq!(
            service.authenticate(&token, &[], now(), &Notes::default()).unwrap().is_some(),
            expected,
            "{issuer}"
        );
    };
    check(ISSUER, true);
    check(OLDER, true);
    check("https://strange.example", false);
    let documents = |issuer: &str, expected: bool| {
        let key = SigningKey::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let service = TokenService::new(&[issuer], vec![], key, vec![], cluster());
        assert_eq!(service.has_documents(), expected, "{issuer}");
    };
    documents(ISSUER, true);
    documents("HTTPS://a?", true);
    documents("http://a", false);
    documents("api", false);
    documents("https://a?b=c", false);
    documents("https://a#b", false);
}

#[test]
fn published_keys() {
    let service = service(cluster());
    let jwks = service.jwks();
    assert_eq!(jwks["keys"][0]["alg"], "ES256");
    assert_eq!(jwks["keys"][0]["crv"], "P-256");
    let configuration = service.openid_configuration("https://1.2.3.4:6443/openid/v1/jwks");
    assert_eq!(configuration["id_token_signing_alg_values_supported"], json!(["ES256"]));
}

#[test]
fn without_a_look_a_token_outlives_its_secret() {
    let service = service(cluster());
    let token = legacy(&service.signer, "a", "robot", "u1", "s").unwrap();
    let ask = |service: &TokenService| {
        let answer = service.authenticate(&token, &[], now(), &Notes::default());
        answer.map(|who| who.unwrap().user.name.clone()).map_err(|e| e.to_string())
    };
    assert_eq!(ask(&service), Err("Token has been invalidated".into()));
    let service = service.looking_up(false);
    assert_eq!(ask(&service), Ok("system:serviceaccount:a:robot".into()));
    let other = legacy(&service.signer, "a", "robot", "u1", "").unwrap();
    let refused = service.authenticate(&other, &[], now(), &Notes::default()).unwrap_err();
    assert_eq!(refused.to_string(), "secretName claim is missing");
}
