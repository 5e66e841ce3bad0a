//! The functions and operators that there are: their overloads with upstream's names, by the version that brought them.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::types::Type;

/// A way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Upstream's name, by which costs are counted.
    pub(crate) id: &'static str,
    /// Whether the first argument stands before the point.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// The minor version of Kubernetes whose environment has it first, or [`JSON_PATCH`].
    pub(crate) since: u32,
}

/// Marks what only an environment for mutations has.
pub(crate) const JSON_PATCH: u32 = 1000;

/// One line a function and version: the version, the function, and its overloads. A point before the arguments marks a
/// function of the first one. `A` and `B` stand for any type, for the same one each time.
const TABLE: &str = include_str!("table.txt");

/// Every overload of a function; the name of the function as the table has it comes first.
pub(crate) fn find(name: &str) -> Option<(&'static str, &'static [Overload])> {
    static ALL: OnceLock<HashMap<&'static str, Vec<Overload>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: HashMap<&'static str, Vec<Overload>> = HashMap::new();
        for line in TABLE.lines() {
            let mut words = line.splitn(3, ' ');
            let since = words.next().and_then(|w| w.parse().ok()).unwrap_or_default();
            let (Some(name), Some(ways)) = (words.next(), words.next()) else { continue };
            all.entry(name).or_default().extend(ways.split("; ").map(|w| overload(w, since)));
        }
        all
    });
    all.get_key_value(name).map(|(name, all)| (*name, all.as_slice()))
}

/// Reads an overload such as `id .(A,B) C`.
fn overload(text: &'static str, since: u32) -> Overload {
    let (id, shape) = text.split_once(' ').unwrap_or((text, ""));
    let (args, result) = shape.rsplit_once(") ").unwrap_or((shape, "dyn"));
    let member = args.starts_with('.');
    let args = list(args.trim_start_matches(['.', '(']));
    Overload { id, member, args, result: read(result), since }
}

/// Reads types between commas.
fn list(text: &str) -> Vec<Type> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                out.push(read(&text[start..i]));
                start = i + 1;
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        out.push(read(&text[start..]));
    }
    out
}

/// The types of libraries whose inside only functions know and that cel-go does not take for objects.
const OPAQUE: &[&str] = &["net.IP", "net.CIDR"];

/// Reads a type.
fn read(text: &str) -> Type {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|t| t.split_once('<')) {
        let mut of = list(inner).into_iter();
        let mut next = || of.next().unwrap_or(Type::Dyn);
        return match outer {
            "list" => Type::list(next()),
            "map" => Type::map(next(), next()),
            "opt" => Type::optional(next()),
            _ => Type::type_of(next()),
        };
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "dyn" => Type::Dyn,
        "A" => Type::Param('A'),
        "B" => Type::Param('B'),
        name if OPAQUE.contains(&name) => Type::Opaque(name.into(), [].into()),
        name => Type::object(name),
    }
}
