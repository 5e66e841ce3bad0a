//! Server-side apply and `metadata.managedFields`: who manages which fields of an object, how a write that is no apply
//! changes that ([`Writer::update`]), and how a configuration is applied ([`Writer::apply`]).
//!
//! The model is upstream's `structured-merge-diff` and `apimachinery/pkg/util/managedfields`.

mod apply;
mod entries;
mod merge;
mod patched;
mod set;
mod update;
mod value;
mod walk;

pub use apply::{Applied, ApplyError, Conflict, Conflicts};
pub use entries::{Manager, Operation, validate_entries};
pub use patched::merge_configuration;
pub use set::{Element, FieldSet, path_text};
pub use update::{copy_entries, keep_times, manager_of_agent};
pub use walk::{Comparison, compare, of};

use crate::schema::Schema;
use crate::tree::Struct;

/// The annotation in which `kubectl apply` without server-side apply keeps the configuration that it applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that a resource or subresource takes from a request. It resets the others, so that nobody comes to manage
/// them through it.
#[derive(Debug, Clone, Copy, Default)]
pub enum Taken<'a> {
    /// All fields.
    #[default]
    All,
    /// All fields but these and those below them.
    AllBut(&'a FieldSet),
    /// Only the fields below one of these paths; `None` stands for any step.
    Only(&'a [&'a [Option<&'a str>]]),
}

impl Taken<'_> {
    fn filter(self, set: FieldSet) -> FieldSet {
        match self {
            Self::All => set,
            Self::AllBut(reset) => set.recursive_difference(reset),
            Self::Only(patterns) => set.matching(patterns),
        }
    }
    fn filter_all(self, c: Comparison) -> Comparison {
        match self {
            Self::All => c,
            _ => Comparison {
                added: self.filter(c.added),
                modified: self.filter(c.modified),
                removed: self.filter(c.removed),
            },
        }
    }
}

/// Converts objects of a kind between its versions.
pub trait Versions {
    /// Whether the kind has such a version. This is asked first: managedFields may name any number of other versions.
    fn has(&self, version: &str) -> bool;
    /// The object in another version; `None` if the kind has no such version (any more).
    fn convert(&self, object: &Struct, from: &str, to: &str) -> Result<Option<Struct>, String>;
}

/// A write by somebody, as far as managedFields are concerned.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The schema.
    pub schema: &'a Schema,
    /// Version of the request, in which also the objects are.
    pub api_version: &'a str,
    /// Subresource of the request, "" for the object itself.
    pub subresource: &'a str,
    /// The name of the writer.
    pub manager: &'a str,
    /// Now, RFC 3339, UTC, whole seconds.
    pub now: &'a str,
    /// The fields that the resource takes from the request.
    pub taken: Taken<'a>,
    /// The conversion by which entries of other versions are compared; without it all versions have the same fields.
    pub versions: Option<&'a dyn Versions>,
}

impl<'a> Writer<'a> {
    /// The version in which a manager's fields are compared.
    fn version_of<'v>(&self, version: &'v str) -> &'v str
    where
        'a: 'v,
    {
        if self.versions.is_some() { version } else { self.api_version }
    }
}

#[cfg(test)]
mod tests;
