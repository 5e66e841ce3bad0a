//! Tracked UDP connections, which have no end that the kernel would see (upstream: `pkg/proxy/conntrack`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink::conntrack::{Flow, UDP};

/// The endpoints to which packets to an address and port may go; a node port has the address zero.
pub(crate) type Routes = HashMap<(IpAddr, u16), Vec<(IpAddr, u16)>>;

/// Whether a connection to a Service leads to no endpoint that serves: one that is gone, or the Service's own address,
/// from before it had endpoints.
pub(crate) fn is_stale(flow: &Flow, routes: &Routes) -> bool {
    if flow.protocol != UDP {
        return false;
    }
    let (to, from) = (flow.original.destination, flow.reply.source);
    let any: IpAddr = match to.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let serving = routes.get(&(to.ip(), to.port())).or_else(|| routes.get(&(any, to.port())));
    serving.is_some_and(|serving| !serving.contains(&(from.ip(), from.port())))
}
