//! Firewalls of others on this machine that let no packet of a Pod pass.

use netlink::nft::{Family, Filter, Hook};

/// The sentences about them, each with the command that helps. Only those of nftables are seen, to which today's
/// `iptables` belongs.
pub fn that_drops() -> Result<Vec<String>, netlink::Error> {
    let mut filter = Filter::open()?;
    let mut sentences = Vec::new();
    for (family, name, tool) in
        [(Family::Ipv4, "ip", "iptables"), (Family::Ipv6, "ip6", "ip6tables"), (Family::Inet, "inet", "")]
    {
        for (table, chain) in filter.dropping(family, Hook::Forward)? {
            let help = if table == "filter" && chain == "FORWARD" && !tool.is_empty() {
                format!("{tool} -P FORWARD ACCEPT")
            } else {
                format!("nft chain {name} {table} {chain} '{{ policy accept; }}'")
            };
            sentences.push(format!(
                "a firewall drops what Pods send to other machines (chain {chain} of table {name} {table}): run `{help}`"
            ));
        }
    }
    Ok(sentences)
}

#[cfg(test)]
mod tests {
    use testkit::Host;

    use super::*;
    use crate::testing::within;

    #[test]
    fn a_firewall_that_drops_is_told_with_the_command_that_helps() {
        let host = Host::new("walled").unwrap();
        assert_eq!(within(&host, || that_drops().unwrap()), [""; 0]);
        for rules in [
            "add table ip filter",
            "add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
            "add chain ip filter INPUT { type filter hook input priority 0; policy drop; }",
            "add table inet other",
            "add chain inet other forward { type filter hook forward priority 0; policy drop; }",
        ] {
            host.run("nft", &[rules]).unwrap();
        }
        let sentences = within(&host, || that_drops().unwrap());
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        for (sentence, help) in sentences
            .iter()
            .zip(["iptables -P FORWARD ACCEPT", "nft chain inet other forward '{ policy accept; }'"])
        {
            assert!(sentence.ends_with(&format!("run `{help}`")), "{sentence}");
        }
        host.run("nft", &["chain inet other forward { policy accept; }"]).unwrap();
        assert_eq!(within(&host, || that_drops().unwrap()).len(), 1);
    }
}
