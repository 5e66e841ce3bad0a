//! Values as upstream prints them in an error: strings as Go quotes them, structs as the JSON of
//! upstream's internal types, whose fields have Go's names and are all written.

use std::fmt::Write;

use api::schema::{Type, TypeId};
use api::{Map, Node, Schema, Struct, StructId};

/// A string as Go's `%q` prints it.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\x0b' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c == '\x7f' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() || c.is_whitespace() && c != ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A character as Go's JSON decoder quotes it.
pub fn go_rune(c: char) -> String {
    match c {
        '\'' => r"'\''".into(),
        '"' => "'\"'".into(),
        c => {
            let q = quote(&c.to_string());
            format!("'{}'", &q[1..q.len() - 1])
        }
    }
}

/// A string as Go's `encoding/json` writes it.
pub fn json_string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The JSON of a value that holds no struct.
pub fn scalar_json(n: &Node) -> String {
    let mut out = String::new();
    plain(n, &mut out);
    out
}

fn plain(n: &Node, out: &mut String) {
    match n {
        Node::Null => out.push_str("null"),
        Node::Bool(b) => {
            let _ = write!(out, "{b}");
        }
        Node::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Node::Float(f) => {
            let _ = write!(out, "{f}");
        }
        Node::Str(s) => json_string(s, out),
        Node::List(l) => list(l, out, |n, out| plain(n, out)),
        Node::Map(m) => map(m, out, |n, out| plain(n, out)),
        Node::Struct(_) => out.push_str("{}"),
    }
}

fn list(l: &[Node], out: &mut String, each: impl Fn(&Node, &mut String)) {
    out.push('[');
    for (i, n) in l.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        each(n, out);
    }
    out.push(']');
}

fn map(m: &Map, out: &mut String, each: impl Fn(&Node, &mut String)) {
    let mut all: Vec<_> = m.iter().collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    out.push('{');
    for (i, (k, n)) in all.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        json_string(k, out);
        out.push(':');
        each(n, out);
    }
    out.push('}');
}

/// A field's value in an error: a number, boolean or string bare or quoted, anything else as JSON.
pub fn value(schema: &Schema, ty: TypeId, node: Option<&Node>, pointer: bool) -> String {
    let mut out = String::new();
    write(schema, ty, node, pointer, &mut out);
    out
}

/// A struct as JSON of the internal type.
pub fn internal(schema: &Schema, st: &Struct) -> String {
    let mut out = String::new();
    write_struct(schema, st.id, Some(st), &mut out);
    out
}

/// What differs between two structs of the same type: a unified diff of their JSON, three lines around.
pub fn diff_structs(schema: &Schema, a: &Struct, b: &Struct) -> String {
    super::diff::unified(
        &super::diff::pretty(&internal(schema, a)),
        &super::diff::pretty(&internal(schema, b)),
    )
}

fn write(schema: &Schema, ty: TypeId, node: Option<&Node>, pointer: bool, out: &mut String) {
    let Some(node) = node else {
        out.push_str(match schema.ty(ty) {
            _ if pointer => "null",
            Type::Bool => "false",
            Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => "0",
            Type::String => "\"\"",
            Type::Quantity | Type::Duration => "\"0\"",
            Type::Struct(id) => return write_struct(schema, *id, None, out),
            _ => "null",
        });
        return;
    };
    match (schema.ty(ty), node) {
        (Type::Struct(id), Node::Struct(s)) => write_struct(schema, *id, Some(s), out),
        (Type::List { of, .. }, Node::List(l)) => {
            list(l, out, |n, out| write(schema, *of, Some(n), false, out))
        }
        (Type::Map { of, .. }, Node::Map(m)) => map(m, out, |n, out| write(schema, *of, Some(n), false, out)),
        (_, n) => plain(n, out),
    }
}

fn write_struct(schema: &Schema, id: StructId, st: Option<&Struct>, out: &mut String) {
    let ty = schema.st(id);
    let tagged = is_meta(&ty.name);
    out.push('{');
    let mut first = true;
    for (i, f) in ty.fields.iter().enumerate() {
        let node = st.and_then(|s| s.get(api::FieldNo(i as u16)));
        if tagged && node.is_none() && f.omitempty {
            continue;
        }
        if !first {
            out.push(',');
        }
        first = false;
        if tagged {
            json_string(&f.json, out)
        } else {
            json_string(&go_name(&f.json), out)
        }
        out.push(':');
        write(schema, f.ty, node, f.pointer, out);
    }
    out.push('}');
}

/// Types of apimachinery have JSON names also inside.
fn is_meta(name: &str) -> bool {
    name.contains(".apimachinery.")
}

/// The Go name of a field with this JSON name.
fn go_name(json: &str) -> String {
    match json {
        "uid" => return "UID".into(),
        "ip" => return "IP".into(),
        "podIP" => return "PodIP".into(),
        "tty" => return "TTY".into(),
        "stdin" => return "Stdin".into(),
        "uri" => return "URI".into(),
        "url" => return "URL".into(),
        "os" => return "OS".into(),
        "fc" => return "FC".into(),
        "csi" => return "CSI".into(),
        "nfs" => return "NFS".into(),
        "rbd" => return "RBD".into(),
        "iqn" => return "IQN".into(),
        "iscsi" => return "ISCSI".into(),
        "apiVersion" => return "APIVersion".into(),
        "apiGroup" => return "APIGroup".into(),
        "apiGroups" => return "APIGroups".into(),
        "dnsPolicy" => return "DNSPolicy".into(),
        "dnsConfig" => return "DNSConfig".into(),
        "httpGet" => return "HTTPGet".into(),
        "httpHeaders" => return "HTTPHeaders".into(),
        "tcpSocket" => return "TCPSocket".into(),
        "grpc" => return "GRPC".into(),
        "nodeID" => return "NodeID".into(),
        "fsType" => return "FSType".into(),
        "fsGroup" => return "FSGroup".into(),
        "fsGroupChangePolicy" => return "FSGroupChangePolicy".into(),
        "hostIP" => return "HostIP".into(),
        "hostPID" => return "HostPID".into(),
        "hostIPC" => return "HostIPC".into(),
        "seLinuxOptions" => return "SELinuxOptions".into(),
        "seLinuxChangePolicy" => return "SELinuxChangePolicy".into(),
        "pdName" => return "PDName".into(),
        "volumeID" => return "VolumeID".into(),
        _ => {}
    }
    let mut c = json.chars();
    c.next().map(|f| f.to_ascii_uppercase().to_string() + c.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(quote("a\"b\\\n\u{1}é"), "\"a\\\"b\\\\\\n\\x01é\"");
    }
}
