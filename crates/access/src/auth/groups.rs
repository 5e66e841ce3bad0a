//! The group of all users who are known.

use api::Text;

/// Adds the group of users who are known, unless they are said to be none.
pub(super) fn add_authenticated(groups: &mut Vec<Text>) {
    if !groups.iter().any(|g| g == "system:authenticated" || g == "system:unauthenticated") {
        groups.push("system:authenticated".into());
    }
}
