//! Generates `crates/kinds/src/views`: numbers of structs and fields, and typed read views.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use anyhow::{Context, Result};

use super::model::{Field, Model};

/// The generated files: name and text. `wanted` says which packages' kinds get views; what those
/// reach in other packages gets views too.
pub(super) fn files(model: &Model, wanted: &BTreeSet<String>) -> Result<Vec<(String, String)>> {
    let mut ids = HashMap::new();
    let mut queue = Vec::new();
    for (alias, api) in &model.apis {
        for (name, s) in &api.structs {
            ids.insert(format!("{alias}.{name}"), ids.len());
            if wanted.contains(alias) && s.kind {
                queue.push((alias.clone(), name.clone()));
            }
        }
    }
    let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some((alias, name)) = queue.pop() {
        if !reached.entry(alias.clone()).or_default().insert(name.clone()) {
            continue;
        }
        for f in &model.apis[&alias].structs[&name].fields {
            if let Some((a, n)) = referred(&f.ty) {
                queue.push((a.to_owned(), n.to_owned()));
            }
        }
    }
    let mut index = String::from(
        "//! Typed views of the built-in kinds' trees, and the numbers of their structs and fields.\n//!\n\
         //! Written by `cargo xtask schema` together with the description that the numbers index.\n\n",
    );
    let mut out = Vec::new();
    for (alias, names) in &reached {
        let _ = writeln!(index, "pub mod {alias};");
        let mut text = format!("//! `{}`\n\nuse crate::view::prelude::*;\n", model.apis[alias].prefix);
        let mut body = String::new();
        for name in names {
            let id = ids.get(&format!("{alias}.{name}")).context("a struct without an id")?;
            let _ = writeln!(body, "\nview! {{ {name} {} {id} {{", snake(name));
            for (no, f) in model.apis[alias].structs[name].fields.iter().enumerate() {
                let method = snake(&f.json);
                let constant = match method.trim_end_matches('_') {
                    "id" => "ID_".to_owned(),
                    m => m.to_uppercase(),
                };
                let _ = writeln!(body, "    {no} {constant} {method}: {};", rust_type(f, alias));
            }
            body.push_str("} }\n");
        }
        for other in reached.keys().filter(|o| *o != alias && body.contains(&format!("{o}::"))) {
            let _ = writeln!(text, "use super::{other};");
        }
        text.push_str(&body);
        out.push((format!("{alias}.rs"), text));
    }
    out.push(("mod.rs".into(), index));
    Ok(out)
}

/// The struct at the bottom of a type, if it is one that has a view.
fn referred(ty: &str) -> Option<(&str, &str)> {
    let bottom = ty.rsplit([']', '}']).next()?;
    if bottom.contains('|') {
        return None;
    }
    bottom.split_once('.')
}

fn rust_type(f: &Field, alias: &str) -> String {
    let ty = plain_type(&f.ty, alias);
    if f.pointer && !ty.starts_with("Option<") { format!("Option<{ty}>") } else { ty }
}

fn plain_type(ty: &str, alias: &str) -> String {
    if ty.starts_with('[') || ty.starts_with("w[") {
        let of = ty.split_once(']').map_or("", |s| s.1);
        return format!("ListView<'a, {}>", plain_type(of, alias));
    }
    if ty.starts_with('{') {
        let of = ty.split_once('}').map_or("", |s| s.1);
        return format!("MapView<'a, {}>", plain_type(of, alias));
    }
    match ty {
        "bool" => "bool".into(),
        "i32" | "i64" => "i64".into(),
        "f64" => "f64".into(),
        "str" | "bytes" | "quantity" | "time" | "microtime" | "duration" => "&'a str".into(),
        "intstr" => "IntOrStr<'a>".into(),
        _ => match referred(ty) {
            Some((a, n)) if a == alias => format!("{n}<'a>"),
            Some((a, n)) => format!("{a}::{n}<'a>"),
            None => "Option<&'a Tree>".into(),
        },
    }
}

/// `host_ips` for `hostIPs`; a Rust keyword gets an underscore behind it.
fn snake(name: &str) -> String {
    let c: Vec<char> = name.chars().filter(|c| *c != '$').collect();
    let mut out = String::new();
    for (i, ch) in c.iter().enumerate() {
        if !ch.is_ascii_alphanumeric() {
            out.push('_');
            continue;
        }
        if ch.is_ascii_uppercase() && i > 0 && c[i - 1].is_ascii_alphanumeric() {
            let after_lower = !c[i - 1].is_ascii_uppercase();
            let next_lower = c.get(i + 1).is_some_and(|n| n.is_ascii_lowercase());
            let plural = c.get(i + 1) == Some(&'s') && c.get(i + 2).is_none_or(|n| n.is_ascii_uppercase());
            if after_lower || (next_lower && !plural) {
                out.push('_');
            }
        }
        out.push(ch.to_ascii_lowercase());
    }
    if ["type", "continue", "ref", "static", "enum", "match", "for", "in", "use"].contains(&out.as_str()) {
        out.push('_');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::snake;

    #[test]
    fn snake_case() {
        for (go, rust) in [
            ("hostIPs", "host_ips"),
            ("clusterIP", "cluster_ip"),
            ("HTTPGetAction", "http_get_action"),
            ("setHostnameAsFQDN", "set_hostname_as_fqdn"),
            ("serverAddressByClientCIDRs", "server_address_by_client_cidrs"),
            ("x-kubernetes-map-type", "x_kubernetes_map_type"),
            ("$ref", "ref_"),
            ("type", "type_"),
            ("CSINode", "csi_node"),
        ] {
            assert_eq!(snake(go), rust);
        }
    }
}
