//! Properties that hold for any expression. The fuzz target in `fuzz/` runs these, too.

use std::sync::{Arc, OnceLock};

use ferrokube_cel as cel;

use cel::schema::{Definition, Kind, Registry, declare, typed};
use cel::{Budget, Environment, Variables, Version};
use serde_json::{Value as Json, json};

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 1] = [("expression", expressions)];

/// The object that expressions are asked about, with a field of each type.
struct Subject {
    definition: Definition,
    object: Json,
}

fn subject() -> &'static Subject {
    static SUBJECT: OnceLock<Subject> = OnceLock::new();
    SUBJECT.get_or_init(|| {
        let of = |kind: Kind| Definition { kind, ..Definition::default() };
        let text = Arc::new(of(Kind::String));
        let list = Definition { items: Some(Arc::clone(&text)), ..of(Kind::Array) };
        let map = Definition { additional: Some(Arc::clone(&text)), ..of(Kind::Object) };
        let fields: Vec<(Arc<str>, Arc<Definition>)> = vec![
            ("s".into(), text),
            ("i".into(), Arc::new(of(Kind::Integer))),
            ("n".into(), Arc::new(of(Kind::Number))),
            ("b".into(), Arc::new(of(Kind::Boolean))),
            ("l".into(), Arc::new(list)),
            ("m".into(), Arc::new(map)),
        ];
        Subject {
            definition: Definition { properties: Some(fields), ..of(Kind::Object) }.completed(true),
            object: json!({"s": "a text", "i": 7, "n": 1.5, "b": true, "l": ["x", "y"], "m": {"k": "v"}}),
        }
    })
}

/// Any text is refused, or is an expression whose evaluation ends within its budget.
pub fn expressions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Subject { definition, object } = subject();
    let Some(declared) = declare(definition, "selfType", true) else { panic!("objects have a type") };
    let ty = declared.ty.clone();
    let env = Environment::new(Version::STORED)
        .with_objects(Arc::new(Registry::new(declared)))
        .with_variable("self", ty);
    let Ok(program) = env.compile(text) else { return };
    let Ok(value) = typed(object, definition) else { panic!("the object has its type") };
    let variables = Variables::default().with("self", value);
    let mut budget = Budget::new(100_000, 1_000_000);
    let first = program.evaluate(&variables, &mut budget).map(|v| format!("{v:?}"));
    let cost = budget.last();
    let mut again = Budget::new(100_000, 1_000_000);
    let second = program.evaluate(&variables, &mut again).map(|v| format!("{v:?}"));
    assert_eq!((first.is_ok(), cost), (second.is_ok(), again.last()), "an evaluation is the same each time");
}
