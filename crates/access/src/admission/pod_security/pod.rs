//! A pod as checks see it, and what they hold against it in words.

use api::view::View;

/// A pod, or what would become one.
#[derive(Clone, Copy)]
pub(super) struct Pod<'a> {
    pub(super) metadata: View<'a>,
    pub(super) spec: View<'a>,
}

impl<'a> Pod<'a> {
    /// Of a tree that has both, a pod or a template.
    pub(super) fn of(tree: View<'a>) -> Self {
        Self { metadata: tree.st("metadata"), spec: tree.st("spec") }
    }
    /// The containers of all sorts, in the order in which upstream goes through them.
    pub(super) fn containers(self) -> impl Iterator<Item = View<'a>> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| self.spec.items(list))
    }
}

/// A violation that a check finds in a pod.
#[derive(Debug, PartialEq)]
pub(super) struct Violation {
    /// In as few words as possible; the same for every pod.
    pub(super) reason: &'static str,
    /// The part of the pod that violates the check.
    pub(super) detail: String,
}

/// `"a", "b"`
pub(super) fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    items.into_iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ")
}

/// The word for one or for many.
pub(super) fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names.iter().copied()))
}

/// Who set something: the pod, containers, or both; `None` if nobody did.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".into()),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}

/// Whether the pod has users of its own, so that root in it is nobody on the node.
pub(super) fn has_own_users(pod: &Pod<'_>) -> bool {
    pod.spec.opt_bool("hostUsers") == Some(false)
}

/// Whether the pod is for Windows nodes, which lack what some checks ask for.
pub(super) fn is_windows(pod: &Pod<'_>) -> bool {
    pod.spec.st("os").str("name") == "windows"
}
