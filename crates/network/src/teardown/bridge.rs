//! Removes what is left of a bridged pod network, which older versions made with the standard plugins: the bridge, the
//! leases, and packet filter rules of Pods whose sandboxes were not taken down by the runtime.

use std::process::Stdio;

use netlink::Routing;
use tokio::process::Command;

use super::error::TeardownError;
use crate::place::Place;

/// Removes the bridge with its leases and rules, if there are any.
pub(super) async fn teardown(place: &Place) -> Result<(), TeardownError> {
    let leases = place.leases();
    if !leases.exists() {
        return Ok(());
    }
    // The bridge has the name with which those of links begin now.
    let bridge = place.links();
    let remove = || -> Result<(), netlink::Error> {
        let mut routing = Routing::open()?;
        routing.link(&bridge)?.map_or(Ok(()), |link| routing.delete_link(link.index))
    };
    let link = remove().map_err(TeardownError::from);
    let mut rules = Ok(());
    for tool in ["iptables", "ip6tables"] {
        rules = rules.and(remove_rules(tool, &place.name()).await);
    }
    let leases = std::fs::remove_dir_all(leases).map_err(TeardownError::Files);
    link.and(rules).and(leases)
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
}
