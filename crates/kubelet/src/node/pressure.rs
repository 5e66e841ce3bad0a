//! Whether the node runs short of something: eviction thresholds and the conditions they stand for.

use api::quantity::{Quantity, QuantityError};
use jiff::{SignedDuration, Timestamp};
use std::fmt;

use super::machine::{Filesystem, Pids};

/// How long a pressure is reported after it has gone; upstream's `evictionPressureTransitionPeriod`.
pub(crate) const TRANSITION: SignedDuration = SignedDuration::from_mins(5);

/// The least of something, absolute or as a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// In the resource's unit (bytes, inodes, process ids).
    Quantity(u64),
    /// Share of the capacity, 0 to 1.
    Share(f64),
}

impl Threshold {
    /// The least in the resource's unit.
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Quantity(n) => n,
            Self::Share(share) => (capacity as f64 * share) as u64,
        }
    }
}

/// Upstream's `evictionHard`.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// `memory.available`.
    pub memory: Threshold,
    /// `nodefs.available`.
    pub nodefs: Threshold,
    /// `nodefs.inodesFree`.
    pub nodefs_inodes: Threshold,
    /// `imagefs.available`.
    pub imagefs: Threshold,
    /// `imagefs.inodesFree`.
    pub imagefs_inodes: Threshold,
    /// `pid.available`; upstream sets none.
    pub pids: Option<Threshold>,
}

impl Default for Thresholds {
    /// Upstream's defaults on Linux.
    fn default() -> Self {
        Self {
            memory: Threshold::Quantity(100 << 20),
            nodefs: Threshold::Share(0.10),
            nodefs_inodes: Threshold::Share(0.05),
            imagefs: Threshold::Share(0.15),
            imagefs_inodes: Threshold::Share(0.05),
            pids: None,
        }
    }
}

/// The room that is left. A resource that could not be measured counts as enough.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Memory in bytes: capacity and what is available.
    pub memory: Option<(u64, u64)>,
    /// The file system of the kubelet's directory.
    pub nodefs: Option<Filesystem>,
    /// The file system of the images.
    pub imagefs: Option<Filesystem>,
    /// Process ids.
    pub pids: Option<Pids>,
}

/// Which pressures there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressures {
    /// `MemoryPressure`.
    pub memory: bool,
    /// `DiskPressure`.
    pub disk: bool,
    /// `PIDPressure`.
    pub pids: bool,
}

/// Why a text holds no thresholds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// A part has no `<`.
    #[error("{0:?} is no threshold, such as memory.available<100Mi")]
    Form(String),
    /// A share is not one.
    #[error("{0:?} is no percentage from 0% to 100%")]
    Percentage(String),
    /// An amount is not one.
    #[error("{value:?}: {error}")]
    Quantity {
        /// The text that should be an amount.
        value: String,
        /// Why it is none.
        error: QuantityError,
    },
    /// An amount is below zero.
    #[error("{0:?} is negative")]
    Negative(String),
    /// A signal is not known.
    #[error("{0:?} is no eviction signal, such as memory.available")]
    Signal(String),
}

impl std::str::FromStr for Thresholds {
    type Err = ThresholdError;

    /// Reads upstream's `--eviction-hard`: `memory.available<100Mi,nodefs.available<10%`. Signals that
    /// are not named have no threshold.
    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let none = Threshold::Quantity(0);
        let mut all = Self {
            memory: none,
            nodefs: none,
            nodefs_inodes: none,
            imagefs: none,
            imagefs_inodes: none,
            pids: None,
        };
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (signal, value) =
                part.split_once('<').ok_or_else(|| ThresholdError::Form(part.to_owned()))?;
            let share =
                value.strip_suffix('%').map(|p| p.parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p)));
            let threshold = match share {
                Some(Some(percent)) => Threshold::Share(percent / 100.0),
                Some(None) => return Err(ThresholdError::Percentage(value.to_owned())),
                None => {
                    let amount = Quantity::parse(value)
                        .map_err(|error| ThresholdError::Quantity { value: value.to_owned(), error })?;
                    let negative = |_| ThresholdError::Negative(value.to_owned());
                    Threshold::Quantity(u64::try_from(amount.value()).map_err(negative)?)
                }
            };
            match signal {
                "memory.available" => all.memory = threshold,
                "nodefs.available" => all.nodefs = threshold,
                "nodefs.inodesFree" => all.nodefs_inodes = threshold,
                "imagefs.available" => all.imagefs = threshold,
                "imagefs.inodesFree" => all.imagefs_inodes = threshold,
                "pid.available" => all.pids = Some(threshold),
                _ => return Err(ThresholdError::Signal(signal.to_owned())),
            }
        }
        Ok(all)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(n) => write!(f, "{n}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

/// Written as `--eviction-hard` reads it.
impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory.available<{},nodefs.available<{}", self.memory, self.nodefs)?;
        write!(f, ",nodefs.inodesFree<{}", self.nodefs_inodes)?;
        write!(f, ",imagefs.available<{},imagefs.inodesFree<{}", self.imagefs, self.imagefs_inodes)?;
        self.pids.map_or(Ok(()), |pids| write!(f, ",pid.available<{pids}"))
    }
}

impl Thresholds {
    /// The pressures of this moment.
    pub fn check(&self, room: &Room) -> Pressures {
        let short = |fs: Option<Filesystem>, bytes: Threshold, inodes: Threshold| {
            fs.is_some_and(|fs| {
                fs.available < bytes.of(fs.capacity)
                    // Some file systems have no fixed number of inodes.
                    || (fs.inodes > 0 && fs.inodes_free < inodes.of(fs.inodes))
            })
        };
        Pressures {
            memory: room.memory.is_some_and(|(capacity, available)| available < self.memory.of(capacity)),
            disk: short(room.nodefs, self.nodefs, self.nodefs_inodes)
                || short(room.imagefs, self.imagefs, self.imagefs_inodes),
            pids: match (room.pids, self.pids) {
                (Some(pids), Some(least)) => pids.max.saturating_sub(pids.used) < least.of(pids.max),
                _ => false,
            },
        }
    }
}

/// Pressures as they are reported: each stays for a while after it has gone.
#[derive(Debug, Default)]
pub struct Reported {
    memory: Option<Timestamp>,
    disk: Option<Timestamp>,
    pids: Option<Timestamp>,
}

impl Reported {
    /// Takes the pressures of `now`; returns those to report.
    pub fn observe(&mut self, now: Timestamp, seen: Pressures) -> Pressures {
        let hold = |last: &mut Option<Timestamp>, seen: bool| {
            if seen {
                *last = Some(now);
            }
            last.is_some_and(|last| now.duration_since(last) < TRANSITION)
        };
        Pressures {
            memory: hold(&mut self.memory, seen.memory),
            disk: hold(&mut self.disk, seen.disk),
            pids: hold(&mut self.pids, seen.pids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        let fs = |available, inodes_free| Filesystem { capacity: 1000, available, inodes: 100, inodes_free };
        let check = |room: Room, memory, disk, pids| {
            let thresholds = Thresholds { pids: Some(Threshold::Quantity(10)), ..Thresholds::default() };
            assert_eq!(thresholds.check(&room), Pressures { memory, disk, pids }, "{room:?}");
        };
        check(Room::default(), false, false, false);
        check(Room { memory: Some((1 << 30, (100 << 20) - 1)), ..Room::default() }, true, false, false);
        check(Room { memory: Some((1 << 30, 100 << 20)), ..Room::default() }, false, false, false);
        check(Room { nodefs: Some(fs(99, 50)), ..Room::default() }, false, true, false);
        check(Room { nodefs: Some(fs(100, 5)), ..Room::default() }, false, false, false);
        check(Room { nodefs: Some(fs(100, 4)), ..Room::default() }, false, true, false);
        check(Room { imagefs: Some(fs(149, 50)), ..Room::default() }, false, true, false);
        let none = Filesystem { inodes: 0, inodes_free: 0, ..fs(500, 0) };
        check(Room { nodefs: Some(none), ..Room::default() }, false, false, false);
        check(Room { pids: Some(Pids { max: 100, used: 91 }), ..Room::default() }, false, false, true);
    }

    #[test]
    fn a_pressure_is_held_for_five_minutes() {
        let start: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        let at = |minutes| start + SignedDuration::from_mins(minutes);
        let short = Pressures { disk: true, ..Pressures::default() };
        let mut reported = Reported::default();
        assert_eq!(reported.observe(at(0), Pressures::default()), Pressures::default());
        assert_eq!(reported.observe(at(1), short), short);
        assert_eq!(reported.observe(at(5), Pressures::default()), short);
        assert_eq!(reported.observe(at(6), Pressures::default()), Pressures::default());
    }
}
