//! `--feature-gates`.

use std::collections::BTreeMap;

use super::FeatureGates;
use super::row::Stage;
use super::table::Gate;
use crate::go::parse_bool;

/// The reason for which gates cannot be set so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// v1.36 has no such gate.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// The setting has no `=`.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// The value is no boolean.
    #[error("invalid value of {0}={1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    BadValue(String, String),
    /// The feature cannot be switched any more.
    #[error("cannot set feature gate {0} to {1}, feature is locked to {2}")]
    Locked(Gate, bool, bool),
    /// The feature needs others.
    #[error("{0} is enabled, but depends on features that are disabled: [{1}]")]
    Requires(Gate, String),
}

impl FeatureGates {
    /// Applies settings such as `A=true` to the defaults. `AllAlpha` and `AllBeta` stand for the gates of that stage
    /// that are not named.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Self, GateError> {
        let mut wanted: BTreeMap<&str, bool> = BTreeMap::new();
        for setting in settings.into_iter().map(str::trim).filter(|s| !s.is_empty()) {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| GateError::NoValue(setting.to_owned()))?;
            let on = parse_bool(value.trim())
                .ok_or_else(|| GateError::BadValue(name.trim().to_owned(), value.trim().to_owned()))?;
            wanted.insert(name.trim(), on);
        }
        for (all, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            let Some(on) = wanted.remove(all) else { continue };
            for gate in Gate::all().filter(|g| g.stage() == stage) {
                wanted.entry(gate.name()).or_insert(on);
            }
        }
        let mut out = Self::default();
        for (name, on) in wanted {
            let gate = Gate::named(name).ok_or_else(|| GateError::Unknown(name.to_owned()))?;
            if gate.is_locked() && on != gate.default() {
                return Err(GateError::Locked(gate, on, gate.default()));
            }
            out = out.with(gate, on);
        }
        for gate in Gate::all().filter(|g| out.enabled(*g)) {
            let off = gate.requires().iter().filter(|r| !out.enabled(**r));
            let off: Vec<&str> = off.map(|r| r.name()).collect();
            if !off.is_empty() {
                return Err(GateError::Requires(gate, off.join(" ")));
            }
        }
        Ok(out)
    }

    /// The settings that make these gates from the defaults, such as `A=true`, in the order of their names.
    pub fn changed(self) -> Vec<String> {
        let differs = |gate: &Gate| self.enabled(*gate) != gate.default();
        Gate::all().filter(differs).map(|gate| format!("{gate}={}", self.enabled(gate))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_settings() {
        assert_eq!(FeatureGates::default().changed(), [""; 0]);
        let gates = FeatureGates::parse(["WatchList=false", "GenericWorkload=true"]).unwrap();
        assert_eq!(gates.changed(), ["GenericWorkload=true", "WatchList=false"]);
        assert_eq!(FeatureGates::parse(gates.changed().iter().map(String::as_str)), Ok(gates));
    }

    #[test]
    fn settings() {
        let check = |settings: &[&str], expected: Result<&[(Gate, bool)], &str>| {
            let got = FeatureGates::parse(settings.iter().copied());
            match (got, expected) {
                (Ok(gates), Ok(expected)) => {
                    for (gate, on) in expected {
                        assert_eq!(gates.enabled(*gate), *on, "{settings:?} {gate}");
                    }
                }
                (got, expected) => {
                    assert_eq!(
                        got.map(|_| ()).unwrap_err().to_string(),
                        expected.unwrap_err(),
                        "{settings:?}"
                    );
                }
            }
        };
        check(&[], Ok(&[(Gate::WatchList, true), (Gate::GenericWorkload, false)]));
        check(&["WatchList=false", ""], Ok(&[(Gate::WatchList, false)]));
        check(
            &["AllAlpha=true", "GenericWorkload=true"],
            Ok(&[(Gate::APIServingWithRoutine, true), (Gate::GenericWorkload, true)]),
        );
        check(&["NoSuch=true"], Err("unrecognized feature gate: NoSuch"));
        check(&["WatchList"], Err("missing bool value for WatchList"));
        check(
            &["WatchList=maybe"],
            Err(
                "invalid value of WatchList=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
        );
        check(
            &["APIServerTracing=false"],
            Err("cannot set feature gate APIServerTracing to false, feature is locked to true"),
        );
        check(
            &["GangScheduling=true"],
            Err("GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"),
        );
    }
}
