//! Compiles the shim for the target, without the standard library, so that the crate can embed it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=build.rs");
    let text = |name: &str| env::var(name).unwrap_or_default();
    let out = PathBuf::from(text("OUT_DIR")).join("shim");
    let source = Path::new(&text("CARGO_MANIFEST_DIR")).join("shim/main.rs");
    let mut rustc = Command::new(text("RUSTC"));
    rustc.args(["--edition", "2024", "--crate-name", "shim", "--crate-type", "bin"]);
    rustc.args(["--target", &text("TARGET")]);
    // Warnings belong to whoever changes the shim: `tests/shim.rs` compiles it with them.
    rustc.args(["--cap-lints", "allow"]);
    // Static and at a fixed address: a relocated one would hold a private copy of each page that has an address.
    rustc.args([
        "-Cpanic=abort",
        "-Copt-level=s",
        "-Clto=fat",
        "-Cstrip=symbols",
        "-Crelocation-model=static",
    ]);
    rustc.args([
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-static",
        "-Clink-arg=-no-pie",
    ]);
    rustc.arg("-Clink-arg=-Wl,--gc-sections,--build-id=none,-z,noexecstack,-z,norelro");
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    if text("CARGO_CFG_TARGET_ENV") == "musl" {
        rustc.args(["-Clink-self-contained=no", "-Ctarget-feature=+crt-static"]);
    }
    rustc.arg("-o").arg(&out).arg(&source);
    match rustc.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("the shim does not compile: {status}");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("rustc cannot be run for the shim: {e}");
            ExitCode::FAILURE
        }
    }
}
