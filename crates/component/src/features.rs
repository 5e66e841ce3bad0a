//! Feature gates of v1.36 and their defaults.

use std::collections::HashMap;

/// Gate and default, a line each.
const DEFAULTS: &str = include_str!("feature-gates.tsv");

/// Which gates are on.
#[derive(Debug, Clone)]
pub struct FeatureGates {
    on: HashMap<String, bool>,
}

/// A gate that v1.36 does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized feature gate: {0}")]
pub struct UnknownGate(pub String);

impl Default for FeatureGates {
    /// Upstream's defaults.
    fn default() -> Self {
        let on = DEFAULTS
            .lines()
            .filter_map(|l| l.split_once('\t'))
            .map(|(gate, on)| (gate.to_owned(), on == "true"))
            .collect();
        Self { on }
    }
}

impl FeatureGates {
    /// Whether a gate is on; an unknown one is off.
    pub fn enabled(&self, gate: &str) -> bool {
        self.on.get(gate).copied().unwrap_or_default()
    }
    /// Turns a gate on or off.
    pub fn set(&mut self, gate: &str, on: bool) -> Result<(), UnknownGate> {
        let known = self.on.get_mut(gate).ok_or_else(|| UnknownGate(gate.to_owned()))?;
        *known = on;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_settings() {
        let mut gates = FeatureGates::default();
        assert!(gates.enabled("WatchList"));
        assert!(!gates.enabled("NoSuchGate"));
        assert!(gates.set("NoSuchGate", true).is_err());
        gates.set("WatchList", false).unwrap();
        assert!(!gates.enabled("WatchList"));
    }
}
