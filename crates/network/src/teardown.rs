//! Removes the remains of a pod network after its Pods: the bridge, the leases, and packet filter rules of Pods whose
//! sandboxes were not taken down by the runtime.

use std::process::Stdio;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use thiserror::Error;
use tokio::process::Command;

use crate::cni::{Cni, CniError};

/// The reason for which a part of the pod network is still there.
#[derive(Debug, Error)]
pub enum TeardownError {
    /// The configuration could not be removed.
    #[error(transparent)]
    Configuration(#[from] CniError),
    /// The bridge could not be removed.
    #[error("cannot remove the bridge {0}")]
    Bridge(String, #[source] std::io::Error),
    /// The leases could not be removed.
    #[error("cannot remove the address leases")]
    Leases(#[source] std::io::Error),
    /// The packet filter rules could not be removed.
    #[error("cannot remove the rules of the pod network: {0}")]
    Rules(String),
}

/// Removes everything that the pod network left on this machine. Each part is tried; the first error
/// is returned.
pub async fn teardown(cni: &Cni) -> Result<(), TeardownError> {
    let configuration = cni.remove().map_err(TeardownError::from);
    let bridge = cni.bridge();
    let link = delete_link(&bridge).map_err(|e| TeardownError::Bridge(bridge, e));
    let leases = match std::fs::remove_dir_all(cni.lease_dir()) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(TeardownError::Leases(e)),
        _ => Ok(()),
    };
    let mut rules = Ok(());
    for tool in ["iptables", "ip6tables"] {
        rules = rules.and(remove_rules(tool, &cni.network()).await);
    }
    configuration.and(link).and(leases).and(rules)
}

async fn remove_rules(tool: &str, network: &str) -> Result<(), TeardownError> {
    let Ok(listing) = run(tool, &["-S".into()]).await else {
        // Without the tool the plugins could not have made a rule.
        return Ok(());
    };
    for command in plan(&listing, network) {
        run(tool, &command).await.map_err(TeardownError::Rules)?;
    }
    Ok(())
}

async fn run(tool: &str, arguments: &[String]) -> Result<String, String> {
    let output = Command::new(tool)
        .args(["-w", "-t", "nat"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|e| format!("{tool}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The commands that remove a network's rules from a listing (`-S`), and the chains to which they jump.
///
/// The plugins name the network in a comment: `name: "N" id: "…"`.
fn plan(listing: &str, network: &str) -> Vec<Vec<String>> {
    let mark = format!("name: \"{network}\"");
    let mut deletions = Vec::new();
    let mut chains: Vec<String> = Vec::new();
    for line in listing.lines() {
        let words = split(line);
        let ours = words.windows(2).any(|w| w[0] == "--comment" && w[1].contains(&mark));
        if words.first().map(String::as_str) != Some("-A") || !ours {
            continue;
        }
        let mut deletion = words.clone();
        deletion[0] = "-D".into();
        deletions.push(deletion);
        let target = words.windows(2).find(|w| w[0] == "-j").map(|w| w[1].clone());
        // This is a chain of the plugins with one Pod's rules, not one that all networks share.
        if let Some(chain) = target.filter(|c| c.starts_with("CNI-") && !c.starts_with("CNI-HOSTPORT"))
            && !chains.contains(&chain)
        {
            chains.push(chain);
        }
    }
    let mut commands = Vec::new();
    // Rules inside the chains go with the chains.
    commands.extend(deletions.into_iter().filter(|d| !chains.contains(&d[1])));
    for chain in &chains {
        commands.push(vec!["-F".into(), chain.clone()]);
        commands.push(vec!["-X".into(), chain.clone()]);
    }
    commands
}

/// Splits a line of a listing as a shell would: words, quotes, backslashes.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut escaped, mut any) = (false, false, false);
    for c in line.chars() {
        match c {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => word.push(c),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

const RTM_DELLINK: u16 = 17;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const ENODEV: i32 = 19;

/// Removes a network interface; a missing one is no error.
fn delete_link(name: &str) -> std::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Protocol 0 of this family is NETLINK_ROUTE.
        None,
    )?;
    rustix::net::send(&socket, &delete_request(name), SendFlags::empty())?;
    let mut answer = [0u8; 4096];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    match acknowledgement(&answer[..length.min(answer.len())]) {
        Some(0 | ENODEV) => Ok(()),
        Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
        None => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// An rtnetlink request: header, `ifinfomsg`, the name as an attribute.
fn delete_request(name: &str) -> Vec<u8> {
    let attribute = 4 + name.len() + 1;
    let length = 16 + 16 + attribute.next_multiple_of(4);
    let mut request = Vec::with_capacity(length);
    request.extend_from_slice(&(length as u32).to_ne_bytes());
    request.extend_from_slice(&RTM_DELLINK.to_ne_bytes());
    request.extend_from_slice(&NLM_F_REQUEST_ACK.to_ne_bytes());
    request.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    request.extend_from_slice(&[0; 16]);
    request.extend_from_slice(&(attribute as u16).to_ne_bytes());
    request.extend_from_slice(&IFLA_IFNAME.to_ne_bytes());
    request.extend_from_slice(name.as_bytes());
    request.resize(length, 0);
    request
}

/// The error number of an acknowledgement, 0 for success.
fn acknowledgement(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let errno = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(errno.wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_one_network() {
        let listing = r#"-P POSTROUTING ACCEPT
-N CNI-1111
-N CNI-2222
-N CNI-DN-3333
-N CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.1.0.2/32 -m comment --comment "name: \"ours\" id: \"abc\"" -j CNI-1111
-A POSTROUTING -s 10.2.0.2/32 -m comment --comment "name: \"other\" id: \"def\"" -j CNI-2222
-A CNI-1111 -d 10.1.0.0/24 -m comment --comment "name: \"ours\" id: \"abc\"" -j ACCEPT
-A CNI-1111 ! -d 224.0.0.0/4 -m comment --comment "name: \"ours\" id: \"abc\"" -j MASQUERADE
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"ours\" id: \"abc\"" -m multiport --dports 80 -j CNI-DN-3333
-A CNI-DN-3333 -p tcp -j DNAT --to-destination 10.1.0.2:80"#;
        let commands: Vec<String> = plan(listing, "ours").iter().map(|c| c.join(" ")).collect();
        assert_eq!(
            commands,
            [
                r#"-D POSTROUTING -s 10.1.0.2/32 -m comment --comment name: "ours" id: "abc" -j CNI-1111"#,
                r#"-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment dnat name: "ours" id: "abc" -m multiport --dports 80 -j CNI-DN-3333"#,
                "-F CNI-1111",
                "-X CNI-1111",
                "-F CNI-DN-3333",
                "-X CNI-DN-3333",
            ]
        );
        assert!(plan(listing, "none").is_empty());
    }

    #[test]
    fn a_link_that_is_not_there() {
        let request = delete_request("fk-12345678");
        assert_eq!(request.len() % 4, 0);
        assert_eq!(u32::from_ne_bytes(request[..4].try_into().unwrap()) as usize, request.len());
        delete_link("fk-none-here").unwrap();
    }
}
