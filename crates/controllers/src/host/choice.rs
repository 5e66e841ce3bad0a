//! The names that `--controllers` takes.

use super::table;
use crate::choice::Choice;

/// The reason for which a list of controllers cannot be used: there is no controller of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not in the list of known controllers")]
pub struct ChoiceError(String);

impl Choice {
    /// Parses a list as `--controllers` has it.
    ///
    /// # Errors
    /// The list names an unknown controller.
    pub fn parse<S: AsRef<str>>(list: impl IntoIterator<Item = S>) -> Result<Self, ChoiceError> {
        let one = |given: S| {
            let text = given.as_ref().trim();
            if text == "*" {
                return Ok(text.to_owned());
            }
            let (off, name) = text.strip_prefix('-').map_or((false, text), |name| (true, name));
            let dash = if off { "-" } else { "" };
            if let Some(named) = table::find(name) {
                return Ok(format!("{dash}{}", named.name));
            }
            if table::is_of_clouds(name) { Ok(text.to_owned()) } else { Err(ChoiceError(name.to_owned())) }
        };
        list.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestIsControllerEnabled`, with the names of existing controllers.
    #[test]
    fn what_runs() {
        let check = |list: &[&str], name: &str, by_default: bool, want: bool| {
            assert_eq!(Choice::parse(list).unwrap().runs(name, by_default), want, "{list:?} {name}");
        };
        let (one, other) = ("deployment-controller", "replicaset-controller");
        check(&[one, other], one, false, true);
        check(&["-deployment-controller", other], one, true, false);
        check(&["*"], one, true, true);
        check(&["*"], one, false, false);
        check(&[other, "*"], one, true, true);
        check(&[other], one, true, false);
        check(&["*", "-deployment-controller"], one, true, false);
        check(&["-deployment-controller", one], one, true, false);
        check(&[one, "-deployment-controller"], one, true, true);
        check(&["*", "-deployment"], one, true, false);
        check(&["nodeipam"], "node-ipam-controller", false, true);
        check(&["*", "-job-controller", "-cronjob"], one, true, true);
        check(&[], one, true, false);
        check(&["*", "route", "-cloud-node-lifecycle"], one, true, true);
        check(&["*", "bootstrapsigner"], "bootstrap-signer-controller", false, true);
        assert!(Choice::default().runs(one, true));
    }

    #[test]
    fn what_is_refused() {
        let check = |list: &[&str], want: &str| {
            assert_eq!(Choice::parse(list).unwrap_err().to_string(), want, "{list:?}");
        };
        check(&["*", "-nosuch"], "\"nosuch\" is not in the list of known controllers");
        check(&["nosuch-controller"], "\"nosuch-controller\" is not in the list of known controllers");
        check(
            &["Deployment-Controller"],
            "\"Deployment-Controller\" is not in the list of known controllers",
        );
    }
}
