//! The tests that run in a virtual machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::test::cargo_nextest;

/// Programs of Debian that tests call.
pub(super) const PROGRAMS: [&str; 15] = [
    "bash", "cp", "curl", "flock", "ip", "losetup", "mount", "nft", "nsenter", "openssl", "prlimit", "runc",
    "setpriv", "umount", "unshare",
];

/// Newer programs that set-up has put into the checkout.
pub(super) const TOOLS: [&str; 4] = ["containerd", "containerd-shim-runc-v2", "ctr", "kubectl"];

/// Tests by the beginnings of their names.
pub(super) struct Suite {
    /// The time that the machine has for all, in seconds.
    pub(super) seconds: u64,
    /// Binaries, as nextest names them, with the beginnings of the names of their tests. A test stands where it is first
    /// named: the order is the one in which they run.
    tests: &'static [(&'static str, &'static [&'static str])],
}

/// A test to run.
pub(super) struct Chosen {
    /// The name of its binary.
    pub(super) binary: String,
    /// The binary.
    pub(super) path: PathBuf,
    pub(super) test: String,
    /// The time that it may take, in seconds.
    pub(super) seconds: u64,
}

/// The core, in about three minutes on two processors.
pub(super) const SMOKE: Suite = Suite {
    seconds: 900,
    tests: &[
        ("ferrokube::it", &["limits::"]),
        ("ferrokube-runtime::it", &["limits::"]),
        ("ferrokube-containers::it", &["limits::", "recovery::nothing_is_left", "isolation::", "scopes::"]),
        ("ferrokube-containers", &["cgroups::"]),
        ("ferrokube-kubelet", &["cgroups::", "cadvisor::"]),
    ],
};

/// All that meets the kernel, for the soak.
pub(super) const SUITE: Suite = Suite {
    seconds: 3 * 3600,
    tests: &[
        (
            "ferrokube::it",
            &[
                "limits::",
                "cluster::",
                "pods::",
                "resource_managers::",
                "kubelet_",
                "services::",
                "network",
                "volumes::",
            ],
        ),
        (
            "ferrokube-runtime::it",
            &["limits::", "containers::", "streams::", "adopted::", "handlers::", "kills::"],
        ),
        ("ferrokube-containers::it", &[""]),
        ("ferrokube-containers", &[""]),
        ("ferrokube-images::it", &[""]),
        ("ferrokube-kubelet", &["cgroups::", "cadvisor::", "stats::", "volumes::"]),
        ("ferrokube-netlink::it", &[""]),
        ("ferrokube-policy::it", &[""]),
        ("ferrokube-proxy::it", &[""]),
    ],
};

/// Finds the tests. Every beginning must name some, but for `only`.
pub(super) fn choose(suite: &Suite, only: Option<&str>, root: &Path) -> Result<Vec<Chosen>> {
    let mut command = cargo_nextest(root, "list");
    command.args(["--list-type", "binaries-only", "--message-format", "json"]);
    let out = command.output().context("starting cargo-nextest")?;
    ensure!(
        out.status.success(),
        "the tests were not built: {}",
        String::from_utf8_lossy(&out.stderr).trim()
    );
    let built: Value = serde_json::from_slice(&out.stdout)?;
    let mut chosen: Vec<Chosen> = Vec::new();
    for (name, beginnings) in suite.tests {
        let path = built["rust-binaries"][name]["binary-path"].as_str();
        let path = path.with_context(|| format!("there is no binary {name}"))?;
        let out = Command::new(path).args(["--list", "--format", "terse"]).output()?;
        let listed = String::from_utf8(out.stdout)?;
        let all: Vec<&str> = listed.lines().filter_map(|l| l.strip_suffix(": test")).collect();
        let binary = name.replace("::", "-");
        for beginning in *beginnings {
            let named = all.iter().filter(|test| test.starts_with(beginning));
            ensure!(named.clone().next().is_some(), "no test of {name} is called {beginning}…");
            for test in named.filter(|test| only.is_none_or(|part| test.contains(part))) {
                if chosen.iter().any(|c| c.binary == binary && c.test == *test) {
                    continue;
                }
                let (binary, path, test) = (binary.clone(), path.into(), (*test).to_owned());
                chosen.push(Chosen { binary, path, test, seconds: 600 });
            }
        }
    }
    Ok(chosen)
}
