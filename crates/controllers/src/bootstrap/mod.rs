//! Bootstrap tokens: the ConfigMap `cluster-info` is signed with them, and those whose time is over are removed.

mod cleaner;
mod signer;

use client::Selection;
use client::bootstrap::{NAMESPACE, SECRET_TYPE};

pub(crate) use cleaner::TokenCleaner;
pub(crate) use signer::Signer;

/// The Secrets of bootstrap tokens.
fn tokens() -> Selection {
    Selection {
        namespace: NAMESPACE.into(),
        field_selector: format!("type={SECRET_TYPE}"),
        ..Selection::default()
    }
}
