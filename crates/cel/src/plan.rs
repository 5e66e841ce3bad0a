//! Plans: expressions made ready to be evaluated. What is constant is worked out once, and names are places.
//!
//! The forms are those of cel-go's interpreter, because costs are counted by its steps.

use std::sync::Arc;

use crate::ast::{self, Call, Expr, Fold, Kind, Literal, operator as op};
use crate::check::{Checked, Meaning};
use crate::library::{self, Function, Pattern};
use crate::value::{MapValue, Text, Value, contains};

/// A step.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    NotFalse(Box<Node>),
    /// Whether a value is in a list of constants.
    Member {
        of: Box<Node>,
        list: Value<'static>,
    },
    Call(Box<CallNode>),
    /// The elements, and whether each is optional.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Object {
        name: Arc<str>,
        fields: Vec<(Arc<str>, Node, bool)>,
    },
    Fold(Box<FoldNode>),
    /// `or` and `orValue`.
    OptionalOr {
        of: Box<[Node; 2]>,
        value: bool,
    },
}

/// A variable or another value, and a way through it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Arc<Qualifier>>,
    /// Whether it only asks whether something is there.
    pub(crate) test: bool,
}

/// The beginning of a way.
#[derive(Debug)]
pub(crate) enum Base {
    /// A variable of the environment.
    Variable(Arc<str>),
    /// A variable of a macro, by its place.
    Local(usize),
    Operand(Node),
    Conditional {
        condition: Node,
        yes: Box<Attribute>,
        no: Box<Attribute>,
    },
}

/// A step of a way.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: Key,
    /// Whether absence is no error.
    pub(crate) optional: bool,
    /// Whether it only asks whether something is there.
    pub(crate) test: bool,
}

/// A key, index or field.
#[derive(Debug)]
pub(crate) enum Key {
    Const(Value<'static>),
    Of(Attribute),
}

/// A call.
#[derive(Debug)]
pub(crate) struct CallNode {
    pub(crate) function: &'static str,
    /// Upstream's name of the overload, if there is only one.
    pub(crate) overload: &'static str,
    pub(crate) run: Run,
    pub(crate) args: Vec<Node>,
    /// Whether the first argument that fails ends it, before it costs anything.
    pub(crate) eager: bool,
}

/// What a call does.
pub(crate) enum Run {
    Function(Function),
    Pattern(Pattern),
    /// It asks the authorizer.
    Check,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Function(_) => "Function",
            Self::Pattern(_) => "Pattern",
            Self::Check => "Check",
        })
    }
}

/// A loop. The places of its variables follow each other: accumulator, first, second.
#[derive(Debug)]
pub(crate) struct FoldNode {
    pub(crate) range: Node,
    pub(crate) place: usize,
    pub(crate) two: bool,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

/// A plan, and the number of places that it needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: Node,
    pub(crate) places: usize,
}

/// Functions that are worked out at once where their argument is constant.
const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
/// Functions of which cel-go has one implementation for all overloads.
const SINGLE: &[&str] = &[
    "!_",
    "_+_",
    "_-_",
    "_*_",
    "_/_",
    "_%_",
    "-_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "_==_",
    "_!=_",
    "@in",
    "size",
    "type",
    "dyn",
    "sort",
    "@sortByAssociatedKeys",
    "matches",
    "@not_strictly_false",
];

/// Makes a plan; an error is a constant that no evaluation can make a value of.
pub(crate) fn plan(checked: &Checked) -> Result<Plan, String> {
    let mut planner = Planner { checked, local: Vec::new(), places: 0 };
    let root = planner.node(&checked.tree)?;
    Ok(Plan { root, places: planner.places })
}

struct Planner<'a> {
    checked: &'a Checked,
    /// The names of macros' variables and their places, the innermost last.
    local: Vec<(Arc<str>, usize)>,
    places: usize,
}

type Planned = Result<Node, String>;

fn way(base: Base) -> Attribute {
    Attribute { base, qualifiers: Vec::new(), test: false }
}

/// A node as the beginning of a way.
fn as_attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute(a) => *a,
        other => way(Base::Operand(other)),
    }
}

impl Attribute {
    fn add(&mut self, qualifier: &Arc<Qualifier>) {
        match &mut self.base {
            Base::Conditional { yes, no, .. } => {
                yes.add(qualifier);
                no.add(qualifier);
            }
            _ => self.qualifiers.push(qualifier.clone()),
        }
    }
}

impl Planner<'_> {
    fn node(&mut self, e: &Expr) -> Planned {
        match &e.kind {
            Kind::Missing => Err("missing expression".into()),
            Kind::Literal(l) => Ok(Node::Const(literal(l))),
            Kind::Name(name) => Ok(self.name(e, name)),
            Kind::Select { of, field, test } => {
                let key = Key::Const(Value::String(Text::Shared(field.clone())));
                self.qualified(of, key, false, *test)
            }
            Kind::Call(call) => self.call(e, call),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Object { name, fields } => {
                let fields = fields
                    .iter()
                    .map(|f| Ok((f.name.clone(), self.node(&f.value)?, f.optional)))
                    .collect::<Result<_, String>>()?;
                Ok(Node::Object { name: name.clone(), fields })
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn name(&self, e: &Expr, name: &Arc<str>) -> Node {
        if let Some(Meaning::Type(of)) = self.checked.meaning(e) {
            return Node::Const(Value::Type(of.runtime_name().into()));
        }
        let local = self.local.iter().rev().find(|(n, _)| n == name);
        let base = match local {
            Some((_, place)) => Base::Local(*place),
            None => Base::Variable(name.clone()),
        };
        Node::Attribute(Box::new(way(base)))
    }

    fn qualified(&mut self, of: &Expr, key: Key, optional: bool, test: bool) -> Planned {
        let mut attribute = as_attribute(self.node(of)?);
        attribute.add(&Arc::new(Qualifier { key, optional, test }));
        attribute.test = test;
        Ok(Node::Attribute(Box::new(attribute)))
    }

    fn index(&mut self, of: &Expr, by: &Expr, optional: bool) -> Planned {
        let key = match self.node(by)? {
            Node::Const(v) => match v {
                Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                    Key::Const(v)
                }
                other => return Err(format!("invalid qualifier type: {}", other.type_name())),
            },
            other => Key::Of(as_attribute(other)),
        };
        self.qualified(of, key, optional, false)
    }

    fn call(&mut self, e: &Expr, call: &Call) -> Planned {
        let overloads = self.checked.overloads(e);
        let overload = if let [one] = overloads { one.id } else { "" };
        match (&*call.function, &call.args[..]) {
            (op::AND, [a, b]) => Ok(Node::And(Box::new([self.node(a)?, self.node(b)?]))),
            (op::OR, [a, b]) => Ok(Node::Or(Box::new([self.node(a)?, self.node(b)?]))),
            (op::NOT_FALSE, [a]) => Ok(Node::NotFalse(Box::new(self.node(a)?))),
            (op::CONDITIONAL, [condition, yes, no]) => {
                let condition = self.node(condition)?;
                let yes = Box::new(as_attribute(self.node(yes)?));
                let no = Box::new(as_attribute(self.node(no)?));
                Ok(Node::Attribute(Box::new(way(Base::Conditional { condition, yes, no }))))
            }
            (op::INDEX, [of, by]) => self.index(of, by, false),
            (op::OPT_INDEX | op::OPT_SELECT, [of, by]) => self.index(of, by, true),
            (name @ ("or" | "orValue"), [b]) if call.target.is_some() => {
                let value = name == "orValue";
                let Some(a) = &call.target else { return Err("no target".into()) };
                Ok(Node::OptionalOr { of: Box::new([self.node(a)?, self.node(b)?]), value })
            }
            _ => self.function(call, overload),
        }
    }

    fn function(&mut self, call: &Call, overload: &'static str) -> Planned {
        let mut args = Vec::new();
        for arg in call.target.iter().map(|t| &**t).chain(&call.args) {
            args.push(self.node(arg)?);
        }
        let name = crate::functions::find(&call.function).map_or("", |(n, _)| n);
        if name == "check" {
            return Ok(Node::Call(Box::new(CallNode {
                function: name,
                overload,
                run: Run::Check,
                args,
                eager: false,
            })));
        }
        let Some(run) = library::find_overload(overload).or_else(|| library::find(name)) else {
            return Err(format!("no such overload: {name}"));
        };
        if CONVERSIONS.contains(&name)
            && let [Node::Const(v)] = &args[..]
        {
            let folded = library::call(name, run, std::slice::from_ref(v)).map_err(|e| e.to_string())?;
            return Ok(Node::Const(folded));
        }
        if overload == "in_list"
            && let Some(Node::Const(list)) = args.get(1)
            && let Ok(items) = list.items()
        {
            if items.is_empty() {
                return Ok(Node::Const(Value::Bool(false)));
            }
            if items.iter().all(primitive) {
                let list = list.clone();
                return Ok(Node::Member { of: Box::new(args.swap_remove(0)), list });
            }
        }
        let pattern = match (name, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Const(Value::String(s)))) => {
                Some(library::compile(s)?)
            }
            _ => None,
        };
        let eager = args.len() > 2
            || name == "format"
            || pattern.is_some()
            || overload.is_empty() && !SINGLE.contains(&name);
        let run = pattern.map_or(Run::Function(run), Run::Pattern);
        Ok(Node::Call(Box::new(CallNode { function: name, overload, run, args, eager })))
    }

    fn list(&mut self, items: &[(Expr, bool)]) -> Planned {
        let mut nodes = Vec::new();
        for (item, optional) in items {
            nodes.push((self.node(item)?, *optional));
        }
        let constant = nodes.iter().map(|(n, optional)| match n {
            Node::Const(v) if !optional => Some(v.clone()),
            _ => None,
        });
        match constant.collect::<Option<Vec<_>>>() {
            Some(values) => Ok(Node::Const(Value::list(values))),
            None => Ok(Node::List(nodes)),
        }
    }

    fn map(&mut self, entries: &[ast::Entry]) -> Planned {
        let mut nodes = Vec::new();
        for e in entries {
            nodes.push((self.node(&e.key)?, self.node(&e.value)?, e.optional));
        }
        let mut map = MapValue::default();
        for (key, value, optional) in &nodes {
            match (key, value, optional) {
                (Node::Const(k), Node::Const(v), false) if map.insert(k.clone(), v.clone()).is_ok() => {}
                _ => return Ok(Node::Map(nodes)),
            }
        }
        Ok(Node::Const(Value::Map(Arc::new(map))))
    }

    fn fold(&mut self, fold: &Fold) -> Planned {
        let range = self.node(&fold.range)?;
        let before = self.local.len();
        let place = self.local.last().map_or(0, |(_, last)| last + 1);
        self.places = self.places.max(place + 3);
        // The first value is worked out when somebody asks for it: these places are taken then, but have no names yet.
        self.local.push(("".into(), place + 2));
        let init = self.node(&fold.init)?;
        self.local.truncate(before);
        self.local.push((fold.accu.clone(), place));
        self.local.push((fold.var.clone(), place + 1));
        // A second variable that is not there has a name that no expression can have.
        let second = fold.var2.clone().unwrap_or_else(|| "".into());
        self.local.push((second, place + 2));
        let condition = self.node(&fold.condition)?;
        let step = self.node(&fold.step)?;
        self.local[before + 1].0 = "".into();
        self.local[before + 2].0 = "".into();
        let result = self.node(&fold.result)?;
        self.local.truncate(before);
        let two = fold.var2.is_some();
        Ok(Node::Fold(Box::new(FoldNode { range, place, two, init, condition, step, result })))
    }
}

fn primitive(v: &Value<'_>) -> bool {
    // A value that is not equal to itself is in no list, but cel-go finds it in its set.
    let itself = || contains(&Value::list(vec![v.clone()]), v).unwrap_or_default();
    matches!(v, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_))
        || matches!(v, Value::Double(_)) && itself()
}

/// A literal as a value.
pub(crate) fn literal(l: &Literal) -> Value<'static> {
    match l {
        Literal::Null => Value::Null,
        Literal::Bool(b) => Value::Bool(*b),
        Literal::Int(i) => Value::Int(*i),
        Literal::Uint(u) => Value::Uint(*u),
        Literal::Double(d) => Value::Double(*d),
        Literal::String(s) => Value::String(Text::Shared(s.clone())),
        Literal::Bytes(b) => Value::Bytes(b.clone()),
    }
}
