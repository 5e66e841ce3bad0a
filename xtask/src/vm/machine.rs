//! A virtual machine, without the processor's help: qemu translates its instructions.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The last line of a machine that has done all that it should.
pub(super) const END: &str = "VM-END";

/// A machine to start.
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    /// The archive that the kernel unpacks.
    pub(super) start: &'a Path,
    /// The disk, if it has one.
    pub(super) disk: Option<&'a Path>,
    /// The file for the kernel's own messages.
    pub(super) log: &'a Path,
    pub(super) memory: &'a str,
    pub(super) processors: u32,
    /// Further arguments of qemu.
    pub(super) more: &'a [&'a str],
    /// Further words of the kernel's command line.
    pub(super) words: &'a str,
}

impl Machine<'_> {
    /// Runs it to its end and gives `line` each line of its second console, and the way to write to it. Fails if it is not
    /// at its end after `limit`, or stops without having said that it is.
    pub(super) fn run(&self, limit: Duration, mut line: impl FnMut(&str, &mut ChildStdin)) -> Result<()> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", self.memory]);
        command.args(["-smp", &self.processors.to_string()]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", self.log.display())).args(["-serial", "stdio"]);
        command.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.start);
        command.args(["-append", &format!("console=ttyS0 quiet panic=-1 {}", self.words)]);
        if let Some(disk) = self.disk {
            // Nobody wants the disk afterwards.
            let drive = format!("file={},if=virtio,format=raw,cache=unsafe", disk.display());
            command.args(["-drive", &drive]);
        }
        command.args(self.more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting qemu-system-x86_64")?;
        let out = child.stdout.take().context("qemu has no output")?;
        let mut input = child.stdin.take().context("qemu has no input")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Bytes that are no text must not end it.
            for bytes in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&bytes).trim_end().to_owned()).is_err() {
                    return;
                }
            }
        });
        let begin = Instant::now();
        let mut whole = false;
        let ended = loop {
            match lines.recv_timeout(limit.saturating_sub(begin.elapsed())) {
                Ok(text) if text == END => whole = true,
                Ok(text) => line(&text, &mut input),
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        if !ended {
            child.kill()?;
        }
        child.wait()?;
        if whole {
            return Ok(());
        }
        let said = fs::read(self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let said: Vec<&str> = said.lines().collect();
        let last = said[said.len().saturating_sub(30)..].join("\n");
        let why = if ended { "stopped before its end" } else { "was not at its end in time" };
        bail!("the machine {why}, after {:.0} s; its last messages:\n{last}", begin.elapsed().as_secs_f64())
    }
}
