//! The requests of a ResourceClaim, as other parts of it name them.

use std::collections::HashSet;

use api::Node;
use api::field::{Errors, Path};
use api::names;
use api::view::View;

use super::{fits, unique};
use crate::strategies::pod::volume_sources::csi_driver_name;

/// Upstream's limits.
pub(super) const MAX_REQUESTS: usize = 32;
const MAX_PARAMETERS: usize = 10 * 1024;

/// The names of a claim's requests, each with those of its alternatives.
pub(super) struct Requests<'a>(HashSet<(&'a str, Option<&'a str>)>);

impl<'a> Requests<'a> {
    pub(super) fn of(devices: View<'a>) -> Self {
        let mut all = HashSet::new();
        for r in devices.items("requests") {
            let name = r.str("name");
            all.insert((name, None));
            all.extend(r.items("firstAvailable").map(|f| (name, Some(f.str("name")))));
        }
        Self(all)
    }
}

/// Checks `requests` of a constraint or a configuration: each must be one of the claim's.
pub(super) fn request_names(errs: &mut Errors, at: &Path<'_>, of: View<'_>, claimed: &Requests<'_>) {
    let at = at.field("requests");
    if !fits(errs, &at, of.len("requests"), MAX_REQUESTS) {
        return;
    }
    for (i, name) in of.strs("requests").enumerate() {
        request_name(errs, &at.index(i), name, claimed);
    }
    unique(errs, &at, of.strs("requests"));
}

/// Checks a name, which must be of a request of the claim or of one of its alternatives.
pub(super) fn request_name(errs: &mut Errors, at: &Path<'_>, name: &str, claimed: &Requests<'_>) {
    const WHY: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    if name.matches('/').count() > 1 {
        errs.invalid(at, name, WHY);
        return;
    }
    for part in name.split('/') {
        errs.each(at, part, names::dns1123_label(part));
    }
    let (request, sub) = match name.split_once('/') {
        Some((r, s)) => (r, Some(s)),
        None => (name, None),
    };
    if !claimed.0.contains(&(request, sub)) {
        errs.invalid(at, name, WHY);
    }
}

/// Checks parameters that only the driver understands.
pub(super) fn opaque(errs: &mut Errors, at: &Path<'_>, c: View<'_>) {
    let at = at.field("opaque");
    let Some(o) = c.opt("opaque") else {
        errs.required(&at, "");
        return;
    };
    csi_driver_name(errs, &at.field("driver"), o.str("driver"));
    let at = at.field("parameters");
    match o.get("parameters") {
        None | Some(Node::Null) => errs.required(&at, ""),
        Some(p) if api::go::scalar_json(p).len() > MAX_PARAMETERS => errs.too_long(&at, MAX_PARAMETERS),
        Some(Node::Raw(text)) if text.starts_with('{') => {}
        Some(_) => errs.invalid(&at, "<value omitted>", "must be a valid JSON object"),
    }
}
