//! The options that a request was made with, as admission sees them.

use api::view::{Edit, strings};
use api::{Gvk, Schema, Struct, Text};

use super::Operation;
use crate::Query;

/// The fate of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// `DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds until the object is removed; what the kind says if absent.
    pub grace: Option<i64>,
    /// The object's uid must be this.
    pub uid: Option<Text>,
    /// The object's resourceVersion must be this.
    pub resource_version: Option<Text>,
    /// The old form of `propagation`.
    pub orphan_dependents: Option<bool>,
    /// The fate of dependents.
    pub propagation: Option<Propagation>,
    /// Nothing is stored.
    pub dry_run: bool,
    /// Only an object that cannot be read is deleted, whatever may depend on it.
    pub ignore_read_error: bool,
}

/// The options of a request: `CreateOptions`, `UpdateOptions` (of a patch too) or `DeleteOptions`. Their tree is made
/// when somebody looks at it.
#[derive(Debug, Clone, Copy, Default)]
pub struct OperationOptions<'a>(Given<'a>);

#[derive(Debug, Clone, Copy, Default)]
enum Given<'a> {
    #[default]
    None,
    Create(&'a Query),
    Update(&'a Query),
    Delete(&'a DeleteOptions),
}

impl<'a> OperationOptions<'a> {
    /// Of a write, from the request's query. A deletion's are known only when its body was read.
    pub fn of(operation: Operation, query: &'a Query) -> Self {
        Self(match operation {
            Operation::Create => Given::Create(query),
            Operation::Update => Given::Update(query),
            Operation::Delete | Operation::Connect => Given::None,
        })
    }
    /// Of a deletion.
    pub fn delete(options: &'a DeleteOptions) -> Self {
        Self(Given::Delete(options))
    }
    /// Their kind; "" if there are none.
    pub fn kind(&self) -> &'static str {
        match self.0 {
            Given::None => "",
            Given::Create(_) => "CreateOptions",
            Given::Update(_) => "UpdateOptions",
            Given::Delete(_) => "DeleteOptions",
        }
    }
    /// Their tree, of `meta.k8s.io/v1`.
    pub fn tree(&self, schema: &Schema) -> Option<Struct> {
        let mut tree = Struct::new(schema.kind(&Gvk::new("", "v1", self.kind()))?);
        let mut edit = Edit::new(schema, &mut tree);
        match self.0 {
            Given::None => {}
            Given::Create(query) | Given::Update(query) => {
                if query.all("dryRun").next().is_some() {
                    edit.set("dryRun", strings(query.all("dryRun")));
                }
                for field in ["fieldManager", "fieldValidation"] {
                    if !query.str(field).is_empty() {
                        edit.set(field, query.str(field));
                    }
                }
            }
            Given::Delete(options) => fill(&mut edit, options),
        }
        Some(tree)
    }
}

fn fill(edit: &mut Edit<'_>, options: &DeleteOptions) {
    if let Some(grace) = options.grace {
        edit.set("gracePeriodSeconds", grace);
    }
    if options.uid.is_some() || options.resource_version.is_some() {
        let Some(mut preconditions) = edit.make("preconditions") else { return };
        for (field, value) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
            if let Some(value) = value {
                preconditions.set(field, value.as_str());
            }
        }
    }
    if let Some(orphan) = options.orphan_dependents {
        edit.set("orphanDependents", orphan);
    }
    if let Some(policy) = options.propagation {
        let policy = match policy {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        };
        edit.set("propagationPolicy", policy);
    }
    if options.dry_run {
        edit.set("dryRun", strings(["All"]));
    }
}
