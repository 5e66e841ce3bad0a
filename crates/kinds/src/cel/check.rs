//! The check of names and types.

use std::collections::HashMap;

use super::issue::Issue;
use super::parse::{Expr, Node};
use super::types::{Env, Overload, Type, function, read};

/// Finds the type of an expression.
pub(super) fn check(env: &Env, tree: &Expr, issues: &mut Vec<Issue>) -> Type {
    Checker { env, local: Vec::new(), issues }.of(tree)
}

struct Checker<'a> {
    env: &'a Env,
    /// Variables of macros, the innermost last.
    local: Vec<(String, Type)>,
    issues: &'a mut Vec<Issue>,
}

type Bound = HashMap<char, Type>;

/// Whether a value of a type may stand where a function wants another; binds the parameters that the latter leaves
/// open.
fn fits(wanted: &Type, given: &Type, bound: &mut Bound) -> bool {
    match (wanted, given) {
        (Type::Param(p), given) => match bound.get(p).cloned() {
            None | Some(Type::Dyn | Type::Any | Type::Null) => {
                bound.insert(*p, given.clone());
                true
            }
            Some(before) => {
                let alike = fits(&before, given, bound);
                if alike && before != *given && !matches!(given, Type::Null) {
                    bound.insert(*p, join(&before, given));
                }
                alike
            }
        },
        (_, Type::Dyn | Type::Any) | (Type::Dyn | Type::Any, _) => true,
        (_, Type::Param(_)) => true,
        (Type::Opaque(_) | Type::Object(_) | Type::Optional(_), Type::Null)
        | (Type::Null, Type::Opaque(_) | Type::Object(_) | Type::Optional(_)) => true,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => fits(a, b, bound),
        (Type::Map(a, b), Type::Map(c, d)) => fits(a, c, bound) && fits(b, d, bound),
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}

/// The more general of two types that fit each other.
fn join(a: &Type, b: &Type) -> Type {
    match (a, b) {
        (Type::Any, _) | (_, Type::Any) => Type::Any,
        (Type::Dyn, _) | (_, Type::Dyn) => Type::Dyn,
        _ => a.clone(),
    }
}

fn filled(ty: &Type, bound: &Bound) -> Type {
    let inner = |t: &Type| Box::new(filled(t, bound));
    match ty {
        Type::Param(p) => bound.get(p).cloned().unwrap_or(Type::Dyn),
        Type::List(t) => Type::List(inner(t)),
        Type::Optional(t) => Type::Optional(inner(t)),
        Type::Type(t) => Type::Type(inner(t)),
        Type::Map(k, v) => Type::Map(inner(k), inner(v)),
        other => other.clone(),
    }
}

fn optional(ty: Type) -> Type {
    match ty {
        Type::Optional(_) => ty,
        other => Type::Optional(Box::new(other)),
    }
}

impl Checker<'_> {
    fn fail(&mut self, at: usize, text: String) -> Type {
        self.issues.push(Issue { at, text });
        Type::Dyn
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        let name = name.trim_start_matches('.');
        self.fail(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn variable(&self, name: &str) -> Option<Type> {
        let name = name.trim_start_matches('.');
        if let Some((_, ty)) = self.local.iter().rev().find(|(n, _)| n == name) {
            return Some(ty.clone());
        }
        if let Some((_, ty)) = self.env.variables.iter().find(|(n, _)| *n == name) {
            return Some(ty.clone());
        }
        let ty = match name {
            "bool" | "int" | "uint" | "double" | "string" | "bytes" => {
                ["bool", "int", "uint", "double", "string", "bytes"]
                    .into_iter()
                    .find(|n| *n == name)
                    .map(read)?
            }
            "null_type" => Type::Null,
            "list" => Type::List(Box::new(Type::Dyn)),
            "map" => Type::Map(Box::new(Type::Dyn), Box::new(Type::Dyn)),
            "type" => Type::Type(Box::new(Type::Dyn)),
            "optional_type" => Type::Optional(Box::new(Type::Dyn)),
            _ => return None,
        };
        Some(Type::Type(Box::new(ty)))
    }

    fn of(&mut self, e: &Expr) -> Type {
        match &e.node {
            Node::Literal(ty) => ty.clone(),
            Node::Name(name) => match self.variable(name) {
                Some(ty) => ty,
                None => self.undeclared(e.at, name),
            },
            Node::Field { of, name, optional: true } => {
                let of = self.of(of);
                let ty = self.field(e.at, &of, name);
                optional(ty)
            }
            Node::Field { of, name, .. } => {
                let of = self.of(of);
                self.field(e.at, &of, name)
            }
            Node::Message(name) => self.undeclared(e.at, name),
            Node::List(items) => {
                let mut ty = None;
                for (item, optional) in items {
                    let mut found = self.of(item);
                    if let (true, Type::Optional(inner)) = (*optional, &found) {
                        found = (**inner).clone();
                    }
                    ty = Some(self.alike(item.at, ty, found));
                }
                Type::List(Box::new(ty.unwrap_or(Type::Dyn)))
            }
            Node::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (key, value, optional) in entries {
                    let found = self.of(key);
                    keys = Some(self.alike(key.at, keys, found));
                    let mut found = self.of(value);
                    if let (true, Type::Optional(inner)) = (*optional, &found) {
                        found = (**inner).clone();
                    }
                    values = Some(self.alike(value.at, values, found));
                }
                Type::Map(Box::new(keys.unwrap_or(Type::Dyn)), Box::new(values.unwrap_or(Type::Dyn)))
            }
            Node::Call { name, on, args } => self.call(e.at, name, on.as_deref(), args),
        }
    }

    /// Finds the common type of the elements of one list.
    fn alike(&mut self, at: usize, before: Option<Type>, found: Type) -> Type {
        let Some(before) = before else { return found };
        if !fits(&before, &found, &mut Bound::new()) {
            self.fail(at, format!("expected type '{before}' but found '{found}'"));
        }
        join(&before, &found)
    }

    fn field(&mut self, at: usize, of: &Type, name: &str) -> Type {
        match of {
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn | Type::Any => Type::Dyn,
            Type::Optional(inner) => {
                let ty = self.field(at, inner, name);
                optional(ty)
            }
            Type::Object(object) => {
                match self.env.fields.iter().find(|(o, f, _)| o == object && *f == name) {
                    Some((_, _, ty)) => ty(),
                    None => self.fail(at, format!("undefined field '{name}'")),
                }
            }
            other => self.fail(at, format!("type '{other}' does not support field selection")),
        }
    }

    fn call(&mut self, at: usize, name: &str, on: Option<&Expr>, args: &[Expr]) -> Type {
        if let Some(ty) = self.a_macro(at, name, on, args) {
            return ty;
        }
        let mut given: Vec<Type> = args.iter().map(|a| self.of(a)).collect();
        if matches!(name, "_&&_" | "_||_") {
            // There may be any number of operands: each pair is checked as if it stood alone.
            for pair in given.windows(2) {
                let ways = function(name).unwrap_or_default();
                self.apply(at, name, ways, false, pair);
            }
            return Type::Bool;
        }
        let Some(on) = on else {
            return match function(name.trim_start_matches('.')) {
                Some(ways) => self.apply(at, name, ways, false, &given),
                None => self.undeclared(at, name),
            };
        };
        if let Node::Name(space) = &on.node
            && self.variable(space).is_none()
            && let Some(ways) = function(&format!("{space}.{name}"))
        {
            return self.apply(at, &format!("{space}.{name}"), ways, false, &given);
        }
        given.insert(0, self.of(on));
        match function(name) {
            Some(ways) => self.apply(at, name, ways, true, &given),
            None => self.undeclared(at, name),
        }
    }

    fn apply(&mut self, at: usize, name: &str, ways: &[Overload], member: bool, given: &[Type]) -> Type {
        let mut result: Option<Type> = None;
        for way in ways.iter().filter(|w| w.member == member && w.args.len() == given.len()) {
            let mut bound = Bound::new();
            if way.args.iter().zip(given).all(|(w, g)| fits(w, g, &mut bound)) {
                let ty = filled(&way.result, &bound);
                result = Some(match result {
                    Some(before) if before != ty => Type::Dyn,
                    _ => ty,
                });
            }
        }
        result.unwrap_or_else(|| {
            let all: Vec<String> = given.iter().map(Type::to_string).collect();
            let applied = if member {
                format!("{}.({})", all[0], all[1..].join(", "))
            } else {
                format!("({})", all.join(", "))
            };
            self.fail(at, format!("found no matching overload for '{name}' applied to '{applied}'"))
        })
    }

    /// Checks an expression in which a macro's variables are known.
    fn with(&mut self, variables: Vec<(String, Type)>, e: &Expr) -> Type {
        let before = self.local.len();
        self.local.extend(variables);
        let ty = self.of(e);
        self.local.truncate(before);
        ty
    }

    /// Checks a condition inside a macro.
    fn condition(&mut self, at: usize, variables: Vec<(String, Type)>, e: &Expr) {
        let ty = self.with(variables, e);
        if !fits(&Type::Bool, &ty, &mut Bound::new()) {
            self.fail(at, format!("expected type 'bool' but found '{ty}'"));
        }
    }

    /// The type of a macro's result; `None` if the function is no macro.
    fn a_macro(&mut self, at: usize, name: &str, on: Option<&Expr>, args: &[Expr]) -> Option<Type> {
        let word = |e: &Expr| match &e.node {
            Node::Name(n) => Some(n.clone()),
            _ => None,
        };
        match (name, on, args) {
            ("has", None, [of]) => {
                if matches!(of.node, Node::Field { .. }) {
                    self.of(of);
                } else {
                    self.fail(of.at, "invalid argument to has() macro".into());
                }
                Some(Type::Bool)
            }
            ("bind", Some(on), [variable, value, of]) if word(on).as_deref() == Some("cel") => {
                let Some(variable) = word(variable) else {
                    let text = "cel.bind() variable names must be simple identifiers";
                    return Some(self.fail(variable.at, text.into()));
                };
                let ty = self.of(value);
                Some(self.with(vec![(variable, ty)], of))
            }
            ("optMap" | "optFlatMap", Some(on), [variable, of]) => {
                let ty = self.of(on);
                let Some(variable) = word(variable) else {
                    let text = format!("{name}() variable name must be a simple identifier");
                    return Some(self.fail(variable.at, text));
                };
                let inner = match ty {
                    Type::Optional(inner) => *inner,
                    _ => Type::Dyn,
                };
                let ty = self.with(vec![(variable, inner)], of);
                Some(optional(ty))
            }
            ("all" | "exists" | "exists_one" | "existsOne" | "filter" | "map", Some(on), [_, ..])
            | ("transformList" | "transformMap" | "transformMapEntry", Some(on), [_, _, ..]) => {
                self.loops(at, name, on, args)
            }
            _ => None,
        }
    }

    /// The type of the result of a macro that goes through a list or map.
    fn loops(&mut self, at: usize, name: &str, on: &Expr, args: &[Expr]) -> Option<Type> {
        let names = match (name, args.len()) {
            ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) | ("map", 2 | 3) => 1,
            ("all" | "exists" | "exists_one" | "existsOne", 3) => 2,
            ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => 2,
            _ => return None,
        };
        let range = self.of(on);
        let (key, value) = match &range {
            Type::List(of) => (Type::Int, (**of).clone()),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.fail(on.at, text);
                (Type::Dyn, Type::Dyn)
            }
        };
        let types = match (&range, names) {
            (Type::Map(..), 1) => vec![key.clone()],
            (_, 1) => vec![value],
            _ => vec![key.clone(), value],
        };
        let mut variables = Vec::new();
        for (arg, ty) in args[..names].iter().zip(types) {
            match &arg.node {
                Node::Name(n) => variables.push((n.clone(), ty)),
                _ => return Some(self.fail(arg.at, "argument must be a simple name".into())),
            }
        }
        let rest = &args[names..];
        if let [condition, _] = rest {
            self.condition(at, variables.clone(), condition);
        }
        let last = rest.last()?;
        Some(match name {
            "map" | "transformList" => Type::List(Box::new(self.with(variables, last))),
            "transformMap" => Type::Map(Box::new(key), Box::new(self.with(variables, last))),
            "transformMapEntry" => self.with(variables, last),
            "filter" => {
                let of = variables[0].1.clone();
                self.condition(at, variables, last);
                Type::List(Box::new(of))
            }
            _ => {
                self.condition(at, variables, last);
                Type::Bool
            }
        })
    }
}
