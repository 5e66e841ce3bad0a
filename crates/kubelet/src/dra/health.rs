//! How healthy devices are, as their drivers say. Pure but for the clock, which callers hand in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plugins::dra_health as pb;
use tokio::time::Instant;

/// How long a driver's word counts if it does not say; upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest message; the API's.
const MOST_MESSAGE: usize = 1024;
/// The most devices of a driver about which something is kept.
const MOST_DEVICES: usize = 10_000;

/// The states of devices, as the API writes them.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";
const UNKNOWN: &str = "Unknown";

/// Pool and name of a device.
pub(super) type DeviceId = (String, String);

#[derive(Debug, Clone, PartialEq)]
struct Word {
    health: &'static str,
    message: String,
    timeout: Duration,
    at: Instant,
}

/// The last words of drivers.
///
/// DIFFERENCE: nothing is kept on the disk; a driver says it again when the kubelet asks anew.
#[derive(Debug, Default)]
pub(super) struct Healths(BTreeMap<String, BTreeMap<DeviceId, Word>>);

impl Healths {
    /// Takes a driver's word. Answers the devices of which it is another than before.
    pub(super) fn told(
        &mut self,
        driver: &str,
        devices: Vec<pb::DeviceHealth>,
        now: Instant,
    ) -> BTreeSet<DeviceId> {
        let known = self.0.entry(driver.to_owned()).or_default();
        let (mut changed, mut named) = (BTreeSet::new(), BTreeSet::new());
        for device in devices {
            let health = match device.health() {
                pb::HealthStatus::Healthy => HEALTHY,
                pb::HealthStatus::Unhealthy => UNHEALTHY,
                pb::HealthStatus::Unknown => UNKNOWN,
            };
            let seconds = u64::try_from(device.health_check_timeout_seconds).ok().filter(|s| *s > 0);
            let timeout = seconds.map_or(TIMEOUT, Duration::from_secs);
            let id = device.device.unwrap_or_default();
            let id = (id.pool_name, id.device_name);
            if known.len() >= MOST_DEVICES && !known.contains_key(&id) {
                continue;
            }
            let word = Word { health, message: shortened(&device.message), timeout, at: now };
            let same = |old: &Word| Word { at: now, ..old.clone() } == word;
            if !known.get(&id).is_some_and(same) {
                changed.insert(id.clone());
            }
            named.insert(id.clone());
            known.insert(id, word);
        }
        for (id, word) in known.iter_mut().filter(|(id, _)| !named.contains(*id)) {
            if word.health != UNKNOWN && now.duration_since(word.at) > word.timeout {
                (word.health, word.message, word.at) = (UNKNOWN, String::new(), now);
                changed.insert(id.clone());
            }
        }
        changed
    }

    /// Forgets what a driver said: it says nothing any more.
    pub(super) fn forget(&mut self, driver: &str) {
        self.0.remove(driver);
    }

    /// How healthy a device is, and what its driver says of that.
    pub(super) fn of(&self, driver: &str, id: &DeviceId, now: Instant) -> (&'static str, Option<String>) {
        match self.0.get(driver).and_then(|all| all.get(id)) {
            Some(word) if now.duration_since(word.at) <= word.timeout => {
                (word.health, Some(word.message.clone()).filter(|m| !m.is_empty()))
            }
            _ => (UNKNOWN, None),
        }
    }
}

/// A message that the API takes.
fn shortened(message: &str) -> String {
    if message.len() <= MOST_MESSAGE {
        return message.to_owned();
    }
    let mut end = MOST_MESSAGE - 3;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(device: &str, health: pb::HealthStatus, timeout: i64, message: &str) -> pb::DeviceHealth {
        pb::DeviceHealth {
            device: Some(pb::DeviceIdentifier { pool_name: "p".into(), device_name: device.into() }),
            health: health.into(),
            health_check_timeout_seconds: timeout,
            message: message.into(),
            ..pb::DeviceHealth::default()
        }
    }

    fn id(device: &str) -> DeviceId {
        ("p".into(), device.into())
    }

    /// As upstream's `TestUpdateHealthInfo`, `TestGetHealthInfo` and `TestTruncateHealthMessage` have it.
    #[tokio::test(start_paused = true)]
    async fn a_word_counts_for_a_while() {
        use pb::HealthStatus::{Healthy, Unhealthy, Unknown};
        let now = Instant::now();
        let mut all = Healths::default();
        let both = vec![word("a", Healthy, 0, ""), word("b", Unhealthy, 100, "hot")];
        assert_eq!(all.told("d", both.clone(), now), [id("a"), id("b")].into());
        assert!(all.told("d", both.clone(), now).is_empty(), "the same");
        assert_eq!(all.of("d", &id("b"), now), ("Unhealthy", Some("hot".into())));
        assert_eq!(all.of("d", &id("c"), now), ("Unknown", None));
        assert_eq!(all.of("e", &id("a"), now), ("Unknown", None));
        let later = now + TIMEOUT;
        assert_eq!(all.of("d", &id("a"), later).0, "Healthy");
        let late = later + Duration::from_secs(1);
        assert_eq!(all.of("d", &id("a"), late).0, "Unknown");
        assert_eq!(all.of("d", &id("b"), late).0, "Unhealthy");
        // One that is not named any more changes once its time is over.
        assert!(all.told("d", vec![word("b", Unhealthy, 100, "hot")], later).is_empty());
        assert_eq!(all.told("d", vec![word("b", Unhealthy, 100, "hot")], late), [id("a")].into());
        assert_eq!(all.told("d", vec![word("b", Unhealthy, -1, "hot")], late), [id("b")].into());
        assert_eq!(all.told("d", vec![word("b", Unknown, 0, "")], late), [id("b")].into());
        let long = format!("{}é", "x".repeat(1020));
        all.told("d", vec![word("b", Healthy, 0, &format!("{long}{long}"))], late);
        let told = all.of("d", &id("b"), late).1.unwrap();
        assert!(told.len() <= 1024 && told.ends_with("..."), "{}", told.len());
        all.forget("d");
        assert_eq!(all.of("d", &id("b"), late), ("Unknown", None));
        let many = (0..MOST_DEVICES + 5).map(|n| word(&n.to_string(), Healthy, 0, "")).collect();
        assert_eq!(all.told("d", many, late).len(), MOST_DEVICES);
    }
}
