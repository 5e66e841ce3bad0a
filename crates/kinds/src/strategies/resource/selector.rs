//! The expressions that select devices.

use crate::cel::{self, Env, Type};

/// The type of the one variable, `device`.
const DEVICE: &str = "kubernetes.DRADevice";

/// Attributes and capacities stand below their domain.
fn by_domain(value: Type) -> Type {
    let inner = Type::Map(Box::new(Type::String), Box::new(value));
    Type::Map(Box::new(Type::String), Box::new(inner))
}

static ENV: Env = Env {
    variables: &[("device", Type::Object(DEVICE))],
    fields: &[
        (DEVICE, "driver", || Type::String),
        (DEVICE, "allowMultipleAllocations", || Type::Bool),
        (DEVICE, "attributes", || by_domain(Type::Any)),
        (DEVICE, "capacity", || by_domain(Type::Opaque("kubernetes.Quantity"))),
    ],
};

/// Checks that an expression compiles to a boolean; an attribute alone may be one.
pub(super) fn compile(expression: &str) -> Result<(), String> {
    match cel::compile(&ENV, expression).map_err(|e| format!("compilation failed: {e}"))? {
        Type::Bool | Type::Any => Ok(()),
        other => Err(format!("must evaluate to bool or the unknown type, not {other}")),
    }
}
