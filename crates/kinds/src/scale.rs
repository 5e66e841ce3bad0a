//! Where a kind has the numbers that its `scale` subresource shows.

use api::view::{Edit, View};
use api::{Map, Node, Schema, Struct, Text};

/// The places of a Scale's numbers in an object. Paths are names of fields from the object's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// The path of the wanted number of replicas.
    pub replicas: Vec<Text>,
    /// The path of the actual number of replicas.
    pub status_replicas: Vec<Text>,
    /// The path of the selector of the replicas' Pods.
    pub selector: Vec<Text>,
    /// The form of the selector.
    pub form: SelectorForm,
}

/// The form of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectorForm {
    /// A map of labels.
    Labels,
    /// A `metav1.LabelSelector`.
    LabelSelector,
    /// The text of a label selector.
    Text,
}

/// The struct that holds a path's last field, and that field.
fn parent<'a, 'p>(schema: &'a Schema, object: &'a Struct, path: &'p [Text]) -> Option<(View<'a>, &'p str)> {
    let (last, above) = path.split_last()?;
    Some((above.iter().fold(View::new(schema, object), |v, name| v.st(name)), last))
}

/// The value at a path in the values that a definition describes; `None` for a built-in kind, too.
fn custom<'a>(schema: &Schema, object: &'a Struct, path: &[Text]) -> Option<&'a Node> {
    let values = object.map(schema.st(object.id).rest.as_ref()?.field)?;
    let (last, above) = path.split_last()?;
    above.iter().try_fold(values, |map, name| map.get(name)?.as_map())?.get(last)
}

fn is_custom(schema: &Schema, object: &Struct) -> bool {
    schema.st(object.id).rest.is_some()
}

fn number(schema: &Schema, object: &Struct, path: &[Text]) -> i64 {
    if is_custom(schema, object) {
        return custom(schema, object, path).and_then(Node::as_int).unwrap_or(0);
    }
    parent(schema, object, path).map_or(0, |(v, name)| v.int(name))
}

impl Scale {
    /// The wanted number of replicas.
    pub fn replicas(&self, schema: &Schema, object: &Struct) -> i64 {
        number(schema, object, &self.replicas)
    }
    /// The actual number of replicas.
    pub fn status_replicas(&self, schema: &Schema, object: &Struct) -> i64 {
        number(schema, object, &self.status_replicas)
    }
    /// Whether the wanted number of replicas is there. A built-in kind always has one.
    pub fn has_replicas(&self, schema: &Schema, object: &Struct) -> bool {
        !is_custom(schema, object) || custom(schema, object, &self.replicas).is_some()
    }
    /// The path of the wanted number of replicas, as a definition has it.
    pub fn replicas_path(&self) -> String {
        self.replicas.iter().fold(String::new(), |path, name| path + "." + name)
    }
    /// Sets the wanted number of replicas.
    pub fn set_replicas(&self, schema: &Schema, object: &mut Struct, replicas: i64) {
        match &schema.st(object.id).rest {
            Some(rest) => {
                let values = object.get_or_insert_with(rest.field, || Map::new().into());
                set_custom(values, &self.replicas, replicas);
            }
            None => set(&mut Edit::new(schema, object), &self.replicas, replicas),
        }
    }
    /// The selector of the replicas' Pods, as the text of a label selector.
    pub fn selector(&self, schema: &Schema, object: &Struct) -> String {
        if is_custom(schema, object) {
            return custom(schema, object, &self.selector).map_or("", Node::as_str).to_owned();
        }
        let Some((v, name)) = parent(schema, object, &self.selector) else { return String::new() };
        match self.form {
            SelectorForm::Labels => {
                let mut all: Vec<String> = v.texts(name).map(|(k, v)| format!("{k}={v}")).collect();
                all.sort();
                all.join(",")
            }
            SelectorForm::LabelSelector => selector_text(&v.st(name)),
            SelectorForm::Text => v.str(name).to_owned(),
        }
    }
    /// The field of an object, with its value, that holds only the wanted number; for a configuration to apply.
    pub fn configuration(&self, replicas: Node) -> Option<(&str, Node)> {
        let (first, below) = self.replicas.split_first()?;
        let value = below.iter().rev().fold(replicas, |value, name| {
            let mut map = Map::new();
            map.insert(name.as_str(), value);
            Node::from(map)
        });
        Some((first, value))
    }
}

/// Sets the value at a path, whose objects are made where they are absent.
fn set_custom(at: &mut Node, path: &[Text], value: i64) {
    let Some((first, below)) = path.split_first() else {
        *at = Node::Int(value);
        return;
    };
    if at.as_map().is_none() {
        *at = Map::new().into();
    }
    let Some(map) = at.as_map_mut() else { return };
    let mut inner = map.remove(first).unwrap_or(Node::Null);
    set_custom(&mut inner, below, value);
    map.insert(first.clone(), inner);
}

fn set(e: &mut Edit<'_>, path: &[Text], value: i64) {
    match path {
        [] => {}
        [last] => e.set(last, value),
        [first, below @ ..] => {
            if let Some(mut part) = e.make(first) {
                set(&mut part, below, value);
            }
        }
    }
}

/// A `metav1.LabelSelector` as the text of a label selector: keys sorted, as upstream prints it.
fn selector_text(selector: &View<'_>) -> String {
    let mut terms: Vec<(String, String)> =
        selector.texts("matchLabels").map(|(k, v)| (k.to_owned(), format!("{k}={v}"))).collect();
    for e in selector.items("matchExpressions") {
        let key = e.str("key");
        let mut values: Vec<&str> = e.strs("values").collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match e.str("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), term));
    }
    // The terms are sorted by key alone: of one key, labels come before expressions.
    terms.sort_by(|a, b| a.0.cmp(&b.0));
    terms.into_iter().map(|t| t.1).collect::<Vec<_>>().join(",")
}
