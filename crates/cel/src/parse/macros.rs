//! Macros: calls that stand for other expressions.

use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Expr, Fold, Id, Kind, UNUSED, operator as op};

use super::build::{Builder, name_of};

/// The macros that an environment has besides those of the language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MacroSet {
    pub(crate) optionals: bool,
    pub(crate) two_variables: bool,
    pub(crate) bindings: bool,
    pub(crate) sort: bool,
}

/// A fault of a macro's argument.
pub(super) struct Fault {
    pub(super) id: Id,
    pub(super) text: String,
}

impl Fault {
    fn new(of: &Expr, text: impl Into<String>) -> Self {
        Self { id: of.id, text: text.into() }
    }
}

type Expanded = Result<Expr, Fault>;
type Expander = fn(&mut Builder<'_>, Expr, Vec<Expr>) -> Expanded;

/// The macro that a call is: the function that expands it.
pub(super) fn find(set: &MacroSet, name: &str, target: Option<&Expr>, args: usize) -> Option<Expander> {
    let Some(target) = target else {
        return None;
    };
    Some(match (name, args) {
        ("all", 2) => |b, t, a| quantifier(b, t, &a[..1], a[1].clone(), Quantifier::All),
        ("exists", 2) => |b, t, a| quantifier(b, t, &a[..1], a[1].clone(), Quantifier::Exists),
        ("exists_one", 2) => |b, t, a| quantifier(b, t, &a[..1], a[1].clone(), Quantifier::One),
        ("map", 2 | 3) => map,
        ("filter", 2) => filter,
        ("all", 3) if set.two_variables => |b, t, a| quantifier(b, t, &a[..2], a[2].clone(), Quantifier::All),
        ("exists", 3) if set.two_variables => {
            |b, t, a| quantifier(b, t, &a[..2], a[2].clone(), Quantifier::Exists)
        }
        ("exists_one" | "existsOne", 3) if set.two_variables => {
            |b, t, a| quantifier(b, t, &a[..2], a[2].clone(), Quantifier::One)
        }
        ("transformList", 3 | 4) if set.two_variables => |b, t, a| transform(b, t, a, Gather::List),
        ("transformMap", 3 | 4) if set.two_variables => |b, t, a| transform(b, t, a, Gather::Map),
        ("transformMapEntry", 3 | 4) if set.two_variables => |b, t, a| transform(b, t, a, Gather::Entries),
        ("optMap", 2) if set.optionals => |b, t, a| opt_map(b, t, a, "optMap"),
        ("optFlatMap", 2) if set.optionals => |b, t, a| opt_map(b, t, a, "optFlatMap"),
        ("bind", 3) if set.bindings && name_of(target).is_some_and(|n| &*n == "cel") => bind,
        ("sortBy", 2) if set.sort => sort_by,
        _ => return None,
    })
}

/// `has(a.b)`.
pub(super) fn has(b: &mut Builder<'_>, arg: Expr) -> Expanded {
    match arg.kind {
        Kind::Select { of, field, test: _ } => Ok(b.expr(Kind::Select { of, field, test: true })),
        _ => Err(Fault::new(&arg, "invalid argument to has() macro")),
    }
}

fn overwrites(name: &str) -> bool {
    name == ACCUMULATOR || name == "__result__"
}

const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

/// The names of a loop's variables, of which there are one or two.
fn variables(args: &[Expr], not_a_name: &str) -> Result<(Arc<str>, Option<Arc<str>>), Fault> {
    let mut names = Vec::new();
    for arg in args {
        names.push(name_of(arg).ok_or_else(|| Fault::new(arg, not_a_name))?);
    }
    if let ([a, b], [_, arg]) = (&names[..], args)
        && a == b
    {
        return Err(Fault::new(arg, format!("duplicate variable name: {a}")));
    }
    if let Some((arg, _)) = args.iter().zip(&names).find(|(_, n)| overwrites(n)) {
        return Err(Fault::new(arg, OVERWRITES));
    }
    let mut names = names.into_iter();
    Ok((names.next().unwrap_or_else(|| UNUSED.into()), names.next()))
}

enum Quantifier {
    All,
    Exists,
    One,
}

fn quantifier(b: &mut Builder<'_>, range: Expr, vars: &[Expr], test: Expr, kind: Quantifier) -> Expanded {
    let (var, var2) = variables(vars, "argument must be a simple name")?;
    let (init, condition, step, result);
    match kind {
        Quantifier::All => {
            init = b.bool(true);
            let accu = b.accumulator();
            condition = b.call(op::NOT_FALSE, vec![accu]);
            let accu = b.accumulator();
            step = b.call(op::AND, vec![accu, test]);
            result = b.accumulator();
        }
        Quantifier::Exists => {
            init = b.bool(false);
            let accu = b.accumulator();
            let not = b.call(op::NOT, vec![accu]);
            condition = b.call(op::NOT_FALSE, vec![not]);
            let accu = b.accumulator();
            step = b.call(op::OR, vec![accu, test]);
            result = b.accumulator();
        }
        Quantifier::One => {
            init = b.int(0);
            condition = b.bool(true);
            let (accu, one) = (b.accumulator(), b.int(1));
            let more = b.call(op::ADD, vec![accu, one]);
            let accu = b.accumulator();
            step = b.call(op::CONDITIONAL, vec![test, more, accu]);
            let (accu, one) = (b.accumulator(), b.int(1));
            result = b.call(op::EQUALS, vec![accu, one]);
        }
    }
    let accu = ACCUMULATOR.into();
    Ok(b.fold(Fold { range, var, var2, accu, init, condition, step, result }))
}

/// A loop that adds to a list or a map.
fn gather(
    b: &mut Builder<'_>,
    range: Expr,
    vars: (Arc<str>, Option<Arc<str>>),
    init: Expr,
    test: Option<Expr>,
    more: Expr,
) -> Expr {
    let condition = b.bool(true);
    let step = match test {
        None => more,
        Some(test) => {
            let accu = b.accumulator();
            b.call(op::CONDITIONAL, vec![test, more, accu])
        }
    };
    let result = b.accumulator();
    let (var, var2) = vars;
    b.fold(Fold { range, var, var2, accu: ACCUMULATOR.into(), init, condition, step, result })
}

/// Takes the last arguments: a transformation, and before it perhaps a test.
fn last(mut args: Vec<Expr>, names: usize) -> (Option<Expr>, Option<Expr>) {
    let transform = args.pop();
    (if args.len() > names { args.pop() } else { None }, transform)
}

fn map(b: &mut Builder<'_>, range: Expr, args: Vec<Expr>) -> Expanded {
    let vars = variables(&args[..1], "argument is not an identifier")?;
    let (test, transform) = last(args, 1);
    let init = b.list(Vec::new());
    let accu = b.accumulator();
    let item = b.list(transform.into_iter().collect());
    let more = b.call(op::ADD, vec![accu, item]);
    Ok(gather(b, range, vars, init, test, more))
}

fn filter(b: &mut Builder<'_>, range: Expr, mut args: Vec<Expr>) -> Expanded {
    let vars = variables(&args[..1], "argument is not an identifier")?;
    let test = args.pop();
    let init = b.list(Vec::new());
    let accu = b.accumulator();
    let item = b.list(args);
    let more = b.call(op::ADD, vec![accu, item]);
    Ok(gather(b, range, vars, init, test, more))
}

/// What a macro of two variables makes.
enum Gather {
    List,
    Map,
    Entries,
}

fn transform(b: &mut Builder<'_>, range: Expr, args: Vec<Expr>, into: Gather) -> Expanded {
    const INSERT: &str = "cel.@mapInsert";
    let vars = variables(&args[..2], "argument must be a simple name")?;
    let (test, transform) = last(args, 2);
    let transform: Vec<Expr> = transform.into_iter().collect();
    let accu = b.accumulator();
    let (init, more) = match into {
        Gather::List => {
            let item = b.list(transform);
            (b.list(Vec::new()), b.call(op::ADD, vec![accu, item]))
        }
        Gather::Map => {
            let key = b.name(&vars.0);
            let args = [accu, key].into_iter().chain(transform).collect();
            (b.expr(Kind::Map(Vec::new())), b.call(INSERT, args))
        }
        Gather::Entries => {
            let args = [accu].into_iter().chain(transform).collect();
            (b.expr(Kind::Map(Vec::new())), b.call(INSERT, args))
        }
    };
    Ok(gather(b, range, vars, init, test, more))
}

/// A loop that never runs and gives a value a name.
fn named(b: &mut Builder<'_>, name: Arc<str>, init: Expr, result: Expr) -> Expr {
    let range = b.list(Vec::new());
    let condition = b.bool(false);
    let step = b.name(&name);
    b.fold(Fold { range, var: UNUSED.into(), var2: None, accu: name, init, condition, step, result })
}

fn bind(b: &mut Builder<'_>, _: Expr, mut args: Vec<Expr>) -> Expanded {
    let name = name_of(&args[0])
        .ok_or_else(|| Fault::new(&args[0], "cel.bind() variable names must be simple identifiers"))?;
    let (result, init) = (args.remove(2), args.remove(1));
    Ok(named(b, name, init, result))
}

fn opt_map(b: &mut Builder<'_>, target: Expr, mut args: Vec<Expr>, which: &str) -> Expanded {
    let name = name_of(&args[0]).ok_or_else(|| {
        Fault::new(&args[0], format!("{which}() variable name must be a simple identifier"))
    })?;
    let again = b.copy(&target);
    let has = b.member(target, "hasValue", Vec::new());
    let value = b.member(again, "value", Vec::new());
    let inner = named(b, name, value, args.remove(1));
    let some = if which == "optMap" { b.call("optional.of", vec![inner]) } else { inner };
    let none = b.call("optional.none", Vec::new());
    Ok(b.call(op::CONDITIONAL, vec![has, some, none]))
}

fn sort_by(b: &mut Builder<'_>, target: Expr, args: Vec<Expr>) -> Expanded {
    const INPUT: &str = "@__sortBy_input__";
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Object { .. } | Kind::Missing) {
        let text =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(Fault::new(&target, text));
    }
    let input = b.name(INPUT);
    let keys = map(b, input, args)?;
    let input = b.name(INPUT);
    let sorted = b.member(input, "@sortByAssociatedKeys", vec![keys]);
    Ok(named(b, INPUT.into(), target, sorted))
}
