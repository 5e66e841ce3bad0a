//! Checks of strings; see [`api::names`].

pub use api::names::*;

/// A check of an object's name; `prefix` if something will be appended to it.
pub type NameCheck = fn(name: &str, prefix: bool) -> Vec<String>;

/// A path below a domain, such as `acme.io/foo`.
pub fn domain_prefixed_path(errs: &mut super::Errors, at: &super::Path<'_>, v: &str) {
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

/// A name below a domain, such as `acme.io/foo`.
pub fn domain_prefixed_key(errs: &mut super::Errors, at: &super::Path<'_>, key: &str) {
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

/// A subdomain as a name, for the kinds whose name's length upstream counts in bytes.
pub fn name_subdomain_bytes(name: &str, prefix: bool) -> Vec<String> {
    in_bytes(name_subdomain(name, prefix))
}

/// Complaints about a length, which newer rules of upstream count in bytes.
pub fn in_bytes(complaints: Vec<String>) -> Vec<String> {
    complaints
        .into_iter()
        .map(|c| match c.strip_prefix("must be no more than ").and_then(|c| c.strip_suffix(" characters")) {
            Some(n) => format!("must be no more than {n} bytes"),
            None => c,
        })
        .collect()
}

/// A subdomain of which the case does not matter.
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
