//! The times of the last shutdown, on the disk so that they are told after it; upstream's file.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, RecordError};

/// The file's name in the kubelet's directory.
const FILE: &str = "graceful_node_shutdown_state";

/// When Pods began to end, and when none was waited for any more. A time that is not known is Go's zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Times {
    #[serde(default = "never")]
    start_time: Timestamp,
    #[serde(default = "never")]
    end_time: Timestamp,
}

/// Go's zero: the first moment of the year 1.
fn never() -> Timestamp {
    Timestamp::from_second(-62_135_596_800).unwrap_or_default()
}

/// The whole seconds since 1970 of a time, 0 if it is not known.
fn seconds(time: Timestamp) -> f64 {
    if time == never() { 0.0 } else { time.as_second() as f64 }
}

impl Times {
    pub(super) fn new(start: Timestamp, end: Option<Timestamp>) -> Self {
        Self { start_time: start, end_time: end.unwrap_or_else(never) }
    }

    /// Both as the metrics have them.
    pub(super) fn seconds(&self) -> (f64, f64) {
        (seconds(self.start_time), seconds(self.end_time))
    }
}

/// The file.
#[derive(Debug, Clone)]
pub(super) struct Record(PathBuf);

impl Record {
    pub(super) fn new(root: &Path) -> Self {
        Self(root.join(FILE))
    }

    pub(super) fn load(&self) -> Result<Option<Times>, RecordError> {
        match checkpoint::read(&self.0)? {
            Some(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            None => Ok(None),
        }
    }

    pub(super) fn store(&self, times: &Times) -> Result<(), RecordError> {
        Ok(checkpoint::write(&self.0, &serde_json::to_vec(times)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::new(dir.path());
        assert_eq!(record.load().unwrap(), None);
        let start: Timestamp = "2026-01-02T03:04:05.5Z".parse().unwrap();
        record.store(&Times::new(start, None)).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text, r#"{"startTime":"2026-01-02T03:04:05.5Z","endTime":"0001-01-01T00:00:00Z"}"#);
        assert_eq!(record.load().unwrap().unwrap().seconds(), (start.as_second() as f64, 0.0));
        let end: Timestamp = "2026-01-02T03:05:05Z".parse().unwrap();
        record.store(&Times::new(start, Some(end))).unwrap();
        assert_eq!(record.load().unwrap(), Some(Times::new(start, Some(end))));
        std::fs::write(dir.path().join(FILE), "{}").unwrap();
        assert_eq!(record.load().unwrap().unwrap().seconds(), (0.0, 0.0));
        std::fs::write(dir.path().join(FILE), "[").unwrap();
        assert!(record.load().is_err());
    }
}
