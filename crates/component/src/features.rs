//! Feature gates of v1.36: their defaults, and `--feature-gates`.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// The properties of a gate.
#[derive(Debug)]
struct Gate {
    name: &'static str,
    default: bool,
    stage: &'static str,
    locked: bool,
    requires: Vec<&'static str>,
}

static GATES: LazyLock<Vec<Gate>> = LazyLock::new(|| {
    include_str!("feature-gates.tsv")
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut columns = line.split('\t');
            let mut next = || columns.next();
            Some(Gate {
                name: next()?,
                default: next()? == "true",
                stage: next()?,
                locked: next()? == "y",
                requires: next()?.split(',').filter(|g| !g.is_empty()).collect(),
            })
        })
        .collect()
});

/// The gates that are on.
#[derive(Debug, Clone)]
pub struct FeatureGates {
    on: HashMap<&'static str, bool>,
}

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
    Locked(String, bool, bool),
    /// The feature needs others.
    #[error("{0} is enabled, but depends on features that are disabled: [{1}]")]
    Requires(String, String),
}

impl Default for FeatureGates {
    /// Upstream's defaults.
    fn default() -> Self {
        Self { on: GATES.iter().map(|g| (g.name, g.default)).collect() }
    }
}

impl FeatureGates {
    /// Whether a gate is on; an unknown one is off.
    pub fn enabled(&self, gate: &str) -> bool {
        self.on.get(gate).copied().unwrap_or_default()
    }
    /// Whether a gate exists and is off.
    pub fn is_off(&self, gate: &str) -> bool {
        self.on.get(gate) == Some(&false)
    }
    /// Every gate's name, stage (`Alpha`, `Beta`, `GA`, `Deprecated`) and whether it is on.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        GATES.iter().map(|g| (g.name, g.stage, self.enabled(g.name)))
    }
    /// Turns a gate on or off, without regard to the gates on which it depends.
    pub fn set(&mut self, gate: &str, on: bool) -> Result<(), GateError> {
        let known =
            GATES.iter().find(|g| g.name == gate).ok_or_else(|| GateError::Unknown(gate.to_owned()))?;
        if known.locked && on != known.default {
            return Err(GateError::Locked(gate.to_owned(), on, known.default));
        }
        self.on.insert(known.name, on);
        Ok(())
    }
    /// Applies settings such as `A=true` to the defaults. `AllAlpha` and `AllBeta` stand for the gates of that stage
    /// that are not named.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Self, GateError> {
        let mut wanted: BTreeMap<&str, bool> = BTreeMap::new();
        for setting in settings.into_iter().map(str::trim).filter(|s| !s.is_empty()) {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| GateError::NoValue(setting.to_owned()))?;
            let on = go_bool(value.trim())
                .ok_or_else(|| GateError::BadValue(name.trim().to_owned(), value.trim().to_owned()))?;
            wanted.insert(name.trim(), on);
        }
        let mut out = Self::default();
        for (all, stage) in [("AllAlpha", "Alpha"), ("AllBeta", "Beta")] {
            let Some(on) = wanted.remove(all) else { continue };
            for gate in GATES.iter().filter(|g| g.stage == stage) {
                wanted.entry(gate.name).or_insert(on);
            }
        }
        for (name, on) in wanted {
            out.set(name, on)?;
        }
        for gate in GATES.iter().filter(|g| out.enabled(g.name)) {
            let off: Vec<&str> = gate.requires.iter().copied().filter(|r| !out.enabled(r)).collect();
            if !off.is_empty() {
                return Err(GateError::Requires(gate.name.to_owned(), off.join(" ")));
            }
        }
        Ok(out)
    }
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_together() {
        let gates = FeatureGates::parse([]).unwrap();
        assert!(gates.enabled("WatchList"));
        assert!(!gates.enabled("NoSuchGate"));
        assert!(GATES.len() > 200);
        for gate in GATES.iter() {
            assert!(["Alpha", "Beta", "GA", "Deprecated"].contains(&gate.stage), "{gate:?}");
        }
    }

    #[test]
    fn settings() {
        let check = |settings: &[&str], expected: Result<&[(&str, bool)], &str>| {
            let got = FeatureGates::parse(settings.iter().copied());
            match (got, expected) {
                (Ok(gates), Ok(expected)) => {
                    for (gate, on) in expected {
                        assert_eq!(gates.enabled(gate), *on, "{settings:?} {gate}");
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
        check(&["WatchList=false", ""], Ok(&[("WatchList", false)]));
        check(&["AllAlpha=true", "GenericWorkload=true"], Ok(&[("APIServingWithRoutine", true)]));
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
