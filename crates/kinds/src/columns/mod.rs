//! The columns in which kubectl shows a kind, as upstream's printers define them.

pub(crate) mod cluster;
pub(crate) mod core;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod storage;
pub(crate) mod workloads;

use api::schema::Gvk;
use api::{Schema, Struct, Text, names};
use jiff::Timestamp;
use serde_json::Value;

use api::view::View;

/// A column of a Table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Header.
    pub name: Text,
    /// OpenAPI type: `string`, `integer`, `date`.
    pub kind: Text,
    /// OpenAPI format; `name` marks the object's name.
    pub format: Text,
    /// The meaning of the column.
    pub description: Description,
    /// 0 if the column is always shown; a greater one is shown only in wide output.
    pub priority: i32,
}

/// The meaning of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Description {
    /// This text.
    Text(Text),
    /// The description of a field of a definition.
    Field {
        /// The definition, such as `io.k8s.api.core.v1.PodSpec`.
        definition: Text,
        /// The JSON name of the definition's field.
        field: Text,
    },
}

/// A column of a built-in kind.
#[derive(Clone, Copy)]
pub(crate) struct Definition {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// The meaning; if it is empty, the table of descriptions may have it.
    description: &'static str,
    priority: i32,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// The cells, in the order of the columns.
    pub cells: Vec<Value>,
    /// `TableRowCondition`s, such as a Pod's `Completed`.
    pub conditions: Vec<Value>,
}

/// The columns of a built-in kind. Trees are of the version that is kept.
pub(crate) struct Columns {
    definitions: &'static [Definition],
    /// A row of an object at a point in time.
    pub(crate) cells: fn(&Schema, &Struct, Timestamp) -> Row,
}

const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column with an object's name.
const NAME: Definition = Definition {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

/// The columns of a kind without a printer of its own.
pub(crate) const USUAL: &Columns = &Columns {
    definitions: &[
        NAME,
        Definition { name: "Created At", kind: "date", format: "", description: CREATED, priority: 0 },
    ],
    cells: |schema, tree, _| {
        let meta = View::new(schema, tree).st("metadata");
        let created = meta.str("creationTimestamp");
        let created = if created.is_empty() { "<unknown>" } else { created };
        Row { cells: vec![meta.str("name").into(), created.into()], conditions: Vec::new() }
    },
};

/// The columns of an object that is of no resource, such as the answer of a subresource.
pub struct Shown {
    /// The columns.
    pub columns: Vec<Column>,
    /// A row of an object at a point in time.
    pub row: fn(&Schema, &Struct, Timestamp) -> Row,
}

impl Shown {
    /// The columns of a kind.
    pub fn of(kind: &Gvk) -> Self {
        let (columns, described_as) = match (kind.group.as_str(), kind.kind.as_str()) {
            ("autoscaling", "Scale") => (workloads::SCALE, "scale"),
            _ => (USUAL, ""),
        };
        Self { columns: columns.of(described_as), row: columns.cells }
    }
}

impl Columns {
    /// The columns with their descriptions, which stand under the resource's plural name.
    pub(crate) fn of(&self, resource: &str) -> Vec<Column> {
        self.definitions
            .iter()
            .map(|d| Column {
                name: d.name.into(),
                kind: d.kind.into(),
                format: d.format.into(),
                description: match d.description {
                    "" => description(resource, d.name),
                    text => Description::Text(text.into()),
                },
                priority: d.priority,
            })
            .collect()
    }
}

/// The meaning of a column, by resource and name, if it is not the name or age.
fn description(resource: &str, column: &str) -> Description {
    let text = include_str!("descriptions.tsv").lines().filter(|l| !l.starts_with('#')).find_map(|l| {
        let (of, rest) = l.split_once('\t')?;
        let (name, text) = rest.split_once('\t')?;
        (of == resource && name == column).then_some(text)
    });
    let text = text.unwrap_or_default();
    match text.strip_prefix('=').and_then(|f| f.split_once('#')) {
        Some((definition, field)) => {
            Description::Field { definition: definition.into(), field: field.into() }
        }
        None => Description::Text(text.replace("\\n", "\n").into()),
    }
}

const fn column(name: &'static str, kind: &'static str, priority: i32) -> Definition {
    Definition { name, kind, format: "", description: "", priority }
}
/// A column of text.
const fn text(name: &'static str) -> Definition {
    column(name, "string", 0)
}
/// A column of numbers.
const fn number(name: &'static str) -> Definition {
    column(name, "integer", 0)
}
/// A column of yes or no.
const fn flag(name: &'static str) -> Definition {
    column(name, "boolean", 0)
}
/// A column of text in wide output only.
const fn wide(name: &'static str) -> Definition {
    column(name, "string", 1)
}
const AGE: Definition = Definition { description: CREATED, ..text("Age") };

/// The column with an object's name, of a kind that is not built in.
pub(crate) fn name_column() -> Column {
    Column {
        name: NAME.name.into(),
        kind: NAME.kind.into(),
        format: NAME.format.into(),
        description: Description::Text(NAME.description.into()),
        priority: 0,
    }
}

/// The meaning of the column with an object's age.
pub(crate) const fn age_description() -> &'static str {
    CREATED
}

/// A list of at most `max` parts, with how many more there are.
fn some_of(parts: &[String], max: usize) -> String {
    if parts.len() > max {
        format!("{} + {} more...", parts[..max].join(","), parts.len() - max)
    } else {
        parts.join(",")
    }
}

/// A text, or its substitute if it is empty.
fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

/// The time since a point in time, as kubectl prints it; `<unknown>` for none.
pub(crate) fn since(time: &str, now: Timestamp) -> String {
    match api::time::parse(time) {
        Some(t) => human_duration(now.duration_since(t).as_secs()),
        None => "<unknown>".into(),
    }
}

/// A duration in seconds in its two largest units (`k8s.io/apimachinery/pkg/util/duration`).
fn human_duration(seconds: i64) -> String {
    let with = |n: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 { format!("{n}{unit}") } else { format!("{n}{unit}{rest}{small}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => with(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => with(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => with(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// The object and the schema from which a row is made.
struct Maker<'a> {
    object: View<'a>,
    meta: View<'a>,
    spec: View<'a>,
    status: View<'a>,
    now: Timestamp,
}

impl<'a> Maker<'a> {
    fn new(schema: &'a Schema, tree: &'a Struct, now: Timestamp) -> Self {
        let object = View::new(schema, tree);
        let part = |name: &str| if object.knows(name) { object.st(name) } else { View::empty(schema) };
        Self { object, meta: object.st("metadata"), spec: part("spec"), status: part("status"), now }
    }
    fn name(&self) -> Value {
        self.meta.str("name").into()
    }
    fn age(&self) -> Value {
        since(self.meta.str("creationTimestamp"), self.now).into()
    }
    fn since(&self, time: &str) -> String {
        since(time, self.now)
    }
}

/// The names and images of containers.
fn containers(pod_spec: View<'_>) -> [Value; 2] {
    let all = |field: &str| pod_spec.items("containers").map(|c| c.str(field)).collect::<Vec<_>>().join(",");
    [all("name").into(), all("image").into()]
}

/// A map of labels as a selector text.
fn labels<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let parts: Vec<String> = entries.map(|(k, v)| format!("{k}={v}")).collect();
    or(&parts.join(","), "<none>").to_owned()
}

/// A `LabelSelector` as text, sorted by key; nothing if it is not a valid one.
fn requirements(s: View<'_>) -> Option<String> {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in s.texts("matchLabels") {
        parts.push((key, valid(key, &[value], format!("{key}={value}"))?));
    }
    for e in s.items("matchExpressions") {
        let key = e.str("key");
        let mut values: Vec<&str> = e.strs("values").collect();
        values.sort_unstable();
        let text = match (e.str("operator"), values.is_empty()) {
            ("In", false) => format!("{key} in ({})", values.join(",")),
            ("NotIn", false) => format!("{key} notin ({})", values.join(",")),
            ("Exists", true) => key.to_owned(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        parts.push((key, valid(key, &values, text)?));
    }
    parts.sort_by_key(|p| p.0);
    Some(parts.into_iter().map(|p| p.1).collect::<Vec<_>>().join(","))
}

fn valid(key: &str, values: &[&str], text: String) -> Option<String> {
    let fits =
        names::qualified_name(key).is_empty() && values.iter().all(|v| names::label_value(v).is_empty());
    fits.then_some(text)
}

/// A `LabelSelector` as most kinds show it: `<none>` if there is none, or if it selects everything.
fn selector(s: Option<View<'_>>) -> String {
    match s.map_or_else(|| Some(String::new()), requirements) {
        Some(text) => or(&text, "<none>").to_owned(),
        None => "<error>".into(),
    }
}

/// The name, marked if an annotation makes the class the default one.
fn default_name(m: &Maker<'_>, annotation: &str) -> Value {
    let default = m.meta.texts("annotations").any(|(k, v)| k == annotation && v == "true");
    format!("{}{}", m.meta.str("name"), if default { " (default)" } else { "" }).into()
}

/// Declares columns and the function that fills them.
macro_rules! shown {
    ([$($column:expr),* $(,)?], |$m:ident| $cells:expr) => {
        $crate::columns::Columns {
            definitions: &[$($column),*],
            cells: |schema, tree, now| {
                let $m = $crate::columns::Maker::new(schema, tree, now);
                $crate::columns::Row { cells: Vec::from($cells), conditions: Vec::new() }
            },
        }
    };
}
use shown;

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[test]
    fn durations_as_kubectl_says_them() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (3599, "59m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (86_400, "24h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (86_400 * 30, "30d"),
            (86_400 * 365 * 3, "3y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
