//! Ends of programs, as Go's `os.ProcessState` tells them: events and errors have upstream's words.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The end of a program.
pub(crate) fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(6)) => "signal: aborted".into(),
        (None, Some(9)) => "signal: killed".into(),
        (None, Some(11)) => "signal: segmentation fault".into(),
        (None, Some(15)) => "signal: terminated".into(),
        (None, Some(other)) => format!("signal: signal {other}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_in_go() {
        let check = |raw: i32, expected: &str| assert_eq!(told(ExitStatus::from_raw(raw)), expected);
        check(0, "exit status 0");
        check(32 << 8, "exit status 32");
        check(9, "signal: killed");
        check(15, "signal: terminated");
        check(31, "signal: signal 31");
    }
}
