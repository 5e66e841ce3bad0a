//! The description of kinds as data: one index arena, the same form for built-in kinds and for
//! CustomResourceDefinitions.
//!
//! The kinds of definitions stand above the built-in ones ([`Schema::with_custom`]): a kind's root struct has the fields
//! of every object, and the rest of its values follow a [`Structural`].
//!
//! The built-in description is committed as `schema/v1.36.schema`, written by `cargo xtask schema`
//! from the Go API types, and read once at start ([`Schema::builtin`]).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use imbl::OrdMap;
use smallvec::SmallVec;

use crate::gate::Gate;
use crate::structural::Structural;
use crate::tree::Text;

/// A type in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A struct type in the arena of one schema.
///
/// The id holds a mark of that schema beside the place, since places repeat: every definition of a custom resource has
/// a schema with a struct in the first place. So a tree, whose structs have these ids, can only be read with the schema
/// under which it was decoded: [`Schema::st`] refuses any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StructId(u64);

impl StructId {
    /// Bits of the id that hold the place; the others are the mark.
    const PLACE: u32 = 24;

    /// A struct by its place in a schema that is still being made: [`Schema::new`] marks it.
    pub const fn unmarked(place: usize) -> Self {
        Self(place as u64)
    }
    const fn with(self, mark: SchemaMark) -> Self {
        Self(mark.0 << Self::PLACE | self.0 & ((1 << Self::PLACE) - 1))
    }
    fn mark(self) -> SchemaMark {
        SchemaMark(self.0 >> Self::PLACE)
    }
    /// The struct's place among the structs of its schema.
    pub const fn place(self) -> usize {
        (self.0 & ((1 << Self::PLACE) - 1)) as usize
    }
}

/// The mark by which schemas are told apart: 40 bits of a hash of the schema's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SchemaMark(u64);

impl SchemaMark {
    fn of(types: &[Type], structs: &[StructType]) -> Self {
        let mut hash = DefaultHasher::new();
        types.hash(&mut hash);
        for st in structs {
            st.name.hash(&mut hash);
            for f in &st.fields {
                (&f.json, f.ty, f.proto, f.pointer, f.omitempty).hash(&mut hash);
            }
        }
        // The last bit is set since 0 marks a schema that is still being made.
        Self(hash.finish() >> StructId::PLACE | 1)
    }
}

/// A value for each struct of one schema.
#[derive(Debug, Clone, Default)]
pub struct StructMap<T> {
    mark: SchemaMark,
    values: Vec<T>,
}

impl<T> StructMap<T> {
    /// Makes a value for each struct.
    pub fn new(schema: &Schema, mut make: impl FnMut(StructId, &StructType) -> T) -> Self {
        Self { mark: schema.mark, values: schema.structs().map(|(id, st)| make(id, st)).collect() }
    }
    /// The value of a struct; `None` for a struct of another schema.
    #[inline]
    pub fn get(&self, id: StructId) -> Option<&T> {
        if id.mark() == self.mark { self.values.get(id.place()) } else { None }
    }
    /// The value of a struct, to change; `None` for a struct of another schema.
    pub fn get_mut(&mut self, id: StructId) -> Option<&mut T> {
        if id.mark() == self.mark { self.values.get_mut(id.place()) } else { None }
    }
}

/// A field's place among its struct's fields, in upstream's order of declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldNo(pub u16);

/// A type.
#[derive(Debug, Clone, PartialEq, Hash)]
pub enum Type {
    /// `bool`
    Bool,
    /// `int32`; numbers outside its range are refused.
    Int32,
    /// `int64`
    Int64,
    /// `float64`
    Float64,
    /// `string`
    String,
    /// `[]byte`, base64 in JSON.
    Bytes,
    /// `resource.Quantity`: canonical text in the tree.
    Quantity,
    /// `intstr.IntOrString`
    IntOrString,
    /// `metav1.Time`: RFC 3339, UTC, whole seconds; `null` when zero.
    Time,
    /// `metav1.MicroTime`: RFC 3339 with six digits.
    MicroTime,
    /// `metav1.Duration`: Go's text form.
    Duration,
    /// A value without a schema, of any type.
    Any(AnyKind),
    /// A struct or, in its place, something simpler: the three `JSONSchemaPropsOr…` types.
    Or {
        /// The struct.
        of: StructId,
        /// The simpler type that may stand in the struct's place.
        or: Or,
    },
    /// A list and how it merges.
    List {
        /// The elements' type.
        of: TypeId,
        /// How server-side apply and validation treat the list.
        kind: ListKind,
    },
    /// A map from strings.
    Map {
        /// The values' type.
        of: TypeId,
        /// Whether server-side apply treats the map as one value.
        atomic: bool,
    },
    /// A struct.
    Struct(StructId),
}

/// The types without a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnyKind {
    /// `interface{}`, or an unspecified part of a custom resource.
    Value,
    /// `apiextensions.JSON`
    Json,
    /// `runtime.RawExtension`, an embedded object.
    RawExtension,
    /// `metav1.FieldsV1`, a set of fields.
    FieldsV1,
}

/// The simpler type that may stand in the place of a struct; see [`Type::Or`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Or {
    /// A boolean (`JSONSchemaPropsOrBool`).
    Bool,
    /// A list of the structs (`JSONSchemaPropsOrArray`).
    List,
    /// A list of strings (`JSONSchemaPropsOrStringArray`).
    Strings,
}

/// The way in which a list merges in server-side apply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// The list is one value.
    Atomic,
    /// The list is a set of scalars.
    Set,
    /// The list is a map of structs by these keys (JSON names, upstream's order).
    Map(Vec<FieldNo>),
}

/// The behaviour of a field in a strategic merge patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// `patchStrategy` holds `merge`.
    pub merge: bool,
    /// `patchStrategy` holds `replace`.
    pub replace: bool,
    /// `patchStrategy` holds `retainKeys`.
    pub retain_keys: bool,
    /// `patchMergeKey`, a field of the list's element struct.
    pub merge_key: Option<FieldNo>,
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// JSON name.
    pub json: Text,
    /// Protobuf number; 0 if the field is not in protobuf.
    pub proto: u32,
    /// Numbers of the messages that protobuf puts around it, outermost first: an embedded struct is
    /// flattened in JSON, but a message in protobuf.
    pub proto_in: SmallVec<[u32; 2]>,
    /// The field's type.
    pub ty: TypeId,
    /// Whether upstream's type is a pointer: its zero value is distinct from absence.
    pub pointer: bool,
    /// Whether the field is written only if it has a value; a plain field without this is always written. Go's rules
    /// hold: `omitempty` on a plain struct has no effect, `omitzero` has.
    pub omitempty: bool,
    /// Whether the field is required, as OpenAPI says.
    pub required: bool,
    /// The constant default, as JSON text, from `+default=` markers or the table of transcribed defaults.
    pub default: Option<Text>,
    /// The values that the field may take, where upstream marks an enum; in OpenAPI's order.
    pub values: Vec<Text>,
    /// The field's behaviour in a strategic merge patch.
    pub patch: PatchStrategy,
    /// The feature gates without which upstream drops the field.
    pub gates: SmallVec<[Gate; 4]>,
    /// The mark at the field about the merging of its list, map or struct. It goes before the mark of the struct type.
    pub mark: Option<Mark>,
}

/// The way in which a list, map or struct merges in server-side apply, as marked at a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// All is one value.
    Atomic,
    /// Each part is merged on its own.
    Granular,
}

/// A union: at most one of the members is set (`x-kubernetes-unions`).
#[derive(Debug, Clone, PartialEq)]
pub struct Union {
    /// The field that names the member.
    pub discriminator: Option<FieldNo>,
    /// The members with the discriminator's value for each.
    pub members: Vec<(FieldNo, Text)>,
}

/// A field of a protobuf message.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageField {
    /// Number.
    pub number: u32,
    /// The content.
    pub what: MessagePart,
}

/// The content of a field of a protobuf message.
#[derive(Debug, Clone, PartialEq)]
pub enum MessagePart {
    /// A field of the struct.
    Field(FieldNo),
    /// The message of an embedded struct, whose fields are the struct's own in JSON.
    Embedded(Vec<MessageField>),
}

impl MessageField {
    fn insert(into: &mut Vec<MessageField>, outer: &[u32], number: u32, no: FieldNo) {
        let (number, what) = match outer.split_first() {
            None => (number, MessagePart::Field(no)),
            Some((first, rest)) => {
                let i = match into.binary_search_by_key(first, |f| f.number) {
                    Ok(i) => i,
                    Err(i) => {
                        let what = MessagePart::Embedded(Vec::new());
                        into.insert(i, MessageField { number: *first, what });
                        i
                    }
                };
                if let MessagePart::Embedded(inner) = &mut into[i].what {
                    Self::insert(inner, rest, number, no);
                }
                return;
            }
        };
        let i = into.partition_point(|f| f.number < number);
        into.insert(i, MessageField { number, what });
    }
}

/// A struct type.
#[derive(Debug, Clone, PartialEq)]
pub struct StructType {
    /// OpenAPI definition name, e.g. `io.k8s.api.core.v1.PodSpec`.
    pub name: Text,
    /// Fields in upstream's order; embedded (inline) structs are flattened where they stand.
    pub fields: Vec<Field>,
    /// `+structType=atomic` or `+mapType=atomic`: one value to server-side apply.
    pub atomic: bool,
    /// Whether the struct is a kind: it has `kind` and `apiVersion`.
    pub kind: bool,
    /// The union that the struct is, if it is one.
    pub union: Option<Union>,
    /// Field numbers sorted by JSON name.
    pub by_json: Vec<FieldNo>,
    /// The protobuf message: its fields sorted by number.
    pub message: Vec<MessageField>,
    /// Field numbers by JSON name.
    pub names: NameIndex,
    /// The values beside the fields, for the root struct of a definition's kind.
    pub rest: Option<Rest>,
}

/// The values of a custom resource that its definition describes: all but its kind, API version and metadata.
#[derive(Debug, Clone)]
pub struct Rest {
    /// The field that holds them as a map; it has no name, since they stand in the object itself.
    pub field: FieldNo,
    /// Their description.
    pub values: Arc<Structural>,
}

impl PartialEq for Rest {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field && Arc::ptr_eq(&self.values, &other.values)
    }
}

impl StructType {
    /// The field of a JSON name, found in constant time.
    #[inline]
    pub fn field(&self, json: &str) -> Option<FieldNo> {
        self.names.find(&self.fields, json)
    }
    /// The description of a field.
    pub fn at(&self, no: FieldNo) -> &Field {
        &self.fields[no.0 as usize]
    }
}

/// A group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gvk {
    /// Group, "" for the core group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Kind.
    pub kind: Text,
}

impl Gvk {
    /// Makes one from its parts.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }
    /// `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> Text {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            let mut text = Text::with_capacity(self.group.len() + 1 + self.version.len());
            text.push_str(&self.group);
            text.push('/');
            text.push_str(&self.version);
            text
        }
    }
}

/// Go's names for a field, which stand in the decoder's error texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoName {
    /// Names of the embedded structs that the field stands in, joined by points.
    pub via: Text,
    /// The field's type (`v1.RestartPolicy`, `[]v1.KeyUsage`), "" if it follows from the form of the type.
    pub ty: Text,
}

/// Field numbers by JSON name: an open-addressed hash table, at most half full.
#[derive(Debug, Clone, PartialEq)]
pub struct NameIndex {
    slots: Box<[u16]>,
}

impl Default for NameIndex {
    fn default() -> Self {
        Self::new(&[])
    }
}

/// The mark of a free slot.
const EMPTY: u16 = u16::MAX;

/// Hashes a part of a name that is enough to tell a struct's fields apart.
#[inline]
fn name_hash(name: &[u8]) -> usize {
    let n = name.len();
    if n == 0 {
        return 0;
    }
    let (first, middle, last) = (name[0] as usize, name[n / 2] as usize, name[n - 1] as usize);
    first.wrapping_mul(131) ^ middle.wrapping_mul(31) ^ last.wrapping_mul(17) ^ n.wrapping_mul(7)
}

impl NameIndex {
    fn new(fields: &[Field]) -> Self {
        let size = (fields.len() * 2).next_power_of_two().max(2);
        let mut slots = vec![EMPTY; size].into_boxed_slice();
        for (no, f) in fields.iter().enumerate() {
            let mut at = name_hash(f.json.as_bytes()) & (size - 1);
            while slots[at] != EMPTY {
                at = (at + 1) & (size - 1);
            }
            slots[at] = no as u16;
        }
        Self { slots }
    }
    #[inline]
    fn find(&self, fields: &[Field], name: &str) -> Option<FieldNo> {
        let mask = self.slots.len() - 1;
        let mut at = name_hash(name.as_bytes()) & mask;
        loop {
            let no = self.slots[at];
            if no == EMPTY {
                return None;
            }
            if fields[no as usize].json.as_str() == name {
                return Some(FieldNo(no));
            }
            at = (at + 1) & mask;
        }
    }
}

/// The arena of types and the root struct of each kind and version.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    mark: SchemaMark,
    types: Vec<Type>,
    structs: Vec<StructType>,
    kinds: HashMap<Gvk, StructId>,
    names: HashMap<Text, StructId>,
    wrapped: Vec<TypeId>,
    versions: Vec<(Text, Text)>,
    go_names: HashMap<(StructId, FieldNo), GoName>,
    above: Above,
}

/// The kinds of definitions, above the built-in ones.
#[derive(Debug, Clone, Default)]
struct Above {
    base: Option<&'static Schema>,
    /// Root structs by their place.
    roots: OrdMap<usize, Arc<StructType>>,
    kinds: OrdMap<Gvk, StructId>,
}

/// A kind of a definition.
#[derive(Debug, Clone)]
pub struct CustomKind {
    /// The kind.
    pub kind: Gvk,
    /// A number that no other kind, nor another form of this one, has in the process: its place above the built-in
    /// structs.
    pub number: usize,
    /// The root struct; see [`Schema::custom_root`].
    pub root: Arc<StructType>,
}

impl Schema {
    /// Makes an arena from its parts, whose structs are not marked yet, and the indexes of fields.
    pub fn new(
        mut types: Vec<Type>,
        mut structs: Vec<StructType>,
        mut kinds: HashMap<Gvk, StructId>,
    ) -> Self {
        let mark = SchemaMark::of(&types, &structs);
        for ty in &mut types {
            if let Type::Struct(id) | Type::Or { of: id, .. } = ty {
                *id = id.with(mark);
            }
        }
        for id in kinds.values_mut() {
            *id = id.with(mark);
        }
        for s in &mut structs {
            let mut no: Vec<FieldNo> = (0..s.fields.len()).map(|i| FieldNo(i as u16)).collect();
            no.sort_by(|a, b| s.fields[a.0 as usize].json.cmp(&s.fields[b.0 as usize].json));
            s.by_json = no;
            s.names = NameIndex::new(&s.fields);
            s.message.clear();
            for (i, f) in s.fields.iter().enumerate().filter(|(_, f)| f.proto != 0) {
                MessageField::insert(&mut s.message, &f.proto_in, f.proto, FieldNo(i as u16));
            }
        }
        let id = |place| StructId::unmarked(place).with(mark);
        let names = structs.iter().enumerate().map(|(i, s)| (s.name.clone(), id(i))).collect();
        Self {
            mark,
            types,
            structs,
            kinds,
            names,
            wrapped: Vec::new(),
            versions: Vec::new(),
            go_names: HashMap::new(),
            above: Above::default(),
        }
    }
    /// The kinds of this schema with those of definitions above them.
    pub fn with_custom<'k>(&'static self, custom: impl IntoIterator<Item = &'k CustomKind>) -> Self {
        let above = Above { base: Some(self), ..Above::default() };
        Self { mark: self.mark, above, ..Self::default() }.replacing([], custom, |_| false)
    }
    /// The same schema without some kinds of definitions, and with others. The cost is that of these kinds: all others
    /// are shared with this schema. A kind that is built in and `reserved` is found as it was; any other one is that of the
    /// definition, be it built in or not: nobody serves that one.
    #[must_use]
    pub fn replacing<'k>(
        &self,
        gone: impl IntoIterator<Item = &'k CustomKind>,
        new: impl IntoIterator<Item = &'k CustomKind>,
        reserved: impl Fn(&Gvk) -> bool,
    ) -> Self {
        let mut above = self.above.clone();
        let place = |kind: &CustomKind| self.base().structs.len() + kind.number;
        for kind in gone {
            above.roots.remove(&place(kind));
            if above.kinds.get(&kind.kind).is_some_and(|id| id.place() == place(kind)) {
                above.kinds.remove(&kind.kind);
            }
        }
        for kind in new {
            above.roots.insert(place(kind), Arc::clone(&kind.root));
            if !reserved(&kind.kind) {
                above.kinds.insert(kind.kind.clone(), self.custom_id(kind));
            }
        }
        Self { mark: self.mark, above, ..Self::default() }
    }
    /// The root struct of a definition's kind; `None` if the schema lacks the fields of every object.
    pub fn custom_root(&self, name: &str, values: Arc<Structural>) -> Option<StructType> {
        let meta = self.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
        let find = |wanted: &Type| self.types.iter().position(|t| t == wanted).map(|at| TypeId(at as u32));
        let field = |json: &str, ty: TypeId, omitempty: bool| Field {
            json: json.into(),
            proto: 0,
            proto_in: SmallVec::new(),
            ty,
            pointer: false,
            omitempty,
            required: false,
            default: None,
            values: Vec::new(),
            patch: PatchStrategy::default(),
            gates: SmallVec::new(),
            mark: None,
        };
        let text = find(&Type::String)?;
        let fields = vec![
            field("kind", text, true),
            field("apiVersion", text, true),
            field("metadata", find(&Type::Struct(meta))?, false),
            field("", find(&Type::Any(AnyKind::Json))?, true),
        ];
        let names = NameIndex::new(&fields);
        Some(StructType {
            name: name.into(),
            by_json: vec![FieldNo(1), FieldNo(0), FieldNo(2)],
            fields,
            atomic: false,
            kind: true,
            union: None,
            message: Vec::new(),
            names,
            rest: Some(Rest { field: FieldNo(3), values }),
        })
    }
    /// The schema of the built-in kinds: this one, or the one below.
    #[inline]
    fn base(&self) -> &Schema {
        self.above.base.unwrap_or(self)
    }
    /// Marks the list types that protobuf wraps in a message of their own (`ExtraValue`, `Verbs`).
    pub fn with_wrapped(mut self, mut wrapped: Vec<TypeId>) -> Self {
        wrapped.sort_unstable();
        self.wrapped = wrapped;
        self
    }
    /// Sets Go's names of fields and their types, where the description does not imply them.
    pub fn with_go_names(mut self, names: HashMap<(StructId, FieldNo), GoName>) -> Self {
        self.go_names = names.into_iter().map(|((id, no), name)| ((id.with(self.mark), no), name)).collect();
        self
    }
    /// Go's names of a field and its type, where the description does not imply them.
    pub fn go_name(&self, of: StructId, no: FieldNo) -> Option<&GoName> {
        self.base().go_names.get(&(of, no))
    }
    /// Sets the group versions under which upstream registers its options.
    pub fn with_versions(mut self, versions: Vec<(Text, Text)>) -> Self {
        self.versions = versions;
        self
    }
    /// Every group and version that upstream registers, served or not: `DeleteOptions` and `WatchEvent` are kinds of
    /// each.
    pub fn versions(&self) -> &[(Text, Text)] {
        &self.base().versions
    }
    /// Whether protobuf wraps this list type in a message of its own.
    pub fn is_wrapped(&self, id: TypeId) -> bool {
        self.base().wrapped.binary_search(&id).is_ok()
    }
    /// The type of an id.
    pub fn ty(&self, id: TypeId) -> &Type {
        &self.base().types[id.0 as usize]
    }
    /// The struct type of an id.
    ///
    /// # Panics
    ///
    /// If the struct is of another schema: to go on would read one field as another.
    #[inline]
    pub fn st(&self, id: StructId) -> &StructType {
        let found = self.base().structs.get(id.place()).filter(|_| id.mark() == self.mark);
        let found = found.or_else(|| self.custom(id));
        match found {
            Some(st) => st,
            None => foreign(),
        }
    }
    /// The id of the root struct of a definition's kind.
    pub fn custom_id(&self, kind: &CustomKind) -> StructId {
        StructId::unmarked(self.base().structs.len() + kind.number).with(self.mark)
    }
    /// The root struct of a definition's kind.
    fn custom(&self, id: StructId) -> Option<&StructType> {
        self.above.roots.get(&id.place()).filter(|_| id.mark() == self.mark).map(|st| &**st)
    }
    /// Whether a struct is of this schema.
    #[inline]
    pub fn owns(&self, id: StructId) -> bool {
        id.mark() == self.mark && (id.place() < self.base().structs.len() || self.custom(id).is_some())
    }
    /// The field of a JSON name, found in constant time.
    #[inline]
    pub fn field(&self, id: StructId, json: &str) -> Option<FieldNo> {
        self.st(id).field(json)
    }
    /// The root struct of a kind.
    pub fn kind(&self, gvk: &Gvk) -> Option<StructId> {
        self.above.kinds.get(gvk).or_else(|| self.base().kinds.get(gvk)).copied()
    }
    /// Every built-in kind with its root struct, in no order.
    pub fn kinds(&self) -> impl Iterator<Item = (&Gvk, StructId)> {
        self.base().kinds.iter().map(|(g, s)| (g, *s))
    }
    /// The struct of an OpenAPI definition name.
    pub fn named(&self, name: &str) -> Option<StructId> {
        self.base().names.get(name).copied()
    }
    /// Every built-in struct type.
    pub fn structs(&self) -> impl Iterator<Item = (StructId, &StructType)> {
        self.base().structs.iter().enumerate().map(|(i, s)| (StructId::unmarked(i).with(self.mark), s))
    }
    /// The number of types.
    pub fn type_count(&self) -> usize {
        self.base().types.len()
    }
}

/// Refuses a struct of another schema.
#[cold]
#[allow(clippy::panic, reason = "to go on would read one field as another")]
fn foreign() -> ! {
    panic!("a tree is read with a schema that is not its own")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Struct;

    fn one_struct(name: &str) -> Schema {
        let st = StructType {
            name: name.into(),
            fields: Vec::new(),
            atomic: false,
            kind: true,
            union: None,
            by_json: Vec::new(),
            message: Vec::new(),
            names: NameIndex::default(),
            rest: None,
        };
        Schema::new(vec![Type::Struct(StructId::unmarked(0))], vec![st], HashMap::new())
    }

    #[test]
    fn a_tree_is_of_one_schema() {
        let (one, other) = (one_struct("Widget"), one_struct("Gadget"));
        let tree = Struct::new(one.named("Widget").unwrap());
        assert_eq!(one.st(tree.id).name, "Widget");
        assert_eq!(*one.ty(TypeId(0)), Type::Struct(tree.id));
        assert!(one.owns(tree.id) && !other.owns(tree.id) && !Schema::builtin().owns(tree.id));
        let names = StructMap::new(&one, |_, st| st.name.clone());
        assert_eq!(names.get(tree.id).map(Text::as_str), Some("Widget"));
        assert_eq!(names.get(other.named("Gadget").unwrap()), None);
        // The same description is the same schema.
        assert!(one_struct("Widget").owns(tree.id));
    }

    #[test]
    fn kinds_of_definitions_come_and_go() {
        let base = Schema::builtin();
        let kind = |number, version| {
            let values =
                crate::structural::Builder::default().finish(crate::structural::Part::default(), None);
            let root = Arc::new(base.custom_root("Widget", Arc::new(values)).unwrap());
            CustomKind { kind: Gvk::new("example.com", version, "Widget"), number, root }
        };
        let (first, second, other) = (kind(1, "v1"), kind(2, "v1"), kind(3, "v2"));
        let one = base.with_custom([&first, &other]);
        let root = one.kind(&first.kind).unwrap();
        let next = one.replacing([&first], [&second], |_| false);
        // A tree of the former form is of the former schema only.
        assert!(one.owns(root) && !next.owns(root));
        assert!(next.owns(next.kind(&second.kind).unwrap()));
        assert_eq!(next.kind(&other.kind), one.kind(&other.kind));
        // A form that was replaced goes without the one that took its place.
        let both = one.replacing([], [&second], |_| false).replacing([&first], [], |_| false);
        assert_eq!(both.kind(&second.kind), next.kind(&second.kind));
        assert_eq!(both.replacing([&second, &other], [], |_| false).kind(&second.kind), None);
        // Nobody serves that type, unless somebody says so.
        let review =
            CustomKind { kind: Gvk::new("admission.k8s.io", "v1", "AdmissionReview"), ..kind(4, "v1") };
        let built_in = base.kind(&review.kind);
        assert!(built_in.is_some());
        let taken = one.replacing([], [&review], |_| false);
        assert_eq!(taken.kind(&review.kind), Some(taken.custom_id(&review)));
        assert_eq!(taken.replacing([&review], [], |_| false).kind(&review.kind), built_in);
        let reserved = one.replacing([], [&review], |kind| *kind == review.kind);
        assert_eq!(reserved.kind(&review.kind), built_in);
        assert!(reserved.owns(reserved.custom_id(&review)));
    }

    #[test]
    #[should_panic(expected = "a schema that is not its own")]
    fn a_tree_is_not_read_with_another() {
        let tree = Struct::new(one_struct("Widget").named("Widget").unwrap());
        one_struct("Gadget").st(tree.id);
    }
}
