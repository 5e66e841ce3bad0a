//! Upstream's cases (`clustertrustbundle_manager_test.go`), with certificates that are only bytes here: nothing looks
//! into them.

use serde_json::{Value, json};

use super::*;

fn root(number: u8) -> String {
    pem::encode_certificate(&[number; 100])
}

fn bundle(name: &str, signer: &str, label: Option<&str>, anchors: &str) -> Arc<ClusterTrustBundle> {
    let labels = label.map(|value| json!({"label": value}));
    let mut object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"trustBundle": anchors}});
    if !signer.is_empty() {
        object["spec"]["signerName"] = json!(signer);
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

/// The certificates of a text, sorted: their order is nobody's business.
fn sorted(text: &str) -> Vec<Vec<u8>> {
    let mut all = pem::certificates(text);
    all.sort();
    all
}

fn agree(got: Result<String, TrustError>, expected: Result<&[u8], &str>, about: &str) {
    let numbers = |text: String| sorted(&text).into_iter().map(|c| c[0]).collect::<Vec<_>>();
    let got = got.map(numbers).map_err(|e| e.to_string());
    assert_eq!(got, expected.map(<[u8]>::to_vec).map_err(str::to_owned), "{about}");
}

#[test]
fn by_name() {
    let all = [bundle("ctb1", "", None, &root(1)), bundle("ctb2", "", None, &root(2))];
    let order = RandomState::new();
    let check = |name: &str, optional, expected| {
        let found = all.iter().find(|b| b.metadata.name.as_deref() == Some(name));
        agree(of_name(found.map(Arc::as_ref), name, optional, &order), expected, name);
    };
    check("ctb1", false, Ok(&[1]));
    check("ctb2", false, Ok(&[2]));
    let missing =
        "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"not-found\" not found";
    check("not-found", false, Err(missing));
    check("not-found", true, Ok(&[]));
}

#[test]
fn by_signer() {
    let all = [
        bundle("signer-a-label-a-1", "foo.bar/a", Some("a"), &root(0)),
        bundle("signer-a-label-a-2", "foo.bar/a", Some("a"), &root(1)),
        bundle("signer-a-label-2-dup", "foo.bar/a", Some("a"), &root(1)),
        bundle("signer-a-label-b-1", "foo.bar/a", Some("b"), &root(2)),
        bundle("signer-b-label-a-1", "foo.bar/b", Some("a"), &root(3)),
        bundle("nobodys", "", Some("a"), &root(4)),
    ];
    let order = RandomState::new();
    let check = |signer: &str, selector: Value, optional, expected: Result<&[u8], &str>| {
        let read: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
        let got = of_signer(&all, signer, read.as_ref(), optional, &order);
        agree(got, expected, &format!("{signer} {selector}"));
    };
    let label = |value: &str| json!({"matchLabels": {"label": value}});
    let none = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
    check("foo.bar/a", label("a"), false, Ok(&[0, 1]));
    check("foo.bar/a", Value::Null, true, Ok(&[]));
    check("foo.bar/a", Value::Null, false, Err(none));
    check("foo.bar/b", json!({}), false, Ok(&[3]));
    check("foo.bar/a", json!({}), false, Ok(&[0, 1, 2]));
    check("foo.bar/a", label("b"), false, Ok(&[2]));
    check("foo.bar/b", label("a"), false, Ok(&[3]));
    check("foo.bar/b", label("b"), true, Ok(&[]));
    check("foo.bar/b", label("b"), false, Err(none));
    let wrong = json!({"matchExpressions": [{"key": "label", "operator": "Near"}]});
    let why = "while parsing label selector: \"Near\" is not a valid label selector operator";
    check("foo.bar/a", wrong, false, Err(why));
    let many: serde_json::Map<String, Value> =
        (0..=100 * 1024 / 63).map(|n| (format!("key-{n}"), json!("v".repeat(63)))).collect();
    let read = serde_json::from_value(json!({"matchLabels": many})).unwrap();
    let got = of_signer(&all, "foo.bar/a", Some(&read), false, &order).unwrap_err();
    assert!(matches!(got, TrustError::Long(length) if length > MAX_SELECTOR), "{got}");
    assert!(got.to_string().starts_with("label selector length ("), "{got}");
}

#[test]
fn the_order_tells_nothing_and_stays() {
    let of = |numbers: &[u8]| numbers.iter().map(|n| root(*n)).collect::<Vec<_>>();
    let (there, back) = (of(&[1, 2, 3, 4, 5, 6, 7, 8]), of(&[8, 7, 6, 5, 4, 3, 2, 1, 8]));
    let order = RandomState::new();
    let one = normalize(there.iter().map(String::as_str), &order);
    assert_eq!(one, normalize(back.iter().map(String::as_str), &order), "whatever the bundles' order is");
    // Of so many processes two agree with next to no probability: 8! orders.
    let others = (0..20).map(|_| normalize(there.iter().map(String::as_str), &RandomState::new()));
    assert!(others.collect::<BTreeSet<_>>().len() > 1);
    let dirty = format!("a comment\n{}", root(1).replace("-----\n", "-----\nKey: value\n\n"));
    assert_eq!(normalize([dirty.as_str()], &order), root(1));
}

#[test]
fn a_change_concerns_those_who_have_the_bundle() {
    let check = |source: Value, changed: &Change<ClusterTrustBundle>, expected: bool| {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "volumes": [{"name": "v",
            "projected": {"sources": [{"clusterTrustBundle": source}]}}]}}))
        .unwrap();
        assert_eq!(concerns(changed, &pod), expected, "{source}");
    };
    let of = |name, signer| bundle(name, signer, None, "");
    let added = Change::Added(of("a", "foo.bar/a"));
    check(json!({"name": "a", "path": "p"}), &added, true);
    check(json!({"name": "b", "path": "p"}), &added, false);
    check(json!({"signerName": "foo.bar/a", "path": "p"}), &added, true);
    check(json!({"signerName": "foo.bar/b", "path": "p"}), &added, false);
    let nobodys = Change::Deleted(of("a", ""));
    check(json!({"name": "a", "path": "p"}), &nobodys, true);
    check(json!({"signerName": "foo.bar/a", "path": "p"}), &nobodys, false);
    let pod = Pod::default();
    assert!(!concerns(&added, &pod));
}

/// Upstream's `TestBeforeSynced`, and its manager for a feature that is off.
#[tokio::test(start_paused = true)]
async fn nothing_before_the_first_answer() {
    let source = ClusterTrustBundleProjection { name: Some("foo".into()), ..Default::default() };
    assert_eq!(TrustBundles(None).anchors(&source).await, Err(TrustError::Unsupported));
}
