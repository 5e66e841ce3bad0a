//! The release whose API the server has, and the platform that it was built for.

use serde_json::{Value, json};

/// The facts of a build.
pub(crate) struct Build {
    pub(crate) major: &'static str,
    pub(crate) minor: &'static str,
    pub(crate) version: &'static str,
    pub(crate) commit: &'static str,
    pub(crate) tree_state: &'static str,
    pub(crate) date: &'static str,
    pub(crate) go_version: &'static str,
    pub(crate) compiler: &'static str,
}

/// The release whose API this is, and who serves it.
pub(crate) const BUILD: Build = Build {
    major: "1",
    minor: "36",
    version: "v1.36.2+ferrokube",
    commit: "",
    tree_state: "clean",
    date: "1970-01-01T00:00:00Z",
    go_version: "",
    compiler: "rustc",
};

/// The operating system and processor, as Go calls them.
pub(crate) fn platform() -> String {
    format!("{}/{}", std::env::consts::OS, arch())
}

/// The answer of `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": BUILD.major,
        "minor": BUILD.minor,
        "emulationMajor": BUILD.major,
        "emulationMinor": BUILD.minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": BUILD.version,
        "gitCommit": BUILD.commit,
        "gitTreeState": BUILD.tree_state,
        "buildDate": BUILD.date,
        "goVersion": BUILD.go_version,
        "compiler": BUILD.compiler,
        "platform": platform(),
    })
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
