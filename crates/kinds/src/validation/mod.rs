//! Rules that several kinds share.

pub(crate) mod authorities;
mod diff;
pub mod ip;
pub mod meta;
pub mod print;
mod semver;

use api::field::{Errors, IMMUTABLE, Lazy, Path};
use api::view::{View, same};

pub use semver::{Semver, semver};

/// Refuses a change of a field; the new value is reported.
pub fn immutable(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: View<'_>, name: &str) {
    if !same(new.get(name), old.get(name)) {
        errs.invalid(&at.field(name), Lazy(|| print::field(new, name)), IMMUTABLE);
    }
}
