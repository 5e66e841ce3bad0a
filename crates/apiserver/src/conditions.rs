//! Small rules over trees that several handlers need: conditions, label selectors.

use api::view::{Edit, View};
use api::{Node, Object, Schema, Struct};

/// A condition to set.
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Sets a condition in `status.conditions` of a tree; the transition's time changes with the status only.
pub(crate) fn set(schema: &Schema, tree: &mut Struct, condition: &Condition<'_>, now: &str) {
    let mut edit = Edit::new(schema, tree);
    let Some(mut status) = edit.make("status") else { return };
    let had = status
        .view()
        .items("conditions")
        .find(|c| c.str("type") == condition.kind)
        .map(|c| (c.str("status").to_owned(), c.str("lastTransitionTime").to_owned()));
    let since = match &had {
        Some((s, since)) if s == condition.status => since.clone(),
        _ => now.to_owned(),
    };
    let Some(fresh) = status.fresh("conditions") else { return };
    let mut fresh = fresh;
    {
        let mut c = Edit::new(schema, &mut fresh);
        c.set("type", condition.kind);
        c.set("status", condition.status);
        c.set("lastTransitionTime", since);
        c.set("reason", condition.reason);
        c.set("message", condition.message);
    }
    let mut all = status.remove("conditions").map_or_else(Vec::new, |n| match n {
        Node::List(l) => l,
        _ => Vec::new(),
    });
    let place = all
        .iter()
        .position(|n| n.as_struct().is_some_and(|s| View::new(schema, s).str("type") == condition.kind));
    match place {
        Some(i) => all[i] = Node::from(fresh),
        None => all.push(Node::from(fresh)),
    }
    status.set("conditions", all);
}

/// Whether a `metav1.LabelSelector` selects an object; an empty one selects everything.
pub(crate) fn selects(selector: &View<'_>, object: &Object) -> bool {
    selector.texts("matchLabels").all(|(k, v)| object.label(k) == Some(v))
        && selector.items("matchExpressions").all(|e| {
            let has = object.label(e.str("key"));
            match e.str("operator") {
                "In" => has.is_some_and(|h| e.strs("values").any(|v| v == h)),
                "NotIn" => has.is_none_or(|h| e.strs("values").all(|v| v != h)),
                "Exists" => has.is_some(),
                "DoesNotExist" => has.is_none(),
                _ => false,
            }
        })
}
