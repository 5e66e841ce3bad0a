//! The kinds of networking.

use api::view::View;

use super::core::load_balancer;
use super::{AGE, Columns, NAME, default_name, or, selector, shown, some_of, text};

pub(crate) const INGRESS_CLASS: &Columns =
    &shown!([NAME, text("Controller"), text("Parameters"), AGE], |m| {
        let parameters = m.spec.opt("parameters").map(|p| {
            let kind = p.str("kind");
            match p.opt_str("apiGroup") {
                Some(group) => format!("{kind}.{group}/{}", p.str("name")),
                None => format!("{kind}/{}", p.str("name")),
            }
        });
        [
            default_name(&m, "ingressclass.kubernetes.io/is-default-class"),
            m.spec.str("controller").into(),
            parameters.unwrap_or_else(|| "<none>".into()).into(),
            m.age(),
        ]
    });

pub(crate) const INGRESS: &Columns =
    &shown!([NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE], |m| {
        [
            m.name(),
            m.spec.opt_str("ingressClassName").unwrap_or("<none>").into(),
            hosts(m.spec).into(),
            load_balancer(m.status).into(),
            if m.spec.len("tls") > 0 { "80, 443" } else { "80" }.into(),
            m.age(),
        ]
    });

// Upstream gives the age of such an object a cell, but no column.
pub(crate) const IP_ADDRESS: &Columns = &shown!([NAME, text("ParentRef")], |m| {
    let parent = m.spec.opt("parentRef").map(|p| {
        let resource = api::status::qualified(p.str("group"), p.str("resource")).to_lowercase();
        match p.str("namespace") {
            "" => format!("{resource}/{}", p.str("name")),
            ns => format!("{resource}/{ns}/{}", p.str("name")),
        }
    });
    [m.name(), parent.unwrap_or_else(|| "<none>".into()).into(), m.age()]
});

pub(crate) const NETWORK_POLICY: &Columns = &shown!([NAME, text("Pod-Selector"), AGE], |m| {
    [m.name(), selector(Some(m.spec.st("podSelector"))).into(), m.age()]
});

pub(crate) const SERVICE_CIDR: &Columns = &shown!([NAME, text("CIDRs"), AGE], |m| {
    [m.name(), m.spec.strs("cidrs").collect::<Vec<_>>().join(",").into(), m.age()]
});

pub(crate) const ENDPOINT_SLICE: &Columns =
    &shown!([NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE], |m| {
        let ports: Vec<String> = m
            .object
            .items("ports")
            .map(|p| match (p.opt_int("port"), p.opt_str("name")) {
                (Some(n), _) => n.to_string(),
                (None, Some(name)) => name.to_owned(),
                (None, None) => "*".into(),
            })
            .collect();
        let ends: Vec<String> =
            m.object.items("endpoints").flat_map(|e| e.strs("addresses").map(str::to_owned)).collect();
        [
            m.name(),
            m.object.str("addressType").into(),
            or(&some_of(&ports, 3), "<unset>").into(),
            or(&some_of(&ends, 3), "<unset>").into(),
            m.age(),
        ]
    });

/// The first three hosts of an Ingress. Upstream counts the rules that are not shown, with a host or without.
fn hosts(spec: View<'_>) -> String {
    let mut shown = Vec::new();
    for rule in spec.items("rules") {
        if shown.len() == 3 {
            return format!("{} + {} more...", shown.join(","), spec.len("rules") - 3);
        }
        shown.extend(Some(rule.str("host")).filter(|h| !h.is_empty()));
    }
    or(&shown.join(","), "*").to_owned()
}
