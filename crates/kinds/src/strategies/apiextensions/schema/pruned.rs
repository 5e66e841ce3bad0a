//! Defaults with fields that their schema does not know.

use api::structural::{PartId, Structural};

/// Whether a default has fields that its schema does not know.
pub(super) fn has_unknown(schema: &Structural) -> bool {
    fn of(schema: &Structural, id: PartId) -> bool {
        let part = schema.part(id);
        is_unpruned(schema, id)
            || part.items.is_some_and(|id| of(schema, id))
            || part.properties.iter().any(|(_, id)| of(schema, *id))
    }
    of(schema, schema.root())
}

/// Whether the default of a part has such fields.
pub(super) fn is_unpruned(schema: &Structural, id: PartId) -> bool {
    schema.part(id).default_value().is_some_and(|value| {
        let mut pruned = value.clone();
        schema.prune_at(id, &mut pruned);
        pruned != *value
    })
}
