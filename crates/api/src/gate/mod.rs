//! Feature gates of v1.36: their properties, and which of them are on.

mod row;
mod settings;
mod table;

use std::fmt;

pub use row::Stage;
pub use settings::GateError;
pub use table::Gate;

use row::Row;
use table::TABLE;

impl Gate {
    /// Every gate, in the order of their names.
    pub fn all() -> impl Iterator<Item = Gate> {
        TABLE.iter().map(|(gate, ..)| *gate)
    }
    /// The gate of a name.
    pub fn named(name: &str) -> Option<Gate> {
        TABLE.iter().find(|(_, row, _)| row.name == name).map(|(gate, ..)| *gate)
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
        TABLE[self as usize].2
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_gates() {
        for (i, (gate, row, _)) in TABLE.iter().enumerate() {
            assert_eq!((*gate as usize, format!("{gate:?}").as_str()), (i, row.name));
            assert_eq!(Gate::named(row.name), Some(*gate));
        }
        assert!(TABLE.is_sorted_by_key(|(_, row, _)| row.name));
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
}
