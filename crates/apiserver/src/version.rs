//! The release whose API the server has, and the platform that it was built for.

use serde::Serialize;

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

/// The version that this server tells: that of the build, or the one that it was given.
pub(crate) fn git_version() -> &'static str {
    component::version::given().unwrap_or(BUILD.version)
}

/// The answer of `/version`, with its fields in the order of Go's type (`version.Info`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Info {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

/// The answer of `/version`.
pub(crate) fn info() -> Info {
    Info {
        major: BUILD.major,
        minor: BUILD.minor,
        emulation_major: BUILD.major,
        emulation_minor: BUILD.minor,
        min_compatibility_major: "1",
        min_compatibility_minor: "35",
        git_version: git_version(),
        git_commit: BUILD.commit,
        git_tree_state: BUILD.tree_state,
        build_date: BUILD.date,
        go_version: BUILD.go_version,
        compiler: BUILD.compiler,
        platform: platform(),
    }
}

/// The same as Go prints the fields of such a value (`--version=raw`).
pub fn version_text() -> String {
    let info = info();
    let fields = [
        ("Major", info.major),
        ("Minor", info.minor),
        ("EmulationMajor", info.emulation_major),
        ("EmulationMinor", info.emulation_minor),
        ("MinCompatibilityMajor", info.min_compatibility_major),
        ("MinCompatibilityMinor", info.min_compatibility_minor),
        ("GitVersion", info.git_version),
        ("GitCommit", info.git_commit),
        ("GitTreeState", info.git_tree_state),
        ("BuildDate", info.build_date),
        ("GoVersion", info.go_version),
        ("Compiler", info.compiler),
        ("Platform", &info.platform),
    ];
    fields.map(|(name, value)| format!("{name}:{value:?}")).join(", ")
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
