//! The tree of an expression. Each expression has a number, by which its place, its type and its overloads are found.

use std::sync::Arc;

/// The number of an expression, from 1.
pub(crate) type Id = u32;

/// An expression.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
}

/// A value that stands in the source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// The form of an expression.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// What is there in place of what could not be read.
    Missing,
    Literal(Literal),
    Name(Arc<str>),
    /// A field; `test` asks whether it is there.
    Select {
        of: Box<Expr>,
        field: Arc<str>,
        test: bool,
    },
    Call(Call),
    /// The elements, and whether each is optional.
    List(Vec<(Expr, bool)>),
    Map(Vec<Entry>),
    /// An object of a named type.
    Object {
        name: Arc<str>,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
}

/// A function, an operator, or (before they are expanded) a macro.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: Arc<str>,
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) args: Vec<Expr>,
}

/// An entry of a map.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A field of an object that is made.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) id: Id,
    pub(crate) name: Arc<str>,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop over a list or a map.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) var: Arc<str>,
    pub(crate) var2: Option<Arc<str>>,
    pub(crate) accu: Arc<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Expr {
    /// The expressions directly below this one.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            Kind::Missing | Kind::Literal(_) | Kind::Name(_) => Vec::new(),
            Kind::Select { of, .. } => vec![of],
            Kind::Call(c) => c.target.iter().map(|t| &**t).chain(&c.args).collect(),
            Kind::List(items) => items.iter().map(|(e, _)| e).collect(),
            Kind::Map(entries) => entries.iter().flat_map(|e| [&e.key, &e.value]).collect(),
            Kind::Object { fields, .. } => fields.iter().map(|f| &f.value).collect(),
            Kind::Fold(f) => vec![&f.range, &f.init, &f.condition, &f.step, &f.result],
        }
    }

    /// The number of expressions that stand in one another, from here.
    pub(crate) fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut open = vec![(self, 1)];
        while let Some((e, depth)) = open.pop() {
            deepest = deepest.max(depth);
            open.extend(e.children().into_iter().map(|c| (c, depth + 1)));
        }
        deepest
    }

    /// Every expression below this one and itself, parents first.
    pub(crate) fn all(&self) -> Vec<&Expr> {
        let mut out = Vec::new();
        let mut open = vec![self];
        while let Some(e) = open.pop() {
            out.push(e);
            open.extend(e.children().into_iter().rev());
        }
        out
    }
}

/// An expression of names and points as one name, such as `a.b.c`.
pub(crate) fn qualified(e: &Expr) -> Option<String> {
    match &e.kind {
        Kind::Name(name) => Some(name.to_string()),
        Kind::Select { of, field, test: false } => Some(format!("{}.{field}", qualified(of)?)),
        _ => None,
    }
}

/// The name of the variable in which a macro gathers its result.
pub(crate) const ACCUMULATOR: &str = "@result";
/// The name of the loop variable of a macro that only binds a name.
pub(crate) const UNUSED: &str = "#unused";

/// The functions that operators stand for.
pub(crate) mod operator {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const NOT_FALSE: &str = "@not_strictly_false";
}
