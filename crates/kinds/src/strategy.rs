//! The rules of a kind besides its schema: a [`Strategy`].
//!
//! A resource owns its strategy, and generic code asks nothing else about a kind. The built-in ones stand in
//! [`crate::strategies`]; another implementation may carry data that is known at run time only: names, columns, paths.

use api::managed::Taken;
use api::schema::Gvk;
use api::status::FieldError;
use api::{FeatureGates, Schema, Struct, Text};
use jiff::Timestamp;

use crate::columns::{Column, Row};
use crate::convert::NoConversion;
use crate::scale::Scale;

/// The surroundings that a rule may look at besides the objects.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    /// The schema that the trees follow.
    pub schema: &'a Schema,
    /// The current time, as `metav1.Time` text.
    pub now: &'a str,
    /// The feature gates that are on.
    pub gates: FeatureGates,
    /// Whether containers may be privileged (`--allow-privileged`).
    pub privileged: bool,
    /// Takes a warning that is sent whether or not the request succeeds.
    pub warn: &'a (dyn Fn(String) + Sync),
}

/// All rules of one resource's objects. Trees are of the version that is kept ([`Storage::kind`]), except where a
/// method says otherwise.
pub trait Strategy: Send + Sync {
    /// The facts that do not depend on an object.
    fn facts(&self) -> &Facts;

    /// Prepares the tree of a create: drops the fields that a client may not set (status), sets those that the server
    /// sets (generation).
    fn prepare_create(&self, c: &Ctx<'_>, new: &mut Struct);
    /// Checks a create, metadata included.
    fn validate(&self, c: &Ctx<'_>, new: &Struct) -> Vec<FieldError>;
    /// Brings a valid object into its last form.
    fn canonicalize(&self, c: &Ctx<'_>, new: &mut Struct);
    /// Prepares the new tree of an update, given the stored one. After this the rule of `metadata.generation` is kept
    /// if `spec` changed.
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct);
    /// Checks an update, metadata included.
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError>;
    /// Texts of Warning headers for an accepted write.
    fn warnings(&self, c: &Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String>;
    /// The rules of a subresource that reads and writes the object's own tree, if it has one of this name.
    fn subresource(&self, name: &str) -> Option<&dyn Subresource>;
    /// The fields that a writer of the object (subresource "") or of a subresource comes to manage. They are fields of
    /// the version that is served.
    fn taken(&self, subresource: &str) -> Taken<'_>;

    /// Appends the values of the selectable fields, in the order of [`Facts::fields`].
    fn field_values(&self, schema: &Schema, object: &Struct, out: &mut Vec<Text>);
    /// The cells under [`Facts::columns`] at a point in time.
    fn row(&self, schema: &Schema, object: &Struct, now: Timestamp) -> Row;

    /// The time for which a deletion waits, for kinds that know grace.
    fn grace(&self, schema: &Schema, object: &Struct) -> Option<Grace>;
    /// Whether something besides metadata's finalizers keeps an object that is deleted.
    fn is_held(&self, schema: &Schema, object: &Struct) -> bool;

    /// Converts a tree from one version of the kind into another.
    fn convert(&self, schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion>;
    /// Rewrites or refuses a decoded object of a version as upstream does, beyond its schema, when it reads the object
    /// into its internal type. The error is upstream's text.
    fn settle(&self, schema: &Schema, object: &mut Struct) -> Result<(), String>;
}

/// The rules of a subresource on the object's own tree (`status`, `ephemeralcontainers`, `resize`, `approval`, …).
pub trait Subresource: Send + Sync {
    /// Prepares the new tree: puts back every field but those that this subresource may change.
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct);
    /// Checks the update.
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError>;
}

/// The facts about a kind that do not depend on an object.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub fields: Vec<SelectableField>,
    /// Whether selectable fields are found in the version that is asked for, rather than stored with the object.
    pub fields_by_version: bool,
    /// The columns of its Tables.
    pub columns: Vec<Column>,
    /// Whether a PUT may create an object.
    pub create_on_update: bool,
    /// Whether an update may come without resourceVersion.
    pub unconditional_update: bool,
    /// Whether fields of features that are off are dropped only after [`Strategy::prepare_update`], so that they count
    /// as a change.
    pub counts_gated: bool,
    /// The text of the Warning on a create while the cluster does not act on this kind yet.
    pub no_effect_yet: Option<Text>,
    /// Whether each object is a namespace: a request for one is in the namespace of its name.
    pub is_namespace: bool,
    /// Whether writes of other resources may be refused because of these objects; such a refusal counts only if this
    /// resource was current.
    pub is_consulted: bool,
    /// The way in which objects are deleted.
    pub deletion: Deletion,
    /// The way in which objects are stored; `None` if none are.
    pub storage: Option<Storage>,
    /// Versions that will be removed.
    pub deprecated: Vec<Deprecated>,
    /// The places of the numbers of the kind's Scale, if it has one.
    pub scale: Option<Scale>,
    /// The annotation for which upstream's internal type has a field, so that forms made of that type's metadata lack
    /// the annotation.
    pub field_annotation: Option<Text>,
}

impl Facts {
    /// The warning about a version that will be removed.
    pub fn deprecated(&self, version: &str) -> Option<&Deprecated> {
        self.deprecated.iter().find(|d| d.version == version)
    }
}

/// A field by which lists and watches may select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectableField {
    /// The field as selectors name it: `spec.nodeName`.
    pub path: Text,
    /// Whether the store finds objects by the field.
    pub indexed: bool,
}

/// The way in which objects are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// The treatment of dependents where the request does not choose one.
    pub dependents: Dependents,
    /// Whether a deletion answers with the object; otherwise it answers with a `Status`.
    pub answers_object: bool,
    /// Whether objects that cannot be read may be deleted.
    pub unreadable: bool,
}

impl Deletion {
    /// The way of deletion of most kinds.
    pub const USUAL: Self =
        Self { dependents: Dependents::Background, answers_object: false, unreadable: true };
}

impl Default for Deletion {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The treatment of an object's dependents where the request does not choose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// Dependents are deleted after the object.
    Background,
    /// Dependents stay.
    Orphan,
    /// Dependents are not looked for, whatever the request says.
    Unsupported,
}

/// The time for which a deletion waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Seconds that the object asks for.
    pub default: i64,
    /// Whether the object is deleted at once, whatever the request asks for.
    pub at_once: bool,
}

/// The way in which objects are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// The version in which the server keeps objects.
    pub kind: Gvk,
    /// The version of objects in etcd.
    pub etcd: Gvk,
    /// The form of objects in etcd.
    pub form: Form,
    /// The start of their keys in etcd, below the prefix.
    pub path: Text,
    /// Whether objects expire, after the time that events are kept.
    pub expires: bool,
}

impl Storage {
    /// The storage of a kind that is kept as it is served, in upstream's usual form.
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
    /// JSON, as upstream's servers that are built like extensions store it.
    Json,
    /// JSON of a CustomResourceDefinition of `v1beta1`.
    Definition,
}

/// A version that will be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    /// The version.
    pub version: Text,
    /// The text of the Warning with every answer.
    pub warning: Text,
    /// The release that removes the version, "" if none is known.
    pub removed: Text,
}
