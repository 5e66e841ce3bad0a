//! ServiceAccounts.

use api::Struct;
use api::names::name_subdomain;
use api::view::{Edit, View};

use crate::columns;
use crate::strategies::generic::{NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::Rules;

pub(crate) const SERVICE_ACCOUNT: Rules = Rules {
    resource: "serviceaccounts",
    columns: columns::core::SERVICE_ACCOUNT,
    is_consulted: true,
    prepare_create: |c, s| only_names(&mut Edit::new(c.schema, s)),
    prepare_update: |c, n, _| only_names(&mut Edit::new(c.schema, n)),
    validate: |c, s| check(c, s, |e, v| core_meta(e, v.st("metadata"), true, name_subdomain)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            core_meta(e, n.st("metadata"), true, name_subdomain);
        })
    },
    warnings: |c, n, old| {
        const KEY: &str = "kubernetes.io/enforce-mountable-secrets";
        let has = |s: &Struct| {
            View::new(c.schema, s).st("metadata").map("annotations").is_some_and(|a| a.get(KEY).is_some())
        };
        if has(n) && !old.is_some_and(has) {
            return vec![format!(
                "metadata.annotations[{KEY}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )];
        }
        Vec::new()
    },
    ..NAMESPACED
};

/// Reduces references to Secrets to their names.
fn only_names(e: &mut Edit<'_>) {
    for r in e.items("secrets") {
        let schema = r.schema;
        let id = r.st.id;
        r.st.retain(|no, _| schema.st(id).at(no).json == "name");
    }
}
