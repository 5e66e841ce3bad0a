//! Endpoints.

use api::Gate;
use api::field::{Errors, Path};
use api::names::{self, name_subdomain};
use api::view::{View, same};

use crate::columns;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Going, Rules};
use crate::strategy::Ctx;
use crate::validation::ip;

pub(crate) const ENDPOINTS: Rules = Rules {
    resource: "endpoints",
    columns: columns::core::ENDPOINTS,
    going: &[Going {
        version: "v1",
        since: 33,
        removed: "",
        instead: "; use discovery.k8s.io/v1 EndpointSlice",
    }],
    path: Some("services/endpoints"),
    create_on_update: true,
    validate: |c, s| check(c, s, |e, v| endpoints(e, v, None, c)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            endpoints(e, n, Some(o), c);
        })
    },
    warnings: |c, n, _| {
        let mut out = Vec::new();
        let v = View::new(c.schema, n);
        let subsets = Path::root("subsets");
        for (i, s) in v.items("subsets").enumerate() {
            let at = subsets.index(i);
            for list in ["addresses", "notReadyAddresses"] {
                let at = at.field(list);
                for (j, a) in s.items(list).enumerate() {
                    let at = at.index(j);
                    out.extend(ip::warning(&at.field("ip"), a.str("ip")));
                }
            }
        }
        out
    },
    ..NAMESPACED
};

fn endpoints(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>, c: &Ctx<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    if old.is_some_and(|o| same(o.get("subsets"), v.get("subsets"))) {
        return;
    }
    let strict = c.gates.enabled(Gate::StrictIPCIDRValidation);
    let subsets = Path::root("subsets");
    for (i, s) in v.items("subsets").enumerate() {
        let at = subsets.index(i);
        if s.len("addresses") == 0 && s.len("notReadyAddresses") == 0 {
            errs.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            let at = at.field(list);
            for (j, a) in s.items(list).enumerate() {
                let at = at.index(j);
                ip::check_legacy(errs, &at.field("ip"), a.str("ip"), strict, &ip::Kept::new());
                let host = a.str("hostname");
                if !host.is_empty() {
                    errs.each(&at.field("hostname"), host, names::dns1123_label(host));
                }
                if let Some(n) = a.opt_str("nodeName") {
                    errs.each(&at.field("nodeName"), n, name_subdomain(n, false));
                }
                endpoint_ip(errs, &at.field("ip"), a.str("ip"));
            }
        }
        let ports = at.field("ports");
        let several = s.len("ports") > 1;
        for (j, p) in s.items("ports").enumerate() {
            let at = ports.index(j);
            let name = p.str("name");
            if !name.is_empty() {
                errs.each(&at.field("name"), name, names::dns1123_label(name));
            } else if several {
                errs.required(&at.field("name"), "");
            }
            let number = p.int("port");
            for msg in names::port_number(number) {
                errs.invalid(&at.field("port"), number, msg);
            }
            let protocol = p.str("protocol");
            if protocol.is_empty() {
                errs.required(&at.field("protocol"), "");
            } else {
                errs.one_of(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
            }
            if let Some(a) = p.opt_str("appProtocol") {
                errs.each(&at.field("appProtocol"), a, names::qualified_name(a));
            }
        }
    }
}

/// Checks an address of an endpoint or an external IP.
pub(crate) fn endpoint_ip(errs: &mut Errors, at: &Path<'_>, value: &str) {
    use std::net::IpAddr;
    let Some(addr) = ip::parse_sloppy(value) else {
        errs.invalid(at, value, "must be a valid IP address");
        return;
    };
    let (link_local, local_multicast) = match addr {
        IpAddr::V4(a) => (a.is_link_local(), a.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(a) => (a.segments()[0] & 0xffc0 == 0xfe80, a.segments()[0] & 0xff0f == 0xff02),
    };
    if addr.is_unspecified() {
        errs.invalid(at, value, format!("may not be unspecified ({value})"));
    }
    if addr.is_loopback() {
        errs.invalid(at, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        errs.invalid(at, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if local_multicast {
        errs.invalid(at, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}
