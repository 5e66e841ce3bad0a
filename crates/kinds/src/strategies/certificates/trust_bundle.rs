//! ClusterTrustBundles.

use api::field::{Errors, Path};
use api::names::name_subdomain;
use api::pem::blocks;
use api::view::View;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::signer_name;
use crate::columns;
use crate::strategies::generic::{CLUSTER, check, check_update};
use crate::strategies::meta::core_meta_update;
use crate::strategies::meta::finalizers;
use crate::strategies::rules::{Rules, going};
use crate::validation::immutable;
use crate::validation::meta::object_meta;

const MAX_BUNDLE: usize = 1024 * 1024;

pub(crate) const TRUST_BUNDLE: Rules = Rules {
    group: "certificates.k8s.io",
    resource: "clustertrustbundles",
    columns: columns::cluster::CLUSTER_TRUST_BUNDLE,
    going: &[going("v1alpha1", 34, "1.37")],
    unconditional_update: false,
    validate: |c, s| check(c, s, |e, v| bundle(e, v, true)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            let text = |v: View<'_>| v.st("spec").str("trustBundle").to_owned();
            bundle(e, n, text(n) != text(o));
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            immutable(e, &Path::root("spec"), n.st("spec"), o.st("spec"), "signerName");
        })
    },
    fields: &["spec.signerName"],
    field_values: |schema, s, out| out.push(View::new(schema, s).st("spec").str("signerName").into()),
    ..CLUSTER
};

/// The reasons for which a name does not suit a bundle of a signer.
pub(crate) fn name(signer: &str, name: &str, prefix: bool) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".into()];
        }
        return name_subdomain(name, prefix);
    }
    let wanted = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&wanted) {
        None => {
            vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {wanted}")]
        }
        Some(rest) => name_subdomain(rest, prefix),
    }
}

fn bundle(errs: &mut Errors, v: View<'_>, parse: bool) {
    let (meta, spec) = (v.st("metadata"), v.st("spec"));
    let signer = spec.str("signerName");
    let name_at = Path::root("metadata.name");
    let generate_at = Path::root("metadata.generateName");
    let (given, generated) = (meta.str("name"), meta.str("generateName"));
    if !generated.is_empty() {
        errs.each(&generate_at, generated, name(signer, generated, true));
    }
    if !given.is_empty() {
        errs.each(&name_at, given, name(signer, given, false));
    }
    object_meta(errs, meta, false, |_, _| Vec::new());
    finalizers(errs, &Path::root("metadata"), meta);
    if !signer.is_empty() {
        signer_name(errs, &Path::root("spec.signerName"), signer);
    }
    if parse {
        anchors(errs, &Path::root("spec.trustBundle"), spec.str("trustBundle"));
    }
}

/// Checks certificates of authorities: at least one, and each once.
fn anchors(errs: &mut Errors, at: &Path<'_>, text: &str) {
    if text.len() > MAX_BUNDLE {
        errs.too_long(at, MAX_BUNDLE);
        return;
    }
    let blocks = blocks(text);
    let before = errs.len();
    let bad = |errs: &mut Errors, why: String| errs.invalid(at, "<value omitted>", why);
    for (i, block) in blocks.iter().enumerate() {
        if block.kind != "CERTIFICATE" {
            bad(errs, format!("entry {i} has bad block type: {}", block.kind));
        } else if block.headers {
            bad(errs, format!("entry {i} has PEM block headers"));
        } else {
            match X509Certificate::from_der(&block.bytes) {
                Ok(([], certificate)) => {
                    if !certificate.is_ca() {
                        bad(errs, format!("entry {i} does not have the CA bit set"));
                    }
                }
                _ => bad(errs, format!("entry {i} does not parse as X.509")),
            }
        }
    }
    if errs.len() > before {
        return;
    }
    if blocks.is_empty() {
        bad(errs, "at least one trust anchor must be provided".into());
    }
    for (i, block) in blocks.iter().enumerate() {
        let same: Vec<String> = blocks
            .iter()
            .enumerate()
            .filter(|(_, b)| b.bytes == block.bytes)
            .map(|(j, _)| j.to_string())
            .collect();
        // Equal ones are reported once, at the first.
        if same.len() > 1 && same[0] == i.to_string() {
            bad(errs, format!("duplicate trust anchor (indices [{}])", same.join(" ")));
        }
    }
}
