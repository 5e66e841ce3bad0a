//! Writes the description as committed data: one line a package, struct and field.

use std::fmt::Write;

use super::model::{Field, Model};

/// The text of `v1.36.schema`.
pub(super) fn schema(model: &Model) -> String {
    let mut out = String::new();
    for api in model.apis.values() {
        let (group, version) = api.gv.as_ref().map_or(("-", "-"), |(g, v)| (g.as_str(), v.as_str()));
        let group = if group.is_empty() { "core" } else { group };
        let _ = writeln!(out, "package {} {} {group} {version}", api.alias, api.prefix);
        for (name, s) in &api.structs {
            let _ = write!(out, "struct {name}");
            for (on, word) in [(s.kind, "kind"), (s.atomic, "atomic"), (s.union, "union")] {
                if on {
                    let _ = write!(out, " {word}");
                }
            }
            out.push('\n');
            for f in &s.fields {
                field(f, s.union, &mut out);
            }
        }
    }
    for (group, version, kind, of) in &model.extra {
        let group = if group.is_empty() { "core" } else { group };
        let _ = writeln!(out, "kind {group} {version} {kind} {of}");
    }
    for (group, version) in &model.versions {
        let group = if group.is_empty() { "core" } else { group };
        let _ = writeln!(out, "version {group} {version}");
    }
    out
}

/// Writes a field as ` name [outer/]number type flags`: `*` pointer, `?` omitted when empty, `!` required; then
/// `patch=`, `gate=`, `mark=`, `via=` (embedded structs), `go=` (name of the type), `enum=`, and `default=` to the end
/// of the line.
fn field(f: &Field, union: bool, out: &mut String) {
    let _ = write!(out, " {} ", f.json);
    for n in &f.proto_in {
        let _ = write!(out, "{n}/");
    }
    let _ = write!(out, "{} {} ", f.proto, f.ty);
    for (on, c) in [(f.pointer, '*'), (f.omitempty, '?'), (f.required, '!')] {
        if on {
            out.push(c);
        }
    }
    if !f.pointer && !f.omitempty && !f.required {
        out.push('-');
    }
    if !f.patch.is_empty() || !f.merge_key.is_empty() {
        let _ = write!(out, " patch={}:{}", f.patch, f.merge_key);
    }
    if let Some(g) = &f.gate {
        let _ = write!(out, " gate={g}");
    }
    if let Some(m) = f.mark {
        let _ = write!(out, " mark={m}");
    }
    if union && f.discriminator {
        out.push_str(" discriminator");
    } else if union && f.union_member {
        let _ = write!(out, " member={}", f.go);
    }
    if !f.via.is_empty() {
        let _ = write!(out, " via={}", f.via.join("."));
    }
    if let Some(t) = &f.go_type {
        let _ = write!(out, " go={t}");
    }
    if !f.values.is_empty() {
        let _ = write!(out, " enum={}", f.values.join("|"));
    }
    if let Some(d) = &f.default {
        let _ = write!(out, " default={d}");
    }
    out.push('\n');
}
