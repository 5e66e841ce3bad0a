//! Types from definitions, with the sizes that estimates of costs go by.

use std::collections::HashMap;
use std::sync::Arc;

use crate::parse::RESERVED;
use crate::types::{Objects, Type};

use super::escape::escape;

/// The greatest request that costs are estimated for, in bytes.
const MAX_REQUEST: i64 = 3 * 1024 * 1024;
/// The least size of a string in JSON.
const MIN_STRING: i64 = 2;

/// A definition of a value: the part that types and values depend on.
#[derive(Debug, Clone, Default)]
pub struct Definition {
    /// The type.
    pub kind: Kind,
    /// The format of a string.
    pub format: String,
    /// Whether `null` is allowed.
    pub nullable: bool,
    /// The greatest length of a string.
    pub max_length: Option<i64>,
    /// The greatest number of items.
    pub max_items: Option<i64>,
    /// The greatest number of entries.
    pub max_properties: Option<i64>,
    /// The length in bytes of the longest of the texts that are allowed alone, if only some are.
    pub longest_enum: Option<i64>,
    /// Whether there is a default, so that the field need not be sent.
    pub has_default: bool,
    /// The fields of an object, with the names of JSON; `None` where the definition has no such list.
    pub properties: Option<Vec<(Arc<str>, Arc<Definition>)>>,
    /// The names of fields that have to be there.
    pub required: Vec<Arc<str>>,
    /// The values of a map.
    pub additional: Option<Arc<Definition>>,
    /// The items of a list.
    pub items: Option<Arc<Definition>>,
    /// `x-kubernetes-list-type`.
    pub list_type: ListType,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<Arc<str>>,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
}

/// The types of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// None is given.
    #[default]
    None,
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    /// A list that is one value.
    #[default]
    Atomic,
    /// A list of different values, whose order says nothing.
    Set,
    /// A list of objects that are told apart by keys.
    Map,
}

impl Definition {
    /// The definition with what every object of the API has, which this one is if it is the `root`, and those in it that
    /// are embedded.
    pub fn completed(&self, root: bool) -> Self {
        let inner = |d: &Arc<Self>| Arc::new(d.completed(d.embedded));
        let mut out =
            if root && self.kind == Kind::Object { self.with_type_and_metadata() } else { self.clone() };
        for (_, d) in out.properties.iter_mut().flatten() {
            *d = inner(d);
        }
        out.additional = out.additional.as_ref().map(inner);
        out.items = out.items.as_ref().map(inner);
        out
    }

    /// The definition of an object of the API: its type and its name are fields, whether they are written or not.
    #[must_use]
    pub fn with_type_and_metadata(&self) -> Self {
        let text = || Arc::new(Self { kind: Kind::String, ..Self::default() });
        let names: Vec<(Arc<str>, Arc<Self>)> =
            vec![("name".into(), text()), ("generateName".into(), text())];
        let metadata = Self { kind: Kind::Object, properties: Some(names), ..Self::default() };
        let all = self.properties.as_deref().unwrap_or_default();
        let is = |all: &[(Arc<str>, Arc<Self>)], name: &str, kind: Kind| {
            all.iter().any(|(n, d)| &**n == name && d.kind == kind)
        };
        let whole = is(all, "kind", Kind::String)
            && is(all, "apiVersion", Kind::String)
            && all.iter().any(|(n, d)| {
                let inner = d.properties.as_deref().unwrap_or_default();
                &**n == "metadata"
                    && d.kind == Kind::Object
                    && is(inner, "name", Kind::String)
                    && is(inner, "generateName", Kind::String)
            });
        if whole {
            return self.clone();
        }
        let own = ["kind", "apiVersion", "metadata"];
        let mut fields: Vec<_> = all.iter().filter(|(n, _)| !own.contains(&&**n)).cloned().collect();
        fields.extend([
            ("kind".into(), text()),
            ("apiVersion".into(), text()),
            ("metadata".into(), Arc::new(metadata)),
        ]);
        Self { properties: Some(fields), ..self.clone() }
    }
}

/// A type with sizes.
#[derive(Debug)]
pub struct Declared {
    /// The type in expressions.
    pub ty: Type,
    /// The greatest size.
    max: u64,
    /// The least size in JSON.
    min_size: i64,
    fields: HashMap<Arc<str>, Arc<Declared>>,
    items: Option<Arc<Declared>>,
}

impl Declared {
    /// The type of a property, by its name in JSON; `None` if expressions do not see it.
    fn property(&self, name: &str) -> Option<&Arc<Self>> {
        self.fields.get(&*escape(name)?)
    }
    /// A field; words of the language are names of fields, too.
    fn field(&self, name: &str) -> Option<&Arc<Self>> {
        let word = || RESERVED.contains(&name).then(|| format!("__{name}__"));
        self.fields.get(name).or_else(|| self.fields.get(&*word()?))
    }
}

/// How often a value of this least size fits into a request.
pub fn max_cardinality(of: &Declared) -> u64 {
    (MAX_REQUEST / (of.min_size + 1)).unsigned_abs()
}

/// Makes the type of a definition. Objects in it are named after `name` and their path; no variable may have such a name.
/// `None` is for what expressions do not see. `root` marks an object of the API.
pub fn declare(definition: &Definition, name: &str, root: bool) -> Option<Arc<Declared>> {
    let simple = |ty: Type, max: i64, min_size: i64| {
        let (fields, items) = (HashMap::new(), None);
        Some(Arc::new(Declared { ty, max: max.max(0).unsigned_abs(), min_size, fields, items }))
    };
    let d = definition;
    if d.int_or_string {
        return simple(Type::Dyn, d.max_length.map_or(MAX_REQUEST - 2, |n| n.max(0).saturating_mul(4)), 1);
    }
    match d.kind {
        Kind::Boolean => simple(Type::Bool, 0, 4),
        Kind::Integer => simple(Type::Int, 0, 1),
        Kind::Number => simple(Type::Double, 0, 1),
        Kind::String => string(d),
        Kind::None => None,
        Kind::Array => {
            let items = d.items.as_deref()?;
            let items = declare(items, &format!("{name}.@idx"), items.embedded)?;
            let max = d.max_items.map_or((MAX_REQUEST - 2) / (items.min_size + 1), |n| n.max(0));
            let ty = Type::list(items.ty.clone());
            Some(collection(ty, max, items))
        }
        Kind::Object => match &d.additional {
            Some(values) => {
                let values = declare(values, &format!("{name}.@elem"), values.embedded)?;
                let max = d.max_properties.map_or((MAX_REQUEST - 2) / (values.min_size + 6), |n| n.max(0));
                let ty = Type::map(Type::String, values.ty.clone());
                Some(collection(ty, max, values))
            }
            None if root => Some(object(&d.with_type_and_metadata(), name)),
            None => Some(object(d, name)),
        },
    }
}

fn collection(ty: Type, max: i64, items: Arc<Declared>) -> Arc<Declared> {
    let fields = HashMap::new();
    Arc::new(Declared { ty, max: max.unsigned_abs(), min_size: 2, fields, items: Some(items) })
}

fn string(d: &Definition) -> Option<Arc<Declared>> {
    let (ty, max, min_size) = match d.format.as_str() {
        "byte" => (Type::Bytes, d.max_length.unwrap_or(MAX_REQUEST - 2), MIN_STRING),
        "duration" => (Type::Duration, 32, 3),
        "date" => (Type::Timestamp, 12, 12),
        "date-time" => (Type::Timestamp, 32, 21),
        _ => {
            let max = match (d.max_length, d.longest_enum) {
                (Some(n), _) => n.max(0).saturating_mul(4),
                (None, Some(n)) => n,
                (None, None) => MAX_REQUEST - 2,
            };
            (Type::String, max, MIN_STRING)
        }
    };
    let (fields, items) = (HashMap::new(), None);
    Some(Arc::new(Declared { ty, max: max.max(0).unsigned_abs(), min_size, fields, items }))
}

fn object(d: &Definition, name: &str) -> Arc<Declared> {
    let mut fields = HashMap::new();
    let mut min_size = 2;
    for (property, definition) in d.properties.as_deref().unwrap_or_default() {
        let Some(escaped) = escape(property) else {
            // A field that no expression can name takes its room all the same.
            if let Some(field) = declare(definition, name, definition.embedded)
                && d.required.contains(property)
                && !definition.has_default
            {
                min_size += property.len() as i64 + field.min_size + 4;
            }
            continue;
        };
        let Some(field) = declare(definition, &format!("{name}.{escaped}"), definition.embedded) else {
            continue;
        };
        if d.required.contains(property) && !definition.has_default {
            min_size += property.len() as i64 + field.min_size + 4;
        }
        fields.insert(escaped.into(), field);
    }
    Arc::new(Declared { ty: Type::object(name), max: 0, min_size, fields, items: None })
}

/// The objects of a type, which an environment takes. Cheap to clone, and to take for a type within.
#[derive(Debug, Clone)]
pub struct Registry {
    root: Arc<Declared>,
    objects: Arc<HashMap<Arc<str>, Arc<Declared>>>,
}

impl Registry {
    /// Finds the objects of a type.
    pub fn new(root: Arc<Declared>) -> Self {
        let mut objects = HashMap::new();
        let mut open = vec![root.clone()];
        while let Some(of) = open.pop() {
            open.extend(of.items.iter().chain(of.fields.values()).cloned());
            if let Type::Object(name) = &of.ty {
                objects.insert(name.clone(), of.clone());
            }
        }
        Self { root, objects: Arc::new(objects) }
    }
    /// The type.
    pub fn declared(&self) -> &Arc<Declared> {
        &self.root
    }
    /// The type of a property, by its name in JSON; `None` if expressions do not see it.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Self> {
        Some(Self { root: Arc::clone(self.root.property(name)?), objects: Arc::clone(&self.objects) })
    }
    /// The type of a list's elements, or of a map's values.
    #[must_use]
    pub fn elements(&self) -> Option<Self> {
        Some(Self { root: Arc::clone(self.root.items.as_ref()?), objects: Arc::clone(&self.objects) })
    }
}

impl Objects for Registry {
    fn has(&self, name: &str) -> bool {
        self.objects.contains_key(name)
    }
    fn field(&self, name: &str, field: &str) -> Option<Type> {
        self.objects.get(name)?.field(field).map(|f| f.ty.clone())
    }
    fn size(&self, path: &[&str]) -> Option<u64> {
        // Upstream's type of keys has no size, so that comparing one costs nothing.
        let mut at = &self.root;
        for part in path.get(1..)? {
            match *part {
                "@items" | "@values" => at = at.items.as_ref()?,
                "@keys" if matches!(at.ty, Type::Map(_)) => return Some(0),
                "@keys" => return None,
                // Upstream does not know a field by a word of the language here.
                field => at = at.fields.get(field)?,
            }
        }
        Some(at.max)
    }
}
