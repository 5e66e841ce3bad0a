//! The fields of custom resources that field selectors name.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::view::View;

use crate::custom::valid_path;

/// The greatest number of selectable fields. Upstream's `MaxSelectableFields`.
const MOST: usize = 8;

/// Where upstream's rules see selectable fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the version.
    Version,
    /// Above the versions, because all have the same; their schemas may differ all the same.
    Above {
        /// Whether the schema stands there, too.
        with_schema: bool,
    },
}

/// Checks a version's selectable fields. A version that had them before may keep too many.
pub(super) fn check(errs: &mut Errors, at: &Path<'_>, version: View<'_>, place: Place, had: bool) {
    if version.len("selectableFields") == 0 {
        return;
    }
    let schema = version.st("schema").opt("openAPIV3Schema");
    let schema = match (schema, place) {
        (Some(schema), Place::Version | Place::Above { with_schema: true }) => schema,
        (_, Place::Version) => {
            errs.invalid(at, "", "may only be set when `version.schema.openAPIV3Schema` is not included");
            return;
        }
        (_, Place::Above { .. }) => {
            errs.invalid(at, "", "may only be set when validations.schema is included");
            return;
        }
    };
    let mut seen = HashSet::new();
    for (i, field) in version.items("selectableFields").enumerate() {
        let at = at.index(i);
        let at = at.field("jsonPath");
        let path = field.str("jsonPath");
        if path.is_empty() {
            errs.required(&at, "");
            continue;
        }
        let (plain, found) = match valid_path(schema, path, false) {
            Ok(found) => found,
            Err(why) => {
                errs.invalid(&at, path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if plain.split(['.', '[']).next() == Some("metadata") {
            errs.invalid(&at, path, "must not point to fields in metadata");
        }
        if !matches!(found.str("type"), "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errs.invalid(&at, path, why);
        }
        if !seen.insert(plain) {
            errs.duplicate(&at, path);
        }
    }
    if seen.len() > MOST && !had {
        errs.too_many(at, seen.len(), MOST);
    }
}
