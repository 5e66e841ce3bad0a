//! Runs the shim's program, which lies in the memory of this process and in a sealed memory file.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags};

/// The program, as the build script compiled it.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim"));

/// The shim's program as a file that cannot be changed: a container that finds it by `/proc/PID/exe` can only read it.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    pub(crate) fn new() -> io::Result<Self> {
        sealed(c"ferrokube-shim", PROGRAM).map(Self)
    }

    /// Starts a process of it, with its set-up socket as standard input. Nothing else is passed on.
    pub(crate) fn run(&self, setup: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        command.arg0("ferrokube-shim").env_clear().current_dir("/");
        command.stdin(Stdio::from(setup)).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn()
    }
}

/// A sealed memory file.
pub(crate) fn sealed(name: &std::ffi::CStr, content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let d = rustix::fs::memfd_create(name, flags)?;
    let mut file = std::fs::File::from(d);
    file.write_all(content)?;
    let d = OwnedFd::from(file);
    rustix::fs::fcntl_add_seals(
        &d,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(d)
}
