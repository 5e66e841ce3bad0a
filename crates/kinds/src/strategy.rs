//! What there is to say of a kind besides its schema: a [`Strategy`].
//!
//! A resource owns its strategy, and generic code asks nothing else about a kind. The built-in ones stand in
//! [`crate::strategies`]; another implementation may carry data that is known at run time only: names, columns, paths.

use api::managed::Taken;
use api::schema::Gvk;
use api::status::FieldError;
use api::{Schema, Struct, Text};
use jiff::Timestamp;

use crate::columns::{Column, Row};
use crate::convert::NoConversion;
use crate::scale::Scale;

/// What a rule may look at besides the objects.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    /// The schema the trees follow.
    pub schema: &'a Schema,
    /// Now, as `metav1.Time` text.
    pub now: &'a str,
    /// Whether a feature gate is on.
    pub gate: &'a (dyn Fn(&str) -> bool + Sync),
    /// Takes a warning that is due whatever becomes of the request.
    pub warn: &'a (dyn Fn(String) + Sync),
}

/// All there is to say of the objects of one resource. Trees are of the version that is kept
/// ([`Storage::kind`]), except where a method says otherwise.
pub trait Strategy: Send + Sync {
    /// What can be said without an object.
    fn facts(&self) -> &Facts;

    /// Readies the tree of a create: drops what a client may not set (status), sets what the server sets (generation).
    fn prepare_create(&self, c: &Ctx<'_>, new: &mut Struct);
    /// Checks a create, metadata included.
    fn validate(&self, c: &Ctx<'_>, new: &Struct) -> Vec<FieldError>;
    /// Brings an object that was found valid into its last form.
    fn canonicalize(&self, c: &Ctx<'_>, new: &mut Struct);
    /// Readies the new tree of an update, given the stored one. After it metadata's generation rule is already kept
    /// if `spec` changed.
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct);
    /// Checks an update, metadata included.
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError>;
    /// Texts of Warning headers for an accepted write.
    fn warnings(&self, c: &Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String>;
    /// The rules of a subresource that reads and writes the object's own tree, if it has one of this name.
    fn subresource(&self, name: &str) -> Option<&dyn Subresource>;
    /// Which fields a writer of the object (subresource "") or of a subresource comes to manage. They are fields
    /// of the version that is served.
    fn taken(&self, subresource: &str) -> Taken<'_>;

    /// Appends the values of the selectable fields, in the order of [`Facts::fields`].
    fn field_values(&self, schema: &Schema, object: &Struct, out: &mut Vec<Text>);
    /// The cells under [`Facts::columns`] at a point in time.
    fn row(&self, schema: &Schema, object: &Struct, now: Timestamp) -> Row;

    /// How long a deletion waits, for kinds that know grace.
    fn grace(&self, schema: &Schema, object: &Struct) -> Option<Grace>;
    /// Whether something besides metadata's finalizers keeps an object that is deleted.
    fn is_held(&self, schema: &Schema, object: &Struct) -> bool;

    /// Converts a tree from one version of the kind into another.
    fn convert(&self, schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion>;
    /// What upstream does to a decoded object of a version beyond its schema when it reads it into its internal
    /// type: it may refuse it, or write it in another way. The error is upstream's text.
    fn settle(&self, schema: &Schema, object: &mut Struct) -> Result<(), String>;
}

/// The rules of a subresource on the object's own tree (`status`, `ephemeralcontainers`, `resize`, `approval`, …).
pub trait Subresource: Send + Sync {
    /// Readies the new tree: everything but what this subresource may change is put back.
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct);
    /// Checks the update.
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError>;
}

/// What can be said of a kind without an object.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub fields: Vec<SelectableField>,
    /// The columns of its Tables.
    pub columns: Vec<Column>,
    /// PUT may create.
    pub create_on_update: bool,
    /// An update without resourceVersion is taken.
    pub unconditional_update: bool,
    /// Fields of features that are off go only after [`Strategy::prepare_update`], so that they count as a change.
    pub counts_gated: bool,
    /// The text of the Warning on a create while the cluster does not act on this kind yet.
    pub no_effect_yet: Option<Text>,
    /// Each object is a namespace: a request for one is in the namespace of its name.
    pub is_namespace: bool,
    /// What writes of other resources may be refused for; so such a refusal counts only if this resource was current.
    pub is_consulted: bool,
    /// How it is deleted.
    pub deletion: Deletion,
    /// How it is stored; `None` if nothing is.
    pub storage: Option<Storage>,
    /// Versions that go.
    pub deprecated: Vec<Deprecated>,
    /// Where the numbers of its Scale stand, if it has one.
    pub scale: Option<Scale>,
    /// The annotation that upstream's internal type has a field for, so that forms made of that type's metadata
    /// lack it.
    pub field_annotation: Option<Text>,
}

impl Facts {
    /// What is said of a version that goes.
    pub fn deprecated(&self, version: &str) -> Option<&Deprecated> {
        self.deprecated.iter().find(|d| d.version == version)
    }
}

/// A field by which lists and watches may select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectableField {
    /// As selectors name it: `spec.nodeName`.
    pub path: Text,
    /// The store finds objects by it.
    pub indexed: bool,
}

/// How objects are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// What becomes of dependents when nobody says.
    pub dependents: Dependents,
    /// A deletion answers with the object; with a `Status` otherwise.
    pub answers_object: bool,
    /// Objects that cannot be read may be deleted.
    pub unreadable: bool,
}

impl Deletion {
    /// What most kinds do.
    pub const USUAL: Self =
        Self { dependents: Dependents::Background, answers_object: false, unreadable: true };
}

impl Default for Deletion {
    fn default() -> Self {
        Self::USUAL
    }
}

/// What becomes of an object's dependents when nobody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// They go after it.
    Background,
    /// They stay.
    Orphan,
    /// Nobody looks for them, whatever is said.
    Unsupported,
}

/// How long a deletion waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Seconds that the object asks for.
    pub default: i64,
    /// It goes at once, whatever anybody asks for.
    pub at_once: bool,
}

/// How objects are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// The version in which the server keeps them.
    pub kind: Gvk,
    /// The version in which they stand in etcd.
    pub etcd: Gvk,
    /// In which form they stand in etcd.
    pub form: Form,
    /// What their keys in etcd begin with, below the prefix.
    pub path: Text,
    /// They expire, after the time that events are kept.
    pub expires: bool,
}

impl Storage {
    /// Of a kind that is kept as it is served, in upstream's usual form.
    pub fn of(kind: &Gvk, plural: &str) -> Self {
        let (kind, etcd) = (kind.clone(), kind.clone());
        Self { kind, etcd, form: Form::default(), path: plural.into(), expires: false }
    }
}

/// The form of a value in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Protobuf in upstream's envelope.
    #[default]
    Protobuf,
    /// JSON, as the servers have it that are built like extensions.
    Json,
    /// JSON of a CustomResourceDefinition of `v1beta1`.
    Definition,
}

/// A version that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    /// The version.
    pub version: Text,
    /// The text of the Warning with every answer.
    pub warning: Text,
    /// The release that will be without it, "" if none is known.
    pub removed: Text,
}
