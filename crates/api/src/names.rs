//! Checks of names and labels: each returns the texts of what is wrong, none for a good name.

use crate::field::{Errors, Path};

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const KEY_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The text `must be no more than N characters`.
pub fn max_len(n: usize) -> String {
    format!("must be no more than {n} characters")
}

/// The text `must be between A and B, inclusive`.
pub fn range(lo: i64, hi: i64) -> String {
    format!("must be between {lo} and {hi}, inclusive")
}

/// A text with the equivalent regular expression and examples.
pub fn regex_error(msg: &str, fmt: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{msg} (regex used for validation is '{fmt}')");
    }
    let all: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{msg} (e.g. {}regex used for validation is '{fmt}')", all.join(" or "))
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether a text starts and ends with `edge` and holds only `edge` and `inner` between.
fn framed(s: &[u8], edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    match s {
        [] => false,
        [one] => edge(*one),
        [first, mid @ .., last] => edge(*first) && edge(*last) && mid.iter().all(|b| edge(*b) || inner(*b)),
    }
}

fn is_label(s: &[u8]) -> bool {
    framed(s, lower_alnum, |b| b == b'-')
}

fn is_subdomain(s: &str) -> bool {
    s.as_bytes().split(|b| *b == b'.').all(is_label)
}

/// Checks a lowercase RFC 1123 label.
pub fn dns1123_label(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 63 {
        errs.push(max_len(63));
    }
    if !is_label(v.as_bytes()) {
        errs.push(if is_subdomain(v) {
            "must not contain dots".into()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FMT,
                &["my-name", "123-abc"],
            )
        });
    }
    errs
}

const SUBDOMAIN_MSG: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";

fn subdomain_fmt() -> String {
    format!("{LABEL_FMT}(\\.{LABEL_FMT})*")
}

/// Checks a lowercase RFC 1123 subdomain.
pub fn dns1123_subdomain(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 253 {
        errs.push(max_len(253));
    }
    if !is_subdomain(v) {
        errs.push(regex_error(SUBDOMAIN_MSG, &subdomain_fmt(), &["example.com"]));
    }
    errs
}

/// Checks a subdomain that may hold underscores, as search paths may.
pub fn dns1123_subdomain_with_underscore(v: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let mut errs = Vec::new();
    if v.len() > 253 {
        errs.push(max_len(253));
    }
    let good = v
        .as_bytes()
        .split(|b| *b == b'.')
        .all(|l| framed(l.strip_prefix(b"_").unwrap_or(l), lower_alnum, |b| b == b'-' || b == b'_'));
    if !good {
        errs.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    errs
}

/// Checks a DNS-1035 label.
pub fn dns1035_label(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 63 {
        errs.push(max_len(63));
    }
    if !(is_label(v.as_bytes()) && v.as_bytes()[0].is_ascii_lowercase()) {
        errs.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errs
}

/// Checks a subdomain whose first label is `*`.
pub fn wildcard_dns1123_subdomain(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 253 {
        errs.push(max_len(253));
    }
    if !v.strip_prefix("*.").is_some_and(is_subdomain) {
        errs.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{}", subdomain_fmt()),
            &["*.example.com"],
        ));
    }
    errs
}

fn is_key_name(s: &str) -> bool {
    framed(s.as_bytes(), |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// Checks a label key, also of annotations, finalizers, resources, conditions: `[prefix/]name`.
pub fn qualified_name(v: &str) -> Vec<String> {
    const MSG: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let text = || regex_error(MSG, KEY_FMT, &["MyName", "my.name", "123-abc"]);
    let mut errs = Vec::new();
    let mut parts = v.split('/');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if third.is_some() {
        return vec![format!(
            "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            text()
        )];
    }
    let name = if let Some(name) = second {
        if first.is_empty() {
            errs.push("prefix part must be non-empty".into());
        } else {
            if first.len() > 253 {
                errs.push("prefix part must be no more than 253 bytes".into());
            }
            if !is_subdomain(first) {
                errs.push(format!(
                    "prefix part {}",
                    regex_error(SUBDOMAIN_MSG, &subdomain_fmt(), &["example.com"])
                ));
            }
        }
        name
    } else {
        first
    };
    if name.is_empty() {
        errs.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        errs.push("name part must be no more than 63 bytes".into());
    }
    if !is_key_name(name) {
        errs.push(format!("name part {}", text()));
    }
    errs
}

/// Checks a label's value.
pub fn label_value(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 63 {
        errs.push("must be no more than 63 bytes".into());
    }
    if !v.is_empty() && !is_key_name(v) {
        errs.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({KEY_FMT})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errs
}

/// Checks a C identifier.
pub fn c_identifier(v: &str) -> Vec<String> {
    let good = v
        .bytes()
        .enumerate()
        .all(|(i, b)| b == b'_' || b.is_ascii_alphabetic() || i > 0 && b.is_ascii_digit());
    if good && !v.is_empty() {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

fn in_range(v: i64, lo: i64, hi: i64) -> Vec<String> {
    if (lo..=hi).contains(&v) { Vec::new() } else { vec![range(lo, hi)] }
}

/// Checks a port's number.
pub fn port_number(v: i64) -> Vec<String> {
    in_range(v, 1, 65535)
}

/// Checks a user's number.
pub fn user_id(v: i64) -> Vec<String> {
    in_range(v, 0, i64::from(i32::MAX))
}

/// Checks a group's number.
pub fn group_id(v: i64) -> Vec<String> {
    in_range(v, 0, i64::from(i32::MAX))
}

/// Checks a port's name.
pub fn port_name(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 15 {
        errs.push(max_len(15));
    }
    if v.is_empty() || !v.bytes().all(|b| lower_alnum(b) || b == b'-') {
        errs.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !v.bytes().any(|b| b.is_ascii_lowercase()) {
        errs.push("must contain at least one letter (a-z)".into());
    }
    if v.contains("--") {
        errs.push("must not contain consecutive hyphens".into());
    }
    if v.starts_with('-') || v.ends_with('-') {
        errs.push("must not begin or end with a hyphen".into());
    }
    errs
}

/// Checks a percentage such as `93%`.
pub fn percent(v: &str) -> Vec<String> {
    if v.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// Checks the name of an HTTP header.
pub fn http_header_name(v: &str) -> Vec<String> {
    if !v.is_empty() && v.bytes().all(|b| b == b'-' || b.is_ascii_alphanumeric()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

fn ch_dir_prefix(v: &str) -> Option<String> {
    match v {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        _ if v.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

/// Checks the name of an environment variable, by the rule before 1.34's relaxation.
pub fn env_var_name(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    let extra = |b: u8| matches!(b, b'-' | b'.' | b'_') || b.is_ascii_alphabetic();
    let good = v.bytes().enumerate().all(|(i, b)| extra(b) || i > 0 && b.is_ascii_digit());
    if v.is_empty() || !good {
        errs.push(regex_error(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    errs.extend(ch_dir_prefix(v));
    errs
}

/// Checks the name of an environment variable.
pub fn relaxed_env_var_name(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.is_empty() {
        errs.push("environment variable name must be non-empty".into());
    }
    if !v.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        errs.push("a valid environment variable name must consist only of printable ASCII characters other than '='".into());
    }
    errs
}

/// Checks a key of a ConfigMap or Secret.
pub fn config_map_key(v: &str) -> Vec<String> {
    let mut errs = Vec::new();
    if v.len() > 253 {
        errs.push(max_len(253));
    }
    if v.is_empty() || !v.bytes().all(|b| matches!(b, b'-' | b'_' | b'.') || b.is_ascii_alphanumeric()) {
        errs.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errs.extend(ch_dir_prefix(v));
    errs
}

/// Checks a name that can stand in a path.
pub fn path_segment(v: &str, prefix: bool) -> Vec<String> {
    if !prefix && (v == "." || v == "..") {
        return vec![format!("may not be '{v}'")];
    }
    ["/", "%"].iter().filter(|c| v.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Replaces the last characters of a prefix by valid ones, as upstream masks it before a check.
fn mask_trailing_dash(name: &str) -> std::borrow::Cow<'_, str> {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut keep = rest.to_owned();
            keep.pop();
            keep.push('a');
            keep.into()
        }
        _ => name.into(),
    }
}

/// Checks a name that is a subdomain.
pub fn name_subdomain(name: &str, prefix: bool) -> Vec<String> {
    if prefix { dns1123_subdomain(&mask_trailing_dash(name)) } else { dns1123_subdomain(name) }
}

/// Checks a name that is an RFC 1123 label.
pub fn name_label(name: &str, prefix: bool) -> Vec<String> {
    if prefix { dns1123_label(&mask_trailing_dash(name)) } else { dns1123_label(name) }
}

/// Checks a name that is a DNS-1035 label.
pub fn name_1035(name: &str, prefix: bool) -> Vec<String> {
    if prefix { dns1035_label(&mask_trailing_dash(name)) } else { dns1035_label(name) }
}

/// A check of an object's name; `prefix` if something will be appended to it.
pub type NameCheck = fn(name: &str, prefix: bool) -> Vec<String>;

/// Checks a path below a domain, such as `acme.io/foo`.
pub fn domain_prefixed_path(errs: &mut Errors, at: &Path<'_>, v: &str) {
    if v.is_empty() {
        errs.required(at, "");
        return;
    }
    let Some((host, path)) = v.split_once('/').filter(|(h, p)| !h.is_empty() && !p.is_empty()) else {
        errs.invalid(at, v, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    };
    errs.each(at, host, dns1123_subdomain(host));
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        errs.invalid(at, path, regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]));
    }
}

/// Checks a name below a domain, such as `acme.io/foo`.
pub fn domain_prefixed_key(errs: &mut Errors, at: &Path<'_>, key: &str) {
    if key.is_empty() {
        errs.required(at, "");
        return;
    }
    let bad = qualified_name(key);
    if bad.is_empty() && key.split('/').count() != 2 {
        errs.invalid(at, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
    errs.each(at, key, bad);
}

/// Checks a subdomain as a name, for the kinds whose name's length upstream counts in bytes.
pub fn name_subdomain_bytes(name: &str, prefix: bool) -> Vec<String> {
    in_bytes(name_subdomain(name, prefix))
}

/// Turns complaints about a length into those of upstream's newer rules, which count bytes.
pub fn in_bytes(complaints: Vec<String>) -> Vec<String> {
    complaints
        .into_iter()
        .map(|c| match c.strip_prefix("must be no more than ").and_then(|c| c.strip_suffix(" characters")) {
            Some(n) => format!("must be no more than {n} bytes"),
            None => c,
        })
        .collect()
}

/// Checks a subdomain whose case does not matter.
pub fn subdomain_caseless(name: &str) -> Vec<String> {
    let bad = in_bytes(dns1123_subdomain(&name.to_ascii_lowercase()));
    bad.into_iter()
        .map(|c| {
            if c.starts_with("must be no more") {
                return c;
            }
            regex_error(
                "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
                r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
                &["Example.com"],
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "0", "a-b", "ab--1c", &"a".repeat(63)] {
            assert!(dns1123_label(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a_b", "a.b", " ", &"a".repeat(64)] {
            assert!(!dns1123_label(bad).is_empty(), "{bad}");
        }
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    }

    #[test]
    fn qualified_names() {
        for good in
            ["simple", "1.2.3.4/5678", "now-with.dashes/simple", "1-num.2-num/3-num", "Uppercase_Is_OK_123"]
        {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        for bad in ["", "/", "nospecialchars%^=@", "/simple", "a/b/c", "example.com/", "Foo.com/simple"] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn port_names() {
        for good in ["telnet", "re-mail-ck", "pop3", "a", "a-1", "1-a", "1-a-b-2-c"] {
            assert!(port_name(good).is_empty(), "{good}");
        }
        for bad in ["longerthan15characters", "", "12345", "-a", "a-", "a--b", "A"] {
            assert!(!port_name(bad).is_empty(), "{bad}");
        }
    }
}
