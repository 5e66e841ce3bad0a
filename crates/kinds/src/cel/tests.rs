use super::*;

const DEVICE: Env = Env {
    variables: &[("device", Type::Object("kubernetes.DRADevice"))],
    fields: &[
        ("kubernetes.DRADevice", "driver", || Type::String),
        ("kubernetes.DRADevice", "attributes", || {
            let inner = Type::Map(Box::new(Type::String), Box::new(Type::Any));
            Type::Map(Box::new(Type::String), Box::new(inner))
        }),
        ("kubernetes.DRADevice", "capacity", || {
            let inner = Type::Map(Box::new(Type::String), Box::new(Type::Opaque("kubernetes.Quantity")));
            Type::Map(Box::new(Type::String), Box::new(inner))
        }),
    ],
};

/// Compares the type, or the first lines of the complaints.
fn check(source: &str, expected: &str) {
    let got = match compile(&DEVICE, source) {
        Ok(ty) => ty.to_string(),
        Err(text) => text,
    };
    assert_eq!(got, expected, "{source}");
}

#[test]
fn types() {
    for (source, expected) in [
        ("true", "bool"),
        ("1", "int"),
        ("-9223372036854775808", "int"),
        ("0x1Fu", "uint"),
        ("1.5e3 < 2", "bool"),
        ("'a' + r'\\b' + \"\"\"c\nd\"\"\"", "string"),
        ("b'x'", "bytes"),
        ("[1, 2].map(x, string(x))", "list(string)"),
        ("{'a': 1}['a'] > 0 ? 'x' : 'y'", "string"),
        ("[1,2].exists(x, x > 1) && !(3 in [1])", "bool"),
        ("device.driver == 'a' || device.driver.startsWith('b')", "bool"),
        ("device.attributes['a'].b", "any"),
        ("device.attributes['gpu'].?ver.orValue(semver('0.0.1')).isGreaterThan(semver('0.0.0'))", "bool"),
        ("device.capacity['a'].b.compareTo(quantity('8Gi')) >= 0", "bool"),
        ("has(device.attributes.a)", "bool"),
        ("cel.bind(d, device.attributes['x'], d.name)", "any"),
        ("device.attributes.exists_one(x, x == 'dra.example.com')", "bool"),
        ("device.attributes['a'].services.split('x').size() >= 2", "bool"),
        ("sets.contains([1], [1]) && ip('1.2.3.4').family() == 4", "bool"),
        ("{'a': 1}.transformMap(k, v, v + 1)", "map(string, int)"),
        ("optional.of(1).optMap(x, x + 1).hasValue()", "bool"),
        ("duration('1s') + timestamp('2020-01-01T00:00:00Z')", "timestamp"),
        ("type(1) == int", "bool"),
        ("dyn(1)", "dyn"),
        ("1 // nothing else", "int"),
    ] {
        check(source, expected);
    }
}

#[test]
fn complaints() {
    const OPERAND: &str = "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    let syntax = |t: &str| format!("Syntax error: mismatched input '{t}' {OPERAND}");
    for (source, expected) in [
        ("", format!("ERROR: <input>:1:0: {}", syntax("<EOF>"))),
        (" ", format!("ERROR: <input>:1:2: {}\n |  \n | .^", syntax("<EOF>"))),
        (
            "*",
            format!(
                "ERROR: <input>:1:1: {}\n | *\n | ^\nERROR: <input>:1:2: {}\n | *\n | .^",
                syntax("*"),
                syntax("<EOF>")
            ),
        ),
        (
            "Invalid_Name!",
            "ERROR: <input>:1:13: Syntax error: extraneous input '!' expecting <EOF>\n | Invalid_Name!\n | ............^"
                .into(),
        ),
        ("-x", "ERROR: <input>:1:2: undeclared reference to 'x' (in container '')\n | -x\n | .^".into()),
        (
            "a/b/c",
            "ERROR: <input>:1:1: undeclared reference to 'a' (in container '')\n | a/b/c\n | ^\n\
             ERROR: <input>:1:3: undeclared reference to 'b' (in container '')\n | a/b/c\n | ..^\n\
             ERROR: <input>:1:5: undeclared reference to 'c' (in container '')\n | a/b/c\n | ....^"
                .into(),
        ),
        (
            "device.driver == 1",
            "ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | device.driver == 1\n | ..............^"
                .into(),
        ),
        (
            "device.allowMultipleAllocations == true",
            "ERROR: <input>:1:7: undefined field 'allowMultipleAllocations'\n | device.allowMultipleAllocations == true\n | ......^"
                .into(),
        ),
        (
            "'a'.includes('b')",
            "ERROR: <input>:1:13: undeclared reference to 'includes' (in container '')\n | 'a'.includes('b')\n | ............^"
                .into(),
        ),
    ] {
        check(source, &expected);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let source = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(compile(&DEVICE, &source).is_err());
    assert!(compile(&DEVICE, &"[".repeat(100_000)).is_err());
    assert!(compile(&DEVICE, &vec!["1"; 5000].join(" + ")).is_err());
    assert_eq!(compile(&DEVICE, &vec!["true"; 5000].join(" || ")), Ok(Type::Bool));
    assert!(compile(&DEVICE, &".a".repeat(5000)).is_err());
    assert!(compile(&DEVICE, &"!-".repeat(50_000)).is_err());
}
