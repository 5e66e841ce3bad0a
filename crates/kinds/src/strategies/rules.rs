//! The form in which a built-in kind's strategy is written: constants and plain functions.

use std::sync::Arc;

use api::managed::{FieldSet, Taken};
use api::resources::{ResourceInfo, builtin};
use api::schema::Gvk;
use api::status::FieldError;
use api::{Schema, Struct, Text};
use jiff::Timestamp;

use crate::columns::{Columns, Row};
use crate::convert::NoConversion;
use crate::scale::{Scale, SelectorForm};
use crate::strategy::{
    Ctx, Deletion, Deprecated, Facts, Form, Grace, SelectableField, Storage, Strategy, Subresource,
};

/// The function behind [`Strategy::prepare_create`].
pub(crate) type PrepareCreate = fn(&Ctx<'_>, &mut Struct);
/// The function behind [`Strategy::prepare_update`].
pub(crate) type PrepareUpdate = fn(&Ctx<'_>, new: &mut Struct, old: &Struct);
/// The function behind [`Strategy::validate`].
pub(crate) type Validate = fn(&Ctx<'_>, &Struct) -> Vec<FieldError>;
/// The function behind [`Strategy::validate_update`].
pub(crate) type ValidateUpdate = fn(&Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError>;
/// The function behind [`Strategy::warnings`].
pub(crate) type Warnings = fn(&Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String>;
/// The function behind [`Strategy::field_values`].
pub(crate) type FieldValues = fn(&Schema, &Struct, &mut Vec<Text>);
/// The function behind [`Strategy::convert`].
pub(crate) type Convert = fn(&Schema, Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion>;
/// The function behind [`Strategy::settle`].
pub(crate) type Settle = fn(&Schema, &mut Struct) -> Result<(), String>;

/// A path of field names.
pub(crate) type Path = &'static [&'static str];
/// A path in which `None` stands for any step.
pub(crate) type Pattern = &'static [Option<&'static str>];

/// The fields that a subresource takes: nobody comes to manage others through it. Upstream's `GetResetFields` and
/// `GetResetFieldsFilter`.
pub(crate) enum Takes {
    /// All fields but these, which are reset with all below them.
    AllBut(&'static [Path]),
    /// Only these fields.
    Only(&'static [Pattern]),
}

impl Takes {
    /// All fields but `spec`.
    pub(crate) const BUT_SPEC: Self = Self::AllBut(&[&["spec"]]);
    /// All fields but `spec` and `metadata`.
    pub(crate) const BUT_SPEC_AND_METADATA: Self = Self::AllBut(&[&["spec"], &["metadata"]]);
    /// All fields but `status`.
    pub(crate) const BUT_STATUS: Self = Self::AllBut(&[&["status"]]);
}

/// A subresource on the object's own tree.
pub(crate) struct SubresourceRules {
    /// The subresource's name in the path.
    pub name: &'static str,
    /// The fields that the subresource takes.
    pub takes: Takes,
    /// The function behind [`Subresource::prepare_update`].
    pub prepare_update: PrepareUpdate,
    /// The function behind [`Subresource::validate_update`].
    pub validate_update: ValidateUpdate,
}

impl Subresource for SubresourceRules {
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
        (self.prepare_update)(c, new, old);
    }
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
        (self.validate_update)(c, new, old)
    }
}

/// A version that will be removed.
pub(crate) struct Going {
    /// The version.
    pub version: &'static str,
    /// The minor release since which it is deprecated.
    pub since: u8,
    /// The release that removes the version, "" if none is known.
    pub removed: &'static str,
    /// The version to use instead, "" if that is the next one.
    pub instead: &'static str,
}

/// A version that will be removed, instead of which the next one is to be used.
pub(crate) const fn going(version: &'static str, since: u8, removed: &'static str) -> Going {
    Going { version, since, removed, instead: "" }
}

/// The rules of a built-in resource.
pub(crate) struct Rules {
    /// Group.
    pub group: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// The function behind [`Strategy::prepare_create`].
    pub prepare_create: PrepareCreate,
    /// The function behind [`Strategy::validate`].
    pub validate: Validate,
    /// The function behind [`Strategy::canonicalize`].
    pub canonicalize: PrepareCreate,
    /// The function behind [`Strategy::prepare_update`].
    pub prepare_update: PrepareUpdate,
    /// The function behind [`Strategy::validate_update`].
    pub validate_update: ValidateUpdate,
    /// The function behind [`Strategy::warnings`].
    pub warnings: Warnings,
    /// Subresources on the same tree.
    pub subresources: &'static [SubresourceRules],
    /// The fields that a write of the object itself takes.
    pub takes: Takes,
    /// The paths of [`Facts::fields`].
    pub fields: &'static [&'static str],
    /// The paths among them by which the store finds objects.
    pub indexed: &'static [&'static str],
    /// The values of these fields.
    pub field_values: FieldValues,
    /// The columns of the kind.
    pub columns: &'static Columns,
    /// The value of [`Facts::create_on_update`].
    pub create_on_update: bool,
    /// The value of [`Facts::unconditional_update`].
    pub unconditional_update: bool,
    /// The value of [`Facts::counts_gated`].
    pub counts_gated: bool,
    /// The value of [`Facts::no_effect_yet`].
    pub no_effect_yet: Option<&'static str>,
    /// The value of [`Facts::is_namespace`].
    pub is_namespace: bool,
    /// The value of [`Facts::is_consulted`].
    pub is_consulted: bool,
    /// The way of deletion. Whether a deletion answers with the object stands in the table of resources, since OpenAPI
    /// says so.
    pub deletion: Deletion,
    /// The function behind [`Strategy::grace`].
    pub grace: fn(&Schema, &Struct) -> Option<Grace>,
    /// The function behind [`Strategy::is_held`].
    pub is_held: fn(&Schema, &Struct) -> bool,
    /// The kind of objects that are stored though no client can ask for them.
    pub internal_kind: Option<&'static str>,
    /// The start of keys in etcd, if it is not the plural name; from the time before there were groups.
    pub path: Option<&'static str>,
    /// The form of objects in etcd.
    pub form: Form,
    /// The value of [`Storage::expires`].
    pub expires: bool,
    /// Versions that will be removed.
    pub going: &'static [Going],
    /// The form of `spec.selector`, if the kind has a Scale of `spec.replicas` and `status.replicas`.
    pub scale: Option<SelectorForm>,
    /// The value of [`Facts::field_annotation`].
    pub field_annotation: Option<&'static str>,
    /// The function behind [`Strategy::convert`].
    pub convert: Convert,
    /// The function behind [`Strategy::settle`].
    pub settle: Settle,
}

/// The strategy of a built-in kind.
struct BuiltIn {
    rules: &'static Rules,
    facts: Facts,
    /// The fields that a write of the object and of each subresource resets.
    reset: Vec<FieldSet>,
}

impl Rules {
    /// Makes the strategy for a resource of the table.
    pub(crate) fn strategy(&'static self, group: &str, resource: &str) -> Arc<dyn Strategy> {
        let takes = std::iter::once(&self.takes).chain(self.subresources.iter().map(|s| &s.takes));
        let reset = takes.map(|takes| match takes {
            Takes::AllBut(paths) => FieldSet::of_names(paths),
            Takes::Only(_) => FieldSet::default(),
        });
        Arc::new(BuiltIn { rules: self, facts: self.facts(group, resource), reset: reset.collect() })
    }

    fn facts(&self, group: &str, resource: &str) -> Facts {
        let rows: Vec<&ResourceInfo> =
            builtin().iter().filter(|r| r.group == group && r.resource == resource).collect();
        let paths = self.fields.iter();
        let deprecated = rows.iter().filter_map(|r| {
            let going = self.going.iter().find(|g| g.version == r.version)?;
            let removed = match going.removed {
                "" => String::new(),
                release => format!(", unavailable in v{release}+"),
            };
            let (of, since, instead) = (Gvk::new(r.group, r.version, r.kind), going.since, going.instead);
            let warning =
                format!("{} {} is deprecated in v1.{since}+{removed}{instead}", of.api_version(), of.kind);
            let (version, removed) = (r.version.into(), going.removed.into());
            Some(Deprecated { version, warning: warning.into(), removed })
        });
        let names = |path: [&str; 2]| path.map(Text::from).to_vec();
        Facts {
            fields: paths
                .map(|p| SelectableField { path: (*p).into(), indexed: self.indexed.contains(p) })
                .collect(),
            fields_by_version: false,
            columns: self.columns.of(resource),
            create_on_update: self.create_on_update,
            unconditional_update: self.unconditional_update,
            counts_gated: self.counts_gated,
            no_effect_yet: self.no_effect_yet.map(Text::from),
            is_namespace: self.is_namespace,
            is_consulted: self.is_consulted,
            deletion: Deletion {
                answers_object: self.deletion.answers_object || rows.iter().any(|r| r.returns_deleted),
                ..self.deletion
            },
            storage: self.storage(&rows, resource),
            deprecated: deprecated.collect(),
            scale: self.scale.map(|form| Scale {
                replicas: names(["spec", "replicas"]),
                status_replicas: names(["status", "replicas"]),
                selector: names(["spec", "selector"]),
                form,
            }),
            field_annotation: self.field_annotation.map(Text::from),
        }
    }

    /// The storage of objects: the version that is served by default, if there is one.
    fn storage(&self, rows: &[&ResourceInfo], resource: &str) -> Option<Storage> {
        let (kind, etcd) = if let Some(kind) = self.internal_kind {
            (Gvk::new(self.group, "v1", kind), Gvk::new(self.group, "v1", kind))
        } else {
            let row = rows.iter().find(|r| r.has_verb("update") && !r.storage_version.is_empty())?;
            let etcd = Gvk::new(row.storage_group, row.storage_version, row.kind);
            let usual = rows.iter().find(|r| r.served_by_default && r.group == row.storage_group);
            (usual.map_or_else(|| etcd.clone(), |r| Gvk::new(r.group, r.version, r.kind)), etcd)
        };
        let path = match (self.path, self.form) {
            (Some(path), _) => path.into(),
            (None, Form::Protobuf) => resource.into(),
            // Upstream's extension servers, to which its own server delegates, keep objects below their group.
            (None, Form::Json | Form::Definition) => {
                compact_str::format_compact!("{}/{resource}", kind.group)
            }
        };
        Some(Storage { kind, etcd, form: self.form, path, expires: self.expires })
    }
}

impl Strategy for BuiltIn {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn prepare_create(&self, c: &Ctx<'_>, new: &mut Struct) {
        (self.rules.prepare_create)(c, new);
    }
    fn validate(&self, c: &Ctx<'_>, new: &Struct) -> Vec<FieldError> {
        (self.rules.validate)(c, new)
    }
    fn canonicalize(&self, c: &Ctx<'_>, new: &mut Struct) {
        (self.rules.canonicalize)(c, new);
    }
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
        (self.rules.prepare_update)(c, new, old);
    }
    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
        (self.rules.validate_update)(c, new, old)
    }
    fn warnings(&self, c: &Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String> {
        (self.rules.warnings)(c, new, old)
    }
    fn subresource(&self, name: &str) -> Option<&dyn Subresource> {
        self.rules.subresources.iter().find(|s| s.name == name).map(|s| s as &dyn Subresource)
    }
    fn taken(&self, subresource: &str) -> Taken<'_> {
        let own = self.rules.subresources.iter().position(|s| s.name == subresource);
        let (takes, at) = match own {
            Some(i) => (&self.rules.subresources[i].takes, i + 1),
            None if subresource.is_empty() => (&self.rules.takes, 0),
            None => return Taken::All,
        };
        match takes {
            Takes::Only(patterns) => Taken::Only(patterns),
            Takes::AllBut([]) => Taken::All,
            Takes::AllBut(_) => self.reset.get(at).map_or(Taken::All, Taken::AllBut),
        }
    }
    fn field_values(&self, schema: &Schema, object: &Struct, out: &mut Vec<Text>) {
        (self.rules.field_values)(schema, object, out);
    }
    fn row(&self, schema: &Schema, object: &Struct, now: Timestamp) -> Row {
        (self.rules.columns.cells)(schema, object, now)
    }
    fn grace(&self, schema: &Schema, object: &Struct) -> Option<Grace> {
        (self.rules.grace)(schema, object)
    }
    fn is_held(&self, schema: &Schema, object: &Struct) -> bool {
        (self.rules.is_held)(schema, object)
    }
    fn convert(&self, schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion> {
        if from == to {
            return Ok(tree);
        }
        (self.rules.convert)(schema, tree, from, to)
    }
    fn settle(&self, schema: &Schema, object: &mut Struct) -> Result<(), String> {
        (self.rules.settle)(schema, object)
    }
}
