//! Limits of a Pod's network by its annotations.

use std::collections::HashMap;

use serde::Serialize;

/// The annotation with the limit of what a Pod gets.
const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
/// The annotation with the limit of what it sends.
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// The bounds of a limit, in bits a second; upstream's.
const LEAST: f64 = 1e3;
const MOST: f64 = 1e15;
/// The burst, in bits, as containerd gives it.
const BURST: u64 = 2_147_483_647;

/// Limits in bits a second, with bursts in bits; 0 for none. The form is CNI's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// To the Pod.
    pub ingress_rate: u64,
    /// The burst of it.
    pub ingress_burst: u64,
    /// From the Pod.
    pub egress_rate: u64,
    /// The burst of it.
    pub egress_burst: u64,
}

/// An annotation that is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {0}: {1:?} is no bandwidth between 1k and 1P")]
pub struct BandwidthError(&'static str, String);

/// The limits of a Pod; none if it has none.
#[allow(clippy::implicit_hasher, reason = "annotations are CRI's")]
pub fn of(annotations: &HashMap<String, String>) -> Result<Option<Bandwidth>, BandwidthError> {
    let read = |name: &'static str| match annotations.get(name) {
        None => Ok(0),
        Some(text) => bits(text).ok_or_else(|| BandwidthError(name, text.clone())),
    };
    let (ingress, egress) = (read(INGRESS)?, read(EGRESS)?);
    let burst = |rate: u64| if rate == 0 { 0 } else { BURST };
    Ok((ingress + egress > 0).then(|| Bandwidth {
        ingress_rate: ingress,
        ingress_burst: burst(ingress),
        egress_rate: egress,
        egress_burst: burst(egress),
    }))
}

/// Reads a quantity within the bounds.
fn bits(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let unit = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            10f64.powi(exponent)
        }
    };
    let value = number.parse::<f64>().ok()? * unit;
    (LEAST..=MOST).contains(&value).then_some(value.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, expected) in [
            ("10M", Some(10_000_000)),
            ("1.5k", Some(1500)),
            ("1Ki", Some(1024)),
            ("2e6", Some(2_000_000)),
            ("1P", Some(1_000_000_000_000_000)),
            ("1", None),
            ("2P", None),
            ("-1M", None),
            ("M", None),
            ("1X", None),
            ("", None),
        ] {
            assert_eq!(bits(text), expected, "{text}");
        }
        let one = [(INGRESS.to_owned(), "1M".to_owned())].into();
        let limits = of(&one).unwrap().unwrap();
        assert_eq!((limits.ingress_rate, limits.ingress_burst, limits.egress_burst), (1_000_000, BURST, 0));
        assert_eq!(of(&HashMap::new()), Ok(None));
        assert!(of(&[(EGRESS.to_owned(), "x".to_owned())].into()).is_err());
    }
}
