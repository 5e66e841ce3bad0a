//! ConfigMap, Secret, Namespace, ServiceAccount, Endpoints, Event, LimitRange, ResourceQuota, and
//! of other groups Lease and PriorityClass.

use api::status::FieldError;
use api::{Node, Schema, Struct, Text};
use base64::Engine as _;

use super::pod::resources::{container_resource_name, quantity_value, resource_name};
use super::pod::{core_meta, core_meta_update};
use crate::access::{Edit, View, same, strings};
use crate::resources;
use crate::strategy::{Ctx, Strategy, Subresource};
use crate::validation::meta::{object_meta, object_meta_update};
use crate::validation::names::{self, name_label, name_subdomain};
use crate::validation::print;
use crate::validation::quantity::{milli, nano};
use crate::validation::{Errors, IMMUTABLE, Path, Raw, ip};

use super::generic::{self, CLUSTER, NAMESPACED, keep_status};

/// Runs checks on a view.
pub(super) fn check(c: &Ctx<'_>, s: &Struct, f: impl FnOnce(&mut Errors, View<'_>)) -> Vec<FieldError> {
    let mut errs = Errors::new();
    f(&mut errs, View::new(c.schema, s));
    errs.0
}

/// Runs checks on the views of an update.
pub(super) fn check_update(
    c: &Ctx<'_>,
    new: &Struct,
    old: &Struct,
    f: impl FnOnce(&mut Errors, View<'_>, View<'_>),
) -> Vec<FieldError> {
    let mut errs = Errors::new();
    f(&mut errs, View::new(c.schema, new), View::new(c.schema, old));
    errs.0
}

/// The greatest size of the data of a Secret or ConfigMap in bytes.
const MAX_DATA: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

pub(super) const CONFIG_MAP: Strategy = Strategy {
    resource: "configmaps",
    validate: |c, s| check(c, s, config_map),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            sealed(e, n, o, &["data", "binaryData"]);
            config_map(e, n);
        })
    },
    ..NAMESPACED
};

fn sealed(errs: &mut Errors, new: View<'_>, old: View<'_>, fields: &[&'static str]) {
    if !old.bool("immutable") {
        return;
    }
    if !new.bool("immutable") {
        errs.forbidden(&Path::root("immutable"), SEALED);
    }
    for f in fields {
        if !same(new.get(f), old.get(f)) {
            errs.forbidden(&Path::root(f), SEALED);
        }
    }
}

/// The length of what base64 text stands for.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count()
}

fn config_map(errs: &mut Errors, m: View<'_>) {
    core_meta(errs, m.st("metadata"), true, name_subdomain);
    let (data, binary) = (Path::root("data"), Path::root("binaryData"));
    let mut size = 0;
    for (k, v) in m.texts("data") {
        let at = data.key(k);
        errs.each(&at, k, names::config_map_key(k));
        if m.map("binaryData").is_some_and(|b| b.get(k).is_some()) {
            errs.invalid(&at, k, "duplicate of key present in binaryData");
        }
        size += v.len();
    }
    for (k, v) in m.texts("binaryData") {
        errs.each(&binary.key(k), k, names::config_map_key(k));
        size += decoded_len(v);
    }
    if size > MAX_DATA {
        errs.too_long(&Path::root(""), MAX_DATA);
    }
}

pub(super) const SECRET: Strategy = Strategy {
    resource: "secrets",
    prepare_update: |c, n, o| {
        let old = View::new(c.schema, o).opt_str("type").map(Text::from);
        let mut e = Edit::new(c.schema, n);
        if e.view().str("type").is_empty()
            && let Some(t) = old
        {
            e.set("type", t);
        }
    },
    validate: |c, s| check(c, s, secret),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            if n.str("type") != o.str("type") {
                e.invalid(&Path::root("type"), n.str("type"), IMMUTABLE);
            }
            sealed(e, n, o, &["data"]);
            secret(e, n);
        })
    },
    warnings: |c, n, _| {
        let s = View::new(c.schema, n);
        if s.str("type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        for (key, what) in [("tls.crt", "certificate"), ("tls.key", "key")] {
            let pem = s.map("data").map_or_else(Vec::new, |d| decode(d.str(key)));
            if !pem.windows(10).any(|w| w == b"-----BEGIN") {
                return vec![format!("tls: failed to find any PEM data in {what} input")];
            }
        }
        Vec::new()
    },
    ..NAMESPACED
};

fn decode(text: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

fn secret(errs: &mut Errors, s: View<'_>) {
    let meta = s.st("metadata");
    core_meta(errs, meta, true, name_subdomain);
    let data = Path::root("data");
    let mut size = 0;
    for (k, v) in s.texts("data") {
        errs.each(&data.key(k), k, names::config_map_key(k));
        size += decoded_len(v);
    }
    if size > MAX_DATA {
        errs.too_long(&data, MAX_DATA);
    }
    let value = |k: &str| s.map("data").and_then(|d| d.get(k)).map(Node::as_str);
    match s.str("type") {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if meta.map("annotations").is_none_or(|a| a.str(NAME).is_empty()) {
                let at = Path::root("metadata.annotations");
                errs.required(&at.key(NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => json_object(errs, &data, ".dockercfg", value(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => {
            json_object(errs, &data, ".dockerconfigjson", value(".dockerconfigjson"));
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            errs.required(&data.key("username"), "");
            errs.required(&data.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").is_none_or(str::is_empty) => {
            errs.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for k in ["tls.crt", "tls.key"] {
                if value(k).is_none() {
                    errs.required(&data.key(k), "");
                }
            }
        }
        _ => {}
    }
}

fn json_object(errs: &mut Errors, at: &Path<'_>, key: &str, value: Option<&str>) {
    let at = at.key(key);
    let Some(value) = value else {
        errs.required(&at, "");
        return;
    };
    let bytes = decode(value);
    let why = match serde_json::from_slice::<serde_json::Value>(&bytes) {
        Ok(serde_json::Value::Object(_) | serde_json::Value::Null) => return,
        Ok(v) => {
            let kind = match v {
                serde_json::Value::Bool(_) => "bool",
                serde_json::Value::Number(_) => "number",
                serde_json::Value::String(_) => "string",
                _ => "array",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        Err(e) if e.is_eof() => "unexpected end of JSON input".into(),
        Err(e) => {
            let at = e.column().saturating_sub(1);
            let c = bytes.get(at).map_or(' ', |b| char::from(*b));
            format!("invalid character {} looking for beginning of value", print::go_rune(c))
        }
    };
    errs.invalid(&at, "<secret contents redacted>", why);
}

pub(super) const NAMESPACE: Strategy = Strategy {
    resource: "namespaces",
    prepare_create: |c, s| {
        let mut e = Edit::new(c.schema, s);
        e.remove("status");
        if let Some(mut st) = e.make("status") {
            st.set("phase", "Active");
        }
        if let Some(mut spec) = e.make("spec") {
            let mut all: Vec<Text> = spec.view().strs("finalizers").map(Text::from).collect();
            if !all.iter().any(|f| f == "kubernetes") {
                all.push("kubernetes".into());
            }
            spec.set("finalizers", strings(all.iter().map(Text::as_str)));
        }
        name_label_of(&mut e);
    },
    prepare_update: |c, n, o| {
        let old = View::new(c.schema, o);
        let mut e = Edit::new(c.schema, n);
        e.copy("status", o);
        let kept = old.st("spec").get("finalizers").cloned();
        if let Some(mut spec) = e.make("spec") {
            spec.put("finalizers", kept);
        }
        name_label_of(&mut e);
    },
    validate: |c, s| check(c, s, namespace),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            namespace(e, n);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
        })
    },
    subresources: &[
        Subresource {
            name: "status",
            prepare_update: |c, n, o| Edit::new(c.schema, n).copy("spec", o),
            validate_update: |c, n, o| {
                check_update(c, n, o, |e, n, o| {
                    core_meta_update(e, n.st("metadata"), o.st("metadata"));
                    let phase = n.st("status").str("phase");
                    let at = Path::root("status.Phase");
                    let deleting = n.st("metadata").has("deletionTimestamp");
                    if !deleting && phase != "Active" {
                        e.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
                    }
                    if deleting && phase != "Terminating" {
                        e.invalid(
                            &at,
                            phase,
                            "may only be 'Terminating' if `deletionTimestamp` is not empty",
                        );
                    }
                })
            },
        },
        Subresource {
            name: "finalize",
            prepare_update: |c, n, o| Edit::new(c.schema, n).copy("status", o),
            validate_update: |c, n, o| {
                check_update(c, n, o, |e, n, o| {
                    core_meta_update(e, n.st("metadata"), o.st("metadata"));
                    let at = Path::root("spec.finalizers");
                    for (i, f) in n.st("spec").strs("finalizers").enumerate() {
                        finalizer(e, &at.index(i), f);
                    }
                })
            },
        },
    ],
    ..CLUSTER
};

fn name_label_of(e: &mut Edit<'_>) {
    if let Some(mut m) = e.make("metadata") {
        let name = Text::from(m.view().str("name"));
        if let Some(labels) = m.make_map("labels") {
            labels.insert("kubernetes.io/metadata.name", name);
        }
    }
}

fn finalizer(errs: &mut Errors, at: &Path<'_>, f: &str) {
    errs.each(at, f, names::qualified_name(f));
    if !f.contains('/') && !matches!(f, "kubernetes" | "orphan" | "foregroundDeletion") {
        errs.invalid(at, f, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn namespace(errs: &mut Errors, n: View<'_>) {
    core_meta(errs, n.st("metadata"), false, name_label);
    for f in n.st("spec").strs("finalizers") {
        finalizer(errs, &Path::root("spec.finalizers"), f);
    }
}

pub(super) const SERVICE_ACCOUNT: Strategy = Strategy {
    resource: "serviceaccounts",
    prepare_create: |c, s| only_names(&mut Edit::new(c.schema, s)),
    prepare_update: |c, n, _| only_names(&mut Edit::new(c.schema, n)),
    validate: |c, s| check(c, s, |e, v| core_meta(e, v.st("metadata"), true, name_subdomain)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            core_meta(e, n.st("metadata"), true, name_subdomain);
        })
    },
    warnings: |c, n, old| {
        const KEY: &str = "kubernetes.io/enforce-mountable-secrets";
        let has = |s: &Struct| {
            View::new(c.schema, s).st("metadata").map("annotations").is_some_and(|a| a.get(KEY).is_some())
        };
        if has(n) && !old.is_some_and(has) {
            return vec![format!(
                "metadata.annotations[{KEY}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )];
        }
        Vec::new()
    },
    ..NAMESPACED
};

/// References to Secrets keep their names alone.
fn only_names(e: &mut Edit<'_>) {
    for r in e.items("secrets") {
        let schema = r.schema;
        let id = r.st.id;
        r.st.retain(|no, _| schema.st(id).at(no).json == "name");
    }
}

pub(super) const ENDPOINTS: Strategy = Strategy {
    resource: "endpoints",
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
    let strict = (c.gate)("StrictIPCIDRValidation");
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
                ip::check_legacy(errs, &at.field("ip"), a.str("ip"), strict, &[]);
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

/// An address that an endpoint or an external IP may have.
pub(super) fn endpoint_ip(errs: &mut Errors, at: &Path<'_>, value: &str) {
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

const EVENT: Strategy = Strategy {
    resource: "events",
    create_on_update: true,
    fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    field_values: event_fields,
    ..NAMESPACED
};
/// Events as the core group takes them: few checks.
pub(super) const CORE_EVENT: Strategy = Strategy {
    validate: |c, s| check(c, s, |e, v| legacy_event(e, v, "reportingComponent")),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, _| legacy_event(e, n, "reportingComponent")),
    ..EVENT
};
/// Events as events.k8s.io/v1 takes them. The tree is the core group's, in which both are stored.
pub(super) const NEW_EVENT: Strategy =
    Strategy { group: "events.k8s.io", validate: new_event, validate_update: new_event_update, ..EVENT };

fn event_fields(schema: &Schema, s: &Struct, out: &mut Vec<Text>) {
    let v = View::new(schema, s);
    let o = v.st("involvedObject");
    for f in ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"] {
        out.push(o.str(f).into());
    }
    let reporting = v.str("reportingComponent");
    out.push(v.str("reason").into());
    out.push(reporting.into());
    let source = v.st("source").str("component");
    out.push(if source.is_empty() { reporting } else { source }.into());
    out.push(v.str("type").into());
}

fn is_set(v: View<'_>, f: &str) -> bool {
    matches!(v.get(f), Some(Node::Str(_)))
}

fn legacy_event(errs: &mut Errors, v: View<'_>, reporting_field: &'static str) {
    let ns = v.st("metadata").str("namespace");
    let object_ns = v.st("involvedObject").str("namespace");
    let wrong_ns = |errs: &mut Errors| {
        errs.invalid(&Path::root("involvedObject.namespace"), object_ns, "does not match event.namespace");
    };
    if is_set(v, "eventTime") {
        if object_ns.is_empty() && ns != "default" && ns != "kube-system" {
            wrong_ns(errs);
        }
        let controller = v.str("reportingComponent");
        let at = Path::root(reporting_field);
        if controller.is_empty() {
            errs.required(&at, "");
        }
        errs.each(&at, controller, names::qualified_name(controller));
        for (f, max) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
            let at = Path::root(f);
            if v.str(f).is_empty() {
                errs.required(&at, "");
            }
            if v.str(f).len() > max {
                errs.invalid(&at, "", format!("can have at most {max} characters"));
            }
        }
        if v.str("message").len() > 1024 {
            errs.invalid(&Path::root("message"), "", "can have at most 1024 characters");
        }
    } else if object_ns.is_empty() {
        if !ns.is_empty() && ns != "default" {
            wrong_ns(errs);
        }
    } else if ns != object_ns {
        wrong_ns(errs);
    }
    errs.each(&Path::root("namespace"), ns, names::dns1123_subdomain(ns));
}

fn event_series(errs: &mut Errors, v: View<'_>) {
    let Some(s) = v.opt("series") else { return };
    if s.int("count") < 2 {
        errs.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
    if !is_set(s, "lastObservedTime") {
        errs.required(&Path::root("series.lastObservedTime"), "");
    }
}

fn new_event(c: &Ctx<'_>, s: &Struct) -> Vec<FieldError> {
    check(c, s, |errs, v| {
        legacy_event(errs, v, "reportingController");
        core_meta(errs, v.st("metadata"), true, name_subdomain);
        event_series(errs, v);
        if !is_set(v, "eventTime") {
            errs.required(&Path::root("eventTime"), "");
        }
        let ty = v.str("type");
        if ty != "Normal" && ty != "Warning" {
            errs.invalid(&Path::root("type"), "", format!("has invalid value: {ty}"));
        }
        for f in ["firstTimestamp", "lastTimestamp"] {
            if is_set(v, f) {
                errs.invalid(&Path::root(f), "", "needs to be unset");
            }
        }
        if v.int("count") != 0 {
            errs.invalid(&Path::root("count"), "", "needs to be unset");
        }
        if !v.st("source").is_empty() {
            errs.invalid(&Path::root("source"), "", "needs to be unset");
        }
    })
}

fn new_event_update(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    check_update(c, new, old, |errs, n, o| {
        legacy_event(errs, n, "reportingController");
        core_meta_update(errs, n.st("metadata"), o.st("metadata"));
        if !same(n.get("series"), o.get("series")) {
            event_series(errs, n);
        }
        let root = Path::root("");
        for f in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
        ] {
            errs.immutable(&root, n, o, f);
        }
        for (f, shown) in
            [("reportingComponent", "reportingController"), ("reportingInstance", "reportingInstance")]
        {
            if n.str(f) != o.str(f) {
                errs.invalid(&Path::root(shown), n.str(f), IMMUTABLE);
            }
        }
    })
}

pub(super) const LEASE: Strategy = Strategy {
    group: "coordination.k8s.io",
    resource: "leases",
    create_on_update: true,
    unconditional_update: false,
    prepare_create: |c, s| drop_election(c, s, None),
    prepare_update: |c, n, o| drop_election(c, n, Some(o)),
    validate: |c, s| {
        check(c, s, |e, v| {
            object_meta(e, v.st("metadata"), true, name_subdomain);
            lease_spec(e, v.st("spec"));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            object_meta_update(e, n.st("metadata"), o.st("metadata"));
            lease_spec(e, n.st("spec"));
        })
    },
    ..NAMESPACED
};

fn drop_election(c: &Ctx<'_>, new: &mut Struct, old: Option<&Struct>) {
    if (c.gate)("CoordinatedLeaderElection") {
        return;
    }
    let old = old.map(|o| View::new(c.schema, o).st("spec"));
    if let Some(mut spec) = Edit::new(c.schema, new).at("spec") {
        for f in ["strategy", "preferredHolder"] {
            if !old.is_some_and(|o| o.has(f)) {
                spec.remove(f);
            }
        }
    }
}

fn lease_spec(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec");
    if let Some(n) = spec.opt_int("leaseDurationSeconds")
        && n <= 0
    {
        errs.invalid(&at.field("leaseDurationSeconds"), n, "must be greater than 0");
    }
    if let Some(n) = spec.opt_int("leaseTransitions")
        && n < 0
    {
        errs.invalid(&at.field("leaseTransitions"), n, "must be greater than or equal to 0");
    }
    if !spec.str("preferredHolder").is_empty() && spec.str("strategy").is_empty() {
        errs.forbidden(&at.field("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

pub(super) const PRIORITY_CLASS: Strategy = Strategy {
    group: "scheduling.k8s.io",
    resource: "priorityclasses",
    prepare_create: generic::first_generation,
    validate: |c, s| check(c, s, priority_class),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            if n.int("value") != o.int("value") {
                e.forbidden(&Path::root("value"), "may not be changed in an update.");
            }
            e.immutable(&Path::root(""), n, o, "preemptionPolicy");
        })
    },
    ..CLUSTER
};

/// The classes that the system makes, with their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority_class(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let (name, value) = (v.st("metadata").str("name"), v.int("value"));
    if name.starts_with("system-") {
        let why = match SYSTEM_CLASSES.iter().find(|(n, _)| *n == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, want)) if *want != value => {
                Some(format!("value of {name} PriorityClass must be {want}"))
            }
            Some(_) if v.bool("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            errs.forbidden(
                &Path::root("metadata.name"),
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                ),
            );
        }
    } else if value > 1_000_000_000 {
        errs.forbidden(
            &Path::root("value"),
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    if let Some(p) = v.opt_str("preemptionPolicy") {
        super::pod::spec::preemption_policy(errs, &Path::root("preemptionPolicy"), p);
    }
}

pub(super) const LIMIT_RANGE: Strategy = Strategy {
    resource: "limitranges",
    create_on_update: true,
    prepare_create: |c, s| {
        // One without a name is named by its uid.
        if let Some(mut m) = Edit::new(c.schema, s).at("metadata") {
            let uid = Text::from(m.view().str("uid"));
            if m.view().str("name").is_empty() && !uid.is_empty() {
                m.set("name", uid);
            }
        }
    },
    validate: |c, s| check(c, s, limit_range),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            limit_range(e, n);
        })
    },
    ..NAMESPACED
};

fn limit_range(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    let limits = Path::root("spec.limits");
    let mut seen: Vec<&str> = Vec::new();
    for (i, l) in v.st("spec").items("limits").enumerate() {
        let at = limits.index(i);
        let ty = l.str("type");
        let type_at = at.field("type");
        let bad = names::qualified_name(ty);
        if bad.is_empty() {
            if !ty.contains('/') && !matches!(ty, "Pod" | "Container" | "PersistentVolumeClaim") {
                errs.invalid(&type_at, ty, "must be a standard limit type or fully qualified");
            }
        } else {
            errs.each(&type_at, ty, bad);
        }
        if seen.contains(&ty) {
            errs.duplicate(&type_at, ty);
        } else {
            seen.push(ty);
        }
        let mut keys: Vec<&str> = Vec::new();
        for f in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if f == "default" && ty == "Pod" {
                for f in ["default", "defaultRequest"] {
                    if l.len(f) > 0 {
                        errs.forbidden(&at.field(f), "may not be specified when `type` is 'Pod'");
                    }
                }
            }
            if f == "maxLimitRequestRatio"
                && ty == "PersistentVolumeClaim"
                && ["min", "max"].iter().all(|f| l.map(f).is_none_or(|m| m.get("storage").is_none()))
            {
                errs.required(
                    &at.field("limits"),
                    "either minimum or maximum storage value is required, but neither was provided",
                );
            }
            if ty == "Pod" && (f == "default" || f == "defaultRequest") {
                continue;
            }
            let at = at.field(f);
            for (k, _) in l.texts(f) {
                if ty == "Pod" || ty == "Container" {
                    container_resource_name(errs, &at.key(k), k);
                } else {
                    resource_name(errs, &at.key(k), k);
                }
                if !keys.contains(&k) {
                    keys.push(k);
                }
            }
        }
        keys.sort_unstable();
        for k in keys {
            limit_values(errs, &at, l, k, ty == "Pod");
        }
    }
}

fn limit_values(errs: &mut Errors, at: &Path<'_>, l: View<'_>, k: &str, pod: bool) {
    let get = |f: &str| l.map(f).and_then(|m| m.get(k)).map(Node::as_str);
    let (min, max, ratio) = (get("min"), get("max"), get("maxLimitRequestRatio"));
    let (default, request) = if pod { (None, None) } else { (get("default"), get("defaultRequest")) };
    let above = |a: Option<&str>, b: Option<&str>| match (a, b) {
        (Some(a), Some(b)) => nano(a) > nano(b),
        _ => false,
    };
    let text = |v: Option<&str>| v.unwrap_or_default().to_owned();
    let (min_at, request_at, default_at, ratio_at) =
        (at.field("min"), at.field("defaultRequest"), at.field("default"), at.field("maxLimitRequestRatio"));
    let mut report = |at: &Path<'_>, shown: Option<&str>, why: String| {
        errs.invalid(&at.key(k), text(shown), why);
    };
    if above(min, max) {
        report(&min_at, min, format!("min value {} is greater than max value {}", text(min), text(max)));
    }
    if above(min, request) {
        report(
            &request_at,
            request,
            format!("min value {} is greater than default request value {}", text(min), text(request)),
        );
    }
    if above(request, max) {
        report(
            &request_at,
            request,
            format!("default request value {} is greater than max value {}", text(request), text(max)),
        );
    }
    if above(request, default) {
        report(
            &request_at,
            request,
            format!(
                "default request value {} is greater than default limit value {}",
                text(request),
                text(default)
            ),
        );
    }
    if above(min, default) {
        report(
            &default_at,
            min,
            format!("min value {} is greater than default value {}", text(min), text(default)),
        );
    }
    if above(default, max) {
        report(
            &default_at,
            max,
            format!("default value {} is greater than max value {}", text(default), text(max)),
        );
    }
    if let Some(r) = ratio {
        if nano(r) < 1_000_000_000 {
            report(&ratio_at, ratio, format!("ratio {r} is less than 1"));
        }
        if let (Some(lo), Some(hi)) = (min, max) {
            let limit = milli(hi) as f64 / milli(lo) as f64;
            if milli(r) as f64 / 1000.0 > limit {
                report(&ratio_at, ratio, format!("ratio {r} is greater than max/min = {}", go_float(limit)));
            }
        }
    }
    if let (Some(d), Some(r)) = (default, request)
        && !resources::is_overcommit_allowed(k)
        && nano(d) != nano(r)
    {
        report(
            &request_at,
            request,
            format!("default value {d} must equal to defaultRequest value {r} in {k}"),
        );
    }
}

/// A number as Go's `%f` prints it.
fn go_float(f: f64) -> String {
    if f.is_infinite() { "+Inf".into() } else { format!("{f:.6}") }
}

pub(super) const RESOURCE_QUOTA: Strategy = Strategy {
    resource: "resourcequotas",
    prepare_create: generic::drop_status,
    prepare_update: keep_status,
    validate: |c, s| check(c, s, quota),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            quota_spec(e, n.st("spec"));
            let scopes = |v: View<'_>| {
                let mut all: Vec<Text> = v.st("spec").strs("scopes").map(Text::from).collect();
                all.sort();
                all.dedup();
                all
            };
            if scopes(n) != scopes(o) {
                e.invalid(&Path::root("spec.scopes"), n.st("spec").get("scopes"), IMMUTABLE);
            }
        })
    },
    subresources: &[Subresource {
        name: "status",
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let at = Path::root("status");
                for f in ["hard", "used"] {
                    let at = at.field(f);
                    for (k, q) in n.st("status").texts(f) {
                        quota_resource(e, &at.key(k), k);
                        quantity_value(e, &at.key(k), k, q);
                    }
                }
            })
        },
    }],
    ..NAMESPACED
};

fn quota(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    quota_spec(errs, v.st("spec"));
}

fn is_quota_resource(name: &str) -> bool {
    matches!(
        name,
        "cpu"
            | "memory"
            | "ephemeral-storage"
            | "requests.cpu"
            | "requests.memory"
            | "requests.storage"
            | "requests.ephemeral-storage"
            | "limits.cpu"
            | "limits.memory"
            | "limits.ephemeral-storage"
            | "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "persistentvolumeclaims"
            | "configmaps"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || resources::is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

fn quota_resource(errs: &mut Errors, at: &Path<'_>, name: &str) {
    resource_name(errs, at, name);
    if !name.contains('/') && !is_quota_resource(name) {
        errs.invalid(at, name, "must be a standard resource for quota");
    }
}

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

fn is_scope(s: &str) -> bool {
    SCOPES.contains(&s)
}

/// Whether a scope says anything about a resource.
fn scope_fits(scope: &str, resource: &str) -> bool {
    let compute = matches!(
        resource,
        "cpu"
            | "memory"
            | "requests.cpu"
            | "requests.memory"
            | "limits.cpu"
            | "limits.memory"
            | "ephemeral-storage"
            | "requests.ephemeral-storage"
            | "limits.ephemeral-storage"
    );
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || compute,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn quota_spec(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec");
    let hard = at.field("hard");
    for (k, q) in spec.texts("hard") {
        quota_resource(errs, &hard.key(k), k);
        quantity_value(errs, &hard.key(k), k, q);
    }
    let scopes_at = at.field("scopes");
    let all = || spec.get("scopes");
    let scopes: Vec<&str> = spec.strs("scopes").collect();
    for s in &scopes {
        if !is_scope(s) {
            errs.invalid(&scopes_at, all(), "unsupported scope");
        }
        for (k, _) in spec.texts("hard") {
            if is_quota_resource(k) && !scope_fits(s, k) {
                errs.invalid(&scopes_at, all(), "unsupported scope applied to resource");
            }
        }
    }
    let conflicts = |errs: &mut Errors, at: &Path<'_>, of: &[&str]| {
        for (a, b) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
            if of.contains(&a) && of.contains(&b) {
                errs.invalid(at, all(), "conflicting scopes");
            }
        }
    };
    conflicts(errs, &scopes_at, &scopes);
    let Some(selector) = spec.opt("scopeSelector") else { return };
    let at = at.field("scopeSelector.matchExpressions");
    let mut named: Vec<&str> = Vec::new();
    for r in selector.items("matchExpressions") {
        let (scope, operator) = (r.str("scopeName"), r.str("operator"));
        if !is_scope(scope) {
            errs.invalid(&at.field("scopeName"), scope, "unsupported scope");
        }
        for (k, _) in spec.texts("hard") {
            if is_quota_resource(k) && !scope_fits(scope, k) {
                let value = selector.raw().map(|s| print::internal(selector.schema, s)).unwrap_or_default();
                errs.invalid(&at, Raw(value), "unsupported scope applied to resource");
            }
        }
        if matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        ) && operator != "Exists"
        {
            errs.invalid(
                &at.field("operator"),
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator {
            "In" | "NotIn" => {
                if r.len("values") == 0 {
                    errs.required(
                        &at.field("values"),
                        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                    );
                }
            }
            "Exists" | "DoesNotExist" => {
                if r.len("values") > 0 {
                    errs.invalid(
                        &at.field("values"),
                        r.get("values"),
                        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                    );
                }
            }
            _ => errs.invalid(&at.field("operator"), operator, "not a valid selector operator"),
        }
        named.push(scope);
    }
    conflicts(errs, &at, &named);
}

pub(super) const NODE: Strategy = Strategy {
    resource: "nodes",
    prepare_create: |c, s| {
        let mut e = Edit::new(c.schema, s);
        if let Some(mut spec) = e.at("spec") {
            spec.remove("configSource");
        }
        if let Some(mut st) = e.at("status") {
            st.remove("config");
        }
    },
    prepare_update: |c, n, o| {
        keep_status(c, n, o);
        if !View::new(c.schema, o).st("spec").has("configSource")
            && let Some(mut spec) = Edit::new(c.schema, n).at("spec")
        {
            spec.remove("configSource");
        }
    },
    validate: |c, s| check(c, s, |e, v| node(e, v, c)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            node(e, n, c);
            node_update(e, n, o);
        })
    },
    warnings: |c, n, _| {
        let v = View::new(c.schema, n).st("spec");
        let mut out = Vec::new();
        if !v.str("externalID").is_empty() {
            out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let at = Path::root("spec.podCIDRs");
        for (i, cidr) in v.strs("podCIDRs").enumerate() {
            out.extend(ip::cidr_warnings(&at.index(i), cidr));
        }
        out
    },
    subresources: &[Subresource {
        name: "status",
        prepare_update: |c, n, o| {
            let mut e = Edit::new(c.schema, n);
            e.copy("spec", o);
            if !View::new(c.schema, o).st("status").has("config")
                && let Some(mut s) = e.at("status")
            {
                s.remove("config");
            }
        },
        validate_update: |c, n, o| check_update(c, n, o, node_update),
    }],
    fields: &["spec.unschedulable"],
    field_values: |schema, s, out| {
        let on = View::new(schema, s).st("spec").bool("unschedulable");
        out.push(Text::from(if on { "true" } else { "false" }));
    },
    ..CLUSTER
};

fn node_taints(errs: &mut Errors, n: View<'_>) {
    let list = Path::root("metadata.taints");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, t) in n.st("spec").items("taints").enumerate() {
        let at = list.index(i);
        let (key, value, effect) = (t.str("key"), t.str("value"), t.str("effect"));
        crate::validation::meta::label_name(errs, &at.field("key"), key);
        let bad = names::label_value(value);
        if !bad.is_empty() {
            errs.invalid(&at.field("value"), value, bad.join(";"));
        }
        if effect.is_empty() {
            errs.required(&at.field("effect"), "");
        } else {
            super::pod::scheduling::taint_effect(errs, &at.field("effect"), effect);
        }
        if seen.contains(&(effect, key)) {
            let shown = t.raw().map(|s| print::internal(t.schema, s)).unwrap_or_default();
            errs.duplicate_because(&at, Raw(shown), "taints must be unique by key and effect pair");
            continue;
        }
        seen.push((effect, key));
    }
}

fn node_resources(errs: &mut Errors, n: View<'_>) {
    let at = Path::root("status");
    for f in ["capacity", "allocatable"] {
        let at = at.field(f);
        for (k, q) in n.st("status").texts(f) {
            quantity_value(errs, &at.field(k), k, q);
        }
    }
}

fn declared_features(errs: &mut Errors, n: View<'_>) {
    let at = Path::root("status.declaredFeatures");
    let part = |s: &str, first: fn(&char) -> bool| {
        s.chars().next().is_some_and(|c| first(&c)) && s.chars().all(|c| c.is_ascii_alphanumeric())
    };
    for (i, f) in n.st("status").strs("declaredFeatures").enumerate() {
        let mut parts = f.split('/');
        let good = part(parts.next().unwrap_or_default(), char::is_ascii_uppercase)
            && parts.all(|p| part(p, char::is_ascii_alphabetic));
        if !good {
            errs.invalid(
                &at.index(i),
                f,
                "must match the regex ^[A-Z][a-zA-Z0-9]*(\\/[a-zA-Z][a-zA-Z0-9]*)*$",
            );
        }
    }
}

fn node(errs: &mut Errors, n: View<'_>, c: &Ctx<'_>) {
    core_meta(errs, n.st("metadata"), false, name_subdomain);
    node_taints(errs, n);
    node_resources(errs, n);
    if let Some(capacity) = n.st("status").st("nodeInfo").st("swap").opt_int("capacity") {
        errs.positive(&Path::root("metadata.nodeSwapStatus.capacity"), capacity);
    }
    declared_features(errs, n);
    let at = Path::root("spec.podCIDRs");
    let all: Vec<&str> = n.st("spec").strs("podCIDRs").collect();
    for (i, cidr) in all.iter().enumerate() {
        ip::check_cidr_legacy(errs, &at.index(i), cidr, (c.gate)("StrictIPCIDRValidation"), &[]);
    }
    if all.len() > 1 {
        let bad = all.iter().enumerate().find(|(_, c)| ip::parse_cidr_sloppy(c).is_none());
        if let Some((i, bad)) = bad {
            errs.internal(
                &at,
                format!(
                    "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: {bad})"
                ),
            );
        }
        let v6 = all.iter().filter(|c| c.contains(':')).count();
        if bad.is_some() || all.len() > 2 || v6 != 1 {
            errs.invalid(
                &at,
                n.st("spec").get("podCIDRs"),
                "may specify no more than one CIDR for each IP family",
            );
        }
    }
}

fn node_update(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    node_resources(errs, n);
    declared_features(errs, n);
    let list = Path::root("status.addresses");
    let addresses: Vec<View<'_>> = n.st("status").items("addresses").collect();
    for (i, a) in addresses.iter().enumerate() {
        if addresses[..i].iter().any(|b| b.raw() == a.raw()) {
            let shown = a.raw().map(|s| print::internal(a.schema, s)).unwrap_or_default();
            errs.duplicate(&list.index(i), Raw(shown));
        }
    }
    let (ns, os) = (n.st("spec"), o.st("spec"));
    if os.len("podCIDRs") > 0 {
        let changed = if os.len("podCIDRs") == ns.len("podCIDRs") {
            os.strs("podCIDRs").zip(ns.strs("podCIDRs")).filter(|(a, b)| a != b).count()
        } else {
            1
        };
        for _ in 0..changed {
            errs.forbidden(
                &Path::root("spec.podCIDRs"),
                "node updates may not change podCIDR except from \"\" to valid",
            );
        }
    }
    let provider = os.str("providerID");
    if !provider.is_empty() && provider != ns.str("providerID") {
        errs.forbidden(
            &Path::root("spec.providerID"),
            "node updates may not change providerID except from \"\" to valid",
        );
    }
    node_taints(errs, n);
    if ns.str("externalID") != os.str("externalID") {
        errs.forbidden(&Path::root("spec.externalID"), "may not be updated");
    }
}

/// The Warning about a name that is no label, for kinds whose pods bear it.
pub(super) fn name_warning(out: &mut Vec<String>, meta: View<'_>) {
    let bad = names::dns1123_label(meta.str("name"));
    if !bad.is_empty() {
        out.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            bad.join(" ")
        ));
    }
}
