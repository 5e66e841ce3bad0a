//! The place where a decoder is, and the faults that it found, in the words of upstream's decoder.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use crate::go::quote;
use crate::schema::{AnyKind, FieldNo, Schema, StructId, Type, TypeId};

/// The reason for which a body can't be decoded. The text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is no JSON.
    #[error("{0}")]
    Syntax(String),
    /// The body is JSON, but no object, or its `kind` or `apiVersion` is no string.
    #[error("{0}")]
    TypeMeta(String),
    /// A value is of another type than its field.
    #[error("{0}")]
    Type(String),
    /// A value is of the right type, but can't be read (a quantity, a time).
    #[error("{0}")]
    Value(String),
}

impl DecodeError {
    /// Whether upstream finds the error while it looks for the kind, before it knows what to decode.
    pub fn before_kind(&self) -> bool {
        matches!(self, Self::Syntax(_) | Self::TypeMeta(_))
    }
}

/// The greatest number of complaints of strict validation that are kept.
const MOST: usize = 100;
/// Complaints are kept until the texts of all of them have so many bytes: a complaint that is repeated below a long key
/// is as long each time.
const MOST_BYTES: usize = 1 << 20;

/// A step of the path to the current value.
#[derive(Debug, Clone)]
pub(crate) enum Step<'a> {
    /// A field of a struct.
    Field(StructId, FieldNo),
    /// A key of a map.
    Key(Cow<'a, str>),
    /// An element of a list.
    Index(usize),
}

/// The faults found so far, and the path to the current value.
pub(crate) struct Report<'s, 'a> {
    pub(crate) schema: &'s Schema,
    pub(crate) path: Vec<Step<'a>>,
    strict: Vec<String>,
    seen: HashSet<String>,
    made: usize,
    /// Above zero inside values that upstream decodes on their own, leniently.
    pub(crate) lenient: u32,
    mismatch: Option<DecodeError>,
    invalid: Option<DecodeError>,
}

impl<'s> Report<'s, '_> {
    pub(crate) fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            path: Vec::with_capacity(16),
            strict: Vec::new(),
            seen: HashSet::new(),
            made: 0,
            lenient: 0,
            mismatch: None,
            invalid: None,
        }
    }

    fn complain(&mut self, what: &str, key: &str) {
        if self.lenient > 0 || self.strict.len() >= MOST || self.made >= MOST_BYTES {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(i) => {
                    let _ = write!(path, "[{i}]");
                    continue;
                }
                _ if path.is_empty() => {}
                _ => path.push('.'),
            }
            match step {
                Step::Field(of, no) => path.push_str(&self.schema.st(*of).at(*no).json),
                Step::Key(k) => path.push_str(k),
                Step::Index(_) => {}
            }
        }
        if !self.path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        let text = format!("{what} {}", quote(&path));
        self.made += text.len();
        if self.seen.insert(text.clone()) {
            self.strict.push(text);
        }
    }

    /// A key that is no field.
    pub(crate) fn unknown(&mut self, key: &str) {
        self.complain("unknown field", key);
    }

    /// A key that stood in the object before.
    pub(crate) fn duplicate(&mut self, key: &str) {
        self.complain("duplicate field", key);
    }

    /// `what` (`string`, `number 1.5`) stands where a `go_type` belongs.
    pub(crate) fn mismatch(&mut self, what: &str, go_type: &str) {
        if self.mismatch.is_none() {
            self.mismatch = Some(self.type_error(what, go_type));
        }
    }

    /// Like [`Report::mismatch`], for a type of the schema.
    pub(crate) fn mismatch_of(&mut self, what: &str, ty: TypeId) {
        if self.mismatch.is_none() {
            let name = self.type_name(ty);
            self.mismatch(what, &name);
        }
    }

    /// Whether every value so far could be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.mismatch.is_none()
    }

    /// Puts words before the error about a value that can't be read.
    pub(crate) fn preface(&mut self, words: &str) {
        if let Some(DecodeError::Value(text)) = &mut self.mismatch {
            text.insert_str(0, words);
        }
    }

    /// Go's name of the type at the current place, which is `ty` of the schema.
    pub(crate) fn type_name(&self, ty: TypeId) -> String {
        self.go_type_here().unwrap_or_else(|| go_type(self.schema, ty))
    }

    /// A mismatch inside a value with a decoder of its own: upstream stops there.
    pub(crate) fn stop_mismatch(&mut self, what: &str, go_type: &str) {
        if self.invalid.is_none() {
            self.invalid = Some(self.type_error(what, go_type));
        }
    }

    /// A value that can't be read; upstream stops there.
    pub(crate) fn stop_invalid(&mut self, text: impl Into<String>) {
        if self.invalid.is_none() {
            self.invalid = Some(DecodeError::Value(text.into()));
        }
    }

    /// A value that can't be read; upstream goes on.
    pub(crate) fn invalid(&mut self, text: impl Into<String>) {
        if self.mismatch.is_none() {
            self.mismatch = Some(DecodeError::Value(text.into()));
        }
    }

    /// Go's name of the type at the current place, where it is not the name of the type's form.
    fn go_type_here(&self) -> Option<String> {
        let at = self.path.iter().rposition(|s| matches!(s, Step::Field(..)))?;
        let Step::Field(of, no) = self.path[at] else { return None };
        let mut name = self.schema.go_name(of, no)?.ty.as_str();
        for _ in &self.path[at + 1..] {
            // Below a named list or map the form of the type gives the name.
            name = match name.strip_prefix("map[") {
                Some(rest) => rest.split_once(']')?.1,
                None => name.strip_prefix("[]")?,
            };
        }
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn type_error(&self, what: &str, go_type: &str) -> DecodeError {
        let mut owner = None;
        let mut fields = String::new();
        for step in &self.path {
            if let Step::Field(of, no) = step {
                let inner = owner.is_some();
                let custom = self.schema.st(*of).rest.is_some();
                if custom && self.schema.st(*of).at(*no).json == "metadata" {
                    // Upstream decodes the metadata of a custom object by itself.
                    continue;
                }
                if inner {
                    fields.push('.');
                }
                owner = Some(*of);
                let st = self.schema.st(*of);
                if inner && st.kind && matches!(st.at(*no).json.as_str(), "kind" | "apiVersion") {
                    fields.push_str("TypeMeta.");
                } else if let Some(name) = self.schema.go_name(*of, *no).filter(|n| !n.via.is_empty()) {
                    fields.push_str(&name.via);
                    fields.push('.');
                }
                fields.push_str(&self.schema.st(*of).at(*no).json);
            }
        }
        let Some(owner) = owner else {
            return DecodeError::Type(format!(
                "json: cannot unmarshal {what} into Go value of type {go_type}"
            ));
        };
        let st = self.schema.st(owner);
        if st.kind && self.path.len() == 1 && matches!(fields.as_str(), "kind" | "apiVersion") {
            return DecodeError::TypeMeta(format!(
                "json: cannot unmarshal {what} into Go struct field .{fields} of type {go_type}"
            ));
        }
        let owner = st.name.rsplit('.').next().unwrap_or_default();
        DecodeError::Type(format!(
            "json: cannot unmarshal {what} into Go struct field {owner}.{fields} of type {go_type}"
        ))
    }

    /// The strict complaints, or the error that makes the whole body worthless.
    pub(crate) fn finish(self) -> Result<Vec<String>, DecodeError> {
        match (self.mismatch, self.invalid) {
            (Some(e @ DecodeError::TypeMeta(_)), _) => Err(e),
            (_, Some(e)) | (Some(e), None) => Err(e),
            (None, None) => Ok(self.strict),
        }
    }
}

/// Go's name of a type.
pub(crate) fn go_type(schema: &Schema, ty: TypeId) -> String {
    match schema.ty(ty) {
        Type::Bool => "bool".into(),
        Type::Int32 => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Float64 => "float64".into(),
        Type::String => "string".into(),
        Type::Bytes => "[]uint8".into(),
        Type::Quantity => "resource.Quantity".into(),
        Type::IntOrString => "intstr.IntOrString".into(),
        Type::Time => "v1.Time".into(),
        Type::MicroTime => "v1.MicroTime".into(),
        Type::Duration => "v1.Duration".into(),
        Type::Any(AnyKind::Value) => "interface {}".into(),
        Type::Any(AnyKind::Json) => "v1.JSON".into(),
        Type::Any(AnyKind::RawExtension) => "runtime.RawExtension".into(),
        Type::Any(AnyKind::FieldsV1) => "v1.FieldsV1".into(),
        Type::List { of, .. } => format!("[]{}", go_type(schema, *of)),
        Type::Map { of, .. } => format!("map[string]{}", go_type(schema, *of)),
        Type::Struct(s) | Type::Or { of: s, .. } => go_struct(schema, *s),
    }
}

/// Go's name of a struct type: `v1.Pod`.
pub(crate) fn go_struct(schema: &Schema, id: StructId) -> String {
    let name = &schema.st(id).name;
    let mut parts = name.rsplit('.');
    let (last, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{package}.{last}")
}
