//! Debian's cloud kernel, and the archive that it unpacks at its start: busybox, the modules, a script.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cpio::Archive;
use crate::setup;

/// The modules that a node needs, besides those that these need: disks, links, and the packet filter's parts, which the
/// kernel would have a program load when they are first named.
const MODULES: [&str; 34] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "overlay",
    "loop",
    "veth",
    "bridge",
    "br_netfilter",
    "dummy",
    "vxlan",
    "wireguard",
    "tun",
    "nf_tables",
    "nf_conntrack_netlink",
    "nft_chain_nat",
    "nft_compat",
    "nft_connlimit",
    "nft_ct",
    "nft_fib_inet",
    "nft_hash",
    "nft_limit",
    "nft_log",
    "nft_masq",
    "nft_nat",
    "nft_numgen",
    "nft_objref",
    "nft_quota",
    "nft_redir",
    "nft_reject_inet",
    "nft_socket",
    "nft_synproxy",
    "nft_tproxy",
    "inet_diag",
    "tcp_diag",
];

/// A kernel with its modules.
pub(super) struct Kernel {
    /// The kernel itself.
    pub(super) image: PathBuf,
    /// The modules by their names, in which `-` is `_`.
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// The one that set-up has unpacked.
    pub(super) fn find(root: &Path) -> Result<Self> {
        let at = setup::kernel(root);
        let boot = fs::read_dir(at.join("boot")).context("there is no kernel: `cargo xtask setup vm`")?;
        let image = boot
            .flatten()
            .map(|e| e.path())
            .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz")));
        let mut modules = BTreeMap::new();
        // A system whose /lib is a link to /usr/lib has its packages' files there.
        for lib in ["lib/modules", "usr/lib/modules"] {
            find_modules(&at.join(lib), &mut modules);
        }
        Ok(Self { image: image.context("the kernel's package has no kernel")?, modules })
    }

    /// Puts busybox and a script, which becomes the first process, into an archive, with the modules in `/modules`: their
    /// names say the order in which they are loaded.
    pub(super) fn start(&self, init: &str) -> Result<Archive> {
        let mut archive = Archive::default();
        for directory in ["bin", "dev", "proc", "sys", "root", "modules"] {
            archive.directory(directory);
        }
        archive.file("bin/busybox", 0o755, &fs::read("/bin/busybox")?);
        archive.file("init", 0o755, init.as_bytes());
        let mut done = Vec::new();
        for name in MODULES {
            self.add(name, &mut done, &mut archive)?;
        }
        Ok(archive)
    }

    fn add(&self, name: &str, done: &mut Vec<String>, archive: &mut Archive) -> Result<()> {
        // A kernel may have it built in.
        let Some(path) = self.modules.get(name).filter(|_| !done.iter().any(|d| d == name)) else {
            return Ok(());
        };
        let bytes = read_module(path)?;
        for other in needs(&bytes) {
            self.add(&other, done, archive)?;
        }
        archive.file(&format!("modules/{:03}-{name}.ko", done.len()), 0o644, &bytes);
        done.push(name.to_owned());
        Ok(())
    }
}

fn find_modules(directory: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            find_modules(&path, found);
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            found.insert(name.replace('-', "_"), path);
        }
    }
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|e| e == "ko") {
        return Ok(fs::read(path)?);
    }
    let out = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output()?;
    ensure!(out.status.success(), "xz cannot unpack {}", path.display());
    Ok(out.stdout)
}

/// The modules that a module says it needs.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|b| *b == 0).next().unwrap_or_default();
    let names = value.split(|b| *b == b',').filter(|n| !n.is_empty());
    names.map(|n| String::from_utf8_lossy(n).replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_tell_the_ones_that_they_need() {
        let check = |module: &[u8], expected: &[&str]| assert_eq!(needs(module), expected);
        check(b"\x7fELF\0license=GPL\0depends=nf_tables,nf-nat\0name=x\0", &["nf_tables", "nf_nat"]);
        check(b"\x7fELF\0depends=\0depends_not=x\0", &[]);
        check(b"\x7fELF", &[]);
        check(b"\0depends=a", &["a"]);
    }
}
