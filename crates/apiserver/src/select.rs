//! Which objects of a resource a list or a watch is about.

use std::sync::Arc;

use api::selector::marks::Wanted;
use api::selector::{fields, labels};
use api::{Object, Status, Text};
use kinds::strategy::SelectableField;
use storage::Scope;

use crate::catalog::{Catalog, ResourceEntry};
use crate::codec;

/// A selection: a scope that the store knows how to find, and what is left to check.
#[derive(Clone)]
pub(crate) struct Selection {
    /// For the store.
    pub scope: Scope,
    labels: labels::Selector,
    /// Position in the envelope's fields, wanted value, and whether it must (not) be that.
    fields: Vec<(Place, Text, bool)>,
    /// Nothing is left out within the namespace.
    pub everything: bool,
    /// The source of the fields' values, where these are those of the version of the request.
    by_version: Option<(Arc<Catalog>, Arc<ResourceEntry>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Namespace,
    Field(usize),
}

impl Selection {
    /// Reads the selectors of a request.
    pub(crate) fn new(
        (catalog, resource): (&Arc<Catalog>, &Arc<ResourceEntry>),
        namespace: &str,
        name: &str,
        label_selector: &str,
        field_selector: &str,
    ) -> Result<Self, Status> {
        let labels =
            labels::Selector::parse(label_selector).map_err(|e| Status::bad_request(e.to_string()))?;
        let fields =
            fields::Selector::parse(field_selector).map_err(|e| Status::bad_request(e.to_string()))?;
        let facts = resource.strategy.facts();
        let selectable = &facts.fields;
        let mut selection = Self {
            scope: Scope { namespace: namespace.into(), ..Scope::default() },
            everything: labels.is_empty() && fields.is_empty(),
            labels,
            fields: Vec::new(),
            by_version: None,
        };
        for term in &fields.terms {
            let place = match term.field.as_str() {
                "metadata.name" => Place::Name,
                "metadata.namespace" => Place::Namespace,
                field => {
                    let at = selectable.iter().position(|f| f.path == field);
                    Place::Field(at.ok_or_else(|| unknown(selectable, field))?)
                }
            };
            let wanted = !term.negated;
            match place {
                // Of two, no object has both.
                Place::Name if wanted && selection.scope.name.is_empty() => {
                    selection.scope.name.clone_from(&term.value);
                }
                Place::Namespace if wanted && selection.scope.namespace.is_empty() => {
                    selection.scope.namespace.clone_from(&term.value);
                }
                Place::Field(at) if wanted && selectable[at].indexed => {
                    selection.scope.field = Some((at, term.value.clone()));
                }
                _ => {}
            }
            if matches!(place, Place::Field(_)) && facts.fields_by_version {
                selection.by_version = Some((Arc::clone(catalog), Arc::clone(resource)));
            }
            selection.fields.push((place, term.value.clone(), wanted));
        }
        if !name.is_empty() {
            if selection.fields.is_empty() {
                selection.fields.push((Place::Name, name.into(), true));
                selection.scope.name = name.into();
                selection.everything = false;
            } else if selection.scope.name != name {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        Ok(selection)
    }
    /// The marks of the labels that its objects have.
    pub(crate) fn marks(&self) -> Wanted {
        Wanted::by(&self.labels)
    }
    /// Whether it is of objects in the version of the request: no others can be asked whether they match.
    pub(crate) fn is_by_version(&self) -> bool {
        self.by_version.is_some()
    }
    /// The values of an object's fields.
    fn values(&self, object: &Object) -> Option<Vec<Text>> {
        let (catalog, resource) = self.by_version.as_ref()?;
        let mut out = Vec::new();
        if let Ok(tree) = codec::stored(catalog.schema(), resource.root, object) {
            resource.strategy.field_values(catalog.schema(), &tree, &mut out);
        }
        Some(out)
    }
    /// Whether an object is in it; its scope is checked again.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        let data = &object.data;
        let own = self.values(object);
        let values = own.as_deref().unwrap_or(&data.fields);
        self.fields.iter().all(|(place, value, wanted)| {
            let got = match place {
                Place::Name => &data.name,
                Place::Namespace => &data.namespace,
                Place::Field(at) => match values.get(*at) {
                    Some(v) => v,
                    None => return !*wanted && !value.is_empty() || *wanted && value.is_empty(),
                },
            };
            (got == value) == *wanted
        }) && (self.labels.is_empty() || self.labels.matches(|key| object.label(key)))
    }
}

fn unknown(selectable: &[SelectableField], field: &str) -> Status {
    if selectable.is_empty() {
        Status::bad_request(format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ))
    } else {
        Status::bad_request(format!("field label not supported: {field}"))
    }
}
