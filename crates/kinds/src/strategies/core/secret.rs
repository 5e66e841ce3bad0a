//! Secrets.

use api::field::{Errors, IMMUTABLE, Path};
use api::names::{self, name_subdomain};
use api::view::{Edit, View, same_as_written};
use api::{Node, Text};
use base64::Engine as _;

use super::config_map::{MAX_DATA, decoded_len, sealed};
use crate::columns;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::Rules;

pub(crate) const SECRET: Rules = Rules {
    resource: "secrets",
    columns: columns::core::SECRET,
    fields: &["type"],
    field_values: fields!("type"),
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
            sealed(e, n, o, &[("data", same_as_written)]);
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
    let why = match api::codec::json::decode_any(&bytes) {
        Ok(Node::Map(_) | Node::Null) => return,
        Ok(v) => {
            let kind = match v {
                Node::Bool(_) => "bool",
                Node::Int(_) | Node::Float(_) => "number",
                Node::Str(_) => "string",
                _ => "array",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        Err(e) => e.to_string(),
    };
    errs.invalid(&at, "<secret contents redacted>", why);
}
