//! Settings of the kernel's network, of the network namespace of the thread that asks.

use std::io;
use std::path::{Path, PathBuf};

const NET: &str = "/proc/sys/net";

/// The file of a link's setting, for IPv4 (4) or IPv6 (6).
fn of_link(link: &str, family: u8, name: &str) -> PathBuf {
    Path::new(NET).join(format!("ipv{family}/conf")).join(link).join(name)
}

/// Sets something of a link. A kernel without it goes on as it is: what needs it fails and tells so.
pub(crate) fn set_link(link: &str, family: u8, name: &str, value: &str) {
    let path = of_link(link, family, name);
    if let Err(error) = set(&path, value) {
        tracing::debug!(path = %path.display(), %error, "a setting of the kernel cannot be changed");
    }
}

/// Sets something unless it is so.
fn set(path: &Path, value: &str) -> io::Result<()> {
    if std::fs::read_to_string(path)?.trim() == value {
        return Ok(());
    }
    std::fs::write(path, value)
}

/// Lets the kernel pass packets on; tells each setting that it cannot change.
///
/// A node whose own routes come from router advertisements goes on taking them: the kernel would stop to.
pub fn allow_forwarding(ipv6: bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut wanted = vec![Path::new(NET).join("ipv4/ip_forward")];
    if ipv6 {
        for link in std::fs::read_dir(Path::new(NET).join("ipv6/conf")).into_iter().flatten().flatten() {
            let accepts = link.path().join("accept_ra");
            if std::fs::read_to_string(&accepts).is_ok_and(|value| value.trim() == "1") {
                let _ = std::fs::write(&accepts, "2");
            }
        }
        wanted.push(of_link("all", 6, "forwarding"));
    }
    for path in wanted {
        if let Err(error) = set(&path, "1") {
            let name =
                path.strip_prefix("/proc/sys").unwrap_or(&path).display().to_string().replace('/', ".");
            complaints.push(format!(
                "Pods cannot reach other machines: {name} cannot be set ({error}); run `sysctl -w {name}=1`"
            ));
        }
    }
    complaints
}
