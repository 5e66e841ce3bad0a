//! Who asks.

use std::collections::BTreeMap;

use api::Text;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    /// User name, e.g. `system:node:a`.
    pub name: Text,
    /// Unique id; may be empty.
    pub uid: Text,
    /// Groups; `system:authenticated` or `system:unauthenticated` among them.
    pub groups: Vec<Text>,
    /// Further facts that the authenticator knows.
    pub extra: BTreeMap<Text, Vec<Text>>,
}
