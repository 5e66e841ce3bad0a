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

/// A subdomain as a name, for the kinds whose name's length upstream counts in bytes.
pub fn name_subdomain_bytes(name: &str, prefix: bool) -> Vec<String> {
    let bad = name_subdomain(name, prefix);
    bad.into_iter().map(|b| b.replace("no more than 253 characters", "no more than 253 bytes")).collect()
}
