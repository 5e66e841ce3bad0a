//! Reads the committed description of the built-in kinds.

use std::collections::HashMap;
use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::gate::Gate;
use crate::schema::{
    AnyKind, Field, FieldNo, GoName, Gvk, ListKind, Mark, NameIndex, Or, PatchStrategy, Schema, StructId,
    StructType, Type, TypeId, Union,
};
use crate::tree::Text;

/// An error in a description: its place and its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the schema: {what}")]
pub struct SchemaError {
    /// Line, from 1.
    pub line: usize,
    /// The error in words.
    pub what: &'static str,
}

impl Schema {
    /// The built-in kinds.
    pub fn builtin() -> &'static Schema {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(|| {
            // A committed file that a test reads; an empty schema serves nothing.
            Schema::parse(include_str!("../schema/v1.36.schema")).unwrap_or_default()
        })
    }

    /// Reads a description: what `cargo xtask schema` writes.
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        Reader::default().read(text)
    }
}

#[derive(Default)]
struct Reader<'a> {
    /// The structs' ids, by `alias` and name.
    ids: HashMap<(&'a str, &'a str), StructId>,
    types: Vec<Type>,
    interned: HashMap<&'a str, TypeId>,
    wrapped: Vec<TypeId>,
    go_names: HashMap<(StructId, FieldNo), GoName>,
}

fn group(s: &str) -> &str {
    if s == "core" { "" } else { s }
}

impl<'a> Reader<'a> {
    fn read(mut self, text: &'a str) -> Result<Schema, SchemaError> {
        let at = |line: usize, what: &'static str| SchemaError { line: line + 1, what };
        let mut alias = "";
        let mut prefix = "";
        let mut gv = None;
        let mut kinds = HashMap::new();
        let mut versions = Vec::new();
        let mut structs: Vec<StructType> = Vec::new();
        // JSON names of the fields by struct, for the keys of list types that point forward.
        let mut names: Vec<Vec<&'a str>> = Vec::new();
        for (no, line) in text.lines().enumerate() {
            let mut words = line.split(' ');
            match words.next() {
                Some("") => {
                    let name = words.next().ok_or_else(|| at(no, "a field without a name"))?;
                    names.last_mut().ok_or_else(|| at(no, "a field outside a struct"))?.push(name);
                }
                Some("package") => {
                    alias = words.next().ok_or_else(|| at(no, "a package without an alias"))?;
                    prefix = words.next().ok_or_else(|| at(no, "a package without a prefix"))?;
                    gv = match (words.next(), words.next()) {
                        (Some("-"), _) => None,
                        (Some(g), Some(v)) => Some((group(g), v)),
                        _ => return Err(at(no, "a package without group and version")),
                    };
                }
                Some("struct") => {
                    let name = words.next().ok_or_else(|| at(no, "a struct without a name"))?;
                    let flags: SmallVec<[&str; 3]> = words.collect();
                    let id = StructId::unmarked(structs.len());
                    self.ids.insert((alias, name), id);
                    names.push(Vec::new());
                    let kind = flags.contains(&"kind");
                    if let (true, Some((g, v))) = (kind, gv) {
                        kinds.insert(Gvk::new(g, v, name), id);
                    }
                    structs.push(StructType {
                        name: compact_str::format_compact!("{prefix}.{name}"),
                        fields: Vec::new(),
                        atomic: flags.contains(&"atomic"),
                        kind,
                        union: flags
                            .contains(&"union")
                            .then(|| Union { discriminator: None, members: Vec::new() }),
                        by_json: Vec::new(),
                        message: Vec::new(),
                        names: NameIndex::default(),
                        rest: None,
                    });
                }
                Some("kind" | "version") => {}
                _ => return Err(at(no, "an unknown statement")),
            }
        }
        let mut current = 0;
        let mut next = 0;
        for (no, line) in text.lines().enumerate() {
            if let Some(field) = line.strip_prefix(' ') {
                let f = self.field(field, current, &mut structs, &names).map_err(|what| at(no, what))?;
                structs[current].fields.push(f);
            } else if line.starts_with("struct ") {
                current = next;
                next += 1;
            } else if let Some(rest) = line.strip_prefix("kind ") {
                let words: SmallVec<[&str; 4]> = rest.split(' ').collect();
                let [g, v, kind, of] = words[..] else { return Err(at(no, "a kind without its parts")) };
                let id = self.id(of).ok_or_else(|| at(no, "a kind of no struct"))?;
                kinds.insert(Gvk::new(group(g), v, kind), id);
            } else if let Some((g, v)) = line.strip_prefix("version ").and_then(|r| r.split_once(' ')) {
                versions.push((group(g).into(), v.into()));
            }
        }
        Ok(Schema::new(self.types, structs, kinds)
            .with_wrapped(self.wrapped)
            .with_versions(versions)
            .with_go_names(self.go_names))
    }

    fn id(&self, text: &'a str) -> Option<StructId> {
        self.ids.get(&text.split_once('.')?).copied()
    }

    /// One field: `name [outer/]number type flags rest`.
    fn field(
        &mut self,
        line: &'a str,
        of: usize,
        structs: &mut [StructType],
        names: &[Vec<&'a str>],
    ) -> Result<Field, &'static str> {
        let (line, default) = match line.split_once(" default=") {
            Some((l, d)) => (l, Some(d.into())),
            None => (line, None),
        };
        let (line, values) = match line.split_once(" enum=") {
            Some((l, v)) => (l, v.split('|').map(Into::into).collect()),
            None => (line, Vec::new()),
        };
        let mut words = line.split(' ');
        let json: Text = words.next().ok_or("no name")?.into();
        let mut proto_in = SmallVec::new();
        let mut proto = 0;
        for n in words.next().ok_or("no number")?.split('/') {
            proto_in.push(n.parse().map_err(|_| "not a number")?);
        }
        if let Some(last) = proto_in.pop() {
            proto = last;
        }
        let ty = self.ty(words.next().ok_or("no type")?, names)?;
        let flags = words.next().ok_or("no flags")?;
        let mut field = Field {
            json,
            proto,
            proto_in,
            ty,
            pointer: flags.contains('*'),
            omitempty: flags.contains('?'),
            required: flags.contains('!'),
            default,
            values,
            patch: PatchStrategy::default(),
            gates: SmallVec::new(),
            mark: None,
        };
        let no = FieldNo(structs[of].fields.len() as u16);
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "patch" => {
                    let (strategy, merge_key) = value.split_once(':').ok_or("no merge key")?;
                    for s in strategy.split(',') {
                        match s {
                            "merge" => field.patch.merge = true,
                            "replace" => field.patch.replace = true,
                            "retainKeys" => field.patch.retain_keys = true,
                            _ => {}
                        }
                    }
                    if !merge_key.is_empty() {
                        let element = self.element(ty).ok_or("a merge key without a list of structs")?;
                        field.patch.merge_key = Some(number(names, element, merge_key)?);
                    }
                }
                "via" | "go" => {
                    let name = self.go_names.entry((StructId::unmarked(of), no)).or_default();
                    *(if key == "go" { &mut name.ty } else { &mut name.via }) = value.into();
                }
                "gate" => {
                    let gates = value.split(',').map(Gate::named).collect::<Option<_>>();
                    field.gates = gates.ok_or("a gate that v1.36 does not have")?;
                }
                "mark" => field.mark = Some(if value == "atomic" { Mark::Atomic } else { Mark::Granular }),
                "discriminator" | "member" => {
                    let union = structs[of].union.as_mut().ok_or("a member of no union")?;
                    if key == "member" {
                        union.members.push((no, value.into()));
                    } else {
                        union.discriminator = Some(no);
                    }
                }
                _ => return Err("an unknown word"),
            }
        }
        Ok(field)
    }

    fn element(&self, list: TypeId) -> Option<StructId> {
        match &self.types[list.0 as usize] {
            Type::List { of, .. } => match &self.types[of.0 as usize] {
                Type::Struct(s) => Some(*s),
                _ => None,
            },
            _ => None,
        }
    }

    fn ty(&mut self, text: &'a str, names: &[Vec<&'a str>]) -> Result<TypeId, &'static str> {
        if let Some(known) = self.interned.get(text) {
            return Ok(*known);
        }
        let mut wrapped = false;
        let ty = match text {
            "bool" => Type::Bool,
            "i32" => Type::Int32,
            "i64" => Type::Int64,
            "f64" => Type::Float64,
            "str" => Type::String,
            "bytes" => Type::Bytes,
            "quantity" => Type::Quantity,
            "intstr" => Type::IntOrString,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "duration" => Type::Duration,
            "value" => Type::Any(AnyKind::Value),
            "json" => Type::Any(AnyKind::Json),
            "raw" => Type::Any(AnyKind::RawExtension),
            "fieldsv1" => Type::Any(AnyKind::FieldsV1),
            _ => {
                if let Some(of) = text.strip_prefix("w[]") {
                    wrapped = true;
                    Type::List { of: self.ty(of, names)?, kind: ListKind::Atomic }
                } else if let Some(of) = text.strip_prefix("[]") {
                    Type::List { of: self.ty(of, names)?, kind: ListKind::Atomic }
                } else if let Some(of) = text.strip_prefix("[set]") {
                    Type::List { of: self.ty(of, names)?, kind: ListKind::Set }
                } else if let Some(rest) = text.strip_prefix("[map:") {
                    let (keys, of) = rest.split_once(']').ok_or("an unclosed list type")?;
                    let of = self.ty(of, names)?;
                    let Type::Struct(element) = self.types[of.0 as usize] else {
                        return Err("a list by key of no structs");
                    };
                    let keys =
                        keys.split(',').map(|k| number(names, element, k)).collect::<Result<_, _>>()?;
                    Type::List { of, kind: ListKind::Map(keys) }
                } else if let Some(of) = text.strip_prefix("{}") {
                    Type::Map { of: self.ty(of, names)?, atomic: false }
                } else if let Some(of) = text.strip_prefix("{atomic}") {
                    Type::Map { of: self.ty(of, names)?, atomic: true }
                } else if let Some((of, or)) = text.split_once('|') {
                    let or = match or {
                        "bool" => Or::Bool,
                        "list" => Or::List,
                        "strings" => Or::Strings,
                        _ => return Err("an unknown alternative"),
                    };
                    Type::Or { of: self.id(of).ok_or("an unknown struct")?, or }
                } else {
                    Type::Struct(self.id(text).ok_or("an unknown type")?)
                }
            }
        };
        let id = TypeId(self.types.len() as u32);
        self.types.push(ty);
        if wrapped {
            self.wrapped.push(id);
        }
        self.interned.insert(text, id);
        Ok(id)
    }
}

fn number(names: &[Vec<&str>], of: StructId, json: &str) -> Result<FieldNo, &'static str> {
    let at = names[of.place()].iter().position(|n| *n == json).ok_or("a key that is no field")?;
    Ok(FieldNo(at as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_committed_description() {
        let schema = Schema::parse(include_str!("../schema/v1.36.schema")).unwrap();
        let pod = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
        let spec = schema.st(pod).field("spec").unwrap();
        let Type::Struct(spec) = *schema.ty(schema.st(pod).at(spec).ty) else { panic!("spec is a struct") };
        let spec = schema.st(spec);
        let containers = spec.at(spec.field("containers").unwrap());
        assert!(containers.required && containers.patch.merge && containers.patch.merge_key.is_some());
        assert!(
            matches!(schema.ty(containers.ty), Type::List { kind: ListKind::Map(k), .. } if k.len() == 1)
        );
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for (text, line) in [
            ("struct X\n a 1 nothing -\n", 2),
            ("package a b\n", 1),
            (" a 1 str -\n", 1),
            ("package a b - -\nstruct X\n a x str -\n", 3),
            ("nonsense\n", 1),
        ] {
            assert_eq!(Schema::parse(text).map(|_| ()).map_err(|e| e.line), Err(line), "{text}");
        }
    }
}
