//! The routes that make addresses of Services the node's own.

use std::collections::BTreeSet;

use netlink::{Error, LocalRoute, Routing};
use objects::Cidr;

use crate::layout::hash;

/// A number for who made a route (`RTPROT_…`): that of the pod network and this proxy.
const PROTOCOL: u8 = 70;

/// The routes of one proxy.
pub(crate) struct Routes {
    /// The metric of its routes, by which they are told from those of another cluster's proxy.
    metric: u32,
    /// The blocks that have routes, if they are known.
    present: Option<BTreeSet<Cidr>>,
}

impl Routes {
    pub(crate) fn new(owner: &str) -> Self {
        // A metric of 0 is none.
        let metric = u32::try_from(hash(&[owner.as_bytes()]) & 0x7fff_ffff).unwrap_or_default().max(1);
        Self { metric, present: None }
    }

    /// Makes routes for these blocks, and for no others.
    pub(crate) fn write(&mut self, routing: &mut Routing, wanted: BTreeSet<Cidr>) -> Result<(), Error> {
        let present = match self.present.take() {
            Some(present) => present,
            None => self.read(routing)?,
        };
        if present == wanted {
            self.present = Some(present);
            return Ok(());
        }
        if wanted.difference(&present).any(|block| block.prefix() == block.width()) {
            answer_for_links_alone(routing)?;
        }
        for gone in present.difference(&wanted).filter_map(|block| self.route(*block)) {
            routing.delete_local_route(&gone)?;
        }
        for new in wanted.difference(&present).filter_map(|block| self.route(*block)) {
            routing.add_local_route(&new)?;
        }
        self.present = Some(wanted);
        Ok(())
    }

    fn read(&self, routing: &mut Routing) -> Result<BTreeSet<Cidr>, Error> {
        let all = routing.local_routes()?.into_iter();
        let own = all.filter(|route| route.protocol == PROTOCOL && route.metric == self.metric);
        let block = |route: LocalRoute| {
            let whole = Cidr::from(route.destination);
            Cidr::part(whole, whole.first(), route.prefix.into())
        };
        Ok(own.map(block).collect())
    }

    fn route(&self, block: Cidr) -> Option<LocalRoute> {
        let prefix = u8::try_from(block.prefix()).ok()?;
        Some(LocalRoute { destination: block.nth(0)?, prefix, protocol: PROTOCOL, metric: self.metric })
    }
}

/// Keeps the kernel from telling neighbours that addresses of balancers are here, which the one who holds an address
/// does. Upstream's `strictARP`, for the links to networks alone: Pods may find their node by an address of another link.
fn answer_for_links_alone(routing: &mut Routing) -> Result<(), Error> {
    let addresses = routing.addresses()?;
    let joins_network = |link: &netlink::Link| {
        let mut own = addresses.iter().filter(|a| a.link == link.index);
        own.any(|a| a.address.is_ipv4() && !a.address.is_loopback() && a.prefix < 32)
    };
    for link in routing.links()?.into_iter().filter(joins_network) {
        for (setting, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
            let path = format!("/proc/sys/net/ipv4/conf/{}/{setting}", link.name);
            if let Err(error) = std::fs::write(path, value) {
                tracing::warn!(link = link.name, %error,
                    "neighbours may be told that addresses of load balancers are here: {setting} cannot be set");
            }
        }
    }
    Ok(())
}
