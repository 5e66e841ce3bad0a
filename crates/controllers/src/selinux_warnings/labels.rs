//! SELinux labels as far as they are known without a node; pure.

use k8s_openapi::api::core::v1::SELinuxOptions;

/// The label of options, "" for none. The controller cannot know a node's defaults, so that a part may be empty.
pub(super) fn label(options: &SELinuxOptions) -> String {
    let parts = [&options.user, &options.role, &options.type_, &options.level];
    let parts = parts.map(|part| part.as_deref().unwrap_or_default());
    if parts.iter().all(|part| part.is_empty()) { String::new() } else { parts.join(":") }
}

/// The user, role, type and level of a label.
fn parts(label: &str) -> [&str; 4] {
    let mut all = label.splitn(4, ':');
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

/// Whether two labels cannot both be given to a volume. A part that is empty becomes what the node says and is equal to
/// any, but for the level, of which each Pod gets its own.
pub(super) fn conflict(a: &str, b: &str) -> bool {
    let [a_user, a_role, a_type, a_level] = parts(a);
    let [b_user, b_role, b_type, b_level] = parts(b);
    let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
    a_level != b_level || differ(a_user, b_user) || differ(a_role, b_role) || differ(a_type, b_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestSELinuxOptionsToFileLabel`.
    #[test]
    fn labels_of_options() {
        let check = |parts: [Option<&str>; 4], want: &str| {
            let [user, role, type_, level] = parts.map(|part| part.map(str::to_owned));
            assert_eq!(label(&SELinuxOptions { user, role, type_, level }), want);
        };
        let all = [Some("system_u"), Some("system_r"), Some("container_t"), Some("s0:c0,c1")];
        check(all, "system_u:system_r:container_t:s0:c0,c1");
        check([None, None, Some("container_t"), Some("s0:c0,c1")], "::container_t:s0:c0,c1");
        check([None, None, None, Some("s0:c0,c1")], ":::s0:c0,c1");
        check([None; 4], "");
        check([Some(""); 4], "");
    }

    /// Upstream's cases of `TestParseSELinuxLabel`.
    #[test]
    fn parts_of_labels() {
        let check = |label: &str, want: [&str; 4]| assert_eq!(parts(label), want, "{label}");
        check("", [""; 4]);
        check("system_u:system_r:container_t:s0:c0,c1", ["system_u", "system_r", "container_t", "s0:c0,c1"]);
        check("system_u:system_r:container_t", ["system_u", "system_r", "container_t", ""]);
        check("system_u:system_r", ["system_u", "system_r", "", ""]);
        check("system_u", ["system_u", "", "", ""]);
        check(":system_r:container_t", ["", "system_r", "container_t", ""]);
        check("::container_t", ["", "", "container_t", ""]);
        check("::container_t:s0", ["", "", "container_t", "s0"]);
        check(":::s0:c0,c1", ["", "", "", "s0:c0,c1"]);
        check(
            "user_with_underscore:role-with-dash:type.with.dots:s0:c0.c1",
            ["user_with_underscore", "role-with-dash", "type.with.dots", "s0:c0.c1"],
        );
        check("user:role:type:s0:c0,c1:extra", ["user", "role", "type", "s0:c0,c1:extra"]);
        check(":::", [""; 4]);
        check(":::::", ["", "", "", "::"]);
    }

    /// Upstream's cases of `TestLabelsConflict`.
    #[test]
    fn conflicts() {
        let check = |a: &str, b: &str, want: bool| {
            assert_eq!((conflict(a, b), conflict(b, a)), (want, want), "{a} {b}");
        };
        check("", "", false);
        check("", "system_u:system_r:container_t", false);
        check("", "system_u:system_r:container_t:s0:c1,c2", true);
        check(":::", "system_u:system_r:container_t", false);
        check("system_u:system_r:container_t:", "system_u:system_r", false);
        check("system_u:system_r:conflict_t:", "system_u:system_r:container_t", true);
        check("::conflict_t", "::container_t", true);
        check("system_u::container_t", ":system_r::", false);
        check(":::s0:c1,c2", "", true);
    }
}
