//! Makes expressions with new numbers.

use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Call, Expr, Fold, Id, Kind, Literal};

/// The places of expressions, in characters, by their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positions(Vec<usize>);

impl Positions {
    /// The place of an expression.
    pub(crate) fn of(&self, id: Id) -> Option<usize> {
        self.0.get((id as usize).checked_sub(1)?).copied()
    }
    /// The count of expressions, which is also the greatest number of one.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(super) fn add(&mut self, at: usize) -> Id {
        self.0.push(at);
        self.0.len() as Id
    }
}

/// Makes the expressions of a macro: all stand at the place of its call.
pub(super) struct Builder<'a> {
    pub(super) positions: &'a mut Positions,
    pub(super) at: usize,
}

impl Builder<'_> {
    pub(super) fn expr(&mut self, kind: Kind) -> Expr {
        Expr { id: self.positions.add(self.at), kind }
    }
    pub(super) fn name(&mut self, name: &str) -> Expr {
        self.expr(Kind::Name(name.into()))
    }
    pub(super) fn accumulator(&mut self) -> Expr {
        self.name(ACCUMULATOR)
    }
    pub(super) fn bool(&mut self, value: bool) -> Expr {
        self.expr(Kind::Literal(Literal::Bool(value)))
    }
    pub(super) fn int(&mut self, value: i64) -> Expr {
        self.expr(Kind::Literal(Literal::Int(value)))
    }
    pub(super) fn list(&mut self, items: Vec<Expr>) -> Expr {
        self.expr(Kind::List(items.into_iter().map(|e| (e, false)).collect()))
    }
    pub(super) fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(Kind::Call(Call { function: function.into(), target: None, args }))
    }
    pub(super) fn member(&mut self, target: Expr, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(Kind::Call(Call { function: function.into(), target: Some(Box::new(target)), args }))
    }
    pub(super) fn fold(&mut self, fold: Fold) -> Expr {
        self.expr(Kind::Fold(Box::new(fold)))
    }

    /// The same expression with new numbers, at its own places.
    pub(super) fn copy(&mut self, e: &Expr) -> Expr {
        let at = self.positions.of(e.id).unwrap_or(self.at);
        let id = self.positions.add(at);
        let mut kind = e.kind.clone();
        match &mut kind {
            Kind::Missing | Kind::Literal(_) | Kind::Name(_) => {}
            Kind::Select { of, .. } => self.renumber(of),
            Kind::Call(c) => {
                for e in c.target.iter_mut().map(|t| &mut **t).chain(&mut c.args) {
                    self.renumber(e);
                }
            }
            Kind::List(items) => items.iter_mut().for_each(|(e, _)| self.renumber(e)),
            Kind::Map(entries) => {
                for e in entries {
                    self.renumber(&mut e.key);
                    self.renumber(&mut e.value);
                }
            }
            Kind::Object { fields, .. } => {
                for f in fields {
                    f.id = self.positions.add(self.positions.of(f.id).unwrap_or(at));
                    self.renumber(&mut f.value);
                }
            }
            Kind::Fold(f) => {
                for e in [&mut f.range, &mut f.init, &mut f.condition, &mut f.step, &mut f.result] {
                    self.renumber(e);
                }
            }
        }
        Expr { id, kind }
    }

    fn renumber(&mut self, e: &mut Expr) {
        *e = self.copy(e);
    }
}

/// The name that an expression is, if it is one.
pub(super) fn name_of(e: &Expr) -> Option<Arc<str>> {
    match &e.kind {
        Kind::Name(name) => Some(name.clone()),
        _ => None,
    }
}
