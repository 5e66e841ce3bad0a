//! Feature gates of v1.36: their properties, which of them are on, and `--feature-gates`.

mod table;

use std::collections::BTreeMap;
use std::fmt;

pub use table::Gate;
use table::TABLE;

use crate::go::parse_bool;

/// The stage of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// New, and off by default.
    Alpha,
    /// Well tested, and mostly on by default.
    Beta,
    /// Finished (upstream prints `GA`).
    Stable,
    /// To be removed.
    Deprecated,
}

/// The properties of a gate.
#[derive(Debug)]
struct Row {
    name: &'static str,
    default: bool,
    stage: Stage,
    locked: bool,
    requires: &'static [Gate],
}

/// The columns of the table, in its order.
const fn row(
    name: &'static str,
    default: bool,
    stage: Stage,
    locked: bool,
    requires: &'static [Gate],
) -> Row {
    Row { name, default, stage, locked, requires }
}

impl Gate {
    /// Every gate, in the order of their names.
    pub fn all() -> impl Iterator<Item = Gate> {
        TABLE.iter().map(|(gate, _)| *gate)
    }
    /// The gate of a name.
    pub fn named(name: &str) -> Option<Gate> {
        TABLE.iter().find(|(_, row)| row.name == name).map(|(gate, _)| *gate)
    }
    fn row(self) -> &'static Row {
        &TABLE[self as usize].1
    }
    /// The gate's name.
    pub fn name(self) -> &'static str {
        self.row().name
    }
    /// Whether the gate is on where no setting says otherwise.
    pub fn default(self) -> bool {
        self.row().default
    }
    /// The stage of the gate's feature.
    pub fn stage(self) -> Stage {
        self.row().stage
    }
    /// Whether no setting can switch the gate any more.
    pub fn is_locked(self) -> bool {
        self.row().locked
    }
    /// The gates that must be on if this one is.
    pub fn requires(self) -> &'static [Gate] {
        self.row().requires
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The gates that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// A bit a gate.
    on: [u64; WORDS],
}

const WORDS: usize = TABLE.len().div_ceil(u64::BITS as usize);

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

impl Default for FeatureGates {
    /// Upstream's defaults.
    fn default() -> Self {
        Gate::all().fold(Self { on: [0; WORDS] }, |gates, gate| gates.with(gate, gate.default()))
    }
}

impl FeatureGates {
    /// Whether a gate is on.
    #[inline]
    pub fn enabled(self, gate: Gate) -> bool {
        let at = gate as usize;
        self.on[at / 64] >> (at % 64) & 1 == 1
    }
    /// The same with one gate on or off, without regard to locks and to the gates on which it depends.
    #[must_use]
    pub fn with(mut self, gate: Gate, on: bool) -> Self {
        let at = gate as usize;
        let bit = 1 << (at % 64);
        if on {
            self.on[at / 64] |= bit;
        } else {
            self.on[at / 64] &= !bit;
        }
        self
    }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_gates() {
        for (i, (gate, row)) in TABLE.iter().enumerate() {
            assert_eq!((*gate as usize, format!("{gate:?}").as_str()), (i, row.name));
            assert_eq!(Gate::named(row.name), Some(*gate));
        }
        assert!(TABLE.is_sorted_by_key(|(_, row)| row.name));
        assert_eq!(Gate::named("NoSuchGate"), None);
    }

    #[test]
    fn a_set_holds_each_gate_apart() {
        for gate in Gate::all() {
            let (on, off) =
                (FeatureGates::default().with(gate, true), FeatureGates::default().with(gate, false));
            assert!(on.enabled(gate) && !off.enabled(gate), "{gate}");
            assert!(Gate::all().all(|other| other == gate || on.enabled(other) == off.enabled(other)));
        }
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
