//! The pages `/statusz` and `/flagz`, as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

/// `/statusz`: how long a component runs, and which paths it serves.
pub fn statusz(component: &str, version: &str, started: Timestamp, now: Timestamp, paths: &[&str]) -> String {
    let up = now.duration_since(started).as_secs().max(0);
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    format!(
        "\n{component} statusz\n{WARNING}\n\nStarted: {}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {version}\n\nPaths: {}\n",
        started.strftime("%a %b %e %H:%M:%S UTC %Y"),
        paths.join(" "),
    )
}

/// `/flagz`: the flags of a component with their values.
pub fn flagz(component: &str, flags: &BTreeMap<String, String>) -> String {
    let mut page = format!("\n{component} flagz\n{WARNING}\n");
    for (name, value) in flags {
        let _ = writeln!(page, "{name}={value}");
    }
    page
}
