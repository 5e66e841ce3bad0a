//! The group certificates.k8s.io: CertificateSigningRequests, ClusterTrustBundles and PodCertificateRequests.

mod csr;
mod pod_request;
pub(super) mod trust_bundle;

use std::collections::{HashMap, HashSet};

use api::field::{Errors, Path};
use api::go::quote;
use api::names;
use api::pem::{self, Block};
use api::view::{Edit, View, same};
use api::{Node, Struct};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub(super) use pod_request::{POD_REQUEST, projected};
pub(super) use trust_bundle::TRUST_BUNDLE;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::columns;
use crate::strategies::generic::{CLUSTER, check, check_update, status_only};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The least lifetime in seconds.
const MIN_EXPIRATION: i64 = 600;
const MAX_SUBDOMAIN: usize = 253;
const MAX_LABEL: usize = 63;

/// The rules of CertificateSigningRequests. The requester is set by the API server, which knows the request.
pub(super) const REQUEST: Rules = Rules {
    group: "certificates.k8s.io",
    resource: "certificatesigningrequests",
    columns: columns::cluster::CERTIFICATE_SIGNING_REQUEST,
    takes: Takes::AllBut(&[&["spec"], &["status"]]),
    prepare_create: |c, s| {
        Edit::new(c.schema, s).remove("status");
    },
    prepare_update: |c, n, o| {
        let mut e = Edit::new(c.schema, n);
        e.copy("spec", o);
        e.copy("status", o);
    },
    validate: |c, s| check(c, s, |e, v| request(e, v, None)),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, o| update(e, n, o, &[])),
    fields: &["spec.signerName"],
    field_values: |schema, s, out| out.push(View::new(schema, s).st("spec").str("signerName").into()),
    subresources: &[
        SubresourceRules {
            name: "status",
            takes: Takes::AllBut(&[&["spec"], &["status", "conditions"]]),
            prepare_update: |c, n, o| {
                status_only(c, n, o);
                keep_decisions(c, n, o);
                set_times(c, n, o);
            },
            validate_update: |c, n, o| check_update(c, n, o, |e, n, o| update(e, n, o, &["certificate"])),
        },
        SubresourceRules {
            name: "approval",
            takes: Takes::AllBut(&[&["spec"], &["status", "certificate"]]),
            prepare_update: |c, n, o| {
                status_only(c, n, o);
                set_times(c, n, o);
                let certificate = View::new(c.schema, o).st("status").get("certificate").cloned();
                if let Some(mut status) = Edit::new(c.schema, n).make("status") {
                    status.put("certificate", certificate);
                }
            },
            validate_update: |c, n, o| check_update(c, n, o, |e, n, o| update(e, n, o, &["approval"])),
        },
    ],
    ..CLUSTER
};

/// Puts back the stored approvals and denials, which are not for the signer to change. An added or removed one is left
/// for validation to refuse.
fn keep_decisions(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    for ty in ["Approved", "Denied"] {
        let conditions = View::new(c.schema, old).st("status").items("conditions");
        let had: Vec<Struct> =
            conditions.filter(|v| v.str("type") == ty).filter_map(|v| v.raw().cloned()).collect();
        let mut e = Edit::new(c.schema, new);
        let Some(mut status) = e.make("status") else { continue };
        let count = status.view().items("conditions").filter(|v| v.str("type") == ty).count();
        if count != had.len() {
            continue;
        }
        let mut had = had.into_iter();
        for condition in status.items("conditions") {
            if condition.view().str("type") == ty
                && let Some(before) = had.next()
            {
                *condition.st = before;
            }
        }
    }
}

/// Sets the times at which each condition was updated and came to its status, where the client does not.
fn set_times(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let before = View::new(c.schema, old).st("status");
    let mut e = Edit::new(c.schema, new);
    let Some(mut status) = e.make("status") else { return };
    // Of several equal ones the first one counts, so it is inserted last.
    let known: HashMap<[&str; 2], &str> = before
        .items("conditions")
        .rev()
        .filter(|o| o.has("lastTransitionTime"))
        .map(|o| ([o.str("type"), o.str("status")], o.str("lastTransitionTime")))
        .collect();
    for mut condition in status.items("conditions") {
        condition.default("lastUpdateTime", c.now);
        let view = condition.view();
        let since = known.get(&[view.str("type"), view.str("status")]).copied().unwrap_or(c.now);
        condition.default("lastTransitionTime", since);
    }
}

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The blocks of a PEM text in base64, as fields of bytes hold it.
fn decoded(text: &str) -> Vec<Block> {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    pem::blocks(&String::from_utf8_lossy(&bytes))
}

/// Checks the certificates that a signer issued; the error tells what is wrong. Upstream's `validateCertificate`.
fn issued(text: &str) -> Result<(), String> {
    let blocks = decoded(text);
    for block in &blocks {
        if block.kind != pem::CERTIFICATE {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {}", quote(&block.kind)));
        }
        if block.headers {
            return Err("no PEM block headers are permitted".into());
        }
        let mut rest = block.bytes.as_slice();
        if rest.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        while !rest.is_empty() {
            let (after, _) =
                X509Certificate::from_der(rest).map_err(|_| "x509: malformed certificate".to_owned())?;
            rest = after;
        }
    }
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".into());
    }
    Ok(())
}

/// Checks that the first block of a PEM text is a request that its key signed; the error tells what is wrong.
fn signed(text: &str) -> Result<(), &'static str> {
    let first = decoded(text).into_iter().next();
    let request = first.filter(|block| block.kind == "CERTIFICATE REQUEST");
    csr::check(&request.ok_or("PEM block type must be CERTIFICATE REQUEST")?.bytes)
}

fn repeated(all: &[&str]) -> bool {
    let mut seen = HashSet::with_capacity(all.len());
    !all.iter().all(|v| seen.insert(*v))
}

fn usages(v: View<'_>) -> Vec<&str> {
    v.st("spec").strs("usages").collect()
}

fn condition_types(v: View<'_>) -> Vec<&str> {
    v.st("status").items("conditions").map(|c| c.str("type")).collect()
}

fn request(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>) {
    core_meta(errs, v.st("metadata"), false, |_, _| Vec::new());
    let at = Path::root("spec");
    let spec = v.st("spec");
    if old.is_none()
        && let Err(why) = signed(spec.str("request"))
    {
        errs.invalid(&at.field("request"), spec.get("request"), why);
    }
    let all = usages(v);
    let usages_at = at.field("usages");
    if all.is_empty() {
        errs.required(&usages_at, "");
    }
    if !old.is_some_and(|o| usages(o).iter().any(|u| !USAGES.contains(u))) {
        for (i, u) in all.iter().enumerate() {
            errs.one_of(&usages_at.index(i), u, USAGES);
        }
    }
    if !old.is_some_and(|o| repeated(&usages(o))) {
        let mut seen = HashSet::with_capacity(all.len());
        for (i, u) in all.iter().enumerate().filter(|(_, u)| !seen.insert(**u)) {
            errs.duplicate(&usages_at.index(i), *u);
        }
    }
    let signer = spec.str("signerName");
    let signer_at = at.field("signerName");
    if signer == LEGACY_SIGNER && old.is_none_or(|o| o.st("spec").str("signerName") != LEGACY_SIGNER) {
        errs.invalid(&signer_at, signer, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(errs, &signer_at, signer);
    }
    if let Some(n) = spec.opt_int("expirationSeconds").filter(|n| *n < MIN_EXPIRATION) {
        errs.invalid(
            &at.field("expirationSeconds"),
            n,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
    conditions(errs, v, old);
    let certificate = v.st("status").get("certificate");
    let unchanged = old.is_some_and(|o| same(o.st("status").get("certificate"), certificate));
    if let Some(text) = certificate.map(Node::as_str)
        && !text.is_empty()
        && !unchanged
        && let Err(why) = issued(text)
    {
        errs.invalid(&Path::root("status.certificate"), "<certificate data>", why);
    }
}

fn conditions(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("status.conditions");
    let before = old.map(condition_types).unwrap_or_default();
    let was_repeated = repeated(&before);
    let before: HashSet<&str> = before.into_iter().collect();
    let both = before.contains("Approved") && before.contains("Denied");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, c) in v.st("status").items("conditions").enumerate() {
        let at_one = at.index(i);
        let (ty, status) = (c.str("type"), c.str("status"));
        if ty.is_empty() && !before.contains("") {
            errs.required(&at_one.field("type"), "");
        }
        if status.is_empty() {
            errs.required(&at_one.field("status"), "");
        } else if matches!(ty, "Approved" | "Denied" | "Failed") {
            errs.one_of(&at_one.field("status"), status, &["True"]);
        } else {
            errs.one_of(&at_one.field("status"), status, &["False", "True", "Unknown"]);
        }
        let other = match ty {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "none",
        };
        if !both && seen.contains(&other) {
            errs.invalid(&at, ty, "Approved and Denied conditions are mutually exclusive");
        }
        if seen.contains(&ty) && !was_repeated {
            errs.duplicate(&at_one.field("type"), ty);
        }
        seen.insert(ty);
    }
}

/// Checks an update; `may` names the fields that the path may set besides.
fn update(errs: &mut Errors, n: View<'_>, o: View<'_>, may: &[&str]) {
    request(errs, n, Some(o));
    let at = Path::root("status.conditions");
    let of = |v: View<'_>, ty: &str| {
        v.st("status")
            .items("conditions")
            .filter(|c| c.str("type") == ty)
            .map(|c| c.raw().cloned())
            .collect::<Vec<_>>()
    };
    for ty in ["Approved", "Denied", "Failed"] {
        if of(n, ty).len() < of(o, ty).len() {
            errs.forbidden(&at, format!("updates may not remove a condition of type \"{ty}\""));
        }
    }
    if !may.contains(&"approval") {
        for ty in ["Approved", "Denied"] {
            let (new, old) = (of(n, ty), of(o, ty));
            if new.len() > old.len() {
                errs.forbidden(&at, format!("updates may not add a condition of type \"{ty}\""));
            } else if new.len() == old.len() && new != old {
                errs.forbidden(&at, format!("updates may not modify a condition of type \"{ty}\""));
            }
        }
    }
    let (new, old) = (n.st("status").get("certificate"), o.st("status").get("certificate"));
    if !same(new, old) {
        let at = Path::root("status.certificate");
        if !may.contains(&"certificate") {
            errs.forbidden(&at, "updates may not set certificate content");
        } else if old.is_some_and(|c| !c.as_str().is_empty()) {
            errs.forbidden(&at, "updates may not modify existing certificate content");
        }
    }
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
}

/// Checks the name of a signer: a domain and a path.
pub(super) fn signer_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
        return;
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, path] = segments[..] else {
        errs.invalid(
            at,
            name,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        return;
    };
    if domain.len() > MAX_SUBDOMAIN {
        errs.too_long(at, MAX_SUBDOMAIN);
    }
    let labels = |errs: &mut Errors, of: &str, check: fn(&str) -> Vec<String>| {
        if let Some((label, bad)) = of.split('.').map(|l| (l, check(l))).find(|(_, bad)| !bad.is_empty()) {
            for why in bad {
                errs.invalid(at, of, format!("validating label {}: {why}", api::go::quote(label)));
            }
        }
    };
    labels(errs, domain, names::dns1123_label);
    if !domain.contains('.') {
        errs.invalid(at, domain, "should be a domain with at least two segments separated by dots");
    }
    labels(errs, path, names::dns1123_subdomain);
    let max = MAX_SUBDOMAIN + MAX_SUBDOMAIN + MAX_LABEL + 2;
    if name.len() > max {
        errs.too_long(at, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELF_SIGNED: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBLjCB4aADAgECAhQiyv+3qCoIAoZg+oGmP5smPAxddTAFBgMrZXAwDDEKMAgG\n\
A1UEAwwBdDAgFw0yNjExMjgwOTU5MzZaGA8yMTI2MTEwNDA5NTkzNlowDDEKMAgG\n\
A1UEAwwBdDAqMAUGAytlcAMhADG1F/ipWzX056s0dQibEFcVMXpevRJLU5GbF/vj\n\
NGV7o1MwUTAdBgNVHQ4EFgQUCu+abU1SuwMZTZlXwhQ8RYHmaR4wHwYDVR0jBBgw\n\
FoAUCu+abU1SuwMZTZlXwhQ8RYHmaR4wDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD\n\
QQDIhDHC9qx6aPanzSRu0QCsng6bQoFbF4vzD1Ozv5tlOPZGXNwUy34jrUhSMJuC\n\
35vyPb98cIDhjrp82sewZaEJ\n\
-----END CERTIFICATE-----\n";

    #[test]
    fn issued_certificates() {
        let check = |text: &str, expected: Result<(), &str>| {
            assert_eq!(issued(&STANDARD.encode(text)), expected.map_err(str::to_owned), "{text}");
        };
        let good = SELF_SIGNED;
        let inner = good.lines().nth(1).unwrap();
        check(good, Ok(()));
        check(&format!("Subject: x\n{good}{good}"), Ok(()));
        let none = Err("must contain at least one CERTIFICATE PEM block");
        check("", none);
        check("-----BEGIN CERTIFICATE-----\nAAAA\n", none);
        let other = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
        let found = Err("only CERTIFICATE PEM blocks are allowed, found \"PUBLIC KEY\"");
        check(other, found);
        check(&format!("{good}{other}"), found);
        check(
            &good.replacen(inner, &format!("Key: value\n\n{inner}"), 1),
            Err("no PEM block headers are permitted"),
        );
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            Err("x509: malformed certificate"),
        );
        check(
            "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
            Err("found CERTIFICATE PEM block containing 0 certificates"),
        );
    }

    #[test]
    fn signers() {
        let check = |name: &str, expected: &[&str]| {
            let mut errs = Errors::new();
            signer_name(&mut errs, &Path::root("s"), name);
            let found: Vec<String> = errs.0.iter().map(|e| e.detail.clone()).collect();
            assert_eq!(found, expected, "{name}");
        };
        check("example.com/a.b", &[]);
        check("", &[""]);
        check("a", &["must be a fully qualified domain and path of the form 'example.com/signer-name'"]);
        check("example/a", &["should be a domain with at least two segments separated by dots"]);
    }
}
