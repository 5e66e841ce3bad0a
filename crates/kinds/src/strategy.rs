//! What differs between kinds: a [`Strategy`] is data and a few functions.

use api::status::FieldError;
use api::{Schema, Struct, Text};

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

/// Readies the tree of a create: drops what a client may not set (status), sets what the server sets (generation).
pub type PrepareCreate = fn(&Ctx<'_>, &mut Struct);
/// Readies the new tree of an update, given the stored one.
pub type PrepareUpdate = fn(&Ctx<'_>, new: &mut Struct, old: &Struct);
/// Checks a create.
pub type Validate = fn(&Ctx<'_>, &Struct) -> Vec<FieldError>;
/// Checks an update.
pub type ValidateUpdate = fn(&Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError>;
/// Texts of Warning headers for an accepted write.
pub type Warnings = fn(&Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String>;
/// Appends the values of the selectable fields, in the order of [`Strategy::fields`].
pub type FieldValues = fn(&Schema, &Struct, &mut Vec<Text>);

/// A subresource that reads and writes the parent's own tree (`status`, `ephemeralcontainers`, `resize`, `approval`, …).
pub struct Subresource {
    /// Its name in the path.
    pub name: &'static str,
    /// Readies the new tree: everything but what this subresource may change is put back.
    pub prepare_update: PrepareUpdate,
    /// Checks the update.
    pub validate_update: ValidateUpdate,
}

/// The rules of one resource. All trees are of the storage version.
pub struct Strategy {
    /// Group.
    pub group: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Before a create is validated.
    pub prepare_create: PrepareCreate,
    /// Before an update is validated; after it metadata's generation rule is already kept if `spec` changed.
    pub prepare_update: PrepareUpdate,
    /// Fields of features that are off go only after `prepare_update`, so that they count as a change.
    pub counts_gated: bool,
    /// Validation of a create, metadata included.
    pub validate: Validate,
    /// Validation of an update, metadata included.
    pub validate_update: ValidateUpdate,
    /// Warnings.
    pub warnings: Warnings,
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub fields: &'static [&'static str],
    /// Their values.
    pub field_values: FieldValues,
    /// PUT may create.
    pub create_on_update: bool,
    /// An update without resourceVersion is taken.
    pub unconditional_update: bool,
    /// Subresources on the same tree.
    pub subresources: &'static [Subresource],
    /// The text of the Warning on a create while the cluster does not act on this kind yet.
    pub no_effect_yet: Option<&'static str>,
}
