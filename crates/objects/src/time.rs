//! Times in the forms of objects.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A time in whole seconds, as the API keeps a `metav1.Time`.
pub fn whole_seconds(t: Timestamp) -> Time {
    Time(Timestamp::from_second(t.as_second()).unwrap_or(t))
}

/// A `metav1.Time` as text: RFC 3339, whole seconds, UTC.
pub fn text(t: Timestamp) -> String {
    t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole() {
        for (time, want) in [
            ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z"),
        ] {
            let t: Timestamp = time.parse().unwrap();
            assert_eq!(text(t), want);
            assert_eq!(serde_json::to_value(whole_seconds(t)).unwrap(), want);
        }
    }
}
