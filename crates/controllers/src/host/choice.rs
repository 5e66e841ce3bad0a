//! The names that `--controllers` takes.

use super::table;
use crate::choice::Choice;

/// The reason for which a list of controllers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no such controller.
    #[error("\"{0}\" is not in the list of known controllers")]
    Unknown(String),
    /// Kubernetes has such a controller, and FerroKube does not yet.
    #[error(
        "\"{0}\" is a controller of Kubernetes that FerroKube does not have yet; leave it out of --controllers"
    )]
    Missing(String),
}

impl Choice {
    /// Parses a list as `--controllers` has it.
    ///
    /// # Errors
    /// The list names an unknown controller, or chooses one that FerroKube does not have.
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
            match table::is_missing(name) {
                // A missing controller need not be turned off.
                true if off => Ok(text.to_owned()),
                true => Err(ChoiceError::Missing(name.to_owned())),
                false => Err(ChoiceError::Unknown(name.to_owned())),
            }
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
        let missing = "\"selinux-warning-controller\" is a controller of Kubernetes that FerroKube does not have yet; leave it out of --controllers";
        check(&["selinux-warning-controller"], missing);
    }
}
