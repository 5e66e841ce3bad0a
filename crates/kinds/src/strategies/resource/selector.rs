//! The expressions that select devices.

use std::sync::LazyLock;

use cel::admission::{SELECTOR_COST, device, selector};
use cel::{Environment, Version};

static ENV: LazyLock<Environment> = LazyLock::new(|| device(Version::NEW));

/// Whether an expression may cost more than one may.
pub(super) struct TooCostly(pub(super) bool);

/// Checks that an expression compiles to a boolean; an attribute alone may be one.
pub(super) fn compile(expression: &str) -> Result<TooCostly, String> {
    selector(&ENV, expression).map(|program| TooCostly(program.static_cost().max > SELECTOR_COST))
}
