//! Which types fit each other, and what their parameters stand for.

use crate::types::Type;

/// What is known of parameters, and how to forget it.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    bound: Vec<Option<Type>>,
    trail: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    /// A parameter of which nothing is known.
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Var(self.bound.len() as u32 - 1)
    }
    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Var(n) => self.bound.get(*n as usize)?.as_ref(),
            _ => None,
        }
    }
    fn bind(&mut self, var: &Type, to: Type) {
        if let Type::Var(n) = var
            && let Some(slot) = self.bound.get_mut(*n as usize)
        {
            self.trail.push((*n, slot.replace(to)));
        }
    }
    /// Runs a comparison; if it fails, what it found out is forgotten.
    fn attempt(&mut self, run: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.trail.len();
        if run(self) {
            return true;
        }
        while self.trail.len() > before {
            if let Some((n, old)) = self.trail.pop() {
                self.bound[n as usize] = old;
            }
        }
        false
    }

    /// Whether the first type may stand for the second one.
    pub(super) fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        self.attempt(|m| m.fits(a, b))
    }
    /// Whether types may stand for others, one by one.
    pub(super) fn all_assignable(&mut self, a: &[Type], b: &[Type]) -> bool {
        a.len() == b.len() && self.attempt(|m| a.iter().zip(b).all(|(a, b)| m.fits(a, b)))
    }

    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        if matches!(b, Type::Var(_)) {
            let (valid, known) = self.stands_for(a, b);
            if valid || known {
                return valid;
            }
        }
        if matches!(a, Type::Var(_)) {
            return self.stands_for(b, a).0;
        }
        if loose(a) || loose(b) {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            (Type::Opaque(a, of), Type::Opaque(b, with)) => {
                a == b && of.len() == with.len() && of.iter().zip(with.iter()).all(|(a, b)| self.fits(a, b))
            }
            (a, b) => a == b,
        }
    }

    /// Whether parameter `var` may stand for a type, and whether something was known of it before.
    fn stands_for(&mut self, of: &Type, var: &Type) -> (bool, bool) {
        if of == var {
            return (true, true);
        }
        if let Some(known) = self.find(var).cloned() {
            if *of == known {
                return (true, true);
            }
            if self.fits(of, &known) {
                let general = most_general(of, &known).clone();
                if self.absent(var, &general) {
                    self.bind(var, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent(var, of) {
            self.bind(var, of.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether a parameter is no part of a type.
    fn absent(&self, var: &Type, within: &Type) -> bool {
        if var == within {
            return false;
        }
        match within {
            Type::Var(_) => self.find(within).is_none_or(|known| self.absent(var, known)),
            other => other.parameters().into_iter().all(|p| self.absent(var, p)),
        }
    }

    /// The type with what is known of its parameters; what is not known is dynamic if `finish`.
    pub(super) fn filled(&self, of: &Type, finish: bool) -> Type {
        if let Some(known) = self.find(of) {
            return self.filled(known, finish);
        }
        match of {
            Type::Var(_) if finish => Type::Dyn,
            Type::List(t) => Type::list(self.filled(t, finish)),
            Type::Map(t) => Type::map(self.filled(&t.0, finish), self.filled(&t.1, finish)),
            Type::Type(Some(t)) => Type::type_of(self.filled(t, finish)),
            Type::Opaque(name, of) if !of.is_empty() => {
                Type::Opaque(name.clone(), of.iter().map(|t| self.filled(t, finish)).collect())
            }
            other => other.clone(),
        }
    }
}

/// Whether a type fits every other.
fn loose(t: &Type) -> bool {
    t.is_dyn() || *t == Type::Error
}

/// The more general of two types that fit each other.
pub(super) fn most_general<'a>(a: &'a Type, b: &'a Type) -> &'a Type {
    if less_specific(a, b) { a } else { b }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    let open = |t: &Type| t.is_dyn() || matches!(t, Type::Var(_) | Type::Param(_));
    if open(a) {
        return true;
    }
    if open(b) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) => less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => less_specific(&a.0, &b.0) && less_specific(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        (Type::Opaque(a, of), Type::Opaque(b, with)) => {
            a == b && of.len() == with.len() && of.iter().zip(with.iter()).all(|(a, b)| less_specific(a, b))
        }
        (a, b) => a == b,
    }
}
