//! The check of names and types.

mod literals;
mod unify;

pub(crate) use literals::literals;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::ast::{Call, Expr, Fold, Id, Kind, Literal, operator as op, qualified};
use crate::declarations::Declarations;
use crate::functions::Overload;
use crate::issue::Issues;
use crate::parse::{Parsed, Positions};
use crate::types::Type;

use unify::{Bindings, most_general};

/// What a name or a call stands for.
#[derive(Debug, Clone)]
pub(crate) enum Meaning {
    /// A variable, of the environment or of a macro.
    Variable,
    /// A type.
    Type(Type),
    /// The overloads that may be called.
    Overloads(Vec<&'static Overload>),
}

/// An expression whose names and types are known.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) tree: Expr,
    pub(crate) positions: Positions,
    types: Vec<Type>,
    meanings: HashMap<Id, Meaning>,
}

impl Checked {
    /// The type of an expression.
    pub(crate) fn type_of(&self, e: &Expr) -> &Type {
        self.types.get(e.id as usize).unwrap_or(&Type::Dyn)
    }
    /// What an expression stands for.
    pub(crate) fn meaning(&self, e: &Expr) -> Option<&Meaning> {
        self.meanings.get(&e.id)
    }
    /// The variables of the environment that the expression names.
    pub(crate) fn variables(&self) -> BTreeSet<Arc<str>> {
        let variable = |e: &&Expr| matches!(self.meaning(e), Some(Meaning::Variable));
        let names = self.tree.all().into_iter().filter(variable);
        names
            .filter_map(|e| match &e.kind {
                Kind::Name(name) => Some(name.clone()),
                _ => None,
            })
            .collect()
    }
    /// The overloads that a call may be.
    pub(crate) fn overloads(&self, e: &Expr) -> &[&'static Overload] {
        match self.meaning(e) {
            Some(Meaning::Overloads(all)) => all,
            _ => &[],
        }
    }
}

/// Finds the types of an expression.
pub(crate) fn check(parsed: Parsed, env: &Declarations, source: &str) -> Result<Checked, Issues> {
    let Parsed { mut tree, positions } = parsed;
    let mut checker = Checker {
        env,
        local: Vec::new(),
        types: vec![Type::Error; positions.len() + 1],
        meanings: HashMap::new(),
        bindings: Bindings::default(),
        positions: &positions,
        issues: Issues::new(source),
    };
    checker.visit(&mut tree);
    let Checker { types, meanings, bindings, issues, .. } = checker;
    if !issues.is_empty() {
        return Err(issues);
    }
    let types = types.iter().map(|t| bindings.filled(t, true)).collect();
    Ok(Checked { tree, positions, types, meanings })
}

struct Checker<'a> {
    env: &'a Declarations,
    /// Variables of macros, the innermost last.
    local: Vec<(Arc<str>, Type)>,
    types: Vec<Type>,
    meanings: HashMap<Id, Meaning>,
    bindings: Bindings,
    positions: &'a Positions,
    issues: Issues,
}

impl Checker<'_> {
    fn fail(&mut self, id: Id, text: String) -> Type {
        self.issues.push(self.positions.of(id), text);
        Type::Error
    }
    fn type_of(&self, e: &Expr) -> Type {
        self.types.get(e.id as usize).cloned().unwrap_or(Type::Error)
    }
    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.fail(id, format!("undeclared reference to '{name}' (in container '')"))
    }
    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) -> Type {
        self.fail(id, format!("expected type '{expected}' but found '{found}'"))
    }

    /// The type of a name, and what it is.
    fn look_up(&self, name: &str) -> Option<(Type, Meaning)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let local = self.local.iter().rev().find(|(n, _)| &**n == name).map(|(_, t)| t);
        if let Some(t) = local.or_else(|| self.env.variable(name)) {
            return Some((t.clone(), Meaning::Variable));
        }
        let named = self.env.named_type(name)?;
        Some((Type::type_of(named.clone()), Meaning::Type(named)))
    }

    /// Finds the type of an expression and keeps it.
    fn visit(&mut self, e: &mut Expr) {
        let found = match &mut e.kind {
            Kind::Missing => Type::Error,
            Kind::Literal(l) => literal(l),
            Kind::Name(_) | Kind::Select { .. } => self.name_or_select(e),
            Kind::Call(_) => self.call(e),
            Kind::List(items) => self.list(items),
            Kind::Map(_) => self.map(e),
            Kind::Object { .. } => self.object(e),
            Kind::Fold(fold) => self.fold(fold),
        };
        if let Some(slot) = self.types.get_mut(e.id as usize) {
            *slot = found;
        }
    }

    fn name_or_select(&mut self, e: &mut Expr) -> Type {
        if let Some(name) = qualified(e)
            && let Some((ty, meaning)) = self.look_up(&name)
        {
            self.meanings.insert(e.id, meaning);
            e.kind = Kind::Name(name.strip_prefix('.').unwrap_or(&name).into());
            return ty;
        }
        let id = e.id;
        match &mut e.kind {
            Kind::Select { of, field, test } => {
                let (field, test) = (field.clone(), *test);
                let found = self.field(id, of, &field, false);
                if test { Type::Bool } else { self.bindings.filled(&found, false) }
            }
            Kind::Name(name) => {
                let name = name.clone();
                self.undeclared(id, &name)
            }
            _ => Type::Error,
        }
    }

    /// The type of a field.
    fn field(&mut self, id: Id, of: &mut Expr, field: &str, optional: bool) -> Type {
        self.visit(of);
        let operand = self.bindings.filled(&self.type_of(of), false);
        let inside = operand.unwrap_optional();
        let found = match inside.unwrap_or(&operand) {
            Type::Map(of) => of.1.clone(),
            Type::Object(name) => {
                if !self.env.has_object(name) {
                    self.fail(id, format!("unexpected failed resolution of '{name}'"))
                } else if let Some(found) = self.env.field(name, field) {
                    found
                } else {
                    self.fail(id, format!("undefined field '{field}'"))
                }
            }
            var @ Type::Var(_) => {
                self.bindings.assignable(&Type::Dyn, var);
                Type::Dyn
            }
            other => {
                if !other.is_dyn() && *other != Type::Error {
                    self.fail(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if inside.is_some() || optional { Type::optional(found) } else { found }
    }

    fn call(&mut self, e: &mut Expr) -> Type {
        let id = e.id;
        let Kind::Call(call) = &mut e.kind else { return Type::Error };
        if &*call.function == op::OPT_SELECT {
            return self.optional_field(id, call);
        }
        for arg in &mut call.args {
            self.visit(arg);
        }
        if let Some(target) = &mut call.target {
            if let Some(prefix) = qualified(target) {
                let name = format!("{}.{}", prefix.strip_prefix('.').unwrap_or(&prefix), call.function);
                if let Some((name, overloads)) = self.env.function(&name) {
                    call.function = name.into();
                    call.target = None;
                    return self.resolve(id, call, &overloads);
                }
            }
            self.visit(target);
        }
        let name = call.function.strip_prefix('.').unwrap_or(&call.function);
        match self.env.function(name) {
            Some((name, overloads)) => {
                call.function = name.into();
                self.resolve(id, call, &overloads)
            }
            None => {
                let name = call.function.clone();
                self.undeclared(id, &name)
            }
        }
    }

    fn optional_field(&mut self, id: Id, call: &mut Call) -> Type {
        let [of, field] = &mut call.args[..] else { return Type::Error };
        let Kind::Literal(Literal::String(name)) = &field.kind else { return Type::Error };
        let name = name.clone();
        let found = self.field(id, of, &name, true);
        if let Some((_, overloads)) = self.env.function(op::OPT_SELECT) {
            self.meanings.insert(id, Meaning::Overloads(overloads));
        }
        if let Some(slot) = self.types.get_mut(field.id as usize) {
            *slot = Type::String;
        }
        self.bindings.filled(&found, false)
    }

    /// Finds the overloads that fit, and the type of the result.
    fn resolve(&mut self, id: Id, call: &Call, overloads: &[&'static Overload]) -> Type {
        let args: Vec<&Expr> = call.target.iter().map(|t| &**t).chain(&call.args).collect();
        let types: Vec<Type> = args.iter().map(|a| self.type_of(a)).collect();
        let member = call.target.is_some();
        if matches!(&*call.function, op::AND | op::OR) {
            return self.logical(id, &args, &types, overloads);
        }
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in overloads.iter().filter(|o| o.member == member) {
            let (wanted, gives) = self.instance(overload);
            if !self.bindings.all_assignable(&types, &wanted) {
                continue;
            }
            fitting.push(*overload);
            let gives = self.bindings.filled(&gives, false);
            result = Some(match result {
                None => gives,
                Some(before) if before.is_dyn() || before == gives => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let text = self.signature(&types, member);
            let name = &call.function;
            return self.fail(id, format!("found no matching overload for '{name}' applied to '{text}'"));
        };
        self.meanings.insert(id, Meaning::Overloads(fitting));
        result
    }

    fn logical(&mut self, id: Id, args: &[&Expr], types: &[Type], overloads: &[&'static Overload]) -> Type {
        let mut result = Type::Bool;
        for (arg, ty) in args.iter().zip(types) {
            if !self.bindings.assignable(ty, &Type::Bool) {
                result = self.mismatch(arg.id, &Type::Bool, ty);
            }
        }
        if result == Type::Bool {
            self.meanings.insert(id, Meaning::Overloads(overloads.to_vec()));
        }
        result
    }

    /// An overload's arguments and result, with parameters of its own.
    fn instance(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut fresh: [Option<Type>; 2] = [None, None];
        let mut args = Vec::with_capacity(overload.args.len());
        for arg in &overload.args {
            args.push(self.instantiate(arg, &mut fresh));
        }
        let result = self.instantiate(&overload.result, &mut fresh);
        (args, result)
    }

    fn instantiate(&mut self, of: &Type, fresh: &mut [Option<Type>; 2]) -> Type {
        match of {
            Type::Param(name) => {
                let slot = &mut fresh[usize::from(*name == 'B')];
                slot.get_or_insert_with(|| self.bindings.fresh()).clone()
            }
            Type::List(t) => Type::list(self.instantiate(t, fresh)),
            Type::Map(t) => {
                let key = self.instantiate(&t.0, fresh);
                Type::map(key, self.instantiate(&t.1, fresh))
            }
            Type::Type(Some(t)) => Type::type_of(self.instantiate(t, fresh)),
            Type::Opaque(name, of) if !of.is_empty() => {
                Type::Opaque(name.clone(), of.iter().map(|t| self.instantiate(t, fresh)).collect())
            }
            other => other.clone(),
        }
    }

    fn signature(&self, types: &[Type], member: bool) -> String {
        let mut shown = types.iter().map(|t| self.bindings.filled(t, true).to_string());
        let target = if member { shown.next() } else { None };
        let args: Vec<String> = shown.collect();
        let args = format!("({})", args.join(", "));
        target.map_or(args.clone(), |t| format!("{t}.{args}"))
    }

    /// The type inside an optional element.
    fn inside(&mut self, e: &Expr, ty: Type) -> Type {
        if let Some(inside) = ty.unwrap_optional() {
            return inside.clone();
        }
        if !ty.is_dyn() {
            self.mismatch(e.id, &Type::optional(ty.clone()), &ty);
        }
        ty
    }

    fn list(&mut self, items: &mut [(Expr, bool)]) -> Type {
        let mut of = None;
        for (item, optional) in items {
            self.visit(item);
            let mut ty = self.type_of(item);
            if *optional {
                ty = self.inside(item, ty);
            }
            of = Some(self.join(of, ty));
        }
        Type::list(of.unwrap_or_else(|| self.bindings.fresh()))
    }

    fn map(&mut self, e: &mut Expr) -> Type {
        let Kind::Map(entries) = &mut e.kind else { return Type::Error };
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.visit(&mut entry.key);
            let ty = self.type_of(&entry.key);
            key = Some(self.join(key, ty));
            self.visit(&mut entry.value);
            let mut ty = self.type_of(&entry.value);
            if entry.optional {
                ty = self.inside(&entry.value, ty);
            }
            value = Some(self.join(value, ty));
        }
        let key = key.unwrap_or_else(|| self.bindings.fresh());
        Type::map(key, value.unwrap_or_else(|| self.bindings.fresh()))
    }

    /// The type of elements, of which one more is there. Whether they may differ is looked at later.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.bindings.assignable(&before, &ty) {
            return most_general(&before, &ty).clone();
        }
        Type::Dyn
    }

    fn object(&mut self, e: &mut Expr) -> Type {
        let id = e.id;
        let Kind::Object { name, fields } = &mut e.kind else { return Type::Error };
        let Some((ty, meaning)) = self.look_up(name) else {
            let name = name.clone();
            return self.undeclared(id, &name);
        };
        let mut result = Type::Error;
        match (&meaning, &ty) {
            (Meaning::Type(Type::Object(own)), _) => {
                *name = own.clone();
                result = Type::Object(own.clone());
            }
            (Meaning::Type(of), _) => {
                let of = of.runtime_name();
                self.fail(id, format!("'{of}' is not a message type"));
            }
            (_, of) => {
                let of = of.runtime_name();
                self.fail(id, format!("'{of}' is not a type"));
            }
        }
        for field in fields {
            self.visit(&mut field.value);
            let wanted = match &result {
                Type::Object(name) => match self.env.field(name, &field.name) {
                    Some(found) => found,
                    None => self.fail(field.id, format!("undefined field '{}'", field.name)),
                },
                _ => self.fail(field.id, format!("unexpected failed resolution of '{name}'")),
            };
            let mut ty = self.type_of(&field.value);
            if field.optional {
                ty = self.inside(&field.value, ty);
            }
            if !self.bindings.assignable(&wanted, &ty) {
                let text = format!(
                    "expected type of field '{}' is '{wanted}' but provided type is '{ty}'",
                    field.name
                );
                self.fail(field.id, text);
            }
        }
        result
    }

    fn fold(&mut self, fold: &mut Fold) -> Type {
        self.visit(&mut fold.range);
        self.visit(&mut fold.init);
        let range = self.bindings.filled(&self.type_of(&fold.range), false);
        let accu = self.type_of(&fold.init);
        let (first, second) = match &range {
            Type::List(of) if fold.var2.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(of) => (of.0.clone(), of.1.clone()),
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                (self.fail(fold.range.id, text), Type::Error)
            }
        };
        let before = self.local.len();
        self.local.push((fold.accu.clone(), accu.clone()));
        self.local.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.local.push((var2.clone(), second));
        }
        self.visit(&mut fold.condition);
        self.expect(&fold.condition, &Type::Bool);
        self.visit(&mut fold.step);
        self.expect(&fold.step, &accu);
        self.local.truncate(before + 1);
        self.visit(&mut fold.result);
        self.local.truncate(before);
        self.bindings.filled(&self.type_of(&fold.result), false)
    }

    fn expect(&mut self, e: &Expr, wanted: &Type) {
        let ty = self.type_of(e);
        if !self.bindings.assignable(wanted, &ty) {
            self.mismatch(e.id, wanted, &ty);
        }
    }
}

fn literal(l: &Literal) -> Type {
    match l {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
