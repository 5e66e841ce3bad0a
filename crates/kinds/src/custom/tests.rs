//! The values that definitions take and make: cases of upstream's tests of pruning, defaulting and validation.

use api::codec::json;
use api::field::Errors;
use api::schema::Gvk;
use api::structural::Structural;
use api::view::View;
use api::{Map, Node, Schema};

use super::Definition;

/// The structural schema of a `JSONSchemaProps` in JSON.
fn structural(schema: &str) -> std::sync::Arc<Structural> {
    let body = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"x"}},
        "spec":{{"group":"g.io","names":{{"plural":"xs","kind":"X"}},"scope":"Cluster","versions":[
        {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
    );
    let all = Schema::builtin();
    let root = all.kind(&Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")).unwrap();
    let tree = json::decode(all, root, body.as_bytes()).unwrap().tree;
    Definition::of(View::new(all, &tree)).versions.remove(0).schema
}

fn map(text: &str) -> Map {
    match json::decode_any(text.as_bytes()).unwrap() {
        Node::Map(map) => map,
        other => panic!("{other:?}"),
    }
}

fn text(map: Map) -> String {
    api::go::scalar_json(&Node::Map(map))
}

#[test]
fn pruning() {
    let check = |schema: &str, object: &str, expected: &str, unknown: &[&str]| {
        let mut values = map(object);
        let found = structural(schema).prune(&mut values);
        assert_eq!(
            (text(values).as_str(), found),
            (expected, unknown.iter().map(|s| s.to_string()).collect()),
            "{object}"
        );
    };
    const OBJECT: &str =
        r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
    check(OBJECT, r#"{"spec":{"a":"x","b":1},"c":{}}"#, r#"{"spec":{"a":"x"}}"#, &["c", "spec.b"]);
    check(
        r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"s":{"type":"object","properties":{"a":{"type":"string"}}}}}"#,
        r#"{"k":{"x":1},"s":{"a":"1","z":2}}"#,
        r#"{"k":{"x":1},"s":{"a":"1"}}"#,
        &["s.z"],
    );
    check(
        r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"n":{"type":"string"}}}}}}"#,
        r#"{"l":[{"n":"a","x":1},{"y":2}]}"#,
        r#"{"l":[{"n":"a"},{}]}"#,
        &["l[0].x", "l[1].y"],
    );
    check(
        r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object","properties":{"n":{"type":"string"}}}}}}"#,
        r#"{"m":{"k":{"n":"a","x":1}}}"#,
        r#"{"m":{"k":{"n":"a"}}}"#,
        &["m.k.x"],
    );
    check(
        r#"{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}"#,
        r#"{"e":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"a":1}}}"#,
        r#"{"e":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"a":1}}}"#,
        &[],
    );
}

#[test]
fn defaulting() {
    let check = |schema: &str, object: &str, expected: &str| {
        let mut values = map(object);
        let schema = structural(schema);
        schema.drop_nulls(&mut values);
        schema.apply_defaults(&mut values);
        assert_eq!(text(values), expected, "{object}");
    };
    const DEEP: &str = r#"{"type":"object","properties":{"spec":{"type":"object","default":{},"properties":{"a":{"type":"string","default":"A"},"n":{"type":"integer","nullable":true,"default":3}}}}}"#;
    check(DEEP, "{}", r#"{"spec":{"a":"A","n":3}}"#);
    check(DEEP, r#"{"spec":{"a":"B","n":null}}"#, r#"{"spec":{"a":"B","n":null}}"#);
    check(DEEP, r#"{"spec":{"a":null}}"#, r#"{"spec":{"a":"A","n":3}}"#);
    check(
        r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"p":{"type":"string","default":"TCP"}}}}}}"#,
        r#"{"l":[{},{"p":"UDP"}]}"#,
        r#"{"l":[{"p":"TCP"},{"p":"UDP"}]}"#,
    );
    check(
        r#"{"type":"object","properties":{"a":{"type":"string"}}}"#,
        r#"{"a":null,"b":null}"#,
        r#"{"b":null}"#,
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn validation() {
    let check = |schema: &str, object: &str, expected: &[&str]| {
        let mut errs = Errors::new();
        structural(schema).validate(&mut errs, &map(object), None);
        let found: Vec<String> = errs.0.iter().map(api::status::FieldError::to_string).collect();
        assert_eq!(found, expected, "{schema} {object}");
    };
    let of = |schema: &str| format!(r#"{{"type":"object","properties":{{"f":{schema}}}}}"#);
    check(
        &of(r#"{"type":"integer"}"#),
        r#"{"f":"x"}"#,
        &[r#"f: Invalid value: "string": f in body must be of type integer: "string""#],
    );
    check(
        &of(r#"{"type":"string"}"#),
        r#"{"f":null}"#,
        &[r#"f: Invalid value: "null": f in body must be of type string: "null""#],
    );
    check(&of(r#"{"type":"string","nullable":true}"#), r#"{"f":null}"#, &[]);
    check(&of(r#"{"type":"integer"}"#), r#"{"f":2.0}"#, &[]);
    check(
        &of(r#"{"type":"integer"}"#),
        r#"{"f":2.5}"#,
        &[
            r#"f: Invalid value: "number": f in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in f"#,
        ],
    );
    check(
        &of(r#"{"type":"integer","minimum":1}"#),
        r#"{"f":0}"#,
        &["f: Invalid value: 0: f in body should be greater than or equal to 1"],
    );
    check(
        &of(r#"{"type":"integer","maximum":5,"exclusiveMaximum":true}"#),
        r#"{"f":5}"#,
        &["f: Invalid value: 5: f in body should be less than 5"],
    );
    check(
        &of(r#"{"type":"number","multipleOf":0.5}"#),
        r#"{"f":1.3}"#,
        &["f: Invalid value: 1.3: f in body should be a multiple of 0.5"],
    );
    check(
        &of(r#"{"type":"string","maxLength":2}"#),
        r#"{"f":"abc"}"#,
        &["f: Too long: may not be more than 2 bytes"],
    );
    check(
        &of(r#"{"type":"string","minLength":2}"#),
        r#"{"f":"a"}"#,
        &[r#"f: Invalid value: "a": f in body should be at least 2 chars long"#],
    );
    check(
        &of(r#"{"type":"string","pattern":"^a+$"}"#),
        r#"{"f":"b"}"#,
        &[r#"f: Invalid value: "b": f in body should match '^a+$'"#],
    );
    check(
        &of(r#"{"type":"string","enum":["a","b"]}"#),
        r#"{"f":"c"}"#,
        &[r#"f: Unsupported value: "c": supported values: "a", "b""#],
    );
    check(
        &of(r#"{"type":"string","format":"ipv4"}"#),
        r#"{"f":"c"}"#,
        &[r#"f: Invalid value: "c": f in body must be of type ipv4: "c""#],
    );
    check(
        &of(r#"{"type":"array","maxItems":1,"items":{"type":"string"}}"#),
        r#"{"f":["a",1]}"#,
        &[
            r#"f[1]: Invalid value: "integer": f[1] in body must be of type string: "integer""#,
            "f: Too many: 2: must have at most 1 item",
        ],
    );
    check(
        &of(r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}"#),
        r#"{"f":{}}"#,
        &["f.a: Required value"],
    );
    check(
        r#"{"type":"object","required":["spec"],"properties":{"spec":{"type":"object"}}}"#,
        "{}",
        &["spec: Required value"],
    );
    check(
        &of(r#"{"x-kubernetes-int-or-string":true}"#),
        r#"{"f":true}"#,
        &[r#"f: Invalid value: "boolean": f in body must be of type integer,string: "boolean""#],
    );
    let either = of(r#"{"x-kubernetes-int-or-string":true,"format":"ipv4"}"#);
    check(&either, r#"{"f":1}"#, &[]);
    check(&either, r#"{"f":"10.0.0.1"}"#, &[]);
    check(&either, r#"{"f":"c"}"#, &[r#"f: Invalid value: "c": f in body must be of type ipv4: "c""#]);
    check(
        &of(
            r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},{"required":["b"]}]}"#,
        ),
        r#"{"f":{"a":"1","b":"2"}}"#,
        &[
            r#"<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        &of(r#"{"type":"integer","format":"int32"}"#),
        r#"{"f":3000000000}"#,
        &[r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in f"#],
    );
}

#[test]
fn unchanged_parts_are_not_refused() {
    let schema = structural(
        r#"{"type":"object","properties":{"a":{"type":"integer","minimum":5},"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","properties":{"n":{"type":"string"},"v":{"type":"integer","minimum":5}}}}}}"#,
    );
    let check = |old: &str, new: &str, expected: usize| {
        let mut errs = Errors::new();
        schema.validate(&mut errs, &map(new), Some(&map(old)));
        assert_eq!(errs.len(), expected, "{old} {new}");
    };
    check(r#"{"a":1}"#, r#"{"a":1}"#, 0);
    check(r#"{"a":1}"#, r#"{"a":2}"#, 1);
    check(r#"{"l":[{"n":"x","v":1},{"n":"y","v":9}]}"#, r#"{"l":[{"n":"y","v":2},{"n":"x","v":1}]}"#, 1);
    // Elements with keys are the same in another order, and a field that no schema knows is never what it was.
    let schema = structural(
        r#"{"type":"object","properties":{"l":{"type":"array","maxItems":1,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","properties":{"n":{"type":"string"}}}},"a":{"type":"array","maxItems":1,"items":{"type":"string"}},"o":{"type":"object","minProperties":3,"x-kubernetes-preserve-unknown-fields":true,"properties":{"p":{"type":"string"}}}}}"#,
    );
    let check = |old: &str, new: &str, expected: usize| {
        let mut errs = Errors::new();
        schema.validate(&mut errs, &map(new), Some(&map(old)));
        assert_eq!(errs.len(), expected, "{old} {new}");
    };
    check(r#"{"l":[{"n":"x"},{"n":"y"}]}"#, r#"{"l":[{"n":"y"},{"n":"x"}]}"#, 0);
    check(r#"{"l":[{"n":"x"},{"n":"y"}]}"#, r#"{"l":[{"n":"y"},{"n":"z"}]}"#, 1);
    check(r#"{"a":["x","y"]}"#, r#"{"a":["x","y"]}"#, 0);
    check(r#"{"a":["x","y"]}"#, r#"{"a":["y","x"]}"#, 1);
    check(r#"{"o":{"p":"x"}}"#, r#"{"o":{"p":"x"}}"#, 0);
    check(r#"{"o":{"p":"x","q":1}}"#, r#"{"o":{"p":"x","q":1}}"#, 1);
}

#[test]
fn deprecated_versions_and_old_definitions() {
    let definition = |rest: &str, versions: &str| {
        let body = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"x"}},
            "spec":{{"group":"g.io","names":{{"plural":"xs","kind":"X"}},"scope":"Cluster",{rest}"versions":[{versions}]}}}}"#
        );
        let all = Schema::builtin();
        let root = all.kind(&Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")).unwrap();
        let tree = json::decode(all, root, body.as_bytes()).unwrap().tree;
        Definition::of(View::new(all, &tree))
    };
    let warnings = |versions: &[&str]| {
        let found = definition("", &versions.join(",")).versions.into_iter();
        found.filter_map(|v| v.deprecated).map(|w| w.to_string()).collect::<Vec<_>>()
    };
    let version = |name: &str, rest: &str| format!(r#"{{"name":"{name}",{rest}}}"#);
    let served = r#""served":true"#;
    let gone = r#""served":true,"deprecated":true"#;
    let all = |of: &[(&str, &str)]| {
        let all: Vec<String> = of.iter().map(|(name, rest)| version(name, rest)).collect();
        warnings(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // Upstream's cases of `defaultDeprecationWarning`.
    assert_eq!(all(&[("v1", gone)]), ["g.io/v1 X is deprecated"]);
    assert_eq!(
        all(&[("v1alpha1", gone), ("v1beta1", served), ("v1", served), ("v2", r#""served":false"#)]),
        ["g.io/v1alpha1 X is deprecated; use g.io/v1 X"]
    );
    assert_eq!(all(&[("v1", gone), ("v1beta1", served)]), ["g.io/v1 X is deprecated"]);
    assert_eq!(all(&[("v1", gone), ("v2", gone)]), ["g.io/v2 X is deprecated", "g.io/v1 X is deprecated"]);
    let own = r#""served":true,"deprecated":true,"deprecationWarning":"go away""#;
    assert_eq!(all(&[("v1", own), ("v2", served)]), ["go away"]);
    let faults = |rest: &str, schema: &str| {
        let of = definition(rest, &format!(r#"{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}"#));
        (of.faults, of.versions[0].told)
    };
    let untyped = r#"{"type":"object","properties":{"a":{"properties":{"b":{"type":"string"}}}}}"#;
    assert_eq!(faults("", untyped), (vec![], true));
    let kept = r#""preserveUnknownFields":true,"#;
    let first = "spec.preserveUnknownFields: Invalid value: true: must be false".to_owned();
    assert_eq!(faults(kept, r#"{"type":"object"}"#), (vec![first.clone()], true));
    let second = "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields";
    assert_eq!(faults(kept, untyped), (vec![first, second.to_owned()], false));
}

#[test]
fn approvals() {
    use super::Approval;
    let check = |group: &str, text: &str, expected: Option<&str>| {
        let found = Approval::of(group, text).map(|a| a.to_string());
        assert_eq!(found.as_deref(), expected, "{group} {text}");
    };
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let missing =
        format!("protected groups must have approval annotation \"api-approved.kubernetes.io\", {SEE}");
    let wrong = format!(
        "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", {SEE}"
    );
    // Upstream's `TestCalculateCondition` and `TestGetAPIApprovalState`.
    check("other.io", "", None);
    check("notk8s.io", "", None);
    for group in ["k8s.io", "kubernetes.io", "sigs.k8s.io"] {
        check(group, "", Some(&missing));
        check(group, "bad value", Some(&wrong));
        check(group, "http:///no-host", Some(&wrong));
        check(group, "http://a b/", Some(&wrong));
        check(group, "unapproved, other reason", Some("not approved: \"unapproved, other reason\""));
        check(
            group,
            "https://github.com/kubernetes/kubernetes/pull/78458",
            Some("approved in https://github.com/kubernetes/kubernetes/pull/78458"),
        );
    }
}

#[test]
fn lists_that_are_sets_or_maps() {
    let schema = structural(
        r#"{"type":"object","properties":{"s":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"m":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","properties":{"n":{"type":"string"}}}}}}"#,
    );
    let mut errs = Errors::new();
    schema.check_lists(&mut errs, &map(r#"{"s":["a","b","a","a"],"m":[{"n":"x"},{"n":"x"},{}]}"#));
    let found: Vec<String> = errs.0.iter().map(api::status::FieldError::to_string).collect();
    assert_eq!(found, [r#"m[1]: Duplicate value: {"n":"x"}"#, r#"s[2]: Duplicate value: "a""#]);
}

#[test]
fn rules_in_the_expression_language() {
    use super::rules::{self, Rules};
    let ask = |schema: &str, old: Option<&str>, new: &str| {
        let schema = structural(schema);
        let compiled = Rules::of_stored(&schema).expect("there are rules");
        let object = |text: &str| rules::object(&map(text), "g.io/v1", "X", map(r#"{"name":"x"}"#));
        let (mut errs, warnings) = (Errors::new(), std::cell::RefCell::new(Vec::new()));
        let warn = |text: String| warnings.borrow_mut().push(text);
        compiled.validate(&schema, &mut errs, &warn, &object(new), old.map(object).as_ref());
        let found: Vec<String> = errs.0.iter().map(api::status::FieldError::to_string).collect();
        (found, warnings.into_inner())
    };
    let check = |schema: &str, old: Option<&str>, new: &str, expected: &[&str]| {
        let (found, _) = ask(schema, old, new);
        assert_eq!(found, expected, "{new}");
    };
    let check_warned = |schema: &str, old: &str, new: &str, expected: &[&str]| {
        let (found, warnings) = ask(schema, Some(old), new);
        assert_eq!(found, [""; 0], "{new}");
        assert_eq!(warnings, expected, "{new}");
    };
    let of = |rules: &str| {
        format!(
            r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"min":{{"type":"integer"}},"max":{{"type":"integer"}},"l":{{"type":"array","items":{{"type":"string"}}}}}},"x-kubernetes-validations":[{rules}]}}}}}}"#
        )
    };
    let order = of(r#"{"rule":"self.min <= self.max","message":"min must not exceed max"}"#);
    check(&order, None, r#"{"spec":{"min":1,"max":2}}"#, &[]);
    check(&order, None, r#"{"spec":{"min":3,"max":2}}"#, &["spec: Invalid value: min must not exceed max"]);
    check(
        &order,
        None,
        r#"{"spec":{"min":3}}"#,
        &[r#"spec: Invalid value: "object": no such key: max evaluating rule: min must not exceed max"#],
    );
    // A part that was wrong before and has not changed is only warned of.
    let kept = r#"{"spec":{"min":3,"max":2}}"#;
    check_warned(&order, kept, kept, &["spec: Invalid value: min must not exceed max"]);
    let told = of(
        r#"{"rule":"self.min > 5","messageExpression":"'min is ' + string(self.min)","reason":"FieldValueForbidden","fieldPath":".min"}"#,
    );
    check(&told, None, r#"{"spec":{"min":3}}"#, &["spec.min: Forbidden: min is 3"]);
    check_warned(&told, r#"{"spec":{"min":3}}"#, r#"{"spec":{"min":3}}"#, &["spec.min: Forbidden: min is 3"]);
    // A message is shown the former value as it is, though the rule sees an optional one.
    let optional = of(
        r#"{"rule":"oldSelf.hasValue() && false","optionalOldSelf":true,"message":"own","messageExpression":"'was ' + string(oldSelf.value().min)"}"#,
    );
    let min = r#"{"spec":{"min":3}}"#;
    check(&optional, Some(min), min, &["spec: Invalid value: own"]);
    let grows = of(r#"{"rule":"self.min >= oldSelf.min"}"#);
    check(&grows, None, r#"{"spec":{"min":3}}"#, &[]);
    check(
        &grows,
        Some(r#"{"spec":{"min":4}}"#),
        r#"{"spec":{"min":3}}"#,
        &["spec: Invalid value: failed rule: self.min >= oldSelf.min"],
    );
    check(
        &of(r#"{"rule":"self.l.all(x, x.startsWith('a'))"}"#),
        None,
        r#"{"spec":{"l":["ab","b"]}}"#,
        &["spec: Invalid value: failed rule: self.l.all(x, x.startsWith('a'))"],
    );
    let named = r#"{"type":"object","x-kubernetes-validations":[{"rule":"self.metadata.name == 'y'"}],"properties":{"a":{"type":"string"}}}"#;
    let refused = ["<nil>: Invalid value: failed rule: self.metadata.name == 'y'"];
    check(named, None, "{}", &refused);
    // Of the whole object upstream never says that it has not changed, because no schema knows its metadata.
    check(named, Some("{}"), "{}", &refused);
    let keyed = of(r#"{"rule":"true"}"#).replace(
        r#"{"type":"array","items":{"type":"string"}}"#,
        r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer"}}},"x-kubernetes-validations":[{"rule":"self.all(x, x.v > 0)"}]}"#,
    );
    let (old, reordered) = (
        r#"{"spec":{"l":[{"k":"a","v":0},{"k":"b","v":1}]}}"#,
        r#"{"spec":{"l":[{"k":"b","v":1},{"k":"a","v":0}]}}"#,
    );
    check(&keyed, None, old, &["spec.l: Invalid value: failed rule: self.all(x, x.v > 0)"]);
    check_warned(&keyed, old, reordered, &["spec.l: Invalid value: failed rule: self.all(x, x.v > 0)"]);
    check(
        &keyed,
        Some(old),
        r#"{"spec":{"l":[{"k":"b","v":2},{"k":"a","v":0}]}}"#,
        &["spec.l: Invalid value: failed rule: self.all(x, x.v > 0)"],
    );
    // A message that is too long, or of several lines, gives way.
    let long = of(
        r#"{"rule":"false","message":"own","messageExpression":"'a'.replace('a', 'x'.replace('x', '\\n'))"}"#,
    );
    check(&long, None, r#"{"spec":{}}"#, &["spec: Invalid value: own"]);
}
