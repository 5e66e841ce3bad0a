//! Thresholds: the least of something that is to be left, and what happens below it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::quantity::{Quantity, QuantityError};

use super::signal::{Signal, UnknownSignal};

/// An amount of a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Amount {
    /// In the resource's unit: bytes, inodes, process ids.
    Quantity(Quantity),
    /// A share of the capacity, 0 to 1, in the width in which upstream counts it.
    Share(f32),
}

impl Amount {
    /// The amount in the resource's unit.
    pub(crate) fn of(&self, capacity: i64) -> i64 {
        match self {
            Self::Quantity(quantity) => quantity.value(),
            Self::Share(share) => (capacity as f64 * f64::from(*share)) as i64,
        }
    }

    /// The amount as messages write it.
    pub(crate) fn text(&self, capacity: i64) -> String {
        match self {
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Share(_) => Quantity::from_bytes(self.of(capacity)).to_string(),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

/// The least of something that is to be left.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The signal.
    pub signal: Signal,
    /// The least.
    pub value: Amount,
    /// How long there may be less; zero of a hard threshold.
    pub grace: Duration,
    /// How much more than the least is to be left once there was less.
    pub min_reclaim: Option<Amount>,
}

impl Threshold {
    /// Whether Pods are evicted at once.
    pub(crate) fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// Whether two are the same but for what is to be reclaimed.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.signal == other.signal && self.grace == other.grace && self.value == other.value
    }
}

/// A text that says nothing of thresholds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ThresholdError {
    /// A part has no separator.
    #[error("{0:?} is no pair, such as memory.available<100Mi")]
    Form(String),
    /// The signal is not one.
    #[error(transparent)]
    Signal(#[from] UnknownSignal),
    /// The same signal stands twice.
    #[error("duplicate eviction signal {0}")]
    Twice(Signal),
    /// A share is not one.
    #[error("eviction percentage {signal} is not from 0% to 100%: {value}")]
    Percentage {
        /// The signal.
        signal: Signal,
        /// The text that should be a share.
        value: String,
    },
    /// An amount is not one.
    #[error("eviction threshold {signal} {value:?}: {error}")]
    Quantity {
        /// The signal.
        signal: Signal,
        /// The text that should be an amount.
        value: String,
        /// The reason.
        error: QuantityError,
    },
    /// An amount is zero or below.
    #[error("eviction threshold {signal} must be positive: {value}")]
    NotPositive {
        /// The signal.
        signal: Signal,
        /// The amount.
        value: String,
    },
    /// An amount to be reclaimed is below zero.
    #[error("negative eviction minimum reclaim specified for {0}")]
    Negative(Signal),
    /// A time is not one.
    #[error("invalid eviction grace period specified: {0}, must be a positive value such as 1m30s")]
    Grace(String),
    /// A soft threshold has no time.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGrace(Signal),
}

/// The statements of a flag, `memory.available<100Mi,nodefs.available<10%`, or of a field, by their signals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statements(pub BTreeMap<String, String>);

impl Statements {
    /// Reads a flag whose signals and values stand on either side of `separator`.
    fn read(text: &str, separator: char) -> Result<Self, ThresholdError> {
        let mut all = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let form = || ThresholdError::Form(part.to_owned());
            let (signal, value) = part.split_once(separator).ok_or_else(form)?;
            if all.insert(signal.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(ThresholdError::Twice(signal.trim().parse()?));
            }
        }
        Ok(Self(all))
    }

    /// Reads `signal=value` pairs, as in `--eviction-minimum-reclaim`.
    ///
    /// # Errors
    /// The text is not made of such pairs.
    pub fn pairs(text: &str) -> Result<Self, ThresholdError> {
        Self::read(text, '=')
    }

    fn parsed(&self) -> impl Iterator<Item = Result<(Signal, &str), ThresholdError>> {
        self.0.iter().map(|(signal, value)| Ok((signal.parse()?, value.as_str())))
    }
}

impl FromStr for Statements {
    type Err = ThresholdError;

    /// Reads `signal<value` pairs, as in `--eviction-hard`.
    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let all = Self::read(text, '<')?;
        thresholds(&all)?;
        Ok(all)
    }
}

impl fmt::Display for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|(signal, value)| format!("{signal}<{value}")).collect();
        f.write_str(&all.join(","))
    }
}

/// Upstream's defaults of `evictionHard`.
const DEFAULT_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// The statements that a node's thresholds are made of; upstream's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// `evictionHard`.
    pub hard: Statements,
    /// `evictionSoft`.
    pub soft: Statements,
    /// `evictionSoftGracePeriod`.
    pub grace: Statements,
    /// `evictionMinimumReclaim`.
    pub min_reclaim: Statements,
}

impl Default for Statement {
    fn default() -> Self {
        Self {
            hard: default_hard(),
            soft: Statements::default(),
            grace: Statements::default(),
            min_reclaim: Statements::default(),
        }
    }
}

/// Upstream's defaults of `evictionHard`.
pub fn default_hard() -> Statements {
    let owned = |(signal, value): &(&str, &str)| ((*signal).to_owned(), (*value).to_owned());
    Statements(DEFAULT_HARD.iter().map(owned).collect())
}

impl Statement {
    /// The thresholds; `allocatable` if Pods together are held to what the node gives.
    ///
    /// # Errors
    /// A statement is none.
    pub fn thresholds(&self, allocatable: bool) -> Result<Vec<Threshold>, ThresholdError> {
        let mut all = thresholds(&self.hard)?;
        let mut soft = thresholds(&self.soft)?;
        let graces = graces(&self.grace)?;
        let reclaims = reclaims(&self.min_reclaim)?;
        for threshold in &mut soft {
            let signal = threshold.signal;
            threshold.grace = *graces.get(&signal).ok_or(ThresholdError::NoGrace(signal))?;
        }
        all.extend(soft);
        for threshold in &mut all {
            threshold.min_reclaim = reclaims.get(&threshold.signal).cloned();
        }
        if allocatable {
            let of_node = |t: &&Threshold| t.signal == Signal::Memory && t.is_hard();
            let more: Vec<Threshold> = all
                .iter()
                .filter(of_node)
                .map(|t| Threshold { signal: Signal::AllocatableMemory, ..t.clone() })
                .collect();
            all.extend(more);
        }
        Ok(all)
    }
}

fn percentage(signal: Signal, value: &str) -> Option<Result<f32, ThresholdError>> {
    let number = value.strip_suffix('%')?;
    let wrong = || ThresholdError::Percentage { signal, value: value.to_owned() };
    // In the width in which upstream reads and divides it.
    let share = number.parse::<f32>().ok().map(|percent| percent / 100.0);
    Some(share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong))
}

fn quantity(signal: Signal, value: &str) -> Result<Quantity, ThresholdError> {
    Quantity::parse(value).map_err(|error| ThresholdError::Quantity {
        signal,
        value: value.to_owned(),
        error,
    })
}

/// Those without a meaning are left out: 0 % is never reached, and 100 % always.
fn thresholds(statements: &Statements) -> Result<Vec<Threshold>, ThresholdError> {
    let mut all = Vec::new();
    for statement in statements.parsed() {
        let (signal, value) = statement?;
        let value = match percentage(signal, value) {
            Some(_) if ["0%", "100%"].contains(&value) => continue,
            Some(share) => Amount::Share(share?),
            None => {
                let quantity = quantity(signal, value)?;
                if quantity.sign() <= 0 {
                    return Err(ThresholdError::NotPositive { signal, value: quantity.to_string() });
                }
                Amount::Quantity(quantity)
            }
        };
        all.push(Threshold { signal, value, grace: Duration::ZERO, min_reclaim: None });
    }
    Ok(all)
}

fn graces(statements: &Statements) -> Result<BTreeMap<Signal, Duration>, ThresholdError> {
    let grace = |value: &str| {
        let wrong = || ThresholdError::Grace(value.to_owned());
        let parsed = api::time::parse_duration(value).ok_or_else(wrong)?;
        Duration::try_from(parsed).map_err(|_| wrong())
    };
    statements.parsed().map(|s| s.and_then(|(signal, value)| Ok((signal, grace(value)?)))).collect()
}

fn reclaims(statements: &Statements) -> Result<BTreeMap<Signal, Amount>, ThresholdError> {
    let amount = |signal, value: &str| {
        if let Some(share) = percentage(signal, value) {
            let share = share?;
            let value = value.to_owned();
            return if share > 0.0 {
                Ok(Amount::Share(share))
            } else {
                Err(ThresholdError::Percentage { signal, value })
            };
        }
        let quantity = quantity(signal, value)?;
        if quantity.sign() < 0 {
            Err(ThresholdError::Negative(signal))
        } else {
            Ok(Amount::Quantity(quantity))
        }
    };
    statements.parsed().map(|s| s.and_then(|(signal, value)| Ok((signal, amount(signal, value)?)))).collect()
}
