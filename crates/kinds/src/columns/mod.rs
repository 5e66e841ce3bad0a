//! The columns in which kubectl shows a kind, as upstream's printers define them.

mod core;
mod groups;

use api::{Schema, Struct, names};
use jiff::Timestamp;
use serde_json::Value;

use api::view::View;

/// A column of a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer`, `date`.
    pub kind: &'static str,
    /// OpenAPI format; `name` marks the object's name.
    pub format: &'static str,
    /// What it tells; if it is empty, [`descriptions`] may know.
    pub description: &'static str,
    /// 0 is always shown, above only in wide output.
    pub priority: i32,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// The cells, in the order of the columns.
    pub cells: Vec<Value>,
    /// `TableRowCondition`s, such as a Pod's `Completed`.
    pub conditions: Vec<Value>,
}

/// How a resource is shown. Trees are of the storage version.
pub struct Columns {
    /// The columns.
    pub definitions: &'static [Column],
    /// A row of an object at a point in time.
    pub cells: fn(&Schema, &Struct, Timestamp) -> Row,
}

const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column with an object's name.
pub const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

static FALLBACK: Columns = Columns {
    definitions: &[
        NAME,
        Column { name: "Created At", kind: "date", format: "", description: CREATED, priority: 0 },
    ],
    cells: |schema, tree, _| {
        let meta = View::new(schema, tree).st("metadata");
        let created = meta.str("creationTimestamp");
        let created = if created.is_empty() { "<unknown>" } else { created };
        Row { cells: vec![meta.str("name").into(), created.into()], conditions: Vec::new() }
    },
};

/// The columns of a kind without a printer of its own.
pub fn fallback() -> &'static Columns {
    &FALLBACK
}

/// The columns of a resource.
pub fn columns(group: &str, resource: &str) -> &'static Columns {
    core::of(group, resource).or_else(|| groups::of(group, resource)).unwrap_or(&FALLBACK)
}

/// What a column tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Description {
    /// This text, in which `\n` stands for a line's end.
    Text(&'static str),
    /// What a field of a definition is described as.
    Field {
        /// The definition, such as `io.k8s.api.core.v1.PodSpec`.
        definition: &'static str,
        /// The JSON name of its field.
        field: &'static str,
    },
}

/// The descriptions of the columns that have one besides names and ages: resource, column, description.
pub fn descriptions() -> impl Iterator<Item = (&'static str, &'static str, Description)> {
    include_str!("descriptions.tsv").lines().filter(|l| !l.starts_with('#')).filter_map(|l| {
        let (resource, rest) = l.split_once('\t')?;
        let (column, text) = rest.split_once('\t')?;
        let description = match text.strip_prefix('=').and_then(|f| f.split_once('#')) {
            Some((definition, field)) => Description::Field { definition, field },
            None => Description::Text(text),
        };
        Some((resource, column, description))
    })
}

const fn column(name: &'static str, kind: &'static str, priority: i32) -> Column {
    Column { name, kind, format: "", description: "", priority }
}
/// A column of text.
const fn text(name: &'static str) -> Column {
    column(name, "string", 0)
}
/// A column of numbers.
const fn number(name: &'static str) -> Column {
    column(name, "integer", 0)
}
/// A column of yes or no.
const fn flag(name: &'static str) -> Column {
    column(name, "boolean", 0)
}
/// A column of text in wide output only.
const fn wide(name: &'static str) -> Column {
    column(name, "string", 1)
}
const AGE: Column = Column { description: CREATED, ..text("Age") };

/// A list of at most `max` parts, with how many more there are.
fn some_of(parts: &[String], max: usize) -> String {
    if parts.len() > max {
        format!("{} + {} more...", parts[..max].join(","), parts.len() - max)
    } else {
        parts.join(",")
    }
}

/// Text, or what stands for none.
fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

/// How long ago a time was, as kubectl says it; `<unknown>` for none.
fn since(time: &str, now: Timestamp) -> String {
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

/// What a row is made of.
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

/// Declares columns and the function that fills them.
macro_rules! shown {
    ([$($column:expr),* $(,)?], |$m:ident| $cells:expr) => {{
        static COLUMNS: $crate::columns::Columns = $crate::columns::Columns {
            definitions: &[$($column),*],
            cells: |schema, tree, now| {
                let $m = $crate::columns::Maker::new(schema, tree, now);
                $crate::columns::Row { cells: Vec::from($cells), conditions: Vec::new() }
            },
        };
        Some(&COLUMNS)
    }};
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
